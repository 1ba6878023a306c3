"""Runs of EM on a CPU whose cores share the rows of each step: of one run XLA makes most of a step on one of them."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import chunks, em, host_arrays, platform, threads
from jaxgen.ascent import Ascent, Expectation, best, each_run
from jaxgen.containers import is_sparse
from jaxgen.em_data import Data, without_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool

    from jaxgen.arguments import AnyArray
    from jaxgen.ascent import EMReport
    from jaxgen.classifier import Classifier
    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.platform import Tuning


# Elements up to which threads cost a step what they save, where no row takes a factorisation. In three classes Gaussian
# NB takes 4.9 ms a step of 25,000 × 50 by one and 5.5 by two, of 80,000 × 50 17 and 14.
_FEWEST_ELEMENTS = 2**21


class Part(NamedTuple):
    """Some of the rows.

    Attributes:
        data: of these rows.
        skip: how many of the first ones belong to the part before; None where there is no other.
        place: theirs among all rows.
    """

    data: Data
    skip: np.int32 | None
    place: slice


def deal(estimator: GenerativeEstimator[Any, Any], data: Data, *, num_runs: int) -> list[Part]:
    """The rows in parts of one size; one part where a step is better one program.

    Several runs at once are products for a stack, which XLA makes on all cores itself: four of Gaussian NB, 200,000 ×
    50, take 0.61 s in one program and 0.70 by parts.
    """
    fills_in = estimator.fills_in and data.observed is not None
    if is_sparse(data.x) or not (fills_in or (data.x.size >= _FEWEST_ELEMENTS and num_runs == 1)):
        dealt = chunks.whole(data.x, data)
    else:
        width = data.x.shape[1] * data.labelled.shape[1] if fills_in else 0
        dealt = chunks.split(data.x, data, width=width, result_bytes=num_runs * data.labelled.nbytes)
    return [Part(chunk.labels, chunk.skip, chunk.place) for chunk in dealt]


def ascend(
    estimator: GenerativeEstimator[Any, Any],
    starts: tuple[Array, Classifier[Any] | None],
    parts: list[Part],
    tolerance: np.ndarray,
    *,
    max_steps: int,
    tuning: Tuning,
) -> tuple[Classifier[Any], EMReport]:
    """As `em.ascend`, of concrete rows that were dealt out."""
    parts = [part._replace(data=host_arrays.as_arrays_of_jax(part.data)) for part in parts]  # once for all steps
    first, fill_in = starts
    first = np.asarray(first)

    def begin(part: Part) -> Any:
        return _statistics(estimator, part.data, part.skip, first[:, part.place], fill_in, tuning=tuning)

    # Two programs, of which the second is that of the start as well: one for both would be compiled for 0.7 s more.
    def expect(classifiers: Any, part: Part) -> Expectation:
        responsibilities, *sums = _responsibilities(classifiers, part.data, part.skip, tuning=tuning)
        filling = fill_in and classifiers
        made = _statistics(estimator, part.data, part.skip, responsibilities, filling, tuning=tuning)
        return Expectation(made, *sums)

    merge = partial(_merge, tuning=tuning)
    nothing = np.full(max_steps, np.nan, tolerance.dtype)
    runs, go_on = _begin(reduce(merge, threads.each(begin, parts)), nothing, tuning=tuning)
    classifiers = _estimate(estimator, runs.statistics, tuning=tuning)
    while np.asarray(go_on).any():
        expected = reduce(merge, threads.each(partial(expect, classifiers), parts))
        runs, go_on = _step(estimator, runs, classifiers, expected, tolerance, tuning=tuning)
        classifiers = _estimate(estimator, runs.statistics, tuning=tuning)
    return _best(runs, classifiers, tuning=tuning)


def _program(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled, for each tuning that it is called with."""

    @partial(jax.jit, static_argnames="tuning")
    def program(*data: Any, tuning: Tuning) -> Any:
        with platform.tuned(tuning):
            return function(*data)

    return program


@_program
def _responsibilities(classifiers: Any, data: Data, skip: Array | None) -> tuple[Array, Array, Array]:
    """What `em.responsibilities_of` gives for each run, of some rows, of which the first `skip` do not count."""
    return each_run(lambda c: em.responsibilities_of(c, without_first(data, skip)), classifiers)


@_program
def _statistics(estimator: Any, data: Data, skip: Array | None, responsibilities: AnyArray, filling: Any) -> Any:
    """What `em.statistics_of` gives for each run, of the same rows."""

    def one(responsibilities: Array, c: Any) -> Any:
        mine = without_first(data._replace(labelled=responsibilities), skip)
        return em.statistics_of(estimator, mine, mine.labelled, c)

    return each_run(one, responsibilities, filling)


@_program
def _begin(statistics: Any, nothing: AnyArray) -> tuple[Ascent, Bool[Array, " runs"]]:
    """The runs from a stack of statistics, and which go on."""
    runs = each_run(lambda statistics: Ascent.begin(statistics, nothing.dtype, len(nothing)), statistics)
    return runs, each_run(lambda run: run.goes_on, runs)


@_program
def _estimate(estimator: Any, statistics: Any) -> Any:
    return each_run(estimator.estimate, statistics)


@_program
def _merge(a: Any, b: Any) -> Any:
    """Statistics, or expectations, of each run."""
    return each_run(lambda a, b: a.merge(b), a, b)


@_program
def _step(
    estimator: Any, runs: Ascent, classifiers: Any, expected: Expectation, tolerance: AnyArray
) -> tuple[Ascent, Bool[Array, " runs"]]:
    """The runs after a step, and which go on; one that did not is what it was."""

    def step(run: Ascent, c: Any, expected: Expectation) -> tuple[Ascent, Array]:
        after = run.step(estimator, c, expected, tolerance)
        run = jax.tree.map(partial(jnp.where, run.goes_on), after, run)
        return run, run.goes_on

    return each_run(step, runs, classifiers, expected)


@_program
def _best(runs: Ascent, classifiers: Any) -> tuple[Any, EMReport]:
    return best(runs, classifiers)
