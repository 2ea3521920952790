"""Writing files so that nothing is lost, reading files that may be damaged, and owning a folder.

- `replacing` writes a file atomically. What a killed process leaves behind is removed by the next
  writer of the same file, and by the next owner of a run's folder.
- `seal` puts a SHA-256 into a safetensors file, and `read_sealed` checks it.
- `owning` locks a folder or a file for one process.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import socket
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lno import limits

UNSEALED = "0" * 64  # where the digest will stand
STALE_SECONDS = 86_400.0  # after which a temporary file of another machine counts as left behind
_NUMBER = itertools.count()  # of temporary folders: two threads may write files of one name
_OWNED: set[tuple[int, int, Path]] = set()  # process, thread and path of each lock that is held


# -- writing ---------------------------------------------------------------------------------------


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path and move it over `path` when the block succeeds.

    Whatever happens inside the block (an exception, a full disk, a killed process), `path` holds
    either its old content or the whole new one. If it is a symbolic link, the file that it points
    to is replaced, not the link. The temporary file has a hidden folder of its own beside `path`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    target = Path(os.path.realpath(path))
    own = f"{_machine()}-{os.getpid()}-{next(_NUMBER)}"
    folder = target.with_name(f".{target.name}.{own}.tmp")
    temporary = folder / target.name
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            raise OSError(errno.EINVAL, "it is not a regular file")
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, lambda name: name.startswith(f".{target.name}."))
        folder.mkdir()
        temporary.touch()
        mode = temporary.stat().st_mode  # the user's own; some libraries write for the owner only
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        ours = (temporary, folder, target, *target.parents)
        if error.filename is not None and Path(error.filename) not in ours:
            raise  # about another file, which the block read or wrote
        reason = error.strerror or str(error)
        raise OSError(
            f"cannot write {path}: {reason}. Choose a folder that can be written and has room."
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the error that matters is the one above


def remove_leftovers(folder: Path, wanted: Callable[[str], bool]) -> None:
    """Remove temporary files of dead processes in a folder; `wanted` says which, by their name."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".tmp") or not wanted(entry.name):
                continue
            if _is_left_behind(entry):
                remove(Path(entry.path))


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _is_left_behind(entry: os.DirEntry[str]) -> bool:
    """Whether the process that made a temporary file is dead, by its name `.….PROCESS.tmp`."""
    found = re.search(r"\.(?:([0-9a-f]{8})-)?(\d{1,19})(?:-\d+)?\.tmp$", entry.name)
    if found is None:
        return False
    machine, process = found[1], int(found[2])
    if machine is not None and machine != _machine():
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS
    return not _is_alive(process)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # there is no harmless way to ask
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True  # somebody else's
    return True


def _machine() -> str:
    """Eight characters that tell machines apart which share a folder."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def require_folder(path: str | Path) -> Path:
    """Make a folder if need be, and raise if nothing can be written there: before the work."""
    folder = Path(path)
    probe = folder / f".probe.{_machine()}-{os.getpid()}-{next(_NUMBER)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise OSError(
            f"cannot write into {folder}: {reason}. Expected a folder; choose another one."
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


# -- reading ---------------------------------------------------------------------------------------


def read_json(path: str | Path, kind: str = "a JSON file") -> Any:
    """What is in a JSON file; one that is damaged or too large is an error that names it.

    NaN and infinity are errors here too.
    """
    require_regular(path, kind)
    try:
        size = Path(path).stat().st_size
        if size > limits.JSON_BYTES:
            raise ValueError(f"it has {size:,} bytes, expected at most {limits.JSON_BYTES:,}")
        return parse_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not {kind}: {error}") from error


def parse_json(text: str | bytes, finite: bool = True) -> Any:
    """The content of JSON that may be hostile; a ValueError says what is wrong with it.

    Args:
        text: the JSON.
        finite: refuse NaN and infinity, which are not JSON, but which Python writes.

    >>> parse_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> parse_json("[1e999]")
    Traceback (most recent call last):
    ...
    ValueError: expected finite numbers, got 1e999
    """
    numbers = {"parse_constant": _no_number, "parse_float": _finite} if finite else {}
    try:
        content = json.loads(text, parse_int=_integer, **numbers)  # type: ignore[arg-type]
    except RecursionError:
        raise ValueError(f"nested deeper than {limits.JSON_DEPTH} levels") from None
    level, depth = [content], 0
    while level := [c for c in level if isinstance(c, dict | list)]:
        depth += 1
        if depth > limits.JSON_DEPTH:
            raise ValueError(f"nested deeper than {limits.JSON_DEPTH} levels")
        level = [inner for c in level for inner in (c.values() if isinstance(c, dict) else c)]
    escape = b"\\ud" if isinstance(text, bytes) else "\\ud"
    if escape in text.lower():  # type: ignore[operator]
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair in a text: it cannot be printed") from None
    return content


def _no_number(name: str) -> float:
    raise ValueError(f"expected numbers, got {name}")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"expected finite numbers, got {digits[:40]}")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -limits.JSON_INTEGER <= int(digits) < limits.JSON_INTEGER:
        raise ValueError(f"a whole number of {len(digits)} digits ({digits[:20]}...) is too large")
    return int(digits)


def require_regular(path: str | Path, kind: str) -> None:
    """Raise unless the file exists and is a plain one."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected {kind}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: expected {kind}")
    if not path.is_file():  # reading a pipe might wait for ever
        raise ValueError(f"{path} is not a regular file: expected {kind}")


def require_signature(path: str | Path, signature: bytes, offset: int, kind: str) -> None:
    """Raise unless the file exists and has the `signature` of its `kind` at byte `offset`.

    Args:
        path: the file.
        signature: the bytes that every file of this kind has.
        offset: where they stand.
        kind: what the caller expects, in words, for the error.
    """
    path = Path(path)
    require_regular(path, kind)
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


# -- safetensors files with a digest ---------------------------------------------------------------
#
# The metadata of a file have one key (safetensors writes several in random order), whose value is
# a JSON object that begins with "digest". The digest is the SHA-256 of the whole file with 64 zeros
# in its own place: of tensors, names, shapes and metadata.


@dataclass(frozen=True)
class Sealed:
    """A safetensors file in memory.

    Args:
        data: the whole file. In memory, so that nothing can change after it was checked.
        metadata: its metadata.
        intact: whether it matches its digest.
    """

    data: bytes
    metadata: dict[str, str]
    intact: bool


def seal(path: Path) -> None:
    """Write the digest of a safetensors file in the place that `UNSEALED` keeps for it."""
    with path.open("r+b") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
        place = _digest_place(header)
        if header[place : place + len(UNSEALED)] != UNSEALED.encode():
            raise ValueError(f"expected the metadata of {path} to begin with an empty digest")
        file.seek(0)
        digest = hashlib.sha256()
        while part := file.read(1 << 20):
            digest.update(part)
        file.seek(8 + place)
        file.write(digest.hexdigest().encode())


def read_sealed(path: str | Path, kind: str) -> Sealed:
    """Read a safetensors file and check its digest; raises where it is no such file at all."""
    require_signature(path, b"{", 8, kind)
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    if size > min(limits.HEADER_BYTES, len(data) - 8):
        raise ValueError(f"{path} is damaged or not {kind}: its header claims {size:,} bytes")
    header = data[8 : 8 + size]
    try:
        content = parse_json(header.decode())
        metadata = content.get("__metadata__", {}) if isinstance(content, dict) else []
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise ValueError("expected metadata that are text")
    except ValueError as error:
        raise ValueError(f"{path} is damaged or not {kind}: {error}") from error
    try:
        place = 8 + _digest_place(header)
    except ValueError:
        return Sealed(data, metadata, False)
    view, end = memoryview(data), place + len(UNSEALED)
    digest = hashlib.sha256(view[:place])
    digest.update(UNSEALED.encode())
    digest.update(view[end:])
    return Sealed(data, metadata, digest.hexdigest().encode() == view[place:end])


def _digest_place(header: bytes) -> int:
    """Where the digest stands in the header of a file, at its first mention."""
    found = re.search(rb'\\"digest\\": \\"([0-9a-f]{64})\\"', header)
    if found is None:
        raise ValueError("no digest")
    return found.start(1)


def system_error(error: Exception) -> OSError:
    """The error of the system that an error of safetensors was made of: a full disk, say."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))


# -- one owner -------------------------------------------------------------------------------------


@contextmanager
def owning(path: str | Path) -> Iterator[None]:
    """Own a folder, or a file that is being made, while inside; a killed process gives it up.

    A second process, or thread, is refused with a `BlockingIOError` that says who the owner is. The
    owner may nest calls.
    """
    target = Path(os.path.realpath(path))
    lock = target / ".lno.lock" if target.is_dir() else target.with_name(f".{target.name}.lock")
    holder = lock.with_suffix(".owner")
    key = (os.getpid(), threading.get_ident(), lock)
    if key in _OWNED:
        yield
        return
    held = FileLock(lock)
    try:
        held.acquire(blocking=False)
    except Timeout:
        raise BlockingIOError(
            f"{path} is in use by {_holder(holder)}: wait until it ends, or choose another place"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(f"cannot write {lock}: {error.strerror or error}") from error
        warnings.warn(
            f"{path} cannot be locked on this file system: make sure that nobody else writes it",
            stacklevel=3,
        )
    _OWNED.add(key)
    try:
        who = {"process": os.getpid(), "host": socket.gethostname()}
        write_json(holder, {**who, "since": time.strftime("%Y-%m-%d %H:%M:%S")})
        yield
    finally:
        _OWNED.discard(key)
        remove(holder)
        if held.is_locked:
            remove(lock)  # before the release: whoever has just opened it starts over
            held.release()


def _holder(path: Path) -> str:
    try:
        who = read_json(path)
        return f"process {who['process']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
