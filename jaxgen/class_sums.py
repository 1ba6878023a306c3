"""What the rows of each class of a concrete sparse matrix add up to, on a CPU: by scipy's loops, on every core.

A sum is quick while what it adds to stays in a cache. Where the table of all classes does, rows are read where they
lie, each entry added in the place of its class. Where most rows are of most classes, as with soft labels of two, they
are read where they lie once for each class. Otherwise rows of one class are put side by side and summed.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import shares
from jaxgen.labels import HardLabels
from jaxgen.numerics import working_dtype
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels

# Sums that are added to others at a time: a quarter of a megabyte in each limb.
_STRETCH = 2**16
# Whole numbers are summed exactly in float32 while the sum is below this.
_MOST_MASS = 2.0**24
# Rows are read where they lie while they are summed at most so many times as often as they have a class.
_MOST_IN_VAIN = 2.5
# Cells of a table that entries of all classes are added to in turn: so few in any case, more where there are entries
# enough, and never so many that adding waits for memory. Rows of 55 words out of 30,000, in 20 classes: class by class
# the sums of 2,000 and 20,000 take 5.0 and 5.8 ms, in turn 0.8 and 3.4.
_FEW_CELLS = 2**20
_MOST_CELLS = 2**22


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


class _Part(NamedTuple):
    """Rows that are read together, for the sums of some classes.

    Attributes:
        rows: their numbers, in order; a range where they are read where they lie.
        classes: the classes.
        weights: of the rows in each of these; or one, in the class that each row has.
        label: the class of each row, where it has one of several.
    """

    rows: np.ndarray | range
    classes: range
    weights: list[np.ndarray]
    label: np.ndarray | None = None

    @property
    def class_weight(self) -> np.ndarray:
        """The weight of these rows in each of the classes."""
        if self.label is not None:
            (weight,) = self.weights
            each = None if np.all(weight == 1) else weight  # to count takes a sixth of the time
            return np.bincount(self.label.astype(np.intp, copy=False), each, minlength=len(self.classes))
        return np.array([weight.sum(dtype=np.float64) for weight in self.weights])

    def cut(self, fewest: int) -> list[_Part]:
        """Parts of so many rows at least, one after the other."""
        count = max(len(self.rows) // fewest, 1)
        bounds = [len(self.rows) * i // count for i in range(count + 1)]
        return [
            _Part(
                self.rows[first:last],
                self.classes,
                [weight[first:last] for weight in self.weights],
                None if self.label is None else self.label[first:last],
            )
            for first, last in pairwise(bounds)
        ]

    def products(self, block: CompressedRows, *, whole: bool) -> Iterator[tuple[np.ndarray, float]]:
        """The sums of these rows, one with each of the weights, and a bound of each."""
        columns = block.transposed() if self.label is None else block.by_class(self.label, len(self.classes))
        return (_product(columns, weight, whole=whole) for weight in self.weights)


def class_sums(
    x: CompressedRows, labels: Labels, features: Callable[[Any], Any], domain: Domain, *, binary: bool, entries: int
) -> Sums:
    """The sums of features by class, in the working dtype, from pieces of so many entries or more.

    `binary` says that features are 0 or 1 where x is in its domain.
    """
    (n, d), dtype = x.shape, working_dtype(x.dtype)
    each = max(x.num_entries, 1) / n
    enough = min(x.num_entries // (2 * shares.cores()), _MOST_CELLS)
    whole = _all_rows(labels, n, dtype, lambda classes: classes * d <= max(_FEW_CELLS, enough))
    cells = d * len(whole[0].classes) // len(whole[0].weights)
    # All cells of a sum are looked at, for each piece: it must be worth that. So must a part, whose sums take memory as
    # well, where there are more of them than cores.
    piece_rows = max(int(max(entries, 2 * cells) / each), 1)
    if len(whole) == 1:
        part_rows = max(n // shares.cores(), int(max(entries, 2 * cells) / 4 / each), 1)
    else:
        part_rows = max(sum(len(part.rows) for part in whole) // (2 * shares.cores()), piece_rows)
    # The sums of the first parts are in the places of their classes, and those of the others behind them.
    firsts, others = zip(*((first, rest) for first, *rest in (part.cut(part_rows) for part in whole)), strict=True)
    parts = [*firsts, *chain(*others)]
    tables = np.cumsum([len(part.classes) for part in parts])
    high = shares.aligned((tables[-1], d), dtype)
    low = shares.aligned((tables[-1], d), dtype, zero=True)
    sums = [
        [_Sum(*limbs) for limbs in zip(*(table.reshape(len(part.weights), -1) for table in pair), strict=True)]
        for part, *pair in zip(parts, np.split(high, tables[:-1]), np.split(low, tables[:-1]), strict=True)
    ]

    def add_up(i: int) -> bool:
        bad = False
        for piece in parts[i].cut(piece_rows):
            block = x.at(piece.rows)
            if block.dtype.kind == "f":
                block = block.astype(dtype)
            bad |= not domain.holds(block.values)
            block = features(block)
            products = piece.products(block, whole=binary or _are_whole(block.values))
            for total, (values, largest) in zip(sums[i], products, strict=True):
                total.add(values, largest)
        return bad

    bad = any(shares.over(add_up, range(len(parts))))
    place = {part.classes.start: i for i, part in enumerate(firsts)}
    for part, mine in zip(parts[len(firsts) :], sums[len(firsts) :], strict=True):
        for total, other in zip(sums[place[part.classes.start]], mine, strict=True):
            total.merge(other)
    high, low = high[: labels.num_classes], low[: labels.num_classes]
    bad |= not high.max() < np.inf
    weight = np.zeros((2, labels.num_classes), dtype)
    _Sum(*weight).add(np.concatenate([part.class_weight for part in whole]))
    bad |= not weight[0].max() < np.inf
    high, low = jax.device_put((high, low))
    return Sums(Total(jnp.asarray(weight[0]), jnp.asarray(weight[1])), Total(high, low), bad)


def _all_rows(labels: Labels, n: int, dtype: np.dtype, reads: Callable[[int], bool]) -> list[_Part]:
    """All rows: in one part where they are read where they lie, else a part for each class.

    A row of weight 0 is of no class, whatever it holds. Weights are in `dtype` where each is 1, else in float64.
    `reads` says whether rows are to be read where they lie for a sum of so many classes.
    """
    weight = None if labels.weight is None else np.asarray(labels.weight, np.float64)
    classes = range(labels.num_classes)
    if isinstance(labels, HardLabels):
        index, rows = np.asarray(labels.index), np.arange(n, dtype=np.int32)
        each = np.ones(n, dtype) if weight is None else weight
        if weight is not None and not np.all(weight > 0):
            rows = np.flatnonzero(weight > 0)
            index, each = index[rows], each[rows]
        elif reads(labels.num_classes):
            return [_Part(range(n), classes, [each], index)]
        # A sort of small integers counts them.
        order = np.argsort(index.astype(np.min_scalar_type(labels.num_classes)), kind="stable")
        bounds = np.searchsorted(index[order], np.arange(labels.num_classes + 1))
        return [
            _Part(rows[order[first:last]], classes[k : k + 1], [each[order[first:last]]])
            for k, (first, last) in enumerate(pairwise(bounds))
        ]
    share = np.asarray(labels.responsibilities, np.float64)
    if weight is not None:
        counts = (share > 0) & (weight[:, None] > 0)
        share = np.multiply(share, weight[:, None], where=counts, out=np.zeros_like(share))
    present = share > 0
    if np.all(np.any(present, axis=1)) and share.size <= _MOST_IN_VAIN * present.sum() and reads(1):
        return [_Part(range(n), classes, list(np.ascontiguousarray(share.T)))]
    members = [np.flatnonzero(column).astype(np.int32) for column in present.T]
    return [_Part(mine, classes[k : k + 1], [share[mine, k]]) for k, mine in enumerate(members)]


def _are_whole(values: np.ndarray) -> bool:
    """Whether all of them are whole numbers."""
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())


def _product(columns: Any, weight: np.ndarray, *, whole: bool) -> tuple[np.ndarray, float]:
    """Σ_i w_i x_ij; in float64, except where float32 is exact: of whole numbers, while their sum is not too large.

    Weights in float32 are 0 or 1. Also returns the largest sum where float32 is exact, else infinity.
    """
    if np.result_type(columns, weight) != np.float32:
        return columns @ weight, np.inf
    if whole:
        total = columns @ weight
        largest = float(total.max())
        if largest < _MOST_MASS:
            return total, largest
    return columns @ weight.astype(np.float64), np.inf


class _Sum:
    """A sum in two limbs, of which the second stays zero while the first is exact without.

    Attributes:
        high: the first limb.
        low: the second, which must begin with zeros.
        largest: a bound of the sums; below 2^24 the first limb is exact, else the second counts too.
    """

    def __init__(self, high: np.ndarray, low: np.ndarray) -> None:
        self.high, self.low, self.largest = high, low, -1.0

    def add(self, values: np.ndarray, largest: float = np.inf) -> None:
        """Add values, or begin with them; infinite where the sum overflows the limbs."""
        begun, self.largest = self.largest >= 0, max(self.largest, 0.0) + largest
        if begun and (self.largest < _MOST_MASS or self.high.dtype == np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                self.high += values
        else:
            self._add_to_limbs(values, begun=begun)

    def merge(self, other: _Sum) -> None:
        """Add another sum."""
        self.add(other.high, other.largest)
        if not other.largest < _MOST_MASS:
            self.add(other.low)

    def _add_to_limbs(self, values: np.ndarray, *, begun: bool) -> None:
        for total, high, low in zip(_stretches(values), _stretches(self.high), _stretches(self.low), strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                if begun:
                    total = total.astype(np.float64) + high + low
                high[:] = total
                if total.dtype != high.dtype:
                    low[:] = total - high


def _stretches(values: np.ndarray) -> list[np.ndarray]:
    """A line in stretches: numbers between the steps stay in a cache, and take no memory beside the line."""
    return [values[first : first + _STRETCH] for first in range(0, len(values), _STRETCH)]
