"""What sufficient statistics must have."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import jax
import numpy as np

from jaxgen.tracing import primal

if TYPE_CHECKING:
    from typing import Self

    from jax import Array
    from jaxtyping import Float

    from jaxgen.total import Total


class Statistics(Protocol):
    """Sufficient statistics: what a batch of data becomes. One tree of arrays for hard, soft and weighted labels.

    `merge` is associative and commutative up to rounding, and statistics of zero weight are its identity.
    """

    @property
    def class_weight(self) -> Total:
        """N_k, the total weight of each class, shape (K,)."""
        ...

    def merge(self, other: Self) -> Self:
        """The statistics of both batches together."""
        ...

    def subtract(self, part: Self) -> Self:
        """The statistics of what remains when `part`, once merged in, is taken away."""
        ...

    def scale(self, factor: Float[Array, ""]) -> Self:
        """The statistics in which every row weighs `factor` times as much."""
        ...

    def unit(self) -> Self:
        """What each number is measured in: positive numbers, which follow the units of the data as it does."""
        ...


S = TypeVar("S", bound=Statistics)


def describe(statistics: Any) -> str:
    """The kind of some statistics: their type, the shapes of their arrays, and what they are of; else a type alone."""
    if not hasattr(statistics, "merge") or not dataclasses.is_dataclass(statistics):
        return type(statistics).__name__
    fields = {field.name: getattr(statistics, field.name) for field in dataclasses.fields(statistics)}
    words = [f"{name}={_describe(value)}" for name, value in fields.items() if value is not None]
    return f"{type(statistics).__name__}({', '.join(words)})"


def _describe(value: Any) -> str:
    if isinstance(value, tuple) and any(hasattr(each, "merge") for each in value):
        return f"({', '.join(map(describe, value))})"
    leaves = [] if isinstance(value, (bool, int, float, str, tuple)) else jax.tree.leaves(value)
    return str(np.shape(leaves[0])) if leaves else repr(value)


def check_single(statistics: Any, name: str) -> None:
    """Raise for a stack of statistics, which only vmap takes."""
    if len(shape := np.shape(statistics.class_weight.high)) != 1:
        raise ValueError(
            f"{name} must be those of one batch, whose class_weight has shape (K,); found {shape}. For a stack of "
            "statistics: jax.vmap over it."
        )


def raise_for_nan(statistics: Statistics) -> None:
    """Raise for concrete statistics of a batch that was bad."""
    if np.isnan(primal(statistics.class_weight).exact()).any():
        raise ValueError(
            "the statistics hold NaN: a batch had bad values or labels, which could not be seen where it was "
            "summarised under a trace, or scale overflowed. Call statistics(x, y) outside jit to learn which value is "
            "bad; scale by a smaller factor."
        )
