"""Means of rows, rows about a point, and sums of their outer products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.matrices import lower_triangle, mirrored
from jaxgen.numerics import matmul

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.labels import Labels

# A scatter of fewer products of two numbers is made at once: in 1,797 × 64, strips would save less than 0.1 ms and take
# 45 ms more to compile. A block among many of a fit has more, unless it has fewer features than classes.
_FEW_PRODUCTS = 2**23


def mean_of(total: Array, weight: Array) -> Array:
    """A sum by its weight; the sum itself, which is zero, of what weighs nothing."""
    return total / jnp.where(weight == 0, 1.0, weight)


def fixed(point: Array) -> Array:
    """A point that is subtracted in one place and counted in another: the same in both, without a derivative.

    XLA makes what is computed anew in each, and multiplies and subtracts without rounding in between. With a bit less
    it is rounded there as well.
    """
    kind = jnp.finfo(point.dtype)
    return lax.stop_gradient(lax.reduce_precision(point, kind.nexp, kind.nmant - 1))


def keep(residual: Array, observed: Array | None) -> Array:
    """What was observed, and zero for the rest."""
    return residual if observed is None else jnp.where(observed, residual, 0.0)


def scatter_of(residual: Array, labels: Labels, weight: Array, *, full: bool) -> Array:
    """Σ_i w_i e_i e_iᵀ, or its diagonal."""
    return mirrored(lower_scatter(residual, labels, weight, len(residual))) if full else matmul(weight, residual**2)


def lower_scatter(residual: Array, labels: Labels, weight: Array, num_rows: int) -> Array:
    """The same, of which only the lower triangle counts; of hard labels without weights, 1 or 0, from one factor.

    These are a chunk of `num_rows` rows that are summed in all.
    """
    weighted = weight[:, None] * residual
    if isinstance(labels, HardLabels) and labels.weight is None:
        residual = weighted

    def part(rows: slice, columns: slice) -> Array:
        return matmul(weighted[:, rows].T, residual[:, columns])

    d = residual.shape[1]
    few = num_rows * d * d < _FEW_PRODUCTS
    return lower_triangle(part, d, None if few else labels.tuning.strip)
