"""Log factorials, and ratios of gamma functions in which nothing large cancels: what conjugate priors come down to."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

# Of 1/x, 1/x³, … in Stirling's series.
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
# Steps up to where what Stirling's series leaves out is below the rounding of its first term are four times so many, by
# the bytes of a float; and of so many terms 1 + n/(a + i) the product does not overflow.
_STEPS = {4: 1, 8: 4}
# Beside n, from where a difference of logs is as exact as log(1 + n/a), of which the quotient may overflow; below its
# square, from where the square of a underflows, which derivatives have.
_TINY = 2.0**-20


def log_rising(a: Array, n: Array | float, unit: Array | float = 1.0) -> Array:
    """log Γ(a + n)/Γ(a) − n log unit: that of the rising factorial a(a + 1)…(a + n − 1), for any real n.

    With z = a + s, from where Stirling's series δ(z) = 1/(12 z) − 1/(360 z³) + … is exact (Abramowitz & Stegun 1964,
    6.1.41), it is

        n log((z + n)/unit) − n + (z − ½) log(1 + n/z) + δ(z + n) − δ(z) − Σ_(i < s) log(1 + n/(a + i))

    whose terms are no larger than n, than the value or than a few nats: a few eps of those is what it errs by. The
    difference of two log Γ of a million has no digit left in float32. Terms are made of a factor n, not of two numbers
    that are equal without it: an optimised program may round those apart, alike in each of a million unseen words.

    Args:
        a: positive; NaN comes of what is not.
        n: 0 or more. For 0 the value is exactly 0, and so are its derivatives by a and by the unit.
        unit: positive.
    """
    proper = a > 0
    a = jnp.where(proper, a, 1.0)
    steps, tiny = _STEPS[a.dtype.itemsize], (a < _TINY * n) | (a < _TINY**2)
    z = a + 4 * steps
    beyond = (z - 0.5) * jnp.log1p(n / z) - n + _stirling_change(z, n)
    growth = [1 + jnp.where(tiny, 0.0, n) / jnp.where(tiny, 1.0, a)] + [1 + n / (a + i) for i in range(1, 4 * steps)]
    beyond += jnp.where(tiny, jnp.log(a) - jnp.log(a + n), 0.0)
    for i in range(0, 4 * steps, steps):
        beyond -= jnp.log(prod(growth[i : i + steps]))
    return jnp.where(proper, n * jnp.log((z + n) / unit) + beyond, jnp.nan)


def log_dirichlet_evidence(alpha: Float[Array, "*batch m"], count: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """log ∫ Π_j θ_j^n_j Dirichlet(θ | α) dθ = log Γ(A)/Γ(A + N) + Σ_j log Γ(α_j + n_j)/Γ(α_j), over the last axis."""
    of_all, seen = jnp.sum(alpha, axis=-1), jnp.sum(count, axis=-1)
    unit = of_all + seen
    return jnp.sum(log_rising(alpha, count, unit[..., None]), axis=-1) - log_rising(of_all, seen, unit)


def stirling_series(x: Array) -> Array:
    """δ(x) = log Γ(x) − (x − ½) log x + x − ½ log 2π."""
    inverse = 1 / x
    square = inverse * inverse
    return reduce(lambda higher, term: term + square * higher, reversed(_SERIES)) * inverse


def _stirling_change(x: Array, n: Array | float) -> Array:
    """δ(x + n) − δ(x), as a multiple of 1/(x + n) − 1/x = −n/(x (x + n)): by divided differences in Horner's scheme."""
    moved, inverse = 1 / (x + n), 1 / x
    value, slope = 0.0, 0.0  # of the polynomial in the square, at 1/(x + n), and from there to 1/x
    for term in reversed(_SERIES):
        value, slope = term + moved * moved * value, value + inverse * inverse * slope
    return -n * moved * inverse * (value + inverse * (moved + inverse) * slope)


def log_factorial(count: Any) -> Any:
    """log x!, of a JAX or NumPy array, exactly 0 at 0."""
    if isinstance(count, np.ndarray):
        from scipy.special import gammaln as of_numpy

        return of_numpy(count + 1)
    return gammaln(count + 1) - gammaln(jnp.ones((), count.dtype))  # which is not quite 0 in float32
