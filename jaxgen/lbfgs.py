"""L-BFGS for a convex loss: optax's directions, and a line search of one evaluation an iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.optimum import Optimum

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

_MEMORY = 20
# A step is accepted where the slope along it has not turned up by more than this share of what it was.
_MOST_SLOPE = 0.9
# Steps that bring down neither the loss nor its gradient: what is left is the rounding of this dtype.
_MOST_IDLE = 100
# A step so short that no parameter moves: there is nothing better to be found in this dtype.
_SHORTEST = 2.0**-40


class _Descent(NamedTuple):
    """Where a descent is: at a point, about to try a step from it.

    Attributes:
        point: the best parameters so far.
        value: the loss there.
        gradient: its gradient.
        direction: where the next step goes.
        slope: the derivative along it, negative.
        length: of the step; 1 is the method's own.
        memory: of the method.
        least: the smallest norm of a gradient so far.
        idle: how many steps have brought down neither that nor the loss.
        steps: that were accepted, −1 before the first look.
    """

    point: Array
    value: Array
    gradient: Array
    direction: Array
    slope: Array
    length: Array
    memory: Any
    least: Array
    idle: Array
    steps: Array


def minimise(
    loss: Callable[[Array], Array], start: Array, tolerance: Array, low_enough: Array, max_steps: int
) -> Optimum:
    """Steps along the directions of L-BFGS, each of length 1 or as much shorter as the loss demands.

    One evaluation an iteration, whether it ends in a step or in a shorter trial: so many fits in one program do not
    wait for each other's line searches. The search uses that the loss is convex. A step that ends where the slope is
    still downwards was not too long; one that went past the minimum is shortened by the secant rule, unless the slope
    there is no steeper than before and the loss no higher, up to its rounding.
    """
    import optax  # and with it a tenth of a second that Newton's method need not wait for

    directions: Any = optax.scale_by_lbfgs(memory_size=_MEMORY)
    evaluate = jax.value_and_grad(loss)
    one = jnp.ones((), start.dtype)
    rounding = 4 * jnp.finfo(start.dtype).eps

    def advance(s: _Descent) -> _Descent:
        trial = s.point + s.length * s.direction
        value, gradient = evaluate(trial)
        slope = jnp.vdot(gradient, s.direction)

        def accept() -> _Descent:
            # optax mixes integer widths under x64, which strict promotion, where the caller has set it, would refuse.
            with jax.numpy_dtype_promotion("standard"):
                step, memory = directions.update(gradient, s.memory, trial)
            descends = jnp.vdot(gradient, step) > 0
            direction = -jnp.where(descends, step, gradient)
            norm = jnp.linalg.norm(gradient)
            moves = (norm < 0.99 * s.least) | (value < s.value - rounding * jnp.abs(s.value))
            return _Descent(
                trial,
                value,
                gradient,
                direction,
                jnp.vdot(gradient, direction),
                one,
                memory,
                jnp.minimum(s.least, norm),
                jnp.where(moves, 0.0, s.idle + 1).astype(one.dtype),
                s.steps + 1,
            )

        def shorten() -> _Descent:
            secant = s.slope / (s.slope - slope)
            return s._replace(length=s.length * jnp.where(jnp.isfinite(secant), jnp.clip(secant, 0.1, 0.5), 0.1))

        good = (slope <= -_MOST_SLOPE * s.slope) & (value <= s.value + rounding * jnp.abs(s.value))
        return lax.cond(good | (s.steps < 0), accept, shorten)

    def unfinished(s: _Descent) -> Array:
        searching = (jnp.linalg.norm(s.gradient) > tolerance) & (s.value >= low_enough) & (s.steps < max_steps)
        return (s.steps < 0) | (searching & (s.length > _SHORTEST) & (s.idle < _MOST_IDLE))

    with jax.numpy_dtype_promotion("standard"):
        memory = directions.init(start)
    nowhere = jnp.zeros_like(start)
    infinite = jnp.full_like(one, jnp.inf)
    begin = _Descent(start, infinite, nowhere, nowhere, -one, one, memory, infinite, 0 * one, jnp.array(-1, jnp.int32))
    end = lax.while_loop(unfinished, advance, begin)
    return Optimum(end.point, jnp.linalg.norm(end.gradient), end.value, end.steps)
