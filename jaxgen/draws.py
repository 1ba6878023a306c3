"""Draws of events and categories, rare ones too: by uniform numbers that are as fine as floats are, from 2^-33 on.

Those of `jax.random.uniform` are multiples of 2^-23 in float32: they make an event of probability 1e-8 one of 1.2e-7.
Of noise for each of several categories the largest wins, and there one of 3e-8 wins a tenth as often as it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

# Categories of which the cumulative sums are one row: half an eps of the whole is a 10,000th of what one of so many has
# on average, at most. More are drawn in two steps.
_MOST_IN_ROW = 2**10


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


def gamma(key: Array, shape: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Gamma variables as products: one of a shape of 1 or more, and the log of a power of a uniform number.

    The latter is 0 where the shape is no smaller, and else log u / a, beside one of shape a + 1 (Marsaglia & Tsang
    2000, A simple method for generating gamma variables, section 6). Of a small shape only u that are next to 1 leave
    anything: those of JAX's own gammas are multiples of 2^-23 there.
    """
    of_larger, of_power = jax.random.split(key)
    is_small = shape < 1
    larger = jax.random.gamma(of_larger, jnp.where(is_small, shape + 1, shape), dtype=shape.dtype)
    power = jnp.log1p(-uniform(of_power, shape.shape, shape.dtype)) / jnp.where(is_small, shape, 1.0)
    return larger, jnp.where(is_small, power, 0.0)


class Wheel(NamedTuple):
    """Categories of several tables, ready to be drawn: where a uniform number lies among cumulative sums.

    Rare categories come first, where numbers are fine: each is drawn with its own probability, but for the rounding of
    the sums, and one of 0 never. Many categories are sectors of about as many each, a sector drawn first: the sums of
    all in one row would give one of a million equal ones three hundredths more or less than its share.

    Attributes:
        order: the categories, rare ones first, (tables, features, sectors, most).
        within: cumulative sums of the probabilities in each sector, of the same shape.
        sectors: those of the sectors, (tables, features, sectors).
    """

    order: Int[Array, "tables features sectors most"]
    within: Float[Array, "tables features sectors most"]
    sectors: Float[Array, "tables features sectors"]

    @classmethod
    def of(cls, probability: Float[Array, "tables features most"]) -> Wheel:
        """Of the probability of each category, up to a factor; 0 for what there is not."""
        number = probability.shape[-1]
        sectors = 1 if number <= _MOST_IN_ROW else 1 << (number.bit_length() // 2)
        most = -(-number // sectors)
        order = jnp.argsort(probability, axis=-1).astype(jnp.int32)
        ordered = jnp.take_along_axis(probability, order, axis=-1)
        shape = (*probability.shape[:-1], sectors, most)
        front = ((0, 0), (0, 0), (sectors * most - number, 0))  # has no probability
        order, ordered = (jnp.pad(each, front).reshape(shape) for each in (order, ordered))
        within = jnp.cumsum(ordered, axis=-1)
        return cls(order, within, jnp.cumsum(within[..., -1], axis=-1))

    def draw(self, key: Array, table: Int[Array, " n"]) -> Int[Array, "n features"]:
        """A category of each feature for each row, by its table."""
        _, features, sectors, _ = self.order.shape
        row = table[:, None] * features + jnp.arange(features, dtype=table.dtype)[None]
        if sectors > 1:
            of_sector, key = jax.random.split(key)
            row = row * sectors + _where_it_lies(of_sector, self.sectors, row)
        return self.order.reshape(-1)[row * self.order.shape[-1] + _where_it_lies(key, self.within, row)]


def _where_it_lies(key: Array, total: Float[Array, "*rows most"], row: Int[Array, "n features"]) -> Array:
    """How many of the cumulative sums of a row are no larger than a uniform number."""
    most, total = total.shape[-1], total.reshape(-1)
    level = uniform(key, row.shape, total.dtype) * total[row * most + most - 1]
    bits = most.bit_length()

    def halve(i: Array, below: Array) -> Array:
        step = 1 << (bits - 1 - i)
        last = jnp.minimum(below + step, most) - 1
        fits = (below + step <= most) & (total[row * most + last] <= level)
        return jnp.where(fits, below + step, below)

    # Steps that were written out XLA would make one kernel of, with each of them anew wherever it is used.
    below = lax.fori_loop(0, bits, halve, jnp.zeros_like(level, row.dtype))
    return jnp.minimum(below, most - 1)


def classes(key: Array, log_weight: Float[Array, "tables classes"], table: Int[Array, " n"]) -> Int[Array, " n"]:
    """A class by one of several tables of log probabilities, up to a constant."""
    weight = jnp.exp(log_weight - jnp.max(log_weight, axis=-1, keepdims=True))
    return Wheel.of(weight[:, None]).draw(key, table)[:, 0]
