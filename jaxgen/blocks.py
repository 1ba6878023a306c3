"""Rows in blocks: folding them into statistics, mapping them to scores.

A temporary as large as the data costs more than the arithmetic, so data are read in blocks, of the size that suits the
platform. Blocks are sliced where they lie; nothing is copied.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.pytree import STATIC, pytree
from jaxgen.tracing import is_symbol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from jax import Array
    from jaxtyping import Int

# Wide rows: merging a block costs one pass over the statistics, so a block must be worth many rows.
FEWEST_ROWS = 256
# Rows of a block that becomes statistics, at most: a float32 sum of ones is exact up to 2^24, and the digits of counts
# need a few bits more.
MOST_ROWS = 2**20


class Mergeable(Protocol):
    """What blocks become: anything with an associative merge."""

    def merge(self, other: Self) -> Self:
        """Self and other as one."""
        ...


M = TypeVar("M", bound=Mergeable)
R = TypeVar("R")


@pytree
@dataclass(frozen=True)
class Stretch:
    """Some rows of longer arrays, which are read where they lie: a loop over slices of the arrays copies each.

    Attributes:
        first: the first of them, ().
        length: how many they are.
    """

    first: Int[Array, ""]
    length: int = dataclasses.field(metadata=STATIC)

    def of(self, data: Any) -> Any:
        """A copy of these rows of a pytree of arrays that share their leading axis."""
        return _slice(data, self.first, self.length)


def num_rows(elements: int, width: int, *, fewest: int | None = None) -> int:
    """Rows of a block of so many elements, where a row takes `width` of them."""
    return max(fewest or FEWEST_ROWS, elements // width)


def at_most(size: int, most: int) -> bool:
    """Whether a size is no larger; one that is a symbol counts as small, so that its rows are one block."""
    return is_symbol(size) or size <= most


def fold(summarise: Callable[..., M], *data: Any, block: int, within: Stretch | None = None) -> M:
    """Merge `summarise(position, *rows)` over blocks of rows of `data`.

    Args:
        summarise: from the index of the first row of a block, and that block, to statistics.
        *data: pytrees of arrays that share their leading axis.
        block: rows of a block, at most.
        within: the rows that are meant, from the first of which their index counts; None for all.
    """
    data = jax.tree.map(jnp.asarray, data)  # with jit turned off JAX would keep what is NumPy's, for other modes too
    start, n = _extent(data, within)
    # Of about one size: where they are of one, XLA knows the second program by the first.
    block = -(-n // -(-n // block))
    first = n % block or block

    def step(position: Array, rows: int) -> M:
        # Checkpointed: the gradient keeps the statistics of each step and reads the block again, not every temporary.
        # JAX would keep a function with static arguments, and the data that it knows, for ever.
        return jax.checkpoint(lambda position: summarise(position, *_slice(data, start + position, rows)))(position)

    # The carry starts from the first block, which may be short: zeros would not carry the sharding of the data inside
    # shard_map.
    total = step(jnp.asarray(0, jnp.int32), first)
    if n > first:
        positions = jnp.arange(first, n, block, dtype=jnp.int32)
        total, _ = lax.scan(lambda total, position: (total.merge(step(position, block)), None), total, positions)
    return total


def map_rows(
    function: Callable[[Any], tuple[R, Array]], x: Any, *, block: int, within: Stretch | None = None
) -> tuple[R, Array]:
    """`function(x)` computed in blocks of rows.

    Args:
        function: from a block of rows to arrays with one entry a row, and a flag.
        x: the rows, a pytree of arrays that share their leading axis.
        block: rows of a block, at most.
        within: the rows that are meant; None for all.

    Returns:
        The arrays of these rows, and whether any flag was raised.
    """
    start, n = _extent(x, within)
    if at_most(n, block):
        return function(x if within is None else within.of(x))
    # Blocks of one size in one loop, of which the last overlaps the one before: a shorter last one would be compiled
    # apart.
    count = -(-n // block)
    size = -(-n // count)
    positions = jnp.minimum(size * jnp.arange(count, dtype=jnp.int32), n - size)
    _, (parts, flags) = lax.scan(lambda _, first: (None, function(_slice(x, start + first, size))), None, positions)

    def joined(parts: Array) -> Array:
        if count * size == n:
            return parts.reshape(n, *parts.shape[2:])
        whole, rest = parts[:-1].reshape(-1, *parts.shape[2:]), parts[-1, count * size - n :]
        return jnp.concatenate([whole, rest])

    return jax.tree.map(joined, parts), jnp.any(flags)


def sum_rows(function: Callable[[Any, Any], Any], rows: Any, weights: Any, *, block: int) -> Any:
    """The sum of `function(rows, weights)` over blocks of rows.

    Args:
        function: from a block of rows and of their weights to a pytree of sums, to which a row without weight adds 0.
        rows: a pytree of arrays that share their leading axis.
        weights: another, of the same axis.
        block: rows of a block, at most.
    """
    n = jax.tree.leaves(rows)[0].shape[0]
    if n <= block:
        return function(rows, weights)
    # Of one size, as those of `map_rows`: what the last has in common with the one before weighs nothing there.
    count = -(-n // block)
    size = -(-n // count)

    def step(index: Array, total: Any) -> Any:
        first = jnp.minimum(size * index, n - size)
        fresh = first + jnp.arange(size, dtype=jnp.int32) >= size * index
        some = jax.tree.map(
            lambda a: jnp.where(fresh.reshape(-1, *[1] * (a.ndim - 1)), a, 0), _slice(weights, first, size)
        )
        return jax.tree.map(jnp.add, total, function(_slice(rows, first, size), some))

    like = jax.tree.leaves(weights)[0]
    shapes = jax.eval_shape(function, *jax.tree.map(lambda a: a[:size], (rows, weights)))
    nothing = jax.tree.map(lambda a: jnp.zeros_like(like, a.dtype, shape=a.shape), shapes)
    return lax.fori_loop(0, count, step, nothing)


def _extent(data: Any, within: Stretch | None) -> tuple[Any, int]:
    """The first of the rows that are meant, and their number."""
    return (0, jax.tree.leaves(data)[0].shape[0]) if within is None else (within.first, within.length)


def _slice(data: Any, start: Any, rows: int) -> Any:
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, rows), data)
