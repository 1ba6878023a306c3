"""The compiled programs of learning curves, and their runs on every core."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from jaxgen import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.split_programs import Outcome
    from benchmarks.splits import Call, Task

# Compiled in half the time; products and factorisations, which the programs consist of, are as fast. Sums in one pass
# are a fifth of the kernels less than sums over sums of parts, which XLA makes of them: 0.72 s of a core in place of
# 0.87, and fits take 2 to 8 % less.
_QUICK: Any = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_llvm_disable_expensive_passes": True,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}


class Timed(NamedTuple):
    """What became of the splits of a task, and the seconds of one core that they took once everything was compiled."""

    outcome: Outcome
    seconds: float


class Curves(NamedTuple):
    """What became of curves.

    Attributes:
        tasks: of each.
        seconds: that all of them took, with the compiling.
        compile_seconds: of it, summed over the threads.
    """

    tasks: list[list[Timed]]
    seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class Programs:
    """The compiled programs, kept by the shapes of their arguments.

    Attributes:
        turn: of the one that runs on an accelerator, whose memory need not be that of many.
    """

    turn: threading.Lock = field(default_factory=threading.Lock)
    _compiled: dict[Any, Future[Any]] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, curves: Sequence[Sequence[Task]], note: Callable[[Task], None] = lambda task: None) -> Curves:
        """Fit and test on every split, by every core some splits of a curve at a time.

        A core compiles what it is the first to need, while others fit. The curves take turns, so that all programs are
        there soon.

        Args:
            curves: for each the tasks of a model on nested samples, the smallest first.
            note: is called when some splits of a task are done.
        """
        began, programs = time.perf_counter(), len(self._seconds)
        turns = zip_longest(*([(i, chunk) for chunk in curve[0].chunks()] for i, curve in enumerate(curves)))
        items = [item for item in chain.from_iterable(turns) if item is not None]
        with threadpool_limits(1, "blas"):  # whose threads get in each other's way, from 200 parameters on
            done = threads.over(lambda item: self._of_chunk(curves[item[0]], item[1], note), items)
        tasks = []
        for i, curve in enumerate(curves):
            chunks = [timed for (number, _), timed in zip(items, done, strict=True) if number == i]
            tasks.append([_joined(task, parts) for task, *parts in zip(curve, *chunks, strict=True)])
        return Curves(tasks, time.perf_counter() - began, sum(self._seconds[programs:]))

    def _of_chunk(self, curve: Sequence[Task], chunk: np.ndarray, note: Callable[[Task], None]) -> list[Timed]:
        """What became of some splits of a curve; of each sample what is known goes on to the next."""
        known, timed = curve[0].nothing(len(chunk)), []
        for task in curve:
            began, calls = time.perf_counter(), _Calls(self)
            known, outcome = calls.through(task, chunk, known)
            timed.append(Timed(outcome, time.perf_counter() - began - calls.waited))
            note(task)
        return timed

    def of(self, call: Call) -> Any:
        """The program of a call; one thread compiles it, and others wait for it."""
        with self._lock:
            is_known = call.key in self._compiled
            future = self._compiled.setdefault(call.key, Future())
        if not is_known:
            try:
                began = time.perf_counter()
                lowered = call.program.lower(*call.arguments, num_classes=call.num_classes)
                future.set_result(lowered.compile(_QUICK if jax.default_backend() == "cpu" else None))
                self._seconds.append(time.perf_counter() - began)
            except BaseException as error:
                with self._lock:
                    del self._compiled[call.key]  # so that the next call tries again
                future.set_exception(error)
        return future.result()


@dataclass
class _Calls:
    """Calls of programs, and the seconds that they had to wait until those were compiled."""

    programs: Programs
    waited: float = 0.0

    def through(self, task: Task, chunk: np.ndarray, known: Any) -> tuple[Any, Outcome]:
        """What is known of some splits after the sample of a task, and what became of them."""
        fitted = [
            self._fitted(task, chunk[part], jax.tree.map(lambda leaf, part=part: leaf[part], known))
            for part in task.parts(len(chunk))
        ]
        known, classifiers = jax.tree.map(lambda *leaves: np.concatenate(leaves), *fitted)
        outcome = self._of(task.judge(chunk, self._of(task.score(chunk, classifiers))))
        return known, jax.block_until_ready(outcome)

    def _fitted(self, task: Task, part: np.ndarray, known: Any) -> tuple[Any, Any]:
        """What is known after all pieces of the sample, and the classifiers."""
        first, *others = task.pieces()
        fitted = self._of(task.fit(part, first, known))
        for piece in others:
            fitted = self._of(task.fit(part, piece, fitted[0]))
        return fitted

    def _of(self, call: Call) -> Any:
        began = time.perf_counter()
        program = self.programs.of(call)
        self.waited += time.perf_counter() - began
        if jax.default_backend() == "cpu":  # which computes while the next rows are gathered
            return program(*call.arguments)
        with self.programs.turn:
            return jax.block_until_ready(program(*call.arguments))


def _joined(task: Task, parts: list[Timed]) -> Timed:
    """All splits of a task, whose last chunk begins again with the first of them, and no row that was padding."""
    count = len(task.splits.orders)
    outcome = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *(part.outcome for part in parts))
    outcome = outcome._replace(wrong=outcome.wrong[:, : task.splits.held_out])
    return Timed(outcome, sum(part.seconds for part in parts))
