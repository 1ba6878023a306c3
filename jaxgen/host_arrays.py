"""Arrays of NumPy that JAX reads where they lie, and where arrays of JAX lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxgen.arguments import AnyArray

# Bytes: where JAX takes an array of NumPy over without a copy.
BOUNDARY = 64


def aligned(shape: int | tuple[int, ...], dtype: Any, *, zero: bool = False) -> np.ndarray:
    """An array, empty unless `zero`, on a boundary of 64 bytes, which JAX reads where it lies."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = (np.zeros if zero else np.empty)(size + BOUNDARY, np.uint8)
    start = -buffer.ctypes.data % BOUNDARY
    return buffer[start : start + size].view(dtype).reshape(shape)


@jax.jit
def as_jax(*arrays: AnyArray) -> tuple[jax.Array, ...]:
    """Small arrays, which are copied, as JAX's, on its default device.

    A program takes them in a quarter of the time of `jax.device_put`: 0.05 ms and 0.2, right after work on all cores.
    """
    return tuple(map(jnp.asarray, arrays))


def as_arrays_of_jax(tree: Any) -> Any:
    """The same tree, with arrays of JAX for those of NumPy."""
    return jax.device_put(tree) if any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(tree)) else tree


def lies_on_boundary(x: AnyArray) -> bool:
    """Whether JAX reads the array where it lies."""
    return isinstance(x, jax.Array) or (x.flags.c_contiguous and x.ctypes.data % BOUNDARY == 0)


def few_sizes(size: int, most: int) -> int:
    """The next of a few sizes, so that all up to `most` share programs; of more, the size itself."""
    if not 1 < size <= most:
        return size
    step = 1 << max((size - 1).bit_length() - 3, 0)  # four between a power of two and the next
    return -(-size // step) * step


def view(array: AnyArray, place: slice) -> AnyArray:
    """Some rows of an array, where they lie."""
    rows, where = np.asarray(array)[place], placement(array)
    return rows if where is None else jax.device_put(rows, where)


def placement(tree: Any) -> Any:
    """Where the first array of JAX lies that is committed to one device; None without such."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))
    return next((a.sharding for a in arrays if a.committed and len(a.devices()) == 1), None)


def is_distributed(*trees: Any) -> bool:
    """Whether an array lies on several devices."""
    return any(isinstance(leaf, jax.Array) and len(leaf.devices()) > 1 for leaf in jax.tree.leaves(trees))
