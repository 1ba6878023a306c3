"""Tables for the comparison of generative and discriminative: scikit-learn's own, CSV files, and OpenML's."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
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
    from collections.abc import Callable, Sequence

Kind = Literal["continuous", "discrete"]

BINS = 4  # quarters, where numbers stand in a discrete table
MOST_CATEGORIES = 20  # of a column; rarer ones share one
MOST_CLASSES = 50  # beyond, a target is a number or a name rather than a class
FEWEST_ROWS = 20  # of fewer, no test says anything
MOST_NAMED = 5  # columns, or classes, in a sentence
THINNEST = 1e-6  # extent of the rows, of their largest, that float32 tells from its rounding


@dataclass(frozen=True)
class Table:
    """Rows ready for both models: standardised numbers, or indicators of categories.

    Attributes:
        name: of the data set.
        kind: whether the features are numbers or indicators.
        x: float32, (n, d).
        y: classes 0 … K−1, (n,).
        classes: the name of each class.
        remarks: what became of the data on the way, a sentence each.
    """

    name: str
    kind: Kind
    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    _widened: dict[int, np.ndarray] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def widened(self, columns: int) -> np.ndarray:
        """x with columns of zeros behind its own, (n, columns), kept for the next call."""
        if columns not in self._widened:
            self._widened[columns] = np.pad(self.x, [(0, 0), (0, columns - self.x.shape[1])])
        return self._widened[columns]

    @cached_property
    def turned(self) -> Table:
        """The same rows by coordinates in the plane that they lie in, where it has fewer dimensions than features.

        The indicators of one question add up to one, for example. A linear model whose penalty is the squared length of
        its weights is the same there: weights across the plane would cost something and change no score, and a turn
        changes no length.
        """
        centred = self.x - self.x.mean(axis=0, dtype=np.float64)
        _, extents, axes = np.linalg.svd(centred, full_matrices=False)
        dimensions = np.sum(extents > THINNEST * extents[0])
        if dimensions == self.x.shape[1]:
            return self
        return dataclasses.replace(self, x=(centred @ axes[:dimensions].T).astype(self.x.dtype))

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    def describe(self) -> str:
        """Name and sizes."""
        n, d = self.x.shape
        return f"{self.name}, {self.kind}: {n:,} rows × {d:,} feature{'s' * (d > 1)}, {self.num_classes} classes"

    def explain(self) -> str:
        """The same, with the rows of each class and what became of the data."""
        counts = np.bincount(self.y)
        classes = _listed([f"{name}: {count:,}" for name, count in zip(self.classes, counts, strict=True)])
        return "\n".join([f"{self.describe()} ({classes})", *(f"  {remark}" for remark in self.remarks)])


def prepare(name: str, frame: Any, target: Any, kind: Kind | None = None, remarks: Sequence[str] = ()) -> Table:
    """A table from columns of any type: discrete where one holds categories, else continuous, unless told.

    Missing numbers become the median, and missing categories one of their own. Numbers are standardised; in a discrete
    table they become quarters. Categories become indicators; words that differ in every row say nothing of others, and
    are left out. None of that looks at the target.

    Raises:
        InputError: if the target is not one of classes, there are too few rows, no feature is left, or one is infinite.
    """
    known, remarks = target.notna(), list(remarks)
    if not known.all():
        unknown = int((~known).sum())
        remarks.append(f"left out {unknown:,} row{'s' * (unknown > 1)} without a target.")
    frame, target = frame.loc[known], target.loc[known]
    classes, y = np.unique(target.astype(str) if target.dtype == object else target, return_inverse=True)
    if not 2 <= len(classes) <= MOST_CLASSES:
        remedy = ". Of numbers, make classes first, such as above and below the median" * (len(classes) > 1)
        found = f"{len(classes)} value{'s' * (len(classes) != 1)}"
        raise InputError(
            f"{name}: the target must have 2 to {MOST_CLASSES} classes; {target.name!r} has {found}{remedy}"
        )
    if np.bincount(y).min() < 2:
        raise InputError(f"{name}: every class must have 2 rows; {str(classes[np.bincount(y).argmin()])!r} has one")
    if len(frame) < FEWEST_ROWS:
        raise InputError(f"{name}: {len(frame)} rows are too few; a comparison takes {FEWEST_ROWS} or more")
    numbers = frame.select_dtypes("number").columns
    for column in numbers:
        if np.isinf(frame[column].to_numpy(float, na_value=0)).any():
            raise InputError(f"{name}: column {column!r} holds infinity; leave it empty where a number is missing")
    different, words = frame.nunique(), frame.columns.difference(numbers)
    varies = different > 1
    for column in words:  # of categories, none at all is one of them
        varies[column] = frame[column].nunique(dropna=False) > 1
    names = [column for column in words if different[column] == len(frame)]
    if not varies.all():
        remarks.append(f"left out columns of one value: {_listed(frame.columns[~varies])}.")
    if names:
        remarks.append(f"left out columns of words that differ in every row: {_listed(names)}.")
    frame = frame.loc[:, varies].drop(columns=names)
    numbers = [column for column in numbers if varies[column]]
    if frame.shape[1] == 0:
        raise InputError(f"{name}: no feature is left: {' '.join(remarks) or 'the target is the only column.'}")
    if kind is None:
        kind = "continuous" if len(numbers) == frame.shape[1] else "discrete"
        if kind == "discrete" and numbers:
            remarks.append(
                f"put numbers into quarters, beside categories: {_listed(frame.columns.difference(numbers))}."
            )
    if len(gaps := frame.columns[frame.isna().any()]):
        became = "filled gaps with the median" if kind == "continuous" else "took gaps for a category of their own"
        remarks.append(f"{became}, in columns: {_listed(gaps)}.")
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
            f"{name}: column {column!r} cannot be standardised: its squares overflow or vanish, or its numbers are the "
            "same to 16 digits; rescale it, or subtract what they have in common"
        )
    x = np.ascontiguousarray(x[:, spread > 0])
    return Table(name, kind, x, y.astype(np.int32), tuple(_named(each) for each in classes), tuple(remarks))


def _named(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(names: Any) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - MOST_NAMED
    return ", ".join(map(str, names[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


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


def from_openml(name: str) -> Table:
    """A data set of openml.org by its name, the newest active version, with its default target.

    Raises:
        InputError: if it cannot be fetched, for want of a network or of such a data set.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of every retry
            bunch: Any = fetch_openml(name, as_frame=True, parser="auto", n_retries=1)
    except (OSError, ValueError, EOFError, HTTPException) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"cannot fetch {name!r} from openml.org: {reason}") from None
    if bunch.target is None or isinstance(bunch.target, pd.DataFrame):
        raise InputError(f"{name!r} of openml.org has no single default target")
    return prepare(name, bunch.data, bunch.target)
