"""Draws of events and categories, rare ones too: by uniform numbers that in float32 are made of 40 bits.

Those of `jax.random.uniform` are multiples of 2^-23 there: they make an event of probability 1e-8 one of 1.2e-7.
Of noise for each of several categories the largest wins, and there one of 3e-8 wins a tenth as often as it should.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import varying_alike
from jaxgen.tracing import is_symbol

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int, UInt

# Categories of which the cumulative sums are one row: half an eps of the whole is a 10,000th of what one of so many has
# on average, at most. More are drawn in two steps.
_MOST_IN_ROW = 2**10
# Rounds of proposals if none is rejected, and the fewest lanes of one. Half a million Poisson numbers of high rates
# take 100 to 120 ms where all of them wait for the last, and 35 to 50 in 4 to 128 rounds.
_ROUNDS, _FEWEST_LANES = 8, 2**10


def uniform(key: Array, shape: tuple[int, ...], dtype: Any) -> Float[Array, "*shape"]:
    """Uniform numbers in (0, 1), fine near 0."""
    bits, rest = _bits(key, shape, dtype)
    below_one = 1 - float(jnp.finfo(dtype).epsneg)
    return jnp.minimum((bits.astype(dtype) + rest) * _unit(bits), below_one)


def to_nearer_end(
    key: Array, shape: tuple[int, ...], dtype: Any
) -> tuple[Float[Array, "*shape"], Bool[Array, "*shape"]]:
    """How far uniform numbers are from 0 or 1, by what is nearer, (0, ½]; and whether that is 1."""
    bits, rest = _bits(key, shape, dtype)
    return ((bits >> 1).astype(dtype) + rest) * _unit(bits), (bits & 1) == 1


def _bits(key: Array, shape: tuple[int, ...], dtype: Any) -> tuple[UInt[Array, "*shape"], Array | float]:
    """The first bits of uniform numbers, 32 or for float64 64, and what follows, in units of the last: 8 bits, or ½."""
    if jnp.finfo(dtype).bits == 64:
        return jax.random.bits(key, shape, jnp.uint64), 0.5
    of_bits, of_rest = jax.random.split(key)
    # JAX makes a word for each number of fewer bits as well; here it is one for four numbers.
    number = math.prod(shape)
    words = jax.random.bits(of_rest, (-(-number // 4), 1), jnp.uint32)
    rest = (words >> jnp.arange(0, 32, 8, dtype=jnp.uint32)[None]).reshape(-1)[:number].reshape(shape) & 255
    return jax.random.bits(of_bits, shape, jnp.uint32), (rest.astype(dtype) + 0.5) / 256


def _unit(bits: UInt[Array, "*shape"]) -> float:
    return 2.0 ** -jnp.iinfo(bits.dtype).bits


def events(
    key: Array, log_present: Float[Array, "*shape"], log_absent: Float[Array, "*shape"]
) -> Bool[Array, "*shape"]:
    """Whether each of some events happens: by the smaller of its probability and that of its absence."""
    level = jnp.log(uniform(key, log_present.shape, log_present.dtype))
    return jnp.where(log_present <= log_absent, level < log_present, level >= log_absent)


def until_accepted(
    key: Array,
    propose: Callable[[Array, Any], tuple[Float[Array, " lanes"], Bool[Array, " lanes"]]],
    parameters: Any,
    otherwise: Float[Array, "*shape"],
    wanted: Bool[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """The first proposal of each that is accepted, by rounds in which lanes, each with a number, fill vectors.

    A lane whose proposal is accepted has the next number in the next round: so none waits for another.

    Args:
        key: of all rounds.
        propose: from the key of a round and the parameters of some numbers to proposals, and which are accepted.
        parameters: of all numbers, arrays of the same shape.
        otherwise: what stands where none is wanted.
        wanted: where one is.
    """
    n, shape = wanted.size, wanted.shape
    lanes = n if is_symbol(n) else min(n, max(n // _ROUNDS, _FEWEST_LANES))
    parameters, otherwise, wanted = jax.tree.map(jnp.ravel, (parameters, otherwise, wanted))

    def go_on(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        step, place, following, drawn = state
        mine = jax.tree.map(lambda each: each.at[place].get(mode="clip"), parameters)
        proposed, accepted = propose(jax.random.fold_in(key, step), mine)
        drawn = drawn.at[jnp.where(accepted & is_wanted(place), place, n)].set(proposed, mode="drop")
        is_done = accepted | ~is_wanted(place)
        done = jnp.cumsum(is_done, dtype=place.dtype)  # up to each lane
        place = jnp.where(is_done, following + done - 1, place)
        return step + 1, place, following + jnp.sum(is_done, dtype=place.dtype), drawn

    def is_wanted(place: Array) -> Array:
        return wanted.at[place].get(mode="fill", fill_value=False)

    place = jnp.zeros_like(wanted, jnp.int32, shape=lanes) + jnp.arange(lanes, dtype=jnp.int32)
    start = (jnp.zeros((), jnp.int32), place, jnp.full_like(place, lanes, shape=()), otherwise)
    return lax.while_loop(lambda state: jnp.any(state[1] < n), go_on, start)[3].reshape(shape)


def varying_alike_with(key: Array, *arrays: Any) -> tuple[Any, ...]:
    """The same key, and the same numbers without derivatives, all varying alike inside `shard_map`."""
    *alike, data = varying_alike(*lax.stop_gradient(arrays), jax.random.key_data(key))
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key)), *alike


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


def classes(key: Array, log_weight: Float[Array, " classes"], n: int) -> Int[Array, " n"]:
    """So many classes by their log probabilities, up to a constant."""
    weight = jnp.exp(log_weight - jnp.max(log_weight))
    return Wheel.of(weight[None, None]).draw(key, jnp.zeros(n, jnp.int32))[:, 0]


def class_of_each(key: Array, log_weight: Float[Array, "n classes"]) -> Int[Array, " n"]:
    """A class for each row by log probabilities of its own, up to a constant: the one whose event comes first.

    Waiting times of events at rates like the weights, of which a rare one is short where a uniform number is small.
    200,000 rows of ten classes take 55 ms; to sort the classes of each, as a `Wheel` does, takes 110.
    """
    waiting = -jnp.log1p(-uniform(key, log_weight.shape, log_weight.dtype))
    return jnp.argmin(jnp.log(waiting) - log_weight, axis=1).astype(jnp.int32)
