"""Squared distances from class means that lose no digits to large ones, and the linear scores that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import domains
from jaxgen.numerics import LOG_2PI, matmul, shortcut

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

# Mean squared distance, in deviations, of class means from their centre up to which squares are expanded.
_NEAR = 16.0
# Rounding of the largest square, in nats, up to which scores that are linear are taken for accurate.
_ROUNDING = 2.0**-11


class SharedCovariance(Protocol):
    """A Gaussian density whose classes have one covariance."""

    @property
    def mean(self) -> Float[Array, "classes d"]:
        """μ."""
        ...

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """L⁻¹(μ_k − c) and Σ⁻¹(μ_k − c), both (K, d), where Σ = LLᵀ."""
        ...


class LinearGaussian(NamedTuple):
    """The scores of a Gaussian density whose classes have one covariance: one product, about the centre of the means.

    Attributes:
        center: c, (d,).
        weights: Σ⁻¹(μ_k − c), (K, d).
        constant: −½ (μ_k − c)ᵀΣ⁻¹(μ_k − c), (K,).
        mean: μ, (K, d).
        white: L⁻¹(μ_k − c), (K, d).
    """

    center: Float[Array, " d"]
    weights: Float[Array, "classes d"]
    constant: Float[Array, " classes"]
    mean: Float[Array, "classes d"]
    white: Float[Array, "classes d"]

    domain = domains.FINITE
    in_one_pass = True

    @classmethod
    def of(cls, density: SharedCovariance) -> LinearGaussian:
        """The linear scores of a density."""
        center = jnp.mean(density.mean, axis=0)
        white, weights = density.discriminant(center)
        return cls(center, weights, -0.5 * jnp.sum(white**2, axis=-1), density.mean, white)

    @property
    def accurate(self) -> Bool[Array, ""]:
        """Whether the largest square rounds by no more than half a thousandth of a nat, or 16 eps for each feature."""
        d = self.center.shape[0]
        most = jnp.maximum(_NEAR * d, _ROUNDING / jnp.finfo(self.constant.dtype).eps)
        return jnp.all(-2 * self.constant <= most)

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood up to a term that is common to all classes."""
        return matmul(x - self.center[None], self.weights.T) + self.constant[None]

    def scores_by_class(self, x: Float[Array, "n d"]) -> Float[Array, "classes n"]:
        """The same with the axis of the classes first."""
        return matmul(self.weights, (x - self.center[None]).T) + self.constant[:, None]

    def scores_by_nearest(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The same about the mean that is nearest to each row, for means that are far apart.

        Only differences from that mean are multiplied, so that a class far away costs the others no digits; and no
        square of the distance of a row from all of them, which is common to the classes.
        """
        nearest = jnp.argmax(self.scores(x), axis=-1)

        def about(scores: Array, k: Array) -> tuple[Array, None]:
            weights, white = self.weights - self.weights[k][None], self.white - self.white[k][None]
            mine = matmul(x - self.mean[k][None], weights.T) - 0.5 * jnp.sum(white**2, axis=-1)[None]
            return jnp.where((nearest == k)[:, None], mine, scores), None

        nothing = jnp.full_like(x, jnp.nan, shape=(x.shape[0], self.mean.shape[0]))
        return lax.scan(about, nothing, jnp.arange(self.mean.shape[0], dtype=nearest.dtype))[0]

    def all_scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The scores in the form that is accurate."""
        return shortcut(self.accurate, self.scores, self.scores_by_nearest, x)

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]]:
        """Weights and constants of the scores of x."""
        return self.weights.T, self.constant - matmul(self.weights, self.center)

    def about_origin(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The same of concrete arrays, where the centre is so near to the origin that it costs no digits.

        The terms that it adds to a score are at most about as large as those of a typical row about the centre.
        """
        center, weights, squares = (np.asarray(a, np.float64) for a in (self.center, self.weights, -2 * self.constant))
        if not np.max(np.abs(weights) @ np.abs(center)) <= 2 * np.max(squares + np.sqrt(squares)):
            return None
        dtype = self.constant.dtype
        return weights.T.astype(dtype), (-squares / 2 - weights @ center).astype(dtype)


def are_near(offset: Float[Array, "classes d"]) -> Bool[Array, ""]:
    """Whether the means lie a few deviations from their centre at most, of which `offset` are the whitened differences.

    Squares about the centre then cost no more digits than their sum does.
    """
    return jnp.all(jnp.sum(offset**2, axis=-1) <= _NEAR * offset.shape[-1])


def log_normal(distance: Array, log_scale: Array, num_features: Array | int) -> Array:
    """log N(x | μ, Σ) = −½Δ² − log |Σ|^½ − ½ d log 2π, in nats: `log_scale` is that of the root of the determinant."""
    return -0.5 * distance - log_scale - 0.5 * num_features * LOG_2PI


def squared_distances(
    x: Float[Array, "n d"], mean: Float[Array, "classes d"], whiten: Callable[..., Array], *parameters: Array
) -> Float[Array, "n classes"]:
    """‖whiten(x − μ_k)‖² of every class, one at a time: differences come first, so a large mean costs no digits."""
    if not parameters:
        return jnp.sum(whiten(x[:, None] - mean[None]) ** 2, axis=-1)

    def one_class(terms: tuple[Array, ...]) -> Array:
        center, *own = terms
        return jnp.sum(whiten(x - center[None], *own) ** 2, axis=-1)

    return lax.map(one_class, (mean, *parameters)).T
