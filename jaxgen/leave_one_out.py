"""Leave-one-out: every row predicted from all others, exactly, without a fit of its own data for each.

From counts, whole numbers most of them, one row can be taken away: a dense one (`downdating`), or a sparse one by its
words alone (`word_downdating`, `event_downdating`). Other statistics of all rows but one are merged (`merged_rests`).
"""

from __future__ import annotations

import dataclasses
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, downdating, event_downdating, inputs, merged_rests, word_downdating
from jaxgen.compressed import CompressedRows
from jaxgen.fitting import fit
from jaxgen.folds import left_out
from jaxgen.mixed_naive_bayes import MixedNB
from jaxgen.numerics import drop_impossible, log_sum_exp
from jaxgen.single_rows import Row, in_limbs, log_prior_without_each
from jaxgen.tracing import concretely, is_traced

if TYPE_CHECKING:
    from typing import NoReturn

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.folds import Rows
    from jaxgen.total import Total


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
    return merged_rests.posterior_without_each(estimator, rows, num_classes) if posterior is None else posterior


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
    by_words = word_downdating if estimator.scores_shares else event_downdating
    room = by_words if rows.is_sparse else downdating
    found = room.posterior_without_each(arguments.as_floats(estimator), statistics, there)
    if present.all():
        return found
    return jnp.full((len(present), num_classes), jnp.nan, found.dtype).at[present].set(found)


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
