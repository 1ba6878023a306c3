"""GMRES (Saad & Schultz 1986) in which the linear map stands once.

JAX's own has it three times, and a look at what is left of the target a fourth. The map of EM is the derivative of a
whole step: of a fit of LDA with missing features the gradient is a program of 10,800 instructions in place of 16,500,
compiled in five sixths of the time. And JAX's has no types for what inside `shard_map` is of one device.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from jaxgen import lapack
from jaxgen.numerics import matmul, varying_alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

# Vectors that are kept before a cycle ends, and how many cycles there may be.
_BASIS, _MOST_CYCLES = 30, 20


def gmres(matvec: Callable[[Array], Array], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """The x with matvec(x) = b, to the last three bits where rounding allows; NaN where half of the digits are not had.

    A cycle adds to x the combination of r, Ar, A²r, … that leaves least of its residual r = b − Ax. For an orthonormal
    basis of these, the rows of V, A Vᵀ = Vᵀ H, so that ‖r − A Vᵀy‖ = ‖(‖r‖, 0, …) − Hy‖: a problem of few numbers. A
    cycle that comes no nearer is the last, and what it added is not taken.
    """
    size = jnp.max(jnp.abs(b))
    size = jnp.where(size == 0, 1.0, size)
    b = b / size
    eps, whole = float(jnp.finfo(b.dtype).eps), jnp.linalg.norm(b)
    length = min(_BASIS, b.size) + 1
    nothing = jnp.zeros_like(b, shape=(length, b.size))
    # In front (‖r‖, 0, …), then the columns of H; those that no vector is left for are the identity's, whose y is zero.
    unknown = jnp.eye(length, k=1, dtype=b.dtype) + jnp.zeros_like(b, shape=())

    def extend(x: Array, left: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        j, vectors, table, _ = state
        begins = j == 0
        image = matvec(jnp.where(begins, x, vectors[j - 1]))
        vector = jnp.where(begins, b - image, image)
        least = eps * jnp.where(begins, 8 * whole, jnp.linalg.norm(vector))
        overlap = jnp.zeros_like(table[0])
        for _ in range(2):  # once would leave what cancellation does
            found = matmul(vectors, vector)
            vector -= matmul(found, vectors)
            overlap += found
        norm = jnp.linalg.norm(vector)
        goes_on = (norm > least) & (~begins | (norm < left))
        vectors = vectors.at[j].set(jnp.where(goes_on, vector / norm, 0.0))
        table = table.at[:, j].set(overlap.at[j].set(jnp.where(begins | goes_on, norm, 0.0)))
        return j + 1, vectors, table, goes_on

    def cycle(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, nearest, left, _, number = state
        begin = varying_alike(jnp.zeros_like(number), nothing, unknown, whole >= 0, x)[:4]
        j, vectors, table, _ = lax.while_loop(
            lambda inner: (inner[0] < length) & inner[3], lambda inner: extend(x, left, inner), begin
        )
        norm = table[0, 0]
        nearer = norm < left
        nearest, left = (jnp.where(nearer, new, old) for new, old in ((x, nearest), (norm, left)))
        q, r = lapack.qr(table[:, 1:])
        y = lapack.solve_upper(r, matmul(q.T, table[:, :1]))[:, 0]
        return x + matmul(y, vectors[:-1]), nearest, left, nearer & (j > 1), number + 1

    def unfinished(state: tuple[Array, ...]) -> Array:
        *_, goes_on, number = state
        return goes_on & (number <= _MOST_CYCLES)

    begin = (jnp.zeros_like(b), jnp.zeros_like(b), jnp.full_like(whole, jnp.inf), whole >= 0)
    _, x, left, *_ = lax.while_loop(unfinished, cycle, varying_alike(*begin, jnp.zeros_like(whole, jnp.int32)))
    return jnp.where(left <= math.sqrt(eps) * whole, x, jnp.nan) * size
