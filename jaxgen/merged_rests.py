"""Leave-one-out of statistics of any kind: those of all rows but one, merged from those before it with those after it.

They are found from the top down: rows are cut into parts, each part is given the statistics of all rows outside it, and
is cut in turn. Taking the one row away from moments would cancel where it is an outlier or one of few in its class.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, chunks, platform, threads
from jaxgen.classify import log_posterior
from jaxgen.folds import Rows, all_but_each, outside
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.estimator import GenerativeEstimator

# Rows × features × classes that are a core's share, at least. Of Gaussian NB in three classes 2,000 × 20 take two cores
# 7 ms in place of 12, 500 × 10 four in place of three.
_SHARE = 2**16


def posterior_without_each(
    estimator: GenerativeEstimator[Any, Any], rows: Rows, num_classes: int
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others."""
    tuning = platform.tuning_of(rows) or platform.CPU

    def summarise(rows: Rows) -> Any:
        return estimator.statistics(**rows._asdict(), num_classes=num_classes)

    shares = [rows] if is_traced(estimator) or platform.platform_of(rows) != "cpu" else _shares(rows, num_classes)
    try:
        summed = threads.over(summarise, shares)
    except ValueError:
        summarise(rows)  # names a bad row by its number among all
        raise
    size = sum(leaf.size for leaf in jax.tree.leaves(summed[0]))
    options = {"num_classes": num_classes, "most": max(2, tuning.fold_elements // size)}
    what = arguments.as_floats(estimator)
    if len(shares) == 1 or size > tuning.fold_elements:  # every core at once would hold many of such a size
        return _posterior(what, None, rows, **options)
    return _by_cores(what, list(all_but_each(tuple(summed))), shares, len(rows.y), **options)


def _shares(rows: Rows, num_classes: int) -> list[Rows]:
    """The rows dealt out to the cores of a CPU in their order, as many to each; all in one share where they are few.

    The last share is filled up with rows that weigh nothing.
    """
    n, d = rows.x.shape
    count = min(threads.cores(), n * d * num_classes // _SHARE)
    if count < 2:
        return [rows]
    size = -(-n // count)
    weight = np.ones(n, jnp.result_type(float)) if rows.sample_weight is None else rows.sample_weight
    rows = jax.tree.map(np.asarray, rows._replace(sample_weight=weight))

    def share(first: int) -> Rows:
        return jax.tree.map(lambda array: _filled_up(array[first : first + size], size), rows)

    return [share(first) for first in range(0, n, size)]


def _filled_up(array: np.ndarray, length: int) -> np.ndarray:
    more = length - len(array)
    return np.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1)) if more else array


def _by_cores(
    estimator: GenerativeEstimator[Any, Any], elsewhere: list[Any], shares: list[Rows], num_rows: int, **options: int
) -> Array:
    """The log posterior of each row from all others: of each share, beside the statistics of all that is elsewhere."""
    size = len(shares[0].y)
    places = [slice(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]

    def posterior(task: tuple[Any, Rows]) -> tuple[Array, bool]:
        return _posterior(estimator, *task, **options), False

    return chunks.gather(posterior, list(zip(elsewhere, shares, strict=True)), places, num_rows)[0]


def _posterior(estimator: Any, elsewhere: Any, rows: Rows, *, num_classes: int, most: int) -> Array:
    """The log posterior of each row from all others: these, and those whose statistics are given, None without any."""
    return _program(estimator, elsewhere, rows, num_classes=num_classes, levels=_levels(len(rows.y), most))


def _levels(n: int, most: int) -> tuple[int, ...]:
    """Into how many parts rows are cut, and those in turn, down to one row: at most so many at a time."""
    depth = 1
    while most**depth < n:
        depth += 1
    each = math.ceil(n ** (1 / depth))
    return -(-n // each ** (depth - 1)), *(each,) * (depth - 1)


@partial(jax.jit, static_argnames=("num_classes", "levels"))
def _program(
    estimator: GenerativeEstimator[Any, Any], elsewhere: Any, rows: Rows, *, num_classes: int, levels: tuple[int, ...]
) -> Float[Array, "n classes"]:
    """The log posterior of each row from all others, NaN where those have none.

    Of each level the statistics of its parts are kept: memory grows with the logarithm of the rows.
    """
    n = rows.x.shape[0]

    def summarise(rows: Rows) -> Any:
        return estimator.statistics(**rows._asdict(), num_classes=num_classes)

    def predict(others: Any, rows: Rows) -> Array:
        # What an absent row holds must not reach a derivative, though nothing is made of its posterior.
        x = jnp.where((rows.sample_weight == 0)[:, None], jnp.zeros_like(rows.x), rows.x)
        return log_posterior(estimator.estimate(others), x, observed=rows.observed)

    def visit(others: Any, rows: Rows, levels: tuple[int, ...]) -> Array:
        """The same for some rows, from the statistics of all `others`."""
        count, *below = levels
        parts = jax.tree.map(lambda a: a.reshape(count, -1, *a.shape[1:]), rows)
        mine = lax.map(summarise, parts) if below else jax.vmap(summarise)(parts)
        others = outside(mine, others)
        if below:
            # Checkpointed: a gradient keeps the statistics of the parts, and not those of every row.
            each = jax.checkpoint(lambda part: visit(part[0], part[1], tuple(below)))
            return lax.map(each, (others, parts)).reshape(-1, num_classes)
        return jax.vmap(predict)(others, parts)[:, 0]

    padding = math.prod(levels) - n  # rows of weight 0 are absent
    rows = rows._replace(sample_weight=jnp.ones(n) if rows.sample_weight is None else rows.sample_weight)
    rows = jax.tree.map(lambda a: jnp.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)), rows)
    if elsewhere is None:
        elsewhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(summarise, rows))
    return visit(elsewhere, rows, levels)[:n]
