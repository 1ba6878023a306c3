"""Cross-validation: the statistics of each fold are made once, and merged into those of all others."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, culprits, domains, inputs, platform, threads
from jaxgen.blocks import Stretch
from jaxgen.containers import as_matrix, is_sparse
from jaxgen.estimator import GenerativeEstimator
from jaxgen.fitting import check_estimator, estimate, fit
from jaxgen.folds import Deal, Rows, fold_of_each, left_out, members, outside
from jaxgen.held_out import judge, quick_forms
from jaxgen.host_arrays import as_jax
from jaxgen.labels import HardLabels
from jaxgen.leave_one_out import leave_one_out
from jaxgen.programs import statistics_program
from jaxgen.total import holds_nan_or_infinity
from jaxgen.tracing import is_recorded, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.folds import Part
    from jaxgen.platform import Tuning
    from jaxgen.statistics import S


class CrossValidation(NamedTuple):
    """How well each fold was predicted from the others; with leave-one-out every row is a fold.

    Attributes:
        accuracy: weighted share of the fold's rows that were classified rightly, (F,).
        log_loss: weighted mean of −log p(y | x) over them, in nats, (F,).

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [5.0], [1.0], [6.0]]), np.array([0, 1, 0, 1])
        >>> jg.cross_validate(jg.LDA(), x, y, folds=np.array([0, 0, 1, 1])).accuracy.tolist()
        [1.0, 1.0]
    """

    accuracy: Float[Array, " folds"]
    log_loss: Float[Array, " folds"]


def cross_validate(
    estimator: Any,
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"],
    *,
    folds: int | Int[np.ndarray, " n"] | Literal["leave-one-out"] = 10,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    observed: Bool[AnyArray, "n d"] | None = None,
) -> CrossValidation:
    """Fit without each fold in turn, and judge on it.

    A generative estimator reads the data once for its statistics and once to score, however many folds there are, from
    a copy in the order of the folds; one that is trained, such as logistic regression, is trained for each. `jax.vmap`
    over the estimator scores a grid of hyperparameters from the same statistics, which do not depend on them.
    Leave-one-out is exact and one program, whose memory grows with the logarithm of the rows; of full covariances each
    row takes a factorisation, for QDA one for each class, and of small data the program takes longer to compile than
    the fits would.

    Args:
        estimator: any of jaxgen's.
        x: features (n, d), concrete; sparse rows where the estimator counts.
        y: labels (n,), concrete.
        folds: their number, each with its share of every class, in the order of the rows; or the fold of each row,
            0 … F − 1, (n,); or "leave-one-out", every row by itself, of dense x where the estimator is generative. The
            result of a row, or of a fold, of weight 0 is NaN.
        num_classes: K; inferred from y.
        sample_weight: a weight for each row, (n,), in the fit and in the judgement.
        observed: True for the entries of x that count, as for `fit`, in both as well; full covariances, which fill in
            what is missing, are then fitted for each fold by EM.

    Returns:
        Accuracy and log loss, in nats, of each of the F folds; of each row, with "leave-one-out".

    Raises:
        ValueError: for folds that are fewer than two, empty, or hold all the weight, and as `fit`. For a row that the
            others make impossible under every class.
        TypeError: for x or y under a trace, folds that are none of those three, sparse rows left out one by one, and as
            `fit`.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, jaxgen as jg
        >>> x = np.random.default_rng(0).poisson([[1.0, 4.0], [4.0, 1.0]] * 50)
        >>> y = np.arange(100) % 2
        >>> print(jg.cross_validate(jg.MultinomialNB(), x, y, folds=4).accuracy.shape)
        (4,)
        >>> grid = jax.vmap(lambda alpha: jg.cross_validate(jg.MultinomialNB(alpha), x, y).log_loss.mean())
        >>> print(grid(jnp.array([0.1, 1.0, 10.0])).shape)
        (3,)
    """
    if is_traced(x, y, sample_weight, observed):
        raise TypeError(
            "cross_validate deals concrete rows out to folds; found x, y, sample_weight or observed under a trace."
        )
    check_estimator(estimator)
    rows = _check_rows(x, y, sample_weight, observed)
    num_classes = inputs.infer_classes("y", rows.y) if num_classes is None else num_classes
    merges = isinstance(estimator, GenerativeEstimator) and not (estimator.fills_in and observed is not None)
    fold, sizes = fold_of_each(folds, rows.y)
    _check_weight(fold, rows)
    if isinstance(folds, str) and merges:
        return CrossValidation(*leave_one_out(estimator, rows, num_classes))
    inside = members(fold, sizes)
    deal = Deal.of(rows, inside, cores=threads.cores())
    if merges:
        parts, classifiers, forms = _by_merging(estimator, deal, num_classes)
    else:
        classifiers = _by_fitting(estimator, rows, inside, num_classes)
        parts, forms = threads.over(deal.copy, deal.groups), quick_forms(classifiers)
    quick = forms[0] if forms and observed is None and not is_traced(forms) and forms[1] else None
    groups = list(zip(deal.groups, parts, strict=True))
    judged = _each(lambda group: judge(classifiers, group[0], group[1], inside, quick=quick), groups, classifiers)
    join = jnp.concatenate if is_traced(judged) else np.concatenate
    accuracy, log_loss = (join(each)[: len(inside)] for each in zip(*judged, strict=True))
    return CrossValidation(*as_jax(accuracy, log_loss))


def _check_rows(x: Any, y: Any, sample_weight: Any, observed: Any) -> Rows:
    x = as_matrix(x) if is_sparse(x) else arguments.as_numbers("x", x)
    if x.ndim != 2 or x.shape[0] < 2:
        raise ValueError(f"x must have shape (n, d) with two rows or more, to fit to the others; found {x.shape}.")
    y = np.asarray(arguments.as_array("y", y))
    if y.ndim != 1 or len(y) != x.shape[0]:
        raise ValueError(f"y must be labels of shape ({x.shape[0]},), one for each row of x; found {y.shape}.")
    if not (jnp.issubdtype(y.dtype, jnp.integer) or y.dtype == bool):
        raise TypeError(f"y must be integer labels 0 … K−1; found {y.dtype}. Convert whole numbers with y.astype(int).")
    if observed is not None:
        observed = np.asarray(inputs.check_rows(x, observed=observed).observed)
    weight = None if sample_weight is None else np.asarray(inputs.check_weight(len(y), sample_weight))
    x = np.asarray(x) if isinstance(x, jax.Array) and platform.platform_of(x) == "cpu" else x
    return Rows(x, y, weight, observed)


def _check_weight(fold: Int[np.ndarray, " n"], rows: Rows) -> None:
    """Raise where the rows outside a fold have no weight, which leaves nothing to fit to."""
    if rows.sample_weight is None:
        return
    present = inputs.weighs(rows.sample_weight, rows.x.dtype)
    if not present.any():
        culprits.raise_for_no_weight()
    held = np.bincount(fold, present)
    if (alone := held == held.sum()).any():
        raise ValueError(
            f"folds must leave rows of some weight outside each; found all of it in fold {int(np.argmax(alone))}. Deal "
            "the rows that have weight out to two folds or more."
        )


def _each(function: Callable[[Any], Any], items: list[Any], given: Any = None) -> list[Any]:
    """`function(item)` for each, on every core; on the caller's thread where `given` is a trace, which is of it."""
    return list(map(function, items)) if is_traced(given) else threads.over(function, items)


def _by_fitting(estimator: Any, rows: Rows, inside: list[np.ndarray], num_classes: int) -> Any:
    """The classifiers of all rows but those of one fold, stacked: a fit for each."""
    x = inputs.check_rows(rows.x, observed=rows.observed)
    labels = inputs.check_labels(x, rows.y, num_classes, rows.sample_weight)
    # Of all rows first: a fit would name a bad value by its row among those that it is given.
    present = None if labels.weight is None else np.asarray(labels.weight) > 0
    culprits.raise_for_values(x, getattr(estimator, "domain", domains.COMPLETE), present)
    if hasattr(estimator, "check"):  # what is wrong with it is wrong without any fold
        estimator.check()
    everything = np.arange(len(rows.y))
    classifiers = []
    for f, fold in enumerate(inside):
        rest = rows.at(np.setdiff1d(everything, fold, assume_unique=True))
        with left_out(f"fold {f}"):
            classifiers.append(fit(estimator, **rest._asdict(), num_classes=num_classes))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *classifiers)


def _by_merging(estimator: GenerativeEstimator[Any, Any], deal: Deal, num_classes: int) -> tuple[list[Part], Any, Any]:
    """Copies of the rows of all folds; those classifiers, from the statistics of each fold; and their quick forms."""
    rows = deal.rows
    x, labels = estimator.check_data(rows.x, rows.y, num_classes, rows.sample_weight, rows.observed)
    # Hyperparameters play no part in the statistics: without them, a trace over them does not reach the data.
    structure = jax.tree.map(lambda _: 0.0, estimator)

    def summarise(group: Int[np.ndarray, " g"]) -> tuple[Part, Any, Any]:
        part = deal.copy(group)  # which is read from the cache, at best
        if rows.is_sparse:
            return part, *structure.summarise_checked(*_rows_and_labels(structure, part, num_classes))
        return part, *_statistics_program(structure, part, num_classes=num_classes, tuning=platform.tuning_of(part))

    # The data are concrete, also inside of a traced function; that setting is another program to jit, in this thread.
    concretely = jax.ensure_compile_time_eval() if is_recorded() else contextlib.nullcontext()
    with concretely, estimator.loading():
        parts, statistics, bad = zip(*_each(summarise, deal.groups), strict=True)
    if any(np.asarray(each).any() for each in bad):
        culprits.raise_for_rows(x, labels, estimator.domain)
    folds, stacked = len(deal.members), not rows.is_sparse
    program = partial(_rests_program, folds=folds, stacked=stacked)
    classifiers, forms, rests, bad = program(arguments.as_floats(estimator), statistics)
    if not is_traced(bad) and np.asarray(bad).any():
        f = int(np.argmax(bad))
        with left_out(f"fold {f}"):
            estimate(estimator, jax.tree.map(lambda leaf: leaf[f], rests))  # which says what is wrong
    return list(parts), classifiers, forms


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


@partial(jax.jit, static_argnames=("folds", "stacked"))
def _rests_program(
    estimator: GenerativeEstimator[Any, Any], parts: Sequence[Any], *, folds: int, stacked: bool
) -> tuple[Any, Any, Any, Array]:
    """The classifiers of all folds but one, stacked; their quick forms; their statistics; and which are not finite.

    The parts are the statistics of one fold each, or of several, `stacked`.
    """
    join = jnp.concatenate if stacked else jnp.stack
    whole = jax.tree.map(lambda *leaves: join(leaves)[:folds], *parts)
    rests = outside(whole, jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), whole))
    classifiers = jax.vmap(estimator.estimate)(rests)
    return classifiers, quick_forms(classifiers), rests, jax.vmap(holds_nan_or_infinity)(classifiers)
