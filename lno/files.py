"""Writing files so that nothing is ever lost, and recognising files that must not be opened."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and move it over `path` when the block succeeds.

    Whatever happens inside the block (an exception, a full disk, a killed process), `path` holds
    either its old content or the whole new one.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode  # the user's own; some libraries write for the owner only
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        ours = (temporary, target, *target.parents)
        if error.filename is not None and Path(error.filename) not in ours:
            raise  # about another file, which the block read or wrote
        reason = error.strerror or str(error)
        raise OSError(
            f"cannot write {target}: {reason}. Choose a folder that can be written and has room."
        ) from error
    finally:
        with suppress(OSError):  # the error that matters is the one above
            temporary.unlink(missing_ok=True)


def require_folder(path: str | Path) -> Path:
    """Make a folder if need be, and raise if nothing can be written there: before the work."""
    folder = Path(path)
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OSError(
            f"cannot write into {folder}: {error.strerror}. Expected a folder; choose another one."
        ) from error
    return folder


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any) -> None:
    """Write a JSON file atomically; NaN and infinity are errors, since JSON has neither."""
    try:
        text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise ValueError(f"cannot write {path}: {error}") from error
    write_text(path, text + "\n")


def read_json(path: str | Path) -> Any:
    """What is in a JSON file; NaN and infinity are errors here too."""
    return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_no_number)


def _no_number(name: str) -> None:
    raise ValueError(f"expected numbers, got {name}")


def require_signature(path: str | Path, signature: bytes, offset: int, kind: str) -> None:
    """Raise unless the file exists and has the `signature` of its `kind` at byte `offset`.

    Args:
        path: the file.
        signature: the bytes that every file of this kind has.
        offset: where they stand.
        kind: what the caller expects, in words, for the error.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected {kind}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: expected {kind}")
    with path.open("rb") as file:
        head = file.read(offset + len(signature))
    if head[offset:] == signature:
        return
    if not head:
        found = "it is empty"
    elif head[:1] == b"\x80" or head[:2] == b"PK":
        # Pickle protocols 2 and up, and the zip archives that torch.save and np.savez write.
        found = (
            "it looks like a pickle or a zip archive (torch.save, np.savez); pickles can run any "
            "code and are never opened here"
        )
    else:
        found = f"it begins with {head[:8]!r}"
    raise ValueError(f"{path} is not {kind}: {found}. It may be damaged or of another program.")
