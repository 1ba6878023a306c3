"""Runs of EM: arguments to data and a start, one program or all cores, and what is said of runs that broke down."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, culprits, em, em_cores, inputs, platform
from jaxgen.classifier import Classifier
from jaxgen.classify import log_evidence
from jaxgen.containers import is_sparse, pad_rows
from jaxgen.em_data import seen
from jaxgen.em_setting import STARTS, Setting, home
from jaxgen.estimator import D, GenerativeEstimator
from jaxgen.numerics import or_in_float64
from jaxgen.partial_labels import partly_labelled
from jaxgen.preparing import check_classifier
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.ascent import EMReport
    from jaxgen.em_data import Data
    from jaxgen.platform import Tuning

# What the last steps of a fit gain, at most, in nats a row. Gradients in float64 differ by 1e-4 of them where that is
# 1e-9; in float32 steps cannot become as short as less would ask for once rounding has made the evidence fall.
_LAST_GAIN = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-9}


class Run(NamedTuple):
    """How EM is to run: the arguments of `jaxgen.train_em` of these names."""

    start: str | Classifier[Any] | None = None
    key: Array | None = None
    restarts: int = 1
    tolerance: Array | float = 1e-6
    max_steps: int = 1000


def fit_partial(
    estimator: GenerativeEstimator[Any, D], x: Any, y: Any, num_classes: int | None, sample_weight: Any, observed: Any
) -> Classifier[D]:
    """The fit to rows that all have labels and of which features are missing that EM fills in."""
    classifier, report = train(
        estimator,
        x,
        y,
        Run(max_steps=5000),
        num_classes=num_classes,
        sample_weight=sample_weight,
        observed=observed,
        complete=True,
    )
    warn_unless_converged(report, stacklevel=4)
    return classifier


def train(
    estimator: GenerativeEstimator[Any, D],
    x: Any,
    y: Any,
    run: Run,
    *,
    num_classes: int | None,
    sample_weight: Any,
    observed: Any,
    unlabelled_weight: Any = 1.0,
    complete: bool = False,
) -> tuple[Classifier[D], EMReport]:
    """As `jaxgen.train_em`; with `complete`, every row has a label, and the tolerance is that of a fit."""
    if not isinstance(estimator, GenerativeEstimator):
        raise TypeError(
            f"estimator must be a generative one, such as jaxgen.QDA(); found {arguments.brief(estimator)}."
        )
    estimator.check_density()
    x = pad_rows(x) if is_sparse(x) and not is_traced(x) else x
    estimator.check()
    rows = inputs.check_rows(x, sparse=estimator.takes_sparse, observed=observed, counts=estimator.fills_in)
    estimator.check_features(rows.shape[1])
    given = run.start if isinstance(run.start, Classifier) else None
    if given is not None:
        check_classifier(given, "start")
        num_classes = given.class_shape[0] if num_classes is None else num_classes
    weight = arguments.check_number("unlabelled_weight", unlabelled_weight)
    data, all_have_labels = partly_labelled(rows, y, num_classes, sample_weight, weight, complete=complete)
    if run.key is not None:
        arguments.check_key(run.key)
    how = _check_start(run.start, run.key, data, complete=all_have_labels)
    if data.observed is not None:
        if given is not None:
            estimator.check_given(given.density)
        if not is_traced(data):
            estimator.check_seen(seen(data), range(rows.shape[1]))
    platform.check_places(estimator, run.key, data, given)
    options: dict[str, Any] = {
        "how": how,
        "restarts": arguments.check_integer("restarts", run.restarts),
        "max_steps": arguments.check_integer("max_steps", run.max_steps),
        "tuning": platform.tuning_of(data),
    }
    tolerance = _LAST_GAIN[data.labelled.dtype] if complete else arguments.check_number("tolerance", run.tolerance)
    what = arguments.as_floats(estimator), run.key, data, given, tolerance
    # On its way a run holds NaN and infinity, which those flags do not let a program return.
    looked_at = any(getattr(jax.config, name, False) for name in ("jax_debug_nans", "jax_debug_infs"))
    num_runs = options["restarts"] if how in STARTS else 1
    by_cores = not is_traced(what) and not looked_at and len(em_cores.deal(estimator, data, num_runs=num_runs)) > 1
    classifier, report = (_run_by_cores if by_cores else _program)(*what, **options)
    if not is_traced(report, classifier) and _broke_down(report, classifier):
        # A bad value is named by whoever takes the rows, and what makes all of them together singular by their fit.
        whole = estimator.naive() if data.observed is not None and estimator.fills_in else estimator
        everywhere = np.ones_like(data.labelled)
        seen_by = {"observed": data.observed, "sample_weight": sample_weight, "num_classes": everywhere.shape[1]}
        whole.estimate(whole.statistics(x, everywhere, **seen_by))
        if given is not None:
            _check_scores(given, rows, data)
        wider = or_in_float64(data.labelled.dtype)
        if complete:
            raise ValueError(
                "with what is missing filled in counts overflowed, or a covariance collapsed: its rows are too few, or "
                "a feature is a combination of others. Raise ridge or alpha, give a prior, use covariance='diagonal', "
                f"shared=True, or drop the feature{wider}."
            )
        raise ValueError(
            f"every one of {1 if given is not None else run.restarts} runs broke down: a class was left with too few "
            "rows for its density, or with a feature that is constant there or a combination of others. Raise ridge, "
            "restarts or prior strength, choose fewer classes, use a simpler covariance, or drop the "
            f"feature{wider}."
        )
    return classifier, report


def _broke_down(report: EMReport, classifier: Classifier[Any]) -> bool:
    """Whether the last evidence of a concrete run, or what it ended with, is NaN."""
    last = np.asarray(report.log_evidence)[int(report.steps) - 1]
    return any(np.isnan(np.asarray(leaf)).any() for leaf in (last, *jax.tree.leaves(classifier)))


def warn_unless_converged(report: EMReport, *, stacklevel: int) -> None:
    """Warn of a concrete run of EM that ended at its last step; whom, counted as `warnings.warn` does."""
    if not is_traced(report) and not report.converged:
        warnings.warn(
            f"EM did not converge in {int(report.steps)} steps. Raise max_steps or tolerance; jaxgen.train_em returns "
            "the report.",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _check_scores(start: Classifier[Any], rows: Any, data: Data) -> None:
    """Raise for a classifier to start from that is of another kind of x, or makes a row of it impossible."""
    unlabelled = np.asarray(data.unlabelled) > 0
    try:
        culprits.raise_for_values(rows, start.domain, unlabelled | np.asarray(data.labelled).any(axis=1))
    except ValueError as error:
        raise ValueError(
            f"start must be a classifier of x, as {type(start.density).__name__} is not: {error}"
        ) from None
    row = np.arange(len(unlabelled)) if is_sparse(data.x) else np.flatnonzero(unlabelled)
    x, observed = data.x, data.observed
    if not is_sparse(x):
        x, observed = np.asarray(x)[row], None if observed is None else np.asarray(observed)[row]
    impossible = unlabelled[row] & np.isneginf(log_evidence(start, x, observed=observed)) if len(row) else row > 0
    if impossible.any():
        raise ValueError(
            "start must be a classifier under which every row without a label is possible; found row "
            f"{int(row[np.argmax(impossible)])}, which is impossible under every class. Positive pseudo-counts "
            "prevent that."
        )


def _check_start(start: Any, key: Any, data: Data, *, complete: bool) -> str:
    """The name of the start: one of `STARTS`, "classifier", or "labels" where they are complete."""
    if isinstance(start, Classifier):
        found, wanted = (*start.class_shape, start.num_features), (data.labelled.shape[1], data.x.shape[1])
        if found != wanted:
            raise ValueError(f"start must have {wanted[0]} classes and {wanted[1]} features; found {found}.")
        return "classifier"
    if start is not None and (not isinstance(start, str) or start not in STARTS):
        found = repr(start) if isinstance(start, str) else type(start).__name__
        raise ValueError(f"start must be 'k-means++', 'random' or a generative classifier; found {found}.")
    if complete:
        return "labels"
    if key is None:
        raise ValueError("key must be given for the start, such as jax.random.key(0); found None.")
    if is_sparse(data.x) and start == "k-means++":
        raise ValueError("start must be 'random' or a classifier for sparse rows; found 'k-means++'.")
    return start or ("random" if is_sparse(data.x) else "k-means++")


def _run_by_cores(
    estimator: GenerativeEstimator[Any, D],
    key: Array | None,
    data: Data,
    start: Classifier[D] | None,
    tolerance: Array | float,
    *,
    max_steps: int,
    tuning: Tuning,
    **how: Any,
) -> tuple[Classifier[D], EMReport]:
    """As `_program`, of rows that the cores of a CPU share."""
    setting = _setting_program(estimator, key, data, start, tuning=tuning, **how)
    parts = em_cores.deal(setting.estimator, setting.data, num_runs=len(setting.starts[0]))
    within = np.asarray(tolerance, data.labelled.dtype)
    classifier, report = em_cores.ascend(
        setting.estimator, setting.starts, parts, within, max_steps=max_steps, tuning=tuning
    )
    return _home_program(setting.origin, classifier), report


@partial(jax.jit, static_argnames=("how", "restarts", "tuning"))
def _setting_program(*arguments: Any, tuning: Tuning, **how: Any) -> Setting:
    with platform.tuned(tuning):
        return Setting.of(*arguments, **how)


@jax.jit
def _home_program(origin: Array | None, c: Classifier[D]) -> Classifier[D]:
    return home(origin, c)


@partial(jax.jit, static_argnames=("how", "restarts", "max_steps", "tuning"))
def _program(
    estimator: GenerativeEstimator[Any, D],
    key: Array | None,
    data: Data,
    start: Classifier[D] | None,
    tolerance: Array | float,
    *,
    max_steps: int,
    tuning: Tuning | None,
    **how: Any,
) -> tuple[Classifier[D], EMReport]:
    with platform.tuned(tuning):
        setting = Setting.of(estimator, key, data, start, **how)
        tolerance = jnp.asarray(tolerance).astype(data.labelled.dtype)
        classifier, report = em.ascend(setting.estimator, setting.starts, setting.data, tolerance, max_steps=max_steps)
    return home(setting.origin, classifier), report
