"""What rows add up to by class in compiled programs: exact where they hold counts, and near to it for fractions."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

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
    from jaxtyping import Float

    from jaxgen.labels import Labels


def class_weight(labels: Labels, dtype: Any) -> Total:
    """Σ_i r_ik of all rows, in blocks that merge: a float that counts one by one stops at 2^24, and fractions drift."""

    def of_block(_: Array, some: Labels) -> Total:
        return Total.of(some.class_sum(jnp.ones(some.row_weight.shape, dtype)))

    return blocks.fold(of_block, labels, block=labels.tuning.most_rows)


def sparse_sum(x: SparseRows, labels: Labels) -> Total:
    """Class sums of sparse rows, in pieces that merge: of about as many entries as the table has cells."""
    piece = min(max(2**13, labels.num_classes * x.shape[1]), 2**22)
    groups = max(piece // max(x.values.shape[1], 1), 1)
    if x.values.shape[0] <= groups:
        return _sum_of_piece(x, labels)
    return blocks.fold(lambda _, part: _sum_of_piece(part, labels), x, block=groups)


def _sum_of_piece(x: SparseRows, labels: Labels) -> Total:
    """Class sums of sparse rows; fractions are summed in two parts, of which the first is exact.

    Equal ones, such as the weight of a word makes them, would drift: 10,000 of 0.37 by 1e-4 of their sum.
    """
    if not isinstance(labels, HardLabels):
        return exact_sum(x, labels)
    weight = jnp.ones(1, x.dtype) if labels.weight is None else labels.row_weight
    are_whole = [jnp.all(each == jnp.floor(each)) for each in (x.values, weight)]

    def of_fractions() -> Total:
        # No cell has a sum of so many grains that a float could not hold it: twice the largest that is found has not.
        _, exponent = jnp.frexp(lax.stop_gradient(jnp.max(x.class_sum(labels))))
        info = jnp.finfo(x.dtype)
        grain = jnp.maximum(jnp.ldexp(jnp.ones((), x.dtype), exponent - info.nmant), info.tiny)

        def first(terms: Array) -> Array:
            return lax.stop_gradient(jnp.round(terms / grain) * grain)

        parts = (x.class_sum(labels, part) for part in (first, lambda terms: terms - first(terms)))
        return reduce(Total.merge, map(Total.of, parts))

    return shortcut(reduce(jnp.logical_and, are_whole), lambda: exact_sum(x, labels), of_fractions)


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
