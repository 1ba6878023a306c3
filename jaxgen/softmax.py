"""The loss of logistic regression, and its first derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import blocks, threads
from jaxgen.numerics import matmul

if TYPE_CHECKING:
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


class Rows(NamedTuple):
    """What is known of the rows at a table of parameters.

    Attributes:
        scores: log odds, or a score of each class.
        chance: probabilities, of the lighter class or of each.
    """

    scores: Float[Array, "n *classes"]
    chance: Float[Array, "n *classes"]


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
        return self.mean_loss(self.scores(table)) + self._penalty(table)

    def look(self, table: Float[Array, "p m"]) -> tuple[Float[Array, ""], Float[Array, "p m"], Rows]:
        """The loss, its first derivatives, and what is known of the rows."""
        scores = self.scores(table)
        chance = self.chance(scores)
        value = self.mean_loss(scores) + self._penalty(table)
        return value, self.gradient(table, self.slope(chance)), Rows(scores, chance)

    def evaluate(self, table: Float[Array, "p m"]) -> tuple[Float[Array, ""], Float[Array, "p m"]]:
        """The loss and its first derivatives."""
        return self.look(table)[:2]

    def evaluate_in_blocks(
        self, table: Float[Array, "p m"], *, tuning: Tuning
    ) -> tuple[Float[Array, ""], Float[Array, "p m"]]:
        """The same from one pass over the rows, in blocks that stay in a cache, where the platform wants them."""

        def of_rows(design: Array, weights: tuple[Array, Array]) -> tuple[Array, Array]:
            rows = self._replace(design=design, fraction=weights[0], mass=weights[1])
            scores = rows.scores(table)
            return rows.mean_loss(scores), rows.slope(rows.chance(scores))

        width = max(self.design.shape[1], self.fraction.shape[1])
        rows = blocks.num_rows(tuning.loss_elements * threads.cores(), width)
        loss, slope = blocks.sum_rows(of_rows, self.design, (self.fraction, self.mass), block=rows)
        return loss + self._penalty(table), self.gradient(table, slope)

    def rates(self, table: Float[Array, "p m"]) -> Float[Array, "n *classes"]:
        """What a table adds to the score of each class, or to the log odds of two.

        Those are (n,), for in one dimension a processor has vectors.
        """
        return matmul(self.design, table[:, 0] if self.is_binary else matmul(table, self.contrast))

    def scores(self, table: Float[Array, "p m"]) -> Float[Array, "n *classes"]:
        """The same from nothing; of many classes one without data is so low that it is impossible, yet finite."""
        if self.is_binary:
            return self.rates(table)
        scores = matmul(table, self.contrast)
        # In the bias, where it costs no pass over the rows; contrasts of zero leave nothing else in its score.
        impossible = jnp.where(self.occurs, 0.0, -0.5 * float(jnp.finfo(scores.dtype).max))
        return matmul(self.design, scores + jnp.pad(impossible[None], ((len(scores) - 1, 0), (0, 0))))

    def mean_loss(self, scores: Float[Array, "n *classes"]) -> Float[Array, ""]:
        """Mean negative log likelihood, of the scores."""
        r, mass = self.fraction, self.mass
        if self.is_binary:
            sign, lighter = self._lighter()
            losses = mass * jax.nn.softplus(sign * scores) - lighter * sign * scores
            return jnp.sum(jnp.where(jnp.all(self.occurs), losses, 0.0))
        gap = _gap(scores)
        return jnp.sum(mass * jnp.log(jnp.sum(jnp.exp(-gap), axis=1)) + jnp.sum(r * gap, axis=1))

    def chance(self, scores: Float[Array, "n *classes"]) -> Float[Array, "n *classes"]:
        """Of two classes the probability of the lighter one, (n,); else of each. By the exponentials of the loss."""
        if self.is_binary:
            sign, _ = self._lighter()
            odds = jnp.exp(-jnp.abs(sign * scores))
            return jnp.where(sign * scores > 0, 1.0, odds) / (1 + odds)
        odds = jnp.exp(-_gap(scores))
        return odds / jnp.sum(odds, axis=1, keepdims=True)

    def _penalty(self, table: Float[Array, "p m"]) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.decay * table * table)

    def slope(self, chance: Float[Array, "n *classes"]) -> Float[Array, "*classes p"]:
        """The derivative of the mean loss by the log odds, or by the score of each class."""
        return matmul(self.residual(chance).T, self.design)

    def gradient(self, table: Float[Array, "p m"], slope: Float[Array, "*classes p"]) -> Float[Array, "p m"]:
        """The derivative of the penalised loss by the parameters."""
        likelihood = slope[:, None] if self.is_binary else matmul(slope.T, self.contrast.T)
        return likelihood + self.decay * table

    def residual(self, chance: Float[Array, "n *classes"]) -> Float[Array, "n *classes"]:
        """The derivative of the mean loss by each score."""
        if self.is_binary:
            sign, lighter = self._lighter()
            return jnp.where(jnp.all(self.occurs), sign * (self.mass * chance - lighter), 0.0)
        return self.mass[:, None] * chance - self.fraction

    def variance(self, chance: Float[Array, " n"]) -> Float[Array, " n"]:
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
