"""Class scores that are affine in x: how the densities of counts are scored, from dense and from sparse rows."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxgen.density import table_shape
from jaxgen.numerics import count_impossible, drop_impossible, matmul, shortcut
from jaxgen.projections import Coefficient, ProjectedDensity, Projection, as_they_are
from jaxgen.pytree import STATIC, pytree
from jaxgen.sparse import SparseRows, product, row_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.density import Shapes
    from jaxgen.domains import Domain
    from jaxgen.missing import PartialRows


class PossibleAffine(NamedTuple):
    """Class scores that are affine in x, under which nothing is impossible.

    Attributes:
        constant: the score of x = 0, (K,).
        weights: what one more of a feature adds, (d, K).
    """

    constant: Float[Array, " classes"]
    weights: Float[Array, "d classes"]

    def __call__(self, x: Array | SparseRows, encode: Callable[[Any], Any]) -> Float[Array, "n classes"]:
        """The scores of what rows are encoded as."""
        return self.constant[None] + product(x, self.weights, encode)


class Affine(NamedTuple):
    """Class scores that are affine in x: those of independent features with two outcomes, or counted.

    Attributes:
        constant: the score of x = 0, (K,).
        impossible_at_zero: how many impossible events x = 0 holds, (K,).
        weights: what one more of a feature adds, (d, K); 0 in place of −∞.
        present: log p as it was given, (K, d).
        absent: log q as it was given, (K, d), where it was.
        at_zero: what x = 0 scores as it was given, (K, d), where it was.
        may_be_impossible: whether any of those is −∞.
    """

    constant: Float[Array, " classes"]
    impossible_at_zero: Float[Array, " classes"]
    weights: Float[Array, "d classes"]
    present: Float[Array, "classes d"]
    absent: Float[Array, "classes d"] | None
    at_zero: Float[Array, "classes d"] | None
    may_be_impossible: Bool[Array, ""]

    @classmethod
    def of(
        cls,
        present: Float[Array, "classes d"],
        absent: Float[Array, "classes d"] | None = None,
        *,
        at_zero: Float[Array, "classes d"] | None = None,
        likelihood: bool,
    ) -> Affine:
        """Σ_j x_j log p_kj, + (1 − x_j) log q_kj where q is given, or + c_kj where what x = 0 scores is."""
        weights, impossible = drop_impossible(present), jnp.any(jnp.isneginf(present))
        constant = impossible_at_zero = jnp.zeros(present.shape[0], present.dtype)
        if at_zero is not None:
            constant = jnp.sum(_comparable(at_zero, likelihood=likelihood), axis=-1)
        if absent is not None:
            weights = weights - drop_impossible(absent)
            constant, impossible_at_zero = _sum_of_possible(absent, likelihood=likelihood)
            impossible |= jnp.any(impossible_at_zero > 0)
        weights = _comparable(weights, likelihood=likelihood).T
        return cls(constant, impossible_at_zero, weights, present, absent, at_zero, impossible)

    @property
    def possible(self) -> PossibleAffine:
        """The scores where nothing impossible happens."""
        return PossibleAffine(self.constant, self.weights)

    @property
    def impossible_by_feature(self) -> Float[Array, "d classes"]:
        """How many impossible events one more of a feature adds or takes away."""
        present = count_impossible(self.present)
        return (present if self.absent is None else present - count_impossible(self.absent)).T

    @property
    def log_absent(self) -> Float[Array, "classes d"]:
        """What each feature adds to the score of x = 0."""
        given = self.absent if self.at_zero is None else self.at_zero
        return jnp.zeros_like(self.present) if given is None else given

    def marginal(self, x: PartialRows, *, likelihood: bool) -> Float[Array, "n classes"]:
        """The scores of the observed features of rows; with or without `likelihood`, as the tables were made."""
        without = self.log_absent
        each = _comparable(drop_impossible(without), likelihood=likelihood)
        total = matmul(x.mask, each.T) + product(x.values, self.weights)
        return self._unless_impossible(
            total, lambda: matmul(x.mask, count_impossible(without).T) + product(x.values, self.impossible_by_feature)
        )

    def __call__(self, x: Array | SparseRows, encode: Callable[[Any], Any]) -> Float[Array, "n classes"]:
        """The scores of what rows are encoded as."""
        return self._unless_impossible(
            self.possible(x, encode),
            lambda: self.impossible_at_zero[None] + product(x, self.impossible_by_feature, encode),
        )

    def _unless_impossible(self, total: Array, impossible: Callable[[], Array]) -> Array:
        """The scores; −∞ where an event is impossible: `0 · −∞` is NaN, yet what did not happen costs nothing."""
        happened = shortcut(
            ~self.may_be_impossible,
            lambda: jnp.zeros_like(total, bool),
            lambda: lax.stop_gradient(impossible()) > 0,
        )
        return jnp.where(happened, -jnp.inf, total)


@pytree
@dataclass(frozen=True)
class PreparedDensity:
    """A density of counts with its tables in the order that scoring reads, made once for all rows."""

    affine: Affine | PossibleAffine
    domain: Domain = dataclasses.field(metadata=STATIC)
    encode: Callable[[Any], Any] = dataclasses.field(metadata=STATIC)
    coefficient: Coefficient | None = dataclasses.field(default=None, metadata=STATIC)
    takes_sparse = True

    @property
    def in_one_pass(self) -> bool:
        """Whether the scores of dense rows are products of what those hold, and no more."""
        return isinstance(self.affine, PossibleAffine) and self.encode is as_they_are and self.coefficient is None

    @property
    def first_step(self) -> tuple[Float[Array, "d classes"], ProjectedDensity] | None:
        """The table that rows are multiplied by, and the density of the products, where they are scored in one pass."""
        return (self.affine.weights, ProjectedDensity(self.affine.constant, None, None)) if self.in_one_pass else None

    def quick_form(self, *, likelihood: bool) -> tuple[PreparedDensity, Bool[Array, ""]]:
        """The same density without looking for what is impossible."""
        del likelihood  # for which it was prepared
        return dataclasses.replace(self, affine=self._whole.possible), ~self._whole.may_be_impossible

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        scores = self.scores(x)
        return scores if self.coefficient is None else scores + self._coefficient(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats."""
        x = x.map(self.encode)
        scores = self._whole.marginal(x, likelihood=True)
        return scores if self.coefficient is None else scores + self._coefficient(x.values)

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The same up to a term common to all classes, of a density that was prepared for scores."""
        return self._whole.marginal(x.map(self.encode), likelihood=False)

    @property
    def _whole(self) -> Affine:
        assert isinstance(self.affine, Affine)
        return self.affine

    def _coefficient(self, x: Any) -> Float[Array, "n 1"]:
        assert self.coefficient is not None
        return self.coefficient.of_sums(*(row_sum(term, x) for term in self.coefficient.terms))[:, None]

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood without a coefficient that is common to all classes."""
        return self.affine(x, self.encode)

    def projection(self, *, likelihood: bool, impossible: bool) -> Projection:
        """The density in two steps: a table with or without what counts impossible events, and their density."""
        affine, coefficient = self._whole, self.coefficient if likelihood else None
        tables = [affine.weights, affine.impossible_by_feature] if impossible else [affine.weights]
        density = ProjectedDensity(affine.constant, affine.impossible_at_zero if impossible else None, coefficient)
        terms = () if coefficient is None else coefficient.terms
        return Projection(self.encode, terms, density, jnp.concatenate(tables, axis=1))


class AffineDensity(abc.ABC):
    """A density whose log is affine in x, up to a coefficient: what is written once for those of counts."""

    takes_sparse = in_two_steps = True

    @property
    def shapes(self) -> Shapes:
        """All tables are of one shape."""
        fields = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        tables = [field.name for field in fields if not field.metadata.get("static")]
        shape = table_shape(getattr(self, tables[0]))
        return {name: [shape] for name in tables}

    @abc.abstractmethod
    def prepared(self, *, likelihood: bool) -> PreparedDensity:
        """The same density, ready for many rows: for their log likelihoods, or for their scores."""

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats: a constant for the empty document, and a term for each word that is present."""
        return self.prepared(likelihood=True).log_likelihood(x)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the other factors are left out."""
        return self.prepared(likelihood=True).log_marginal(x)

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood up to a term that is common to all classes."""
        return self.prepared(likelihood=False).scores(x)

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The log marginal up to a term that is common to all classes."""
        return self.prepared(likelihood=False).marginal_scores(x)


def _comparable(terms: Float[Array, "classes d"], *, likelihood: bool) -> Float[Array, "classes d"]:
    """Terms by class; without `likelihood`, of scores, each is less that of the first class.

    Rare words have large logs in all classes, whose rounding would drown what tells the classes apart.
    """
    return terms if likelihood else terms - terms[:1]


def _sum_of_possible(log_q: Float[Array, "classes d"], *, likelihood: bool) -> tuple[Array, Array]:
    """The sum of what is not −∞, by class, and how many are: in a plain sum, which is the quickest, these show."""
    plain = jnp.sum(_comparable(log_q, likelihood=likelihood), axis=-1)
    return shortcut(
        jnp.all(jnp.abs(plain) < jnp.inf),
        lambda: (plain, jnp.zeros_like(plain)),
        lambda: (
            jnp.sum(_comparable(drop_impossible(log_q), likelihood=likelihood), axis=-1),
            jnp.sum(count_impossible(log_q), axis=-1),
        ),
    )
