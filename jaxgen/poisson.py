"""Poisson naive Bayes: how often each event happened.

x_j | y = k ~ Poisson(λ_kj), independently
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp

from jaxgen import count_draws, domains
from jaxgen.affine import Affine, AffineDensity, PreparedDensity
from jaxgen.compound import NegativeBinomial
from jaxgen.counts import CountingEstimator, Counts, log_of_events
from jaxgen.numerics import safe_divide, safe_log
from jaxgen.projections import Coefficient, as_they_are
from jaxgen.pytree import pytree
from jaxgen.rising import log_factorial, log_rising

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.domains import Domain


@pytree
@dataclass(frozen=True)
class Poisson(AffineDensity):
    """Independent numbers of events.

        log p(x | k) = Σ_j x_j log λ_kj − λ_kj − log x_j!

    Attributes:
        log_rate: log λ, (K, d).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Poisson(jnp.log(jnp.array([[2.0]])))
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.array([[3.0]])))[0, 0]:.4f}")  # 2³ / 3! · exp(−2)
        0.1804
    """

    log_rate: Float[Array, "classes d"]

    domain = domains.COUNTS

    @property
    def num_features(self) -> int:
        """d."""
        return self.log_rate.shape[-1]

    def prepared(self, *, likelihood: bool) -> PreparedDensity:
        """The same density, ready for many rows: for their log likelihoods, or for their scores."""
        affine = Affine.of(self.log_rate, at_zero=-jnp.exp(self.log_rate), likelihood=likelihood)
        return PreparedDensity(affine, self.domain, as_they_are, _COEFFICIENT if likelihood else None)

    @property
    def mean(self) -> Float[Array, "classes d"]:
        """λ."""
        return jnp.exp(self.log_rate)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        return count_draws.poisson(key, jnp.exp(self.log_rate)[y])

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """The log rates, and the log likelihood of no event at all."""
        return self.log_rate.T, -jnp.sum(jnp.exp(self.log_rate), axis=-1)


@pytree
@dataclass(frozen=True)
class PoissonNB(CountingEstimator[Poisson]):
    """Poisson naive Bayes with a Gamma prior on the rates.

        λ_kj = (N_kj + alpha) / (N_k + exposure)

    where N_kj counts the events of feature j in the N_k rows of class k: the posterior mean under Gamma(alpha,
    exposure), as if alpha events had been seen in `exposure` rows before (Gelman et al. 2013, section 2.6). A class
    without rows has λ = 1 where `exposure` is 0. Counts may be fractions.

    Attributes:
        alpha: pseudo-events of each feature: one number, one for each (d,), or what broadcasts to (K, d). 0 is the
            exact maximum likelihood estimate with `exposure` 0, under which an event that was never seen is impossible
            (−inf).
        exposure: pseudo-rows in which they were seen, as alpha.
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> calls = np.array([[2, 0], [4, 1], [0, 9], [1, 7]])
        >>> c = jg.fit(jg.PoissonNB(alpha=0.0, exposure=0.0), calls, np.array([0, 0, 1, 1]))
        >>> np.exp(c.density.log_rate).round(4).tolist()
        [[3.0, 0.5], [0.5, 8.0]]
        >>> jg.predict(c, np.array([[3, 0], [0, 5]])).tolist()
        [0, 1]
    """

    binary = False
    alpha: Array | float = dataclasses.field(default=0.1, metadata={"table": True})
    exposure: Array | float = dataclasses.field(default=0.1, metadata={"table": True})

    @property
    def domain(self) -> Domain:
        """Counts."""
        return domains.COUNTS

    def of_features(self, statistics: Counts, num_features: int) -> Poisson:
        """Smoothed rates."""
        events, rows = self._posterior(statistics)
        return Poisson(safe_log(safe_divide(events, rows, 1.0)))

    def log_parameter_prior(self, density: Poisson) -> Float[Array, ""]:
        """Of Gamma(alpha, exposure), as a density of log λ."""
        alpha, exposure = (self.pseudo_count(name, density.log_rate) for name in ("alpha", "exposure"))
        return log_of_events(alpha, density.log_rate) - jnp.sum(exposure * jnp.exp(density.log_rate))

    def predictive(self, statistics: Counts) -> NegativeBinomial:
        """The Poisson averaged over the Gamma posterior of its rate."""
        return NegativeBinomial(*self._posterior(statistics))

    def log_marginal_likelihood(self, statistics: Counts) -> Float[Array, ""]:
        """log Π_kj Γ(a')/Γ(a) · b^a / b'^a', in nats, a and b of prior and posterior; without Σ log x_ij!."""
        count = statistics.count
        alpha, exposure = (self.pseudo_count(name, count) for name in ("alpha", "exposure"))
        _, rows = self._posterior(statistics)
        events = log_rising(alpha, count, rows)
        return jnp.sum(events - alpha * jnp.log1p(statistics.weight.value / exposure))

    def _posterior(self, statistics: Counts) -> tuple[Float[Array, "classes d"], Float[Array, "classes d"]]:
        """Shape and rate of the Gamma posterior of each rate."""
        count = statistics.count
        return count + self.pseudo_count("alpha", count), statistics.weight.value + self.pseudo_count("exposure", count)


# −Σ_j log x_j!
_COEFFICIENT = Coefficient((log_factorial,), lambda log_factorials: -log_factorials)
