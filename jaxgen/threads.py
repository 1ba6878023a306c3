"""Work on the cores of a CPU: a function of many items, by the calling thread and one more for each further core.

XLA runs most of a program on one core; so an eager call runs the same program on some rows at a time, here.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# Whether this is an item's own work, on a thread of the pool or the caller's.
_inside: ContextVar[bool] = ContextVar("inside", default=False)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`function(item)` for each item, in order, by a thread for each core."""
    return list(each(function, items))


def each(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterable[Any]:
    """The results in order, by the calling thread and one of the pool for each further core.

    A caller that only waited would leave its core to a thread that the system has put beside another on the next core.
    """
    if len(items) == 1 or _inside.get():  # one that waited for others could wait for itself
        return map(function, items)
    return _by_all(function, items)


def _by_all(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
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
