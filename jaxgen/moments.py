"""Weight, mean and centred scatter: the sufficient statistics of the Gaussian families."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.numerics import Total, matmul, safe_divide, with_diagonal

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels, SoftLabels


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "mean", "scatter"), meta_fields=())
@dataclass(frozen=True)
class Moments:
    """Weight, mean and centred scatter of each class.

    A scatter is Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ, or its diagonal; a shared one is summed over the classes. Squares are
    only ever taken of differences: E[x²] − E[x]² loses every digit when the mean is large.

    Attributes:
        class_weight: N_k, shape (K,).
        mean: shape (K, d), zero for a class without weight; in two limbs, so that many small steps do not drift.
        scatter: (K, d, d) or (K, d), with 1 in place of K where it is shared.
    """

    class_weight: Total
    mean: Total
    scatter: Float[Array, "covariances d"] | Float[Array, "covariances d d"]

    @classmethod
    def of(cls, x: Float[Array, "n d"], labels: Labels, *, full: bool, shared: bool) -> Moments:
        """The moments of a block of rows.

        Args:
            x: the block.
            labels: its labels.
            full: keep the whole scatter matrix, not its diagonal alone.
            shared: keep one scatter, summed over the classes.
        """
        class_weight = labels.class_sum(jnp.ones_like(x[:, 0]))
        # The first mean carries the rounding of a sum of raw values. It takes their common part away; the mean of what
        # is left corrects it, and squares are taken about both.
        first = safe_divide(labels.class_sum(x), class_weight[:, None])
        if isinstance(labels, HardLabels):
            correction, scatter = _exclusive_moments(x, labels, class_weight, first, full=full, shared=shared)
        else:
            correction, scatter = _soft_moments(x, labels, class_weight, first, full=full, shared=shared)
        return cls(Total.of(class_weight), Total.of(first).merge(Total.of(correction)), scatter)

    def merge(self, other: Moments) -> Moments:
        """The moments of both batches: Chan, Golub & LeVeque (1979), pairwise."""
        class_weight = self.class_weight.merge(other.class_weight)
        mine, theirs = self.class_weight.value[:, None], other.class_weight.value[:, None]
        share = safe_divide(theirs, class_weight.value[:, None])
        delta = jnp.where((mine > 0) & (theirs > 0), other.mean.merge(-self.mean).value, 0.0)
        mean = _where(mine > 0, self.mean.merge(Total.of(share * delta)), other.mean)
        return Moments(class_weight, mean, self.scatter + other.scatter + self._between(mine * share, delta))

    def subtract(self, part: Moments) -> Moments:
        """The moments of what remains: the merge solved for the other batch; no variance turns negative."""
        class_weight = self.class_weight.subtract(part.class_weight)
        whole, gone, rest = (t.value[:, None] for t in (self.class_weight, part.class_weight, class_weight))
        share = safe_divide(gone, rest)
        delta = jnp.where((rest > 0) & (gone > 0), self.mean.merge(-part.mean).value, 0.0)
        mean = _where(rest > 0, self.mean.merge(Total.of(share * delta)), Total.of(jnp.zeros_like(delta)))
        scatter = self.scatter - part.scatter - self._between(whole * share, delta)
        if scatter.shape[0] == rest.shape[0]:
            scatter = jnp.where(rest.reshape(-1, *(1,) * (scatter.ndim - 1)) > 0, scatter, 0.0)
        variance = jnp.maximum(diagonal(scatter), 0.0)
        return Moments(class_weight, mean, variance if scatter.ndim == 2 else with_diagonal(scatter, variance))

    def _between(self, weight: Float[Array, "classes 1"], delta: Float[Array, "classes d"]) -> Array:
        """Σ w δδᵀ, in the form of the scatter."""
        shared = self.scatter.shape[0] == 1
        if self.scatter.ndim == 2:
            between = weight * delta**2
            return jnp.sum(between, axis=0, keepdims=True) if shared else between
        if shared:
            return matmul((weight * delta).T, delta)[None]
        return (weight * delta)[:, :, None] * delta[:, None, :]


def diagonal(scatter: Array) -> Array:
    """The diagonals of a stack of matrices, or the stack of diagonals itself."""
    return scatter if scatter.ndim == 2 else jnp.diagonal(scatter, axis1=-2, axis2=-1)


def resolved_variance(covariance: Array, mean: Float[Array, "classes d"]) -> Array:
    """The variances, zero where a standard deviation is below a quarter of the mean's rounding: that of a constant."""
    rounding = 0.25 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    variance = diagonal(covariance)
    if variance.shape[0] == 1:
        rounding = jnp.max(rounding, axis=0, keepdims=True)
    return jnp.where(variance > rounding**2, variance, 0.0)


def _exclusive_moments(
    x: Array, labels: HardLabels, class_weight: Array, first: Array, *, full: bool, shared: bool
) -> tuple[Array, Array]:
    """Correction of the first means and scatters, where each row is of one class: all classes in one pass."""
    residual = x - labels.expand(first)
    correction = safe_divide(labels.class_sum(residual), class_weight[:, None])
    residual -= labels.expand(correction)
    if shared:
        return correction, _scatter(residual, labels.row_weight, full=full)[None]
    if not full:
        return correction, labels.class_sum(residual**2)
    classes = jnp.arange(labels.num_classes)
    return correction, lax.map(lambda k: _scatter(residual, labels.responsibility(k), full=full), classes)


def _soft_moments(
    x: Array, labels: SoftLabels, class_weight: Array, first: Array, *, full: bool, shared: bool
) -> tuple[Array, Array]:
    """The same where rows are shared by classes: a pass for each class, about its own mean."""

    def one_class(k: Array) -> tuple[Array, Array]:
        responsibility = labels.responsibility(k)
        residual = x - first[k][None]
        correction = safe_divide(matmul(responsibility, residual), class_weight[k])
        return correction, _scatter(residual - correction[None], responsibility, full=full)

    if not shared:
        return lax.map(one_class, jnp.arange(labels.num_classes))

    def add(total: Array, k: Array) -> tuple[Array, Array]:
        correction, scatter = one_class(k)
        return total + scatter, correction

    correction, start = one_class(jnp.asarray(0))
    total, rest = lax.scan(add, start, jnp.arange(1, labels.num_classes))
    return jnp.concatenate([correction[None], rest]), total[None]


def _scatter(residual: Array, weight: Array, *, full: bool) -> Array:
    """Σ_i w_i e_i e_iᵀ, or its diagonal."""
    if full:
        return matmul((weight[:, None] * residual).T, residual)
    return matmul(weight, residual**2)


def _where(condition: Array, total: Total, otherwise: Total) -> Total:
    return jax.tree.map(partial(jnp.where, condition), total, otherwise)
