"""The cases of `throughput`: what is fitted or scored, from what, and the ratio asked for. A new one is a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB

import jaxgen as jg
from benchmarks import fold_jobs, logistic_jobs, mixture_jobs, process_jobs
from benchmarks.jobs import fit, many_fits, score
from benchmarks.workloads import Data, Job, Sizes, gaussian, images, levels, text


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        name: of the line.
        target: the ratio to scikit-learn that is asked for on a CPU, None where nothing is.
        tolerance: the largest difference of parameters (relative to 1 + their size), or of posterior probabilities.
        prepare: makes the job.
    """

    name: str
    target: float | None
    tolerance: float
    prepare: Callable[[Sizes], Job]


def _lsqr() -> LinearDiscriminantAnalysis:
    return LinearDiscriminantAnalysis(solver="lsqr")


def _twenty(sizes: Sizes) -> Data:
    return text(sizes, 20)


def _two(sizes: Sizes) -> Data:
    return text(sizes, 2)


def _wide(sizes: Sizes) -> Data:
    return text(sizes, 20, many_words=True)


# The plainest algorithm's operations, from the cells that are stored, d and K. A count is one addition; a mean and a
# variance are four operations a cell; a scatter is a product of (d, n) and (n, d); categories are scored by a term for
# each class; a linear score is a product with (d, K), a diagonal Gaussian's two; QDA's score whitens each row by K
# triangular factors.
def _count(cells: int, d: int, k: int) -> int:
    return cells


def _moments(cells: int, d: int, k: int) -> int:
    return 4 * cells


def _scatter(cells: int, d: int, k: int) -> int:
    return 2 * cells * d


def _linear(cells: int, d: int, k: int) -> int:
    return 2 * cells * k


def _terms(cells: int, d: int, k: int) -> int:
    return cells * k


def _squares(cells: int, d: int, k: int) -> int:
    return 4 * cells * k


def _whitening(cells: int, d: int, k: int) -> int:
    return cells * d * k


MULTINOMIAL: dict[str, Any] = {"estimator": jg.MultinomialNB(), "peer": MultinomialNB}
BERNOULLI: dict[str, Any] = {"estimator": jg.BernoulliNB(binarize=0.0), "peer": BernoulliNB}
NAIVE: dict[str, Any] = {"estimator": jg.GaussianNB(), "peer": GaussianNB, "data": gaussian, "normal": "diag"}
CATEGORICAL: dict[str, Any] = {
    "estimator": jg.CategoricalNB(100),
    "peer": partial(CategoricalNB, min_categories=100),
    "data": levels,
}
LDA: dict[str, Any] = {"estimator": jg.LDA(), "peer": _lsqr, "data": gaussian}
QDA: dict[str, Any] = {
    "estimator": jg.QDA(),
    "peer": QuadraticDiscriminantAnalysis,
    "data": gaussian,
    "normal": "full",
}


def _of_words(name: str, family: dict[str, Any]) -> list[Case]:
    """What is asked of a family that counts words."""
    counted, scored = partial(fit, **family, flops=_count), partial(score, **family, flops=_linear)
    return [
        Case(f"{name} fit, CSR, K = 20", 5, 1e-3, partial(counted, data=_twenty)),
        Case(f"{name} fit, CSR, K = 2", 3, 1e-3, partial(counted, data=_two)),
        Case(f"{name} fit, CSR, V = 1e6", 5, 1e-3, partial(counted, data=_wide)),
        Case(f"{name} posterior, CSR", 2.5, 1e-3, partial(scored, data=_twenty)),
        Case(f"{name} posterior, V = 1e6", None, 1e-3, partial(scored, data=_wide)),
        Case(f"{name} posterior, padded once", 4, 1e-3, partial(scored, data=_twenty, form="padded")),
    ]


# Of the tolerances, QDA's are wider because earlier releases of scikit-learn divide a scatter by N_k − 1, not N_k. Of
# a new process, a ratio of 0.8 is 1.25 times scikit-learn's time.
CASES = [
    *_of_words("multinomial", MULTINOMIAL),
    *_of_words("Bernoulli", BERNOULLI),
    Case(
        "multinomial fit, dense uint8", None, 1e-3, partial(fit, **MULTINOMIAL, flops=_count, data=images, known=False)
    ),
    Case("Gaussian NB fit, device arrays", 8, 1e-3, partial(fit, **NAIVE, flops=_moments, form="device")),
    Case("Gaussian NB fit, unaligned NumPy", 5, 1e-3, partial(fit, **NAIVE, flops=_moments, form="unaligned")),
    Case("Gaussian NB posterior", 20, 1e-3, partial(score, **NAIVE, flops=_squares, form="device")),
    Case("categorical fit", None, 1e-3, partial(fit, **CATEGORICAL, flops=_count)),
    Case("categorical posterior", None, 1e-3, partial(score, **CATEGORICAL, flops=_terms)),
    Case("LDA fit", 10, 1e-3, partial(fit, **LDA, flops=_scatter, form="device")),
    Case("LDA posterior", 8, 1e-3, partial(score, **LDA, flops=_linear, form="device")),
    Case("QDA fit", 15, 1e-2, partial(fit, **QDA, flops=_scatter, form="device")),
    Case("QDA posterior", 4, 2e-2, partial(score, **QDA, flops=_whitening, form="device")),
    Case("1,000 Gaussian NB fits in one program", 60, 1e-3, many_fits),
    *(Case(*case) for case in [*logistic_jobs.CASES, *mixture_jobs.CASES, *process_jobs.CASES, *fold_jobs.CASES]),
]
