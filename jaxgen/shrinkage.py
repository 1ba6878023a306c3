"""How far to shrink a covariance: the intensity that Ledoit and Wolf found, in closed form."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import culprits, domains, inputs, platform
from jaxgen.discriminant import GDA
from jaxgen.labels import HardLabels
from jaxgen.numerics import safe_divide
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.labels import Labels
    from jaxgen.moments import Moments
    from jaxgen.platform import Tuning


def ledoit_wolf(
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"] | None = None,
    *,
    shared: bool = False,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
) -> Float[Array, " classes"] | Float[Array, ""]:
    """The shrinkage γ of a covariance C towards μ·I, μ = tr(C)/d, with the least expected squared error.

        γ = min(1, β/δ),    δ = ‖C − μI‖²,    β = (1/n²) Σ_i ‖x_i x_iᵀ − C‖²

    of centred rows and the Frobenius norm (Ledoit & Wolf 2004, A well-conditioned estimator for large-dimensional
    covariance matrices, equation 14). The data are read twice, and a d × d matrix kept for each γ.

    Args:
        x: features (n, d).
        y: labels (n,) or responsibilities (n, K), as for `fit`; without any, all rows are of one class.
        shared: one γ for the rows of all classes, each less the mean of its own, as `LDA(shrinkage=…)` takes it.
        num_classes: K; inferred from concrete labels.
        sample_weight: a weight for each row; weight 2 is the row twice.

    Returns:
        From 0 to 1: (K,), as `QDA(shrinkage=…)` takes it, or one number where `shared`, or without y. 0 for a class
        without data and where no feature varies. NaN under a trace for bad values.

    Raises:
        ValueError: for shapes, labels, weights or values of x that are out of range.
        TypeError: for dtypes that are not numeric, or labels that are not integers.

    Example:
        >>> import numpy as np, jaxgen as jg
        >>> x, y = np.random.default_rng(0).normal(size=(60, 20)), np.arange(60) % 2
        >>> print(jg.ledoit_wolf(x, y, shared=True).round(2))  # the truth is the identity
        0.84
        >>> c = jg.fit(jg.QDA(shrinkage=jg.ledoit_wolf(x, y)), x, y)
    """
    x = inputs.check_rows(x)
    one = shared or y is None
    if y is None:
        if num_classes not in (None, 1):
            raise ValueError(f"num_classes must be None without y, which is one class; found {num_classes}.")
        y, num_classes = np.zeros(x.shape[0], np.int32), 1
    if not isinstance(shared, bool):
        raise TypeError(f"shared must be True or False; found {shared!r}.")
    gda = GDA("full", shared=one)
    _, labels = gda.check_data(x, y, num_classes, sample_weight, None)
    statistics, bad = gda.summarise_checked(x, labels)
    if not is_traced(bad) and bad:
        culprits.raise_for_rows(x, labels, domains.COMPLETE)
    intensity = _program(x, labels, statistics, platform.tuning_of(x, labels))
    return intensity[0] if one else intensity


@partial(jax.jit, static_argnames="tuning")
def _program(x: Array, labels: Labels, statistics: Moments, tuning: Tuning | None) -> Array:
    scatter, weight = statistics.scatter, statistics.class_weight.value
    d, classes = scatter.shape[-1], weight.shape[0]
    if scatter.shape[0] == 1:
        weight = jnp.sum(weight, keepdims=True)
    # In units of μ, so that no fourth power overflows where no square does.
    variance = safe_divide(jnp.trace(scatter, axis1=-2, axis2=-1), d * weight)
    covariance = safe_divide(scatter, (weight * variance)[:, None, None])
    unit = jnp.broadcast_to(variance, (classes,))
    quartic = platform.run(_fourth_powers, x, labels, statistics, unit, tuning=tuning)
    if scatter.shape[0] == 1:
        quartic = jnp.sum(quartic, keepdims=True)
    distance = jnp.sum((covariance - jnp.eye(d, dtype=covariance.dtype)[None]) ** 2, axis=(-2, -1))
    if d == 1:  # the covariance is its own mean variance, whatever rounding says
        distance *= 0.0
    error = safe_divide(safe_divide(quartic, weight) - jnp.sum(covariance**2, axis=(-2, -1)), weight)
    return jnp.clip(safe_divide(error, distance), 0.0, 1.0)


def _fourth_powers(x: Array, labels: Labels, statistics: Moments, unit: Array, *, tuning: Tuning) -> Array:
    """Σ_i r_ik (‖x_i − μ_k‖² / unit_k)² of each class."""
    mean, dtype = statistics.mean, unit.dtype
    x, labels, _ = domains.blank_absent(x.astype(dtype), labels.prepare(dtype, tuning), domains.FINITE)

    def powers(weight: Array, high: Array, low: Array, unit: Array) -> tuple[Array, Array]:
        """Those of rows, and which rows of weight 0 are so far away that it overflows: zero times that is none."""

        def power(x: Array) -> Array:
            return safe_divide(jnp.sum((x - high - low) ** 2, axis=1), unit) ** 2

        far = (weight == 0) & ~(power(x) < jnp.inf)
        return power(jnp.where(far[:, None], high, x)), far

    if isinstance(labels, HardLabels):
        own = (labels.expand(each) for each in (mean.high, mean.low, unit))
        power, far = powers(labels.row_weight, *own)
        return labels.drop(far).class_sum(power)

    def one_class(terms: tuple[Array, Array, Array, Array]) -> Array:
        k, high, low, unit = terms
        responsibility = labels.responsibility(k)
        power, far = powers(responsibility, high[None], low[None], unit[None])
        return jnp.sum(jnp.where(far, 0.0, responsibility) * power)

    return lax.map(one_class, (jnp.arange(labels.num_classes), mean.high, mean.low, unit))
