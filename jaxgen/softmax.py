"""The loss of logistic regression, in coordinates where every direction is about equally steep."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.linear import LinearClassifier
from jaxgen.numerics import matmul, safe_divide

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float


class Parameters(NamedTuple):
    """What is optimised: weights of standardised features, (d, m), and the bias about their centre, (m,).

    There is a score for each class, m = K; of two classes one alone, the log odds.
    """

    weights: Float[Array, "d m"]
    bias: Float[Array, " m"]


class Problem(NamedTuple):
    """The data in the coordinates of the optimiser.

    Features are centred and divided by `unit`, the square root of their curvature at zero weights, so that every
    direction is about equally steep whatever the units; the optimum is the same.
    """

    x: Float[Array, "n d"]
    responsibilities: Float[Array, "n classes"]
    total: Float[Array, ""]
    decay: Float[Array, " d"]
    occurs: Bool[Array, " classes"]

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes, and so one score."""
        return self.responsibilities.shape[1] == 2

    @property
    def gauge(self) -> Float[Array, "m m"]:
        """The curvature of a penalty on what changes no probability.

        That is a constant added to all classes, and what a class without data holds. It keeps both at zero, and the
        optimum where it is.
        """
        if self.is_binary:
            return jnp.zeros((1, 1), self.x.dtype)
        occurs = self.occurs.astype(self.x.dtype)
        share = occurs / jnp.maximum(jnp.sum(occurs), 1)
        return share[:, None] * share[None] + jnp.diag(1 - occurs)

    def loss(self, parameters: Parameters) -> Float[Array, ""]:
        """Mean negative log likelihood, penalised."""
        scores, r = self._scores(parameters), self.responsibilities
        if self.is_binary:  # in one dimension, where a processor has vectors
            losses = (r[:, 0] + r[:, 1]) * jax.nn.softplus(scores[:, 0]) - r[:, 1] * scores[:, 0]
            losses = jnp.where(jnp.all(self.occurs), losses, 0.0)
        else:
            losses = -r * jnp.where(self.occurs[None], self._log_posterior(scores), 0.0)
        table = jnp.concatenate([parameters.weights, parameters.bias[None]])
        penalty = jnp.sum(self.decay[:, None] * parameters.weights**2) + jnp.sum(table * matmul(table, self.gauge))
        return jnp.sum(losses) / self.total + 0.5 * penalty

    def hessian(self, parameters: Parameters) -> Float[Array, "p p"]:
        """Its second derivatives by the parameters, weights first."""
        design = jnp.concatenate([self.x, jnp.ones_like(self.x[:, :1])], axis=1)
        scores, weight = self._scores(parameters), jnp.sum(self.responsibilities, axis=1) / self.total
        m, size = scores.shape[1], design.shape[1]
        if self.is_binary:
            right = jax.nn.sigmoid(scores[:, 0])
            curvature = jnp.where(jnp.all(self.occurs), weight * right * (1 - right), 0.0)
            likelihood = matmul(design.T, curvature[:, None] * design)[None, :, :, None]
        else:
            probability = jnp.exp(self._log_posterior(scores))

            def rows_of(score: Array) -> Array:
                """Those of the parameters of one score: Σ_i w_i x_i x_iᵀ times its covariance with every score."""
                own = jnp.take(probability, score, axis=1)[:, None]
                indicator = (jnp.arange(m, dtype=jnp.int32) == score).astype(own.dtype)
                covariance = weight[:, None] * own * (indicator[None] - probability)
                products = design[:, :, None] * covariance[:, None, :]
                return matmul(design.T, products.reshape(design.shape[0], -1)).reshape(size, size, m)

            likelihood = lax.map(rows_of, jnp.arange(m, dtype=jnp.int32))
        decay = jnp.append(self.decay, jnp.zeros((), weight.dtype))
        penalty = decay[:, None, None, None] * jnp.eye(m, dtype=weight.dtype)[None, :, None, :]
        penalty += self.gauge[None, :, None, :]
        penalty *= jnp.eye(size, dtype=weight.dtype)[:, None, :, None]
        return (jnp.moveaxis(likelihood, 0, 1) + penalty).reshape(m * size, m * size)

    def _scores(self, parameters: Parameters) -> Float[Array, "n m"]:
        return matmul(self.x, parameters.weights) + parameters.bias[None]

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
        return Problem(standard, responsibilities, jnp.where(total > 0, total, 1.0), decay / self.unit**2, self.occurs)

    def parameters(self, c: LinearClassifier | None) -> Parameters:
        """Those of a classifier, or zeros; no derivative goes through them."""
        contrast = self._contrast
        if c is None:
            return Parameters(*(jnp.zeros((*shape, len(contrast)), self.unit.dtype) for shape in (self.unit.shape, ())))
        # What is common to all classes changes nothing; of two the difference is left.
        scores = 2 * contrast.T if self.is_binary else contrast - 1 / len(contrast)
        weights, bias = matmul(c.weights.astype(self.unit.dtype), scores), c.bias.astype(self.unit.dtype)
        bias = matmul(jnp.where(jnp.isfinite(bias), bias, 0.0), scores) + matmul(self.center, weights)
        return lax.stop_gradient(Parameters(weights * self.unit[:, None], bias))

    def classifier(self, parameters: Parameters) -> LinearClassifier:
        """The classifier in raw units; a class without data is impossible."""
        weights = matmul(parameters.weights, self._contrast) / self.unit[:, None]
        bias = matmul(parameters.bias, self._contrast) - matmul(self.center, weights)
        return LinearClassifier(weights, jnp.where(self.occurs, bias, -jnp.inf))

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes, and so one score, the log odds."""
        return self.occurs.shape[0] == 2

    @property
    def _contrast(self) -> Float[Array, "m classes"]:
        """What a score adds to the log probability of each class."""
        dtype = self.unit.dtype
        return jnp.array([[-0.5, 0.5]], dtype) if self.is_binary else jnp.eye(self.occurs.shape[0], dtype=dtype)
