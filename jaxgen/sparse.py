"""Sparse rows in compiled programs: entries with the row and the column that each belongs to; never made dense."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.numerics import matmul
from jaxgen.pytree import STATIC, pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.labels import Labels


@pytree
@dataclass(frozen=True)
class SparseRows:
    """Entries of a sparse (n, d) matrix in groups that share a row. Entries outside the shape are ignored.

    Attributes:
        values: (groups, size).
        columns: (groups, size).
        rows: (groups,).
        shape: (n, d).
        window: entries that are read at a time.
        checked: whether every index is known to be inside the shape.
        unique: whether it is known that no place of the matrix has two entries, but zeros.
        binary: whether it is known that the values are 0 or 1.
    """

    values: Float[Array, "groups size"]
    columns: Int[Array, "groups size"]
    rows: Int[Array, " groups"]
    shape: tuple[int, int] = dataclasses.field(metadata=STATIC)
    window: int = dataclasses.field(default=2**14, metadata=STATIC)
    checked: bool = dataclasses.field(default=False, metadata=STATIC)
    unique: bool = dataclasses.field(default=False, metadata=STATIC)
    binary: bool = dataclasses.field(default=False, metadata=STATIC)

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def reading(self, window: int) -> SparseRows:
        """The same rows, read in windows of so many entries."""
        return dataclasses.replace(self, window=window)

    def summed(self) -> SparseRows:
        """The same matrix with one entry for each place: the first has the sum, and the others are zero."""
        if self.unique:
            return self
        rows = jnp.broadcast_to(self.rows[:, None], self.columns.shape).reshape(-1)
        entries = (rows, self.columns.reshape(-1).astype(rows.dtype), self.values.reshape(-1))
        rows, columns, values = lax.sort(entries, num_keys=2)
        first = jnp.append(True, (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1]))[: rows.shape[0]]
        place = jnp.cumsum(first, dtype=jnp.int32) - 1
        sums = jnp.zeros_like(values).at[place].add(values, mode="promise_in_bounds")
        values = jnp.where(first, sums.at[place].get(mode="promise_in_bounds"), 0)
        return dataclasses.replace(self, values=values[:, None], columns=columns[:, None], rows=rows, unique=True)

    def astype(self, dtype: Any) -> SparseRows:
        """The same rows with values of another dtype."""
        return self.map(lambda values: values.astype(dtype))

    def map(self, function: Callable[[Array], Array]) -> SparseRows:
        """The same entries with other values; zero must remain zero."""
        return dataclasses.replace(self, values=function(self.values), binary=False)

    def within(self, contains: Callable[[Array, Array], Array]) -> Bool[Array, ""]:
        """Whether a test holds of every value and its column."""
        # XLA takes twice as long for two axes as for one.
        return jnp.all(contains(self.values.reshape(-1), self.columns.reshape(-1)))

    def take(self, columns: np.ndarray) -> SparseRows:
        """Some of the columns, in this order; zeros stand where the others had entries."""
        x, place = self.inside(), np.full(self.shape[1], -1, np.int32)
        place[columns] = np.arange(len(columns))
        mine = jnp.asarray(place).at[x.columns].get(mode="promise_in_bounds")
        values, mine = jnp.where(mine >= 0, x.values, jnp.zeros_like(x.values)), jnp.maximum(mine, 0)
        return dataclasses.replace(x, values=values, columns=mine, shape=(self.shape[0], len(columns)))

    def dense(self) -> Float[Array, "n d"]:
        """The same as an array."""
        x = self.inside()
        empty = jnp.zeros_like(x.values, shape=x.shape)
        return empty.at[x.rows[:, None], x.columns].add(x.values, mode="promise_in_bounds")

    def inside(self) -> SparseRows:
        """The same matrix with harmless indices and the value zero for entries outside the shape."""
        if self.checked:
            return self
        n, d = self.shape
        exists = (self.rows >= 0) & (self.rows < n)
        present = exists[:, None] & (self.columns >= 0) & (self.columns < d)
        return dataclasses.replace(
            self,
            values=jnp.where(present, self.values, jnp.zeros_like(self.values)),
            columns=jnp.where(present, self.columns, 0).astype(jnp.int32),
            rows=jnp.where(exists, self.rows, 0).astype(jnp.int32),
            checked=True,
        )

    def row_sum(self, function: Callable[[Array], Array] = lambda terms: terms) -> Float[Array, " n"]:
        """Σ_j f(x_ij) over the entries of each row; f(0) must be 0."""
        per_group = jnp.sum(function(self.values), axis=1)
        return jnp.zeros(self.shape[0], per_group.dtype).at[self.rows].add(per_group, mode="promise_in_bounds")

    def class_sum(
        self, labels: Labels, part: Callable[[Array], Array] = lambda terms: terms
    ) -> Float[Array, "classes d"]:
        """Σ_i r_ik x_ij, or of a part of each term, by adding every one where it belongs."""
        d, table = self.shape[1], empty_table(self, labels)

        def add_hard(table: Array, x: SparseRows) -> Array:
            assert isinstance(labels, HardLabels)
            index = jnp.asarray(labels.index).at[x.rows].get(mode="promise_in_bounds")
            values = x.values
            if labels.weight is not None:
                values = labels.row_weight.at[x.rows].get(mode="promise_in_bounds")[:, None] * values
            return table.at[index[:, None] * d + x.columns].add(part(values), mode="promise_in_bounds")

        def add_soft(table: Array, x: SparseRows) -> Array:
            responsibilities = labels.dense().at[x.rows].get(mode="promise_in_bounds")
            terms = x.values[:, :, None] * responsibilities[:, None, :]
            return table.at[x.columns].add(part(terms), mode="promise_in_bounds")

        hard = isinstance(labels, HardLabels)
        window = self.window if hard else self.window // 8
        return class_table(self._scan(add_hard if hard else add_soft, table, window), labels)

    def matmul(
        self, table: Float[Array, "d classes"], encode: Callable[[Any], Any] = lambda x: x
    ) -> Float[Array, "n classes"]:
        """The product of what they are encoded as with a dense matrix."""

        def term(values: Array, columns: Array, rows: Array) -> Array:
            return values[:, None] * table.at[columns].get(mode="promise_in_bounds")

        return self.row_sums(term, table.shape[1], table.dtype, encode)

    def row_sums(
        self,
        term: Callable[[Array, Array, Array], Array],
        width: int,
        dtype: Any,
        encode: Callable[[Any], Any] = lambda x: x,
    ) -> Float[Array, "n width"]:
        """Σ_j f(x_ij, j, i) over the entries of each row.

        Args:
            term: f, of values, columns and rows of entries (m,), to (m, width); of the value 0 it must be 0.
            width: how many sums a row has.
            dtype: of the sums.
            encode: what becomes of the rows, from which the values come; zero must remain zero.
        """

        def add(total: Array, x: SparseRows) -> Array:
            x = encode(x)  # of a window, which is in a cache: of all at once 14 ms of 59
            part = jnp.zeros((x.rows.shape[0], width), dtype)
            for i in range(x.values.shape[1]):
                part += term(x.values[:, i], x.columns[:, i], x.rows)
            return total.at[x.rows].add(part, mode="promise_in_bounds")

        return self._scan(add, jnp.zeros_like(self.values, dtype, shape=(self.shape[0], width)), self.window)

    def _scan(self, add: Callable[[Array, SparseRows], Array], start: Array, window: int) -> Array:
        """`add` over windows of entries, one after the other."""
        groups, size = self.values.shape
        step = min(groups, max(window // size, 1))
        if groups == 0:
            return start

        def part(first: Any, count: int) -> SparseRows:
            leaves, tree = jax.tree.flatten(self)
            return jax.tree.unflatten(tree, [lax.dynamic_slice_in_dim(leaf, first, count) for leaf in leaves])

        whole = groups // step
        firsts = step * jnp.arange(whole, dtype=jnp.int32)
        total, _ = lax.scan(lambda total, first: (add(total, part(first, step)), None), start, firsts)
        return add(total, part(whole * step, groups % step)) if groups % step else total


@partial(jax.jit, static_argnames="size")
def row_of_each(starts: Int[Array, " n_and_one"], size: int) -> Int[Array, " size"]:
    """The row of each of so many entries, by where each row begins and the last one ends; n for what lies behind."""
    # How many rows have ended before it: a search for each entry takes six times as long, on a GPU twenty.
    return jnp.cumsum(jnp.zeros(size, jnp.int32).at[starts[1:]].add(1, mode="drop"), dtype=jnp.int32)


def empty_table(x: SparseRows, labels: Labels) -> Array:
    """Zeros to add entries to: flat with a place for absent rows, or a row for each feature under soft labels."""
    num_features = x.shape[1]
    if isinstance(labels, HardLabels):
        cells = (labels.num_classes + 2) * num_features
        if cells >= 2**31:
            raise ValueError(
                f"a table of (K + 2)·d cells must have fewer than 2^31 under a trace; found K = {labels.num_classes} "
                f"classes and d = {num_features} features. Give a concrete matrix outside jit, or hash the features."
            )
        return jnp.zeros_like(x.values, shape=cells)
    return jnp.zeros_like(x.values, shape=(num_features, labels.num_classes))


def class_table(table: Array, labels: Labels) -> Float[Array, "classes d"]:
    """The sums by class in a table of `empty_table`."""
    if isinstance(labels, HardLabels):
        return table.reshape(labels.num_classes + 2, -1)[: labels.num_classes]
    return table.T


def product(
    x: Array | SparseRows, table: Float[Array, "d classes"], encode: Callable[[Any], Any] = lambda x: x
) -> Float[Array, "n classes"]:
    """What x is encoded as times a table, for dense or sparse x."""
    return x.matmul(table, encode) if isinstance(x, SparseRows) else matmul(encode(x), table)


def row_sum(function: Callable[[Array], Array], x: Array | SparseRows) -> Float[Array, " n"]:
    """Σ_j f(x_ij) of each row, for dense or sparse x; f(0) must be 0."""
    return x.summed().row_sum(function) if isinstance(x, SparseRows) else jnp.sum(function(x), axis=-1)


def summed(x: Any) -> Any:
    """Rows, with one entry for each place where they are sparse."""
    return x.summed() if isinstance(x, SparseRows) else x
