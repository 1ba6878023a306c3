"""Sums of features by class: the sufficient statistics of the families that count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, inputs
from jaxgen.compressed import Projection
from jaxgen.estimator import D, GenerativeEstimator
from jaxgen.numerics import Total, drop_impossible
from jaxgen.sparse import SparseRows, product, row_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.compressed import CompressedRows
    from jaxgen.inputs import Domain
    from jaxgen.labels import Labels


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "feature_sum"), meta_fields=("binary",))
@dataclass(frozen=True)
class Counts:
    """How many rows each class has, and the sum of each feature over them.

    Attributes:
        class_weight: N_k, shape (K,).
        feature_sum: Σ_i r_ik x_ij, shape (K, d).
        binary: whether x was presence, 0 or 1, so that no sum exceeds its class weight.
    """

    class_weight: Total
    feature_sum: Total
    binary: bool

    @classmethod
    def of(cls, x: Float[Array, "n d"] | SparseRows, labels: Labels, *, binary: bool) -> Counts:
        """The counts of a block of rows."""
        class_weight = labels.class_sum(jnp.ones(x.shape[0], x.dtype))
        feature_sum = _sparse_sum(x, labels) if isinstance(x, SparseRows) else _exact_sum(x, labels)
        return cls(Total.of(class_weight), feature_sum, binary)

    def merge(self, other: Counts) -> Counts:
        """The counts of both batches."""
        return Counts(
            self.class_weight.merge(other.class_weight), self.feature_sum.merge(other.feature_sum), self.binary
        )

    def subtract(self, part: Counts) -> Counts:
        """The counts of what remains."""
        return Counts(
            self.class_weight.subtract(part.class_weight), self.feature_sum.subtract(part.feature_sum), self.binary
        )


class CountingEstimator(GenerativeEstimator[Counts, D]):
    """A family whose statistics are counts: what its estimators share, sparse rows among it."""

    binary: ClassVar[bool]
    takes_sparse = True

    def features(self, x: Any) -> Any:
        """What is counted, of x."""
        return x

    def accepts(self, statistics: Any) -> bool:
        """Whether these are counts of the same kind."""
        return isinstance(statistics, Counts) and statistics.binary == self.binary

    def summarise(self, x: Float[Array, "n d"] | SparseRows, labels: Labels) -> Counts:
        """The sum of each feature over the rows of each class."""
        return Counts.of(self.features(x), labels, binary=self.binary)

    def statistics_of_compressed(self, x: CompressedRows, labels: Labels) -> tuple[Counts, bool]:
        """The statistics of compressed rows, and whether a value is bad."""
        sums = x.class_sums(labels, self.features, self.domain)
        return Counts(sums.class_weight, sums.feature_sum, self.binary), sums.bad


class Affine(NamedTuple):
    """Class scores that are affine in x: those of independent features with two outcomes, or counted.

    Attributes:
        constant: the score of x = 0, (K,).
        weights: what one more of a feature adds, (d, K); 0 in place of −∞.
        present: log p as it was given, (K, d).
        absent: log q as it was given, (K, d), where it was.
        may_be_impossible: whether any of those is −∞.
    """

    constant: Float[Array, " classes"]
    weights: Float[Array, "d classes"]
    present: Float[Array, "classes d"]
    absent: Float[Array, "classes d"] | None
    may_be_impossible: Bool[Array, ""]

    @classmethod
    def of(
        cls, present: Float[Array, "classes d"], absent: Float[Array, "classes d"] | None = None, *, likelihood: bool
    ) -> Affine:
        """Σ_j x_j log p_kj, + (1 − x_j) log q_kj where q is given.

        Without `likelihood` every term is less that of the first class: rare words have large logs in all classes,
        whose rounding would drown what tells the classes apart.
        """
        weights, impossible = drop_impossible(present), jnp.any(jnp.isneginf(present))
        constant = jnp.zeros(present.shape[0], present.dtype)
        if absent is not None:
            without = drop_impossible(absent)
            constant, weights = jnp.sum(without, axis=-1), weights - without
            impossible |= jnp.any(jnp.isneginf(absent))
        if not likelihood:
            constant, weights = constant - constant[:1], weights - weights[:1]
        return cls(constant, weights.T, present, absent, impossible)

    @property
    def always(self) -> Float[Array, " classes"]:
        """How many impossible events x = 0 holds."""
        return jnp.zeros_like(self.constant) if self.absent is None else jnp.sum(_impossible(self.absent), axis=-1)

    @property
    def never(self) -> Float[Array, "d classes"]:
        """How many impossible events one more of a feature adds or takes away."""
        never = _impossible(self.present)
        return (never if self.absent is None else never - _impossible(self.absent)).T

    def __call__(self, x: Array | SparseRows) -> Float[Array, "n classes"]:
        """The scores of rows."""
        return self.of_products(product(x, self.weights), lambda: product(x, self.never))

    def of_products(
        self, weighted: Float[Array, "n classes"], impossible: Callable[[], Float[Array, "n classes"]]
    ) -> Float[Array, "n classes"]:
        """The scores; −∞ where an event is impossible: `0 · −∞` is NaN, yet what did not happen costs nothing.

        Args:
            weighted: x times the weights.
            impossible: makes x times `never`; called where that is not zero anyway.
        """
        total = self.constant[None] + weighted
        happened = lax.cond(
            self.may_be_impossible,
            lambda: lax.stop_gradient(self.always[None] + impossible()) > 0,
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
        if self.coefficient is None:
            return scores
        return scores + self.coefficient.of_sums(*(row_sum(term, x) for term in self.coefficient.terms))[:, None]

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood without a coefficient that is common to all classes."""
        return self.affine(self.features(x))

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
    domain = inputs.NOT_NAN

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


def _impossible(log_probability: Array) -> Array:
    return jnp.isneginf(log_probability).astype(log_probability.dtype)


def _sparse_sum(x: SparseRows, labels: Labels) -> Total:
    """Class sums of sparse rows, in pieces that merge: of about as many entries as the table has cells."""
    piece = min(max(2**13, labels.num_classes * x.shape[1]), 2**22)
    groups = max(piece // max(x.values.shape[1], 1), 1)
    if x.values.shape[0] <= groups:
        return _exact_sum(x, labels)
    return blocks.fold(lambda _, part: _exact_sum(part, labels), x, block=groups)


def _exact_sum(x: Float[Array, "n d"] | SparseRows, labels: Labels) -> Total:
    """Class sums of x; where they outgrow the whole numbers that a float holds, the digits of x are summed apart.

    The sum of n digits of b bits is exact while b + log2 n stays within the float's significand.
    """

    def sum_of(function: Callable[[Array], Array]) -> Array:
        return x.map(function).class_sum(labels) if isinstance(x, SparseRows) else labels.class_sum(function(x))

    total = sum_of(lambda values: values)
    significand = jnp.finfo(x.dtype).nmant + 1
    terms = x.values.size if isinstance(x, SparseRows) else x.shape[0]
    bits = significand - terms.bit_length()

    def apart() -> Total:
        firsts = [*range(0, significand, bits)]
        parts = []
        for first in firsts:

            def digit(values: Array, first: int = first) -> Array:
                rest = jnp.floor(values / 2.0**first) if first else values
                return rest if first == firsts[-1] else jnp.mod(rest, 2.0**bits)

            parts.append(Total.of(2.0**first * sum_of(digit)))
        return reduce(Total.merge, parts)

    return lax.cond(jnp.any(total >= 2.0**significand), apart, lambda: Total.of(total))
