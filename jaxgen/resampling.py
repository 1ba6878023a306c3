"""Cross-validation: what is given, checked; the folds dealt out; and each judged by a classifier of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, culprits, inputs, platform, threads
from jaxgen.containers import as_matrix, is_sparse
from jaxgen.dealing import Folds
from jaxgen.estimator import GenerativeEstimator
from jaxgen.fitting import check_estimator
from jaxgen.folds import Deal, Rows
from jaxgen.held_out import judge
from jaxgen.host_arrays import as_jax
from jaxgen.leave_one_out import leave_one_out
from jaxgen.refits import Fitted, kind_for
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray


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
    a copy in the order of the folds; one that is trained, such as logistic regression, is trained for each, and sparse
    rows are added up for each where they have fewer entries than a table of all words and classes has cells.
    `jax.vmap` over the estimator scores a grid of hyperparameters from the same statistics, which do not depend on
    them. Leave-one-out is exact. From counts a row is taken away, where x is sparse, or x and the weights are whole
    numbers: a dense one by the table of its class, a sparse one by its own words alone (of Bernoulli and Poisson, whose
    absent words count, by the table once for each weight that rows have). Other statistics of all rows but one are
    merged by one program, which the cores of a CPU run on a share of the rows each, but for a trace of hyperparameters;
    its memory grows with the logarithm of the rows, and with the cores. MixedNB is merged as a whole, or family by
    family where rows are sparse. Of full covariances each row takes a factorisation, for QDA one for each class, and of
    small data the program takes longer to compile than the fits would.

    Args:
        estimator: any of jaxgen's.
        x: features (n, d), concrete; sparse rows where the estimator counts.
        y: labels (n,), concrete.
        folds: their number, dealt out as by scikit-learn's StratifiedKFold: each with its share of every class, in the
            order of the rows; or the fold of each row, 0 … F − 1, (n,); or "leave-one-out", every row by itself. The
            result of a row, or of a fold, of weight 0 is NaN.
        num_classes: K; inferred from y.
        sample_weight: a weight for each row, (n,), in the fit and in the judgement.
        observed: True for the entries of x that count, as for `fit`, in both as well; families that fill in what is
            missing (full covariances, words) are then fitted for each fold by EM.

    Returns:
        Accuracy and log loss, in nats, of each of the F folds; of each row, with "leave-one-out".

    Raises:
        ValueError: for folds that are fewer than two, empty, or hold all the weight, and as `fit`. For a row that the
            others make impossible under every class.
        TypeError: for x or y under a trace, folds that are none of those three, and as `fit`.

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
    dealt = Folds.of(folds, rows.y)
    _check_weight(dealt, rows)
    if isinstance(folds, str) and merges:
        return CrossValidation(*leave_one_out(estimator, rows, num_classes))
    deal = Deal.of(rows, dealt.members(), cores=threads.cores())
    parts, refits = (kind_for(estimator, rows, num_classes) if merges else Fitted).of(estimator, deal, num_classes)
    return CrossValidation(*as_jax(*judge(refits, deal, parts)))


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


def _check_weight(folds: Folds, rows: Rows) -> None:
    """Raise where the rows outside a fold have no weight, which leaves nothing to fit to."""
    if rows.sample_weight is None:
        return
    present = inputs.weighs(rows.sample_weight, rows.x.dtype)
    if not present.any():
        culprits.raise_for_no_weight()
    held = np.bincount(folds.of_row, present)
    if (alone := held == held.sum()).any():
        raise ValueError(
            f"folds must leave rows of some weight outside each; found all of it in fold {int(np.argmax(alone))}. Deal "
            "the rows that have weight out to two folds or more."
        )
