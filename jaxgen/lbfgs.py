"""L-BFGS for a convex loss: the compact form of its directions, and a line search of one evaluation an iteration.

With a preconditioner it works in coordinates in which the loss is about equally steep in every direction. These become
others on the way, as the curvature does, and the memory goes along.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxgen.numerics import matmul, shortcut
from jaxgen.optimum import Optimum
from jaxgen.preconditioner import Preconditioner

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float, Int

_MEMORY = 20
# Evaluations after which the preconditioner is made anew.
_RENEWAL = 20
# A step is accepted where the slope along it has not turned up by more than this share of what it was.
_MOST_SLOPE = 0.9
# Steps that bring down neither the loss nor its gradient: what is left is the rounding of this dtype.
_MOST_IDLE = 100
# A step so short that no parameter moves: there is nothing better to be found in this dtype.
_SHORTEST = 2.0**-40


class _Memory(NamedTuple):
    """What L-BFGS knows of the curvature: the last steps s, and what each changed in the gradient, y.

    Attributes:
        vectors: rows s, then y, and last the gradient; a new step takes the place of the oldest, and where there is
            none yet there are zeros.
        inverse: of R, the table of sᵢᵀyⱼ for steps i no newer than j; zeros where a step is no pair, for want of
            curvature or because there is none yet.
    """

    vectors: Float[Array, "pairs_and_gradient p"]
    inverse: Float[Array, "pairs pairs"]


class _Descent(NamedTuple):
    """Where a descent is: at a point, about to try a step from it.

    Attributes:
        point: the best parameters so far.
        value: the loss there.
        norm: of its gradient.
        direction: where the next step goes.
        slope: the derivative along it, negative.
        length: of the step; 1 is the method's own.
        memory: of the way here.
        least: the smallest norm of a gradient so far.
        lowest: the smallest loss so far.
        idle: how many steps have brought down neither.
        steps: that were accepted, −1 before the first look.
        looks: evaluations so far.
        preconditioner: in whose coordinates the memory is, if there is one.
    """

    point: Float[Array, " p"]
    value: Float[Array, ""]
    norm: Float[Array, ""]
    direction: Float[Array, " p"]
    slope: Float[Array, ""]
    length: Float[Array, ""]
    memory: _Memory
    least: Float[Array, ""]
    lowest: Float[Array, ""]
    idle: Float[Array, ""]
    steps: Int[Array, ""]
    looks: Int[Array, ""]
    preconditioner: Preconditioner | None


def minimise(
    evaluate: Callable[[Array], tuple[Array, Array]],
    start: Array,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
    precondition: Callable[[Array], Preconditioner] | None = None,
) -> Optimum:
    """Steps along the directions of L-BFGS, each of length 1 or as much shorter as the loss demands.

    One evaluation an iteration, whether it ends in a step or in a shorter trial: so many fits in one program do not
    wait for each other's line searches. The search uses that the loss is convex. A step that ends where the slope is
    still downwards was not too long; one that went past the minimum is shortened by the secant rule, unless the slope
    there is less steep than before and the loss no higher, up to its rounding.

    Args:
        evaluate: the loss and its gradient, shaped like the parameters, as a function of these.
        start: the parameters to begin with.
        tolerance: of the Euclidean norm of the gradient.
        low_enough: a loss below which there is nothing more to find out.
        max_steps: at most.
        precondition: the preconditioner that suits a table of parameters; the norm remains that of the gradient by
            these. None is for any array of parameters.
    """
    one = jnp.ones_like(start, shape=())
    rounding = 4 * jnp.finfo(start.dtype).eps

    def advance(s: _Descent) -> _Descent:
        if precondition is not None:
            s = _renewed(s, precondition, start.shape, unfinished(s))
        trial = s.point + s.length * s.direction
        value, gradient = evaluate(trial.reshape(start.shape))
        gradient = gradient.ravel()
        slope = jnp.vdot(gradient, s.direction)

        def accept() -> _Descent:
            memory, direction, slope, norm = _turn_of(s, trial - s.point, gradient, start.shape)
            moves = (norm < 0.99 * s.least) | (value < s.lowest - rounding * jnp.abs(s.lowest))
            idle = jnp.where(moves, 0.0, s.idle + 1).astype(one.dtype)
            least, lowest = jnp.minimum(s.least, norm), jnp.minimum(s.lowest, value)
            ahead = trial, value, norm, direction, slope, one, memory, least, lowest, idle, s.steps + 1
            return _Descent(*ahead, s.looks + 1, s.preconditioner)

        def shorten() -> _Descent:
            secant = s.slope / (s.slope - slope)
            length = s.length * jnp.where(secant > 0.1, jnp.minimum(secant, 0.5), 0.1)
            return s._replace(length=length, looks=s.looks + 1)

        no_higher = value <= s.value + rounding * jnp.abs(s.value)
        good = (slope <= 0) | ((slope <= -_MOST_SLOPE * s.slope) & no_higher)
        return lax.cond(good | (s.steps < 0), accept, shorten)

    def unfinished(s: _Descent) -> Array:
        searching = (s.norm > tolerance) & (s.value >= low_enough) & (s.steps < max_steps)
        return (s.steps < 0) | (searching & (s.length > _SHORTEST) & (s.idle < _MOST_IDLE))

    begin, infinite, zeros = start.ravel(), jnp.inf * one, partial(jnp.zeros_like, start)
    memory = _Memory(zeros(shape=(2 * _MEMORY + 1, begin.size)), zeros(shape=(_MEMORY, _MEMORY)))
    no_steps = jnp.full_like(one, -1, jnp.int32)
    nowhere, before = zeros(shape=begin.shape), None
    if precondition is not None:
        before = Preconditioner(*[zeros(shape=(len(start), len(start)))] * 2)
    ahead = begin, infinite, infinite, nowhere, -one, one, memory, infinite, infinite, 0 * one, no_steps
    first = _Descent(*ahead, no_steps + 1, before)
    end = lax.while_loop(unfinished, advance, first)
    return Optimum(end.point.reshape(start.shape), end.norm, end.value, end.steps)


def _renewed(
    s: _Descent, precondition: Callable[[Array], Preconditioner], shape: tuple[int, ...], searching: Array
) -> _Descent:
    """With a preconditioner that suits the point, every so many evaluations, and the memory in its coordinates."""

    def renew(memory: _Memory, old: Preconditioner) -> tuple[_Memory, Preconditioner]:
        fresh = precondition(s.point.reshape(shape))
        tables = memory.vectors.reshape(-1, *shape)
        steps, gradients = old.step(tables[:_MEMORY]), old.gradient(tables[_MEMORY:])
        tables = jnp.concatenate([fresh.of_step(steps), fresh.of_gradient(gradients)])
        return memory._replace(vectors=tables.reshape(memory.vectors.shape)), fresh  # products of the two are the same

    due = searching & (lax.rem(s.looks, jnp.full_like(s.looks, _RENEWAL)) == 0)
    memory, fresh = shortcut(~due, lambda *old: old, renew, s.memory, s.preconditioner)
    return s._replace(memory=memory, preconditioner=fresh)


def _turn_of(
    s: _Descent, step: Float[Array, " p"], gradient: Float[Array, " p"], shape: tuple[int, ...]
) -> tuple[_Memory, Float[Array, " p"], Float[Array, ""], Float[Array, ""]]:
    """As `_turn`, in the coordinates of the preconditioner where there is one."""
    if s.preconditioner is None:
        return _turn(s.memory, s.steps, step, gradient)
    inside = s.preconditioner.of_step(step.reshape(shape)), s.preconditioner.of_gradient(gradient.reshape(shape))
    memory, direction, slope, _ = _turn(s.memory, s.steps, *(each.ravel() for each in inside))
    direction = s.preconditioner.step(direction.reshape(shape)).ravel()
    return memory, direction, slope, jnp.linalg.norm(gradient)


def _turn(
    memory: _Memory, steps: Array, step: Float[Array, " p"], gradient: Float[Array, " p"]
) -> tuple[_Memory, Float[Array, " p"], Float[Array, ""], Float[Array, ""]]:
    """The memory after a step, and −H g, its slope and the norm of g, for the inverse Hessian H in compact form.

    With S and Y the pairs as columns, R as in `_Memory`, D its diagonal and γ = sᵀy/yᵀy of the newest pair (Byrd,
    Nocedal & Schnabel 1994, equation 3.1; where there is none H begins with I):

        H = γ I + [S  γY] [R⁻ᵀ (D + γ YᵀY) R⁻¹   −R⁻ᵀ] [ Sᵀ]
                          [−R⁻¹                    0  ] [γYᵀ]

    All that it needs of the long vectors is one product of all of them with each other, and one sum of them. R⁻¹ loses
    the row and the column of the oldest pair, which leaves the inverse of what remains, and gains those of the newest.
    """
    m = _MEMORY
    place = lax.rem(jnp.maximum(steps, 0), jnp.full_like(steps, m))
    vectors = lax.dynamic_update_slice_in_dim(memory.vectors, step[None], place, axis=0)
    vectors = lax.dynamic_update_slice_in_dim(vectors, (gradient - memory.vectors[-1])[None], m + place, axis=0)
    vectors = lax.dynamic_update_slice_in_dim(vectors, gradient[None], 2 * m, axis=0)
    products = matmul(vectors, vectors.T)
    across, among = products[:m, m:-1], products[m:-1, m:-1]
    along_steps, along_changes, square = products[-1, :m], products[-1, m:-1], products[-1, -1]
    newest = jnp.arange(m, dtype=jnp.int32) == place
    with_newest = jnp.sum(jnp.where(newest[None], across, 0.0), axis=1)
    curvature = jnp.sum(jnp.where(newest, with_newest, 0.0))
    turned = jnp.sum(jnp.where(newest[:, None] & newest[None], among, 0.0))
    is_pair = curvature > 0  # rounding may undo it, and before the first step there is none
    curvature, scale = jnp.where(is_pair, curvature, 1.0), jnp.where(is_pair, curvature / turned, 1.0)

    rest = jnp.where(newest[:, None] | newest[None], 0.0, memory.inverse)
    column = jnp.where(newest, 1.0, -matmul(rest, with_newest)) / curvature
    inverse = jnp.where(newest[None] & is_pair, column[:, None], rest)
    middle = jnp.where(jnp.eye(m, dtype=bool), across, 0.0) + scale * among
    solved = matmul(inverse, along_steps)  # R⁻¹Sᵀg
    inner = matmul(middle, solved) - scale * along_changes
    of_steps, of_changes = -matmul(inner, inverse), scale * solved
    last = (jnp.arange(2 * m + 1) == 2 * m).astype(square.dtype)
    slope = jnp.sum(of_steps * along_steps + of_changes * along_changes) - scale * square
    descends = slope < 0  # else down the gradient
    coefficients = jnp.where(descends, jnp.concatenate([of_steps, of_changes, -scale[None]]), -last)
    slope = jnp.where(descends, slope, -square)
    return _Memory(vectors, inverse), matmul(coefficients, vectors), slope, jnp.sqrt(square)
