"""CSV files as people write them, and errors that name the line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lno.data.tables import read_csv, write_csv


@pytest.fixture
def table(tmp_path):
    def write(content):
        path = tmp_path / "points.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        "x,u\n1,2\n3,4\n",
        "\ufeffx,u\n1,2\n3,4\n",
        "x,u\r\n1,2\r\n3,4\r\n",
        "x,u\r1,2\r3,4",
        " x , u \n 1 , 2 \n 3,4",
        '"x","u"\n"1","2"\n3,4',
        "u,note,x\n2,hello,1\n4,,3\n",
        "u,a,a,x\n2,nan,?,1\n4,,,3\n",
        "x,u\n\n1,2\n\n\n3,4\n\n",
        "x,u\n1e0,+2.0\n3.,4E+0\n",
        'x,note,u\n1,"two\nlines",2\n3,"a, b",4\n',
        "x;u\n1,0;2\n3;4,00\n",
        "x\tu\n1\t2\n3\t4\n",
        "x [m],u (Pa)\n1,2\n3,4\n",
        "\n\nx,u\n1,2\n3,4\n",
        "x,u\nm,Pa\n1,2\n3,4\n",
        "x,name,u\n[m],,[Pa]\n1,a,2\n3,b,4\n",
        "% Model: plate.mph\n% Version, 6.1\n% x,u (K)\n1,2\n3,4\n",
        "# made by a solver\nx,u\n1,2\n3,4\n",
    ],
)
def test_ordinary_files(table, content):
    assert read_csv(table(content), ["x", "u"]).tolist() == [[1, 2], [3, 4]]
    assert read_csv(table(content), ["u"]).tolist() == [[2], [4]]
    assert read_csv(str(table(content)), ["u", "x"]).tolist() == [[2, 1], [4, 3]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x,v\n1,2\n", r"expected the columns x, u, got x, v"),
        ("x;u\n1,5;2\n3;4.5\n", r"expected one decimal mark, got '1,5' in line 2 and '4.5' in"),
        ("x;u\n1.234,5;2\n", r"line 2, column 'x': expected a number, got '1.234,5'"),
        ("X,U\n1,2\n", r"expected the columns"),
        ("log(x),x\n1,2\n", r"expected the columns x, u, got log\(x\), x$"),
        ("", r"no header: expected the names"),
        ("\n\n", r"no header: expected the names"),
        ("x,u,x\n1,2,3\n", r"the column 'x' appears more than once"),
        ("x,u\n", r"no rows"),
        ("x,u\n\n\n", r"no rows"),
        ("x,u\n1,2\n3,four\n", r"line 3, column 'u': expected a number, got 'four'"),
        ("x,u\n1,2\n\n3,four\n", r"line 4, column 'u'"),
        ("x,u\nnan,2\n", r"line 2, column 'x': expected a number, got 'nan'"),
        ("x,u\n1,inf\n", r"line 2, column 'u'"),
        ("x,u\n1,1e999\n", r"line 2, column 'u'"),
        ("x,u\n1,\n", r"line 2, column 'u': expected a number, got ''"),
        ('x,u\n"1,5",2\n', r"line 2, column 'x'"),
        ("x,u\n1,2\n3\n", r"line 3: expected 2 cells as in the header, got 1"),
        ("x,u\n1,2,3\n", r"line 2: expected 2 cells as in the header, got 3"),
        ("x,u\n1,2,\n", r"line 2: expected 2 cells as in the header, got 3"),
        ('x,u\n1,"2\n3,4\n', r"not a CSV file"),
        ('x,u\n1,"2"3\n', r"not a CSV file"),
        (b"\x89HDF\r\n\x1a\n\xff\xfe\x00\x01", r"not a CSV file"),
        ("x,u\n1,2\n".encode("utf-16")[:-1], r"not a CSV file"),
        (bytes(1000), r"expected the columns"),
        ("x,u\n1,\x002\n", r"line 2, column 'u'"),
        ("x,u\n1," + "9" * 200_000 + "\n", r"points.csv"),
    ],
)
def test_hostile_files(table, content, words):
    path = table(content)
    with pytest.raises(ValueError, match=words) as caught:
        read_csv(path, ["x", "u"])
    assert str(path) in str(caught.value)


def test_lines_are_counted_as_an_editor_counts_them(table):
    """A quoted cell may hold a line break."""
    with pytest.raises(ValueError, match=r"line 5, column 'u'"):
        read_csv(table('x,note,u\n1,"two\nlines",2\n3,,4\n5,,six\n'), ["x", "u"])


@pytest.mark.parametrize(
    ("content", "line"),
    [('x,u\n1,2\n3,"4\n', 3), ('x,u\n1,2\n3,4\n5,"6', 4), ('x,u\n1,"2"3\n4,5\n', 2)],
)
def test_quotes_that_are_wrong_name_their_line(table, content, line):
    """Text after a closing quote, or a quote that is never closed: the file ends in its cell."""
    with pytest.raises(ValueError, match=rf"points\.csv, line {line}: not a CSV file"):
        read_csv(table(content), ["x", "u"])


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv does not exist"):
        read_csv(tmp_path / "nothing.csv", ["x"])
    with pytest.raises(OSError, match=str(tmp_path)):
        read_csv(tmp_path, ["x"])


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(*[st.floats(-(2.0**99), 2.0**99, width=32)] * 2), min_size=1, max_size=5))
def test_single_precision_survives_exactly(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    values = np.array(rows, dtype=np.float32)
    write_csv(path, ["t, s", 'the "u"'], values)
    np.testing.assert_array_equal(read_csv(path, ["t, s", 'the "u"']).astype(np.float32), values)


def test_double_precision_survives_exactly(tmp_path):
    """Map coordinates: centimetres at a distance of a thousand kilometres."""
    values = np.array([[1_000_000.001, np.pi], [5_412_345.678, 1 / 3]])
    write_csv(tmp_path / "a.csv", ["x", "u"], values)
    np.testing.assert_array_equal(read_csv(tmp_path / "a.csv", ["x", "u"]), values)


def test_a_missing_logarithm_is_explained(table):
    with pytest.raises(ValueError, match=r"Add the column log\(Re\): the natural logarithm of Re"):
        read_csv(table("x,Re\n1,2\n"), ["x", "log(Re)"])
