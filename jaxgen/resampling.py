"""Cross-validation by the algebra of folds.

Statistics of each fold are made once, and merged into those of all others. Subtracting a fold from the whole would
cancel where a fold holds most of a class; the merge of what comes before it with what comes after it loses nothing, and
costs one pass over the data and two merges a fold.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import inputs, metrics, platform, shares
from jaxgen.classify import log_posterior
from jaxgen.estimator import GenerativeEstimator
from jaxgen.fitting import estimate, fit, merge
from jaxgen.leave_one_out import leave_one_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jax import Array
    from jaxtyping import Float, Int, Real

    from jaxgen.inputs import AnyArray
    from jaxgen.platform import Tuning


class CrossValidation(NamedTuple):
    """How well each fold was predicted from the others; with leave-one-out every row is a fold.

    Attributes:
        accuracy: weighted share of the fold's rows that were classified rightly, (F,).
        log_loss: weighted mean of −log p(y | x) over them, in nats, (F,).
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
) -> CrossValidation:
    """Fit without each fold in turn, and judge on it.

    A generative estimator reads the data once for its statistics and once to score, however many folds there are;
    one that is trained, such as logistic regression, is trained for each. `jax.vmap` over the estimator scores a grid
    of hyperparameters from the same statistics, which do not depend on them. Leave-one-out is exact and one program,
    whose memory grows with the logarithm of the rows.

    Args:
        estimator: any of jaxgen's.
        x: features (n, d), concrete; rows of `scipy.sparse` where the estimator counts.
        y: labels (n,), concrete.
        folds: their number, each with its share of every class, in the order of the rows; or the fold of each row,
            0 … F − 1, (n,); or "leave-one-out", every row by itself, of dense x where the estimator is generative. The
            result of a row, or of a fold, of weight 0 is NaN.
        num_classes: K; inferred from y.
        sample_weight: a weight for each row, (n,), in the fit and in the judgement.

    Raises:
        ValueError: for folds that are fewer than two or empty, and as `fit`; a bad value is named in its fold. For a
            row that the others make impossible under every class.
        TypeError: for x or y under a trace, sparse rows left out one by one, and as `fit`.

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
    if inputs.is_traced(x, y, sample_weight):
        raise TypeError("cross_validate deals concrete rows out to folds; found x, y or sample_weight under a trace.")
    data: Any = x
    x = data.tocsr() if hasattr(data, "tocsr") else inputs.as_array("x", data)
    y = np.asarray(inputs.as_array("y", y))
    if y.ndim != 1 or len(y) != x.shape[0]:
        raise ValueError(f"y must be labels of shape ({x.shape[0]},), one for each row of x; found {y.shape}.")
    num_classes = int(np.max(y, initial=0)) + 1 if num_classes is None else num_classes
    weight = None if sample_weight is None else np.asarray(inputs.check_weight(len(y), sample_weight))
    if isinstance(folds, str):
        if folds != "leave-one-out":
            raise ValueError(f"folds must be a number, a fold for each row or 'leave-one-out'; found {folds!r}.")
        if isinstance(estimator, GenerativeEstimator):
            return CrossValidation(*leave_one_out(estimator, x, y, num_classes, weight))
        folds = np.arange(len(y))
    fold = _fold_of_rows(folds, y)

    def part(of: np.ndarray) -> tuple[Any, Any, Any]:
        return x[of], y[of], None if weight is None else weight[of]

    numbers = range(int(fold.max()) + 1)
    parts = shares.over(lambda f: part(fold == f), numbers)
    if isinstance(estimator, GenerativeEstimator):
        classifiers = list(_by_merging(estimator, parts, num_classes))
    else:
        rests = (part(fold != f) for f in numbers)
        classifiers = [fit(estimator, a, b, num_classes=num_classes, sample_weight=w) for a, b, w in rests]
    accuracy, log_loss = zip(*_each(_judge, list(zip(classifiers, parts, strict=True))), strict=True)
    return CrossValidation(jnp.stack(accuracy), jnp.stack(log_loss))


def _each(function: Any, items: list[Any]) -> list[Any]:
    """`function(item)` for each, on every core; a trace belongs to one thread."""
    return [function(item) for item in items] if inputs.is_traced(items) else shares.over(function, items)


def _judge(item: tuple[Any, tuple[Any, Any, Any]]) -> tuple[Array, Array]:
    """Accuracy and log loss of a classifier on a fold."""
    classifier, (x, y, weight) = item
    if inputs.is_traced(classifier) or not isinstance(x, (np.ndarray, jax.Array)):
        return _metrics(log_posterior(classifier, x), y, weight)
    accuracy, log_loss = _judge_program(classifier, x, y, weight, tuning=platform.tuning_of(x))
    # What is NaN has a reason, which an eager call gives.
    return _metrics(log_posterior(classifier, x), y, weight) if np.isnan(log_loss) else (accuracy, log_loss)


@partial(jax.jit, static_argnames="tuning")
def _judge_program(
    classifier: Any, x: Array, y: Array, weight: Array | None, *, tuning: Tuning | None
) -> tuple[Array, Array]:
    with platform.tuned(tuning):
        return _metrics(log_posterior(classifier, x), y, weight)


def _metrics(posterior: Float[Array, "n classes"], y: Any, weight: Any) -> tuple[Array, Array]:
    found = jnp.argmax(posterior, axis=1).astype(jnp.int32)
    return metrics.accuracy(y, found, sample_weight=weight), metrics.log_loss(y, posterior, sample_weight=weight)


def _by_merging(
    estimator: GenerativeEstimator[Any, Any], parts: list[tuple[Any, Any, Any]], num_classes: int
) -> Iterator[Any]:
    """The classifier of all parts but one, for each."""

    def summarise(numbered: tuple[int, tuple[Any, Any, Any]]) -> Any:
        f, (x, y, weight) = numbered
        try:
            return estimator.statistics(x, y, num_classes=num_classes, sample_weight=weight)
        except ValueError as error:
            raise ValueError(f"fold {f}, its rows numbered from 0: {error}") from None

    statistics = _each(summarise, list(enumerate(parts)))
    before = [None, *accumulate(statistics[:-1], merge)]
    after = [None, *accumulate(statistics[:0:-1], merge)][::-1]
    for first, second in zip(before, after, strict=True):
        both = [each for each in (first, second) if each is not None]
        yield estimate(estimator, merge(*both) if len(both) == 2 else both[0])


def _fold_of_rows(folds: Any, y: np.ndarray) -> np.ndarray:
    """The fold of each row; a number of folds deals the rows of each class out in turn."""
    if np.ndim(folds) == 0:
        if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or not 2 <= folds <= len(y):
            raise ValueError(
                f"folds must be a whole number from 2 to the {len(y)} rows, or a fold for each; found {folds!r}."
            )
        order = np.argsort(y, kind="stable")
        fold = np.empty(len(y), int)
        fold[order] = np.arange(len(y)) % folds
        return fold
    fold = np.asarray(folds)
    inputs.check_whole("folds", fold, y.shape)
    empty = np.flatnonzero(np.bincount(fold) == 0)
    if len(empty) or fold.max() < 1:
        raise ValueError(
            f"folds must be numbered 0 … F − 1, two or more, each with a row; found {fold.max() + 1} of them"
            + (f", and fold {empty[0]} is empty." if len(empty) else ".")
        )
    return fold
