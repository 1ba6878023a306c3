"""Concrete sparse matrices on a CPU: compressed rows, summed by class and multiplied by scipy's loops, on every core.

A compiled program of XLA has no loop over the entries of a row: it needs the row of every entry, and a write for each.
Measured on 100,000 documents of 55 words, 50,000 words, two classes: class sums in two to three times as long as these,
scores in almost four.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import host_arrays, platform, threads
from jaxgen.sparse import SparseRows, row_of_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxgen.domains import Domain
    from jaxgen.projections import Projection

# Up to so many columns, one product with each costs less than one with all: 10 ms where two at once take 22.
_FEW_COLUMNS = 4
# Up to so many entries a second thread costs more than it saves: ten documents are multiplied in 0.45 ms by two, in
# 0.29 by one.
_FEW_ENTRIES = 2**15
# Entries of a row from where products are summed in float64: of 80,000 words, one added after the other in float32, a
# log likelihood of 10⁶ nats errs by 7.
_LONG_ROW = 2**12
# Entries up to which they are filled up with zeros for compiled programs, of which one takes two seconds to make.
_MOST_FILLED_UP = 2**22


@dataclass(frozen=True)
class CompressedRows:
    """A sparse (n, d) matrix, row after row, with one entry for a place.

    Attributes:
        values: the entries.
        columns: the column of each.
        starts: where each row begins among them, and where the last one ends.
        num_columns: d.
    """

    values: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    num_columns: int

    @classmethod
    def of(cls, matrix: Any) -> CompressedRows:
        """The rows of one of scipy's compressed matrices, whose arrays may be longer than what it holds."""
        size = int(matrix.indptr[-1])
        return cls(matrix.data[:size], matrix.indices[:size], matrix.indptr, matrix.shape[1])

    @property
    def matrix(self) -> Any:
        """The same as a matrix of scipy."""
        from scipy.sparse import csr_array

        return _holding(csr_array, self.shape, self.values, self.columns, self.starts)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.starts) - 1, self.num_columns

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def num_entries(self) -> int:
        """How many entries there are."""
        return len(self.values)

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @cached_property
    def least(self) -> float:
        """The smallest entry; NaN where one is, infinite where there is none."""
        return float(self.values.min()) if self.num_entries else np.inf

    @property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.starts))

    def products(self, projection: Projection, domain: Domain, *, entries: int) -> tuple[np.ndarray, bool]:
        """The products of all rows with a table, (n, m); and whether a value is outside the domain.

        About so many `entries` are taken at a time.
        """
        starts, table = self.starts, np.asarray(projection.table)
        height, width = table.shape
        form = table.dtype
        if np.diff(starts).max(initial=0) > _LONG_ROW:  # entries are added one after the other
            table = table.astype(np.float64)
        place = None if projection.columns is None else self._places(projection.columns)
        result = host_arrays.aligned((self.shape[0], width + len(projection.terms)), form)
        columns = np.ascontiguousarray(table.T) if width <= _FEW_COLUMNS else None

        def multiply(rows: slice) -> bool:
            block = self._slice(rows).astype(form)  # what is seen of a value does not depend on the length of a row
            if place is not None:
                block = dataclasses.replace(block, columns=place[block.columns], num_columns=height)
            matrix = projection.encode(block).astype(table.dtype).matrix
            if columns is None:
                result[rows, :width] = matrix @ table
            else:
                for k, column in enumerate(columns):
                    result[rows, k] = matrix @ column
            for k, term in enumerate(projection.terms, width):
                result[rows, k] = block.astype(table.dtype).map(term).matrix.sum(axis=1)
            return not domain.holds(block.values)

        bad = threads.over(multiply, self.stretches(-(-self.num_entries // entries)))
        return result, any(bad)

    def stretches(self, of_a_core: int) -> list[slice]:
        """All rows in stretches of about as many entries, so many for each core; in one where entries are few."""
        count = of_a_core * threads.cores() if self.num_entries > _FEW_ENTRIES else 1
        bounds = np.searchsorted(self.starts, np.linspace(0, self.num_entries, count + 1)[1:-1])
        bounds = np.unique([0, *bounds, self.shape[0]])
        return [slice(int(first), int(last)) for first, last in pairwise(bounds)]

    def occurring(self) -> np.ndarray:
        """The columns that have an entry, in order; column 0 if none has."""
        check_columns(self.columns, self.shape[1])
        occurs = np.zeros(self.shape[1], bool)
        occurs[self.columns] = True
        return np.flatnonzero(occurs) if len(self.columns) else np.zeros(1, np.intp)

    def _places(self, columns: np.ndarray) -> np.ndarray:
        """Where each column is among these, which are all that have entries."""
        places = np.zeros(self.shape[1], self.columns.dtype)
        places[columns] = np.arange(len(columns))
        return places

    def astype(self, dtype: Any) -> CompressedRows:
        """The same rows with values of another dtype; infinite where they overflow it."""
        if self.values.dtype == dtype:
            return self
        with np.errstate(over="ignore"):
            return self.map(lambda values: values.astype(dtype))

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> CompressedRows:
        """The same entries with other values; zero must remain zero."""
        return dataclasses.replace(self, values=function(self.values))

    def whole(self, num_rows: int = 0, num_entries: int = 0) -> SparseRows:
        """All rows, for a program that takes them at once, with zeros behind them.

        They are filled up to so many entries, and with empty rows to so many, where that is more.
        """
        check_columns(self.columns, self.shape[1])
        if self.num_entries >= 2**31:
            raise ValueError(
                f"x must have fewer than 2^31 entries outside a CPU and for several fits at once; found "
                f"{self.num_entries}. Fit parts of its rows: jaxgen.merge of their statistics is that of the whole."
            )
        n = max(num_rows, self.shape[0])
        size = host_arrays.few_sizes(max(num_entries, self.num_entries), _MOST_FILLED_UP)
        starts = np.pad(self.starts.astype(np.int32), (0, n - self.shape[0]), mode="edge")
        starts[-1] = size  # the last row has the zeros
        values, columns = unwrapped(self.values), self.columns.astype(np.int32, copy=False)
        if size > self.num_entries:
            values, columns = (np.pad(entries, (0, size - len(entries))) for entries in (values, columns))
        if platform.platform_of() == "cpu":
            rows = jnp.asarray(np.repeat(np.arange(n, dtype=np.int32), np.diff(starts)))
        else:  # to write them down here and to send them takes longer than to find them there
            rows = row_of_each(jnp.asarray(starts), size)
        values, columns = map(jnp.asarray, (values, columns))
        shape = n, self.shape[1]
        return SparseRows(values[:, None], columns[:, None], rows, shape, checked=True, unique=True)

    def at(self, rows: np.ndarray | range) -> CompressedRows:
        """Some rows, whose columns can be trusted: a copy, or a range where they lie."""
        if isinstance(rows, range):
            return self._slice(slice(rows.start, rows.stop))
        block = CompressedRows.of(self.matrix[rows])
        check_columns(block.columns, self.shape[1])
        return block

    def take(self, columns: np.ndarray) -> CompressedRows:
        """Some of the columns, in this order."""
        check_columns(self.columns, self.shape[1])
        first, last = columns[0], columns[-1]
        in_order = np.array_equal(columns, np.arange(first, last + 1))
        return CompressedRows.of(self.matrix[:, first : last + 1] if in_order else self.matrix[:, columns])

    def dense(self) -> np.ndarray:
        """The same as an array."""
        check_columns(self.columns, self.shape[1])
        return unwrapped(self.matrix.toarray())

    def sum_rows(self, weight: np.ndarray | None, total: np.ndarray | None = None) -> np.ndarray:
        """Σ_i w_i x_i, (d,), added to a total where there is one; all in one dtype. Without weights each is 1."""
        n, d = self.shape
        total = np.zeros(d, self.dtype) if total is None else total
        # Without weights all entries are one row of a matrix in which places repeat: they add up where it is made
        # dense, in an eighth less time than rows that are multiplied by 1.
        ends = np.array([0, self.num_entries], self.starts.dtype)
        try:
            # What scipy calls itself, with zeros to add to: it is not public. Without it, a table of zeros for every
            # stretch of rows and its sum with the total are a tenth of the time of a fit.
            from scipy.sparse._sparsetools import csc_matvec, csr_todense
        except ImportError:
            from scipy.sparse import csc_matrix, csr_matrix

            if weight is None:
                return total + _holding(csr_matrix, (1, d), self.values, self.columns, ends).toarray()[0]
            return total + _holding(csc_matrix, (d, n), self.values, self.columns, self.starts) @ weight
        if weight is None:
            csr_todense(1, d, ends, self.columns, self.values, total)
        else:
            csc_matvec(d, n, self.starts, self.columns, self.values, weight, total)
        return total

    def by_class(self, index: np.ndarray, num_classes: int) -> CompressedRows:
        """Rows of length K·d, with each entry in the place of its class."""
        width = num_classes * self.num_columns
        dtype = np.result_type(self.columns, np.min_scalar_type(-width))
        places = np.repeat(index.astype(dtype) * dtype.type(self.num_columns), np.diff(self.starts))
        places += self.columns
        return dataclasses.replace(self, columns=places, num_columns=width)

    def _slice(self, rows: slice) -> CompressedRows:
        """Some rows where they lie, whose columns can be trusted."""
        starts = self.starts[rows.start : rows.stop + 1]
        entries = slice(int(starts[0]), int(starts[-1]))
        check_columns(self.columns[entries], self.num_columns)
        return CompressedRows(self.values[entries], self.columns[entries], starts - starts[0], self.num_columns)


def _holding(kind: Any, shape: tuple[int, int], values: np.ndarray, indices: np.ndarray, starts: np.ndarray) -> Any:
    """A matrix of these arrays, put into an empty one: the constructor copies what is part of a larger array."""
    matrix = kind(shape, dtype=values.dtype)
    matrix.data, matrix.indices, matrix.indptr = values, indices, starts
    return matrix


def unwrapped(values: np.ndarray) -> np.ndarray:
    """Values as JAX may take them, which would wrap 64-bit integers into 32 bits."""
    wraps = values.dtype.kind in "iu" and values.dtype.itemsize == 8 and not jax.config.read("jax_enable_x64")
    return values.astype(np.float32) if wraps else values


def check_columns(columns: np.ndarray, d: int) -> None:
    """Raise for an index that scipy's loops would follow out of the matrix."""
    # Below zero is far above it without a sign: one look at the largest.
    if len(columns) and columns.view(columns.dtype.str.replace("i", "u")).max() >= d:
        raise ValueError(
            f"x has column indices outside [0, {d}); found {columns.min()} to {columns.max()}. Check how x was built."
        )


def check_starts(starts: np.ndarray, num_entries: int) -> None:
    """Raise for places of rows that scipy's loops would follow out of the entries."""
    if starts[0] != 0 or starts[-1] > num_entries or np.any(starts[1:] < starts[:-1]):
        raise ValueError(
            f"x.indptr must rise from 0 to at most the {num_entries} entries that there are; found {starts[0]} to "
            f"{starts[-1]}{' with a fall between' if np.any(starts[1:] < starts[:-1]) else ''}. Check how x was built."
        )
