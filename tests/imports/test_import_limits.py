"""Files that were made to do harm are refused before they take memory or leave their folder."""

from __future__ import annotations

import base64
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from lno import Fields, limits


def refused(path: Path, message: str, **how: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Fields.from_files(path, **{"outputs": "T", **how})
    assert path.name in str(caught.value)


def npz_of(path: Path, data: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("T.npy", data)
    return path


def npy(shape: tuple[int, ...], data: bytes, dtype: str = "<f8") -> bytes:
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


def test_an_archive_that_unpacks_to_much_more_than_its_size(tmp_path: Path) -> None:
    count = 2 * limits.IMPORT_SMALL_BYTES // 8
    path = npz_of(tmp_path / "a.npz", npy((count,), bytes(8 * count)))
    refused(path, r"T: claims 33,\d+,\d+ bytes, of which the file holds")


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(compression: int, tmp_path: Path) -> None:
    path = npz_of(tmp_path / "a.npz", npy((1,), bytes(8)), compression)
    refused(path, "compressed in a way NumPy does not write")


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6, 10**6), (-1, 5)])
def test_shapes_that_are_not_stored(shape: tuple[int, ...], tmp_path: Path) -> None:
    refused(
        npz_of(tmp_path / "a.npz", npy(shape, bytes(64))), "claims .* are stored|cannot be read"
    )
    (tmp_path / "T.npy").write_bytes(npy(shape, bytes(64)))
    refused(tmp_path / "T.npy", "claims .* are stored|cannot be read")


def test_objects_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", T=np.array([{"a": 1}], dtype=object))
    refused(tmp_path / "a.npz", r"T: holds Python objects \(a pickle\), which can run any code")
    np.save(tmp_path / "T.npy", np.array([{"a": 1}], dtype=object))
    refused(tmp_path / "T.npy", "holds Python objects")


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("T.npy", npy((1,), bytes(8)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("T.npy", npy((1,), bytes(8)))
    refused(tmp_path / "a.npz", "two arrays of the name 'T'")


def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    path = npz_of(tmp_path / "a.npz", npy((3, 4), bytes(96)), zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[200] ^= 1  # among the values
    path.write_bytes(data)
    refused(path, "cannot be read as .*Bad CRC-32")


def test_datasets_that_claim_and_do_not_store(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("T", shape=(10**6, 10**6), dtype="f8", chunks=(100, 100))
    refused(tmp_path / "a.h5", r"T: claims 8,000,000,000,000 bytes, of which the file holds 0")


def test_a_netcdf_header_that_asks_for_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a flipped bit in the length of a name does, if memory is limited."""

    def too_large(*_: object, **__: object) -> None:
        raise MemoryError

    path = tmp_path / "a.nc"
    path.write_bytes(b"CDF\x01" + b"\x7f" * 60)
    monkeypatch.setattr("xarray.open_dataset", too_large)
    refused(path, "damaged: its header asks for more memory than there is")


def test_values_in_other_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["T"] = np.zeros((3, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["T"] = h5py.ExternalLink("other.h5", "T")
        file.create_dataset("b", shape=(3, 4), dtype="f8", external=[("/dev/zero", 0, 96)])
    refused(tmp_path / "a.h5", "no variable 'T' for outputs")
    refused(tmp_path / "a.h5", "its values are in another file", outputs="b")


def vtu(path: Path, text: str) -> Path:
    pytest.importorskip("meshio")
    path.write_text(text)
    return path


@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_xml_entities(coding: str, tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 9))
    text = f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY a0 "b">{entities}]><VTKFile>&a8;</VTKFile>'
    path = vtu(tmp_path / "a.vtu", "")
    path.write_bytes(text.encode(coding))
    refused(path, "declares XML entities|expected XML in UTF-8")


def test_a_compressed_mesh_that_unpacks_to_much_more(tmp_path: Path) -> None:
    block = zlib.compress(bytes(2 * limits.IMPORT_SMALL_BYTES), 9)
    header = struct.pack("<4I", 1, 0, 0, len(block))
    data = (base64.b64encode(header) + base64.b64encode(block)).decode()
    text = (
        '<VTKFile type="UnstructuredGrid" version="0.1" compressor="vtkZLibDataCompressor">'
        '<UnstructuredGrid><Piece NumberOfPoints="1" NumberOfCells="0"><Points><DataArray '
        f'type="Float64" NumberOfComponents="3" format="binary">{data}</DataArray></Points>'
        "</Piece></UnstructuredGrid></VTKFile>"
    )
    refused(vtu(tmp_path / "a.vtu", text), "unpacks to far more than its size")


@pytest.mark.parametrize(
    "item",
    [
        '<DataItem Dimensions="3 3" Format="Binary">/dev/zero</DataItem>',
        '<DataItem Dimensions="3 3" Format="HDF">../other.h5:/T</DataItem>',
        '<DataItem Dimensions="3 3" Format="HDF">/etc/other.h5:/T</DataItem>',
    ],
)
def test_meshes_do_not_lead_to_other_places(item: str, tmp_path: Path) -> None:
    text = f'<Xdmf Version="3.0"><Domain><Grid><Geometry>{item}</Geometry></Grid></Domain></Xdmf>'
    refused(vtu(tmp_path / "a.xdmf", text), "refers to .*: only HDF5 files beside it are read")


def test_a_mesh_that_is_none_says_so_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.vtk", "a.vtu", "a.msh", "a.stl", "a.med"):
        refused(vtu(tmp_path / name, "nothing of the kind"), "cannot be read as a mesh")
    assert capfd.readouterr() == ("", "")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    refused(tmp_path / "a.csv", "is not a regular file")


def test_text_of_files_is_made_harmless(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,T\x1b[31m\n0,\x1b]0;a\x07\n")
    with pytest.raises(ValueError) as caught:
        Fields.from_files(tmp_path / "a.csv", positions="x", outputs="T\x1b[31m")
    assert "\x1b" not in str(caught.value)
