"""Every generative estimator, with data from its domain and an oracle for its density: what the laws run over.

A new family adds one line to `CASES`; one without a density, to `ESTIMATORS` alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import jaxgen as jg

if TYPE_CHECKING:
    from collections.abc import Callable

K, D = 3, 4
SIZES = (2, 3, 4, 3)  # of the categories of each feature
stats: Any = scipy.stats  # its stubs know less than it does


@dataclass(frozen=True)
class WithScores:
    """An estimator whose classifiers have scores."""

    name: str
    estimator: jg.GenerativeEstimator
    draw: Callable[[np.random.Generator, int], np.ndarray]
    linear: bool
    continuous: bool

    def data(self, n: int = 60, seed: int = 0, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
        """Rows and labels; every class occurs."""
        rng = np.random.default_rng(seed)
        return self.draw(rng, n).astype(dtype), rng.permutation(np.arange(n) % K)

    def scores(self, c: Any, x: Any) -> Any:
        """All that the classifier says of each class."""
        return jg.log_posterior(c, x)


@dataclass(frozen=True)
class Case(WithScores):
    """An estimator of densities and its oracle.

    `log_density(density, k, x)` is log p(x | k) of one row by SciPy, from the fitted parameters; `mle` are the
    hyperparameters of the maximum likelihood estimate; `unconstrained(density)` maps any values of the parameters to
    allowed ones and leaves allowed ones as they are.
    """

    log_density: Callable[[Any, int, np.ndarray], float]
    mle: dict[str, Any]
    unconstrained: Callable[[Any], Any]

    def scores(self, c: Any, x: Any) -> Any:
        """The log joint, which the posterior and the evidence are made of."""
        return jg.log_joint(c, x)


def _reals(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + 3.0


def _bits(rng: np.random.Generator, n: int) -> np.ndarray:
    return (rng.random((n, D)) < 0.4).astype(float)


def _counts(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.poisson(2.0, size=(n, D)).astype(float)


def _full(density: Any, k: int, x: np.ndarray) -> float:
    factor = np.asarray(density.cholesky)[k if density.cholesky.shape[0] > 1 else 0]
    return stats.multivariate_normal(np.asarray(density.mean[k]), factor @ factor.T).logpdf(x)


def _diagonal(density: Any, k: int, x: np.ndarray) -> float:
    scale = np.broadcast_to(np.asarray(density.scale), density.mean.shape)[k]
    return stats.norm(np.asarray(density.mean[k]), scale).logpdf(x).sum()


def _bernoulli(density: Any, k: int, x: np.ndarray) -> float:
    return stats.bernoulli(np.exp(np.asarray(density.log_present[k]))).logpmf(x).sum()


def _multinomial(density: Any, k: int, x: np.ndarray) -> float:
    return stats.multinomial(int(x.sum()), np.exp(np.asarray(density.log_probability[k]))).logpmf(x)


def _categories(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, SIZES, size=(n, D)).astype(float)


def _columns_of_each_kind(rng: np.random.Generator, n: int) -> np.ndarray:
    kinds = (rng.normal(size=n) + 3.0, rng.random(n) < 0.4, rng.integers(0, 3, n), rng.poisson(2.0, n))
    return np.stack(kinds, axis=1).astype(float)


def _poisson(density: Any, k: int, x: np.ndarray) -> float:
    return stats.poisson(np.exp(np.asarray(density.log_rate[k]))).logpmf(x).sum()


def _categorical(density: Any, k: int, x: np.ndarray) -> float:
    tables = np.split(np.asarray(density.log_probability[k]), np.cumsum(density.num_categories)[:-1])
    return sum(table[int(value)] for table, value in zip(tables, x, strict=True))


def _mixed(density: Any, k: int, x: np.ndarray) -> float:
    return sum(
        oracle(part, k, x[list(columns)])
        for oracle, part, columns in zip(
            (_poisson, _diagonal, _categorical, _bernoulli), density.densities, density.columns, strict=True
        )
    )


def _simplex_of_each(density: Any) -> Any:
    tables = jnp.split(density.log_probability, np.cumsum(density.num_categories)[:-1], axis=-1)
    return dataclasses.replace(density, log_probability=jnp.concatenate([_simplex(t) for t in tables], axis=-1))


def _each_unconstrained(density: Any) -> Any:
    events, numbers, categories, bits = density.densities
    return dataclasses.replace(density, densities=(events, numbers, _simplex_of_each(categories), _probabilities(bits)))


def _mixed_parts(**alpha: float) -> Any:
    ridge = {"ridge": 0.0} if alpha else {}
    exposure = {"exposure": 0.0} if alpha else {}
    return (
        (jg.PoissonNB(**alpha, **exposure), (3,)),
        (jg.GaussianNB(**ridge), (0,)),
        (jg.CategoricalNB(3, **alpha), (2,)),
        (jg.BernoulliNB(**alpha), (1,)),
    )


def _simplex(logs: Any) -> Any:
    return jax.nn.log_softmax(logs, axis=-1)


def _lower(density: Any) -> Any:
    return density._replace(cholesky=jnp.tril(density.cholesky))


def _probabilities(density: Any) -> Any:
    both = _simplex(jnp.stack([density.log_present, density.log_absent], axis=-1))
    return jg.Bernoulli(both[..., 0], both[..., 1])


_FULL = {"draw": _reals, "log_density": _full, "mle": {"ridge": 0.0}, "unconstrained": _lower, "continuous": True}
_DIAGONAL = {**_FULL, "log_density": _diagonal, "unconstrained": lambda density: density}
_COUNTING = {"mle": {"alpha": 0.0}, "linear": True, "continuous": False}

CASES = [
    Case("LDA", jg.LDA(), linear=True, **_FULL),
    Case("QDA", jg.QDA(), linear=False, **_FULL),
    Case("GaussianNB", jg.GaussianNB(), linear=False, **_DIAGONAL),
    Case("diagonal LDA", jg.GDA("diagonal", shared=True), linear=True, **_DIAGONAL),
    Case("spherical LDA", jg.GDA("spherical", shared=True), linear=True, **_DIAGONAL),
    Case("spherical QDA", jg.GDA("spherical", shared=False), linear=False, **_DIAGONAL),
    Case(
        "BernoulliNB", jg.BernoulliNB(), draw=_bits, log_density=_bernoulli, unconstrained=_probabilities, **_COUNTING
    ),
    Case(
        "MultinomialNB",
        jg.MultinomialNB(),
        draw=_counts,
        log_density=_multinomial,
        unconstrained=lambda density: jg.Multinomial(_simplex(density.log_probability)),
        **_COUNTING,
    ),
    Case(
        "PoissonNB",
        jg.PoissonNB(),
        draw=_counts,
        log_density=_poisson,
        unconstrained=lambda density: density,
        **_COUNTING | {"mle": {"alpha": 0.0, "exposure": 0.0}},
    ),
    Case(
        "CategoricalNB",
        jg.CategoricalNB(SIZES),
        draw=_categories,
        log_density=_categorical,
        unconstrained=_simplex_of_each,
        **_COUNTING | {"linear": False},
    ),
    Case(
        "MixedNB",
        jg.MixedNB(_mixed_parts()),
        draw=_columns_of_each_kind,
        log_density=_mixed,
        mle={"parts": _mixed_parts(alpha=0.0)},
        unconstrained=_each_unconstrained,
        linear=False,
        continuous=False,
    ),
]

ESTIMATORS = [*CASES, WithScores("ComplementNB", jg.ComplementNB(), draw=_counts, linear=True, continuous=False)]

# Between them these run most lines of the others, whose tests are `thorough`: a full covariance for each class; and the
# mixed one, which has Poisson, Gaussian, categorical and Bernoulli features.
_FIRST = ("QDA", "MixedNB")


def each(cases, first=_FIRST):
    """A test for each case."""
    parameters = [
        pytest.param(case, id=case.name, marks=[pytest.mark.thorough] * (case.name not in first)) for case in cases
    ]
    return pytest.mark.parametrize("case", parameters)


each_case = each(CASES)
each_estimator = each(ESTIMATORS)

FORMS = [(covariance, shared) for covariance in ("full", "diagonal", "spherical") for shared in (True, False)]
each_form = pytest.mark.parametrize(
    ("covariance", "shared"),
    [
        pytest.param(form, shared, marks=[pytest.mark.thorough] * ((form, shared) in FORMS[2:5:2]))
        for form, shared in FORMS
    ],
)
