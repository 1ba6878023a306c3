"""Arithmetic that keeps its promises: exact totals, logarithms of zero, factors of covariances."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jax.typing import DTypeLike
    from jaxtyping import Bool, Float

# Rows that are substituted at a time when a triangle is inverted.
_STRIP = 16

# Accelerators round the operands of a float32 matrix product to TF32 or bfloat16 unless told otherwise.
matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)
einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


def working_dtype(dtype: DTypeLike) -> np.dtype:
    """The dtype that data of `dtype` are computed in: float32 or float64, never less.

    float32 and float64 stay, bfloat16 and float16 become float32, integers and booleans JAX's default float. A float64
    NumPy array becomes float32 unless JAX's x64 mode is on, as everywhere in JAX.
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jax.dtypes.canonicalize_dtype(float)
    return np.dtype(np.float32) if jnp.finfo(dtype).bits < 32 else np.dtype(dtype)


def varying_alike(*trees: Any) -> tuple[Any, ...]:
    """The same numbers; inside `shard_map` all of one type, as if each device had its own where it has any of its own.

    What a loop carries, and what a choice is between, has to be of the same type in the end.
    """
    no = jnp.zeros((), bool)
    never = reduce(jnp.logical_or, (jnp.zeros_like(leaf, bool, shape=()) for leaf in jax.tree.leaves(trees)), no)
    if jax.typeof(never) == jax.typeof(no):
        return trees
    return jax.tree.map(lambda leaf: jnp.where(never, leaf, leaf), trees)


def shortcut(holds: Bool[Array, ""], short: Callable[..., Any], whole: Callable[..., Any], *operands: Any) -> Any:
    """`short(*operands)` where `holds`, else `whole(*operands)`, which is right in either case.

    Of a stack under `jax.vmap` all take the short way or none does: were each to have its own, both would be computed.
    """
    return lax.cond(_all_of_stack(lax.stop_gradient(holds)), short, whole, *operands)


@jax.custom_batching.custom_vmap
def _all_of_stack(holds: Bool[Array, ""]) -> Bool[Array, ""]:
    return holds


@_all_of_stack.def_vmap
def _all_of_stack_vmap(axis_size: int, batched: list[bool], holds: Bool[Array, " stack"]) -> tuple[Array, bool]:
    del axis_size, batched
    return _all_of_stack(jnp.all(holds, axis=0)), False


def safe_divide(numerator: Array, denominator: Array, otherwise: Array | float = 0.0) -> Array:
    """`numerator / denominator`, and `otherwise` where the denominator is zero, with finite gradients in both cases."""
    zero = denominator == 0
    return jnp.where(zero, otherwise, numerator / jnp.where(zero, 1.0, denominator))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def derivative_alone(function: Callable[..., Any], like: Any, *arguments: Any) -> Any:
    """Zeros like `like`, with the derivatives of a function of the arguments, which is not called for anything else."""
    del function, arguments
    return jax.tree.map(jnp.zeros_like, like)


@derivative_alone.defjvp
def _derivative_alone_jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    _, change = jax.jvp(function, primals[1:], tangents[1:])
    return derivative_alone(function, *primals), change


def log_sum_exp(logs: Float[Array, "... k"]) -> Float[Array, "..."]:
    """log Σ_k exp(l_k); −∞ where every l_k is, with derivative zero there."""
    impossible = jnp.all(jnp.isneginf(logs), axis=-1)
    possible = jnp.where(impossible[..., None], 0.0, logs)
    return jnp.where(impossible, -jnp.inf, jax.nn.logsumexp(possible, axis=-1))


def nonnegative_or_nan(value: Array | float, dtype: np.dtype, most: float = np.inf) -> Array:
    """A hyperparameter in the working dtype; NaN where it is not in [0, most], which only a trace lets through."""
    value = jnp.asarray(value).astype(dtype)
    return jnp.where((value >= 0) & (value <= most), value, jnp.nan)


def nonnegative_table(
    name: str, value: Array | float, like: Float[Array, "classes d"], most: float = np.inf
) -> Float[Array, "classes_or_1 d_or_1"]:
    """The same for one number, one for each feature, or what broadcasts to classes by features, the shape of `like`.

    Raises:
        ValueError: for a shape that does not broadcast to that.
    """
    shape = np.shape(value)
    if len(shape) > 2 or any(n not in (1, m) for n, m in zip(shape[::-1], like.shape[::-1], strict=False)):
        raise ValueError(
            f"{name} must be one number or broadcast to {like.shape}, classes by features; found shape {shape}. "
            f"Give shape {like.shape[1:]} for one of each feature, {(like.shape[0], 1)} for one of each class."
        )
    return nonnegative_or_nan(value, like.dtype, most).reshape((1, 1, *shape)[-2:])


def safe_log(x: Array) -> Array:
    """`log(x)`, −inf at zero, where its gradient is zero and not infinite."""
    zero = x == 0
    return jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, x)))


def log_share(part: Array, rest: Array, total: Array) -> Array:
    """log(part / total), where part and rest are the whole, from the smaller of the two; log ½ where there is nothing.

    Of a million words that are hardly ever present, the rounding of 1 − φ would add up to many nats. The digits that it
    lost are (1 − (1 − φ)) − φ, exactly, since the first difference is (Sterbenz 1974): to first order what log1p adds
    to log, whose two passes over a large table would be four.
    """
    larger = part > rest
    smaller = safe_divide(jnp.where(larger, rest, part), total, 0.5)
    other = 1 - smaller
    lost = jnp.where(larger, ((1 - other) - smaller) / other, 0.0)
    return safe_log(jnp.where(larger, other, smaller)) + lost


def drop_impossible(log_probability: Array) -> Array:
    """Log probabilities with 0 in place of −∞.

    `0 · −∞` is NaN, yet an impossible event that did not happen costs nothing. A sum over events is therefore taken
    twice: once over the finite logs, once over the indicators of −∞; where the second is positive the sum is −∞.
    """
    return jnp.where(jnp.isneginf(log_probability), 0.0, log_probability)


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
    """dL = L Φ(L⁻¹ dA L⁻ᵀ), Φ the lower triangle with half of the diagonal (Murray 2016, equation 8)."""
    factor = cholesky_of_many(*primals)
    inverse = inverse_factor(factor)
    middle = matmul(matmul(inverse, tangents[0]), jnp.swapaxes(inverse, 1, 2))
    half = jnp.tril(middle) - 0.5 * jnp.eye(middle.shape[-1], dtype=middle.dtype)[None] * middle
    return factor, matmul(factor, half)


def cholesky_or_nan(
    covariance: Float[Array, "classes d d"],
    regularised: Bool[Array, ""],
    factorise: Callable[[Array], Array] = jnp.linalg.cholesky,
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
    regular = is_regular(factorise(lax.stop_gradient(covariance)))
    lift = jnp.where((regularised & ~regular)[:, None], 2 * floor, 0.0)
    factor = factorise(with_diagonal(covariance, diagonal + lift))
    return jnp.where(is_regular(factor)[:, None, None], factor, jnp.nan)


def diagonals(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d"]:
    """The diagonal of each matrix, as a slice: XLA makes kernels of the indices of `jnp.diagonal`."""
    *batch, d, _ = matrices.shape
    return matrices.reshape(*batch, d * d)[..., :: d + 1]


def with_diagonal(matrices: Float[Array, "k d d"], diagonal: Float[Array, "k d"]) -> Float[Array, "k d d"]:
    """The same matrices with other diagonals."""
    return jnp.where(jnp.eye(matrices.shape[-1], dtype=bool)[None], diagonal[:, None, :], matrices)


@jax.custom_jvp
def inverse_factor(cholesky: Float[Array, "classes d d"]) -> Float[Array, "classes d d"]:
    """L⁻¹ for each lower triangular L: whitening by a matrix product is many times faster than by a solve per row.

    By forward substitution, in strips of rows (Higham 2002, section 14.2.2). A triangular solve would do as well, but
    on a CPU it is OpenBLAS's, whose threads then keep the cores busy waiting: LDA's scores of 200,000 × 100 took 33 ms
    after it, and take 18.
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

    def invert_row(i: Array, inverse: Array) -> Array:
        row = lax.dynamic_index_in_dim(blocks, i, 2, keepdims=False)
        own = lax.dynamic_index_in_dim(identity, i, 0)[None, :, :strip]
        rest = own - jnp.sum(row[..., None] * inverse, axis=-2)
        pivot = lax.dynamic_index_in_dim(row, i, 2)
        return lax.dynamic_update_index_in_dim(inverse, rest / pivot, i, 2)

    corners = lax.fori_loop(0, strip, invert_row, jnp.zeros_like(blocks))

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
