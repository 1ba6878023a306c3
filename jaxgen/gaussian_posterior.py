"""The posterior of Gaussian classes under their conjugate prior, and what is read off it.

    p(μ, Σ | data) ∝ p(data | μ, Σ) p(μ, Σ)

is of the same form as the prior p(μ, Σ): its mode is the estimate, the ratio of the two normalising constants the
evidence, and N(μ, Σ) averaged over it a t density.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxgen.diagonal import DiagonalGaussian
from jaxgen.matrices import diagonals, inverse_factor
from jaxgen.moments import Moments
from jaxgen.numerics import einsum
from jaxgen.posterior_scale import SCALES, prior_scale
from jaxgen.rising import log_rising
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.conjugate import NormalInverseWishart
    from jaxgen.gaussian import Gaussian
    from jaxgen.posterior_scale import DiagonalScale, FullScale
    from jaxgen.student import DiagonalStudentT, StudentT


class Posterior(NamedTuple):
    """A posterior of the same form as the prior, for each class.

    Attributes:
        mean: m, (K, d).
        mean_weight: κ, (K, 1), or (K, d) where features were missing.
        scale: S, of each class, or of all where they share it.
        degrees: ν, (K, 1) or (K, d), with 1 in place of K where the scale is shared.
        observations: what the data added to ν.
    """

    mean: Float[Array, "classes d"]
    mean_weight: Float[Array, "classes features"]
    scale: FullScale | DiagonalScale
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
    weight = jnp.asarray(prior.mean_weight).astype(dtype)
    weight = jnp.where(weight > 0, weight, jnp.nan)
    pseudo = Moments(
        Total.of(jnp.broadcast_to(weight, (classes,))),
        Total.of(jnp.broadcast_to(jnp.asarray(prior.mean).astype(dtype), (classes, d))),
        jnp.zeros_like(statistics.scatter),
        None if statistics.feature_weight is None else Total.of(jnp.broadcast_to(weight, (classes, d))),
    )
    merged, form = statistics.merge(pseudo), SCALES[covariance]
    rows = form.rows(statistics.weight.value, d)
    if statistics.scatter.shape[0] == 1:
        rows = jnp.sum(rows, axis=0, keepdims=True)
    scale = form.of(prior, statistics, pseudo, merged, raised=raised)
    degrees = _degrees(prior, form.block(d), dtype) + rows
    return Posterior(merged.mean.value, merged.weight.value, scale, degrees, rows)


def mode(posterior: Posterior) -> Gaussian | DiagonalGaussian:
    """The density at the joint mode of all means and covariances.

    The density of Σ has the power −½ (ν + p + 1) of its determinant, and each mean that it goes with adds −½, or for a
    spherical covariance, whose determinant is σ²'s to the power d, −½ d of σ².
    """
    (classes, d), scale = posterior.mean.shape, posterior.scale
    means = classes // len(scale.growth)
    divisor = posterior.degrees + (scale.block(d) + 1 + means * scale.mean_power(d))
    return scale.gaussian(posterior.mean, divisor)


def log_parameter_prior(prior: NormalInverseWishart, density: Gaussian | DiagonalGaussian) -> Float[Array, ""]:
    """log p(μ, Σ) of all classes up to a constant, in nats; with the powers of `mode`."""
    center = jnp.broadcast_to(jnp.asarray(prior.mean).astype(density.mean.dtype), density.mean.shape)
    weight = jnp.asarray(prior.mean_weight).astype(density.mean.dtype)
    if isinstance(density, DiagonalGaussian):
        variance, block = density.scale**2, 1
        log_determinant, each = jnp.log(variance), jnp.log(jnp.broadcast_to(variance, center.shape))
        spread = prior_scale(prior, variance.shape[1:], variance.dtype)[None] / variance
        squares = (density.mean - center) ** 2 / variance
    else:
        whitening, block = inverse_factor(density.cholesky), center.shape[1]
        log_determinant = 2 * jnp.sum(jnp.log(diagonals(density.cholesky)), axis=-1)
        each = jnp.broadcast_to(log_determinant, center.shape[:1])
        scale = prior_scale(prior, whitening.shape[1:], whitening.dtype)
        spread = einsum("kij,jl,kil->k", whitening, scale, whitening)
        whitening = jnp.broadcast_to(whitening, (len(center), *scale.shape))
        squares = einsum("kij,kj->ki", whitening, density.mean - center) ** 2
    degrees = _degrees(prior, block, weight.dtype)
    covariances = (degrees + (block + 1)) * jnp.sum(log_determinant) + jnp.sum(spread)
    return -0.5 * (covariances + jnp.sum(each) + weight * jnp.sum(squares))


def log_evidence(prior: NormalInverseWishart, statistics: Moments, covariance: str) -> Float[Array, ""]:
    """log p(x | y): that of the normalising constant of the posterior over the prior's (Murphy 2012, section 5.3.2)."""
    after = update(prior, statistics, covariance)
    dtype, block = after.mean.dtype, after.scale.block(after.mean.shape[1])
    degrees, half = _degrees(prior, block, dtype), after.observations / 2
    # Gamma functions and scales are both taken in units of ν/2, in which neither is large.
    unit = after.degrees / 2
    steps = ((degrees - jnp.arange(block, dtype=dtype)) / 2)[None, None]
    gammas = jnp.sum(log_rising(steps, half[..., None], unit[..., None]), axis=-1)
    terms = gammas - after.observations * after.scale.log_roots(unit) - degrees / 2 * after.scale.growth
    rows = jnp.broadcast_to(statistics.weight.value, after.mean.shape)
    means = jnp.log1p(rows / jnp.asarray(prior.mean_weight).astype(dtype))
    return jnp.sum(terms) - 0.5 * jnp.sum(means) - 0.5 * float(np.log(np.pi)) * jnp.sum(rows)


def predictive(posterior: Posterior) -> StudentT | DiagonalStudentT:
    """The density of one new row: N(μ, Σ) averaged over the posterior (Murphy 2012, section 4.6.3)."""
    widening = jnp.sqrt(1 + 1 / posterior.mean_weight)
    return posterior.scale.student(posterior.mean, posterior.degrees, widening)


def _degrees(prior: NormalInverseWishart, block: int, dtype: np.dtype) -> Array:
    """ν₀; NaN where it is too small."""
    degrees = jnp.asarray(block + 2 if prior.degrees is None else prior.degrees).astype(dtype)
    return jnp.where(degrees > block - 1, degrees, jnp.nan)
