"""Arguments that stand alone: an array of numbers, a number, an integer, a key, the hyperparameters of an estimator."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from types import FunctionType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen.culprits import position
from jaxgen.tracing import Tree, is_traced, primal

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array

    AnyArray: TypeAlias = Array | np.ndarray

# How an array becomes one of real numbers, by the kind of its dtype; a table with columns of several is of objects.
_REMEDIES = {
    "O": "Convert columns of numbers with {0}.astype(float), a sparse matrix with {0}.toarray(), and encode strings "
    "and categories as numbers.",
    "f": "Convert long doubles with {0}.astype(float).",
    "c": "Split complex numbers into two features.",
}
_ENCODE = "Encode strings, categories and times as numbers."
# The largest float that JAX holds in any mode.
_LARGEST = float(np.finfo(np.float32).max)
# What is said of what is no number, and of what is no table either, where that may be.
_NO_NUMBER = (
    "{} must be one real number, 0 or more; found {}. Convert strings, fractions and long integers with float(); for "
    "several at once, jax.vmap over it."
)
_NO_TABLE = "{} must be one real number or an array of them, 0 or more; found {}. Convert it with np.asarray(…, float)."


def as_array(name: str, value: Any) -> AnyArray:
    """`value` as a real numeric array; a TypeError for strings, complex numbers, objects and sparse matrices."""
    if isinstance(value, np.ma.MaskedArray):
        remedy = "observed=~x.mask" if name == "x" else "the rows that it masks sample_weight 0"
        raise TypeError(f"{name} must not be a masked array, whose mask would be lost. Give {name}.data, and {remedy}.")
    if value is None:
        remedy = " Rows without labels are for jaxgen.fit_em." if name == "y" else ""
        raise TypeError(f"{name} must be a real numeric array; found None.{remedy}")
    try:
        array = value if isinstance(value, (jax.Array, np.ndarray)) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array; found {type(value).__name__}: {error}") from None
    real = jnp.issubdtype(array.dtype, jnp.number) and array.dtype.kind not in "cm"  # NumPy counts durations as numbers
    if not (real or array.dtype == bool) or array.dtype.itemsize > 8:
        raise TypeError(
            f"{name} must be a real numeric array; found {type(value).__name__} of dtype {array.dtype}. "
            + _REMEDIES.get(getattr(array.dtype, "kind", ""), _ENCODE).format(name)
        )
    # JAX takes the bytes of the other order as they are.
    return array if array.dtype.isnative else np.asarray(array).astype(array.dtype.newbyteorder("="))


def as_numbers(name: str, value: Any) -> AnyArray:
    """`value` as an array of features or weights; 64-bit integers that JAX would wrap into 32 bits become floats."""
    array = as_array(name, value)
    wraps = isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.dtype.itemsize == 8
    return array.astype(np.float32) if wraps and not jax.config.read("jax_enable_x64") else array


def check_integer(name: str, value: Any, *, least: int = 1, most: float = 2**31 - 1, remedy: str = "") -> int:
    """The value as a Python integer; an error for what is none, or out of range: a compiled counter goes to 2³¹ − 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a Python integer, static under jit; found {value!r}.")
    if not least <= value <= most:
        limit = f"at least {least}" if value < least else f"at most {most}"
        raise ValueError(f"{name} must be {limit}; found {value}.{remedy}")
    return int(value)


def check_number(name: str, value: Any) -> Any:
    """A float of one type, whatever number it was, so that it makes no other program; errors unless it is 0 or more."""
    known = primal(value)
    if is_traced(known) and np.ndim(known) == 0:
        return value
    numbers = real(known)
    if numbers is None or numbers.ndim:
        found = repr(value) if numbers is None else f"shape {numbers.shape}"
        raise TypeError(_NO_NUMBER.format(name, found))
    number = numbers.astype(np.float64)
    check_range(name, number, "")
    return value if is_traced(value) else float(number)


def plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, and several of them as a tuple; anything else as it is."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def brief(value: Any) -> str:
    """A value of any kind in a message: one short line."""
    if isinstance(value, (type, FunctionType)):  # jaxgen.LDA without its brackets
        return f"{value.__name__} itself, which is to be called"
    return textwrap.shorten(repr(value), 100, placeholder=" …")


def real(value: Any) -> np.ndarray | None:
    """What JAX takes for real numbers; None for strings that float() reads, fractions, long doubles and the like."""
    try:
        return np.asarray(as_array("", value))
    except (TypeError, ValueError):
        return None


def check_key(key: Any) -> None:
    """Raise for what is no single key of `jax.random`, of either kind."""
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((typed and key.ndim == 0) or (dtype == np.uint32 and key.ndim == 1)):
        found = repr(key) if dtype is None else f"shape {key.shape} of {dtype}"
        raise TypeError(f"key must be one key of jax.random, such as jax.random.key(0); found {found}.")


def check_arrays(name: str, tree: Any) -> None:
    """Raise for what holds lists or bare numbers: JAX sees a list as so many numbers, which have no shape together."""
    if all(map(_is_array, jax.tree.leaves(tree))):
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda node: isinstance(node, list)):
        if not _is_array(leaf):
            found = f"one of dtype {leaf.dtype}" if hasattr(leaf, "dtype") else type(leaf).__name__
            raise TypeError(
                f"{name} must hold arrays of numbers; found {found} as {name}{place_of(path)}. Make one "
                "with jnp.array(…)."
            )


def place_of(path: Any) -> str:
    """The place of a leaf, as a caller knows it: not what a verb has put around its density."""
    return jax.tree_util.keystr(path).replace(".density.density", ".density")


def _is_array(leaf: Any) -> bool:
    if not hasattr(leaf, "shape"):
        return False
    kind = getattr(leaf.dtype, "kind", "V")  # that of bfloat16; a key has none
    return kind in "biuf" or (kind == "V" and jnp.issubdtype(leaf.dtype, jnp.number))


def check_whole(name: str, values: Any, shape: tuple[int, ...], most: float = math.inf) -> None:
    """Raise for an array that does not hold whole numbers 0 … most in a shape; values under a trace are not seen."""
    upper = "" if most == math.inf else f" to {most}"
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers; found {values.dtype}. Convert with {name}.astype(int).")
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; found {values.shape}.")
    if not is_traced(values) and values.size:
        concrete = np.asarray(values)
        if concrete.min() < 0 or concrete.max() > most:
            place = int(np.argmax((concrete < 0) | (concrete > most)))
            where = f" in place {place}" if concrete.ndim else ""
            raise ValueError(f"{name} must be 0{upper or ' or more'}; found {concrete.flat[place]}{where}.")


def check_hyperparameters(estimator: Any) -> None:
    """Every hyperparameter that is a leaf is one finite number, 0 or more, and at most what its field has as `most`.

    A field marked `table` may be an array of them, whose shape is checked where the classes and features are known. A
    static one is structure, and only its `choices` are looked at, where it has some.
    """
    for field in dataclasses.fields(estimator):
        value: Any = getattr(estimator, field.name)
        name = f"{type(estimator).__name__}.{field.name}"
        _check_choice(name, value, field.metadata.get("choices", ()))
        if field.metadata.keys() & {"static", "nested"} or (field.default is None and value is None):
            continue
        most, table = field.metadata.get("most", math.inf), field.metadata.get("table", False)
        if isinstance(value, float) and 0 <= value <= min(most, _LARGEST):  # nearly all: the rest takes its time
            continue
        value, several = primal(value), table and isinstance(value, (jax.Array, np.ndarray))
        if is_traced(value) and (several or np.ndim(value) == 0):
            continue
        if several and not value.dtype.isnative:
            raise TypeError(
                f"{name} must be in the byte order of this machine; found {value.dtype}. Give "
                "table.astype(table.dtype.newbyteorder('='))."
            )
        numbers = real(value)
        if numbers is None or (numbers.ndim and not several):
            raise TypeError((_NO_TABLE if table else _NO_NUMBER).format(name, repr(value)))
        check_range(name, numbers, "", most=most)


def as_floats(estimator: Tree) -> Tree:
    """The same with numbers of Python and NumPy as Python's floats: one of another type would make another program."""
    kinds = (int, float, np.number, np.bool_)
    return jax.tree.map(lambda leaf: float(leaf) if isinstance(leaf, kinds) else leaf, estimator)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise for what is none of several words, where there are some."""
    if choices and not (isinstance(value, str) and value in choices):
        *others, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}; found {value!r}.")


def check_range(name: str, values: np.ndarray, remedy: str, *, least: float = 0, most: float = math.inf) -> None:
    """Raise for the first entry that is not finite, from `least`, 0 or −∞, to `most`, and what JAX can hold."""
    held, largest = np.dtype(jax.dtypes.canonicalize_dtype(values.dtype)), math.inf
    if held != values.dtype:  # without x64 mode JAX wraps long integers or refuses them, and large floats are infinite
        largest = np.iinfo(held).max if held.kind in "iu" else np.finfo(held).max
    bad = ~((values >= max(least, -largest)) & (values <= min(most, largest)) & (abs(values) < math.inf))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        expected = "finite" if least < 0 else "finite and 0 or more" if most == math.inf else f"from 0 to {most:g}"
        if least <= values[where] and largest < abs(values[where]) < math.inf:
            expected += f", and {'within ±' if least < 0 else 'at most '}{largest!s} as {held}"
            remedy = "Give it as a float." if held.kind in "iu" else "Give a smaller one, or compute in float64."
        place = f" at {position(where)}" if where else ""
        raise ValueError(f"{name} must be {expected}; found {values[where]}{place}. {remedy}".strip())
