"""Where EM may start: responsibilities of the rows that have no label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import matmul, safe_divide

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.em_data import Data


def at_random(key: Array, data: Data) -> Float[Array, "n classes"]:
    """Responsibilities of each row without a label, drawn uniformly from the simplex."""
    drawn = jax.random.exponential(key, data.labelled.shape, data.labelled.dtype)
    return data.labelled + data.unlabelled[:, None] * drawn / jnp.sum(drawn, axis=1, keepdims=True)


def by_nearest_seed(key: Array, data: Data) -> Float[Array, "n classes"]:
    """Each row without a label in the class of the nearest seed, in standard deviations of the features.

    The seed of a class with labels is its mean; the others are rows without one, drawn one after the other with
    probability proportional to the squared distance from the seeds so far (k-means++: Arthur & Vassilvitskii 2007).
    """
    dtype = data.labelled.dtype
    x = jnp.asarray(data.x)
    observed = jnp.ones(x.shape, bool) if data.observed is None else jnp.asarray(data.observed)
    weight = jnp.sum(data.labelled, axis=1) + data.unlabelled
    counts = observed & (weight > 0)[:, None]
    x = jnp.where(counts, x, 0).astype(dtype)
    seen = matmul(weight, counts.astype(dtype))
    centred = jnp.where(counts, x - safe_divide(matmul(weight, x), seen)[None], 0.0)
    deviation = jnp.sqrt(safe_divide(matmul(weight, centred**2), seen))
    z = safe_divide(centred, jnp.broadcast_to(deviation[None], centred.shape))

    def distance(seed: Array) -> Array:
        return jnp.sum(jnp.where(counts, (z - seed[None]) ** 2, 0.0), axis=1)

    weights = jnp.sum(data.labelled, axis=0)
    means = safe_divide(matmul(data.labelled.T, z), matmul(data.labelled.T, counts.astype(dtype)))

    def to_mean(nearest: Array, terms: tuple[Array, Array]) -> tuple[Array, None]:
        mean, has_label = terms
        return lax.cond(has_label, lambda: jnp.minimum(nearest, distance(mean)), lambda: nearest), None

    def draw(nearest: Array, terms: tuple[Array, ...]) -> tuple[Array, Array]:
        key, mean, has_label = terms
        chance = data.unlabelled * jnp.where(jnp.isinf(nearest), 1.0, nearest)
        row = jax.random.categorical(key, jnp.log(chance))
        away = distance(jnp.where(has_label, mean, z[row]))
        return jnp.minimum(nearest, away), away

    infinite = jnp.full_like(z, jnp.inf, shape=z.shape[:1])
    nearest, _ = lax.scan(to_mean, infinite, (means, weights > 0))
    _, away = lax.scan(draw, nearest, (jax.random.split(key, len(means)), means, weights > 0))
    mine = jnp.argmin(away, axis=0)
    return data.labelled + data.unlabelled[:, None] * jax.nn.one_hot(mine, len(means), dtype=dtype)
