"""Learn PDE operators from data: any points in, any points out.

>>> import lno
>>> list(lno.models.MODELS)
['lno', 'lno_plus', 'deeponet', 'gnot', 'transolver', ...]

Names are imported when they are first used, so that `lno --help` need not load PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lno.version import __version__

if TYPE_CHECKING:
    from lno import data, models
    from lno.data import Fields, Spec
    from lno.data.grids import grid
    from lno.data.observe import Intervals, RandomRatio, Window
    from lno.data.write import write
    from lno.operator import Operator
    from lno.reconstruct import Reconstructor
    from lno.tasks import Completion, Propagation, Rollout, Snapshots, Steady
    from lno.training.recipe import Recipe

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
    "Snapshots",
    "Spec",
    "Steady",
    "Window",
    "__version__",
    "data",
    "grid",
    "models",
    "write",
]
_MODULES = {
    "Completion": "lno.tasks",
    "Fields": "lno.data",
    "Intervals": "lno.data.observe",
    "Operator": "lno.operator",
    "Propagation": "lno.tasks",
    "RandomRatio": "lno.data.observe",
    "Recipe": "lno.training.recipe",
    "Reconstructor": "lno.reconstruct",
    "Rollout": "lno.tasks",
    "Snapshots": "lno.tasks",
    "Spec": "lno.data",
    "Steady": "lno.tasks",
    "Window": "lno.data.observe",
    "grid": "lno.data.grids",
    "write": "lno.data.write",
}


def __getattr__(name: str) -> Any:
    if name in ("data", "models"):
        return import_module(f"lno.{name}")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'lno' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
