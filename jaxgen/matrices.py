"""Matrices: Cholesky factors, their inverses, diagonals, products that are symmetric."""

from __future__ import annotations

import contextlib
import sys
import threading
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.numerics import matmul, shortcut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jax import Array
    from jaxtyping import Bool, Float

# Rows that are substituted at a time when a triangle is inverted.
_STRIP = 16
# Strips in which a wide symmetric matrix is made, about, and rows of the last one, at least.
_STRIPS, _LAST_ROWS = 4, 16
# The first that JAX loads of it.
_LAPACK = "scipy.linalg.cython_blas"


@contextlib.contextmanager
def loading_lapack() -> Iterator[None]:
    """Beside what is done here load what JAX takes LAPACK from on a CPU, as it does for the first factorisation: SciPy.

    That is 0.08 s of the 1.1 in which a new process fits LDA. While its statistics are compiled, it is hardly any.
    Afterwards it is loaded: two threads that come to the modules of a package in another order wait for each other,
    which Python ends with an error in one of them.
    """
    if _LAPACK in sys.modules or jax.default_backend() != "cpu":
        yield
        return
    thread = threading.Thread(target=import_module, args=(_LAPACK,), name="jaxgen-lapack")
    thread.start()
    try:
        yield
    finally:
        thread.join()


@jax.custom_jvp
def cholesky_of_many(matrices: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """Lower Cholesky factors of many small matrices, NaN where there is none; a column of all of them at a time.

    LAPACK's, of many matrices, must not run beside another one on a CPU: in jaxlib 0.10.2 the two wait for each other
    for ever, and nothing keeps XLA or two threads of a caller from running them so.
    """

    def column(j: Array, factor: Array) -> Array:
        row = lax.dynamic_index_in_dim(factor, j, 1, keepdims=False)
        rest = lax.dynamic_index_in_dim(matrices, j, 2, keepdims=False) - jnp.sum(factor * row[:, None], axis=-1)
        pivot = jnp.sqrt(lax.dynamic_index_in_dim(rest, j, 1))
        below = (jnp.arange(rest.shape[-1]) >= j)[None]
        return lax.dynamic_update_index_in_dim(factor, jnp.where(below, rest / pivot, 0.0), j, 2)

    return lax.fori_loop(0, matrices.shape[-1], column, jnp.zeros_like(matrices))


@cholesky_of_many.defjvp
def _cholesky_of_many_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    factor = cholesky_of_many(*primals)
    return factor, _change_of_factor(factor, tangents[0])


@jax.custom_jvp
def _known_factor(matrices: Float[Array, "n d d"], factor: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """The Cholesky factor of symmetric matrices, which is there already, as a function of these."""
    del matrices
    return factor


@_known_factor.defjvp
def _known_factor_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    factor = _known_factor(*primals)
    return factor, _change_of_factor(factor, 0.5 * (tangents[0] + jnp.swapaxes(tangents[0], 1, 2)))


def _change_of_factor(factor: Array, change: Array) -> Array:
    """dL = L Φ(L⁻¹ dA L⁻ᵀ), Φ the lower triangle with half of the diagonal (Murray 2016, equation 8)."""
    inverse = inverse_factor(factor)
    middle = matmul(matmul(inverse, change), jnp.swapaxes(inverse, 1, 2))
    half = jnp.tril(middle) - 0.5 * jnp.eye(middle.shape[-1], dtype=middle.dtype)[None] * middle
    return matmul(factor, half)


@jax.custom_jvp
def _symmetric(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Matrices that are symmetric as they are, and in their derivatives."""
    return matrices


@_symmetric.defjvp
def _symmetric_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _symmetric(*primals), 0.5 * (tangents[0] + jnp.swapaxes(tangents[0], -1, -2))


def _cholesky(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Lower Cholesky factors of symmetric matrices.

    `jnp.linalg.cholesky` adds each to its transpose first, and XLA makes both anew: an estimate of QDA for ten classes
    of 100 features takes 3.3 ms with it, and 1.8 with this.
    """
    return lax.linalg.cholesky(_symmetric(matrices), symmetrize_input=False)


def cholesky_or_nan(
    covariance: Float[Array, "classes d d"],
    regularised: Bool[Array, ""],
    factorise: Callable[[Array], Array] = _cholesky,
) -> Float[Array, "classes d d"]:
    """The lower Cholesky factors of a stack of covariances, NaN for each one that is numerically singular.

    Singular means that the factorisation breaks down or that a pivot L_jj² is at most d·eps·Σ_jj, the size of its
    rounding error: what is left of feature j once the features before it are known is then noise. In float32 that can
    swallow a ridge of 1e-6. Where a covariance was regularised and is singular all the same, its diagonal is raised by
    2·d·eps of itself, no more than the rounding of the factorisation may already have changed it by (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, theorem 10.3).
    """
    diagonal = diagonals(covariance)
    floor = covariance.shape[-1] * jnp.finfo(covariance.dtype).eps * diagonal

    def is_regular(factor: Array) -> Array:
        return jnp.all(diagonals(factor) ** 2 > floor, axis=-1)

    # Found out on a copy: the gradient of a factorisation that broke down is NaN, whatever it is multiplied by.
    factor = factorise(lax.stop_gradient(covariance))
    regular = is_regular(factor)

    def lifted() -> Array:
        lift = jnp.where((regularised & ~regular)[:, None], 2 * floor, 0.0)
        again = factorise(with_diagonal(covariance, diagonal + lift))
        return jnp.where(is_regular(again)[:, None, None], again, jnp.nan)

    return shortcut(jnp.all(regular), lambda: _known_factor(covariance, factor), lifted)


def diagonals(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d"]:
    """The diagonal of each matrix, as a slice: XLA makes kernels of the indices of `jnp.diagonal`."""
    *batch, d, _ = matrices.shape
    return matrices.reshape(*batch, d * d)[..., :: d + 1]


def with_diagonal(matrices: Float[Array, "k d d"], diagonal: Float[Array, "k d"]) -> Float[Array, "k d d"]:
    """The same matrices with other diagonals."""
    return jnp.where(jnp.eye(matrices.shape[-1], dtype=bool)[None], diagonal[:, None, :], matrices)


def lower_triangle(
    part: Callable[[slice, slice], Float[Array, "rows columns"]], d: int, strip: int | None
) -> Float[Array, "d d"]:
    """A symmetric matrix in strips of rows, each up to the diagonal; above it stands what came with it, or 0.

    Args:
        part: makes some of its rows and columns.
        d: how many it has.
        strip: rows of a strip, about; None makes the whole at once.
    """
    if strip is None:
        return part(slice(0, d), slice(0, d))
    strip *= max(1, round(d / (_STRIPS * strip)))
    ends = [0, *range(strip, d + 1 - _LAST_ROWS, strip), d]
    strips = [part(slice(first, end), slice(0, end)) for first, end in pairwise(ends)]
    return jnp.concatenate([jnp.pad(each, [(0, 0), (0, d - each.shape[1])]) for each in strips])


def mirrored(lower: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The symmetric matrix of this lower triangle."""
    return jnp.where(np.tri(len(lower), dtype=bool), lower, lower.T)


@jax.custom_jvp
def inverse_factor(cholesky: Float[Array, "classes d d"]) -> Float[Array, "classes d d"]:
    """L⁻¹ for each lower triangular L: whitening by a matrix product is many times faster than by a solve per row.

    By forward substitution, in strips of rows (Higham 2002, section 14.2.2); in the corners of the strips a column of
    all of them is eliminated at a time, which takes 4 ms for 1,000 of 16 × 16, and 38 by sums over rows. A triangular
    solve would do as well, but on a CPU it is OpenBLAS's, whose threads then keep the cores busy waiting: LDA's scores
    of 200,000 × 100 took 33 ms after it, and take 18.
    """
    count, d = cholesky.shape[0], cholesky.shape[-1]
    strip = min(_STRIP, d)
    strips = -(-d // strip)
    size = strips * strip
    padded = jnp.pad(cholesky, [(0, 0), (0, size - d), (0, size - d)])
    padded += jnp.diag((jnp.arange(size) >= d).astype(cholesky.dtype))[None]
    blocks = jnp.diagonal(padded.reshape(count, strips, strip, strips, strip), axis1=1, axis2=3)
    blocks = jnp.moveaxis(blocks, -1, 1)  # those on the diagonal, (classes, strips, rows, rows)
    rows = padded.reshape(count, strips, strip, size)
    identity = jnp.eye(size, dtype=cholesky.dtype)

    feature = jnp.arange(strip)[None, None]

    def eliminate(j: Array, inverse: Array) -> Array:
        column = lax.dynamic_index_in_dim(blocks, j, 3, keepdims=False)
        row = lax.dynamic_index_in_dim(inverse, j, 2, keepdims=False) / lax.dynamic_index_in_dim(column, j, 2)
        rest = inverse - jnp.where(feature > j, column, 0.0)[..., None] * row[:, :, None]
        return jnp.where((feature == j)[..., None], row[:, :, None], rest)

    corners = lax.fori_loop(0, strip, eliminate, jnp.zeros_like(blocks) + identity[None, None, :strip, :strip])
    if strips == 1:
        return corners[:, 0]

    def invert_strip(i: Array, inverse: Array) -> Array:
        own = lax.dynamic_slice_in_dim(identity, i * strip, strip)
        rest = own[None] - matmul(lax.dynamic_index_in_dim(rows, i, 1, keepdims=False), inverse)
        solved = matmul(lax.dynamic_index_in_dim(corners, i, 1, keepdims=False), rest)
        return lax.dynamic_update_slice_in_dim(inverse, solved, i * strip, 1)

    return lax.fori_loop(0, strips, invert_strip, jnp.zeros_like(padded))[:, :d, :d]


@inverse_factor.defjvp
def _inverse_factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """d(L⁻¹) = −L⁻¹ dL L⁻¹."""
    inverse = inverse_factor(*primals)
    return inverse, -matmul(matmul(inverse, jnp.tril(tangents[0])), inverse)
