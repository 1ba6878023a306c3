"""Tables for the comparison of generative and discriminative: scikit-learn's own, CSV files, and OpenML's."""

from __future__ import annotations

import csv
import dataclasses
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from sklearn.datasets import (
    fetch_openml,
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.data import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Kind = Literal["continuous", "discrete"]

BINS = 4  # quarters, where numbers stand in a discrete table
MOST_CATEGORIES = 20  # of a column; rarer ones share one
MOST_CLASSES = 50  # beyond, a target is a number or a name rather than a class
FEWEST_ROWS = 20  # of fewer, no test says anything
GAPS = ("NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "?")  # in a column that otherwise holds numbers
# Numbers whose thousands are apart; a point before three digits is a decimal sign all the same, unless a comma follows.
_WITH_COMMAS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"
_WITH_POINTS = r"[+-]?\d{1,3}(\.\d{3})+,\d*"


@dataclass(frozen=True)
class Table:
    """Rows ready for both models: standardised numbers, or indicators of categories.

    Attributes:
        name: of the data set.
        kind: whether the features are numbers or indicators.
        x: float32, (n, d).
        y: classes 0 … K−1, (n,).
        left_out: what of the data is not there.
    """

    name: str
    kind: Kind
    x: np.ndarray
    y: np.ndarray
    left_out: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    def describe(self) -> str:
        """Name and sizes."""
        n, d = self.x.shape
        return f"{self.name}, {self.kind}: {n:,} rows × {d:,} features, {self.num_classes} classes"

    def left(self) -> str:
        """What was left out, in a sentence; empty where nothing was."""
        return f"{self.name}: left out {', '.join(self.left_out)}." if self.left_out else ""


def prepare(name: str, frame: Any, target: Any, kind: Kind | None = None) -> Table:
    """A table from columns of any type: discrete where one holds categories, else continuous, unless told.

    Missing numbers become the median, and missing categories one of their own. Numbers are standardised; in a discrete
    table they become quarters. Categories become indicators. None of that looks at the target.

    Raises:
        InputError: if the target is not one of classes, there are too few rows, no feature varies, or one is infinite.
    """
    known = target.notna()
    left_out = [f"{(~known).sum():,} rows without a target"] if not known.all() else []
    frame, target = frame.loc[known], target.loc[known]
    classes, y = np.unique(target.astype(str) if target.dtype == object else target, return_inverse=True)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise InputError(
            f"{name}: the target must have 2 to {MOST_CLASSES} classes; {target.name!r} has {len(classes)} values"
        )
    if np.bincount(y).min() < 2:
        raise InputError(f"{name}: every class must have 2 rows; {str(classes[np.bincount(y).argmin()])!r} has one")
    if len(frame) < FEWEST_ROWS:
        raise InputError(f"{name}: {len(frame)} rows are too few; a comparison takes {FEWEST_ROWS} or more")
    numbers = frame.select_dtypes("number").columns
    for column in numbers:
        if np.isinf(frame[column].to_numpy(float, na_value=0)).any():
            raise InputError(f"{name}: column {column!r} holds infinity; leave it empty where a number is missing")
    varies = frame.nunique() > 1
    for column in frame.columns.difference(numbers):  # of categories, none at all is one of them
        varies[column] = frame[column].nunique(dropna=False) > 1
    if not varies.all():
        constant = list(map(str, frame.columns[~varies]))
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        left_out.append(f"columns of one value: {', '.join(constant[:5])}{more}")
    frame, numbers = frame.loc[:, varies], [column for column in numbers if varies[column]]
    if frame.shape[1] == 0:
        raise InputError(f"{name}: no feature has two values")
    if kind is None:
        kind = "continuous" if len(numbers) == frame.shape[1] else "discrete"
    if kind == "continuous":
        transform: Any = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    else:
        quarters = {column: _quarters(frame[column]) for column in numbers}
        frame = frame.assign(**quarters).astype(object)
        frame = frame.where(frame.notna(), "missing").astype(str)
        transform = OneHotEncoder(drop="if_binary", max_categories=MOST_CATEGORIES, sparse_output=False)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(transform.fit_transform(frame), np.float32)
        spread = x.std(axis=0)
    if kind == "continuous" and not (spread > 0).all():
        column = frame.columns[np.argmin(spread > 0)]
        raise InputError(
            f"{name}: column {column!r} cannot be standardised, its squares overflow or vanish; rescale it"
        )
    return Table(name, kind, np.ascontiguousarray(x[:, spread > 0]), y.astype(np.int32), tuple(left_out))


def _quarters(column: Any) -> Any:
    """Numbers as categories: the few that there are, quarters, or below and above one that most of them are."""
    if column.nunique() <= BINS:
        return column
    bins: Any = pd.qcut(column, BINS, duplicates="drop")
    if bins.nunique() > 1:
        return bins
    return np.sign(column - column.mode().iloc[0])


def distinct(tables: list[Table], more: list[str]) -> list[Table]:
    """The tables with a name for each, also where a file's is that of another: with what `more` says, or a number."""
    names = [table.name for table in tables]
    for later in (more, [str(i) for i in range(1, len(tables) + 1)]):
        shared = [names.count(name) > 1 for name in names]
        names = [f"{n}, {extra}" if again else n for n, extra, again in zip(names, later, shared, strict=True)]
    return [dataclasses.replace(table, name=name) for table, name in zip(tables, names, strict=True)]


def embedded() -> list[Table]:
    """The tables that scikit-learn ships, as numbers and in quarters."""
    tables = []
    loaders: list[tuple[str, Callable[..., Any]]] = [
        ("iris", load_iris),
        ("wine", load_wine),
        ("breast cancer", load_breast_cancer),
        ("diabetes above its median", load_diabetes),
        ("digits 3 and 8", load_digits),
        ("digits even and odd", load_digits),
    ]
    for name, load in loaders:
        bunch = load(as_frame=True)
        frame, target = bunch.data, bunch.target
        if name.startswith("diabetes"):
            target = target > target.median()
        elif name.endswith("3 and 8"):
            frame, target = frame[target.isin([3, 8])], target[target.isin([3, 8])]
        elif name.endswith("odd"):
            target = target % 2
        if name.startswith("digits"):
            ink = (frame > 7).astype(int).astype(object)  # of 16 levels
            tables += [prepare(name, frame, target, "continuous"), prepare(f"{name}, ink or none", ink, target)]
        else:
            tables += [
                prepare(name, frame, target, "continuous"),
                prepare(f"{name}, quarters", frame, target, "discrete"),
            ]
    return tables


def from_csv(path: Path, target: str) -> Table:
    """A CSV file with a header; columns of any type, `target` among them.

    Raises:
        InputError: if the file cannot be read, names a column twice, has no such column, or no classes in it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = _separator(file.read(2**16))
            file.seek(0)
            rows = csv.reader(file, delimiter=separator)
            header, first = next(rows, []), next(rows, [])
        # One field more than names is the name of the row, or nothing behind a separator that ends it.
        ends = len(first) > len(header) and not first[-1].strip()
        # A class may be called None or NA: only an empty cell is surely a gap. A file that is read in parts would have
        # classes of other types in each.
        frame = pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values=[""],
            index_col=False if ends else None,
            low_memory=False,
        )
    except (OSError, ValueError, csv.Error) as error:  # pandas' own errors are ValueErrors
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {reason}") from None
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}; name each differently")
    if target not in frame:
        raise InputError(f"{path} has no column {target!r}; it has {', '.join(map(repr, frame.columns[:20]))}")
    features, classes = frame.drop(columns=target), frame[target]
    features = features.apply(partial(_numbers_of, decimal=_decimal(separator, features)))
    return prepare(path.stem, features, classes.where(classes != "?"))


def _separator(start: str) -> str:
    """What stands between the columns of a file that starts like this."""
    try:
        return csv.Sniffer().sniff(start, delimiters=",;\t| ").delimiter
    except csv.Error:  # one column
        return ","


def _decimal(separator: str, frame: Any) -> str:
    """The decimal sign: where semicolons leave it free a comma, unless points are, and commas part thousands alone."""
    if separator != ";":
        return "."
    texts: list[Any] = [frame[column].astype("string").str for column in frame]
    points = any(text.fullmatch(r"[+-]?\d+\.\d*[1-9]\d*").any() for text in texts)
    commas = any((text.fullmatch(r"[+-]?\d+,\d*") & ~text.fullmatch(_WITH_COMMAS)).any() for text in texts)
    return "." if points and not commas else ","


def _numbers_of(column: Any, decimal: str) -> Any:
    """A column as numbers, maybe with their thousands apart, where all but its gaps are some; itself where not."""
    if column.dtype.kind in "biuf":
        return column
    text: Any = column.where(~column.isin(GAPS)).astype("string")
    grouped, sign = (_WITH_COMMAS, ",") if decimal == "." else (_WITH_POINTS, ".")
    text = text.where(~text.str.fullmatch(grouped).eq(other=True), text.str.replace(sign, "", regex=False))
    numbers: Any = pd.to_numeric(text.str.replace(decimal, ".", regex=False), errors="coerce")
    return numbers.astype(float) if numbers.notna().equals(text.notna()) and numbers.notna().any() else column


def from_openml(name: str) -> Table:
    """A data set of openml.org by its name, the newest active version, with its default target.

    Raises:
        InputError: if it cannot be fetched, for want of a network or of such a data set.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of every retry
            bunch: Any = fetch_openml(name, as_frame=True, parser="auto", n_retries=1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot fetch {name!r} from openml.org: {str(error).splitlines()[0]}") from None
    if bunch.target is None or isinstance(bunch.target, pd.DataFrame):
        raise InputError(f"{name!r} of openml.org has no single default target")
    return prepare(name, bunch.data, bunch.target)
