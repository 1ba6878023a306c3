"""How a verb runs: arguments checked, one compiled program, rows in blocks, blocks on every core."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, chunks, culprits, host_arrays, inputs, platform, two_steps
from jaxgen.compressed import CompressedRows
from jaxgen.density import marginal_width, optional
from jaxgen.missing import PartialRows
from jaxgen.numerics import shortcut, varying_alike
from jaxgen.preparing import check_classifier, check_numbers, forms_of, in_one_dtype, ready
from jaxgen.sparse import SparseRows
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    from jaxgen.platform import Tuning
    from jaxgen.preparing import Scorer

# Rows of a batch that is filled up: scores of its products are quicker than the compilation of a program for its size.
_SMALL_BATCH = 2**14


def score(
    function: Callable[[Any, Any], Any], c: Scorer, x: Any, *, observed: Any = None, likelihood: bool = False
) -> Any:
    """`function(c, rows)` of every row of x: one result a row; an error, or NaN under a trace, for a bad value.

    Args:
        function: a module-level function, since programs are kept by it; from a classifier and rows to an array, or to
            one and another that is not finite where a value of x is not.
        c: the classifier.
        x: (d,), (n, d) or sparse rows.
        observed: True for the entries of x that count, where some do not.
        likelihood: whether the function needs the log likelihood itself, where scores would not do.
    """
    check_classifier(c)
    counts = marginal_width(c, None) > 0
    x = inputs.check_points(x, c.num_features, sparse=c.takes_sparse, observed=observed, counts=counts)
    place = platform.platform_of(c, x)
    tuning = platform.tuning_on(place)
    if place is None or tuning is None:
        rows = x.whole() if isinstance(x, CompressedRows) else x
        result, bad = _traced_program(function, c, rows, tuning, likelihood)
    elif not isinstance(x, CompressedRows):
        many = x.ndim == 2 and x.shape[0] >= tuning.many_rows * c.num_features
        result, bad = _score_rows(function, ready(c, likelihood=likelihood, many=many), x, tuning)
    elif place == "cpu" and tuning.sparse == "scipy" and optional(c, "in_two_steps"):
        result, bad = _score_in_two_steps(function, c, x, tuning, likelihood=likelihood)
    else:
        result, bad = _score_entries(function, ready(c, likelihood=likelihood, many=False), x, tuning, place)
    if not is_traced(bad, x) and bad:
        culprits.raise_for_points(x, c.domain)
    if place is not None and not _holds_nan(result) and not host_arrays.is_distributed(c):
        check_numbers(c)
    return result


def _score_rows(function: Callable[[Any, Any], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Any, Any]:
    """The scores of concrete rows by a classifier that is prepared; on a CPU the rows are dealt out to the cores."""

    def one(x: Any) -> tuple[Any, Any]:
        result, suspect = _program(function, c, x, tuning)
        return result, suspect and _outside_program(c, x, tuning)

    size = x.shape[0] * c.class_shape[0] * _dtype(c).itemsize  # of all scores
    at_once = size <= chunks.KEPT and _in_one_pass(c, x) and host_arrays.lies_on_boundary(x)
    at_once = at_once or x.ndim == 1 or host_arrays.is_distributed(c)
    width = marginal_width(c, x.most_missing) if isinstance(x, PartialRows) else 0
    pieces = [] if at_once or isinstance(x, SparseRows) else chunks.split(x, width=width, result_bytes=size)
    if len(pieces) < 2:
        return one(x)
    jax.block_until_ready(c)
    places = [chunk.place for chunk in pieces]
    return chunks.gather(lambda chunk: one(chunk.x), pieces, places, x.shape[0])


def _score_in_two_steps(
    function: Callable[[Any, Array], Any], c: Scorer, x: CompressedRows, tuning: Tuning, *, likelihood: bool
) -> tuple[Array, bool]:
    """Rows times a table, by scipy; then the products are dense rows, and what scores them is a classifier as well."""
    projection = in_one_dtype(c).projection(x, likelihood=likelihood)
    products, bad = x.products(projection, c.domain, entries=tuning.entries)
    place, n = host_arrays.placement(c), len(products)
    if padding := host_arrays.few_sizes(n, _SMALL_BATCH) - n:
        products = np.pad(products, [(0, padding), (0, 0)])
    result, _ = _score_rows(function, projection.classifier, jax.device_put(products, place), tuning)
    return _cut(result, n, place), bad


def _score_entries(
    function: Callable[[Any, Any], Any], c: Any, x: CompressedRows, tuning: Tuning, place: str
) -> tuple[Any, Any]:
    """The scores of rows by a classifier of entries; on a CPU the rows are dealt out to the cores."""
    pieces = (place == "cpu" and x.stretches(1)) or [slice(0, x.shape[0])]
    sizes = [(piece.stop - piece.start, int(x.starts[piece.stop] - x.starts[piece.start])) for piece in pieces]
    num_rows, num_entries = map(max, zip(*sizes, strict=True))  # one program for all
    num_rows = host_arrays.few_sizes(num_rows, _SMALL_BATCH)

    def one(piece: slice) -> tuple[Any, Any]:
        rows = x.at(range(piece.start, piece.stop))
        result, bad = _score_rows(function, c, rows.whole(num_rows, num_entries), tuning)
        return _cut(result, rows.shape[0], host_arrays.placement(c)), bad

    return one(pieces[0]) if len(pieces) == 1 else chunks.gather(one, pieces, pieces, x.shape[0])


def _cut(result: Any, n: int, place: Any) -> Any:
    """The results of the first n rows, which are few where some were added."""
    return result if len(result) == n else jax.device_put(np.asarray(result)[:n], place)


@partial(jax.jit, static_argnums=(0, 3, 4))
def _traced_program(
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
def _program(function: Callable[[Any, Array], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Array, Array]:
    """The answer of a classifier that is prepared, and whether a value of x may be outside its domain."""
    result, suspect = _score(function, c, x, tuning)
    return result, jnp.any(_outside(c, x, tuning)) if suspect is None else suspect


@partial(jax.jit, static_argnums=2)
def _outside_program(c: Any, x: Any, tuning: Tuning) -> Array:
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
    dtype, contains = _dtype(c), c.domain.contains

    def dense(rows: Any, tuning: Tuning) -> Array:
        def block(x: Any) -> tuple[Array, Array]:
            x = x.astype(dtype)
            bad = ~jnp.all(contains(x.values if isinstance(x, PartialRows) else x), axis=-1)
            return bad, jnp.zeros((), bool)

        return blocks.map_rows(block, rows, block=blocks.num_rows(tuning.score_elements, rows.shape[-1]))[0]

    def sparse(x: SparseRows, tuning: Tuning) -> Array:
        x = x.reading(tuning.window).inside().astype(dtype).summed()
        return x.row_sum(lambda values: (~contains(values)).astype(x.dtype)) > 0

    if isinstance(x, SparseRows):
        return platform.run(sparse, x, tuning=tuning)
    bad = platform.run(dense, jax.tree.map(jnp.atleast_2d, x), tuning=tuning)
    return bad[0] if x.ndim == 1 else bad


def _in_one_pass(c: Any, x: Any) -> bool:
    """Whether the scores of rows are products of what x holds."""
    return optional(c, "in_one_pass") and isinstance(x, (jax.Array, np.ndarray)) and x.dtype == _dtype(c)


def _least_tells(c: Any, quick: tuple[Any, Array] | None, x: Any) -> bool:
    """Whether the least of all values and the scores tell that no value may be outside the domain."""
    # In a product infinity shows, and no convex domain ends before that.
    return c.domain.convex and _in_one_pass(quick[0] if quick else c, x)


def _score_dense(
    function: Callable[[Any, Array], Any], c: Any, quick: tuple[Any, Array] | None, x: Array, *, tuning: Tuning
) -> tuple[Array, Array]:
    """The scores of rows by c, or by its quick form where that is accurate and its scores are made in one pass."""
    dtype = _dtype(c)
    # One pass holds the scores of all rows: these may be as many numbers as the rows are, not more.
    few_scores = c.class_shape[0] <= x.shape[-1] or blocks.at_most(x.shape[0] * c.class_shape[0], tuning.score_elements)
    one_pass = few_scores and blocks.at_most(x.size, tuning.product_elements)
    one_pass = one_pass and _in_one_pass(quick[0] if quick else c, x)
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
    x = x.astype(_dtype(c))
    x = x if c.domain.adds else x.summed()
    return _with_witness(function(c, x))[0], ~x.within(c.domain.contains)


def _dtype(c: Any) -> Any:
    return jax.tree.leaves(c)[0].dtype


def _holds_nan(result: Any) -> bool:
    """Whether a result can be NaN: a class cannot."""
    return jnp.issubdtype(result.dtype, jnp.floating)


def _spoil(result: Array, bad: Array) -> Array:
    """NaN for some rows, where the result can hold it."""
    if not _holds_nan(result):
        return result
    return jnp.where(bad.reshape(*bad.shape, *(1,) * (result.ndim - bad.ndim)), jnp.nan, result)
