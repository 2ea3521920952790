"""Files are whole or as they were."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lno import files
from lno.files import (
    UNSEALED,
    owning,
    read_json,
    read_sealed,
    replacing,
    require_signature,
    seal,
    write_json,
    write_text,
)


def names(folder):
    return sorted(p.name for p in Path(folder).iterdir())


def test_new_and_replaced_files(tmp_path):
    path = tmp_path / "deep" / "er" / "a.txt"
    write_text(path, "one é\n")
    assert path.read_text(encoding="utf-8") == "one é\n"
    write_text(str(path), "two")
    assert path.read_text() == "two"
    assert names(path.parent) == ["a.txt"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("ne")
        assert path.read_text() == "old"
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError()])
def test_errors_pass_through_and_leave_the_old_file(tmp_path, error):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(type(error)) as caught, replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert caught.value is error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_says_so(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    said = pytest.raises(OSError, match=r"cannot write .*a\.txt: No space left")
    with said as caught, replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_errors_of_other_files_are_not_blamed_on_this_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere") as caught, replacing(tmp_path / "a"):
        (tmp_path / "elsewhere").read_text()
    assert "cannot write" not in str(caught.value)


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path, ready = tmp_path / "a.txt", tmp_path / "ready"
    write_text(path, "old")
    code = (
        "import sys, time; from pathlib import Path; from lno.files import replacing\n"
        "with replacing(sys.argv[1]) as t:\n"
        "    t.write_text('half'); Path(sys.argv[2]).touch(); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path), str(ready)])
    try:
        deadline = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ready.exists()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert path.read_text() == "old"
    assert len(names(tmp_path)) == 3  # with what the dead process left
    write_text(path, "new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt", "ready"]


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_of_dead_processes_alone_are_removed(tmp_path):
    dead, alive, here = dead_process(), os.getppid(), files._machine()
    gone = [f".a.{dead}.tmp", f".a.{here}-{dead}-0.tmp", f".a.{here}-{dead}-1.tmp"]
    kept = [f".a.{alive}.tmp", f".a.{here}-{alive}-0.tmp", f".a.00000000-{dead}-0.tmp"]
    others = [f".b.{dead}.tmp", "a.tmp", ".a.tmp", "note.tmp"]
    for name in (*gone[:2], *kept[1:], *others):
        (tmp_path / name).touch()
    for name in (gone[2], kept[0]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").touch()
    write_text(tmp_path / "a", "new")
    assert names(tmp_path) == sorted(["a", *kept, *others])


@pytest.mark.parametrize("dangling", [False, True])
def test_symbolic_links_are_followed(tmp_path, dangling):
    real, link = tmp_path / "real" / "a.txt", tmp_path / "link.txt"
    if not dangling:
        write_text(real, "old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert names(tmp_path) == ["link.txt", "real"] and names(real.parent) == ["a.txt"]


def test_only_regular_files_are_read_and_replaced(tmp_path):
    """A pipe would be waited for, and /dev/null replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for action in (lambda: read_json(pipe), lambda: require_signature(pipe, b"{", 0, "JSON")):
        with pytest.raises(ValueError, match="pipe is not a regular file"):
            action()
    with pytest.raises(OSError, match=r"cannot write .*pipe: it is not a regular file"):
        write_text(pipe, "new")
    assert pipe.is_fifo()


def test_a_folder_in_the_place_of_the_file(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError, match=r"cannot write .*a\.txt"):
        write_text(tmp_path / "a.txt", "new")
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("name", ["a.txt", "sub/a.txt"])
def test_a_folder_that_may_not_be_written(tmp_path, name):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"cannot write .*a\.txt.*[Pp]ermission"):
        write_text(tmp_path / name, "new")


@pytest.mark.parametrize("name", ["file/a.txt", "file/sub/a.txt"])
def test_a_file_in_the_place_of_the_folder(tmp_path, name):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"cannot write .*a\.txt"):
        write_text(tmp_path / name, "new")


def test_a_name_that_is_too_long(tmp_path):
    path = tmp_path / ("a" * 300)
    with pytest.raises(OSError, match="cannot write"):
        write_text(path, "new")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"a": -float("inf")}]])
def test_json_has_no_nan(tmp_path, value):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, value)
    assert json.loads(path.read_text()) == {"a": 1}
    assert names(tmp_path) == ["a.json"]


def test_json_round_trip(tmp_path):
    content = {"ü": [1, 2.5, None, True, "\n"], "deep": {"er": 1e-300}}
    write_json(tmp_path / "a.json", content)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == content


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[" * 100_000, "nested deeper than 200 levels"),
        ("[" * 300 + "]" * 300, "nested deeper than 200 levels"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested deeper than 200 levels"),
        ("NaN", "got NaN"),
        ("[-Infinity]", "got -Infinity"),
        ("1e999", "expected finite numbers, got 1e999"),
        ("9" * 30, "a whole number of 30 digits"),
        ("9" * 10_000, "a whole number of 10000 digits"),
        (str(2**63), "too large"),
        ('"\\ud800"', "half a surrogate pair"),
        ("", "Expecting value"),
        ("{'a': 1}", "Expecting property name"),
    ],
)
def test_json_that_is_refused(tmp_path, text, word):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=word) as caught:
        read_json(path, "a recipe")
    assert f"{path} is not a recipe" in str(caught.value)


def test_json_at_the_limits(tmp_path):
    path = tmp_path / "a.json"
    for content in (2**63 - 1, -(2**63), "\U0001f600", json.loads("[" * 200 + "]" * 200)):
        path.write_text(json.dumps(content))
        assert read_json(path) == content


# -- digests ---------------------------------------------------------------------------------------


def a_sealed_file(path):
    content = {"digest": UNSEALED, "note": "ü", "inner": {"digest": "f" * 64}}
    save_file({"a": torch.arange(9.0), "b": torch.ones(2)}, path, {"k": json.dumps(content)})
    seal(path)
    return path.read_bytes()


def test_every_changed_bit_of_a_sealed_file_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    whole = a_sealed_file(path)
    assert read_sealed(path, "a file").intact
    assert load_file(path)["a"][3] == 3  # for others, it is a file like any
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert not read_sealed(path, "a file").intact, place
        except ValueError as error:
            assert str(path) in str(error)
    for length in range(8, len(whole), 13):
        path.write_bytes(whole[:length])
        try:
            assert not read_sealed(path, "a file").intact, length
        except ValueError as error:
            assert str(path) in str(error)


def test_a_file_is_sealed_once(tmp_path):
    path = tmp_path / "a.safetensors"
    whole = a_sealed_file(path)
    with pytest.raises(ValueError, match="empty digest"):
        seal(path)
    assert path.read_bytes() == whole


# -- one owner -------------------------------------------------------------------------------------

OWNER = """
import sys, time
from pathlib import Path
from lno.files import owning
with owning(sys.argv[1]):
    Path(sys.argv[2]).touch()
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path, kind):
    place, ready = tmp_path / "place", tmp_path / "ready"
    target = place if kind == "folder" else place / "a.h5"
    place.mkdir()
    with owning(target), owning(target):
        pass  # the owner may nest calls
    assert names(place) == []
    child = subprocess.Popen([sys.executable, "-c", OWNER, str(target), str(ready)])
    try:
        deadline = time.monotonic() + 60
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        before = names(place)
        who = rf"in use by process {child.pid} on {socket.gethostname()} since \d{{4}}-"
        with pytest.raises(BlockingIOError, match=who), owning(target):
            raise AssertionError("owned twice")
        assert names(place) == before
    finally:
        child.kill()
        child.wait()
    with owning(target):  # the killed process gave it up
        assert json.loads(next(place.glob(".*.owner")).read_text())["process"] == os.getpid()
    assert names(place) == []


def test_another_thread_is_refused_too(tmp_path):
    refused = []

    def second():
        try:
            with owning(tmp_path):
                pass
        except BlockingIOError as error:
            refused.append(str(error))

    with owning(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1 and f"process {os.getpid()}" in refused[0]


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "offset", "word"),
    [
        (b"", 0, "empty"),
        (b"", 8, "empty"),
        (b"MAG", 0, "MAG"),
        (b"xMAGI", 0, "xMAGI"),
        (b"12345678", 8, "12345678"),
        (b"12345678MAG", 8, "12345678"),
        (b"\x80\x04\x95", 0, "pickle"),
        (b"PK\x03\x04", 0, "pickle or a zip archive"),
        (b"\x80\x02" * 20, 8, "pickle"),
    ],
)
def test_foreign_files(tmp_path, content, offset, word):
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=word) as caught:
        require_signature(path, b"MAGI", offset, "a magic file")
    assert f"{path} is not a magic file" in str(caught.value)


def test_known_files(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345678MAGIC")
    require_signature(path, b"MAGI", 8, "a magic file")
    require_signature(str(path), b"1234", 0, "a magic file")
    with pytest.raises(FileNotFoundError, match="does not exist: expected a magic file"):
        require_signature(tmp_path / "b", b"MAGI", 0, "a magic file")
    with pytest.raises(IsADirectoryError, match="folder: expected a magic file"):
        require_signature(tmp_path, b"MAGI", 0, "a magic file")
