"""Bernoulli naive Bayes: which words a document contains.

x_j | y = k ~ Bernoulli(φ_kj), independently
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxgen import arguments, domains, draws
from jaxgen.affine import Affine, AffineDensity, PreparedDensity
from jaxgen.compressed import CompressedRows
from jaxgen.counts import CountingEstimator, Counts, log_of_events
from jaxgen.missing import PartialRows
from jaxgen.numerics import log_fraction
from jaxgen.pytree import STATIC, pytree
from jaxgen.rising import log_dirichlet_evidence
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Hashable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.domains import Domain


# Statistics of presence do not show a value that was not finite.
_ANY_NUMBER = dataclasses.replace(domains.FINITE, shows=False, adds=False)


@pytree
@dataclass(frozen=True)
class Bernoulli(AffineDensity):
    """Independent yes-or-no features.

        log p(x | k) = Σ_j x_j log φ_kj + (1 − x_j) log(1 − φ_kj)

    (McCallum & Nigam 1998, A comparison of event models for naive Bayes text classification.)

    Attributes:
        log_present: log φ, (K, d).
        log_absent: log(1 − φ), (K, d); kept apart, since log(1 − exp(log φ)) has no digits where φ is near 1 or 0.
        binarize: x > binarize is what counts as present; None for x that is 0 or 1 already.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Bernoulli(jnp.log(jnp.array([[0.25, 0.5]])), jnp.log(jnp.array([[0.75, 0.5]])))
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.array([[0.0, 1.0]])))[0, 0]:.3f}")  # 3/4 · 1/2
        0.375
    """

    log_present: Float[Array, "classes d"]
    log_absent: Float[Array, "classes d"]
    binarize: float | None = dataclasses.field(default=None, metadata=STATIC)

    log_probabilities = ("log_present", "log_absent")

    def check_structure(self) -> None:
        """Raise for a threshold that is no number."""
        _check_threshold("Bernoulli", self.binarize)

    @property
    def domain(self) -> Domain:
        """0 or 1, or any number that is binarised."""
        return _domain(self.binarize)

    @property
    def num_features(self) -> int:
        """d."""
        return self.log_present.shape[-1]

    def prepared(self, *, likelihood: bool) -> PreparedDensity:
        """The same density, ready for many rows: for their log likelihoods, or for their scores."""
        affine = Affine.of(self.log_present, self.log_absent, likelihood=likelihood)
        return PreparedDensity(affine, self.domain, partial(_binarize, threshold=self.binarize))

    @property
    def mean(self) -> Float[Array, "classes d"]:
        """φ: that of x where it is presence itself."""
        return jnp.exp(self.log_present)

    def why_not_filled_in(self, *, drawn: bool) -> str | None:
        """Why a missing feature has neither a mean nor a draw, where it was binarised."""
        del drawn
        if self.binarize is None:
            return None
        return f"what x was before binarize={self.binarize} is not known. Fit x > {self.binarize} instead."

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        if self.binarize is not None:
            raise TypeError(
                f"what x was before binarize={self.binarize} has no density to sample; fit BernoulliNB to x > "
                f"{self.binarize} instead."
            )
        return draws.events(key, self.log_present[y], self.log_absent[y]).astype(self.log_present.dtype)

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """The log odds of each word, and the log likelihood of the empty document."""
        if self.binarize is not None:
            return None
        return (self.log_present - self.log_absent).T, jnp.sum(self.log_absent, axis=-1)


@pytree
@dataclass(frozen=True)
class BernoulliNB(CountingEstimator[Bernoulli]):
    """Bernoulli naive Bayes with additive smoothing.

        φ_kj = (N_kj + alpha) / (N_k + alpha + beta)

    where N_kj counts the rows of class k that contain word j (COMP 5212, lecture 7; CS229 notes, section 4.2.1): the
    posterior mean under Beta(alpha, beta). A class without data or prior has φ = ½, the limit alpha → 0⁺.

    Attributes:
        alpha: pseudo-count of presence: one number, one for each feature (d,), or what broadcasts to (K, d). 1 is
            Laplace's rule, 0 the exact maximum likelihood estimate, under which an event that was never seen is
            impossible (−inf).
        binarize: count x > binarize as present; None requires x to be 0 or 1. For sparse rows 0 or more.
        beta: pseudo-count of absence, as alpha; None for alpha.
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> words = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]])  # buy, now, meeting
        >>> c = jg.fit(jg.BernoulliNB(), words, np.array([1, 1, 0]))
        >>> jg.predict(c, np.array([[0, 1, 0], [0, 0, 1]])).tolist()
        [1, 0]
    """

    binary = True
    alpha: Array | float = dataclasses.field(default=1.0, metadata={"table": True})
    binarize: float | None = dataclasses.field(default=None, metadata=STATIC)
    beta: Array | float | None = dataclasses.field(default=None, metadata={"table": True})

    def __post_init__(self) -> None:
        """Take a threshold of NumPy for Python's."""
        object.__setattr__(self, "binarize", arguments.plain(self.binarize))

    @property
    def domain(self) -> Domain:
        """0 or 1, or any number that is binarised."""
        return _domain(self.binarize)

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        super().check()
        _check_threshold("BernoulliNB", self.binarize)

    @property
    def counted(self) -> Hashable:
        """The threshold."""
        return self.binarize

    def encode(self, x: Any) -> Any:
        """Presence."""
        return _binarize(x, threshold=self.binarize)

    def of_features(self, statistics: Counts, num_features: int) -> Bernoulli:
        """Smoothed frequencies; both outcomes come from counts."""
        (present, absent), (alpha, beta) = self._counted(statistics), self._pseudo_counts(statistics.count)
        rows = statistics.weight.value + (alpha + beta)
        present, absent = present + alpha, absent + beta
        log_present, log_absent = log_fraction(present, absent, rows), log_fraction(absent, present, rows)
        return Bernoulli(log_present, log_absent, self.binarize)

    def log_parameter_prior(self, density: Bernoulli) -> Float[Array, ""]:
        """Of Beta(alpha, beta), as a density of the log odds."""
        alpha, beta = self._pseudo_counts(density.log_present)
        return log_of_events(alpha, density.log_present) + log_of_events(beta, density.log_absent)

    def predictive(self, statistics: Counts) -> Bernoulli:
        """The density, whose φ are posterior means: a Bernoulli is linear in φ."""
        return self.density(statistics)

    def log_marginal_likelihood(self, statistics: Counts) -> Float[Array, ""]:
        """log Π_kj B(N_kj + alpha, N_k − N_kj + beta) / B(alpha, beta), in nats."""
        counts, pseudo_counts = self._counted(statistics), self._pseudo_counts(statistics.count)
        pseudo_counts = (jnp.broadcast_to(each, counts[0].shape) for each in pseudo_counts)
        counts, pseudo_counts = (jnp.stack([*both], axis=-1) for both in (counts, pseudo_counts))
        return jnp.sum(log_dirichlet_evidence(pseudo_counts, counts))

    def _counted(self, statistics: Counts) -> tuple[Array, Array]:
        """How often each feature was present and absent."""
        return statistics.count, statistics.weight.subtract(statistics.feature_sum).value

    def _pseudo_counts(self, like: Float[Array, "classes d"]) -> tuple[Array, Array]:
        """Those of both."""
        alpha = self.pseudo_count("alpha", like)
        return alpha, alpha if self.beta is None else self.pseudo_count("beta", like)


def _check_threshold(owner: str, binarize: Any) -> None:
    """Raise for a threshold that is no number."""
    is_number = isinstance(binarize, (int, float)) and not isinstance(binarize, bool)
    if binarize is not None and not (is_number and abs(binarize) < math.inf):
        raise TypeError(f"{owner}.binarize must be None or a finite Python number; found {binarize!r}.")


def _domain(binarize: float | None) -> Domain:
    return domains.BINARY if binarize is None else _ANY_NUMBER


def _binarize(x: Any, *, threshold: float | None) -> Any:
    if threshold is None:
        return x
    if isinstance(x, (SparseRows, CompressedRows, PartialRows)):
        if threshold < 0 and not isinstance(x, PartialRows):
            raise ValueError(
                "BernoulliNB.binarize must be 0 or more for sparse rows, whose zeros are absent words; found "
                f"{threshold}. Raise it, or give dense rows."
            )
        return x.map(lambda values: (values > float(threshold)).astype(values.dtype))
    return (x > float(threshold)).astype(x.dtype)
