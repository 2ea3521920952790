"""What a file holds, whatever its format: named arrays that are read when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from lno import limits
from lno.config import did_you_mean
from lno.data.foreign import ForeignFileError
from lno.text import visible

EXTRA = "latent-neural-operator[formats]"


@dataclass(frozen=True)
class Variable:
    """A named array.

    Args:
        name: in the file.
        shape: of its values.
        read: its numbers; raises where it holds none.
        is_number: whether it holds real numbers.
        axes: the names of its axes, where the format has them.
        unit: where the format has it.
        texts: its entries as text, for names of samples.
        dates: its entries as datetime64, where the format says that they are dates.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]
    is_number: bool = True
    axes: tuple[str, ...] | None = None
    unit: str = ""
    texts: Callable[[], Sequence[str]] | None = None
    dates: Callable[[], np.ndarray] | None = None

    def described(self) -> str:
        """Name and shape, for lists of what a file holds."""
        return f"{self.name} {self.shape}" if self.shape else self.name


@dataclass(frozen=True)
class Source:
    """The variables of a file, or of an object of another library.

    Args:
        name: of the file, for messages.
        variables: by name.
        is_table: every variable is a column, and a row is a point.
        notes: what a user should know of how it was read.
        label: of the sample, where a column of a table says which one this is.
    """

    name: str
    variables: Mapping[str, Variable]
    is_table: bool = False
    notes: tuple[str, ...] = field(default=())
    label: str = ""

    def find(self, name: str, role: str) -> Variable:
        """The variable of a name; an error suggests the nearest one.

        >>> a = Variable("temperature", (3,), lambda: np.zeros(3))
        >>> Source("a.npz", {"temperature": a}).find("temprature", "outputs")
        Traceback (most recent call last):
        ...
        lno.data.foreign.ForeignFileError: a.npz has no variable 'temprature' for outputs
        (did you mean 'temperature'?); it holds temperature (3,)
        """
        if name in self.variables:
            return self.variables[name]
        hint = did_you_mean(name, self.variables)
        what = "column" if self.is_table else "variable"
        raise ForeignFileError(
            f"{self.name} has no {what} {name!r} for {role}{hint}; it holds {self.listed()}"
        )

    def listed(self) -> str:
        """All variables, for messages."""
        found = [
            v.name if self.is_table else v.described() for v in list(self.variables.values())[:30]
        ]
        more = len(self.variables) - len(found)
        return visible(", ".join(found) + f" and {more} more" * (more > 0)) or "nothing"


def require_known(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise where something is said about a name that does not exist."""
    for name in given:
        if name not in known:
            names = ", ".join(dict.fromkeys(known))
            raise ForeignFileError(
                f"{what}: no {name!r}{did_you_mean(name, known)}; expected one of {names}"
            )


def missing_extra(what: object, package: str) -> ValueError:
    """The error for a format whose library is not installed."""
    return ValueError(f"{what} needs {package}, which is not installed: pip install '{EXTRA}'")


def require_claim(path: Path, name: str, claimed: int, stored: int) -> None:
    """Raise where an array claims many more bytes than its file holds for it."""
    if claimed > max(limits.IMPORT_RATIO * stored, limits.IMPORT_SMALL_BYTES):
        raise ForeignFileError(
            f"{path}, {visible(name)}: claims {claimed:,} bytes, of which the file holds "
            f"{stored:,}: it is damaged, or made to take all memory"
        )


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises for a damaged file into an error that names the file."""
    try:
        yield
    except (ForeignFileError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # each library raises a dozen types
        # What Python says of its own (a missing key, a wrong type) helps nobody who has a file.
        said = isinstance(error, ValueError | OSError | RuntimeError | EOFError | BadZipFile)
        shown = f": {visible(error)[:300]}" if said and str(error) else ""
        raise ForeignFileError(
            f"{path} cannot be read as {kind}{shown}. It may be damaged or incomplete: compare its "
            "size with the source's, and fetch it again."
        ) from error
