"""The moments of a block of rows that are shared by classes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from jaxgen.matrices import mirrored
from jaxgen.numerics import matmul, shortcut
from jaxgen.scatter import lower_scatter, mean_of, scatter_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from jax import Array

    from jaxgen.labels import Labels

    _Parts: TypeAlias = tuple[Array, Array, Array]  # a point, the mean of what is left without it, and the scatter

# Squares about a point that are so many times those about the mean cost their difference four bits.
_MOST_SQUARES = 16.0
# Of matrices with fewer features for each such time fewer, since they are singular by eps times their number.
_FEATURES = 8


def soft_moments(
    x: Array, labels: Labels, weight: Array, observed: Array | None = None, *, full: bool, shared: bool
) -> _Parts:
    """A point for each class, the mean of what is left when it is taken away, and the scatter about both.

    About one point for all classes that are near to it, by products; else by a pass for each class about its own mean.

    Args:
        x: the rows, zero where they were not observed.
        labels: whose they are.
        weight: of each class, (K,), or of the observed features of each, (K, d).
        observed: where not all were.
        full: keep the whole scatter matrix, not its diagonal alone.
        shared: keep one scatter, summed over the classes.
    """
    weight, d = weight if observed is not None else weight[:, None], x.shape[1]

    def keep(residual: Array) -> Array:
        return residual if observed is None else jnp.where(observed, residual, 0.0)

    def about(points: Array, k: Array) -> _Parts:
        responsibility, residual = labels.responsibility(k), keep(x - points[k][None])
        rest = mean_of(matmul(responsibility, residual), weight[k])
        residual = keep(residual - jnp.where(weight[k] == 0, 0.0, rest)[None])
        return points[k], rest, scatter_of(residual, labels, responsibility, full=full)

    def about_each(means: Array, one: Callable[[Array, Array], _Parts]) -> _Parts:
        # What a class without weight weighs has derivatives about zero.
        points, classes = lax.stop_gradient(jnp.where(weight == 0, 0.0, means)), jnp.arange(labels.num_classes)
        if not shared:
            return lax.map(partial(one, points), classes)

        def add(total: Array, k: Array) -> tuple[Array, tuple[Array, Array]]:
            point, rest, scatter = one(points, k)
            return total + scatter, (point, rest)

        total, (each_point, rest) = lax.scan(add, jnp.zeros_like(x, shape=(d, d) if full else (d,)), classes)
        return each_point, rest, total[None]

    # A matrix for each class takes a product for each in any case; and weights of hard labels are added up one by one,
    # which may round their sum too much.
    if (full and not shared) or labels.weight is not None:
        return about_each(mean_of(labels.class_sum(x), weight), about)

    center, kind = mean_of(matmul(labels.row_weight, x), jnp.sum(weight, axis=0)), jnp.finfo(x.dtype)
    # XLA makes it anew where it is subtracted; with a bit less it is rounded there as well, and the same point.
    center = lax.stop_gradient(lax.reduce_precision(center, kind.nexp, kind.nmant - 1))
    residual = keep(x - center[None])
    first, second = labels.class_sum(residual), labels.class_sum(residual**2)
    rest = mean_of(first, weight)
    spread, means = second - rest * first, center[None] + rest

    if not shared:
        near = jnp.all((weight > 0) & (second <= _MOST_SQUARES * spread), axis=1)

        def about_center(points: Array, k: Array) -> _Parts:
            return shortcut(near[k], lambda: (center, rest[k], spread[k]), lambda: about(points, k))

        return about_each(means, about_center)

    def all_at_once() -> _Parts:
        pooled = jnp.sum(spread, axis=0)
        if full:
            pooled = lower_scatter(residual, labels, labels.row_weight, len(x)) - matmul(rest.T, first)
            pooled = mirrored(pooled)
        return jnp.broadcast_to(center, rest.shape), rest, pooled[None]

    most = min(_MOST_SQUARES, d / _FEATURES) if full else _MOST_SQUARES
    near = jnp.all(weight > 0) & jnp.all(jnp.sum(second, axis=0) <= most * jnp.sum(spread, axis=0))
    return shortcut(near, all_at_once, lambda: about_each(means, about))
