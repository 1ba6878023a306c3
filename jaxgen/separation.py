"""Whether a hyperplane parts the classes: then, without a penalty, no finite weights are the best.

Of a softmax problem, before and after its loss was minimised.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from jaxgen import lapack, optimum
from jaxgen.numerics import matmul

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.softmax import Problem

# Where Newton's method goes on moving some log odds it is by about 1 a step, of which the rounding of float32 may leave
# a tenth. Near a finite optimum, as far off as the tolerance of float32 stops, the first step may be as long, but the
# second is not: 0.001 where the first is 0.16. Of 336 problems in float32 that a linear programme decides, 2 are told
# wrongly.
_FIRST, _SECOND = 0.25, 0.02
# Parameters of a class: of more, the eigenvectors that tell which features depend on others would take longer than the
# fit. The first step alone is then looked at, and believed where it is clear of the rounding of its terms.
_MOST = 2**11


def separating_loss(problem: Problem) -> Float[Array, ""]:
    """Below log 2 for the lightest row, in all, every row has probability above ½: the classes are separated."""
    lightest = jnp.min(jnp.where(problem.fraction > 0, problem.fraction, jnp.inf))
    return jnp.where(jnp.sum(problem.occurs) > 1, math.log(2) * lightest, -jnp.inf)


def escapes(problem: Problem, solution: Float[Array, "p m"]) -> Bool[Array, ""]:
    """Whether the optimum lies at infinity, along a direction that separates some of the rows.

    There gradient and curvature vanish together, exponentially: step after step of Newton's method moves some log odds
    by about 1, however small the gradient. From near a finite optimum the second one moves next to nothing. Where
    features depend on each other the curvature vanishes as well, along directions that move no row at all: it is 1
    there, and what the steps have of these is taken out of them.
    """
    problem, solution = lax.stop_gradient((problem, solution))
    design = jnp.where((problem.mass > 0)[:, None], problem.design, 0.0)
    eps = float(jnp.finfo(design.dtype).eps)
    if design.shape[1] > _MOST:
        step = optimum.newton_step(problem.loss, solution)
        rounding = 16 * eps * matmul(jnp.abs(design), jnp.abs(step))
        return jnp.any(jnp.abs(matmul(design, step)) > _FIRST + rounding)
    size, directions = lapack.eigh(matmul(design.T, design))
    directions = jnp.where(size > 8 * len(size) * eps * size[-1], directions, 0.0)

    def within(table: Array) -> Array:
        return matmul(directions, matmul(directions.T, table))

    def newton(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        table, _ = state

        def loss(change: Array) -> Array:
            inside = within(change)
            return problem.loss(table + inside) + 0.5 * jnp.sum((change - inside) ** 2)

        step = within(optimum.newton_step(loss, jnp.zeros_like(table)))
        return table - step, step

    _, step = lax.fori_loop(0, 2, newton, (solution, solution))
    return jnp.any(jnp.abs(matmul(design, step)) > _SECOND)
