"""Draws of discrete numbers, rare ones too: by uniform numbers that are as fine as floats are, from 2^-33 on.

Those of `jax.random.uniform` are multiples of 2^-23 in float32: they make an event of probability 1e-8 one of 1.2e-7.
Of noise for each of several categories the largest wins, and there one of 3e-8 wins a tenth as often as it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int


# Rates from which numbers of events are normal, rounded.
_MANY = 1e5


def uniform(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Uniform numbers in [2^-33, 1), (1 + u) 2^-(e + 1), where e has a geometric law."""
    of_exponent, of_fraction = jax.random.split(key)
    exponent = lax.clz(jax.random.bits(of_exponent, shape, jnp.uint32)).astype(jnp.int32)
    return jnp.ldexp(1 + jax.random.uniform(of_fraction, shape, dtype), -1 - exponent)


def events(
    key: Array, log_present: Float[Array, "*shape"], log_absent: Float[Array, "*shape"]
) -> Bool[Array, "*shape"]:
    """Whether each of some events happens: by the smaller of its probability and that of its absence."""
    level = jnp.log(uniform(key, log_present.shape, log_present.dtype))
    return jnp.where(log_present <= log_absent, level < log_present, level >= log_absent)


def poisson(key: Array, rate: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Numbers of events with these rates, in their dtype; from 100,000 on normal, rounded.

    Whether there is any event is drawn first, then when the first one comes, and how many follow in the time that is
    left: of a rate of 1e-7 JAX's own never make one. They end at 2³¹, and in float32 their variance is by a twentieth
    too small at 10⁶ and by a third too large at 10⁸. The normal ones have no skewness, where that of a Poisson
    distribution is 0.003 at most.
    """
    of_any, of_time, of_few, of_many = jax.random.split(key, 4)
    chance = -jnp.expm1(-rate)
    first = -jnp.log1p(-uniform(of_time, rate.shape, rate.dtype) * chance)
    following = jax.random.poisson(of_few, jnp.clip(rate - first, 0, _MANY)).astype(rate.dtype)
    few = jnp.where(events(of_any, jnp.log(chance), -rate), 1 + following, 0)
    many = jnp.round(rate + jnp.sqrt(rate) * jax.random.normal(of_many, rate.shape, rate.dtype))
    return jnp.where(rate < _MANY, few, many)


def categories(
    key: Array, probability: Float[Array, "tables features most"], table: Int[Array, " n"]
) -> Int[Array, "n features"]:
    """A category of each feature by one of several tables: where a uniform number lies among cumulative sums.

    Rare categories come first, where numbers are fine: each is drawn with its own probability, but for the rounding of
    the sums, and one of 0 never.

    Args:
        key: a key of JAX.
        probability: of each category, up to a factor; 0 for what there is not.
        table: of each row.
    """
    _, d, most = probability.shape
    order = jnp.argsort(probability, axis=-1).astype(jnp.int32)
    total = jnp.cumsum(jnp.take_along_axis(probability, order, axis=-1), axis=-1)
    row = table[:, None] * d + jnp.arange(d, dtype=table.dtype)[None]
    level = uniform(key, row.shape, total.dtype) * total[..., -1].reshape(-1)[row]
    below = jnp.zeros_like(row)  # how many of the sums are no larger
    for step in (1 << bit for bit in reversed(range(most.bit_length()))):
        last = jnp.minimum(below + step, most) - 1
        fits = (below + step <= most) & (total.reshape(-1)[row * most + last] <= level)
        below = jnp.where(fits, below + step, below)
    return order.reshape(-1)[row * most + jnp.minimum(below, most - 1)]


def classes(key: Array, log_weight: Float[Array, "tables classes"], table: Int[Array, " n"]) -> Int[Array, " n"]:
    """A class by one of several tables of log probabilities, up to a constant."""
    weight = jnp.exp(log_weight - jnp.max(log_weight, axis=-1, keepdims=True))
    return categories(key, weight[:, None], table)[:, 0]
