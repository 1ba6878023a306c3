"""Categorical naive Bayes: which of several values each feature takes.

x_j | y = k ~ Categorical(θ_kj), independently, x_j ∈ {0, …, m_j − 1}
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments
from jaxgen.counts import CountingEstimator, Counts, log_of_events
from jaxgen.density import table_shape
from jaxgen.domains import Domain
from jaxgen.missing import PartialRows
from jaxgen.numerics import nonnegative_table, safe_divide, safe_log
from jaxgen.pytree import STATIC, pytree
from jaxgen.rising import log_rising

if TYPE_CHECKING:
    from collections.abc import Hashable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.density import Shapes


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
        return _domain(self.num_categories)

    @property
    def num_features(self) -> int:
        """d."""
        return len(self.num_categories)

    def check_structure(self) -> None:
        """Raise for numbers of categories that are none."""
        _check_sizes("Categorical", self.num_categories)

    @property
    def shapes(self) -> Shapes:
        """All categories of all features."""
        return {"log_probability": [(table_shape(self.log_probability)[0], sum(self.num_categories))]}

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return jnp.sum(self._terms(x), axis=1)

    def log_marginal(self, x: PartialRows) -> Float[Array, "n classes"]:
        """log p(x_observed | k), in nats: the other factors are left out."""
        return jnp.sum(jnp.where(x.observed[:, :, None], self._terms(x.values), 0.0), axis=1)

    def _terms(self, x: Float[Array, "n d"]) -> Float[Array, "n d classes"]:
        """log p(x_j | k)."""
        # Any category stands for a value outside: the row is spoiled by those who look at the domain.
        last = np.array(self.num_categories) - 1
        category = jnp.clip(jnp.where(x == x, x, 0.0), 0, last[None].astype(x.dtype)).astype(jnp.int32)
        return self.log_probability.T[category + _first(self.num_categories)[None]]

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log likelihood."""
        return self.log_likelihood(x)

    def sample(self, key: Array, y: Int[Array, " n"], total_count: None = None) -> Float[Array, "n d"]:
        """One draw from the density of each class in y."""
        sizes, dtype = np.array(self.num_categories), self.log_probability.dtype
        # A row for each feature, as long as the longest: what it has not is impossible.
        category = np.arange(sizes.max())[None]
        place = np.minimum(_first(self.num_categories)[:, None] + category, sizes.sum() - 1)
        tables = jnp.where((category < sizes[:, None])[None], self.log_probability[:, place], -jnp.inf)
        return jax.random.categorical(key, tables[y], axis=-1).astype(dtype)

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
    takes_sparse = False
    num_categories: tuple[int, ...] | int = dataclasses.field(metadata=STATIC)
    alpha: Array | float = dataclasses.field(default=1.0, metadata={"table": True})

    def __post_init__(self) -> None:
        """Take numbers of NumPy, such as those of x.max(axis=0) + 1, for Python's."""
        object.__setattr__(self, "num_categories", arguments.plain(self.num_categories))

    @property
    def domain(self) -> Domain:
        """The categories of each feature."""
        return _domain(self.num_categories)

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        super().check()
        _check_sizes("CategoricalNB", self.num_categories, one=True)

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

    def encode(self, x: Any) -> Any:
        """An indicator for each category of each feature, side by side."""
        sizes = _sizes(self.num_categories, x.shape[1])
        feature = np.repeat(np.arange(len(sizes)), sizes)
        category = np.arange(sum(sizes)) - _first(sizes)[feature]

        def indicators(values: Any) -> Any:
            return (values == category[None].astype(values.dtype)).astype(values.dtype)

        return x.take(feature).map(indicators) if isinstance(x, PartialRows) else indicators(x[:, feature])

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
        rows = jnp.broadcast_to(statistics.weight.value, count.shape)[:, _first(sizes)]
        unit = total + rows
        return jnp.sum(log_rising(alpha, count, unit[:, feature])) - jnp.sum(log_rising(total, rows, unit))

    def _prior(self, like: Float[Array, "classes m"]) -> tuple[Array, Array, tuple[int, ...], np.ndarray]:
        """alpha of each category, its sum for each feature, the numbers of categories, and the feature of each."""
        sizes = _sizes(self.num_categories, None, total=like.shape[-1])
        feature, by_feature = np.repeat(np.arange(len(sizes)), sizes), np.shape(self.alpha)[-1:] == (len(sizes),)
        alpha = jnp.asarray(self.alpha)[..., feature] if by_feature else self.alpha
        table = nonnegative_table("CategoricalNB.alpha", alpha, like, columns=("category", "categories"))
        alpha = jnp.broadcast_to(table, like.shape)
        total = jax.ops.segment_sum(alpha.T, feature, len(sizes), indices_are_sorted=True).T
        return alpha, total, sizes, feature


def _sizes(num_categories: tuple[int, ...] | int, num_features: int | None, total: int = 0) -> tuple[int, ...]:
    if isinstance(num_categories, tuple):
        return num_categories
    return (num_categories,) * (total // num_categories if num_features is None else num_features)


def _first(sizes: tuple[int, ...]) -> np.ndarray:
    """Where the categories of each feature begin."""
    return np.array([0, *accumulate(sizes)][:-1], np.int32)


def _check_sizes(owner: str, given: Any, *, one: bool = False) -> None:
    """Raise for what are no numbers of categories; one for all features is some, or is not."""
    sizes = given if isinstance(given, tuple) else (given,) if one else ()
    if not sizes or any(isinstance(m, bool) or not isinstance(m, int) or m < 1 for m in sizes):
        raise ValueError(
            f"{owner}.num_categories must be {'a positive integer, or ' * one}a tuple of one for each feature; found "
            f"{given!r}. As a tuple of Python integers: tuple(int(m) for m in x.max(axis=0) + 1)."
        )


@cache
def _domain(num_categories: tuple[int, ...] | int) -> Domain:
    """Whole numbers below the number of categories; one object for the same numbers, as programs are kept by it."""
    most = np.array(num_categories)

    def contains(x: Any) -> Any:
        below = x < most.astype(x.dtype).reshape((1,) * (x.ndim - most.ndim) + most.shape)
        return (x >= 0) & below & (x % 1 == 0)

    return Domain(
        contains,
        f"categories 0 … m − 1, with num_categories={num_categories}",
        "Number the categories from 0 (scikit-learn's OrdinalEncoder does), or raise num_categories.",
        adds=False,
    )
