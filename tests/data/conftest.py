"""Shared by the tests of data files."""

import h5py
import pytest
from stored import make


@pytest.fixture
def tamper(tmp_path):
    """A valid file, changed by a function of the open h5py file."""

    def change(how, kind="ragged"):
        path = tmp_path / "a.h5"
        make(kind).save(path)
        with h5py.File(path, "r+") as file:
            how(file)
        return path

    return change
