"""Large tables of counts, whose classifier is made of a few classes at a time, by every core.

Room for a large result comes from the system in pages of 4 KiB, each of which is cleared when it is first written: half
of the time of making it. NumPy asks for large pages, so that it pays to make small results and to copy them there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import platform, shares
from jaxgen.classify import Classifier, log_prior
from jaxgen.total import holds_nan_or_infinity

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.counts import CountingEstimator, Counts

# Cells of a table for which there is no room among what was given back: 32 MiB.
_FEWEST_CELLS = 2**23
# Cells that are estimated at a time. Bernoulli's two tables of 20 × 1,000,000 take 72 to 88 ms as a whole, and 40 to 48
# in pieces of one, two or five classes.
_CELLS = 2**20


def is_large(estimator: CountingEstimator[Any], statistics: Counts) -> bool:
    """Whether it pays to estimate a few classes at a time: concrete tables on a CPU, and the same prior for each."""
    classes, d = statistics.feature_sum.high.shape
    return (
        classes > 1
        and classes * d >= _FEWEST_CELLS
        and platform.platform_of(estimator, statistics) == "cpu"
        and not shares.is_distributed(statistics)
        and all(np.shape(number) in ((), (d,)) for number in jax.tree.leaves(estimator))
    )


def estimate(estimator: CountingEstimator[Any], statistics: Counts) -> tuple[Classifier[Any], bool]:
    """The classifier, and whether any of its leaves is NaN or +∞."""
    classes, d = statistics.feature_sum.high.shape
    places = shares.pieces(classes, min(max(_CELLS // d, 1), classes))

    def some(place: slice) -> tuple[Any, Array]:
        return _density_program(estimator, jax.tree.map(partial(shares.view, place=place), statistics))

    form, _ = jax.eval_shape(lambda: some(places[0]))
    density, bad = shares.gather(some, places, places, classes, form)
    prior, no_prior = _prior_program(statistics.class_weight.value, estimator.prior_alpha)
    return Classifier(prior, density), bad or bool(no_prior)


@jax.jit
def _density_program(estimator: CountingEstimator[Any], statistics: Counts) -> tuple[Any, Array]:
    density = estimator.density(statistics)
    return density, holds_nan_or_infinity(density)


@jax.jit
def _prior_program(class_weight: Array, prior_alpha: Array | float) -> tuple[Array, Array]:
    prior = log_prior(class_weight, prior_alpha)
    return prior, holds_nan_or_infinity(prior)
