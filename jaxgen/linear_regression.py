"""Linear regression: least squares, ridge regression, the lasso, and gradient descent.

Derivatives go through the optimum by the implicit function theorem, and so exist for dependent features, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxgen import arguments, culprits, domains, first_order, inputs, regression_programs
from jaxgen.numerics import or_in_float64
from jaxgen.regression_problem import check_data, check_outcome
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    import optax
    from jax import Array
    from jaxtyping import Float, Real

    from jaxgen.arguments import AnyArray


class LinearRegressor(NamedTuple):
    """E[t | x] = xᵀw + b.

    Attributes:
        weights: (d,), or (d, m) for m targets.
        bias: (), or (m,).

    Example:
        >>> import jax.numpy as jnp, jaxgen as jg
        >>> line = jg.linear_regression.LinearRegressor(weights=jnp.array([2.0]), bias=jnp.array(1.0))
        >>> float(jg.linear_regression.predict(line, jnp.array([3.0])))
        7.0
    """

    weights: Float[Array, " d"] | Float[Array, "d m"]
    bias: Float[Array, ""] | Float[Array, " m"]


def predict(regressor: LinearRegressor, x: Real[AnyArray, "... d"]) -> Float[Array, "..."]:
    """xᵀw + b.

    Args:
        regressor: such as `least_squares` returns.
        x: a row (d,) or rows (n, d).

    Returns:
        (n,), or (n, m) for m targets; without the n for one row. NaN under a trace for values that are not finite.

    Raises:
        ValueError: for another number of features, or values that are not finite.
        TypeError: for what is no regressor, or no dense array of numbers.

    Example:
        >>> import numpy as np
        >>> predict(LinearRegressor(np.array([2.0, 1.0]), np.array(0.5)), np.array([[1.0, 1.0], [3.0, 0.0]])).tolist()
        [3.5, 6.5]
    """
    if not isinstance(regressor, LinearRegressor):
        raise TypeError(f"regressor must be a LinearRegressor; found {type(regressor).__name__}.")
    shapes = np.shape(regressor.weights), np.shape(regressor.bias)
    if len(shapes[0]) not in (1, 2) or shapes[1] != shapes[0][1:]:
        raise ValueError(
            f"regressor must have weights (d,) and bias (), or (d, m) and (m,); found {shapes[0]} and {shapes[1]}. "
            "For a stack of regressors: jax.vmap(predict, in_axes=(0, None))(regressor, x)."
        )
    x = inputs.check_points(x, shapes[0][0])
    prediction, finite = regression_programs.predict(*regressor, x)
    if not is_traced(finite) and not finite:
        culprits.raise_for_values(x, domains.COMPLETE)
        if not all(np.isfinite(leaf).all() for leaf in regressor):
            raise ValueError(
                "regressor must hold finite weights and biases; found NaN or infinity. A fit under jit or vmap is NaN "
                "where the same fit outside of them has an error, which says why."
            )
        raise ValueError(f"the prediction overflows. Rescale x{or_in_float64(prediction.dtype)}.")
    return prediction


def least_squares(
    x: Real[AnyArray, "n d"],
    target: Real[AnyArray, " n"] | Real[AnyArray, "n m"],
    *,
    sample_weight: Real[AnyArray, " n"] | None = None,
) -> LinearRegressor:
    """Least squares: the w and b that minimise Σ_i s_i (t_i − x_iᵀw − b)².

    From the triangle (Golub 1965, Numerische Mathematik 7, 206–216): errors grow with the condition number of the
    features, where those of the normal equations grow with its square. Features must be independent: one is refused as
    dependent where its deviation about the best combination of those before it is below eps·(d·deviation + |mean|).

    Args:
        x: features (n, d).
        target: t, (n,), or (n, m) for m targets at once; computed in the dtype of x.
        sample_weight: s, a weight for each row, (n,), finite and 0 or more. Weight 2 counts a row twice, weight 0 not
            at all, even if the row holds NaN.

    Returns:
        Weights (d,) and bias (), or (d, m) and (m,). NaN under a trace for dependent features and bad values.

    Raises:
        ValueError: for shapes, weights or values out of range, and for dependent features, as all are where n ≤ d.
        TypeError: for dtypes that are not numeric, and for sparse x.

    Example:
        >>> import numpy as np
        >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 5.0]])
        >>> line = least_squares(x, 2 * x[:, 0] - x[:, 1] + 3)
        >>> print(np.round(line.weights, 4), f"{line.bias:.4f}")
        [ 2. -1.] 3.0000
    """
    data = check_data(x, target, sample_weight)
    found, outcome = regression_programs.ridge(data, 0.0)
    check_outcome(data, outcome, remedy="Remove it, or use ridge(x, target, l2) with l2 > 0.")
    return LinearRegressor(*found)


def ridge(
    x: Real[AnyArray, "n d"],
    target: Real[AnyArray, " n"] | Real[AnyArray, "n m"],
    l2: Array | float,
    *,
    sample_weight: Real[AnyArray, " n"] | None = None,
) -> LinearRegressor:
    """Ridge regression: minimises Σ_i s_i (t_i − x_iᵀw − b)² + l2·‖w‖², as scikit-learn's Ridge(alpha=l2) does.

    The penalty is d more rows, √l2·I with target 0 (Hastie, Tibshirani & Friedman 2009, The Elements of Statistical
    Learning, exercise 3.12), below those of the triangle. So `jax.vmap` over l2 factors the data once.

    Args:
        x: features (n, d); target and sample_weight too are those of `least_squares`.
        target: (n,) or (n, m).
        l2: strength of the penalty, 0 or more. 0 is least squares; with more, features need not be independent.
        sample_weight: (n,).

    Returns:
        As `least_squares`; NaN under a trace also for a negative l2.

    Raises:
        ValueError: as `least_squares`, and for l2 that is negative, or too small for features that are dependent.
        TypeError: as `least_squares`, and for l2 that is not one number.

    Example:
        >>> import jax, numpy as np
        >>> x = np.array([[-1.0], [0.0], [1.0]])
        >>> path = jax.vmap(lambda l2: ridge(x, 3 * x[:, 0], l2))(np.array([0.0, 1.0, 4.0]))
        >>> print(np.round(path.weights[:, 0], 4))  # 6 / (2 + l2)
        [3. 2. 1.]
    """
    l2 = arguments.check_number("l2", l2)
    data = check_data(x, target, sample_weight)
    found, outcome = regression_programs.ridge(data, l2)
    check_outcome(data, outcome, remedy="Remove it, or raise l2, which is too small for it.")
    return LinearRegressor(*found)


def lasso(
    x: Real[AnyArray, "n d"],
    target: Real[AnyArray, " n"],
    l1: Array | float,
    *,
    sample_weight: Real[AnyArray, " n"] | None = None,
    tolerance: Array | float | None = None,
    max_steps: int = 1000,
) -> LinearRegressor:
    """The lasso: minimises Σ_i s_i (t_i − x_iᵀw − b)² / (2 Σ_i s_i) + l1·‖w‖₁, as scikit-learn's Lasso(alpha=l1) does.

    By coordinate descent on the correlations of the features, d² numbers (Friedman, Hastie & Tibshirani 2010, Journal
    of Statistical Software 33), and Newton steps on the active ones, until the duality gap (Kim et al. 2007, IEEE
    Journal of Selected Topics in Signal Processing 1, 606–617) is small. Weights that are zero are exactly 0.
    `jax.vmap` over l1 gives a path. Derivatives hold the active set A and its signs fixed, w_A = G_AA⁻¹(c_A − l1·sign
    w_A); where features of A are dependent, the weights are one solution of many, and their derivatives mean little.

    Args:
        x: features (n, d); target and sample_weight too are those of `least_squares`.
        target: (n,).
        l1: strength of the penalty, 0 or more. 0 is least squares, whether features are independent or not.
        sample_weight: (n,).
        tolerance: it ends where the duality gap, in variances of the target, is below; None is 1e-6 in float32 and
            1e-12 in float64. The gap bounds what the objective could still lose.
        max_steps: it ends, unconverged, after so many steps, of ten turns of all coordinates and Newton steps each.

    Returns:
        Weights (d,) and bias (); NaN under a trace for bad values and a negative l1. A RuntimeWarning says if it did
        not converge.

    Raises:
        ValueError: for shapes, weights, values, l1, tolerance or max_steps out of range.
        TypeError: as `least_squares`, and for l1 or tolerance that is not one number.

    Example:
        >>> import numpy as np
        >>> x = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> print(np.round(lasso(x, 2 * x[:, 0] + 0.5 * x[:, 1], 0.75).weights, 4))
        [1.25 0.  ]
    """
    l1 = arguments.check_number("l1", l1)
    if tolerance is not None:
        tolerance = arguments.check_number("tolerance", tolerance)
    max_steps = arguments.check_integer("max_steps", max_steps)
    data = check_data(x, target, sample_weight)
    if data.target.ndim > 1:
        raise ValueError(
            f"target must have shape (n,) for the lasso; found {data.target.shape}. For several targets: "
            "jax.vmap(lambda t: lasso(x, t, l1), in_axes=1, out_axes=-1)(target)."
        )
    found, outcome = regression_programs.lasso(data, l1, tolerance, max_steps=max_steps)
    wider = or_in_float64(found[0].dtype)
    remedy = f"the duality gap is {{:.2g}}. Raise max_steps, tolerance or l1{wider}."
    check_outcome(data, outcome, remedy=remedy)
    return LinearRegressor(*found)


def gradient_descent(
    x: Real[AnyArray, "n d"],
    target: Real[AnyArray, " n"] | Real[AnyArray, "n m"],
    *,
    optimizer: optax.GradientTransformation | None = None,
    l2: Array | float = 0.0,
    steps: int = 1000,
    sample_weight: Real[AnyArray, " n"] | None = None,
) -> LinearRegressor:
    """Least squares, or ridge regression where l2 > 0, by an optimiser of optax, on all rows at once.

    What descends is half the mean squared error of standardised features and targets, so that raw units are no
    obstacle; the weights returned are in raw units. It ends where the norm of the gradient is below 1e-5 in float32 and
    1e-9 in float64. Derivatives go through the optimum, not through the iterations.

    Args:
        x: features (n, d); target and sample_weight too are those of `least_squares`.
        target: (n,) or (n, m).
        optimizer: an optax gradient transformation, such as optax.sgd(0.1); None is L-BFGS with a line search.
        l2: strength of the penalty, as in `ridge`. With 0, the weights of dependent features are one solution of many.
        steps: it ends, unconverged, after so many iterations.
        sample_weight: (n,).

    Returns:
        As `ridge`. A RuntimeWarning says if it did not converge.

    Raises:
        ValueError: for shapes, weights, values, l2 or steps out of range, and for an optimizer that diverges.
        TypeError: as `ridge`, and for an optimizer that is not optax's.

    Example:
        >>> import numpy as np, optax
        >>> x = np.array([[1900.0], [1950.0], [2000.0]])
        >>> line = gradient_descent(x, x[:, 0] / 10 + 5, optimizer=optax.sgd(0.5))
        >>> print(f"{line.weights[0]:.4f} {line.bias:.2f}")
        0.1000 5.00
    """
    l2 = arguments.check_number("l2", l2)
    steps = arguments.check_integer("steps", steps)
    first_order.check_optimizer("optimizer", optimizer)
    data = check_data(x, target, sample_weight)
    found, outcome = regression_programs.descent(data, l2, optimizer=optimizer, steps=steps)
    remedy = "the norm of its gradient is {:.2g}. Raise steps or l2, or try another optimizer."
    check_outcome(data, outcome, remedy=remedy)
    return LinearRegressor(*found)
