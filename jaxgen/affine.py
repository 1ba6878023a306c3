"""Class scores that are affine in x: how the densities of counts are scored, from dense and from sparse rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln

from jaxgen import domains
from jaxgen.compressed import Projection
from jaxgen.numerics import drop_impossible, matmul
from jaxgen.sparse import SparseRows, product, row_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.domains import Domain
    from jaxgen.missing import PartialRows


class Affine(NamedTuple):
    """Class scores that are affine in x: those of independent features with two outcomes, or counted.

    Attributes:
        constant: the score of x = 0, (K,).
        weights: what one more of a feature adds, (d, K); 0 in place of −∞.
        present: log p as it was given, (K, d).
        absent: log q as it was given, (K, d), where it was.
        empty: what x = 0 scores as it was given, (K, d), where it was.
        may_be_impossible: whether any of those is −∞.
    """

    constant: Float[Array, " classes"]
    weights: Float[Array, "d classes"]
    present: Float[Array, "classes d"]
    absent: Float[Array, "classes d"] | None
    empty: Float[Array, "classes d"] | None
    may_be_impossible: Bool[Array, ""]

    @classmethod
    def of(
        cls,
        present: Float[Array, "classes d"],
        absent: Float[Array, "classes d"] | None = None,
        *,
        empty: Float[Array, "classes d"] | None = None,
        likelihood: bool,
    ) -> Affine:
        """Σ_j x_j log p_kj, + (1 − x_j) log q_kj where q is given, or + c_kj where what x = 0 scores is.

        Without `likelihood` every term is less that of the first class: rare words have large logs in all classes,
        whose rounding would drown what tells the classes apart.
        """
        weights, impossible = drop_impossible(present), jnp.any(jnp.isneginf(present))
        constant = jnp.zeros(present.shape[0], present.dtype) if empty is None else jnp.sum(empty, axis=-1)
        if absent is not None:
            without = drop_impossible(absent)
            constant, weights = jnp.sum(without, axis=-1), weights - without
            impossible |= jnp.any(jnp.isneginf(absent))
        if not likelihood:
            constant, weights = constant - constant[:1], weights - weights[:1]
        return cls(constant, weights.T, present, absent, empty, impossible)

    @property
    def always(self) -> Float[Array, " classes"]:
        """How many impossible events x = 0 holds."""
        return jnp.zeros_like(self.constant) if self.absent is None else jnp.sum(_impossible(self.absent), axis=-1)

    @property
    def never(self) -> Float[Array, "d classes"]:
        """How many impossible events one more of a feature adds or takes away."""
        never = _impossible(self.present)
        return (never if self.absent is None else never - _impossible(self.absent)).T

    def marginal(self, x: PartialRows, *, likelihood: bool) -> Float[Array, "n classes"]:
        """The scores of the observed features of rows; with or without `likelihood`, as the tables were made."""
        without = self.absent if self.empty is None else self.empty
        without = jnp.zeros_like(self.present) if without is None else without
        each = drop_impossible(without)
        total = matmul(x.mask, (each if likelihood else each - each[:1]).T) + product(x.values, self.weights)
        return self._unless_impossible(
            total, lambda: matmul(x.mask, _impossible(without).T) + product(x.values, self.never)
        )

    def __call__(self, x: Array | SparseRows, features: Callable[[Any], Any]) -> Float[Array, "n classes"]:
        """The scores of the features of rows."""
        return self.of_products(product(x, self.weights, features), lambda: product(x, self.never, features))

    def of_products(
        self, weighted: Float[Array, "n classes"], impossible: Callable[[], Float[Array, "n classes"]]
    ) -> Float[Array, "n classes"]:
        """The scores; −∞ where an event is impossible: `0 · −∞` is NaN, yet what did not happen costs nothing.

        Args:
            weighted: x times the weights.
            impossible: makes x times `never`; called where that is not zero anyway.
        """
        return self._unless_impossible(self.constant[None] + weighted, lambda: self.always[None] + impossible())

    def _unless_impossible(self, total: Array, impossible: Callable[[], Array]) -> Array:
        """The scores; −∞ where the number of impossible events is not zero."""
        happened = lax.cond(
            self.may_be_impossible,
            lambda: lax.stop_gradient(impossible()) > 0,
            lambda: jnp.zeros(total.shape, bool),
        )
        return jnp.where(happened, -jnp.inf, total)

    def projection(self) -> np.ndarray:
        """The tables that rows are multiplied by, (d, K or 2K); of scores that are known."""
        weights = np.asarray(self.weights)
        return np.concatenate([weights, np.asarray(self.never)], axis=1) if self.may_be_impossible else weights


class Coefficient(NamedTuple):
    """A term of the log likelihood that is common to all classes, by sums over the features of each row.

    Attributes:
        terms: f of each sum Σ_j f(x_ij); f(0) must be 0.
        of_sums: the term, from those sums.
    """

    terms: tuple[Callable[[Any], Any], ...]
    of_sums: Callable[..., Array]


@partial(jax.tree_util.register_dataclass, data_fields=("affine",), meta_fields=("domain", "features", "coefficient"))
@dataclass(frozen=True)
class PreparedDensity:
    """A density of counts with its tables in the order that scoring reads, made once for all rows."""

    affine: Affine
    domain: Domain
    features: Callable[[Any], Any]
    coefficient: Coefficient | None = None
    takes_sparse = True

    @property
    def num_features(self) -> int:
        """d."""
        return self.affine.weights.shape[0]

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        scores = self.scores(x)
        return scores if self.coefficient is None else scores + self._coefficient(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats."""
        x = x.map(self.features)
        scores = self.affine.marginal(x, likelihood=True)
        return scores if self.coefficient is None else scores + self._coefficient(x.values)

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The same up to a term common to all classes, of a density that was prepared for scores."""
        return self.affine.marginal(x.map(self.features), likelihood=False)

    def _coefficient(self, x: Any) -> Float[Array, "n 1"]:
        assert self.coefficient is not None
        return self.coefficient.of_sums(*(row_sum(term, x) for term in self.coefficient.terms))[:, None]

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood without a coefficient that is common to all classes."""
        return self.affine(x, self.features)

    def linear(self) -> None:
        """A prepared density is for scoring alone."""
        return None

    def projection(self, *, likelihood: bool) -> Projection:
        """The density as a table and a density of the products, and of the sums of its coefficient."""
        table, coefficient = self.affine.projection(), self.coefficient if likelihood else None
        terms = () if coefficient is None else coefficient.terms
        width = table.shape[1] + len(terms)
        return Projection(self.features, table, terms, ProjectedDensity(self.affine, coefficient, width))


@partial(jax.tree_util.register_dataclass, data_fields=("affine",), meta_fields=("coefficient", "num_features"))
@dataclass(frozen=True)
class ProjectedDensity:
    """The density of a row by its products with the tables of a prepared density, and by the sums of its coefficient.

    Attributes:
        affine: the scores.
        coefficient: as in the prepared density; its sums are the last columns of a row.
        num_features: columns of a row.
    """

    affine: Affine
    coefficient: Coefficient | None
    num_features: int
    domain = domains.NOT_NAN

    def log_likelihood(self, x: Float[Array, "n m"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        if self.coefficient is None:
            return self.scores(x)
        sums = x[:, self.num_features - len(self.coefficient.terms) :]
        return self.scores(x) + self.coefficient.of_sums(*sums.T)[:, None]

    def scores(self, x: Float[Array, "n m"]) -> Float[Array, "n classes"]:
        """The log likelihood without the coefficient."""
        k = self.affine.constant.shape[0]
        # Where nothing is impossible there are no products for it, and any stand for them.
        return self.affine.of_products(x[:, :k], lambda: x[:, k : 2 * k] if x.shape[1] >= 2 * k else x[:, :k])

    def linear(self) -> None:
        """As a prepared density, it is for scoring alone."""
        return None


def as_they_are(x: Any) -> Any:
    """What is counted is x itself."""
    return x


def log_factorial(count: Any) -> Any:
    """log x!, of a JAX or NumPy array, exactly 0 at 0."""
    if isinstance(count, np.ndarray):
        from scipy.special import gammaln as of_numpy

        return of_numpy(count + 1)
    return gammaln(count + 1) - gammaln(jnp.ones((), count.dtype))  # which is not quite 0 in float32


def _impossible(log_probability: Array) -> Array:
    return jnp.isneginf(log_probability).astype(log_probability.dtype)
