"""Factorisations by the platform's own library: on a CPU LAPACK's, of one matrix after the other.

Of a stack jaxlib 0.10.2 lets all its threads factorise, by Cholesky or QR, and each call waits for those that it asked
for; two at once, of two parts of a program or two threads of a caller, take them all and wait for ever.
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


def _of_each(factorise: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """`factorise` for each matrix of a stack, without derivatives: in turn, or all together, as suits the platform."""

    @custom_vmap
    def in_turn(stack: Array) -> Any:
        return lax.map(factorise, stack)

    @in_turn.def_vmap
    def _(size: int, _: Any, stacks: Array) -> tuple[Any, Any]:
        # One loop over all: `vmap` would put a stack into each of its steps.
        count, *shape = stacks.shape[1:]
        results = in_turn(stacks.reshape(size * count, *shape))
        apart = jax.tree.map(lambda a: a.reshape(size, count, *a.shape[1:]), results)
        return apart, jax.tree.map(lambda _: True, results)

    def run(stack: Array, *, tuning: Tuning) -> Any:
        return in_turn(stack) if tuning.factorise == "in turn" else factorise(stack)

    return lambda stack: platform.run(run, stack, tuning=platform.tuning_on(None))


_cholesky = _of_each(partial(lax.linalg.cholesky, symmetrize_input=False))
_triangle = _of_each(partial(jnp.linalg.qr, mode="r"))
_qr = _of_each(jnp.linalg.qr)


def cholesky(matrices: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """Lower Cholesky factors, NaN where there is none; what stands above the diagonals is not read. No derivatives."""
    return _cholesky(matrices)


def triangle(rows: Float[Array, "n d"]) -> Float[Array, "k d"]:
    """R of the QR factorisation of a matrix, k = min(n, d). No derivatives."""
    return _triangle(rows[None])[0]


def qr(rows: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], Float[Array, "k d"]]:
    """The QR factorisation of a matrix. No derivatives."""
    return jax.tree.map(lambda a: a[0], tuple(_qr(rows[None])))
