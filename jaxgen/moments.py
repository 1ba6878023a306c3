"""Weight, mean and centred scatter: the sufficient statistics of the Gaussian families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.missing import PartialRows
from jaxgen.numerics import derivative_alone, diagonals, matmul, safe_divide, with_diagonal
from jaxgen.pytree import pytree
from jaxgen.total import Total, observed_weight, weight_of_each

# Rows of one class that are multiplied at a time, at least.
_FEWEST_IN_CHUNK = 16

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels


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

    @classmethod
    def of(cls, x: Float[Array, "n d"] | PartialRows, labels: Labels, *, full: bool, shared: bool) -> Moments:
        """The moments of a block of rows.

        Args:
            x: the block; of partial rows the diagonal of the scatter alone.
            labels: its labels.
            full: keep the whole scatter matrix, not its diagonal alone.
            shared: keep one scatter, summed over the classes.
        """
        if isinstance(x, PartialRows):
            class_weight, feature_weight = labels.class_sum(jnp.ones_like(x.values[:, 0])), labels.class_sum(x.mask)
            pilot, rest, scatter = _soft_moments(x.values, labels, feature_weight, x.observed, full=full, shared=shared)
            mean = Total.of(pilot).merge(Total.of(rest))
            return cls(Total.of(class_weight), mean, scatter, Total.of(feature_weight))
        if full and not shared and isinstance(labels, HardLabels):
            return _moments_by_class(x, labels)
        class_weight = labels.class_sum(jnp.ones_like(x[:, 0]))
        if isinstance(labels, HardLabels):
            pilot, rest, scatter = _hard_moments(x, labels, class_weight, full=full, shared=shared)
        else:
            pilot, rest, scatter = _soft_moments(x, labels, class_weight, full=full, shared=shared)
        return cls(Total.of(class_weight), Total.of(pilot).merge(Total.of(rest)), scatter)

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
        mine, theirs = self.weight.value, other.weight.value
        share = safe_divide(theirs, observed_weight(class_weight, feature_weight).value)
        delta = jnp.where((mine > 0) & (theirs > 0), other.mean.merge(-self.mean).value, 0.0)
        mean = _where(mine > 0, self.mean.merge(Total.of(share * delta)), other.mean)
        step, spread = derivative_alone(_weightless, (self.mean.high, self.scatter), self, other)
        mean = Total(mean.high + step, mean.low)
        scatter = self.scatter + other.scatter + self._outer(mine * share * delta, delta) + spread
        return Moments(class_weight, mean, scatter, feature_weight)

    def subtract(self, part: Moments) -> Moments:
        """The moments of what remains: the merge solved for the other batch; no variance turns negative."""
        class_weight, feature_weight = self._weights(Total.subtract, part)
        rest = observed_weight(class_weight, feature_weight).value
        whole, gone = self.weight.value, part.weight.value
        share = safe_divide(gone, rest)
        delta = jnp.where((rest > 0) & (gone > 0), self.mean.merge(-part.mean).value, 0.0)
        step, spread = derivative_alone(_weightless_in, (self.mean.high, self.scatter), part, self)
        mean = _where(rest > 0, self.mean.merge(Total.of(share * delta)), Total.of(jnp.zeros_like(delta)))
        mean = Total(mean.high - step, mean.low)
        scatter = self.scatter - part.scatter - self._outer(whole * share * delta, delta) - spread
        if scatter.shape[0] == rest.shape[0]:
            scatter = jnp.where(rest[..., None] > 0 if scatter.ndim == 3 else rest > 0, scatter, 0.0)
        variance = jnp.maximum(diagonal(scatter), 0.0)
        rest_scatter = variance if scatter.ndim == 2 else with_diagonal(scatter, variance)
        return Moments(class_weight, mean, rest_scatter, feature_weight)

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


def resolved_variance(covariance: Array, mean: Float[Array, "classes d"]) -> Array:
    """The variances, zero where a standard deviation is below a quarter of the mean's rounding: that of a constant."""
    rounding = 0.25 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    variance = diagonal(covariance)
    if variance.shape[0] == 1:
        rounding = jnp.max(rounding, axis=0, keepdims=True)
    return jnp.where(variance <= rounding**2, 0.0, variance)


def _moments_by_class(x: Array, labels: HardLabels) -> Moments:
    """Moments with a full scatter for each class: rows in the order of their classes, in chunks of one class each.

    Every row is multiplied once, where a product for each class over all rows would multiply it K times.
    """
    n, d = x.shape
    k = labels.num_classes
    # The last chunk of each class is filled in part: of an eighth of a class each, they cost little.
    most = max(_FEWEST_IN_CHUNK, labels.tuning.class_fold_elements // d)
    chunk = min(n, max(_FEWEST_IN_CHUNK, min(n // (8 * k), most)))
    order, first_row = labels.by_class()
    size = first_row[1:] - first_row[:-1]
    chunks = (size + chunk - 1) // chunk
    last_chunk = jnp.cumsum(chunks, dtype=jnp.int32)

    def add(total: Moments, number: Array) -> tuple[Moments, None]:
        label = jnp.minimum(jnp.searchsorted(last_chunk, number, side="right").astype(jnp.int32), k - 1)
        offset = (number - (last_chunk[label] - chunks[label])) * chunk + jnp.arange(chunk, dtype=jnp.int32)
        rows = order[jnp.minimum(first_row[label] + offset, n - 1)]
        weight = jnp.where((offset < size[label]) & (number < last_chunk[-1]), labels.row_weight[rows], 0.0)
        part = _moments_of_one_class(x.at[rows].get(mode="promise_in_bounds"), weight)
        mine = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, label, 1), total)
        put = partial(lax.dynamic_update_slice_in_dim, start_index=label, axis=0)
        return jax.tree.map(put, total, mine.merge(part)), None

    weight, mean = (Total.of(jnp.zeros_like(x, shape=shape)) for shape in ((k,), (k, d)))
    nothing = Moments(weight, mean, jnp.zeros_like(x, shape=(k, d, d)))
    number = -(-n // chunk) + min(k, n)
    return lax.scan(jax.checkpoint(add), nothing, jnp.arange(number, dtype=jnp.int32))[0]


def _moments_of_one_class(x: Array, weight: Array) -> Moments:
    total = jnp.sum(weight)
    pilot = lax.stop_gradient(jnp.where(total > 0, x[jnp.argmax(weight > 0)], 0.0))
    residual = x - pilot[None]
    rest = _mean(matmul(weight, residual), total)
    mean = Total.of(pilot[None]).merge(Total.of(rest[None]))
    residual -= jnp.where(total > 0, rest, 0.0)[None]
    return Moments(Total.of(total[None]), mean, _scatter(residual, weight, full=True)[None])


def _hard_moments(
    x: Array, labels: HardLabels, class_weight: Array, *, full: bool, shared: bool
) -> tuple[Array, Array, Array]:
    """A row of each class, the mean of what is left when it is taken away, and the scatter about both.

    A sum of raw values would carry the rounding of a large mean, one after a common row that of classes far apart.
    What is taken away may be any point: it has no derivative.
    """
    present = class_weight[:, None] > 0
    pilot = lax.stop_gradient(jnp.where(present, x.at[labels.first_rows()].get(mode="clip"), 0.0))
    residual = x - labels.expand(pilot)
    rest = _mean(labels.class_sum(residual), class_weight[:, None])
    residual -= labels.expand(jnp.where(present, rest, 0.0))
    if not shared:
        return pilot, rest, labels.class_sum(residual**2)
    if full and labels.weight is None:  # zeros for absent rows are then all that there is to multiply by
        residual = residual * labels.row_weight[:, None]
        return pilot, rest, matmul(residual.T, residual)[None]
    return pilot, rest, _scatter(residual, labels.row_weight, full=full)[None]


def _soft_moments(
    x: Array, labels: Labels, weight: Array, observed: Array | None = None, *, full: bool, shared: bool
) -> tuple[Array, Array, Array]:
    """The same where rows are shared by classes: a pass for each class, about its own mean.

    Args:
        x: the rows, zero where they were not observed.
        labels: whose they are.
        weight: of each class, (K,), or of the observed features of each, (K, d).
        observed: where not all were.
        full: as for `Moments.of`.
        shared: as for `Moments.of`.
    """
    weight = weight if observed is not None else weight[:, None]
    first = _mean(labels.class_sum(x), weight)
    pilot = jnp.where(weight == 0, 0.0, first)

    def keep(residual: Array) -> Array:
        return residual if observed is None else jnp.where(observed, residual, 0.0)

    def one_class(k: Array) -> tuple[Array, Array]:
        responsibility = labels.responsibility(k)
        residual = keep(x - pilot[k][None])
        correction = safe_divide(matmul(responsibility, residual), weight[k])
        return correction, _scatter(keep(residual - correction[None]), responsibility, full=full)

    if not shared:
        return first, *lax.map(one_class, jnp.arange(labels.num_classes))

    def add(total: Array, k: Array) -> tuple[Array, Array]:
        correction, scatter = one_class(k)
        return total + scatter, correction

    correction, start = one_class(jnp.asarray(0))
    total, rest = lax.scan(add, start, jnp.arange(1, labels.num_classes))
    return first, jnp.concatenate([correction[None], rest]), total[None]


def _mean(total: Array, weight: Array) -> Array:
    """A sum by its weight; the sum itself, which is zero, of what weighs nothing."""
    return total / jnp.where(weight == 0, 1.0, weight)


def _scatter(residual: Array, weight: Array, *, full: bool) -> Array:
    """Σ_i w_i e_i e_iᵀ, or its diagonal."""
    if full:
        return matmul((weight[:, None] * residual).T, residual)
    return matmul(weight, residual**2)


def _where(condition: Array, total: Total, otherwise: Total) -> Total:
    return jax.tree.map(partial(jnp.where, condition), total, otherwise)
