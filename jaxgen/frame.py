"""Coordinates of a softmax problem in which every direction is about equally steep, whatever the units."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.linear import LinearClassifier
from jaxgen.numerics import matmul
from jaxgen.softmax import Problem

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float


class Frame(NamedTuple):
    """Features centred and divided by a unit: the coordinates of the parameters.

    The optimum in raw units is the same in any frame, so that no derivative goes through one; short of the optimum
    derivatives mean nothing anyway.

    Attributes:
        center: (d,).
        unit: (d,); NaN where the squares of a feature overflow.
        varies: whether a feature is more than a constant, (d,); one that is not gets no weight.
        occurs: which classes have data, (K,).
        contrast: as `Problem.contrast`, of those classes.
    """

    center: Float[Array, " d"]
    unit: Float[Array, " d"]
    varies: Bool[Array, " d"]
    occurs: Bool[Array, " classes"]
    contrast: Float[Array, "m classes"]

    @classmethod
    def of(
        cls, x: Float[Array, "n d"], fraction: Float[Array, "n classes"], occurs: Bool[Array, " classes"], decay: Array
    ) -> Frame:
        """That of these rows, whose unit is the root of the curvature of the mean loss at zero weights.

        There every class has probability 1/K, and the curvature is variance · (K − 1)/K² and what the penalty adds.

        Args:
            x: (n, d).
            fraction: as `Problem.fraction`.
            occurs: which classes have data, (K,).
            decay: as in `problem`.
        """
        k, mass = fraction.shape[1], jnp.sum(fraction, axis=1)
        center = matmul(mass, x)
        centred = x - center[None]
        correction = matmul(mass, centred)
        # The square of what an absent row holds may overflow.
        center, centred = center + correction, jnp.where(mass[:, None] > 0, centred - correction[None], 0.0)
        variance = matmul(mass, centred**2)
        # What rounding leaves of a constant feature would otherwise be scaled up to a second bias.
        constant = jnp.sqrt(variance) <= 0.25 * jnp.finfo(x.dtype).eps * jnp.abs(center)
        curvature = jnp.where(constant, 0.0, variance) * max(k - 1, 1) / k**2 + decay
        # What overflows, and a negative decay, makes the unit NaN, and with it all that follows.
        curvature = jnp.where(curvature < jnp.inf, curvature, jnp.nan)
        unit = jnp.sqrt(jnp.where(curvature == 0, 1.0, curvature))
        return lax.stop_gradient(cls(center, unit, ~constant, occurs, _contrasts(occurs, x.dtype)))

    def problem(self, x: Float[Array, "n d"], fraction: Float[Array, "n classes"], decay: Array) -> Problem:
        """The mean loss of rows, with `decay` times half the squared weights; `fraction` as `Problem.fraction`."""
        fraction = jnp.where(self.occurs[None], fraction, 0.0)  # as it is, without a derivative
        centred = x - self.center[None]
        # A constant feature is zero to the last digit, with the derivative that it would have if it varied.
        mass = jnp.sum(fraction, axis=1)
        varies = self.varies[None] | (mass == 0)[:, None]  # absent rows may make it vary when they come to weigh
        standard = jnp.where(varies, centred, centred - lax.stop_gradient(centred)) / self.unit[None]
        decay = jnp.append(decay / self.unit**2, jnp.zeros((), decay.dtype))
        is_contrast = jnp.any(self.contrast != 0, axis=1)
        return Problem(
            jnp.pad(standard, ((0, 0), (0, 1)), constant_values=1.0),
            fraction,
            mass,
            jnp.where(is_contrast[None], decay[:, None], 1.0),
            self.contrast,
            self.occurs,
        )

    def table(self, c: LinearClassifier | None) -> Float[Array, "p m"]:
        """The parameters of a classifier, or zeros; no derivative goes through them."""
        contrast, dtype = self.contrast, self.unit.dtype
        if c is None:
            return jnp.zeros((len(self.unit) + 1, len(contrast)), dtype)
        scores = (2.0 if len(self.occurs) == 2 else 1.0) * contrast.T
        weights, bias = matmul(c.weights.astype(dtype), scores), c.bias.astype(dtype)
        bias = matmul(jnp.where(jnp.isfinite(bias), bias, 0.0), scores) + matmul(self.center, weights)
        return lax.stop_gradient(jnp.concatenate([weights * self.unit[:, None], bias[None]]))

    def classifier(self, table: Float[Array, "p m"]) -> LinearClassifier:
        """The classifier in raw units; a class without data is impossible."""
        scores = matmul(table, self.contrast)
        weights = scores[:-1] / self.unit[:, None]
        bias = scores[-1] - jnp.sum(self.center[:, None] * weights, axis=0)
        return LinearClassifier(weights, jnp.where(self.occurs, bias, -jnp.inf))


def _contrasts(occurs: Bool[Array, " classes"], dtype: np.dtype) -> Float[Array, "m classes"]:
    """Orthonormal contrasts of the classes that occur: their squared parameters are the squared weights of classes.

    They are Helmert's, each class against those that occur before it. One that does not occur, or is the first that
    does, has none: its contrast is zero. Of two classes it is half their difference, so that the parameter is the log
    odds, and zero where one does not occur.
    """
    k, present = len(occurs), occurs.astype(dtype)
    if k == 1:
        return jnp.zeros((1, 1), dtype)
    if k == 2:
        return jnp.array([[-0.5, 0.5]], dtype) * (present[0] * present[1])
    before = jnp.asarray(np.tri(k - 1, k), dtype) * present[None]
    itself = jnp.asarray(np.eye(k - 1, k, 1), dtype)
    count = present[1:, None] * jnp.sum(before, axis=1, keepdims=True)
    any_before = count > 0
    norm = lax.rsqrt(jnp.where(any_before, count * (count + 1), 1.0))
    return jnp.where(any_before, before - count * itself, 0.0) * norm
