"""Judging classifiers: how often they are right, and whether their probabilities can be believed.

There are two kinds. Predicted labels are counted against true ones in a confusion matrix, of which precision, recall
and F1 are ratios. A log posterior is judged against responsibilities r_ik, the weight of row i in class k: hard
labels are the case of one class a row, and a row shared among classes counts in each as a row of weight r_ik would.

Zero weight is absence, whatever the row holds. Without any weight there is nothing to judge: means are NaN, and a ratio
whose 0/0 is said to be 0 is 0. Sums are in float64 where an argument is, else in float32; labels without weights are
counted in integers, and the counts given in JAX's default float. Under a trace bad labels, weights and posteriors give
NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from jaxgen import arguments, inputs, judging, measures

if TYPE_CHECKING:
    from typing import TypeAlias

    from jax import Array
    from jaxtyping import Float, Int, Real

    from jaxgen.arguments import AnyArray

    HardY: TypeAlias = Int[AnyArray, " n"]
    AnyY: TypeAlias = HardY | Float[AnyArray, "n classes"]
    Weight: TypeAlias = Real[AnyArray, " n"] | None
    Average: TypeAlias = Literal["macro", "micro", "weighted"] | None


def accuracy(y: HardY, predicted: HardY, *, sample_weight: Weight = None) -> Float[Array, ""]:
    """The weighted share of rows whose predicted label is the true one; arguments and errors as `confusion_matrix`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> y, predicted = np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])
        >>> float(jg.metrics.accuracy(y, predicted))
        0.75
    """
    return judging.judge_labels(measures.accuracy, y, predicted, inputs.ANY_CLASSES, sample_weight)


def confusion_matrix(
    y: HardY, predicted: HardY, *, num_classes: int | None = None, sample_weight: Weight = None
) -> Float[Array, "classes classes"]:
    """How often each true class (a row) was predicted as each class (a column).

    Args:
        y: true labels 0 … K−1, (n,) with n of at least 1.
        predicted: labels as `jaxgen.predict` returns, (n,).
        num_classes: K. Inferred from concrete labels; must be given under a trace.
        sample_weight: a weight for each row, (n,), finite and 0 or more.

    Returns:
        Total weights, shape (K, K), floats also where they are counts.

    Raises:
        ValueError: for shapes, labels or weights out of range (NaN under a trace), or no num_classes under a trace; for
            more classes than a table of 2³¹ cells has room for.
        TypeError: for labels that are not integers.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> jg.metrics.confusion_matrix(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    return judging.judge_labels(measures.confusion, y, predicted, num_classes, sample_weight)


def precision(
    y: HardY, predicted: HardY, *, num_classes: int | None = None, average: Average = None, sample_weight: Weight = None
) -> Float[Array, "*classes"]:
    """The share of the rows predicted as a class that belong to it.

    Args:
        y: true labels; these and the arguments not named here are as for `confusion_matrix`.
        predicted: predicted labels.
        num_classes: K.
        average: None for every class; "macro" for their mean, over all K also where a class never occurs; "weighted"
            for the mean by the weight of the true classes; "micro" for the ratio of sums over the classes.
        sample_weight: a weight for each row.

    Returns:
        Shape (K,), or () of an average. 0/0 is 0, as with scikit-learn's zero_division=0.

    Raises:
        ValueError: for an unknown average, and as `confusion_matrix`.
        TypeError: as `confusion_matrix`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> jg.metrics.precision(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])).tolist()
        [1.0, 1.0, 0.5]
    """
    return _f_measure(1.0, average, y, predicted, num_classes, sample_weight)


def recall(
    y: HardY, predicted: HardY, *, num_classes: int | None = None, average: Average = None, sample_weight: Weight = None
) -> Float[Array, "*classes"]:
    """The share of the rows of a class that are predicted as it; arguments, result and errors as `precision`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> y, predicted = np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])
        >>> jg.metrics.recall(y, predicted).tolist()
        [1.0, 0.5, 1.0]
    """
    return _f_measure(0.0, average, y, predicted, num_classes, sample_weight)


def f1(
    y: HardY, predicted: HardY, *, num_classes: int | None = None, average: Average = None, sample_weight: Weight = None
) -> Float[Array, "*classes"]:
    """The harmonic mean of precision and recall; arguments, result and errors as `precision`.

    An average is one of the F1 of the classes, and not the F1 of averages.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> y, predicted = np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])
        >>> print(jg.metrics.f1(y, predicted).round(4))  # 2/3 of precision 1 and recall ½, and of ½ and 1
        [1.     0.6667 0.6667]
    """
    return _f_measure(0.5, average, y, predicted, num_classes, sample_weight)


def log_loss(y: AnyY, log_posterior: Float[AnyArray, "n classes"], *, sample_weight: Weight = None) -> Float[Array, ""]:
    """The mean of −log p(y | x), in nats (Good 1952, Rational decisions): −Σ_ik r_ik log p_ik / Σ_ik r_ik.

    An event that was called impossible and did not happen costs nothing; one that happened costs +inf, with gradient 0,
    where scikit-learn clips the probability to the eps of its dtype.

    Args:
        y: integer labels 0 … K−1 (n,), or float responsibilities (n, K), 0 or more, whose rows need not sum to 1.
        log_posterior: log p(y = k | x) in nats, (n, K) with n of at least 1, as `jaxgen.log_posterior` returns.
        sample_weight: a weight for each row, (n,), finite and 0 or more.

    Raises:
        ValueError: for shapes, labels or weights out of range, for NaN, and for rows of log_posterior whose
            probabilities do not sum to 1 within 0.05: all of these are NaN under a trace.
        TypeError: for dtypes that are not numeric, or labels that are not integers.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> print(f"{jg.metrics.log_loss(jnp.array([0, 1]), jnp.log(jnp.array([[0.5, 0.5], [0.2, 0.8]]))):.4f}")
        0.4581
    """
    return judging.judge_scores(measures.log_loss, judging.POSTERIOR, y, log_posterior, sample_weight)


def brier_score(
    y: AnyY, log_posterior: Float[AnyArray, "n classes"], *, sample_weight: Weight = None
) -> Float[Array, ""]:
    """The mean of Σ_k (p_ik − [y_i = k])², from 0 to 2 (Brier 1950, Verification of forecasts); halved where K = 2.

    Half of it, from 0 to 1, is what is usual for two classes, and scikit-learn's default. Arguments and errors as
    `log_loss`.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> p = jnp.array([[0.5, 0.5], [0.2, 0.8]])
        >>> print(f"{jg.metrics.brier_score(jnp.array([0, 1]), jnp.log(p)):.3f}")  # (0.25 + 0.04) / 2
        0.145
    """
    return judging.judge_scores(measures.brier, judging.POSTERIOR, y, log_posterior, sample_weight)


class Reliability(NamedTuple):
    """A reliability diagram: the most probable class of each row, in bins of equal width by its probability.

    Attributes:
        confidence: the mean probability of the most probable class, (num_bins,); NaN in a bin without rows.
        accuracy: how often that class was the true one, (num_bins,); NaN in a bin without rows, so that no plot has it.
        weight: the total weight in each bin, (num_bins,).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> p = jnp.array([[0.25, 0.75], [0.875, 0.125], [0.875, 0.125]])
        >>> diagram = jg.metrics.reliability(jnp.array([1, 0, 1]), jnp.log(p), num_bins=2)
        >>> print(f"{diagram.confidence[1]:.3f} {diagram.accuracy[1]:.3f}")  # (0.75 + 2 · 0.875)/3 and 2/3
        0.833 0.667
    """

    confidence: Float[Array, " bins"]
    accuracy: Float[Array, " bins"]
    weight: Float[Array, " bins"]


def reliability(
    y: AnyY, log_posterior: Float[AnyArray, "n classes"], *, num_bins: int = 10, sample_weight: Weight = None
) -> Reliability:
    """Confidence beside accuracy, in the bins ((b−1)/num_bins, b/num_bins] of the confidence.

    Args:
        y: labels or responsibilities; these and the arguments not named here are as for `log_loss`.
        log_posterior: log p(y = k | x).
        num_bins: how many bins, 1 or more.
        sample_weight: a weight for each row.

    Raises:
        ValueError: for num_bins below 1, and as `log_loss`.
        TypeError: for num_bins that is no integer, and as `log_loss`.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> p = jnp.array([[0.4, 0.6], [0.3, 0.7], [0.9, 0.1]])
        >>> jg.metrics.reliability(jnp.array([1, 0, 0]), jnp.log(p), num_bins=4).accuracy.tolist()
        [nan, nan, 0.5, 1.0]
    """
    edges = _inner_edges(num_bins)
    diagram = judging.judge_scores(measures.reliability, judging.POSTERIOR, y, log_posterior, sample_weight, edges)
    return Reliability(*diagram)


def expected_calibration_error(
    y: AnyY, log_posterior: Float[AnyArray, "n classes"], *, num_bins: int = 10, sample_weight: Weight = None
) -> Float[Array, ""]:
    """The mean over rows of |accuracy − confidence| of their bins: Σ_b W_b/W |accuracy_b − confidence_b|.

    From 0 to 1 (Naeini, Cooper & Hauskrecht 2015; Guo et al. 2017, with its bins). Arguments and errors as
    `reliability`.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> p = jnp.array([[0.4, 0.6], [0.3, 0.7], [0.9, 0.1]])
        >>> print(f"{jg.metrics.expected_calibration_error(jnp.array([1, 0, 0]), jnp.log(p), num_bins=4):.4f}")
        0.1333
    """
    edges = _inner_edges(num_bins)
    return judging.judge_scores(measures.calibration_error, judging.POSTERIOR, y, log_posterior, sample_weight, edges)


def roc_auc(y: AnyY, score: Real[AnyArray, "n *classes"], *, sample_weight: Weight = None) -> Float[Array, ""]:
    """The area under the ROC curve: the chance that a row of a class scores above one of another; a tie is half.

    That chance is the Mann–Whitney statistic (Hanley & McNeil 1982). Of K > 2 classes it is the mean over the classes
    of each against the rest, as scikit-learn's `multi_class="ovr"`.

    Args:
        y: labels or responsibilities as for `log_loss`; of two classes where score is (n,).
        score: (n,), higher for class 1; or (n, K), such as a log posterior. Of two columns the difference, the log
            odds, is the score. ±inf is allowed.
        sample_weight: a weight for each row, (n,), finite and 0 or more.

    Returns:
        Shape (); NaN if some class has no rows or all of them.

    Raises:
        ValueError: for shapes, labels or weights out of range, and for NaN (NaN under a trace).
        TypeError: for dtypes that are not numeric, or labels that are not integers.

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> print(jg.metrics.roc_auc(jnp.array([0, 0, 1, 1]), jnp.array([0.1, 0.4, 0.35, 0.8])))
        0.75
    """
    return judging.judge_scores(measures.area, judging.SCORE, y, score, sample_weight)


_AVERAGES = (None, "macro", "micro", "weighted")


def _f_measure(
    alpha: float, average: Average, y: Any, predicted: Any, num_classes: int | None, sample_weight: Any
) -> Float[Array, "*classes"]:
    if average not in _AVERAGES:
        raise ValueError(f"average must be one of {_AVERAGES}; found {average!r}. None gives every class.")
    each = judging.judge_labels(measures.f_measures, y, predicted, num_classes, sample_weight, alpha)
    return each[_AVERAGES.index(average)]


def _inner_edges(num_bins: Any) -> np.ndarray:
    """1/num_bins … (num_bins−1)/num_bins: what lies between the bins."""
    num_bins = arguments.check_integer("num_bins", num_bins)
    return np.arange(1, num_bins) / num_bins
