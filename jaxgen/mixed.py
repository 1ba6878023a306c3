"""Mixed naive Bayes: families side by side, each on columns of its own.

p(x | y = k) = Π_g p_g(x_g | y = k)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen.estimator import GenerativeEstimator
from jaxgen.inputs import Domain
from jaxgen.numerics import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.labels import Labels

Columns = tuple[int, ...]


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "parts"), meta_fields=())
@dataclass(frozen=True)
class MixedStatistics:
    """The statistics of each family, and the class weights that they have in common.

    Attributes:
        class_weight: N_k, shape (K,).
        parts: one for each family.
    """

    class_weight: Total
    parts: tuple[Any, ...]

    def merge(self, other: MixedStatistics) -> MixedStatistics:
        """The statistics of both batches."""
        parts = (mine.merge(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True))
        return MixedStatistics(self.class_weight.merge(other.class_weight), tuple(parts))

    def subtract(self, part: MixedStatistics) -> MixedStatistics:
        """The statistics of what remains."""
        parts = (mine.subtract(gone) for mine, gone in zip(self.parts, part.parts, strict=True))
        return MixedStatistics(self.class_weight.subtract(part.class_weight), tuple(parts))


@partial(jax.tree_util.register_dataclass, data_fields=("densities",), meta_fields=("columns",))
@dataclass(frozen=True)
class Mixed:
    """Densities of groups of features, independent given the class.

        log p(x | k) = Σ_g log p_g(x_g | k)

    Attributes:
        densities: one for each group.
        columns: the features of each group; every feature is in one.
    """

    densities: tuple[Any, ...]
    columns: tuple[Columns, ...] = dataclasses.field(metadata={"static": True})

    @property
    def domain(self) -> Domain:
        """Those of the groups."""
        return _domain(tuple(density.domain for density in self.densities), self.columns)

    @property
    def num_features(self) -> int:
        """d."""
        return sum(len(group) for group in self.columns)

    def prepared(self, *, likelihood: bool) -> Mixed:
        """The same density with every group's ready for many rows."""
        ready = (
            density.prepared(likelihood=likelihood) if hasattr(density, "prepared") else density
            for density in self.densities
        )
        return Mixed(tuple(ready), self.columns)

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return reduce(jnp.add, (density.log_likelihood(part) for density, part in self._parts(x)))

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood up to a term that is common to all classes."""
        return reduce(jnp.add, (density.scores(part) for density, part in self._parts(x)))

    @property
    def needs_total_count(self) -> bool:
        """Whether one of the groups does."""
        return any(getattr(density, "needs_total_count", False) for density in self.densities)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: Int[Array, " n"] | None = None) -> Array:
        """One draw from the density of each class in y."""
        keys = jax.random.split(key, len(self.densities))
        parts = [density.sample(k, y, total_count) for k, density in zip(keys, self.densities, strict=True)]
        return jnp.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(self.columns))]

    def linear(self) -> tuple[Float[Array, "d classes"], Float[Array, " classes"]] | None:
        """Weights and constants, where every group has them."""
        terms = [density.linear() for density in self.densities]
        if any(term is None for term in terms):
            return None
        order = np.argsort(np.concatenate(self.columns))
        constant = reduce(jnp.add, (constant for _, constant in terms))
        return jnp.concatenate([weights for weights, _ in terms])[order], constant

    def _parts(self, x: Array) -> Any:
        return zip(self.densities, (x[:, np.array(group)] for group in self.columns), strict=True)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class MixedNB(GenerativeEstimator[MixedStatistics, Mixed]):
    """Naive Bayes over groups of features, each with a family of its own.

        p(x | y = k) = Π_g p_g(x_g | y = k)

    Features are independent given the class across groups; within a group as its family has it (LDA and QDA correlate
    theirs). One pass makes the statistics of all families.

    Attributes:
        parts: pairs of a generative estimator and the columns of x that it takes; together those are 0 … d − 1, each
            once. The estimators' own `prior_alpha` plays no part.
        prior_alpha: pseudo-count of each class in the prior.

    Raises:
        TypeError: for parts that are no pairs of a generative estimator and columns.
        ValueError: for columns that are not 0 … d − 1, each once.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> patients = np.array([[36.5, 0], [36.9, 0], [38.8, 1], [39.4, 0], [39.1, 1]])  # temperature, cough
        >>> estimator = jg.MixedNB(((jg.GaussianNB(), (0,)), (jg.BernoulliNB(), (1,))))
        >>> c = jg.fit(estimator, patients, np.array([0, 0, 1, 1, 1]))
        >>> jg.predict(c, np.array([[36.7, 0.0], [39.0, 1.0]])).tolist()
        [0, 1]
    """

    parts: tuple[tuple[GenerativeEstimator[Any, Any], Columns], ...] = dataclasses.field(metadata={"nested": True})

    def __post_init__(self) -> None:
        """Check the parts."""
        shape = "pairs of a generative estimator and its columns, such as ((LDA(), (0, 1)), (BernoulliNB(), (2,)))"
        try:
            parts = tuple((estimator, tuple(int(np.asarray(j)) for j in group)) for estimator, group in self.parts)
        except (TypeError, ValueError):
            raise TypeError(f"MixedNB takes {shape}; found {self.parts!r}.") from None
        if not all(isinstance(estimator, GenerativeEstimator) for estimator, _ in parts):
            raise TypeError(f"MixedNB takes {shape}; found {', '.join(type(e).__name__ for e, _ in parts)}.")
        columns = [group for _, group in parts]
        named = sorted(j for group in columns for j in group)
        if not parts or named != list(range(len(named))) or not all(columns):
            raise ValueError(
                f"the columns of MixedNB must be 0 … d − 1, each in one group, and no group empty; found {columns}."
            )
        object.__setattr__(self, "parts", parts)

    @property
    def columns(self) -> tuple[Columns, ...]:
        """The features of each family."""
        return tuple(group for _, group in self.parts)

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        """Hyperparameters of all families, and the structure."""
        return (tuple(estimator for estimator, _ in self.parts), self.prior_alpha), self.columns

    @classmethod
    def tree_unflatten(cls, columns: Any, children: Any) -> MixedNB:
        """Whatever JAX puts in the place of hyperparameters, unchecked."""
        self = object.__new__(cls)
        estimators, prior_alpha = children
        object.__setattr__(self, "parts", tuple(zip(estimators, columns, strict=True)))
        object.__setattr__(self, "prior_alpha", prior_alpha)
        return self

    @property
    def domain(self) -> Domain:
        """Those of the groups."""
        return _domain(tuple(estimator.domain for estimator, _ in self.parts), self.columns)

    @property
    def sorts_by_class(self) -> bool:
        """Whether one of the families does."""
        return any(estimator.sorts_by_class for estimator, _ in self.parts)

    def check(self) -> None:
        """Raise for a hyperparameter of a family that is out of range."""
        for estimator, _ in self.parts:
            estimator.check()
        super().check()

    def check_features(self, num_features: int) -> None:
        """Raise for features that are in no group, or groups without their features."""
        wanted = sum(len(group) for group in self.columns)
        if wanted != num_features:
            raise ValueError(f"x must have the {wanted} features that MixedNB has families for; found {num_features}.")
        for estimator, group in self.parts:
            estimator.check_features(len(group))

    def accepts(self, statistics: Any) -> bool:
        """Whether these are the statistics of these families."""
        return (
            isinstance(statistics, MixedStatistics)
            and len(statistics.parts) == len(self.parts)
            and all(e.accepts(part) for (e, _), part in zip(self.parts, statistics.parts, strict=True))
        )

    def summarise(self, x: Float[Array, "n d"], labels: Labels) -> MixedStatistics:
        """The statistics of each group's columns."""
        parts = tuple(estimator.summarise(x[:, np.array(group)], labels) for estimator, group in self.parts)
        return MixedStatistics(parts[0].class_weight, parts)

    def density(self, statistics: MixedStatistics) -> Mixed:
        """The density of each group."""
        # The class weights of all are the same, but for the NaN that says that a value of any group was bad.
        parts = (dataclasses.replace(part, class_weight=statistics.class_weight) for part in statistics.parts)
        densities = (estimator.density(part) for (estimator, _), part in zip(self.parts, parts, strict=True))
        return Mixed(tuple(densities), self.columns)

    def explain(self, density: Mixed) -> str:
        """What the family says whose density is not finite."""
        for (estimator, group), part in zip(self.parts, density.densities, strict=True):
            if any(not (np.asarray(leaf) < np.inf).all() for leaf in jax.tree.leaves(part)):
                return f"columns {', '.join(map(str, group))}: {estimator.explain(part)}"
        return super().explain(density)


@cache
def _domain(domains: tuple[Domain, ...], columns: tuple[Columns, ...]) -> Domain:
    """Each column's own; the same object for the same groups, as programs are kept by it."""
    order, groups = np.argsort(np.concatenate(columns)), list(zip(domains, columns, strict=True))

    def contains(x: Any) -> Any:
        tests = [domain.contains(x[..., np.array(group)]) for domain, group in groups]
        return (np if isinstance(x, np.ndarray) else jnp).concatenate(tests, axis=-1)[..., order]

    expected = "; ".join(f"{domain.expected} in columns {', '.join(map(str, group))}" for domain, group in groups)
    remedies = dict.fromkeys(domain.remedy for domain in domains if domain.remedy)
    return Domain(contains, expected, " ".join(remedies), shows=all(domain.shows for domain in domains), adds=False)
