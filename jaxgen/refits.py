"""The classifiers of all rows but those of one fold: merged from statistics of the others, or fitted to their rows."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, culprits, domains, inputs, platform, threads
from jaxgen.blocks import Stretch
from jaxgen.fitting import estimate, fit
from jaxgen.folds import left_out, outside
from jaxgen.labels import HardLabels
from jaxgen.programs import statistics_program
from jaxgen.pytree import STATIC, pytree
from jaxgen.total import holds_nan_or_infinity
from jaxgen.tracing import is_recorded, is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Int

    from jaxgen.estimator import GenerativeEstimator
    from jaxgen.folds import Deal, Part
    from jaxgen.platform import Tuning
    from jaxgen.statistics import S


@pytree
@dataclass(frozen=True)
class Fitted:
    """Those of a fit for each fold.

    Attributes:
        stack: those of all folds.
    """

    stack: Any

    @classmethod
    def of(cls, estimator: Any, deal: Deal, num_classes: int) -> tuple[list[Part], Fitted]:
        """A copy of the rows of each group of folds, and the classifiers without each fold."""
        rows = deal.rows
        x = inputs.check_rows(rows.x, observed=rows.observed)
        labels = inputs.check_labels(x, rows.y, num_classes, rows.sample_weight)
        # Of all rows first: a fit would name a bad value by its row among those that it is given.
        present = None if labels.weight is None else np.asarray(labels.weight) > 0
        culprits.raise_for_values(x, getattr(estimator, "domain", domains.COMPLETE), present)
        if hasattr(estimator, "check"):  # what is wrong with it is wrong without any fold
            estimator.check()
        everything = np.arange(len(rows.y))
        classifiers = []
        for f, fold in enumerate(deal.members):
            rest = rows.at(np.setdiff1d(everything, fold, assume_unique=True))
            with left_out(f"fold {f}"):
                classifiers.append(fit(estimator, **rest._asdict(), num_classes=num_classes))
        return threads.over(deal.copy, deal.groups), cls(jax.tree.map(lambda *leaves: jnp.stack(leaves), *classifiers))

    def classifiers(self) -> Any:
        """Those of all folds, stacked."""
        return self.stack

    def checked(self) -> Any:
        """Those of all folds, of which none is bad."""
        return self.stack


@pytree
@dataclass(frozen=True)
class Merged:
    """Those that the statistics of the other folds give.

    Attributes:
        estimator: which makes them.
        parts: the statistics of the folds, in their order: of one each, or of several, `stacked`.
        folds: how many there are; further ones are not read.
        stacked: whether a part has an axis of its folds.
    """

    estimator: GenerativeEstimator[Any, Any]
    parts: tuple[Any, ...]
    folds: int = dataclasses.field(metadata=STATIC)
    stacked: bool = dataclasses.field(metadata=STATIC)

    @classmethod
    def of(cls, estimator: GenerativeEstimator[Any, Any], deal: Deal, num_classes: int) -> tuple[list[Part], Merged]:
        """A copy of the rows of each group of folds, and the classifiers without each fold."""
        rows = deal.rows
        x, labels = estimator.check_data(rows.x, rows.y, num_classes, rows.sample_weight, rows.observed)
        # Hyperparameters play no part in the statistics: without them, a trace over them does not reach the data.
        structure = jax.tree.map(lambda _: 0.0, estimator)

        def summarise(group: Int[np.ndarray, " g"]) -> tuple[Part, Any, Any]:
            part = deal.copy(group)  # which is read from the cache, at best
            if rows.is_sparse:
                return part, *structure.summarise_checked(*_rows_and_labels(structure, part, num_classes))
            return part, *_statistics_program(structure, part, num_classes=num_classes, tuning=platform.tuning_of(part))

        # Data are concrete, also inside of a traced function; that setting is another program to jit, in this thread.
        concretely = jax.ensure_compile_time_eval() if is_recorded() else contextlib.nullcontext()
        with concretely, estimator.loading():
            parts, statistics, bad = zip(*threads.over(summarise, deal.groups), strict=True)
        if any(np.asarray(each).any() for each in bad):
            culprits.raise_for_rows(x, labels, estimator.domain)
        return list(parts), cls(arguments.as_floats(estimator), statistics, len(deal.members), not rows.is_sparse)

    def rests(self) -> Any:
        """The statistics of all folds but one, stacked."""
        join = jnp.concatenate if self.stacked else jnp.stack
        whole = jax.tree.map(lambda *leaves: join(leaves)[: self.folds], *self.parts)
        return outside(whole, jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), whole))

    def classifiers(self) -> Any:
        """Those of all folds, stacked."""
        return jax.vmap(self.estimator.estimate)(self.rests())

    def checked(self) -> Any:
        """Those of all folds.

        Raises:
            ValueError: for one that is not finite, which says what is wrong.
        """
        classifiers, rests, bad = _checked_program(self)
        if not is_traced(bad) and np.asarray(bad).any():
            f = int(np.argmax(bad))
            with left_out(f"fold {f}"):
                estimate(self.estimator, jax.tree.map(lambda leaf: leaf[f], rests))
        return classifiers


def _rows_and_labels(structure: GenerativeEstimator[Any, Any], part: Part, num_classes: int) -> tuple[Any, HardLabels]:
    """Those of a part, as an estimator summarises them."""
    x, y, weight, observed = part.rows
    x = inputs.check_rows(x, sparse=structure.takes_sparse, observed=observed)
    return x, HardLabels(y, weight, num_classes, checked=weight is None)


@partial(jax.jit, static_argnames=("num_classes", "tuning"))
def _statistics_program(
    structure: GenerativeEstimator[S, Any], part: Part, *, num_classes: int, tuning: Tuning | None
) -> tuple[S, Array]:
    """The statistics of several folds, stacked, and which are not finite."""
    x, labels = _rows_and_labels(structure, part, num_classes)

    def one(place: tuple[Array, Array | None]) -> tuple[S, Array]:
        first, skip = place
        within = Stretch(first, part.length)
        return statistics_program(structure, x, labels, skip, within=within, block_size=None, tuning=tuning)

    return lax.map(one, (part.first, part.skip))


@jax.jit
def _checked_program(refits: Merged) -> tuple[Any, Any, Array]:
    """The classifiers of all folds but one, stacked; their statistics; and which are not finite."""
    rests = refits.rests()
    classifiers = jax.vmap(refits.estimator.estimate)(rests)
    return classifiers, rests, jax.vmap(holds_nan_or_infinity)(classifiers)
