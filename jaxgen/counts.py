"""Sums of features by class: the sufficient statistics of the families that count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels


@partial(jax.tree_util.register_dataclass, data_fields=("class_weight", "feature_sum"), meta_fields=("binary",))
@dataclass(frozen=True)
class Counts:
    """How many rows each class has, and the sum of each feature over them.

    Attributes:
        class_weight: N_k, shape (K,).
        feature_sum: Σ_i r_ik x_ij, shape (K, d).
        binary: whether x was presence, 0 or 1, so that no sum exceeds its class weight.
    """

    class_weight: Total
    feature_sum: Total
    binary: bool

    @classmethod
    def of(cls, x: Float[Array, "n d"], labels: Labels, *, binary: bool) -> Counts:
        """The counts of a block of rows."""
        return cls(Total.of(labels.class_sum(jnp.ones_like(x[:, 0]))), _exact_sum(x, labels), binary)

    def merge(self, other: Counts) -> Counts:
        """The counts of both batches."""
        return Counts(
            self.class_weight.merge(other.class_weight), self.feature_sum.merge(other.feature_sum), self.binary
        )

    def subtract(self, part: Counts) -> Counts:
        """The counts of what remains."""
        return Counts(
            self.class_weight.subtract(part.class_weight), self.feature_sum.subtract(part.feature_sum), self.binary
        )


def _exact_sum(x: Float[Array, "n d"], labels: Labels) -> Total:
    """Class sums of x; where they outgrow the whole numbers that a float holds, the digits of x are summed apart.

    The sum of n digits of b bits is exact while b + log2 n stays within the float's significand.
    """
    total = labels.class_sum(x)
    significand = jnp.finfo(x.dtype).nmant + 1
    bits = significand - x.shape[0].bit_length()

    def apart() -> Total:
        rest, digits = x, []
        for _ in range(0, significand - bits, bits):
            digits.append(jnp.mod(rest, 2.0**bits))
            rest = jnp.floor(rest / 2.0**bits)
        parts = [Total.of(2.0 ** (bits * i) * labels.class_sum(digit)) for i, digit in enumerate([*digits, rest])]
        return reduce(Total.merge, parts)

    return lax.cond(jnp.any(total >= 2.0**significand), apart, lambda: Total.of(total))
