"""Sparse matrices as callers hold them, of scipy or of JAX, in the two forms that everything else knows."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import platform
from jaxgen.compressed import CompressedRows, check_columns, check_starts, unwrapped
from jaxgen.host_arrays import few_sizes
from jaxgen.sparse import SparseRows, row_of_each
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array

# Entries of one row that `pad_rows` puts side by side: a sum in registers costs a quarter of one in memory, and more of
# them would be padding.
_GROUP = 8
# Groups up to which their number is one of a few, so that matrices share programs, of which EM takes seconds to make.
_MOST_FILLED_UP = 2**15


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse matrix of scipy or JAX, or sparse rows already."""
    return (
        isinstance(x, (SparseRows, CompressedRows))
        or hasattr(x, "tocsr")
        or _kind(x) in ("BCOO", "BCSR", "COO", "CSR", "CSC")
    )


def _kind(x: Any) -> str:
    return type(x).__name__ if type(x).__module__.startswith("jax.experimental.sparse") else ""


def as_sparse(x: Any) -> CompressedRows | SparseRows:
    """Any sparse matrix as `CompressedRows` where its values are known, as `SparseRows` under a trace.

    A matrix of JAX that lies on an accelerator, with all entries in their places, remains there as `SparseRows`.
    """
    if isinstance(x, (CompressedRows, SparseRows)):
        return x
    if hasattr(x, "tocsr"):
        return _from_scipy(x)
    kind = _kind(x)
    if kind:
        _check_dtype(x)
    if kind not in ("BCOO", "BCSR") or x.n_batch or x.n_dense or len(x.shape) != 2:
        dimensions = f", n_batch={x.n_batch} and n_dense={x.n_dense}" if kind in ("BCOO", "BCSR") else ""
        raise TypeError(
            "x must be a scipy.sparse matrix, or a BCOO or BCSR of shape (n, d) without batch or dense dimensions; "
            f"found {type(x).__name__} of shape {x.shape}{dimensions}. BCOO.from_scipy_sparse or BCOO.fromdense makes "
            "one, of two axes."
        )
    if is_traced(x):
        return _entries_where_they_lie(x, kind)
    if platform.platform_of(x) not in (None, "cpu"):
        in_place, unique = map(bool, _are_in_place_and_unique(x, kind))
        if in_place:
            return dataclasses.replace(_entries_where_they_lie(x, kind), unique=unique)
    return _from_jax(x, kind)


def _entries_where_they_lie(x: Any, kind: str) -> SparseRows:
    indices = _wide(x.indices)
    if kind == "BCOO":
        return SparseRows(x.data[:, None], indices[:, 1:], indices[:, 0], x.shape, unique=x.unique_indices)
    rows = row_of_each(_wide(x.indptr), indices.shape[0])
    return SparseRows(x.data[:, None], indices[:, None], rows, x.shape, unique=x.unique_indices)


def _wide(indices: Any) -> Any:
    """Indices in a dtype that holds the shape as well."""
    return indices.astype(np.int32) if indices.dtype.itemsize < 4 else indices


@partial(jax.jit, static_argnums=1)
def _are_in_place_and_unique(x: Any, kind: str) -> tuple[Array, Array]:
    """Whether all entries are inside the matrix, or at its edge as padding is; and whether each has its own place.

    Where they are not, `_from_jax` says what is wrong.
    """
    entries, (n, d) = _entries_where_they_lie(x, kind), x.shape
    rows, columns = entries.rows, entries.columns[:, 0]
    inside = jnp.all((rows >= 0) & (rows <= n) & (columns >= 0) & (columns <= d))
    if kind == "BCSR":
        starts, size = _wide(x.indptr), x.indices.shape[0]
        inside = jnp.all((rows == n) | ((columns >= 0) & (columns <= d)))
        inside &= (starts[0] == 0) & jnp.all(starts[1:] >= starts[:-1]) & (starts[-1] <= size)
    follows = (rows[1:] > rows[:-1]) | ((rows[1:] == rows[:-1]) & (columns[1:] > columns[:-1])) | (rows[1:] == n)
    return inside, jnp.all(follows)


def _from_jax(x: Any, kind: str) -> CompressedRows:
    """A BCOO or BCSR whose values are known, on the host."""
    values, indices = np.asarray(x.data), _wide(np.asarray(x.indices))
    if kind == "BCOO":
        rows, columns = map(np.ascontiguousarray, indices.T)
        return _from_entries(values, rows, columns, x.shape)
    starts = np.asarray(x.indptr)
    check_starts(starts, len(values))
    values, columns = values[: starts[-1]], indices[: starts[-1]]
    if np.any(columns == x.shape[1]):  # padding
        return _from_entries(values, np.repeat(np.arange(x.shape[0]), np.diff(starts)), columns, x.shape)
    return _from_rows(values, columns, starts, x.shape)


def as_matrix(x: Any) -> Any:
    """Any sparse matrix whose values are known as one of scipy, whose rows can be taken."""
    x = as_sparse(x)
    if isinstance(x, CompressedRows):
        return x.matrix
    values, columns = np.asarray(x.values), np.asarray(x.columns)
    rows = np.broadcast_to(np.asarray(x.rows)[:, None], values.shape)
    own = values != 0  # what fills a group up is zero
    return _from_entries(values[own], rows[own], columns[own], x.shape).matrix


def _check_dtype(x: Any) -> None:
    real = x.dtype == bool or jnp.issubdtype(x.dtype, jnp.integer) or jnp.issubdtype(x.dtype, jnp.floating)
    if not real or x.dtype.itemsize > 8:
        raise TypeError(
            f"x must hold real numbers of at most 64 bits; found {type(x).__name__} of dtype {x.dtype}. Convert them "
            "with x.astype(float)."
        )


def _from_scipy(x: Any) -> CompressedRows:
    if x.ndim != 2:
        remedy = "Reshape it to one row." if x.ndim == 1 else "Reshape it to a row for each example."
        raise ValueError(f"x must have shape (n, d); found a sparse array of shape {x.shape}. {remedy}")
    _check_dtype(x)
    if not x.dtype.isnative or x.dtype == np.float16:  # which scipy's loops do not know
        x = x.astype(np.float32 if x.dtype.itemsize == 2 and x.dtype.kind == "f" else x.dtype.newbyteorder("="))
    own = x.format != "csr"
    # Sums of duplicates would wrap, and two truths be one; those of these formats are summed on their way.
    narrow = x.dtype.kind in "iub" and x.dtype.itemsize < 8
    x = (x.astype(np.int64) if narrow and x.format in ("coo", "bsr") else x).tocsr()
    check_starts(x.indptr, min(len(x.indices), len(x.data)))
    if not x.has_canonical_format:
        x = x.astype(np.int64) if narrow else x if own else x.copy()
        x.sum_duplicates()
    return CompressedRows.of(x)


def _from_entries(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> CompressedRows:
    """Entries in any order as compressed rows: those at the shape are padding, duplicates are summed."""
    from scipy.sparse import coo_array

    n, d = shape
    padding = (rows == n) | (columns == d)
    if padding.any():
        values, rows, columns = values[~padding], rows[~padding], columns[~padding]
    check_columns(columns, d)
    if len(rows) and (rows.min() < 0 or rows.max() > n):
        raise ValueError(
            f"x has row indices outside [0, {n}); found {rows.min()} to {rows.max()}. Check how x was built."
        )
    if np.all(rows[1:] >= rows[:-1]):
        return _from_rows(values, columns, np.searchsorted(rows, np.arange(n + 1, dtype=rows.dtype)), shape)
    return _from_scipy(coo_array((_known(values), (rows, columns)), shape=shape))


def _from_rows(values: np.ndarray, columns: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> CompressedRows:
    """Entries row after row as compressed rows, with duplicates summed."""
    from scipy.sparse import csr_array

    check_columns(columns, shape[1])
    return _from_scipy(csr_array((_known(values), columns, starts), shape=shape))


def _known(values: np.ndarray) -> np.ndarray:
    """Values in a dtype that scipy's loops know, which bfloat16 and float16 are not."""
    if values.dtype.kind not in "biuf" or (values.dtype.itemsize < 4 and values.dtype.kind == "f"):
        return values.astype(np.float32)
    return values


def pad_rows(x: Any) -> SparseRows:
    """Sparse rows with the entries of each row in groups of eight, ready to be scored many times.

    Args:
        x: a scipy.sparse matrix or array of any format, or a BCOO or BCSR; what was padded before stays as it is.

    Returns:
        A pytree that `fit`, `fit_em` and every verb take in place of x, also under `jit`, with gradients to its values.

    Raises:
        TypeError: for anything else, and under a trace, where the lengths of the rows are not known.
        ValueError: for a sparse array of one axis, and for indices out of the matrix.

    Example:
        >>> import numpy as np, scipy.sparse, jaxgen as jg
        >>> words = scipy.sparse.csr_array(np.array([[1, 2, 0], [0, 0, 3]]))
        >>> jg.fit(jg.MultinomialNB(), jg.pad_rows(words), np.array([0, 1])).log_prior.shape
        (2,)
    """
    if isinstance(x, SparseRows):
        return x
    compressed = as_sparse(x) if is_sparse(x) else None
    if isinstance(compressed, SparseRows) and not is_traced(x):
        compressed = _from_jax(x, _kind(x))
    if not isinstance(compressed, CompressedRows):
        remedy = "Under a trace pass it as it is." if is_traced(x) else "scipy.sparse.csr_array(x) makes one."
        raise TypeError(f"pad_rows takes a concrete sparse matrix; found {type(x).__name__}. {remedy}")
    check_columns(compressed.columns, compressed.shape[1])
    starts = compressed.starts.astype(np.int64)  # numbers without a sign would wrap
    groups = -(-np.diff(starts) // _GROUP)
    row = np.repeat(np.arange(compressed.shape[0], dtype=np.int32), groups)
    row = np.pad(row, (0, few_sizes(len(row), _MOST_FILLED_UP) - len(row)), mode="edge")  # by groups of zeros
    group = np.arange(len(row)) - (np.cumsum(groups) - groups)[row]
    place = (starts[row] + _GROUP * group)[:, None] + np.arange(_GROUP)
    own = place < starts[row + 1][:, None]
    place = np.where(own, place, 0)
    arrays = unwrapped(compressed.values), compressed.columns
    values, columns = (np.where(own, a[place] if len(a) else a.dtype.type(0), a.dtype.type(0)) for a in arrays)
    values, columns, rows = map(jnp.asarray, (values, columns.astype(np.int32), row))
    return SparseRows(values, columns, rows, compressed.shape, checked=True, unique=True)
