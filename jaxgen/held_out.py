"""A fold judged by the classifier of all others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, measures, metrics, platform, threads
from jaxgen.blocks import Stretch
from jaxgen.classify import log_posterior
from jaxgen.density import optional
from jaxgen.labels import HardLabels
from jaxgen.preparing import forms_of
from jaxgen.total import holds_nan_or_infinity
from jaxgen.tracing import is_recorded, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.arguments import AnyArray
    from jaxgen.folds import Deal, Part, Rows
    from jaxgen.platform import Tuning
    from jaxgen.refits import Fitted, FittedInTurn, Merged


def judge(refits: Fitted | FittedInTurn | Merged, deal: Deal, parts: list[Part]) -> tuple[AnyArray, AnyArray]:
    """Accuracy and log loss, (F,), of the classifiers without each fold, each on its fold.

    Args:
        refits: what makes those classifiers.
        deal: the folds of each group.
        parts: a copy of the rows of each group.

    Raises:
        ValueError: for classifiers that are not finite, and for a row that the one without it makes impossible.
    """
    groups = list(zip(deal.groups, parts, strict=True))
    judged = _judge_quickly(refits, deal, groups)
    if judged is None:
        each = partial(_judge_one_by_one, refits.by_fold(), deal.members)
        # On the caller's thread where the classifiers are a trace, which is of it.
        traced = is_traced(refits) or is_recorded()
        judged = list(map(each, groups)) if traced else threads.over(each, groups)
    join = jnp.concatenate if is_traced(judged) else np.concatenate
    accuracy, log_loss = (join(each)[: len(deal.members)] for each in zip(*judged, strict=True))
    return accuracy, log_loss


def _judge_quickly(
    refits: Fitted | FittedInTurn | Merged, deal: Deal, groups: list[tuple[Int[np.ndarray, " g"], Part]]
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """The same of each group by one program; None where that is not possible, or something has to be explained."""
    tuning = platform.tuning_of(groups)
    if tuning is None or deal.rows.is_sparse or is_traced(refits):
        return None
    classifiers, quick, finite = _forms_program(refits, tuning=tuning)
    if not np.asarray(finite):
        return None
    if quick and deal.rows.observed is None and np.asarray(quick[1]):
        classifiers, _ = quick

    def judge_group(group: tuple[Int[np.ndarray, " g"], Part]) -> tuple[np.ndarray, np.ndarray]:
        accuracy, log_loss = _judge_program(classifiers, *group, tuning=tuning)
        return np.asarray(accuracy), np.asarray(log_loss)

    judged = threads.over(judge_group, groups)
    return None if any(np.isnan(log_loss).any() for _, log_loss in judged) else judged


def _judge_one_by_one(
    without: Callable[[int], Any], members: list[np.ndarray], group: tuple[Int[np.ndarray, " g"], Part]
) -> tuple[AnyArray, AnyArray]:
    """The same of one group, by calls that check the rows."""
    folds, part = group
    judged = [_judge(without(f), f, part.present(i), members[f]) for i, f in enumerate(map(int, folds))]
    stack = jnp.stack if is_traced(judged) else lambda each: np.stack([np.asarray(one) for one in each])
    accuracy, log_loss = map(stack, zip(*judged, strict=True))
    return accuracy, log_loss


def _judge(classifier: Any, f: int, rows: Rows, inside: Int[np.ndarray, " m"]) -> tuple[Any, Any]:
    """The same of one fold, which has these rows inside, by calls that check them."""
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
def _forms_program(
    refits: Fitted | Merged, *, tuning: Tuning
) -> tuple[Any, tuple[Any, Bool[Array, ""]] | None, Bool[Array, ""]]:
    """The classifiers without each fold, stacked; a quick form of them; and whether they are finite.

    The form, if there is one, makes scores class by class; beside it stands whether it is accurate for all.
    """
    with platform.tuned(tuning):
        classifiers = refits.classifiers()
        found = jax.vmap(_form_by_class)(classifiers)
        return classifiers, found and (found[0], jnp.all(found[1])), ~holds_nan_or_infinity(classifiers)


def _form_by_class(c: Any) -> tuple[Any, Array] | None:
    """A classifier in a quick form that scores class by class, if there is one; and whether it is accurate."""
    _, quick = forms_of(c, likelihood=False)
    return quick if quick and optional(quick[0], "scores_by_class") else None


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
