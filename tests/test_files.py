"""Files are whole or as they were."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lno.files import replacing, require_signature, write_json, write_text


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
    write_text(path, "new")
    assert path.read_text() == "new"


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
