"""What a family is to Bayes' rule: a class-conditional density, of all features or of those that were observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.domains import Domain
    from jaxgen.missing import PartialRows


class Density(Protocol):
    """A class-conditional density p(x | y): a pytree of arrays whose leading axis runs over the classes.

    Every method takes x of shape (n, d) in the density's dtype and is pure. It may have more: `sample(key, y,
    total_count)`, a draw for each class in y, with `needs_total_count = True` where that takes the total of each;
    `log_marginal(x)`, the log likelihood of the observed features of `PartialRows`, and `marginal_scores(x)`, the same
    up to a common term; `quick_form(likelihood=…)`, a density that is quicker for what `prepared` is asked for, and
    whether it is accurate, which has `in_one_pass` where scores are products of x, so that rows need no blocks, and may
    have `for_many_rows()`: a form that takes longer to make and is quicker for each row, None where there is none;
    `mean`, or where features depend on each other `conditional_mean(x)` and `conditional_sample(key, x, y)`, of what
    was not observed given what was; `shapes`, what the shapes of its arrays may be, one beside the others; `positive`,
    the names of those that hold what must be positive, or a factor with such a diagonal;
    `prepared(likelihood=…)`, the same density with what all rows need computed once, of which `domain`,
    `log_likelihood`, `scores` and `quick_form` alone are read; and with `takes_sparse = True`, x may be `SparseRows`.
    One with both is affine in x, has leaves (K, d) alone, and `prepared` returns a `jaxgen.affine.PreparedDensity`.
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

# What a density or a classifier may say of itself, and what goes for one that does not.
_UNSAID: dict[str, Any] = {
    "takes_sparse": False,
    "in_two_steps": False,
    "in_one_pass": False,
    "needs_total_count": False,
    "score_width": 0,
    "marginal_width": 0,
    "positive": (),
}


def trait(density: Any, name: str) -> Any:
    """What a density says of itself, or what goes for one that does not."""
    return getattr(density, name, _UNSAID[name])


def table_shape(array: Any) -> tuple[int | str, ...]:
    """(K, d), of an array that is to have that shape: with numbers where it has such a shape."""
    return jnp.shape(array) if jnp.ndim(array) == 2 else ("K", "d")


def check_shapes(owner: Any) -> None:
    """Raise a ValueError for an array that does not fit the others, as its owner, or a part of it, says in `shapes`."""
    for name, allowed in getattr(owner, "shapes", {}).items():
        if (found := jnp.shape(getattr(owner, name))) not in allowed:
            shapes = " or ".join(f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for shape in allowed)
            raise ValueError(
                f"{type(owner).__name__}.{name} must have shape {shapes}, beside its other arrays; found {found}."
            )
    for part in parts(owner).values():
        check_shapes(part)


def parts(owner: Any) -> dict[str, Any]:
    """The densities that a classifier or a density is made of, by what stands behind its name."""
    if hasattr(owner, "density"):
        return {".density": owner.density}
    return {f".densities[{i}]": density for i, density in enumerate(getattr(owner, "densities", ()))}


def check_parameters(c: Any) -> None:
    """Raise a ValueError for a classifier that holds NaN or +∞, or what must be positive and is not."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(c):
        array = np.asarray(leaf)
        if not array.max(initial=-np.inf) < np.inf:
            remedy = "A fit under jit is NaN where the same fit outside of it has an error, which says why."
            _raise_for_numbers(
                f"c{jax.tree_util.keystr(path)}", array, array < np.inf, "numbers below infinity", remedy
            )
    _check_positive("c", c)


def _check_positive(name: str, owner: Any) -> None:
    for attribute in trait(owner, "positive"):
        array = np.asarray(getattr(owner, attribute))
        factors = array.ndim > 2
        array = np.diagonal(array, axis1=-2, axis2=-1) if factors else array
        if not (good := array > 0).all():
            expected = "positive numbers" + " in the diagonal of each factor" * factors
            _raise_for_numbers(f"{name}.{attribute}", array, good, expected, "Were these their logarithms?")
    for place, part in parts(owner).items():
        _check_positive(name + place, part)


def _raise_for_numbers(name: str, array: np.ndarray, good: np.ndarray, expected: str, remedy: str) -> NoReturn:
    first = np.unravel_index(np.argmin(good), good.shape)
    raise ValueError(f"{name} must hold {expected}; found {array[first]} at [{', '.join(map(str, first))}]. {remedy}")


def prepared(density: Any, *, likelihood: bool) -> Any:
    """The density with what all rows need computed once; itself, where there is nothing of that kind."""
    return density.prepared(likelihood=likelihood) if hasattr(density, "prepared") else density


def quick_form(density: Any, *, likelihood: bool) -> tuple[Any, Array] | None:
    """A quicker form of a prepared density and whether it is accurate, where it has one."""
    return density.quick_form(likelihood=likelihood) if hasattr(density, "quick_form") else None


def for_many_rows(density: Any) -> Any:
    """The form for many rows, of a quick one; None where there is none."""
    return density.for_many_rows() if hasattr(density, "for_many_rows") else None


def marginal_scores(density: Any, x: PartialRows) -> Float[Array, "n classes"]:
    """log p(x_observed | k) up to a term common to all classes: the density's own, where it has such."""
    return getattr(density, "marginal_scores", density.log_marginal)(x)


def conditional_mean(density: Any, x: PartialRows) -> Float[Array, "n classes d"]:
    """E[x | x_observed, k]: the density's own, or its mean where features are independent."""
    if hasattr(density, "conditional_mean"):
        return density.conditional_mean(x)
    if trait(density, "needs_total_count") or not hasattr(density, "mean"):
        raise TypeError(
            f"impute knows no mean of a missing feature of {type(density).__name__}: a category is no number, and "
            "missing words have no known total. Categories are drawn with key=; PoissonNB models each count by itself."
        )
    return jnp.broadcast_to(density.mean[None], (x.shape[0], *density.mean.shape))


def conditional_sample(density: Any, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
    """A draw of x given x_observed and the classes y, in the same way; what was observed is not to be looked at."""
    if hasattr(density, "conditional_sample"):
        return density.conditional_sample(key, x, y)
    if trait(density, "needs_total_count"):
        raise TypeError(
            f"impute cannot draw a missing feature of {type(density).__name__}: missing words have no known total. "
            "PoissonNB models each count by itself."
        )
    return density.sample(key, y)


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

    @property
    def score_width(self) -> int:
        """Elements that a row takes, where it takes more than its features and classes."""
        return trait(self.density, "marginal_width")

    def log_likelihood(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | y = k), in nats."""
        return self.density.log_marginal(x)

    def scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The log likelihood up to a term common to all classes."""
        return marginal_scores(self.density, x)

    def squared_distances(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances of the observed features, of a Gaussian density."""
        return self.density.marginal_distances(x)[0]
