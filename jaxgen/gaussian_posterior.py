"""The posterior of Gaussian classes under their conjugate prior, and what is read off it.

    p(μ, Σ | data) ∝ p(data | μ, Σ) p(μ, Σ)

is of the same form as the prior p(μ, Σ): its mode is the estimate, the ratio of the two normalising constants the
evidence, and N(μ, Σ) averaged over it a t density.
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
from jaxgen.moments import Moments
from jaxgen.numerics import einsum, matmul
from jaxgen.rising import log_rising
from jaxgen.student import DiagonalStudentT, StudentT
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.conjugate import NormalInverseWishart


class Posterior(NamedTuple):
    """A posterior of the same form as the prior, for each class.

    Attributes:
        mean: m, (K, d).
        mean_weight: κ, (K, 1), or (K, d) where features were missing.
        root: of S: its lower Cholesky factor, (K, d, d), for full covariances, the root of each variance, (K, d) for
            diagonal and (K, 1) for spherical ones, with 1 in place of K where they are shared.
        growth: log |S| less that of the prior, of each block, (K, 1) or (K, d), with 1 in place of K as well.
        degrees: ν, of the same shape.
        observations: what the data added to ν.
    """

    mean: Float[Array, "classes d"]
    mean_weight: Float[Array, "classes features"]
    root: Float[Array, "covariances d"] | Float[Array, "covariances d d"]
    growth: Float[Array, "covariances features"]
    degrees: Float[Array, "covariances features"]
    observations: Float[Array, "covariances features"]


def update(prior: NormalInverseWishart, statistics: Moments, covariance: str, *, raised: bool = False) -> Posterior:
    """The posterior under Gaussian classes; its prior, where the statistics are of no rows.

    κ₀ pseudo-rows at m₀, without any scatter about it, are merged into the data, and S₀ is added to their scatter. S is
    NaN where S₀ is lost in the rounding of that; or its diagonal is raised, as that of a covariance with a ridge is.
    """
    classes, d = statistics.mean.high.shape
    dtype = statistics.scatter.dtype
    prior.check_for(d, covariance)
    weight, spherical = jnp.asarray(prior.mean_weight).astype(dtype), covariance == "spherical"
    pseudo = jnp.where(weight > 0, weight, jnp.nan)
    mean = jnp.broadcast_to(jnp.asarray(prior.mean).astype(dtype), (classes, d))
    start = Moments(
        Total.of(jnp.broadcast_to(pseudo, (classes,))),
        Total.of(mean),
        jnp.zeros_like(statistics.scatter),
        None if statistics.feature_weight is None else Total.of(jnp.broadcast_to(pseudo, (classes, d))),
    )
    merged = statistics.merge(start)
    scatter, rows = merged.scatter, statistics.weight.value
    if spherical:
        scatter = jnp.sum(scatter, axis=-1, keepdims=True)
        rows = jnp.sum(jnp.broadcast_to(rows, (classes, d)), axis=-1, keepdims=True)
    if scatter.shape[0] == 1:
        rows = jnp.sum(rows, axis=0, keepdims=True)
    scale = _scale(prior, scatter.shape[1:], dtype)[None]
    if covariance == "full":
        root = _factor(scale, statistics, start, merged.weight.value, raised=raised)
        growth = _growth(cholesky(scale), scatter, root)
    else:
        root, growth = jnp.sqrt(scale + scatter), jnp.log1p(scatter / scale)
    degrees = _degrees(prior, d if covariance == "full" else 1, dtype) + rows
    return Posterior(merged.mean.value, merged.weight.value, root, growth, degrees, rows)


def _factor(
    scale: Float[Array, "1 d d"], data: Moments, start: Moments, both: Float[Array, "classes 1"], *, raised: bool
) -> Float[Array, "covariances d d"]:
    """The Cholesky factor of S.

    What the distance of the data from m₀ adds may be so large that beside it the rest would be rounded away: it is
    added to the factor of that rest.
    """
    fraction, distance, (_, spread) = data.apart(start, both)
    factor = cholesky_or_nan(scale + data.scatter + spread, jnp.full((), raised))
    weight = data.class_weight.value * fraction[:, 0]
    if len(factor) == len(distance):
        return factor_of_sum(factor, weight, distance)

    def add(factor: Array, of_class: tuple[Array, Array]) -> tuple[Array, None]:
        weight, distance = of_class
        return factor_of_sum(factor, weight[None], distance[None]), None

    return jax.lax.scan(add, factor, (weight, distance))[0]


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


def mode(posterior: Posterior, covariance: str) -> Gaussian | DiagonalGaussian:
    """The density at the joint mode of all means and covariances.

    The density of Σ has the power −½ (ν + p + 1) of its determinant, and each mean that it goes with adds −½, or for a
    spherical covariance, whose determinant is σ²'s to the power d, −½ d of σ².
    """
    classes, d = posterior.mean.shape
    means = classes // posterior.root.shape[0]
    block = d if covariance == "full" else 1
    divisor = jnp.sqrt(posterior.degrees + (block + 1 + means * (d if covariance == "spherical" else 1)))
    if covariance == "full":
        return Gaussian(posterior.mean, posterior.root / divisor[..., None])
    return DiagonalGaussian(posterior.mean, posterior.root / divisor)


def log_parameter_prior(
    prior: NormalInverseWishart, density: Gaussian | DiagonalGaussian, covariance: str
) -> Float[Array, ""]:
    """log p(μ, Σ) of all classes up to a constant, in nats; with the powers of `mode`."""
    center = jnp.broadcast_to(jnp.asarray(prior.mean).astype(density.mean.dtype), density.mean.shape)
    weight = jnp.asarray(prior.mean_weight).astype(density.mean.dtype)
    if isinstance(density, DiagonalGaussian):
        variance, block = density.scale**2, 1
        log_determinant, each = jnp.log(variance), jnp.log(jnp.broadcast_to(variance, center.shape))
        spread = _scale(prior, variance.shape[1:], variance.dtype)[None] / variance
        squares = (density.mean - center) ** 2 / variance
    else:
        whitening, block = inverse_factor(density.cholesky), center.shape[1]
        log_determinant = 2 * jnp.sum(jnp.log(diagonals(density.cholesky)), axis=-1)
        each = jnp.broadcast_to(log_determinant, center.shape[:1])
        scale = _scale(prior, whitening.shape[1:], whitening.dtype)
        spread = einsum("kij,jl,kil->k", whitening, scale, whitening)
        whitening = jnp.broadcast_to(whitening, (len(center), *scale.shape))
        squares = einsum("kij,kj->ki", whitening, density.mean - center) ** 2
    degrees = _degrees(prior, block, weight.dtype)
    covariances = (degrees + (block + 1)) * jnp.sum(log_determinant) + jnp.sum(spread)
    return -0.5 * (covariances + jnp.sum(each) + weight * jnp.sum(squares))


def log_evidence(prior: NormalInverseWishart, statistics: Moments, covariance: str) -> Float[Array, ""]:
    """log p(x | y): that of the normalising constant of the posterior over the prior's (Murphy 2012, section 5.3.2)."""
    after = update(prior, statistics, covariance)
    d, dtype = after.mean.shape[1], after.mean.dtype
    block = d if covariance == "full" else 1
    degrees, half = _degrees(prior, block, dtype), after.observations / 2
    # Gamma functions and scales are both taken in units of ν/2, in which neither is large.
    unit = after.degrees / 2
    steps = ((degrees - jnp.arange(block, dtype=dtype)) / 2)[None, None]
    gammas = jnp.sum(log_rising(steps, half[..., None], unit[..., None]), axis=-1)
    scale = 2 * jnp.log((diagonals(after.root) if covariance == "full" else after.root) / jnp.sqrt(unit))
    if covariance == "full":
        scale = jnp.sum(scale, axis=-1, keepdims=True)
    terms = gammas - half * scale - degrees / 2 * after.growth
    rows = jnp.broadcast_to(statistics.weight.value, after.mean.shape)
    means = jnp.log1p(rows / jnp.asarray(prior.mean_weight).astype(dtype))
    return jnp.sum(terms) - 0.5 * jnp.sum(means) - 0.5 * float(np.log(np.pi)) * jnp.sum(rows)


def predictive(posterior: Posterior, covariance: str) -> StudentT | DiagonalStudentT:
    """The density of one new row: N(μ, Σ) averaged over the posterior (Murphy 2012, section 4.6.3)."""
    mean, d = posterior.mean, posterior.mean.shape[1]
    widening = jnp.sqrt(1 + 1 / posterior.mean_weight)
    if covariance == "full":
        degrees = posterior.degrees[:, 0] - (d - 1)
        return StudentT(mean, posterior.root / jnp.sqrt(degrees)[:, None, None], degrees, widening[:, 0])
    scale = posterior.root / jnp.sqrt(posterior.degrees) * widening
    if covariance == "diagonal":
        return DiagonalStudentT(mean, jnp.broadcast_to(scale, mean.shape), posterior.degrees)
    identity = jnp.eye(d, dtype=mean.dtype)[None]
    if scale.shape[1] == 1:
        return StudentT(mean, identity, posterior.degrees[:, 0], scale[:, 0])
    return StudentT(mean, scale[:, :, None] * identity, posterior.degrees[:, 0], jnp.ones_like(scale[:1, 0]))


def _scale(prior: NormalInverseWishart, form: tuple[int, ...], dtype: np.dtype) -> Array:
    """S₀ in the form of a posterior scale; NaN where it is not positive."""
    scale = jnp.asarray(prior.scale).astype(dtype)
    if scale.ndim == 2:
        scale = (scale + scale.T) / 2  # as it is; and what takes derivatives by all of its elements changes both halves
        factor = lapack.cholesky(jax.lax.stop_gradient(scale)[None])
        return jnp.where(jnp.all(jnp.isfinite(factor)), scale, jnp.nan)
    scale = jnp.where(scale > 0, scale, jnp.nan)
    return jnp.broadcast_to(scale, form) if len(form) == 1 else jnp.diag(jnp.broadcast_to(scale, form[:1]))


def _degrees(prior: NormalInverseWishart, block: int, dtype: np.dtype) -> Array:
    """ν₀; NaN where it is too small."""
    degrees = jnp.asarray(block + 2 if prior.degrees is None else prior.degrees).astype(dtype)
    return jnp.where(degrees > block - 1, degrees, jnp.nan)
