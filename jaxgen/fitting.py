"""Fitting: data to a classifier in one call, or in pieces that merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, overload

import jax
import numpy as np

from jaxgen import inputs
from jaxgen.estimator import D, GenerativeEstimator, S, merge_program

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Real

    from jaxgen.classify import Classifier
    from jaxgen.inputs import AnyArray
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
) -> Classifier[Any] | LinearClassifier:
    """Fit a classifier to data.

    Args:
        estimator: such as `jaxgen.LDA()` or `jaxgen.LogisticRegression()`.
        x: features (n, d), a JAX or NumPy array; float64 is computed in float64 where JAX's x64 mode is on. Families
            that count take sparse rows too: any matrix of scipy.sparse, a BCOO or BCSR, or what `pad_rows` returns.
        y: integer labels 0 … K−1 of shape (n,), or float responsibilities of shape (n, K), non-negative; rows need not
            sum to 1.
        num_classes: K. Inferred from concrete labels and from responsibilities; must be given for labels under a trace.
        sample_weight: a weight for each row, (n,), finite and 0 or more. Weight 2 counts a row twice, weight 0 not at
            all, even if the row holds NaN.

    Returns:
        A `Classifier`, or a `LinearClassifier` from a discriminative estimator. Under a trace no values can be checked:
        bad values, labels out of range and singular covariances give NaN.

    Raises:
        ValueError: for shapes, labels, weights, hyperparameters or values of x that are out of range, and for a
            covariance that is singular.
        TypeError: for dtypes that are not numeric, or labels that are not integers.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [5.0, 4.0]])
        >>> c = jg.fit(jg.GaussianNB(), x, np.array([0, 0, 1, 1]))
        >>> jg.predict(c, x).tolist()
        [0, 0, 1, 1]
    """
    if not isinstance(estimator, GenerativeEstimator):
        if isinstance(estimator, type) or not hasattr(estimator, "fit"):
            raise TypeError(f"estimator must be one of jaxgen's, such as jaxgen.LDA(); found {estimator!r}.")
        return estimator.fit(x, y, num_classes=num_classes, sample_weight=sample_weight)
    statistics = estimator.statistics(x, y, num_classes=num_classes, sample_weight=sample_weight)
    class_weight = statistics.class_weight.value
    if not inputs.is_traced(class_weight) and not np.any(class_weight):
        inputs.raise_for_no_weight()
    return estimate(estimator, statistics)


def estimate(estimator: GenerativeEstimator[S, D], statistics: S) -> Classifier[D]:
    """The classifier that maximises the (smoothed, regularised) likelihood, in closed form.

    Args:
        estimator: the one that made the statistics, or one of the same structure with other hyperparameters.
        statistics: of any number of batches, merged.

    Returns:
        Class prior and density; NaN under a trace where a covariance is singular.

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
        raise TypeError(f"estimator must be a generative one, such as jaxgen.LDA(); found {estimator!r}.")
    return estimator.estimate(statistics)


def merge(a: S, b: S) -> S:
    """The statistics of two batches together, as if they had been one.

    Counts are exact; moments are merged as Chan, Golub & LeVeque (1979) do, so that no squares of raw values appear.

    Raises:
        TypeError: if a and b are not statistics of one kind.
        ValueError: if their numbers of classes or features differ.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
        >>> first, second = (jg.LDA().statistics(x[i], y[i]) for i in (slice(2), slice(2, 4)))
        >>> jg.merge(first, second).mean.value.tolist()
        [[2.0, 3.0], [4.0, 5.0]]
    """
    _check_alike("merge", a, b)
    return merge_program(a, b)


def subtract(whole: S, part: S) -> S:
    """The statistics of the rows that remain when those of `part`, which `whole` contains, are taken away.

    Whole-number counts are exact. The relative error of a remaining float is about eps times the ratio of the whole to
    the remainder, and a class weight below 8 eps of the whole's becomes 0; variances are kept from turning negative.
    Where little remains of much, merge what remains instead.

    Raises:
        TypeError: if the two are not statistics of one kind.
        ValueError: if their numbers of classes or features differ.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> nb, words, y = jg.BernoulliNB(), np.array([[1, 0], [1, 1], [0, 1]]), np.array([0, 0, 1])
        >>> whole = nb.statistics(words, y)
        >>> rest = jg.subtract(whole, nb.statistics(words[:1], y[:1], num_classes=2))
        >>> rest.class_weight.value.tolist(), rest.feature_sum.value.tolist()
        ([1.0, 1.0], [[1.0, 1.0], [0.0, 1.0]])
    """
    _check_alike("subtract", whole, part)
    return _subtract_program(whole, part)


def _check_alike(verb: str, a: Any, b: Any) -> None:
    if not (hasattr(a, "merge") and jax.tree.structure(a) == jax.tree.structure(b)):
        raise TypeError(
            f"{verb} takes two statistics of one kind, from the same estimator; found {type(a).__name__} and "
            f"{type(b).__name__}."
        )
    for (path, left), right in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        if left.dtype != right.dtype:
            raise ValueError(
                f"{verb} takes statistics of one dtype; found {left.dtype} and {right.dtype}. Give both batches in one."
            )
        if left.shape != right.shape:
            raise ValueError(
                f"{verb} takes statistics of the same classes and features; found {jax.tree_util.keystr(path)} of "
                f"shapes {left.shape} and {right.shape}. Give num_classes=K to every statistics call, and the same "
                "structure to the estimators."
            )


@jax.jit
def _subtract_program(whole: S, part: S) -> S:
    return whole.subtract(part)
