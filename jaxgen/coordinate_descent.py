"""The minimum of ½‖b − Aw‖² + Σ_j λ_j |w_j|, by coordinate descent on the Gram matrix AᵀA.

Where columns of A are nearly dependent coordinate descent creeps. Newton steps on the coordinates that are not zero,
each cut short where one of them would change its sign, then go all the way, and never raise the loss (Lee, Battle,
Raina & Ng 2007, Efficient sparse coding algorithms, NIPS 19, section 3, hold the signs and solve in this way).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg
from jax.tree_util import Partial

from jaxgen import lapack
from jaxgen.matrices import diagonals
from jaxgen.numerics import matmul, nonnegative_or_nan, safe_divide, varying_alike
from jaxgen.optimum import at_optimum

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.regression_problem import Problem

# Turns of all coordinates in a step, and Newton steps after them, at most.
_TURNS = 10
_NEWTON_STEPS = 10


def optimum(
    problem: Problem, l1: Any, *, tolerance: Array, max_steps: int
) -> tuple[Float[Array, "d 1"], Float[Array, ""], Int[Array, ""]]:
    """The lasso of a problem of one target, as `minimise` finds it, with derivatives through it."""
    d, _ = problem.shape
    penalty = nonnegative_or_nan(l1, problem.x.dtype) / problem.unit[d] * (1 / problem.unit[:d])
    triangle = problem.triangle()
    gram = matmul(triangle.T, triangle)[:d, :d]
    start, is_minimum = _start(problem, triangle, lax.stop_gradient(penalty))
    weights, gap, steps = minimise(
        triangle[:, :d],
        triangle[:, d],
        lax.stop_gradient(penalty),
        start,
        is_minimum,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    sign = jnp.sign(weights)
    # Where nothing is penalised a weight is zero by chance, but for that of a constant feature.
    active = jnp.where((penalty == 0) & (diagonals(gram) > 0), 1.0, jnp.abs(sign))

    loss = Partial(_loss_of_active, problem, penalty, sign, active)
    weights = at_optimum(loss, weights, Partial(_invert, triangle[:, :d], active))
    return weights[:, None], gap, steps


def _start(
    problem: Problem, triangle: Float[Array, "k d_and_1"], penalty: Float[Array, " d"]
) -> tuple[Float[Array, " d"], Bool[Array, ""]]:
    """Where to begin: at zero, or, where nothing is penalised and features are independent, at least squares.

    There no dual bounds what is left to gain, and of features that are nearly dependent the Gram matrix knows half of
    the digits. And whether that is the minimum already.
    """
    d = len(penalty)
    if triangle.shape[0] < d:
        return jnp.zeros_like(penalty), jnp.zeros_like(penalty, bool, shape=())
    factor = triangle[:d, :d]
    is_minimum = jnp.all(penalty == 0) & ~jnp.any(problem.are_dependent(triangle, factor, penalty))
    return jnp.where(is_minimum, lapack.solve_upper(factor, triangle[:d, d:])[:, 0], 0.0), is_minimum


def _loss_of_active(problem: Problem, penalty: Array, sign: Array, active: Array, weights: Array) -> Array:
    """The loss where the signs remain as they are, smooth; and a parabola for each of the other weights."""
    own, rest = active * weights, (1 - active) * weights
    return problem.loss(own[:, None]) + jnp.sum(penalty * sign * own) + 0.5 * jnp.sum(rest**2)


def _invert(a: Array, active: Array, v: Array) -> Array:
    """The inverse of its Hessian times v; of columns that depend on each other the one of least norm.

    By the singular values of A, since those of AᵀA know half of the digits.
    """
    _, size, directions = lapack.svd(a * active[None])
    known = size > 8 * len(v) * float(jnp.finfo(v.dtype).eps) * size[0]
    inverse = jnp.where(known, 1 / jnp.where(known, size, 1.0) ** 2, 0.0)
    return matmul(directions.T, inverse * matmul(directions, v)) + (1 - active) * v


def minimise(
    a: Float[Array, "k d"],
    b: Float[Array, " k"],
    penalty: Float[Array, " d"],
    start: Float[Array, " d"],
    is_minimum: Bool[Array, ""],
    *,
    tolerance: Array,
    max_steps: int,
) -> tuple[Float[Array, " d"], Float[Array, ""], Int[Array, ""]]:
    """Coordinate descent and Newton steps in turn, until the duality gap is small or the steps are used up.

    Along one coordinate the minimum is w_j = S(A_jᵀ(b − Aw) + G_jj w_j, λ_j) / G_jj, where G = AᵀA and
    S(z, λ) = sign(z)·max(|z| − λ, 0); a change of w_j changes Aᵀ(b − Aw) by a row of G (Friedman, Hastie & Tibshirani
    2010, Journal of Statistical Software 33(1), section 2.2, "covariance updates").

    Args:
        a: A; its columns have norm 1, or are zero.
        b: of norm 1, or zero.
        penalty: λ_j ≥ 0.
        start: the weights to begin with.
        is_minimum: whether they are known to be the minimum.
        tolerance: of the duality gap.
        max_steps: of ten turns of all coordinates, and Newton steps.

    Returns:
        w, the gap, and the number of steps.
    """
    a, b, penalty, start, is_minimum = varying_alike(a, b, penalty, start, is_minimum)
    gram = matmul(a.T, a)
    zero, none = jnp.zeros_like(b, shape=()), jnp.zeros_like(b, jnp.int32, shape=())

    def correlation_of(weights: Array) -> Array:
        return matmul(a.T, b - matmul(a, weights))

    def update(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, correlation = state
        z = correlation[j] + gram[j, j] * weights[j]
        weight = safe_divide(jnp.sign(z) * jnp.maximum(jnp.abs(z) - penalty[j], 0.0), gram[j, j])
        return weights.at[j].set(weight), correlation - gram[j] * (weight - weights[j])

    def turn(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return lax.fori_loop(0, len(penalty), update, state)

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights, _, steps = state
        slope = correlation_of(weights) - penalty * jnp.sign(weights)
        step = solve_active(gram, jnp.abs(jnp.sign(weights)), slope)
        shrinks = (weights * step < 0) & (penalty > 0)
        zero_at = jnp.where(shrinks, -weights / jnp.where(shrinks, step, 1.0), jnp.inf)
        length = jnp.minimum(jnp.min(zero_at), 1.0)
        return jnp.where(zero_at <= length, 0.0, weights + length * step), length, steps + 1

    def cut_short(state: tuple[Array, Array, Array]) -> Array:
        _, length, steps = state
        return (length < 1) & (steps < _NEWTON_STEPS)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights, _, steps = state
        weights, _ = lax.fori_loop(0, _TURNS, turn, (weights, correlation_of(weights)))
        weights, _, _ = lax.while_loop(cut_short, newton, (weights, zero, none))
        return weights, duality_gap(a, b, penalty, weights, tolerance), steps + 1

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, gap, steps = state
        return (gap > tolerance) & (steps < max_steps)

    return lax.while_loop(unfinished, step, (start, jnp.where(is_minimum, zero, jnp.inf), none))


def solve_active(gram: Float[Array, "d d"], active: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
    """G_AA⁻¹ v_A for the coordinates A where `active` is 1, not 0, and zero for the others.

    By conjugate gradients, which stay finite where G_AA is singular. Rounding may have made its least eigenvalue
    negative: all are raised by 4·d·eps.
    """
    eps = float(jnp.finfo(gram.dtype).eps)
    lift = 4 * len(v) * eps
    return cg(lambda u: active * matmul(gram, u) + lift * u, active * v, tol=8 * eps)[0]


def duality_gap(
    a: Float[Array, "k d"],
    b: Float[Array, " k"],
    penalty: Float[Array, " d"],
    weights: Float[Array, " d"],
    tolerance: Array,
) -> Float[Array, ""]:
    """The loss at w less that of the dual problem at s·(b − Aw), with s ≤ 1 so small that |A_jᵀ(b − Aw)|·s ≤ λ_j.

    No w has a loss that is lower by more than this (Kim, Koh, Lustig, Boyd & Gorinevsky 2007, IEEE Journal of Selected
    Topics in Signal Processing 1(4), 606–617). What rounding makes of A_jᵀ(b − Aw) is allowed for, as a larger λ_j:
    with λ_j = 0 all of it, since the slope is not 0 even at the minimum, else as much as adds half of the tolerance to
    the gap, which it does.
    """
    residual = b - matmul(a, weights)
    correlation = matmul(a.T, residual)
    size = jnp.sum(jnp.abs(weights))
    rounding = 4 * jnp.finfo(b.dtype).eps * (1 + size)
    allowed = jnp.where(penalty > 0, jnp.minimum(rounding, safe_divide(0.5 * tolerance, size, jnp.inf)), rounding)
    scale = jnp.minimum(jnp.min(safe_divide(penalty + allowed, jnp.abs(correlation), jnp.inf)), 1.0)
    slack = jnp.sum(penalty * jnp.abs(weights) - scale * correlation * weights)
    slack += jnp.sum(jnp.where(penalty > 0, allowed * jnp.abs(weights), 0.0))
    return 0.5 * (1 - scale) ** 2 * jnp.sum(residual**2) + slack
