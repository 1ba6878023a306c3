"""Learning from rows without labels, some or all: mixtures of any family."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import culprits, em, inputs, platform, starts
from jaxgen.classify import Classifier
from jaxgen.containers import is_sparse, pad_rows
from jaxgen.em import EMReport
from jaxgen.estimator import D, GenerativeEstimator
from jaxgen.partial_labels import partly_labelled
from jaxgen.preparing import check_classifier

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.inputs import AnyArray
    from jaxgen.platform import Tuning

_STARTS = {"k-means++": starts.by_nearest_seed, "random": starts.at_random}


class Options(TypedDict, total=False):
    """Arguments of `train_em` that `fit_em` takes by name."""

    num_classes: int | None
    key: Array | None
    sample_weight: Real[AnyArray, " n"] | None
    unlabelled_weight: Array | float
    observed: Bool[AnyArray, "n d"] | None
    start: str | Classifier[Any] | None
    restarts: int
    tolerance: Array | float
    max_steps: int


def fit_em(
    estimator: GenerativeEstimator[Any, D],
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"] | None = None,
    **options: Unpack[Options],
) -> Classifier[D]:
    """Fit a classifier to rows of which some or all have no label, by expectation-maximisation.

    The classifier alone of `train_em`, which names the options and the errors; with a warning where it did not
    converge.

    Example:
        >>> import jax, numpy as np, jaxgen as jg
        >>> x = np.array([[0.0], [1.0], [0.5], [9.0], [10.0], [9.5]])
        >>> mixture = jg.fit_em(jg.GaussianNB(), x, num_classes=2, key=jax.random.key(0))
        >>> sorted(mixture.density.mean[:, 0].round(3).tolist())
        [0.5, 9.5]
        >>> y = np.array([1, -1, -1, 0, -1, -1])  # two rows have labels
        >>> jg.predict(jg.fit_em(jg.GaussianNB(), x, y, key=jax.random.key(0)), x).tolist()
        [1, 1, 1, 0, 0, 0]
    """
    classifier, report = train_em(estimator, x, y, **options)
    warn_unless_converged(report)
    return classifier


def train_em(
    estimator: GenerativeEstimator[Any, D],
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"] | None = None,
    *,
    num_classes: int | None = None,
    key: Array | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    unlabelled_weight: Array | float = 1.0,
    observed: Bool[AnyArray, "n d"] | None = None,
    start: str | Classifier[D] | None = None,
    restarts: int = 1,
    tolerance: Array | float = 1e-6,
    max_steps: int = 1000,
) -> tuple[Classifier[D], EMReport]:
    """Maximum likelihood from rows of which some or all have no label, and from rows with missing features.

        Σ_labelled w_i log p(x_i, y_i) + unlabelled_weight · Σ_others w_i log p(x_i)

    is what each step of EM raises (Dempster, Laird & Rubin 1977; for text Nigam, McCallum, Thrun & Mitchell 2000), with
    hyperparameters at maximum likelihood (alpha, ridge and priors 0); with others it raises the posterior that they
    stand for, and the evidence may fall a little near the end. Without any label this is a mixture model. Gradients
    go through the maximum by the implicit function theorem, not through the steps: to use them, let it converge.

    Args:
        estimator: of any family with a density.
        x: features (n, d), or sparse rows where the family counts.
        y: labels (n,), −1 for a row that has none; responsibilities (n, K), whose rows of zeros have none; None for
            no label at all.
        num_classes: K; inferred from concrete labels.
        key: of `jax.random`, for the start; not needed with a classifier to start from, or where all have labels.
        sample_weight: a weight for each row; a row of weight 0 is absent.
        unlabelled_weight: how much a row without a label counts, beside one that has one.
        observed: True for the entries of x that count, as for `fit`.
        start: "k-means++", from the nearest of seeds far apart, or of the means of classes with labels; "random", from
            random responsibilities; or a classifier. By default the first, the second for sparse rows.
        restarts: runs from different starts, all in one program; the one of the highest evidence is returned.
        tolerance: change of what a step raises, the evidence and the log prior that hyperparameters stand for, in nats
            a row; two steps in a row that change it by no more end a run.
        max_steps: at which it ends anyway.

    Returns:
        The classifier of the best run, and its report. NaN under a trace where a covariance becomes singular. Inside
        `jax.shard_map` only with `check_vma=False`, since JAX's GMRES, behind the derivative, has no such types.

    Raises:
        ValueError: for what is out of range or does not fit together, and where every run breaks down.
        TypeError: for an estimator without a density, and dtypes as for `fit`.

    Example:
        >>> import jax, numpy as np, jaxgen as jg
        >>> x = np.random.default_rng(0).normal(size=(200, 2)) + 4.0 * (np.arange(200) % 2)[:, None]
        >>> c, report = jg.train_em(jg.QDA(), x, num_classes=2, key=jax.random.key(0), restarts=3)
        >>> bool(report.converged), bool((np.diff(report.log_evidence[: report.steps]) > -1e-6).all())
        (True, True)
    """
    return _train(
        estimator,
        x,
        y,
        num_classes=num_classes,
        sample_weight=sample_weight,
        unlabelled_weight=unlabelled_weight,
        observed=observed,
        key=key,
        start=start,
        restarts=restarts,
        tolerance=tolerance,
        max_steps=max_steps,
        complete=False,
    )


def fit_partial(
    estimator: GenerativeEstimator[Any, D],
    x: Any,
    y: Any,
    *,
    num_classes: int | None,
    sample_weight: Any,
    observed: Any,
) -> Classifier[D]:
    """The fit to rows that all have labels and of which features are missing that EM fills in."""
    classifier, report = _train(
        estimator,
        x,
        y,
        num_classes=num_classes,
        sample_weight=sample_weight,
        unlabelled_weight=1.0,
        observed=observed,
        key=None,
        start=None,
        restarts=1,
        tolerance=1e-9,
        max_steps=5000,
        complete=True,
    )
    warn_unless_converged(report)
    return classifier


def _train(
    estimator: GenerativeEstimator[Any, D],
    x: Any,
    y: Any,
    *,
    num_classes: int | None,
    sample_weight: Any,
    unlabelled_weight: Any,
    observed: Any,
    key: Array | None,
    start: str | Classifier[D] | None,
    restarts: int,
    tolerance: Array | float,
    max_steps: int,
    complete: bool,
) -> tuple[Classifier[D], EMReport]:
    """As `train_em`; with `complete`, every row has a label."""
    if not isinstance(estimator, GenerativeEstimator):
        raise TypeError(f"estimator must be a generative one, such as jaxgen.QDA(); found {estimator!r}.")
    x = pad_rows(x) if is_sparse(x) and not inputs.is_traced(x) else x
    estimator.check()
    rows = inputs.check_rows(x, sparse=estimator.takes_sparse, observed=observed)
    estimator.check_features(rows.shape[1])
    if num_classes is None and isinstance(start, Classifier):
        num_classes = start.class_shape[0]
    share = inputs.check_number("unlabelled_weight", unlabelled_weight)
    data, all_have_labels = partly_labelled(rows, y, num_classes, sample_weight, share, complete=complete)
    if key is not None:
        inputs.check_key(key)
    how = _check_start(start, key, data, complete=all_have_labels)
    restarts = inputs.check_integer("restarts", restarts)
    max_steps = inputs.check_integer("max_steps", max_steps)
    program = partial(_program, how=how, restarts=restarts, max_steps=max_steps, tuning=platform.tuning_of(data))
    given = start if isinstance(start, Classifier) else None
    classifier, report = program(estimator, key, data, given, inputs.check_number("tolerance", tolerance))
    found = report.last, *jax.tree.leaves(classifier)
    if not inputs.is_traced(found) and any(np.isnan(np.asarray(leaf)).any() for leaf in found):
        # A bad value is named by whoever takes the rows; if there is none, a class has collapsed.
        naive = estimator.naive()
        everywhere = np.ones_like(data.known)
        naive.estimate(naive.statistics(x, everywhere, observed=data.observed, sample_weight=sample_weight))
        if given is not None:
            _check_scores(given, rows, None if sample_weight is None else np.asarray(sample_weight) > 0)
        raise ValueError(
            f"every one of {restarts} runs broke down: a class was left with too few rows for its covariance. Raise "
            "ridge, restarts or prior strength, choose fewer classes, or share the covariance."
        )
    return classifier, report


def warn_unless_converged(report: EMReport) -> None:
    """Warn of a concrete run of EM that ended at its last step."""
    if not inputs.is_traced(report) and not report.converged:
        warnings.warn(
            f"EM did not converge in {int(report.steps)} steps. Raise max_steps or tolerance; jaxgen.train_em returns "
            "the report.",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_scores(start: Classifier[Any], x: Any, present: Any) -> None:
    """Raise for a classifier to start from that is of another kind of x."""
    try:
        culprits.raise_for_values(x, start.domain, present)
    except ValueError as error:
        raise ValueError(
            f"start must be a classifier of x, as {type(start.density).__name__} is not: {error}"
        ) from None


def _check_start(start: Any, key: Any, data: em.Data, *, complete: bool) -> str:
    """The name of the start: one of `_STARTS`, "classifier", or "labels" where they are complete."""
    if isinstance(start, Classifier):
        check_classifier(start)
        found, wanted = (*start.class_shape, start.num_features), (data.known.shape[1], data.x.shape[1])
        if found != wanted:
            raise ValueError(f"start must have {wanted[0]} classes and {wanted[1]} features; found {found}.")
        return "classifier"
    if start is not None and (not isinstance(start, str) or start not in _STARTS):
        found = repr(start) if isinstance(start, str) else type(start).__name__
        raise ValueError(f"start must be 'k-means++', 'random' or a generative classifier; found {found}.")
    if complete:
        return "labels"
    if key is None:
        raise ValueError("key must be given for the start, such as jax.random.key(0); found None.")
    if is_sparse(data.x) and start == "k-means++":
        raise ValueError("start must be 'random' or a classifier for sparse rows; found 'k-means++'.")
    return start or ("random" if is_sparse(data.x) else "k-means++")


@partial(jax.jit, static_argnames=("how", "restarts", "max_steps", "tuning"))
def _program(
    estimator: GenerativeEstimator[Any, D],
    key: Array | None,
    data: em.Data,
    start: Classifier[D] | None,
    tolerance: Array | float,
    *,
    how: str,
    restarts: int,
    max_steps: int,
    tuning: Tuning | None,
) -> tuple[Classifier[D], EMReport]:
    if not is_sparse(data.x):  # what an absent row holds that is no value must not reach a derivative
        absent = (jnp.sum(data.known, axis=1) == 0) & (data.unlabelled == 0)
        data = data._replace(x=jnp.where(absent[:, None] & ~estimator.domain.contains(data.x), 0, data.x))

    def begin(key: Any) -> Any:
        if start is not None:
            return em.expect(estimator, start, data)[0]
        responsibilities = data.known if how == "labels" else _STARTS[how](key, data)
        if data.observed is None or not estimator.fills_in:
            return em.statistics_of(estimator, data, responsibilities, None)
        # Correlations by which features are filled in are not known yet.
        naive = estimator.naive()
        first = naive.statistics(data.x, responsibilities, observed=data.observed)
        return em.statistics_of(estimator, data, responsibilities, naive.estimate(first))

    with platform.tuned(tuning):
        if key is not None and how in _STARTS:
            begun = jax.vmap(begin)(jax.random.split(key, restarts))
        else:
            begun = jax.tree.map(lambda leaf: leaf[None], begin(None))
        return em.ascend(estimator, begun, data, jnp.asarray(tolerance).astype(data.known.dtype), max_steps=max_steps)
