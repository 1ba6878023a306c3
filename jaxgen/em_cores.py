"""Runs of EM on a CPU, whose cores share the rows of each step: XLA would run a step on one of them."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import chunks, em, platform, threads
from jaxgen.ascent import Ascent, Expectation, best, each_run
from jaxgen.containers import is_sparse
from jaxgen.em_data import without_first
from jaxgen.missing import PartialRows

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool

    from jaxgen.arguments import AnyArray
    from jaxgen.ascent import EMReport
    from jaxgen.chunks import Chunk
    from jaxgen.classifier import Classifier
    from jaxgen.em_data import Data
    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.platform import Tuning


# Elements up to which threads cost a step what they save, where no row takes a factorisation. In three classes Gaussian
# NB takes 4.9 ms a step of 25,000 × 50 by one and 5.5 by two, of 80,000 × 50 17 and 14.
_FEWEST_ELEMENTS = 2**21


def deal(estimator: GenerativeEstimator[Any, Any], data: Data, *, num_runs: int) -> list[Chunk]:
    """The rows in chunks, the data of each as its labels; one chunk where a step is better one program."""
    fills_in = estimator.fills_in and data.observed is not None
    if is_sparse(data.x) or (not fills_in and data.x.size < _FEWEST_ELEMENTS):
        return chunks.whole(data.x, data)
    rows = data.x if data.observed is None else PartialRows(data.x, data.observed, data.most.missing)
    width = rows.shape[1] * data.labelled.shape[1] if fills_in else 0
    return chunks.split(rows, data, width=width, result_bytes=num_runs * data.labelled.nbytes)


def ascend(
    estimator: GenerativeEstimator[Any, Any],
    starts: tuple[Array, Classifier[Any] | None],
    dealt: list[Chunk],
    tolerance: np.ndarray,
    *,
    max_steps: int,
    tuning: Tuning,
) -> tuple[Classifier[Any], EMReport]:
    """As `em.ascend`, of concrete rows that were dealt out."""
    first, fill_in = starts
    first = np.asarray(first)

    def statistics(chunk: Chunk, responsibilities: AnyArray, c: Any) -> Any:
        return _statistics_program(estimator, chunk.labels, chunk.skip, responsibilities, c, tuning)

    def expect(chunk: Chunk) -> Expectation:
        responsibilities, *sums = _responsibilities_program(classifiers, chunk.labels, chunk.skip, tuning)
        return Expectation(statistics(chunk, responsibilities, fill_in and classifiers), *sums)

    begun = threads.each(lambda chunk: statistics(chunk, first[:, chunk.place], fill_in), dealt)
    runs, go_on = _begin_program(reduce(_merge_program, begun), tolerance.dtype, max_steps)
    classifiers = _estimate_program(estimator, runs.statistics)
    while np.asarray(go_on).any():
        expected = reduce(_merge_program, threads.each(expect, dealt))
        runs, go_on = _step_program(estimator, runs, classifiers, expected, tolerance)
        classifiers = _estimate_program(estimator, runs.statistics)
    return _best_program(runs, classifiers)


@partial(jax.jit, static_argnums=3)
def _responsibilities_program(
    classifiers: Any, data: Data, skip: Array | None, tuning: Tuning
) -> tuple[Array, Array, Array]:
    """What `em.responsibilities_of` gives for each run, of some rows, of which the first `skip` do not count."""
    with platform.tuned(tuning):
        return each_run(lambda c: em.responsibilities_of(c, without_first(data, skip)), classifiers)


@partial(jax.jit, static_argnums=5)
def _statistics_program(
    estimator: Any, data: Data, skip: Array | None, responsibilities: AnyArray, classifiers: Any, tuning: Tuning
) -> Any:
    """What `em.statistics_of` gives for each run, of the same rows."""

    def one(responsibilities: Array, c: Any) -> Any:
        mine = without_first(data._replace(labelled=responsibilities), skip)
        return em.statistics_of(estimator, mine, mine.labelled, c)

    with platform.tuned(tuning):
        return each_run(one, responsibilities, classifiers)


@partial(jax.jit, static_argnums=(1, 2))
def _begin_program(statistics: Any, dtype: Any, max_steps: int) -> tuple[Ascent, Bool[Array, " runs"]]:
    """The runs from a stack of statistics, and which go on."""
    runs = each_run(lambda statistics: Ascent.begin(statistics, dtype, max_steps), statistics)
    return runs, each_run(lambda run: run.goes_on, runs)


@jax.jit
def _estimate_program(estimator: Any, statistics: Any) -> Any:
    return each_run(estimator.estimate, statistics)


@jax.jit
def _merge_program(a: Any, b: Any) -> Any:
    """Statistics, or expectations, of each run."""
    return each_run(lambda a, b: a.merge(b), a, b)


@jax.jit
def _step_program(
    estimator: Any, runs: Ascent, classifiers: Any, expected: Expectation, tolerance: AnyArray
) -> tuple[Ascent, Bool[Array, " runs"]]:
    """The runs after a step, and which go on; one that did not is what it was."""

    def step(run: Ascent, c: Any, expected: Expectation) -> tuple[Ascent, Array]:
        after = run.step(estimator, c, expected, tolerance)
        run = jax.tree.map(partial(jnp.where, run.goes_on), after, run)
        return run, run.goes_on

    return each_run(step, runs, classifiers, expected)


@jax.jit
def _best_program(runs: Ascent, classifiers: Any) -> tuple[Any, EMReport]:
    return best(runs, classifiers)
