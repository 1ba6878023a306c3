"""Fitting: data to a classifier, in one call or from statistics."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, overload

from jaxgen import arguments, culprits
from jaxgen.estimator import D, GenerativeEstimator
from jaxgen.statistics import S
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.classifier import Classifier
    from jaxgen.linear import LinearClassifier


class DiscriminativeEstimator(Protocol):
    """How data become p(y | x) directly: an iterative fit without statistics."""

    def fit(
        self,
        x: Real[AnyArray, "n d"],
        y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
        *,
        num_classes: int | None = None,
        sample_weight: Real[AnyArray, " n"] | None = None,
    ) -> LinearClassifier:
        """The optimum."""
        ...


@overload
def fit(
    estimator: GenerativeEstimator[Any, D],
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
    *,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    observed: Bool[AnyArray, "n d"] | None = None,
) -> Classifier[D]: ...


@overload
def fit(
    estimator: DiscriminativeEstimator,
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
    *,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
) -> LinearClassifier: ...


def fit(
    estimator: Any,
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
    *,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    observed: Bool[AnyArray, "n d"] | None = None,
) -> Classifier[Any] | LinearClassifier:
    """Fit a classifier to data.

    Args:
        estimator: such as `jaxgen.LDA()` or `jaxgen.LogisticRegression()`.
        x: features (n, d), a JAX or NumPy array; float64 is computed in float64 where JAX's x64 mode is on. Families
            that count take sparse rows too: any matrix of scipy.sparse, a BCOO or BCSR, or what `pad_rows` returns.
        y: integer labels 0 … K−1 of shape (n,), or float responsibilities of shape (n, K), non-negative; rows need not
            sum to 1.
        num_classes: K. Inferred from concrete labels below 2²⁴, of rows of weight 0 too (weights change no shape: a
            resample has the classes of the whole), and from responsibilities; must be given for labels under a trace.
        sample_weight: a weight for each row, (n,), finite and 0 or more. Weight 2 counts a row twice, weight 0 not at
            all, even if the row holds NaN.
        observed: True for the entries of x that were observed, of its shape; what it holds elsewhere, NaN too, plays no
            part. The fit is maximum likelihood: naive families weigh every feature by itself, in closed form; full
            covariances, and shares of words given the total of those that were counted, are found by EM, until a step
            gains less than 1e-12 nats a row (1e-9 in float32), or less than rounding hides (`train_em` has the options
            and a report). Where much is missing, such as half, it may take all of its 5000 steps and warn, in float64
            as in float32: a larger `ridge`, a `prior`, or the larger tolerance of `train_em(estimator, x, y,
            observed=observed)` ends it. For families with a density.

    Returns:
        A `Classifier`, or a `LinearClassifier` from a discriminative estimator. Under a trace no values can be checked:
        bad values, labels out of range and singular covariances give NaN.

    Raises:
        ValueError: for shapes, labels, weights, hyperparameters or values of x that are out of range, and for a
            covariance that is singular.
        TypeError: for what is no estimator; for dtypes that are not numeric, or labels that are not integers; for
            `observed`, or sparse rows, where the estimator takes none.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [5.0, 4.0]])
        >>> c = jg.fit(jg.GaussianNB(), x, np.array([0, 0, 1, 1]))
        >>> jg.predict(c, x).tolist()
        [0, 0, 1, 1]
    """
    check_estimator(estimator)
    if not isinstance(estimator, GenerativeEstimator):
        if observed is not None:
            raise TypeError(
                f"{type(estimator).__name__} takes no observed: it cannot leave features out, as a model of p(x | y) "
                "can. Fill in what is missing, such as by jaxgen.impute."
            )
        return estimator.fit(x, y, num_classes=num_classes, sample_weight=sample_weight)
    if observed is not None and estimator.fills_in:
        from jaxgen.em_runs import fit_partial  # EM is loaded where it is needed

        return fit_partial(estimator, x, y, num_classes, sample_weight, observed)
    statistics = estimator.summarise_data(x, y, num_classes, sample_weight, observed)
    if not is_traced(statistics) and not statistics.class_weight.exact().any():
        culprits.raise_for_no_weight()
    return estimate(estimator, statistics)


def check_estimator(estimator: Any) -> None:
    """Raise for what is no estimator: the class of one, or one whose fit has other arguments than jaxgen's own."""
    ours = isinstance(estimator, GenerativeEstimator)
    if isinstance(estimator, type) or not (ours or _is_discriminative(estimator)):
        raise TypeError(
            "estimator must be one of jaxgen's, such as jaxgen.LDA(), or have a fit(x, y, *, num_classes, "
            f"sample_weight) as they have; found {arguments.brief(estimator)}."
        )


def _is_discriminative(estimator: Any) -> bool:
    """Whether it has a fit with the arguments of `DiscriminativeEstimator`."""
    return hasattr(estimator, "fit") and {"num_classes", "sample_weight"} <= signature(estimator.fit).parameters.keys()


def estimate(estimator: GenerativeEstimator[S, D], statistics: S) -> Classifier[D]:
    """The classifier that maximises the (smoothed, regularised) likelihood, in closed form.

    Args:
        estimator: the one that made the statistics, or one of the same structure with other hyperparameters.
        statistics: of any number of batches, merged.

    Returns:
        Class prior (K,) and density; NaN under a trace where a covariance is singular.

    Raises:
        ValueError: for hyperparameters out of range or a singular covariance.
        TypeError: for statistics that another kind of estimator made.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> words = np.array([[1, 0], [1, 1], [0, 1], [0, 1]])
        >>> statistics = jg.BernoulliNB().statistics(words, np.array([0, 0, 1, 1]))
        >>> smoothed, exact = (jg.estimate(jg.BernoulliNB(alpha=a), statistics) for a in (1.0, 0.0))
        >>> print(f"{np.exp(smoothed.density.log_present[1, 0]):.2f} {np.exp(exact.density.log_present[1, 0]):.2f}")
        0.25 0.00
    """
    if not isinstance(estimator, GenerativeEstimator):
        raise TypeError(
            f"estimator must be a generative one, such as jaxgen.LDA(); found {arguments.brief(estimator)}."
        )
    return estimator.estimate(statistics)
