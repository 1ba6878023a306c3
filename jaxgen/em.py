"""Expectation-maximisation: a fit where labels or correlated features are missing.

    E  responsibilities r_ik = p(k | x_i) of the rows without a label, and what is expected of missing features
    M  the estimate from the statistics of those

The E-step is `log_joint` and `statistics`, the M-step `estimate`; here is their loop and the gradient through its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxgen.classify import log_joint
from jaxgen.krylov import gmres
from jaxgen.numerics import drop_impossible, log_sum_exp, nonnegative_or_nan, varying_alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.classifier import Classifier
    from jaxgen.em_data import Data
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


def expect(estimator: GenerativeEstimator[Any, Any], c: Classifier[Any], data: Data) -> tuple[Any, Array]:
    """The E-step: the statistics expected under a classifier, and the mean log evidence."""
    responsibilities, mean = responsibilities_of(c, data)
    return statistics_of(estimator, data, responsibilities, c), mean


def responsibilities_of(c: Classifier[Any], data: Data) -> tuple[Float[Array, "n classes"], Float[Array, ""]]:
    """Those of all rows under a classifier, times their weights, and the mean log evidence."""
    mask: Any = data.mask
    joint = log_joint(c, data.x, observed=mask)
    evidence = log_sum_exp(joint)
    # A row of weight 0 may be impossible; else its weight has a derivative, which a choice by the weight would cut off.
    counts = (data.unlabelled > 0) | (evidence > -jnp.inf)
    evidence = jnp.where(counts, evidence, 0.0)
    posterior = jnp.where(counts[:, None], jnp.exp(joint - evidence[:, None]), 0.0)
    responsibilities = data.labelled + data.unlabelled[:, None] * posterior
    terms = jnp.sum(jnp.where(data.labelled > 0, data.labelled * joint, 0.0), axis=-1)
    terms += data.unlabelled * evidence
    return responsibilities, jnp.sum(terms) / (jnp.sum(data.labelled) + jnp.sum(data.unlabelled))


def statistics_of(
    estimator: GenerativeEstimator[Any, Any], data: Data, responsibilities: Array, c: Classifier[Any] | None
) -> Any:
    """Statistics of the rows with these responsibilities; c fills in what is missing, where that is needed."""
    options: dict[str, Any] = {"observed": data.mask}
    options["given"] = c if estimator.fills_in and data.observed is not None else None
    options["num_classes"] = data.labelled.shape[1]
    if data.labels is None:
        return estimator.statistics(data.x, responsibilities, **options)
    y, weight = data.labels
    return estimator.statistics(data.x, y, sample_weight=weight, **options)


def climb(
    estimator: GenerativeEstimator[Any, Any], start: Any, data: Data, tolerance: Array, max_steps: int
) -> tuple[Any, EMReport, Array]:
    """Steps of EM from statistics, until two in a row change what they raise by no more than the tolerance.

    Returns the statistics, the report, and what was raised, before the last step. That is the mean evidence and, by the
    same number of rows, the log prior that the hyperparameters stand for: the evidence alone may turn on the way, or
    not depend at all on what the prior decides. One step would not do, since a ridge stands for no prior. Where a
    tolerance is less than the evidence is rounded by, steps may rise unseen: so many in a row must then stand still as
    show it, or the second half of them. What steps gain shrinks geometrically, so that half had as much as is left.

    Without a prior for its ridge, its pooling or its shrinkage, what is raised may fall as well, and then it may turn
    far from the end. Once it has fallen, the statistics must stand still, instead of many steps: those of length l, in
    units of their own, each ρ times as long as the one before, gain ½ l² (1 + ρ) / (1 − ρ) where the curvature is one.
    """
    dtype = data.labelled.dtype
    rows = jnp.sum(data.labelled) + jnp.sum(data.unlabelled)

    def log_prior(c: Classifier[Any]) -> Array:
        alpha = nonnegative_or_nan(estimator.prior_alpha, dtype)
        return estimator.log_parameter_prior(c.density) + alpha * jnp.sum(drop_impossible(c.log_prior))

    def step(state: tuple[Any, EMReport, Array, Array, Array]) -> tuple[Any, EMReport, Array, Array, Array]:
        before, report, raised, last, peak = state
        t = report.steps
        c = estimator.estimate(before)
        statistics, evidence = expect(estimator, c, data)
        now = evidence + log_prior(c) / rows
        rounding = 4 * jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(now), jnp.abs(evidence))

        def since(steps: Array | int) -> Array:
            return jnp.where(t >= steps, now - raised[jnp.maximum(t - steps, 0)], jnp.inf)

        within = jnp.maximum(tolerance, rounding)
        fell = now < peak - within
        # Rounding hides small changes: as many steps are looked at as take a tolerance each beyond it, or half of all.
        few = jnp.ceil(rounding / jnp.maximum(tolerance, jnp.finfo(dtype).tiny))
        few = jnp.clip(few, 2, jnp.maximum(2, t // 2).astype(dtype))
        changes = jnp.stack([since(1), since(2) - since(1)])
        length = _length(statistics, before)
        least = jnp.maximum(tolerance, (32 * jnp.finfo(dtype).eps) ** 2)
        settled = length**2 * (last + length) <= 2 * least * (last - length)
        still = jnp.where(fell, settled, since(few.astype(jnp.int32)) <= few * tolerance)
        still &= jnp.all(jnp.abs(changes) <= within)
        report = EMReport(still, t + 1, report.log_evidence.at[t].set(evidence))
        peak = jnp.where(fell, jnp.inf, jnp.maximum(now, peak))  # once it has, it counts as fallen
        return statistics, report, raised.at[t].set(now), length, peak

    def unfinished(state: tuple[Any, EMReport, Array, Array, Array]) -> Array:
        _, report, *_ = state
        broken = (report.steps > 0) & jnp.isnan(report.last)
        return (report.steps < max_steps) & ~report.converged & ~broken

    begin = EMReport(jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.full(max_steps, jnp.nan, dtype))
    infinite = jnp.full((), jnp.inf, dtype)
    state = start, begin, begin.log_evidence, infinite, -infinite
    state = varying_alike(*state, data, estimator)[: len(state)]
    statistics, report, raised, *_ = lax.while_loop(unfinished, step, state)
    return statistics, report, raised[report.steps - 1]


def _length(after: Any, before: Any) -> Float[Array, ""]:
    """Of a step of statistics, in units of their own."""
    squares = jax.tree.map(lambda a, b, unit: jnp.sum(((a - b) / unit) ** 2), after, before, before.unit())
    return jnp.sqrt(sum(jax.tree.leaves(squares)))


@jax.custom_jvp
def differentiable(estimator: GenerativeEstimator[Any, Any], data: Data, statistics: Any) -> Any:
    """Statistics where EM has converged, with the derivatives of its fixed point.

    One more step maps them to themselves: that implies how they move with the data and the hyperparameters, whatever
    path led there. What a derivative takes is traced where one is taken, a third of the time of a first fit.
    """
    del estimator, data
    return statistics


@differentiable.defjvp
def _derivative(primals: tuple[Any, Data, Any], tangents: tuple[Any, Data, Any]) -> tuple[Any, Any]:
    return jax.jvp(_root, primals, tangents)


def _root(estimator: GenerativeEstimator[Any, Any], data: Data, statistics: Any) -> Any:
    # In units of its own each number counts alike in the norms of the solver, whatever those of the data. Powers of two
    # round nothing: the statistics remain what they are.
    unit = jax.tree.map(lambda unit: jnp.ldexp(jnp.ones_like(unit), jnp.frexp(unit)[1]), statistics.unit())
    unit = lax.stop_gradient(unit)
    start = lax.stop_gradient(jax.tree.map(jnp.divide, statistics, unit))

    def change(measured: Any) -> Any:
        before = jax.tree.map(jnp.multiply, measured, unit)
        after, _ = expect(estimator, estimator.estimate(before), data)
        return jax.tree.map(lambda after, before, unit: (after - before) / unit, after, before, unit)

    return jax.tree.map(jnp.multiply, lax.custom_root(change, start, lambda _, found: found, _solve), unit)


def _solve(linear: Callable[[Any], Any], target: Any) -> Any:
    """The v with linear(v) = target: the derivative of a step less the identity, whose eigenvalues are −1 … 0."""
    flat, unravel = ravel_pytree(target)

    def of_flat(v: Array) -> Array:
        return ravel_pytree(linear(unravel(v)))[0]

    return unravel(lax.custom_linear_solve(of_flat, flat, gmres, gmres))


def ascend(
    estimator: GenerativeEstimator[Any, Any], starts: Any, data: Data, tolerance: Array, *, max_steps: int
) -> tuple[Classifier[Any], EMReport]:
    """EM from a stack of starting statistics, all runs at once: the classifier of the best one, and how it went."""
    fixed = lax.stop_gradient((estimator, data, tolerance))
    starts = lax.stop_gradient(starts)

    def run(start: Any) -> tuple[Any, EMReport, Array]:
        return climb(fixed[0], start, fixed[1], fixed[2], max_steps)

    if jax.tree.leaves(starts)[0].shape[0] == 1:
        statistics, report, _ = run(jax.tree.map(lambda leaf: leaf[0], starts))
    else:
        *runs, raised = jax.vmap(run)(starts)
        best = jnp.argmax(jnp.nan_to_num(raised, nan=-jnp.inf))
        statistics, report = jax.tree.map(lambda leaf: leaf[best], runs)
    return estimator.estimate(differentiable(estimator, data, statistics)), report
