"""Gaussian densities: a covariance for each class, or one for all.

x | y = k ~ N(μ_k, Σ_k)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import continuous_draws, domains
from jaxgen.conditional import drawn, residuals
from jaxgen.density import table_shape
from jaxgen.diagonal import DiagonalGaussian
from jaxgen.distances import LinearGaussian, are_near, log_normal, squared_distances
from jaxgen.matrices import diagonals, inverse_factor
from jaxgen.missing import places
from jaxgen.numerics import einsum, matmul, shortcut
from jaxgen.quadratic import CentredGaussian

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.density import Shapes
    from jaxgen.missing import PartialRows


class Gaussian(NamedTuple):
    """Gaussian density with a full covariance Σ = LLᵀ for each class, or one for all.

        log p(x | k) = −½ ‖L_k⁻¹ (x − μ_k)‖² − Σ_j log L_k,jj − ½ d log 2π

    Attributes:
        mean: (K, d).
        cholesky: lower factors L, (K, d, d), or (1, d, d) where the covariance is shared.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Gaussian(jnp.zeros((1, 2)), jnp.array([[[1.0, 0.0], [0.0, 2.0]]]))
        >>> print(f"{c.log_likelihood(jnp.zeros((1, 2)))[0, 0]:.4f}")  # −log 2 − log 2π
        -2.5310
    """

    mean: Float[Array, "classes d"]
    cholesky: Float[Array, "covariances d d"]

    domain = domains.FINITE
    positive = ("cholesky",)

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """A factor for each class, or one."""
        k, d = table_shape(self.mean)
        return {"mean": [(k, d)], "cholesky": [(k, d, d), (1, d, d)]}

    def prepared(self, *, likelihood: bool = True) -> WhitenedGaussian:
        """The same density with its factors inverted, once for all blocks of rows."""
        log_scale = jnp.sum(jnp.log(diagonals(self.cholesky)), axis=-1)
        center = jnp.mean(self.mean, axis=0)
        linear = LinearGaussian.of(self) if self.cholesky.shape[0] == 1 else None
        return WhitenedGaussian(self.mean, inverse_factor(self.cholesky), log_scale, center, linear)

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return self.prepared().log_likelihood(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the marginal of each row."""
        distance, log_scale = self.marginal_distances(x)
        return log_normal(distance, log_scale, jnp.sum(x.mask, axis=-1, keepdims=True))

    def marginal_distances(
        self, x: PartialRows
    ) -> tuple[Float[Array, "n classes"], Float[Array, "n classes"] | Float[Array, "n 1"]]:
        """The squared Mahalanobis distances of the observed features under their own Σ_oo, and log √|Σ_oo|.

        By p(x_o) = p(x_o, x̂_m) / p(x̂_m | x_o) at the mean x̂_m of what is missing, where the distance is least.
        """
        whitened = self.prepared()
        residual, inverse, _ = residuals(x, self.mean, whitened.whitening)
        whitening = jnp.broadcast_to(whitened.whitening, (len(self.mean), *self.cholesky.shape[1:]))
        white = einsum("nki,kji->nkj", residual, whitening)
        log_scale = -jnp.sum(jnp.log(diagonals(inverse)), axis=-1)
        return jnp.sum(white**2, axis=-1), whitened.log_scale[None] + log_scale

    def marginal_width(self, most_missing: int | None) -> int:
        """Elements that a row takes: a factor of what is missing for each class that it may be of, or its features."""
        classes, d = self.mean.shape
        return classes * max(d, places(most_missing, d) ** 2)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the covariance is shared: one matrix product."""
        return self.prepared().scores(x)

    def moved(self, origin: Float[Array, " d"]) -> Gaussian:
        """The density of features to which an origin is added."""
        return self._replace(mean=self.mean + origin[None])

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y: μ_k + L_k z."""
        noise = continuous_draws.normal(key, (y.shape[0], self.num_features), self.mean.dtype)

        def of_class(x: Array, factor: tuple[Array, Array]) -> tuple[Array, None]:
            k, cholesky = factor
            return jnp.where((y == k)[:, None], matmul(noise, cholesky.T), x), None

        k = jnp.arange(self.mean.shape[0], dtype=jnp.int32)
        factors = jnp.broadcast_to(self.cholesky, (len(k), *self.cholesky.shape[1:]))
        return self.mean[y] + lax.scan(of_class, noise, (k, factors))[0]

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """E[x | x_observed, k]."""
        return self.mean[None] + residuals(x, self.mean, inverse_factor(self.cholesky))[0]

    def conditional_sample(self, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
        """One draw of what was not observed, given what was, from the density of each class in y."""
        normal = continuous_draws.normal(key, x.shape, self.mean.dtype)
        residual, noise = drawn(x, y, self.mean, inverse_factor(self.cholesky), normal)
        return self.mean[y] + residual + noise

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants of the scores of x, for a shared covariance."""
        return LinearGaussian.of(self).linear() if self.cholesky.shape[0] == 1 else None

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """L⁻¹(μ_k − c) and Σ⁻¹(μ_k − c), both (K, d), for a shared Σ = LLᵀ."""
        whitening = inverse_factor(self.cholesky)[0]
        white = matmul(self.mean - center[None], whitening.T)
        return white, matmul(white, whitening)


def whole(density: Any) -> Gaussian:
    """A Gaussian density with whole covariances; a TypeError for one that is not Gaussian."""
    if isinstance(density, Gaussian):
        return density
    if not isinstance(density, DiagonalGaussian):
        raise TypeError(f"given must be a Gaussian classifier; found {type(density).__name__}. Fit one by GDA.")
    scale = jnp.broadcast_to(density.scale, (len(density.scale), density.num_features))
    return Gaussian(density.mean, jax.vmap(jnp.diag)(scale))


class WhitenedGaussian(NamedTuple):
    """A `Gaussian` in the form that scoring reads: inverted factors, and the linear scores of a shared one."""

    mean: Float[Array, "classes d"]
    whitening: Float[Array, "covariances d d"]
    log_scale: Float[Array, " covariances"]
    center: Float[Array, " d"]
    linear: LinearGaussian | None

    domain = domains.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""

        def by_distances(x: Array) -> Array:
            return log_normal(self.squared_distances(x), self.log_scale[None], self.num_features)

        if self.linear is None:
            return by_distances(x)
        means = self.linear.white

        def about_center(x: Array) -> Array:
            # −½‖z − m_k‖² = −½‖z‖² + zᵀm_k − ½‖m_k‖²: a product in place of a pass for each class.
            white = matmul(x - self.center[None], self.whitening[0].T)
            common = log_normal(jnp.sum(white**2, axis=-1, keepdims=True), self.log_scale[None], self.num_features)
            return matmul(white, means.T) - 0.5 * jnp.sum(means**2, axis=-1)[None] + common

        return shortcut(are_near(means), about_center, by_distances, x)

    def squared_distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances (x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k)."""
        if self.whitening.shape[0] > 1:
            centred, near = self._centred()

            def one_by_one(x: Array) -> Array:
                return squared_distances(x, self.mean, lambda residual, w: matmul(residual, w.T), self.whitening)

            return shortcut(near, centred.squared_distances, one_by_one, x)
        # Both are centred before they are whitened, so that a large common mean costs no digits.
        rotated, means = (matmul(a - self.center[None], self.whitening[0].T) for a in (x, self.mean))
        return squared_distances(rotated, means, lambda residual: residual)

    @property
    def score_width(self) -> int:
        """Elements that a row takes, which is whitened for all covariances at once."""
        return self.num_features * self.whitening.shape[0]

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the covariance is shared: one matrix product, but for classes that are far apart."""
        if self.linear is None:
            return self.log_likelihood(x)
        return self.linear.all_scores(x)

    def quick_form(self, *, likelihood: bool) -> tuple[LinearGaussian | CentredGaussian, Bool[Array, ""]] | None:
        """The linear scores of a shared covariance, or the distances of all classes at once."""
        if self.linear is None:
            return self._centred()
        return None if likelihood else (self.linear, self.linear.accurate)

    def _centred(self) -> tuple[CentredGaussian, Bool[Array, ""]]:
        offset = einsum("kij,kj->ki", self.whitening, self.mean - self.center[None])
        return CentredGaussian(self.center, self.whitening, offset, self.log_scale), are_near(offset)
