"""Sparse rows: the nonzeros of a matrix, counted and scored without ever being made dense.

`HostRows` is what concrete matrices of scipy and JAX become at the door: compressed rows of NumPy arrays, duplicates
summed. `SparseRows` is what compiled programs read: entries with the row and the column that each belongs to.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from jaxgen.labels import HardLabels
from jaxgen.numerics import matmul
from jaxgen.shares import BOUNDARY, aligned

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.labels import Labels

# Entries of one row that are summed before they are added to the row: a sum in registers costs a quarter of one in
# memory. More of them would be padding: half a group for each row.
_GROUP = 8


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "columns", "rows"),
    meta_fields=("shape", "window", "checked"),
)
@dataclass(frozen=True)
class SparseRows:
    """Entries of a sparse (n, d) matrix in groups that share a row. Entries outside the shape are ignored.

    Attributes:
        values: (groups, size).
        columns: (groups, size).
        rows: (groups,).
        shape: (n, d).
        window: entries that are read at a time.
        checked: whether every index is known to be inside the shape.
    """

    values: Float[Array, "groups size"]
    columns: Int[Array, "groups size"]
    rows: Int[Array, " groups"]
    shape: tuple[int, int]
    window: int = 2**14
    checked: bool = False

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def size(self) -> int:
        """How many entries there are."""
        return self.values.shape[0] * self.values.shape[1]

    def reading(self, window: int) -> SparseRows:
        """The same rows, read in windows of so many entries."""
        return dataclasses.replace(self, window=window)

    def astype(self, dtype: Any) -> SparseRows:
        """The same rows with values of another dtype."""
        return self.map(lambda values: values.astype(dtype))

    def map(self, function: Callable[[Array], Array]) -> SparseRows:
        """The same entries with other values; zero must remain zero."""
        return dataclasses.replace(self, values=function(self.values))

    def inside(self) -> SparseRows:
        """The same matrix with harmless indices and the value zero for entries outside the shape."""
        if self.checked:
            return self
        n, d = self.shape
        exists = (self.rows >= 0) & (self.rows < n)
        present = exists[:, None] & (self.columns >= 0) & (self.columns < d)
        return SparseRows(
            jnp.where(present, self.values, 0),
            jnp.where(present, self.columns, 0).astype(jnp.int32),
            jnp.where(exists, self.rows, 0).astype(jnp.int32),
            self.shape,
            self.window,
            checked=True,
        )

    def row_sum(self, function: Callable[[Array], Array]) -> Float[Array, " n"]:
        """Σ_j f(x_ij) over the entries of each row; f(0) must be 0."""
        per_group = jnp.sum(function(self.values), axis=1)
        return jnp.zeros(self.shape[0], per_group.dtype).at[self.rows].add(per_group, mode="promise_in_bounds")

    def class_sum(self, labels: Labels) -> Float[Array, "classes d"]:
        """Σ_i r_ik x_ij, by adding every entry where it belongs."""
        return class_table(self.add_to(empty_table(labels, self.shape[1], self.dtype), labels), labels)

    def add_to(self, table: Array, labels: Labels) -> Array:
        """A table of `empty_table` with these entries added."""
        d = self.shape[1]

        def add_hard(table: Array, x: SparseRows) -> Array:
            assert isinstance(labels, HardLabels)
            index = jnp.asarray(labels.index).at[x.rows].get(mode="promise_in_bounds")
            values = x.values
            if labels.weight is not None:
                values = labels.row_weight.at[x.rows].get(mode="promise_in_bounds")[:, None] * values
            return table.at[index[:, None] * d + x.columns].add(values, mode="promise_in_bounds")

        def add_soft(table: Array, x: SparseRows) -> Array:
            shares = labels.dense().at[x.rows].get(mode="promise_in_bounds")
            return table.at[x.columns].add(x.values[:, :, None] * shares[:, None, :], mode="promise_in_bounds")

        hard = isinstance(labels, HardLabels)
        return self._scan(add_hard if hard else add_soft, table, self.window if hard else self.window // 8)

    def matmul(self, table: Float[Array, "d classes"]) -> Float[Array, "n classes"]:
        """The product with a dense matrix."""

        def add(total: Array, x: SparseRows) -> Array:
            part = jnp.zeros((x.rows.shape[0], table.shape[1]), table.dtype)
            for i in range(x.values.shape[1]):
                part += x.values[:, i, None] * table.at[x.columns[:, i]].get(mode="promise_in_bounds")
            return total.at[x.rows].add(part, mode="promise_in_bounds")

        return self._scan(add, jnp.zeros((self.shape[0], table.shape[1]), table.dtype), self.window)

    def _scan(self, add: Callable[[Array, SparseRows], Array], start: Array, window: int) -> Array:
        """`add` over windows of entries, one after the other."""
        groups, size = self.values.shape
        step = min(groups, max(window // size, 1))
        if groups == 0:
            return start

        def part(first: Any, count: int) -> SparseRows:
            leaves, tree = jax.tree.flatten(self)
            return jax.tree.unflatten(tree, [lax.dynamic_slice_in_dim(leaf, first, count) for leaf in leaves])

        whole = groups // step
        firsts = step * jnp.arange(whole, dtype=jnp.int32)
        total, _ = lax.scan(lambda total, first: (add(total, part(first, step)), None), start, firsts)
        return add(total, part(whole * step, groups % step)) if groups % step else total


def empty_table(labels: Labels, num_features: int, dtype: Any) -> Array:
    """Zeros to add entries to: flat with a place for absent rows, or a row for each feature under soft labels."""
    if isinstance(labels, HardLabels):
        return jnp.zeros((labels.num_classes + 2) * num_features, dtype)
    return jnp.zeros((num_features, labels.num_classes), dtype)


def class_table(table: Array, labels: Labels) -> Float[Array, "classes d"]:
    """The sums by class in a table of `empty_table`."""
    if isinstance(labels, HardLabels):
        return table.reshape(labels.num_classes + 2, -1)[: labels.num_classes]
    return table.T


def product(x: Array | SparseRows, table: Float[Array, "d classes"]) -> Float[Array, "n classes"]:
    """x times a table, for dense or sparse x."""
    return x.matmul(table) if isinstance(x, SparseRows) else matmul(x, table)


def row_sum(function: Callable[[Array], Array], x: Array | SparseRows) -> Float[Array, " n"]:
    """Σ_j f(x_ij) of each row, for dense or sparse x; f(0) must be 0."""
    return x.row_sum(function) if isinstance(x, SparseRows) else jnp.sum(function(x), axis=-1)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "columns", "shift", "first", "stop", "rows"),
    meta_fields=("shape", "size"),
)
@dataclass(frozen=True)
class Chunk:
    """A slice of compressed rows of a fixed size, with the place of each group of entries in it.

    Attributes:
        values: holds the slice from shift[0] on.
        columns: holds the slice from shift[1] on.
        shift: (2,).
        first: where a group begins in the slice, (groups,); none where every entry is its own group.
        stop: where its row ends, (groups,).
        rows: the row of a group, (groups,); the last of them is no row of the matrix, and takes what is padding.
        shape: rows, and d.
        size: entries of the slice.
    """

    values: np.ndarray
    columns: np.ndarray
    shift: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    rows: np.ndarray
    shape: tuple[int, int]
    size: int

    def add_to(self, table: Array) -> Array:
        """A flat table of (rows, d) with the entries added; read where they lie, in windows."""
        step = min(self.size, 2**14)
        values, columns, rows = (jnp.asarray(a) for a in (self.values, self.columns, self.rows))

        def add(table: Array, first: Any, count: int) -> Array:
            value = lax.dynamic_slice_in_dim(values, first + self.shift[0], count).astype(table.dtype)
            column = lax.dynamic_slice_in_dim(columns, first + self.shift[1], count).astype(jnp.int32)
            row = lax.dynamic_slice_in_dim(rows, first, count).astype(jnp.int32)
            # Dropped where it lies outside: another thread may have changed the user's arrays since they were checked.
            return table.at[row * self.shape[1] + column].add(value, mode="drop")

        whole = self.size // step
        firsts = step * jnp.arange(whole, dtype=jnp.int32)
        table, _ = lax.scan(lambda table, first: (add(table, first, step), None), table, firsts)
        return add(table, whole * step, self.size % step) if self.size % step else table

    def unpack(self, dtype: Any) -> SparseRows:
        """Its entries."""
        values, columns = (
            lax.dynamic_slice(jnp.asarray(a), (self.shift[i],), (self.size,))
            for i, a in enumerate((self.values, self.columns))
        )
        columns, rows = columns.astype(jnp.int32), jnp.asarray(self.rows)
        if not len(self.first):
            return SparseRows(values.astype(dtype)[:, None], columns[:, None], rows, self.shape, checked=True)
        # A slice that would run over the end is moved back; the places of its entries say which are the group's own.
        begin = jnp.minimum(jnp.asarray(self.first), self.size - _GROUP)
        place = begin[:, None] + jnp.arange(_GROUP, dtype=jnp.int32)[None]
        own = (place >= self.first[:, None]) & (place < self.stop[:, None])
        values, columns = (
            jax.vmap(lambda i, a=a: lax.dynamic_slice(a, (i,), (_GROUP,)))(begin) for a in (values, columns)
        )
        values, columns = lax.optimization_barrier((jnp.where(own, values, 0).astype(dtype), columns))
        return SparseRows(values, columns, rows, self.shape, checked=True)


@dataclass(frozen=True)
class HostRows:
    """Compressed sparse rows of NumPy arrays: row i holds the entries from starts[i] to starts[i + 1]."""

    values: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    shape: tuple[int, int]

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def chunk(
        self,
        first: int,
        last: int,
        num_rows: int,
        num_entries: int,
        *,
        grouped: bool = False,
        owner: np.ndarray | None = None,
    ) -> Chunk:
        """Rows `first` to `last` in arrays of a fixed size; numbered from 0, or by their `owner` below `num_rows`.

        The arrays are sliced where they lie, not padded: what belongs to other rows has the last row number, which is
        none of theirs.
        """
        low, high = int(self.starts[first]), int(self.starts[last])
        begin = max(min(low, len(self.values) - num_entries), 0)
        values, columns = (_window(a, begin, num_entries) for a in (self.values, self.columns))
        shift = np.array([values[1], columns[1]], np.int32)
        start = (self.starts[first : last + 1] - begin).astype(np.int32)
        shape = (num_rows + 1, self.shape[1])
        none = np.zeros(0, np.int32)
        if not grouped:
            owner = np.arange(last - first, dtype=np.int32) if owner is None else owner
            rows = aligned(num_entries, owner.dtype)
            rows[: low - begin] = rows[high - begin :] = shape[0] - 1
            rows[low - begin : high - begin] = np.repeat(owner, np.diff(start))
            return Chunk(values[0], columns[0], shift, none, none, rows, shape, num_entries)
        groups = -(-np.diff(start) // _GROUP)
        before = np.cumsum(groups, dtype=np.int32) - groups
        most = num_entries // _GROUP + num_rows
        row = np.repeat(np.arange(last - first, dtype=np.int32), groups)
        place = start[row] + _GROUP * (np.arange(len(row), dtype=np.int32) - before[row])
        first_of, stop_of = (_padded(a.astype(np.int32), most) for a in (place, start[row + 1]))
        return Chunk(values[0], columns[0], shift, first_of, stop_of, _padded(row, most, num_rows), shape, num_entries)

    def whole(self) -> SparseRows:
        """All rows, for a program that takes them at once."""
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.starts))
        return SparseRows(
            jnp.asarray(self.values)[:, None],
            jnp.asarray(self.columns)[:, None],
            jnp.asarray(rows),
            self.shape,
            checked=True,
        )


def _window(array: np.ndarray, begin: int, size: int) -> tuple[np.ndarray, int]:
    """A slice that holds `size` elements from `begin` on, from a boundary on where there is one; and where they begin.

    JAX reads an array of NumPy where it lies if it begins on such a boundary, and copies it otherwise.
    """
    longer = size + BOUNDARY // array.itemsize
    if longer > len(array):
        return _padded(array[begin : begin + size], size), 0
    shift = (array.ctypes.data // array.itemsize + begin) % (BOUNDARY // array.itemsize)
    if shift > begin or begin - shift + longer > len(array):
        shift = begin - min(begin, len(array) - longer)
    return array[begin - shift : begin - shift + longer], shift


def _padded(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    return array if len(array) >= size else np.pad(array, (0, size - len(array)), constant_values=fill)


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse matrix of scipy or JAX, or sparse rows already."""
    return (
        isinstance(x, (SparseRows, HostRows))
        or hasattr(x, "tocsr")
        or _kind(x) in ("BCOO", "BCSR", "COO", "CSR", "CSC")
    )


def _kind(x: Any) -> str:
    return type(x).__name__ if type(x).__module__.startswith("jax.experimental.sparse") else ""


def as_sparse(x: Any) -> HostRows | SparseRows:
    """Any sparse matrix as `HostRows` where its values are known, as `SparseRows` under a trace."""
    if isinstance(x, (HostRows, SparseRows)):
        return x
    if hasattr(x, "tocsr"):
        return _from_scipy(x)
    kind = _kind(x)
    if kind not in ("BCOO", "BCSR") or x.n_batch or x.n_dense or len(x.shape) != 2:
        raise TypeError(
            "x must be a scipy.sparse matrix, or a BCOO or BCSR of shape (n, d) without batch or dense dimensions; "
            f"found {type(x).__name__} of shape {x.shape}. BCOO.from_scipy_sparse or BCOO.fromdense makes one."
        )
    n, d = x.shape
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)):
        if kind == "BCOO":
            return SparseRows(x.data[:, None], x.indices[:, 1:], x.indices[:, 0], (n, d))
        entry = jnp.arange(x.indices.shape[0], dtype=x.indptr.dtype)
        rows = jnp.searchsorted(x.indptr, entry, side="right").astype(jnp.int32) - 1
        rows = jnp.where(entry < x.indptr[-1], rows, n)
        return SparseRows(x.data[:, None], x.indices[:, None], rows, (n, d))
    values, indices = np.asarray(x.data), np.asarray(x.indices)
    if kind == "BCOO":
        rows, columns = indices[:, 0], indices[:, 1]
    else:
        starts = np.asarray(x.indptr)
        rows = np.repeat(np.arange(n), np.diff(starts))
        values, columns = values[: starts[-1]], indices[: starts[-1]]
    return _from_entries(values, rows, columns, (n, d))


def _from_scipy(x: Any) -> HostRows:
    if x.ndim != 2:
        raise ValueError(f"x must have shape (n, d); found a sparse array of shape {x.shape}. Reshape it to one row.")
    own = x.format != "csr"
    x = x.tocsr()
    if not x.has_canonical_format:
        x = x if own else x.copy()
        x.sum_duplicates()
    size = int(x.indptr[-1])  # the arrays may be longer
    columns = x.indices[:size]
    _check_columns(columns, x.shape[1])
    return HostRows(x.data[:size], columns, x.indptr, x.shape)


def _from_entries(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> HostRows:
    """Entries in any order as compressed rows: those at the shape are padding, duplicates are summed."""
    n, d = shape
    padding = (rows == n) | (columns == d)
    _check_columns(columns[~padding], d)
    if ((rows < 0) | (rows > n)).any():
        raise ValueError(
            f"x has row indices outside [0, {n}); found {rows.min()} to {rows.max()}. Check how x was built."
        )
    values, key = values[~padding], rows[~padding].astype(np.int64) * d + columns[~padding]
    if (np.diff(key) <= 0).any():
        order = np.argsort(key, kind="stable")
        values, key = values[order], key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        values, key = np.add.reduceat(values, first) if len(first) else values, key[first]
    starts = np.searchsorted(key, np.arange(n + 1, dtype=np.int64) * d)
    return HostRows(values, (key % d).astype(np.int32), starts, shape)


def _check_columns(columns: np.ndarray, d: int) -> None:
    if len(columns) and (columns.min() < 0 or columns.max() >= d):
        raise ValueError(
            f"x has column indices outside [0, {d}); found {columns.min()} to {columns.max()}. Check how x was built."
        )


def pad_rows(x: Any) -> SparseRows:
    """Sparse rows with the entries of each row in groups of eight, ready to be scored many times.

    Args:
        x: a scipy.sparse matrix or array of any format, or a BCOO or BCSR.

    Returns:
        A pytree that `fit` and every verb take in place of x, also under `jit`, with gradients to its values.

    Raises:
        TypeError: for anything else, and under a trace, where the lengths of the rows are not known.

    Example:
        >>> import numpy as np, scipy.sparse, jaxgen as jg
        >>> words = scipy.sparse.csr_array(np.array([[1, 2, 0], [0, 0, 3]]))
        >>> jg.fit(jg.MultinomialNB(), jg.pad_rows(words), np.array([0, 1])).log_prior.shape
        (2,)
    """
    rows = as_sparse(x) if is_sparse(x) else None
    if not isinstance(rows, HostRows):
        raise TypeError(
            f"pad_rows takes a concrete sparse matrix; found {type(x).__name__}. Under a trace pass it as it is."
        )
    groups = -(-np.diff(rows.starts) // _GROUP)
    row = np.repeat(np.arange(rows.shape[0], dtype=np.int32), groups)
    group = np.arange(len(row)) - (np.cumsum(groups) - groups)[row]
    place = (rows.starts[row] + _GROUP * group)[:, None] + np.arange(_GROUP)
    own = place < rows.starts[row + 1][:, None]
    place = np.where(own, place, 0)
    values, columns = (np.where(own, a[place] if len(a) else 0, 0) for a in (rows.values, rows.columns))
    return SparseRows(
        jnp.asarray(values), jnp.asarray(columns.astype(np.int32)), jnp.asarray(row), rows.shape, checked=True
    )
