"""What the rows of each class of a concrete sparse matrix add up to, on a CPU: by scipy's loops, on every core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxgen import host_arrays, threads
from jaxgen.class_parts import AllAtOnce, ClassByClass, parts_of
from jaxgen.limbs import LimbSum, grain
from jaxgen.numerics import working_dtype
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxgen.compressed import CompressedRows
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels


class Sums(NamedTuple):
    """What the rows of a matrix add up to.

    Attributes:
        class_weight: Σ_i r_ik, (K,).
        feature_sum: Σ_i r_ik f(x_ij), (K, d).
        bad: whether a value is outside its domain, or a sum overflows.
    """

    class_weight: Total
    feature_sum: Total
    bad: bool


class _Task(NamedTuple):
    """Some rows of a part, for one core; the sums that it adds them to; and those of the part, maybe the same."""

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
    """The sums of features by class, in the working dtype, from pieces of so many entries or more.

    `binary` says that features are 0 or 1 where x is in its domain.
    """
    d, dtype = x.shape[1], working_dtype(x.dtype)
    parts = parts_of(x, labels, dtype)
    piece_rows, task_rows = _sizes(x, parts, entries)
    result = _Table.empty(labels.num_classes, d, dtype)
    tasks = []
    for part in parts:
        own = _Table(*(limb[part.classes] for limb in result))
        into = own.sums(part)
        for i, some in enumerate(part.cut(task_rows)):  # the first adds to the result, others to sums beside it
            tasks.append(_Task(some, _Table.empty(len(own.high), d, dtype).sums(part) if i else into, into))

    def add_up(task: _Task) -> tuple[np.ndarray, bool]:
        bad = False
        for piece in task.part.cut(piece_rows):
            block = x.at(piece.rows)
            if block.dtype.kind == "f":
                block = block.astype(dtype)
            counted = encode(block)
            bad |= not domain.holds(block.values, block.least if counted is block else None)
            products = piece.products(counted, 1.0 if binary else grain(counted.values, counted.least))
            for total, (values, bound) in zip(task.sums, products, strict=True):
                total.add(values, bound)
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
    weight_high, weight_low, high, low = jax.device_put((*limbs, *result))
    return Sums(Total(weight_high, weight_low), Total(high, low), bad)


def _sizes(x: CompressedRows, parts: Sequence[ClassByClass | AllAtOnce], entries: int) -> tuple[int, int]:
    """The rows of a piece and of a task, at least.

    All cells of a sum are looked at, for each piece: it must be worth that. So must a task, whose sums take memory as
    well, where there are more of them than cores.
    """
    n, d = x.shape
    first = parts[0]
    cells = d * (first.classes.stop - first.classes.start) // first.num_sums
    each, rows = max(x.num_entries, 1) / n, sum(len(part.rows) for part in parts)
    worth = max(entries, 2 * cells) / each
    piece = max(int(worth), 1)
    if len(parts) == 1:
        return piece, max(rows // threads.cores(), int(worth / 4), 1)
    return piece, max(rows // (2 * threads.cores()), piece)
