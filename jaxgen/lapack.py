"""Factorisations by the platform's own library: on a CPU LAPACK's, of one matrix after the other.

For a stack jaxlib 0.10.2 asks all its threads, and each call waits for those that it asked; two at once, of two parts
of a program or two threads of a caller, take them all and wait for ever: Cholesky and QR within seconds, eigenvalues,
singular values and triangular solves after thousands of calls.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxgen import platform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jax import Array
    from jaxtyping import Float

    from jaxgen.platform import Tuning

# The first that JAX loads of it.
_LAPACK = "scipy.linalg.cython_blas"


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Beside what is done here load what JAX takes LAPACK from on a CPU, as it does for the first factorisation: SciPy.

    That is 0.08 s of the 1.1 in which a new process fits LDA. While its statistics are compiled, it is hardly any.
    Afterwards it is loaded: two threads that come to the modules of a package in another order wait for each other,
    which Python ends with an error in one of them.
    """
    if _LAPACK in sys.modules or jax.default_backend() != "cpu":
        yield
        return
    thread = threading.Thread(target=import_module, args=(_LAPACK,), name="jaxgen-lapack")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices for each of a stack, without derivatives: in turn, or together, as suits the platform."""

    @custom_vmap
    def in_turn(*stacks: Array) -> Any:
        return lax.map(lambda each: function(*each), stacks)

    @in_turn.def_vmap
    def _(size: int, batched: Any, *stacks: Array) -> tuple[Any, Any]:
        # One loop over all: `vmap` would put a stack into each of its steps.
        stacks = tuple(
            stack if own else jnp.broadcast_to(stack[None], (size, *stack.shape))
            for stack, own in zip(stacks, batched, strict=True)
        )
        count = stacks[0].shape[1]
        results = in_turn(*(stack.reshape(size * count, *stack.shape[2:]) for stack in stacks))
        apart = jax.tree.map(lambda a: a.reshape(size, count, *a.shape[1:]), results)
        return apart, jax.tree.map(lambda _: True, results)

    def run(*stacks: Array, tuning: Tuning) -> Any:
        return in_turn(*stacks) if tuning.stacks == "in turn" else function(*stacks)

    return lambda *stacks: platform.run(run, *stacks, tuning=platform.tuning_on(None))


def _of_one(of_each: Callable[..., Any], *matrices: Array) -> Any:
    return jax.tree.map(lambda a: a[0], of_each(*(matrix[None] for matrix in matrices)))


def _by_factor(matrix: Array, right: Array) -> Array:
    factor = lax.linalg.cholesky(matrix, symmetrize_input=False)
    half = lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


_cholesky = _of_each(partial(lax.linalg.cholesky, symmetrize_input=False))
_triangle = _of_each(partial(jnp.linalg.qr, mode="r"))
_qr = _of_each(jnp.linalg.qr)
_eigh = _of_each(jnp.linalg.eigh)
_svd = _of_each(partial(jnp.linalg.svd, full_matrices=False))
_positive = _of_each(_by_factor)
_upper = _of_each(partial(lax.linalg.triangular_solve, left_side=True))
_transposed = _of_each(partial(lax.linalg.triangular_solve, left_side=True, transpose_a=True))


def cholesky(matrices: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """Lower Cholesky factors, NaN where there is none; what stands above the diagonals is not read. No derivatives."""
    return _cholesky(matrices)


def triangle(matrix: Float[Array, "n d"]) -> Float[Array, "k d"]:
    """R of the QR factorisation of a matrix, k = min(n, d). No derivatives."""
    return _of_one(_triangle, matrix)


def qr(matrix: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], Float[Array, "k d"]]:
    """The QR factorisation of a matrix. No derivatives."""
    return _of_one(_qr, matrix)


def eigh(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvalues of a symmetric matrix, in rising order, and its eigenvectors as columns. No derivatives."""
    return _of_one(_eigh, matrix)


def svd(matrix: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], Float[Array, " k"], Float[Array, "k d"]]:
    """Singular vectors and values of a matrix, U, s and Vᵀ, k = min(n, d). No derivatives."""
    return _of_one(_svd, matrix)


def solve_positive(matrix: Float[Array, "d d"], right: Float[Array, " d"]) -> Float[Array, " d"]:
    """A⁻¹ b for a positive definite A, of which what stands above the diagonal is not read. No derivatives."""
    return _of_one(_positive, matrix, right[:, None])[:, 0]


def solve_upper(
    triangle: Float[Array, "d d"], right: Float[Array, "d m"], *, transposed: bool = False
) -> Float[Array, "d m"]:
    """R⁻¹ B for an upper triangular R, or R⁻ᵀ B. No derivatives."""
    return _of_one(_transposed if transposed else _upper, triangle, right)
