"""Eager calls on compressed rows: chunk by chunk on all cores of a CPU, so that memory stays that of the data.

A chunk is a slice of the arrays of NumPy where they lie. All chunks have one size, hence one compiled program, also for
other data of about as many nonzeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import shares
from jaxgen.labels import HardLabels
from jaxgen.numerics import Total

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from jaxgen.labels import Labels
    from jaxgen.sparse import Chunk, HostRows

# Nonzeros of a chunk: 2 MiB each of values and columns, few enough for a cache and many enough to be worth a call.
_ENTRIES = 2**19
# Whole numbers are summed exactly in float32 while the sum is below 2^24. Of fractions a cell may take so many.
_MOST_MASS = 2.0**24
_MOST_FRACTIONS = 2**13
# Up to so many classes, adding each nonzero to its row costs less than gathering groups of them.
_FEW_CLASSES = 8


@dataclass(frozen=True)
class Plan:
    """Boundaries between chunks of about as many nonzeros, and the size that holds any of them."""

    bounds: np.ndarray
    num_rows: int
    num_entries: int

    @classmethod
    def of(cls, x: HostRows) -> Plan:
        """The plan for a matrix."""
        n, total = x.shape[0], int(x.starts[-1])
        count = max(-(-total // _ENTRIES), -(-n // _ENTRIES), 1)
        by_entries = np.searchsorted(x.starts, np.linspace(0, total, count + 1)[1:-1])
        # Rows without nonzeros make many rows of few: no chunk has more than twice its share.
        by_rows = np.arange(1, -(-n // -(-2 * n // count))) * -(-2 * n // count) if count > 1 else []
        bounds = np.unique(np.concatenate([[0], by_entries, by_rows, [n]]).astype(np.int64))
        rows, entries = np.diff(bounds).max(), np.diff(x.starts[bounds].astype(np.int64)).max()
        return cls(bounds, _rounded(int(rows)), _rounded(max(int(entries), 8)))

    def __len__(self) -> int:
        return len(self.bounds) - 1


def _rounded(size: int) -> int:
    """The next number with four significant bits: few sizes, hence few compilations."""
    unit = 1 << max(size.bit_length() - 4, 0)
    return -(-size // unit) * unit


def feature_sum(
    add: Callable[..., tuple[Array, Array]], x: HostRows, labels: Labels, *, binary: bool
) -> tuple[Total, bool]:
    """Σ_i r_ik x_ij by adding chunks to a table, and whether something in x was bad.

    Args:
        add: `add(table, chunk, labels) -> (table, bad)`, where a table of None begins one of its own.
        x: the rows.
        labels: their labels.
        binary: whether an entry counts at most once, whatever its value.
    """
    plan = Plan.of(x)
    cells = labels.num_classes * x.shape[1]
    # Each lane has a table: worth it where the nonzeros are many more than its cells.
    lanes = max(1, min(shares.cores(), len(plan), int(x.starts[-1]) // (2 * cells)))
    heaviest = _heaviest(labels)
    by_class = no_labels = None
    if isinstance(labels, HardLabels) and labels.weight is None:
        # The rows of a class add up like one long row: entries numbered by their class need no look-up.
        by_class = np.asarray(labels.index).astype(np.min_scalar_type(labels.num_classes + 1))
        no_labels: Any = HardLabels(np.zeros(0, np.int32), None, labels.num_classes)

    def mass_of(first: int, last: int) -> float:
        """What the rows add to the table at most. A whole number where they are, and hardly ever where they are not."""
        values = x.values[x.starts[first] : x.starts[last]]
        return heaviest * (float(len(values)) if binary else float(values.sum(dtype=np.float64)))

    def lane(number: int) -> tuple[Total | None, bool]:
        total: Total | None = None
        table: Any = None
        mass, rows = 0.0, 0
        bad = False
        for i in range(number, len(plan), lanes):
            for first, last, own in _parts(mass_of, int(plan.bounds[i]), int(plan.bounds[i + 1])):
                crowded = rows + last - first > _MOST_FRACTIONS and (mass + own) % 1 > 0
                if table is not None and (mass + own >= _MOST_MASS or crowded):
                    total, table, mass, rows = _merged(total, table), None, 0.0, 0
                if by_class is not None:
                    num_owners, owner = labels.num_classes + 1, by_class[first:last]
                    chunk = x.chunk(first, last, num_owners, plan.num_entries, owner=owner)
                    table, wrong = add(table, chunk, no_labels)
                else:
                    chunk = x.chunk(first, last, plan.num_rows, plan.num_entries)
                    part = _slice_labels(labels, first, last, plan.num_rows)
                    table, wrong = add(table, chunk, part)
                # Looked at before the arrays of the chunk go: the program reads them where they lie.
                bad |= bool(wrong)
                mass, rows = mass + own, rows + last - first
        return (total if table is None else _merged(total, table)), bad

    results = shares.over(lane, range(lanes))
    total = results[0][0]
    for other, _ in results[1:]:
        total = _merge(total, other)
    assert total is not None
    return total, any(bad for _, bad in results)


def _parts(mass_of: Callable[[int, int], float], first: int, last: int) -> list[tuple[int, int, float]]:
    """The rows of a chunk, in as few parts as the rounding of their sums allows, with the sum of each."""
    mass = mass_of(first, last)
    if mass >= _MOST_MASS and last - first > 1:
        middle = (first + last) // 2
        return _parts(mass_of, first, middle) + _parts(mass_of, middle, last)
    if mass % 1 == 0 or last - first <= _MOST_FRACTIONS:
        return [(first, last, mass)]
    bounds = [*range(first, last, _MOST_FRACTIONS), last]
    return [(a, b, mass_of(a, b)) for a, b in pairwise(bounds)]


@jax.jit
def _merge(a: Total, b: Total) -> Total:
    return a.merge(b)


def _merged(total: Total | None, table: Array) -> Total:
    return Total.of(table) if total is None else _merge(total, Total.of(table))


def _heaviest(labels: Labels) -> float:
    """An upper bound of the weight of one row in one class; not a whole number where some weight is none."""
    bound = 1.0
    for leaf in (labels.weight, getattr(labels, "responsibilities", None)):
        if leaf is not None:
            weight = np.asarray(leaf, np.float64)
            bound *= float(weight.max(initial=0.0)) if (weight % 1 == 0).all() else np.ceil(weight.max()) + 0.5
    return bound


def _slice_labels(labels: Labels, first: int, last: int, num_rows: int) -> Labels:
    """The labels of some rows, in arrays of a fixed size; what is padded is never read."""

    def part(leaf: Any) -> np.ndarray:
        own = np.asarray(leaf)[first:last]
        return np.pad(own, [(0, num_rows + 1 - (last - first)), *[(0, 0)] * (own.ndim - 1)])

    return jax.tree.map(part, labels)


def score(program: Callable[[Chunk], tuple[Array, Array]], x: HostRows, num_classes: int) -> tuple[Array, bool]:
    """The result of `program(chunk)` for all rows, and whether something in x was bad."""
    plan = Plan.of(x)
    grouped = num_classes > _FEW_CLASSES
    places = [slice(int(first), int(last)) for first, last in pairwise(plan.bounds)]

    def of_rows(rows: slice) -> tuple[Array, Array]:
        return program(x.chunk(rows.start, rows.stop, plan.num_rows, plan.num_entries, grouped=grouped))

    return shares.gather(of_rows, places, places, x.shape[0])
