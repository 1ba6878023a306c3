"""Many fits on random subsets of one table in batched programs: what learning curves are made of."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxgen as jg
from jaxgen import shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from benchmarks.tables import Table

HELD_OUT = 0.3
MOST_TESTED = 2_000  # rows that are held out, at most: of more the error is no better known
BINS = 10
# Elements of the rows that are fitted side by side: what a core's cache holds.
_CACHED = 2**18
# Splits whose rows are gathered at a time.
_CHUNK = 50


@dataclass(frozen=True)
class Splits:
    """Random orders of the rows: the first are held out, and those after them are a nested sequence of samples.

    Attributes:
        orders: (S, n), a permutation of the rows in each row.
        held_out: how many of each are tested.
    """

    orders: np.ndarray
    held_out: int

    @classmethod
    def of(cls, n: int, count: int, seed: int) -> Splits:
        """So many splits of n rows."""
        rng = np.random.default_rng(seed)
        orders = np.stack([rng.permutation(n).astype(np.int32) for _ in range(count)])
        return cls(orders, max(1, min(round(HELD_OUT * n), MOST_TESTED)))

    @property
    def most(self) -> int:
        """Rows of the largest sample."""
        return self.orders.shape[1] - self.held_out


class Outcome(NamedTuple):
    """What became of each split; every array has a leading axis over the splits.

    Attributes:
        wrong: which held-out rows are misclassified, (S, rows).
        log_loss: their mean −log p(y | x), in nats; ∞ where a class was said to be impossible.
        confidence: mean probability of the predicted class by bins, (S, bins).
        accuracy: share of right predictions by bins, (S, bins).
        weight: rows by bins, (S, bins).
    """

    wrong: Any
    log_loss: Any
    confidence: Any
    accuracy: Any
    weight: Any


@dataclass(frozen=True)
class Model:
    """An estimator in a comparison.

    Attributes:
        name: of the model.
        estimator: of jaxgen, or with a `fit` like theirs.
        pads_columns: whether a constant zero column changes nothing, so that tables can share programs.
        pads_rows: whether a fit is so cheap that all sizes of a table take the largest's program.
    """

    name: str
    estimator: Any
    pads_columns: bool = True
    pads_rows: bool = False


class Task(NamedTuple):
    """A model, fitted on a sample of m rows of every split."""

    model: Model
    table: Table
    splits: Splits
    m: int

    @property
    def rows(self) -> int:
        """Rows that a sample is padded to."""
        return _padded(self.splits.most if self.model.pads_rows else self.m)

    @property
    def padded_x(self) -> np.ndarray:
        """The features, with columns of zeros that tables can share programs by."""
        x = self.table.x
        return np.pad(x, [(0, 0), (0, _padded(x.shape[1], 16, 2) - x.shape[1])])

    def chunks(self) -> list[np.ndarray]:
        """The splits in chunks of one size; the last one begins again with the first."""
        count = len(self.splits.orders)
        size = min(count, _CHUNK) if jax.default_backend() == "cpu" else count
        return [np.arange(first, first + size) % count for first in range(0, count, size)]

    def training(self, chunk: np.ndarray) -> tuple[Any, ...]:
        """The arguments of the program that fits."""
        sample = self.splits.orders[chunk, self.splits.held_out : self.splits.held_out + self.m]
        x = self.padded_x if self.model.pads_columns else self.table.x
        return self.model.estimator, *self._gather(x, sample, self.rows)

    def testing(self, chunk: np.ndarray) -> tuple[Any, ...]:
        """The arguments of the program that judges, but for the classifiers."""
        held_out = self.splits.held_out
        return self._gather(self.padded_x, self.splits.orders[chunk, :held_out], _padded(held_out))

    def _gather(self, x: np.ndarray, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features and labels of rows, (S, length, d) and (S, length), and their weights, 0 for what is padding."""
        weight = np.arange(length) < rows.shape[1]
        rows = np.pad(rows, [(0, 0), (0, length - rows.shape[1])])
        return x[rows], self.table.y[rows], weight.astype(np.float32)


@dataclass(frozen=True)
class Timed:
    """Outcomes of all splits, and the seconds that they took once everything was compiled."""

    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class Programs:
    """The compiled programs, kept by the shapes of their arguments."""

    _compiled: dict[Any, Any] = field(default_factory=dict)

    def prepare(self, tasks: list[Task], advance: Callable[[], None]) -> float:
        """Compile what the tasks need, a program on each core; the seconds that it took."""
        began = time.perf_counter()
        wanted = {}
        for task in tasks:
            chunk, k = task.chunks()[0], task.table.num_classes
            arguments = jax.eval_shape(lambda task=task, chunk=chunk: task.training(chunk))
            wanted[_key(_fit_all, arguments, k)] = _fit_all, arguments, k
            classifiers = jax.eval_shape(partial(_fit_all, num_classes=k), *arguments)
            tests = jax.eval_shape(lambda task=task, chunk=chunk: task.testing(chunk))
            wanted[_key(_judge_all, (classifiers, *tests), k)] = _judge_all, (classifiers, *tests), k

        def compile_one(item: Any) -> Any:
            program, arguments, k = item
            compiled = program.lower(*arguments, num_classes=k).compile()
            advance()
            return compiled

        missing = [key for key in wanted if key not in self._compiled]
        self._compiled.update(zip(missing, shares.over(compile_one, [wanted[key] for key in missing]), strict=True))
        return time.perf_counter() - began

    def run(self, task: Task) -> Timed:
        """Fit and test on every split.

        One program after the other: two at a time, each with a factorisation of many matrices, wait for each other's
        threads for ever in jaxlib 0.10.
        """
        began, parts, k = time.perf_counter(), [], task.table.num_classes
        for chunk in task.chunks():
            training = task.training(chunk)
            classifiers = self._compiled[_key(_fit_all, training, k)](*training)
            testing = classifiers, *task.testing(chunk)
            parts.append(jax.block_until_ready(self._compiled[_key(_judge_all, testing, k)](*testing)))
        count = len(task.splits.orders)
        outcome: Outcome = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)
        outcome = outcome._replace(wrong=outcome.wrong[:, : task.splits.held_out])
        return Timed(outcome, time.perf_counter() - began)


def _key(program: Any, arguments: Any, num_classes: int) -> Any:
    leaves, tree = jax.tree.flatten(arguments)
    return program, tree, num_classes, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


def _padded(size: int, first: int = 128, growth: int = 4) -> int:
    """What a size is padded to: a few programs then serve all."""
    while first < size:
        first *= growth
    return first


def _side_by_side(x: Array) -> int:
    """How many splits of a chunk run side by side: as many as a cache holds, and a divisor of the chunk."""
    most = max(1, _CACHED // x[0].size) if jax.default_backend() == "cpu" else len(x)
    return max(size for size in range(1, min(most, len(x)) + 1) if len(x) % size == 0)


@partial(jax.jit, static_argnames="num_classes")
def _fit_all(estimator: Any, x: Array, y: Array, weight: Array, *, num_classes: int) -> jg.LinearClassifier:
    """The linear forms of all fits, with weights for padded columns: so one program judges every model."""

    def fit(split: tuple[Array, Array]) -> jg.LinearClassifier:
        line = jg.to_linear(jg.fit(estimator, *split, num_classes=num_classes, sample_weight=weight))
        missing = _padded(x.shape[2], 16, 2) - x.shape[2]
        return line._replace(weights=jnp.pad(line.weights, [(0, missing), (0, 0)]))

    return jax.lax.map(fit, (x, y), batch_size=_side_by_side(x))


@partial(jax.jit, static_argnames="num_classes")
def _judge_all(classifiers: Any, x: Array, y: Array, weight: Array, *, num_classes: int) -> Outcome:
    del num_classes  # the classifiers know it

    def judge(split: tuple[Any, Array, Array]) -> Outcome:
        c, x, y = split
        log_posterior = jg.log_posterior(c, x)
        return Outcome(
            jnp.argmax(log_posterior, axis=1).astype(y.dtype) != y,
            jg.metrics.log_loss(y, log_posterior, sample_weight=weight),
            *jg.metrics.reliability(y, log_posterior, num_bins=BINS, sample_weight=weight),
        )

    return jax.lax.map(judge, (classifiers, x, y), batch_size=_side_by_side(x))
