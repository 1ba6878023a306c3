"""Large tables of counts, whose classifier is made of a few classes at a time, by every core.

Room for a large result comes from the system in pages of 4 KiB, each of which is cleared when it is first written: half
of the time of making it. NumPy asks for large pages, so that it pays to make small results and to copy them there. And
in a class most of a million words never occur: what is made of no count is made once.
"""

from __future__ import annotations

import dataclasses
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import chunks, host_arrays, platform, threads
from jaxgen.classifier import Classifier, log_prior
from jaxgen.total import Total, holds_nan_or_infinity

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Int

    from jaxgen.counts import CountingEstimator, Counts

# Cells of a table for which there is no room among what was given back: 32 MiB.
_FEWEST_CELLS = 2**23
# Cells that are estimated at a time. Bernoulli's two tables of 20 × 1,000,000 take 72 to 88 ms as a whole, and 40 to 48
# in pieces of one, two or five classes.
_CELLS = 2**20
# Share of the features, at most, that a class has where those are estimated by themselves. Of 20 × 1,000,000 an eighth:
# Bernoulli's tables take 50 ms where all in pieces take 90, the multinomial's 39 and 53. And the features, at least: a
# class takes 50 µs, in which 2^17 cells are estimated in pieces.
_FEW = 0.25
_FEWEST_FEATURES = 2**17


def is_large(estimator: CountingEstimator[Any], statistics: Counts) -> bool:
    """Whether it pays to estimate a few classes at a time: concrete tables on a CPU, and the same prior for each."""
    classes, d = statistics.feature_sum.high.shape
    return (
        classes > 1
        and classes * d >= _FEWEST_CELLS
        and platform.platform_of(estimator, statistics) == "cpu"
        and not host_arrays.is_distributed(statistics)
        and all(np.shape(number) in ((), (d,)) for number in jax.tree.leaves(estimator))
    )


def estimate(estimator: CountingEstimator[Any], statistics: Counts) -> tuple[Classifier[Any], bool]:
    """The classifier, and whether any of its leaves is NaN or +∞."""
    found = _occurring(statistics.feature_sum.high) if _are_alike(estimator, statistics) else None
    if found is None:
        density, bad = _in_pieces(estimator, statistics)
    else:
        density, bad = _of_occurring(estimator, statistics, found)
    prior, no_prior = _prior_program(statistics.class_weight.value, estimator.prior_alpha)
    return Classifier(prior, density), bad or bool(no_prior)


def _in_pieces(estimator: CountingEstimator[Any], statistics: Counts) -> tuple[Any, bool]:
    """The density, of a few classes at a time, and whether any of its leaves is NaN or +∞."""
    classes, d = statistics.feature_sum.high.shape
    places = chunks.pieces(classes, min(max(_CELLS // d, 1), classes))

    def some(place: slice) -> tuple[Any, Array]:
        return _density_program(estimator, jax.tree.map(partial(host_arrays.view, place=place), statistics))

    return chunks.gather(some, places, places, classes)


def _are_alike(estimator: CountingEstimator[Any], statistics: Counts) -> bool:
    """Whether the same is made of all features of a class that have no count."""
    numbers = all(np.ndim(number) == 0 for number in jax.tree.leaves(estimator))
    return estimator.features_are_alike and numbers and statistics.feature_weight is None


def _occurring(feature_sum: Array) -> list[Int[np.ndarray, " m"]] | None:
    """The features that each class has; None where some class has more than a few, or there are not many in all."""
    counts = np.asarray(feature_sum)
    if counts.shape[1] < _FEWEST_FEATURES:
        return None
    has_many = threading.Event()

    def of_class(k: int) -> Int[np.ndarray, " m"] | None:
        if has_many.is_set():
            return None
        occurs = counts[k] != 0
        if np.count_nonzero(occurs) < _FEW * len(occurs):
            return np.flatnonzero(occurs)
        has_many.set()
        return None

    found = threads.over(of_class, range(len(counts)))
    return None if has_many.is_set() else found


def _of_occurring(
    estimator: CountingEstimator[Any], statistics: Counts, found: list[Int[np.ndarray, " m"]]
) -> tuple[Any, bool]:
    """The same, by way of the features that each class has, and behind them some that it has not."""
    classes, d = statistics.feature_sum.high.shape
    most = max(map(len, found))
    size = most + 1 + -(most + 1) % 2 ** max(most.bit_length() - 3, 0)  # few programs serve all tables
    limbs = [np.asarray(limb) for limb in (statistics.feature_sum.high, statistics.feature_sum.low)]
    few = [host_arrays.aligned((classes, size), limb.dtype, zero=True) for limb in limbs]

    def take(k: int) -> None:
        for limb, taken in zip(limbs, few, strict=True):
            taken[k, : len(found[k])] = limb[k, found[k]]

    threads.over(take, range(classes))
    compact = dataclasses.replace(statistics, feature_sum=Total(*map(jnp.asarray, few)))
    density, bad = _features_program(estimator, compact, num_features=d)
    result = jax.tree.map(lambda part: host_arrays.aligned((classes, d), part.dtype), density)
    leaves = [*zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (result, density)), strict=True)]

    def put(k: int) -> None:
        for table, part in leaves:
            table[k].fill(part[k, -1])
            table[k, found[k]] = part[k, : len(found[k])]

    threads.over(put, range(classes))
    return jax.device_put(result, host_arrays.placement(statistics)), bool(bad)


@partial(jax.jit, static_argnames="num_features")
def _features_program(estimator: CountingEstimator[Any], statistics: Counts, num_features: int) -> tuple[Any, Array]:
    density = estimator.of_features(statistics, num_features)
    return density, holds_nan_or_infinity(density)


@jax.jit
def _density_program(estimator: CountingEstimator[Any], statistics: Counts) -> tuple[Any, Array]:
    density = estimator.density(statistics)
    return density, holds_nan_or_infinity(density)


@jax.jit
def _prior_program(class_weight: Array, prior_alpha: Array | float) -> tuple[Array, Array]:
    prior = log_prior(class_weight, prior_alpha)
    return prior, holds_nan_or_infinity(prior)
