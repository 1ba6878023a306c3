"""Rows in blocks: folding them into statistics, mapping them to scores.

A temporary as large as the data costs more than the arithmetic, so data are read in blocks: on a CPU small enough to
stay in the cache, on an accelerator large enough to fill it. Blocks are sliced where they lie; nothing is copied.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    import numpy as np
    from jax import Array

# Elements of a block's widest array. CPU: 1 MiB of float32, within a core's second-level cache. Accelerators: 256 MiB.
_CPU_ELEMENTS = 2**18
_ACCELERATOR_ELEMENTS = 2**26
# Wide rows: merging a block costs one pass over the statistics, so a block must be worth many rows.
_FEWEST_ROWS = 256
# Long columns: a float32 sum of ones is exact up to 2^24, and digits of counts need a few bits more.
_MOST_ROWS = 2**20


class Mergeable(Protocol):
    """What blocks become: anything with an associative merge."""

    def merge(self, other: Self) -> Self:
        """Self and other as one."""
        ...


M = TypeVar("M", bound=Mergeable)


def fold(summarise: Callable[..., M], *data: Any, width: int, block_size: int | None = None) -> M:
    """Merge `summarise(*block)` over the blocks of rows of `data`.

    Args:
        summarise: from a block of rows to statistics.
        *data: pytrees of arrays that share their leading axis.
        width: elements that a row takes in the widest array of a block, to size the blocks by.
        block_size: rows of a block, at most 2^20; by default what suits the platform that runs the program.
    """
    return _on_platform(partial(_fold, summarise), data, width, block_size)


def map_rows(
    function: Callable[[Array], Any], x: Array | np.ndarray, *, width: int, block_size: int | None = None
) -> Any:
    """`function(x)` computed in blocks of rows: a pytree of arrays with one entry a row."""
    return _on_platform(partial(_map_rows, function), (x,), width, block_size)


def _on_platform(function: Callable[..., Any], data: tuple[Any, ...], width: int, block_size: int | None) -> Any:
    """Call `function(*data, rows=…)` with the block size of the platform that the program is lowered for."""
    n = _num_rows(data)
    on_cpu, elsewhere = (
        min(n, _MOST_ROWS, block_size or max(_FEWEST_ROWS, elements // width))
        for elements in (_CPU_ELEMENTS, _ACCELERATOR_ELEMENTS)
    )
    if on_cpu == elsewhere:
        return function(*data, rows=on_cpu)
    return lax.platform_dependent(*data, cpu=partial(function, rows=on_cpu), default=partial(function, rows=elsewhere))


def _fold(summarise: Callable[..., M], *data: Any, rows: int) -> M:
    n = _num_rows(data)
    # Checkpointed: the gradient keeps the statistics of each step and reads the block again, not every temporary.
    block = jax.checkpoint(lambda start: summarise(*_slice(data, start, rows)))
    # The carry starts from the first block: zeros would not carry the sharding of the data inside shard_map.
    total = block(0)
    whole = n // rows
    if whole > 1:
        starts = rows * jnp.arange(1, whole)
        total, _ = lax.scan(lambda total, start: (total.merge(block(start)), None), total, starts)
    if n % rows:
        total = total.merge(summarise(*_slice(data, whole * rows, n % rows)))
    return total


def _map_rows(function: Callable[[Array], Any], x: Array, *, rows: int) -> Any:
    n = x.shape[0]
    if n <= rows:
        return function(x)
    whole = n // rows
    starts = rows * jnp.arange(whole)
    _, blocks = lax.scan(lambda _, start: (None, function(_slice(x, start, rows))), None, starts)
    parts = [jax.tree.map(lambda a: a.reshape(whole * rows, *a.shape[2:]), blocks)]
    if n % rows:
        parts.append(function(_slice(x, whole * rows, n % rows)))
    return jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


def _slice(data: Any, start: Any, rows: int) -> Any:
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, start, rows), data)


def _num_rows(data: Any) -> int:
    return jax.tree.leaves(data)[0].shape[0]
