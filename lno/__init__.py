"""Learn maps between functions: any points in, any points out.

>>> import lno
>>> sorted(lno.models.MODELS)
['deeponet', 'gnot', 'lno', 'transolver']
"""

from lno import models
from lno.data import Fields, Spec
from lno.data.observe import Intervals, RandomRatio, Window
from lno.operator import Operator
from lno.reconstruct import Reconstructor
from lno.tasks import Completion, Propagation, Rollout, Steady
from lno.training.recipe import Recipe
from lno.version import __version__

__all__ = [
    "Completion",
    "Fields",
    "Intervals",
    "Operator",
    "Propagation",
    "RandomRatio",
    "Recipe",
    "Reconstructor",
    "Rollout",
    "Spec",
    "Steady",
    "Window",
    "__version__",
    "models",
]
