"""Leave-one-out of sparse rows where each word is an event by itself: a row leaves by its own words alone.

A class of which a row is taken away has less weight, by which every word changes, the absent ones too: what those of an
empty row change is summed once for each class and each weight that leaves it. Of a row only its own words are looked
at, and taken out of that sum. A row of more than half the weight of its class has a sum of its own, made of the counts
without it: divided by what little weight remains, its own words would drown all others in the sum.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import host_arrays, platform
from jaxgen.classify import log_posterior
from jaxgen.numerics import count_impossible, drop_impossible, log_sum_exp
from jaxgen.single_rows import Entries, Row, as_summed, by_length, joint_without_each, less, of_class, over_all

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.counts import CountingEstimator, Counts
    from jaxgen.folds import Rows


# Sums for empty rows up to which a few numbers of them share a program.
_FEW_KINDS = 2**8


class _Absence(NamedTuple):
    """What becomes of absent words when weight leaves their class.

    Attributes:
        change: of their log likelihood.
        impossible: how many of them cannot be absent any more.
    """

    change: Any
    impossible: Any


class _Leaving(NamedTuple):
    """A row, or a stack of them.

    Attributes:
        row: its entries, label and weight.
        is_most: whether it has more than half the weight of its class.
        absence: of all words.
    """

    row: Row
    is_most: Any
    absence: _Absence


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
    where = (estimator, statistics, posterior)
    row, entries = Row.of(rows, dtype), Entries.of(*as_summed(estimator, rows, dtype))
    weight = row.weight.exact()
    is_most = 2 * weight > np.bincount(rows.y, weight)[rows.y]
    kinds = np.stack([rows.y, weight, np.where(is_most, np.arange(1, n + 1), 0)])
    _, first, which = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    first = np.resize(first, host_arrays.few_sizes(len(first), _FEW_KINDS))
    # Of a row that has most of the weight the words leave as well, of others none do.
    start, count = row.x
    kinds = jax.tree.map(lambda leaf: leaf[first], row._replace(x=(start, count * is_most)))
    longest = int(kinds.x[1].max())
    program = partial(_absence_program, estimator, statistics, entries._replace(longest=entries.longest[:longest]))
    program = partial(program, block=max(1, tuning.fold_elements // (2 * d)))
    absence = over_all(program, kinds, len(first), length=d, where=where)
    leaving = _Leaving(row, is_most, jax.tree.map(lambda leaf: leaf[which.reshape(n)], absence))
    program = partial(_program, estimator, statistics, c.log_prior)
    looked_at = 3  # what each of its words is in: the counts with it, without it, and without its weight
    return by_length(program, entries, (posterior, leaving), count, looked_at, where)


@partial(jax.jit, static_argnames="block")
def _absence_program(
    estimator: CountingEstimator[Any], statistics: Counts, entries: Entries, kinds: Row, *, block: int
) -> _Absence:
    """Of all words, for rows of each kind."""
    num_classes, d = statistics.feature_sum.high.shape

    def one(kind: Row) -> _Absence:
        whole = jax.tree.map(lambda limb: limb[kind.y][None], statistics)
        _, columns, _, added = entries.of_row(*kind.x)
        nothing = jnp.zeros((1, d), whole.feature_sum.high.dtype)
        added = jax.tree.map(lambda e: nothing.at[0, columns].add(e, mode="promise_in_bounds"), added)
        lighter = dataclasses.replace(
            whole,
            class_weight=less(whole.class_weight, kind.weight.reshape(1)),
            feature_sum=less(whole.feature_sum, added),
        )
        return _absence(of_class(estimator, kind.y, num_classes), whole, lighter, d)

    return lax.map(jax.checkpoint(one), kinds, batch_size=block)


@partial(jax.jit, static_argnames="block")
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    entries: Entries,
    rows: tuple[Float[Array, "n classes"], _Leaving],
    *,
    block: int,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    posterior, stack = rows
    num_classes, num_features = statistics.feature_sum.high.shape
    changed = joint_without_each(posterior, prior, statistics.class_weight, stack.row, estimator.prior_alpha)

    def one(given: tuple[Array, _Leaving]) -> Array:
        joint, (row, is_most, everywhere) = given
        there, columns, x, added = entries.of_row(*row.x)
        # Behind its words one that nobody has and no weight leaves, which changes nothing.
        sums = jax.tree.map(lambda limb: jnp.where(there, limb[row.y, columns], 0)[None], statistics.feature_sum)
        class_weight = jax.tree.map(lambda limb: limb[row.y][None], statistics.class_weight)
        whole = dataclasses.replace(statistics, class_weight=class_weight, feature_sum=sums).by_feature()
        part = jax.tree.map(lambda limb: jnp.where(there, limb, 0)[None], row.weight)
        rest = dataclasses.replace(
            whole,
            feature_sum=less(sums, jax.tree.map(lambda limb: limb[None], added)),
            feature_weight=less(whole.weight, part),
        )
        lighter = jax.tree.map(partial(jnp.where, is_most), rest.feature_sum, sums)
        mine = _of_words(of_class(estimator, row.y, num_classes), columns, num_features)
        # As two classes of one density, whose scores are told apart feature by feature.
        after, before = mine.of_features(_both(rest, whole), num_features).scores(x[None])[0]
        own = _absence(mine, whole, dataclasses.replace(rest, feature_sum=lighter), num_features)
        elsewhere = jax.tree.map(jnp.subtract, everywhere, own)
        gain = jnp.where(elsewhere.impossible > 0, -jnp.inf, after - before + elsewhere.change)
        joint = joint.at[row.y].add(gain)
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (changed, stack), batch_size=block)


def _both(one: Counts, other: Counts) -> Counts:
    """Those of two classes."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), one, other)


def _absence(estimator: CountingEstimator[Any], whole: Counts, lighter: Counts, num_features: int) -> _Absence:
    """Of some words, by the counts of their class and those without a row that has none of them.

    A word that was impossible to lack, every row has: it is absent from none.
    """
    density = estimator.of_features(_both(lighter, whole), num_features)
    after, before = density.prepared(likelihood=True).affine.log_absent
    possible = ~jnp.isneginf(before)
    change = jnp.where(possible, drop_impossible(after) - drop_impossible(before), 0.0)
    return _Absence(jnp.sum(change), jnp.sum(jnp.where(possible, count_impossible(after), 0.0)))


def _of_words(
    estimator: CountingEstimator[Any], columns: Int[Array, " m"], num_features: int
) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of some words."""

    def mine(number: Array) -> Array:
        return jnp.asarray(number)[..., columns] if jnp.shape(number)[-1:] == (num_features,) else number

    return jax.tree.map(mine, estimator)
