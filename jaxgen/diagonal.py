"""Gaussian densities of independent features: a standard deviation for each class, or one for all.

x_j | y = k ~ N(μ_kj, σ_kj²), independently
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxgen import continuous_draws, domains
from jaxgen.density import table_shape
from jaxgen.distances import LinearGaussian, are_near, log_normal, squared_distances
from jaxgen.numerics import LOG_2PI, matmul, shortcut

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.density import Shapes
    from jaxgen.missing import PartialRows


class DiagonalGaussian(NamedTuple):
    """Gaussian density with independent features, a standard deviation σ for each class or one for all.

        log p(x | k) = Σ_j −½ ((x_j − μ_kj) / σ_kj)² − log σ_kj − ½ log 2π

    Attributes:
        mean: (K, d).
        scale: standard deviations σ, (K, d); with 1 in place of K where they are shared, of d where they are spherical.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.DiagonalGaussian(jnp.zeros((1, 2)), jnp.array([[1.0, 2.0]]))
        >>> print(f"{c.log_likelihood(jnp.zeros((1, 2)))[0, 0]:.4f}")  # −log 2 − log 2π
        -2.5310
    """

    mean: Float[Array, "classes d"]
    scale: Float[Array, "scales features"]

    domain = domains.FINITE
    positive = ("scale",)

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    @property
    def shapes(self) -> Shapes:
        """Scales for each class or for all, of each feature or of all."""
        k, d = table_shape(self.mean)
        return {"mean": [(k, d)], "scale": [(k, d), (1, d), (k, 1), (1, 1)]}

    def quick_form(self, *, likelihood: bool) -> tuple[LinearGaussian | ExpandedGaussian, Bool[Array, ""]] | None:
        """The scores as one product or two, many times faster than a pass for each class."""
        if likelihood:
            return None
        if self.scale.shape[0] > 1:
            return self._expanded()
        linear = LinearGaussian.of(self)
        return linear, linear.accurate

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        expanded, accurate = self._expanded()
        log_scale = jnp.sum(jnp.log(jnp.broadcast_to(self.scale, self.mean.shape)), axis=-1)

        def one_by_one() -> Array:
            return log_normal(self.squared_distances(x), log_scale[None], self.num_features)

        return shortcut(accurate, lambda: expanded.log_likelihood(x), one_by_one)

    def _expanded(self) -> tuple[ExpandedGaussian, Bool[Array, ""]]:
        precision = 1 / jnp.broadcast_to(self.scale, self.mean.shape)
        # Then squares of rows overflow billions of deviations away, and underflow that near. Rows in units of their own
        # would have squares for every scale, but take 4 % longer.
        most = float(jnp.finfo(self.scale.dtype).max) ** 0.25
        in_range = jnp.all((self.scale < most) & (precision < most))
        center = jnp.mean(self.mean, axis=0)
        offset = (self.mean - center[None]) * precision
        constant = jnp.sum(jnp.log(precision) - 0.5 * offset**2, axis=-1) - 0.5 * self.num_features * LOG_2PI
        return ExpandedGaussian(center, -0.5 * precision**2, offset * precision, constant), are_near(offset) & in_range

    def squared_distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances Σ_j ((x_j − μ_kj) / σ_kj)²."""
        precision = 1 / jnp.broadcast_to(self.scale, self.mean.shape)
        return squared_distances(x, self.mean, lambda residual, p: residual * p[None], precision)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the other factors are left out."""
        distance, log_scale = self.marginal_distances(x)
        return log_normal(distance, log_scale, jnp.sum(x.mask, axis=-1, keepdims=True))

    def marginal_distances(self, x: PartialRows) -> tuple[Float[Array, "n classes"], Float[Array, "n classes"]]:
        """The squared Mahalanobis distances of the observed features, and Σ log σ of those."""
        scale = jnp.broadcast_to(self.scale, self.mean.shape)

        def one_class(terms: tuple[Array, Array]) -> Array:
            mean, scale = terms
            residual = jnp.where(x.observed, (x.values - mean[None]) / scale[None], 0.0)
            return jnp.sum(residual**2, axis=-1)

        if self.scale.shape[1] == 1:
            # A product with one number, broadcast, gives random ones in a loop over blocks on a CPU (jaxlib 0.10.2).
            log_scale = jnp.sum(x.mask, axis=-1, keepdims=True) * jnp.log(self.scale).T
        else:
            log_scale = matmul(x.mask, jnp.log(scale).T)
        return lax.map(one_class, (self.mean, scale)).T, log_scale

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the scale is shared: one matrix product, but for classes that are far apart."""
        return LinearGaussian.of(self).all_scores(x) if self.scale.shape[0] == 1 else self.log_likelihood(x)

    def moved(self, origin: Float[Array, " d"]) -> DiagonalGaussian:
        """The density of features to which an origin is added."""
        return self._replace(mean=self.mean + origin[None])

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y: μ_k + σ_k z."""
        noise = continuous_draws.normal(key, (y.shape[0], self.num_features), self.mean.dtype)
        return self.mean[y] + jnp.broadcast_to(self.scale, self.mean.shape)[y] * noise

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants of the scores of x, for a shared scale."""
        return LinearGaussian.of(self).linear() if self.scale.shape[0] == 1 else None

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """L⁻¹(μ_k − c) and Σ⁻¹(μ_k − c), both (K, d), for a shared Σ = LLᵀ."""
        precision = 1 / self.scale  # XLA makes of two divisions one by a square, which may underflow
        white = (self.mean - center[None]) * precision
        return white, white * precision


class ExpandedGaussian(NamedTuple):
    """A `DiagonalGaussian` whose squares are expanded about a centre: two products, with r = x − c.

        log p(x | k) = Σ_j a_kj r_j² + b_kj r_j + constant_k

    Attributes:
        center: c, (d,).
        quadratic: a, (K, d).
        linear_term: b, (K, d).
        constant: (K,).
    """

    center: Float[Array, " d"]
    quadratic: Float[Array, "classes d"]
    linear_term: Float[Array, "classes d"]
    constant: Float[Array, " classes"]

    domain = domains.FINITE
    in_one_pass = True

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        residual = x - self.center[None]
        return matmul(residual**2, self.quadratic.T) + matmul(residual, self.linear_term.T) + self.constant[None]

    scores = log_likelihood

    def scores_by_class(self, x: Float[Array, "n d"]) -> Float[Array, "classes n"]:
        """The same with the axis of the classes first."""
        residual = x - self.center[None]
        squares, products = matmul(self.quadratic, (residual**2).T), matmul(self.linear_term, residual.T)
        return squares + products + self.constant[:, None]
