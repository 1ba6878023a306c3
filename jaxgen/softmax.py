"""The loss of logistic regression, in coordinates where every direction is about equally steep."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.linear import LinearClassifier
from jaxgen.numerics import matmul, safe_divide

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float


class Problem(NamedTuple):
    """The data in the coordinates of the optimiser.

    The parameters are a table (d + 1, m): weights of standardised features, and last the bias about their centre, for
    each of m = K − 1 contrasts of the classes. What is common to all classes changes no probability and has no
    parameter; of two classes the contrast is the log odds.

    Attributes:
        design: features, centred and divided by `Frame.unit`, so that every direction is about equally steep whatever
            the units; then a column of ones.
        responsibilities: (n, K).
        total: what the losses are divided by.
        decay: of the squared parameters; the bias has none.
        contrast: what a parameter of each contrast adds to the score of each class, (m, K).
        occurs: which classes have data, (K,).
    """

    design: Float[Array, "n p"]
    responsibilities: Float[Array, "n classes"]
    total: Float[Array, ""]
    decay: Float[Array, " p"]
    contrast: Float[Array, "m classes"]
    occurs: Bool[Array, " classes"]

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes, and so one contrast."""
        return self.responsibilities.shape[1] == 2

    @property
    def gauge(self) -> Float[Array, "m m"]:
        """The curvature of a penalty on what changes no probability: what a class without data holds.

        It keeps that at zero, and the optimum where it is.
        """
        if self.is_binary:
            return jnp.zeros((1, 1), self.design.dtype)
        occurs = self.occurs.astype(self.design.dtype)
        share = occurs / jnp.maximum(jnp.sum(occurs), 1)
        held = share[:, None] * share[None] + jnp.diag(1 - occurs)
        return matmul(matmul(self.contrast, held), self.contrast.T)

    def loss(self, table: Float[Array, "p m"]) -> Float[Array, ""]:
        """Mean negative log likelihood, penalised."""
        return self._mean_loss(self._scores(table)) + 0.5 * self._penalty(table, table)

    def hessian(self, table: Float[Array, "p m"]) -> Float[Array, "pm pm"]:
        """Its second derivatives."""
        size, m = table.shape
        weight = jnp.sum(self.responsibilities, axis=1) / self.total
        scores = self._scores(table)
        if self.is_binary:
            right = jax.nn.sigmoid(scores[:, 0])
            curvature = jnp.where(jnp.all(self.occurs), weight * right * (1 - right), 0.0)
            likelihood = matmul(self.design.T, curvature[:, None] * self.design)[:, None, :, None]
        else:
            probability = jnp.exp(self._log_posterior(scores))
            means = matmul(probability, self.contrast.T)
            first, second = np.triu_indices(m)

            def block(pair: tuple[Array, Array]) -> Array:
                """Σ_i w_i x_i x_iᵀ times the covariance of two contrasts."""
                a, b = pair
                both = jnp.take(self.contrast, a, axis=0) * jnp.take(self.contrast, b, axis=0)
                covariance = matmul(probability, both) - jnp.take(means, a, axis=1) * jnp.take(means, b, axis=1)
                return matmul(self.design.T, (weight * covariance)[:, None] * self.design)

            blocks = lax.map(block, (jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32)))
            place = np.zeros((m, m), np.int32)
            place[first, second] = place[second, first] = np.arange(len(first))
            likelihood = jnp.transpose(blocks[place], (2, 0, 3, 1))
        straight = jnp.diag(self.decay)[:, None, :, None] * jnp.eye(m, dtype=table.dtype)[None, :, None, :]
        straight += jnp.eye(size, dtype=table.dtype)[:, None, :, None] * self.gauge[None, :, None, :]
        return (likelihood + straight).reshape(size * m, size * m)

    def along(
        self, start: Float[Array, "p m"], direction: Float[Array, "p m"]
    ) -> Callable[[Array], tuple[Array, Array, Array]]:
        """Value, slope and curvature of the loss along a line, from one pass over the scores at each point of it."""
        scores, rates = self._scores(start), self._scores(direction)
        level, tilt, bend = (
            self._penalty(*pair) for pair in ((start, start), (start, direction), (direction, direction))
        )
        r = self.responsibilities
        mass = jnp.sum(r, axis=1)

        def line(t: Array) -> tuple[Array, Array, Array]:
            at = scores + t * rates
            if self.is_binary:
                right, rate = jax.nn.sigmoid(at[:, 0]), rates[:, 0]
                both = jnp.all(self.occurs)
                slopes = jnp.where(both, (mass * right - r[:, 1]) * rate, 0.0)
                bends = jnp.where(both, mass * right * (1 - right) * rate**2, 0.0)
            else:
                probability = jnp.exp(self._log_posterior(at))
                mean = jnp.sum(probability * rates, axis=1)
                slopes = mass * mean - jnp.sum(r * rates, axis=1)
                bends = mass * jnp.sum(probability * (rates - mean[:, None]) ** 2, axis=1)
            return (
                self._mean_loss(at) + 0.5 * (level + t * (2 * tilt + t * bend)),
                jnp.sum(slopes) / self.total + tilt + t * bend,
                jnp.sum(bends) / self.total + bend,
            )

        return line

    def _scores(self, table: Float[Array, "p m"]) -> Float[Array, "n scores"]:
        """The log odds of two classes, (n, 1); else a score for each class, (n, K)."""
        return matmul(self.design, table if self.is_binary else matmul(table, self.contrast))

    def _mean_loss(self, scores: Float[Array, "n scores"]) -> Float[Array, ""]:
        r = self.responsibilities
        if self.is_binary:  # in one dimension, where a processor has vectors
            losses = (r[:, 0] + r[:, 1]) * jax.nn.softplus(scores[:, 0]) - r[:, 1] * scores[:, 0]
            losses = jnp.where(jnp.all(self.occurs), losses, 0.0)
        else:
            losses = -r * jnp.where(self.occurs[None], self._log_posterior(scores), 0.0)
        return jnp.sum(losses) / self.total

    def _penalty(self, a: Float[Array, "p m"], b: Float[Array, "p m"]) -> Float[Array, ""]:
        """The bilinear form whose half is the penalty of a table."""
        return jnp.sum(self.decay[:, None] * a * b) + jnp.sum(a * matmul(b, self.gauge))

    def _log_posterior(self, scores: Float[Array, "n classes"]) -> Float[Array, "n classes"]:
        """Log probabilities of more than two classes; one without data is impossible."""
        return jax.nn.log_softmax(jnp.where(self.occurs[None], scores, -jnp.inf), axis=-1)


class Frame(NamedTuple):
    """Features centred and divided by a unit: the coordinates of the parameters.

    Attributes:
        center: (d,).
        unit: (d,).
        varies: whether a feature is more than a constant, (d,); one that is not gets no weight.
        occurs: which classes have data, (K,).
    """

    center: Float[Array, " d"]
    unit: Float[Array, " d"]
    varies: Bool[Array, " d"]
    occurs: Bool[Array, " classes"]

    @classmethod
    def of(cls, x: Float[Array, "n d"], weight: Float[Array, " n"], decay: Array, occurs: Array) -> Frame:
        """That of these rows, whose unit is the root of the curvature of the mean loss at zero weights.

        There every class has probability 1/K, and the curvature is variance · (K − 1)/K² and what the penalty adds.
        """
        k, total = occurs.shape[0], jnp.sum(weight)
        center = safe_divide(matmul(weight, x), total)
        centred = x - center[None]
        correction = safe_divide(matmul(weight, centred), total)
        center, centred = center + correction, centred - correction[None]
        variance = safe_divide(matmul(weight, centred**2), total)
        # What rounding leaves of a constant feature would otherwise be scaled up to a second bias.
        varies = jnp.sqrt(variance) > 0.25 * jnp.finfo(x.dtype).eps * jnp.abs(center)
        curvature = jnp.where(varies, variance, 0.0) * max(k - 1, 1) / k**2 + decay
        return cls(center, jnp.sqrt(jnp.where(curvature > 0, curvature, 1.0)), varies, occurs)

    def problem(self, x: Array, responsibilities: Array, decay: Array) -> Problem:
        """The mean loss of rows, with `decay` times half the squared weights."""
        total = jnp.sum(responsibilities)
        standard = jnp.where(self.varies[None], x - self.center[None], 0.0) / self.unit[None]
        return Problem(
            jnp.concatenate([standard, jnp.ones_like(standard[:, :1])], axis=1),
            responsibilities,
            jnp.where(total > 0, total, 1.0),
            jnp.append(decay / self.unit**2, jnp.zeros((), decay.dtype)),
            self._contrast,
            self.occurs,
        )

    def table(self, c: LinearClassifier | None) -> Float[Array, "p m"]:
        """The parameters of a classifier, or zeros; no derivative goes through them."""
        contrast, dtype = self._contrast, self.unit.dtype
        if c is None:
            return jnp.zeros((len(self.unit) + 1, len(contrast)), dtype)
        scores = contrast.T / jnp.sum(contrast**2, axis=1)[None]
        weights, bias = matmul(c.weights.astype(dtype), scores), c.bias.astype(dtype)
        bias = matmul(jnp.where(jnp.isfinite(bias), bias, 0.0), scores) + matmul(self.center, weights)
        return lax.stop_gradient(jnp.concatenate([weights * self.unit[:, None], bias[None]]))

    def classifier(self, table: Float[Array, "p m"]) -> LinearClassifier:
        """The classifier in raw units; a class without data is impossible."""
        scores = matmul(table, self._contrast)
        weights = scores[:-1] / self.unit[:, None]
        bias = scores[-1] - matmul(self.center, weights)
        return LinearClassifier(weights, jnp.where(self.occurs, bias, -jnp.inf))

    @property
    def _contrast(self) -> Float[Array, "m classes"]:
        """Orthonormal contrasts, those of Helmert: the squared weights of the classes are those of the contrasts.

        Of two classes it is half their difference, so that the parameter is the log odds.
        """
        k, dtype = self.occurs.shape[0], self.unit.dtype
        if k <= 2:
            return jnp.array([[1.0]] if k == 1 else [[-0.5, 0.5]], dtype)
        ordinal = np.arange(1, k)[:, None]
        lower = np.arange(k)[None] < ordinal
        rows = (np.where(lower, 1.0, 0.0) - ordinal * (np.arange(k)[None] == ordinal)) / np.sqrt(
            ordinal * (ordinal + 1)
        )
        return jnp.asarray(rows, dtype)
