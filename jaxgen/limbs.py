"""Sums in two limbs, in NumPy: how class sums of concrete sparse rows stay exact where float32 alone would round."""

from __future__ import annotations

from typing import Any

import numpy as np

# Sums that are added to others at a time: a quarter of a megabyte in each limb.
_STRETCH = 2**16
# Whole numbers are summed exactly in float32 while the sum is below this.
_MOST_EXACT = 2.0**24


def are_whole(values: np.ndarray) -> bool:
    """Whether all of them are whole numbers."""
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())


def product(columns: Any, weight: np.ndarray, *, whole: bool) -> tuple[np.ndarray, float]:
    """Σ_i w_i x_ij; in float64, except where float32 is exact: of whole numbers, while their sum is not too large.

    Weights in float32 are 0 or 1. Also returns the largest sum where float32 is exact, else infinity.
    """
    if np.result_type(columns, weight) != np.float32:
        return columns @ weight, np.inf
    if whole:
        total = columns @ weight
        largest = float(total.max())
        if largest < _MOST_EXACT:
            return total, largest
    return columns @ weight.astype(np.float64), np.inf


class LimbSum:
    """A sum in two limbs, of which the second stays zero while the first is exact without.

    Attributes:
        high: the first limb.
        low: the second, which must begin with zeros.
        largest: a bound of the sums; below 2^24 the first limb is exact, else the second counts too.
    """

    def __init__(self, high: np.ndarray, low: np.ndarray) -> None:
        """A sum that has not begun."""
        self.high, self.low, self.largest = high, low, -1.0

    def add(self, values: np.ndarray, largest: float = np.inf) -> None:
        """Add values, or begin with them; infinite where the sum overflows the limbs."""
        begun, self.largest = self.largest >= 0, max(self.largest, 0.0) + largest
        if begun and (self.largest < _MOST_EXACT or self.high.dtype == np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                self.high += values
        else:
            self._add_to_limbs(values, begun=begun)

    def merge(self, other: LimbSum) -> None:
        """Add another sum."""
        self.add(other.high, other.largest)
        if not other.largest < _MOST_EXACT:
            self.add(other.low)

    def _add_to_limbs(self, values: np.ndarray, *, begun: bool) -> None:
        for total, high, low in zip(_stretches(values), _stretches(self.high), _stretches(self.low), strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                if begun:
                    total = total.astype(np.float64) + high + low
                high[:] = total
                if total.dtype != high.dtype:
                    low[:] = total - high


def _stretches(values: np.ndarray) -> list[np.ndarray]:
    """A line in stretches: numbers between the steps stay in a cache, and take no memory beside the line."""
    return [values[first : first + _STRETCH] for first in range(0, len(values), _STRETCH)]
