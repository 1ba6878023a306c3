"""LDA and logistic regression fitted to the same simulated rows: Efron's asymptotics, and truths that are not LDA's.

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
from jaxgen import shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from jaxtyping import Float, Int
    from rich.progress import Progress

FEATURES = 5  # of Efron's classes: one that tells them apart, and four that do not
CHUNK_ROWS = 2**17  # rows that one call draws and fits, in as many replications as they make


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


def each(function: Callable[[Any], Any], items: Sequence[Any], progress: Progress, name: str) -> list[Any]:
    """`function(item)` for each item, by a thread for each core, with a progress bar."""
    task = progress.add_task(name, total=len(items))

    def one(item: Any) -> Any:
        result = jax.device_get(function(item))
        progress.advance(task)
        return result

    return shares.over(one, items)


def _rule(line: jg.LinearClassifier) -> Float[Array, " d+1"]:
    """(w, b) of the log odds of the second class."""
    return jnp.append(line.weights[:, 1] - line.weights[:, 0], line.bias[1] - line.bias[0])


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
        rules = jnp.stack([_rule(lda), _rule(logistic)])
        return {"rules": rules, "cross": jnp.array(cross), "converged": report.converged}

    return jax.lax.map(one, keys)


def efron(cases: Sequence[Normals], rows: int, replications: int, progress: Progress) -> list[dict[str, Any]]:
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


@dataclass(frozen=True)
class Misfit:
    """Two classes of equal prior that a generative model is wrong about.

    Attributes:
        name: of the case.
        truth: how the features are distributed, in words.
        wrong: what the model takes for granted.
        estimator: the model.
        draw: features of rows whose labels are given, (n,) to (n, d).
        log_density: log p(x | y) of rows and a label, by SciPy.
    """

    name: str
    truth: str
    wrong: str
    estimator: jg.GDA
    draw: Callable[[Array, Int[Array, " n"]], Float[Array, "n d"]]
    log_density: Callable[[Float[np.ndarray, "n d"], int], Float[np.ndarray, " n"]]

    def posterior(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """p(y = 1 | x) of the truth."""
        return special.expit(self.log_density(x, 1) - self.log_density(x, 0))


DIMENSIONS = 10  # of the misfits
RATES = np.geomspace(1, 0.1, DIMENSIONS) * np.vstack([np.ones(DIMENSIONS), np.geomspace(1, 5, DIMENSIONS)])
FREEDOM = 3  # degrees, of Student's t
STUDENT_MEANS = np.outer([-1, 1], np.full(DIMENSIONS, 1 / math.sqrt(DIMENSIONS)))  # a distance of 2
CORRELATION = 0.5 ** np.abs(np.subtract.outer(np.arange(DIMENSIONS), np.arange(DIMENSIONS)))
NORMAL_MEANS = np.outer([-0.5, 0.5], np.linspace(1, 0.1, DIMENSIONS))


def _means(means: np.ndarray, y: Int[Array, " n"]) -> Float[Array, "n d"]:
    return jnp.asarray(means.astype(np.float32))[y]


def _counts(key: Array, y: Int[Array, " n"]) -> Float[Array, "n d"]:
    """Poisson counts by the inverse of their distribution function: as many as it has values below a uniform."""
    most = int(stats.poisson.ppf(1 - 1e-7, RATES.max()))
    below = jnp.asarray(stats.poisson.cdf(np.arange(most)[:, None, None], RATES).astype(np.float32))
    uniform = jax.random.uniform(key, (y.shape[0], DIMENSIONS), jnp.float32)

    def add(i: Array, count: Array) -> Array:
        return count + (uniform > below[i][y]).astype(jnp.float32)

    return jax.lax.fori_loop(0, most, add, jnp.zeros_like(uniform))


def _student(key: Array, y: Int[Array, " n"]) -> Float[Array, "n d"]:
    normal = jax.random.normal(key, (y.shape[0], DIMENSIONS + FREEDOM), jnp.float32)
    scale = jnp.sqrt(jnp.mean(normal[:, DIMENSIONS:] ** 2, axis=1, keepdims=True))
    return normal[:, :DIMENSIONS] / scale + _means(STUDENT_MEANS, y)


def _correlated(key: Array, y: Int[Array, " n"]) -> Float[Array, "n d"]:
    factor = jnp.asarray(np.linalg.cholesky(CORRELATION).T.astype(np.float32))
    normal = jax.random.normal(key, (y.shape[0], DIMENSIONS), jnp.float32)
    return jnp.matmul(normal, factor, precision=jax.lax.Precision.HIGHEST) + _means(NORMAL_MEANS, y)


def _log_correlated(x: Float[np.ndarray, "n d"], y: int) -> Float[np.ndarray, " n"]:
    covariance: Any = CORRELATION  # SciPy's type would be a number
    return stats.multivariate_normal.logpdf(x, NORMAL_MEANS[y], covariance)


MISFITS = [
    Misfit(
        "Poisson counts",
        "ten counts with rates from 1 down to 0.1, in class 1 from 1 to 5 times as large: the rarer, the more telling",
        "LDA takes counts for normal, with one covariance",
        jg.LDA(),
        _counts,
        lambda x, y: stats.poisson.logpmf(x, RATES[y]).sum(axis=1),
    ),
    Misfit(
        "heavy tails",
        "ten features, multivariate t with 3 degrees of freedom, the classes' centres 2 apart",
        "LDA takes tails for normal",
        jg.LDA(),
        _student,
        lambda x, y: stats.multivariate_t.logpdf(x, STUDENT_MEANS[y], df=FREEDOM),
    ),
    Misfit(
        "correlated features",
        "ten normal features with correlations ½^|i − j|, their means 1 to 0.1 deviations apart",
        "diagonal LDA takes features for independent",
        jg.GDA("diagonal", shared=True),
        _correlated,
        _log_correlated,
    ),
]
ESTIMATORS = list(dict.fromkeys(misfit.estimator for misfit in MISFITS))
# The generative model's rule comes first. A penalty of 1e-6 keeps the weights of separable samples finite, and is
# otherwise as good as none; that of 1 is the library's default.
RULES = ("generative", "logistic", "penalised")
PENALTIES = (1e-6, 1.0)


@partial(jax.jit, static_argnames="rows")
def _learn(keys: Array, case: Array, estimator: Array, sizes: Array, x: Array, posterior: Array, rows: int) -> Array:
    """For each key `rows` rows, each rule of the first so many, and its error on x whose posterior is known."""

    def generative(estimator: jg.GDA, x: Array, y: Array, weight: Array) -> Array:
        return _rule(jg.to_linear(jg.fit(estimator, x, y, num_classes=2, sample_weight=weight)))

    def one(key: Array) -> Array:
        key_y, key_x = jax.random.split(key)
        labels = jax.random.randint(key_y, (rows,), 0, 2, jnp.int32)
        sample = jax.lax.switch(case, [misfit.draw for misfit in MISFITS], key_x, labels)

        def fit(size: Array) -> Array:
            weight = (jnp.arange(rows, dtype=jnp.int32) < size).astype(jnp.float32)
            models = [partial(generative, estimator) for estimator in ESTIMATORS]
            rules = [jax.lax.switch(estimator, models, sample, labels, weight)]
            for l2 in PENALTIES:
                line, _ = jg.train(jg.LogisticRegression(l2=l2), sample, labels, num_classes=2, sample_weight=weight)
                rules.append(_rule(line))
            return jnp.stack(rules)

        rules = jax.lax.map(fit, sizes)
        scores = jnp.einsum("srd,nd->srn", rules, x, precision=jax.lax.Precision.HIGHEST)
        error = jnp.mean(jnp.where(scores > 0, 1 - posterior, posterior), axis=-1)
        return jnp.where(jnp.all(jnp.isfinite(rules), axis=-1), error, jnp.nan)

    return jax.lax.map(one, keys)


def learning_curves(
    plan: Mapping[int, tuple[Sequence[int], int]], test_rows: int, progress: Progress
) -> list[dict[str, Any]]:
    """The errors of all rules of each misfit against the size of the training sample, on the same samples.

    The error given x is known from the true posterior, so only the test rows' x is random, and all share those.

    Args:
        plan: by the rows that are drawn, the sizes of training samples that are heads of them, and the replications.
        test_rows: rows from the truth on which errors are means.
        progress: where to report.
    """
    tests = []
    for i, misfit in enumerate(MISFITS):
        key_y, key_x = jax.random.split(jax.random.fold_in(jax.random.key(2002), i))
        x = np.asarray(misfit.draw(key_x, jax.random.randint(key_y, (test_rows,), 0, 2, jnp.int32)))
        posterior = misfit.posterior(x.astype(np.float64))
        tests.append((np.hstack([x, np.ones_like(x[:, :1])]), posterior))

    def chunk(item: tuple[int, int, Any]) -> Any:
        i, rows, keys = item
        x, posterior = tests[i]
        estimator = np.int32(ESTIMATORS.index(MISFITS[i].estimator))
        sizes = np.asarray(plan[rows][0], np.int32)
        return _learn(keys, np.int32(i), estimator, sizes, x, posterior.astype(np.float32), rows)

    items, chunks = [], {}
    for rows, (_, replications) in plan.items():
        chunks[rows] = -(-replications // max(1, CHUNK_ROWS // 2 // rows))
        together = -(-replications // chunks[rows])
        for i in range(len(MISFITS)):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(rows), i), (chunks[rows], together))
            items += [(i, rows, keys[j]) for j in range(chunks[rows])]
    each(chunk, list({rows: (i, rows, keys) for i, rows, keys in items}.values()), progress, "compiling")
    results = iter(each(chunk, items, progress, "misfits"))
    records = [_describe(misfit, posterior) for misfit, (_, posterior) in zip(MISFITS, tests, strict=True)]
    for rows, (sizes, _) in plan.items():
        for record in records:
            errors = np.concatenate([next(results) for _ in range(chunks[rows])]).astype(np.float64)
            record["sizes"] += [_point(size, errors[:, j]) for j, size in enumerate(sizes)]
    for record in records:
        record["overtakes"] = {rule: overtakes(record["sizes"], rule) for rule in RULES[1:]}
    return records


def _describe(misfit: Misfit, posterior: np.ndarray) -> dict[str, Any]:
    least = np.minimum(posterior, 1 - posterior)
    return {
        "name": misfit.name,
        "truth": misfit.truth,
        "wrong": misfit.wrong,
        "bayes_error": float(least.mean()),
        "bayes_error_error": float(least.std(ddof=1) / math.sqrt(len(least))),
        "sizes": [],
    }


def _point(size: int, errors: Float[np.ndarray, "replications rules"]) -> dict[str, Any]:
    """Means, their standard errors, and the paired z of generative less logistic: positive where logistic is better."""
    root = math.sqrt(len(errors))
    point: dict[str, Any] = {"rows": size, "replications": len(errors)}
    for rule, column in zip(RULES, errors.T, strict=True):
        point[rule] = {"mean": float(column.mean()), "error": float(column.std(ddof=1) / root)}
        if rule != RULES[0]:
            difference = errors[:, 0] - column
            point[rule]["z"] = float(difference.mean() / (difference.std(ddof=1) / root))
    return point


def overtakes(points: Sequence[dict[str, Any]], rule: str) -> dict[str, float | None] | None:
    """The first size from which on a rule is better than the generative one, each time by two standard errors.

    With it the size at which the means met last before, by interpolation in its logarithm; None where the rule was
    better from the start. The whole is None where it is not better in the end.
    """
    gains = [point[RULES[0]]["mean"] - point[rule]["mean"] for point in points]
    first = len(points)
    while first and points[first - 1][rule]["z"] >= 2:
        first -= 1
    if first == len(points):
        return None
    sizes = np.log([point["rows"] for point in points])
    for i in range(first, 0, -1):
        if gains[i - 1] <= 0 < gains[i]:
            at = sizes[i - 1] + (sizes[i] - sizes[i - 1]) * gains[i - 1] / (gains[i - 1] - gains[i])
            return {"rows": points[first]["rows"], "crossing": float(np.exp(at))}
    return {"rows": points[first]["rows"], "crossing": None}
