"""What is compiled for many splits of a table: fits, scores, and how they are judged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxgen as jg
from jaxgen.estimator import GenerativeEstimator

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

BINS = 10


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


@partial(jax.jit, static_argnames="num_classes")
def fit(
    estimator: Any, known: Any, x: Array, y: Array, weight: Array, is_real: Array, *, num_classes: int
) -> tuple[Any, jg.LinearClassifier]:
    """What is known with the rows of each split, (S, rows, d), and the linear forms of the fits to that.

    Some rows and columns are padding.
    """

    def each(split: tuple[Any, Array, Array]) -> tuple[Any, jg.LinearClassifier]:
        known, *rows = split
        kind = {"num_classes": num_classes, "sample_weight": weight}
        if isinstance(estimator, GenerativeEstimator):
            known = jg.merge(known, estimator.statistics(*rows, **kind))
            c: Any = jg.estimate(estimator, known)
            if isinstance(estimator, jg.BernoulliNB):  # to which a word that never occurs says something
                density = jax.tree.map(lambda log_share: jnp.where(is_real[None], log_share, 0.0), c.density)
                c = c._replace(density=density)
            return known, jg.to_linear(c)
        if isinstance(estimator, jg.LogisticRegression):  # the optimum of the sample before is near
            c = jg.train(estimator, *rows, **kind, start=known)[0]
        else:
            c = jg.fit(estimator, *rows, **kind)
        return c, c

    return _of_each(each, (known, x, y))


@partial(jax.jit, static_argnames="num_classes")
def score(classifiers: jg.LinearClassifier, x: Array, rows: Array, *, num_classes: int) -> Array:
    """Scores of the held-out rows, (S, rows, K)."""
    del num_classes  # the classifiers know it
    weights = classifiers.weights[:, : x.shape[1]]  # those of padded columns are zero
    products = jnp.einsum("nd,sdk->snk", x, weights, precision="highest") + classifiers.bias[:, None]
    return jnp.take_along_axis(products, rows[:, :, None], axis=1)


@partial(jax.jit, static_argnames="num_classes")
def judge(scores: Array, y: Array, weight: Array, *, num_classes: int) -> Outcome:
    """What became of the held-out rows, of which those without weight are padding."""
    del num_classes

    def each(split: tuple[Array, Array]) -> Outcome:
        scores, y = split
        log_posterior = jax.nn.log_softmax(scores, axis=1)
        return Outcome(
            jnp.argmax(log_posterior, axis=1).astype(y.dtype) != y,
            jg.metrics.log_loss(y, log_posterior, sample_weight=weight),
            *jg.metrics.reliability(y, log_posterior, num_bins=BINS, sample_weight=weight),
        )

    return _of_each(each, (scores, y))


def _of_each(function: Callable[[Any], Any], splits: tuple[Any, ...]) -> Any:
    """The function of each split: one after the other by a core, side by side on an accelerator.

    A core is done with a fit when it has converged, not when the slowest of many has. Besides, the programs that
    factorise many matrices at once cannot run on two cores: they wait for each other's threads for ever in jaxlib 0.10.
    """
    return jax.lax.map(function, splits, batch_size=None if jax.default_backend() == "cpu" else len(splits[-1]))
