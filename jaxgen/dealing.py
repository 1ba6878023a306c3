"""Which fold each row belongs to: as a caller says, or dealt out so that every fold has its share of each class."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxgen import arguments

if TYPE_CHECKING:
    from jaxtyping import Int

# So few folds, of rows in long runs, are each looked for among all rows; others are sorted. 100,000 rows in ten folds:
# 0.6 ms in place of 0.9, but 2 in place of 1.1 where they are in no order.
_FEW_FOLDS = 16


@dataclass(frozen=True)
class Folds:
    """The fold of each row.

    Attributes:
        of_row: its number, (n,).
        sizes: how many rows each fold has, (F,).
        in_runs: whether the rows of a fold come in a few long runs.
    """

    of_row: Int[np.ndarray, " n"]
    sizes: Int[np.ndarray, " folds"]
    in_runs: bool = False

    @classmethod
    def of(cls, folds: Any, y: Int[np.ndarray, " n"]) -> Folds:
        """Those that `cross_validate` is told of."""
        if isinstance(folds, str) and folds == "leave-one-out":
            return cls(np.arange(len(y)), np.ones(len(y), int))
        fold = arguments.real(folds)
        if isinstance(folds, int) or (fold is not None and fold.ndim == 0):
            remedy = f" Of {len(y)} rows there are from 2 to {len(y)} folds; 'leave-one-out' makes each row one."
            return _stratified(y, arguments.check_integer("folds", folds, least=2, most=len(y), remedy=remedy))
        if fold is None or fold.ndim != 1:
            kind = ValueError if isinstance(folds, str) else TypeError
            raise kind(
                "folds must be a number of folds, the fold of each row, 0 … F − 1, or 'leave-one-out'; found "
                f"{shorten(repr(folds), 72)}. Of splits (train, test) make that of each row: fold[test] = f in split f."
            )
        arguments.check_whole("folds", fold, y.shape)
        # A number that is too high leaves another out, among the first n + 1.
        sizes = np.bincount(fold if fold.max() < len(y) else np.minimum(fold, len(y)))
        empty = np.flatnonzero(sizes == 0)
        if len(empty) or len(sizes) < 2:
            raise ValueError(
                f"folds must be numbered 0 … F − 1, two or more, each with a row; found {int(fold.max()) + 1} of them"
                + (f", and fold {empty[0]} is empty." if len(empty) else ".")
            )
        return cls(_narrow(fold), sizes)

    def members(self) -> list[Int[np.ndarray, " m"]]:
        """The rows of each fold, in their order."""
        if self.in_runs and len(self.sizes) <= _FEW_FOLDS:
            return [np.flatnonzero(self.of_row == f) for f in range(len(self.sizes))]
        return np.split(np.argsort(self.of_row, kind="stable"), np.cumsum(self.sizes)[:-1])


def _stratified(y: Int[np.ndarray, " n"], number: int) -> Folds:
    """So many folds, as scikit-learn's StratifiedKFold has them.

    A fold has as many rows of a class as if those of one class after the other were dealt out in turn, and they follow
    those of the fold before. The class of the first row is the first.
    """
    labels = _narrow(y)
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    count, turn = np.diff(first, append=len(y)), np.argsort(order[first])
    begins = np.empty_like(count)  # the fold that the first row of each class goes to
    begins[turn] = (np.cumsum(count[turn]) - count[turn]) % number
    # The folds that have rows of a class, in order: those that come again after the last one, then those before.
    several = np.minimum(count, number)
    to_last = np.minimum(several, number - begins)
    place = np.arange(several.sum()) - np.repeat(np.cumsum(several) - several, several)
    count, several, to_last, begins = (np.repeat(each, several) for each in (count, several, to_last, begins))
    place = (place + to_last) % several
    fold, rows = (begins + place) % number, (count - 1 - place) // number + 1
    of_row = np.empty(len(y), np.min_scalar_type(number - 1))
    of_row[order] = np.repeat(fold.astype(of_row.dtype), rows)
    return Folds(of_row, np.bincount(fold, rows).astype(int), in_runs=True)


def _narrow(numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The same in fewer bits, if none is below 0: NumPy sorts 16 by their digits, in a tenth of the time."""
    return numbers.astype(np.min_scalar_type(np.max(numbers)), copy=False) if np.min(numbers) >= 0 else numbers
