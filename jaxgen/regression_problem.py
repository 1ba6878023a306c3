"""A regression problem as every fit solves it: checked, centred, scaled, and its outcome looked at.

x and target are scaled to unit deviation, and Householder reflections make a triangle R of them, with RᵀR = their
correlations: min(n, d + m) rows that stand for the n of the data. R is not differentiated. Derivatives go through the
optimum by the implicit function theorem, and so exist for dependent features, too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, culprits, domains, inputs, lapack, platform
from jaxgen.labels import HardLabels, rows_are_valid
from jaxgen.matrices import diagonals
from jaxgen.numerics import matmul, nonnegative_or_nan, or_in_float64, safe_divide, working_dtype
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.arguments import AnyArray


class Data(NamedTuple):
    """What a fit is given, checked: x (n, d), target (n,) or (n, m), weight (n,)."""

    x: AnyArray
    target: AnyArray
    weight: AnyArray | None


class Outcome(NamedTuple):
    """What a program found out: is there anything to raise or to warn of?

    Attributes:
        valid: whether the data are finite, with weights that are 0 or more and not all 0.
        total: the sum of the weights.
        converged: whether what `left` measures fell below the tolerance.
        left: after so many `steps`.
        steps: of an iteration.
        dependent: the first feature that depends on those before it, or −1.
    """

    valid: Bool[Array, ""]
    total: Float[Array, ""]
    converged: Bool[Array, ""] | bool = True
    left: Float[Array, ""] | float = 0.0
    steps: Int[Array, ""] | int = 0
    dependent: Int[Array, ""] | int = -1


class Problem(NamedTuple):
    """x and target, centred, in units of their deviations; and what fraction of the weight each row has."""

    x: Float[Array, "n d"]
    target: Float[Array, "n m"]
    fraction: Float[Array, " n"]
    center: Float[Array, " d_and_m"]
    unit: Float[Array, " d_and_m"]
    total: Float[Array, ""]
    valid: Bool[Array, ""]

    @property
    def shape(self) -> tuple[int, int]:
        """That of the weights, (d, m)."""
        return self.x.shape[1], self.target.shape[1]

    def triangle(self) -> Float[Array, "k d_and_m"]:
        """R, with RᵀR = Σ_i fraction_i [x_i, t_i][x_i, t_i]ᵀ."""
        rows = jnp.sqrt(self.fraction)[:, None] * jnp.concatenate([self.x, self.target], axis=1)
        return lapack.triangle(lax.stop_gradient(rows))

    def loss(self, weights: Float[Array, "d m"], penalty: Float[Array, " d"] | None = None) -> Float[Array, ""]:
        """½ Σ_i fraction_i ‖x_iᵀw − t_i‖² + ½ Σ_j penalty_j ‖w_j‖²."""
        error = matmul(self.x, weights) - self.target
        loss = 0.5 * jnp.sum(self.fraction[:, None] * error**2)
        return loss if penalty is None else loss + 0.5 * jnp.sum(penalty[:, None] * weights**2)

    def square_penalty(self, l2: Any) -> Float[Array, " d"]:
        """What l2 is for the squares of weights in these units."""
        per_unit = 1 / self.unit[: self.x.shape[1]]  # products with it one by one: a square may overflow
        return safe_divide(nonnegative_or_nan(l2, self.x.dtype), self.total) * per_unit * per_unit

    def are_dependent(
        self, rows: Float[Array, "k d_and_m"], factor: Float[Array, "d d"], penalty: Float[Array, " d"]
    ) -> Bool[Array, " d"]:
        """Which features are, but for rounding, combinations of those before them; `factor` is R of these rows."""
        d, _ = self.shape
        norm = jnp.sqrt(jnp.sum(rows[:, :d] ** 2, axis=0))
        rounding = jnp.where(penalty > 0, 0.0, jnp.abs(self.center / self.unit)[:d])
        return ~(jnp.abs(diagonals(factor)) > jnp.finfo(rows.dtype).eps * (d * norm + rounding))

    def coefficients(self, weights: Float[Array, "d m"], data: Data) -> tuple[Array, Array]:
        """Weights and bias in the units of the data, which also say whether there is an axis of targets."""
        d, _ = self.shape
        weights = weights * (self.unit[None, d:] / self.unit[:d, None])
        bias = self.center[d:] - matmul(self.center[:d], weights)
        axis = data.target.shape[1:]
        return weights.reshape(d, *axis), bias.reshape(axis)


def standardise(data: Data) -> Problem:
    """The problem that the data pose; NaN where they are not valid."""
    dtype = working_dtype(data.x.dtype)
    n, d = data.x.shape
    table = jnp.concatenate([data.x.astype(dtype), data.target.reshape(n, -1).astype(dtype)], axis=1)
    if data.weight is None:
        valid = jnp.all(jnp.isfinite(table))
        total, fraction, first = jnp.asarray(n, dtype), jnp.full(n, 1 / n, dtype), 0
    else:
        rows = HardLabels(jnp.zeros(n, jnp.int32), data.weight, 1).prepare(dtype)  # all of one class
        table, rows, valid = domains.blank_absent(table, rows, domains.FINITE)
        total = jnp.sum(rows.row_weight)
        fraction, first = safe_divide(rows.row_weight, total), jnp.argmax(rows.row_weight)
        valid &= rows_are_valid(rows) & (total > 0)

    # A mean of differences from a row: a large mean leaves no rounding in them, and a constant nothing at all.
    center = lax.stop_gradient(table[first])
    table -= center[None]
    for _ in range(2):
        rest = matmul(fraction, table)
        center, table = center + rest, table - rest[None]

    # The optimum does not depend on the units, which therefore have no derivative.
    present = lax.stop_gradient(jnp.where(fraction[:, None] > 0, table, 0.0))
    largest = jnp.max(jnp.abs(present), axis=0)
    largest = jnp.where(largest > 0, largest, 1.0)  # and nothing that is squared overflows or vanishes
    deviation = largest * jnp.sqrt(matmul(lax.stop_gradient(fraction), (present / largest[None]) ** 2))
    valid &= jnp.all(jnp.isfinite(deviation))
    unit = jnp.where(valid, jnp.where(deviation > 0, deviation, 1.0), jnp.nan)
    table /= unit[None]
    return Problem(table[:, :d], table[:, d:], fraction, center, unit, total, valid)


def check_data(x: Any, target: Any, sample_weight: Any) -> Data:
    """What a fit is given, with errors for shapes, dtypes and weights that do not fit."""
    x = inputs.check_rows(x)
    target = arguments.as_numbers("target", target)
    n = x.shape[0]
    if target.ndim not in (1, 2) or target.shape[0] != n or 0 in target.shape:
        raise ValueError(
            f"target must have one entry for each of the {n} rows of x: shape ({n},), or ({n}, m) for m targets; found "
            f"{target.shape}."
        )
    data = Data(x, target, None if sample_weight is None else inputs.check_weight(n, sample_weight))
    platform.check_places(data)
    return data


def check_outcome(data: Data, outcome: Outcome, *, remedy: str) -> None:
    """An error or a warning where the outcome is known and not good; `remedy` ends what it says."""
    if is_traced(outcome):
        return
    outcome = jax.device_get(outcome)  # to compare arrays of JAX would compile a program for each comparison
    if not outcome.total > 0:
        culprits.raise_for_no_weight()
    if not outcome.valid:
        _raise_for_values(data)
        culprits.raise_for_rows(data.x, HardLabels(np.zeros(len(data.x), int), data.weight, 1), domains.COMPLETE)
    if outcome.dependent >= 0:
        n, d = data.x.shape
        few = f", as some of {d} features in {n} rows must be" if n <= d else ""
        raise ValueError(
            f"the features of x are dependent: feature {int(outcome.dependent)} is constant or, but for rounding, a "
            f"combination of those before it{few}, so that no single weight is best. {remedy}"
        )
    if not np.isfinite(outcome.left):
        culprits.raise_for_divergence()
    if not outcome.converged:
        statement = f"it did not converge in {int(outcome.steps)} steps: {remedy.format(float(outcome.left))}"
        warnings.warn(statement, RuntimeWarning, stacklevel=3)


def _raise_for_values(data: Data) -> None:
    """Raise a ValueError that names the first bad value of the target or of x, or a target whose squares overflow."""
    dtype = working_dtype(data.x.dtype)
    target = np.asarray(data.target).reshape(len(data.x), -1)
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(target.astype(dtype))
    present = np.ones(len(target), bool) if data.weight is None else np.asarray(data.weight) > 0
    bad &= present[:, None]
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"target must hold finite numbers, in {dtype}; found {target[row, column]} in row {row}"
            f"{culprits.and_more(bad)}. Remove or impute such rows, or give them sample_weight 0."
        )
    culprits.raise_for_values(data.x, domains.COMPLETE, present)
    largest = float(np.abs(target[present]).max())
    if largest > np.sqrt(float(jnp.finfo(dtype).max) / len(target)) / 2:
        raise ValueError(
            f"target must hold numbers whose squares have a sum in {dtype}; found {largest:g} as the largest. Rescale "
            f"the target{or_in_float64(dtype)}."
        )
