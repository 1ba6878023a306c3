"""Complement naive Bayes: how little a document looks like all other classes.

It scores, and is no joint likelihood: there is no p(x | y) behind it, no evidence and nothing to sample.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, domains
from jaxgen.counts import CountingEstimator, Counts
from jaxgen.linear import LinearClassifier
from jaxgen.numerics import matmul, safe_divide, safe_log
from jaxgen.pytree import pytree
from jaxgen.statistics import raise_for_nan
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.domains import Domain


@pytree
@dataclass(frozen=True)
class ComplementNB(CountingEstimator[Any]):
    """Complement naive Bayes (Rennie, Shih, Teevan & Karger 2003, equation 6), without their normalisation of weights.

        score_k(x) = −Σ_j x_j log θ̃_kj,    θ̃_kj = (Ñ_kj + alpha) / (Σ_l Ñ_kl + d·alpha),    Ñ_kj = Σ_(l≠k) N_lj

    A class with few documents is judged by the many of the others. What it fits is a `LinearClassifier`: its
    `log_posterior` is the softmax of the scores, and verbs that need p(x | y) refuse it. The class prior plays no part,
    but a class without data is impossible.

    Attributes:
        alpha: pseudo-count of each word, one number or one for each (d,); with 0, a word that occurs in one class alone
            is an error.
        prior_alpha: plays no part.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> counts = np.array([[3, 1, 0], [2, 0, 0], [0, 0, 4]])  # buy, now, meeting
        >>> c = jg.fit(jg.ComplementNB(), counts, np.array([1, 1, 0]))
        >>> print(np.exp(-c.weights.T).round(3))  # (5 + 1, 1 + 1, 0 + 1)/9, (0 + 1, 0 + 1, 4 + 1)/7
        [[0.667 0.222 0.111]
         [0.143 0.143 0.714]]
    """

    binary = False
    classes_are_apart = False
    scores_shares = True
    alpha: Array | float = dataclasses.field(default=1.0, metadata={"table": True})

    @property
    def domain(self) -> Domain:
        """Counts."""
        return domains.COUNTS

    @property
    def takes_missing(self) -> bool:
        """The total of the words is unknown where one is."""
        return False

    def check_density(self) -> NoReturn:
        """Raise: there is none."""
        raise TypeError(
            "estimator must be one with a density p(x | y); found ComplementNB, which has scores alone. Use "
            "MultinomialNB."
        )

    def density(self, statistics: Counts) -> NoReturn:
        """There is none.

        Raises:
            TypeError: always.
        """
        self.check_density()

    def estimate(self, statistics: Counts) -> LinearClassifier:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The classifier of these statistics; see `jaxgen.estimate`."""
        self.check_statistics(statistics)
        classifier = _weights_program(arguments.as_floats(self), statistics)
        if not is_traced(classifier) and not np.isfinite(classifier.weights).all():
            raise_for_nan(statistics)
            raise ValueError(
                "ComplementNB has no finite weight for a word that occurs in one class alone. Smooth with alpha > 0."
            )
        return classifier


@jax.jit
def _weights_program(estimator: ComplementNB, statistics: Counts) -> LinearClassifier:
    count, weight = statistics.count, statistics.class_weight.value
    k, d = count.shape
    # The others are added up; the whole less one's own would lose the digits of a class that has nearly all.
    pseudo = matmul(1 - jnp.eye(k, dtype=count.dtype), count) + estimator.pseudo_count("alpha", count[:1])
    probability = safe_divide(pseudo, jnp.sum(pseudo, axis=-1, keepdims=True), 1 / d)
    poison = jnp.where(jnp.any(jnp.isnan(weight)), jnp.nan, jnp.zeros_like(weight, shape=()))
    # A class that did not occur is impossible, unless none did: then all are alike, as in the other families.
    possible = (weight > 0) | ~jnp.any(weight > 0)
    return LinearClassifier(poison - safe_log(probability).T, jnp.where(possible, poison, -jnp.inf))
