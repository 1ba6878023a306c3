"""Eager calls: the rows shared out to the cores of a CPU, and arrays of NumPy handed over in pieces.

XLA runs most of a program on one core, and it copies and converts a NumPy array as a whole. So the rows are dealt out:
every share is the same program on as many rows, run by a thread for each core, and the results merge like any others.
A trace has one share, and so has an accelerator.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import platform
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxgen.inputs import AnyArray

# Below a million elements a second thread costs more than it saves.
_FEWEST_ELEMENTS = 2**20
# Bytes of a NumPy array that are copied and converted at a time: what the caches hold, and memory that is soon reused;
# and the same for a program that wants many rows at once.
_PIECE, _LARGE_PIECE = 2**22, 2**24


@dataclass(frozen=True)
class Share:
    """The rows from `start` on of `x` and what belongs to them; the first `absent` rows are another share's."""

    x: Any
    labels: Any
    start: np.int32
    absent: np.int32
    num_rows: int


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(x: AnyArray | SparseRows, labels: Any, *, large: bool = False) -> list[Share]:
    """The shares of the rows of x, all of one shape; `large` ones for a program that wants many rows at once."""
    n = x.shape[0]
    if (
        isinstance(x, SparseRows)
        or platform.platform_of(x, labels) != "cpu"
        or x.size < _FEWEST_ELEMENTS
        or _is_distributed(x, labels)
    ):
        return [Share(x, labels, np.int32(0), np.int32(0), n)]
    pieces = -(-x.nbytes // (_LARGE_PIECE if large else _PIECE)) if isinstance(x, np.ndarray) else 1
    count = min(-(-pieces // cores()) * cores(), n)
    rows = -(-n // count)
    shares = []
    for first in range(0, n, rows):
        # The last share overlaps the one before, so that all are one program.
        start = min(first, n - rows)
        absent = np.int32(first - start)
        if isinstance(x, np.ndarray):
            mine = jax.tree.map(lambda leaf, start=start: np.asarray(leaf)[start : start + rows], labels)
            shares.append(Share(x[start : start + rows], mine, np.int32(0), absent, rows))
        else:
            shares.append(Share(x, labels, np.int32(start), absent, rows))
    return shares


def run(program: Callable[..., Any], shares: list[Share]) -> list[Any]:
    """The results of `program(x, labels, start, absent, num_rows=…)` for each share, in order."""

    def one(share: Share) -> Any:
        return program(share.x, share.labels, share.start, share.absent, num_rows=share.num_rows)

    return over(one, shares)


def over(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`function(item)` for each item, in order, by a thread for each core."""
    # JAX's settings belong to a thread: one that was changed here by a context manager is not known to the others.
    if len(items) == 1 or _threads().submit(_settings).result() != _settings():
        return [function(item) for item in items]
    return list(_threads().map(lambda item: jax.block_until_ready(function(item)), items))


def _settings() -> tuple[Any, ...]:
    names = (
        "jax_enable_x64",
        "jax_default_device",
        "jax_disable_jit",
        "jax_debug_nans",
        "jax_default_matmul_precision",
    )
    return tuple(getattr(jax.config, name, None) for name in names)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="jaxgen")


def _is_distributed(*trees: Any) -> bool:
    return any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in jax.tree.leaves(trees))
