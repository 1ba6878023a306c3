"""Leave-one-out of families that count: a row is taken away from the sums of its own class.

Those of the other classes remain as they are, so that one row of a table is estimated anew for each row of x, and never
a whole one. Whole numbers lose nothing by that. Fractions of sparse rows are taken away in two limbs; those of dense
rows are merged instead.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.classify import log_posterior
from jaxgen.counts import CountingEstimator, Counts
from jaxgen.labels import HardLabels
from jaxgen.numerics import drop_impossible, log_sum_exp
from jaxgen.single_rows import Entries, Row, as_summed, less, log_prior_without_each, over_all
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.folds import Rows
    from jaxgen.platform import Tuning


def applies(estimator: Any, rows: Rows) -> bool:
    """Whether rows can be taken away: sparse ones, and those whose counts and weights are whole numbers."""
    if rows.is_sparse:
        return True  # which the statistics of families that do not count refuse
    can_be = isinstance(estimator, CountingEstimator) and estimator.classes_are_apart
    return can_be and rows.observed is None and all(map(_are_whole, (rows.x, rows.sample_weight)))


def _are_whole(numbers: Any) -> bool:
    return numbers is None or numbers.dtype.kind in "iub" or bool((numbers == numbers.round()).all())


def is_exact(statistics: Counts) -> bool:
    """Whether sums of whole numbers are so small that each is held by one limb, and so was each on the way to it."""
    limbs = [np.asarray(total.high) for total in (statistics.class_weight, statistics.feature_sum)]
    return all(limb.max(initial=0) < 1 / np.finfo(limb.dtype).epsneg for limb in limbs)


def posterior_without_each(
    estimator: CountingEstimator[Any], statistics: Counts, rows: Rows
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those leave it impossible under every class.

    Args:
        estimator: of densities.
        statistics: of all rows.
        rows: checked, of positive weight, to which this `applies`; dense ones where the statistics are exact.
    """
    (n, d), dtype = rows.x.shape, np.dtype(statistics.feature_sum.high.dtype)
    c, tuning = estimator.estimate(statistics), platform.tuning_of(statistics) or platform.CPU
    posterior = log_posterior(c, rows.x)
    entries = Entries.of(*as_summed(estimator, rows, dtype)) if rows.is_sparse else None
    block = max(1, tuning.fold_elements // (2 * max(d, statistics.feature_sum.high.shape[1])))  # with a row and without
    options = {"num_features": d, "block": block, "tuning": tuning}
    program = partial(_program, estimator, statistics, c.log_prior, entries, **options)
    length = d if entries is None else len(entries.longest)
    return over_all(
        program, (posterior, Row.of(rows, dtype)), n, length=length, where=(estimator, statistics, posterior)
    )


@partial(jax.jit, static_argnames=("num_features", "block", "tuning"))
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    entries: Entries | None,
    rows: tuple[Float[Array, "n classes"], Row],
    *,
    num_features: int,
    block: int,
    tuning: Tuning,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    posterior, own = rows
    dtype, is_total = prior.dtype, lambda node: isinstance(node, Total)
    changed = log_prior_without_each(statistics.class_weight, own, estimator.prior_alpha)
    changed += posterior - drop_impossible(prior)[None]

    def one(given: tuple[Array, Row]) -> Array:
        joint, row = given
        weight = row.weight.reshape(1)
        if entries is None:
            x = row.x.astype(dtype)[None]
            labels = HardLabels(jnp.zeros(1, jnp.int32), weight.high, 1).prepare(dtype, tuning)
            mine = estimator.summarise(x, labels)
        else:
            columns, *places = entries.of_row(*row.x)
            nothing = jnp.zeros((1, num_features), dtype)
            x, added = jax.tree.map(lambda e: nothing.at[0, columns].add(e, mode="promise_in_bounds"), places)
            mine = Counts(weight, added, estimator.binary, None, estimator.counted)
        whole = jax.tree.map(lambda leaf: leaf[row.y][None], statistics)
        rest: Any = jax.tree.map(less, whole, mine, is_leaf=is_total)
        # As two classes of one density, whose scores are told apart feature by feature.
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), rest, whole)
        after, before = _of_class(estimator, row.y, len(prior)).density(both).scores(x)[0]
        joint = joint.at[row.y].add(after - before)
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (changed, own), batch_size=block)


def _of_class(estimator: CountingEstimator[Any], y: Array, num_classes: int) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of one class."""

    def mine(number: Array) -> Array:
        by_class = jnp.ndim(number) == 2 and number.shape[0] == num_classes
        return jnp.asarray(number)[y][None] if by_class else number

    return jax.tree.map(mine, estimator)
