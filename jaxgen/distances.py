"""Squared distances from class means that lose no digits to large ones, and the linear scores that they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.numerics import matmul

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

LOG_2PI = float(np.log(2 * np.pi))
# Mean squared distance, in deviations, of class means from their centre up to which squares are expanded.
_NEAR = 16.0


class SharedCovariance(Protocol):
    """A Gaussian density whose classes have one covariance."""

    @property
    def mean(self) -> Float[Array, "classes d"]:
        """μ."""
        ...

    def discriminant(self, center: Float[Array, " d"]) -> tuple[Array, Array]:
        """Σ⁻¹(μ_k − c), shape (K, d), and −½ (μ_k − c)ᵀΣ⁻¹(μ_k − c), shape (K,)."""
        ...


def are_near(offset: Float[Array, "classes d"]) -> Bool[Array, ""]:
    """Whether the means lie a few deviations from their centre at most, of which `offset` are the whitened differences.

    Squares about the centre then cost no more digits than their sum does.
    """
    return jnp.all(jnp.sum(offset**2, axis=-1) <= _NEAR * offset.shape[-1])


def linear_scores(density: SharedCovariance, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
    """The scores of rows: one matrix product, about the centre of the means."""
    center = jnp.mean(density.mean, axis=0)
    weights, constant = density.discriminant(center)
    return matmul(x - center[None], weights.T) + constant[None]


def linear_form(density: SharedCovariance) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]]:
    """Weights and constants of the scores."""
    center = jnp.mean(density.mean, axis=0)
    weights, constant = density.discriminant(center)
    return weights.T, constant - matmul(weights, center)


def squared_distances(
    x: Float[Array, "n d"], mean: Float[Array, "classes d"], whiten: Callable[..., Array], *parameters: Array
) -> Float[Array, "n classes"]:
    """‖whiten(x − μ_k)‖² of every class, one at a time: differences come first, so a large mean costs no digits."""

    def one_class(terms: tuple[Array, ...]) -> Array:
        center, *own = terms
        return jnp.sum(whiten(x - center[None], *own) ** 2, axis=-1)

    return lax.map(one_class, (mean, *parameters)).T
