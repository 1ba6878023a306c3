"""The door for data: rows, labels and weights, with messages of what was expected, what was found and what to do.

Shapes, dtypes and labels are checked before anything is compiled. Values of x are checked inside the
compiled program, which answers NaN where they are bad; only then is x searched for the culprit. Under a trace there are
no values to look at: shapes and dtypes are still checked, and what is NaN stays NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import platform
from jaxgen.arguments import as_array, as_numbers, check_integer, check_range
from jaxgen.compressed import CompressedRows
from jaxgen.containers import as_sparse, is_sparse
from jaxgen.labels import HardLabels, Labels, SoftLabels
from jaxgen.missing import Mask, PartialRows
from jaxgen.numerics import working_dtype
from jaxgen.sparse import SparseRows
from jaxgen.tracing import is_symbol, is_traced, primal

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.arguments import AnyArray

# More classes than anyone has: whether two labels are equal does not depend on how many there are.
ANY_CLASSES = 2**30
# And so many that labels beyond them are taken for names: every table would have a row for each, 64 MiB a feature.
_MOST_INFERRED = 2**24


def as_rows(x: Any, *, sparse: bool) -> AnyArray | CompressedRows | SparseRows:
    """x as a real numeric array or, where they are taken, as sparse rows."""
    if not is_sparse(x):
        return as_numbers("x", x)
    if not sparse:
        raise TypeError(
            f"x must be dense for this model; found {type(x).__name__}. BernoulliNB, MultinomialNB, PoissonNB "
            "and ComplementNB are fitted to sparse rows and score them, MixedNB with one of the first three; "
            "predictives of counts and linear classifiers score them; for others give x.toarray(), or x.todense() of a "
            "JAX matrix."
        )
    return as_sparse(x)


def check_rows(x: Any, *, sparse: bool = False, observed: Any = None, counts: bool = False) -> Any:
    """x as (n, d) rows, an array, sparse or partial ones, with at least one row and one feature.

    With `counts` partial ones know how many features a row misses at most, where that can be seen.
    """
    x = as_rows(x, sparse=sparse)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"x must have shape (n, d) with at least one row and one feature; found {x.shape}. "
            "Reshape a single feature with x[:, None]; a batch without rows has no statistics."
        )
    if is_symbol(x.shape[0]):
        raise ValueError(
            f"x must have a known number of rows to be fitted to; found {x.shape[0]}, a symbol of jax.export. Export "
            "for one number, and fill x up with rows of sample_weight 0; only scores take any number."
        )
    return x if observed is None else _partial_rows(x, observed, counts=counts)


def check_points(x: Any, num_features: int, *, sparse: bool = False, observed: Any = None, counts: bool = False) -> Any:
    """x as (d,) or (n, d) with the number of features that a classifier was fitted to; `counts` as for `check_rows`."""
    x = as_rows(x, sparse=sparse or observed is not None)  # what is not dense beside observed is told so
    if x.ndim not in (1, 2) or x.shape[-1] != num_features:
        raise ValueError(
            f"x must have shape ({num_features},) or (n, {num_features}), the features that were fitted to; found "
            f"{x.shape}. Give those columns, and jax.vmap over further axes."
        )
    return x if observed is None else _partial_rows(x, observed, counts=counts)


def _partial_rows(x: Any, mask: Any, *, counts: bool) -> PartialRows:
    if isinstance(x, (CompressedRows, SparseRows)):
        raise TypeError(
            "observed is for dense x; found it with sparse rows, whose zeros are observed. Give x.toarray(), or leave "
            "observed out."
        )
    most_missing = None
    if isinstance(mask, Mask):
        mask, most_missing = mask
    observed: Any = as_array("observed", mask)
    if observed.dtype != bool:
        raise TypeError(f"observed must be boolean, True for what counts; found {observed.dtype}. Try ~np.isnan(x).")
    if observed.shape != x.shape:
        raise ValueError(f"observed must have the shape of x, {x.shape}; found {observed.shape}.")
    if counts and most_missing is None:
        most_missing = Mask.counted(observed).most_missing
    return PartialRows(x, observed, most_missing)


def check_labels(
    x: Any, y: Any, num_classes: int | None, sample_weight: Any, *, to_widen: str = "raise the number of classes"
) -> Labels:
    """Labels, responsibilities and weights in one form, checked against the rows of x.

    `to_widen` is how a caller makes room for more classes: the remedy for a label that is too large.
    """
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
    return _check_hard_labels(y, num_classes, weight, to_widen)


def check_weight(n: int, sample_weight: Any) -> AnyArray:
    """One finite weight of zero or more for each row."""
    weight = as_numbers("sample_weight", sample_weight)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), one weight a row; found {weight.shape}.")
    if not is_traced(numbers := primal(weight)):
        check_range("sample_weight", np.asarray(numbers), "A row that should not count has weight 0.")
    return weight


def weighs(weight: AnyArray, dtype: Any) -> np.ndarray:
    """Which concrete weights are more than zero where they are added up, beside data of a dtype.

    What is below its normal numbers is zero to XLA.
    """
    return np.asarray(weight) >= np.finfo(working_dtype(dtype)).tiny


def _check_hard_labels(y: Any, num_classes: int | None, weight: Any, to_widen: str) -> HardLabels:
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
        num_classes = infer_classes("y", y)
    num_classes = check_integer("num_classes", num_classes, most=2**31 - 3)  # tables have two rows more
    known_weight = primal(weight)
    if not is_traced(y, known_weight):
        least, most = _extremes(y)
        if least < 0 or most >= num_classes:
            labels = np.asarray(y)
            outside = (labels < 0) | (labels >= num_classes)
            # A row of weight 0 is absent, whatever its label: this is how padding works.
            outside &= True if known_weight is None else np.asarray(known_weight) > 0
            if outside.any():
                row = int(np.argmax(outside))
                remedy = "Relabel the classes 0 … K−1 (numpy.unique with return_inverse=True does)"
                if num_classes < ANY_CLASSES and labels[row] >= 0:
                    remedy += f", or {to_widen}"
                if labels[row] == -1:
                    remedy += "; jaxgen.fit_em takes −1 for a row without a label"
                below = num_classes >= ANY_CLASSES and labels[row] < 0
                expected = "of 0 or more" if below else f"in [0, {num_classes})"
                raise ValueError(f"y must hold labels {expected}; found {labels[row]} in row {row}. {remedy}.")
    elif not is_traced(y):
        y = in_32_bits(y)
    return HardLabels(y, weight, num_classes, checked=weight is None and not is_traced(y))


def in_32_bits(labels: AnyArray) -> AnyArray:
    """Concrete labels that were not seen to be of a class: −1, which is none, where JAX would wrap one into 32 bits."""
    if not isinstance(labels, np.ndarray) or labels.dtype.itemsize < 8 or jax.config.read("jax_enable_x64"):
        return labels
    return np.where((labels >= 0) & (labels < 2**31), labels, -1).astype(np.int32)


def infer_classes(name: str, labels: Any) -> int:
    """K, one more than the largest label; a ValueError where that is no number of a class."""
    largest = _extremes(labels)[1]
    if largest >= _MOST_INFERRED:
        row = int(np.argmax(np.asarray(labels)))
        raise ValueError(
            f"{name} must hold labels 0 … K−1; found {largest} in row {row}, too large to count "
            "classes by. Relabel them (numpy.unique with return_inverse=True does), or give num_classes where rows of "
            "such labels have weight 0."
        )
    return largest + 1


def _extremes(labels: AnyArray) -> tuple[int, int]:
    """The smallest label or 0, and the largest or 0, found where the labels are: an accelerator sends two numbers."""
    if isinstance(labels, jax.Array) and platform.platform_of(labels) not in (None, "cpu"):
        found = _extremes_program(labels)
    else:
        labels = np.asarray(labels)
        found = labels.min(initial=0), labels.max(initial=0)
    least, most = map(int, np.asarray(found))
    return least, most


@jax.jit
def _extremes_program(labels: Array) -> Array:
    return jnp.stack([jnp.min(labels, initial=0), jnp.max(labels, initial=0)])


def _check_responsibilities(y: Any, num_classes: int | None, weight: Any) -> SoftLabels:
    if y.shape[1] == 1 and num_classes != 1:
        raise ValueError(
            f"y must be labels of shape (n,) or responsibilities of shape (n, K); found one column, {y.shape}. Give "
            "the labels y[:, 0]; for responsibilities of a single class, num_classes=1 as well."
        )
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
    responsibilities, known_weight = primal((y, weight))
    if not is_traced(responsibilities, known_weight):
        present = responsibilities if weight is None else np.asarray(responsibilities)[np.asarray(known_weight) > 0]
        check_range("y (responsibilities)", np.asarray(present), "Each is a share of a row in a class.")
    return SoftLabels(y, weight)
