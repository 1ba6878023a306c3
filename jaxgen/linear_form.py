"""The exact linear form of the generative classifiers that have one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import host_arrays
from jaxgen.classifier import Classifier
from jaxgen.linear import LinearClassifier
from jaxgen.preparing import check_classifier, check_numbers, in_one_dtype
from jaxgen.tracing import is_traced


def to_linear(c: Classifier[Any] | LinearClassifier) -> LinearClassifier:
    """The exact weights and bias of a classifier whose log odds are linear in x; its posterior is the same.

    With a shared covariance, and c̄ the mean of the μ_k (any common point gives the same posterior),

        w_k = Σ⁻¹(μ_k − c̄),    b_k = −½ (μ_k − c̄)ᵀΣ⁻¹(μ_k − c̄) − w_kᵀc̄ + log p(y = k).

    Bernoulli: w_kj = log φ_kj − log(1 − φ_kj), b_k = Σ_j log(1 − φ_kj) + log p(y = k). Multinomial: w_kj = log θ_kj,
    b_k = log p(y = k). Poisson: w_kj = log λ_kj, b_k = −Σ_j λ_kj + log p(y = k). For two classes θ = w_1 − w_0 is the θ
    of the logistic function in CS229 notes, section 4.1.3.

    They are about the origin: where x or a mean is large, log odds are differences of large terms. The posterior of c
    itself is not made of such.

    Args:
        c: a classifier with a shared covariance, Bernoulli, multinomial, Poisson, a mixture of such, or already linear.

    Returns:
        Weights (d, K) and bias (K,), in nats.

    Raises:
        TypeError: if the log odds are not linear.
        ValueError: if some weight is infinite, since an event is impossible (alpha = 0); ±inf under a trace.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [2.0], [4.0], [6.0]]), np.array([0, 0, 1, 1])
        >>> line = jg.to_linear(jg.fit(jg.LDA(ridge=0.0), x, y))
        >>> theta, bias = line.weights[:, 1] - line.weights[:, 0], line.bias[1] - line.bias[0]
        >>> print(f"{theta[0]:.3f} {bias:.3f}")  # (5 − 1)/1 and −4·3
        4.000 -12.000
    """
    if isinstance(c, LinearClassifier):
        return c
    if not isinstance(c, Classifier):
        raise TypeError(f"to_linear takes a classifier, such as jaxgen.fit returns; found {type(c).__name__}.")
    check_classifier(c)
    if not is_traced(c) and not host_arrays.is_distributed(c):
        check_numbers(c)
    linear, finite = _linear_program(c)
    if linear is None:
        raise TypeError(
            f"the log odds of {type(c.density).__name__} with these parameters are not linear in x. Shared covariances "
            "(LDA), Bernoulli without binarize, multinomial and Poisson are; a covariance for each class (QDA, "
            "GaussianNB) is quadratic: use GDA(covariance, shared=True)."
        )
    if not is_traced(finite) and not np.asarray(finite):
        raise ValueError(
            "the weights of this classifier are not finite: some event is impossible under a class. "
            "Smooth the counts with alpha > 0."
        )
    return linear


@jax.jit
def _linear_program(c: Classifier[Any]) -> tuple[LinearClassifier | None, Any]:
    c = in_one_dtype(c)
    terms = c.density.linear()
    if terms is None:
        return None, True
    weights, constant = terms
    # The log prior may be −inf: a class that never occurs is no reason to refuse.
    finite = jnp.all(jnp.isfinite(weights)) & jnp.all(jnp.isfinite(constant))
    return LinearClassifier(weights, constant + c.log_prior), finite
