"""Sums in two limbs, and whether all that is made of them is in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.numerics import derivative_alone
from jaxgen.pytree import pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

# So many numbers are looked at together, which is less to compile.
_FEW_ELEMENTS = 2**16


@pytree
@dataclass(frozen=True)
class Total:
    """A sum kept in two limbs, so that counting stays exact.

    A float32 counter stops at 2^24: adding one changes nothing. The error of each addition is itself a float (Knuth,
    TAOCP vol. 2, 4.2.2, theorem B), so `low` keeps what `high` could not hold, and sums of whole numbers are exact up
    to 2^45 in float32 and 2^100 in float64, in whatever order they were merged. Fractions keep twice the digits.
    """

    high: Float[Array, "..."]
    low: Float[Array, "..."]

    @classmethod
    def of(cls, value: Float[Array, "..."]) -> Total:
        """The total that holds one value."""
        return cls(value, jnp.zeros_like(value))

    @classmethod
    def of_sum(cls, a: Float[Array, "..."], b: Float[Array, "..."]) -> Total:
        """The sum of two values, exactly."""
        high = a + b
        virtual = high - a
        return cls(high, (a - (high - virtual)) + (b - virtual))

    @property
    def value(self) -> Float[Array, "..."]:
        """The total rounded to one float."""
        return self.high + self.low

    def exact(self) -> np.ndarray:
        """The total as a float64 NumPy array, for the host; exact up to 2^53."""
        high, low = jax.device_get((self.high, self.low))  # both on their way at once
        return np.asarray(high, np.float64) + np.asarray(low, np.float64)

    def reshape(self, *shape: int) -> Total:
        """The same sums in another shape."""
        return Total(self.high.reshape(shape), self.low.reshape(shape))

    def filled(self, value: Array) -> Total:
        """A number, or one of each column, in place of every limb."""
        return jax.tree.map(lambda limb: jnp.broadcast_to(value, limb.shape).astype(limb.dtype), self)

    def unit(self, axis: int | None = None) -> Float[Array, "..."]:
        """The sum of all sums, or of those of a column; 1 where it is 0."""
        total = jnp.sum(jnp.abs(self.value), axis=axis)
        return jnp.where(total > 0, total, 1.0)

    def merge(self, other: Total) -> Total:
        """The sum of two totals."""
        total = Total.of_sum(self.high, other.high)
        low = total.low + (self.low + other.low)
        rounded = total.high + low
        return Total(rounded, low - (rounded - total.high))

    def __neg__(self) -> Total:
        return Total(-self.high, -self.low)

    def scaled(self, factor: Float[Array, ""]) -> Total:
        """Every sum times a factor, with the digits of both limbs, so that whole numbers stay exact.

        The error of a product is that of the products of its halves, which are exact (Dekker 1971, A floating-point
        technique for extending the available precision, section 5). It has no derivative of its own.
        """
        info = jnp.finfo(self.high.dtype)
        half = partial(lax.reduce_precision, exponent_bits=info.nexp, mantissa_bits=info.nmant // 2)
        product, (a, b) = self.high * factor, lax.stop_gradient((self.high, factor))
        (a, rest_a), (b, rest_b) = ((half(each), each - half(each)) for each in (a, b))
        error = ((a * b - lax.stop_gradient(product)) + a * rest_b + rest_a * b) + rest_a * rest_b
        return Total.of_sum(product, error + self.low * factor)

    def subtract(self, part: Total, *, rounding: float | None = None) -> Total:
        """What remains when `part`, which was merged into this total, is taken away.

        Whole numbers subtract exactly. Fractions were rounded when they were summed, by so much of the total, or by 8
        eps: a remainder below that is noise and becomes zero, and so does a negative one.
        """
        rest = self.merge(-part)
        whole = (self.high == jnp.round(self.high)) & (self.low == jnp.round(self.low))
        whole &= (part.high == jnp.round(part.high)) & (part.low == jnp.round(part.low))
        rounding = 8 * float(jnp.finfo(rest.high.dtype).eps) if rounding is None else rounding
        noise = jnp.where(whole, 0.0, rounding * jnp.abs(self.high))
        gone = rest.value <= noise
        nothing = derivative_alone(lambda high: high, rest.high, rest.high)
        return Total(jnp.where(gone, nothing, rest.high), jnp.where(gone, 0.0, rest.low))


def observed_weight(class_weight: Total, feature_weight: Total | None) -> Total:
    """The weight of each feature in each class, (K, 1) where all were observed; NaN where that of the class is."""
    column = class_weight.reshape(-1, 1)
    if feature_weight is None:
        return column
    return Total(jnp.where(jnp.isnan(column.high), jnp.nan, feature_weight.high), feature_weight.low)


def weight_of_each(class_weight: Total, shape: tuple[int, ...]) -> Total:
    """The weight of each feature in each class, where all were observed: that of the class."""
    return jax.tree.map(lambda limb: jnp.broadcast_to(limb[:, None], shape), class_weight)


def holds_nan_or_infinity(tree: Any) -> Bool[Array, ""]:
    """Whether any number in a tree is NaN or +∞; −∞ is the log of what is impossible."""
    return ~all_leaves(lambda leaf: leaf < jnp.inf, tree)


def all_leaves(test: Callable[[Array], Array], tree: Any) -> Bool[Array, ""]:
    """Whether every number in a tree passes a test that infinities of a sign, NaN and no others fail.

    Their sum passes as they do, when none of them can overflow it. It takes no memory and one pass, where a truth for
    each takes a quarter of their memory and several.
    """
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Total))
    # What is not finite shows in the first limb of a total.
    leaves = [leaf.high if isinstance(leaf, Total) else leaf for leaf in leaves]
    size = sum(leaf.size for leaf in leaves)
    if size <= _FEW_ELEMENTS:
        leaves = [jnp.concatenate([leaf.reshape(-1) for leaf in leaves])]
    # Each has a factor of its own: a common one XLA would write out in full, as large as a leaf.
    sums = (jnp.sum(leaf * (0.5 / size / number)) for number, leaf in enumerate(leaves, 1))
    return test(reduce(jnp.add, sums))
