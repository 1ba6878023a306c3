"""Tables for the comparison of generative and discriminative: scikit-learn's own, CSV files, and OpenML's."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Table:
    """Rows ready for both models: standardised numbers, or indicators of categories.

    Attributes:
        name: of the data set.
        kind: whether the features are numbers or indicators.
        x: float32, (n, d).
        y: classes 0 … K−1, (n,).
    """

    name: str
    kind: Kind
    x: np.ndarray
    y: np.ndarray

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.y.max()) + 1

    def describe(self) -> str:
        """Name and sizes."""
        n, d = self.x.shape
        return f"{self.name}, {self.kind}: {n:,} rows × {d:,} features, {self.num_classes} classes"


def prepare(name: str, frame: Any, target: Any, kind: Kind | None = None) -> Table:
    """A table from columns of any type: discrete where one holds categories, else continuous, unless told.

    Missing numbers become the median, and missing categories one of their own. Numbers are standardised; in a discrete
    table they become quarters. Categories become indicators. None of that looks at the target.

    Raises:
        InputError: if the target is not one of classes, or no feature varies.
    """
    known = target.notna()
    frame, target = frame.loc[known], target.loc[known]
    classes, y = np.unique(target.astype(str) if target.dtype == object else target, return_inverse=True)
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise InputError(
            f"{name}: the target must have 2 to {MOST_CLASSES} classes; {target.name!r} has {len(classes)} values"
        )
    if np.bincount(y).min() < 2:
        raise InputError(f"{name}: every class must have 2 rows; {classes[np.bincount(y).argmin()]!r} has one")
    frame = frame.loc[:, frame.nunique() > 1]
    if frame.shape[1] == 0:
        raise InputError(f"{name}: no feature has two values")
    numbers = frame.select_dtypes("number").columns
    if kind is None:
        kind = "continuous" if len(numbers) == frame.shape[1] else "discrete"
    if kind == "continuous":
        transform: Any = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    else:
        quarters = {column: pd.qcut(frame[column], BINS, duplicates="drop") for column in numbers}
        frame = frame.assign(**quarters).astype(object)
        frame = frame.where(frame.notna(), "missing").astype(str)
        transform = OneHotEncoder(drop="if_binary", max_categories=MOST_CATEGORIES, sparse_output=False)
    x = np.asarray(transform.fit_transform(frame), np.float32)
    return Table(name, kind, np.ascontiguousarray(x[:, x.std(axis=0) > 0]), y.astype(np.int32))


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
        InputError: if the file cannot be read, has no such column, or no classes in it.
    """
    try:
        frame = pd.read_csv(path, sep=None, engine="python")
    except (OSError, ValueError, UnicodeDecodeError) as error:  # pandas' own errors are ValueErrors
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {reason}") from None
    if target not in frame:
        raise InputError(f"{path} has no column {target!r}; it has {', '.join(map(repr, frame.columns[:20]))}")
    return prepare(path.stem, frame.drop(columns=target), frame[target])


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
