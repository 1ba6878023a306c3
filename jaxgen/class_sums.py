"""What the rows of each class of a concrete sparse matrix add up to, on a CPU: by scipy's loops, on every core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxgen import host_arrays, threads
from jaxgen.class_parts import AllAtOnce, ClassByClass, parts_of, slices
from jaxgen.limbs import UNKNOWN, Bound, LimbSum, are_whole, grain
from jaxgen.numerics import working_dtype
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels


class Sums(NamedTuple):
    """What the rows of a matrix add up to, as arrays of NumPy.

    Attributes:
        class_weight: Σ_i r_ik, (K,).
        feature_sum: Σ_i r_ik f(x_ij), (K, d).
        bad: whether a value is outside its domain, or a sum overflows.
    """

    class_weight: Total
    feature_sum: Total
    bad: bool


class _Reader(NamedTuple):
    """How the rows of a matrix are read: a stretch at a time, which stays in a cache while it is looked at and added.

    Attributes:
        x: the matrix.
        encode: what is summed of it.
        domain: what it may hold.
        binary: whether what is summed is 0 or 1 where x is in its domain.
        dtype: the working dtype.
        num_rows: of a stretch, at least.
    """

    x: CompressedRows
    encode: Callable[[Any], Any]
    domain: Domain
    binary: bool
    dtype: np.dtype
    num_rows: int

    def sums(self, part: ClassByClass | AllAtOnce) -> tuple[list[np.ndarray], list[Bound], bool]:
        """The sums of a part, with a bound of each, and whether a value is bad.

        They are made in float64, except where float32 is exact: of multiples of a grain, while no sum is too large.
        """
        if np.result_type(self.dtype if self.x.dtype.kind == "f" else self.x.dtype, part.dtype) == np.float32:
            totals, finest, bad = self._add_up(part, np.float32)
            largest = _largest(totals)
            # The bits of all values together say too little of large sums: a grain of 1 is worth another look.
            if finest and not _are_exact(largest, finest) and _are_exact(largest, 1.0) and self._are_whole(part):
                finest = 1.0
            if _are_exact(largest, finest):
                return totals, [Bound(most, finest) for most in largest], bad
        totals, _, bad = self._add_up(part, np.float64)
        return totals, [UNKNOWN] * len(totals), bad

    def _add_up(self, part: ClassByClass | AllAtOnce, form: type) -> tuple[list[np.ndarray], float, bool]:
        """The sums in this dtype; the grain, 0 if there is none; and whether a value is bad.

        In float32 it stops at a fraction, maybe with no sum at all, and soon after a sum that is too large to be exact:
        then nothing of the result is to be used, but the bounds of its sums, which say so.
        """
        single, places = form is np.float32, slices(len(part.rows), self.num_rows)
        totals, finest, bad = [], 1.0, False
        for number, place in enumerate(places, 1):
            block = self.x.at(part.rows[place])
            if block.dtype.kind == "f" or self.binary:  # a threshold is compared with what scores compare it with
                block = block.astype(self.dtype)
            counted = self.encode(block)
            bad |= not self.domain.holds(block.values, block.least if counted is block else None)
            if single and not self.binary:
                finest = min(finest, grain(counted.values, counted.least))
            if not finest:
                break
            totals = part.add(counted.astype(form), place, totals)
            # Looked at after 1, 2, 4, 8 … stretches: no more of them are added in vain than are needed to see it.
            if single and 2 * number <= len(places) and not number & (number - 1):
                largest = _largest(totals)
                if not _are_exact(largest, finest) and not (_are_exact(largest, 1.0) and are_whole(counted.values)):
                    break
        return totals, finest, bad

    def _are_whole(self, part: ClassByClass | AllAtOnce) -> bool:
        """Whether what is summed are whole numbers, each looked at by itself."""
        blocks = (self.x.at(part.rows[place]) for place in slices(len(part.rows), self.num_rows))
        return all(are_whole(self.encode(block).values) for block in blocks)


def _largest(totals: list[np.ndarray]) -> list[float]:
    return [float(total.max()) for total in totals]


def _are_exact(largest: list[float], finest: float) -> bool:
    """Whether all sums of multiples of a grain are, of which these are the largest; sums never begun are not."""
    return len(largest) > 0 and all(Bound(most, finest).is_exact for most in largest)


class _Task(NamedTuple):
    """Some rows of a part, for one core; the sums that it begins with them; and those of the part, maybe the same."""

    part: ClassByClass | AllAtOnce
    sums: list[LimbSum]
    into: list[LimbSum]


class _Table(NamedTuple):
    """Two limbs for the sums of some classes, (classes, d)."""

    high: np.ndarray
    low: np.ndarray

    @classmethod
    def empty(cls, classes: int, d: int, dtype: np.dtype) -> _Table:
        """Room for sums that have not begun."""
        return cls(host_arrays.aligned((classes, d), dtype), host_arrays.aligned((classes, d), dtype, zero=True))

    def sums(self, part: ClassByClass | AllAtOnce) -> list[LimbSum]:
        """What a part adds to."""
        limbs = (limb.reshape(part.num_sums, -1) for limb in self)
        return [LimbSum(*pair) for pair in zip(*limbs, strict=True)]


def class_sums(
    x: CompressedRows, labels: Labels, encode: Callable[[Any], Any], domain: Domain, *, binary: bool, entries: int
) -> Sums:
    """The sums of features by class, in the working dtype, from stretches of so many entries or more.

    `binary` says that features are 0 or 1 where x is in its domain.
    """
    d, dtype = x.shape[1], working_dtype(x.dtype)
    parts = parts_of(x, labels, dtype)
    stretch, task_rows = _sizes(x, parts, entries)
    reader = _Reader(x, encode, domain, binary, dtype, stretch)
    result = _Table.empty(labels.num_classes, d, dtype)
    tasks = []
    for part in parts:
        own = _Table(*(limb[part.classes] for limb in result))
        into = own.sums(part)
        for i, some in enumerate(part.cut(task_rows)):  # the first adds to the result, others to sums beside it
            tasks.append(_Task(some, _Table.empty(len(own.high), d, dtype).sums(part) if i else into, into))

    def add_up(task: _Task) -> tuple[np.ndarray, bool]:
        totals, bounds, bad = reader.sums(task.part)
        for limb_sum, total, bound in zip(task.sums, totals, bounds, strict=True):
            limb_sum.add(total, bound)
        return task.part.class_weight, bad

    weight = np.zeros(labels.num_classes)
    bad = False
    for task, (part_weight, part_bad) in zip(tasks, threads.over(add_up, tasks), strict=True):
        weight[task.part.classes] += part_weight
        bad |= part_bad
        if task.sums is not task.into:
            for total, other in zip(task.into, task.sums, strict=True):
                total.merge(other)
    limbs = np.zeros((2, labels.num_classes), dtype)
    LimbSum(*limbs).add(weight)
    bad |= not (result.high.max() < np.inf and limbs[0].max() < np.inf)
    return Sums(_total(limbs), _total(result), bad)


def _total(limbs: Any) -> Total:
    """Two limbs of NumPy, which a program takes as it takes those of JAX."""
    return Total(*limbs)


def _sizes(x: CompressedRows, parts: Sequence[ClassByClass | AllAtOnce], entries: int) -> tuple[int, int]:
    """The rows of a stretch and of a task, at least.

    All cells of a sum are looked at, for each task: it must be worth that, and the memory that its own sums take. Where
    sums are several they take turns in the cache, once a stretch. One alone stays there, beside a stretch that is half
    as long: a fit of 20 classes takes 9.6 ms so, and 10.7 in stretches that are worth their cells.
    """
    n, d = x.shape
    first = parts[0]
    cells = d * (first.classes.stop - first.classes.start) // first.num_sums
    each, rows = max(x.num_entries, 1) / n, sum(len(part.rows) for part in parts)
    worth = max(entries, 2 * cells) / each
    stretch = max(int(entries / 2 / each if first.num_sums == 1 else worth), 1)
    if len(parts) == 1:
        return stretch, max(rows // threads.cores(), int(worth / 4), 1)
    return stretch, max(rows // (2 * threads.cores()), stretch)
