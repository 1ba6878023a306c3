"""Log factorials, and ratios of gamma functions in which nothing large cancels: what conjugate priors come down to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from jaxgen.numerics import LOG_2PI

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

# From here on what Stirling's series leaves out is below the rounding of its first term; by the bytes of a float.
_LARGE = {4: 4.0, 8: 16.0}

# Beside n, from where log(1 + n/a) is as exact as a difference of logs.
_TINY = 2.0**-20


def log_rising(a: Array, n: Array | float, unit: Array | float = 1.0) -> Array:
    """log Γ(a + n)/Γ(a) − n log unit: that of the rising factorial a(a + 1)…(a + n − 1), for any real n.

    By Stirling's formula, log Γ(z) = (z − ½) log z − z + ½ log 2π + δ(z), it is

        n log((a + n)/unit) − n + (a − ½) log(1 + n/a) + δ(a + n) − δ(a)

    whose terms are no larger than n or than the value; the difference of two log Γ of a million has no digit left in
    float32.

    Args:
        a: positive; NaN comes of what is not.
        n: 0 or more. For 0 the value is exactly 0.
        unit: positive.
    """
    proper = a > 0
    a = jnp.where(proper, a, 1.0)
    tiny = a < _TINY * n  # n/a² would overflow in the derivative
    growth = jnp.where(tiny, jnp.log(a + n) - jnp.log(a), jnp.log1p(n / jnp.where(tiny, 1.0, a)))
    beyond = (a - 0.5) * growth - n + (_stirling_error(a + n) - _stirling_error(a))
    return jnp.where(proper, n * jnp.log((a + n) / unit) + beyond, jnp.nan)


def log_dirichlet_evidence(alpha: Float[Array, "*batch m"], count: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """log ∫ Π_j θ_j^n_j Dirichlet(θ | α) dθ = log Γ(A)/Γ(A + N) + Σ_j log Γ(α_j + n_j)/Γ(α_j), over the last axis."""
    of_all, seen = jnp.sum(alpha, axis=-1), jnp.sum(count, axis=-1)
    unit = of_all + seen
    return jnp.sum(log_rising(alpha, count, unit[..., None]), axis=-1) - log_rising(of_all, seen, unit)


def _stirling_error(x: Array) -> Array:
    """δ(x) = log Γ(x) − (x − ½) log x + x − ½ log 2π (Abramowitz & Stegun 1964, 6.1.41)."""
    least = _LARGE[x.dtype.itemsize]
    large = x >= least
    big, small = jnp.where(large, x, least), jnp.where(large, 1.0, x)
    square = 1 / (big * big)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / big
    direct = gammaln(small) - ((small - 0.5) * jnp.log(small) - small + 0.5 * LOG_2PI)
    return jnp.where(large, series, direct)


def log_factorial(count: Any) -> Any:
    """log x!, of a JAX or NumPy array, exactly 0 at 0."""
    if isinstance(count, np.ndarray):
        from scipy.special import gammaln as of_numpy

        return of_numpy(count + 1)
    return gammaln(count + 1) - gammaln(jnp.ones((), count.dtype))  # which is not quite 0 in float32
