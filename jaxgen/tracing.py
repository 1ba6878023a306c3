"""What JAX traces: whether values and sizes of an array can be looked at, and the numbers beneath a derivative."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

try:
    # Its new place, jax.extend, loads all of Pallas: 15 ms of the 80 in which what LDA needs of jaxgen is there.
    with warnings.catch_warnings(action="ignore"):
        from jax.core import get_opaque_trace_state
except ImportError:
    from jax.extend.core import get_opaque_trace_state

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jax import Array

Tree = TypeVar("Tree")

_trace_state = partial(get_opaque_trace_state, convention="jaxgen")
# Of no transformation: on a thread of its own, since the first use of the package may be inside of one.
with ThreadPoolExecutor(1) as thread:
    _OUTSIDE = thread.submit(_trace_state).result()


def is_traced(*trees: Any) -> bool:
    """Whether any leaf is a tracer, so that its values cannot be looked at."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def is_recorded() -> bool:
    """Whether programs are recorded and not run, even of arguments whose values are known: inside `jax.jit`."""
    return _trace_state() != _OUTSIDE and isinstance(_nothing(), Tracer)


def concretely() -> AbstractContextManager[None]:
    """A context in which programs of arguments whose values are known are run, also inside of `jax.jit`."""
    # That setting is another program to jit, in this thread alone: it is made only where it is needed.
    return jax.ensure_compile_time_eval() if is_recorded() else nullcontext()


@jax.jit
def _nothing() -> Array:
    return jnp.zeros((), bool)


def is_symbol(size: Any) -> bool:
    """Whether a size is not known yet, as `jax.export` has it of a symbolic shape: it cannot be compared."""
    return not isinstance(size, (int, np.integer))


def primal(tree: Tree) -> Tree:
    """The same numbers without derivatives: outside of jit, those of `jax.grad` and `jax.jvp` can then be read."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if isinstance(leaf, Tracer) else leaf, tree)
