"""What the rows of each class of a concrete sparse matrix add up to, on a CPU: by scipy's loops, on every core.

A sum is quick while what it adds to stays in a cache. Where the table of all classes does, or classes are too many for
a sum each, rows are read where they lie, each entry added in the place of its class. Where most rows are of most
classes, as with soft labels of two, they are read where they lie once for each class. Otherwise rows of one class are
put side by side and summed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import host_arrays, threads
from jaxgen.labels import HardLabels
from jaxgen.limbs import LimbSum, are_whole, product
from jaxgen.numerics import working_dtype
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels, SoftLabels

# Rows are read where they lie while they are summed at most so many times as often as they have a class.
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


class Sums(NamedTuple):
    """What the rows of a matrix add up to.

    Attributes:
        class_weight: Σ_i r_ik, (K,).
        feature_sum: Σ_i r_ik f(x_ij), (K, d).
        bad: whether a value is outside its domain, or a sum overflows.
    """

    class_weight: Total
    feature_sum: Total
    bad: bool


class _ClassByClass(NamedTuple):
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
    def class_weight(self) -> np.ndarray:
        """The weight of these rows in each of the classes."""
        return self.weights.sum(axis=1, dtype=np.float64)

    def cut(self, fewest: int) -> list[_ClassByClass]:
        """Parts of so many rows at least, one after the other."""
        return [
            _ClassByClass(self.rows[some], self.classes, self.weights[:, some])
            for some in _slices(len(self.rows), fewest)
        ]

    def products(self, block: CompressedRows, *, whole: bool) -> Iterator[tuple[np.ndarray, float]]:
        """The sums of these rows, and a bound of each."""
        columns = block.transposed()
        return (product(columns, weight, whole=whole) for weight in self.weights)


class _AllAtOnce(NamedTuple):
    """Rows of one class each, in their order: one sum for all classes, each entry in the place of its class.

    Attributes:
        rows: their numbers; a range where they are read where they lie, which is all of them.
        classes: all of them.
        label: the class of each row.
        weight: of each row.
    """

    rows: np.ndarray | range
    classes: slice
    label: np.ndarray
    weight: np.ndarray

    @property
    def num_sums(self) -> int:
        """One, of length K·d."""
        return 1

    @property
    def class_weight(self) -> np.ndarray:
        """The weight of these rows in each of the classes."""
        each = None if np.all(self.weight == 1) else self.weight  # to count takes a sixth of the time
        return np.bincount(self.label.astype(np.intp, copy=False), each, minlength=self.classes.stop)

    def cut(self, fewest: int) -> list[_AllAtOnce]:
        """Parts of so many rows at least, one after the other."""
        return [
            _AllAtOnce(self.rows[some], self.classes, self.label[some], self.weight[some])
            for some in _slices(len(self.rows), fewest)
        ]

    def products(self, block: CompressedRows, *, whole: bool) -> Iterator[tuple[np.ndarray, float]]:
        """The sum of these rows, and its bound."""
        yield product(block.by_class(self.label, self.classes.stop), self.weight, whole=whole)


class _Task(NamedTuple):
    """Some rows of a part, for one core; the sums that it adds them to; and those of the part, maybe the same."""

    part: _ClassByClass | _AllAtOnce
    sums: list[LimbSum]
    into: list[LimbSum]


class _Table(NamedTuple):
    """Two limbs for the sums of some classes, (classes, d)."""

    high: np.ndarray
    low: np.ndarray

    @classmethod
    def empty(cls, classes: int, d: int, dtype: np.dtype) -> _Table:
        """Room for sums that have not begun."""
        return cls(host_arrays.aligned((classes, d), dtype), host_arrays.aligned((classes, d), dtype, zero=True))

    def sums(self, part: _ClassByClass | _AllAtOnce) -> list[LimbSum]:
        """What a part adds to."""
        limbs = (limb.reshape(part.num_sums, -1) for limb in self)
        return [LimbSum(*pair) for pair in zip(*limbs, strict=True)]


def class_sums(
    x: CompressedRows, labels: Labels, encode: Callable[[Any], Any], domain: Domain, *, binary: bool, entries: int
) -> Sums:
    """The sums of features by class, in the working dtype, from pieces of so many entries or more.

    `binary` says that features are 0 or 1 where x is in its domain.
    """
    d, dtype = x.shape[1], working_dtype(x.dtype)
    parts = _parts(x, labels, dtype)
    piece_rows, task_rows = _sizes(x, parts, entries)
    result = _Table.empty(labels.num_classes, d, dtype)
    tasks = []
    for part in parts:
        own = _Table(*(limb[part.classes] for limb in result))
        into = own.sums(part)
        for i, some in enumerate(part.cut(task_rows)):  # the first adds to the result, others to sums beside it
            tasks.append(_Task(some, _Table.empty(len(own.high), d, dtype).sums(part) if i else into, into))

    def add_up(task: _Task) -> bool:
        bad = False
        for piece in task.part.cut(piece_rows):
            block = x.at(piece.rows)
            if block.dtype.kind == "f":
                block = block.astype(dtype)
            bad |= not domain.holds(block.values)
            block = encode(block)
            products = piece.products(block, whole=binary or are_whole(block.values))
            for total, (values, largest) in zip(task.sums, products, strict=True):
                total.add(values, largest)
        return bad

    bad = any(threads.over(add_up, tasks))
    for task in tasks:
        if task.sums is not task.into:
            for total, other in zip(task.into, task.sums, strict=True):
                total.merge(other)
    weight = np.zeros((2, labels.num_classes), dtype)
    LimbSum(*weight).add(np.concatenate([part.class_weight for part in parts]))
    bad |= not (result.high.max() < np.inf and weight[0].max() < np.inf)
    return Sums(Total(*map(jnp.asarray, weight)), Total(*jax.device_put(tuple(result))), bad)


def _sizes(x: CompressedRows, parts: Sequence[_ClassByClass | _AllAtOnce], entries: int) -> tuple[int, int]:
    """The rows of a piece and of a task, at least.

    All cells of a sum are looked at, for each piece: it must be worth that. So must a task, whose sums take memory as
    well, where there are more of them than cores.
    """
    n, d = x.shape
    first = parts[0]
    cells = d * (first.classes.stop - first.classes.start) // first.num_sums
    each, rows = max(x.num_entries, 1) / n, sum(len(part.rows) for part in parts)
    worth = max(entries, 2 * cells) / each
    piece = max(int(worth), 1)
    if len(parts) == 1:
        return piece, max(rows // threads.cores(), int(worth / 4), 1)
    return piece, max(rows // (2 * threads.cores()), piece)


def _parts(x: CompressedRows, labels: Labels, dtype: np.dtype) -> Sequence[_ClassByClass | _AllAtOnce]:
    """All rows that have a class: in one part where they are read where they lie, else a part for each class.

    A row of weight 0 is of no class, whatever it holds. Weights are in `dtype` where each is 1, else in float64.
    """
    n, d = x.shape
    most = max(_FEW_CELLS, min(x.num_entries // (2 * threads.cores()), _MOST_CELLS))
    if isinstance(labels, HardLabels):
        cells, few = labels.num_classes * d, x.num_entries < _FEW_ENTRIES * labels.num_classes
        in_place = cells <= most or (few and (d <= _MOST_COLUMNS or cells <= _MOST_CELLS_AN_ENTRY * x.num_entries))
        return _hard_parts(labels, n, dtype, in_place=in_place)
    return _soft_parts(labels, n, in_place=d <= most)


def _hard_parts(labels: HardLabels, n: int, dtype: np.dtype, *, in_place: bool) -> Sequence[_ClassByClass | _AllAtOnce]:
    index, rows = np.asarray(labels.index), np.arange(n, dtype=np.int32)
    weight = np.ones(n, dtype) if labels.weight is None else np.asarray(labels.weight, np.float64)
    if labels.weight is not None and not np.all(weight > 0):
        rows = np.flatnonzero(weight > 0)
        index, weight = index[rows], weight[rows]
    if in_place:
        return [_AllAtOnce(range(n) if len(rows) == n else rows, slice(0, labels.num_classes), index, weight)]
    # A sort of small integers counts them.
    order = np.argsort(index.astype(np.min_scalar_type(labels.num_classes)), kind="stable")
    members = np.split(order, np.searchsorted(index[order], np.arange(1, labels.num_classes)))
    return [_ClassByClass(rows[mine], slice(k, k + 1), weight[None, mine]) for k, mine in enumerate(members)]


def _soft_parts(labels: SoftLabels, n: int, *, in_place: bool) -> list[_ClassByClass]:
    r = np.asarray(labels.responsibilities, np.float64)
    if labels.weight is not None:
        weight = np.asarray(labels.weight, np.float64)[:, None]
        r = np.multiply(r, weight, where=(r > 0) & (weight > 0), out=np.zeros_like(r))
    present = r > 0
    if in_place and np.all(np.any(present, axis=1)) and r.size <= _MOST_IN_VAIN * present.sum():
        return [_ClassByClass(range(n), slice(0, r.shape[1]), np.ascontiguousarray(r.T))]
    members = [np.flatnonzero(column).astype(np.int32) for column in present.T]
    return [_ClassByClass(mine, slice(k, k + 1), r[None, mine, k]) for k, mine in enumerate(members)]


def _slices(length: int, fewest: int) -> list[slice]:
    """All of a length in slices of so many at least."""
    count = max(length // fewest, 1)
    return [slice(first, last) for first, last in pairwise(length * i // count for i in range(count + 1))]
