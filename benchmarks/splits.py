"""Many fits on random subsets of one table in batched programs: what learning curves are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxgen as jg
from benchmarks import split_programs
from jaxgen.estimator import GenerativeEstimator

if TYPE_CHECKING:
    from benchmarks.tables import Table

HELD_OUT = 0.3
MOST_TESTED = 2_000  # rows that are held out, at most: of more the error is no better known
# Splits that are judged at a time, at most, and elements of their scores and of the rows that are gathered at a time:
# their memory is used again. Of small tables 50 splits at a time take half as long again as 250.
_CHUNK, _SCORED, _GATHERED = 250, 2**22, 2**20
# What few tested rows are padded to, or that times a power of the second; and what many are, where padding costs more.
_TESTED, _MANY_TESTED = (60, 3), (540, 1.5)
# Parameters of logistic regression, of each feature one for each class but the first, of which fewer take as long; and
# features of generative models, fewer of which take longer to compile for than they spare.
_FEW_PARAMETERS, _FEW = 32, 64
# From how many on the columns of logistic regression are a multiple of how many.
_MANY_COLUMNS, _MULTIPLE = 64, 16


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
        model: which; one that is not generative has no penalty but the squared length of its weights.
        table: of the rows.
        splits: of them.
        m: rows of the sample.
        padded: rows that it is filled up to; tasks of one size and as many columns share a program. A generative model
            takes the rows that its sample has more than the one before, so many at a time.
        before: rows of the sample before.
    """

    model: Model
    table: Table
    splits: Splits
    m: int
    padded: int
    before: int = 0

    def chunks(self) -> list[np.ndarray]:
        """The splits in chunks of one size; the last one begins again with the first."""
        count = len(self.splits.orders)
        most = max(1, min(_CHUNK, _SCORED // (len(self.table.x) * self.table.num_classes)))
        most = most - most % 10 or most  # which has divisors, for the parts
        size = min(count, most) if jax.default_backend() == "cpu" else count
        return [np.arange(first, first + size) % count for first in range(0, count, size)]

    def parts(self, count: int) -> list[slice]:
        """So many splits in equal parts, whose rows are gathered at a time."""
        most = max(1, _GATHERED // (self.padded * self._columns)) if jax.default_backend() == "cpu" else count
        size = _divisor(count, most)
        return [slice(first, first + size) for first in range(0, count, size)]

    def pieces(self) -> list[slice]:
        """The rows of the sample that are fitted at a time: statistics of new ones are merged with those before."""
        if not self._merges:
            return [slice(0, self.m)]
        return [slice(first, min(first + self.padded, self.m)) for first in range(self.before, self.m, self.padded)]

    def nothing(self, count: int) -> Any:
        """What is known of splits before the first sample: statistics of no rows, or zero weights to start from."""
        k, d = self.table.num_classes, self._columns
        if self._merges:
            known = _statistics(self.model.estimator, k, d, self._table.x.dtype)
        else:
            known = jg.LinearClassifier(jnp.zeros((d, k), np.float32), jnp.zeros(k, np.float32))
        return jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), known)

    def fit(self, part: np.ndarray, piece: slice, known: Any) -> Call:
        """How what is known of a part becomes more by a piece of its rows, and its classifiers."""
        first = self.splits.held_out
        rows = self.splits.orders[part, first + piece.start : first + piece.stop]
        rows, weight = _pad(rows, self.padded)
        is_real = np.arange(self._columns) < self._table.x.shape[1]
        sample = np.take(self._table.widened(self._columns), rows, axis=0)  # in a third of the time of x[rows]
        arguments = self.model.estimator, known, sample, self.table.y[rows], weight, is_real
        return Call(split_programs.fit, arguments, self.table.num_classes)

    def score(self, chunk: np.ndarray, classifiers: jg.LinearClassifier) -> Call:
        """How the held-out rows of a chunk get their scores: one product of the table with all classifiers."""
        rows, _ = self._tested(chunk)
        return Call(split_programs.score, (classifiers, self._table.x, rows), self.table.num_classes)

    def judge(self, chunk: np.ndarray, scores: Any) -> Call:
        """How the scores of a chunk are judged."""
        rows, weight = self._tested(chunk)
        return Call(split_programs.judge, (scores, self.table.y[rows], weight), self.table.num_classes)

    def _tested(self, chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held_out = self.splits.held_out
        few_or_many = _TESTED if held_out <= _MANY_TESTED[0] else _MANY_TESTED
        return _pad(self.splits.orders[chunk, :held_out], _padded(held_out, *few_or_many))

    @property
    def _merges(self) -> bool:
        return isinstance(self.model.estimator, GenerativeEstimator)

    @property
    def _table(self) -> Table:
        """What the model is given of the table: those that are not generative do not feel a turn."""
        return self.table if self._merges else self.table.turned

    @property
    def _columns(self) -> int:
        return _padded(self.table.x.shape[1] + 1, _FEW) - 1 if self._merges else columns(self.table)


def columns(table: Table) -> int:
    """Features that samples of discriminative models are padded to, so that tables share programs.

    With the bias a power of two, as those of generative models; or, of many parameters, a multiple: there Hessians of
    fewer save more than another program takes to compile.
    """
    size = table.turned.x.shape[1] + 1
    if size > _MANY_COLUMNS:
        return -(-size // _MULTIPLE) * _MULTIPLE - 1
    return _padded(size, max(8, _FEW_PARAMETERS >> (table.num_classes - 2).bit_length())) - 1


@cache
def _statistics(estimator: GenerativeEstimator, num_classes: int, columns: int, dtype: np.dtype) -> Any:
    """Their shapes, which take as long to find out as some fits."""
    of_none = partial(estimator.statistics, num_classes=num_classes, sample_weight=np.zeros(1, np.float32))
    return jax.eval_shape(of_none, np.zeros((1, columns), dtype), np.zeros(1, np.int32))


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
