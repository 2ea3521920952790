"""Writing data files: whatever goes wrong, the old file is kept."""

import io
import signal

import h5py
import pytest
from stored import assert_equal, in_another_process, make, only

from lno.data import Fields, store


@pytest.mark.parametrize("error", [RuntimeError("no"), OSError(28, "No space left"), KeyError("k")])
def test_a_failure_in_the_middle_keeps_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    write, calls = h5py.Dataset.__setitem__, []

    def fail(*args):
        calls.append(args)
        if len(calls) == 3:
            raise error
        write(*args)

    monkeypatch.setattr(h5py.Dataset, "__setitem__", fail)
    with pytest.raises(type(error)) as caught:
        make("uniform").save(path)
    if isinstance(error, OSError):
        assert f"cannot write {path}: No space left" in str(caught.value)
    assert path.read_bytes() == old
    assert only(tmp_path) == ["a.h5"]
    monkeypatch.undo()
    make("uniform").save(path)
    assert_equal(Fields.load(path), make("uniform"))


def test_a_killed_process_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    done = in_another_process(
        """
        import os, sys
        import h5py, numpy as np
        from lno.data import Fields
        write, calls = h5py.Dataset.__setitem__, []
        def die(self, *args):
            write(self, *args)
            self.file.flush()
            calls.append(1)
            if len(calls) == 2:
                os.kill(os.getpid(), 9)
        h5py.Dataset.__setitem__ = die
        Fields(np.zeros((1, 9)), np.ones((3, 1, 4)), y=np.ones((3, 1, 4))).save(sys.argv[1])
        """,
        path,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes() == old
    assert_equal(Fields.load(path), make("ragged"))


def test_a_disk_with_too_little_room_keeps_the_old_file(tmp_path):
    """A limit on the size of files makes real writes fail inside HDF5, as a full disk does."""
    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    done = in_another_process(
        """
        import resource, signal, sys
        import numpy as np
        from lno.data import Fields
        fields = Fields(np.zeros((1, 2)), np.random.default_rng(0).random((200, 1, 1000)))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        try:
            fields.save(sys.argv[1])
        except OSError as error:
            print(error, flush=True)
        """,
        path,
    )
    assert f"cannot write {path}" in done.stdout
    assert path.read_bytes() == old
    assert only(tmp_path) == ["a.h5"]
    assert done.returncode == 0, f"crashed with {done.returncode}: {done.stderr}"


def test_ctrl_c_while_hdf5_writes_does_not_crash_it(tmp_path, monkeypatch):
    class Interrupted(io.FileIO):
        calls = 0

        def write(self, data):
            Interrupted.calls += 1
            if Interrupted.calls == 3:
                raise KeyboardInterrupt
            return super().write(data)

    class Guarded(store._Guarded, Interrupted):
        pass

    path = tmp_path / "a.h5"
    make("ragged").save(path)
    old = path.read_bytes()
    monkeypatch.setattr(store, "_Guarded", Guarded)
    with pytest.raises(KeyboardInterrupt):
        make("uniform").save(path)
    assert Interrupted.calls >= 3
    assert path.read_bytes() == old and only(tmp_path) == ["a.h5"]
