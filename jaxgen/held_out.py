"""A fold judged by the classifier of all others."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import measures, metrics, platform
from jaxgen.classify import log_posterior
from jaxgen.labels import HardLabels
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.folds import Part
    from jaxgen.platform import Tuning


def judge(classifiers: Any, f: int, part: Part, inside: Int[np.ndarray, " m"]) -> tuple[Array, Array]:
    """Accuracy and log loss of one of a stack of classifiers on its fold, which has these rows inside."""
    rows = part.present
    dense = isinstance(rows.x, (np.ndarray, jax.Array))
    if dense and not is_traced(classifiers):
        accuracy, log_loss = _judge_program(classifiers, np.int32(f), part, tuning=platform.tuning_of(rows))
        if not np.isnan(log_loss):
            return accuracy, log_loss
    classifier = jax.tree.map(lambda leaf: leaf[f], classifiers)
    if rows.sample_weight is not None:  # an absent row may hold anything
        counts = np.flatnonzero(np.asarray(rows.sample_weight) > 0)
        if not len(counts):
            none = jnp.full_like(jax.tree.leaves(classifier)[0], jnp.nan, shape=())
            return none, none
        rows, inside = rows.at(counts), inside[counts]
    # What is NaN has a reason, which an eager call gives.
    posterior, weight = log_posterior(classifier, rows.x, observed=rows.observed), rows.sample_weight
    if not is_traced(posterior):
        _check_possible(posterior, f, inside)
    accuracy = metrics.accuracy(rows.y, _found(posterior), sample_weight=weight)
    return accuracy, metrics.log_loss(rows.y, posterior, sample_weight=weight)


def _check_possible(posterior: Any, f: int, inside: Int[np.ndarray, " m"]) -> None:
    """Raise for a row of a fold that the classifier of the others knows nothing of."""
    impossible = np.isnan(np.asarray(posterior)).any(axis=1)
    if impossible.any():
        raise ValueError(
            f"x must hold rows that the other folds leave possible; found row {inside[np.argmax(impossible)]} and "
            f"{int(impossible.sum()) - 1} more of fold {f} impossible under every class. Smooth, such as by alpha > 0, "
            "or give such rows sample_weight 0."
        )


@partial(jax.jit, static_argnames="tuning")
def _judge_program(classifiers: Any, f: Array, part: Part, *, tuning: Tuning | None) -> tuple[Array, Array]:
    """The same without the checks of what a caller gives: NaN where a posterior is."""
    rows, skip = part
    classifier = jax.tree.map(lambda leaf: leaf[f], classifiers)
    with platform.tuned(tuning):
        posterior = log_posterior(classifier, rows.x, observed=rows.observed)
    labels = HardLabels(rows.y, rows.sample_weight, posterior.shape[1]).prepare(posterior.dtype)
    if skip is not None:
        labels = labels.drop(jnp.arange(len(rows.y), dtype=jnp.int32) < skip)
    if skip is not None or rows.sample_weight is not None:
        absent = (labels.row_weight == 0)[:, None]
        posterior = jnp.where(absent, -math.log(posterior.shape[1]), posterior)
    return measures.accuracy(labels, _found(posterior)), measures.log_loss(labels, posterior)


def _found(posterior: Float[Array, "n classes"]) -> Int[Array, " n"]:
    return jnp.argmax(posterior, axis=1).astype(jnp.int32)
