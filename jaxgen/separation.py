"""Whether a hyperplane parts the classes: then, without a penalty, no finite weights are the best.

Of a softmax problem, before and after its loss was minimised.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from jaxgen import optimum
from jaxgen.numerics import matmul

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.softmax import Problem

# A step of Newton's method that moves some log odds by more goes on moving them: by about 1. In float32 rounding may
# leave less, once in 240 cases 0.07, and a finite optimum may be as far off as 0.16 where classes hardly overlap.
_MOVES = 0.1
# Parameters of a class: of more, the eigenvectors that tell which features depend on others would take longer than the
# fit. A step is then believed where it is clear of the rounding of its terms.
_MOST = 2**11


def separating_loss(problem: Problem) -> Float[Array, ""]:
    """Below log 2 for the lightest row, in all, every row has probability above ½: the classes are separated."""
    lightest = jnp.min(jnp.where(problem.fraction > 0, problem.fraction, jnp.inf))
    return jnp.where(jnp.sum(problem.occurs) > 1, math.log(2) * lightest, -jnp.inf)


def escapes(problem: Problem, solution: Float[Array, "p m"]) -> Bool[Array, ""]:
    """Whether the optimum lies at infinity, along a direction that separates some of the rows.

    There gradient and curvature vanish together, exponentially: a Newton step goes on moving some log odds by about 1,
    however small the gradient. At a finite optimum that was reached it moves nothing. Where features depend on each
    other the curvature vanishes as well, along directions that move no row at all: these are taken out of the step,
    which the rounding of the gradient would drive along them without end.
    """
    problem, solution = lax.stop_gradient((problem, solution))
    design = jnp.where((problem.mass > 0)[:, None], problem.design, 0.0)
    eps = float(jnp.finfo(design.dtype).eps)
    if design.shape[1] > _MOST:
        step = optimum.newton_step(problem.loss, solution)
        rounding = 16 * eps * matmul(jnp.abs(design), jnp.abs(step))
        return jnp.any(jnp.abs(matmul(design, step)) > _MOVES + rounding)
    size, directions = jnp.linalg.eigh(matmul(design.T, design))
    directions = jnp.where(size > 8 * len(size) * eps * size[-1], directions, 0.0)

    def within(table: Array) -> Array:
        return matmul(directions, matmul(directions.T, table))

    step = optimum.newton_step(lambda table: problem.loss(within(table)), solution)
    return jnp.any(jnp.abs(matmul(design, within(step))) > _MOVES)
