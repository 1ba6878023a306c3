"""Multinomial naive Bayes: how often a document uses each word.

x | y = k, m ~ Multinomial(m, θ_k),    m = Σ_j x_j

Where the counts of some words are missing, so is m. The others are scored given their own total, as the prior 1/m
has it: beside n words, of probability p together, are a negative binomial number, n (1 − p)/p on the average.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import continuous_draws, count_draws, domains, word_draws
from jaxgen.affine import Affine, AffineDensity, PreparedDensity
from jaxgen.compound import DirichletMultinomial
from jaxgen.counts import CountingEstimator, Counts, log_of_events
from jaxgen.numerics import drop_impossible, matmul, safe_divide, safe_log
from jaxgen.poisson import Poisson, PoissonNB
from jaxgen.projections import Coefficient, as_they_are
from jaxgen.pytree import pytree
from jaxgen.rising import log_dirichlet_evidence, log_factorial
from jaxgen.total import Total
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.domains import Domain
    from jaxgen.labels import Labels
    from jaxgen.missing import PartialRows


@pytree
@dataclass(frozen=True)
class Multinomial(AffineDensity):
    """Word counts of a document, given their total.

        log p(x | k) = log m! − Σ_j log x_j! + Σ_j x_j log θ_kj

    (McCallum & Nigam 1998.) With its coefficient it sums to one over the x of a given total.

    Attributes:
        log_probability: log θ, (K, d); each row of θ sums to 1.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Multinomial(jnp.log(jnp.array([[0.25, 0.75]])))
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.array([[1.0, 1.0]])))[0, 0]:.3f}")  # 2 · 1/4 · 3/4
        0.375
    """

    log_probability: Float[Array, "classes d"]

    domain = domains.COUNTS
    needs_total_count = True
    log_probabilities = ("log_probability",)

    @property
    def num_features(self) -> int:
        """d."""
        return self.log_probability.shape[-1]

    def prepared(self, *, likelihood: bool) -> PreparedDensity:
        """The same density, ready for many rows: for their log likelihoods, or for their scores."""
        affine = Affine.of(self.log_probability, likelihood=likelihood)
        return PreparedDensity(affine, self.domain, as_they_are, _MULTINOMIAL_COEFFICIENT if likelihood else None)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p of the observed words given their own total, in nats: θ is renormalised over them."""
        mass = matmul(x.mask, jnp.exp(self.log_probability).T)
        # Without a word there is nothing to renormalise; with an impossible one the likelihood is zero already.
        return self.log_likelihood(x.values) - _total(x) * drop_impossible(safe_log(mass))

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The same up to a term that is common to all classes; masses differ from the first class's by little."""
        probability = jnp.exp(self.log_probability)
        mass, more = (matmul(x.mask, table.T) for table in (probability, probability - probability[:1]))
        common = (mass > 0) & (mass[:, :1] > 0)
        log_ratio = jnp.log1p(jnp.where(common, safe_divide(more, mass[:, :1]), 0.0))
        logs = drop_impossible(safe_log(mass))
        return self.scores(x.values) - _total(x) * jnp.where(common, log_ratio, logs - logs[:, :1])

    def sample(self, key: Array, y: Int[Array, " n"], total_count: Int[Array, " n"]) -> Float[Array, "n d"]:
        """One draw from the density of each class in y, of so many words."""
        return word_draws.multinomial(key, jnp.exp(self.log_probability), y, total_count)

    def expected_total(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The total of each document by the share of its observed words; 0 without any of them."""
        return safe_divide(_total(x), matmul(x.mask, jnp.exp(self.log_probability).T))

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """E[x | x_observed, k] of the words whose counts are missing."""
        return self.expected_total(x)[:, :, None] * jnp.exp(self.log_probability)[None]

    def conditional_sample(self, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
        """Counts of the missing words given the others and the class: Poisson, by a size that is a gamma variable."""
        of_size, of_words = jax.random.split(key)
        probability = jnp.exp(self.log_probability)[y]
        larger, log_power = continuous_draws.gamma(of_size, _total(x))
        size = safe_divide(larger * jnp.exp(log_power), jnp.sum(x.mask * probability, axis=1, keepdims=True))
        return count_draws.poisson(of_words, size * probability * (1 - x.mask))

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """The log probability of each word."""
        return self.log_probability.T, jnp.zeros(self.log_probability.shape[0], self.log_probability.dtype)


@pytree
@dataclass(frozen=True)
class MultinomialNB(CountingEstimator[Multinomial]):
    """Multinomial naive Bayes with additive smoothing.

        θ_kj = (N_kj + alpha) / Σ_l (N_kl + alpha)

    where N_kj is how often word j occurs in the documents of class k (Manning, Raghavan & Schütze 2008, section 13.2).
    It is the posterior mean under Dirichlet(alpha). A class without a word has θ = 1/d, the limit alpha → 0⁺. Counts
    may be fractions, such as tf-idf. Where some are missing, the fit is that of the words of each document given their
    own total, by EM: the N_kj then have what is expected of the others.

    Attributes:
        alpha: pseudo-count of each word: one number, one for each word (d,), or what broadcasts to (K, d). 1 is
            Laplace's rule, 0 the exact maximum likelihood estimate, under which a word that was never seen is
            impossible (−inf).
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> counts = np.array([[3, 1, 0], [2, 0, 0], [0, 0, 4]])  # buy, now, meeting
        >>> c = jg.fit(jg.MultinomialNB(), counts, np.array([1, 1, 0]))
        >>> print((np.exp(c.density.log_probability[1]) * 9).round(3).tolist())  # 5 + 1, 1 + 1, 0 + 1 of 9
        [6.0, 2.0, 1.0]
    """

    binary = False
    scores_shares = True
    alpha: Array | float = dataclasses.field(default=1.0, metadata={"table": True})

    @property
    def domain(self) -> Domain:
        """Counts."""
        return domains.COUNTS

    @property
    def fills_in(self) -> bool:
        """The total of the words is unknown where one is, and is filled in by the others."""
        return True

    def check_given(self, density: Any) -> None:
        """Raise for a density that has no probabilities of words."""
        _of_words(density)

    def check_seen(self, seen: np.ndarray, features: Sequence[int]) -> None:
        """Without a pseudo-count the share of a word that no row of a class shows may be anything."""
        alpha = self.pseudo_count("alpha", jnp.zeros(seen.shape))
        if not is_traced(alpha) and (unknown := ~seen & (np.asarray(alpha) == 0)).any():
            k, j = np.argwhere(unknown)[0]
            raise ValueError(
                f"no row of class {k} shows feature {features[j]}, so that nothing is known of its share there. Give a "
                "positive alpha, or leave it out."
            )

    def naive(self) -> PoissonNB:
        """The rates of the words, each where it was observed."""
        return PoissonNB(self.alpha, exposure=1.0, prior_alpha=self.prior_alpha)

    def expect(self, x: PartialRows, labels: Labels, density: Any) -> Counts:
        """The counts of the words that were observed, and those expected of the others."""
        words = _of_words(density)
        counts, total = self.summarise(x.values, labels), words.expected_total(x)
        total = jnp.where(total < jnp.inf, total, 0.0)  # of a class that the row is not of
        missing = matmul((labels.dense() * total).T, 1 - x.mask)
        filled_in = Total.of(jnp.exp(words.log_probability) * missing)
        return dataclasses.replace(counts, feature_sum=counts.feature_sum.merge(filled_in))

    def of_features(self, statistics: Counts, num_features: int) -> Multinomial:
        """Smoothed frequencies of the words."""
        pseudo = self._pseudo(statistics)
        total = jnp.sum(pseudo, axis=-1, keepdims=True)
        if others := num_features - pseudo.shape[-1]:
            total += others * self.pseudo_count("alpha", pseudo)
        return Multinomial(safe_log(safe_divide(pseudo, total, 1 / num_features)))

    def log_parameter_prior(self, density: Multinomial) -> Float[Array, ""]:
        """Of Dirichlet(alpha), as a density of log θ."""
        logs = density.log_probability
        return log_of_events(self.pseudo_count("alpha", logs), logs)

    def predictive(self, statistics: Counts) -> DirichletMultinomial:
        """The multinomial averaged over the Dirichlet posterior of θ."""
        return DirichletMultinomial(self._pseudo(statistics))

    def log_marginal_likelihood(self, statistics: Counts) -> Float[Array, ""]:
        """log Π_k B(N_k + alpha) / B(alpha), in nats: of the words in their order, without log m! − Σ_j log x_j!."""
        count = statistics.count
        alpha = jnp.broadcast_to(self.pseudo_count("alpha", count), count.shape)
        return jnp.sum(log_dirichlet_evidence(alpha, count))

    def _pseudo(self, statistics: Counts) -> Float[Array, "classes d"]:
        """N_kj + alpha."""
        count = statistics.count
        return count + self.pseudo_count("alpha", count)


def _of_words(density: Any) -> Multinomial:
    """Probabilities of words; those of Poisson events given their total, and equal ones where no event is possible."""
    if isinstance(density, Poisson):
        rate = jnp.exp(density.log_rate)
        return Multinomial(safe_log(safe_divide(rate, jnp.sum(rate, axis=-1, keepdims=True), 1 / rate.shape[-1])))
    if not isinstance(density, Multinomial):
        raise TypeError(
            f"given must be a classifier with a Multinomial density, or a Poisson one; found {type(density).__name__}."
        )
    return density


def _total(x: PartialRows) -> Float[Array, "n 1"]:
    """Observed words of each document."""
    return jnp.sum(x.values, axis=1, keepdims=True)


# log m! − Σ_j log x_j!
_MULTINOMIAL_COEFFICIENT = Coefficient(
    (as_they_are, log_factorial), lambda total, log_factorials: log_factorial(total) - log_factorials
)
