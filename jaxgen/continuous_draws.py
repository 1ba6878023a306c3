"""Draws of normal and gamma variables, whose tails are right in float32 too.

In float32 JAX draws no normal number below −5.42 or above 5.22. Its gammas, made of them, it draws one after the other,
which takes a CPU several times as long as vectors of proposals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtri

from jaxgen import draws
from jaxgen.numerics import log1p_less

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float


# Shapes, by the bytes of a float, at which two ways to the derivative of a number by its shape err by the same: 3e-5 in
# float32, 1e-10 in float64.
_LARGE = {4: 1e3, 8: 5e6}


def normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Float[Array, "*shape"]:
    """Standard normal numbers, by the quantile function."""
    distance, is_above = draws.to_nearer_end(key, shape, dtype)
    quantile = ndtri(distance)
    return jnp.where(is_above, -quantile, quantile)


def gamma(key: Array, shape: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Gamma variables as products: one of a shape of 1 or more, and the log of a power of a uniform number.

    The latter is 0 where the shape is no smaller, and else log u / a, beside one of shape a + 1 (Marsaglia & Tsang
    2000, A simple method for generating gamma variables, section 6). Both have a derivative by the shape.
    """
    of_larger, of_power = jax.random.split(key)
    is_small = shape < 1
    proper_or_nan = jnp.where(shape < 0, jnp.nan, shape)
    larger = _gamma_of_one_or_more(of_larger, jnp.where(is_small, proper_or_nan + 1, shape))
    distance, is_above = draws.to_nearer_end(of_power, shape.shape, shape.dtype)
    log_uniform = jnp.where(is_above, jnp.log1p(-distance), jnp.log(distance))
    return larger, jnp.where(is_small, log_uniform / jnp.where(is_small, jnp.abs(shape), 1.0), 0.0)


@jax.custom_jvp
def _gamma_of_one_or_more(key: Array, shape: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """By the cube of a normal variable near 1, proposed and rejected (Marsaglia & Tsang 2000)."""
    key, shape = draws.varying_alike_with(key, shape)

    def propose(key: Array, shape: Array) -> tuple[Array, Array]:
        of_place, of_level = jax.random.split(key)
        mean = shape - 1 / 3
        z = normal(of_place, shape.shape, shape.dtype)
        beyond = jnp.maximum(z / jnp.sqrt(9 * mean), -1.0)
        # Of the density of the cube by that of z, without ½ z², which is 4.5 times the mean and the square of `beyond`.
        log_ratio = mean * (3 * (log1p_less(beyond) + 0.5 * beyond**2) - beyond**3)
        level = jnp.log(draws.uniform(of_level, shape.shape, shape.dtype))
        return mean * (1 + beyond) ** 3, level <= log_ratio

    return draws.until_accepted(key, propose, shape, shape, shape < jnp.inf)


@_gamma_of_one_or_more.defjvp
def _gamma_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Array]) -> tuple[Array, Array]:
    """That of the number which keeps the probability below it.

    Of a large shape by Wilson & Hilferty (1931), where the cube root of the number is normal: its error falls with the
    shape to the power of −1.5, that of JAX's series grows, and so does its time.
    """
    _, shape = primals
    drawn, of_series = _gamma_of_one_or_more(*primals), cast("Callable[..., Array]", lax.random_gamma_grad)
    large = shape > _LARGE[shape.dtype.itemsize]
    root = jnp.cbrt(drawn / (shape - 1 / 3))
    by_root = root**2 * (root - 1.5 * (root - 1))
    derivative = jnp.where(large, by_root, of_series(*(jnp.where(large, 1.0, each) for each in (shape, drawn))))
    return drawn, derivative * tangents[1]
