"""Cases of `throughput` for cross-validation."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import PredefinedSplit, cross_val_score
from sklearn.naive_bayes import GaussianNB

import jaxgen as jg
from benchmarks.logistic_jobs import CLASSES, rows
from benchmarks.peers import SKLEARN
from benchmarks.workloads import Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDS = 10
LOOP = "ten fits"  # of jaxgen, each to the rows of nine folds, and their scores of the tenth


def cross_validation(sizes: Sizes, *, estimator: Any, peer: Callable[[], Any]) -> Job:
    """Ten folds, by accuracy; the answers agree if every fold's does. Each side is given the fold of each row."""
    n, d = sizes.rows // 2, sizes.features // 2
    x, y = rows(n, d)
    fold = np.arange(n) % FOLDS

    def ours() -> Any:
        return jg.cross_validate(estimator, x, y, folds=fold, num_classes=CLASSES)

    def left_out(f: int) -> Any:
        rest, mine = fold != f, fold == f
        c = jg.fit(estimator, x[rest], y[rest], num_classes=CLASSES)
        return np.mean(jg.predict(c, x[mine]) == y[mine])

    return Job(
        sizes={"rows": n, "features": d, "classes": CLASSES, "folds": FOLDS},
        ours=ours,
        others={
            SKLEARN: lambda: cross_val_score(peer(), x, y, cv=PredefinedSplit(fold)),
            LOOP: lambda: [left_out(f) for f in range(FOLDS)],
        },
        difference=lambda ours, theirs: float(np.max(np.abs(np.asarray(ours.accuracy) - theirs))),
        read=x.nbytes + y.nbytes,
        flops=4 * x.size + 4 * x.size * CLASSES,  # moments and scores of each row once
    )


CASES = [
    (
        "10-fold cross-validation, Gaussian NB",
        30.0,
        1e-3,
        partial(cross_validation, estimator=jg.GaussianNB(), peer=GaussianNB),
    ),
    (
        "10-fold cross-validation, LDA",
        30.0,
        1e-3,
        partial(cross_validation, estimator=jg.LDA(), peer=partial(LinearDiscriminantAnalysis, solver="lsqr")),
    ),
]
