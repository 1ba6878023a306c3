"""The pair of the learning curves by a loop of scikit-learn and NumPy: what it takes, and whether it agrees."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB

if TYPE_CHECKING:
    from benchmarks.splits import Task


class Loop(NamedTuple):
    """A loop over the first splits of a task.

    Attributes:
        seconds: of a fit and its test.
        wrong: which held-out rows are misclassified, (splits, rows).
    """

    seconds: float
    wrong: np.ndarray


def run(task: Task, count: int, *, l2: float | None, converged: bool = False) -> Loop:
    """Fit and test on the first `count` splits, one after the other.

    Args:
        task: of the pair.
        count: splits.
        l2: penalty of logistic regression; None for the generative model.
        converged: fit logistic regression to its optimum, in float64, where scikit-learn's defaults stop short of it;
            with its warning, should it not get there.
    """
    options: dict[str, Any] = {"solver": "newton-cholesky", "tol": 1e-8} if converged else {}
    x, y = task.table.x.astype(np.float64) if converged else task.table.x, task.table.y
    wrong = []
    began = time.perf_counter()
    for order in task.splits.orders[:count]:
        test, sample = np.split(order[: task.splits.held_out + task.m], [task.splits.held_out])
        wrong.append(_predict(task.table.kind, l2, x[sample], y[sample], x[test], **options) != y[test])
    return Loop((time.perf_counter() - began) / len(wrong), np.array(wrong))


def _predict(kind: str, l2: float | None, x: np.ndarray, y: np.ndarray, test: np.ndarray, **options: Any) -> np.ndarray:
    if l2 is None:
        return _shared_diagonal(x, y, test) if kind == "continuous" else BernoulliNB().fit(x, y).predict(test)
    if len(np.unique(y)) < 2:  # scikit-learn refuses one class
        return np.full(len(test), y[0])
    with warnings.catch_warnings():
        if not options:
            warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes")  # small samples of many classes
        return LogisticRegression(C=1 / l2, max_iter=1_000, **options).fit(x, y).predict(test)


def _shared_diagonal(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Gaussian classes with one variance for each feature; scikit-learn has none."""
    x, test = x.astype(np.float64), test.astype(np.float64)
    classes, y = np.unique(y, return_inverse=True)
    indicators = np.eye(len(classes), dtype=x.dtype)[y]
    count = indicators.sum(axis=0)
    mean = indicators.T @ x / count[:, None]
    variance = np.square(x - mean[y]).mean(axis=0)
    varies = variance > 0
    # jaxgen's ridge: of a feature's own variance, and of the mean one for a feature that does not vary.
    variance += 1e-6 * np.where(varies, variance, variance[varies].mean() if varies.any() else 1.0)
    weights = mean / variance
    bias = np.log(count) - 0.5 * (mean * weights).sum(axis=1)
    return classes[np.argmax(test @ weights.T + bias, axis=1)]
