"""How a verb runs: arguments checked, rows dealt out to the cores, sparse ones made dense scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxgen import chunks, culprits, host_arrays, inputs, platform
from jaxgen.compressed import CompressedRows
from jaxgen.density import marginal_width, optional
from jaxgen.missing import PartialRows
from jaxgen.preparing import check_classifier, check_numbers, in_one_dtype, ready
from jaxgen.score_programs import dtype_of, holds_nan, in_one_pass, outside_program, program, traced_program
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
        result, bad = traced_program(function, c, rows, tuning, likelihood)
    elif not isinstance(x, CompressedRows):
        many = x.ndim == 2 and x.shape[0] >= tuning.many_rows * c.num_features
        result, bad = _score_rows(function, ready(c, likelihood=likelihood, many=many), x, tuning)
    else:
        result, bad = _score_compressed(function, c, x, tuning, place, likelihood=likelihood)
    if not is_traced(bad, x) and bad:
        culprits.raise_for_points(x, c.domain)
    if place is not None and not holds_nan(result) and not host_arrays.is_distributed(c):
        check_numbers(c)
    return result


def _score_rows(function: Callable[[Any, Any], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Any, Any]:
    """The scores of concrete rows by a classifier that is prepared; on a CPU the rows are dealt out to the cores."""

    def one(x: Any) -> tuple[Any, Any]:
        result, suspect = program(function, c, x, tuning)
        return result, suspect and outside_program(c, x, tuning)

    size = x.shape[0] * c.class_shape[0] * dtype_of(c).itemsize  # of all scores
    at_once = size <= chunks.KEPT and in_one_pass(c, x) and host_arrays.lies_on_boundary(x)
    at_once = at_once or x.ndim == 1 or host_arrays.is_distributed(c)
    width = marginal_width(c, x.most_missing) if isinstance(x, PartialRows) else 0
    pieces = [] if at_once or isinstance(x, SparseRows) else chunks.split(x, width=width, result_bytes=size)
    if len(pieces) < 2:
        return one(x)
    jax.block_until_ready(c)
    places = [chunk.place for chunk in pieces]
    return chunks.gather(lambda chunk: one(chunk.x), pieces, places, x.shape[0])


def _score_compressed(
    function: Callable[[Any, Any], Any], c: Any, x: CompressedRows, tuning: Tuning, place: str, *, likelihood: bool
) -> tuple[Any, Any]:
    """The scores of concrete sparse rows; on a CPU by scipy's loops, where they are made of products."""
    if place == "cpu" and tuning.sparse == "scipy":
        c = in_one_dtype(c)
        if groups := optional(c, "by_group"):
            return _score_by_group(function, c, groups(x), tuning, place, likelihood=likelihood)
        if optional(c, "in_two_steps"):
            projection = c.projection(x, likelihood=likelihood)
            products, bad = x.products(projection, c.domain, entries=tuning.entries)
            return _score_made(function, projection.classifier, products, tuning)[0], bad
    return _score_entries(function, ready(c, likelihood=likelihood, many=False), x, tuning, place)


def _score_by_group(
    function: Callable[[Any, Any], Any], c: Any, groups: list[Any], tuning: Tuning, place: str, *, likelihood: bool
) -> tuple[Any, Any]:
    """The scores of groups of features, each by a classifier of its own, are added up; then they are dense rows."""
    own, total, bad = _log_likelihood if likelihood else _scores, np.zeros((), dtype_of(c)), False
    for one, x in groups:
        if isinstance(x, CompressedRows):
            found, wrong = _score_compressed(own, one, x, tuning, place, likelihood=likelihood)
        else:
            found, wrong = _score_made(own, ready(one, likelihood=likelihood, many=False), x, tuning)
        total, bad = total + np.asarray(found), bad | bool(wrong)
    return _score_made(function, c.of_scores, total, tuning)[0], bad


def _score_made(function: Callable[[Any, Any], Any], c: Any, x: np.ndarray, tuning: Tuning) -> tuple[Any, Any]:
    """The scores of dense rows that sparse ones were made into, which in any small batch share programs."""
    place, n = host_arrays.placement(c), len(x)
    if padding := host_arrays.few_sizes(n, _SMALL_BATCH) - n:
        x = np.pad(x, [(0, padding), (0, 0)])
    result, bad = _score_rows(function, c, jax.device_put(x, place), tuning)
    return _cut(result, n, place), bad


def _scores(c: Any, x: Any) -> Array:
    return c.density.scores(x)


def _log_likelihood(c: Any, x: Any) -> Array:
    return c.density.log_likelihood(x)


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
