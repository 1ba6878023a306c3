"""Leave-one-out of sparse rows where classes are scored by the shares of words: a row leaves by its own words alone.

A class of the multinomial is scored by its own sums, which a row of it leaves; one of complement naive Bayes by those
of all others, so that a row leaves the sums of all classes but its own. Only the words of the row are looked at, and
the total, which is all that changes for the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.classify import log_posterior
from jaxgen.numerics import log_sum_exp, matmul, safe_divide
from jaxgen.single_rows import Entries, Row, as_summed, by_length, in_limbs, joint_without_each, less
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.counts import CountingEstimator, Counts
    from jaxgen.folds import Rows


class _Sums(NamedTuple):
    """What classes are scored by, of all rows.

    Attributes:
        words: of each word, (d, K).
        total: of all words, (K,).
    """

    words: Total
    total: Total


class _Smoothed(NamedTuple):
    """The same sums, and what is added to them.

    Attributes:
        sums: of words, and of all words.
        alpha: to each sum, (K or 1, d or 1).
        all_alpha: to each total, (K or 1,).
    """

    sums: _Sums
    alpha: Any
    all_alpha: Any

    @classmethod
    def of(cls, sums: _Sums, estimator: CountingEstimator[Any]) -> _Smoothed:
        """With the pseudo-counts of an estimator: of the complement, those of one class are those of all."""
        table = sums.words.high.T
        alpha = estimator.pseudo_count("alpha", table if estimator.classes_are_apart else table[:1])
        all_alpha = jnp.sum(jnp.broadcast_to(alpha, (len(alpha), table.shape[1])), axis=1)
        return jax.tree.map(jnp.asarray, cls(sums, alpha, all_alpha))

    def at(self, words: Int[Array, " m"], classes: Int[Array, " c"]) -> tuple[Total, Total, Array, Array]:
        """The sums of some words (m, c), the totals (c,), and what is added to either."""
        place = words[:, None], classes[None]
        sums = jax.tree.map(lambda limb: limb.at[place].get(mode="promise_in_bounds"), self.sums.words)
        totals = jax.tree.map(lambda limb: limb[classes], self.sums.total)
        k, j = (0 * i if size == 1 else i for i, size in zip((classes, words), self.alpha.shape, strict=True))
        return sums, totals, self.alpha[k[None], j[:, None]], self.all_alpha[k]


class _Leaving(NamedTuple):
    """A row, or a stack of them.

    Attributes:
        row: its entries, label and weight.
        num_words: what it adds to a total.
        is_all: whether nothing else is of its class: no words for the multinomial, no rows for the complement.
        posterior: the log posterior (K,) by all rows for the multinomial; nothing for the complement.
    """

    row: Row
    num_words: Total
    is_all: Any
    posterior: Any


def posterior_without_each(
    estimator: CountingEstimator[Any], statistics: Counts, rows: Rows
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others; NaN where those give none, or leave it impossible everywhere.

    Args:
        estimator: one that `scores_shares`, with numbers, or traces, for hyperparameters.
        statistics: of all rows.
        rows: sparse ones of scipy, checked, of positive weight.
    """
    n, dtype, sums = len(rows.y), np.dtype(statistics.feature_sum.high.dtype), statistics.feature_sum.exact()
    c = estimator.estimate(statistics)  # raises for a word of the complement that occurs in one class alone
    x, added = as_summed(estimator, rows, dtype)
    if estimator.classes_are_apart:
        of_classes = _Sums(jax.tree.map(jnp.transpose, statistics.feature_sum), in_limbs(sums.sum(axis=1), dtype))
        members, posterior = np.bincount(x.rows, added > 0, n), log_posterior(c, rows.x)
        program = partial(_multinomial_program, estimator, of_classes, (statistics.class_weight, c.log_prior))
    else:
        of_others = (1 - np.eye(len(sums))) @ sums
        of_classes = _Sums(in_limbs(of_others.T, dtype), in_limbs(of_others.sum(axis=1), dtype))
        members, posterior = np.ones(n), None
        program = partial(_complement_program, estimator, of_classes, np.bincount(rows.y, minlength=len(sums)) > 0)
    is_all = np.bincount(rows.y, members)[rows.y] == members
    num_words = in_limbs(np.bincount(x.rows, added, n), dtype)
    leaving = _Leaving(Row.of(rows, dtype), num_words, is_all, posterior)
    looked_at = 2 if estimator.classes_are_apart else len(sums)  # classes, for each of its words
    where = (estimator, statistics, posterior)
    return by_length(program, Entries.of(x, added), leaving, np.diff(x.starts), looked_at, where)


@partial(jax.jit, static_argnames="block")
def _multinomial_program(
    estimator: CountingEstimator[Any],
    sums: _Sums,
    classes: tuple[Total, Float[Array, " classes"]],
    entries: Entries,
    leaving: _Leaving,
    *,
    block: int,
) -> Float[Array, "n classes"]:
    """The log posterior by the multinomial, whose classes have a weight and a log prior; so many rows at a time."""
    class_weight, prior = classes
    smoothed = _Smoothed.of(sums, estimator)
    changed = joint_without_each(leaving.posterior, prior, class_weight, leaving.row, estimator.prior_alpha)

    def one(given: tuple[_Leaving, Array]) -> Array:
        leaving, joint = given
        y, leaves = leaving.row.y, jnp.array([True, False])  # the class of the row without it, beside the same with it
        both, empty = jnp.stack([y, y]), leaving.is_all
        gain, possible = _log_ratios(smoothed, entries, leaving, both, leaves, reference=1, empty=empty)
        joint = joint.at[y].add(jnp.where(possible[0], gain[0], -jnp.inf))
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (leaving, changed), batch_size=block)


@partial(jax.jit, static_argnames="block")
def _complement_program(
    estimator: CountingEstimator[Any],
    sums: _Sums,
    there: Bool[Array, " classes"],
    entries: Entries,
    leaving: _Leaving,
    *,
    block: int,
) -> Float[Array, "n classes"]:
    """The log posterior by the complement, of the classes that are there; so many rows at a time."""
    smoothed, classes = _Smoothed.of(sums, estimator), jnp.arange(len(there), dtype=jnp.int32)

    def one(leaving: _Leaving) -> Array:
        y = leaving.row.y
        remain = there & ~(leaving.is_all & (classes == y))
        gain, known = _log_ratios(smoothed, entries, leaving, classes, classes != y, reference=y)
        joint = jnp.where(remain | ~jnp.any(remain), -gain, -jnp.inf)
        return jnp.where(jnp.all(known), joint - log_sum_exp(joint), jnp.nan)

    return lax.map(jax.checkpoint(one), leaving, batch_size=block)


def _log_ratios(
    smoothed: _Smoothed,
    entries: Entries,
    leaving: _Leaving,
    classes: Int[Array, " c"],
    leaves: Bool[Array, " c"],
    *,
    reference: Int[Array, ""] | int,
    empty: Bool[Array, ""] | bool = False,
) -> tuple[Float[Array, " c"], Bool[Array, " c"]]:
    """log p of the words of a row by each of some classes, less that by one of them; and where none is impossible.

    It leaves the sums of those classes that it `leaves`, which are `empty` then or not. Word by word: the logarithms of
    a long document are large, and about as large in all classes.
    """
    _, columns, x, added = entries.of_row(*leaving.row.x)
    words, total, alpha, all_alpha = smoothed.at(columns, classes)
    words = _without(words, jax.tree.map(lambda limb: limb[:, None], added), leaves[None])
    total = _without(total, leaving.num_words, leaves)
    total = jax.tree.map(lambda limb: jnp.where(leaves & empty, 0.0, limb), total)
    rounded = total.value + all_alpha
    sizes = jnp.broadcast_to(rounded[None], words.high.shape)
    probability = safe_divide(words.value + alpha, sizes, 1 / len(smoothed.sums.words.high))
    possible = (probability != 0) | (x == 0)[:, None]
    probability = jnp.where(possible & (x > 0)[:, None], probability, 1.0)
    logs = matmul(x, jnp.log(probability / probability[:, reference][:, None]))
    # What a total lost when it was rounded, all its words lost.
    lost = safe_divide((total.high - rounded) + all_alpha + total.low, rounded)
    return logs - jnp.sum(x) * (lost - lost[reference]), jnp.all(possible, axis=0)


def _without(whole: Total, part: Total, leaves: Bool[Array, "... c"]) -> Total:
    """What remains of sums that a row leaves, and the others as they are."""
    return jax.tree.map(lambda rest, limb: jnp.where(leaves, rest, limb), less(whole, part), whole)
