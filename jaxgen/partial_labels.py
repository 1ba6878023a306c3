"""Labels that some rows have: the responsibilities of those, and the weights of the others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, culprits, inputs
from jaxgen.em_data import Data, Most
from jaxgen.labels import HardLabels
from jaxgen.missing import PartialRows
from jaxgen.numerics import working_dtype
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.arguments import AnyArray
    from jaxgen.labels import Labels


def partly_labelled(
    rows: Any, y: Any, num_classes: int | None, sample_weight: Any, unlabelled_weight: AnyArray, *, complete: bool
) -> tuple[Data, bool]:
    """What EM takes, and whether every row is known to have a label.

    Args:
        rows: that were checked.
        y: labels, −1 for a row that has none; responsibilities, whose rows of zeros have none; None for no label.
        num_classes: K; inferred from concrete labels.
        sample_weight: of each row.
        unlabelled_weight: how much a row without a label counts.
        complete: whether every row must have one.
    """
    has_label, labels = _labels(rows, y, num_classes, sample_weight, complete=complete)
    weight = None if sample_weight is None else inputs.check_weight(rows.shape[0], sample_weight)
    sure = complete and isinstance(labels, HardLabels)
    labelled, unlabelled, hard, weighs = _program(
        has_label, labels, weight, unlabelled_weight, working_dtype(rows.dtype), sure
    )
    if not is_traced(weighs) and not weighs:
        culprits.raise_for_no_weight()
    partly = isinstance(rows, PartialRows)
    values, observed, most = (rows.values, rows.observed, rows.most_missing) if partly else (rows, None, None)
    data = Data(values, observed, labelled, unlabelled, hard, Most(most))
    return data, not is_traced(has_label) and bool(np.all(has_label))


def _labels(rows: Any, y: Any, num_classes: int | None, sample_weight: Any, *, complete: bool) -> tuple[Any, Labels]:
    """Which rows have labels, and the labels of all, of any class for those that have none."""
    n = rows.shape[0]
    y = np.full(n, -1) if y is None else arguments.as_array("y", y)
    y = y if is_traced(y) else np.asarray(y)
    numpy = np if isinstance(y, np.ndarray) else jnp
    if complete or y.ndim > 2:
        has_label = np.ones(n, bool)
    elif y.ndim == 2:
        has_label = numpy.any(y != 0, axis=1)
    else:
        # Without a sign none is −1, which JAX would wrap around.
        has_label = np.ones(n, bool) if jnp.issubdtype(y.dtype, jnp.unsignedinteger) else y != -1
        if num_classes is None and not is_traced(y):
            if not has_label.any():
                raise ValueError("num_classes must be given where no row has a label; found None.")
            if np.array_equal(np.unique(y), [-1, 0]):
                raise ValueError(
                    "num_classes must be given where all labels are 0, and rows without one may be of other classes; "
                    "found None. Give 2 or more."
                )
        y = numpy.where(has_label, y, 0)
    try:
        return has_label, inputs.check_labels(rows, y, num_classes, sample_weight)
    except ValueError as error:
        if y.ndim > 1 or is_traced(y) or not (y < -1).any():
            raise
        raise ValueError(f"{error} −1 is for a row without a label.") from None


@partial(jax.jit, static_argnames=("dtype", "sure"))
def _program(
    has_label: Array,
    labels: Labels,
    weight: Array | None,
    unlabelled_weight: Array,
    dtype: np.dtype,
    sure: bool,  # noqa: FBT001
) -> tuple[Array, Array, tuple[Array, Array] | None, Array]:
    """Responsibilities of the rows that have labels, zero for the others; the weights of the others, zero for those.

    Then the hard labels and weights of all, where each is `sure` to have one; and whether any row weighs anything.
    """
    labels = labels.prepare(dtype)
    labelled = jnp.where(has_label[:, None], labels.dense(), 0.0)
    each = jnp.ones(has_label.shape, dtype) if weight is None else weight.astype(dtype)
    unlabelled = jnp.where(has_label, 0.0, jnp.asarray(unlabelled_weight).astype(dtype) * each)
    hard = (jnp.asarray(labels.index), labels.row_weight) if sure and isinstance(labels, HardLabels) else None
    return labelled, unlabelled, hard, jnp.any(labelled) | jnp.any(unlabelled)
