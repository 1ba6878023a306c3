"""The algebra of statistics: merge, subtract, scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, platform
from jaxgen.programs import merge_program
from jaxgen.statistics import S, check_single, describe
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from jax import Array

    from jaxgen.total import Total

# Of a float32 sum of many weights that are no whole numbers, of which the parts are summed in another order. What is
# below a row besides may have been cleared away as rounding of a whole that was larger.
_ROUNDING = 1e-3


def merge(a: S, b: S) -> S:
    """The statistics of two batches together, as if they had been one.

    Counts are exact; moments are merged as Chan, Golub & LeVeque (1979) do, so that no squares of raw values appear.

    Args:
        a: statistics, of any estimator's `statistics`, or merged already.
        b: others of the same estimator, with as many classes and features.

    Returns:
        Statistics of the same kind and shapes.

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
    return merge_program(*_alike("merge", a, b))


def subtract(whole: S, part: S) -> S:
    """The statistics of the rows that remain when those of `part`, which `whole` contains, are taken away.

    Whole-number counts are exact; a class weight that is no whole number becomes 0 below 8 eps of the whole's. Moments
    lose digits where little remains: when rows of weight W are taken away at a distance D and R remain, with a
    deviation of σ, the mean errs by at most 4 eps (W/R) (D + σ) and the scatter by 8 eps (S + W D²), S that of the
    whole; a variance below that becomes 0, and is fitted as that of a constant. To these come the errors that both had:
    of e in the mean of the whole, (1 + W/R) e and W e (2D + (1 + W/R) e). Where little remains of much, merge what
    remains instead.

    Args:
        whole: statistics, of any estimator's `statistics`, or merged already.
        part: those of some of the same rows, of as many classes and features.

    Returns:
        Statistics of the same kind and shapes.

    Raises:
        TypeError: if the two are not statistics of one kind.
        ValueError: if their numbers of classes or features differ, or a class weighs more in `part` than in `whole`, or
            a feature of it was counted more often. Means and scatters do not tell whether `whole` has these rows.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> nb, words, y = jg.BernoulliNB(), np.array([[1, 0], [1, 1], [0, 1]]), np.array([0, 0, 1])
        >>> whole = nb.statistics(words, y)
        >>> rest = jg.subtract(whole, nb.statistics(words[:1], y[:1], num_classes=2))
        >>> rest.class_weight.value.tolist(), rest.feature_sum.value.tolist()
        ([1.0, 1.0], [[1.0, 1.0], [0.0, 1.0]])
    """
    whole, part = _alike("subtract", whole, part)
    _check_contained(whole, part)
    return _subtract_program(whole, part)


def scale(statistics: S, factor: Array | float) -> S:
    """The statistics in which every row weighs `factor` times as much.

    Of a stream that drifts, `merge(scale(so_far, 0.9), statistics_of_the_next_batch)` forgets: a batch counts by 0.9 to
    the power of its age.

    Args:
        statistics: of any estimator.
        factor: one number, finite and 0 or more. 0 gives statistics of zero weight, the identity of `merge`.

    Returns:
        Weights, sums and scatters times the factor, means as they were; exact for whole numbers. The derivative by the
        factor holds where it is positive: at 0 a mean is lost. A factor out of range under a trace, and one by which
        they overflow, leave weights that are not finite, which `estimate` refuses.

    Raises:
        TypeError: for what is no statistics, and for a factor that is not a real number.
        ValueError: for a factor that is negative, not finite or not a single number.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> nb, y = jg.GaussianNB(), np.array([0, 0])
        >>> old, new = (nb.statistics(np.array(x), y) for x in ([[0.0], [2.0]], [[5.0], [7.0]]))
        >>> both = jg.merge(jg.scale(old, 0.25), new)
        >>> both.class_weight.value.tolist(), both.mean.value.tolist()  # (0.25 · 2 · 1 + 2 · 6) / 2.5
        ([2.5], [[5.0]])
    """
    if not hasattr(statistics, "class_weight"):
        raise TypeError(
            f"scale takes statistics, such as estimator.statistics(x, y) returns; found {type(statistics).__name__}."
        )
    check_single(statistics, "statistics")
    return _scale_program(statistics, arguments.check_number("factor", factor))


def _alike(verb: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Both in one form; an error where they have none."""
    given = a, b
    if type(a) is type(b) and hasattr(a, "by_feature") and jax.tree.structure(a) != jax.tree.structure(b):
        a, b = a.by_feature(), b.by_feature()  # one was made with observed, the other without
    if not (hasattr(a, "class_weight") and jax.tree.structure(a) == jax.tree.structure(b)):
        found = " and ".join(map(describe, given))
        raise TypeError(f"{verb} takes two statistics of one kind, from estimators of one structure; found {found}.")
    for each in (a, b):
        check_single(each, f"what {verb} takes")
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
    platform.check_places(a, b)
    return a, b


def _check_contained(whole: Any, part: Any) -> None:
    """Raise for a concrete part that is none, by more than the rounding of sums of weights."""
    weights = primal((whole.class_weight, part.class_weight))
    if is_traced(weights):
        return
    ours, theirs = (weight.exact() for weight in weights)
    rounding = np.where((ours % 1 == 0) & (theirs % 1 == 0), 0.0, 1 + _ROUNDING * ours)
    if (more := theirs > ours + rounding).any():
        k = int(np.argmax(more))
        raise ValueError(
            f"whole must contain part; found class {k} of weight {ours[k]:g} in whole and {theirs[k]:g} in part. Give "
            "first the statistics of all rows, then those of the rows to be taken away."
        )
    for name, what in (("feature_sum", "its counts"), ("feature_weight", "the weights of what was observed")):
        for ours, theirs in zip(_sums(whole, name), _sums(part, name), strict=True):
            lacking = primal(_lacking_program(ours, theirs))
            if not is_traced(lacking) and (lacking := np.asarray(lacking)).any():
                k, j = np.argwhere(lacking)[0]
                raise ValueError(
                    f"whole must contain part; found column {j} of {what} of class {k} less in whole than in part, by "
                    f"{lacking[k, j]:g}. Give first the statistics of all rows, then those of the rows to be taken "
                    "away, each with the same observed."
                )


def _sums(statistics: Any, name: str) -> list[Total]:
    """The sums of a name among statistics, a number for each feature of each class, where these have such."""
    parts = getattr(statistics, "parts", (statistics,))
    return [sums for part in parts if (sums := getattr(part, name, None)) is not None]


@jax.jit
def _lacking_program(whole: Total, part: Total) -> Array:
    """How much more of each sum the part holds, beyond rounding where they are no whole numbers."""
    left = whole.merge(-part).value
    return jnp.where(left < jnp.where(left % 1 == 0, 0.0, -1 - _ROUNDING * whole.value), -left, 0.0)


@jax.jit
def _subtract_program(whole: S, part: S) -> S:
    return whole.subtract(part)


@jax.jit
def _scale_program(statistics: S, factor: Array) -> S:
    factor = factor.astype(statistics.class_weight.high.dtype)
    return statistics.scale(jnp.where((factor >= 0) & (factor < jnp.inf), factor, jnp.nan))
