"""Leave-one-out of families that count: a row is taken away from the sums of its own class.

Those of the other classes remain as they are, so that one row of a table is estimated anew for each row of x, and never
a whole one. Whole numbers lose nothing by that; fractions are merged instead. Sparse rows leave by their words alone
(`word_downdating`, `event_downdating`).
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
from jaxgen.numerics import log_sum_exp
from jaxgen.single_rows import Row, joint_without_each, less, of_class, over_all
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
    block = max(1, tuning.fold_elements // (2 * max(d, statistics.feature_sum.high.shape[1])))  # with a row and without
    program = partial(_program, estimator, statistics, c.log_prior, block=block, tuning=tuning)
    return over_all(program, (posterior, Row.of(rows, dtype)), n, length=d, where=(estimator, statistics, posterior))


@partial(jax.jit, static_argnames=("block", "tuning"))
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    rows: tuple[Float[Array, "n classes"], Row],
    *,
    block: int,
    tuning: Tuning,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    posterior, own = rows
    dtype, is_total = prior.dtype, lambda node: isinstance(node, Total)
    changed = joint_without_each(posterior, prior, statistics.class_weight, own, estimator.prior_alpha)

    def one(given: tuple[Array, Row]) -> Array:
        joint, row = given
        x, weight = row.x.astype(dtype)[None], row.weight.high.reshape(1)
        mine = estimator.summarise(x, HardLabels(jnp.zeros(1, jnp.int32), weight, 1).prepare(dtype, tuning))
        whole = jax.tree.map(lambda leaf: leaf[row.y][None], statistics)
        rest: Any = jax.tree.map(less, whole, mine, is_leaf=is_total)
        # As two classes of one density, whose scores are told apart feature by feature.
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), rest, whole)
        after, before = of_class(estimator, row.y, len(prior)).density(both).scores(x)[0]
        joint = joint.at[row.y].add(after - before)
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (changed, own), batch_size=block)
