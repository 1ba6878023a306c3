"""Student's t densities: Gaussian, with a variance that is known by a posterior alone.

x | y = k ~ t_ν(μ_k, Σ_k) is N(μ_k, Σ_k / u) with u ~ χ²_ν / ν drawn for each row: heavier tails, the fewer ν
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import continuous_draws, domains
from jaxgen.conditional import drawn
from jaxgen.density import table_shape
from jaxgen.gaussian import Gaussian, WhitenedGaussian
from jaxgen.matrices import inverse_factor
from jaxgen.numerics import LOG_2PI
from jaxgen.rising import log_rising

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.density import Shapes
    from jaxgen.missing import PartialRows


class StudentT(NamedTuple):
    """Multivariate t density with Σ_k = w_k² L_k L_kᵀ.

        log p(x | k) = log Γ((ν + d)/2)/Γ(ν/2) − ½ d log(νπ) − ½ log |Σ_k| − ½ (ν + d) log(1 + Δ²/ν)

    where Δ² = (x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k) (Kotz & Nadarajah 2004, equation 1.1).

    Attributes:
        mean: μ, (K, d).
        cholesky: lower factors L, (K, d, d), or (1, d, d) where the classes share one.
        degrees: ν of each class, (K,), or of all, (1,).
        spread: w of each class, (K,), or of all, (1,).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> cauchy = jg.StudentT(jnp.zeros((1, 1)), jnp.ones((1, 1, 1)), jnp.ones(1), jnp.ones(1))
        >>> print((jnp.pi * jnp.exp(jg.log_likelihood(jg.Classifier(jnp.zeros(1), cauchy), jnp.ones(1)))).round(4))
        [0.5]
    """

    mean: Float[Array, "classes d"]
    cholesky: Float[Array, "covariances d d"]
    degrees: Float[Array, " degrees"]
    spread: Float[Array, " spreads"]

    domain = domains.FINITE
    positive = ("cholesky", "degrees", "spread")

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """A factor, a number of degrees and a spread for each class, or one."""
        k, d = table_shape(self.mean)
        return {"mean": [(k, d)], "cholesky": [(k, d, d), (1, d, d)], "degrees": [(k,), (1,)], "spread": [(k,), (1,)]}

    def prepared(self, *, likelihood: bool = True) -> WhitenedStudentT:
        """The same density with its factors inverted, once for all blocks of rows."""
        gaussian = Gaussian(self.mean, self.cholesky).prepared(likelihood=likelihood)
        return WhitenedStudentT(gaussian, self.degrees, self.spread)

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return self.prepared().log_likelihood(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: a t density with the same ν, of their own μ and Σ."""
        distance, log_scale = Gaussian(self.mean, self.cholesky).marginal_distances(x)
        return _log_density(distance, log_scale, self.degrees, self.spread, jnp.sum(x.mask, axis=-1, keepdims=True))

    def marginal_width(self, most_missing: int | None) -> int:
        """Elements that a row takes: those of a Gaussian."""
        return Gaussian(self.mean, self.cholesky).marginal_width(most_missing)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood."""
        return self.log_likelihood(x)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        of_noise, of_scale = jax.random.split(key)
        noise = Gaussian(jnp.zeros_like(self.mean), self.cholesky).sample(of_noise, y)
        half, spread = (jnp.broadcast_to(each, self.mean.shape[:1])[y] for each in (self.degrees / 2, self.spread))
        return self.mean[y] + _widened(of_scale, half[:, None], spread[:, None] * noise)

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """E[x | x_observed, k], that of a Gaussian; NaN where ν and the number of observed features are 1 or less."""
        mean = Gaussian(self.mean, self.cholesky).conditional_mean(x)
        degrees = self.degrees[None] + jnp.sum(x.mask, axis=-1, keepdims=True)
        return jnp.where(degrees[..., None] > 1, mean, jnp.nan)

    def conditional_sample(self, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
        """One draw of what was not observed, given what was, from the density of each class in y.

        That is t as well, of ν + o degrees, with (ν + Δ²)/(ν + o) times the covariance of a Gaussian (Ding 2016, On the
        conditional distribution of the multivariate t distribution).
        """
        of_noise, of_scale = jax.random.split(key)
        gaussian = Gaussian(self.mean, self.cholesky)
        normal = continuous_draws.normal(of_noise, x.shape, self.mean.dtype)
        residual, noise = drawn(x, y, self.mean, inverse_factor(self.cholesky), normal)
        degrees, spread = (jnp.broadcast_to(each, self.mean.shape[:1])[y] for each in (self.degrees, self.spread))
        distance = jnp.take_along_axis(gaussian.marginal_distances(x)[0], y[:, None], axis=1)[:, 0]
        half = (degrees + jnp.sum(x.mask, axis=-1)) / 2
        scale = jnp.sqrt((degrees * spread**2 + distance) / (2 * half))
        return self.mean[y] + residual + _widened(of_scale, half[:, None], scale[:, None] * noise)

    def linear(self) -> None:
        """Its log odds are not."""
        return None


class WhitenedStudentT(NamedTuple):
    """A `StudentT` in the form that scoring reads: inverted factors."""

    gaussian: WhitenedGaussian
    degrees: Float[Array, " degrees"]
    spread: Float[Array, " spreads"]

    domain = domains.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.gaussian.num_features

    @property
    def score_width(self) -> int:
        """Elements that a row takes, which is whitened for all covariances at once."""
        return self.gaussian.score_width

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        d = jnp.asarray(self.num_features, x.dtype).reshape(1, 1)
        distance = self.gaussian.squared_distances(x)
        return _log_density(distance, self.gaussian.log_scale[None], self.degrees, self.spread, d)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood."""
        return self.log_likelihood(x)


class DiagonalStudentT(NamedTuple):
    """Independent features, each with a t density of its own.

        log p(x | k) = Σ_j log Γ((ν + 1)/2)/Γ(ν/2) − ½ log(νπ) − log σ_kj − ½ (ν + 1) log(1 + ((x_j − μ_kj)/σ_kj)²/ν)

    the product over features of `StudentT` with d = 1.

    Attributes:
        mean: μ, (K, d).
        scale: σ, (K, d).
        degrees: ν, (K, d), with 1 in place of K or d where it is shared.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.DiagonalStudentT(jnp.zeros((1, 1)), jnp.ones((1, 1)), degrees=jnp.ones((1, 1)))  # Cauchy
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.zeros((1, 1))))[0, 0]:.4f}")  # 1/π
        0.3183
    """

    mean: Float[Array, "classes d"]
    scale: Float[Array, "classes d"]
    degrees: Float[Array, "classes_or_1 d_or_1"]

    domain = domains.FINITE
    positive = ("scale", "degrees")

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """Degrees for each class or for all, of each feature or of all."""
        k, d = table_shape(self.mean)
        return {"mean": [(k, d)], "scale": [(k, d)], "degrees": [(k, d), (1, d), (k, 1), (1, 1)]}

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return self._sum_of_terms(x, None)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the other factors are left out."""
        return self._sum_of_terms(x.values, jnp.asarray(x.observed))

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood."""
        return self.log_likelihood(x)

    def _sum_of_terms(self, x: Float[Array, "n d"], observed: Array | None) -> Float[Array, "n classes"]:
        half = self.degrees / 2
        constant = log_rising(half, 0.5, half) - 0.5 * LOG_2PI - jnp.log(self.scale)

        def one_class(parameters: tuple[Array, Array, Array, Array]) -> Array:
            mean, scale, half, constant = parameters
            square = ((x - mean[None]) / scale[None]) ** 2 / (2 * half)[None]
            terms = constant[None] - (half + 0.5)[None] * jnp.log1p(square)
            return jnp.sum(terms if observed is None else jnp.where(observed, terms, 0.0), axis=1)

        return lax.map(one_class, (self.mean, self.scale, jnp.broadcast_to(half, self.mean.shape), constant)).T

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        of_noise, of_scale = jax.random.split(key)
        half = jnp.broadcast_to(self.degrees / 2, self.mean.shape)[y]
        noise = continuous_draws.normal(of_noise, half.shape, self.mean.dtype)
        return self.mean[y] + _widened(of_scale, half, self.scale[y] * noise)

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """μ, of features that are independent; NaN where ν is 1 or less."""
        mean = jnp.where(self.degrees > 1, self.mean, jnp.nan)
        return jnp.broadcast_to(mean[None], (x.shape[0], *mean.shape))

    def linear(self) -> None:
        """Its log odds are not."""
        return None


def _widened(key: Array, half: Float[Array, "n d_or_1"], noise: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Noise divided by √u, u ~ χ²_ν / ν drawn with ν/2 given. Where it is within range neither u nor √u need be."""
    larger, log_power = continuous_draws.gamma(key, half)
    fourth_root = jnp.exp((jnp.log(half) - jnp.log(larger) - log_power) / 4)
    return noise * fourth_root * fourth_root


def _log_density(
    distance: Float[Array, "n classes"],
    log_scale: Float[Array, "n_or_1 covariances"],
    degrees: Float[Array, " degrees"],
    spread: Float[Array, " spreads"],
    d: Float[Array, "n_or_1 1"],
) -> Float[Array, "n classes"]:
    """log t_ν of d dimensions, from squared distances and log √|Σ| without the spread."""
    half, width = (degrees / 2)[None], spread[None]
    constant = log_rising(half, d / 2, half) - d * (0.5 * LOG_2PI + jnp.log(width)) - log_scale
    return constant - (half + d / 2) * jnp.log1p(distance / (2 * half * width**2))
