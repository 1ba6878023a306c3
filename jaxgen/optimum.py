"""The minimum of a smooth convex loss, found with optax or by Newton's method, and gradients through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg

if TYPE_CHECKING:
    from collections.abc import Callable

    import optax
    from jax import Array

P = TypeVar("P")

_MEMORY = 20
# A step is accepted where the slope along it has not turned up by more than this share of what it was.
_MOST_SLOPE = 0.9
# Steps that bring down neither the loss nor its gradient: what is left is the rounding of this dtype.
_MOST_IDLE = 100
# A step so short that no parameter moves: there is nothing better to be found in this dtype.
_SHORTEST = 2.0**-40


def find_optimum(
    loss: Callable[[P], Array],
    start: P,
    optimizer: optax.GradientTransformation | None,
    *,
    hessian: Callable[[P], Array] | None,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[P, Array, Array, Array]:
    """Minimise a convex loss until its gradient is small, the loss is low enough, or the steps are used up.

    What the loss closes over is differentiated by the implicit function theorem: the optimum is where the gradient is
    zero, whatever path led there.

    Args:
        loss: of a pytree of parameters; its Hessian at the optimum must be positive definite.
        start: where to start.
        optimizer: None is Newton's method where there is a Hessian, else L-BFGS with a memory of 20; both with a line
            search.
        hessian: of the loss, as a matrix over the parameters in the order of their leaves; None where it is too large.
        tolerance: of the Euclidean norm of the gradient.
        low_enough: a loss below which there is nothing more to find out; −∞ for none.
        max_steps: of the optimiser.

    Returns:
        The optimum, the norm of the gradient there, the loss, and the number of steps.
    """
    tolerance, low_enough = lax.stop_gradient((tolerance, low_enough))

    def minimise(_: Any, start: P) -> tuple[P, tuple[Array, Array, Array]]:
        if optimizer is not None:
            return _iterate(loss, start, optimizer, tolerance, low_enough, max_steps)
        flat, unravel = ravel_pytree(start)
        if hessian is None:
            import optax  # and with it a tenth of a second that Newton's method need not wait for

            directions = optax.scale_by_lbfgs(memory_size=_MEMORY)
        else:
            directions = _Newton(unravel, hessian)
        flat, ending = _descend(lambda flat: loss(unravel(flat)), flat, directions, tolerance, low_enough, max_steps)
        return unravel(flat), ending

    solution, (norm, value, steps) = lax.custom_root(jax.grad(loss), start, minimise, _solve_linear, has_aux=True)
    return solution, norm, value, steps.astype(jnp.int32)


def newton_step(loss: Callable[[P], Array], parameters: P) -> P:
    """H⁻¹ g: how far a Newton step would go from here, also along directions whose share of the gradient is tiny."""
    gradient, hessian = jax.linearize(jax.grad(loss), parameters)
    return cg(hessian, gradient, tol=_rounding(gradient), maxiter=1000)[0]


class _Newton(NamedTuple):
    """Newton's method in the form of an optax transformation: H⁻¹ g in place of the gradient."""

    unravel: Callable[[Array], Any]
    hessian: Callable[[Any], Array]

    def init(self, parameters: Array) -> tuple[()]:
        """It remembers nothing."""
        return ()

    def update(self, gradient: Array, state: tuple[()], parameters: Array) -> tuple[Array, tuple[()]]:
        """The step from a point."""
        matrix = self.hessian(self.unravel(parameters))
        # No more than the rounding of the factorisation, which then does not break down (Higham 2002, theorem 10.3);
        # and a little where far out on separable data the curvature vanishes with the gradient.
        size, eps = matrix.shape[0], jnp.finfo(matrix.dtype).eps
        lift = jnp.diag(2 * size * eps * jnp.diagonal(matrix) + 8 * eps)
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix + lift), gradient), state


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
        steps: that were accepted, −1 before the first look; a float, as all that comes out of `custom_root` has to be.
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


def _descend(
    loss: Callable[[Array], Array],
    start: Array,
    directions: Any,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Steps along the directions of a method, each of length 1 or as much shorter as the loss demands.

    One evaluation an iteration, whether it ends in a step or in a shorter trial: so many fits in one program do not
    wait for each other's line searches. The search uses that the loss is convex. A step that ends where the slope is
    still downwards was not too long; one that went past the minimum is shortened by the secant rule, unless the slope
    there is no steeper than before and the loss no higher, up to its rounding.
    """
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
    begin = _Descent(start, infinite, nowhere, nowhere, -one, one, memory, infinite, 0 * one, -one)
    end = lax.while_loop(unfinished, advance, begin)
    return end.point, (jnp.linalg.norm(end.gradient), end.value, end.steps)


def _iterate(
    loss: Callable[[P], Array],
    start: P,
    given: optax.GradientTransformation,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[P, tuple[Array, Array, Array]]:
    """The updates of any optax optimiser: parameters, and the norm of the gradient, the loss and the number of steps.

    They are floats all, since `custom_root` has no derivative for what else comes out of it.
    """
    import optax

    evaluate = jax.value_and_grad(loss)
    optimizer = optax.with_extra_args_support(given)

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        parameters, state, value, gradient, steps = carry
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(gradient, state, parameters, value=value, grad=gradient, value_fn=loss)
            parameters: Any = optax.apply_updates(parameters, updates)
            value, gradient = evaluate(parameters)
        return parameters, state, value, gradient, steps + 1

    def unfinished(carry: tuple[Any, ...]) -> Array:
        _, _, value, gradient, steps = carry
        return (optax.tree.norm(gradient) > tolerance) & (value >= low_enough) & (steps < max_steps)

    value, gradient = evaluate(start)
    tree: Any = start
    carry = (start, optimizer.init(tree), value, gradient, jnp.zeros((), value.dtype))
    parameters, _, value, gradient, steps = lax.while_loop(unfinished, step, carry)
    return parameters, (optax.tree.norm(gradient), value, steps)


def _solve_linear(hessian: Callable[[P], P], cotangent: P) -> P:
    """H⁻¹ v by conjugate gradients."""
    # jax.scipy's cg alone has no reverse mode inside custom_root; as the solver of a symmetric system it needs none.
    tolerance = _rounding(cotangent)
    return lax.custom_linear_solve(hessian, cotangent, lambda h, v: cg(h, v, tol=tolerance)[0], symmetric=True)


def _rounding(tree: Any) -> float:
    return 8 * float(jnp.finfo(jax.tree.leaves(tree)[0].dtype).eps)
