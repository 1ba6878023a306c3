"""Categorical naive Bayes: which of several values each feature takes.

x_j | y = k ~ Categorical(θ_kj), independently, x_j ∈ {0, …, m_j − 1}
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, categories, draws
from jaxgen.counts import CountingEstimator, Counts, log_of_events
from jaxgen.density import table_shape
from jaxgen.missing import PartialRows
from jaxgen.numerics import nonnegative_table, safe_divide, safe_log
from jaxgen.pytree import STATIC, pytree
from jaxgen.rising import log_rising
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Hashable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.density import Shapes
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels
    from jaxgen.platform import Tuning


@pytree
@dataclass(frozen=True)
class Categorical:
    """Independent features with a few values each.

        log p(x | k) = Σ_j log θ_kj[x_j]    (Murphy 2012, Machine Learning, section 3.5)

    Attributes:
        log_probability: log θ of all categories of all features side by side, (K, Σ_j m_j); those of each feature sum
            to 1.
        num_categories: m_j of each feature.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Categorical(jnp.log(jnp.array([[0.5, 0.5, 0.2, 0.3, 0.5]])), num_categories=(2, 3))
        >>> print(f"{jnp.exp(c.log_likelihood(jnp.array([[1.0, 2.0]])))[0, 0]:.3f}")  # 1/2 · 1/2
        0.250
    """

    log_probability: Float[Array, "classes categories"]
    num_categories: tuple[int, ...] = dataclasses.field(metadata=STATIC)

    log_probabilities = ("log_probability",)

    @property
    def domain(self) -> Domain:
        """The categories of each feature."""
        return categories.domain_of(self.num_categories)

    @property
    def num_features(self) -> int:
        """d."""
        return len(self.num_categories)

    def check_structure(self) -> None:
        """Raise for numbers of categories that are none."""
        categories.check_sizes("Categorical", self.num_categories)

    @property
    def shapes(self) -> Shapes:
        """All categories of all features."""
        return {"log_probability": [(table_shape(self.log_probability)[0], sum(self.num_categories))]}

    @property
    def score_width(self) -> int:
        """The terms of a strip of features, which a row takes at a time."""
        return categories.STRIP * self.log_probability.shape[0]

    def log_likelihood(self, x: Float[Array, "n d"] | PartialRows) -> Float[Array, "n classes"]:
        """log p(x | k), in nats, of the features that were observed: the other factors are left out."""
        return categories.sum_of_terms(self.log_probability.T, x, self.num_categories)

    log_marginal = log_likelihood

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood."""
        return self.log_likelihood(x)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        sizes, dtype = np.array(self.num_categories), self.log_probability.dtype
        # A row for each feature, as long as the longest: what it has not is impossible.
        category = np.arange(sizes.max())[None]
        place = np.minimum(categories.first_of(self.num_categories)[:, None] + category, sizes.sum() - 1)
        tables = jnp.where((category < sizes[:, None])[None], jnp.exp(self.log_probability[:, place]), 0.0)
        return draws.Wheel.of(tables).draw(key, y).astype(dtype)

    def linear(self) -> None:
        """A category is no quantity."""
        return None


@pytree
@dataclass(frozen=True)
class CategoricalNB(CountingEstimator[Categorical]):
    """Categorical naive Bayes with additive smoothing.

        θ_kj[v] = (N_kj[v] + alpha) / Σ_u (N_kj[u] + alpha)

    where N_kj[v] counts the rows of class k whose feature j is v (Mitchell 2020, chapter 3, section 2): the posterior
    mean under Dirichlet(alpha). A class without data has θ = 1/m_j, the limit alpha → 0⁺.

    Attributes:
        num_categories: m_j of each feature, or one number for all: of whole numbers x, x.max(axis=0) + 1 at the least.
        alpha: pseudo-count of each category: one number, one for all categories of each feature (d,), one for each
            category (Σ_j m_j,), or one of these for each class. 1 is Laplace's rule, 0 the exact maximum likelihood
            estimate, under which a category that was never seen is impossible (−inf).
        prior_alpha: pseudo-count of each class in the prior.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> weather = np.array([[0, 1], [0, 0], [2, 1], [1, 1]])  # sunny, rainy or grey; calm or windy
        >>> c = jg.fit(jg.CategoricalNB((3, 2)), weather, np.array([0, 0, 1, 1]))
        >>> print((np.exp(c.density.log_probability[0]) * 20).round(2).tolist())  # (2 + 1, 1, 1)/5, (1 + 1, 1 + 1)/4
        [12.0, 4.0, 4.0, 10.0, 10.0]
    """

    binary = True
    features_are_alike = False
    num_categories: tuple[int, ...] | int = dataclasses.field(metadata=STATIC)
    alpha: Array | float = dataclasses.field(default=1.0, metadata={"table": True})

    def __post_init__(self) -> None:
        """Take numbers of NumPy, such as those of x.max(axis=0) + 1, for Python's."""
        object.__setattr__(self, "num_categories", arguments.plain(self.num_categories))

    @property
    def takes_sparse(self) -> bool:
        """No entry stands for the category 0."""
        return False

    @property
    def domain(self) -> Domain:
        """The categories of each feature."""
        return categories.domain_of(self.num_categories)

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        super().check()
        categories.check_sizes("CategoricalNB", self.num_categories, one=True)

    def check_features(self, num_features: int) -> None:
        """Raise for features that the numbers of categories do not fit."""
        if isinstance(self.num_categories, tuple) and len(self.num_categories) != num_features:
            raise ValueError(
                f"CategoricalNB.num_categories must have one entry for each of the {num_features} features of x; found "
                f"{len(self.num_categories)}."
            )

    @property
    def counted(self) -> Hashable:
        """The numbers of categories."""
        return "categories", self.num_categories

    def row_width(self, num_features: int, tuning: Tuning) -> int:
        """Those of all categories, where indicators are made of them."""
        sizes = categories.sizes_of(self.num_categories, num_features)
        return num_features if categories.one_by_one(sizes, tuning) else sum(sizes)

    def rows_wanted(self, num_features: int, labels: Labels, tuning: Tuning) -> int:
        """As many as have an entry for each cell of the table, or fill a block, where they are counted one by one."""
        sizes = categories.sizes_of(self.num_categories, num_features)
        if not categories.one_by_one(sizes, tuning):
            return 0
        cells = labels.num_classes * sum(sizes)
        return max(cells // len(sizes), min(tuning.fold_elements // len(sizes), tuning.most_rows))

    def summarise(self, x: Any, labels: Labels) -> Counts:
        """The weight of each category in the rows of each class."""
        sizes = categories.sizes_of(self.num_categories, x.shape[1])
        if not categories.one_by_one(sizes, labels.tuning):
            return Counts.of(categories.indicators(x, sizes), labels, binary=True, counted=self.counted)
        entries = categories.entries(x, sizes).reading(labels.tuning.window)
        counts = Counts.of(entries, labels, binary=True, counted=self.counted)
        if not isinstance(x, PartialRows):
            return counts
        seen = labels.class_sum(x.mask)[:, categories.features_of(sizes)]
        return dataclasses.replace(counts, feature_weight=Total.of(seen))

    def of_features(self, statistics: Counts, num_features: int) -> Categorical:
        """Smoothed frequencies of the categories."""
        count, (alpha, total, sizes, feature) = statistics.count, self._prior(statistics.count)
        size = jnp.asarray(np.array(sizes)[feature], count.dtype)[None]
        total = statistics.weight.value + total[:, feature]
        return Categorical(safe_log(safe_divide(count + alpha, total, 1 / size)), sizes)

    def log_parameter_prior(self, density: Categorical) -> Float[Array, ""]:
        """Of Dirichlet(alpha), as a density of log θ."""
        return log_of_events(self._prior(density.log_probability)[0], density.log_probability)

    def predictive(self, statistics: Counts) -> Categorical:
        """The density, whose θ are posterior means: a category is linear in θ."""
        return self.density(statistics)

    def log_marginal_likelihood(self, statistics: Counts) -> Float[Array, ""]:
        """log Π_kj B(N_kj + alpha) / B(alpha), in nats."""
        count, (alpha, total, sizes, feature) = statistics.count, self._prior(statistics.count)
        rows = jnp.broadcast_to(statistics.weight.value, count.shape)[:, categories.first_of(sizes)]
        unit = total + rows
        return jnp.sum(log_rising(alpha, count, unit[:, feature])) - jnp.sum(log_rising(total, rows, unit))

    def _prior(self, like: Float[Array, "classes m"]) -> tuple[Array, Array, tuple[int, ...], np.ndarray]:
        """alpha of each category, its sum for each feature, the numbers of categories, and the feature of each."""
        sizes = categories.sizes_of(self.num_categories, None, total=like.shape[-1])
        feature, by_feature = categories.features_of(sizes), np.shape(self.alpha)[-1:] == (len(sizes),)
        alpha = jnp.asarray(self.alpha)[..., feature] if by_feature else self.alpha
        table = nonnegative_table("CategoricalNB.alpha", alpha, like, columns=("category", "categories"))
        alpha = jnp.broadcast_to(table, like.shape)
        total = jax.ops.segment_sum(alpha.T, feature, len(sizes), indices_are_sorted=True).T
        return alpha, total, sizes, feature
