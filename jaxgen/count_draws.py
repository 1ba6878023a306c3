"""Draws of numbers of events, exact for rare ones and for many: Poisson and binomial.

Those of JAX come of coarse uniform numbers and of differences of large logarithms: in float32 Poisson numbers of a rate
of 1e-7 are never 1, and the variance of those of a rate of 10⁸, or of 2²⁴ events of probability 1/1000, is a third or
4 % too large.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import draws
from jaxgen.numerics import log1p_less, shortcut
from jaxgen.rising import stirling_series

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Bool, Float

# Events that are expected, from which numbers are proposed and rejected: the hat of proposals is above all of them.
_MANY = 10.0
# Rates from one whole number to the next, below that, whose numbers are drawn from tables: half a million of rates up
# to ten take 12 ms so, and 60 by waiting for one event after the other.
_STEPS = 8
# Numbers in a table, and the largest of a rate below 1/8: more are rarer than the smallest uniform number.
_NUMBERS, _MOST_OF_REST = 64, 12


def poisson(key: Array, rate: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Numbers of events with these rates, in their dtype; what is too large comes back, infinity and NaN too.

    A rate that is rounded by much more than its own deviation is too large.
    """
    key, rate = draws.varying_alike_with(key, rate)
    of_few, of_many = jax.random.split(key)
    is_many = (rate >= _MANY) & (rate < jnp.finfo(rate.dtype).eps ** -3.0)
    few = _of_low_rate(of_few, jnp.where((rate > 0) & (rate < _MANY), rate, 0.0))
    many = _by_rejection(of_many, _Poisson(jnp.where(is_many, rate, _MANY)), is_many)
    return jnp.where(rate < _MANY, few, jnp.where(is_many, many, rate))


def binomial(
    key: Array, count: Float[Array, "*shape"], present: Float[Array, "*shape"], absent: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """How many of so many events happen, by the smaller of their probability and that of their absence."""
    key, count, present, absent = draws.varying_alike_with(key, count, present, absent)
    of_few, of_many = jax.random.split(key)
    rare = jnp.minimum(present, absent)
    is_many = count * rare >= _MANY
    log_absent = jnp.log1p(-rare)
    few = _by_waiting(of_few, jnp.where(is_many, -1.0, count), lambda u: jnp.floor(jnp.log1p(-u) / log_absent) + 1)
    count_of_many, rare = jnp.where(is_many, count, 2 * _MANY), jnp.where(is_many, rare, 0.5)
    law = _Binomial(count_of_many, rare, _log_of_rest(count_of_many))
    many = _by_rejection(of_many, law, is_many)
    number = jnp.where(is_many, many, few)
    return jnp.where(present > absent, count - number, number)


def _of_low_rate(key: Array, rate: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Poisson numbers of rates below `_MANY`: one of the next lower rate that has a table, and one of the rest.

    They add up to one of both. The rest is so low that all its probabilities are at hand, from the smallest.
    """
    of_table, of_rest = jax.random.split(key)
    step = jnp.floor(rate * _STEPS)
    wheel = draws.Wheel.of(jnp.asarray(_tables()[:, None], rate.dtype))
    number = wheel.draw(of_table, step.astype(jnp.int32).reshape(-1)).reshape(rate.shape).astype(rate.dtype)
    level = draws.uniform(of_rest, rate.shape, rate.dtype)
    rest = rate - step / _STEPS
    exactly = [jnp.exp(-rest)]
    for n in range(1, _MOST_OF_REST + 1):
        exactly.append(exactly[-1] * rest / n)
    or_more = jnp.zeros_like(rest)
    for probability in reversed(exactly[1:]):
        or_more += probability
        number += (level < or_more).astype(rate.dtype)
    return number


@cache
def _tables() -> np.ndarray:
    """The probabilities of the first numbers, by rates from 0 to `_MANY`."""
    rate, number = np.arange(int(_MANY * _STEPS))[:, None] / _STEPS, np.arange(_NUMBERS)
    log_factorial = np.cumsum(np.log(np.maximum(number, 1)))
    return np.exp(number * np.log(np.maximum(rate, 1e-300)) - rate - log_factorial)


def _by_waiting(key: Array, span: Array, wait: Callable[[Array], Array]) -> Array:
    """How many events come within a span, by the times from one to the next, which uniform numbers make.

    Whether one comes at all may be rare, and is told by fine ones (Devroye 1986, Non-Uniform Random Variate Generation,
    sections X.3.3 and X.4.3).
    """

    def go_on(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, time, number = state
        u = jax.random.uniform(jax.random.fold_in(key, step), span.shape, span.dtype)
        return step + 1, time + wait(u), number + (time <= span).astype(number.dtype)

    step = jnp.ones((), jnp.int32)
    first = wait(draws.uniform(jax.random.fold_in(key, 0), span.shape, span.dtype))
    return lax.while_loop(lambda state: jnp.any(state[1] <= span), go_on, (step, first, jnp.zeros_like(first)))[2]


class _Poisson(NamedTuple):
    """Poisson distributions, as `_by_rejection` takes them."""

    mean: Array

    rare, most = 0.0, jnp.inf

    def log_probability(self, number: Array, beyond: Array) -> Array:
        """Of a number that is so far beyond the mean."""
        return -_log_of_rest(number) - _divergence(number, self.mean, beyond)


class _Binomial(NamedTuple):
    """Binomial distributions, as `_by_rejection` takes them: their trials, and the probability of an event."""

    most: Array
    rare: Array
    rest_of_all: Array

    @property
    def mean(self) -> Array:
        """Events that are expected."""
        return self.most * self.rare

    def log_probability(self, number: Array, beyond: Array) -> Array:
        """Of a number that is so far beyond the mean."""
        others = self.most - number
        rest = self.rest_of_all - _log_of_rest(number) - _log_of_rest(others)
        return rest - _divergence(number, self.mean, beyond) - _divergence(others, self.most - self.mean, -beyond)


def _by_rejection(key: Array, law: _Poisson | _Binomial, wanted: Bool[Array, "*shape"]) -> Array:
    """Numbers of events of which many are expected: BTRS, of which those of a Poisson distribution are a limit.

    (Hörmann 1993, The generation of binomial random variates, without its steps that save the logarithms.) Its hat is
    above every binomial and Poisson distribution whose mean is 10 or more; that of the same author for the latter,
    which JAX and NumPy take, is below them by up to 0.5 %.

    Args:
        key: of the numbers.
        law: their distributions.
        wanted: which there is any need of.
    """

    def hat(law: _Poisson | _Binomial) -> tuple[Array, Array, Array]:
        deviation = jnp.sqrt(law.mean * (1 - law.rare))
        b = 1.15 + 2.53 * deviation
        return deviation, -0.0873 + 0.0248 * b + 0.01 * law.rare, b

    def draw(wanted: Array) -> Array:
        whole, (deviation, _, b) = jnp.floor(law.mean), hat(law)
        steps = jnp.arange(2, dtype=whole.dtype)
        modes = jax.vmap(lambda step: law.log_probability(whole + step, step - (law.mean - whole)))(steps)
        log_hat = jnp.log((2.83 + 5.1 / b) * deviation) + jnp.max(modes, axis=0)
        return draws.until_accepted(key, propose, (law, log_hat), jnp.zeros_like(whole), wanted)

    def propose(key: Array, of: tuple[_Poisson | _Binomial, Array]) -> tuple[Array, Array]:
        of_place, of_level = jax.random.split(key)
        (law, log_hat), (_, a, b) = of, hat(of[0])
        whole = jnp.floor(law.mean)
        fraction = law.mean - whole
        u = jax.random.uniform(of_place, whole.shape, whole.dtype) - 0.5
        edge = 0.5 - jnp.abs(u)
        steps = jnp.floor((2 * a / edge + b) * u + fraction + 0.5)
        inside = (whole + steps >= 0) & (whole + steps <= law.most)
        steps = jnp.where(inside, steps, 0.0)
        level = jnp.log(draws.uniform(of_level, whole.shape, whole.dtype)) + log_hat - jnp.log(a / edge**2 + b)
        return whole + steps, inside & (level <= law.log_probability(whole + steps, steps - fraction))

    return shortcut(~jnp.any(wanted), lambda _: jnp.zeros_like(law.mean), draw, wanted)


# log k! − k log k + k for the first k, for which Stirling's series is not exact.
_RESTS = [0.0, *(math.lgamma(k + 1) - k * math.log(k) + k for k in range(1, 10))]


def _log_of_rest(number: Array) -> Array:
    """log k! − k log k + k."""
    few = number < len(_RESTS)
    rest = jnp.asarray(_RESTS, number.dtype)[jnp.where(few, number, 0).astype(jnp.int32)]
    many = jnp.where(few, len(_RESTS), number)
    return jnp.where(few, rest, 0.5 * jnp.log(2 * jnp.pi * many) + stirling_series(many))


def _divergence(number: Array, mean: Array, beyond: Array) -> Array:
    """x log(x / m) − x + m, of which x − m is known exactly (Loader 2000)."""
    near = -number * log1p_less(-beyond / jnp.maximum(number, 1.0))
    far = number * jnp.log(jnp.where(number > 0, number / mean, 1.0)) - beyond
    return jnp.where(jnp.abs(beyond) < 0.1 * (number + mean), near, far)
