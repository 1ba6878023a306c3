"""Mixed naive Bayes: families side by side, each on columns of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments
from jaxgen.columns import Columns, as_columns, check_groups, indices, named, places, take
from jaxgen.conjugate import proper
from jaxgen.estimator import GenerativeEstimator
from jaxgen.mixed import Mixed, MixedStatistics, domain_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jax import Array
    from jaxtyping import Float

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels
    from jaxgen.missing import PartialRows
    from jaxgen.platform import Tuning
    from jaxgen.sparse import SparseRows


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class MixedNB(GenerativeEstimator[MixedStatistics, Mixed]):
    """Naive Bayes over groups of features, each with a family of its own: p(x | y = k) = Π_g p_g(x_g | y = k).

    Features are independent given the class across groups; within a group as its family has it (LDA and QDA correlate
    theirs). One pass makes the statistics of all families. Rows may be sparse where one of the families takes them; the
    columns of the others are made dense.

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
            parts = tuple((estimator, as_columns(group)) for estimator, group in self.parts)
        except (TypeError, ValueError):
            raise TypeError(f"MixedNB takes {shape}; found {arguments.brief(self.parts)}.") from None
        if not all(isinstance(estimator, GenerativeEstimator) for estimator, _ in parts):
            raise TypeError(f"MixedNB takes {shape}; found {', '.join(arguments.brief(e) for e, _ in parts)}.")
        for estimator, _ in parts:
            estimator.check_density()
        check_groups("MixedNB", [group for _, group in parts])
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
        return domain_of(tuple(estimator.domain for estimator, _ in self.parts), self.columns)

    def row_width(self, num_features: int, tuning: Tuning) -> int:
        """The sum of those of the families."""
        del num_features
        return sum(estimator.row_width(len(group), tuning) for estimator, group in self.parts)

    def rows_wanted(self, num_features: int, labels: Labels, tuning: Tuning) -> int:
        """The most that one of the families wants."""
        del num_features
        return max(estimator.rows_wanted(len(group), labels, tuning) for estimator, group in self.parts)

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
        of_these = isinstance(statistics, MixedStatistics) and statistics.columns == self.columns
        return of_these and all(e.accepts(part) for (e, _), part in zip(self.parts, statistics.parts, strict=True))

    @property
    def takes_sparse(self) -> bool:
        """Whether one of the families does: the columns of the others are made dense."""
        return any(estimator.takes_sparse for estimator, _ in self.parts)

    @property
    def takes_missing(self) -> bool:
        """Whether all families can leave features out."""
        return all(estimator.takes_missing for estimator, _ in self.parts)

    def _check_missing(self, observed: Any, given: Any) -> None:
        if observed is not None and not self.takes_missing:
            next(estimator for estimator, _ in self.parts if not estimator.takes_missing)._check_missing(observed, None)
        super()._check_missing(observed, given)

    @property
    def fills_in(self) -> bool:
        """Whether one of the families does."""
        return any(estimator.fills_in for estimator, _ in self.parts)

    def check_given(self, density: Any) -> None:
        """Raise for what is no density of these columns, where features are filled in."""
        if not self.fills_in:
            return
        if not isinstance(density, Mixed) or density.columns != self.columns:
            found = f"columns {density.columns}" if isinstance(density, Mixed) else type(density).__name__
            raise TypeError(f"given must be a classifier of families on columns {self.columns}; found {found}.")
        for (estimator, _), part in zip(self.parts, density.densities, strict=True):
            estimator.check_given(part)

    def check_seen(self, seen: np.ndarray, features: Sequence[int]) -> None:
        """Raise for what one of the families does not take."""
        for estimator, group in self.parts:
            estimator.check_seen(seen[:, list(group)], [features[j] for j in group])

    def takes_for_constant(self, num_features: int) -> np.ndarray:
        """Those of each family."""
        del num_features
        each = [estimator.takes_for_constant(len(group)) for estimator, group in self.parts]
        return np.concatenate(each)[places(self.columns)]

    def summarise(self, x: Float[Array, "n d"] | SparseRows | PartialRows, labels: Labels) -> MixedStatistics:
        """The statistics of each group's columns."""
        return self._joined([estimator.summarise(part, labels) for estimator, part in self.split(x)])

    def summarise_compressed(self, x: CompressedRows, labels: Labels, *, entries: int) -> tuple[MixedStatistics, bool]:
        """The same of compressed rows, group by group, and whether a value is bad."""
        del entries
        each = [estimator.summarise_checked(part, labels) for estimator, part in self.split(x)]
        return self._joined([statistics for statistics, _ in each]), any(bool(bad) for _, bad in each)

    def naive(self) -> MixedNB:
        """Every family without correlations."""
        return self._with(estimator.naive() for estimator, _ in self.parts)

    def from_origin(self, origin: Float[Array, " d"]) -> tuple[MixedNB, Float[Array, " d"] | None]:
        """That of each family, and 0 where it has none."""
        each = [(*estimator.from_origin(origin[indices(group)]), indices(group)) for estimator, group in self.parts]
        moved = [(mine, group) for _, mine, group in each if mine is not None]
        found = reduce(lambda found, part: found.at[part[1]].set(part[0]), moved, jnp.zeros_like(origin))
        return self._with(estimator for estimator, *_ in each), found if moved else None

    def expect(self, x: PartialRows, labels: Labels, density: Mixed | None) -> MixedStatistics:
        """The statistics of each group's columns, under the density of each."""
        given = [None] * len(self.parts) if density is None else density.densities
        each = zip(self.split(x), given, strict=True)
        return self._joined([estimator.expect(part, labels, given) for (estimator, part), given in each])

    def density(self, statistics: MixedStatistics) -> Mixed:
        """The density of each group."""
        return Mixed(tuple(estimator.density(part) for estimator, part in self._each(statistics)), self.columns)

    def log_parameter_prior(self, density: Mixed) -> Float[Array, ""]:
        """The sum of those of the groups."""
        families = zip(self.parts, density.densities, strict=True)
        return reduce(jnp.add, (family.log_parameter_prior(part) for (family, _), part in families))

    def check_statistics(self, statistics: Any) -> None:
        """Raise for what one of the families does not take."""
        super().check_statistics(statistics)
        for estimator, part in self._each(statistics):
            estimator.check_statistics(part)

    def proper(self) -> MixedNB:
        """The estimator itself; an error if a family has no proper conjugate prior: NaN under a trace."""
        return self._with(proper(estimator) for estimator, _ in self.parts)

    def predictive(self, statistics: MixedStatistics) -> Mixed:
        """The predictive density of each group."""
        return Mixed(tuple(estimator.predictive(part) for estimator, part in self._each(statistics)), self.columns)

    def log_marginal_likelihood(self, statistics: MixedStatistics) -> Float[Array, ""]:
        """The sum of those of the groups, in nats."""
        return reduce(jnp.add, (family.log_marginal_likelihood(part) for family, part in self._each(statistics)))

    def _with(self, estimators: Iterable[GenerativeEstimator[Any, Any]]) -> MixedNB:
        """Other families on the same columns."""
        return MixedNB(tuple(zip(estimators, self.columns, strict=True)), prior_alpha=self.prior_alpha)

    def split(self, x: Any) -> list[tuple[GenerativeEstimator[Any, Any], Any]]:
        """The families with their columns of rows in any form."""
        return [(estimator, take(x, group, sparse=estimator.takes_sparse)) for estimator, group in self.parts]

    def _joined(self, parts: Sequence[Any]) -> MixedStatistics:
        """The statistics of the families side by side."""
        return MixedStatistics(parts[0].class_weight, tuple(parts), self.columns)

    def _each(self, statistics: MixedStatistics) -> Iterator[tuple[Any, Any]]:
        """The families with their statistics."""
        for (estimator, _), part in zip(self.parts, statistics.parts, strict=True):
            # The class weights of all are the same, but for the NaN that says that a value of any group was bad.
            yield estimator, dataclasses.replace(part, class_weight=statistics.class_weight)

    def explain(self, density: Mixed, features: Sequence[int] | None = None) -> str:
        """What the family says whose density is not finite."""
        for (estimator, group), part in zip(self.parts, density.densities, strict=True):
            if any(not (np.asarray(leaf) < np.inf).all() for leaf in jax.tree.leaves(part)):
                mine = [j if features is None else features[j] for j in group]
                return f"{named(mine)}: {estimator.explain(part, mine)}"
        return super().explain(density)
