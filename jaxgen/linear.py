"""Classifiers whose log odds are linear in x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, domains
from jaxgen.projections import ENTRIES_OF_A_COLUMN, Projection, as_they_are
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
        """The same posterior by weights less what all classes have in common, whose rounding would drown the rest."""
        del likelihood  # there is none
        return self._replace(weights=_contrasts(self.weights))

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """Log odds up to a term common to all classes, in nats."""
        return product(x, self.weights) + self.bias[None]

    @property
    def first_step(self) -> tuple[Float[Array, "d classes"], ProjectedClassifier]:
        """The weights that rows are multiplied by, and the classifier of the products."""
        return self.weights, ProjectedClassifier(self.bias)

    def projection(self, x: CompressedRows, *, likelihood: bool) -> Projection:
        """Those weights, of the features that occur where these are few, and a classifier of the products with them."""
        del likelihood
        weights, columns = np.asarray(self.weights), None
        if x.num_entries < ENTRIES_OF_A_COLUMN * len(weights):
            weights = weights[columns := x.occurring()]
        return Projection(as_they_are, (), ProjectedClassifier(self.bias), _contrasts(weights), columns)


class ProjectedClassifier(NamedTuple):
    """A linear classifier of rows that have been multiplied by its weights: their first columns are the products."""

    bias: Float[Array, " classes"]

    domain = domains.NOT_NAN
    in_one_pass = True
    of_products = True

    @property
    def class_shape(self) -> tuple[int, ...]:
        """(K,)."""
        return jnp.shape(self.bias)

    def scores(self, x: Float[Array, "n m"]) -> Float[Array, "n classes"]:
        """Log odds up to a term common to all classes, in nats."""
        return x[:, : len(self.bias)] + self.bias[None]


def _contrasts(weights: Any) -> Any:
    """Weights of each feature less their mean, which has no part in the log odds; unchanged where it is not finite."""
    # Not less those of the first class, as for counts: of trained weights the mean is zero, and these stay themselves.
    where, is_finite = (np.where, np.isfinite) if isinstance(weights, np.ndarray) else (jnp.where, jnp.isfinite)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = weights.mean(axis=1, keepdims=True)
    return weights - where(is_finite(mean), mean, 0.0)


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
