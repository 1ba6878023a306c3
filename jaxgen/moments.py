"""Weight, mean and centred scatter: the sufficient statistics of the Gaussian families."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import Total, matmul, safe_divide, with_diagonal

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "mean", "scatter"), meta_fields=())
@dataclass(frozen=True)
class Moments:
    """Weight, mean and centred scatter of each class.

    A scatter is Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ, or its diagonal; a shared one is summed over the classes. Squares are
    only ever taken of differences: E[x²] − E[x]² loses every digit when the mean is large.

    Attributes:
        class_weight: N_k, shape (K,).
        mean: shape (K, d), zero for a class without weight.
        scatter: (K, d, d) or (K, d), with 1 in place of K where it is shared.
    """

    class_weight: Total
    mean: Float[Array, "classes d"]
    scatter: Float[Array, "covariances d"] | Float[Array, "covariances d d"]

    @classmethod
    def of(cls, x: Float[Array, "n d"], labels: Labels, *, full: bool, shared: bool) -> Moments:
        """The moments of a block of rows; a row of weight 0 may hold anything.

        Args:
            x: the block.
            labels: its labels.
            full: keep the whole scatter matrix, not its diagonal alone.
            shared: keep one scatter, summed over the classes.
        """
        weight = labels.row_weight
        # A pilot row takes the common mean away before anything is summed or squared.
        pilot = x[jnp.argmax(weight > 0)]
        offset = jnp.where((weight > 0)[:, None], x - pilot[None], 0.0)
        class_weight = labels.class_sum(jnp.ones_like(weight))
        mean = safe_divide(labels.class_sum(offset), class_weight[:, None])
        if labels.overlap() is None:
            # Once more about itself: the first mean carries the rounding of a long sum, the second none that matters,
            # so that a feature that is constant within its class has scatter zero.
            mean += safe_divide(labels.class_sum(offset - labels.expand(mean)), class_weight[:, None])
        scatter = (_pooled_scatter if shared else _class_scatters)(offset, labels, mean, full)
        return cls(Total.of(class_weight), jnp.where(class_weight[:, None] > 0, pilot[None] + mean, 0.0), scatter)

    def merge(self, other: Moments) -> Moments:
        """The moments of both batches: Chan, Golub & LeVeque (1979), pairwise."""
        class_weight = self.class_weight.merge(other.class_weight)
        mine, theirs = self.class_weight.value[:, None], other.class_weight.value[:, None]
        share = safe_divide(theirs, class_weight.value[:, None])
        delta = jnp.where((mine > 0) & (theirs > 0), other.mean - self.mean, 0.0)
        mean = jnp.where(mine > 0, self.mean + share * delta, other.mean)
        return Moments(class_weight, mean, self.scatter + other.scatter + self._between(mine * share, delta))

    def subtract(self, part: Moments) -> Moments:
        """The moments of what remains: the merge solved for the other batch; no variance turns negative."""
        class_weight = self.class_weight.subtract(part.class_weight)
        whole, gone, rest = (t.value[:, None] for t in (self.class_weight, part.class_weight, class_weight))
        share = safe_divide(gone, rest)
        delta = jnp.where((rest > 0) & (gone > 0), self.mean - part.mean, 0.0)
        mean = jnp.where(rest > 0, self.mean + share * delta, 0.0)
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


def _class_scatters(x: Array, labels: Labels, mean: Array, full: bool) -> Array:  # noqa: FBT001
    """Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ of each class."""
    if not full and labels.overlap() is None:
        return labels.class_sum((x - labels.expand(mean)) ** 2)
    return lax.map(
        lambda k: _scatter(x - mean[k][None], labels.responsibility(k), full),
        jnp.arange(labels.num_classes),
    )


def _pooled_scatter(x: Array, labels: Labels, mean: Array, full: bool) -> Array:  # noqa: FBT001
    """The same summed over the classes, without a pass for each of them.

    It is the scatter about each row's expected mean, plus, where rows are shared by classes with overlap a_kl, the
    scatter of their means about that, ½ Σ_kl a_kl (μ_k − μ_l)(μ_k − μ_l)ᵀ. Nothing cancels.
    """
    within = _scatter(x - labels.expand(mean), labels.row_weight, full)
    overlap = labels.overlap()
    if overlap is None:
        return within[None]
    spread = lax.map(
        lambda k: _scatter(mean - mean[k][None], overlap[k], full),
        jnp.arange(labels.num_classes),
    )
    return (within + 0.5 * jnp.sum(spread, axis=0))[None]


def _scatter(residual: Array, weight: Array, full: bool) -> Array:  # noqa: FBT001
    """Σ_i w_i e_i e_iᵀ, or its diagonal."""
    if full:
        return matmul((weight[:, None] * residual).T, residual)
    return matmul(weight, residual**2)
