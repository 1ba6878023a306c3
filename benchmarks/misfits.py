"""Truths that the generative model is wrong about, and the errors of both models on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import jaxgen as jg
from benchmarks.replications import CHUNK_ROWS, each, rule_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from jaxtyping import Float, Int
    from rich.progress import Progress


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
        return rule_of(jg.to_linear(jg.fit(estimator, x, y, num_classes=2, sample_weight=weight)))

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
                rules.append(rule_of(line))
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
