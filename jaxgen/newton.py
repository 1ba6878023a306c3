"""Newton's method for a convex loss, with a line search that costs less than a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import lax

from jaxgen import lapack
from jaxgen.optimum import Optimum

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

# A length is accepted where the slope is at most this share of what it was at the start of the line. With a hundredth
# fits take up to a seventh fewer steps, but in float32 rounding hides such a slope from some, which do not converge.
_MOST_SLOPE = 0.1
# Trials of a line search, and how far one goes beyond the last while nothing is known of what lies there.
_MOST_TRIALS, _GROWTH = 12, 4.0
# Steps that bring down neither the loss nor its gradient: what is left is the rounding of this dtype.
_MOST_IDLE = 5


class Line(Protocol):
    """A line through the parameters: it starts at a point, and t goes along a direction."""

    def at(self, t: Array) -> tuple[Array, Array, Array]:
        """The loss, its slope and its curvature; cheap, for there are trials of several t."""
        ...

    def end(self, t: Array) -> tuple[Array, Array, Any]:
        """The point, the gradient there, and what the second derivatives there and a line from there are made of."""
        ...


class _Iterate(NamedTuple):
    """Where the method is.

    Attributes:
        point: the parameters.
        value: the loss there.
        gradient: its gradient.
        kept: what its second derivatives and a line from there are made of.
        norm: of the gradient.
        least: the smallest norm so far.
        idle: how many steps have brought down neither that nor the loss.
        steps: taken so far.
    """

    point: Array
    value: Array
    gradient: Array
    kept: Any
    norm: Array
    least: Array
    idle: Array
    steps: Array


def minimise(
    look: Callable[[Array], tuple[Array, Array, Any]],
    hessian: Callable[[Any], Array],
    along: Callable[[Array, Array, Any], Line],
    start: Array,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> Optimum:
    """Newton steps until the gradient is small, the loss low enough, or the steps are used up.

    The length of a step is near the minimum along its direction. Far from the optimum of nearly separable classes that
    is several Newton steps at once, and there it halves their number.

    Args:
        look: at a table of parameters: the loss, its gradient, shaped like that, and what `hessian` and `along` take.
        hessian: the second derivatives, of what was kept of a look: a matrix over the parameters in their order. What
            stands above its diagonal is not read.
        along: a table, a direction from there, and what was kept of a look at the table.
        start: a table of parameters.
        tolerance: of the norm of the gradient.
        low_enough: a loss.
        max_steps: at most.
    """

    def advance(s: _Iterate) -> _Iterate:
        direction = _direction(hessian(s.kept), s.gradient)
        line = along(s.point, direction, s.kept)
        length, value = _search(line.at, s.value, jnp.vdot(direction, s.gradient))
        point, gradient, kept = line.end(length)
        norm = jnp.linalg.norm(gradient)
        moves = (norm < 0.99 * s.least) | (value < s.value - _rounding(value) * jnp.abs(s.value))
        idle = jnp.where(moves, 0, s.idle + 1)
        return _Iterate(point, value, gradient, kept, norm, jnp.minimum(s.least, norm), idle, s.steps + 1)

    def unfinished(s: _Iterate) -> Array:
        wanted = (s.norm > tolerance) & (s.value >= low_enough)
        return wanted & (s.steps < max_steps) & (s.idle < _MOST_IDLE)

    value, gradient, kept = look(start)
    norm = jnp.linalg.norm(gradient)
    zero = jnp.zeros_like(value, jnp.int32)
    end = lax.while_loop(unfinished, advance, _Iterate(start, value, gradient, kept, norm, norm, zero, zero))
    return Optimum(end.point, end.norm, end.value, end.steps)


def _direction(hessian: Array, gradient: Array) -> Array:
    """−H⁻¹ g, or −g where that does not descend."""
    # No more than the rounding of the factorisation, which then does not break down (Higham 2002, theorem 10.3); and a
    # little where far out on separable data the curvature vanishes with the gradient.
    size, eps = hessian.shape[0], jnp.finfo(hessian.dtype).eps
    diagonal = jnp.eye(size, dtype=hessian.dtype)
    raised = hessian * (1 + 2 * size * eps * diagonal) + 8 * eps * diagonal
    direction = -lapack.solve_positive(raised, gradient.ravel()).reshape(gradient.shape)
    return jnp.where(jnp.vdot(direction, gradient) < 0, direction, -gradient)


class _Trial(NamedTuple):
    """A line search between the lengths that are known to be too short and too long.

    Attributes:
        tried: the length that was tried last.
        reached: the loss there.
        following: the next length.
        short: the longest that is too short.
        lower: the loss there.
        long: the shortest that is too long.
        good: whether the last one is accepted.
        trials: so far.
    """

    tried: Array
    reached: Array
    following: Array
    short: Array
    lower: Array
    long: Array
    good: Array
    trials: Array


def _search(at: Callable[[Array], tuple[Array, Array, Array]], value: Array, slope: Array) -> tuple[Array, Array]:
    """A length where the slope is a small part of what it was and the loss, up to its rounding, no higher; that loss.

    Newton's method in one dimension from length 1, kept between the lengths that are too short and too long.
    """

    def attempt(s: _Trial) -> _Trial:
        length = s.following
        reached, turned, curvature = at(length)
        good = (jnp.abs(turned) <= -_MOST_SLOPE * slope) & (reached <= value + _rounding(value) * jnp.abs(value))
        short, lower = jnp.where(turned < 0, length, s.short), jnp.where(turned < 0, reached, s.lower)
        long = jnp.where(turned < 0, s.long, length)
        newton = length - turned / curvature
        farthest = jnp.minimum(long, _GROWTH * length)
        inside = (newton > short) & (newton < farthest)
        # Far out on a saturated loss the curvature vanishes, and a step may be a million times too long.
        between = jnp.where(
            short > 0, jnp.sqrt(short) * jnp.sqrt(long), long * jnp.exp2(-1.0 - s.trials.astype(long.dtype))
        )
        following = jnp.where(inside, newton, jnp.where(jnp.isfinite(long), between, farthest))
        return _Trial(length, reached, following, short, lower, long, good, s.trials + 1)

    def unfinished(s: _Trial) -> Array:
        return ~s.good & (s.trials < _MOST_TRIALS)

    one = jnp.ones_like(value)
    no = jnp.zeros_like(one, bool)
    begin = _Trial(one, value, one, 0 * one, value, jnp.inf * one, no, jnp.zeros_like(one, jnp.int32))
    end = lax.while_loop(unfinished, attempt, begin)
    # Where the trials are used up: the last one, if the loss fell, as it has on the way to any slope that is downwards.
    last = end.good | (end.reached < value)
    return jnp.where(last, end.tried, end.short), jnp.where(last, end.reached, end.lower)


def _rounding(value: Array) -> float:
    return 4 * float(jnp.finfo(value.dtype).eps)
