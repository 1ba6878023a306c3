"""Leave-one-out: every row predicted from all others, exactly, without a fit of its own data for each.

From counts, whole numbers most of them, one row can be taken away (`downdating`, `complement_downdating`). Other
statistics of all rows but one are a merge of those before it with those after it. They are found from the top down:
rows are cut into parts, each part is given the statistics of all rows outside it, and is cut in turn. Taking the one
row away from moments would cancel where it is an outlier or one of few in its class.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, chunks, complement_downdating, downdating, inputs, platform, threads
from jaxgen.classify import log_posterior
from jaxgen.compressed import CompressedRows
from jaxgen.fitting import fit
from jaxgen.folds import Rows, all_but_each, left_out, outside
from jaxgen.mixed_naive_bayes import MixedNB
from jaxgen.numerics import drop_impossible, log_sum_exp
from jaxgen.single_rows import Row, in_limbs, log_prior_without_each
from jaxgen.tracing import concretely, is_traced

if TYPE_CHECKING:
    from typing import NoReturn

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.total import Total


# Rows × features × classes that are a core's share, at least. Of Gaussian NB in three classes 2,000 × 20 take two cores
# 7 ms in place of 12, 500 × 10 four in place of three.
_SHARE = 2**16


def leave_one_out(
    estimator: GenerativeEstimator[Any, Any], rows: Rows, num_classes: int
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Whether each row is classified rightly by the others, and its −log p(y | x); see `jaxgen.cross_validate`."""
    if not rows.is_sparse:
        rows = rows._replace(x=arguments.as_numbers("x", rows.x))
    weight, present = rows.sample_weight, np.ones(len(rows.y), bool)
    if weight is not None:
        present = inputs.weighs(weight, rows.x.dtype)
        weight = np.asarray(weight, np.uint8 if weight.dtype == bool else weight.dtype)
        rows = rows._replace(sample_weight=np.where(present, weight, weight.dtype.type(0)))
    posterior = _posterior_without_each(estimator, rows, num_classes, present)
    if not is_traced(posterior):
        failed = np.isnan(posterior).any(axis=1) & present
        if failed.any():
            _raise_for_row(int(np.argmax(failed)), estimator, rows, num_classes)
    return _outcome_program(posterior, rows.y.astype(np.int32), present)


def _posterior_without_each(
    estimator: GenerativeEstimator[Any, Any], rows: Rows, num_classes: int, present: Bool[np.ndarray, " n"]
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those leave it impossible."""
    if isinstance(estimator, MixedNB) and rows.is_sparse:
        return _by_families(estimator, rows, num_classes, present)
    posterior = _by_downdates(estimator, rows, num_classes, present)
    return _by_merges(estimator, rows, num_classes) if posterior is None else posterior


def _by_families(
    estimator: MixedNB, rows: Rows, num_classes: int, present: Bool[np.ndarray, " n"]
) -> Float[Array, "n classes"]:
    """The same of sparse rows of several families: each leaves out what it has of a row, as it does by itself."""
    with concretely():
        estimator.statistics(**rows._asdict(), num_classes=num_classes)  # raises for what is bad, by its column
    each = []
    for family, x in estimator.split(CompressedRows.of(rows.x)):
        family = dataclasses.replace(family, prior_alpha=estimator.prior_alpha)
        own = rows._replace(x=x.matrix if isinstance(x, CompressedRows) else x)
        each.append(_posterior_without_each(family, own, num_classes, present))
    there = rows if present.all() else rows.at(np.flatnonzero(present))  # others may have any label
    weight = in_limbs(np.bincount(there.y, there.sample_weight, num_classes), each[0].dtype)
    prior_alpha = arguments.as_floats(estimator).prior_alpha
    return _joint_program(weight, Row.of(rows, each[0].dtype), prior_alpha, tuple(each), present)


@jax.jit
def _joint_program(
    class_weight: Total,
    rows: Row,
    prior_alpha: Array | float,
    posteriors: tuple[Float[Array, "n classes"], ...],
    present: Bool[Array, " n"],
) -> Float[Array, "n classes"]:
    """The log posterior by several independent parts of x, from those by each; of an absent row the prior."""
    prior = log_prior_without_each(class_weight, rows, prior_alpha)
    known = present[:, None] & ~jnp.isneginf(prior)
    # Each holds the prior, which plays its part once. Those of an absent row are NaN, as their derivatives would be.
    gains = [jnp.where(known, posterior - drop_impossible(prior), 0.0) for posterior in posteriors]
    joint = reduce(jnp.add, gains, prior)
    return joint - log_sum_exp(joint)[:, None]


def _by_downdates(estimator: Any, rows: Rows, num_classes: int, present: Bool[np.ndarray, " n"]) -> Array | None:
    """The same by taking each row away, NaN for one that is absent; None where it is found by merges."""
    there = rows if present.all() else rows.at(np.flatnonzero(present))
    if not downdating.applies(estimator, there):
        return None
    with concretely():
        statistics = estimator.statistics(**rows._asdict(), num_classes=num_classes)  # raises for whatever is bad
    if not (rows.is_sparse or downdating.is_exact(statistics)):
        return None
    room = downdating if estimator.classes_are_apart else complement_downdating
    found = room.posterior_without_each(arguments.as_floats(estimator), statistics, there)
    if present.all():
        return found
    return jnp.full((len(present), num_classes), jnp.nan, found.dtype).at[present].set(found)


def _by_merges(estimator: GenerativeEstimator[Any, Any], rows: Rows, num_classes: int) -> Array:
    """The log posterior of each row from all others."""
    tuning = platform.tuning_of(rows) or platform.CPU

    def summarise(rows: Rows) -> Any:
        return estimator.statistics(**rows._asdict(), num_classes=num_classes)

    shares = [rows] if is_traced(estimator) or platform.platform_of(rows) != "cpu" else _shares(rows, num_classes)
    try:
        summed = threads.over(summarise, shares)
    except ValueError:
        summarise(rows)  # names a bad row by its number among all
        raise
    size = sum(leaf.size for leaf in jax.tree.leaves(summed[0]))
    options = {"num_classes": num_classes, "most": max(2, tuning.fold_elements // size)}
    what = arguments.as_floats(estimator)
    if len(shares) == 1 or size > tuning.fold_elements:  # every core at once would hold many of such a size
        return _posterior(what, None, rows, **options)
    return _by_cores(what, list(all_but_each(tuple(summed))), shares, len(rows.y), **options)


def _shares(rows: Rows, num_classes: int) -> list[Rows]:
    """The rows dealt out to the cores of a CPU in their order, as many to each; all in one share where they are few.

    The last share is filled up with rows that weigh nothing.
    """
    n, d = rows.x.shape
    count = min(threads.cores(), n * d * num_classes // _SHARE)
    if count < 2:
        return [rows]
    size = -(-n // count)
    weight = np.ones(n, jnp.result_type(float)) if rows.sample_weight is None else rows.sample_weight
    rows = jax.tree.map(np.asarray, rows._replace(sample_weight=weight))

    def share(first: int) -> Rows:
        return jax.tree.map(lambda array: _filled_up(array[first : first + size], size), rows)

    return [share(first) for first in range(0, n, size)]


def _filled_up(array: np.ndarray, length: int) -> np.ndarray:
    more = length - len(array)
    return np.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1)) if more else array


def _by_cores(
    estimator: GenerativeEstimator[Any, Any], elsewhere: list[Any], shares: list[Rows], num_rows: int, **options: int
) -> Array:
    """The log posterior of each row from all others: of each share, beside the statistics of all that is elsewhere."""
    size = len(shares[0].y)
    places = [slice(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]

    def posterior(task: tuple[Any, Rows]) -> tuple[Array, bool]:
        return _posterior(estimator, *task, **options), False

    return chunks.gather(posterior, list(zip(elsewhere, shares, strict=True)), places, num_rows)[0]


def _posterior(estimator: Any, elsewhere: Any, rows: Rows, *, num_classes: int, most: int) -> Array:
    """The log posterior of each row from all others: these, and those whose statistics are given, None without any."""
    return _program(estimator, elsewhere, rows, num_classes=num_classes, levels=_levels(len(rows.y), most))


def _levels(n: int, most: int) -> tuple[int, ...]:
    """Into how many parts rows are cut, and those in turn, down to one row: at most so many at a time."""
    depth = 1
    while most**depth < n:
        depth += 1
    each = math.ceil(n ** (1 / depth))
    return -(-n // each ** (depth - 1)), *(each,) * (depth - 1)


@partial(jax.jit, static_argnames=("num_classes", "levels"))
def _program(
    estimator: GenerativeEstimator[Any, Any], elsewhere: Any, rows: Rows, *, num_classes: int, levels: tuple[int, ...]
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those have none.

    Of each level the statistics of its parts are kept: memory grows with the logarithm of the rows.
    """
    n = rows.x.shape[0]

    def summarise(rows: Rows) -> Any:
        return estimator.statistics(**rows._asdict(), num_classes=num_classes)

    def predict(others: Any, rows: Rows) -> Array:
        # What an absent row holds must not reach a derivative, though nothing is made of its posterior.
        x = jnp.where((rows.sample_weight == 0)[:, None], jnp.zeros_like(rows.x), rows.x)
        return log_posterior(estimator.estimate(others), x, observed=rows.observed)

    def visit(others: Any, rows: Rows, levels: tuple[int, ...]) -> Array:
        """The same for some rows, from the statistics of all `others`."""
        count, *below = levels
        parts = jax.tree.map(lambda a: a.reshape(count, -1, *a.shape[1:]), rows)
        mine = lax.map(summarise, parts) if below else jax.vmap(summarise)(parts)
        others = outside(mine, others)
        if below:
            # Checkpointed: a gradient keeps the statistics of the parts, and not those of every row.
            each = jax.checkpoint(lambda part: visit(part[0], part[1], tuple(below)))
            return lax.map(each, (others, parts)).reshape(-1, num_classes)
        return jax.vmap(predict)(others, parts)[:, 0]

    padding = math.prod(levels) - n  # rows of weight 0 are absent
    rows = rows._replace(sample_weight=jnp.ones(n) if rows.sample_weight is None else rows.sample_weight)
    rows = jax.tree.map(lambda a: jnp.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)), rows)
    if elsewhere is None:
        elsewhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(summarise, rows))
    return visit(elsewhere, rows, levels)[:n]


@jax.jit
def _outcome_program(
    posterior: Float[Array, "n classes"], label: Int[Array, " n"], present: Bool[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Whether the label of each row is the most probable one, and its −log p; NaN for one that is absent."""
    own = jnp.take_along_axis(posterior, label[:, None], axis=1)[:, 0]
    known = present & ~jnp.isnan(own)
    predicted = jnp.argmax(posterior, axis=1).astype(jnp.int32)
    right = jnp.where(known, (predicted == label).astype(own.dtype), jnp.nan)
    impossible = jnp.isneginf(own)
    return right, jnp.where(known, jnp.where(impossible, jnp.inf, -jnp.where(impossible, 0.0, own)), jnp.nan)


def _raise_for_row(row: int, estimator: Any, rows: Rows, num_classes: int) -> NoReturn:
    """Raise the ValueError for a row that the others do not predict: they have no classifier, or it gives 0/0."""
    others = rows.at(np.flatnonzero(np.arange(len(rows.y)) != row))
    with left_out(f"row {row}"):
        fit(estimator, **others._asdict(), num_classes=num_classes)
    raise ValueError(
        f"row {row} is impossible under every class that is fitted to the others: its posterior is 0/0. Smooth them, "
        "such as with alpha > 0."
    )
