"""What the rows of each class of a concrete sparse matrix add up to, on a CPU: by scipy's loops, on every core.

A sum over rows is a vector with an entry for each feature, and is quick while that stays in a cache. So rows of one
class are put side by side and summed, one class after the other; or, where most rows are of most classes, as of two
classes or of soft labels, pieces of rows are read where they lie and summed for each class while they are in a cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import shares
from jaxgen.labels import HardLabels
from jaxgen.numerics import working_dtype
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxgen.compressed import CompressedRows
    from jaxgen.inputs import Domain
    from jaxgen.labels import Labels

# Sums that are added to others at a time: a quarter of a megabyte in each limb.
_STRETCH = 2**16
# Whole numbers are summed exactly in float32 while the sum is below this.
_MOST_MASS = 2.0**24
# Rows are read where they lie while they are summed at most so many times as often as they have a class.
_MOST_IN_VAIN = 2.5


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
        weights: of the rows in each of these.
    """

    rows: np.ndarray | range
    classes: range
    weights: list[np.ndarray]

    def part(self, first: int, last: int) -> _Part:
        """Some of the rows."""
        return _Part(self.rows[first:last], self.classes, [weight[first:last] for weight in self.weights])


def class_sums(
    x: CompressedRows, labels: Labels, features: Callable[[Any], Any], domain: Domain, *, entries: int
) -> Sums:
    """The sums of features by class, in the working dtype, from pieces of about so many entries."""
    n, d = x.shape
    dtype = working_dtype(x.dtype)
    each = max(x.num_entries, 1) / n
    most_rows = max(int(entries / each), 1)
    members, everyone = _members(labels, dtype)
    # A sum takes a row of the table, so that a part must be worth that: twice as many entries as the row has.
    parts = _deal(members, n, everyone=everyone, fewest=max(most_rows, int(2 * d / each)))
    starts = np.cumsum([0, *(len(part.classes) for part in parts)])
    high = shares.aligned((starts[-1], d), dtype)
    low = shares.aligned((starts[-1], d), dtype, zero=True)
    sums = [_Sum(*limbs) for limbs in zip(high, low, strict=True)]

    def add_up(i: int) -> bool:
        bad = False
        for first in range(0, max(len(parts[i].rows), 1), most_rows):
            piece = parts[i].part(first, first + most_rows)
            block = x.at(piece.rows)
            if block.dtype.kind == "f":
                block = block.astype(dtype)
            bad |= not domain.holds(block.values)
            columns = features(block).transposed()
            for k, weight in enumerate(piece.weights, starts[i]):
                sums[k].add(*_product(columns, weight))
        return bad

    bad = any(shares.over(add_up, range(len(parts))))
    # The first sum of each class is in its place, and the others behind them.
    for i, k in list(enumerate(k for part in parts for k in part.classes))[len(members) :]:
        sums[k].merge(sums[i])
    high, low = high[: len(members)], low[: len(members)]
    bad |= not high.max() < np.inf
    weight = np.zeros((2, len(members)), dtype)
    _Sum(*weight).add(np.array([mine.sum(dtype=np.float64) for _, mine in members]))
    high, low = jax.device_put((high, low))
    return Sums(Total(jnp.asarray(weight[0]), jnp.asarray(weight[1])), Total(high, low), bad)


def _members(labels: Labels, dtype: np.dtype) -> tuple[list[tuple[np.ndarray, np.ndarray]], bool]:
    """The rows of each class and their weights, in `dtype` where each is 1; and whether every row is of a class.

    A row of weight 0 is of none, whatever it holds.
    """
    weight = None if labels.weight is None else np.asarray(labels.weight, np.float64)
    if not isinstance(labels, HardLabels):
        share = np.asarray(labels.responsibilities, np.float64)
        if weight is not None:
            counts = (share > 0) & (weight[:, None] > 0)
            share = np.multiply(share, weight[:, None], where=counts, out=np.zeros_like(share))
        rows = [np.flatnonzero(column).astype(np.int32) for column in share.T]
        members = [(mine, share[mine, k]) for k, mine in enumerate(rows)]
        return members, bool(np.all(np.any(share > 0, axis=1)))
    index = np.asarray(labels.index)
    present = None if weight is None or np.all(weight > 0) else np.flatnonzero(weight > 0)
    index = index if present is None else index[present]
    # A sort of small integers counts them.
    order = np.argsort(index.astype(np.min_scalar_type(labels.num_classes)), kind="stable")
    bounds = np.searchsorted(index[order], np.arange(labels.num_classes + 1))
    rows = order if present is None else present[order]
    each = np.ones(len(rows), dtype) if weight is None else weight[rows]
    return [(rows[first:last], each[first:last]) for first, last in pairwise(bounds)], present is None


def _deal(members: list[tuple[np.ndarray, np.ndarray]], n: int, *, everyone: bool, fewest: int) -> list[_Part]:
    """The rows of each class in parts of at most half a core's share; or all rows where they lie, a part for each core.

    A part of `fewest` rows is worth its sums.
    """
    total = sum(len(rows) for rows, _ in members)
    if everyone and len(members) * n <= _MOST_IN_VAIN * total and n >= shares.cores() * fewest:
        weights = [np.zeros(n, weight.dtype) for _, weight in members]
        for mine, (rows, weight) in zip(weights, members, strict=True):
            mine[rows] = weight
        whole, cuts = [_Part(range(n), range(len(members)), weights)], shares.cores()
    else:
        whole = [_Part(rows, range(k, k + 1), [weight]) for k, (rows, weight) in enumerate(members)]
        cuts = 2 * shares.cores()
    share = max(-(-sum(len(part.rows) for part in whole) // cuts), fewest)
    others = [part.part(i, i + share) for part in whole for i in range(share, len(part.rows), share)]
    return [part.part(0, share) for part in whole] + others


def _product(columns: Any, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Σ_i w_i x_ij; in float64, except where float32 is exact: of whole numbers, while their sum is not too large.

    Weights in float32 are 0 or 1. Also returns the largest sum where float32 is exact, else infinity.
    """
    total = columns @ weight
    if total.dtype == np.float32:
        largest = float(total.max())
        if largest < _MOST_MASS and (total == np.rint(total)).all():
            return total, largest
        total = columns @ weight.astype(np.float64)
    return total, np.inf


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
        # A stretch at a time: numbers between the steps stay in a cache, and take no memory beside the sum.
        for first in range(0, len(values), _STRETCH):
            place = slice(first, first + _STRETCH)
            total = values[place]
            with np.errstate(over="ignore", invalid="ignore"):
                if begun:
                    total = total.astype(np.float64) + self.high[place] + self.low[place]
                self.high[place] = total
                if total.dtype != self.high.dtype:
                    self.low[place] = total - self.high[place]
