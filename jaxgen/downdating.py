"""Leave-one-out of families that count: a row is taken away from the sums of its own class.

Those of the other classes remain as they are, so that one row of a table is estimated anew for each row of x, and never
a whole one. Sums of whole numbers lose nothing by that; of fractions see `jaxgen.subtract`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import chunks, platform, threads
from jaxgen.classifier import log_prior
from jaxgen.classify import log_posterior
from jaxgen.labels import HardLabels
from jaxgen.numerics import drop_impossible, log_sum_exp
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.counts import CountingEstimator, Counts
    from jaxgen.folds import Rows
    from jaxgen.platform import Tuning

# Numbers of rows, sparse ones filled up to one length, that a core takes at a time.
_NUMBERS = 2**20


class _Own(NamedTuple):
    """Some rows, each with the class that it is taken away from.

    Attributes:
        values: x (n, d), or of sparse rows their entries, and zeros up to one length, (n, m).
        columns: of the entries of sparse rows, (n, m); None of dense ones.
        y: labels (n,).
        weight: (n,); None where each is 1.
    """

    values: Any
    columns: Any
    y: Any
    weight: Any

    @classmethod
    def of(cls, rows: Rows, place: slice, dtype: np.dtype) -> _Own:
        """Those of a place."""
        weight = None if rows.sample_weight is None else np.asarray(rows.sample_weight[place], dtype)
        x, columns = _entries(rows.x, place, dtype) if rows.is_sparse else (rows.x[place], None)
        return cls(x, columns, rows.y[place].astype(np.int32), weight)

    def dense(self, d: int, dtype: Any) -> Float[Array, "1 d"]:
        """x of one row, of d features."""
        values = self.values.astype(dtype)
        if self.columns is not None:
            values = jnp.zeros(d, dtype).at[self.columns].add(values, mode="promise_in_bounds")
        return values[None]


def _entries(x: Any, place: slice, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The values and columns of rows of a matrix of scipy, filled up with zeros to the length of its longest."""
    starts = x.indptr[place.start : place.stop + 1].astype(np.int64)
    index = starts[:-1, None] + np.arange(_longest(x))
    own = index < starts[1:, None]
    index = np.where(own, index, 0)
    values, columns = (x.data, x.indices) if x.nnz else (np.zeros(1), np.zeros(1, np.int32))
    return np.where(own, values[index], 0).astype(dtype), np.where(own, columns[index], 0).astype(np.int32)


def _longest(x: Any) -> int:
    return int(np.diff(x.indptr).max(initial=1))


def loses_nothing(statistics: Any) -> bool:
    """Whether all sums are whole numbers."""
    limbs = map(np.asarray, jax.tree.leaves(statistics))
    return all(np.array_equal(limb, np.round(limb)) for limb in limbs)


def posterior_without_each(
    estimator: CountingEstimator[Any], statistics: Counts, rows: Rows
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those leave it impossible under every class.

    Args:
        estimator: of densities.
        statistics: of all rows.
        rows: checked, of positive weight, with all features observed.
    """
    (n, d), dtype = rows.x.shape, np.dtype(statistics.feature_sum.high.dtype)
    c, tuning = estimator.estimate(statistics), platform.tuning_of(statistics) or platform.CPU
    posterior = log_posterior(c, rows.x)
    block = max(1, tuning.fold_elements // (2 * max(d, statistics.feature_sum.high.shape[1])))  # with a row and without
    program = partial(_program, estimator, statistics, c.log_prior, num_features=d, block=block, tuning=tuning)
    if is_traced(estimator, posterior) or platform.platform_of(statistics) != "cpu":
        return program(posterior, _Own.of(rows, slice(0, n), dtype))
    with_all, length = np.asarray(posterior), _longest(rows.x) if rows.is_sparse else d
    places = chunks.pieces(n, min(-(-n // threads.cores()), max(1, _NUMBERS // length)))

    def without(place: slice) -> tuple[Array, bool]:
        return program(with_all[place], _Own.of(rows, place, dtype)), False

    return chunks.gather(without, places, places, n)[0]


@partial(jax.jit, static_argnames=("num_features", "block", "tuning"))
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    posterior: Float[Array, "n classes"],
    own: _Own,
    *,
    num_features: int,
    block: int,
    tuning: Tuning,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    num_classes, dtype = len(prior), prior.dtype

    def one(row: tuple[Array, _Own]) -> Array:
        posterior, own = row
        x, weight = own.dense(num_features, dtype), None if own.weight is None else own.weight[None]
        labels = HardLabels(jnp.zeros(1, jnp.int32), weight, 1).prepare(dtype, tuning)
        whole = jax.tree.map(lambda leaf: leaf[own.y][None], statistics)
        rest = whole.subtract(estimator.summarise(x, labels))
        # As two classes of one density, whose scores are told apart feature by feature.
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), rest, whole)
        after, before = _of_class(estimator, own.y, num_classes).density(both).scores(x)[0]
        weights = statistics.class_weight.value.at[own.y].set(rest.class_weight.value[0])
        change = log_prior(weights, estimator.prior_alpha) - drop_impossible(prior)
        joint = posterior + change.at[own.y].add(after - before)
        return joint - log_sum_exp(joint)

    return lax.map(one, (posterior, own), batch_size=block)


def _of_class(estimator: CountingEstimator[Any], y: Array, num_classes: int) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of one class."""

    def mine(number: Array) -> Array:
        return number[y][None] if jnp.ndim(number) == 2 and number.shape[0] == num_classes else number

    return jax.tree.map(mine, estimator)
