"""Eager calls on a CPU: rows in chunks for its cores, and arrays of NumPy handed over in pieces.

XLA runs most of a program on one core, and it copies and converts a NumPy array as a whole. So the rows are dealt out:
every chunk is the same program on as many rows, and the results merge like any others. A trace has one chunk, and so
has an accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import host_arrays, platform, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jaxgen.arguments import AnyArray
    from jaxgen.missing import PartialRows

# Below a million elements a second thread costs more than it saves.
_FEWEST_ELEMENTS = 2**20
# Bytes of an array of NumPy that are handed over, and if need be copied and converted, at a time. Of 200,000 × 100
# float32 a Gaussian NB fit takes 34 ms in pieces of 4 MiB and 25 ms in these, an LDA fit 75 and 63; larger ones gain
# no more.
_PIECE = 2**24
# Bytes that the allocator keeps when they are freed. Larger results are new pages in every call, which the system fills
# with zeros, and for XLA, unlike for NumPy, one small page after the other: 40 MiB in 12 ms where NumPy has them in 4.
# LDA of 1,000,000 × 20 in ten classes predicts in 42 ms at once, in 23 by pieces whose scores are fewer.
KEPT = 2**25 - 2**16
# Bytes behind a boundary at which a large array of NumPy usually begins.
_USUAL = 16
# Rows of any width begin on such a boundary where their number is a multiple of this.
_STRIDE = 16


@dataclass(frozen=True)
class Chunk:
    """Some rows of `x` and what belongs to them: those at `place`.

    The first `skip` of them belong to the chunk before; None where there is no other.
    """

    x: Any
    labels: Any
    skip: np.int32 | None
    place: slice


def split(x: AnyArray | PartialRows, labels: Any = None, *, width: int = 0, result_bytes: int = 0) -> list[Chunk]:
    """The chunks of the rows of x, all of one shape; more of them where their results take so many bytes together.

    Few rows are one chunk, unless each takes so many numbers, its width, on the way.

    Arrays of JAX are not copied. Of those of NumPy the first piece is, and the others where no row begins on a
    boundary: 100,000 × 100 float32 that begin 16 bytes behind one are handed over in 30 ms, else in less than 1.
    """
    if platform.platform_of(x, labels) != "cpu" or host_arrays.is_distributed(x, labels):
        return whole(x, labels)
    if x.shape[0] * max(x.shape[1], width) < _FEWEST_ELEMENTS:
        return whole(x, labels)
    n, values = x.shape[0], jax.tree.leaves(x)[0]
    fewest = -(-max(values.nbytes if isinstance(values, np.ndarray) else 1, result_bytes) // _PIECE)
    count = -(-fewest // threads.cores()) * threads.cores()
    # Every chunk but the first begins on a boundary; so each may overlap the one before. So does the last, which ends
    # with the rows, where x lies as NumPy allocates it: elsewhere it is copied, but the program is the same one.
    rows, skipped, usual = -(-n // count), 0, 0
    if isinstance(values, np.ndarray):
        skipped, usual = (_before_boundary(values, address) for address in (values.ctypes.data, _USUAL))
    rows = min(rows + (n - usual - rows) % _STRIDE + _STRIDE, n)
    chunks, end = [], 0
    while end < n:
        start = min(max((end - skipped) // _STRIDE * _STRIDE + skipped, 0), n - rows)
        place = slice(start, start + rows)
        mine, theirs = jax.tree.map(partial(host_arrays.view, place=place), (x, labels))
        chunks.append(Chunk(mine, theirs, np.int32(end - start), place))
        end = place.stop
    return chunks


def whole(x: Any, labels: Any = None) -> list[Chunk]:
    """All rows in one chunk."""
    return [Chunk(x, labels, None, slice(0, x.shape[0]))]


def run(program: Callable[..., Any], chunks: list[Chunk]) -> Iterable[Any]:
    """The results of `program(x, labels, skip)` for each chunk, in order; none is kept."""
    return threads.each(lambda chunk: program(chunk.x, chunk.labels, chunk.skip), chunks)


def gather(
    function: Callable[[Any], tuple[Any, Any]],
    items: Sequence[Any],
    places: Sequence[slice],
    num_rows: int,
) -> tuple[Any, bool]:
    """The results of `function(item)`, arrays with an entry a row, in their places; and whether any flag was raised."""
    whole, beginning = [], Lock()  # made when the first answer shows what it is

    def one(i: int) -> tuple[bool, Any]:
        answer, flag = function(items[i])
        with beginning:
            if not whole:
                empty = jax.tree.map(lambda part: host_arrays.aligned((num_rows, *part.shape[1:]), part.dtype), answer)
                whole.append(empty)
        for table, part in zip(jax.tree.leaves(whole), jax.tree.leaves(answer), strict=True):
            mine = places[i]
            table[mine] = np.asarray(part)[: mine.stop - mine.start]
        return bool(flag), host_arrays.placement(answer)

    flags, (where, *_) = zip(*threads.over(one, range(len(items))), strict=True)
    return jax.device_put(whole[0], where), any(flags)


def pieces(num_rows: int, size: int) -> list[slice]:
    """All rows in pieces of one size, for one program; the last overlaps the one before."""
    return [slice(first, first + size) for first in [*range(0, num_rows - size, size), num_rows - size]]


def _before_boundary(x: np.ndarray, address: int) -> int:
    """Rows before the first that begins on a boundary, of such an array there; 0 where none of the first ones does."""
    begins = (row for row in range(_STRIDE) if (address + row * x.strides[0]) % host_arrays.BOUNDARY == 0)
    return next(begins, 0)
