"""Sums in two limbs, in NumPy: how class sums of concrete sparse rows stay exact where float32 alone would round."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# Sums that are added to others at a time: a quarter of a megabyte in each limb.
_STRETCH = 2**16
# Multiples of a number are summed exactly in float32 while the sum is below so many times that number.
_MOST_EXACT = 2.0**24
# Sums of multiples of less would hardly be exact.
_LEAST_GRAIN = 2.0**-8
# The bits of a float32 behind its leading one.
_FRACTION = 2**23 - 1


class Bound(NamedTuple):
    """What is known of sums in float32.

    Attributes:
        largest: none is above it.
        grain: a power of two that divides every term.
    """

    largest: float
    grain: float = 1.0

    @property
    def is_exact(self) -> bool:
        """Whether nothing was rounded."""
        return 0 <= self.largest < _MOST_EXACT * self.grain

    def plus(self, other: Bound) -> Bound:
        """Of what both add up to."""
        return Bound(self.largest + other.largest, min(self.grain, other.grain))


UNKNOWN = Bound(np.inf)


def grain(values: np.ndarray, least: float) -> float:
    """A power of two, 1 at most, that divides all values; 0 where it is too small to be of use.

    They are 0 or more, and `least` is the smallest of them. A float is a whole number of the last bit that is set in
    its significand: of counts up to 255 the result is 2⁻⁷ or more. To look at the bits of all together takes a quarter
    of the time of rounding each, which is left to where they say too little.
    """
    if values.dtype.kind != "f" or not values.size:
        return 1.0
    if values.dtype != np.float32:
        return 0.0
    bits = int(np.bitwise_or.reduce(values.view(np.uint32))) & _FRACTION
    last = (bits & -bits or _FRACTION + 1) / (_FRACTION + 1)
    least = least or float(values.min(where=values > 0, initial=np.inf))
    found = math.ldexp(last, math.frexp(least)[1] - 1)
    return min(found, 1.0) if found >= _LEAST_GRAIN else float(are_whole(values))


def are_whole(values: np.ndarray) -> bool:
    """Whether all values are whole numbers."""
    return values.dtype.kind != "f" or all(np.array_equal(np.rint(some), some) for some in _stretches(values))


class LimbSum:
    """A sum in two limbs, of which the second stays zero while the first is exact without.

    Attributes:
        high: the first limb.
        low: the second, which must begin with zeros.
        bound: of the sums; while they are exact in the first limb, the second stays zero.
        begun: whether the first limb has been written.
    """

    def __init__(self, high: np.ndarray, low: np.ndarray) -> None:
        """A sum that has not begun."""
        self.high, self.low, self.bound, self.begun = high, low, Bound(0.0), False

    def add(self, values: np.ndarray, bound: Bound = UNKNOWN) -> None:
        """Add values, or begin with them; infinite where the sum overflows the limbs."""
        begun, self.begun, self.bound = self.begun, True, self.bound.plus(bound)
        if begun and (self.bound.is_exact or self.high.dtype == np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                self.high += values
        else:
            self._add_to_limbs(values, begun=begun)

    def merge(self, other: LimbSum) -> None:
        """Add another sum."""
        self.add(other.high, other.bound)
        if not other.bound.is_exact:
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
