"""The minimum of a smooth convex loss, and gradients through it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg

from jaxgen import lbfgs

if TYPE_CHECKING:
    from collections.abc import Callable

    import optax
    from jax import Array


class Minimise(Protocol):
    """A method that goes to the minimum of a loss.

    It returns the parameters; the norm of the gradient there, the loss, and the number of steps. Those are floats all,
    since `custom_root` has no derivative for what else comes out of it.
    """

    def __call__(
        self, start: Array, tolerance: Array, low_enough: Array, max_steps: int
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """Minimise from a start."""
        ...


def find_optimum(
    loss: Callable[[Array], Array],
    start: Array,
    minimise: Minimise,
    *,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[Array, Array, Array, Array]:
    """Minimise a convex loss until its gradient is small, the loss is low enough, or the steps are used up.

    What the loss closes over is differentiated by the implicit function theorem: the optimum is where the gradient is
    zero, whatever path led there.

    Args:
        loss: of an array of parameters; its Hessian at the optimum must be positive definite.
        start: where to start.
        minimise: the method, such as that of `first_order`.
        tolerance: of the Euclidean norm of the gradient.
        low_enough: a loss below which there is nothing more to find out; −∞ for none.
        max_steps: of the method.

    Returns:
        The optimum, the norm of the gradient there, the loss, and the number of steps.
    """
    tolerance, low_enough = lax.stop_gradient((tolerance, low_enough))

    def solve(_: Any, start: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        return minimise(start, tolerance, low_enough, max_steps)

    solution, (norm, value, steps) = lax.custom_root(jax.grad(loss), start, solve, _solve_linear, has_aux=True)
    return solution, norm, value, steps.astype(jnp.int32)


def first_order(loss: Callable[[Array], Array], optimizer: optax.GradientTransformation | None) -> Minimise:
    """The method of an optax optimiser; None is L-BFGS."""
    return partial(lbfgs.minimise, loss) if optimizer is None else partial(iterate, loss, optimizer)


def newton_step(loss: Callable[[Array], Array], parameters: Array) -> Array:
    """H⁻¹ g: how far a Newton step would go from here, also along directions whose share of the gradient is tiny."""
    gradient, hessian = jax.linearize(jax.grad(loss), parameters)
    return cg(hessian, gradient, tol=_rounding(gradient), maxiter=1000)[0]


def iterate(
    loss: Callable[[Array], Array],
    given: optax.GradientTransformation,
    start: Array,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[Array, tuple[Array, Array, Array]]:
    """The method that takes the updates of any optax optimiser."""
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


def _solve_linear(hessian: Callable[[Array], Array], cotangent: Array) -> Array:
    """H⁻¹ v by conjugate gradients."""
    # jax.scipy's cg alone has no reverse mode inside custom_root; as the solver of a symmetric system it needs none.
    tolerance = _rounding(cotangent)
    return lax.custom_linear_solve(hessian, cotangent, lambda h, v: cg(h, v, tol=tolerance)[0], symmetric=True)


def _rounding(array: Array) -> float:
    return 8 * float(jnp.finfo(array.dtype).eps)
