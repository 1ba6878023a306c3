"""What a family is to Bayes' rule: a class-conditional density, of all features or of those that were observed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.domains import Domain
    from jaxgen.missing import PartialRows


class Density(Protocol):
    """A class-conditional density p(x | y): a pytree of arrays whose leading axis runs over the classes.

    Every method takes x of shape (n, d) in the density's dtype and is pure. It may have `sample(key, y, total_count)`,
    a draw for each class in y; `log_marginal(x)`, the log likelihood of the observed features of `PartialRows`; `mean`,
    of features that are independent; and what `Optional` names.
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

# What may be the shapes of arrays, by name; letters stand for what is not known.
Shapes: TypeAlias = "dict[str, list[tuple[int | str, ...]]]"


class Optional:
    """What a density or a classifier may say of itself and do, and what goes for one that does not.

    None inherits from it: `optional` looks here for what one has not.
    """

    takes_sparse = False  # x may be `SparseRows`
    in_two_steps = False  # the scores of sparse rows are made of their products with a table
    in_one_pass = False  # scores are products of what x holds: rows need no blocks, and infinity shows in them
    first_step = None  # the table that dense rows are multiplied by, and a density of those products
    of_products = False  # rows are products already, of which XLA makes the scores in one pass whatever follows
    needs_total_count = False  # `sample` takes the total of each row
    score_width = 0  # numbers that a row takes, where it takes more than its features and classes
    by_group = None  # the same of classifiers
    apart = None  # of compressed rows, densities of groups of features with what they hold of each
    scores_by_class = None  # of x, as `scores`, with the axis of the classes first, (K, n): of some forms, few rows
    shapes: ClassVar[Shapes] = {}  # what the shapes of its arrays may be, one beside the others
    positive: ClassVar[tuple[str, ...]] = ()  # arrays that hold what must be positive, or factors with such a diagonal
    log_probabilities: ClassVar[tuple[str, ...]] = ()  # arrays that hold the logs of probabilities

    def check_structure(self) -> None:
        """Raise for what is no array and does not fit: columns, numbers of categories, thresholds."""

    def prepared(self, *, likelihood: bool) -> Any:
        """The same density with what all rows need computed once, for log likelihoods, or for scores alone.

        Only what scores rows is read of it: not `linear`, `sample`, or what fills in missing features.
        """
        del likelihood
        return self

    def quick_form(self, *, likelihood: bool) -> tuple[Any, Array] | None:
        """A density that is quicker for what was prepared, and whether it is accurate; None where there is none."""
        del likelihood

    def for_many_rows(self) -> Any:
        """A quick form that takes longer to make and is quicker for each row; None where there is none."""

    def about_origin(self) -> tuple[Any, Any] | None:
        """Weights (d, K) and constants (K,) of linear scores, of a concrete quick form; None where none are as good."""

    def moved(self, origin: Float[Array, " d"]) -> Any:
        """The density of features to which an origin is added, where it has a place among them."""
        del origin
        return self

    def marginal_width(self, most_missing: int | None) -> int:
        """The same as `score_width`, of a row that misses so many features at most; None for any number."""
        return 0

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k) up to a term common to all classes."""
        this: Any = self
        return this.log_marginal(x)

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """E[x | x_observed, k]: the mean, where features are independent."""
        this: Any = self
        if optional(this, "why_not_filled_in")(drawn=False):  # nor is one missing, says `check_fills_in`
            return jnp.zeros((x.shape[0], 1, x.shape[1]), x.dtype)
        return jnp.broadcast_to(this.mean[None], (x.shape[0], *this.mean.shape))

    def conditional_sample(self, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
        """A draw of x given x_observed and the classes y; what was observed is not to be looked at."""
        this: Any = self
        if optional(this, "why_not_filled_in")(drawn=True):  # nor is one missing, says `check_fills_in`
            return jnp.zeros(x.shape, x.dtype)
        return this.sample(key, y)

    def check_fills_in(self, missing: Bool[np.ndarray, " d"], *, drawn: bool) -> None:
        """Raise a TypeError if a feature that may be missing has no conditional mean, or cannot be drawn."""
        this: Any = self
        if missing.any() and (why := optional(this, "why_not_filled_in")(drawn=drawn)):
            verb = "cannot draw" if drawn else "knows no mean of"
            raise TypeError(f"impute {verb} a missing feature of {type(self).__name__}: {why}")

    def why_not_filled_in(self, *, drawn: bool) -> str | None:
        """Why a missing feature cannot be drawn, or has no conditional mean; None where it can, or has."""
        if hasattr(self, "conditional_sample" if drawn else "conditional_mean"):
            return None
        if optional(self, "needs_total_count"):
            return "missing words have no known total. MultinomialNB fills in what is expected of them."
        if not drawn and not hasattr(self, "mean"):
            return "a category is no number. It is drawn with key=."
        return None


def optional(owner: Any, name: str) -> Any:
    """A member of a density or a classifier; where it has none, that of `Optional`."""
    if hasattr(owner, name):
        return getattr(owner, name)
    found = getattr(Optional, name)
    return partial(found, owner) if callable(found) else found


def marginal_width(owner: Any, most_missing: int | None) -> int:
    """That of a density, or of the one that is in a classifier, however deep."""
    while hasattr(owner, "density"):
        owner = owner.density
    return optional(owner, "marginal_width")(most_missing)


def is_density(what: Any) -> bool:
    """Whether it is a density of features, or stands for one, and no classifier, which has one."""
    return hasattr(type(what), "num_features") and not hasattr(type(what), "class_shape")


def table_shape(array: Any) -> tuple[int | str, ...]:
    """(K, d), of an array that is to have that shape: with numbers where it has such a shape."""
    return jnp.shape(array) if jnp.ndim(array) == 2 else ("K", "d")


def parts(owner: Any) -> dict[str, Any]:
    """The densities that a classifier or a density is made of, by what stands behind its name."""
    if hasattr(owner, "density"):  # what stands around a density is no name that a caller knows
        return {".density" if hasattr(type(owner), "class_shape") else "": owner.density}
    return {f".densities[{i}]": density for i, density in enumerate(getattr(owner, "densities", ()))}


def num_classes(density: Any) -> int | None:
    """K, by the first of the `shapes` that a density or a part of it declares; None where it declares none."""
    for part in parts(density).values():
        return num_classes(part)
    shapes = optional(density, "shapes")
    return next(iter(shapes.values()))[0][0] if shapes else None


class Marginal(NamedTuple):
    """A density of the features that were observed: the others are integrated out."""

    density: Any

    @property
    def domain(self) -> Domain:
        """What the features may be."""
        return self.density.domain

    @property
    def num_features(self) -> int:
        """d."""
        return self.density.num_features

    def log_likelihood(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | y = k), in nats."""
        return self.density.log_marginal(x)

    def scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The log likelihood up to a term common to all classes."""
        return optional(self.density, "marginal_scores")(x)

    def squared_distances(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances of the observed features, of a Gaussian density."""
        return self.density.marginal_distances(x)[0]
