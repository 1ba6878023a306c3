"""Groups of columns: what rows of any form hold of one, and how it is written down."""

from __future__ import annotations

import operator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxgen.compressed import CompressedRows
from jaxgen.missing import PartialRows
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Columns = tuple[int, ...]

# Stretches of columns that a message names.
_MOST_NAMED = 8


def as_columns(columns: Iterable[Any]) -> Columns:
    """The columns as Python's integers; a TypeError for what is none, such as the truths of a mask."""
    found = tuple(columns)
    if any(isinstance(j, (bool, np.bool_)) for j in found):
        raise TypeError("a column is a number, and no truth")
    return tuple(map(operator.index, found))


def check_groups(owner: str, groups: Sequence[Columns]) -> None:
    """Raise for groups that are not 0 … d − 1, each in one of them, and for an empty one."""
    together = sorted(j for group in groups for j in group)
    if not groups or not all(groups) or together != list(range(len(together))):
        found = "; ".join(named(group) if group else "none" for group in groups) or "no group"
        raise ValueError(
            f"the columns of {owner} must be 0 … d − 1, each in one group, and no group empty; found {found}."
        )


def indices(columns: Columns) -> np.ndarray:
    """Of one width with and without JAX's x64 mode, which its indexing by NumPy's own integers mixes up."""
    return np.array(columns, np.int32)


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
