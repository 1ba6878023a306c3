"""Timing that can be trusted: warmed up, waited for, repeated, both sides in turn."""

from __future__ import annotations

import platform
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import sklearn

import jaxgen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call, until its result is there."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def race(functions: Sequence[Callable[[], Any]], budget: float = 0.5, most: int = 30) -> tuple[list[float], ...]:
    """Times of each function, called in turn so that the machine's noise falls on all alike.

    Every function has been called once before, to compile and to warm up. There are at least three rounds, at most
    `most`, and no new one after `budget` seconds.
    """
    rounds = []
    start = time.perf_counter()
    while len(rounds) < 3 or (len(rounds) < most and time.perf_counter() - start < budget):
        rounds.append([seconds(function) for function in functions])
    return tuple(list(times) for times in zip(*rounds, strict=True))


def milliseconds(times: Sequence[float]) -> float:
    """The median in milliseconds."""
    return 1e3 * median(times)


def environment() -> dict[str, str]:
    """Device and versions, for the head of a table and for JSON."""
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "devices": str(jax.device_count()),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jaxgen": jaxgen.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }
