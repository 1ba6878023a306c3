"""Sums of features by class: the sufficient statistics of the families that count."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, class_tables, compiled_sums
from jaxgen.class_sums import class_sums
from jaxgen.estimator import D, GenerativeEstimator
from jaxgen.missing import PartialRows
from jaxgen.numerics import drop_impossible, nonnegative_table, working_dtype
from jaxgen.pytree import STATIC, pytree
from jaxgen.sparse import SparseRows
from jaxgen.total import Total, observed_weight, weight_of_each
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Self

    from jax import Array
    from jaxtyping import Float

    from jaxgen.classifier import Classifier
    from jaxgen.compressed import CompressedRows
    from jaxgen.labels import Labels


@pytree
@dataclass(frozen=True)
class Counts:
    """How many rows each class has, and the sum of each feature over them.

    Attributes:
        class_weight: N_k, shape (K,).
        feature_sum: Σ_i r_ik x_ij, shape (K, d).
        binary: whether x was presence, 0 or 1, so that no sum exceeds its class weight.
        feature_weight: the weight of the rows in which each feature was observed, (K, d); None where all were.
        counted: what was made of x before it was counted, where that was something: a threshold, or the categories.
    """

    class_weight: Total
    feature_sum: Total
    binary: bool = dataclasses.field(metadata=STATIC)
    feature_weight: Total | None = None
    counted: Hashable = dataclasses.field(default=None, metadata=STATIC)

    @classmethod
    def of(
        cls,
        x: Float[Array, "n d"] | SparseRows | PartialRows,
        labels: Labels,
        *,
        binary: bool,
        counted: Hashable = None,
    ) -> Counts:
        """The counts of a block of rows."""
        if isinstance(x, SparseRows):  # all rows at once, of which there may be many
            return cls(
                compiled_sums.class_weight(labels, x.dtype), compiled_sums.sparse_sum(x, labels), binary, None, counted
            )
        class_weight = Total.of(labels.class_sum(jnp.ones(x.shape[0], x.dtype)))
        if isinstance(x, PartialRows):
            feature_weight = Total.of(labels.class_sum(x.mask))
            return cls(class_weight, compiled_sums.exact_sum(x.values, labels), binary, feature_weight, counted)
        return cls(class_weight, compiled_sums.exact_sum(x, labels), binary, None, counted)

    @property
    def weight(self) -> Total:
        """The weight of the rows in which each feature was observed, (K, 1) or (K, d)."""
        return observed_weight(self.class_weight, self.feature_weight)

    @property
    def count(self) -> Float[Array, "classes d"]:
        """The sums, 0 where a subtraction left less; with the derivative of a sum where it is 0."""
        total = self.feature_sum.value
        return jnp.where(total < 0, 0.0, total)

    def by_feature(self) -> Counts:
        """The same counts with a weight for each feature, as those of batches with missing ones have."""
        if self.feature_weight is not None:
            return self
        weight = weight_of_each(self.class_weight, self.feature_sum.high.shape)
        return dataclasses.replace(self, feature_weight=weight)

    def merge(self, other: Counts) -> Counts:
        """The counts of both batches."""
        return self._combine(Total.merge, other)

    def subtract(self, part: Counts) -> Counts:
        """The counts of what remains."""
        return self._combine(Total.subtract, part)

    def scale(self, factor: Float[Array, ""]) -> Counts:
        """The counts in which every row weighs so many times as much."""
        return jax.tree.map(lambda total: total.scaled(factor), self, is_leaf=lambda node: isinstance(node, Total))

    def unit(self) -> Counts:
        """The weight of all classes, and the sum of each feature over them."""
        weight, sums = self.class_weight.unit(), self.feature_sum.unit(axis=0)
        return dataclasses.replace(
            self,
            class_weight=self.class_weight.filled(weight),
            feature_sum=self.feature_sum.filled(sums),
            feature_weight=None if self.feature_weight is None else self.feature_weight.filled(weight),
        )

    def _combine(self, operation: Callable[[Total, Total], Total], other: Counts) -> Counts:
        return jax.tree.map(operation, self, other, is_leaf=lambda node: isinstance(node, Total))


def log_of_events(count: Float[Array, "#classes #d"], log_probability: Float[Array, "classes d"]) -> Float[Array, ""]:
    """Σ n log p over all cells of a table: an impossible event costs nothing where it did not happen."""
    return jnp.sum(count * drop_impossible(log_probability))


class CountingEstimator(GenerativeEstimator[Counts, D]):
    """A family whose statistics are counts: what its estimators share, sparse rows among it."""

    binary: ClassVar[bool]
    features_are_alike: ClassVar[bool] = (
        True  # what is made of a feature depends on its counts alone, not on which it is
    )
    classes_are_apart: ClassVar[bool] = True  # what is made of a class depends on its own counts alone
    scores_shares: ClassVar[bool] = False  # features are scored by their share of a total

    @property
    def takes_sparse(self) -> bool:
        """Sums are made of entries alone."""
        return True

    def encode(self, x: Any) -> Any:
        """What is counted, of x."""
        return x

    @property
    def counted(self) -> Hashable:
        """What tells these features from those of another structure of the family."""
        return None

    def accepts(self, statistics: Any) -> bool:
        """Whether these are counts of the same kind."""
        mine = self.binary, self.counted
        return isinstance(statistics, Counts) and (statistics.binary, statistics.counted) == mine

    def summarise(self, x: Float[Array, "n d"] | SparseRows | PartialRows, labels: Labels) -> Counts:
        """The sum of each feature over the rows of each class."""
        return Counts.of(self.encode(x), labels, binary=self.binary, counted=self.counted)

    def summarise_compressed(self, x: CompressedRows, labels: Labels, *, entries: int) -> tuple[Counts, bool]:
        """The statistics of compressed rows, and whether a value is bad."""
        sums = class_sums(x, labels, self.encode, self.domain, binary=self.binary, entries=entries)
        return Counts(sums.class_weight, sums.feature_sum, self.binary, None, self.counted), sums.bad

    def density(self, statistics: Counts) -> D:
        """Smoothed frequencies."""
        return self.of_features(statistics, statistics.feature_sum.high.shape[-1])

    def of_features(self, statistics: Counts, num_features: int) -> D:
        """The density of some features out of so many, by the counts of these; the others have none."""
        raise NotImplementedError

    def estimate_checked(self, statistics: Counts) -> tuple[Classifier[D], Any]:
        """The classifier, and whether any of its leaves is NaN or +∞: a few classes at a time where they are large."""
        if class_tables.is_large(self, statistics):
            return class_tables.estimate(arguments.as_floats(self), statistics)
        return super().estimate_checked(statistics)

    def pseudo_count(self, name: str, like: Float[Array, "classes d"]) -> Float[Array, "classes_or_1 d_or_1"]:
        """A hyperparameter of this name, to be added to a table like the counts; NaN where it is negative."""
        return nonnegative_table(f"{type(self).__name__}.{name}", getattr(self, name), like)

    def proper(self) -> Self:
        """The estimator itself; a ValueError for pseudo-counts of 0, whose prior is improper: NaN under a trace."""
        tables = {}
        for name in (field.name for field in dataclasses.fields(self) if "table" in field.metadata):
            value = getattr(self, name)
            if is_traced(value):
                number = jnp.asarray(value).astype(working_dtype(value.dtype))
                tables[name] = jnp.where(number > 0, number, jnp.nan)
            elif value is not None and not np.all(np.asarray(value) > 0):
                raise ValueError(
                    f"{type(self).__name__}.{name} must be positive here: 0 stands for an improper prior, which has no "
                    f"evidence and no predictive density. Give one such as 1; found {value}."
                )
        return dataclasses.replace(self, **tables)
