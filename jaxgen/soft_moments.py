"""The moments of a block of rows that are shared by classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import derivative_alone, matmul, shortcut
from jaxgen.scatter import fixed, keep, mean_of, scatter_of

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.labels import SoftLabels

    # A point for each class, the mean of what is left when it is taken away, and the scatter about both.
    _Parts: TypeAlias = tuple[Array, Array, Array]

# Squares about a point that are so many times those about the mean: their difference is rounded by four bits more.
_MOST_SQUARES = 16.0
# Classes, for each feature, up to which a product for all pairs of classes pays. 4,096 × 50 in 400 classes take 31 ms
# for a matrix and 15 for a diagonal, by passes 139 and 43; of two features either takes less than a millisecond.
_CLASSES = 8


def soft_moments(
    x: Array, labels: SoftLabels, weight: Array, observed: Array | None = None, *, full: bool, shared: bool
) -> _Parts:
    """A point for each class, the mean of what is left when it is taken away, and the scatter about both.

    By products for all classes at once, where that keeps the digits; else by a pass for each class about its own mean.

    Args:
        x: the rows, zero where they were not observed.
        labels: whose they are.
        weight: of each class, (K, 1), or of the observed features of each, (K, d).
        observed: where not all were.
        full: keep the whole scatter matrix, not its diagonal alone.
        shared: keep one scatter, summed over the classes.
    """
    if shared and observed is None and labels.num_classes <= _CLASSES * x.shape[1]:
        return _pooled(x, labels, weight, full=full)
    if shared or full:
        return _by_class(x, labels, weight, observed, full=full, shared=shared)
    center = _center(x, labels, weight, observed)
    residual = keep(x - center[None], observed)
    first, second = labels.class_sum(residual), labels.class_sum(residual**2)
    rest = mean_of(first, weight)
    spread = second - rest * first
    near = (weight > 0) & (second < jnp.inf) & (second <= _MOST_SQUARES * spread)
    own = jnp.where(weight == 0, 0.0, fixed(center[None] + rest))

    def one_class(k: Array) -> _Parts:
        def at_hand() -> _Parts:
            return center, rest[k], spread[k]

        return shortcut(jnp.all(near[k]), at_hand, lambda: _one_class(x, labels, weight, observed, own, k, full=False))

    return lax.map(one_class, jnp.arange(labels.num_classes))


def _pooled(x: Array, labels: SoftLabels, weight: Array, *, full: bool) -> _Parts:
    """The same of a scatter that all classes share.

    About p_i, the mean of the classes' means by the shares that they have in a row, a square falls into two parts, both
    of what is positive, and the second one into the squares between two classes by what they share:

        Σ_k r_ik (x_i − μ_k)(x_i − μ_k)ᵀ = w_i (x_i − p_i)(x_i − p_i)ᵀ + ½ Σ_kl r_ik r_il / w_i (μ_k − μ_l)(μ_k − μ_l)ᵀ
    """
    center = _center(x, labels, weight, None)
    residual = x - center[None]
    first = labels.class_sum(residual)
    rest = jnp.where(weight == 0, first + weight * center[None], mean_of(first, weight))
    points = jnp.where(weight == 0, 0.0, center[None])

    r, row_weight, means = lax.stop_gradient((labels.dense(), labels.row_weight, jnp.where(weight == 0, 0.0, rest)))
    share = r / jnp.where(row_weight == 0, 1.0, row_weight)[:, None]
    residual = lax.stop_gradient(residual) - matmul(share, means)
    common = matmul(r.T, share)

    def add(total: Array, k: Array) -> tuple[Array, None]:
        apart = means - means[k][None]
        weighted = 0.5 * common[k][:, None] * apart
        return total + (matmul(weighted.T, apart) if full else jnp.sum(weighted * apart, axis=0)), None

    scatter, _ = lax.scan(add, scatter_of(residual, labels, row_weight, full=full), jnp.arange(labels.num_classes))

    def passes(x: Array, labels: SoftLabels, weight: Array) -> Array:
        return _by_class(x, labels, weight, None, full=full, shared=True)[2]

    # The parts have no derivatives where a row weighs nothing, though their sum has.
    scatter = scatter[None]
    return points, rest, scatter + derivative_alone(passes, scatter, x, labels, weight)


def _by_class(
    x: Array, labels: SoftLabels, weight: Array, observed: Array | None, *, full: bool, shared: bool
) -> _Parts:
    """The same by a pass for each class."""
    own = jnp.where(weight == 0, 0.0, fixed(mean_of(labels.class_sum(x), weight)))

    def one_class(k: Array) -> _Parts:
        return _one_class(x, labels, weight, observed, own, k, full=full)

    if not shared:
        return lax.map(one_class, jnp.arange(labels.num_classes))

    def add(total: Array, k: Array) -> tuple[Array, Array]:
        _, rest, scatter = one_class(k)
        return total + scatter, rest

    _, first, scatter = one_class(jnp.asarray(0))
    total, others = lax.scan(add, scatter, jnp.arange(1, labels.num_classes))
    return own, jnp.concatenate([first[None], others]), total[None]


def _one_class(
    x: Array, labels: SoftLabels, weight: Array, observed: Array | None, points: Array, k: Array, *, full: bool
) -> _Parts:
    responsibility, residual = labels.responsibility(k), keep(x - points[k][None], observed)
    rest = mean_of(matmul(responsibility, residual), weight[k])
    residual = keep(residual - jnp.where(weight[k] == 0, 0.0, rest)[None], observed)
    return points[k], rest, scatter_of(residual, labels, responsibility, full=full)


def _center(x: Array, labels: SoftLabels, weight: Array, observed: Array | None) -> Array:
    """The mean of all rows, in two steps: the first one rounds it to the digits of its size."""
    row_weight, total = labels.row_weight, jnp.sum(weight, axis=0)
    center = fixed(mean_of(matmul(row_weight, x), total))
    return fixed(center + mean_of(matmul(row_weight, keep(x - center[None], observed)), total))
