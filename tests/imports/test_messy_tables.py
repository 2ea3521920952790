"""CSV files as CFD programs, spreadsheets and ParaView write them."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from lno import Fields
from lno.data.foreign import ForeignFileError
from lno.data.importing import import_files
from lno.data.tables import read_csv

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(size=(3, 5, 2)).round(4)
P = (101_325 + 100 * RANDOM.normal(size=(3, 5))).round(3)


def comma(*values: float) -> str:
    return ";".join(f"{value:.10g}".replace(".", ",") for value in values)


def messy(folder: Path, k: int) -> Path:
    """ParaView's names, a unit in one of them, a line of units, semicolons, commas, blank lines."""
    rows = [comma(*X[k, j], 0, P[k, j]) for j in range(5)]
    head = ['"Points:0";"Points:1";"Points:2";"p [Pa]"', "m;m;m;", ""]
    path = folder / f"case_{k}.csv"
    path.write_text("\n".join([*head, *rows, ""]), encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("given", [None, "Points:0,Points:1", "Points:0:x,Points:1:y"])
@pytest.mark.parametrize("output", ["p", "p [Pa]"])
def test_a_table_of_a_spreadsheet_is_read_as_it_is(
    tmp_path: Path, given: str | None, output: str
) -> None:
    paths = [messy(tmp_path, k) for k in range(3)]
    (tmp_path / "cases.csv").write_text("File;Re [-]\ncase_2.csv;0,5\ncase_0.csv;7\ncase_1.csv;3\n")
    found = import_files(
        paths, positions=given, outputs=output, parameters=f"{tmp_path}/cases.csv:Re"
    )
    fields = found.fields
    np.testing.assert_array_equal(np.stack([one.x for one in fields]), X)
    np.testing.assert_array_equal(np.stack([one.y for one in fields])[..., 0], P)
    np.testing.assert_array_equal(fields.parameters, [[7], [3], [0.5]])
    names = ["x", "y"] if given and ":x" in given else ["Points:0", "Points:1"]
    assert fields.names == {"x": names, "u": [], "y": ["p"], "parameters": ["Re"]}
    assert fields.units == {"x": ["m", "m"], "u": [], "y": ["Pa"], "parameters": ["-"]}
    assert "decimals have a comma: 1,5 is one and a half" in found.notes
    assert ("Points:2 is 0 at all points and was left out" in found.notes) == (given is None)


def test_a_third_coordinate_that_varies_or_that_was_named_is_kept(tmp_path: Path) -> None:
    paths = [messy(tmp_path, k) for k in range(3)]
    named = Fields.from_files(paths, positions="Points:0,Points:1,Points:2", outputs="p")
    assert named.spec.coordinates == 3
    paths[2].write_text(paths[2].read_text(encoding="utf-8-sig").replace(";0;", ";0,1;"))
    assert Fields.from_files(paths, outputs="p").spec.coordinates == 3


def test_files_in_different_units_are_refused(tmp_path: Path) -> None:
    paths = [messy(tmp_path, k) for k in range(2)]
    paths[1].write_text(paths[1].read_text(encoding="utf-8-sig").replace("[Pa]", "[kPa]"))
    with pytest.raises(ForeignFileError, match=r"p has the unit kPa, in .* Pa: convert the values"):
        Fields.from_files(paths, outputs="p")


def test_units_in_the_names_of_a_dataframe(tmp_path: Path) -> None:
    columns = {"x [m]": [0, 1, 0, 1], "run": [0, 0, 1, 1], "T (K)": [1, 2, 3, 4.0], "T0": 0}
    fields = Fields.from_dataframe(pandas.DataFrame(columns), outputs="T", parameters="T0")
    assert (fields.names["x"], fields.names["y"]) == (["x"], ["T"])
    assert (fields.units["x"], fields.units["y"]) == (["m"], ["K"])


def test_a_first_row_with_numbers_or_only_names_is_no_row_of_units(tmp_path: Path) -> None:
    path = tmp_path / "stations.csv"
    path.write_text("date,name,x,T\n2020-01-01,a,,\n2020-01-01,b,1,2\n2020-01-02,a,0,3\n")
    fields = Fields.from_files(path, sample="date", positions="x", outputs="T")
    assert [one.y.ravel().tolist() for one in fields] == [[2], [3]]
    path.write_text("x,T\n0,cold\n1,2\n")
    with pytest.raises(ForeignFileError, match="line 2, column 'T': expected a number"):
        Fields.from_files(path, outputs="T")


def test_our_own_names_x_u_y_are_positions_inputs_and_outputs(tmp_path: Path) -> None:
    x, u = np.linspace(0, 2, 7), RANDOM.normal(size=(4, 7))
    np.savez(tmp_path / "a.npz", x=x, u=u, y=2 * u)
    fields = Fields.from_files(tmp_path / "a.npz")
    np.testing.assert_array_equal(fields[0].x[:, 0], x)
    np.testing.assert_array_equal(fields[3].u[:, 0], u[3])
    np.testing.assert_array_equal(fields[3].y[:, 0], 2 * u[3])


def test_the_times_of_time_series_are_their_positions(tmp_path: Path) -> None:
    t, force = np.linspace(0, 10, 7), RANDOM.normal(size=(4, 7))
    np.savez(tmp_path / "a.npz", t=t, force=force, disp=2 * force)
    fields = Fields.from_files(tmp_path / "a.npz", inputs="force", outputs="disp")
    assert fields.names["x"] == ["t"]
    np.testing.assert_array_equal(fields[0].x[:, 0], t)


def test_a_time_axis_of_grids_is_found_and_the_rest_is_the_unit_grid(tmp_path: Path) -> None:
    t, u = np.linspace(0, 10, 7), RANDOM.normal(size=(4, 7, 3, 2))
    np.savez(tmp_path / "a.npz", t=t, u=u)
    found = import_files(tmp_path / "a.npz", outputs="u")
    assert found.fields.names["x"] == ["x", "y", "t"] and found.fields.grid == (3, 2, 7)
    np.testing.assert_array_equal(found.fields[0].y[:, 0], np.moveaxis(u[0], 0, -1).ravel())
    assert any("a grid 3 × 2 of the unit square" in note for note in found.notes)


def test_samples_along_the_last_axis_get_a_hint(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.linspace(0, 1, 30), u=np.ones((30, 9)), y=np.ones((30, 9)))
    notes = import_files(tmp_path / "a.npz").notes
    assert notes[0].endswith("If the last axis is that of the samples: sample -1")
    assert len(Fields.from_files(tmp_path / "a.npz", sample="-1")) == 9


def test_inputs_at_nodes_and_outputs_in_cells_are_named_as_such(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1.0, 0]])
    cells = [("triangle", np.array([[0, 1, 2], [0, 2, 3]]))]
    data = {"point_data": {"q": corners[:, 0]}, "cell_data": {"T": [np.array([1.0, 2])]}}
    meshio.Mesh(corners, cells, **data).write(tmp_path / "a.vtu")
    with pytest.raises(ForeignFileError, match=r"at the nodes of the mesh, the other in its cells"):
        Fields.from_files(tmp_path / "a.vtu", inputs="q", outputs="T")


def test_separators_in_quotes_and_decimal_commas_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    for head in ('"x, mean";"y, mean";"p, mean"', "# x, mean;y, mean;p, mean"):
        path.write_text(f"{head}\n1,5;2,5;3,5\n2,5;4,5;5,5\n")
        np.testing.assert_array_equal(read_csv(path, ["y, mean"]), [[2.5], [4.5]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# made by hand\n\n1,2\n3,4\n", "line 3: expected the names of the columns, got numbers"),
        ("x,y,,\n1,2,,\n", "several columns have no name: name them, or delete them"),
        (",".join(map("c{}".format, range(60_000))) + "\n", "at most 10,000 columns, got 60,000"),
        ("a[" + 50_000 * " " + "x,y,y\n1,2,3\n", "the column 'y' appears more than once"),
    ],
)
def test_impossible_headers_are_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(ForeignFileError, match=message):
        import_files(path)


HEADERS = {
    "units": "  x [m]   y (m)  p [Pa]\n",
    "units below": "x y p\n m m Pa\n",
    "a remark": "# a case\n#  x [m]  y [m]    p [Pa]\n",
    "names with blanks": "  x [m]   y [m]   static pressure [Pa]\n\n",
}


@pytest.mark.parametrize("mark", [".", ","])
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_columns_between_blanks(tmp_path: Path, header: str, mark: str) -> None:
    rows = [f"{x:12.4f}  {y:.4f} {p:14.3f}  \n" for (x, y), p in zip(X[0], P[0], strict=True)]
    path = tmp_path / "probe.txt"
    path.write_text(header + "".join(rows).replace(".", mark))
    found = import_files([path], positions="x,y")
    np.testing.assert_array_equal(found.fields[0].x, X[0])
    np.testing.assert_array_equal(found.fields[0].y[:, 0], P[0])
    assert found.fields.units["x"] == ["m", "m"] and found.fields.units["y"] == ["Pa"]
    assert "columns are separated by blanks" in found.notes


def test_a_short_row_between_blanks_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "probe.txt"
    path.write_text("x y p\n0 0 1\n1 2\n")
    with pytest.raises(ForeignFileError, match="line 3: expected 3 cells as in the header, got 2"):
        import_files([path], positions="x,y")


@pytest.mark.parametrize(
    ("encoding", "note"),
    [("latin-1", "Windows-1252"), ("cp1252", "Windows-1252"), ("utf-16", "UTF-16"), ("utf-8", "")],
)
def test_text_in_other_encodings(tmp_path: Path, encoding: str, note: str) -> None:
    path = tmp_path / "room.csv"
    path.write_bytes("x [m],Wärme [°C]\n0,20.5\n1,21\n".encode(encoding))
    found = import_files([path], outputs="Wärme")
    assert found.fields.names["y"] == ["Wärme"] and found.fields.units["y"] == ["°C"]
    np.testing.assert_array_equal(found.fields[0].y[:, 0], [20.5, 21])
    assert [text for text in found.notes if "text is" in text and note in text] or not note
    assert note or not any("text is" in text for text in found.notes)


@pytest.mark.parametrize("head", [b"", b"\xff\xfe", b"\xfe\xff", b"x,p\n0,1\n"])
def test_binary_content_is_refused_in_every_encoding(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "junk.csv"
    for seed in range(20):
        path.write_bytes(head + np.random.default_rng(seed).bytes(400))
        with pytest.raises(ForeignFileError, match=r"junk\.csv"):
            import_files([path], positions="x")
