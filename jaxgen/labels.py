"""Labels and weights in one form: what the families sum over, knowing neither.

Row i belongs to class k with responsibility r_ik ≥ 0. Hard labels are the case where one r_ik per row is the row's
weight and the others are zero; they are kept as class indices. Zero weight is absence.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.numerics import einsum
from jaxgen.pytree import STATIC, pytree

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array
    from jaxtyping import Bool, Float, Int, Num

    from jaxgen.platform import Tuning

# Beyond so many classes one-hot rows outgrow the data, on any platform.
_MOST_ONE_HOT = 256
# Of so few rows a product is as good as a scatter-add, and far better where many fits are vmapped.
FEW_ROWS = 512


@pytree
@dataclass(frozen=True)
class HardLabels:
    """One class a row, with a weight; `weight=None` counts every row once.

    `checked` labels have no weight and were seen to name a class each, so that no program looks at them again.
    """

    index: Int[Array | np.ndarray, " n"]
    weight: Num[Array | np.ndarray, " n"] | None
    num_classes: int = dataclasses.field(metadata=STATIC)
    checked: bool = dataclasses.field(default=False, metadata=STATIC)
    tuning: Tuning = dataclasses.field(default=platform.ACCELERATOR, metadata=STATIC)
    dtype: np.dtype | None = dataclasses.field(default=None, metadata=STATIC)

    def prepare(self, dtype: np.dtype, tuning: Tuning = platform.ACCELERATOR) -> HardLabels:
        """The same labels ready for sums in `dtype`. Absent rows are of class K, impossible labels of class K + 1."""
        index = jnp.asarray(self.index)
        if index.dtype.itemsize < 4:  # K itself may not fit
            index = index.astype(jnp.int32)
        weight = None if self.weight is None else jnp.asarray(self.weight).astype(dtype)
        if not self.checked:
            exists = (index >= 0) & (index < self.num_classes)
            # With a weight, which is NaN then, an impossible label need not say so itself.
            index = jnp.where(exists, index, self.num_classes + (weight is None))
            weight = None if weight is None else jnp.where((exists & (weight > 0)) | (weight == 0), weight, jnp.nan)
        index = index.astype(jnp.int32)
        return HardLabels(index, weight, self.num_classes, self.checked, tuning, np.dtype(dtype))

    @property
    def row_width(self) -> int:
        """Numbers that a row takes in sums by class: one for each class where rows may be made one-hot, else one."""
        return self.num_classes if self.num_classes <= _MOST_ONE_HOT else 1

    @property
    def sums_by_matmul(self) -> bool:
        """Whether sums by class are products with one-hot rows."""
        few = jnp.asarray(self.index).shape[0] <= FEW_ROWS
        return (few or self.tuning.class_sum == "matmul") and self.num_classes <= _MOST_ONE_HOT

    @property
    def row_weight(self) -> Float[Array, " n"]:
        """Σ_k r_ik."""
        if self.weight is not None:
            return jnp.asarray(self.weight)
        index = jnp.asarray(self.index)
        counted = (index < self.num_classes).astype(self.dtype)
        return counted if self.checked else jnp.where(index > self.num_classes, jnp.nan, counted)

    def widen(self, rows: Float[Array, "n d"]) -> Float[Array, "n wide"]:
        """Rows with columns of zeros, up to a number of them that is quickly scattered, where sums are."""
        return rows if self.sums_by_matmul else jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % self.tuning.scatter_width)))

    def class_sum(self, values: Float[Array, "n ..."]) -> Float[Array, "classes ..."]:
        """Σ_i r_ik v_i."""
        if self.sums_by_matmul:
            return einsum("nk,n...->k...", self.dense(), values)
        if self.weight is not None:
            values = self.row_weight.reshape(-1, *(1,) * (values.ndim - 1)) * values
        table = jnp.zeros((self.num_classes + 2, *values.shape[1:]), values.dtype)
        return table.at[self.index].add(values, mode="promise_in_bounds")[: self.num_classes]

    def class_weight(self) -> Float[Array, " classes"]:
        """Σ_i r_ik."""
        return self.class_sum(jnp.ones(jnp.asarray(self.index).shape, self.dtype))

    def by_class(self) -> tuple[Int[Array, " n"], Int[Array, " classes_and_one"]]:
        """The rows in the order of their classes, and where in it each class begins and the last one ends."""
        index, n = jnp.asarray(self.index), jnp.asarray(self.index).shape[0]
        if self.tuning.sort == "compare":
            ordered, order = lax.sort_key_val(index, jnp.arange(n, dtype=jnp.int32))
            classes = jnp.arange(self.num_classes + 1, dtype=jnp.int32)
            return order, jnp.searchsorted(ordered, classes, method="scan_unrolled").astype(jnp.int32)
        counts = jnp.zeros(self.num_classes + 2, jnp.int32).at[index].add(1, mode="promise_in_bounds")
        first = jnp.cumsum(counts, dtype=jnp.int32) - counts

        def place(row: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            following, order = state
            label = index[row]
            # A number of Python where jit is turned off.
            return following.at[label].add(1), order.at[following[label]].set(jnp.asarray(row, jnp.int32))

        return lax.fori_loop(0, n, place, (first, jnp.zeros_like(index)))[1], first[:-1]

    def first_rows(self) -> Int[Array, " classes"]:
        """The first row of each class that is present; n for a class that has none."""
        n = jnp.asarray(self.index).shape[0]
        row = jnp.arange(n, dtype=jnp.int32)
        if self.weight is not None:
            row = jnp.where(self.row_weight > 0, row, n)
        if self.sums_by_matmul:
            mine = jnp.asarray(self.index)[:, None] == jnp.arange(self.num_classes, dtype=jnp.int32)[None]
            return jnp.min(jnp.where(mine, row[:, None], n), axis=0)
        table = jnp.full(self.num_classes + 2, n, jnp.int32)
        return table.at[self.index].min(row, mode="promise_in_bounds")[: self.num_classes]

    def expand(self, table: Float[Array, "classes ..."]) -> Float[Array, "n ..."]:
        """Each row's own entry of a table of classes."""
        return table.at[self.index].get(mode="clip")

    def drop(self, rows: Bool[Array, " n"]) -> HardLabels:
        """The same labels with some rows absent."""
        if self.weight is None:
            return dataclasses.replace(self, index=jnp.where(rows, self.num_classes, self.index))
        return dataclasses.replace(self, weight=jnp.where(rows, 0.0, self.row_weight))

    def dense(self) -> Float[Array, "n classes"]:
        """r_ik as a matrix."""
        weight = self.row_weight[:, None]
        mine = jnp.asarray(self.index)[:, None] == jnp.arange(self.num_classes, dtype=jnp.int32)[None]
        # The product with zeros would lose a NaN where XLA makes it a choice.
        return jnp.where(mine | jnp.isnan(weight), weight, 0.0)

    def responsibility(self, k: Int[Array, ""]) -> Float[Array, " n"]:
        """r_ik of one class."""
        return jnp.where(self.index == k.astype(jnp.int32), self.row_weight, 0.0)


@pytree
@dataclass(frozen=True)
class SoftLabels:
    """Responsibilities of every class for every row, times an optional weight of the row."""

    responsibilities: Float[Array | np.ndarray, "n classes"]
    weight: Num[Array | np.ndarray, " n"] | None
    tuning: Tuning = dataclasses.field(default=platform.ACCELERATOR, metadata=STATIC)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.responsibilities.shape[1]

    @property
    def row_width(self) -> int:
        """Numbers that a row takes: one for each class."""
        return self.num_classes

    def prepare(self, dtype: np.dtype, tuning: Tuning = platform.ACCELERATOR) -> SoftLabels:
        """The same labels ready for sums in `dtype`, their weights multiplied in; their sums are products."""
        responsibilities = jnp.asarray(self.responsibilities).astype(dtype)
        if self.weight is not None:
            weight = jnp.asarray(self.weight).astype(dtype)[:, None]
            absent = (weight == 0) & ~(jnp.abs(responsibilities) < jnp.inf)
            responsibilities = weight * jnp.where(absent, 0.0, responsibilities)
        # One negative or missing entry makes the whole row NaN, so that it cannot hide in the row's sum.
        valid = jnp.all(responsibilities >= 0, axis=1, keepdims=True)
        return SoftLabels(jnp.where(valid, responsibilities, jnp.nan), None, tuning)

    @property
    def row_weight(self) -> Float[Array, " n"]:
        """Σ_k r_ik."""
        return jnp.sum(jnp.asarray(self.responsibilities), axis=1)

    def class_sum(self, values: Float[Array, "n ..."]) -> Float[Array, "classes ..."]:
        """Σ_i r_ik v_i."""
        return einsum("nk,n...->k...", self.responsibilities, values)

    def class_weight(self) -> Float[Array, " classes"]:
        """Σ_i r_ik; of equal ones a product would drift, 4,096 of 0.9933 by 5e-5 of their sum."""
        return jnp.sum(jnp.asarray(self.responsibilities), axis=0)

    def drop(self, rows: Bool[Array, " n"]) -> SoftLabels:
        """The same labels with some rows absent."""
        return dataclasses.replace(self, responsibilities=jnp.where(rows[:, None], 0.0, self.responsibilities))

    def dense(self) -> Float[Array, "n classes"]:
        """r_ik as a matrix."""
        return jnp.asarray(self.responsibilities)

    def responsibility(self, k: Int[Array, ""]) -> Float[Array, " n"]:
        """r_ik of one class."""
        return jnp.take(jnp.asarray(self.responsibilities), k, axis=1)


Labels: TypeAlias = HardLabels | SoftLabels


def rows_are_valid(labels: Labels) -> Bool[Array, ""]:
    """Whether every weight is finite and not negative, and every label of a present row names a class."""
    if isinstance(labels, HardLabels) and labels.checked:
        return jnp.ones((), bool)
    return jnp.isfinite(jnp.sum(labels.row_weight))  # bad ones are NaN
