"""The door: arguments are checked here, with messages that say what was expected, what was found and what to do.

Shapes, dtypes, hyperparameters and labels are checked before anything is compiled. Values of x are checked inside the
compiled program, which answers NaN where they are bad; only then is x searched for the culprit. Under a trace there are
no values to look at: shapes and dtypes are still checked, and what is NaN stays NaN.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxgen.compressed import CompressedRows
from jaxgen.containers import as_sparse, is_sparse
from jaxgen.culprits import known, position
from jaxgen.labels import HardLabels, Labels, SoftLabels
from jaxgen.missing import PartialRows
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array

    AnyArray: TypeAlias = Array | np.ndarray

# More classes than anyone has: whether two labels are equal does not depend on how many there are.
ANY_CLASSES = 2**30


def is_traced(*trees: Any) -> bool:
    """Whether any leaf is a tracer, so that its values cannot be looked at."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def as_array(name: str, value: Any) -> AnyArray:
    """`value` as a real numeric array; a TypeError for strings, complex numbers, objects and sparse matrices."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost. Give {name}.data and observed=~{name}.mask."
        )
    try:
        array = value if isinstance(value, (jax.Array, np.ndarray)) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array; found {type(value).__name__}: {error}") from None
    real = jnp.issubdtype(array.dtype, jnp.number) and not jnp.issubdtype(array.dtype, jnp.complexfloating)
    if not (real or array.dtype == bool) or array.dtype.itemsize > 8:
        raise TypeError(
            f"{name} must be a real numeric array; found {type(value).__name__} of dtype {array.dtype}. "
            "Encode strings and categories as numbers, split complex numbers into two features, and convert other "
            "containers (a sparse matrix: .toarray()) to a dense array."
        )
    return array


def as_numbers(name: str, value: Any) -> AnyArray:
    """`value` as an array of features or weights; 64-bit integers that JAX would wrap into 32 bits become floats."""
    array = as_array(name, value)
    wraps = isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.dtype.itemsize == 8
    return array.astype(np.float32) if wraps and not jax.config.read("jax_enable_x64") else array


def as_rows(x: Any, *, sparse: bool) -> AnyArray | CompressedRows | SparseRows:
    """x as a real numeric array or, where they are taken, as sparse rows."""
    if not is_sparse(x):
        return as_numbers("x", x)
    if not sparse:
        raise TypeError(
            f"x must be dense for this model; found {type(x).__name__}. BernoulliNB, MultinomialNB, PoissonNB, "
            "ComplementNB, predictives of counts and linear classifiers take sparse rows; for others give x.toarray(), "
            "or x.todense() of a JAX matrix."
        )
    return as_sparse(x)


def check_rows(x: Any, *, sparse: bool = False, observed: Any = None) -> Any:
    """x as (n, d) rows, an array, sparse or partial ones, with at least one row and one feature."""
    x = as_rows(x, sparse=sparse)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"x must have shape (n, d) with at least one row and one feature; found {x.shape}. "
            "Reshape a single feature with x[:, None]; a batch without rows has no statistics."
        )
    return x if observed is None else _partial_rows(x, observed)


def check_points(x: Any, num_features: int, *, sparse: bool = False, observed: Any = None) -> Any:
    """x as (d,) or (n, d) with the number of features that a classifier was fitted to."""
    x = as_rows(x, sparse=sparse)
    if x.ndim not in (1, 2) or x.shape[-1] != num_features:
        raise ValueError(
            f"x must have shape ({num_features},) or (n, {num_features}), the features that were fitted to; found "
            f"{x.shape}. Give those columns, and jax.vmap over further axes."
        )
    return x if observed is None else _partial_rows(x, observed)


def _partial_rows(x: Any, mask: Any) -> PartialRows:
    if isinstance(x, (CompressedRows, SparseRows)):
        raise TypeError(
            "observed is for dense x; found it with sparse rows, whose zeros are observed. Give x.toarray(), or leave "
            "observed out."
        )
    observed: Any = as_array("observed", mask)
    if observed.dtype != bool:
        raise TypeError(f"observed must be boolean, True for what counts; found {observed.dtype}. Try ~np.isnan(x).")
    if observed.shape != x.shape:
        raise ValueError(f"observed must have the shape of x, {x.shape}; found {observed.shape}.")
    return PartialRows(x, observed)


def check_labels(x: Any, y: Any, num_classes: int | None, sample_weight: Any) -> Labels:
    """Labels, responsibilities and weights in one form, checked against the rows of x."""
    y = as_array("y", y)
    n = x.shape[0]
    if y.ndim not in (1, 2) or y.shape[0] != n:
        raise ValueError(
            f"y must have one entry for each of the {n} rows of x: integer labels ({n},) or float responsibilities "
            f"({n}, K); found shape {y.shape}."
        )
    weight = None if sample_weight is None else check_weight(n, sample_weight)
    if y.ndim == 2:
        return _check_responsibilities(y, num_classes, weight)
    return _check_hard_labels(y, num_classes, weight)


def check_weight(n: int, sample_weight: Any) -> AnyArray:
    """One finite weight of zero or more for each row."""
    weight = as_numbers("sample_weight", sample_weight)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), one weight a row of x; found {weight.shape}.")
    if not is_traced(numbers := known(weight)):
        _check_nonnegative("sample_weight", np.asarray(numbers), "A row that should not count has weight 0.")
    return weight


def check_whole(name: str, values: Any, shape: tuple[int, ...], most: float = math.inf) -> None:
    """Raise for an array that does not hold whole numbers 0 … most in a shape; values under a trace are not seen."""
    upper = "" if most == math.inf else f" to {most}"
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers; found {values.dtype}. Convert with {name}.astype(int).")
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; found {values.shape}.")
    if not is_traced(values) and values.size:
        concrete = np.asarray(values)
        outside = concrete[(concrete < 0) | (concrete > most)]
        if outside.size:
            raise ValueError(f"{name} must be 0{upper or ' or more'}; found {outside.flat[0]}.")


def _check_hard_labels(y: Any, num_classes: int | None, weight: Any) -> HardLabels:
    if not (jnp.issubdtype(y.dtype, jnp.integer) or y.dtype == bool):
        raise TypeError(
            f"y must be integer labels 0 … K−1 of shape (n,) or float responsibilities of shape (n, K); found "
            f"{y.dtype} of shape {y.shape}. Convert whole-number labels with y.astype(int)."
        )
    if num_classes is None:
        if is_traced(y):
            raise ValueError(
                "num_classes cannot be inferred from y under a trace (jit, vmap, grad); found None. "
                "Give it: num_classes=K."
            )
        num_classes = max(int(np.max(np.asarray(y))) + 1, 1) if y.size else 1
    num_classes = check_integer("num_classes", num_classes)
    if not is_traced(y):
        labels = np.asarray(y)
        outside = (labels < 0) | (labels >= num_classes)
        if outside.any() and not is_traced(weight):
            # A row of weight 0 is absent, whatever its label: this is how padding works.
            outside &= True if weight is None else np.asarray(weight) > 0
            if outside.any():
                row = int(np.argmax(outside))
                remedy = "Relabel the classes 0 … K−1 (numpy.unique with return_inverse=True does)"
                if num_classes < ANY_CLASSES and labels[row] >= 0:
                    remedy += ", or raise num_classes"
                below = num_classes >= ANY_CLASSES and labels[row] < 0
                expected = "of 0 or more" if below else f"in [0, {num_classes})"
                raise ValueError(f"y must hold labels {expected}; found {labels[row]} in row {row}. {remedy}.")
    return HardLabels(y, weight, num_classes, checked=weight is None and not is_traced(y))


def check_integer(name: str, value: Any, *, least: int = 1, most: float = 2**31 - 1) -> int:
    """The value as a Python integer; an error for what is none, or out of range: a compiled counter goes to 2³¹ − 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a Python integer, static under jit; found {value!r}.")
    if not least <= value <= most:
        limit = f"at least {least}" if value < least else f"at most {most}"
        raise ValueError(f"{name} must be {limit}; found {value}.")
    return int(value)


def check_key(key: Any) -> None:
    """Raise for what is no single key of `jax.random`, of either kind."""
    dtype = getattr(key, "dtype", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((typed and key.ndim == 0) or (dtype == np.uint32 and key.ndim == 1)):
        found = repr(key) if dtype is None else f"shape {key.shape} of {dtype}"
        raise TypeError(f"key must be one key of jax.random, such as jax.random.key(0); found {found}.")


def check_number(name: str, value: Any) -> Any:
    """A float of one type, whatever number it was, so that it makes no other program; errors unless it is 0 or more."""
    single = np.ndim(value) == 0
    if single and is_traced(known(value)):
        return value
    try:
        number = float(known(value)) if single else None
    except (TypeError, ValueError):
        number = None
    if number is None:
        found = f"shape {np.shape(value)}" if np.ndim(value) else repr(value)
        raise TypeError(f"{name} must be one real number, 0 or more; found {found}. For several, jax.vmap over it.")
    if not 0 <= number < np.inf:
        raise ValueError(f"{name} must be finite and 0 or more; found {number}.")
    return value if is_traced(value) else np.float64(number)


def _check_responsibilities(y: Any, num_classes: int | None, weight: Any) -> SoftLabels:
    if not jnp.issubdtype(y.dtype, jnp.floating):
        raise TypeError(
            f"y of shape (n, K) must hold float responsibilities; found {y.dtype} of shape {y.shape}. "
            "For one-hot rows give the labels y.argmax(axis=1), or y.astype(float)."
        )
    if y.shape[1] == 0 or num_classes not in (None, y.shape[1]):
        raise ValueError(
            f"y of shape (n, K) must have one column for each of num_classes={num_classes} classes; found shape "
            f"{y.shape}. Leave num_classes out: the width of the responsibilities is K."
        )
    shares, known_weight = known((y, weight))
    if not is_traced(shares, known_weight):
        present = shares if weight is None else np.asarray(shares)[np.asarray(known_weight) > 0]
        _check_nonnegative("y (responsibilities)", np.asarray(present), "Each is a share of a row in a class.")
    return SoftLabels(y, weight)


def _check_nonnegative(name: str, values: np.ndarray, remedy: str) -> None:
    bad = ~((values >= 0) & (values < np.inf))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite and 0 or more; found {values[where]} at {position(where)}. {remedy}")


def check_hyperparameters(estimator: Any) -> None:
    """Every hyperparameter that is a leaf is one finite number, 0 or more, and at most what its field has as `most`.

    A field marked `table` may be an array of them, whose shape is checked where the classes and features are known.
    """
    for field in dataclasses.fields(estimator):
        value: Any = getattr(estimator, field.name)
        if field.metadata.keys() & {"static", "nested"} or (field.default is None and value is None):
            continue
        most, table = field.metadata.get("most", math.inf), field.metadata.get("table", False)
        if isinstance(value, float) and 0 <= value <= most and value < math.inf:  # nearly all: the rest takes its time
            continue
        name = f"{type(estimator).__name__}.{field.name}"
        value, several = known(value), table and isinstance(value, (jax.Array, np.ndarray))
        if is_traced(value) and (several or np.ndim(value) == 0):
            continue
        try:
            numbers = np.asarray(as_array(name, value) if several else float(value))
        except (TypeError, ValueError, jax.errors.ConcretizationTypeError):
            raise TypeError(
                f"{name} must be one real number{' or an array of them' if table else ''}, 0 or more; found {value!r}. "
                "To try several at once, jax.vmap over the estimator."
            ) from None
        bad = ~((numbers >= 0) & (numbers <= most) & (numbers < math.inf))
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            raise ValueError(
                f"{name} must be {'finite and 0 or more' if most == math.inf else f'from 0 to {most:g}'}; found "
                f"{numbers[where]}{f' at {position(where)}' if where else ''}."
            )
