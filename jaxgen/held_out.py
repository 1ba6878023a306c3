"""A fold judged by the classifier of all others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, measures, metrics, platform
from jaxgen.blocks import Stretch
from jaxgen.classify import log_posterior
from jaxgen.density import optional
from jaxgen.labels import HardLabels
from jaxgen.preparing import forms_of
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.arguments import AnyArray
    from jaxgen.folds import Part, Rows
    from jaxgen.platform import Tuning


@jax.jit
def quick_forms(classifiers: Any) -> tuple[Any, Array] | None:
    """A stack of classifiers in a form that scores class by class, if there is one; and whether all are accurate."""

    def form(c: Any) -> tuple[Any, Array] | None:
        _, quick = forms_of(c, likelihood=False)
        return quick if quick and optional(quick[0], "scores_by_class") else None

    found = jax.vmap(form)(classifiers)
    return found and (found[0], jnp.all(found[1]))


def judge(
    classifiers: Any, folds: Int[np.ndarray, " g"], part: Part, members: list[np.ndarray], *, quick: Any | None
) -> tuple[AnyArray, AnyArray]:
    """Accuracy and log loss, (g,), of some of a stack of classifiers, each on its fold.

    `quick` are the classifiers in a form whose scores are made class by class, if there is one.
    """
    tuning = platform.tuning_of(part)
    if not part.rows.is_sparse and tuning and not is_traced(classifiers):
        accuracy, log_loss = map(np.asarray, _judge_program(quick or classifiers, folds, part, tuning=tuning))
        if not np.isnan(log_loss).any():
            return accuracy, log_loss
    judged = [_judge(classifiers, f, part.present(i), members[f]) for i, f in enumerate(folds)]
    stack = jnp.stack if is_traced(judged) else lambda each: np.stack([np.asarray(one) for one in each])
    accuracy, log_loss = map(stack, zip(*judged, strict=True))
    return accuracy, log_loss


def _judge(classifiers: Any, f: Int[np.ndarray, ""], rows: Rows, inside: Int[np.ndarray, " m"]) -> tuple[Any, Any]:
    """The same of one fold, which has these rows inside, by calls that check them."""
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
        _check_possible(posterior, int(f), inside)
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
def _judge_program(
    classifiers: Any, folds: Int[Array, " g"], part: Part, *, tuning: Tuning
) -> tuple[Float[Array, " g"], Float[Array, " g"]]:
    """The same without the checks of what a caller gives: NaN where a posterior is."""

    def one(fold: tuple[Array, Array, Array | None]) -> tuple[Array, Array]:
        f, first, skip = fold
        mine = jax.tree.map(lambda leaf: leaf[f], classifiers)
        return _judge_stretch(mine, part.rows, Stretch(first, part.length), skip, tuning)

    return lax.map(one, (folds, part.first, part.skip))


def _judge_stretch(
    classifier: Any, rows: Rows, within: Stretch, skip: Array | None, tuning: Tuning
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    y, weight = within.of((rows.y, rows.sample_weight))
    y, (num_classes,) = y.astype(jnp.int32), classifier.class_shape
    if scores := optional(classifier, "scores_by_class"):
        dtype = jax.tree.leaves(classifier)[0].dtype
        by_class = partial(_by_class, lambda x: scores(x.astype(dtype)))
        block = blocks.num_rows(tuning.judge_elements, rows.x.shape[1] + num_classes)
        (found, own), _ = blocks.map_rows(by_class, (rows.x, rows.y), block=block, within=within)
    else:
        x, observed = within.of((rows.x, rows.observed))
        with platform.tuned(tuning):
            posterior = log_posterior(classifier, x, observed=observed)
        found, own = _found(posterior), jnp.take_along_axis(posterior, y[:, None], axis=1, mode="clip")[:, 0]
    labels = HardLabels(y, weight, num_classes).prepare(own.dtype)
    if skip is not None:
        labels = labels.drop(jnp.arange(len(y), dtype=jnp.int32) < skip)
    if skip is not None or weight is not None:
        own = jnp.where(labels.row_weight == 0, 0.0, own)  # an absent row may hold anything
    return measures.accuracy(labels, found), measures.surprise(labels.row_weight, own)


def _by_class(scores_by_class: Callable[[Array], Array], rows: tuple[Array, Array]) -> tuple[Any, Array]:
    """The class that is found for each row, and log p of its own; and no flag.

    By steps that each take all rows for one class after the other, which fills vectors.
    """
    x, y = rows
    scores = scores_by_class(x)
    classes, y = jnp.arange(len(scores), dtype=jnp.int32)[:, None], y.astype(jnp.int32)
    largest = jnp.max(scores, axis=0)
    found = jnp.min(jnp.where(scores == largest[None], classes, len(scores)), axis=0)  # the first of a tie
    own = jnp.sum(jnp.where(classes == y[None], scores, 0.0), axis=0)
    own -= largest + jnp.log(jnp.sum(jnp.exp(scores - largest[None]), axis=0))
    return (found, own), jnp.zeros((), bool)


def _found(posterior: Float[Array, "n classes"]) -> Int[Array, " n"]:
    return jnp.argmax(posterior, axis=1).astype(jnp.int32)
