"""Eager calls: the rows shared out to the cores of a CPU, and arrays of NumPy handed over in pieces.

XLA runs most of a program on one core, and it copies and converts a NumPy array as a whole. So the rows are dealt out:
every share is the same program on as many rows, run by a thread for each core, and the results merge like any others.
A trace has one share, and so has an accelerator.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import platform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jaxgen.inputs import AnyArray

# Below a million elements a second thread costs more than it saves.
_FEWEST_ELEMENTS = 2**20
# Bytes of an array of NumPy that are handed over, and if need be copied and converted, at a time. Of 200,000 × 100
# float32 a Gaussian NB fit takes 34 ms in pieces of 4 MiB and 25 ms in these, an LDA fit 75 and 63; larger ones gain
# no more.
_PIECE = 2**24
# Bytes: where JAX takes an array of NumPy over without a copy.
BOUNDARY = 64
# Whether this is a share, on a thread of the pool or the caller's.
_inside: ContextVar[bool] = ContextVar("inside", default=False)


# Rows of any width begin on such a boundary where their number is a multiple of this.
_STRIDE = 16


@dataclass(frozen=True)
class Share:
    """Some rows of `x` and what belongs to them: those at `place`.

    The first `absent` of them belong to the share before; None where there is no other.
    """

    x: Any
    labels: Any
    absent: np.int32 | None
    place: slice


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(x: AnyArray, labels: Any = None) -> list[Share]:
    """The shares of the rows of x, all of one shape.

    Arrays of JAX are not copied. Of those of NumPy the first piece is, and the others where no row begins on a
    boundary: 100,000 × 100 float32 that begin 16 bytes behind one are handed over in 30 ms, else in less than 1.
    """
    if platform.platform_of(x, labels) != "cpu" or x.size < _FEWEST_ELEMENTS or is_distributed(x, labels):
        return whole(x, labels)
    n = x.shape[0]
    pieces = -(-x.nbytes // _PIECE) if isinstance(x, np.ndarray) else 1
    count = -(-pieces // cores()) * cores()
    # Every share but the first begins on a boundary, also the last, which ends with the rows; so each may overlap the
    # one before.
    rows, skipped = -(-n // count), _before_boundary(x)
    rows = min(rows + (n - skipped - rows) % _STRIDE + _STRIDE, n)
    shares, end = [], 0
    while end < n:
        start = min(max((end - skipped) // _STRIDE * _STRIDE + skipped, 0), n - rows)
        place = slice(start, start + rows)
        mine, theirs = jax.tree.map(partial(view, place=place), (x, labels))
        shares.append(Share(mine, theirs, np.int32(end - start), place))
        end = place.stop
    return shares


def whole(x: Any, labels: Any = None) -> list[Share]:
    """All rows in one share."""
    return [Share(x, labels, None, slice(0, x.shape[0]))]


def lies_on_boundary(x: AnyArray) -> bool:
    """Whether JAX reads the array where it lies."""
    return isinstance(x, jax.Array) or (x.flags.c_contiguous and x.ctypes.data % BOUNDARY == 0)


def _before_boundary(x: AnyArray) -> int:
    """Rows of an array of NumPy before the first that begins on a boundary; 0 where none of the first ones does."""
    if not isinstance(x, np.ndarray):
        return 0
    begins = (row for row in range(_STRIDE) if (x.ctypes.data + row * x.strides[0]) % BOUNDARY == 0)
    return next(begins, 0)


def view(array: AnyArray, place: slice) -> AnyArray:
    """Some rows of an array, where they lie."""
    rows = np.asarray(array)[place]
    if isinstance(array, np.ndarray):
        return rows
    return jax.device_put(rows, placement(array))


def run(program: Callable[..., Any], shares: list[Share]) -> Iterable[Any]:
    """The results of `program(x, labels, absent)` for each share, in order; none is kept."""
    return _each(lambda share: program(share.x, share.labels, share.absent), shares)


def gather(
    function: Callable[[Any], tuple[Any, Any]],
    items: Sequence[Any],
    places: Sequence[slice],
    num_rows: int,
    form: Any,
) -> tuple[Any, bool]:
    """The results of `function(item)`, arrays with an entry a row, in their places; and whether any flag was raised.

    `form` has the shapes and dtypes of one result.
    """
    result = jax.tree.map(lambda part: aligned((num_rows, *part.shape[1:]), part.dtype), form)

    def one(i: int) -> tuple[bool, Any]:
        answer, flag = function(items[i])
        for whole, part in zip(jax.tree.leaves(result), jax.tree.leaves(answer), strict=True):
            whole[places[i]] = part
        return bool(flag), placement(answer)

    flags, (where, *_) = zip(*over(one, range(len(items))), strict=True)
    return jax.device_put(result, where), any(flags)


def pieces(num_rows: int, size: int) -> list[slice]:
    """All rows in pieces of one size, for one program; the last overlaps the one before."""
    return [slice(first, first + size) for first in [*range(0, num_rows - size, size), num_rows - size]]


def aligned(shape: int | tuple[int, ...], dtype: Any, *, zero: bool = False) -> np.ndarray:
    """An array, empty unless `zero`, on a boundary of 64 bytes, which JAX reads where it lies."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = (np.zeros if zero else np.empty)(size + BOUNDARY, np.uint8)
    start = -buffer.ctypes.data % BOUNDARY
    return buffer[start : start + size].view(dtype).reshape(shape)


def over(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`function(item)` for each item, in order, by a thread for each core."""
    return list(_each(function, items))


def _each(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    """The results in order, by the calling thread and one of the pool for each further core.

    A caller that only waited would leave its core to a thread that the system has put beside another on the next core.
    """
    if len(items) == 1 or _inside.get():  # a share that waited for others could wait for itself
        return map(function, items)
    return _shared(function, items)


def _shared(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    futures = deque(Future() for _ in items)
    waiting = deque(zip(futures, items, strict=True))

    def work(until: Future[Any] | None = None) -> None:
        _inside.set(True)
        while waiting and not (until and until.done()):
            with contextlib.suppress(IndexError):  # another thread was faster
                future, item = waiting.popleft()
                try:
                    future.set_result(jax.block_until_ready(function(item)))
                except BaseException as error:
                    future.set_exception(error)
                    if not isinstance(error, Exception):  # an interrupt is not for later
                        raise

    def help_out(context: Context, settings: tuple[Any, ...]) -> None:
        # JAX's settings belong to a thread: this one does not know what a context manager changed in another.
        if _settings() == settings:
            context.run(work)

    for _ in range(min(cores(), len(items)) - 1):
        _threads().submit(help_out, copy_context(), _settings())
    try:
        while futures:
            copy_context().run(work, futures[0])
            yield futures.popleft().result()
    finally:
        waiting.clear()


def _settings() -> tuple[Any, ...]:
    names = (
        "jax_enable_x64",
        "jax_default_device",
        "jax_disable_jit",
        "jax_debug_nans",
        "jax_default_matmul_precision",
        "jax_numpy_dtype_promotion",
        "jax_numpy_rank_promotion",
        "jax_debug_infs",
    )
    return tuple(getattr(jax.config, name, None) for name in names)


@cache
def _threads() -> ThreadPoolExecutor:
    # glibc gives back to the system what is freed, and gets it again page by page, up to the size of the largest block
    # that was ever freed (at most 32 MiB). One that is never touched costs nothing. Rows of a class, copied 4 MiB at a
    # time: 47 ms without it, 15 ms with it.
    np.empty(2**25 - 2**16, np.uint8)
    return ThreadPoolExecutor(cores(), thread_name_prefix="jaxgen")


def placement(tree: Any) -> Any:
    """Where the first array of JAX lies that is committed to one device; None without such."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    return next((a.sharding for a in arrays if a.committed and len(a.devices()) == 1), None)


def is_distributed(*trees: Any) -> bool:
    """Whether an array lies on several devices."""
    return any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in jax.tree.leaves(trees))
