"""The minimum of a smooth convex loss, and derivatives through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.sparse.linalg import cg

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float, Int


class Optimum(NamedTuple):
    """Where a method ended.

    Attributes:
        point: the parameters.
        norm: of the gradient there.
        value: the loss there.
        steps: that the method took.
    """

    point: Array
    norm: Array
    value: Array
    steps: Array


class Report(NamedTuple):
    """How a training ended.

    Attributes:
        converged: whether the gradient is below the tolerance, at a finite optimum.
        steps: iterations of the optimiser.
        gradient_norm: Euclidean norm of the gradient of the mean loss, in standardised features; not finite where the
            data are not, under a trace.
        separable: whether hyperplanes separate the classes, wholly or in part, and nothing holds the weights: with
            l2 = 0 no finite optimum exists, or none that the dtype can tell from that. Training stops as soon as all
            rows are separated.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> _, report = jg.train(jg.LogisticRegression(), np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0]))
        >>> bool(report.converged), bool(report.separable)
        (True, False)
    """

    converged: Bool[Array, ""]
    steps: Int[Array, ""]
    gradient_norm: Float[Array, ""]
    separable: Bool[Array, ""]


def at_optimum(loss: Callable[[Array], Array], point: Array, inverse: Callable[[Array], Array] | None = None) -> Array:
    """The parameters that minimise a loss, with derivatives by the implicit function theorem.

    The optimum is where the gradient is zero, whatever path led there. What a derivative takes is traced where one is
    taken.

    Args:
        loss: convex, of an array of parameters. A pytree of what it depends on, such as `jax.tree_util.Partial`; its
            Hessian at the optimum must be positive definite.
        point: the optimum; no derivative goes through it.
        inverse: multiplies by the inverse of the Hessian, a pytree as well; None takes conjugate gradients.
    """
    return _at_optimum(loss, inverse, lax.stop_gradient(point))


@jax.custom_jvp
def _at_optimum(loss: Any, inverse: Any, point: Array) -> Array:
    del loss, inverse
    return point


@_at_optimum.defjvp
def _derivative(primals: tuple[Any, Any, Array], tangents: tuple[Any, Any, Array]) -> tuple[Array, Array]:
    """Where the loss changes, its gradient remains zero at the optimum: H dw + d(∇loss) = 0."""
    loss, inverse, _ = primals
    point = _at_optimum(*primals)
    _, moved = jax.jvp(lambda loss: jax.grad(loss)(point), (loss,), (tangents[0],))

    def hessian(v: Array) -> Array:
        return jax.jvp(jax.grad(loss), (point,), (v,))[1]

    def solve(hessian: Callable[[Array], Array], v: Array) -> Array:
        return cg(hessian, v, tol=_rounding(v))[0] if inverse is None else inverse(v)

    # As the solver of a symmetric system cg needs no reverse mode, of which it has none.
    return point, -lax.custom_linear_solve(hessian, moved, solve, symmetric=True)


def newton_step(loss: Callable[[Array], Array], parameters: Array) -> Array:
    """H⁻¹ g: how far a Newton step would go from here, also along directions whose share of the gradient is tiny."""
    gradient, hessian = jax.linearize(jax.grad(loss), parameters)
    return cg(hessian, gradient, tol=_rounding(gradient), maxiter=1000)[0]


def _rounding(array: Array) -> float:
    return 8 * float(jnp.finfo(array.dtype).eps)
