"""How covariances are regularised: moved towards the shared one, towards a simpler form, and away from zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen.numerics import nonnegative_or_nan, or_in_float64, safe_divide
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jaxtyping import Float

    from jaxgen.diagonal import DiagonalGaussian
    from jaxgen.discriminant import GDA
    from jaxgen.gaussian import Gaussian


def check_alone(estimator: GDA) -> None:
    """Raise for a pooling or shrinkage that would play no part."""
    for name in ("pooling", "shrinkage"):
        value = primal(getattr(estimator, name))
        if not is_traced(value) and np.any(np.asarray(value) != 0):
            raise ValueError(
                f"GDA.{name} must be 0 beside a prior, whose scale and degrees regularise in its place; found {value}. "
                "Leave one of them out."
            )


def beside(weight: Float[Array, "classes features"], scatter: Array) -> Array:
    """Weights of the features in the shape of what they divide."""
    return weight if scatter.ndim == 2 else weight[..., None]


def between(start: Array, end: Array, fraction: Array) -> Array:
    """That fraction of the way from start to end; what overflows stays infinite, not 0 · ∞, which looks singular."""
    overflow = jnp.isinf(start) | jnp.isinf(end)
    return jnp.where(overflow, jnp.inf, (1 - fraction) * start + fraction * end)


def pool(
    covariance: Array, pooled: Array, weight: Float[Array, "classes features"], pooling: Array | float
) -> tuple[Array, Float[Array, "classes features"]]:
    """((1 − λ) S_k + λ S) / ((1 − λ) N_k + λ N), and that denominator.

    Args:
        covariance: S_k / N_k, the pooled one for a class without data.
        pooled: S / N.
        weight: N_k.
        pooling: λ.
    """
    pooling = nonnegative_or_nan(pooling, weight.dtype, 1.0)
    total = jnp.sum(weight, axis=0, keepdims=True)
    both = (1 - pooling) * weight + pooling * total
    return between(covariance, pooled, beside(safe_divide(pooling * total, both), covariance)), both


def shrinkage_column(name: str, value: Array | float, covariances: int, dtype: np.dtype) -> Float[Array, "k_or_1 1"]:
    """A shrinkage as a column, NaN where it is not from 0 to 1.

    Raises:
        ValueError: for an array that has not one entry for each covariance.
    """
    shape = np.shape(value)
    if shape not in ((), (covariances,)):
        raise ValueError(
            f"{name} must be one number, or one for each of {covariances} covariances; found shape {shape}. For a "
            "shared covariance, jaxgen.ledoit_wolf(x, y, shared=True) gives one."
        )
    return nonnegative_or_nan(value, dtype, 1.0).reshape(-1, 1)


def ridge_unit(variance: Float[Array, " d"]) -> Float[Array, " d"]:
    """The unit of the ridge for each feature: its pooled variance; for a constant one the mean of the others, or 1."""
    varies = variance > 0
    others = safe_divide(jnp.sum(variance), jnp.sum(varies.astype(variance.dtype)), 1.0)
    return jnp.where(varies, variance, others)


def why_not_finite(estimator: GDA, density: Gaussian | DiagonalGaussian, features: Sequence[int] | None = None) -> str:
    """Which covariance is singular or overflows, and the remedy; empty where none is."""
    factor = jax.tree.leaves(density)[-1]  # the Cholesky factors, or the scales
    wider = or_in_float64(factor.dtype)
    if np.isinf(np.asarray(factor)).any():
        return f"a covariance overflows {factor.dtype}. Rescale the features{wider}."
    unseen = np.isnan(np.asarray(density.mean)).any(axis=0)
    if unseen.any():
        j = int(np.argmax(unseen))
        return (
            f"feature {j if features is None else features[j]} was observed in no row, so that nothing is known of its "
            "mean. Leave it out, or give a prior=jaxgen.NormalInverseWishart(…)."
        )
    singular = np.isnan(np.asarray(factor)).reshape(factor.shape[0], -1).any(axis=1)
    if not singular.any():
        return ""
    whose = "the shared covariance" if estimator.shared else f"the covariance of class {int(np.argmax(singular))}"
    if estimator.prior is not None:
        return f"{whose} is singular in {factor.dtype} with {estimator.prior}. Raise its scale{wider}."
    reason, fewer = "constant", ""
    if estimator.covariance == "full":
        simpler = "covariance='diagonal'" if estimator.shared else "covariance='diagonal' or shared=True"
        reason, fewer = "constant or a combination of others", f"use {simpler}, "
    return (
        f"{whose} is singular in {factor.dtype} with ridge={float(estimator.ridge):g}: its rows are too few, or a "
        f"feature is {reason}. Raise ridge, {fewer}or drop the feature{wider}."
    )
