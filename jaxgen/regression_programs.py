"""What the linear regressions compile: the problem, its optimum, and the weights in the units of the data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from jaxgen import coordinate_descent, first_order, lapack
from jaxgen.numerics import matmul, varying_alike, working_dtype
from jaxgen.optimum import at_optimum
from jaxgen.regression_problem import Outcome, Problem, standardise

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.regression_problem import Data


@jax.jit
def predict(weights: Array, bias: Array, x: Array) -> tuple[Array, Array]:
    """xᵀw + b, and whether all is finite."""
    weights, bias = jnp.asarray(weights), jnp.asarray(bias)
    dtype = working_dtype(weights.dtype)
    weights, bias = weights.astype(dtype), bias.astype(dtype)
    products = matmul(x.astype(dtype), weights)
    prediction = products + jnp.broadcast_to(bias, products.shape)
    return prediction, jnp.all(jnp.isfinite(prediction))


@jax.jit
def ridge(data: Data, l2: Any) -> tuple[tuple[Array, Array], Outcome]:
    """Weights and bias of ridge regression, of least squares where l2 is 0, and what was found out."""
    problem = standardise(data)
    d, m = problem.shape
    penalty = problem.square_penalty(l2)
    more = jnp.concatenate([jnp.diag(jnp.sqrt(penalty)), jnp.zeros((d, m), penalty.dtype)], axis=1)
    # Large rows first: reflections of small ones would lose the digits of those below (Higham 2002, section 19.4).
    rows = lax.stop_gradient(jnp.concatenate([more, problem.triangle()]))
    triangle = lapack.triangle(rows)
    factor = triangle[:d, :d]
    dependent = problem.are_dependent(rows, factor, penalty)
    first = jnp.where(jnp.any(dependent), jnp.argmax(dependent), -1)
    weights = jnp.where(first < 0, lapack.solve_upper(factor, triangle[:d, d:]), jnp.nan)
    weights = at_optimum(Partial(Problem.loss, problem, penalty=penalty), weights, Partial(_solve_normal, factor))
    outcome = Outcome(problem.valid, problem.total, dependent=first)
    return problem.coefficients(weights, data), outcome


def _solve_normal(factor: Array, v: Array) -> Array:
    """(RᵀR)⁻¹ v."""
    return lapack.solve_upper(factor, lapack.solve_upper(factor, v, transposed=True))


@partial(jax.jit, static_argnames="max_steps")
def lasso(data: Data, l1: Any, tolerance: Any, *, max_steps: int) -> tuple[tuple[Array, Array], Outcome]:
    """The same of the lasso."""
    problem = standardise(data)
    dtype = problem.x.dtype
    if tolerance is None:
        tolerance = 1e-12 if dtype == np.float64 else 1e-6
    tolerance = lax.stop_gradient(jnp.asarray(tolerance).astype(dtype))
    weights, gap, steps = coordinate_descent.optimum(problem, l1, tolerance=tolerance, max_steps=max_steps)
    outcome = Outcome(problem.valid, problem.total, gap <= tolerance, gap, steps)
    return problem.coefficients(weights, data), outcome


@partial(jax.jit, static_argnames=("optimizer", "steps"))
def descent(data: Data, l2: Any, *, optimizer: Any, steps: int) -> tuple[tuple[Array, Array], Outcome]:
    """The same of ridge regression by an optimiser of optax, or by L-BFGS for None."""
    problem = standardise(data)
    penalty = problem.square_penalty(l2)
    dtype = problem.x.dtype
    tolerance = jnp.asarray(1e-9 if dtype == np.float64 else 1e-5, dtype)

    # In units in which every direction is about equally steep: features have variance 1, and the penalty of each adds
    # to that. They have no derivative, since the optimum does not depend on them.
    unit = lax.stop_gradient(jnp.sqrt(1 / (1 + penalty)))[:, None]
    loss, start = varying_alike(Partial(_loss_in, problem, penalty, unit), jnp.zeros(problem.shape, dtype))
    found = first_order.minimise(
        lax.stop_gradient(loss),
        optimizer,
        start,
        tolerance,
        jnp.asarray(-jnp.inf, dtype),
        steps,
    )
    weights = jnp.where(found.norm < jnp.inf, at_optimum(loss, found.point), jnp.nan)  # a negative l2 has no optimum
    outcome = Outcome(problem.valid, problem.total, found.norm <= tolerance, found.norm, found.steps)
    return problem.coefficients(unit * weights, data), outcome


def _loss_in(problem: Problem, penalty: Array, unit: Array, weights: Array) -> Array:
    """The loss of weights in other units."""
    return problem.loss(unit * weights, penalty)
