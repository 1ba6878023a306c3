"""Draws of the words of documents, of which there are as many as a total says: multinomial numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import draws
from jaxgen.count_draws import binomial
from jaxgen.numerics import safe_divide, shortcut

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

# Words of all documents that are drawn at a time, about: 2^10 to 2^16 take as long.
_WORDS_AT_ONCE = 2**12
# Words of a document that are drawn by themselves, for each different one. 1,000 documents of 4,000 words, 1,000
# different, take 0.12 to 0.17 s so, and by shares 0.35; of 400 words, 50 different, 10 ms and 22.
_MOST_DRAWN = 8
# Different words whose numbers are drawn one after the other, whatever the documents.
_FEW_WORDS = 32


def multinomial(
    key: Array, probability: Float[Array, "tables d"], table: Int[Array, " n"], total: Int[Array, " n"]
) -> Float[Array, "n d"]:
    """How often each word is in a document of so many, by one of several tables; NaN by a table that has no words.

    Each is drawn by itself where no document has many more of them than there are different ones.
    """
    total = total.astype(probability.dtype)
    if len(table) < len(probability):  # fewer tables to be sorted
        probability, table = probability[table], jnp.arange(len(table), dtype=jnp.int32)
    if (d := probability.shape[1]) <= _FEW_WORDS:
        counts = _by_shares(key, probability, table, total)
    else:
        counts = shortcut(
            jnp.max(total) <= _MOST_DRAWN * d, _by_single_draws, _by_shares, key, probability, table, total
        )
    possible = (jnp.sum(probability, axis=1) > 0)[table] & (total >= 0)
    return jnp.where(possible[:, None], counts, jnp.nan)


def _by_single_draws(key: Array, probability: Array, table: Array, total: Array) -> Array:
    key, probability, table, total = draws.varying_alike_with(key, probability, table, total)
    (n,), d = table.shape, probability.shape[1]
    wheel, at_once = draws.Wheel.of(probability[:, None]), min(max(_WORDS_AT_ONCE // n, 1), d)
    document, most = jnp.arange(n, dtype=jnp.int32)[:, None], jnp.max(total).astype(jnp.int32)

    def draw(state: tuple[Array, Array]) -> tuple[Array, Array]:
        drawn, counts = state
        word = wheel.draw(jax.random.fold_in(key, drawn), jnp.repeat(table, at_once)).reshape(n, at_once)
        wanted = (drawn + jnp.arange(at_once, dtype=jnp.int32)).astype(total.dtype)[None] < total[:, None]
        return drawn + at_once, counts.at[document, word].add(wanted.astype(counts.dtype))

    start = (jnp.zeros((), jnp.int32), jnp.zeros_like(total, shape=(n, d)))
    return lax.while_loop(lambda state: state[0] < most, draw, start)[1]


def _by_shares(key: Array, probability: Array, table: Array, total: Array) -> Array:
    """By binomial numbers, how many of what is left are this word: those of many in parts, side by side.

    Shares of what is left are of sums from the other end, in which nothing cancels.
    """
    d = probability.shape[1]
    if d <= _FEW_WORDS:
        return _in_turn(key, probability.T, table, total).T
    of_parts, of_words = jax.random.split(key)
    parts = 1 << (d.bit_length() // 2)
    words = jnp.pad(probability, ((0, 0), (0, -d % parts))).reshape(len(probability), parts, -1)
    of_part = _in_turn(of_parts, jnp.sum(words, axis=2).T, table, total).T
    counts = _in_turn(of_words, jnp.moveaxis(words, 2, 0), table, of_part)
    return jnp.moveaxis(counts, 0, 2).reshape(len(table), -1)[:, :d]


def _in_turn(key: Array, probability: Array, table: Array, total: Array) -> Array:
    """How many are of each category, along the first axis; the tables are along the second."""
    key, probability, table, total = draws.varying_alike_with(key, probability, table, total)
    these = lax.cumsum(probability, reverse=True)
    later = jnp.concatenate([these[1:], jnp.zeros_like(these[:1])])
    shares = safe_divide(probability, these), safe_divide(later, these)

    def draw(left: Array, step: tuple[Array, tuple[Array, Array]]) -> tuple[Array, Array]:
        number, (mine, others) = step
        here = binomial(jax.random.fold_in(key, number), left, mine[table], others[table])
        return left - here, here

    return lax.scan(draw, total, (jnp.arange(len(these), dtype=jnp.int32), shares))[1]
