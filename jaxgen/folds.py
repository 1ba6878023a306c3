"""The algebra of folds: rows with what belongs to them, and the statistics of all but some of them.

Subtracting a fold from the whole would cancel where a fold holds most of a class; the merge of what comes before it
with what comes after it loses nothing, and costs two merges a fold.
"""

from __future__ import annotations

import contextlib
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import host_arrays
from jaxgen.programs import merge_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Int, Real

    from jaxgen.arguments import AnyArray

# Rows that are copied without need, for parts of one shape, to those that are not.
_MOST_PADDING = 0.125


class Rows(NamedTuple):
    """Data as `fit` and `statistics` take them, by name.

    Attributes:
        x: features (n, d).
        y: labels (n,).
        sample_weight: (n,), where there are weights.
        observed: (n, d), where features are missing.
    """

    x: Any
    y: Int[np.ndarray, " n"]
    sample_weight: Real[AnyArray, " n"] | None
    observed: Bool[AnyArray, "n d"] | None

    @property
    def is_sparse(self) -> bool:
        """Whether x is a matrix of scipy, which has two axes."""
        return hasattr(self.x, "tocsr")

    def at(self, index: Int[np.ndarray, " m"]) -> Rows:
        """Some of the rows, a copy."""
        x = self.x[index] if self.is_sparse else _taken(self.x, index)
        return jax.tree.map(lambda array: _taken(array, index), self._replace(x=None))._replace(x=x)


def _taken(array: AnyArray, index: Int[np.ndarray, " m"]) -> AnyArray:
    if not isinstance(array, np.ndarray):
        return array[index]
    # A third of the time of array[index]; aligned, JAX reads it where it lies.
    copy = host_arrays.aligned((len(index), *array.shape[1:]), array.dtype)
    return np.take(array, index, axis=0, out=copy, mode="clip")


@contextlib.contextmanager
def left_out(what: str) -> Iterator[None]:
    """Say of an error which rows the fit was made without."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what} left out: {error}") from None


class Part(NamedTuple):
    """The rows of some folds, one after the other, with as many rows for each.

    Attributes:
        rows: of all these folds.
        first: where those of each fold begin, (g,).
        skip: how many of them come first that do not count, (g,); None where all do.
    """

    rows: Rows
    first: Int[np.ndarray, " g"]
    skip: Int[np.ndarray, " g"] | None

    @property
    def length(self) -> int:
        """Rows of each fold."""
        return self.rows.x.shape[0] // len(self.first)

    def present(self, i: int) -> Rows:
        """The rows that count, of one of the folds."""
        if len(self.first) == 1 and self.skip is None:  # sparse rows would be copied
            return self.rows
        end = (i + 1) * self.length
        start = end - self.length + (0 if self.skip is None else self.skip[i])
        return jax.tree.map(lambda array: array[start:end], self.rows)


class Deal(NamedTuple):
    """The folds whose rows are copied, and read, together.

    Attributes:
        rows: of all folds.
        members: the rows of each fold.
        groups: the numbers of the folds of each group, each number in its turn; after the last one the first again,
            where there is room in the last group.
        skip: how many rows are copied before those of each fold that do not count; None where none are.
    """

    rows: Rows
    members: list[Int[np.ndarray, " m"]]
    groups: list[Int[np.ndarray, " g"]]
    skip: Int[np.ndarray, " folds"] | None

    @classmethod
    def of(cls, rows: Rows, members: list[Int[np.ndarray, " m"]], *, cores: int) -> Deal:
        """As many folds for each core, where that and one shape of dense rows cost little; else one at a time."""
        number, sizes = len(members), np.array([len(mine) for mine in members])
        skip = (sizes.max() - sizes).astype(np.int32)
        alike = not rows.is_sparse and skip.sum() <= _MOST_PADDING * sizes.sum()
        # Of every call Python and the threads' waking up take a third of a millisecond, while a core waits. Gaussian NB
        # of 100,000 × 50 in ten folds: 15 ms by ten calls, 12 by one for each of two cores.
        together = -(-number // cores)
        again = -number % together
        if not alike or again > _MOST_PADDING * number:
            together, again = 1, 0
        groups = np.arange(number + again, dtype=np.int32).reshape(-1, together) % number
        return cls(rows, members, list(groups), skip if alike and skip.any() else None)

    def copy(self, group: Int[np.ndarray, " g"]) -> Part:
        """The rows of a group."""
        index = [self.members[f] for f in group]
        skip = None if self.skip is None else self.skip[group]
        if skip is not None:
            index = [np.pad(mine, (int(before), 0), mode="edge") for mine, before in zip(index, skip, strict=True)]
        first = np.arange(len(group), dtype=np.int32) * np.int32(len(index[0]))
        return Part(self.rows.at(np.concatenate(index)), first, skip)


def outside(parts: Any, others: Any) -> Any:
    """The statistics of all rows outside each part.

    Args:
        parts: the statistics of the parts, stacked.
        others: those of all rows outside every part.
    """
    # From both ends in one loop: two would be compiled twice.
    ends = jax.tree.map(lambda leaf: jnp.stack([leaf, jnp.zeros_like(leaf)]), others)
    inwards = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]], axis=1), parts)
    merge = jax.vmap(lambda a, b: a.merge(b))
    _, passed = lax.scan(lambda total, part: (merge(total, part), total), ends, inwards)
    return merge(jax.tree.map(lambda leaf: leaf[:, 0], passed), jax.tree.map(lambda leaf: leaf[::-1, 1], passed))


def all_but_each(parts: tuple[Any, ...], others: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The statistics of all parts but one, for each in its order, merged with those of others.

    What lies outside a half is merged once for all of it, so that few are there at a time, whatever the parts.
    """
    if len(parts) == 1:
        yield others[0]
        return
    half = len(parts) // 2
    for mine, theirs in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
        yield from all_but_each(mine, (reduce(merge_program, others + theirs),))
