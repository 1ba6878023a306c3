"""Categories of features: which there are, where they lie side by side in a table, and what is counted there."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.domains import Domain
from jaxgen.missing import PartialRows
from jaxgen.numerics import varying_alike
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.platform import Tuning

# Categories of a feature, on the average, up to which sums by product are made of indicators, a number for each. Not
# measured: beyond, values are added one by one, which an accelerator does slowly.
_MOST_INDICATORS = 16
# Features whose terms are looked up and added in one step of a loop. In one step for all XLA looks up number by number:
# scores of 10,000 × 50 by ten classes took 5.7 ms on one core, of 10,000 × 20 by forty 33; in strips 1.5 and 2.3.
STRIP = 4


def check_sizes(owner: str, given: Any, *, one: bool = False) -> None:
    """Raise for what are no numbers of categories; one for all features is some, or is not."""
    sizes = given if isinstance(given, tuple) else (given,) if one else ()
    if not sizes or any(isinstance(m, bool) or not isinstance(m, int) or m < 1 for m in sizes):
        raise ValueError(
            f"{owner}.num_categories must be {'a positive integer, or ' * one}a tuple of one for each feature; found "
            f"{given!r}. As a tuple of Python integers: tuple(int(m) for m in x.max(axis=0) + 1)."
        )


@cache
def domain_of(num_categories: tuple[int, ...] | int) -> Domain:
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


def sizes_of(num_categories: tuple[int, ...] | int, num_features: int | None, total: int = 0) -> tuple[int, ...]:
    """m_j of each feature: of so many, or of as many as have so many categories in total."""
    if isinstance(num_categories, tuple):
        return num_categories
    return (num_categories,) * (total // num_categories if num_features is None else num_features)


def first_of(sizes: tuple[int, ...]) -> np.ndarray:
    """Where the categories of each feature begin."""
    return np.array([0, *accumulate(sizes)][:-1], np.int32)


def features_of(sizes: tuple[int, ...]) -> np.ndarray:
    """The feature of each category."""
    return np.repeat(np.arange(len(sizes)), sizes)


def places(x: Float[Array, "n d"], sizes: tuple[int, ...]) -> Int[Array, "n d"]:
    """Where the category of each value lies, of those of all features.

    Any category stands for a value outside: the row is spoiled by those who look at the domain.
    """
    last = np.array(sizes) - 1
    category = jnp.clip(jnp.where(x == x, x, 0.0), 0, last[None].astype(x.dtype)).astype(jnp.int32)
    return category + first_of(sizes)[None]


def sum_of_terms(
    table: Float[Array, "categories classes"], x: Float[Array, "n d"] | PartialRows, sizes: tuple[int, ...]
) -> Float[Array, "n classes"]:
    """Σ_j of the row of a table that belongs to the value of feature j, over those that were observed."""
    table, x = varying_alike(table, x)
    values, observed = (x.values, x.observed) if isinstance(x, PartialRows) else (x, None)
    place = places(values, sizes)

    def strip(total: Array, first: Any, size: int) -> Array:
        part = jnp.zeros_like(total)
        for j in range(size):
            column = lax.dynamic_index_in_dim(place, first + j, axis=1, keepdims=False)
            terms = table.at[column].get(mode="promise_in_bounds")
            if observed is not None:
                terms = jnp.where(lax.dynamic_index_in_dim(observed, first + j, axis=1), terms, 0.0)
            part += terms
        return total + part

    whole, rest = divmod(len(sizes), STRIP)
    nothing = jnp.zeros_like(values, table.dtype, shape=(values.shape[0], table.shape[1]))
    total = lax.fori_loop(0, whole, lambda i, total: strip(total, STRIP * i, STRIP), nothing)
    return strip(total, STRIP * whole, rest)


def one_by_one(sizes: tuple[int, ...], tuning: Tuning) -> bool:
    """Whether values are counted by `entries`, whose number does not grow with the categories, or by `indicators`."""
    return tuning.class_sum == "scatter" or sum(sizes) > _MOST_INDICATORS * len(sizes)


def entries(x: Float[Array, "n d"] | PartialRows, sizes: tuple[int, ...]) -> SparseRows:
    """Rows with a 1 at the category of each value that was observed."""
    values, ones = (x.values, x.mask) if isinstance(x, PartialRows) else (x, jnp.ones_like(x))
    rows, shape = jnp.arange(x.shape[0], dtype=jnp.int32), (x.shape[0], sum(sizes))
    return SparseRows(ones, places(values, sizes), rows, shape, checked=True, unique=True, binary=True)


def indicators(x: Float[Array, "n d"] | PartialRows, sizes: tuple[int, ...]) -> Any:
    """An indicator for each category of each feature, side by side, (n, Σ_j m_j)."""
    feature = features_of(sizes)
    category = np.arange(sum(sizes)) - first_of(sizes)[feature]

    def of(values: Any) -> Any:
        return (values == category[None].astype(values.dtype)).astype(values.dtype)

    return x.take(feature).map(of) if isinstance(x, PartialRows) else of(x[:, feature])
