"""The shapes in lno's signatures, checked at every call while tests run.

`install()` comes before the first import of lno. jaxtyping's import hook then decorates every
function of the package, and here is what it decorates with. It departs from jaxtyping's own
decorator with plain beartype in three ways:

- Only annotations that hold a shape are checked. The other types are mypy's, and wrong types that
  a user may pass meet the messages of the code itself, which tests look for.
- Functions without a shape stay as they are, and so do functions inside others, which would be
  decorated at every call.
- torch.compile and torch.export see the function alone: they cannot trace the checks.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any, get_args

import jaxtyping
import torch
from beartype import beartype

with_axes = jaxtyping.jaxtyped(typechecker=None)  # one size for each named axis of a call


def install() -> None:
    """Check whatever is imported from lno from now on."""
    jaxtyping.jaxtyped = lambda typechecker: checked  # what the hook writes above a function
    jaxtyping.install_import_hook("lno", "beartype.beartype")


def checked(target: Any) -> Any:
    """Check the shapes in the signature of a function, or of a dataclass's constructor."""
    if inspect.isclass(target):
        if "__init__" in vars(target):
            target.__init__ = checked(target.__init__)
        return target
    if not inspect.isfunction(target) or "<locals>" in target.__qualname__:
        return target
    hints = shapes(target)
    if not hints:
        return target
    copy = types.FunctionType(
        target.__code__,
        target.__globals__,
        target.__name__,
        target.__defaults__,
        target.__closure__,
    )
    copy.__kwdefaults__ = target.__kwdefaults__
    copy.__qualname__, copy.__module__ = target.__qualname__, target.__module__
    copy.__annotations__ = hints
    with_checks = with_axes(beartype(copy))

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        function = target if torch.compiler.is_compiling() else with_checks
        return function(*args, **kwargs)

    # Code of its own: torch.compile counts recompilations by it.
    call.__code__ = call.__code__.replace(co_name=target.__name__)
    return call


def shapes(function: types.FunctionType) -> dict[str, object]:
    """The annotations of a function that hold a shape."""
    found = {}
    for name, hint in function.__annotations__.items():
        try:
            hint = eval(hint, function.__globals__) if isinstance(hint, str) else hint
        except NameError:  # a class that is defined further down, or imported for mypy alone
            continue
        if has_shape(hint):
            found[name] = hint
    return found


def has_shape(hint: object) -> bool:
    """Whether an annotation is a shape or has one inside, as in `Float[Tensor, "b n"] | None`."""
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(has_shape(part) for part in get_args(hint))
