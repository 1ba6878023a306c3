"""Mixed naive Bayes: families side by side, each on columns of its own.

p(x | y = k) = Π_g p_g(x_g | y = k)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen.arguments import brief
from jaxgen.columns import Columns, are_all, indices, named, places, take
from jaxgen.density import is_density, optional
from jaxgen.domains import Domain
from jaxgen.pytree import STATIC, pytree
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.compressed import CompressedRows
    from jaxgen.missing import PartialRows
    from jaxgen.sparse import SparseRows


@pytree
@dataclass(frozen=True)
class MixedStatistics:
    """The statistics of each family, and the class weights that they have in common.

    Attributes:
        class_weight: N_k, shape (K,).
        parts: one for each family.
        columns: the features of each.
    """

    class_weight: Total
    parts: tuple[Any, ...]
    columns: tuple[Columns, ...] = dataclasses.field(metadata=STATIC)

    def by_feature(self) -> MixedStatistics:
        """The same statistics with a weight for each feature, as those of batches with missing ones have."""
        return dataclasses.replace(self, parts=tuple(part.by_feature() for part in self.parts))

    def merge(self, other: MixedStatistics) -> MixedStatistics:
        """The statistics of both batches."""
        parts = (mine.merge(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))
        return MixedStatistics(self.class_weight.merge(other.class_weight), tuple(parts), self.columns)

    def subtract(self, part: MixedStatistics) -> MixedStatistics:
        """The statistics of what remains."""
        parts = (mine.subtract(gone) for mine, gone in zip(self.parts, part.parts, strict=True))
        return MixedStatistics(self.class_weight.subtract(part.class_weight), tuple(parts), self.columns)

    def scale(self, factor: Float[Array, ""]) -> MixedStatistics:
        """The statistics in which every row weighs so many times as much."""
        parts = tuple(part.scale(factor) for part in self.parts)
        return MixedStatistics(self.class_weight.scaled(factor), parts, self.columns)

    def unit(self) -> MixedStatistics:
        """Those of the parts."""
        weight = self.class_weight.filled(self.class_weight.unit())
        return MixedStatistics(weight, tuple(part.unit() for part in self.parts), self.columns)


@pytree
@dataclass(frozen=True)
class Mixed:
    """Densities of groups of features, independent given the class.

        log p(x | k) = Σ_g log p_g(x_g | k)

    Attributes:
        densities: one for each group.
        columns: the features of each group; every feature is in one.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> coin = jg.Bernoulli(jnp.log(jnp.array([[0.25]])), jnp.log(jnp.array([[0.75]])))
        >>> c = jg.Mixed((jg.Poisson(jnp.log(jnp.array([[2.0]]))), coin), columns=((0,), (1,)))
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.array([[3.0, 1.0]])))[0, 0]:.4f}")  # 0.1804 / 4
        0.0451
    """

    densities: tuple[Any, ...]
    columns: tuple[Columns, ...] = dataclasses.field(metadata=STATIC)

    @property
    def domain(self) -> Domain:
        """Those of the groups."""
        return domain_of(tuple(density.domain for density in self.densities), self.columns)

    @property
    def num_features(self) -> int:
        """d."""
        return sum(len(group) for group in self.columns)

    @property
    def takes_sparse(self) -> bool:
        """Whether one of the groups does: the columns of the others are made dense."""
        return any(optional(density, "takes_sparse") for density in self.densities)

    def check_structure(self) -> None:
        """Raise for columns that are not those of the densities, and for densities of other numbers of classes."""
        columns = self.columns
        tuples = isinstance(columns, tuple) and all(isinstance(group, tuple) for group in columns)
        if not (tuples and are_all(columns)):
            raise ValueError(
                "Mixed.columns must be a tuple of tuples of integers, in which each feature 0 … d−1 is once; found "
                f"{brief(columns)}."
            )
        if not isinstance(self.densities, tuple) or len(self.densities) != len(columns):
            raise ValueError(
                f"Mixed.densities must be a tuple of one density for each of the {len(columns)} groups of columns; "
                f"found {type(self.densities).__name__} of {len(self.densities)}."
            )
        for i, (density, group) in enumerate(zip(self.densities, columns, strict=True)):
            if not is_density(density):
                raise TypeError(
                    f"Mixed.densities[{i}] must be a density, such as jaxgen.Gaussian; found {type(density).__name__}."
                )
            if density.num_features != len(group):
                raise ValueError(
                    f"Mixed.densities[{i}] must have {len(group)} features, those of the columns {brief(group)}; found "
                    f"{density.num_features}."
                )
        # One array at least of a density has an entry for each class, also where they share others.
        leaves = [[leaf for leaf in jax.tree.leaves(density) if jnp.ndim(leaf)] for density in self.densities]
        classes = [max(len(leaf) for leaf in arrays) for arrays in leaves]
        if len(set(classes)) > 1:
            raise ValueError(f"Mixed.densities must all have as many classes; found {', '.join(map(str, classes))}.")

    def prepared(self, *, likelihood: bool) -> Mixed:
        """The same density with every group's ready for many rows."""
        return Mixed(
            tuple(optional(density, "prepared")(likelihood=likelihood) for density in self.densities), self.columns
        )

    def log_likelihood(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return reduce(jnp.add, (density.log_likelihood(part) for density, part in self.split(x)))

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats."""
        return reduce(jnp.add, (density.log_marginal(part) for density, part in self.split(x)))

    def marginal_scores(self, x: PartialRows) -> Float[Array, "n classes"]:
        """The same up to a term that is common to all classes."""
        return reduce(jnp.add, (optional(density, "marginal_scores")(part) for density, part in self.split(x)))

    def marginal_width(self, most_missing: int | None) -> int:
        """What the widest group needs."""
        return max(optional(density, "marginal_width")(most_missing) for density in self.densities)

    def scores(self, x: Float[Array, "n d"] | SparseRows) -> Float[Array, "n classes"]:
        """The log likelihood up to a term that is common to all classes."""
        return reduce(jnp.add, (density.scores(part) for density, part in self.split(x)))

    @property
    def needs_total_count(self) -> bool:
        """Whether one of the groups does."""
        return any(optional(density, "needs_total_count") for density in self.densities)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: Int[Array, " n"] | None = None) -> Array:
        """One draw from the density of each class in y."""
        keys = jax.random.split(key, len(self.densities))
        return self.join([density.sample(k, y, total_count) for k, density in zip(keys, self.densities, strict=True)])

    def moved(self, origin: Float[Array, " d"]) -> Mixed:
        """The densities of features to which an origin is added, where they have a place."""
        each = zip(self.densities, self.columns, strict=True)
        return Mixed(tuple(optional(density, "moved")(origin[indices(group)]) for density, group in each), self.columns)

    def conditional_mean(self, x: PartialRows) -> Float[Array, "n classes d"]:
        """E[x | x_observed, k]."""
        means = [optional(density, "conditional_mean")(part) for density, part in self.split(x)]
        num_classes = max(mean.shape[1] for mean in means)
        return self.join([jnp.broadcast_to(mean, (mean.shape[0], num_classes, mean.shape[2])) for mean in means])

    def conditional_sample(self, key: Array, x: PartialRows, y: Int[Array, " n"]) -> Float[Array, "n d"]:
        """One draw of what was not observed, given what was, from the density of each class in y."""
        keys = jax.random.split(key, len(self.densities))
        parts = zip(keys, self.split(x), strict=True)
        return self.join([optional(density, "conditional_sample")(k, part, y) for k, (density, part) in parts])

    def check_fills_in(self, missing: Bool[np.ndarray, " d"], *, drawn: bool) -> None:
        """Raise a TypeError if a group has no conditional mean of what may be missing, or cannot draw it."""
        for density, group in zip(self.densities, self.columns, strict=True):
            optional(density, "check_fills_in")(missing[indices(group)], drawn=drawn)

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants, where every group has them."""
        terms = [density.linear() for density in self.densities]
        if any(term is None for term in terms):
            return None
        constant = reduce(jnp.add, (constant for _, constant in terms))
        return self.join([weights.T for weights, _ in terms]).T, constant

    def split(self, x: Array | SparseRows | PartialRows) -> list[tuple[Any, Any]]:
        """Each group's density and its columns of x."""
        each = zip(self.densities, self.columns, strict=True)
        return [(density, take(x, group, sparse=optional(density, "takes_sparse"))) for density, group in each]

    def apart(self, x: CompressedRows) -> list[tuple[Any, Any]]:
        """The density of each group of sparse rows with its columns, and one of all that are made dense with theirs."""
        each = [*zip(self.densities, self.columns, strict=True)]
        result = [
            (density, take(x, group, sparse=True)) for density, group in each if optional(density, "takes_sparse")
        ]
        if others := [pair for pair in each if not optional(pair[0], "takes_sparse")]:
            densities, groups = zip(*others, strict=True)
            ends = np.cumsum([len(group) for group in groups]).tolist()
            together = Mixed(densities, tuple(tuple(range(*ends)) for ends in pairwise([0, *ends])))
            result.append((together, take(x, sum(groups, ()), sparse=False)))
        return result

    def join(self, parts: list[Array]) -> Array:
        """The columns of all groups, each in its place."""
        return jnp.concatenate(parts, axis=-1)[..., places(self.columns)]


@cache
def domain_of(domains: tuple[Domain, ...], columns: tuple[Columns, ...]) -> Domain:
    """Each column's own; the same object for the same groups, as programs are kept by it."""
    groups = tuple(
        (inner, tuple(group[j] for j in part))
        for domain, group in zip(domains, columns, strict=True)
        for inner, part in domain.groups or ((domain, range(len(group))),)
    )
    order = places([group for _, group in groups])

    def contains(x: Any) -> Any:
        tests = [domain.contains(x[..., indices(group)]) for domain, group in groups]
        return (np if isinstance(x, np.ndarray) else jnp).concatenate(tests, axis=-1)[..., order]

    expected = "; ".join(f"{domain.expected} in {named(group)}" for domain, group in groups)
    remedies = dict.fromkeys(domain.remedy for domain, _ in groups if domain.remedy)
    shows = all(domain.shows for domain in domains)
    return Domain(contains, expected, " ".join(remedies), shows=shows, adds=False, groups=groups)
