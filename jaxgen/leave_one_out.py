"""Leave-one-out: every row predicted from all others, exactly, without a fit of its own data for each.

The statistics of all rows but one are a merge of those before it with those after it. They are found from the top down:
rows are cut into parts, each part is given the statistics of all rows outside it, and is cut in turn. Taking the one
row away from the whole would cost as much, and cancel where it is an outlier or one of few in its class.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import inputs, platform
from jaxgen.classify import log_posterior
from jaxgen.fitting import fit

if TYPE_CHECKING:
    from typing import NoReturn

    from jax import Array
    from jaxtyping import Float

    from jaxgen.estimator import GenerativeEstimator


def leave_one_out(
    estimator: GenerativeEstimator[Any, Any], x: Any, y: np.ndarray, num_classes: int, weight: np.ndarray | None
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Whether each row is classified rightly by the others, and its −log p(y | x); see `jaxgen.cross_validate`."""
    if hasattr(x, "tocsr"):
        raise TypeError(
            "folds='leave-one-out' takes dense x: every row has dense statistics of its own; found sparse rows. Give "
            "x.toarray(), or a number of folds."
        )
    x, n = inputs.as_numbers("x", x), len(y)
    if n < 2:
        raise ValueError(f"folds='leave-one-out' needs two rows or more, to fit to the others; found {n}.")
    # Raises for whatever is bad in the data, also where the hyperparameters are under a trace.
    whole = estimator.statistics(x, y, num_classes=num_classes, sample_weight=weight)
    size = sum(leaf.size for leaf in jax.tree.leaves(whole))
    elements = (platform.tuning_of(x, whole) or platform.CPU).fold_elements
    levels = _levels(n, max(2, elements // size))
    posterior = _program(estimator, x, y, weight, num_classes=num_classes, levels=levels)
    present = np.ones(n, bool) if weight is None else weight > 0
    if not inputs.is_traced(posterior):
        failed = np.isnan(posterior).any(axis=1) & present
        if failed.any():
            _raise_for_row(int(np.argmax(failed)), estimator, x, y, num_classes, weight)
    label = jnp.asarray(y).astype(jnp.int32)
    own = jnp.take_along_axis(posterior, label[:, None], axis=1)[:, 0]
    known = jnp.asarray(present) & ~jnp.isnan(own)
    predicted = jnp.argmax(posterior, axis=1).astype(jnp.int32)
    right = jnp.where(known, (predicted == label).astype(own.dtype), jnp.nan)
    impossible = jnp.isneginf(own)
    return right, jnp.where(known, jnp.where(impossible, jnp.inf, -jnp.where(impossible, 0.0, own)), jnp.nan)


def _levels(n: int, most: int) -> tuple[int, ...]:
    """Into how many parts rows are cut, and those in turn, down to one row: at most so many at a time."""
    depth = 1
    while most**depth < n:
        depth += 1
    each = math.ceil(n ** (1 / depth))
    return -(-n // each ** (depth - 1)), *(each,) * (depth - 1)


@partial(jax.jit, static_argnames=("num_classes", "levels"))
def _program(
    estimator: GenerativeEstimator[Any, Any],
    x: Array,
    y: Array,
    weight: Array | None,
    *,
    num_classes: int,
    levels: tuple[int, ...],
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those have none.

    Of each level the statistics of its parts are kept: memory grows with the logarithm of the rows.
    """
    n = x.shape[0]

    def summarise(rows: tuple[Array, ...]) -> Any:
        x, y, weight = rows
        return estimator.statistics(x, y, num_classes=num_classes, sample_weight=weight)

    def predict(others: Any, rows: tuple[Array, ...]) -> Array:
        return log_posterior(estimator.estimate(others), rows[0])

    def visit(others: Any, rows: tuple[Array, ...], levels: tuple[int, ...]) -> Array:
        """The same for some rows, from the statistics of all `others`."""
        count, *below = levels
        parts = jax.tree.map(lambda a: a.reshape(count, -1, *a.shape[1:]), rows)
        mine = lax.map(summarise, parts) if below else jax.vmap(summarise)(parts)
        nothing = jax.tree.map(jnp.zeros_like, others)
        before, after = (
            lax.scan(lambda total, part: (total.merge(part), total), start, mine, reverse=backwards)[1]
            for start, backwards in ((others, False), (nothing, True))
        )
        others = jax.vmap(lambda a, b: a.merge(b))(before, after)
        if below:
            # Checkpointed: a gradient keeps the statistics of the parts, and not those of every row.
            each = jax.checkpoint(lambda part: visit(part[0], part[1], tuple(below)))
            return lax.map(each, (others, parts)).reshape(-1, num_classes)
        return jax.vmap(predict)(others, parts)[:, 0]

    present = jnp.ones(n) if weight is None else weight
    padding = math.prod(levels) - n  # rows of weight 0 are absent
    rows = tuple(jnp.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)) for a in (x, y, present))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(summarise, rows))
    return visit(nothing, rows, levels)[:n]


def _raise_for_row(
    row: int, estimator: Any, x: Any, y: np.ndarray, num_classes: int, weight: np.ndarray | None
) -> NoReturn:
    """Raise the ValueError for a row that the others do not predict: they have no classifier, or it gives 0/0."""
    others = np.arange(len(y)) != row
    of_others = None if weight is None else weight[others]
    try:
        fit(estimator, x[others], y[others], num_classes=num_classes, sample_weight=of_others)
    except ValueError as error:
        raise ValueError(f"row {row} left out: {error}") from None
    raise ValueError(
        f"row {row} is impossible under every class that is fitted to the others: its posterior is 0/0. Smooth them, "
        "such as with alpha > 0."
    )
