"""Rows in blocks: folding them into statistics, mapping them to scores.

A temporary as large as the data costs more than the arithmetic, so data are read in blocks, of the size that suits the
platform. Blocks are sliced where they lie; nothing is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from jax import Array

# Wide rows: merging a block costs one pass over the statistics, so a block must be worth many rows.
_FEWEST_ROWS = 256


class Mergeable(Protocol):
    """What blocks become: anything with an associative merge."""

    def merge(self, other: Self) -> Self:
        """Self and other as one."""
        ...


M = TypeVar("M", bound=Mergeable)


def num_rows(elements: int, width: int) -> int:
    """Rows of a block of so many elements, where a row takes `width` of them."""
    return max(_FEWEST_ROWS, elements // width)


def fold(summarise: Callable[..., M], *data: Any, block: int) -> M:
    """Merge `summarise(position, *rows)` over blocks of rows of `data`.

    Args:
        summarise: from the index of the first row of a block, and that block, to statistics.
        *data: pytrees of arrays that share their leading axis.
        block: rows of a block, at most.
    """
    n = jax.tree.leaves(data)[0].shape[0]
    block = min(block, n)
    # Checkpointed: the gradient keeps the statistics of each step and reads the block again, not every temporary.
    step = jax.checkpoint(lambda position: summarise(position, *_slice(data, position, block)))
    # The carry starts from the first block: zeros would not carry the sharding of the data inside shard_map.
    total = step(jnp.asarray(0, jnp.int32))
    whole = n // block
    if whole > 1:
        positions = block * jnp.arange(1, whole, dtype=jnp.int32)
        total, _ = lax.scan(lambda total, position: (total.merge(step(position)), None), total, positions)
    if n % block:
        rest = summarise(jnp.asarray(whole * block, jnp.int32), *_slice(data, whole * block, n % block))
        total = total.merge(rest)
    return total


def map_rows(function: Callable[[Array], tuple[Array, Array]], x: Array, *, block: int) -> tuple[Array, Array]:
    """`function(x)` computed in blocks of rows.

    Args:
        function: from a block of rows to an array with one entry a row, and a flag.
        x: the rows.
        block: rows of a block, at most.

    Returns:
        One entry a row, and whether any flag was raised.
    """
    n = x.shape[0]
    if n <= block:
        return function(x)
    whole = n // block
    positions = block * jnp.arange(whole, dtype=jnp.int32)
    _, (parts, flags) = lax.scan(lambda _, first: (None, function(_slice(x, first, block))), None, positions)
    result, flag = parts.reshape(whole * block, *parts.shape[2:]), jnp.any(flags)
    if n % block:
        rest, last = function(_slice(x, whole * block, n % block))
        result, flag = jnp.concatenate([result, rest]), flag | last
    return result, flag


def _slice(data: Any, start: Any, rows: int) -> Any:
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, rows), data)
