"""The second derivatives of the loss of logistic regression, and lines along which Newton's method searches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import platform
from jaxgen.matrices import diagonals, lower_triangle, mirrored, with_diagonal
from jaxgen.numerics import matmul, safe_divide, shortcut
from jaxgen.preconditioner import some_rows
from jaxgen.softmax import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.platform import Tuning
    from jaxgen.softmax import Problem

# Rows for each column, of one weight, whose correlations are believed.
_ROWS_THAT_TELL = 4


def curvature(problem: Problem, *, weighted: bool, tuning: Tuning | None) -> Callable[[Rows], Float[Array, "pm pm"]]:
    """Second derivatives of the loss, as a function of the rows at a table; of two classes below the diagonal alone.

    Args:
        problem: whose loss it is.
        weighted: whether rows may weigh nothing. Of samples that are filled up to one size half the rows often do;
            without them the optimum of such samples takes a tenth less time. The program takes 6 % more to compile.
        tuning: of the platform; None where it is not known yet.
    """
    # Turned once: of 2,000 rows and 64 parameters a product that turns its operand takes 260 µs in place of 180.
    columns, mass = problem.design.T, problem.mass
    half = -(-len(mass) // 2)
    ends_early = jnp.all(mass[half:] == 0)

    def squares(weight: Float[Array, " n"]) -> Float[Array, "p p"]:
        """The lower triangle of Σ_i weight_i x_i x_iᵀ."""

        def lower(weight: Array, *, tuning: Tuning) -> Array:
            def of_first(rows: int, weight: Array) -> Array:
                times, x = weight[None, :rows] * columns[:, :rows], problem.design[:rows]
                return lower_triangle(lambda i, j: matmul(times[i], x[:, j]), len(columns), tuning.strip)

            whole = partial(of_first, len(mass))
            if not weighted or tuning.strip is None:
                return whole(weight)
            return shortcut(ends_early, partial(of_first, half), whole, weight)

        return platform.run(lower, weight, tuning=tuning)

    def hessian(rows: Rows) -> Float[Array, "pm pm"]:
        chance, (size, m) = rows.chance, problem.decay.shape
        if problem.is_binary:
            likelihood = squares(mass * problem.variance(chance))
        else:
            means = matmul(chance, problem.contrast.T)
            first, second = np.triu_indices(m)

            def block(pair: tuple[Array, Array]) -> Array:
                """The rows weighted by the covariance of two contrasts."""
                a, b = pair
                both = jnp.take(problem.contrast, a, axis=0) * jnp.take(problem.contrast, b, axis=0)
                product = jnp.take(means, a, axis=1) * jnp.take(means, b, axis=1)
                return mirrored(squares(mass * (matmul(chance, both) - product)))

            blocks = lax.map(block, (jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32)))
            place = np.zeros((m, m), np.int32)
            place[first, second] = place[second, first] = np.arange(len(first))
            likelihood = jnp.transpose(blocks[place], (2, 0, 3, 1))
        return likelihood.reshape(size * m, size * m) + jnp.diag(problem.decay.ravel())

    return hessian


def mean_curvature(problem: Problem, table: Float[Array, "p m"]) -> Float[Array, "p p"]:
    """About the second derivatives by the parameters of one contrast, their mean over the contrasts.

    The diagonal is of all rows; of many the rest is by the correlations in some, which may not know a rare feature.
    """
    design, some = problem.design, some_rows(*problem.design.shape)
    chance = problem.chance(problem.scores(table))
    if problem.is_binary:
        variance = problem.variance(chance)
    else:  # of orthonormal contrasts they add up to that
        variance = (1 - jnp.sum(chance**2, axis=1)) / jnp.maximum(jnp.sum(problem.occurs) - 1, 1).astype(table.dtype)
    weight = problem.mass * variance
    part, part_weight = design[some], weight[some]
    likelihood = matmul((part_weight[:, None] * part).T, part)
    if len(part) < len(design):
        diagonal = jnp.sum(weight[:, None] * design * design, axis=0)
        scale = jnp.sqrt(safe_divide(diagonal, diagonals(likelihood)))
        # So many rows of one weight would know as much; of a few, correlations are chance.
        rows = safe_divide(jnp.sum(part_weight) ** 2, jnp.sum(part_weight**2))
        known = jnp.minimum(1.0, rows / (_ROWS_THAT_TELL * design.shape[1]))
        likelihood = with_diagonal((known * scale[:, None] * likelihood * scale[None])[None], diagonal[None])[0]
    return likelihood + jnp.diag(jnp.min(problem.decay, axis=1))


class Line(NamedTuple):
    """A line through the parameters of a problem, of which each point takes one pass over the scores.

    Attributes:
        problem: whose loss it is.
        start: a table.
        direction: a table.
        scores: those of the start.
        rates: what the direction adds to them.
        decay: Σ decay · a · b of start and start, start and direction, direction and direction.
    """

    problem: Problem
    start: Float[Array, "p m"]
    direction: Float[Array, "p m"]
    scores: Float[Array, "n *classes"]
    rates: Float[Array, "n *classes"]
    decay: tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]

    @classmethod
    def of(cls, problem: Problem, start: Float[Array, "p m"], direction: Float[Array, "p m"], rows: Rows) -> Line:
        """The line from a table, of whose rows that much is known, in a direction."""
        pairs = (start, start), (start, direction), (direction, direction)
        level, tilt, bend = (jnp.sum(problem.decay * a * b) for a, b in pairs)
        return cls(problem, start, direction, rows.scores, problem.rates(direction), (level, tilt, bend))

    def at(self, t: Array) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """The loss at start + t · direction, its slope and its curvature."""
        problem, rates, (level, tilt, bend) = self.problem, self.rates, self.decay
        scores = self.scores + t * rates
        chance = problem.chance(scores)
        if problem.is_binary:
            variance = problem.variance(chance) * rates**2
        else:
            mean = jnp.sum(chance * rates, axis=1)
            variance = jnp.sum(chance * (rates - mean[:, None]) ** 2, axis=1)
        return (
            problem.mean_loss(scores) + 0.5 * (level + t * (2 * tilt + t * bend)),
            jnp.sum(problem.residual(chance) * rates) + tilt + t * bend,
            jnp.sum(problem.mass * variance) + bend,
        )

    def end(self, t: Array) -> tuple[Float[Array, "p m"], Float[Array, "p m"], Rows]:
        """The table start + t · direction, the first derivatives there, and what is known of the rows."""
        table, scores = self.start + t * self.direction, self.scores + t * self.rates
        chance = self.problem.chance(scores)
        return table, self.problem.gradient(table, self.problem.slope(chance)), Rows(scores, chance)
