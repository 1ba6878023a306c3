"""Metrics of rows that are known to be good: each a sum over labels and values beside them.

Both are prepared and checked (`judging`); what is absent is zero in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.numerics import drop_impossible, safe_divide

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int, Num

    from jaxgen.labels import Labels

# Rows that are summed one after the other: a float32 that is added to 2^24 times stops growing.
_PIECE = 4096
# Of a confusion matrix: its cells are numbered in 32 bits.
_MOST_CLASSES = 46340


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
    return surprise(*_of_own_class(labels, log_posterior))


def surprise(weight: Float[Array, "..."], log_probability: Float[Array, "..."]) -> Float[Array, ""]:
    """The mean of −log p of what happened, by its weight; +inf where it was called impossible."""
    happened = jnp.any((weight > 0) & jnp.isneginf(log_probability))
    return jnp.where(happened, jnp.inf, jnp.sum(weight * -drop_impossible(log_probability)) / jnp.sum(weight))


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
