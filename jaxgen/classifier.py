"""A generative classifier: a class prior and a class-conditional density, as any family has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import jax.numpy as jnp

from jaxgen.density import D, num_classes, optional
from jaxgen.linear import LinearClassifier
from jaxgen.numerics import nonnegative_or_nan, safe_log
from jaxgen.projections import ProjectedDensity, projection
from jaxgen.total import holds_nan_or_infinity

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.projections import Projection


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

    @property
    def class_shape(self) -> tuple[int, ...]:
        """(K,); longer for a stack of classifiers."""
        return jnp.shape(self.log_prior)

    def check_structure(self) -> None:
        """Raise for a prior that has not an entry for each class of the density, where that says how many it has."""
        self._check_prior(num_classes(self.density) or self.log_prior.shape[0])

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be sparse."""
        return optional(self.density, "takes_sparse")

    @property
    def in_two_steps(self) -> bool:
        """Whether the scores of sparse rows are made of their products with a table."""
        return optional(self.density, "in_two_steps")

    @property
    def in_one_pass(self) -> bool:
        """Whether the scores are products of x, which are made in one pass."""
        return optional(self.density, "in_one_pass")

    @property
    def first_step(self) -> tuple[Array, Classifier[Any]] | None:
        """The table that rows are multiplied by, and the classifier of the products, if scores are made of those."""
        found = optional(self.density, "first_step")
        return found and (found[0], self._replace(density=found[1]))

    @property
    def of_products(self) -> bool:
        """Whether rows are products already."""
        return optional(self.density, "of_products")

    @property
    def score_width(self) -> int:
        """Elements that a row takes, where it takes more than its features and classes."""
        return optional(self.density, "score_width")

    def quick_form(self, *, likelihood: bool) -> tuple[Classifier[Any], Bool[Array, ""]] | None:
        """The same classifier in a quicker form, of one that is prepared, and whether that is accurate."""
        found = optional(self.density, "quick_form")(likelihood=likelihood)
        return None if found is None else (self._replace(density=found[0]), found[1])

    def for_many_rows(self) -> Classifier[Any] | LinearClassifier | None:
        """The same classifier in a form for many rows, of one in a quick form; None where there is none."""
        if (linear := optional(self.density, "about_origin")()) is not None:
            weights, constant = linear
            return LinearClassifier(weights, self._with_prior(constant[None])[0])
        found = optional(self.density, "for_many_rows")()
        return None if found is None else self._replace(density=found)

    def prepared(self, *, likelihood: bool) -> Classifier[Any]:
        """The same classifier, with what scoring needs of it computed once for all rows."""
        return self._replace(density=optional(self.density, "prepared")(likelihood=likelihood))

    def projection(self, x: CompressedRows, *, likelihood: bool) -> Projection:
        """The classifier in two steps, for these sparse rows."""
        steps = projection(self.density, x, likelihood=likelihood)
        return replace(steps, classifier=Classifier(self.log_prior, steps.classifier))

    @property
    def by_group(self) -> Callable[[CompressedRows], list[tuple[Classifier[Any], Any]]] | None:
        """Classifiers of groups of features, with what sparse rows hold of each; None where all are one group."""
        apart = optional(self.density, "apart")
        return apart and (lambda x: [(self._replace(density=density), part) for density, part in apart(x)])

    @property
    def of_scores(self) -> Classifier[Any]:
        """The classifier of rows that are the scores of all classes without the prior."""
        return self._replace(density=ProjectedDensity(jnp.zeros_like(self.log_prior), None, None))

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x, y = k) up to a term common to all classes."""
        return self._with_prior(self.density.scores(x))

    @property
    def scores_by_class(self) -> Callable[[Array], Array] | None:
        """The same with the axis of the classes first, of x, for a density that makes them so; else None."""
        density_scores = optional(self.density, "scores_by_class")
        return density_scores and (lambda x: density_scores(x) + self.log_prior[:, None])

    def log_joint(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x, y = k)."""
        return self._with_prior(self.density.log_likelihood(x))

    def _check_prior(self, num_classes: int) -> None:
        if num_classes != self.log_prior.shape[0]:
            raise ValueError(
                f"log_prior must have one entry for each of the density's {num_classes} classes; found shape "
                f"{self.log_prior.shape}."
            )

    def _with_prior(self, scores: Array) -> Array:
        self._check_prior(scores.shape[-1])
        return scores + self.log_prior[None]


def generative(c: Any, verb: str) -> Classifier[Any]:
    """c itself; a TypeError for one that has no p(x | y), which the verb needs."""
    if not isinstance(c, Classifier):
        raise TypeError(
            f"{verb} needs a generative classifier, which models p(x | y); found {type(c).__name__}. "
            "jaxgen.fit makes one of a family with a density, such as MultinomialNB; of ComplementNB and of "
            "discriminative estimators it makes what has log_posterior and predict alone."
        )
    return c


def log_prior(class_weight: Float[Array, " classes"], prior_alpha: Array | float) -> Float[Array, " classes"]:
    """The log of the smoothed class frequencies, (prior_alpha + N_k) / (K·prior_alpha + N), in nats.

    `prior_alpha` 0 is the maximum likelihood estimate, under which a class without data has prior 0 (log −inf); 1 is
    Laplace's rule. Without any data the prior is uniform, the limit prior_alpha → 0⁺.
    """
    pseudo = class_weight + nonnegative_or_nan(prior_alpha, class_weight.dtype)
    total = jnp.sum(pseudo)
    prior = jnp.where(total == 0, 1 / class_weight.shape[0], pseudo / jnp.where(total == 0, 1.0, total))
    return safe_log(prior)


def with_prior(
    density: D, class_weight: Float[Array, " classes"], prior_alpha: Array | float
) -> tuple[Classifier[D], Bool[Array, ""]]:
    """The classifier of a density and the smoothed class frequencies, and whether any of its leaves is NaN or +∞."""
    classifier = Classifier(log_prior(class_weight, prior_alpha), density)
    return classifier, holds_nan_or_infinity(classifier)
