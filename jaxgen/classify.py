"""Bayes' rule: from class scores to posterior, prediction and evidence. Nothing here knows a family.

    p(y | x) = p(x | y) p(y) / p(x),    p(x) = Σ_y p(x | y) p(y)

A classifier scores; these verbs normalise. Scores are log joint probabilities up to a term common to all classes, which
the posterior and the prediction do not feel; verbs that need p(x) itself go by the log likelihood.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import blocks, chunks, inputs, platform
from jaxgen.numerics import nonnegative_or_nan, safe_log, working_dtype
from jaxgen.sparse import HostRows, SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float, Int, Real

    from jaxgen.inputs import AnyArray, Domain
    from jaxgen.platform import Tuning
    from jaxgen.sparse import Chunk


class Density(Protocol):
    """A class-conditional density p(x | y): a pytree of arrays whose leading axis runs over the classes.

    Every method takes x of shape (n, d) in the density's dtype and is pure.
    """

    @property
    def domain(self) -> Domain:
        """What the features may be."""
        ...

    @property
    def num_features(self) -> int:
        """d."""
        ...

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | y = k), in nats."""
        ...

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood up to a term common to all classes, where that is cheaper or simpler."""
        ...

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants of the scores where they are linear in x; None where they are not."""
        ...


D = TypeVar("D", bound=Density, covariant=True)


class Classifier(NamedTuple, Generic[D]):
    """A generative classifier: a class prior and a class-conditional density. Estimation never has to run.

    Attributes:
        log_prior: log p(y = k), shape (K,), in nats.
        density: p(x | y).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> density = jg.Gaussian(mean=jnp.array([[-1.0], [1.0]]), cholesky=jnp.ones((1, 1, 1)))
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), density)
        >>> jg.predict(c, jnp.array([[-2.0], [3.0]])).tolist()
        [0, 1]
    """

    log_prior: Float[Array, " classes"]
    density: D

    @property
    def domain(self) -> Domain:
        """What the features may be."""
        return self.density.domain

    @property
    def num_features(self) -> int:
        """d."""
        return self.density.num_features

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x, y = k) up to a term common to all classes."""
        return self._with_prior(self.density.scores(x))

    def log_joint(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x, y = k)."""
        return self._with_prior(self.density.log_likelihood(x))

    def _with_prior(self, scores: Array) -> Array:
        if scores.shape[-1] != self.log_prior.shape[0]:
            raise ValueError(
                f"log_prior must have one entry for each of the density's {scores.shape[-1]} classes; found shape "
                f"{self.log_prior.shape}."
            )
        return scores + self.log_prior[None]


class Scorer(Protocol):
    """What the verbs ask of any classifier, generative or discriminative."""

    @property
    def domain(self) -> Domain:
        """What the features may be."""
        ...

    @property
    def num_features(self) -> int:
        """d."""
        ...

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log posterior up to a term common to all classes."""
        ...


def log_likelihood(c: Classifier[Any], x: Real[AnyArray, "*n d"]) -> Float[Array, "*n classes"]:
    """log p(x | y = k) of every class, in nats.

    Args:
        c: a generative classifier.
        x: one point (d,) or points (n, d).

    Returns:
        Shape (K,) or (n, K); −inf for an x that is impossible under a class.

    Raises:
        ValueError: for features unlike the classifier's, or values of x outside its domain (NaN under a trace).
        TypeError: if c is discriminative: it has no p(x | y).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Classifier(jnp.zeros(1), jg.Gaussian(jnp.zeros((1, 2)), jnp.eye(2)[None]))
        >>> print(f"{jg.log_likelihood(c, jnp.zeros(2))[0]:.4f}")  # -log 2π
        -1.8379
    """
    return _score(_log_likelihood, _generative(c, "log_likelihood"), x)


def log_joint(c: Classifier[Any], x: Real[AnyArray, "*n d"]) -> Float[Array, "*n classes"]:
    """log p(x, y = k) = log p(x | y = k) + log p(y = k), in nats; arguments and errors as `log_likelihood`."""
    return _score(_log_joint, _generative(c, "log_joint"), x)


def log_evidence(c: Classifier[Any], x: Real[AnyArray, "*n d"]) -> Float[Array, "*n"]:
    """log p(x) = log Σ_k p(x, y = k), in nats, shape () or (n,); arguments and errors as `log_likelihood`.

    An x that is impossible under every class has evidence −inf.
    """
    return _score(_log_evidence, _generative(c, "log_evidence"), x)


def log_posterior(c: Scorer, x: Real[AnyArray, "*n d"]) -> Float[Array, "*n classes"]:
    """log p(y = k | x) of every class by Bayes' rule, in nats.

    Args:
        c: any classifier, generative or discriminative.
        x: one point (d,) or points (n, d).

    Returns:
        Shape (K,) or (n, K); −inf for a class that is impossible, NaN for an x that is impossible under every class:
        its posterior is 0/0.

    Raises:
        ValueError: for features unlike the classifier's, or values of x outside its domain (NaN under a trace).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.LinearClassifier(weights=jnp.array([[-0.5, 0.5]]), bias=jnp.zeros(2))
        >>> print(f"{jnp.exp(jg.log_posterior(c, jnp.array([2.0])))[1]:.4f}")  # the logistic function at 2
        0.8808
    """
    return _score(_log_posterior, c, x)


def predict(c: Scorer, x: Real[AnyArray, "*n d"]) -> Int[Array, "*n"]:
    """The most probable class of each x, shape () or (n,); the first one of a tie. Errors as `log_posterior`.

    Under a trace, a value of x outside the domain cannot be seen in a class index: look at `log_posterior` there.
    """
    return _score(_predict, c, x)


def log_prior(class_weight: Float[Array, " classes"], prior_alpha: Array | float) -> Float[Array, " classes"]:
    """The log of the smoothed class frequencies, (prior_alpha + N_k) / (K·prior_alpha + N), in nats.

    `prior_alpha` 0 is the maximum likelihood estimate, under which a class without data has prior 0 (log −inf); 1 is
    Laplace's rule. Without any data the prior is uniform, the limit prior_alpha → 0⁺.
    """
    pseudo = class_weight + nonnegative_or_nan(prior_alpha, class_weight.dtype)
    total = jnp.sum(pseudo)
    share = jnp.where(total == 0, 1 / class_weight.shape[0], pseudo / jnp.where(total == 0, 1.0, total))
    return safe_log(share)


def _log_likelihood(c: Classifier[Any], x: Array) -> Array:
    return c.density.log_likelihood(x)


def _log_joint(c: Classifier[Any], x: Array) -> Array:
    return c.log_joint(x)


def _log_evidence(c: Classifier[Any], x: Array) -> Array:
    return jax.nn.logsumexp(c.log_joint(x), axis=-1)


def _log_posterior(c: Scorer, x: Array) -> Array:
    return jax.nn.log_softmax(c.scores(x), axis=-1)


def _predict(c: Scorer, x: Array) -> Array:
    return jnp.argmax(c.scores(x), axis=-1)


def _generative(c: Any, verb: str) -> Classifier[Any]:
    if not isinstance(c, Classifier):
        raise TypeError(
            f"{verb} needs a generative classifier, which models p(x | y); found {type(c).__name__}. "
            "A discriminative one has log_posterior and predict alone."
        )
    return c


def _score(function: Callable[[Any, Array], Array], c: Any, x: Any) -> Any:
    """Check the arguments, run one compiled program, and look at its answer for what bad values left there."""
    if not all(hasattr(c, name) for name in ("scores", "domain", "num_features")):
        raise TypeError(f"c must be a classifier, such as jaxgen.fit returns; found {type(c).__name__}.")
    sparse = getattr(c.density if isinstance(c, Classifier) else c, "takes_sparse", False)
    x = inputs.check_points(x, c.num_features, sparse=sparse)
    check_single(c)
    tuning = platform.tuning_of(c, x)
    if isinstance(x, HostRows) and platform.platform_of(c) == "cpu":
        prepared, num_classes = _prepare_program(c), _num_classes(c)
        result, bad = chunks.score(partial(_score_chunk_program, function, prepared), x, num_classes)
    else:
        rows = x.whole() if isinstance(x, HostRows) else x
        result, bad = _score_program(function, c, rows, tuning)
    if not inputs.is_traced(bad, x) and bad:
        inputs.raise_for_values(x, c.domain)
    return result


def check_single(c: Any) -> None:
    """Raise for a stack of classifiers, which only vmap takes apart."""
    shape = jnp.shape(c.log_prior if isinstance(c, Classifier) else c.bias)
    if len(shape) != 1:
        raise ValueError(
            f"c must be one classifier, whose log_prior or bias has shape (K,); found {shape}. "
            "For a stack of classifiers: jax.vmap(verb, in_axes=(0, None))(c, x)."
        )


@partial(jax.jit, static_argnums=(0, 3))
def _score_program(
    function: Callable[[Any, Array], Array], c: Any, x: Array, tuning: Tuning | None
) -> tuple[Array, Array]:
    """The answer, and whether a value of x was outside the classifier's domain."""
    c = _prepared(c)
    if isinstance(x, SparseRows):
        score = partial(_score_sparse, function)
        return platform.run(lambda c, x, tuning: score(c, x.reading(tuning.window).inside()), c, x, tuning=tuning)
    dtype = c.log_prior.dtype if isinstance(c, Classifier) else c.bias.dtype

    def map_blocks(x: Array, *, tuning: Tuning) -> tuple[Array, Array]:
        block = blocks.num_rows(tuning.score_elements, max(x.shape[-1], _num_classes(c)))

        def rows(x: Array) -> tuple[Array, Array]:
            result = function(c, x.astype(dtype))
            # A value that is not finite leaves a result that is not: only then are the values themselves looked at.
            if not (c.domain.shows and jnp.issubdtype(result.dtype, jnp.floating)):
                return result, jnp.ones(result.shape[0], bool)
            return result, ~jnp.all(jnp.isfinite(result), axis=tuple(range(1, result.ndim)))

        def spoil(result: Array) -> tuple[Array, Array]:
            outside = blocks.map_rows(lambda x: ~jnp.all(c.domain.contains(x.astype(dtype)), axis=-1), x, block=block)
            return _spoil(result, outside), jnp.any(outside)

        result, suspect = blocks.map_rows(rows, x, block=block)
        return lax.cond(jnp.any(suspect), spoil, lambda result: (result, jnp.zeros((), bool)), result)

    result, bad = platform.run(map_blocks, jnp.atleast_2d(x), tuning=tuning)
    return (result[0] if x.ndim == 1 else result), bad


@partial(jax.jit, static_argnums=0)
def _score_chunk_program(function: Callable[[Any, Any], Array], c: Any, chunk: Chunk) -> tuple[Array, Array]:
    return _score_sparse(function, c, chunk.unpack(chunk.values.dtype))


def _score_sparse(function: Callable[[Any, Any], Array], c: Any, x: SparseRows) -> tuple[Array, Array]:
    dtype = c.log_prior.dtype if isinstance(c, Classifier) else c.bias.dtype
    x = x.astype(dtype)
    bad = ~jnp.all(c.domain.contains(x.values))
    in_row = lax.cond(
        bad,
        lambda: x.row_sum(lambda values: (~c.domain.contains(values)).astype(dtype)) > 0,
        lambda: jnp.zeros(x.shape[0], bool),
    )
    return _spoil(function(c, x), in_row), bad


@jax.jit
def _prepare_program(c: Any) -> Any:
    """The classifier in the form in which many chunks are scored."""
    return _prepared(c)


def _prepared(c: Any) -> Any:
    c = _in_one_dtype(c)
    ready = getattr(c.density, "prepared", None) if isinstance(c, Classifier) else None
    return c if ready is None else c._replace(density=ready())


def _in_one_dtype(c: Any) -> Any:
    with jax.numpy_dtype_promotion("standard"):  # parameters given by hand may mix float32 and float64
        dtype = working_dtype(jnp.result_type(*map(jnp.asarray, jax.tree.leaves(c))))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), c)


def _num_classes(c: Any) -> int:
    return (c.log_prior if isinstance(c, Classifier) else c.bias).shape[0]


def _spoil(result: Array, rows: Array) -> Array:
    """NaN for some rows, where the result can hold it."""
    if not jnp.issubdtype(result.dtype, jnp.floating):
        return result
    return jnp.where(rows.reshape(-1, *(1,) * (result.ndim - 1)), jnp.nan, result)
