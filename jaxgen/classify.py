"""Bayes' rule: from class scores to posterior, prediction and evidence. Nothing here knows a family.

    p(y | x) = p(x | y) p(y) / p(x),    p(x) = Σ_y p(x | y) p(y)

A classifier scores; these verbs normalise. Scores are log joint probabilities up to a term common to all classes, which
the posterior and the prediction do not feel; verbs that need p(x) itself go by the log likelihood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.classifier import Classifier, generative
from jaxgen.density import Marginal, optional
from jaxgen.numerics import log_sum_exp
from jaxgen.scoring import score

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.scoring import Scorer


def log_likelihood(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n classes"]:
    """log p(x | y = k) of every class, in nats.

    Args:
        c: a generative classifier.
        x: one point (d,) or points (n, d); sparse rows where c counts, as for `fit`.
        observed: True for the features that were observed, of the shape of x. The others are integrated out exactly:
            what x holds there, NaN too, plays no part. Of a multinomial the observed words count given their own total.

    Returns:
        Shape (K,) or (n, K); −inf for an x that is impossible under a class.

    Raises:
        ValueError: for features unlike the classifier's, or values of x outside its domain (NaN under a trace).
        TypeError: if c is discriminative: it has no p(x | y); for what is no classifier, or one that holds lists; and
            for sparse x beside `observed`, or where the family takes none.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Classifier(jnp.zeros(1), jg.Gaussian(jnp.zeros((1, 2)), jnp.eye(2)[None]))
        >>> print(f"{jg.log_likelihood(c, jnp.zeros(2))[0]:.4f}")  # -log 2π
        -1.8379
    """
    return _score(_log_likelihood, generative(c, "log_likelihood"), x, observed, likelihood=True)


def log_joint(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n classes"]:
    """log p(x, y = k) = log p(x | y = k) + log p(y = k), in nats; arguments, shape and errors as `log_likelihood`.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> words = jg.Bernoulli(jnp.log(jnp.array([[0.25], [0.5]])), jnp.log(jnp.array([[0.75], [0.5]])))
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), words)
        >>> jnp.exp(jg.log_joint(c, jnp.array([1.0]))).round(3).tolist()
        [0.125, 0.25]
    """
    return _score(_log_joint, generative(c, "log_joint"), x, observed, likelihood=True)


def log_evidence(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n"]:
    """log p(x) = log Σ_k p(x, y = k), in nats, shape () or (n,); arguments and errors as `log_likelihood`.

    An x that is impossible under every class has evidence −inf.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> words = jg.Bernoulli(jnp.log(jnp.array([[0.25], [0.5]])), jnp.log(jnp.array([[0.75], [0.5]])))
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), words)
        >>> print(f"{jnp.exp(jg.log_evidence(c, jnp.array([1.0]))):.3f}")  # 0.125 + 0.25
        0.375
    """
    return _score(_log_evidence, generative(c, "log_evidence"), x, observed, likelihood=True)


def log_posterior(
    c: Scorer, x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Float[Array, "*n classes"]:
    """log p(y = k | x) of every class by Bayes' rule, in nats.

    Args:
        c: any classifier, generative or discriminative.
        x: one point (d,) or points (n, d); sparse rows where c counts or is linear, as for `fit`.
        observed: as for `log_likelihood`; for a generative classifier.

    Returns:
        Shape (K,) or (n, K); −inf for a class that is impossible, NaN for an x that is impossible under every class:
        its posterior is 0/0.

    Raises:
        ValueError: for features unlike the classifier's, or values of x outside its domain (NaN under a trace).
        TypeError: for `observed` and a discriminative c, which can leave no feature out; else as `log_likelihood`.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.LinearClassifier(weights=jnp.array([[-0.5, 0.5]]), bias=jnp.zeros(2))
        >>> print(f"{jnp.exp(jg.log_posterior(c, jnp.array([2.0])))[1]:.4f}")  # the logistic function at 2
        0.8808
    """
    return _score(_log_posterior, c, x, observed)


def predict(
    c: Scorer, x: Real[AnyArray, "*n d"], *, observed: Bool[AnyArray, "*n d"] | None = None
) -> Int[Array, "*n"]:
    """The most probable class of each x, shape () or (n,); the first one of a tie. As `log_posterior` otherwise.

    Under a trace, a value of x outside the domain cannot be seen in a class index: look at `log_posterior` there.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.LinearClassifier(weights=jnp.array([[-0.5, 0.5]]), bias=jnp.zeros(2))
        >>> jg.predict(c, jnp.array([[2.0], [-2.0], [0.0]])).tolist()
        [1, 0, 0]
    """
    return _score(_predict, c, x, observed)


def _score(function: Callable[[Any, Any], Any], c: Any, x: Any, observed: Any, *, likelihood: bool = False) -> Array:
    if observed is not None:
        c = generative(c, "observed=")
        if not hasattr(c.density, "log_marginal"):
            raise TypeError(f"{type(c.density).__name__} cannot integrate features out; leave observed out.")
        c = c._replace(density=Marginal(c.density))
    return score(function, c, x, observed=observed, likelihood=likelihood)


def _log_likelihood(c: Classifier[Any], x: Array) -> Array:
    return c.density.log_likelihood(x)


def _log_joint(c: Classifier[Any], x: Array) -> Array:
    return c.log_joint(x)


def _log_evidence(c: Classifier[Any], x: Array) -> Array:
    return log_sum_exp(c.log_joint(x))


def _log_posterior(c: Scorer, x: Array) -> Array:
    scores = c.scores(x)
    # Unless held, XLA makes scores of few features twice, for their largest and for the differences to it, and rounds
    # the two differently: where every class was far away, QDA's posteriors came out above one. Those that are products
    # of what x holds it makes once.
    return _normalised(scores if optional(c, "in_one_pass") else lax.optimization_barrier(scores))


@jax.custom_jvp
def _normalised(scores: Array) -> Array:
    """Less the log of the sum of their exponentials; NaN for a row that is impossible under every class."""
    return jax.nn.log_softmax(scores, axis=-1)


@_normalised.defjvp
def _of_normalised(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # A choice among the scores would cost a pass over them. Here what is NaN does not reach what other rows share.
    result = _normalised(*primals)
    posterior = jnp.where(jnp.isnan(result), 0.0, jnp.exp(result))
    return result, tangents[0] - jnp.sum(posterior * tangents[0], axis=-1, keepdims=True)


def _predict(c: Scorer, x: Array) -> tuple[Array, Array]:
    """The class, and scores, in which a bad value shows."""
    scores = c.scores(x)
    if not optional(c, "of_products"):
        # Less their maximum, which moves none: to find it alone, XLA makes the scores anew, in 59 ms in place of 15.
        scores = scores - jnp.max(scores, axis=-1, keepdims=True)
    return jnp.argmax(scores, axis=-1), scores
