"""Concrete sparse matrices on a CPU: compressed rows, summed by class and multiplied by scipy's loops, on every core.

A compiled program of XLA has no loop over the entries of a row: it needs the row of every entry, and a write for each.
Measured on 100,000 documents of 55 words, 50,000 words, two classes: class sums in 30 ms where these take 13, scores in
66 where these take 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import shares
from jaxgen.labels import HardLabels
from jaxgen.numerics import Total, working_dtype
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxgen.inputs import Domain
    from jaxgen.labels import Labels

# Sums that are added to others at a time: a quarter of a megabyte in each limb.
_STRETCH = 2**16
# Whole numbers are summed exactly in float32 while the sum is below this.
_MOST_MASS = 2.0**24
# Up to so many columns, one product with each costs less than one with all: 10 ms where two at once take 22.
_FEW_COLUMNS = 4


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


@dataclass(frozen=True)
class CompressedRows:
    """A compressed sparse row matrix of scipy whose duplicates are summed."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def num_entries(self) -> int:
        """How many entries there are; the arrays may be longer."""
        return int(self.matrix.indptr[-1])

    @property
    def values(self) -> np.ndarray:
        """The entries."""
        return self.matrix.data[: self.num_entries]

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.matrix.dtype

    @property
    def columns(self) -> np.ndarray:
        """The column of each entry."""
        return self.matrix.indices[: self.num_entries]

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.matrix.indptr))

    def class_sums(self, labels: Labels, features: Callable[[Any], Any], domain: Domain, *, entries: int) -> Sums:
        """The sums of features by class, in the working dtype, from pieces of about so many entries.

        The rows of a class are put side by side, a piece at a time, so that their sum is a vector that stays in a
        cache, however many classes there are.
        """
        n, d = self.shape
        dtype = working_dtype(self.dtype)
        most_rows = max(entries * n // max(self.num_entries, 1), 1)
        classes = _classes(labels)
        # One class may be most of the data: each is dealt out in parts of at most half a core's share. The first part
        # of each class is in its place, and the others behind them.
        # A part takes a row of the table, so that it must be worth that: twice as many entries as the row has.
        worth = 2 * d * n // max(self.num_entries, 1)
        share = max(sum(len(each.rows) for each in classes) // (2 * shares.cores()), most_rows, worth)
        others = [(k, first) for k, each in enumerate(classes) for first in range(share, len(each.rows), share)]
        parts = [each.part(0, share) for each in classes] + [classes[k].part(i, i + share) for k, i in others]
        high = shares.aligned((len(parts), d), dtype)
        low = shares.aligned((len(parts), d), dtype, zero=True)

        def add_up(i: int) -> bool:
            bad = False
            for first in range(0, max(len(parts[i].rows), 1), most_rows):
                piece = parts[i].part(first, first + most_rows)
                block = self._take(piece.rows)
                if block.dtype.kind == "f":
                    block = block.astype(dtype)
                bad |= not domain.contains(block.values).all()
                _add(_column_sum(features(block).matrix, piece.weight, dtype), high[i], low[i], more=first > 0)
            return bad

        bad = any(shares.over(add_up, range(len(parts))))
        for i, (k, _) in enumerate(others, len(classes)):
            _add(high[i], high[k], low[k])
            _add(low[i], high[k], low[k])
        high, low = high[: len(classes)], low[: len(classes)]
        bad |= not high.max() < np.inf
        weight = np.zeros((2, len(classes)), dtype)
        _add(np.array([each.total for each in classes], np.float64), weight[0], weight[1])
        high, low = jax.device_put((high, low))
        return Sums(Total(jnp.asarray(weight[0]), jnp.asarray(weight[1])), Total(high, low), bad)

    def products(self, projection: Projection, domain: Domain, *, entries: int) -> tuple[np.ndarray, bool]:
        """The products of all rows with a table, (n, m), by such pieces; and whether a value is outside the domain."""
        starts, (_, width) = self.matrix.indptr, projection.table.shape
        result = shares.aligned((self.shape[0], width + len(projection.terms)), projection.table.dtype)
        columns = np.ascontiguousarray(projection.table.T) if width <= _FEW_COLUMNS else None

        def multiply(rows: slice) -> bool:
            block = self._slice(rows).astype(result.dtype)
            features = projection.features(block).matrix
            if columns is None:
                result[rows, :width] = features @ projection.table
            else:
                for k, column in enumerate(columns):
                    result[rows, k] = features @ column
            for k, term in enumerate(projection.terms, width):
                result[rows, k] = block.map(term).matrix.sum(axis=1).ravel()
            return not domain.contains(block.values).all()

        count = -(-self.num_entries // entries) * shares.cores()
        bounds = np.searchsorted(starts, np.linspace(0, self.num_entries, count + 1)[1:-1])
        bounds = np.unique([0, *bounds, self.shape[0]])
        bad = shares.over(multiply, [slice(int(first), int(last)) for first, last in pairwise(bounds)])
        return result, any(bad)

    def astype(self, dtype: Any) -> CompressedRows:
        """The same rows with values of another dtype; infinite where they overflow it."""
        with np.errstate(over="ignore"):
            return self.map(lambda values: values.astype(dtype, copy=False))

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> CompressedRows:
        """The same entries with other values; zero must remain zero."""
        return self._holding(function(self.values), self.columns, self.matrix.indptr)

    def whole(self) -> SparseRows:
        """All rows, for a program that takes them at once."""
        check_columns(self.columns, self.shape[1])
        values, columns, rows = map(jnp.asarray, (unwrapped(self.values), self.columns, self.rows))
        return SparseRows(values[:, None], columns[:, None], rows, self.shape, checked=True, unique=True)

    def _take(self, rows: np.ndarray) -> CompressedRows:
        """A copy of some rows, whose columns can be trusted."""
        block = CompressedRows(self.matrix[rows])
        check_columns(block.columns, self.shape[1])
        return block

    def _slice(self, rows: slice) -> CompressedRows:
        """Some rows where they lie, whose columns can be trusted."""
        starts = self.matrix.indptr[rows.start : rows.stop + 1]
        entries = slice(int(starts[0]), int(starts[-1]))
        columns = self.matrix.indices[entries]
        check_columns(columns, self.shape[1])
        return self._holding(self.matrix.data[entries], columns, starts - starts[0])

    def _holding(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray) -> CompressedRows:
        # Put into an empty matrix: the constructor copies what is part of a larger array.
        matrix = type(self.matrix)((len(starts) - 1, self.shape[1]), dtype=values.dtype)
        matrix.data, matrix.indices, matrix.indptr = values, columns, starts
        return CompressedRows(matrix)


class Projection(NamedTuple):
    """A classifier of sparse rows in two steps: the rows times a table, and a classifier of the products.

    Attributes:
        features: what is multiplied, of rows.
        table: (d, m).
        terms: functions of values whose sums over a row are further columns of the products.
        classifier: of the products.
    """

    features: Callable[[Any], Any]
    table: np.ndarray
    terms: tuple[Callable[[Any], Any], ...]
    classifier: Any


@dataclass(frozen=True)
class _Members:
    """Rows that belong to a class, and their weights; None where each is 1."""

    rows: np.ndarray
    weight: np.ndarray | None

    @property
    def total(self) -> float:
        """The weight of all."""
        return len(self.rows) if self.weight is None else float(self.weight.sum())

    def part(self, first: int, last: int) -> _Members:
        """Some of them."""
        return _Members(self.rows[first:last], None if self.weight is None else self.weight[first:last])


def _classes(labels: Labels) -> list[_Members]:
    """The rows of each class that are present."""
    weight = None if labels.weight is None else np.asarray(labels.weight, np.float64)
    if not isinstance(labels, HardLabels):
        columns = np.asarray(labels.responsibilities).T
        return [_present(column, weight) for column in columns]
    index = np.asarray(labels.index)
    present = None if weight is None else np.flatnonzero(weight > 0)
    index = index if present is None else index[present]
    # A sort of small integers counts them.
    order = np.argsort(index.astype(np.min_scalar_type(labels.num_classes)), kind="stable")
    bounds = np.searchsorted(index[order], np.arange(labels.num_classes + 1))
    rows = order if present is None else present[order]
    everyone = _Members(rows, None if weight is None else weight[rows])
    return [everyone.part(first, last) for first, last in pairwise(bounds)]


def _present(share: np.ndarray, weight: np.ndarray | None) -> _Members:
    """The rows with a share in a class; a row of weight 0 has none, whatever it holds."""
    rows = np.flatnonzero(share > 0 if weight is None else (share > 0) & (weight > 0)).astype(np.int32)
    share = share[rows].astype(np.float64)
    return _Members(rows, share if weight is None else share * weight[rows])


def unwrapped(values: np.ndarray) -> np.ndarray:
    """Values as JAX may take them, which would wrap 64-bit integers into 32 bits."""
    wraps = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and not jax.config.read("jax_enable_x64")
    return values.astype(np.float32) if wraps else values


def _column_sum(block: Any, weight: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """Σ_i w_i x_ij; in float64, except where float32 is exact: of whole numbers, while their sum is not too large."""
    if weight is None:
        total = block.T @ np.ones(block.shape[0], dtype)
        if total.dtype != np.float32 or (total.max() < _MOST_MASS and (total == np.rint(total)).all()):
            return total
        weight = np.ones(block.shape[0])
    return block.T @ weight


def _add(values: np.ndarray, high: np.ndarray, low: np.ndarray, *, more: bool = True) -> None:
    """Add values to a sum in two limbs, or begin it with them; infinite where it overflows the limbs.

    A stretch at a time: numbers between the steps stay in a cache, and take no memory beside the sum.
    """
    for first in range(0, len(values), _STRETCH):
        place = slice(first, first + _STRETCH)
        total = values[place]
        with np.errstate(over="ignore", invalid="ignore"):
            if more:
                total = total.astype(np.float64) + high[place] + low[place]
            high[place] = total
            if total.dtype != high.dtype:
                low[place] = total - high[place]


def check_columns(columns: np.ndarray, d: int) -> None:
    """Raise for an index that scipy's loops would follow out of the matrix."""
    # Below zero is far above it without a sign: one look at the largest.
    if len(columns) and columns.view(columns.dtype.str.replace("i", "u")).max() >= d:
        raise ValueError(
            f"x has column indices outside [0, {d}); found {columns.min()} to {columns.max()}. Check how x was built."
        )
