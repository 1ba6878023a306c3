"""Matrices: Cholesky factors, their inverses, diagonals, products that are symmetric."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import lapack
from jaxgen.numerics import all_of_stack, einsum, matmul

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

# Rows that are substituted at a time when a triangle is inverted.
_STRIP = 16
# Strips in which a wide symmetric matrix is made, about, and rows of the last one, at least.
_STRIPS, _LAST_ROWS = 4, 16


def cholesky(matrices: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """Lower Cholesky factors of symmetric matrices, NaN where there is none."""
    return _known_factor(matrices, lapack.cholesky(lax.stop_gradient(matrices)))


@jax.custom_jvp
def _known_factor(matrices: Float[Array, "n d d"], factor: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """The Cholesky factor of symmetric matrices, which is there already, as a function of these."""
    del matrices
    return factor


@_known_factor.defjvp
def _known_factor_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    factor = _known_factor(*primals)
    return factor, _change_of_factor(factor, tangents[0])


@jax.custom_jvp
def factor_of_sum(
    factor: Float[Array, "n d d"], weight: Float[Array, " n"], vector: Float[Array, "n d"]
) -> Float[Array, "n d d"]:
    """The lower Cholesky factors of LLᵀ + c vvᵀ, c ≥ 0, with the digits of L where v is large beside it.

    It is L times the factor of I + c wwᵀ, w = L⁻¹v, all of whose elements are made of sums of what is positive (Gill,
    Golub, Murray & Saunders 1974, Methods for modifying matrix factorizations).
    """
    white = jnp.sqrt(weight)[:, None] * einsum("kij,kj->ki", inverse_factor(factor), vector)
    after = 1 + jnp.cumsum(white**2, axis=1)
    before = jnp.concatenate([jnp.ones_like(after[:, :1]), after[:, :-1]], axis=1)
    columns = jnp.cumsum(jnp.flip(factor * white[:, None], axis=2), axis=2)  # Σ_(i ≥ j) w_i L_i, from the last one
    behind = jnp.concatenate([jnp.flip(columns[..., :-1], axis=2), jnp.zeros_like(columns[..., :1])], axis=2)
    own, others = jnp.sqrt(after / before), white / (jnp.sqrt(after) * jnp.sqrt(before))
    return jnp.tril(factor * own[:, None] + behind * others[:, None])


@factor_of_sum.defjvp
def _factor_of_sum_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """As `_change_of_factor`, of a vector that is whitened before it is squared."""
    (factor, weight, vector), (of_factor, of_weight, of_vector) = primals, tangents
    result = factor_of_sum(*primals)
    whitening = inverse_factor(result)
    white, change = (einsum("kij,kj->ki", whitening, each) for each in (vector, of_vector))
    half = matmul(matmul(whitening, jnp.tril(of_factor)), jnp.swapaxes(matmul(whitening, factor), 1, 2))
    half += white[:, :, None] * (0.5 * of_weight[:, None] * white + weight[:, None] * change)[:, None]
    return result, matmul(result, _half(half + jnp.swapaxes(half, 1, 2)))


@jax.custom_jvp
def factor_of_gram(rows: Float[Array, "n d"]) -> Float[Array, "d d"]:
    """The lower Cholesky factor of AᵀA, n ≥ d: the triangle of A's QR factorisation, with the digits of A."""
    triangle = lapack.triangle(rows)
    return (jnp.where(diagonals(triangle) < 0, -1.0, 1.0)[:, None] * triangle).T


@factor_of_gram.defjvp
def _factor_of_gram_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    factor = factor_of_gram(*primals)
    whitening = inverse_factor(factor[None])[0].T
    half = matmul(matmul(primals[0], whitening).T, matmul(tangents[0], whitening))
    return factor, matmul(factor, _half(half + half.T))


def _change_of_factor(factor: Array, change: Array) -> Array:
    """dL = L Φ(L⁻¹ dA L⁻ᵀ), Φ the lower triangle with half of the diagonal (Murray 2016, equation 8)."""
    inverse, change = inverse_factor(factor), 0.5 * (change + jnp.swapaxes(change, 1, 2))  # in both halves alike
    return matmul(factor, _half(matmul(matmul(inverse, change), jnp.swapaxes(inverse, 1, 2))))


def _half(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Lower triangles with half of the diagonal."""
    return with_diagonal(jnp.tril(matrices), 0.5 * diagonals(matrices))


def cholesky_or_nan(
    covariance: Float[Array, "classes d d"], regularised: Bool[Array, ""]
) -> Float[Array, "classes d d"]:
    """The lower Cholesky factors of a stack of covariances, NaN for each one that is numerically singular.

    Singular means that the factorisation breaks down or that a pivot L_jj² is at most d·eps·Σ_jj, the size of its
    rounding error: what is left of feature j once the features before it are known is then noise. In float32 that can
    swallow a ridge of 1e-6. Where a covariance was regularised and is singular all the same, its diagonal is raised by
    2·d·eps of itself, no more than the rounding of the factorisation may already have changed it by (Higham 2002,
    Accuracy and Stability of Numerical Algorithms, theorem 10.3).
    """
    known = lax.stop_gradient(covariance)  # the gradient of a factorisation that broke down is NaN
    diagonal, rounding = diagonals(known), known.shape[-1] * jnp.finfo(known.dtype).eps

    def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, lift, _ = state
        factor = lapack.cholesky(with_diagonal(known, diagonal * (1 + lift)))
        regular = jnp.all(diagonals(factor) ** 2 > rounding * diagonal, axis=-1)
        raised = jnp.where(regularised & ~regular[:, None], 2 * rounding, lift)
        return ~all_of_stack(jnp.all(raised == lift)), raised, jnp.where(regular[:, None, None], factor, jnp.nan)

    # A loop, which most often ends after one attempt: where a second follows, it is not compiled once more.
    start = jnp.ones_like(diagonal, bool, shape=()), jnp.zeros_like(diagonal[:, :1]), known
    *_, factor = lax.while_loop(lambda state: state[0], attempt, start)
    return _known_factor(covariance, factor)


def diagonals(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d"]:
    """The diagonal of each matrix, as a slice: XLA makes kernels of the indices of `jnp.diagonal`."""
    *batch, d, _ = matrices.shape
    return matrices.reshape(*batch, d * d)[..., :: d + 1]


def with_diagonal(
    matrices: Float[Array, "*batch d d"], diagonal: Float[Array, "*batch d"]
) -> Float[Array, "*batch d d"]:
    """The same matrices with other diagonals."""
    # A constant: what `jnp.eye` compares is one kernel more to compile.
    own = np.eye(matrices.shape[-1], dtype=bool).reshape(*[1] * (matrices.ndim - 2), *matrices.shape[-2:])
    return jnp.where(own, diagonal[..., None, :], matrices)


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
