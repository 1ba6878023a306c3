"""Labels and scores to sums: what metrics have in common, and each as a measure of rows that are known to be good.

A measure takes labels and values beside them that are prepared and checked; what is absent is zero in both.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, inputs
from jaxgen.labels import HardLabels, rows_are_valid
from jaxgen.numerics import drop_impossible, safe_divide, working_dtype
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int, Num

    from jaxgen.arguments import AnyArray
    from jaxgen.labels import Labels

# Rows that are summed one after the other: a float32 that is added to 2^24 times stops growing.
_PIECE = 4096
# Of a confusion matrix: its cells are numbered in 32 bits.
_MOST_CLASSES = 46340
# Probabilities that miss a sum of 1 by more are none; those that were rounded to bfloat16 miss it by less.
_MASS_TOLERANCE = 0.05


class Judged(NamedTuple):
    """What stands beside y: how to make it ready and find its usable rows, and the words for a message."""

    name: str
    prepare: Callable[[Any, int, np.dtype], tuple[Array, Array]]
    expected: str
    remedy: str


def _prepare_labels(predicted: Any, num_classes: int, dtype: np.dtype) -> tuple[Array, Array]:
    index = jnp.asarray(HardLabels(predicted, None, num_classes).prepare(dtype).index)
    return index, index < num_classes


def _prepare_posterior(log_posterior: Any, num_classes: int, dtype: np.dtype) -> tuple[Array, Array]:
    del num_classes  # a column for each
    log_posterior = jnp.asarray(log_posterior).astype(dtype)
    return log_posterior, jnp.abs(jnp.sum(jnp.exp(log_posterior), axis=1) - 1) < _MASS_TOLERANCE


def _prepare_score(score: Any, num_classes: int, dtype: np.dtype) -> tuple[Array, Array]:
    """A column for each ROC curve: of each class against the rest, of two classes the log odds alone."""
    score = jnp.asarray(score).astype(dtype).reshape(score.shape[0], -1)
    score = score[:, 1:] - score[:, :1] if score.shape[1] == num_classes == 2 else score
    return score, ~jnp.any(jnp.isnan(score), axis=1)


def _ranks(score: np.ndarray) -> np.ndarray:
    """Whole numbers by their order alone, which is all that a curve looks at: a float holds those of any size."""
    if score.ndim == 2 and score.shape[1] == 2:
        return _ranks(score[:, 1].astype(object) - score[:, 0].astype(object))
    columns = score.reshape(len(score), -1).T
    ranks = [np.unique(column, return_inverse=True)[1].astype(np.int32) for column in columns]
    return np.stack(ranks, axis=1).reshape(score.shape)


_IMPOSSIBLE = "It is NaN where x is impossible under every class: give such rows sample_weight 0."
_PREDICTED = Judged(
    "predicted", _prepare_labels, "a label in [0, K)", "Number the classes as in y, or raise num_classes."
)
POSTERIOR = Judged(
    "log_posterior",
    _prepare_posterior,
    "logarithms of probabilities that sum to 1",
    f"Give what jaxgen.log_posterior returns, or jnp.log of probabilities. {_IMPOSSIBLE}",
)
SCORE = Judged("score", _prepare_score, "numbers, and log odds that are numbers", f"Of a posterior: {_IMPOSSIBLE}")


def judge_labels(
    measure: Callable[..., Any], y: Any, predicted: Any, num_classes: int | None, sample_weight: Any, *extra: float
) -> Any:
    """A measure of true labels and of predicted ones, checked; K is inferred from both where it may be."""
    y, predicted = arguments.as_array("y", y), arguments.as_array("predicted", predicted)
    if y.ndim != 1 or predicted.shape != y.shape or not y.size:
        raise ValueError(
            "y and predicted must each hold one label a row, in the same shape (n,) with at least one row; found y of "
            f"shape {y.shape} and predicted of shape {predicted.shape}. Of posteriors (n, K) take .argmax(axis=1)."
        )
    if not (jnp.issubdtype(predicted.dtype, jnp.integer) or predicted.dtype == bool):
        raise TypeError(
            f"predicted must hold integer labels 0 … K−1, as jaxgen.predict returns; found {predicted.dtype}. "
            "Convert whole-number labels with predicted.astype(int)."
        )
    if num_classes is None and is_traced(y, predicted):
        raise ValueError(
            "num_classes cannot be inferred from y and predicted under a trace (jit, vmap, grad); found None. "
            "Give it: num_classes=K."
        )
    labels = inputs.check_labels(predicted, y, num_classes, sample_weight)
    if num_classes is None and isinstance(labels, HardLabels):
        K = max(labels.num_classes, inputs.infer_classes("predicted", predicted))
        labels = dataclasses.replace(labels, num_classes=K)
    return _judge(measure, _PREDICTED, labels, predicted, *extra)


def judge_scores(
    measure: Callable[..., Any], judged: Judged, y: Any, values: Any, sample_weight: Any, *extra: np.ndarray
) -> Any:
    """A measure of labels or responsibilities and of what each row has for every class, checked."""
    values, y = arguments.as_array(judged.name, values), arguments.as_array("y", y)
    if not (values.ndim == 2 or (values.ndim == 1 and judged is SCORE)) or not values.size:
        raise ValueError(
            f"{judged.name} must have shape (n, K){' or (n,)' if judged is SCORE else ''} with at least one row and "
            f"one class; found {values.shape}. Of one row give [None], and jax.vmap over further axes."
        )
    if judged is SCORE and values.ndim == 2 and values.shape[1] == 1:
        raise ValueError(
            f"score must have a column for each of two classes or more, or shape (n,); found {values.shape}. Give "
            "score[:, 0]."
        )
    is_whole = judged is SCORE and jnp.issubdtype(values.dtype, jnp.integer) and not is_traced(values)
    values = _ranks(np.asarray(values)) if is_whole else arguments.as_numbers(judged.name, values)
    n, K = values.shape[0], 2 if values.ndim == 1 else values.shape[1]
    if y.shape not in ((n,), (n, K)):
        raise ValueError(
            f"y must have one entry for each row of {judged.name}: integer labels ({n},) or float responsibilities "
            f"({n}, {K}), a column a class; found shape {y.shape}. Give the y of the same rows."
        )
    return _judge(measure, judged, inputs.check_labels(values, y, K, sample_weight), values, *extra)


def _judge(measure: Callable[..., Any], judged: Judged, labels: Labels, values: AnyArray, *extra: Any) -> Any:
    """The measure of labels and values; an error, or NaN under a trace, where a row that is present is not usable."""
    result, usable = _program(measure, judged, labels, values, *extra)
    if not is_traced(usable) and not np.asarray(usable).all():
        row = int(np.argmin(usable))
        found = f"{np.asarray(primal(values[row]))} in row {row}"
        if labels.num_classes >= inputs.ANY_CLASSES:
            raise ValueError(f"{judged.name} must hold labels of 0 or more, in every row; found {found}.")
        raise ValueError(
            f"{judged.name} must hold {judged.expected}, in every row; found {found} (K = {labels.num_classes}). "
            f"{judged.remedy}"
        )
    return result


@partial(jax.jit, static_argnums=(0, 1))
def _program(
    measure: Callable[..., Any], judged: Judged, labels: Labels, values: Any, *extra: Any
) -> tuple[Any, Bool[Array, " n"]]:
    floats = [leaf.dtype for leaf in jax.tree.leaves((labels, values)) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    dtype = working_dtype(max(floats, key=lambda each: each.itemsize, default=np.dtype(int)))
    labels = labels.prepare(dtype)
    values, usable = judged.prepare(values, labels.num_classes, dtype)
    absent = labels.row_weight == 0
    blank = absent & ~usable  # such rows are dropped: no derivative reaches their weight
    values = jnp.where(blank.reshape(-1, *(1,) * (values.ndim - 1)), 0, values)
    result = measure(labels.drop(blank), values, *extra)
    valid = rows_are_valid(labels) & jnp.all(usable | absent)
    return jax.tree.map(lambda leaf: jnp.where(valid, leaf.astype(dtype), jnp.nan), result), usable | absent


def _sum_by(index: Int[Array, " n"], values: Num[Array, "n ..."], count: int) -> Num[Array, "count ..."]:
    """Sums of the values of each index in [0, count), in pieces that are then added up; others are dropped."""
    size = max(_PIECE, count)
    table = jnp.zeros((-(-index.shape[0] // size), count, *values.shape[1:]), values.dtype)
    piece = jnp.arange(index.shape[0]) // size
    return jnp.sum(table.at[piece, index].add(values, mode="drop"), axis=0, dtype=values.dtype)


def _row_count(labels: HardLabels) -> Num[Array, " n"]:
    """A weight for each row: an integer where it counts them, 0 for one that is absent."""
    if labels.weight is not None:
        return labels.row_weight
    return (jnp.asarray(labels.index) < labels.num_classes).astype(jnp.int32)


def _of_own_class(labels: Labels, values: Float[Array, "n classes"]) -> tuple[Array, Array]:
    """Responsibilities that are not known to be zero, and the values beside them: one a row for hard labels."""
    if isinstance(labels, HardLabels):
        own = jnp.asarray(labels.index)[:, None]
        return labels.row_weight[:, None], jnp.take_along_axis(values, own, axis=1, mode="clip")
    return labels.dense(), values


def accuracy(labels: HardLabels, predicted: Int[Array, " n"]) -> Float[Array, ""]:
    """The weight of the rows whose labels are equal, by that of all."""
    weight = _row_count(labels)
    right = jnp.where(labels.index == predicted, weight, 0)
    right, whole = (jnp.sum(each, dtype=weight.dtype).astype(labels.dtype) for each in (right, weight))
    return right / whole


def confusion(labels: HardLabels, predicted: Int[Array, " n"]) -> Num[Array, "classes classes"]:
    """The weight of the rows of each true class, a row, that were predicted as each class, a column."""
    K = labels.num_classes
    if K > _MOST_CLASSES:
        raise ValueError(
            f"num_classes must be at most {_MOST_CLASSES} for a confusion matrix, a number for each pair of classes; "
            f"found {K}. precision, recall and f1 take as many as there are."
        )
    cell = jnp.asarray(labels.index) * K + predicted  # a label of no class, K or more, is beyond the last cell
    return _sum_by(cell, _row_count(labels), K * K).reshape(K, K)


def f_measures(labels: HardLabels, predicted: Int[Array, " n"], alpha: Any) -> tuple[Array, ...]:
    """1 / (α/precision + (1 − α)/recall), in the order of the averages (van Rijsbergen 1979, chapter 7, F = 1 − E)."""
    K, index, nowhere = labels.num_classes, jnp.asarray(labels.index), 3 * labels.num_classes
    right, there = jnp.where(index == predicted, index, nowhere), jnp.where(index < K, 2 * K + index, nowhere)
    sums = _sum_by(jnp.concatenate([right, K + predicted, there]), jnp.tile(_row_count(labels), 3), 3 * K)
    right, found, there = sums.astype(labels.dtype).reshape(3, K)
    possible = alpha * found + (1 - alpha) * there
    measure = safe_divide(right, possible)
    micro = safe_divide(jnp.sum(right), jnp.sum(possible))
    return measure, jnp.mean(measure), micro, safe_divide(jnp.sum(there * measure), jnp.sum(there))


def log_loss(labels: Labels, log_posterior: Float[Array, "n classes"]) -> Float[Array, ""]:
    """The mean of −Σ_k r_ik log p_ik; +inf where what happened was called impossible."""
    r, log_posterior = _of_own_class(labels, log_posterior)
    happened = jnp.any((r > 0) & jnp.isneginf(log_posterior))
    return jnp.where(happened, jnp.inf, jnp.sum(r * -drop_impossible(log_posterior)) / jnp.sum(r))


def brier(labels: Labels, log_posterior: Float[Array, "n classes"]) -> Float[Array, ""]:
    """The mean of Σ_k (p_ik − [y_i = k])², each term of which is one of two, as a row is of class k or is not."""
    r = labels.dense()
    weight = jnp.sum(r, axis=1, keepdims=True)
    squares = r * jnp.expm1(log_posterior) ** 2 + (weight - r) * jnp.exp(log_posterior) ** 2
    return jnp.sum(squares) / jnp.sum(weight) / (2 if r.shape[1] == 2 else 1)


def _bins(labels: Labels, log_posterior: Float[Array, "n classes"], edges: Array) -> Float[Array, "3 bins"]:
    """The weight in each bin: that of rows that were right, the whole times the confidence, and the whole."""
    r, confidence = labels.dense(), jnp.exp(jnp.max(log_posterior, axis=1))
    right = jnp.take_along_axis(r, jnp.argmax(log_posterior, axis=1, keepdims=True), axis=1)[:, 0]
    weight, index = jnp.sum(r, axis=1), jnp.searchsorted(edges.astype(r.dtype), confidence)
    return _sum_by(index, jnp.stack([right, weight * confidence, weight], axis=1), edges.size + 1).T


def reliability(labels: Labels, log_posterior: Float[Array, "n classes"], edges: Array) -> tuple[Array, Array, Array]:
    """The mean confidence, the accuracy and the weight of each bin."""
    right, confidence, weight = _bins(labels, log_posterior, edges)
    return safe_divide(confidence, weight, jnp.nan), safe_divide(right, weight, jnp.nan), weight


def calibration_error(labels: Labels, log_posterior: Float[Array, "n classes"], edges: Array) -> Float[Array, ""]:
    """The mean over rows of |accuracy − confidence| of their bins."""
    right, confidence, weight = _bins(labels, log_posterior, edges)
    return jnp.sum(jnp.abs(right - confidence)) / jnp.sum(weight)


def area(labels: Labels, score: Float[Array, "n curves"]) -> Float[Array, ""]:
    """The mean area under the curves by the trapezoidal rule, whose corners are the last rows of tied scores."""
    r = labels.dense()
    mine = r[:, -score.shape[1] :]
    score, mine, rest = lax.sort((score, mine, jnp.sum(r, axis=1, keepdims=True) - mine), dimension=0, num_keys=1)
    last = jnp.pad(score[1:] != score[:-1], ((0, 1), (0, 0)), constant_values=True)

    rows_to_corner = lax.cummax(jnp.where(last, 1 + jnp.arange(len(last), dtype=jnp.int32)[:, None], 0), axis=0)

    def corners(weight: Array) -> Array:
        weight = jnp.pad(jnp.cumsum(weight, axis=0), ((1, 0), (0, 0)))
        return jnp.pad(jnp.take_along_axis(weight, rows_to_corner, axis=0), ((1, 0), (0, 0)))

    mine, rest = corners(mine), corners(rest)
    mine, rest = (safe_divide(each, each[-1:], jnp.nan) for each in (mine, rest))  # products of weights may underflow
    return jnp.mean(jnp.sum((mine[1:] - mine[:-1]) * (rest[1:] + rest[:-1]) / 2, axis=0))
