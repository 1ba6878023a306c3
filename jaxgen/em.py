"""Expectation-maximisation: a fit where labels or correlated features are missing.

    E  responsibilities r_ik = p(k | x_i) of the rows without a label, and what is expected of missing features
    M  the estimate from the statistics of those

The E-step is `log_joint` and `statistics`, the M-step `estimate`; here is their loop and the gradient through its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxgen.ascent import Ascent, EMReport, Expectation, best, each_run
from jaxgen.classify import log_joint
from jaxgen.krylov import gmres
from jaxgen.numerics import log_sum_exp, varying_alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.classifier import Classifier
    from jaxgen.em_data import Data
    from jaxgen.estimator import GenerativeEstimator


def expect(estimator: GenerativeEstimator[Any, Any], c: Classifier[Any], data: Data) -> Expectation:
    """The E-step under a classifier."""
    responsibilities, log_evidence, weight = responsibilities_of(c, data)
    return Expectation(statistics_of(estimator, data, responsibilities, c), log_evidence, weight)


def responsibilities_of(c: Classifier[Any], data: Data) -> tuple[Float[Array, "n classes"], Array, Array]:
    """Those of all rows under a classifier, times their weights; the sum of their log evidence, and of the weights."""
    mask: Any = data.mask
    joint = log_joint(c, data.x, observed=mask)
    evidence = log_sum_exp(joint)
    # A row of weight 0 may be impossible; else its weight has a derivative, which a choice by the weight would cut off.
    counts = (data.unlabelled > 0) | (evidence > -jnp.inf)
    evidence = jnp.where(counts, evidence, 0.0)
    posterior = jnp.where(counts[:, None], jnp.exp(joint - evidence[:, None]), 0.0)
    responsibilities = data.labelled + data.unlabelled[:, None] * posterior
    terms = jnp.sum(jnp.where(data.labelled > 0, data.labelled * joint, 0.0), axis=-1)
    weight = jnp.sum(data.labelled) + jnp.sum(data.unlabelled)
    return responsibilities, jnp.sum(terms + data.unlabelled * evidence), weight


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
        after = expect(estimator, estimator.estimate(before), data).statistics
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
    """EM from a stack of starts, all runs at once: the classifier of the best one, and how it went.

    A start is responsibilities (n, K), and a classifier that fills in what is missing, or None where none is needed.
    """
    still, fixed, tolerance = lax.stop_gradient((estimator, data, tolerance))

    def step(run: Ascent) -> Ascent:
        c = still.estimate(run.statistics)
        return run.step(still, c, expect(still, c, fixed), tolerance)

    def climb(responsibilities: Array, c: Classifier[Any] | None) -> Ascent:
        statistics = statistics_of(still, fixed, responsibilities, c)
        run = Ascent.begin(statistics, data.labelled.dtype, max_steps)
        run, *_ = varying_alike(run, fixed, still)
        return lax.while_loop(lambda run: run.goes_on, step, run)

    runs = each_run(climb, *lax.stop_gradient(starts))
    statistics, report = best(runs, runs.statistics)
    return estimator.estimate(differentiable(estimator, data, statistics)), report
