"""Rows that are taken away from statistics one at a time: what each holds, in two limbs, and a share for every core."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import chunks, platform, threads
from jaxgen.classifier import log_prior
from jaxgen.compressed import CompressedRows
from jaxgen.numerics import drop_impossible
from jaxgen.total import Total
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float, Int

    from jaxgen.counts import CountingEstimator
    from jaxgen.folds import Rows

# Numbers of rows, sparse ones filled up to one length, that a core takes at a time.
_NUMBERS = 2**20
# Rows × words of the longest × classes up to which rows are filled up to that one. More take longer than it takes to
# compile a program for each length: of 4,000 rows of 10 words and one of 30,000, in ten classes, 26 s and 0.06.
_FEW_CELLS = 2**26


class Row(NamedTuple):
    """A row, or a stack of them, with the class that it is taken away from.

    Attributes:
        x: (d,); of a sparse one where its entries begin, and how many there are.
        y: its label.
        weight: in two limbs.
    """

    x: Any
    y: Any
    weight: Total

    @classmethod
    def of(cls, rows: Rows, dtype: np.dtype) -> Row:
        """Those of rows, sparse ones of scipy."""
        starts = rows.x.indptr.astype(np.int32) if rows.is_sparse else None
        x = rows.x if starts is None else (starts[:-1], np.diff(starts))
        weight = np.ones(len(rows.y)) if rows.sample_weight is None else np.asarray(rows.sample_weight, np.float64)
        return cls(x, rows.y.astype(np.int32), in_limbs(weight, dtype))


class Entries(NamedTuple):
    """The entries of all sparse rows, one row after the other, and as many behind them as the longest row has.

    Attributes:
        values: of x, (m,).
        columns: of each, (m,).
        counted: what each adds to the sums, (m,) in two limbs.
        longest: indices of the entries of the longest row, from where it begins.
    """

    values: Any
    columns: Any
    counted: Total
    longest: np.ndarray

    @classmethod
    def of(cls, x: CompressedRows, counted: np.ndarray) -> Entries:
        """Those of rows, and what they add to the sums in float64."""
        if x.num_entries + x.num_columns >= 2**31:
            raise ValueError(
                "x must have fewer than 2^31 entries and columns for folds='leave-one-out'; found "
                f"{x.num_entries + x.num_columns}. Give a number of folds."
            )
        longest = np.arange(np.diff(x.starts.astype(np.int64)).max(initial=1), dtype=np.int32)
        entries = cls(x.values, x.columns.astype(np.int32), in_limbs(counted, x.dtype), longest[:0])
        filled_up = jax.tree.map(lambda array: jnp.asarray(np.pad(array, (0, len(longest)))), entries)
        return filled_up._replace(longest=longest)

    def of_row(self, start: Array, count: Array) -> tuple[Array, Array, Array, Total]:
        """Which are entries of one row, their columns, x there and what each adds; behind them zeros of column 0."""
        mine = jnp.less(self.longest, count)

        def own(entries: Array) -> Array:
            return jnp.where(mine, entries[start + self.longest], 0)

        return mine, own(self.columns), own(self.values), jax.tree.map(own, self.counted)


def as_summed(estimator: CountingEstimator[Any], rows: Rows, dtype: np.dtype) -> tuple[CompressedRows, np.ndarray]:
    """Sparse rows of scipy in the dtype in which they were summed, and what each entry added, in float64."""
    x = CompressedRows.of(rows.x)
    if x.dtype.kind == "f" or estimator.binary:  # as `class_sums` rounds them
        x = x.astype(dtype)
    added = estimator.encode(x).values.astype(np.float64)
    if rows.sample_weight is not None:
        added = added * np.asarray(rows.sample_weight, np.float64)[x.rows]
    return x.astype(dtype), added


def in_limbs(numbers: np.ndarray, dtype: np.dtype) -> Total:
    """Numbers of float64 in two limbs of a dtype."""
    high = numbers.astype(dtype)
    return Total(high, (numbers - high).astype(dtype))  # pyright: ignore[reportArgumentType]


def less(whole: Total, part: Total) -> Total:
    """What remains of sums when part of them is taken away: fractions were summed in two limbs, or in float64."""
    eps = float(jnp.finfo(whole.high.dtype).eps)
    return whole.subtract(part, rounding=max(64 * eps**2, 8 * float(np.finfo(np.float64).eps)))


def log_prior_without_each(class_weight: Total, rows: Row, prior_alpha: Array | float) -> Float[Array, "n classes"]:
    """The log prior that the others give, for each row."""
    rest = less(jax.tree.map(lambda limb: limb[rows.y], class_weight), rows.weight).value
    own = jnp.arange(class_weight.high.shape[0], dtype=jnp.int32)[None] == jnp.asarray(rows.y)[:, None]
    return jax.vmap(log_prior, (0, None))(jnp.where(own, rest[:, None], class_weight.value[None]), prior_alpha)


def of_class(estimator: CountingEstimator[Any], y: Array, num_classes: int) -> CountingEstimator[Any]:
    """The estimator with the pseudo-counts of one class."""

    def mine(number: Array) -> Array:
        by_class = jnp.ndim(number) == 2 and number.shape[0] == num_classes
        return jnp.asarray(number)[y][None] if by_class else number

    return jax.tree.map(mine, estimator)


def joint_without_each(
    posterior: Float[Array, "n classes"],
    prior: Float[Array, " classes"],
    class_weight: Total,
    rows: Row,
    prior_alpha: Array | float,
) -> Float[Array, "n classes"]:
    """The log posterior by all rows, with the prior that the others give in place of that in it, for each row."""
    return log_prior_without_each(class_weight, rows, prior_alpha) + (posterior - drop_impossible(prior)[None])


def over_all(
    program: Callable[[Any], Array], rows: Any, num_rows: int, *, length: int, where: tuple[Any, ...]
) -> Array:
    """The results of a program for all rows; on a CPU for some at a time, so that every core has a share.

    Args:
        program: from rows to arrays with an entry each.
        rows: arrays that share their leading axis.
        num_rows: of them.
        length: numbers that a row takes.
        where: what the program runs on besides.
    """
    if is_traced(where) or platform.platform_of(where) != "cpu":
        return program(rows)
    rows = jax.tree.map(np.asarray, rows)
    places = chunks.pieces(num_rows, min(-(-num_rows // threads.cores()), max(1, _NUMBERS // length)))

    def of_place(place: slice) -> tuple[Array, bool]:
        return program(jax.tree.map(lambda array: array[place], rows)), False

    return chunks.gather(of_place, places, places, num_rows)[0]


def by_length(
    program: Callable[..., Array],
    entries: Entries,
    leaving: Any,
    lengths: Int[np.ndarray, " n"],
    looked_at: int,
    where: tuple[Any, ...],
) -> Float[Array, "n classes"]:
    """The results of a program for all rows; where it pays, for those of about one length at a time.

    Args:
        program: from entries, and rows, to arrays with an entry each; a keyword is how many it takes at a time.
        entries: of all rows.
        leaving: the rows, arrays that share their leading axis.
        lengths: how many entries each has.
        looked_at: numbers that are looked at for each entry.
        where: what the program runs on besides.
    """
    level = np.zeros(len(lengths))
    if int(lengths.max(initial=1)) * len(lengths) * looked_at > _FEW_CELLS:
        level = np.ceil(np.log2(np.maximum(lengths, 1)) / 3)
    groups = [np.flatnonzero(level == each) for each in np.unique(level)]
    tuning, found = platform.tuning_of(where[1]) or platform.CPU, []
    for mine in groups:
        length = int(lengths[mine].max(initial=1))
        some = entries._replace(longest=entries.longest[:length])
        block = max(1, tuning.fold_elements // (2 * length * looked_at))
        own = jax.tree.map(lambda leaf, mine=mine: leaf[mine], leaving)
        found.append(over_all(partial(program, some, block=block), own, len(mine), length=length, where=where))
    return jnp.concatenate(found)[np.argsort(np.concatenate(groups)).astype(np.int32)]
