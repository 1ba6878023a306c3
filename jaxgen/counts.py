"""Sums of features by class: the sufficient statistics of the families that count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxgen.numerics import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels

# Digits of a count that a block sums apart where the whole would not fit a float: 2^12 values of 12 bits fit 24.
_RADIX = 2.0**12


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "feature_sum"), meta_fields=())
@dataclass(frozen=True)
class Counts:
    """How many rows each class has, and the sum of each feature over them.

    Attributes:
        class_weight: N_k, shape (K,).
        feature_sum: Σ_i r_ik x_ij, shape (K, d).
    """

    class_weight: Total
    feature_sum: Total

    @classmethod
    def of(cls, x: Float[Array, "n d"], labels: Labels) -> Counts:
        """The counts of a block of rows; a row of weight 0 may hold anything."""
        weight = labels.row_weight
        x = jnp.where((weight == 0)[:, None], 0.0, x)
        return cls(Total.of(labels.class_sum(jnp.ones_like(weight))), _exact_sum(x, labels))

    def merge(self, other: Counts) -> Counts:
        """The counts of both batches."""
        return Counts(self.class_weight.merge(other.class_weight), self.feature_sum.merge(other.feature_sum))

    def subtract(self, part: Counts) -> Counts:
        """The counts of what remains."""
        return Counts(self.class_weight.subtract(part.class_weight), self.feature_sum.subtract(part.feature_sum))


def _exact_sum(x: Float[Array, "n d"], labels: Labels) -> Total:
    """Class sums of x; where they outgrow the whole numbers of a float, high and low digits are summed apart."""
    total = labels.class_sum(x)
    largest = 2.0 / jnp.finfo(x.dtype).eps

    def apart() -> Total:
        high = jnp.floor(x / _RADIX)
        return Total.of(_RADIX * labels.class_sum(high)).merge(Total.of(labels.class_sum(x - _RADIX * high)))

    return jax.lax.cond(jnp.any(total >= largest), apart, lambda: Total.of(total))
