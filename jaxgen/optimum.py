"""The minimum of a smooth loss, found with optax, and gradients through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.scipy.sparse.linalg import cg

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

P = TypeVar("P")


def find_optimum(
    loss: Callable[[P], Array],
    start: P,
    optimizer: optax.GradientTransformation | None,
    *,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[P, Array, Array, Array]:
    """Minimise a loss until its gradient is small, the loss is low enough, or the steps are used up.

    What the loss closes over is differentiated by the implicit function theorem: the optimum is where the gradient is
    zero, whatever path led there.

    Args:
        loss: of a pytree of parameters; its Hessian at the optimum must be positive definite.
        start: where to start.
        optimizer: None is L-BFGS with a memory of 20 and a zoom line search.
        tolerance: of the Euclidean norm of the gradient.
        low_enough: a loss below which there is nothing more to find out; −∞ for none.
        max_steps: of the optimiser.

    Returns:
        The optimum, the norm of the gradient there, the loss, and the number of steps.
    """
    tolerance, low_enough = lax.stop_gradient((tolerance, low_enough))
    solution, (norm, value, steps) = lax.custom_root(
        jax.grad(loss),
        start,
        lambda _, start: _minimise(loss, start, optimizer, tolerance, low_enough, max_steps),
        _solve_linear,
        has_aux=True,
    )
    return solution, norm, value, steps.astype(jnp.int32)


def newton_step(loss: Callable[[P], Array], parameters: P) -> P:
    """H⁻¹ g: how far a Newton step would go from here, also along directions whose share of the gradient is tiny."""
    gradient, hessian = jax.linearize(jax.grad(loss), parameters)
    return cg(hessian, gradient, tol=_rounding(gradient), maxiter=1000)[0]


def _minimise(
    loss: Callable[[P], Array],
    start: P,
    given: optax.GradientTransformation | None,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
) -> tuple[P, tuple[Array, Array, Array]]:
    """The loop: parameters, and the norm of the gradient, the loss and the number of steps.

    They are floats all, since `custom_root` has no derivative for what else comes out of it.
    """
    evaluate = jax.value_and_grad(loss)
    if given is None:
        optimizer = optax.lbfgs(memory_size=20)
        next_value_and_grad = optax.value_and_grad_from_state(loss)  # the line search has computed them
    else:
        optimizer = optax.with_extra_args_support(given)
        next_value_and_grad = lambda parameters, state: evaluate(parameters)  # noqa: E731

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        parameters, state, value, gradient, steps = carry
        # optax mixes integer widths under x64, which strict promotion, where the caller has set it, would refuse.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(gradient, state, parameters, value=value, grad=gradient, value_fn=loss)
            parameters: Any = optax.apply_updates(parameters, updates)
            value, gradient = next_value_and_grad(parameters, state=state)
        return parameters, state, value, gradient, steps + 1

    def unfinished(carry: tuple[Any, ...]) -> Array:
        _, _, value, gradient, steps = carry
        return (optax.tree.norm(gradient) > tolerance) & (value >= low_enough) & (steps < max_steps)

    value, gradient = evaluate(start)
    carry = (start, optimizer.init(cast("Any", start)), value, gradient, jnp.zeros((), value.dtype))
    parameters, _, value, gradient, steps = lax.while_loop(unfinished, step, carry)
    return parameters, (optax.tree.norm(gradient), value, steps)


def _solve_linear(hessian: Callable[[P], P], cotangent: P) -> P:
    """H⁻¹ v by conjugate gradients."""
    # jax.scipy's cg alone has no reverse mode inside custom_root; as the solver of a symmetric system it needs none.
    tolerance = _rounding(cotangent)
    return lax.custom_linear_solve(hessian, cotangent, lambda h, v: cg(h, v, tol=tolerance)[0], symmetric=True)


def _rounding(tree: Any) -> float:
    return 8 * float(jnp.finfo(jax.tree.leaves(tree)[0].dtype).eps)
