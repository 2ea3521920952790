"""Data: `Fields`, their files, normalisers and observation patterns."""

from lno.data.batch import Batch
from lno.data.fields import Fields, Sample, Spec

__all__ = ["Batch", "Fields", "Sample", "Spec"]
