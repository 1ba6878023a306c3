"""Cases of `throughput` for cross-validation."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import LeaveOneOut, PredefinedSplit, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB

import jaxgen as jg
from benchmarks.jobs import num_bytes
from benchmarks.logistic_jobs import CLASSES, rows
from benchmarks.peers import SKLEARN
from benchmarks.workloads import Job, Sizes, text

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDS = 10
LOOP = "ten fits"  # of jaxgen, each to the rows of nine folds, and their scores of the tenth


def _dense(sizes: Sizes) -> tuple[np.ndarray, np.ndarray, int]:
    return *rows(sizes.rows // 2, sizes.features // 2), CLASSES


def _of_words(sizes: Sizes, *, many_words: bool = False) -> tuple[Any, np.ndarray, int]:
    made = text(sizes, 20, many_words=many_words)
    return made.x, made.y, made.num_classes


def cross_validation(
    sizes: Sizes,
    *,
    estimator: Any,
    peer: Callable[[], Any],
    data: Callable[[Sizes], tuple[Any, np.ndarray, int]] = _dense,
    operations: tuple[int, int] = (4, 4),
    stratified: bool = False,
) -> Job:
    """Ten folds, by accuracy; the answers agree if every fold's does.

    Each side is given the fold of each row, dealt out in turn; or `stratified` their number, and deals them out itself.

    `data` makes rows, their labels and the number of classes. Of each cell there are so many operations once, those of
    moments, and for each class, those of two products.
    """
    x, y, classes = data(sizes)
    (n, d), cells = x.shape, getattr(x, "nnz", x.size)
    fold = np.arange(n) % FOLDS
    folds, splitter = (FOLDS, StratifiedKFold(FOLDS)) if stratified else (fold, PredefinedSplit(fold))

    def ours() -> Any:
        return jg.cross_validate(estimator, x, y, folds=folds, num_classes=classes)

    def left_out(rest: np.ndarray, mine: np.ndarray) -> Any:
        c = jg.fit(estimator, x[rest], y[rest], num_classes=classes)
        return np.mean(jg.predict(c, x[mine]) == y[mine])

    def in_a_loop() -> list[Any]:
        masks = ((fold != f, fold == f) for f in range(FOLDS))
        return list(starmap(left_out, splitter.split(x, y) if stratified else masks))

    return Job(
        sizes={"rows": n, "features": d, "classes": classes, "folds": FOLDS},
        ours=ours,
        others={
            SKLEARN: lambda: cross_val_score(peer(), x, y, cv=splitter),
            LOOP: in_a_loop,
        },
        difference=lambda ours, theirs: float(np.max(np.abs(np.asarray(ours.accuracy) - theirs))),
        read=num_bytes(x) + y.nbytes,
        flops=cells * (operations[0] + operations[1] * classes),
    )


def leave_one_out(
    sizes: Sizes,
    *,
    estimator: Any,
    peer: Callable[[], Any],
    num_rows: int,
    data: Callable[[Sizes], tuple[Any, np.ndarray, int]] = _dense,
) -> Job:
    """Every row of so many left out in turn, by accuracy; the answers agree if it does over all rows."""
    x, y, classes = data(sizes)
    x, y = x[:num_rows], y[:num_rows]

    def ours() -> Any:
        return jg.cross_validate(estimator, x, y, folds="leave-one-out", num_classes=classes)

    return Job(
        sizes={"rows": x.shape[0], "features": x.shape[1], "classes": classes},
        ours=ours,
        others={SKLEARN: lambda: cross_val_score(peer(), x, y, cv=LeaveOneOut())},
        difference=lambda ours, theirs: float(abs(np.mean(np.asarray(ours.accuracy)) - np.mean(theirs))),
    )


CASES = [
    (
        "10-fold cross-validation, Gaussian NB",
        30.0,
        1e-3,
        partial(cross_validation, estimator=jg.GaussianNB(), peer=GaussianNB),
    ),
    (
        "10-fold cross-validation, Gaussian NB, folds=10",
        30.0,
        1e-3,
        partial(cross_validation, estimator=jg.GaussianNB(), peer=GaussianNB, stratified=True),
    ),
    (
        "10-fold cross-validation, LDA",
        30.0,
        1e-3,
        partial(cross_validation, estimator=jg.LDA(), peer=partial(LinearDiscriminantAnalysis, solver="lsqr")),
    ),
    (
        "10-fold cross-validation, multinomial, CSR",
        None,
        1e-3,
        partial(cross_validation, estimator=jg.MultinomialNB(), peer=MultinomialNB, data=_of_words, operations=(1, 2)),
    ),
    (
        "10-fold cross-validation, multinomial, V = 1e6",
        None,
        1e-3,
        partial(
            cross_validation,
            estimator=jg.MultinomialNB(),
            peer=MultinomialNB,
            data=partial(_of_words, many_words=True),
            operations=(1, 2),
        ),
    ),
    (
        "leave-one-out of 500 rows, Gaussian NB",
        None,
        1e-3,
        partial(leave_one_out, estimator=jg.GaussianNB(), peer=GaussianNB, num_rows=500),
    ),
    (
        "leave-one-out of 500 rows, LDA",
        None,
        1e-3,
        partial(
            leave_one_out, estimator=jg.LDA(), peer=partial(LinearDiscriminantAnalysis, solver="lsqr"), num_rows=500
        ),
    ),
    (
        "leave-one-out of 100 rows, multinomial, CSR",
        None,
        1e-3,
        partial(leave_one_out, estimator=jg.MultinomialNB(), peer=MultinomialNB, num_rows=100, data=_of_words),
    ),
    (
        "leave-one-out of 100 rows, Bernoulli, CSR",
        None,
        1e-3,
        partial(
            leave_one_out,
            estimator=jg.BernoulliNB(binarize=0.0),
            peer=partial(BernoulliNB, binarize=0.0),
            num_rows=100,
            data=_of_words,
        ),
    ),
    (
        "leave-one-out of 100 rows, complement, CSR",
        None,
        1e-3,
        partial(leave_one_out, estimator=jg.ComplementNB(), peer=ComplementNB, num_rows=100, data=_of_words),
    ),
]
