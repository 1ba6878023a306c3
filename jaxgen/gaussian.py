"""Gaussian densities: a covariance or a standard deviation for each class, or one for all.

x | y = k ~ N(μ_k, Σ_k)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import inputs
from jaxgen.numerics import einsum, inverse_factor, matmul

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jax import Array
    from jaxtyping import Bool, Float, Int

_LOG_2PI = float(np.log(2 * np.pi))
# Mean squared distance, in deviations, of class means from their centre up to which squares are expanded.
_NEAR = 16.0
# Strips of a triangle that is multiplied: of four, five eighths are read. A third less time than one class after the
# other, 294 ms and 200 (200,000 × 100, ten classes); more strips are too narrow.
_TRIANGLE_STRIPS = 4


class Gaussian(NamedTuple):
    """Gaussian density with a full covariance Σ = LLᵀ for each class, or one for all.

        log p(x | k) = −½ ‖L_k⁻¹ (x − μ_k)‖² − Σ_j log L_k,jj − ½ d log 2π

    Attributes:
        mean: (K, d).
        cholesky: lower factors L, (K, d, d), or (1, d, d) where the covariance is shared.
    """

    mean: Float[Array, "classes d"]
    cholesky: Float[Array, "covariances d d"]

    domain = inputs.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    def prepared(self, *, likelihood: bool = True) -> WhitenedGaussian:
        """The same density with its factors inverted, once for all blocks of rows."""
        log_scale = jnp.sum(jnp.log(jnp.diagonal(self.cholesky, axis1=-2, axis2=-1)), axis=-1)
        center = jnp.mean(self.mean, axis=0)
        linear = self.discriminant(center) if self.cholesky.shape[0] == 1 else None
        return WhitenedGaussian(self.mean, inverse_factor(self.cholesky), log_scale, center, linear)

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return self.prepared().log_likelihood(x)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the covariance is shared: one matrix product."""
        return self.prepared().scores(x)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y: μ_k + L_k z."""
        noise = jax.random.normal(key, (y.shape[0], self.num_features), self.mean.dtype)

        def of_class(x: Array, factor: tuple[Array, Array]) -> tuple[Array, None]:
            k, cholesky = factor
            return jnp.where((y == k)[:, None], matmul(noise, cholesky.T), x), None

        k = jnp.arange(self.mean.shape[0], dtype=jnp.int32)
        factors = jnp.broadcast_to(self.cholesky, (len(k), *self.cholesky.shape[1:]))
        return self.mean[y] + lax.scan(of_class, noise, (k, factors))[0]

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants of the scores of x, for a shared covariance."""
        return _linear(self) if self.cholesky.shape[0] == 1 else None

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """Σ⁻¹(μ_k − c), shape (K, d), and −½ (μ_k − c)ᵀΣ⁻¹(μ_k − c), shape (K,), for a shared Σ."""
        whitening = inverse_factor(self.cholesky)[0]
        white = matmul(self.mean - center[None], whitening.T)
        return matmul(white, whitening), -0.5 * jnp.sum(white**2, axis=-1)


class WhitenedGaussian(NamedTuple):
    """A `Gaussian` in the form that scoring reads: inverted factors, and the linear scores of a shared one."""

    mean: Float[Array, "classes d"]
    whitening: Float[Array, "covariances d d"]
    log_scale: Float[Array, " covariances"]
    center: Float[Array, " d"]
    discriminant: tuple[Array, Array] | None

    domain = inputs.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        if self.whitening.shape[0] == 1:
            # Both are centred before they are whitened, so that a large common mean costs no digits.
            rotated, means = (matmul(a - self.center[None], self.whitening[0].T) for a in (x, self.mean))
            distance = _squared_distances(rotated, means, lambda residual: residual)
        else:
            distance = self._distances(x)
        return -0.5 * distance - self.log_scale[None] - 0.5 * self.num_features * _LOG_2PI

    @property
    def score_width(self) -> int:
        """Elements that a row takes, which is whitened for all covariances at once."""
        return self.num_features * self.whitening.shape[0]

    def _distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances under a covariance for each class."""
        classes, d = self.mean.shape
        offset = einsum("kij,kj->ki", self.whitening, self.mean - self.center[None])

        def one_by_one() -> Array:
            return _squared_distances(x, self.mean, lambda residual, w: matmul(residual, w.T), self.whitening)

        def together() -> Array:
            centred, distance = (x - self.center[None]).T, jnp.zeros((classes, x.shape[0]), x.dtype)
            for first in range(0, d, size := -(-d // _TRIANGLE_STRIPS)):
                rows = slice(first, first + size)  # of the triangles, which are zero behind their last column
                strip = self.whitening[:, rows, : rows.stop]
                white = matmul(strip.reshape(-1, strip.shape[-1]), centred[: rows.stop]) - offset[:, rows].reshape(
                    -1, 1
                )
                distance += jnp.sum((white**2).reshape(classes, -1, x.shape[0]), axis=1)
            return distance.T

        return lax.cond(_are_near(offset), together, one_by_one)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the covariance is shared: one matrix product."""
        if self.discriminant is None:
            return self.log_likelihood(x)
        weights, constant = self.discriminant
        return matmul(x - self.center[None], weights.T) + constant[None]

    def linear(self) -> None:
        """A prepared density is for scoring alone."""
        return None


class DiagonalGaussian(NamedTuple):
    """Gaussian density with independent features, a standard deviation σ for each class or one for all.

        log p(x | k) = Σ_j −½ ((x_j − μ_kj) / σ_kj)² − log σ_kj − ½ log 2π

    Attributes:
        mean: (K, d).
        scale: standard deviations σ, (K, d); with 1 in place of K where they are shared, of d where they are spherical.
    """

    mean: Float[Array, "classes d"]
    scale: Float[Array, "scales features"]

    domain = inputs.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.mean.shape[-1]

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        precision = 1 / jnp.broadcast_to(self.scale, self.mean.shape)
        center = jnp.mean(self.mean, axis=0)
        offset = (self.mean - center[None]) * precision

        def exactly() -> Array:
            return _squared_distances(x, self.mean, lambda residual, p: residual * p[None], precision)

        def expanded() -> Array:
            residual = x - center[None]
            cross = matmul(residual, (offset * precision).T)
            return matmul(residual**2, (precision**2).T) - 2 * cross + jnp.sum(offset**2, axis=-1)[None]

        # Two products are many times faster than a pass for each class.
        distance = lax.cond(_are_near(offset), expanded, exactly)
        log_scale = -jnp.sum(jnp.log(precision), axis=-1)
        return -0.5 * distance - log_scale[None] - 0.5 * self.num_features * _LOG_2PI

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """Linear where the scale is shared: one matrix product."""
        return _linear_scores(self, x) if self.scale.shape[0] == 1 else self.log_likelihood(x)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y: μ_k + σ_k z."""
        noise = jax.random.normal(key, (y.shape[0], self.num_features), self.mean.dtype)
        return self.mean[y] + jnp.broadcast_to(self.scale, self.mean.shape)[y] * noise

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants of the scores of x, for a shared scale."""
        return _linear(self) if self.scale.shape[0] == 1 else None

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """Σ⁻¹(μ_k − c), shape (K, d), and −½ (μ_k − c)ᵀΣ⁻¹(μ_k − c), shape (K,), for a shared Σ."""
        white = (self.mean - center[None]) / self.scale
        return white / self.scale, -0.5 * jnp.sum(white**2, axis=-1)


def _are_near(offset: Float[Array, "classes d"]) -> Bool[Array, ""]:
    """Whether the means lie a few deviations from their centre at most, of which `offset` are the whitened differences.

    Squares about the centre then cost no more digits than their sum does.
    """
    return jnp.all(jnp.sum(offset**2, axis=-1) <= _NEAR * offset.shape[-1])


def _linear_scores(density: Gaussian | DiagonalGaussian, x: Array) -> Array:
    center = jnp.mean(density.mean, axis=0)
    weights, constant = density.discriminant(center)
    return matmul(x - center[None], weights.T) + constant[None]


def _linear(density: Gaussian | DiagonalGaussian) -> tuple[Any, Any]:
    center = jnp.mean(density.mean, axis=0)
    weights, constant = density.discriminant(center)
    return weights.T, constant - matmul(weights, center)


def _squared_distances(
    x: Float[Array, "n d"], mean: Float[Array, "classes d"], whiten: Callable[..., Array], *parameters: Array
) -> Float[Array, "n classes"]:
    """‖whiten(x − μ_k)‖² of every class, one at a time: differences come first, so a large mean costs no digits."""

    def one_class(terms: tuple[Array, ...]) -> Array:
        center, *own = terms
        return jnp.sum(whiten(x - center[None], *own) ** 2, axis=-1)

    return lax.map(one_class, (mean, *parameters)).T
