"""Leave-one-out of sparse rows where each word is an event by itself: a row leaves by its own words alone.

A class of which a row is taken away has less weight, by which every word changes, the absent ones too: what those of an
empty row change is summed once for each class and each weight that leaves it. Of a row only its own words are looked
at, and taken out of that sum.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.classify import log_posterior
from jaxgen.numerics import count_impossible, drop_impossible, log_sum_exp
from jaxgen.single_rows import (
    Entries,
    Row,
    as_summed,
    by_length,
    in_limbs,
    less,
    log_prior_without_each,
    of_class,
    over_all,
)
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.counts import CountingEstimator, Counts
    from jaxgen.folds import Rows


class _Leaving(NamedTuple):
    """A row, or a stack of them.

    Attributes:
        row: its entries, label and weight.
        posterior: the log posterior by all rows, (K,).
        absent: what its weight changes for an empty row, and how many words that makes impossible, (2,).
    """

    row: Row
    posterior: Any
    absent: Any


def posterior_without_each(
    estimator: CountingEstimator[Any], statistics: Counts, rows: Rows
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those leave it impossible under every class.

    Args:
        estimator: of affine densities, whose words are apart, with numbers, or traces, for hyperparameters.
        statistics: of all rows.
        rows: sparse ones of scipy, checked, of positive weight.
    """
    (n, d), dtype = rows.x.shape, np.dtype(statistics.feature_sum.high.dtype)
    c, tuning = estimator.estimate(statistics), platform.tuning_of(statistics) or platform.CPU
    posterior = log_posterior(c, rows.x)
    where, given = (estimator, statistics, posterior), (estimator, statistics)
    weight = np.ones(n) if rows.sample_weight is None else np.asarray(rows.sample_weight, np.float64)
    (y, weight), which = np.unique(np.stack([rows.y, weight]), axis=1, return_inverse=True)
    kinds = Row(None, y.astype(np.int32), in_limbs(weight, dtype))
    each = partial(_absent_program, *given, block=max(1, tuning.fold_elements // (2 * d)))
    absent = over_all(each, kinds, len(y), length=d, where=where)
    entries = Entries.of(*as_summed(estimator, rows, dtype))
    leaving = _Leaving(Row.of(rows, dtype), posterior, absent[which.reshape(n)])
    program = partial(_program, *given, c.log_prior)
    return by_length(program, entries, leaving, np.diff(rows.x.indptr), 3, where)


@partial(jax.jit, static_argnames="block")
def _absent_program(
    estimator: CountingEstimator[Any], statistics: Counts, kinds: Row, *, block: int
) -> Float[Array, "kinds 2"]:
    """What an empty row changes by, for each class and weight that leaves it."""
    num_classes, d = statistics.feature_sum.high.shape

    def one(kind: Row) -> Array:
        whole = jax.tree.map(lambda limb: limb[kind.y][None], statistics)
        return _change_of_absence(of_class(estimator, kind.y, num_classes), whole, _lighter(whole, kind.weight), d)

    return lax.map(jax.checkpoint(one), kinds, batch_size=block)


@partial(jax.jit, static_argnames="block")
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    entries: Entries,
    leaving: _Leaving,
    *,
    block: int,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    num_classes, num_features = statistics.feature_sum.high.shape
    changed = log_prior_without_each(statistics.class_weight, leaving.row, estimator.prior_alpha)
    changed += leaving.posterior - drop_impossible(prior)[None]

    def one(given: tuple[_Leaving, Array]) -> Array:
        (row, _, absent), joint = given
        columns, x, added = entries.of_row(*row.x)
        there = entries.longest < row.x[1]  # behind its words a word that nobody has, which changes nothing
        sums = jax.tree.map(lambda limb: jnp.where(there, limb[row.y, columns], 0)[None], statistics.feature_sum)
        whole = dataclasses.replace(
            statistics,
            class_weight=jax.tree.map(lambda limb: limb[row.y][None], statistics.class_weight),
            feature_sum=sums,
        )
        lighter = _lighter(whole, row.weight)
        rest = dataclasses.replace(lighter, feature_sum=less(sums, jax.tree.map(lambda limb: limb[None], added)))
        mine = _of_words(of_class(estimator, row.y, num_classes), columns, num_features)
        # As two classes of one density, whose scores are told apart feature by feature.
        after, before = mine.of_features(_both(rest, whole), num_features).scores(x[None])[0]
        elsewhere, impossible = absent - _change_of_absence(mine, whole, lighter, num_features)
        joint = joint.at[row.y].add(jnp.where(impossible > 0, -jnp.inf, after - before + elsewhere))
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (leaving, changed), batch_size=block)


def _lighter(whole: Counts, weight: Total) -> Counts:
    """The counts of a class without a row that has none of these words."""
    rest = less(whole.class_weight, jax.tree.map(lambda limb: limb[None], weight))
    return dataclasses.replace(whole, class_weight=rest)


def _both(one: Counts, other: Counts) -> Counts:
    """Those of two classes."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), one, other)


def _change_of_absence(
    estimator: CountingEstimator[Any], whole: Counts, lighter: Counts, num_features: int
) -> Float[Array, " 2"]:
    """What the log likelihood of absent words changes by; and how many of them become impossible.

    A word that was impossible to lack, every row has: it is absent from none.
    """
    density = estimator.of_features(_both(lighter, whole), num_features)
    after, before = density.prepared(likelihood=True).affine.log_absent
    possible = ~jnp.isneginf(before)
    change = jnp.where(possible, drop_impossible(after) - drop_impossible(before), 0.0)
    return jnp.stack([jnp.sum(change), jnp.sum(jnp.where(possible, count_impossible(after), 0.0))])


def _of_words(
    estimator: CountingEstimator[Any], columns: Int[Array, " m"], num_features: int
) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of some words."""

    def mine(number: Array) -> Array:
        return jnp.asarray(number)[..., columns] if jnp.shape(number)[-1:] == (num_features,) else number

    return jax.tree.map(mine, estimator)
