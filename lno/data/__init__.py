"""Data: `Fields`, their files, normalisers, symmetries and observation patterns."""

from lno.data.batch import Batch
from lno.data.fields import Fields
from lno.data.quality import Finding, findings, quick_findings
from lno.data.spec import Sample, Spec

__all__ = ["Batch", "Fields", "Finding", "Sample", "Spec", "findings", "quick_findings"]
