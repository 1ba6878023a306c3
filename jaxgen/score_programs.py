"""What is compiled to score rows: in blocks, with a look at what may be outside the domain."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, platform, two_steps
from jaxgen.density import marginal_width, optional
from jaxgen.missing import PartialRows
from jaxgen.numerics import shortcut, varying_alike
from jaxgen.preparing import forms_of
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from jaxgen.platform import Tuning
    from jaxgen.preparing import Scorer


@partial(jax.jit, static_argnums=(0, 3, 4))
def traced_program(
    function: Callable[[Any, Array], Any],
    c: Scorer,
    x: Any,
    tuning: Tuning | None,
    likelihood: bool,  # noqa: FBT001
) -> tuple[Array, Array]:
    """The answer under a trace, where neither the platform nor what the classifier holds is known, and a bad row's NaN.

    Beside it whether there is such a row.
    """
    prepared, quick = forms_of(c, likelihood=likelihood)
    c, x, quick = varying_alike(prepared, x, quick)
    result, suspect = _score(function, c, x, tuning, quick)

    def spoil(result: Array) -> tuple[Array, Array]:
        bad = _outside(c, x, tuning)
        return _spoil(result, bad), jnp.any(bad)

    if suspect is None:
        return spoil(result)
    return shortcut(~suspect, lambda result: (result, jnp.zeros_like(suspect)), spoil, result)


@partial(jax.jit, static_argnums=(0, 3))
def program(function: Callable[[Any, Array], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Array, Array]:
    """The answer of a classifier that is prepared, and whether a value of x may be outside its domain."""
    result, suspect = _score(function, c, x, tuning)
    return result, jnp.any(_outside(c, x, tuning)) if suspect is None else suspect


@partial(jax.jit, static_argnums=2)
def outside_program(c: Any, x: Any, tuning: Tuning) -> Array:
    """Whether a value of x is outside the domain of a classifier."""
    return jnp.any(_outside(c, x, tuning))


def _score(
    function: Callable[[Any, Any], Any],
    c: Any,
    x: Any,
    tuning: Tuning | None,
    quick: tuple[Any, Array] | None = None,
) -> tuple[Any, Array | None]:
    """The answer for rows in any form: sparse, one alone, with features that were not observed, or dense.

    Beside it whether a value of x may be outside the domain; None where only a look at the values tells.
    """
    if isinstance(x, SparseRows):
        score = partial(_score_sparse, function)
        return platform.run(lambda c, x, tuning: score(c, x.reading(tuning.window).inside()), c, x, tuning=tuning)
    rows = jax.tree.map(jnp.atleast_2d, x)
    result, suspect = platform.run(partial(_score_dense, function), c, quick, rows, tuning=tuning)
    shows = c.domain.shows or _least_tells(c, quick, rows)
    return result[0] if x.ndim == 1 else result, suspect if shows else None


def _outside(c: Any, x: Any, tuning: Tuning | None) -> Array:
    """Which rows hold a value outside the domain; of one row alone, whether it does."""
    dtype, domain = dtype_of(c), c.domain

    def dense(rows: Any, tuning: Tuning) -> Array:
        def block(x: Any) -> tuple[Array, Array]:
            x = x.astype(dtype)
            bad = ~jnp.all(domain.contains(x.values if isinstance(x, PartialRows) else x), axis=-1)
            return bad, jnp.zeros((), bool)

        return blocks.map_rows(block, rows, block=blocks.num_rows(tuning.score_elements, rows.shape[-1]))[0]

    def sparse(x: SparseRows, tuning: Tuning) -> Array:
        x = x.reading(tuning.window).inside().astype(dtype).summed()
        return x.map(lambda values: (~domain.contains_entries(values, x.columns)).astype(dtype)).row_sum() > 0

    if isinstance(x, SparseRows):
        return platform.run(sparse, x, tuning=tuning)
    bad = platform.run(dense, jax.tree.map(jnp.atleast_2d, x), tuning=tuning)
    return bad[0] if x.ndim == 1 else bad


def in_one_pass(c: Any, x: Any) -> bool:
    """Whether the scores of rows are products of what x holds."""
    return optional(c, "in_one_pass") and isinstance(x, (jax.Array, np.ndarray)) and x.dtype == dtype_of(c)


def _least_tells(c: Any, quick: tuple[Any, Array] | None, x: Any) -> bool:
    """Whether the least of all values and the scores tell that no value may be outside the domain."""
    # In a product infinity shows, and no convex domain ends before that.
    return c.domain.convex and in_one_pass(quick[0] if quick else c, x)


def _score_dense(
    function: Callable[[Any, Array], Any], c: Any, quick: tuple[Any, Array] | None, x: Array, *, tuning: Tuning
) -> tuple[Array, Array]:
    """The scores of rows by c, or by its quick form where that is accurate and its scores are made in one pass."""
    dtype = dtype_of(c)
    # One pass holds the scores of all rows: these may be as many numbers as the rows are, not more.
    few_scores = c.class_shape[0] <= x.shape[-1] or blocks.at_most(x.shape[0] * c.class_shape[0], tuning.score_elements)
    one_pass = few_scores and blocks.at_most(x.size, tuning.product_elements)
    one_pass = one_pass and in_one_pass(quick[0] if quick else c, x)
    elements = tuning.product_elements if one_pass else tuning.score_elements
    partly = isinstance(x, PartialRows)
    fewest, width = (16, marginal_width(c, x.most_missing)) if partly else (None, optional(c, "score_width"))
    block_size = blocks.num_rows(elements, max(x.shape[-1], c.class_shape[0], width), fewest=fewest)

    def block(x: Any) -> tuple[Array, Array]:
        x = x.astype(dtype)
        if quick and one_pass:
            # The choice is made about the whole function: XLA makes scores and what is made of them in one pass over x.
            forms = (partial(_witnessed, function, form, tuning=tuning) for form in (quick[0], c))
            result, witness = shortcut(quick[1], *forms, x)
        else:
            result, witness = _witnessed(function, c, x, tuning=tuning)
        # A value that is not finite leaves a witness that is not: only then are the values themselves looked at.
        suspect = ~jnp.isfinite(witness)
        if not c.domain.shows and x.size and _least_tells(c, quick, x):
            suspect |= ~c.domain.contains(jnp.min(lax.stop_gradient(x)))
        return result, suspect

    return blocks.map_rows(block, x, block=block_size)


def _witnessed(function: Callable[[Any, Any], Any], c: Any, x: Any, *, tuning: Tuning) -> tuple[Array, Array]:
    """The result, and its witness: a sum that is not finite where a value of x is not."""
    if step := two_steps.first_step(c):
        table, rest = step
        products = two_steps.products(x, table, tuning)
        return _with_witness(function(rest, products))[0], jnp.sum(products)
    result, witness = _with_witness(function(c, x))
    return result, jnp.sum(witness)


def _with_witness(result: Any) -> tuple[Array, Array]:
    """A result and what shows a bad value in it: itself, if there is nothing else."""
    return result if isinstance(result, tuple) else (result, result)


def _score_sparse(function: Callable[[Any, Any], Any], c: Any, x: SparseRows) -> tuple[Array, Array]:
    x = x.astype(dtype_of(c))
    x = x if c.domain.adds else x.summed()
    return _with_witness(function(c, x))[0], ~x.within(c.domain.contains_entries)


def dtype_of(c: Any) -> Any:
    """That in which a classifier scores."""
    return jax.tree.leaves(c)[0].dtype


def holds_nan(result: Any) -> bool:
    """Whether a result can be NaN: a class cannot."""
    return jnp.issubdtype(result.dtype, jnp.floating)


def _spoil(result: Array, bad: Array) -> Array:
    """NaN for some rows, where the result can hold it."""
    if not holds_nan(result):
        return result
    return jnp.where(bad.reshape(*bad.shape, *(1,) * (result.ndim - bad.ndim)), jnp.nan, result)
