"""Labels and weights in one form: what the families sum over, knowing neither.

Row i belongs to class k with responsibility r_ik ≥ 0. Hard labels are the case where one r_ik per row is the row's
weight and the others are zero; they are kept as class indices. Zero weight is absence.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxgen.numerics import einsum

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from jax import Array
    from jaxtyping import Bool, Float, Int, Num

# Up to this many classes a class sum is a matrix product with one-hot rows; beyond, their size would outgrow the data.
_MOST_ONE_HOT = 256


@partial(jax.tree_util.register_dataclass, data_fields=("index", "weight"), meta_fields=("num_classes",))
@dataclass(frozen=True)
class HardLabels:
    """One class a row, with a weight; `weight=None` counts every row once."""

    index: Int[Array | np.ndarray, " n"]
    weight: Num[Array | np.ndarray, " n"] | None
    num_classes: int

    def prepare(self, dtype: np.dtype) -> HardLabels:
        """The same labels ready for sums in `dtype`; a present row whose class does not exist gets the weight NaN."""
        index = jnp.asarray(self.index)
        if index.dtype.itemsize < 4:  # K itself may not fit
            index = index.astype(jnp.int32)
        exists = (index >= 0) & (index < self.num_classes)
        weight = jnp.ones(index.shape, dtype) if self.weight is None else jnp.asarray(self.weight).astype(dtype)
        weight = jnp.where(exists | (weight == 0), weight, jnp.nan)
        return dataclasses.replace(self, index=jnp.where(exists, index, 0).astype(jnp.int32), weight=weight)

    @property
    def row_weight(self) -> Float[Array, " n"]:
        """Σ_k r_ik."""
        assert self.weight is not None, "labels are used after prepare()"
        return jnp.asarray(self.weight)

    def class_sum(self, values: Float[Array, "n ..."]) -> Float[Array, "classes ..."]:
        """Σ_i r_ik v_i."""
        if self.num_classes > _MOST_ONE_HOT:
            weight = self.row_weight.reshape(-1, *(1,) * (values.ndim - 1))
            return jax.ops.segment_sum(weight * values, jnp.asarray(self.index), self.num_classes)
        return einsum("nk,n...->k...", self.dense(), values)

    def expand(self, table: Float[Array, "classes ..."]) -> Float[Array, "n ..."]:
        """Each row's own entry of a table of classes."""
        return table[self.index]

    def drop(self, rows: Bool[Array, " n"]) -> HardLabels:
        """The same labels with some rows absent."""
        return dataclasses.replace(self, weight=jnp.where(rows, 0.0, self.row_weight))

    def dense(self) -> Float[Array, "n classes"]:
        """r_ik as a matrix."""
        return jax.nn.one_hot(self.index, self.num_classes, dtype=self.row_weight.dtype) * self.row_weight[:, None]

    def responsibility(self, k: Int[Array, ""]) -> Float[Array, " n"]:
        """r_ik of one class."""
        return jnp.where(self.index == k.astype(jnp.int32), self.row_weight, 0.0)


@partial(jax.tree_util.register_dataclass, data_fields=("responsibilities", "weight"), meta_fields=())
@dataclass(frozen=True)
class SoftLabels:
    """Responsibilities of every class for every row, times an optional weight of the row."""

    responsibilities: Float[Array | np.ndarray, "n classes"]
    weight: Num[Array | np.ndarray, " n"] | None

    @property
    def num_classes(self) -> int:
        """K."""
        return self.responsibilities.shape[1]

    def prepare(self, dtype: np.dtype) -> SoftLabels:
        """The same labels ready for sums in `dtype`, their weights multiplied in."""
        responsibilities = jnp.asarray(self.responsibilities).astype(dtype)
        if self.weight is not None:
            weight = jnp.asarray(self.weight).astype(dtype)[:, None]
            absent = (weight == 0) & ~(jnp.abs(responsibilities) < jnp.inf)
            responsibilities = weight * jnp.where(absent, 0.0, responsibilities)
        # One negative or missing entry makes the whole row NaN, so that it cannot hide in the row's sum.
        valid = jnp.all(responsibilities >= 0, axis=1, keepdims=True)
        return SoftLabels(jnp.where(valid, responsibilities, jnp.nan), None)

    @property
    def row_weight(self) -> Float[Array, " n"]:
        """Σ_k r_ik."""
        return jnp.sum(jnp.asarray(self.responsibilities), axis=1)

    def class_sum(self, values: Float[Array, "n ..."]) -> Float[Array, "classes ..."]:
        """Σ_i r_ik v_i."""
        return einsum("nk,n...->k...", self.responsibilities, values)

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
    weight = labels.row_weight
    return jnp.all((weight >= 0) & (weight < jnp.inf))
