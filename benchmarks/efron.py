"""Efron's asymptotics: LDA and logistic regression fitted to the same simulated rows, where both are right.

B. Efron, The efficiency of logistic regression compared to normal discriminant analysis, JASA 70 (1975) 892–898.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, special, stats

import jaxgen as jg
from benchmarks.replications import CHUNK_ROWS, each, rule_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array
    from jaxtyping import Float
    from rich.progress import Progress

FEATURES = 5  # of Efron's classes: one that tells them apart, and four that do not


class Covariance(NamedTuple):
    """n times the asymptotic covariance of the log odds b + wᵀx: of (b, w₁), and of each other w_j alone."""

    along: Float[np.ndarray, "2 2"]
    across: float


@dataclass(frozen=True)
class Normals:
    """Efron's classes N(−Δ/2·e₁, I) and N(+Δ/2·e₁, I): LDA and logistic regression are both right, LDA knows more.

    Attributes:
        distance: Δ, Mahalanobis' distance between the classes.
        prior: π₁, of the second class; π₀ = 1 − π₁.
    """

    distance: float
    prior: float

    @property
    def boundary(self) -> float:
        """Where on the axis both classes are equally probable: τ₀ = −log(π₁/π₀)/Δ."""
        return -float(special.logit(self.prior)) / self.distance

    @property
    def mixing(self) -> float:
        """π₀π₁."""
        return self.prior * (1 - self.prior)

    @cached_property
    def integrals(self) -> Float[np.ndarray, " 3"]:
        """A_i = ∫ exp(−Δ²/8) xⁱ φ(x) / (π₁ exp(Δx/2) + π₀ exp(−Δx/2)) dx for i = 0, 1, 2, by quadrature."""

        def integrand(x: float, i: int) -> float:
            odds = self.prior * math.exp(self.distance * x / 2) + (1 - self.prior) * math.exp(-self.distance * x / 2)
            return x**i * math.exp(-(self.distance**2) / 8 - x * x / 2) / (math.sqrt(2 * math.pi) * odds)

        # Beyond ±12 the normal density alone is below 1e-31.
        return np.array([integrate.quad(integrand, -12, 12, args=(i,), epsabs=1e-12, limit=200)[0] for i in range(3)])

    @cached_property
    def logistic(self) -> Covariance:
        """Of logistic regression: the inverse of Fisher's information E[p(1 − p) (1, x)(1, x)ᵀ]."""
        a0, a1, a2 = self.integrals
        information = self.mixing * np.array([[a0, a1], [a1, a2]])
        return Covariance(np.linalg.inv(information), 1 / float(self.mixing * a0))

    @cached_property
    def lda(self) -> Covariance:
        """Of LDA: that of the proportions, means and covariance, by the delta method."""
        cross = (2 * self.prior - 1) * self.distance / 2
        along = np.array([[1 + self.distance**2 / 4, cross], [cross, 1 + 2 * self.mixing * self.distance**2]])
        return Covariance(along / self.mixing, (1 + self.mixing * self.distance**2) / self.mixing)

    def efficiency(self, num_features: float = math.inf) -> float:
        """The share of the rows with which LDA does as well: the ratio of both regrets, LDA's the smaller.

        The boundary at x⊥ is off by (δb + τ₀ δw₁ + x⊥ᵀδw⊥)/Δ, and the regret is proportional to the mean of its square.
        In many dimensions the angle alone counts, which gives Efron's integral, (1 + π₀π₁Δ²) A₀.
        """
        if math.isinf(num_features):
            return self.lda.across / self.logistic.across
        lda, logistic = (
            self.direction @ covariance.along @ self.direction + (num_features - 1) * covariance.across
            for covariance in (self.lda, self.logistic)
        )
        return float(lda / logistic)

    @property
    def direction(self) -> Float[np.ndarray, " 2"]:
        """(1, τ₀): how (δb, δw₁) move the log odds on the boundary."""
        return np.array([1.0, self.boundary])

    @property
    def curvature(self) -> float:
        """The regret over (δb + τ₀ δw₁)² + |δw⊥|², where both are small."""
        return float(self.prior * stats.norm.pdf(self.boundary - self.distance / 2) / (2 * self.distance))

    def regret(self, rule: Float[np.ndarray, "... p+1"]) -> Float[np.ndarray, "..."]:
        """The exact error of rules (w, b), less Bayes': wᵀx is normal in either class."""
        rule = np.asarray(rule, np.float64)
        norm, half = np.linalg.norm(rule[..., :-1], axis=-1), self.distance / 2
        error = self.prior * special.ndtr(-(rule[..., -1] + half * rule[..., 0]) / norm)
        error += (1 - self.prior) * special.ndtr((rule[..., -1] - half * rule[..., 0]) / norm)
        least = self.prior * special.ndtr(self.boundary - half) + (1 - self.prior) * special.ndtr(-self.boundary - half)
        return error - least


def ratio(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> dict[str, float]:
    """The ratio of two means over the same replications, and its standard error by the delta method."""
    value = a.mean() / b.mean()
    return {"ratio": float(value), "error": float(np.std(a - value * b, ddof=1) / (b.mean() * math.sqrt(len(a))))}


def _cross_terms(influence: Float[Array, "n ..."]) -> Float[Array, "..."]:
    """What the products of different rows add to the square of a mean: 0 on average, where the rows' is 0."""
    return jnp.mean(influence, axis=0) ** 2 - jnp.mean(influence**2, axis=0) / influence.shape[0]


@partial(jax.jit, static_argnames="rows")
def _replicate(keys: Array, normals: dict[str, Array], rows: int) -> dict[str, Array]:
    """For each key a sample, and its two rules (w, b): LDA's and logistic regression's, by maximum likelihood.

    Beside them the cross terms of either's influence functions, of (1, τ₀)·(b, w₁) and summed over the other w_j.
    """
    delta, prior, boundary = normals["distance"], normals["prior"], normals["boundary"]

    def one(key: Array) -> dict[str, Array]:
        key_y, key_x = jax.random.split(key)
        y = jax.random.bernoulli(key_y, prior, (rows,))
        noise = jax.random.normal(key_x, (rows, FEATURES), jnp.float32)
        x = noise.at[:, 0].add(jnp.where(y, delta / 2, -delta / 2))
        labels = y.astype(jnp.int32)
        lda = jg.to_linear(jg.fit(jg.LDA(ridge=0.0), x, labels, num_classes=2))
        # LDA's rule is a start that saves Newton's method half of its steps; the optimum is the same.
        logistic, report = jg.train(jg.LogisticRegression(l2=0.0), x, labels, num_classes=2, start=lda)

        weight, first, others = jnp.where(y, 1 / prior, -1 / (1 - prior)), noise[:, 0], noise[:, 1:]
        lda_along = weight - delta / 2 * jnp.abs(weight) * first + boundary * (weight * first - delta * (first**2 - 1))
        lda_across = (weight - delta * first)[:, None] * others
        residual = y.astype(jnp.float32) - jax.nn.sigmoid(delta * (x[:, 0] - boundary))
        along, across = normals["along"], normals["across"]
        logistic_along = residual * (along[0] + along[1] * x[:, 0])
        logistic_across = across * residual[:, None] * others
        pairs = (lda_along, lda_across), (logistic_along, logistic_across)
        cross = [[_cross_terms(a), jnp.sum(_cross_terms(b))] for a, b in pairs]
        rules = jnp.stack([rule_of(lda), rule_of(logistic)])
        return {"rules": rules, "cross": jnp.array(cross), "converged": report.converged}

    return jax.lax.map(one, keys)


def simulate(cases: Sequence[Normals], rows: int, replications: int, progress: Progress) -> list[dict[str, Any]]:
    """Simulate the efficiency in each case, to be compared with its integral.

    To first order the mean square of an angle, and the regret, are squares of means over rows. In the square of a mean
    the products of different rows are noise whose expectation is zero, exactly. They are subtracted: that changes no
    expectation, whatever the theory, and leaves a small part of the variance. The record has both.

    Args:
        cases: the classes.
        rows: of a sample.
        replications: samples of each case.
        progress: where to report.
    """

    def chunk(item: tuple[Normals, Any]) -> Any:
        normals, keys = item
        terms = {
            "distance": normals.distance,
            "prior": normals.prior,
            "boundary": normals.boundary,
            "along": normals.direction @ normals.logistic.along,
            "across": normals.logistic.across,
        }
        return _replicate(keys, {name: np.asarray(value, np.float32) for name, value in terms.items()}, rows)

    chunks = -(-replications // max(1, CHUNK_ROWS // rows))
    shape = (chunks, -(-replications // chunks))
    items = []
    for i, normals in enumerate(cases):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1975), i), shape)
        items += [(normals, keys[j]) for j in range(chunks)]
    each(chunk, items[:1], progress, "compiling")
    results = iter(each(chunk, items, progress, "Efron's efficiency"))
    return [
        _summary(normals, rows, jax.tree.map(lambda *a: np.concatenate(a), *[next(results) for _ in range(chunks)]))
        for normals in cases
    ]


def _summary(normals: Normals, rows: int, result: dict[str, np.ndarray]) -> dict[str, Any]:
    """Both efficiencies of a case beside theory's."""
    rules, cross = (result[name].astype(np.float64) for name in ("rules", "cross"))
    angle = np.sum((rules[..., 1:-1] / rules[..., :1]) ** 2, axis=-1)
    regret = normals.regret(rules)
    quiet_angle = angle - cross[..., 1] / normals.distance**2
    quiet_regret = regret - normals.curvature * cross.sum(axis=-1)
    record: dict[str, Any] = {
        "distance": normals.distance,
        "prior": normals.prior,
        "rows": rows,
        "replications": len(rules),
        "informative_rows": rows / normals.logistic.across,
        "converged": float(result["converged"].mean()),
    }
    for name, noisy, quiet, theory in (
        ("angle", angle, quiet_angle, normals.efficiency()),
        ("regret", regret, quiet_regret, normals.efficiency(FEATURES)),
    ):
        found = ratio(*quiet.T)
        record[name] = {
            **found,
            "theory": theory,
            "z": (found["ratio"] - theory) / found["error"],
            "with_cross_terms": ratio(*noisy.T),
            "means": {"LDA": float(quiet[:, 0].mean()), "logistic regression": float(quiet[:, 1].mean())},
        }
    return record
