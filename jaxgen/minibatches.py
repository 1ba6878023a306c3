"""Logistic regression on data that do not fit: one step of an optax optimiser for each batch of a stream."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, culprits, domains, first_order, inputs
from jaxgen.frame import Frame
from jaxgen.linear import check_start
from jaxgen.logistic import LogisticRegression
from jaxgen.numerics import nonnegative_or_nan, working_dtype
from jaxgen.optimum import Report
from jaxgen.softmax import as_fractions
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax import Array

    from jaxgen.labels import Labels
    from jaxgen.linear import LinearClassifier


def train_batches(
    estimator: LogisticRegression,
    batches: Iterable[tuple[Any, ...]],
    *,
    num_classes: int,
    num_rows: int,
    start: LinearClassifier | None = None,
) -> tuple[LinearClassifier, Report]:
    """Fit logistic regression by one step of its optimiser for each batch.

    The loss of a batch is its mean negative log likelihood and `l2 / num_rows` times half the squared weights: on
    average that of all rows. Features are centred and scaled as those of the first batch, which changes no optimum and
    spares the optimiser their units; one that is constant there is scaled by its size. How close the end is to the
    optimum is a matter of the optimiser: its rate should fall, as optax's schedules do.

    Args:
        estimator: with an `optimizer`, such as `LogisticRegression(optimizer=optax.adam(1e-2))`. Its tolerance and
            max_steps play no part.
        batches: (x, y) or (x, y, sample_weight), as for `fit`; any iterable, of as many epochs as you like. Batches of
            one size share one compiled program.
        num_classes: K.
        num_rows: rows of the whole data, of which an epoch is one pass.
        start: where to start; zero weights without it.

    Returns:
        The classifier, and a report of the last batch: its `converged` is false, since a stream cannot tell.

    Raises:
        ValueError: for no batches, and for shapes, labels, weights or values that are out of range; a bad batch is
            named by its number.
        TypeError: for an estimator without an optimizer, batches that are no iterable of tuples, dtypes as in `train`,
            and l2 or start under a trace.

    Example:
        >>> import numpy as np, optax, jaxgen as jg
        >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
        >>> epochs = ((x[i : i + 2], y[i : i + 2]) for _ in range(50) for i in (0, 1, 2))
        >>> estimator = jg.LogisticRegression(optimizer=optax.adam(0.1))
        >>> c, report = jg.train_batches(estimator, epochs, num_classes=2, num_rows=4)
        >>> jg.predict(c, x).tolist(), int(report.steps)
        ([0, 0, 1, 1], 150)
    """
    if not isinstance(estimator, LogisticRegression) or estimator.optimizer is None:
        raise TypeError(
            "train_batches takes a LogisticRegression with an optimizer, such as "
            f"LogisticRegression(optimizer=optax.adam(1e-2)); found {arguments.brief(estimator)}."
        )
    if is_traced(estimator.l2, start):
        raise TypeError(
            "train_batches takes one batch after the other, outside of traces (jit, vmap, grad); found l2 or "
            "start under one. jaxgen.train takes all rows at once, and has derivatives."
        )
    estimator.check()
    arguments.check_integer("num_classes", num_classes)
    arguments.check_integer("num_rows", num_rows, most=2**63 - 1)
    try:
        stream = enumerate(batches, 1)
    except TypeError:
        raise TypeError(
            f"batches must be a list or another iterable of tuples (x, y) or (x, y, sample_weight); found {batches!r}."
        ) from None
    frame = table = state = norm = None
    number = steps = 0
    for number, batch in stream:
        try:
            rows, labels = _check_batch(batch, num_classes)
            decay = jnp.asarray(estimator.l2).astype(working_dtype(rows.dtype)) / float(num_rows)
            if frame is None:
                if start is not None:
                    check_start(start, rows.shape[1], num_classes)
                first, weighs = _frame_program(rows, labels, decay)
                if not weighs:
                    continue
                frame = first
                table = frame.table(start)
                state = estimator.optimizer.init(table)
            if rows.shape[1] != len(frame.unit):
                raise ValueError(f"x must have {len(frame.unit)} features, as the first batch; found {rows.shape[1]}.")
            step = _step_program(table, state, frame, rows, labels, decay, optimizer=estimator.optimizer)
            if not np.isfinite(step.norm):
                culprits.raise_for_rows(rows, labels, domains.COMPLETE, estimator.optimizer)
            if step.weighs:  # a batch of absent rows is absent
                table, state, norm, steps = step.table, step.state, step.norm, steps + 1
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"batch {number}: {error}") from None
    if frame is None:
        if number:
            culprits.raise_for_no_weight()
        raise ValueError("batches must hold at least one; found none. An iterator that was used up is empty.")
    no = jnp.zeros((), bool)
    report = Report(no, jnp.asarray(steps, jnp.int32), jnp.asarray(norm), no)
    return frame.classifier(table), report


def _check_batch(batch: Any, num_classes: int) -> tuple[Any, Labels]:
    if not isinstance(batch, tuple) or len(batch) not in (2, 3):
        raise TypeError(f"it must be a tuple (x, y) or (x, y, sample_weight); found {type(batch).__name__}.")
    x, y, weight = (*batch, None)[:3]
    rows = inputs.check_rows(x)
    return rows, inputs.check_labels(rows, y, num_classes, weight)


def _arrays(x: Array, labels: Labels) -> tuple[Array, Array, Array]:
    """Rows, their responsibilities as fractions of the whole, and whether they are valid."""
    dtype = working_dtype(x.dtype)
    labels = labels.prepare(dtype)
    x, labels, valid = domains.blank_absent(x.astype(dtype), labels, domains.FINITE, look=True)
    fraction, total, _ = as_fractions(labels)
    return x, fraction, valid & jnp.isfinite(total)


@jax.jit
def _frame_program(x: Array, labels: Labels, decay: Array) -> tuple[Frame, Array]:
    """The frame that a first batch gives, and whether it holds a row that weighs something."""
    rows, fraction, _ = _arrays(x, labels)
    occurs = jnp.ones(fraction.shape[1], bool)  # a class may come later
    frame = Frame.of(rows, fraction, occurs, nonnegative_or_nan(decay, rows.dtype))
    # So may the values of a feature that is constant here, whose size is all that is known of its unit.
    size = jnp.where(frame.center == 0, 1.0, jnp.abs(frame.center)) * math.sqrt(max(len(occurs) - 1, 1)) / len(occurs)
    unit = jnp.where(frame.varies, frame.unit, size)
    return frame._replace(unit=unit, varies=jnp.ones_like(frame.varies)), ~jnp.all(fraction == 0)


class _Step(NamedTuple):
    """What a step leads to.

    Attributes:
        table: of weights.
        state: of the optimiser.
        norm: of the gradient; NaN for a bad batch.
        weighs: whether the batch holds a row that weighs something.
    """

    table: Array
    state: Any
    norm: Array
    weighs: Array


@partial(jax.jit, static_argnames="optimizer")
def _step_program(
    table: Array, state: Any, frame: Frame, x: Array, labels: Labels, decay: Array, *, optimizer: Any
) -> _Step:
    """A step of the optimiser by a batch."""
    import optax

    rows, fraction, valid = _arrays(x, labels)
    problem = frame.problem(rows, fraction, nonnegative_or_nan(decay, rows.dtype))
    value, gradient = jax.value_and_grad(problem.loss)(table)
    following, state = first_order.update(optimizer, problem.loss, table, state, value, gradient)
    norm = jnp.where(valid, optax.tree.norm(gradient), jnp.nan)
    return _Step(following, state, norm, ~jnp.all(fraction == 0))
