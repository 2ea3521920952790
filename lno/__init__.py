"""Learn maps between functions: any points in, any points out.

>>> import lno
>>> sorted(lno.models.MODELS)
['deeponet', 'gnot', 'lno', 'transolver']
"""

__version__ = "0.1.0"

from lno import models
from lno.data import Fields, Spec
from lno.data.observe import Intervals, RandomRatio, Window
from lno.operator import Operator
from lno.tasks import Completion, Propagation, Rollout, Steady
from lno.training.recipe import Recipe

__all__ = [
    "Completion",
    "Fields",
    "Intervals",
    "Operator",
    "Propagation",
    "RandomRatio",
    "Recipe",
    "Rollout",
    "Spec",
    "Steady",
    "Window",
    "models",
]
