"""What rows add up to by class in compiled programs: exact where they hold counts, and near to it for fractions."""

from __future__ import annotations

import dataclasses
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import blocks
from jaxgen.labels import HardLabels
from jaxgen.numerics import shortcut
from jaxgen.sparse import SparseRows
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.labels import Labels


# Fractional weights that are added up at a time: what is left of them beside grains then hardly drifts.
_MOST_FRACTIONS = 2**16
# Entries that are added up at a time: a float32 counts as many, and sums bits of their digits apart.
_MOST_ENTRIES = 2**22


def class_weight(labels: Labels, dtype: Any) -> Total:
    """Σ_i r_ik of all rows, in blocks that merge: a float that counts one by one stops at 2^24."""

    def of_block(_: Array, some: Labels) -> Total:
        ones = jnp.ones(some.row_weight.shape, dtype)
        if not isinstance(some, HardLabels) or some.weight is None:
            return Total.of(some.class_sum(ones))

        def sum_of(part: Callable[[Array], Array]) -> Array:
            return dataclasses.replace(some, weight=part(some.row_weight)).class_sum(ones)

        # As exact as the sums of features, from which it is subtracted.
        return shortcut(_are_whole(some.row_weight), lambda: Total.of(some.class_sum(ones)), lambda: _in_parts(sum_of))

    most = labels.tuning.most_rows
    return blocks.fold(of_block, labels, block=most if labels.weight is None else min(most, _MOST_FRACTIONS))


def sparse_sum(x: SparseRows, labels: Labels) -> Total:
    """Class sums of sparse rows, in pieces that merge: of about as many entries as the table has cells.

    Ones that weigh 1 are exact in large pieces too.
    """
    few = min(max(2**13, labels.num_classes * x.shape[1]), _MOST_ENTRIES)
    piece = _MOST_ENTRIES if _are_counted(x, labels) else few
    groups = max(piece // max(x.values.shape[1], 1), 1)
    if x.values.shape[0] <= groups:
        return _sum_of_piece(x, labels)
    return blocks.fold(lambda _, part: _sum_of_piece(part, labels), x, block=groups)


def _sum_of_piece(x: SparseRows, labels: Labels) -> Total:
    """Class sums of sparse rows; fractions are summed in two parts, of which the first is exact.

    Equal ones, such as the weight of a word makes them, would drift: 10,000 of 0.37 by 1e-4 of their sum.
    """
    if _are_counted(x, labels):
        return Total.of(x.class_sum(labels))
    if not isinstance(labels, HardLabels):
        return exact_sum(x, labels)
    are_whole = _are_whole(x.values) & (True if labels.weight is None else _are_whole(labels.row_weight))
    return shortcut(are_whole, lambda: exact_sum(x, labels), lambda: _in_parts(partial(x.class_sum, labels)))


def _are_counted(x: SparseRows, labels: Labels) -> bool:
    """Whether it is known that all terms of sums are 0 or 1."""
    return x.binary and isinstance(labels, HardLabels) and labels.weight is None


def _are_whole(numbers: Array) -> Bool[Array, ""]:
    return jnp.all(numbers == jnp.floor(numbers))


def _in_parts(sum_of: Callable[[Callable[[Array], Array]], Array]) -> Total:
    """Sums of a part of each term, in two: of multiples of a grain, which is exact, and of what is left."""
    total = sum_of(lambda terms: terms)
    info = jnp.finfo(total.dtype)
    # No sum has so many grains that a float could not hold it: twice the largest that is found has not.
    _, exponent = jnp.frexp(lax.stop_gradient(jnp.max(total)))
    grain = jnp.ldexp(jnp.ones_like(total, shape=()), exponent - info.nmant)
    fine = grain * 2.0**-info.nmant < info.tiny  # what is left would be no normal number
    grain = jnp.where(fine, 1.0, grain)

    def first(terms: Array) -> Array:
        return lax.stop_gradient(jnp.round(terms / grain) * grain)

    parts = Total.of_sum(sum_of(first), sum_of(lambda terms: terms - first(terms)))
    return jax.tree.map(lambda mine, other: jnp.where(fine, mine, other), Total.of(total), parts)


def exact_sum(x: Float[Array, "n d"] | SparseRows, labels: Labels) -> Total:
    """Class sums of x; where they outgrow the whole numbers that a float holds, the digits of x are summed apart.

    The sum of n digits of b bits is exact while b + log2 n stays within the float's significand.
    """

    def sum_of(function: Callable[[Array], Array]) -> Array:
        return x.map(function).class_sum(labels) if isinstance(x, SparseRows) else labels.class_sum(function(x))

    total = sum_of(lambda values: values)
    significand = jnp.finfo(x.dtype).nmant + 1
    terms = x.values.size if isinstance(x, SparseRows) else x.shape[0]
    bits = significand - terms.bit_length()

    def apart() -> Total:
        firsts = [*range(0, significand, bits)]
        parts = []
        for first in firsts:

            def digit(values: Array, first: int = first) -> Array:
                rest = jnp.floor(values / 2.0**first) if first else values
                return rest if first == firsts[-1] else jnp.mod(rest, 2.0**bits)

            parts.append(Total.of(2.0**first * sum_of(digit)))
        return reduce(Total.merge, parts)

    return shortcut(jnp.all(total < 2.0**significand), lambda: Total.of(total), apart)
