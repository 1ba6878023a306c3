"""The methods for a smooth convex loss that need its gradient alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen import lbfgs
from jaxgen.numerics import varying_alike
from jaxgen.optimum import Optimum

if TYPE_CHECKING:
    from collections.abc import Callable

    import optax
    from jax import Array

    from jaxgen.preconditioner import Preconditioner


def check_optimizer(name: str, optimizer: Any) -> None:
    """Raise for what is neither an optax gradient transformation nor None."""
    if not (optimizer is None or all(hasattr(optimizer, part) for part in ("init", "update"))):
        raise TypeError(
            f"{name} must be an optax gradient transformation, such as optax.sgd(0.1), or None; found {optimizer!r}."
        )


def update(
    optimizer: optax.GradientTransformation,
    loss: Callable[[Array], Array],
    parameters: Array,
    state: Any,
    value: Array,
    gradient: Array,
) -> tuple[Array, Any]:
    """The parameters and the state of an optimiser after a step from a value and a gradient of the loss."""
    import optax

    tree: Any = parameters
    method = optax.with_extra_args_support(optimizer)
    # optax mixes integer widths under x64, which strict promotion, where the caller has set it, would refuse.
    with jax.numpy_dtype_promotion("standard"):
        change, state = method.update(gradient, state, tree, value=value, grad=gradient, value_fn=loss)
        following: Any = optax.apply_updates(tree, change)
    return following, state


def minimise(
    loss: Callable[[Array], Array],
    optimizer: optax.GradientTransformation | None,
    start: Array,
    tolerance: Array,
    low_enough: Array,
    max_steps: int,
    evaluate: Callable[[Array], tuple[Array, Array]] | None = None,
    precondition: Callable[[Array], Preconditioner] | None = None,
) -> Optimum:
    """Take the updates of an optax optimiser, or those of L-BFGS for None, until the gradient is small.

    Args:
        loss: convex, of an array of parameters.
        optimizer: an optax gradient transformation.
        start: where to start.
        tolerance: of the Euclidean norm of the gradient.
        low_enough: a loss below which there is nothing more to find out; −∞ for none.
        max_steps: the last step.
        evaluate: the loss and its gradient at once, where there is a better way than to differentiate.
        precondition: as for `lbfgs.minimise`; steps of an optax optimiser are of the parameters as they are.
    """
    evaluate = evaluate or jax.value_and_grad(loss)
    if optimizer is None:
        return lbfgs.minimise(evaluate, start, tolerance, low_enough, max_steps, precondition)
    import optax

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        parameters, state, value, gradient, steps = carry
        parameters, state = update(optimizer, loss, parameters, state, value, gradient)
        return parameters, state, *evaluate(parameters), steps + 1

    def unfinished(carry: tuple[Any, ...]) -> Array:
        _, _, value, gradient, steps = carry
        return (optax.tree.norm(gradient) > tolerance) & (value >= low_enough) & (steps < max_steps)

    value, gradient = evaluate(start)
    tree: Any = start
    carry = varying_alike(start, optimizer.init(tree), value, gradient, jnp.zeros((), jnp.int32))
    parameters, _, value, gradient, steps = lax.while_loop(unfinished, step, carry)
    return Optimum(parameters, optax.tree.norm(gradient), value, steps)
