"""What is compared with what: a table of estimators beside scikit-learn's own. A new case is a line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB

import jaxgen as jg

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.data import Split


MOST_CELLS = 2**26  # that sparse rows are made dense to: a quarter of a gigabyte


def _standardised(train: np.ndarray, other: np.ndarray) -> np.ndarray:
    deviation = train.std(axis=0)
    return (other - train.mean(axis=0)) / np.where(deviation > 0, deviation, np.float32(1))


def _as_it_is(train: Any, other: Any) -> Any:
    return other


def _dense(train: Any, other: Any) -> np.ndarray:
    return other.toarray()


@dataclass(frozen=True)
class Case:
    """An estimator, scikit-learn's counterpart (None where it has none), and the data that both take.

    `prepare(train, x)` puts x into the form that the estimator takes, by what the training rows say.
    """

    name: str
    estimator: Any
    peer: Callable[[], Any] | None
    prepare: Callable[[Any, Any], Any] = _as_it_is
    text: bool = False
    tables: bool = True

    def suits(self, split: Split, *, text: bool) -> bool:
        """Whether the case takes such data."""
        if isinstance(self.estimator, jg.MultinomialNB) and split.train_x.min() < 0:
            return False
        return self.text if text else self.tables

    def is_too_large(self, split: Split) -> bool:
        """Whether sparse data are more than is made dense for a case that takes no others."""
        return self.prepare is _dense and math.prod(split.train_x.shape) > MOST_CELLS


def _lda() -> LinearDiscriminantAnalysis:
    return LinearDiscriminantAnalysis(solver="lsqr")


CASES = [
    Case("LDA", jg.LDA(), _lda),
    Case("QDA", jg.QDA(), QuadraticDiscriminantAnalysis),
    Case("Gaussian NB", jg.GaussianNB(), GaussianNB),
    Case("diagonal LDA", jg.GDA("diagonal", shared=True), None),
    Case("spherical LDA", jg.GDA("spherical", shared=True), None, _standardised),
    Case("spherical QDA", jg.GDA("spherical", shared=False), None, _standardised),
    Case(
        "Bernoulli NB (x > 0)",
        jg.BernoulliNB(binarize=0.0),
        lambda: BernoulliNB(binarize=0.0),
        _standardised,
    ),
    Case("Bernoulli NB", jg.BernoulliNB(binarize=0.0), lambda: BernoulliNB(binarize=0.0), text=True, tables=False),
    Case("multinomial NB", jg.MultinomialNB(), MultinomialNB, text=True),
    Case(
        "logistic regression",
        jg.LogisticRegression(l2=1.0),
        lambda: LogisticRegression(C=1.0, max_iter=10_000),
        _standardised,
    ),
    Case(
        "logistic regression",
        jg.LogisticRegression(l2=1.0),
        lambda: LogisticRegression(C=1.0, max_iter=10_000),
        _dense,
        text=True,
        tables=False,
    ),
]
