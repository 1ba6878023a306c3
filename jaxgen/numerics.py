"""Arithmetic that keeps its promises: precision, quotients and logarithms of zero, shortcuts of a whole stack."""

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

LOG_2PI = float(np.log(2 * np.pi))

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


def or_in_float64(dtype: DTypeLike) -> str:
    """What a message adds to its remedy where more digits or a wider range may help: nothing in float64 itself."""
    return "" if dtype == np.float64 else ", or compute in float64 (jax.config.update('jax_enable_x64', True))"


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
    return lax.cond(all_of_stack(lax.stop_gradient(holds)), short, whole, *operands)


@jax.custom_batching.custom_vmap
def all_of_stack(holds: Bool[Array, ""]) -> Bool[Array, ""]:
    """The same; under `jax.vmap` whether it holds for all of the stack, which is one answer for them."""
    return holds


@all_of_stack.def_vmap
def _(axis_size: int, batched: list[bool], holds: Bool[Array, " stack"]) -> tuple[Array, bool]:
    del axis_size, batched
    return all_of_stack(jnp.all(holds, axis=0)), False


def safe_divide(numerator: Array, denominator: Array, otherwise: Array | float = 0.0) -> Array:
    """`numerator / denominator`, and `otherwise` where the denominator is zero, with finite gradients in both cases."""
    zero = denominator == 0
    return jnp.where(zero, otherwise, numerator / jnp.where(zero, 1.0, denominator))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def derivative_alone(function: Callable[..., Any], like: Any, *arguments: Any) -> Any:
    """Zeros like `like`, with the derivatives of a function of the arguments, which is not called for anything else."""
    del function
    # JAX batches values and derivatives apart, and under `grad` of `vmap` fails where one has an axis and the other has
    # not: so zeros that could be numbers of the arguments, which XLA knows to be none.
    some = [jnp.ravel(leaf)[:1] for leaf in jax.tree.leaves(arguments) if leaf.size]

    def zeros(leaf: Array) -> Array:
        number = reduce(jnp.add, (jnp.sum(each).astype(leaf.dtype) for each in some))
        return jnp.where(jnp.zeros((), bool), number, jnp.zeros_like(leaf))

    return jax.tree.map(zeros, like)


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
    name: str,
    value: Array | float,
    like: Float[Array, "classes d"],
    *,
    columns: tuple[str, str] = ("feature", "features"),
) -> Float[Array, "classes_or_1 d_or_1"]:
    """The same for one number, or what broadcasts to classes by columns, the shape of `like`: of what one is, and some.

    Raises:
        ValueError: for a shape that does not broadcast to that.
    """
    shape = np.shape(value)
    if len(shape) > 2 or any(n not in (1, m) for n, m in zip(shape[::-1], like.shape[::-1], strict=False)):
        by_class = f", {(like.shape[0], 1)} for one of each class" if like.shape[0] > 1 else ""
        raise ValueError(
            f"{name} must be one number or broadcast to {like.shape}, classes by {columns[1]}; found shape "
            f"{shape}. Give shape {like.shape[1:]} for one of each {columns[0]}{by_class}."
        )
    return nonnegative_or_nan(value, like.dtype).reshape((1, 1, *shape)[-2:])


def safe_log(x: Array) -> Array:
    """`log(x)`, −inf at zero, where its gradient is zero and not infinite."""
    zero = x == 0
    return jnp.where(zero, -jnp.inf, jnp.log(jnp.where(zero, 1.0, x)))


def log_fraction(part: Array, rest: Array, total: Array) -> Array:
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


def count_impossible(log_probability: Array) -> Array:
    """1 in place of each −∞, 0 elsewhere."""
    return jnp.isneginf(log_probability).astype(log_probability.dtype)


def log1p_less(x: Array) -> Array:
    """log(1 + x) − x, by a series where the two are near each other, in v = x/(2 + x) as log(1 + x) = 2 artanh v.

    (Loader 2000, Fast and accurate computation of binomial probabilities.)
    """
    v = x / (2 + x)
    square = v * v
    series = jnp.polyval(jnp.asarray([1 / (2 * j + 1) for j in range(8, 0, -1)], v.dtype), square)
    return jnp.where(jnp.abs(v) < 0.1, v * (2 * square * series - x), jnp.log1p(x) - x)
