"""Leave-one-out of families that count: a row is taken away from the sums of its own class.

Those of the other classes remain as they are, so that one row of a table is estimated anew for each row of x, and never
a whole one. Whole numbers lose nothing by that. Fractions of sparse rows are taken away in two limbs; those of dense
rows are merged instead.
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
from jaxgen.compressed import CompressedRows
from jaxgen.counts import CountingEstimator, Counts
from jaxgen.labels import HardLabels
from jaxgen.numerics import drop_impossible, log_sum_exp
from jaxgen.total import Total
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.folds import Rows
    from jaxgen.platform import Tuning

# Numbers of rows, sparse ones filled up to one length, that a core takes at a time.
_NUMBERS = 2**20


def applies(estimator: Any, rows: Rows) -> bool:
    """Whether rows can be taken away: sparse ones, and those whose counts and weights are whole numbers.

    Raises:
        TypeError: for sparse rows of other families that take them, or where a row has a part in all classes.
    """
    can_be = isinstance(estimator, CountingEstimator) and estimator.classes_are_apart
    if rows.is_sparse:
        if estimator.takes_sparse and not can_be:
            raise TypeError(
                "folds='leave-one-out' takes sparse rows of BernoulliNB, MultinomialNB or PoissonNB by itself; found "
                f"them for {type(estimator).__name__}. Give x.toarray(), or a number of folds."
            )
        return True  # which the statistics of other families refuse
    return can_be and rows.observed is None and all(map(_are_whole, (rows.x, rows.sample_weight)))


def _are_whole(numbers: Any) -> bool:
    return numbers is None or numbers.dtype.kind in "iub" or bool((numbers == numbers.round()).all())


def is_exact(statistics: Counts) -> bool:
    """Whether sums of whole numbers are so small that each is held by one limb, and so was each on the way to it."""
    limbs = [np.asarray(total.high) for total in (statistics.class_weight, statistics.feature_sum)]
    return all(limb.max(initial=0) < 1 / np.finfo(limb.dtype).epsneg for limb in limbs)


class _Row(NamedTuple):
    """A row, or a stack of them, with the class that it is taken away from.

    Attributes:
        x: (d,); of a sparse one where its entries begin, and how many there are.
        y: its label.
        weight: in two limbs.
    """

    x: Any
    y: Any
    weight: Total


class _Entries(NamedTuple):
    """The entries of all sparse rows, one row after the other, and as many behind them as the longest row has.

    Attributes:
        values: of x, (m,).
        columns: of each, (m,).
        counted: what each adds to the sums, (m,) in two limbs.
        longest: indices of the entries of the longest row, from where it begins.
    """

    values: Any
    columns: Any
    counted: Total
    longest: np.ndarray

    @classmethod
    def of(cls, estimator: CountingEstimator[Any], rows: Rows, dtype: np.dtype) -> _Entries:
        """Those of rows of scipy."""
        x = CompressedRows.of(rows.x)
        if x.num_entries + x.num_columns >= 2**31:
            raise ValueError(
                "x must have fewer than 2^31 entries and columns for folds='leave-one-out'; found "
                f"{x.num_entries + x.num_columns}. Give a number of folds."
            )
        longest = np.arange(np.diff(x.starts.astype(np.int64)).max(initial=1), dtype=np.int32)
        counted = estimator.encode(x).values.astype(np.float64)
        if rows.sample_weight is not None:
            counted = counted * np.asarray(rows.sample_weight, np.float64)[x.rows]
        entries = cls(x.values.astype(dtype), x.columns.astype(np.int32), _in_limbs(counted, dtype), longest[:0])
        filled_up = jax.tree.map(lambda array: jnp.asarray(np.pad(array, (0, len(longest)))), entries)
        return filled_up._replace(longest=longest)

    def row(self, start: Array, count: Array, d: int) -> tuple[Array, Total]:
        """x of one row, and what it adds to the sums, (1, d)."""
        mine = self.longest < count
        columns = jnp.where(mine, self.columns[start + self.longest], 0)

        def dense(entries: Array) -> Array:
            entries = jnp.where(mine, entries[start + self.longest], 0)
            return jnp.zeros((1, d), entries.dtype).at[0, columns].add(entries, mode="promise_in_bounds")

        return dense(self.values), jax.tree.map(dense, self.counted)


def _in_limbs(numbers: np.ndarray, dtype: np.dtype) -> Total:
    """Numbers of float64 in two limbs of a dtype."""
    high = numbers.astype(dtype)
    return Total(high, (numbers - high).astype(dtype))  # pyright: ignore[reportArgumentType]


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
    weight = np.ones(n) if rows.sample_weight is None else np.asarray(rows.sample_weight, np.float64)
    entries, x, length = None, rows.x, d
    if rows.is_sparse:
        entries = _Entries.of(estimator, rows, dtype)
        starts = rows.x.indptr.astype(np.int32)
        x, length = (starts[:-1], np.diff(starts)), len(entries.longest)
    own = _Row(x, rows.y.astype(np.int32), _in_limbs(weight, dtype))
    block = max(1, tuning.fold_elements // (2 * max(d, statistics.feature_sum.high.shape[1])))  # with a row and without
    options = {"num_features": d, "block": block, "tuning": tuning}
    program = partial(_program, estimator, statistics, c.log_prior, entries, **options)
    if is_traced(estimator, posterior) or platform.platform_of(statistics) != "cpu":
        return program(posterior, own)
    with_all = np.asarray(posterior)
    places = chunks.pieces(n, min(-(-n // threads.cores()), max(1, _NUMBERS // length)))

    def without(place: slice) -> tuple[Array, bool]:
        return program(with_all[place], jax.tree.map(lambda array: array[place], own)), False

    return chunks.gather(without, places, places, n)[0]


@partial(jax.jit, static_argnames=("num_features", "block", "tuning"))
def _program(
    estimator: CountingEstimator[Any],
    statistics: Counts,
    prior: Float[Array, " classes"],
    entries: _Entries | None,
    posterior: Float[Array, "n classes"],
    rows: _Row,
    *,
    num_features: int,
    block: int,
    tuning: Tuning,
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, by that from all rows and the log prior in it."""
    dtype = prior.dtype
    # Fractions were summed in two limbs, or in float64.
    eps = float(jnp.finfo(dtype).eps)
    less = partial(Total.subtract, rounding=max(64 * eps**2, 8 * float(np.finfo(np.float64).eps)))

    def one(given: tuple[Array, _Row]) -> Array:
        with_all, row = given
        weight = row.weight.reshape(1)
        if entries is None:
            x = row.x.astype(dtype)[None]
            labels = HardLabels(jnp.zeros(1, jnp.int32), weight.high, 1).prepare(dtype, tuning)
            mine = estimator.summarise(x, labels)
        else:
            start, count = row.x
            x, counted = entries.row(start, count, num_features)
            mine = Counts(weight, counted, estimator.binary, None, estimator.counted)
        whole = jax.tree.map(lambda leaf: leaf[row.y][None], statistics)
        rest: Any = jax.tree.map(less, whole, mine, is_leaf=lambda node: isinstance(node, Total))
        # As two classes of one density, whose scores are told apart feature by feature.
        both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), rest, whole)
        after, before = _of_class(estimator, row.y, len(prior)).density(both).scores(x)[0]
        weights = statistics.class_weight.value.at[row.y].set(rest.class_weight.value[0])
        change = log_prior(weights, estimator.prior_alpha) - drop_impossible(prior)
        joint = with_all + change.at[row.y].add(after - before)
        return joint - log_sum_exp(joint)

    # Checkpointed: a gradient keeps what is made of all rows, and not of each.
    return lax.map(jax.checkpoint(one), (posterior, rows), batch_size=block)


def _of_class(estimator: CountingEstimator[Any], y: Array, num_classes: int) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of one class."""

    def mine(number: Array) -> Array:
        by_class = jnp.ndim(number) == 2 and number.shape[0] == num_classes
        return jnp.asarray(number)[y][None] if by_class else number

    return jax.tree.map(mine, estimator)
