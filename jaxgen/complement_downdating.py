"""Leave-one-out of complement naive Bayes: a row of sparse ones taken away from the sums of all classes but its own.

Each class is scored by the sums of the others, which a row of it has no part in. In those of the other classes only
the words of the row are looked at, and the total of all words.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.numerics import log_sum_exp, matmul, safe_divide
from jaxgen.single_rows import Entries, Row, in_limbs, less, log_prior_without_each, over_all

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.complement import ComplementNB
    from jaxgen.counts import Counts
    from jaxgen.folds import Rows
    from jaxgen.total import Total


def posterior_without_each(estimator: ComplementNB, statistics: Counts, rows: Rows) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others; NaN where a word of it occurs in one class of them alone.

    Args:
        estimator: with numbers, or traces, for hyperparameters.
        statistics: of all rows.
        rows: sparse ones of scipy, checked, of positive weight.
    """
    estimator.estimate(statistics)  # raises for a word that occurs in one class alone
    n, dtype = len(rows.y), np.dtype(statistics.feature_sum.high.dtype)
    tuning = platform.tuning_of(statistics) or platform.CPU
    counts = statistics.feature_sum.exact()
    of_others = (1 - np.eye(len(counts))) @ counts
    tables = in_limbs(of_others.T, dtype), in_limbs(of_others.sum(axis=1), dtype)
    sums, totals = jax.tree.map(jnp.asarray, tables)
    words = np.asarray(rows.x.astype(np.float64).sum(axis=1)).ravel()
    own = Row.of(rows, dtype), in_limbs(words if rows.sample_weight is None else words * rows.sample_weight, dtype)
    entries = Entries.of(estimator, rows, dtype)
    length = len(entries.longest) * len(counts)
    block = max(1, tuning.fold_elements // (2 * length))
    program = partial(_program, estimator, statistics.class_weight, sums, totals, entries, block=block)
    return over_all(program, own, n, length=length, where=(estimator, statistics))


@partial(jax.jit, static_argnames="block")
def _program(
    estimator: ComplementNB,
    class_weight: Total,
    sums: Total,
    totals: Total,
    entries: Entries,
    rows: tuple[Row, Total],
    *,
    block: int,
) -> Float[Array, "n classes"]:
    """The same, by what the statistics add up to.

    Args:
        estimator: with numbers, or traces, for hyperparameters.
        class_weight: of all rows, (K,).
        sums: of each word over all classes but one, (d, K).
        totals: of all words over them, (K,).
        entries: of all rows.
        rows: with the number of words that each adds, times its weight.
        block: rows to be taken away at a time.
    """
    d, num_classes = sums.high.shape
    (alpha,) = jnp.broadcast_to(estimator.pseudo_count("alpha", sums.high[:, :1].T), (1, d))
    # A class without the only row of it is impossible, as it is in a fit.
    possible = ~jnp.isneginf(log_prior_without_each(class_weight, rows[0], 0.0))

    def one(given: tuple[tuple[Row, Total], Array]) -> Array:
        (row, num_words), possible = given
        columns, x, counted = entries.of_row(*row.x)
        own = jnp.arange(num_classes, dtype=jnp.int32) == row.y

        def of_others(whole: Total, part: Total) -> Array:
            rest = less(whole, jax.tree.map(lambda limb: limb[..., None], part))
            return jnp.where(own.reshape((1,) * (whole.high.ndim - 1) + (-1,)), whole.value, rest.value)

        words = jax.tree.map(lambda limb: limb.at[columns].get(mode="promise_in_bounds"), sums)
        pseudo = of_others(words, counted) + alpha[columns][:, None]
        total = of_others(totals, num_words) + jnp.sum(alpha)
        # Beside its own class, word by word: of a long document all sums are large, and about as large as each other.
        probability = safe_divide(pseudo, jnp.broadcast_to(total[None], pseudo.shape), 1 / d)
        probability = jnp.where((x == 0)[:, None], 1.0, probability)
        known = probability > 0
        beside = jnp.where(known, probability, 1.0)
        scores = -matmul(x, jnp.log(beside / beside[:, row.y][:, None]))
        joint = jnp.where(possible, scores, -jnp.inf)
        return jnp.where(jnp.all(known), joint - log_sum_exp(joint), jnp.nan)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (rows, possible), batch_size=block)
