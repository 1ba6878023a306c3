"""Coordinates in which a loss is about equally steep in every direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxgen import host_arrays, lapack, platform
from jaxgen.matrices import inverse_factor
from jaxgen.numerics import einsum

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Real

    from jaxgen.arguments import AnyArray

# What is added to a curvature, of its diagonal: no direction is taken for more than so much flatter than it would be if
# the parameters had nothing to do with each other.
_FLATTEST = 1e-4
# Up to so many features, and so many for their square, for each row and class, a matrix of them is factorised in the
# time of some steps.
_MOST_FEATURES, _MOST_SQUARED = 512, 64
# Rows for each feature from which a matrix of theirs is made; of rows that weigh the same it errs by an eighth.
_ROWS_FOR_EACH = 64
# Variance of the eigenvalues of the correlations, whose mean is 1: 0 of features that are independent. A preconditioner
# takes a third of a second more to compile. Of the steps to the optimum remain, of digits 87 of 754, of questions by
# their indicators 24 of 71, of an autoregressive series 21 of 119, of independent features 22 of 24.
_LEAST_SPREAD = 1 / 16
# Rows and columns that are multiplied at a time to know it.
_BLOCK = 64


def pays(x: Real[AnyArray, "n d"], num_classes: int) -> bool:
    """Whether a preconditioner is worth what it takes: of few features, which are correlated, or may be under a trace.

    Args:
        x: the rows.
        num_classes: K.
    """
    n, d = x.shape
    if d > _MOST_FEATURES or d**2 > _MOST_SQUARED * n * num_classes:
        return False
    if platform.platform_of(x) != "cpu" or host_arrays.is_distributed(x):
        return d <= n
    # Products so small that OpenBLAS makes each on the core that asks: its threads would go on to wait, on XLA's core.
    columns = np.arange(d)
    if d > _BLOCK:  # by two, since neighbours are the likeliest to be alike
        columns = (np.linspace(0, d - 2, _BLOCK // 2).astype(int)[:, None] + np.arange(2)).ravel()
    rows = some_rows(n, len(columns))
    rows = np.arange(n) if isinstance(rows, slice) else rows
    rows = rows[: max(1, len(rows) // _BLOCK) * _BLOCK]
    sample = np.asarray(x)[np.ix_(rows, columns)].astype(np.float32)
    with np.errstate(all="ignore"):
        sample -= sample[:1]  # of a constant nothing is left
        sample -= sample.mean(axis=0)
        size = np.sqrt(np.mean(sample**2, axis=0))
        blocks = (sample / np.where(size > 0, size, 1)).reshape(-1, min(len(rows), _BLOCK), len(columns))
        correlation = np.sum(blocks.mT @ blocks.copy(), axis=0) / len(rows)
        squares = np.sum(correlation**2) - np.sum(np.diag(correlation) ** 2)
        spread = (d - 1) * (squares / len(columns) / max(len(columns) - 1, 1) - 1 / len(rows))  # but for their noise
    # What has no square is of a row that is absent, or has an error of its own.
    return not (np.isfinite(size).all() and spread < _LEAST_SPREAD)


def some_rows(n: int, d: int) -> slice | np.ndarray:
    """Rows enough for a matrix of d features, in their order; drawn, since labels may come in turns."""
    count = _ROWS_FOR_EACH * d
    return slice(None) if n <= count else np.sort(np.random.default_rng(0).choice(n, count, replace=False))


class Preconditioner(NamedTuple):
    """The coordinates Lᵀw of each column w of a table of parameters, where L Lᵀ is about the curvature along one.

    Attributes:
        factor: L, lower triangular, (p, p).
        inverse: L⁻¹.
    """

    factor: Float[Array, "p p"]
    inverse: Float[Array, "p p"]

    @classmethod
    def of(cls, curvature: Float[Array, "p p"]) -> Preconditioner:
        """Those of this curvature, of which what stands above the diagonal is not read."""
        # No less than the rounding of the factorisation (Higham 2002, theorem 10.3); and a little where far out on
        # separable data the curvature vanishes.
        eps, identity = float(jnp.finfo(curvature.dtype).eps), jnp.eye(len(curvature), dtype=curvature.dtype)
        lift = max(_FLATTEST, 2 * len(curvature) * eps)
        factor = lapack.cholesky((curvature * (1 + lift * identity) + 8 * eps * identity)[None])[0]
        factor = jnp.where(jnp.all(jnp.isfinite(factor)), factor, identity)
        return cls(factor, inverse_factor(factor[None])[0])

    def of_step(self, table: Float[Array, "*stack p m"]) -> Float[Array, "*stack p m"]:
        """A step of the parameters in these coordinates."""
        return _times(self.factor.T, table)

    def of_gradient(self, table: Float[Array, "*stack p m"]) -> Float[Array, "*stack p m"]:
        """The derivatives by these coordinates, of those by the parameters."""
        return _times(self.inverse, table)

    def step(self, coordinates: Float[Array, "*stack p m"]) -> Float[Array, "*stack p m"]:
        """A step in these coordinates as one of the parameters."""
        return _times(self.inverse.T, coordinates)

    def gradient(self, coordinates: Float[Array, "*stack p m"]) -> Float[Array, "*stack p m"]:
        """The derivatives by the parameters, of those by these coordinates."""
        return _times(self.factor, coordinates)


def _times(matrix: Float[Array, "p p"], tables: Float[Array, "*stack p m"]) -> Float[Array, "*stack p m"]:
    """The product with each table, as one."""
    return einsum("ij,...jm->...im", matrix, tables)
