"""Weight, mean and centred scatter: the sufficient statistics of the Gaussian families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.matrices import diagonals
from jaxgen.numerics import derivative_alone, matmul, safe_divide
from jaxgen.pytree import pytree
from jaxgen.total import Total, observed_weight, weight_of_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float


@pytree
@dataclass(frozen=True)
class Moments:
    """Weight, mean and centred scatter of each class.

    A scatter is Σ_i r_ik (x_i − μ_k)(x_i − μ_k)ᵀ, or its diagonal; a shared one is summed over the classes. Squares are
    only ever taken of differences: E[x²] − E[x]² loses every digit when the mean is large.

    Attributes:
        class_weight: N_k, shape (K,).
        mean: shape (K, d), in two limbs, so that many small steps do not drift; zero for a class without weight. What
            weighs nothing has a derivative all the same, which is that of the sum Σ_i r_ik x_i, and of squares about 0.
        scatter: (K, d, d) or (K, d), with 1 in place of K where it is shared.
        feature_weight: the weight of the rows in which each feature was observed, (K, d); None where all were.
    """

    class_weight: Total
    mean: Total
    scatter: Float[Array, "covariances d"] | Float[Array, "covariances d d"]
    feature_weight: Total | None = None

    @property
    def weight(self) -> Total:
        """The weight of the rows in which each feature was observed, (K, 1) or (K, d)."""
        return observed_weight(self.class_weight, self.feature_weight)

    @property
    def first_moment(self) -> Float[Array, "classes d"]:
        """Σ_i r_ik x_i."""
        weight, mean = self.weight.value, self.mean.value
        return jnp.where(weight == 0, mean, weight * mean)

    def by_feature(self) -> Moments:
        """The same moments with a weight for each feature, as those of batches with missing ones have."""
        if self.feature_weight is not None or self.scatter.ndim == 3:  # a full scatter has features filled in
            return self
        return replace(self, feature_weight=weight_of_each(self.class_weight, self.mean.high.shape))

    def merge(self, other: Moments) -> Moments:
        """The moments of both batches: Chan, Golub & LeVeque (1979), pairwise."""
        class_weight, feature_weight = self._weights(Total.merge, other)
        fraction, delta, (step, spread) = self.apart(other, observed_weight(class_weight, feature_weight).value)
        mine = self.weight.value
        mean = _where(mine > 0, self.mean.merge(Total.of(fraction * delta)), other.mean)
        mean = Total(mean.high + step, mean.low)
        scatter = self.scatter + other.scatter + self._outer(mine * fraction * delta, delta) + spread
        return Moments(class_weight, mean, scatter, feature_weight)

    def apart(self, other: Moments, both: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        """The other's share of the weight of both, how far its mean is away, and what depends on a weight of 0.

        That is zero, and has the derivatives by such a weight of the mean and of the scatter of both together.
        """
        mine, theirs = self.weight.value, other.weight.value
        delta = jnp.where((mine > 0) & (theirs > 0), other.mean.merge(-self.mean).value, 0.0)
        weightless = derivative_alone(_weightless, (self.mean.high, self.scatter), self, other)
        return safe_divide(theirs, both), delta, weightless

    def subtract(self, part: Moments) -> Moments:
        """The moments of what remains: the merge solved for the other batch.

        A variance that is no larger than what it may err by is that of a constant, whose noise would be taken for how
        it varies: it becomes 0, as a negative one does, and has the derivatives of the difference.
        """
        class_weight, feature_weight = self._weights(Total.subtract, part)
        rest = observed_weight(class_weight, feature_weight).value
        whole, gone = self.weight.value, part.weight.value
        fraction = safe_divide(gone, rest)
        delta = jnp.where((rest > 0) & (gone > 0), self.mean.merge(-part.mean).value, 0.0)
        step, spread = derivative_alone(_weightless_in, (self.mean.high, self.scatter), part, self)
        mean = _where(rest > 0, self.mean.merge(Total.of(fraction * delta)), Total.of(jnp.zeros_like(delta)))
        mean = Total(mean.high - step, mean.low)
        scatter = self.scatter - part.scatter - self._outer(whole * fraction * delta, delta) - spread
        if scatter.shape[0] == rest.shape[0]:
            scatter = jnp.where(rest[..., None] > 0 if scatter.ndim == 3 else rest > 0, scatter, 0.0)
        squares = gone * ((1 + fraction) * delta) ** 2  # of how far what remains is from what is gone
        squares = jnp.sum(squares, axis=0, keepdims=True) if scatter.shape[0] == 1 else squares
        noise = 8 * jnp.finfo(scatter.dtype).eps * (diagonal(self.scatter) + squares)
        return Moments(class_weight, mean, without(scatter, diagonal(scatter) <= noise), feature_weight)

    def scale(self, factor: Float[Array, ""]) -> Moments:
        """The moments in which every row weighs so many times as much: means stay, where any weight does."""
        both = (self.class_weight, self.feature_weight)
        class_weight, feature_weight = jax.tree.map(
            lambda total: total.scaled(factor), both, is_leaf=lambda node: isinstance(node, Total)
        )
        remains = observed_weight(class_weight, feature_weight).value > 0

        def vanishing(moments: Moments, factor: Array) -> tuple[Array, Array]:
            weight = moments.weight.value
            first = jnp.where(factor * weight == 0, factor * moments.first_moment, 0.0)
            return first, self._outer(first, moments.mean.value)

        first, second = derivative_alone(vanishing, (self.mean.high, self.scatter), self, factor)
        mean = _where(remains, self.mean, Total.of(first))
        return Moments(class_weight, mean, factor * self.scatter + second, feature_weight)

    def unit(self) -> Moments:
        """The weight of all classes, and of each feature the deviation within them; the size of a constant one."""
        weight = self.class_weight.unit()
        deviation = jnp.sqrt(jnp.sum(diagonal(self.scatter), axis=0) / weight)
        size = jnp.max(jnp.abs(self.mean.value), axis=0)
        deviation = jnp.where(deviation <= 4 * jnp.finfo(size.dtype).eps * size, size, deviation)
        deviation = jnp.where(deviation > 0, deviation, 1.0)
        square = deviation**2 if self.scatter.ndim == 2 else deviation[:, None] * deviation[None]
        return Moments(
            self.class_weight.filled(weight),
            self.mean.filled(deviation),
            jnp.broadcast_to(weight * square, self.scatter.shape),
            None if self.feature_weight is None else self.feature_weight.filled(weight),
        )

    def _weights(self, operation: Callable[[Total, Total], Total], other: Moments) -> tuple[Total, Total | None]:
        mine, theirs = ((each.class_weight, each.feature_weight) for each in (self, other))
        return jax.tree.map(operation, mine, theirs, is_leaf=lambda node: isinstance(node, Total))

    def _outer(self, left: Float[Array, "classes d"], right: Float[Array, "classes d"]) -> Array:
        """Σ a bᵀ, in the form of the scatter."""
        shared = self.scatter.shape[0] == 1
        if self.scatter.ndim == 2:
            return jnp.sum(left * right, axis=0, keepdims=True) if shared else left * right
        if shared:
            return matmul(left.T, right)[None]
        return left[:, :, None] * right[:, None, :]


def _weightless(mine: Moments, theirs: Moments) -> tuple[Array, Array]:
    """What either adds to mean and scatter of the other where it weighs nothing itself, or, of both, mine to theirs."""
    step, spread = jax.tree.map(jnp.add, _weightless_in(mine, theirs), _weightless_in(theirs, mine))
    neither = (mine.weight.value == 0) & (theirs.weight.value == 0)
    return step + jnp.where(neither, mine.mean.value, 0.0), spread


def _weightless_in(part: Moments, other: Moments) -> tuple[Array, Array]:
    """What a part adds to mean and scatter of what does weigh something, where it weighs nothing itself."""
    here = (part.weight.value == 0) & (other.weight.value > 0)
    weight, first, theirs = (
        jnp.where(here, value, 0.0) for value in (part.weight.value, part.mean.value, other.weight.value)
    )
    total, mean = jnp.where(here, weight + theirs, 1.0), other.mean.value
    step = (first - weight * mean) / total
    return step, -part._outer(step, theirs * mean) - part._outer(theirs * mean + first, first / total)


def diagonal(scatter: Array) -> Array:
    """The diagonals of a stack of matrices, or the stack of diagonals itself."""
    return scatter if scatter.ndim == 2 else diagonals(scatter)


def resolved(covariance: Array, mean: Float[Array, "classes d"]) -> Array:
    """Covariances or variances, zero for a feature of a standard deviation below a quarter of the mean's rounding.

    That is a constant, which varies with nothing. Of classes that share them the mean nearest to zero tells. They have
    their derivatives all the same: the weight of one more row may make a variance of it.
    """
    rounding = 0.25 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    variance = diagonal(covariance)
    if variance.shape[0] == 1:
        rounding = jnp.min(rounding, axis=0, keepdims=True)
    return without(covariance, variance <= rounding**2)


def without(covariance: Array, constant: Bool[Array, "covariances d"]) -> Array:
    """Covariances or variances, zero for constant features, with their derivatives all the same."""
    if covariance.ndim == 3:
        constant = constant[:, :, None] | constant[:, None, :]
    return covariance - lax.stop_gradient(jnp.where(constant, covariance, 0.0))


def _where(condition: Array, total: Total, otherwise: Total) -> Total:
    return jax.tree.map(partial(jnp.where, condition), total, otherwise)
