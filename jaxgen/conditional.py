"""What a Gaussian knows of the features that were not observed, given those that were.

    x_m | x_o ~ N(μ_m − P_mm⁻¹ P_mo (x_o − μ_o), P_mm⁻¹),    P = Σ⁻¹

in fixed shapes: rows and columns of P that were observed are those of the identity. P is the square of the whitening,
so nothing is subtracted that could cancel (Petersen & Pedersen 2012, The Matrix Cookbook, section 8.1.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxgen.labels import HardLabels, SoftLabels
from jaxgen.matrices import cholesky_or_nan, inverse_factor
from jaxgen.numerics import einsum, matmul

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.labels import Labels
    from jaxgen.missing import PartialRows


def residuals(
    x: PartialRows, mean: Float[Array, "classes d"], whitening: Float[Array, "covariances d d"]
) -> tuple[Float[Array, "n classes d"], Float[Array, "n covariances d d"]]:
    """Every row less the mean of each class, its missing features at E[x_m | x_o], and R⁻¹ of P_mm = RRᵀ.

    Args:
        x: rows, zero where they were not observed.
        mean: μ of each class.
        whitening: L⁻¹ of each class, or one for all.
    """
    classes, d = mean.shape
    missing = ~jnp.asarray(x.observed)
    precision = einsum("cji,cjk->cik", whitening, whitening)
    both = (missing[:, :, None] & missing[:, None, :])[:, None]
    padded = jnp.where(both, precision[None], jnp.eye(d, dtype=mean.dtype)[None, None])
    factor = cholesky_or_nan(padded.reshape(-1, d, d), jnp.ones((), bool))
    inverse = inverse_factor(factor).reshape(padded.shape)
    # The gradient of the distance in what is missing, at its mean μ_m; shared factors take all classes at once.
    residual = jnp.where(missing[:, None], 0.0, x.values[:, None] - mean[None])
    each = jnp.broadcast_to(whitening, (classes, d, d))
    white = einsum("cij,ncj->nci", each, residual)
    slope = jnp.where(missing[:, None], einsum("cji,ncj->nci", each, white), 0.0)
    if inverse.shape[1] == classes:
        step = einsum("ncji,ncj->nci", inverse, einsum("ncij,ncj->nci", inverse, slope))
    else:
        step = matmul(matmul(slope, jnp.swapaxes(inverse[:, 0], 1, 2)), inverse[:, 0])
    return jnp.where(missing[:, None], -step, residual), inverse


def covariance(x: PartialRows, inverse: Float[Array, "n covariances d d"]) -> Float[Array, "n covariances d d"]:
    """P_mm⁻¹, the covariance of what is missing, zero elsewhere; from R⁻¹."""
    missing = ~jnp.asarray(x.observed)
    both = (missing[:, :, None] & missing[:, None, :])[:, None]
    return jnp.where(both, matmul(jnp.swapaxes(inverse, 2, 3), inverse), 0.0)


def expected(
    x: PartialRows,
    labels: Labels,
    mean: Float[Array, "classes d"],
    whitening: Float[Array, "covariances d d"],
    *,
    shared: bool,
) -> tuple[Float[Array, "rows d"], HardLabels, Float[Array, "sums d d"]]:
    """Rows as they are expected under their own class, whose they are, and the covariances of what was missing, summed.

    Rows that are shared by classes are given once for each. The sums are of each class, or `shared` by all, whether the
    covariances by which they are made are or not.
    """
    if not shared:
        whitening = jnp.broadcast_to(whitening, (len(mean), *whitening.shape[1:]))
    if isinstance(labels, SoftLabels):
        r, k = labels.dense(), labels.num_classes
        residual, inverse = residuals(x, mean, whitening)
        filled = jnp.where(jnp.asarray(x.observed)[:, None], x.values[:, None], mean[None] + residual)
        weight = r if len(whitening) == k else jnp.sum(r, axis=1, keepdims=True)
        spread = einsum("nk,nkij->kij", weight, covariance(x, inverse))
        own = jnp.tile(jnp.arange(k, dtype=jnp.int32), len(r))
        labels = HardLabels(own, r.reshape(-1), k, tuning=labels.tuning, dtype=r.dtype)
        return filled.reshape(-1, filled.shape[-1]), labels, _over_classes(spread, shared=shared)

    def of_row(x: PartialRows, mean: Array, whitening: Array) -> tuple[Array, Array]:
        row = jax.tree.map(lambda leaf: leaf[None], x)
        residual, inverse = residuals(row, mean[None], whitening[None])
        return jnp.where(x.observed, x.values, mean + residual[0, 0]), covariance(row, inverse)[0, 0]

    single = len(whitening) == 1
    filled, spread = jax.vmap(of_row, in_axes=(0, 0, None if single else 0))(
        x, labels.expand(mean), whitening[0] if single else labels.expand(whitening)
    )
    return filled, labels, _over_classes(labels.class_sum(spread), shared=shared)


def _over_classes(sums: Float[Array, "classes d d"], *, shared: bool) -> Float[Array, "sums d d"]:
    return jnp.sum(sums, axis=0, keepdims=True) if shared else sums


def drawn(
    x: PartialRows,
    y: Int[Array, " n"],
    mean: Float[Array, "classes d"],
    whitening: Float[Array, "covariances d d"],
    normal: Float[Array, "n d"],
) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """The residuals of each row in its class y, and standard normal draws as draws of N(0, P_mm⁻¹).

    What was observed is not to be looked at in either.
    """
    residual, inverse = residuals(x, mean, whitening)
    row = jnp.arange(y.shape[0], dtype=jnp.int32)
    own = inverse[row, y] if inverse.shape[1] > 1 else inverse[:, 0]
    return residual[row, y], einsum("nji,nj->ni", own, normal)
