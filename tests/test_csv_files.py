"""What the learning curves take from a CSV file: numbers, categories, gaps and classes, as people write them."""

import numpy as np
import pytest

from benchmarks import csv_files, tables

RNG = np.random.default_rng(0)


def saved(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_csv_may_hold(tmp_path):
    y = ["None" if i % 2 else "NA" for i in range(60)]
    rows = [f"{label};{i % 7},5;{'x' if i % 4 == 1 else ''};{0 if i % 10 else i}" for i, label in enumerate(y)]
    data = csv_files.read(saved(tmp_path, "\ufeffclass;size;mark;rare\n" + "\n".join(rows)), "class")
    assert data.num_classes == 2  # names of classes, not gaps
    assert data.kind == "discrete"
    assert data.x.shape == (60, 4 + 1 + 1)  # quarters, a mark or none, nothing or something
    assert data.remarks[-1] == "took gaps for a category of their own, in columns: mark."
    gaps = "\n".join(f"{label},{i if i % 3 else 'NA'},1" for i, label in enumerate(y))
    data = csv_files.read(saved(tmp_path, "class,size,same\n" + gaps + "\n,7,1"), "class")
    assert (data.kind, data.x.shape) == ("continuous", (60, 1))
    assert data.remarks == (
        "left out 1 row without a target.",
        "left out columns of one value: same.",
        "filled gaps with the median, in columns: size.",
    )


@pytest.mark.parametrize(
    ("header", "numbers", "value"),
    [
        ("y;x;z", ["792;0.5", "2,564;1.5", "12,345;2.5"], [792, 2564, 12345]),
        ("y,x,z", ['"792",0.5', '"2,564",1.5', '"12,345",2.5'], [792, 2564, 12345]),
        ("y;x;z", ["792,5;1", "2.564,25;2", "12.345,0;3"], [792.5, 2564.25, 12345]),
        ("y;x;z", ["0,25;1.234", "0,5;5.678", "12,345;9.012"], [0.25, 0.5, 12.345]),
    ],
    ids=["commas and points", "quoted", "points and commas", "commas"],
)
def test_thousands_of_a_csv_may_be_apart(tmp_path, header, numbers, value):
    separator = header[1]
    lines = [f"{'?' if i == 5 else i % 2}{separator}{numbers[i % 3]}" for i in range(60)]
    data = csv_files.read(saved(tmp_path, "\n".join([header, *lines])), "y")
    assert (data.kind, data.num_classes) == ("continuous", 2)
    assert data.remarks == ("left out 1 row without a target.",)
    x = np.delete(np.resize(value, 60), 5)
    np.testing.assert_allclose(data.x[:, 0], (x - x.mean()) / x.std(), rtol=1e-5)


@pytest.mark.parametrize("row", ["{y},{a},{b},", "row {i},{y},{a},{b}"], ids=["separator at the end", "row names"])
def test_a_csv_with_one_field_more_than_names(tmp_path, row):
    lines = [row.format(i=i, y=i % 2, a=i % 4, b=i % 5) for i in range(60)]
    data = csv_files.read(saved(tmp_path, "y,a,b\n" + "\n".join(lines)), "y")
    assert (data.x.shape, data.num_classes) == ((60, 2), 2)
    np.testing.assert_array_equal(data.y, np.arange(60) % 2)


@pytest.mark.thorough
def test_a_csv_that_is_long_or_wide(tmp_path):
    n = 300_000  # pandas reads parts of it apart, unless told
    labels = ["" if i == 3 else "x" if i >= n - 2 else i % 2 for i in range(n)]
    data = csv_files.read(saved(tmp_path, "a,y\n" + "\n".join(f"{i % 7},{y}" for i, y in enumerate(labels))), "y")
    assert (len(data.x), data.num_classes) == (n - 1, 3)
    names = ",".join([*(f"feature {i}" for i in range(6_000)), "y"])
    assert len(names) > 2**16
    rows = [",".join([*map(str, RNG.integers(9, size=6_000)), str(i % 2)]) for i in range(20)]
    assert csv_files.read(saved(tmp_path, "\n".join([names, *rows])), "y").x.shape == (20, 6_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read .*: it is empty; expected a line of names"),
        ("x,y\n" + "1,0\n2,1,3\n" * 20, "Expected 2 fields in line 3, saw 3; give every line as many fields"),
        ("x,y,y\n" + "1,0,0\n2,1,1\n" * 20, "two columns named 'y'"),
        ("x,y\n" + "1,0\n2,1\n" * 2, "rows are too few"),
        ("x,y\n" + "inf,0\n2,1\n" * 20, "column 'x' holds infinity"),
        ("x,y\n" + "1e300,0\n2,1\n" * 20, "column 'x' cannot be standardised"),
        ("x,y\n" + "1e-200,0\n2e-200,1\n" * 20, "column 'x' cannot be standardised: its squares overflow or vanish"),
        ("x,y\n" + "1,0\n1,1\n" * 20, "no feature is left: left out columns of one value: x."),
        (
            "x,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(40)),
            "no feature is left: left out columns of words that differ in every row: x.",
        ),
        ("y\n" + "0\n1\n" * 20, "no feature is left: the target is the only column"),
    ],
)
def test_a_csv_of_no_use_says_why(tmp_path, text, message):
    with pytest.raises(tables.InputError, match=message):
        csv_files.read(saved(tmp_path, text), "y")


@pytest.mark.parametrize(
    ("separator", "written", "value"),
    [
        (",", ["1 234.5", "999", "−2 000"], [1234.5, 999, -2000]),
        (",", ["1'234", "1’000", "7"], [1234, 1000, 7]),
        (",", ["$12.50", "-$3", "4 €"], [12.5, -3, 4]),
        (",", ["12.5%", " 3 % ", "0%"], [12.5, 3, 0]),
        (",", ['"0,53"', '"1,5"', "2"], [0.53, 1.5, 2]),
        ("\t", ["0,53", "1,234", "2"], [0.53, 1.234, 2]),
        (";", ["2.145.224", "1.000.000", "5"], [2145224, 1000000, 5]),
        ("|", ["2,145", "1.5", "5"], [2145, 1.5, 5]),
        (", ", ["1.5", "2.5", "3.5"], [1.5, 2.5, 3.5]),
    ],
)
@pytest.mark.parametrize("gap", ["", "  ", "-", "None", "#N/A", "nan"])
def test_numbers_however_they_are_written(tmp_path, separator, written, value, gap):
    cells = np.resize(written, 60).astype(object)
    cells[7] = gap
    rows = [separator.join([cell, str(i % 2)]) for i, cell in enumerate(cells)]
    data = csv_files.read(saved(tmp_path, "\n".join([separator.join("xy"), *rows])), "y")
    x = np.resize(value, 60).astype(float)
    x[7] = np.median(np.delete(x, 7))
    assert (data.kind, data.num_classes) == ("continuous", 2)
    assert data.remarks == ("filled gaps with the median, in columns: x.",)
    np.testing.assert_allclose(data.x[:, 0], (x - x.mean()) / x.std(), rtol=1e-4, atol=1e-5)


def test_what_became_of_the_columns_is_said(tmp_path):
    lines = [
        f"{i},{'oops' if i == 7 else i % 5}.5,{i * i},n{i},{'ab'[i % 2]},{i % 3 == 0},{'NA' if i == 4 else i % 2}"
        for i in range(60)
    ]
    data = csv_files.read(saved(tmp_path, ",odd,size,name,letter,flag,y\n" + "\n".join(lines)), "y")
    assert data.explain().splitlines() == [
        "data, discrete: 59 rows × 12 features, 2 classes (0: 29, 1: 30)",
        "  left out the names of the rows, a first column without a name.",
        "  took column 'odd' for words, since 'oops.5' is no number; mend them if it holds numbers.",
        "  left out 1 row without a target.",
        "  left out columns of words that differ in every row: name.",
        "  put numbers into quarters, beside categories: letter, odd.",
    ]
    without = [line.replace("oops", "").rsplit(",", 3) for line in lines]
    plain = "\n".join(",".join([row[0].rsplit(",", 1)[0], row[2], row[3]]) for row in without)
    data = csv_files.read(saved(tmp_path, ",odd,size,flag,y\n" + plain), "y")
    assert (data.kind, data.x.shape) == ("continuous", (59, 3))  # a flag is 0 or 1


def test_words_with_the_marks_of_csv_in_them(tmp_path):
    lines = [f'"{3 + i % 2}"" disk; a, b",{i % 7},{"yes " if i % 3 else "no"}' for i in range(60)]
    data = csv_files.read(saved(tmp_path, "what is [it]?,size,y\n" + "\n".join(lines)), "y")
    assert (data.classes, data.x.shape) == (("no", "yes"), (60, 1 + 4))


@pytest.mark.parametrize("header", ["\n \nx,y", "x , y ", " x ,y"], ids=["empty lines", "spaces", "spaces before"])
def test_a_header_with_empty_lines_and_spaces_about_it(tmp_path, header):
    lines = [f"{i % 7},{i % 2}" for i in range(60)]
    data = csv_files.read(saved(tmp_path, "\n".join([header, *lines])), "y")
    assert (data.x.shape, data.num_classes) == ((60, 1), 2)
    with pytest.raises(tables.InputError, match="two columns named 'x'"):
        csv_files.read(saved(tmp_path, "\n".join([header + ",x", *(f"{line},1" for line in lines)])), "y")
