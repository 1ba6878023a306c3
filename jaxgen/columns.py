"""Groups of columns: what rows of any form hold of one, and how it is written down."""

from __future__ import annotations

import operator
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxgen.compressed import CompressedRows
from jaxgen.missing import PartialRows
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Columns = tuple[int, ...]

# Stretches of columns that a message names, and columns that are written down one by one.
_MOST_NAMED, _MOST_WRITTEN = 8, 32


class _Columns(tuple[int, ...]):
    """Columns whose hash, by which programs are kept, is found once, and of which many are written down as a few."""

    def __hash__(self) -> int:
        found = self.__dict__.get("hash")
        if found is None:
            found = self.__dict__["hash"] = super().__hash__()
        return found

    def __repr__(self) -> str:
        return super().__repr__() if len(self) <= _MOST_WRITTEN else f"({self[0]}, {self[1]}, …, {self[-1]})"


def as_columns(columns: Iterable[Any]) -> Columns:
    """The columns as Python's integers; a TypeError for what is none, such as the truths of a mask."""
    found = tuple(columns)
    if any(isinstance(j, (bool, np.bool_)) for j in found):
        raise TypeError("a column is a number, and no truth")
    return _Columns(map(operator.index, found))


def check_groups(owner: str, groups: Sequence[Columns]) -> None:
    """Raise for groups that are not 0 … d − 1, each in one of them, and for an empty one."""
    if not groups or not all(groups) or not are_all(tuple(groups)):
        found = "; ".join(named(group) if group else "none" for group in groups) or "no group"
        raise ValueError(
            f"the columns of {owner} must be 0 … d − 1, each in one group, and no group empty; found {found}."
        )


@cache
def are_all(groups: tuple[Columns, ...]) -> bool:
    """Whether groups hold 0 … d − 1, each once."""
    return sorted(j for group in groups for j in group) == [*range(sum(map(len, groups)))]


@cache
def indices(columns: Columns) -> np.ndarray:
    """Of one width with and without JAX's x64 mode, which its indexing by NumPy's own integers mixes up."""
    found = np.array(columns, np.int32)
    found.flags.writeable = False  # it is everyone's
    return found


def places(groups: Sequence[Columns]) -> np.ndarray:
    """Where each column is, when those of all groups stand side by side."""
    return np.argsort(np.concatenate(groups)).astype(np.int32)


def take(x: Any, columns: Columns, *, sparse: bool) -> Any:
    """The columns of rows of any form; of sparse rows as an array, unless these may be `sparse`."""
    if isinstance(x, (CompressedRows, SparseRows)):
        rows = x.take(indices(columns))
        return rows if sparse else rows.dense()
    return x.take(indices(columns)) if isinstance(x, PartialRows) else x[:, indices(columns)]


def named(columns: Sequence[int]) -> str:
    """The columns in words: those that follow one another by the first and the last."""
    runs = groupby(enumerate(columns), lambda pair: pair[1] - pair[0])
    stretches = [[column for _, column in run] for _, run in runs]
    words = [f"{each[0]} – {each[-1]}" if len(each) > 2 else ", ".join(map(str, each)) for each in stretches]
    shown = words[:_MOST_NAMED] + ["…"] * (len(words) > _MOST_NAMED)
    return f"column{'s' * (len(columns) > 1)} {', '.join(shown)}"
