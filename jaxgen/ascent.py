"""A run of EM: what a step makes of what was expected, when it has converged, and which of several is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxgen.numerics import drop_impossible, nonnegative_or_nan

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.arguments import AnyArray
    from jaxgen.classifier import Classifier
    from jaxgen.estimator import GenerativeEstimator


class EMReport(NamedTuple):
    """How a run of EM went.

    Attributes:
        converged: whether the last two steps changed what they raise by no more than the tolerance; where rounding is
            more than that, whether the last many did, half of all at most, by no more than a tolerance each; where it
            has fallen, as under a ridge it may, whether steps have become too short to change it by more.
        steps: how many were taken, T.
        log_evidence: mean log p(x, y) of rows with labels and log p(x) of others, in nats, before each step,
            (max_steps,); NaN from T on.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0], [1], [8], [9]]), np.array([0, -1, -1, 1])
        >>> _, report = jg.train_em(jg.PoissonNB(), x, y, start=jg.fit(jg.PoissonNB(), x[[0, 3]], y[[0, 3]]))
        >>> bool(report.converged), report.log_evidence.shape
        (True, (1000,))
    """

    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    log_evidence: Float[Array, " max_steps"]

    @property
    def last(self) -> Float[Array, ""]:
        """The evidence before the last step, of each run of a stack; NaN for one that broke down."""
        return jnp.take_along_axis(self.log_evidence, self.steps[..., None] - 1, axis=-1)[..., 0]


class Expectation(NamedTuple):
    """What the E-step makes of rows.

    Attributes:
        statistics: those that are expected of them.
        log_evidence: the weighted sum of log p(x, y) of rows with labels and log p(x) of others, in nats.
        weight: of all of them.
    """

    statistics: Any
    log_evidence: Float[Array, ""]
    weight: Float[Array, ""]

    def merge(self, other: Expectation) -> Expectation:
        """That of both batches of rows."""
        statistics = self.statistics.merge(other.statistics)
        return Expectation(statistics, self.log_evidence + other.log_evidence, self.weight + other.weight)


class Ascent(NamedTuple):
    """Where a run of EM stands.

    Attributes:
        statistics: those before the next step.
        report: of the steps that were taken.
        raised: what each of them raises, before it, (max_steps,); NaN from T on.
        length: of the last step of the statistics, in units of their own.
        peak: the largest that was raised so far; ∞ once it has fallen.
    """

    statistics: Any
    report: EMReport
    raised: Float[Array, " max_steps"]
    length: Float[Array, ""]
    peak: Float[Array, ""]

    @classmethod
    def begin(cls, statistics: Any, dtype: Any, max_steps: int) -> Ascent:
        """A run from these statistics, of which no step was taken."""
        nothing, infinite = jnp.full(max_steps, jnp.nan, dtype), jnp.full((), jnp.inf, dtype)
        report = EMReport(jnp.zeros((), bool), jnp.zeros((), jnp.int32), nothing)
        return cls(statistics, report, nothing, infinite, -infinite)

    @property
    def goes_on(self) -> Bool[Array, ""]:
        """Whether it neither converged, nor broke down, nor is at its last step."""
        report = self.report
        broken = (report.steps > 0) & jnp.isnan(report.last)
        return (report.steps < len(self.raised)) & ~report.converged & ~broken

    def step(
        self, estimator: GenerativeEstimator[Any, Any], c: Classifier[Any], expected: Expectation, tolerance: AnyArray
    ) -> Ascent:
        """The run after a step, of what the E-step expects under c, the estimate from the statistics before.

        It has converged where two steps in a row change what they raise by no more than the tolerance. That is the mean
        evidence and, by the same number of rows, the log prior that the hyperparameters stand for: the evidence alone
        may turn on the way, or not depend at all on what the prior decides. One step would not do, since a ridge stands
        for no prior. Where a tolerance is less than the evidence is rounded by, steps may rise unseen: so many in a row
        must then stand still as show it, or the second half of them. What steps gain shrinks geometrically, so that
        half had as much as is left.

        Without a prior for its ridge, its pooling or its shrinkage, what is raised may fall as well, and then it may
        turn far from the end. Once it has fallen, the statistics must stand still, instead of many steps: those of
        length l, in units of their own, each ρ times as long as the one before, gain ½ l² (1 + ρ) / (1 − ρ) where the
        curvature is one.
        """
        t, dtype = self.report.steps, self.raised.dtype
        evidence = expected.log_evidence / expected.weight
        alpha = nonnegative_or_nan(estimator.prior_alpha, dtype)
        log_prior = estimator.log_parameter_prior(c.density) + alpha * jnp.sum(drop_impossible(c.log_prior))
        now = evidence + log_prior / expected.weight
        rounding = 4 * jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(now), jnp.abs(evidence))

        def since(steps: Array | int) -> Array:
            return jnp.where(t >= steps, now - self.raised[jnp.maximum(t - steps, 0)], jnp.inf)

        within = jnp.maximum(tolerance, rounding)
        fell = now < self.peak - within
        # Rounding hides small changes: as many steps are looked at as take a tolerance each beyond it, or half of all.
        few = jnp.ceil(rounding / jnp.maximum(tolerance, jnp.finfo(dtype).tiny))
        few = jnp.clip(few, 2, jnp.maximum(2, t // 2).astype(dtype))
        changes = jnp.stack([since(1), since(2) - since(1)])
        last, length = self.length, _length(expected.statistics, self.statistics)
        least = jnp.maximum(tolerance, (32 * jnp.finfo(dtype).eps) ** 2)
        settled = length**2 * (last + length) <= 2 * least * (last - length)
        still = jnp.where(fell, settled, since(few.astype(jnp.int32)) <= few * tolerance)
        still &= jnp.all(jnp.abs(changes) <= within)
        report = EMReport(still, t + 1, self.report.log_evidence.at[t].set(evidence))
        peak = jnp.where(fell, jnp.inf, jnp.maximum(now, self.peak))  # once it has, it counts as fallen
        return Ascent(expected.statistics, report, self.raised.at[t].set(now), length, peak)


def each_run(function: Callable[..., Any], *stacks: Any) -> Any:
    """`function` of what each run has in stacks of them, stacked: a run by itself takes no batched products."""
    if jax.tree.leaves(stacks)[0].shape[0] > 1:
        return jax.vmap(function)(*stacks)
    alone = function(*jax.tree.map(lambda leaf: leaf[0], stacks))
    return jax.tree.map(lambda leaf: leaf[None], alone)


def best(runs: Ascent, results: Any) -> tuple[Any, EMReport]:
    """The result of the run that raised it highest, of stacks of both, and how it went."""
    raised = jax.vmap(lambda run: run.raised[run.report.steps - 1])(runs)
    chosen = jnp.argmax(jnp.nan_to_num(raised, nan=-jnp.inf))
    return jax.tree.map(lambda leaf: leaf[chosen], (results, runs.report))


def _length(after: Any, before: Any) -> Float[Array, ""]:
    """Of a step of statistics, in units of their own."""
    squares = jax.tree.map(lambda a, b, unit: jnp.sum(((a - b) / unit) ** 2), after, before, before.unit())
    return jnp.sqrt(sum(jax.tree.leaves(squares)))
