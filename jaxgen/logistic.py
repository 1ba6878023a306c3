"""Logistic regression, binary and softmax: the discriminative counterpart, trained to its optimum.

minimise  Σ_i Σ_k −r_ik log p(y = k | x_i) + penalty(W),    p(y = k | x) ∝ exp(xᵀw_k + b_k)
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial

from jaxgen import arguments, culprits, domains, first_order, host_arrays, inputs, newton, optimum, platform
from jaxgen.curvature import Line, curvature, mean_curvature
from jaxgen.frame import Frame
from jaxgen.linear import LinearClassifier, check_start
from jaxgen.numerics import nonnegative_or_nan, safe_divide, shortcut, varying_alike, working_dtype
from jaxgen.optimum import Report
from jaxgen.preconditioner import Preconditioner, pays
from jaxgen.pytree import STATIC, pytree
from jaxgen.separation import escapes, separating_loss
from jaxgen.softmax import Problem, as_fractions
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    import optax
    from jax import Array
    from jaxtyping import Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.labels import Labels
    from jaxgen.platform import Tuning


# Up to so many parameters Newton's method costs less than its steps save, while numbers for every row and parameter
# take no more than 128 MiB.
_MOST_NEWTON, _MOST_NUMBERS = 256, 2**25
_Method = Literal["newton", "l-bfgs", "preconditioned", "optax"]


@pytree
@dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression with an L2 penalty, trained to its optimum.

    The losses are summed over the examples and the bias is not penalised. For K ≥ 3 the penalty is ½·l2·‖W‖²; for
    K = 2 it is ½·l2·‖w‖² on w = W[:, 1] − W[:, 0], the binomial loss, returned as W = [−w/2, w/2]. So l2 is
    scikit-learn's 1/C.

    Attributes:
        l2: strength of the penalty. 0 is maximum likelihood, without a finite optimum where the classes are separable.
        tolerance: training stops where the norm of the gradient of the mean loss, in standardised features, falls below
            it; None is 1e-5 in float32 and 1e-8 in float64. A class whose share is no larger needs a smaller one.
        max_steps: training stops, unconverged, after this many iterations.
        optimizer: an optax gradient transformation; None is Newton's method for up to 256 parameters, and L-BFGS for
            more, preconditioned where up to 512 features are correlated; both with a line search for convex losses.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
        >>> c = jg.fit(jg.LogisticRegression(l2=1.0), x, y)
        >>> jg.predict(c, np.array([[0.0], [3.0]])).tolist()
        [0, 1]
    """

    l2: Array | float = 1.0
    tolerance: Array | float | None = None
    max_steps: int = dataclasses.field(default=10_000, metadata=STATIC)
    optimizer: optax.GradientTransformation | None = dataclasses.field(default=None, metadata=STATIC)

    def check(self) -> None:
        """Raise for a hyperparameter that is out of range."""
        arguments.check_hyperparameters(self)
        arguments.check_integer("LogisticRegression.max_steps", self.max_steps)
        first_order.check_optimizer("LogisticRegression.optimizer", self.optimizer)

    def fit(
        self,
        x: Real[AnyArray, "n d"],
        y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
        *,
        num_classes: int | None = None,
        sample_weight: Real[AnyArray, " n"] | None = None,
    ) -> LinearClassifier:
        """The optimum, with a warning where it was not reached; see `jaxgen.fit`."""
        classifier, report = train(self, x, y, num_classes=num_classes, sample_weight=sample_weight)
        if not is_traced(report) and not report.converged:
            if report.separable:
                statement = (
                    "a hyperplane separates the classes, or some of the rows, and l2 = 0: the likelihood has no finite "
                    "maximum, the weights would grow for ever. Set l2 > 0"
                )
            else:
                remedy = "Raise max_steps or tolerance, or set l2 > 0 where a class may be separable"
                if report.steps < self.max_steps:
                    dtype = report.gradient_norm.dtype
                    wider = "compute in float64, " if dtype == jnp.float32 else ""
                    remedy = (
                        f"Rounding in {dtype} hides what further steps would gain, where features are nearly "
                        f"dependent: {wider}raise l2 or tolerance, or leave out features that others determine"
                    )
                statement = (
                    f"logistic regression did not converge in {int(report.steps)} steps: the norm of its gradient is "
                    f"{float(report.gradient_norm):.2g}. {remedy}"
                )
            warnings.warn(statement + "; jaxgen.train returns the report.", RuntimeWarning, stacklevel=3)
        return classifier


def train(
    estimator: LogisticRegression,
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
    *,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    start: LinearClassifier | None = None,
) -> tuple[LinearClassifier, Report]:
    """Fit an iterative estimator, and report how it went.

    Gradients go through the optimum by the implicit function theorem, not through the iterations; where there is no
    finite optimum they mean nothing. The objective is that of `LogisticRegression`; its minimum is found by Newton's
    method, or by L-BFGS in compact form (Nocedal & Wright 2006, Numerical Optimization, chapter 3 and section 7.2),
    preconditioned where features are correlated, or may be under a trace.

    Args:
        estimator: such as `jaxgen.LogisticRegression()`.
        x: features (n, d).
        y: labels (n,) or responsibilities (n, K), as for `fit`.
        num_classes: K; inferred from concrete labels.
        sample_weight: a weight for each row; a row of weight 0 is absent, whatever it holds.
        start: where to start, such as `to_linear` of a generative fit; zero weights without it, or where their loss
            is lower. The optimum is the same.

    Returns:
        The classifier, weights (d, K) and bias (K,), and how the training ended; NaN under a trace for bad values.

    Raises:
        ValueError: for shapes, labels, weights, hyperparameters or values of x that are out of range.
        TypeError: for an estimator that is fitted in closed form, and for dtypes as in `fit`.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
        >>> c, report = jg.train(jg.LogisticRegression(l2=0.1), x, y)
        >>> bool(report.converged)
        True
        >>> c, report = jg.train(jg.LogisticRegression(l2=0.0), x, y)
        >>> bool(report.converged), bool(report.separable)
        (False, True)
    """
    if not isinstance(estimator, LogisticRegression):
        raise TypeError(
            f"train takes an iterative estimator, such as jaxgen.LogisticRegression(); found "
            f"{type(estimator).__name__}. Those fitted in closed form have nothing to report: use jaxgen.fit."
        )
    estimator.check()
    rows = inputs.check_rows(x)
    labels = inputs.check_labels(rows, y, num_classes, sample_weight)
    if start is not None:
        check_start(start, rows.shape[1], labels.num_classes)
    # What float32 cannot tell from 0 is none there.
    may_escape = is_traced(estimator.l2) or bool(estimator.l2 < float(np.finfo(np.float32).tiny))
    tuning = platform.tuning_of(estimator, rows, labels, start)
    if not is_traced(rows, labels) and host_arrays.is_distributed(rows, labels):
        tuning = None  # blocks of rows would be gathered by every device
    method = _method_for(estimator, rows, labels.num_classes)
    how = {"may_escape": may_escape, "tuning": tuning, "method": method}
    classifier, report, total = _train_program(arguments.as_floats(estimator), rows, labels, start, **how)
    if not is_traced(report):
        if np.asarray(primal(total)) == 0:
            culprits.raise_for_no_weight()
        if not np.isfinite(report.gradient_norm):
            culprits.raise_for_rows(rows, labels, domains.COMPLETE, estimator.optimizer)
    return classifier, report


def _method_for(estimator: LogisticRegression, x: AnyArray, num_classes: int) -> _Method:
    parameters = (x.shape[1] + 1) * max(num_classes - 1, 1)
    if estimator.optimizer is not None:
        return "optax"
    if parameters <= _MOST_NEWTON and parameters * x.shape[0] <= _MOST_NUMBERS:
        return "newton"
    return "preconditioned" if pays(x, num_classes) else "l-bfgs"


@partial(jax.jit, static_argnames=("may_escape", "tuning", "method"))
def _train_program(
    estimator: LogisticRegression,
    x: Array,
    labels: Labels,
    start: LinearClassifier | None,
    *,
    may_escape: bool,
    tuning: Tuning | None,
    method: _Method,
) -> tuple[LinearClassifier, Report, Float[Array, ""]]:
    dtype, weighted = working_dtype(x.dtype), labels.weight is not None
    labels = labels.prepare(dtype)
    x, labels, _ = domains.blank_absent(x.astype(dtype), labels, domains.FINITE)
    fraction, total, occurs = as_fractions(labels)
    l2 = nonnegative_or_nan(estimator.l2, dtype)
    decay = safe_divide(l2, total)
    frame = Frame.of(x, fraction, occurs, decay)
    problem, begin = varying_alike(frame.problem(x, fraction, decay), frame.table(start))
    if start is not None:  # from far out, where losses are straight, Newton's method may not find back
        of_zero = jnp.sum(problem.mass) * jnp.log(jnp.sum(occurs).astype(dtype))
        begin = jnp.where(problem.loss(begin) <= of_zero, begin, 0.0)

    tolerance = (1e-8 if dtype == np.float64 else 1e-5) if estimator.tolerance is None else estimator.tolerance
    tolerance = jnp.asarray(tolerance).astype(dtype)
    is_free = l2 < jnp.finfo(dtype).tiny
    low_enough = jnp.where(is_free, separating_loss(problem), -jnp.inf) if may_escape else jnp.array(-jnp.inf, dtype)
    ending = tolerance, low_enough
    held, begin, ending = lax.stop_gradient((problem, begin, ending))
    max_steps = int(estimator.max_steps)
    if method == "newton":
        hessian, along = curvature(held, weighted=weighted, tuning=tuning), partial(Line.of, held)
        found = newton.minimise(held.look, hessian, along, begin, *ending, max_steps)
    else:
        evaluate = held.evaluate if tuning is None else partial(held.evaluate_in_blocks, tuning=tuning)
        suited = (lambda table: Preconditioner.of(mean_curvature(held, table))) if method == "preconditioned" else None
        found = first_order.minimise(held.loss, estimator.optimizer, begin, *ending, max_steps, evaluate, suited)
    solution = optimum.at_optimum(Partial(Problem.loss, problem), found.point)
    separable = jnp.zeros((), bool)
    if may_escape:
        never = jnp.zeros_like(found.value, bool)
        endless = shortcut(~is_free, lambda *_: never, escapes, problem, solution)
        separable = (found.value < low_enough) | (is_free & endless)
    # A bad value or weight, squares that overflow and a negative l2 make the gradient NaN.
    poison = jnp.where(jnp.isfinite(found.norm), 1.0, jnp.nan)
    report = Report((found.norm <= tolerance) & ~separable, found.steps, found.norm, separable)
    return jax.tree.map(lambda leaf: poison * leaf, frame.classifier(solution)), report, total
