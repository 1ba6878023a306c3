"""The scale S of a posterior of covariances, in each of their forms: what an inverse Wishart or inverse χ² leaves open.

Full covariances have a matrix, by its Cholesky factor; diagonal and spherical ones a number for each variance, by its
root. With S go log |S|/|S₀|, which keeps its digits where the data add little, and what the form makes of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import lapack
from jaxgen.diagonal import DiagonalGaussian
from jaxgen.gaussian import Gaussian
from jaxgen.matrices import cholesky, cholesky_or_nan, diagonals, factor_of_sum, inverse_factor
from jaxgen.numerics import einsum, matmul
from jaxgen.student import DiagonalStudentT, StudentT

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.conjugate import NormalInverseWishart
    from jaxgen.moments import Moments


class FullScale(NamedTuple):
    """S of full covariances, (C, d, d), where C is K, or 1 for a shared one.

    Attributes:
        cholesky: its lower factor, (C, d, d).
        growth: log |S|/|S₀|, (C, 1).
    """

    cholesky: Float[Array, "covariances d d"]
    growth: Float[Array, "covariances 1"]

    @classmethod
    def of(
        cls, prior: NormalInverseWishart, data: Moments, pseudo: Moments, merged: Moments, *, raised: bool
    ) -> FullScale:
        """S₀ and the scatter of data merged with pseudo-rows; a diagonal raised, or NaN, where S₀ is lost in it.

        What the distance of the data from m₀ adds may be so large that beside it the rest would be rounded away: it is
        added to the factor of that rest.
        """
        scale = prior_scale(prior, data.scatter.shape[1:], data.scatter.dtype)[None]
        fraction, distance, (_, spread) = data.apart(pseudo, merged.weight.value)
        factor = cholesky_or_nan(scale + data.scatter + spread, jnp.full((), raised))
        factor = _with_outer_products(factor, data.class_weight.value * fraction[:, 0], distance)
        return cls(factor, _growth(cholesky(scale), merged.scatter, factor))

    @staticmethod
    def block(d: int) -> int:
        """The p of an inverse Wishart of p × p matrices."""
        return d

    @staticmethod
    def rows(weight: Float[Array, "classes features"], d: int) -> Float[Array, "classes features"]:
        """How many rows of a block those of so much weight in d features are."""
        return weight

    @staticmethod
    def mean_power(d: int) -> int:
        """The density of a class's mean in d features has −½ of this as the power of |S|."""
        return 1

    def log_roots(self, unit: Float[Array, "covariances 1"]) -> Float[Array, "covariances 1"]:
        """½ log |S / unit|."""
        return jnp.sum(jnp.log(diagonals(self.cholesky) / jnp.sqrt(unit)), axis=-1, keepdims=True)

    def gaussian(self, mean: Float[Array, "classes d"], divisor: Float[Array, "covariances 1"]) -> Gaussian:
        """N(mean, S / divisor)."""
        return Gaussian(mean, self.cholesky / jnp.sqrt(divisor)[..., None])

    def student(self, mean: Array, degrees: Array, widening: Array) -> StudentT:
        """N(μ, Σ) averaged over the posterior, of so many degrees, whose means are wider by that factor."""
        degrees = degrees[:, 0] - (mean.shape[1] - 1)
        return StudentT(mean, self.cholesky / jnp.sqrt(degrees)[:, None, None], degrees, widening[:, 0])


class DiagonalScale(NamedTuple):
    """S of each variance, (C, d); or of one for all features, (C, 1).

    Attributes:
        root: of S, (C, d) or (C, 1).
        growth: log S/S₀, of the same shape.
    """

    root: Float[Array, "covariances features"]
    growth: Float[Array, "covariances features"]

    @classmethod
    def of(
        cls, prior: NormalInverseWishart, data: Moments, pseudo: Moments, merged: Moments, *, raised: bool
    ) -> DiagonalScale:
        """S₀ and the scatter of data merged with pseudo-rows."""
        scatter = cls.rows(merged.scatter, merged.scatter.shape[1])
        scale = prior_scale(prior, scatter.shape[1:], scatter.dtype)[None]
        return cls(jnp.sqrt(scale + scatter), jnp.log1p(scatter / scale))

    @staticmethod
    def block(d: int) -> int:
        """Each variance by itself is an inverse χ², a Wishart of 1 × 1 matrices."""
        return 1

    @staticmethod
    def rows(weight: Float[Array, "classes features"], d: int) -> Float[Array, "classes features"]:
        """Of each feature."""
        return weight

    @staticmethod
    def mean_power(d: int) -> int:
        """One feature has one variance."""
        return 1

    def log_roots(self, unit: Float[Array, "covariances features"]) -> Float[Array, "covariances features"]:
        """½ log S / unit."""
        return jnp.log(self.root / jnp.sqrt(unit))

    def gaussian(self, mean: Float[Array, "classes d"], divisor: Array) -> DiagonalGaussian:
        """N(mean, S / divisor)."""
        return DiagonalGaussian(mean, self.root / jnp.sqrt(divisor))

    def student(self, mean: Array, degrees: Array, widening: Array) -> DiagonalStudentT | StudentT:
        """A t density of each feature."""
        scale = self.root / jnp.sqrt(degrees) * widening
        return DiagonalStudentT(mean, jnp.broadcast_to(scale, mean.shape), degrees)


class SphericalScale(DiagonalScale):
    """S of one variance for all features, (C, 1)."""

    @staticmethod
    def rows(weight: Float[Array, "classes features"], d: int) -> Float[Array, "classes 1"]:
        """Every feature of a row counts as one."""
        return jnp.sum(jnp.broadcast_to(weight, (len(weight), d)), axis=-1, keepdims=True)

    @staticmethod
    def mean_power(d: int) -> int:
        """The determinant of σ²I is σ² to the power d."""
        return d

    def student(self, mean: Array, degrees: Array, widening: Array) -> StudentT:
        """One σ² that all features share makes them dependent."""
        scale, degrees = self.root / jnp.sqrt(degrees) * widening, degrees[:, 0]
        identity = jnp.eye(mean.shape[1], dtype=mean.dtype)[None]
        if scale.shape[1] == 1:
            return StudentT(mean, identity, degrees, scale[:, 0])
        return StudentT(mean, scale[:, :, None] * identity, degrees, jnp.ones_like(scale[:1, 0]))


SCALES: dict[str, type[FullScale] | type[DiagonalScale]] = {
    "full": FullScale,
    "diagonal": DiagonalScale,
    "spherical": SphericalScale,
}


def prior_scale(prior: NormalInverseWishart, form: tuple[int, ...], dtype: np.dtype) -> Array:
    """S₀ in the form of a posterior scale; NaN where it is not positive."""
    scale = jnp.asarray(prior.scale).astype(dtype)
    if scale.ndim == 2:
        scale = (scale + scale.T) / 2  # as it is; and what takes derivatives by all of its elements changes both halves
        factor = lapack.cholesky(jax.lax.stop_gradient(scale)[None])
        return jnp.where(jnp.all(jnp.isfinite(factor)), scale, jnp.nan)
    scale = jnp.where(scale > 0, scale, jnp.nan)
    return jnp.broadcast_to(scale, form) if len(form) == 1 else jnp.diag(jnp.broadcast_to(scale, form[:1]))


def _with_outer_products(
    factor: Float[Array, "covariances d d"], weight: Float[Array, " classes"], vector: Float[Array, "classes d"]
) -> Float[Array, "covariances d d"]:
    """The Cholesky factors of matrices to which each class adds w v vᵀ, all classes to one that they share."""
    if len(factor) == len(vector):
        return factor_of_sum(factor, weight, vector)

    def add(factor: Array, of_class: tuple[Array, Array]) -> tuple[Array, None]:
        weight, vector = of_class
        return factor_of_sum(factor, weight[None], vector[None]), None

    return jax.lax.scan(add, factor, (weight, vector))[0]


def _growth(
    start: Float[Array, "1 d d"], added: Float[Array, "covariances d d"], factor: Float[Array, "covariances d d"]
) -> Float[Array, "covariances 1"]:
    """log |S₀ + A| / |S₀| by the Cholesky factors of both, with the digits of A where it is small beside S₀.

    That of I + L₀⁻¹AL₀⁻ᵀ is L₀⁻¹L, of which the square of a diagonal element exceeds 1 by that of the matrix less the
    squares that stand beside it.
    """
    whitening = inverse_factor(start)
    relative = matmul(whitening, factor)
    of_added = einsum("kij,kij->ki", matmul(whitening, added), jnp.broadcast_to(whitening, added.shape))
    excess = of_added - jnp.sum(jnp.tril(relative, -1) ** 2, axis=-1)
    small = of_added < 1
    logs = jnp.where(small, jnp.log1p(jnp.where(small, excess, 0.0)), 2 * jnp.log(diagonals(relative)))
    return jnp.sum(logs, axis=-1, keepdims=True)
