"""Learning from rows without labels, some or all: mixtures of any family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxgen import em_runs

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.ascent import EMReport
    from jaxgen.classifier import Classifier
    from jaxgen.estimator import D, GenerativeEstimator


def fit_em(
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
) -> Classifier[D]:
    """Fit a classifier to rows of which some or all have no label, by expectation-maximisation.

    The classifier alone of `train_em`, which says what the arguments are and what is raised; with a warning where it
    did not converge.

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
    classifier, report = train_em(
        estimator,
        x,
        y,
        num_classes=num_classes,
        key=key,
        sample_weight=sample_weight,
        unlabelled_weight=unlabelled_weight,
        observed=observed,
        start=start,
        restarts=restarts,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    em_runs.warn_unless_converged(report, stacklevel=3)
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
    hyperparameters at maximum likelihood (alpha, ridge and priors 0); with priors it raises the posterior that they
    stand for, and with a ridge, pooling or shrinkage, which stand for none, the evidence may fall a little near the
    end. Without any label this is a mixture model. Gradients go through the maximum by the implicit function theorem,
    not through the steps: to use them, let it converge.

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
            random responsibilities; or a classifier, of any family. By default the first, the second for sparse rows.
        restarts: runs from different starts, all at once; the one that raised it highest is returned. With a
            classifier to start from there is one run.
        tolerance: change of what a step raises, the evidence and the log prior that hyperparameters stand for, in nats
            a row; two steps in a row that change it by no more end a run. Where its rounding, 4 eps of it, is more, so
            many do as show the tolerance, or half of all; once it has fallen, as under a ridge it may, steps that are
            too short to change it by more.
        max_steps: at which it ends anyway.

    Returns:
        The classifier of the best run, and its report, which has no derivatives: those of the evidence are those of
        `log_evidence` under the classifier. NaN under a trace where a covariance becomes singular.

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
    run = em_runs.Run(start, key, restarts, tolerance, max_steps)
    return em_runs.train(
        estimator,
        x,
        y,
        run,
        num_classes=num_classes,
        sample_weight=sample_weight,
        observed=observed,
        unlabelled_weight=unlabelled_weight,
    )
