"""The compiled programs of the tasks of learning curves, and their runs on every core."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.split_programs import Outcome
    from benchmarks.splits import Call, Task

# Compiled in half the time; products and factorisations, which the programs consist of, are as fast.
_QUICK: Any = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_llvm_disable_expensive_passes": True,
}


@dataclass(frozen=True)
class Timed:
    """What is known of all splits, the outcomes, and the seconds that they took once everything was compiled.

    What is known are statistics, or the classifiers of a model that is trained: larger samples start from there.
    """

    known: Any
    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class Programs:
    """The compiled programs, kept by the shapes of their arguments."""

    _compiled: dict[Any, Future[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, tasks: list[Task], advance: Callable[[], None]) -> float:
        """Compile what the tasks need, while others are traced; the seconds that it took."""
        began = time.perf_counter()

        def note(call: Call) -> Any:
            return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._of(call, advance).out_info)

        distinct = {task.key: task for task in tasks}
        threads.over(lambda task: _through(task, task.chunks()[0], task.nothing(), note), list(distinct.values()))
        return time.perf_counter() - began

    def run(self, task: Task, known: Any = None) -> Timed:
        """Fit and test on every split, a chunk of them on each core.

        Args:
            task: what to fit.
            known: of all splits by the sample before.
        """
        began = time.perf_counter()
        begin = task.nothing() if known is None else known

        def call(call: Call) -> Any:
            return self._of(call)(*call.arguments)

        parts = threads.over(lambda chunk: _through(task, chunk, begin, call), task.chunks())
        count = len(task.splits.orders)
        known, outcome = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)
        outcome = outcome._replace(wrong=outcome.wrong[:, : task.splits.held_out])
        return Timed(known, outcome, time.perf_counter() - began)

    def _of(self, call: Call, advance: Callable[[], None] = lambda: None) -> Any:
        """The program of a call; one thread compiles it, and others wait for it."""
        with self._lock:
            is_known = call.key in self._compiled
            future = self._compiled.setdefault(call.key, Future())
        if not is_known:
            try:
                lowered = call.program.lower(*call.arguments, num_classes=call.num_classes)
                future.set_result(lowered.compile(_QUICK if jax.default_backend() == "cpu" else None))
            except BaseException as error:
                with self._lock:
                    del self._compiled[call.key]  # so that the next call tries again
                future.set_exception(error)
            advance()
        return future.result()


def _through(task: Task, chunk: np.ndarray, known: Any, call: Callable[[Call], Any]) -> tuple[Any, Any]:
    """What is known of a chunk of splits and their outcomes, by calls that are made, or whose programs compiled."""
    parts = task.parts(chunk)
    fitted = [_fitted(task, part, jax.tree.map(lambda leaf, part=part: leaf[part], known), call) for part in parts]
    known, classifiers = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *fitted)
    return known, call(task.judge(chunk, call(task.score(chunk, classifiers))))


def _fitted(task: Task, part: np.ndarray, known: Any, call: Callable[[Call], Any]) -> tuple[Any, Any]:
    """What is known of a part of the splits after all pieces of their samples, and their classifiers."""
    first, *others = task.pieces()
    fitted = call(task.fit(part, first, known))
    for piece in others:
        fitted = call(task.fit(part, piece, fitted[0]))
    return fitted
