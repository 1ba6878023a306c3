"""Leave-one-out of complement naive Bayes: a row of sparse ones taken away from the sums of all classes but its own.

Each class is scored by the sums of the others, which a row of it has no part in. In those of the other classes only
the words of the row are looked at, and the total of all words: as many as the longest row has, of all rows at a time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.numerics import log_sum_exp, matmul, safe_divide
from jaxgen.single_rows import Entries, Row, as_summed, in_limbs, less, over_all
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.complement import ComplementNB
    from jaxgen.counts import Counts
    from jaxgen.folds import Rows


# Rows × words of the longest × classes up to which rows are filled up to that one. More take longer than it takes to
# compile a program for each length: of 4,000 rows of 10 words and one of 30,000, in ten classes, 26 s and 0.06.
_FEW_CELLS = 2**26


class _Tables(NamedTuple):
    """What all rows add up to.

    Attributes:
        rows: of each class, (K,).
        words: each over all classes but one, (d, K).
        totals: of all words over them, (K,).
    """

    rows: Int[Array, " classes"]
    words: Total
    totals: Total

    @classmethod
    def of(cls, sums: np.ndarray, rows: np.ndarray, dtype: np.dtype) -> _Tables:
        """Those of the sums of each class in float64, (K, d), and of its rows."""
        of_others = (1 - np.eye(len(sums))) @ sums
        words, totals = in_limbs(of_others.T, dtype), in_limbs(of_others.sum(axis=1), dtype)
        return jax.tree.map(jnp.asarray, cls(jnp.asarray(rows, jnp.int32), words, totals))


def posterior_without_each(estimator: ComplementNB, statistics: Counts, rows: Rows) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others; NaN where a word of it has no weight there.

    Args:
        estimator: with numbers, or traces, for hyperparameters.
        statistics: of all rows.
        rows: sparse ones of scipy, checked, of positive weight.
    """
    estimator.estimate(statistics)  # raises for a word that occurs in one class alone
    n, dtype = len(rows.y), np.dtype(statistics.feature_sum.high.dtype)
    tuning, sums = platform.tuning_of(statistics) or platform.CPU, statistics.feature_sum.exact()
    x, added = as_summed(estimator, rows, dtype)
    tables = _Tables.of(sums, np.bincount(rows.y, minlength=len(sums)), dtype)
    entries, num_words = Entries.of(x, added), in_limbs(np.bincount(x.rows, added, n), dtype)
    given, lengths, found = (Row.of(rows, dtype), num_words), np.diff(x.starts), []
    groups = _alike(lengths, len(sums))
    for mine in groups:
        length = int(lengths[mine].max(initial=1))
        some = entries._replace(longest=entries.longest[:length])
        block = max(1, tuning.fold_elements // (2 * length * len(sums)))
        program = partial(_program, estimator, tables, some, block=block)
        own = jax.tree.map(lambda leaf, mine=mine: leaf[mine], given)
        found.append(over_all(program, own, len(mine), length=length, where=(estimator, statistics)))
    return jnp.concatenate(found)[np.argsort(np.concatenate(groups)).astype(np.int32)]


def _alike(lengths: Int[np.ndarray, " n"], num_classes: int) -> list[Int[np.ndarray, " m"]]:
    """The rows in groups of about one length, each of which takes a program; in one, where that is little."""
    if lengths.max(initial=1) * len(lengths) * num_classes <= _FEW_CELLS:
        return [np.arange(len(lengths))]
    level = np.ceil(np.log2(np.maximum(lengths, 1)) / 3)
    return [np.flatnonzero(level == each) for each in np.unique(level)]


@partial(jax.jit, static_argnames="block")
def _program(
    estimator: ComplementNB, tables: _Tables, entries: Entries, rows: tuple[Row, Total], *, block: int
) -> Float[Array, "n classes"]:
    """The same, of rows with the number of words that each added; so many of them at a time."""
    d, num_classes = tables.words.high.shape
    (alpha,) = jnp.broadcast_to(estimator.pseudo_count("alpha", tables.words.high[:, :1].T), (1, d))

    def one(given: tuple[Row, Total]) -> Array:
        row, num_words = given
        columns, x, added = entries.of_row(*row.x)
        own = jnp.arange(num_classes, dtype=jnp.int32) == row.y
        remain = tables.rows - own.astype(jnp.int32) > 0
        possible = remain | ~jnp.any(remain)

        words = jax.tree.map(lambda limb: limb.at[columns].get(mode="promise_in_bounds"), tables.words)
        words = _without(words, jax.tree.map(lambda limb: limb[:, None], added), own[None])
        totals = _without(tables.totals, num_words, own)
        total = totals.value + jnp.sum(alpha)
        probability = safe_divide(
            words.value + alpha[columns][:, None], jnp.broadcast_to(total[None], words.high.shape), 1 / d
        )
        probability = jnp.where((x == 0)[:, None], 1.0, probability)
        known = probability > 0
        beside = jnp.where(known, probability, 1.0)
        # Beside its own class, word by word: of a long document the sums are large, and about as large in all classes.
        scores = -matmul(x, jnp.log(beside / beside[:, row.y][:, None]))
        # What a total lost when it was rounded, all its words lost.
        lost = safe_divide((totals.high - total) + jnp.sum(alpha) + totals.low, total)
        joint = jnp.where(possible, scores + jnp.sum(x) * (lost - lost[row.y]), -jnp.inf)
        return jnp.where(jnp.all(known), joint - log_sum_exp(joint), jnp.nan)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), rows, batch_size=block)


def _without(whole: Total, part: Total, own: Bool[Array, "... classes"]) -> Total:
    """What remains of sums over all classes but one: of its own one, all."""
    return jax.tree.map(lambda rest, limb: jnp.where(own, limb, rest), less(whole, part), whole)
