"""Densities of counts whose parameters are known by a posterior alone: wider than those with any one value of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import continuous_draws, count_draws, domains, word_draws
from jaxgen.density import table_shape
from jaxgen.projections import as_they_are
from jaxgen.rising import log_factorial, log_rising
from jaxgen.sparse import SparseRows, row_sum, summed

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.density import Shapes
    from jaxgen.missing import PartialRows


class DirichletMultinomial(NamedTuple):
    """Word counts of a document, given their total m: multinomial, with θ ~ Dirichlet(α_k) drawn for each document.

        log p(x | k) = log m! − Σ_j log x_j! + log Γ(A_k)/Γ(A_k + m) + Σ_j log Γ(α_kj + x_j)/Γ(α_kj),    A_k = Σ_j α_kj

    (Minka 2000, Estimating a Dirichlet distribution.)

    Attributes:
        concentration: α, positive, (K, d).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Classifier(jnp.zeros(1), jg.DirichletMultinomial(jnp.ones((1, 2))))
        >>> print(jnp.exp(jg.log_likelihood(c, jnp.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])))[:, 0].round(4))
        [0.3333 0.3333 0.3333]
    """

    concentration: Float[Array, "classes d"]

    domain = domains.COUNTS
    positive = ("concentration",)
    needs_total_count = True
    takes_sparse = True

    @property
    def num_features(self) -> int:
        """d."""
        return self.concentration.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """(K, d)."""
        return {"concentration": [table_shape(self.concentration)]}

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats, with its coefficient: it sums to one over the x of a given total."""
        x = summed(x)
        scores = self._of_entries(x, likelihood=True) if isinstance(x, SparseRows) else self.scores(x)
        return scores + _log_coefficient(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k, their total), in nats: θ renormalised over them is a Dirichlet, of their own α."""
        return self._scores(x.values, jnp.asarray(x.observed)) + _log_coefficient(x.values)

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood without its coefficient, which is common to all classes."""
        if isinstance(x, SparseRows):
            return self._of_entries(x.summed(), likelihood=False)
        return self._scores(x, jnp.ones_like(x, bool))

    def _of_entries(self, x: SparseRows, *, likelihood: bool) -> Float[Array, "n classes"]:
        """The same of sparse rows, in which no place has two entries: a word that is absent adds nothing."""
        of_all = jnp.sum(_proper(self.concentration), axis=1)[None]
        total = x.row_sum(as_they_are)[:, None]
        unit, table = of_all + total, self.concentration.T

        def term(values: Array, columns: Array, rows: Array) -> Array:
            alpha, units = (each.at[i].get(mode="promise_in_bounds") for each, i in ((table, columns), (unit, rows)))
            return _less(log_rising(alpha, values[:, None], units), likelihood=likelihood)

        of_words = x.row_sums(term, len(self.concentration), x.dtype)
        return of_words - _less(log_rising(of_all, total, unit), likelihood=likelihood)

    def _scores(self, x: Float[Array, "n d"], observed: Bool[Array, "n d"]) -> Float[Array, "n classes"]:
        total, nothing = jnp.sum(x, axis=1), ~jnp.any(observed, axis=1)

        def one_class(alpha: Float[Array, " d"]) -> Array:
            of_all = jnp.where(nothing, 1.0, jnp.sum(jnp.where(observed, alpha[None], 0.0), axis=1))
            unit = of_all + total
            return jnp.sum(log_rising(alpha[None], x, unit[:, None]), axis=1) - log_rising(of_all, total, unit)

        return lax.map(one_class, self.concentration).T

    def sample(self, key: Array, y: Int[Array, " n"], total_count: Int[Array, " n"]) -> Float[Array, "n d"]:
        """One draw from the density of each class in y, of so many words."""
        of_probabilities, of_words = jax.random.split(key)
        larger, log_power = continuous_draws.gamma(of_probabilities, self.concentration[y])
        theta = jax.nn.softmax(jnp.log(larger) + log_power, axis=1)
        return word_draws.multinomial(of_words, theta, jnp.arange(len(theta), dtype=jnp.int32), total_count)

    def linear(self) -> None:
        """A word that a document repeats tells less each time."""
        return None


class NegativeBinomial(NamedTuple):
    """Independent numbers of events: Poisson, with rates λ_kj ~ Gamma(a_kj, b_kj) drawn for each row.

        log p(x | k) = Σ_j log Γ(a_kj + x_j)/Γ(a_kj) − a_kj log(1 + 1/b_kj) − x_j log(1 + b_kj) − log x_j!

    (Gelman et al. 2013, section 2.6.)

    Attributes:
        shape: a, positive, (K, d).
        rate: b, positive, (K, d) or (K, 1).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.NegativeBinomial(shape=jnp.ones((1, 1)), rate=jnp.ones((1, 1)))  # geometric
        >>> jnp.exp(c.log_likelihood(jnp.array([[0.0], [1.0], [2.0]])))[:, 0].round(4).tolist()
        [0.5, 0.25, 0.125]
    """

    shape: Float[Array, "classes d"]
    rate: Float[Array, "classes features"]

    domain = domains.COUNTS
    positive = ("shape", "rate")
    takes_sparse = True

    @property
    def num_features(self) -> int:
        """d."""
        return self.shape.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """A rate for each feature, or one for all."""
        k, d = table_shape(self.shape)
        return {"shape": [(k, d)], "rate": [(k, d), (k, 1)]}

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        x = summed(x)
        scores = self._of_entries(x, likelihood=True) if isinstance(x, SparseRows) else self.scores(x)
        return scores - row_sum(log_factorial, x)[:, None]

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the other factors are left out."""
        return self._scores(x.values, jnp.asarray(x.observed)) - jnp.sum(log_factorial(x.values), axis=1, keepdims=True)

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood without the factorials, which are common to all classes."""
        if isinstance(x, SparseRows):
            return self._of_entries(x.summed(), likelihood=False)
        return self._scores(x, jnp.ones_like(x, bool))

    def _of_entries(self, x: SparseRows, *, likelihood: bool) -> Float[Array, "n classes"]:
        """The same of sparse rows, in which no place has two entries: the score of no event, and what entries add."""
        nothing = -jnp.sum(_proper(self.shape) * jnp.log1p(1 / self.rate), axis=1)[None]
        shapes, rates = self.shape.T, jnp.broadcast_to(self.rate, self.shape.shape).T

        def term(values: Array, columns: Array, rows: Array) -> Array:
            del rows
            shape, rate = (each.at[columns].get(mode="promise_in_bounds") for each in (shapes, rates))
            return _less(log_rising(shape, values[:, None], 1 + rate), likelihood=likelihood)

        return _less(nothing, likelihood=likelihood) + x.row_sums(term, len(self.shape), x.dtype)

    def _scores(self, x: Float[Array, "n d"], observed: Bool[Array, "n d"]) -> Float[Array, "n classes"]:
        def one_class(parameters: tuple[Array, Array]) -> Array:
            shape, rate = parameters
            terms = log_rising(shape[None], x, 1 + rate[None]) - (shape * jnp.log1p(1 / rate))[None]
            return jnp.sum(jnp.where(observed, terms, 0.0), axis=1)

        return lax.map(one_class, (self.shape, self.rate)).T

    @property
    def mean(self) -> Float[Array, "classes d"]:
        """a/b."""
        return self.shape / self.rate

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        of_rates, of_events = jax.random.split(key)
        larger, log_power = continuous_draws.gamma(of_rates, self.shape[y])
        return count_draws.poisson(of_events, larger / self.rate[y] * jnp.exp(log_power))

    def linear(self) -> None:
        """An event that happens again tells less each time."""
        return None


def _less(terms: Float[Array, "m classes"], *, likelihood: bool) -> Float[Array, "m classes"]:
    """Terms of the log likelihood; of scores less that of the first class, whose rounding would drown the rest."""
    return terms if likelihood else terms - terms[:, :1]


def _proper(parameters: Float[Array, "classes d"]) -> Float[Array, "classes d"]:
    """NaN for what is not positive, so that it shows in rows that do not have the word as well."""
    return jnp.where(parameters > 0, parameters, jnp.nan)


def _log_coefficient(x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n 1"]:
    """log m! − Σ_j log x_j!."""
    return (log_factorial(row_sum(as_they_are, x)) - row_sum(log_factorial, x))[:, None]
