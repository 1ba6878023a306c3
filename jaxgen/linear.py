"""Linear classifiers, and the exact linear form of the generative classifiers that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, domains
from jaxgen.classifier import Classifier
from jaxgen.preparing import check_classifier
from jaxgen.projections import Projection
from jaxgen.sparse import SparseRows, product
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.compressed import CompressedRows
    from jaxgen.density import Shapes


class LinearClassifier(NamedTuple):
    """p(y = k | x) ∝ exp(xᵀ w_k + b_k): logistic regression, binary (K = 2) or softmax.

    Attributes:
        weights: (d, K).
        bias: (K,).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.LinearClassifier(weights=jnp.array([[-0.5, 0.5]]), bias=jnp.zeros(2))
        >>> print(f"{jnp.exp(jg.log_posterior(c, jnp.array([2.0])))[1]:.4f}")  # the logistic function at 2
        0.8808
    """

    weights: Float[Array, "d classes"]
    bias: Float[Array, " classes"]

    domain = domains.COMPLETE
    takes_sparse = True
    in_two_steps = True
    in_one_pass = True

    @property
    def num_features(self) -> int:
        """d."""
        return next(iter(jnp.shape(self.weights)[-2:]), 0)

    @property
    def class_shape(self) -> tuple[int, ...]:
        """(K,); longer for a stack of classifiers."""
        return jnp.shape(self.bias)

    @property
    def shapes(self) -> Shapes:
        """A column of weights, and a bias, for each class."""
        d = jnp.shape(self.weights)[0] if jnp.ndim(self.weights) == 2 else "d"
        return {"weights": [(d, *self.class_shape)]}

    def prepared(self, *, likelihood: bool) -> LinearClassifier:
        """Itself: there is nothing to compute beforehand."""
        return self

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """Log odds up to a term common to all classes, in nats."""
        return product(x, self.weights) + self.bias[None]

    def projection(self, x: CompressedRows, *, likelihood: bool) -> Projection:
        """The weights, and a classifier of the products with them."""
        del x, likelihood  # the weights are a table already, and have no likelihood
        return Projection(_as_they_are, (), ProjectedClassifier(self.bias), np.asarray(self.weights))


class ProjectedClassifier(NamedTuple):
    """A linear classifier of rows that have been multiplied by its weights."""

    bias: Float[Array, " classes"]

    domain = domains.NOT_NAN

    @property
    def class_shape(self) -> tuple[int, ...]:
        """(K,)."""
        return jnp.shape(self.bias)

    def scores(self, x: Float[Array, "n classes"]) -> Float[Array, "n classes"]:
        """Log odds up to a term common to all classes, in nats."""
        return x + self.bias[None]


def _as_they_are(x: Any) -> Any:
    return x


def check_start(start: Any, num_features: int, num_classes: int) -> None:
    """Raise for a start that is no linear classifier of such features and classes."""
    if not isinstance(start, LinearClassifier):
        raise TypeError(
            f"start must be a LinearClassifier, such as to_linear(fit(LDA(), x, y)); found {type(start).__name__}."
        )
    arguments.check_arrays("start", start)
    shapes = jnp.shape(start.weights), jnp.shape(start.bias)
    if shapes != ((num_features, num_classes), (num_classes,)):
        raise ValueError(
            f"start must have weights of shape {(num_features, num_classes)} and a bias of shape {(num_classes,)}, as "
            f"x and y have features and classes; found {shapes[0]} and {shapes[1]}."
        )
    if is_traced(start):
        return
    # A class that a generative fit has not seen has a bias of −∞.
    if not np.isfinite(start.weights).all() or not np.all(np.asarray(start.bias) < np.inf):
        raise ValueError(
            "start must have finite weights, and biases below infinity; found some that are not. Leave it out to start "
            "from zero."
        )


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
    terms = c.density.linear()
    if terms is None:
        return None, True
    weights, constant = terms
    # The log prior may be −inf: a class that never occurs is no reason to refuse.
    finite = jnp.all(jnp.isfinite(weights)) & jnp.all(jnp.isfinite(constant))
    return LinearClassifier(weights, constant + c.log_prior), finite
