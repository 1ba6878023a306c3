"""What metrics have in common: labels and what stands beside them are checked, prepared, and given to a measure."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, inputs, platform
from jaxgen.labels import HardLabels, rows_are_valid
from jaxgen.numerics import working_dtype
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool

    from jaxgen.arguments import AnyArray
    from jaxgen.labels import Labels

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
    to_widen = f"give {judged.name} a column for each class"
    labels = inputs.check_labels(values, y, K, sample_weight, to_widen=to_widen)
    return _judge(measure, judged, labels, values, *extra)


def _judge(measure: Callable[..., Any], judged: Judged, labels: Labels, values: AnyArray, *extra: Any) -> Any:
    """The measure of labels and values; an error, or NaN under a trace, where a row that is present is not usable."""
    platform.check_places(labels, values)
    held = inputs.in_32_bits(values) if judged is _PREDICTED else values
    result, usable = _program(measure, judged, labels, held, *extra)
    if not is_traced(usable) and not np.asarray(usable).all():
        row = int(np.argmin(usable))
        found = f"{np.asarray(primal(values[row]))} in row {row}"
        if labels.num_classes >= inputs.ANY_CLASSES:
            expected = "of 0 or more" if np.asarray(values)[row] < 0 else f"in [0, {inputs.ANY_CLASSES})"
            raise ValueError(f"{judged.name} must hold labels {expected}, in every row; found {found}.")
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
