"""What is compiled for a generative estimator: its statistics, their merge, and the classifier that they give.

The fold over blocks, labels and weights, the class prior, and whether all is finite, once for all families.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxgen import blocks, domains, platform
from jaxgen.classifier import with_prior
from jaxgen.density import marginal_width
from jaxgen.labels import FEW_ROWS, rows_are_valid
from jaxgen.missing import PartialRows
from jaxgen.numerics import varying_alike, working_dtype
from jaxgen.sparse import SparseRows
from jaxgen.total import Total, all_leaves

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.classifier import Classifier
    from jaxgen.density import D
    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.labels import Labels
    from jaxgen.platform import Tuning
    from jaxgen.statistics import S

# The merge of one block more costs what so many rows of each class save, where XLA leaves them to one core: Gaussian NB
# of 50 to 100 features is faster by a seventh to a third with 75 to 120 of them, and slower with 65.
_ROWS_OF_A_MERGE = 70


@partial(jax.jit, static_argnames=("block_size", "tuning", "by_cores"))
def statistics_program(
    structure: GenerativeEstimator[S, D],
    x: Array,
    labels: Labels,
    skip: Array | None,
    *,
    within: blocks.Stretch | None = None,
    given: D | None = None,
    block_size: int | None,
    tuning: Tuning | None,
    by_cores: bool = False,
) -> tuple[S, Array]:
    """The statistics of rows, or of those within a stretch; and whether any is not finite.

    The first `skip` of them do not count. `by_cores` says that other cores run the same program beside it.
    """
    dtype = working_dtype(x.dtype)
    domain = structure.domain
    given = jax.tree.map(lambda leaf: leaf.astype(dtype), given)
    x, labels, skip, within, given = varying_alike(x, labels, skip, within, given)

    def fold(
        x: Any, labels: Labels, skip: Array | None, within: blocks.Stretch | None, given: D | None, *, tuning: Tuning
    ) -> Any:
        def summarise(position: Array, x: Any, labels: Labels) -> Any:
            x, labels = x.astype(dtype), labels.prepare(dtype, tuning)
            if skip is not None:
                labels = labels.drop(position + jnp.arange(x.shape[0], dtype=jnp.int32) < skip)
            x, labels, valid = domains.blank_absent(x, labels, domain)
            partly = isinstance(x, PartialRows)
            statistics: Any = structure.expect(x, labels, given) if partly else structure.summarise(x, labels)
            return _poisoned(statistics, ~(valid & rows_are_valid(labels)))

        if isinstance(x, SparseRows):
            entries = x.reading(tuning.window).inside()
            entries = entries if domain.adds else entries.astype(dtype).summed()  # narrow integers would wrap
            return summarise(jnp.asarray(0, jnp.int32), entries, labels)
        width = max(structure.row_width(x.shape[1], tuning), labels.row_width)
        if isinstance(x, PartialRows):
            width = max(width, marginal_width(given, x.most_missing))
        if given is not None:
            rows = blocks.num_rows(tuning.fold_elements, width, fewest=16)
        else:  # a merge costs as much as a number for each feature of each class
            fewest = max(blocks.FEWEST_ROWS, labels.num_classes // labels.row_width)
            rows = min(blocks.num_rows(tuning.fold_elements, width, fewest=fewest), tuning.most_rows)
            if by_cores:
                undivided = tuning.undivided // ((width + -width % tuning.scatter_width) * dtype.itemsize)
                worth = undivided > max(FEW_ROWS, _ROWS_OF_A_MERGE * labels.num_classes)
                rows = min(rows, undivided) if worth else rows
            rows = max(rows, structure.rows_wanted(x.shape[1], labels, tuning))
        return blocks.fold(summarise, x, labels, block=min(block_size or rows, blocks.MOST_ROWS), within=within)

    statistics = platform.run(fold, x, labels, skip, within, given, tuning=tuning)
    bad = ~all_leaves(jnp.isfinite, statistics)
    return _poisoned(statistics, bad), bad


def _poisoned(statistics: Any, bad: Array) -> Any:
    """The statistics with class weights of NaN where they are bad, which no merge undoes and every caller can see."""
    weight = statistics.class_weight
    return dataclasses.replace(statistics, class_weight=Total(jnp.where(bad, jnp.nan, weight.high), weight.low))


@jax.jit
def merge_program(a: S, b: S) -> S:
    """The merge of two statistics, compiled."""
    return a.merge(b)


@jax.jit
def estimate_program(estimator: GenerativeEstimator[S, D], statistics: S) -> tuple[Classifier[D], Array]:
    """The classifier, and whether any of its leaves is NaN or +∞."""
    return with_prior(estimator.density(statistics), statistics.class_weight.value, estimator.prior_alpha)
