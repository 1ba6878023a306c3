"""What the values of features may be, and rows of weight 0 that hold something else."""

from __future__ import annotations

import dataclasses
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.missing import PartialRows
from jaxgen.numerics import shortcut
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.labels import Labels


@dataclass(frozen=True)
class Domain:
    """The values that a feature may take: a test for each value, and the words for a message.

    `shows` says that statistics and scores of a value outside are not finite, so that only then the values need a look;
    `adds`, that what is made of a sum of values is the sum of what is made of them; `convex`, that what lies between
    two values inside is inside. `groups` are the domains of some features each, where they are not of one domain.
    """

    contains: Callable[[Any], Any]
    expected: str
    remedy: str
    shows: bool = False
    adds: bool = True
    convex: bool = False
    groups: tuple[tuple[Domain, tuple[int, ...]], ...] = ()

    def remedy_for(self, value: Any) -> str:
        """What to do about a value outside."""
        if np.isnan(value) and not self.shows:
            return (
                "Missing ones in dense x are left out with observed=~numpy.isnan(x), except by ComplementNB; rows with "
                "sample_weight 0."
            )
        return self.remedy

    def of_column(self, j: int) -> tuple[Domain, tuple[int, ...]]:
        """The domain of a feature, and which features are of it; none are named where all are."""
        return next(((domain, features) for domain, features in self.groups if j in features), (self, ()))

    def contains_entries(self, values: Any, columns: Any) -> Any:
        """Which of the values that stand in these columns are inside."""
        if not self.groups:
            return self.contains(values)
        group_of = np.zeros(sum(len(features) for _, features in self.groups), np.int32)
        for i, (_, features) in enumerate(self.groups):
            group_of[list(features)] = i
        xp = np if isinstance(columns, np.ndarray) else jnp
        group = xp.asarray(group_of)[columns]
        inside = ((group != i) | domain.contains(values) for i, (domain, _) in enumerate(self.groups))
        return reduce(operator.and_, inside)

    def within(self, x: Array) -> Bool[Array, ""]:
        """Whether all values of an array are inside, in a program."""
        return jnp.all(self.contains(self.telling(x)))

    def telling(self, x: Array) -> Array:
        """The values of an array that tell whether all are inside: the least and the largest, of a convex domain."""
        x = lax.stop_gradient(x)  # the extremes take a third less time than a look at each
        return jnp.stack([jnp.min(x), jnp.max(x)]) if self.convex and x.size else x

    def holds(self, values: np.ndarray, least: float | None = None) -> bool:
        """Whether all of them are inside.

        With the least of them, where infinity shows in what is made of them: no convex domain ends before that.
        """
        if self.convex and least is not None:
            return bool(least == np.inf or self.contains(least))
        if values.size:  # a look at each takes longer; NaN is the least and the largest
            ends = np.array([values.min(), values.max()])
            if self.convex or ends[0] == ends[1]:
                values = ends
        return bool(np.all(self.contains(values)))


FINITE = Domain(
    lambda x: abs(x) < np.inf,
    "finite numbers",
    "Missing ones in dense x are left out with observed=numpy.isfinite(x), rows with sample_weight 0.",
    shows=True,
    convex=True,
)
COMPLETE = dataclasses.replace(FINITE, remedy="Impute missing ones, or leave such rows out.")  # nothing may be missing
NOT_NAN = Domain(lambda x: x == x, "numbers", "", shows=True, convex=True)
BINARY = Domain(
    lambda x: (x == 0) | (x == 1),
    "0 or 1",
    "Binarise x first, or ask for it: BernoulliNB(binarize=threshold) takes x > threshold.",
    adds=False,
)
COUNTS = Domain(
    lambda x: (x >= 0) & (x < np.inf),
    "finite counts, 0 or more",
    "Count data cannot be centred or standardised; for real-valued features use GaussianNB.",
    convex=True,
)


def blank_absent(x: Any, labels: Labels, domain: Domain, *, look: bool = False) -> tuple[Any, Labels, Array]:
    """The rows, of zeros where one of weight 0 holds what may not be summed; and whether all others are valid.

    Such a row is dropped from the labels, so that no derivative reaches its weight. What other absent rows hold stays:
    their weight has a derivative. Where nothing can be absent and statistics show a bad value, no look is taken unless
    `look` asks for it.
    """
    if isinstance(x, SparseRows):
        return _blank_absent_entries(x, labels, domain)
    if isinstance(x, PartialRows):
        values, labels, valid = blank_absent(x.values, labels, domain, look=look)
        return dataclasses.replace(x, values=values), labels, valid
    if isinstance(labels, HardLabels) and labels.weight is None:  # then no row is absent for what it holds
        return x, labels, domain.within(x) if look or not domain.shows else jnp.ones((), bool)
    absent = labels.row_weight == 0

    def row_by_row() -> tuple[Array, Labels, Array]:
        usable = _usable(x, absent, domain)
        dropped = absent & ~usable
        return jnp.where(dropped[:, None], 0.0, x), labels.drop(dropped), jnp.all(usable | absent)

    # A look at each row takes a CPU as long as all else of a fit; at the least and the largest value a quarter of that.
    telling = domain.telling(x)
    all_usable = jnp.all(domain.contains(telling) & _summable(telling))
    return shortcut(all_usable, lambda: (x, labels, all_usable), row_by_row)


def unusable(x: Float[Array, "n d"], absent: Bool[Array, " n"], domain: Domain) -> Bool[Array, " n"]:
    """Which absent rows hold what may not be summed, so that not even their weight has a derivative."""
    return absent & ~_usable(x, absent, domain)


def _usable(x: Float[Array, "n d"], absent: Bool[Array, " n"], domain: Domain) -> Bool[Array, " n"]:
    return jnp.all(domain.contains(x) & (_summable(x) | ~absent[:, None]), axis=1)


def _summable(x: Float[Array, "..."]) -> Bool[Array, "..."]:
    """Which values have squares that do not overflow: zero times those is zero."""
    return jnp.abs(x) < math.sqrt(float(jnp.finfo(x.dtype).max)) / 2


def _blank_absent_entries(x: SparseRows, labels: Labels, domain: Domain) -> tuple[SparseRows, Labels, Array]:
    has_weights = not (isinstance(labels, HardLabels) and labels.weight is None)

    def absent(x: SparseRows) -> Array:
        return (labels.row_weight == 0).at[x.rows].get(mode="promise_in_bounds")[:, None]

    def look() -> tuple[Array, Array]:
        sums = x.summed()  # of entries in one place that are bad alone, such as −1 and 3
        good = domain.contains_entries(sums.values, sums.columns)
        if not has_weights:  # then no row of the matrix is absent
            return x.values, jnp.all(good)
        values = jnp.where(absent(x) & ~usable(x.values, x.columns), 0, x.values)
        return values, jnp.all(good | absent(sums))

    def usable(values: Array, columns: Array) -> Array:
        inside = domain.contains_entries(values, columns)
        return inside & _summable(values) if has_weights else inside

    valid = x.within(usable)
    if x.unique and not has_weights:
        return x, labels, valid
    values, valid = shortcut(valid, lambda: (x.values, valid), look)
    return dataclasses.replace(x, values=values), labels, valid
