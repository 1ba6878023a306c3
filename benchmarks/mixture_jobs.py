"""Cases of `throughput` for mixtures of Gaussians: steps of EM from the same start, and draws."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import jaxgen as jg
from benchmarks.peers import SKLEARN, furthest, parameters
from benchmarks.synthetic import gaussian_rows, on_device
from benchmarks.workloads import Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES, STEPS = 10, 10
# Of the labels that the start is fitted to, beside those that guessing hits: from there ten steps do not arrive.
RIGHT = 0.05
# Standard errors that none of a thousand differences of samples goes beyond.
SURPRISING = 6.0
Kind = Literal["diag", "full", "tied"]


def steps(sizes: Sizes, *, estimator: Any, kind: Kind, operations: Callable[[int], int]) -> Job:
    """Ten steps; the answers agree if means and covariances do, and if no run ended before.

    Of each cell of the data there are so many operations a step, by the number of features.
    """
    n, d = sizes.rows // 2, sizes.features // 2
    x, y, _ = gaussian_rows(n, d, CLASSES)
    rng = np.random.default_rng(0)
    rough = np.where(rng.random(n) < RIGHT, y, rng.integers(CLASSES, size=n))
    start = jg.fit(estimator, x, rough, num_classes=CLASSES)
    mean, covariance = parameters(start)
    precision = (1 / covariance if kind == "diag" else np.linalg.inv(covariance)).astype(np.float32)
    device_x = on_device(x)

    def ours() -> tuple[Any, Any]:  # the start's E-step is the first one
        return jg.train_em(estimator, device_x, num_classes=CLASSES, start=start, tolerance=0.0, max_steps=STEPS - 1)

    def theirs() -> GaussianMixture:
        mixture = GaussianMixture(
            CLASSES,
            covariance_type=kind,
            tol=0.0,
            reg_covar=0.0,
            max_iter=STEPS,
            weights_init=np.exp(start.log_prior),
            means_init=mean.astype(np.float32),
            precisions_init=precision[0] if kind == "tied" else precision,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return mixture.fit(x)

    def difference(ours: tuple[Any, Any], theirs: Any) -> float:
        c, report = ours
        stopped_early = int(report.steps) + 1 != STEPS or theirs.n_iter_ != STEPS
        found = furthest(c, theirs)
        return np.inf if stopped_early or found is None else found

    return Job(
        sizes={"rows": n, "features": d, "classes": CLASSES, "steps": STEPS},
        ours=ours,
        others={SKLEARN: theirs},
        difference=difference,
        read=x.nbytes,
        flops=STEPS * x.size * operations(d),
    )


def draws(sizes: Sizes, *, estimator: Any, kind: Kind) -> Job:
    """As many new rows as there are; they agree by the means and variances of each class, in standard errors."""
    n, d = sizes.rows // 2, sizes.features // 2
    x, y, _ = gaussian_rows(n, d, CLASSES)
    c = jg.fit(estimator, x, y, num_classes=CLASSES)
    mixture = GaussianMixture(CLASSES, covariance_type=kind, random_state=0)
    mixture.means_, mixture.covariances_ = parameters(c)
    mixture.weights_ = np.exp(np.asarray(c.log_prior, np.float64))
    mixture.weights_ /= mixture.weights_.sum()

    def moments(drawn: tuple[Any, Any]) -> np.ndarray:
        x, y = (np.asarray(each) for each in drawn)
        each = [x[y == k].astype(np.float64) for k in range(CLASSES)]
        return np.array([[len(mine) + np.zeros(d), mine.mean(axis=0), mine.var(axis=0)] for mine in each])

    def difference(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> float:
        (rows, mean, variance), (others, mean_there, variance_there) = (
            np.moveaxis(moments(drawn), 1, 0) for drawn in (ours, theirs)
        )
        error = np.sqrt(1 / rows + 1 / others)
        by_mean = np.abs(mean - mean_there) / (error * np.sqrt((variance + variance_there) / 2))
        return float(max(by_mean.max(), (np.abs(np.log(variance / variance_there)) / (error * np.sqrt(2))).max()))

    return Job(
        sizes={"rows": n, "features": d, "classes": CLASSES},
        ours=lambda: jg.sample(jax.random.key(0), c, n),
        others={SKLEARN: lambda: mixture.sample(n)},
        difference=difference,
    )


# Of each cell a step takes two products for scores and two for sums, or whitens it and makes a product for a scatter,
# for each class or once.
def _diagonal(d: int) -> int:
    return 8 * CLASSES


def _full(d: int) -> int:
    return 3 * d * CLASSES


def _tied(d: int) -> int:
    return 3 * d + 4 * CLASSES


CASES = [
    (
        "10 EM steps, diagonal mixture",
        None,
        1e-3,
        partial(steps, estimator=jg.GaussianNB(ridge=0.0), kind="diag", operations=_diagonal),
    ),
    (
        "10 EM steps, full mixture",
        None,
        1e-3,
        partial(steps, estimator=jg.QDA(ridge=0.0), kind="full", operations=_full),
    ),
    (
        "10 EM steps, tied mixture",
        None,
        1e-3,
        partial(steps, estimator=jg.LDA(ridge=0.0), kind="tied", operations=_tied),
    ),
    ("samples, diagonal mixture", None, SURPRISING, partial(draws, estimator=jg.GaussianNB(), kind="diag")),
    ("samples, full mixture", None, SURPRISING, partial(draws, estimator=jg.QDA(), kind="full")),
]
