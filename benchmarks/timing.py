"""Timing that can be trusted: warmed up, waited for, repeated, both sides in turn."""

from __future__ import annotations

import platform
import subprocess
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import sklearn

import jaxgen
from jaxgen import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds of quiet before a call. The idle threads of OpenBLAS wait in a busy loop: measured on two cores, an LDA fit
# right after scikit-learn's took 90 ms, and 50 ms after this rest.
REST = 0.1


@dataclass(frozen=True)
class Clocked:
    """A result, and the seconds of it that count, by the clock of who made it."""

    result: Any
    seconds: float


class Effort(NamedTuple):
    """How long calls are timed.

    Attributes:
        budget: seconds of calls, after which no new round begins.
        least: rounds, at least.
        most: rounds, at most.
        rest: seconds of quiet before each call, and after it as many of calls that are not timed, one at least: the
            first ones from rest find caches cold, and all threads on one core. Measured on two cores, after 0.1 s: a
            sum by two threads takes 10 ms, then 15 three times, and 10 ever after.
        in_turn: whether the functions are timed in turn, since they disturb each other; else each by itself.
    """

    budget: float = 0.5
    least: int = 3
    most: int = 30
    rest: float | None = None
    in_turn: bool = True


USUAL = Effort()
QUICK = Effort(budget=0.0, least=1)  # once, to see that it runs


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call, until its result is there; of a `Clocked` result, what it says itself."""
    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return result.seconds if isinstance(result, Clocked) else time.perf_counter() - start


def race(functions: Sequence[Callable[[], Any]], effort: Effort = USUAL) -> tuple[list[float], ...]:
    """Times of each function, called in turn so that the machine's noise falls on all alike, unless the effort says no.

    Every function has been called once before, to compile and to warm up.
    """
    if not effort.in_turn:
        return tuple(race([function], effort._replace(in_turn=True))[0] for function in functions)
    budget, least, most, rest, _ = effort
    rounds: list[list[float]] = []
    while len(rounds) < least or (len(rounds) < most and sum(map(sum, rounds)) < budget):
        row = []
        for function in functions:
            if rest is not None:
                time.sleep(rest)
                awake = time.perf_counter() + rest
                jax.block_until_ready(function())
                while time.perf_counter() < awake:
                    jax.block_until_ready(function())
            row.append(seconds(function))
        rounds.append(row)
    return tuple(list(times) for times in zip(*rounds, strict=True))


def milliseconds(times: Sequence[float]) -> float:
    """The median in milliseconds."""
    return 1e3 * median(times)


def ratios(processes: Sequence[dict[str, list[float]]], library: str) -> list[float]:
    """How many times as long as jaxgen a library takes by the medians of each process, from the smallest."""
    return sorted(median(times[library]) / median(times["jaxgen"]) for times in processes)


def machine_rates(scale: float = 1.0) -> dict[str, float]:
    """What the device does at best in this run: GB/s of one read of a large array, GFLOP/s of a float32 product.

    Args:
        scale: below 1, the sizes shrink, for tests; the rates are then those of the caches. Above, for accelerators.
    """
    size, side = int(1e8 * scale), max(64, int(2048 * min(scale, 4)))
    array, matrix = jnp.ones(size, jnp.float32), jnp.ones((side, side), jnp.float32)
    total, product = jax.jit(jnp.sum), jax.jit(lambda m: jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))
    for call in (lambda: total(array), lambda: product(matrix)):
        jax.block_until_ready(call())
    reads, products = race([lambda: total(array), lambda: product(matrix)], Effort(budget=2.0, most=10))
    return {"GB/s": 4e-9 * size / min(reads), "GFLOP/s": 2e-9 * side**3 / min(products)}


def environment() -> dict[str, str]:
    """Device, versions, the commit and the day, for the head of a table and for JSON."""
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "devices": str(jax.device_count()),
        "machine": ", ".join(filter(None, [_processor(), platform.machine(), f"{threads.cores()} cores"])),
        "python": platform.python_version(),
        "jaxgen": jaxgen.__version__,
        **_commit(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "date": date.today().isoformat(),
    }


def _commit() -> dict[str, str]:
    """The commit that is measured, where jaxgen lies in a checkout."""
    checkout = Path(jaxgen.__file__).parent.parent
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        if (checkout / ".git").exists():
            return {"commit": subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):  # there is no git, or the checkout is another user's
        pass
    return {}


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
