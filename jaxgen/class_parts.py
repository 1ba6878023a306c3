"""Which rows of a concrete sparse matrix are summed together, to sums by class.

A sum is quick while what it adds to stays in a cache. Where the classes are two, or most rows are of most of them,
rows are read where they lie once for each class. Where the table of all classes stays in a cache, or classes are too
many for a sum each, they are read where they lie once, each entry added in the place of its class. Otherwise rows of
one class are put side by side and summed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxgen import threads
from jaxgen.labels import HardLabels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxgen.compressed import CompressedRows
    from jaxgen.labels import Labels, SoftLabels

# Rows are read where they lie while they are summed at most so many times as often as they have a class. Of two classes
# that takes 9.6 and 12.6 ms (multinomial, Bernoulli) where entries in the places of their classes take 11.6 and 15.7:
# NumPy writes the places down one thread after the other. On a newer CPU both ways take 6.6 ms, and 7.6 and 7.2.
_MOST_IN_VAIN = 2.5
# Cells of a table that entries of all classes are added to in turn: so few in any case, more where there are entries
# enough, and never so many that adding waits for memory. Rows of 55 words out of 30,000, in 20 classes: class by class
# the sums of 2,000 and 20,000 take 5.0 and 5.8 ms, in turn 0.8 and 3.4.
_FEW_CELLS = 2**20
_MOST_CELLS = 2**22
# A class of fewer entries is not worth a sum of its own, which takes 0.3 ms at the least: those of 1,000 classes and
# 5,000 words take 450 ms, and 55 in turn; of 20,000 classes and 500 words that 100 rows hold, 3,600 and 17. But not in
# wide tables that the entries would not fill: in as long so many cells of a class are looked at.
_FEW_ENTRIES = 2**15
_MOST_CELLS_AN_ENTRY = 8
_MOST_COLUMNS = 2**17


class ClassByClass(NamedTuple):
    """Rows that are summed once for each of some classes.

    Attributes:
        rows: their numbers, in order; a range where they are read where they lie.
        classes: the classes.
        weights: of each row in each of them, (classes, rows).
    """

    rows: np.ndarray | range
    classes: slice
    weights: np.ndarray

    @property
    def num_sums(self) -> int:
        """One for each class."""
        return len(self.weights)

    @property
    def dtype(self) -> np.dtype:
        """That of the weights."""
        return self.weights.dtype

    @property
    def class_weight(self) -> np.ndarray:
        """The weight of these rows in each of the classes."""
        return self.weights.sum(axis=1, dtype=np.float64)

    def cut(self, fewest: int) -> list[ClassByClass]:
        """Parts of so many rows at least, one after the other."""
        return [
            ClassByClass(self.rows[some], self.classes, self.weights[:, some])
            for some in slices(len(self.rows), fewest)
        ]

    def add(self, block: CompressedRows, place: slice, totals: list[np.ndarray]) -> list[np.ndarray]:
        """Add some of these rows, which are there among them, to a total for each class, (d,), or begin them."""
        return [
            block.sum_rows(weight[place].astype(block.dtype, copy=False), total)
            for weight, total in zip(self.weights, totals or [None] * self.num_sums, strict=True)
        ]


class AllAtOnce(NamedTuple):
    """Rows of one class each, in their order: one sum for all classes, each entry in the place of its class.

    Attributes:
        rows: their numbers; a range where they are read where they lie, which is all of them.
        classes: all of them.
        label: the class of each row.
        weight: of each row; None where it is 1.
        dtype: that of the weights.
    """

    rows: np.ndarray | range
    classes: slice
    label: np.ndarray
    weight: np.ndarray | None
    dtype: np.dtype

    @property
    def num_sums(self) -> int:
        """One, of length K·d."""
        return 1

    @property
    def class_weight(self) -> np.ndarray:
        """The weight of these rows in each of the classes."""
        return np.bincount(self.label.astype(np.intp, copy=False), self.weight, minlength=self.classes.stop)

    def cut(self, fewest: int) -> list[AllAtOnce]:
        """Parts of so many rows at least, one after the other."""
        return [
            self._replace(rows=self.rows[some], label=self.label[some], weight=self._weight(some))
            for some in slices(len(self.rows), fewest)
        ]

    def add(self, block: CompressedRows, place: slice, totals: list[np.ndarray]) -> list[np.ndarray]:
        """Add some of these rows, which are there among them, to one total, (K·d,), or begin it."""
        weight = self._weight(place)
        if weight is not None:
            weight = weight.astype(block.dtype, copy=False)
        (total,) = totals or [None]
        return [block.by_class(self.label[place], self.classes.stop).sum_rows(weight, total)]

    def _weight(self, place: slice) -> np.ndarray | None:
        return None if self.weight is None else self.weight[place]


def parts_of(x: CompressedRows, labels: Labels, dtype: np.dtype) -> Sequence[ClassByClass | AllAtOnce]:
    """All rows that have a class: in one part where they are read where they lie, else a part for each class.

    A row of weight 0 is of no class, whatever it holds. Weights are in `dtype` where each is 1, else in float64.
    """
    n, d = x.shape
    most = max(_FEW_CELLS, min(x.num_entries // (2 * threads.cores()), _MOST_CELLS))
    if isinstance(labels, HardLabels):
        cells, few = labels.num_classes * d, x.num_entries < _FEW_ENTRIES * labels.num_classes
        in_place = cells <= most or (few and (d <= _MOST_COLUMNS or cells <= _MOST_CELLS_AN_ENTRY * x.num_entries))
        for_each = d <= most and labels.num_classes <= _MOST_IN_VAIN
        return _hard_parts(labels, n, dtype, in_place=in_place, for_each=for_each)
    return _soft_parts(labels, n, in_place=d <= most)


def _hard_parts(
    labels: HardLabels, n: int, dtype: np.dtype, *, in_place: bool, for_each: bool
) -> Sequence[ClassByClass | AllAtOnce]:
    index, rows = np.asarray(labels.index), np.arange(n, dtype=np.int32)
    weight = np.ones(n, dtype) if labels.weight is None else np.asarray(labels.weight, np.float64)
    if labels.weight is not None and not np.all(weight > 0):
        rows = np.flatnonzero(weight > 0)
        index, weight = index[rows], weight[rows]
    if for_each or in_place:
        rows, classes = range(n) if len(rows) == n else rows, slice(0, labels.num_classes)
        if not for_each:
            return [AllAtOnce(rows, classes, index, None if labels.weight is None else weight, weight.dtype)]
        mine = index == np.arange(labels.num_classes, dtype=index.dtype)[:, None]
        weights = mine.astype(dtype) if labels.weight is None else np.where(mine, weight, 0.0)
        return [ClassByClass(rows, classes, weights)]
    # A sort of small integers counts them.
    order = np.argsort(index.astype(np.min_scalar_type(labels.num_classes)), kind="stable")
    members = np.split(order, np.searchsorted(index[order], np.arange(1, labels.num_classes)))
    return [ClassByClass(rows[mine], slice(k, k + 1), weight[None, mine]) for k, mine in enumerate(members)]


def _soft_parts(labels: SoftLabels, n: int, *, in_place: bool) -> list[ClassByClass]:
    r = np.asarray(labels.responsibilities, np.float64)
    if labels.weight is not None:
        weight = np.asarray(labels.weight, np.float64)[:, None]
        r = np.multiply(r, weight, where=(r > 0) & (weight > 0), out=np.zeros_like(r))
    present = r > 0
    if in_place and np.all(np.any(present, axis=1)) and r.size <= _MOST_IN_VAIN * present.sum():
        return [ClassByClass(range(n), slice(0, r.shape[1]), np.ascontiguousarray(r.T))]
    members = [np.flatnonzero(column).astype(np.int32) for column in present.T]
    return [ClassByClass(mine, slice(k, k + 1), r[None, mine, k]) for k, mine in enumerate(members)]


def slices(length: int, fewest: int) -> list[slice]:
    """All of a length in slices of so many at least."""
    count = max(length // fewest, 1)
    return [slice(first, last) for first, last in pairwise(length * i // count for i in range(count + 1))]
