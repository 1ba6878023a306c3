"""The loss of logistic regression, and its derivatives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, platform, threads
from jaxgen.matrices import lower_triangle, mirrored
from jaxgen.numerics import matmul, shortcut

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

    from jaxgen.labels import Labels
    from jaxgen.platform import Tuning


def as_fractions(labels: Labels) -> tuple[Float[Array, "n classes"], Float[Array, ""], Bool[Array, " classes"]]:
    """Responsibilities of prepared labels divided by their total; that total; and which classes have any.

    They are NaN for bad labels and weights, and for weights whose total overflows; zero where there is no weight.
    """
    responsibilities, total = labels.dense(), jnp.sum(labels.row_weight)
    inverse = 1 / jnp.where(total == 0, 1.0, total)
    inverse = jnp.where(inverse >= float(jnp.finfo(total.dtype).tiny), inverse, jnp.nan)
    # An array of their own: multiplied once more beside the probabilities, they would leave their rounding of a row
    # that is classified rightly.
    fraction = lax.optimization_barrier(responsibilities * inverse)
    return fraction, total, jnp.sum(responsibilities, axis=0) > 0


class Problem(NamedTuple):
    """The data in the coordinates of the optimiser.

    The parameters are a table (d + 1, m): weights of standardised features, and last the bias about their centre, for
    each of m = K − 1 contrasts of the classes. What is common to all classes changes no probability and has no
    parameter; of two classes the contrast is the log odds.

    Attributes:
        design: features, centred and divided by `Frame.unit`, so that every direction is about equally steep whatever
            the units; then a column of ones.
        fraction: responsibilities, divided by their total.
        mass: those of a row together, (n,).
        decay: of the squared parameters, (d + 1, m). The bias has none, and a contrast that is none has 1.
        contrast: what a parameter of each contrast adds to the score of each class, (m, K).
        occurs: which classes have data, (K,).
    """

    design: Float[Array, "n p"]
    fraction: Float[Array, "n classes"]
    mass: Float[Array, " n"]
    decay: Float[Array, "p m"]
    contrast: Float[Array, "m classes"]
    occurs: Bool[Array, " classes"]

    @property
    def is_binary(self) -> bool:
        """Whether there are two classes, and so one contrast."""
        return self.fraction.shape[1] == 2

    def loss(self, table: Float[Array, "p m"]) -> Float[Array, ""]:
        """Mean negative log likelihood, penalised."""
        return self._mean_loss(self._scores(table)) + self._penalty(table)

    def look(
        self, table: Float[Array, "p m"]
    ) -> tuple[Float[Array, ""], Float[Array, "p m"], Float[Array, "n *classes"]]:
        """The loss, its first derivatives, and the probabilities that its second ones are made of."""
        scores = self._scores(table)
        chance = self._chance(scores)
        value = self._mean_loss(scores) + self._penalty(table)
        return value, self._gradient(table, self._slope(chance)), chance

    def evaluate(self, table: Float[Array, "p m"]) -> tuple[Float[Array, ""], Float[Array, "p m"]]:
        """The loss and its first derivatives."""
        return self.look(table)[:2]

    def evaluate_in_blocks(
        self, table: Float[Array, "p m"], *, tuning: Tuning
    ) -> tuple[Float[Array, ""], Float[Array, "p m"]]:
        """The same from one pass over the rows, in blocks that stay in a cache, where the platform wants them."""

        def of_rows(design: Array, weights: tuple[Array, Array]) -> tuple[Array, Array]:
            rows = self._replace(design=design, fraction=weights[0], mass=weights[1])
            scores = rows._scores(table)
            return rows._mean_loss(scores), rows._slope(rows._chance(scores))

        width = max(self.design.shape[1], self.fraction.shape[1])
        rows = blocks.num_rows(tuning.loss_elements * threads.cores(), width)
        loss, slope = blocks.sum_rows(of_rows, self.design, (self.fraction, self.mass), block=rows)
        return loss + self._penalty(table), self._gradient(table, slope)

    def curvature(
        self, *, weighted: bool, tuning: Tuning | None
    ) -> Callable[[Float[Array, "n *classes"]], Float[Array, "pm pm"]]:
        """Its second derivatives, as a function of probabilities; those of two classes below the diagonal alone.

        Args:
            weighted: whether rows may weigh nothing. Of samples that are filled up to one size half the rows often do;
                without them the optimum of such samples takes a tenth less time. The program takes 6 % more to compile.
            tuning: of the platform; None where it is not known yet.
        """
        # Turned once: of 2,000 rows and 64 parameters a product that turns its operand takes 260 µs in place of 180.
        columns, mass = self.design.T, self.mass
        half = -(-len(mass) // 2)
        ends_early = jnp.all(mass[half:] == 0)

        def squares(weight: Float[Array, " n"]) -> Float[Array, "p p"]:
            """The lower triangle of Σ_i weight_i x_i x_iᵀ."""

            def lower(weight: Array, *, tuning: Tuning) -> Array:
                def of_first(rows: int, weight: Array) -> Array:
                    times, x = weight[None, :rows] * columns[:, :rows], self.design[:rows]
                    return lower_triangle(lambda i, j: matmul(times[i], x[:, j]), len(columns), tuning.strip)

                whole = partial(of_first, len(mass))
                if not weighted or tuning.strip is None:
                    return whole(weight)
                return shortcut(ends_early, partial(of_first, half), whole, weight)

            return platform.run(lower, weight, tuning=tuning)

        def hessian(chance: Float[Array, "n *classes"]) -> Float[Array, "pm pm"]:
            size, m = self.decay.shape
            if self.is_binary:
                likelihood = squares(mass * self._variance(chance))
            else:
                means = matmul(chance, self.contrast.T)
                first, second = np.triu_indices(m)

                def block(pair: tuple[Array, Array]) -> Array:
                    """The rows weighted by the covariance of two contrasts."""
                    a, b = pair
                    both = jnp.take(self.contrast, a, axis=0) * jnp.take(self.contrast, b, axis=0)
                    product = jnp.take(means, a, axis=1) * jnp.take(means, b, axis=1)
                    return mirrored(squares(mass * (matmul(chance, both) - product)))

                blocks = lax.map(block, (jnp.asarray(first, jnp.int32), jnp.asarray(second, jnp.int32)))
                place = np.zeros((m, m), np.int32)
                place[first, second] = place[second, first] = np.arange(len(first))
                likelihood = jnp.transpose(blocks[place], (2, 0, 3, 1))
            return likelihood.reshape(size * m, size * m) + jnp.diag(self.decay.ravel())

        return hessian

    def along(self, start: Float[Array, "p m"], direction: Float[Array, "p m"]) -> Line:
        """The line from a table in a direction."""
        pairs = (start, start), (start, direction), (direction, direction)
        level, tilt, bend = (jnp.sum(self.decay * a * b) for a, b in pairs)
        return Line(self, start, direction, self._scores(start), self._rates(direction), (level, tilt, bend))

    def _rates(self, table: Float[Array, "p m"]) -> Float[Array, "n *classes"]:
        """What a table adds to the score of each class, or to the log odds of two.

        Those are (n,), for in one dimension a processor has vectors.
        """
        return matmul(self.design, table[:, 0] if self.is_binary else matmul(table, self.contrast))

    def _scores(self, table: Float[Array, "p m"]) -> Float[Array, "n *classes"]:
        """The same from nothing; of many classes one without data is so low that it is impossible, yet finite."""
        if self.is_binary:
            return self._rates(table)
        scores = matmul(table, self.contrast)
        # In the bias, where it costs no pass over the rows; contrasts of zero leave nothing else in its score.
        impossible = jnp.where(self.occurs, 0.0, -0.5 * float(jnp.finfo(scores.dtype).max))
        return matmul(self.design, scores + jnp.pad(impossible[None], ((len(scores) - 1, 0), (0, 0))))

    def _mean_loss(self, scores: Float[Array, "n *classes"]) -> Float[Array, ""]:
        r, mass = self.fraction, self.mass
        if self.is_binary:
            sign, lighter = self._lighter()
            losses = mass * jax.nn.softplus(sign * scores) - lighter * sign * scores
            return jnp.sum(jnp.where(jnp.all(self.occurs), losses, 0.0))
        gap = _gap(scores)
        return jnp.sum(mass * jnp.log(jnp.sum(jnp.exp(-gap), axis=1)) + jnp.sum(r * gap, axis=1))

    def _chance(self, scores: Float[Array, "n *classes"]) -> Float[Array, "n *classes"]:
        """Of two classes the probability of the lighter one, (n,); else of each. By the exponentials of the loss."""
        if self.is_binary:
            sign, _ = self._lighter()
            odds = jnp.exp(-jnp.abs(sign * scores))
            return jnp.where(sign * scores > 0, 1.0, odds) / (1 + odds)
        odds = jnp.exp(-_gap(scores))
        return odds / jnp.sum(odds, axis=1, keepdims=True)

    def _penalty(self, table: Float[Array, "p m"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.decay * table * table)

    def _slope(self, chance: Float[Array, "n *classes"]) -> Float[Array, "*classes p"]:
        """The derivative of the mean loss by the log odds, or by the score of each class."""
        return matmul(self._residual(chance).T, self.design)

    def _gradient(self, table: Float[Array, "p m"], slope: Float[Array, "*classes p"]) -> Float[Array, "p m"]:
        """That of the loss by the parameters."""
        likelihood = slope[:, None] if self.is_binary else matmul(slope.T, self.contrast.T)
        return likelihood + self.decay * table

    def _residual(self, chance: Float[Array, "n *classes"]) -> Float[Array, "n *classes"]:
        """The derivative of the mean loss by each score."""
        if self.is_binary:
            sign, lighter = self._lighter()
            return jnp.where(jnp.all(self.occurs), sign * (self.mass * chance - lighter), 0.0)
        return self.mass[:, None] * chance - self.fraction

    def _variance(self, chance: Float[Array, " n"]) -> Float[Array, " n"]:
        """Of the class of a row, of two; none where one of them does not occur."""
        return jnp.where(jnp.all(self.occurs), chance * (1 - chance), 0.0)

    def _lighter(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Of two classes the one that a row is less of: the sign of its log odds, and the fraction of it.

        From there a row's loss is measured: what is left of one that is classified rightly is then a small number, not
        the rounding of one near 1.
        """
        first, second = self.fraction.T
        return jnp.where(first > second, 1.0, -1.0).astype(first.dtype), jnp.where(first > second, second, first)


def _gap(scores: Float[Array, "n classes"]) -> Float[Array, "n classes"]:
    """How far each score is below the largest of its row, which changes no loss and so needs no derivative."""
    return lax.stop_gradient(jnp.max(scores, axis=1, keepdims=True)) - scores


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

    def at(self, t: Array) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """The loss at start + t · direction, its slope and its curvature."""
        problem, rates, (level, tilt, bend) = self.problem, self.rates, self.decay
        scores = self.scores + t * rates
        chance = problem._chance(scores)
        if problem.is_binary:
            variance = problem._variance(chance) * rates**2
        else:
            mean = jnp.sum(chance * rates, axis=1)
            variance = jnp.sum(chance * (rates - mean[:, None]) ** 2, axis=1)
        return (
            problem._mean_loss(scores) + 0.5 * (level + t * (2 * tilt + t * bend)),
            jnp.sum(problem._residual(chance) * rates) + tilt + t * bend,
            jnp.sum(problem.mass * variance) + bend,
        )

    def end(self, t: Array) -> tuple[Float[Array, "p m"], Float[Array, "p m"], Float[Array, "n *classes"]]:
        """The table start + t · direction, the first derivatives there, and the probabilities."""
        table, chance = self.start + t * self.direction, self.problem._chance(self.scores + t * self.rates)
        return table, self.problem._gradient(table, self.problem._slope(chance)), chance
