"""Many fits on random subsets of one table in batched programs: what learning curves are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxgen as jg

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from benchmarks.tables import Table

HELD_OUT = 0.3
MOST_TESTED = 2_000  # rows that are held out, at most: of more the error is no better known
BINS = 10
# Splits that are judged at a time, at most, and elements of their scores and of the rows that are gathered at a time:
# their memory is used again. Of small tables 50 splits at a time take half as long again as 250.
_CHUNK, _SCORED, _GATHERED = 250, 2**22, 2**20
# Parameters of logistic regression, of each feature one for each class but the first, of which fewer take as long.
_FEW = 32


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
    """

    name: str
    estimator: Any


class Call(NamedTuple):
    """A program and what it is called with."""

    program: Any
    arguments: tuple[Any, ...]
    num_classes: int

    @property
    def key(self) -> Any:
        """Calls of one key share a compiled program."""
        leaves, tree = jax.tree.flatten(self.arguments)
        return self.program, tree, self.num_classes, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)


@dataclass(frozen=True)
class Task:
    """A model, fitted on a sample of m rows of every split.

    Attributes:
        model: which.
        table: of the rows.
        splits: of them.
        m: rows of the sample.
        padded: rows that it is filled up to; tasks of one size share a program.
    """

    model: Model
    table: Table
    splits: Splits
    m: int
    padded: int

    def chunks(self) -> list[np.ndarray]:
        """The splits in chunks of one size; the last one begins again with the first."""
        count = len(self.splits.orders)
        most = max(1, min(_CHUNK, _SCORED // (len(self.table.x) * self.table.num_classes)))
        most = most - most % 10 or most  # which has divisors, for the parts
        size = min(count, most) if jax.default_backend() == "cpu" else count
        return [np.arange(first, first + size) % count for first in range(0, count, size)]

    def parts(self, chunk: np.ndarray) -> list[np.ndarray]:
        """A chunk in equal parts whose rows are gathered at a time."""
        most = max(1, _GATHERED // (self.padded * self._columns)) if jax.default_backend() == "cpu" else len(chunk)
        return np.split(chunk, len(chunk) // _divisor(len(chunk), most))

    def nowhere(self) -> jg.LinearClassifier:
        """Where the fits of all splits start if nothing better is known."""
        zeros: Any = partial(np.zeros, dtype=np.float32)
        count, k = len(self.splits.orders), self.table.num_classes
        return jg.LinearClassifier(zeros((count, self._columns, k)), zeros((count, k)))

    def fit(self, part: np.ndarray, start: jg.LinearClassifier) -> Call:
        """How the classifiers of a part are made; `start` is that of all splits."""
        first = self.splits.held_out
        rows, weight = _pad(self.splits.orders[part, first : first + self.m], self.padded)
        is_real = np.arange(self._columns) < self.table.x.shape[1]
        begin = jax.tree.map(lambda leaf: leaf[part], start)
        x = np.pad(self.table.x, [(0, 0), (0, self._columns - self.table.x.shape[1])])
        sample = np.take(x, rows, axis=0)  # in a third of the time of x[rows]
        arguments = self.model.estimator, begin, sample, self.table.y[rows], weight, is_real
        return Call(_fit, arguments, self.table.num_classes)

    def score(self, chunk: np.ndarray, classifiers: jg.LinearClassifier) -> Call:
        """How the held-out rows of a chunk get their scores: one product of the table with all classifiers."""
        rows, _ = self._tested(chunk)
        return Call(_score, (classifiers, self.table.x, rows), self.table.num_classes)

    def judge(self, chunk: np.ndarray, scores: Any) -> Call:
        """How the scores of a chunk are judged."""
        rows, weight = self._tested(chunk)
        return Call(_judge, (scores, self.table.y[rows], weight), self.table.num_classes)

    def _tested(self, chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held_out = self.splits.held_out
        return _pad(self.splits.orders[chunk, :held_out], _padded(held_out, 64, 1.5))

    @property
    def key(self) -> Any:
        """Tasks of one key share all compiled programs."""
        leaves, tree = jax.tree.flatten(self.model.estimator)
        shape = self.table.x.shape, self.table.num_classes, len(self.splits.orders), self.splits.held_out
        return tree, tuple(jnp.result_type(leaf) for leaf in leaves), shape, self.padded

    @property
    def _columns(self) -> int:
        """Features that a sample is padded to, so that tables share programs: with the bias a power of two."""
        least = max(8, _FEW >> (self.table.num_classes - 2).bit_length())
        return _padded(self.table.x.shape[1] + 1, least) - 1


def _pad(rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each split, (S, length), and their weights, (length,): 0 for what is padding."""
    weight = np.arange(length) < rows.shape[1]
    return np.pad(rows, [(0, 0), (0, length - rows.shape[1])]), weight.astype(np.float32)


def _padded(size: int, first: int, growth: float = 2) -> int:
    """What a size is padded to: a few programs then serve all."""
    while first < size:
        first = round(first * growth)
    return first


def _divisor(count: int, most: int) -> int:
    """The largest divisor up to `most`."""
    return max(size for size in range(1, min(most, count) + 1) if count % size == 0)


@partial(jax.jit, static_argnames="num_classes")
def _fit(
    estimator: Any, start: jg.LinearClassifier, x: Array, y: Array, weight: Array, is_real: Array, *, num_classes: int
) -> jg.LinearClassifier:
    """The linear forms of fits on the rows of each split, (S, rows, d), of which some rows and columns are padding."""

    def fit(split: tuple[jg.LinearClassifier, Array, Array]) -> jg.LinearClassifier:
        begin, *rows = split
        kind = {"num_classes": num_classes, "sample_weight": weight}
        if isinstance(estimator, jg.LogisticRegression):
            return jg.train(estimator, *rows, **kind, start=begin)[0]
        c = jg.fit(estimator, *rows, **kind)
        if isinstance(estimator, jg.BernoulliNB):  # to which a word that never occurs says something
            density = jax.tree.map(lambda log_share: jnp.where(is_real[None], log_share, 0.0), c.density)
            c = c._replace(density=density)
        return jg.to_linear(c)

    return _of_each(fit, (start, x, y))


@partial(jax.jit, static_argnames="num_classes")
def _score(classifiers: jg.LinearClassifier, x: Array, rows: Array, *, num_classes: int) -> Array:
    """Scores of the held-out rows, (S, rows, K)."""
    del num_classes  # the classifiers know it
    weights = classifiers.weights[:, : x.shape[1]]  # those of padded columns are zero
    products = jnp.einsum("nd,sdk->snk", x, weights, precision="highest") + classifiers.bias[:, None]
    return jnp.take_along_axis(products, rows[:, :, None], axis=1)


@partial(jax.jit, static_argnames="num_classes")
def _judge(scores: Array, y: Array, weight: Array, *, num_classes: int) -> Outcome:
    del num_classes

    def judge(split: tuple[Array, Array]) -> Outcome:
        scores, y = split
        log_posterior = jax.nn.log_softmax(scores, axis=1)
        return Outcome(
            jnp.argmax(log_posterior, axis=1).astype(y.dtype) != y,
            jg.metrics.log_loss(y, log_posterior, sample_weight=weight),
            *jg.metrics.reliability(y, log_posterior, num_bins=BINS, sample_weight=weight),
        )

    return _of_each(judge, (scores, y))


def _of_each(function: Callable[[Any], Any], splits: tuple[Any, ...]) -> Any:
    """The function of each split: one after the other by a core, side by side on an accelerator.

    A core is done with a fit when it has converged, not when the slowest of many has. Besides, the programs that
    factorise many matrices at once cannot run on two cores: they wait for each other's threads for ever in jaxlib 0.10.
    """
    return jax.lax.map(function, splits, batch_size=None if jax.default_backend() == "cpu" else len(splits[-1]))
