"""Prior knowledge: pseudo-counts as tables, MAP estimates, evidence, predictive densities, shrinkage."""

import dataclasses
import itertools
from fractions import Fraction
from functools import partial
from math import fsum, log, prod
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats
import sklearn.covariance
import sklearn.discriminant_analysis
from jax.experimental import sparse as jsparse
from jax.test_util import check_grads
from registry import FORMS, each_form

import jaxgen as jg
from jaxgen import compressed, score_programs, threads
from jaxgen.rising import log_rising

K, D, N = 2, 3, 9
RNG = np.random.default_rng(0)
Y = np.arange(N) % K
REALS = RNG.normal(size=(N, D)) @ RNG.normal(size=(D, D)) + Y[:, None]
BITS = (RNG.random((N, D)) < 0.4).astype(float)
COUNTS = RNG.poisson(2.0, size=(N, D)).astype(float)
SIZES = (2, 4, 3)
VALUES = RNG.integers(0, SIZES, size=(N, D)).astype(float)
TABLE = RNG.gamma(2.0, size=(K, D))
FEATURE = np.repeat(np.arange(D), SIZES)  # of each category
INDICATORS = np.concatenate([np.eye(m)[VALUES[:, j].astype(int)] for j, m in enumerate(SIZES)], axis=1)
CATEGORIES = np.stack([INDICATORS[Y == k].sum(axis=0) for k in range(K)])
PRIORS = {"full": RNG.normal(size=(D, D)), "diagonal": np.array([0.5, 1.0, 3.0]), "spherical": 0.7}
PRIORS["full"] = PRIORS["full"] @ PRIORS["full"].T + np.eye(D)
stats = scipy.stats


def gda(covariance, shared, **keywords):
    prior = jg.NormalInverseWishart(np.array([0.3, -0.2, 1.0]), 0.8, PRIORS[covariance], 4.5)
    return jg.GDA(covariance, shared=shared, prior=dataclasses.replace(prior, **keywords))


FAMILIES = {
    "Bernoulli": (jg.BernoulliNB(alpha=TABLE, beta=np.array([0.4, 1.0, 2.0])), BITS),
    "multinomial": (jg.MultinomialNB(alpha=TABLE), COUNTS),
    "categorical": (jg.CategoricalNB(SIZES, alpha=TABLE), VALUES),
    "Poisson": (jg.PoissonNB(alpha=TABLE, exposure=np.array([[0.5], [2.0]])), COUNTS),
    "mixed": (
        jg.MixedNB(((jg.BernoulliNB(alpha=0.5), (1,)), (gda("full", True), (0, 3, 4)), (jg.PoissonNB(), (2,)))),
        np.column_stack([REALS[:, 0], BITS[:, 0], COUNTS[:, 0], REALS[:, 1:]]),
    ),
} | {f"{form} {'shared' if shared else 'own'}": (gda(form, shared), REALS) for form, shared in FORMS}
each_family = pytest.mark.parametrize(("estimator", "x"), FAMILIES.values(), ids=FAMILIES.keys())


# Pseudo-counts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rising_factorials_against_exact_products(dtype):
    rising = jax.jit(log_rising)
    for a, n in itertools.product((1e-6, 0.3, 1.0, 3.9, 15.9, 16.1, 1e4, 1e8), (0, 1, 5, 300)):
        a = dtype(a)
        unit = dtype(a + n)
        exact = fsum(log((Fraction(float(a)) + i) / Fraction(float(unit))) for i in range(n))
        value = rising(a, dtype(n), unit)
        np.testing.assert_allclose(value, exact, rtol=0, atol=30 * np.finfo(dtype).eps * max(n, abs(exact), 1))
    assert np.isnan(log_rising(jnp.array([0.0, -1.0, np.nan]), 1.0)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rising_factorials_of_next_to_nothing_have_exact_derivatives(dtype):
    """Of n = 0 nothing depends on a, and of a little n as much as is in proportion to it."""
    psi, eps = scipy.special.polygamma, np.finfo(dtype).eps
    a = np.array([1e-9, 1e-3, 0.3, 1.0, 17.0, 1e5], dtype)
    rising = jax.jit(lambda a, n: jnp.sum(log_rising(a, n, 2.0)))
    by_a, by_n = (jax.jit(jax.jacfwd(rising, i)) for i in (0, 1))
    mixed = jax.jit(jax.grad(lambda a, n: jnp.sum(jax.grad(rising, 1)(a, n))))
    none = np.zeros_like(a)
    assert rising(a, none) == 0.0
    for derivative in (by_a, jax.jit(jax.grad(rising))):
        np.testing.assert_array_equal(derivative(a, none), none)
        few = (1e-17 * a).astype(dtype)
        np.testing.assert_allclose(derivative(a, few), few * psi(1, a.astype(float)), rtol=20 * eps)
    np.testing.assert_allclose(by_n(a, none), psi(0, a.astype(float)) - np.log(2), rtol=20 * eps, atol=20 * eps)
    np.testing.assert_allclose(mixed(a, none), psi(1, a.astype(float)), rtol=20 * eps)


def test_unseen_words_add_nothing_to_the_evidence():
    """In float32, of a million words beside five, and of the words of 1,999 classes beside one."""
    words, psi = np.zeros((1, 10**6), np.float32), scipy.special.psi
    words[0, :5] = seen = 1, 2, 1, 3, 1
    alpha, counts = float(np.float32(1e-4)), np.array(seen, float)
    expected = 1e6 * (psi(1e6 * alpha) - psi(1e6 * alpha + 8)) + np.sum(psi(alpha + counts) - psi(alpha))
    statistics = jg.MultinomialNB().statistics(words, [0], num_classes=1)
    multinomial = lambda alpha: jg.log_marginal_likelihood(jg.MultinomialNB(alpha), statistics)  # noqa: E731
    events = jg.PoissonNB().statistics(words[:, 5:1005], [0], num_classes=2000)
    poisson = lambda alpha: jg.log_marginal_likelihood(jg.PoissonNB(alpha, 1.0), events)  # noqa: E731
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(multinomial)(np.float32(alpha)), expected, rtol=1e-5)
        np.testing.assert_allclose(derivative(poisson)(np.float32(1e-3)), -1000 * np.log(2), rtol=1e-5)
    np.testing.assert_allclose(poisson(np.float32(1e-3)), -np.log(2), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tiny_pseudo_count_has_its_derivative(dtype):
    counts, psi = COUNTS.astype(dtype), scipy.special.digamma
    counts[Y == 0, 1] = 0
    statistics = jg.MultinomialNB().statistics(counts, Y)
    evidence = jax.grad(lambda alpha: jg.log_marginal_likelihood(jg.MultinomialNB(alpha), statistics))
    seen = np.stack([counts[Y == k].sum(axis=0, dtype=float) for k in range(K)])
    for alpha in (1e-3, 1e-18, 1e-20, 1e-35):
        of_all = np.sum(D * (psi(D * alpha) - psi(D * alpha + seen.sum(axis=1))))
        expected = of_all + np.sum(psi(alpha + seen) - psi(alpha))
        np.testing.assert_allclose(evidence(dtype(alpha)), expected, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.7, TABLE[0], TABLE[:, :1], TABLE[:1], TABLE], ids=lambda a: str(np.shape(a)))
def test_pseudo_counts_are_tables_that_broadcast(alpha):
    exposure, beta = 2 * alpha, alpha**2
    rows = np.bincount(Y)[:, None]
    bits, counts = (np.stack([x[Y == k].sum(axis=0) for k in range(K)]) for x in (BITS, COUNTS))

    def fit(estimator, x):
        return np.exp(jax.tree.leaves(jg.fit(estimator, x, Y).density)[0])

    close = partial(np.testing.assert_allclose, rtol=1e-12)
    close(fit(jg.BernoulliNB(alpha, beta=beta), BITS), (bits + alpha) / (rows + alpha + beta))
    close(fit(jg.BernoulliNB(alpha), BITS), (bits + alpha) / (rows + 2 * alpha))
    close(fit(jg.MultinomialNB(alpha), COUNTS), (counts + alpha) / (counts + alpha).sum(axis=1, keepdims=True))
    close(fit(jg.PoissonNB(alpha, exposure), COUNTS), (counts + alpha) / (rows + exposure))
    by_category = np.broadcast_to(alpha, (K, D))[:, FEATURE]
    for given in (alpha, by_category, by_category[0]):
        smooth = CATEGORIES + (by_category[:1] if np.shape(given) == FEATURE.shape else by_category)
        total = smooth @ (FEATURE[:, None] == FEATURE)
        close(fit(jg.CategoricalNB(SIZES, given), VALUES), smooth / total)


def test_complement_takes_a_pseudo_count_for_each_word():
    alpha = np.array([0.5, 1.0, 2.0])
    other = np.stack([COUNTS[Y != k].sum(axis=0) for k in range(K)]) + alpha
    c = jg.fit(jg.ComplementNB(alpha), COUNTS, Y)
    np.testing.assert_allclose(np.exp(-c.weights.T), other / other.sum(axis=1, keepdims=True))


def test_estimators_with_tables_are_vmapped_and_differentiated():
    stack = jnp.asarray(np.stack([TABLE, 2 * TABLE]))
    fits = jax.vmap(lambda alpha: jg.fit(jg.PoissonNB(alpha, alpha), COUNTS, Y))(stack)
    for i in range(2):
        one = jg.fit(jg.PoissonNB(stack[i], stack[i]), COUNTS, Y)
        np.testing.assert_allclose(fits.density.log_rate[i], one.density.log_rate, rtol=1e-12)
    loss = lambda table: jnp.sum(jg.log_posterior(jg.fit(jg.CategoricalNB(SIZES, table), VALUES, Y), VALUES) ** 2)  # noqa: E731
    check_grads(jax.jit(loss), (jnp.asarray(TABLE),), order=1, rtol=1e-6, atol=1e-6)


# The Gaussian prior, by SciPy's densities


def blocks(covariance, sigma):
    """Every covariance of one class as pairs of features and the covariance of those, as `PRIORS` has them."""
    if covariance == "full":
        return [(slice(None), sigma)]
    return [(slice(j, j + 1), np.atleast_2d(sigma[j if covariance == "diagonal" else 0])) for j in range(D)]


def log_prior_and_likelihood(estimator, mean, sigmas, x, y):
    """log p(μ, Σ) + log p(x | y, μ, Σ) of one class or of those that share Σ."""
    form, prior = estimator.covariance, estimator.prior
    total = 0.0
    scales = [s for _, s in blocks(form, np.asarray(prior.scale).reshape(-1) if form == "spherical" else prior.scale)]
    for (features, sigma), scale in zip(blocks(form, sigmas), scales, strict=True):
        if form != "spherical" or features.start == 0:
            total += stats.invwishart(prior.degrees, scale).logpdf(sigma)
        for k in range(len(mean)):
            m, rows = mean[k][features], x[y == k][:, features]
            total += stats.multivariate_normal(prior.mean[features], sigma / prior.mean_weight).logpdf(m)
            total += np.sum(stats.multivariate_normal(m, sigma).logpdf(rows)) if len(rows) else 0.0
    return total


def groups(estimator):
    """Classes that share a covariance."""
    return [list(range(K))] if estimator.shared else [[k] for k in range(K)]


@each_form
def test_the_map_estimate_maximises_the_posterior(covariance, shared):
    estimator = gda(covariance, shared)
    c = jg.fit(estimator, REALS, Y)
    for g, classes in enumerate(groups(estimator)):
        x, y = REALS[np.isin(Y, classes)], np.searchsorted(classes, Y[np.isin(Y, classes)])

        def unpack(theta, size=D * (K if shared else 1)):
            mean, rest = theta[:size].reshape(-1, D), theta[size:]
            if covariance != "full":
                return mean, np.exp(rest)
            factor = np.zeros((D, D))
            factor[np.tril_indices(D)] = rest
            return mean, factor @ factor.T

        def loss(theta, x=x, y=y, unpack=unpack):
            return -log_prior_and_likelihood(estimator, *unpack(theta), x, y)

        root = np.asarray(c.density.cholesky[g] if covariance == "full" else c.density.scale[g])
        here = root[np.tril_indices(D)] if covariance == "full" else 2 * np.log(root)
        ours = np.concatenate([np.ravel(c.density.mean[np.array(classes)]), here])
        found = scipy.optimize.minimize(loss, ours + 0.1 * RNG.normal(size=ours.shape), tol=1e-10)
        np.testing.assert_allclose(ours, found.x, atol=2e-4)
        assert loss(ours) <= found.fun + 1e-9


@each_form
def test_evidence_is_prior_times_likelihood_by_posterior(covariance, shared):
    """log p(x) = log p(θ) + log p(x | θ) − log p(θ | x), at any θ (Chib 1995)."""
    estimator = gda(covariance, shared)
    evidence = jg.log_marginal_likelihood(estimator, estimator.statistics(REALS, Y))
    prior, expected = estimator.prior, 0.0
    sigma = PRIORS[covariance] if covariance == "full" else np.atleast_1d(np.asarray(PRIORS[covariance]))
    for classes in groups(estimator):
        x, y = REALS[np.isin(Y, classes)], np.searchsorted(classes, Y[np.isin(Y, classes)])
        mean = RNG.normal(size=(len(classes), D))
        expected += log_prior_and_likelihood(estimator, mean, sigma, x, y)
        after, scatter, weight = [], np.zeros((D, D)), []
        for k in range(len(classes)):
            rows = x[y == k]
            center, n = rows.mean(axis=0), len(rows)
            between = prior.mean_weight * n / (prior.mean_weight + n)
            scatter += (rows - center).T @ (rows - center)
            scatter += between * np.outer(center - prior.mean, center - prior.mean)
            after.append((prior.mean_weight * prior.mean + n * center) / (prior.mean_weight + n))
            weight.append(prior.mean_weight + n)
        if covariance == "full":
            scale = prior.scale + scatter
        elif covariance == "diagonal":
            scale = prior.scale + np.diag(scatter)
        else:
            scale = np.array([prior.scale + np.trace(scatter)])
        degrees = prior.degrees + len(x) * (D if covariance == "spherical" else 1)
        for i, ((features, one), (_, total)) in enumerate(
            zip(blocks(covariance, sigma), blocks(covariance, scale), strict=True)
        ):
            if covariance != "spherical" or i == 0:
                expected -= stats.invwishart(degrees, total).logpdf(one)
            for k in range(len(classes)):
                posterior = stats.multivariate_normal(after[k][features], one / weight[k])
                expected -= posterior.logpdf(mean[k][features])
    np.testing.assert_allclose(evidence, expected, rtol=1e-11)


def far_and_certain(shift, degrees, form, *, shared, center=0.0, rows_at_center=1.0, dtype=np.float32):
    """Rows of this dtype far from m₀ = 0, under a prior of so many degrees whose mean of Σ is about I; what NumPy makes
    of them in float64: the root of each posterior S, log |S| less that of S₀, and the evidence."""
    n, d = 40, 3
    y = np.arange(n) % K
    x = (np.random.default_rng(2).normal(size=(n, d)) + shift + y[:, None] * np.array([1.0, -1.0, 0.5])).astype(dtype)
    prior = jg.NormalInverseWishart(center, rows_at_center, degrees, degrees)
    estimator = jg.GDA(form, shared=shared, prior=prior)
    rows, start = x.astype(float), degrees * np.eye(d)
    added, seen = [], []
    for k in range(K):
        mine = rows[y == k]
        rest, mean = mine - mine.mean(axis=0), mine.mean(axis=0)
        share = len(mine) * rows_at_center / (len(mine) + rows_at_center)
        added.append(rest.T @ rest + share * np.outer(mean - center, mean - center))
        seen.append(len(mine))
    if shared:
        added, seen = [sum(added)], [n]
    total = -0.5 * K * d * np.log1p(n / K / rows_at_center) - 0.5 * n * d * np.log(np.pi)
    scales = [start + each for each in added]
    half, gammaln, multigammaln = degrees / 2, scipy.special.gammaln, scipy.special.multigammaln
    for each, count in zip(added, seen, strict=True):
        if form == "full":
            growth = np.sum(np.log1p(np.linalg.eigvalsh(each) / degrees))
            total += multigammaln(half + count / 2, d) - multigammaln(half, d)
            total -= half * growth + count / 2 * (growth + d * np.log(degrees))
        else:
            growth = np.log1p(np.diag(each) / degrees)
            total += d * (gammaln(half + count / 2) - gammaln(half))
            total -= np.sum(half * growth + count / 2 * (growth + np.log(degrees)))
    return estimator, x, y, scales, total


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", ["full", "diagonal"])
@pytest.mark.parametrize("degrees", [5.0, 1e4, 1e7])
@pytest.mark.parametrize("shift", [0.0, 1e3, 1e5])
def test_a_posterior_keeps_its_digits_in_float32_far_from_the_prior_and_under_a_strong_one(
    shift, degrees, form, shared
):
    estimator, x, y, scales, evidence = far_and_certain(shift, degrees, form, shared=shared)
    statistics = estimator.statistics(x, y)
    np.testing.assert_allclose(jg.log_marginal_likelihood(estimator, statistics), evidence, rtol=2e-6, atol=0.01)
    if form == "full":
        c: Any = jg.predictive(estimator, statistics)
        for scale, factor in zip(scales, np.asarray(c.density.cholesky, float), strict=True):
            freedom = float(c.density.degrees[0])
            # Of L⁻¹SL⁻ᵀ: about 1 in every direction.
            white = np.linalg.solve(factor, np.linalg.solve(factor, scale / freedom).T)
            np.testing.assert_allclose(np.linalg.eigvalsh(white), 1.0, atol=0.03)


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_the_evidence_of_a_strong_prior_has_its_derivative_in_float32(form):
    estimator, x, y, *_ = far_and_certain(0.0, 1e5, form, shared=False)
    high, low = (far_and_certain(0.0, degrees, form, shared=False)[-1] for degrees in (1.01e5, 0.99e5))

    def evidence(degrees):
        prior = dataclasses.replace(estimator.prior, scale=degrees, degrees=degrees)
        return jg.log_marginal_likelihood(dataclasses.replace(estimator, prior=prior), estimator.statistics(x, y))

    np.testing.assert_allclose(jax.grad(evidence)(np.float32(1e5)), (high - low) / 2e3, rtol=0.1)


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_evidence_far_from_the_prior_mean_has_its_derivatives_in_float32(shared):
    estimator, x, y, *_ = far_and_certain(1e4, 5.0, "full", shared=shared)
    statistics = estimator.statistics(x, y)

    def evidence(given):
        prior = dataclasses.replace(estimator.prior, mean=given[0], mean_weight=given[1])
        return jg.log_marginal_likelihood(dataclasses.replace(estimator, prior=prior), statistics)

    gradient = jax.grad(evidence)((np.float32(0.0), np.float32(1.0)))
    for name, given, h, found in (("center", 0.0, 1.0, gradient[0]), ("rows_at_center", 1.0, 1e-4, gradient[1])):
        high, low = (far_and_certain(1e4, 5.0, "full", shared=shared, **{name: given + step})[-1] for step in (h, -h))
        np.testing.assert_allclose(found, (high - low) / (2 * h), rtol=2e-3)


def test_a_prior_scale_that_is_lost_in_float32_is_an_error_where_it_matters():
    x, y = np.array([[1000.0, 2000, 500], [1010, 1930, 541]], np.float32), np.zeros(2, int)
    estimator = jg.QDA(prior=jg.NormalInverseWishart(mean=x.mean(0), scale=1e-4))
    statistics = estimator.statistics(x, y)
    for verb in (jg.log_marginal_likelihood, jg.predictive):
        with pytest.raises(ValueError, match="lost in their rounding"):
            verb(estimator, statistics)
    assert np.isfinite(jg.estimate(estimator, statistics).density.cholesky).all()
    wide = estimator.statistics(x.astype(float), y)
    assert np.isfinite(jg.log_marginal_likelihood(estimator, wide))


def test_a_prior_scale_may_be_of_features_in_any_units():
    unit, rng = np.where(np.arange(32) % 2 == 0, 1e-4, 1e4), np.random.default_rng(0)
    factor = rng.normal(size=(32, 32)) / 32**0.5
    jg.NormalInverseWishart(scale=(factor @ factor.T + np.eye(32)) * np.outer(unit, unit)).check()
    for wrong in (np.array([[1e-9, 5e-10], [-5e-10, 1e-9]]), np.array([[1.0, 1e4], [1e4, 1e8]])):
        with pytest.raises(ValueError, match="symmetric and positive definite"):
            jg.NormalInverseWishart(scale=wrong - np.diag([0, 1e-3 * wrong[1, 1]])).check()


def test_evidence_of_one_feature_by_quadrature():
    x, y = np.array([0.5, 1.5, -0.3]), np.zeros(3, int)
    prior = jg.NormalInverseWishart(mean=0.2, mean_weight=2.0, scale=1.5, degrees=3.0)

    mu, spread = np.linspace(-60, 60, 6001)[:, None], np.linspace(-8, 12, 401)[None]  # of smooth tails
    variance = np.exp(spread)
    density = stats.invgamma.pdf(variance, 1.5, scale=0.75) * variance
    density = density * stats.norm.pdf(mu, 0.2, np.sqrt(variance / 2.0))
    density = density * np.prod([stats.norm.pdf(point, mu, np.sqrt(variance)) for point in x], axis=0)
    expected = density.sum() * (mu[1, 0] - mu[0, 0]) * (spread[0, 1] - spread[0, 0])
    for form, shared in FORMS:
        estimator = jg.GDA(form, shared=shared, prior=prior)
        evidence = jg.log_marginal_likelihood(estimator, estimator.statistics(x[:, None], y))
        np.testing.assert_allclose(np.exp(evidence), expected, rtol=1e-6)


def test_evidence_of_counts_by_scipy():
    rows = np.bincount(Y)

    def evidence(name):
        estimator, x = FAMILIES[name]
        return jg.log_marginal_likelihood(estimator, estimator.statistics(x, Y))

    beta, total = np.array([0.4, 1.0, 2.0]), 0.0
    for k, j in itertools.product(range(K), range(D)):
        n1 = BITS[Y == k, j].sum()
        total += stats.betabinom(rows[k], TABLE[k, j], beta[j]).logpmf(n1) - log(scipy.special.comb(rows[k], n1))
    np.testing.assert_allclose(evidence("Bernoulli"), total, rtol=1e-12)
    for name, groups in (("multinomial", [slice(None)]), ("categorical", [slice(0, 2), slice(2, 6), slice(6, 9)])):
        x, alpha = (COUNTS, TABLE) if name == "multinomial" else (INDICATORS, TABLE[:, FEATURE])
        total = 0.0
        for k, group in itertools.product(range(K), groups):
            n = x[Y == k].sum(axis=0)[group]
            total += stats.dirichlet_multinomial(alpha[k, group], n.sum().astype(int)).logpmf(n.astype(int))
            total -= log(prod(range(1, int(n.sum()) + 1))) - sum(log(prod(range(1, int(m) + 1))) for m in n)
        np.testing.assert_allclose(evidence(name), total, rtol=1e-12)
    total, exposure = 0.0, (0.5, 2.0)
    for k, j in itertools.product(range(K), range(D)):
        events = COUNTS[Y == k, j]
        gamma = stats.gamma(TABLE[k, j], scale=1 / exposure[k])
        likelihood = lambda rate, gamma=gamma, e=events: gamma.pdf(rate) * rate ** e.sum() * np.exp(-len(e) * rate)  # noqa: E731
        total += log(scipy.integrate.quad(likelihood, 0, 40, epsabs=0, epsrel=1e-10, limit=200)[0])
    np.testing.assert_allclose(evidence("Poisson"), total, rtol=1e-8)


def evidence_by_the_chain_rule(estimator, x, **observed):
    """log p(x_1 … x_n) = Σ_i log p(x_i | x_1 … x_(i−1)), from no rows at all."""

    @jax.jit
    def log_next(i):
        weight = (jnp.arange(N) < i).astype(float)
        seen = estimator.statistics(x, Y, num_classes=K, sample_weight=weight, **observed)
        row = {name: jnp.asarray(mask)[i] for name, mask in observed.items()}
        return jg.log_likelihood(jg.predictive(estimator, seen), jnp.asarray(x)[i], **row)[jnp.asarray(Y)[i]]

    return sum(float(log_next(i)) for i in range(N))


@each_family
def test_evidence_is_the_product_of_predictive_densities(estimator, x):
    total = evidence_by_the_chain_rule(estimator, x)
    left_out = scipy.special.gammaln(COUNTS + 1)
    if isinstance(estimator, jg.MultinomialNB):
        total -= scipy.special.gammaln(COUNTS.sum(axis=1) + 1).sum() - left_out.sum()
    if isinstance(estimator, jg.PoissonNB):
        total += left_out.sum()
    if isinstance(estimator, jg.MixedNB):
        total += left_out[:, 0].sum()
    np.testing.assert_allclose(jg.log_marginal_likelihood(estimator, estimator.statistics(x, Y)), total, rtol=1e-10)


@pytest.mark.parametrize("name", ["Bernoulli", "diagonal own", "spherical own", "spherical shared"])
def test_evidence_with_missing_features_is_as_well(name):
    (estimator, x), observed = FAMILIES[name], RNG.random((N, D)) < 0.7
    evidence = jg.log_marginal_likelihood(estimator, estimator.statistics(x, Y, observed=observed))
    np.testing.assert_allclose(evidence, evidence_by_the_chain_rule(estimator, x, observed=observed), rtol=1e-10)


# Predictive densities


def compound(density):
    return jg.Classifier(jnp.log(jnp.full(K, 1 / K)), density)


L = np.linalg.cholesky(PRIORS["full"])
DENSITIES = {
    "DirichletMultinomial": (
        jg.DirichletMultinomial(jnp.asarray(TABLE)),
        COUNTS,
        lambda k, x: stats.dirichlet_multinomial(TABLE[k], int(x.sum())).logpmf(x.astype(int)),
    ),
    "NegativeBinomial": (
        jg.NegativeBinomial(jnp.asarray(TABLE), jnp.array([[0.5], [2.0]])),
        COUNTS,
        lambda k, x: stats.nbinom(TABLE[k], [0.5 / 1.5, 2 / 3][k]).logpmf(x).sum(),
    ),
    "StudentT": (
        jg.StudentT(jnp.asarray(TABLE), jnp.stack([L, 2 * L]), jnp.array([6.0, 9.0]), jnp.array([1.0, 0.5])),
        REALS,
        lambda k, x: stats.multivariate_t(TABLE[k], PRIORS["full"], [6, 9][k]).logpdf(x),
    ),
    "shared StudentT": (
        jg.StudentT(jnp.asarray(TABLE), L[None], jnp.array([7.0]), jnp.array([1.0, 2.0])),
        REALS,
        lambda k, x: stats.multivariate_t(TABLE[k], (k + 1) ** 2 * PRIORS["full"], 7).logpdf(x),
    ),
    "DiagonalStudentT": (
        jg.DiagonalStudentT(jnp.asarray(TABLE), jnp.asarray(TABLE[::-1]), jnp.array([[5.0], [8.0]])),
        REALS,
        lambda k, x: stats.t([5, 8][k], TABLE[k], TABLE[1 - k]).logpdf(x).sum(),
    ),
}
each_density = pytest.mark.parametrize(("density", "x", "oracle"), DENSITIES.values(), ids=DENSITIES.keys())


@each_density
def test_predictive_densities_equal_scipy(density, x, oracle):
    c = compound(density)
    expected = np.array([[oracle(k, row) for k in range(K)] for row in x])
    np.testing.assert_allclose(jg.log_likelihood(c, x), expected, rtol=1e-10)
    posterior = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), posterior, rtol=1e-9)
    with pytest.raises(TypeError, match="not linear in x"):
        jg.to_linear(c)


@pytest.mark.parametrize("name", ["DirichletMultinomial", pytest.param("NegativeBinomial", marks=pytest.mark.thorough)])
def test_predictive_densities_of_counts_take_sparse_rows(name):
    density, x, oracle = DENSITIES[name]
    c, expected = compound(density), np.array([[oracle(k, row) for k in range(K)] for row in x])
    posterior = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    rows, columns = (np.tile(index.ravel(), 2) for index in np.indices(x.shape))  # zeros too, and two of each place
    values = np.concatenate([np.minimum(x, 1).ravel(), np.maximum(x - 1, 0).ravel()]).astype(float)
    entries = jsparse.BCOO(
        (jnp.asarray(values), jnp.stack([jnp.asarray(rows), jnp.asarray(columns)], 1)), shape=x.shape
    )
    for sparse in (scipy.sparse.csr_array(x), scipy.sparse.coo_matrix((values, (rows, columns)), x.shape), entries):
        np.testing.assert_allclose(jg.log_likelihood(c, sparse), expected, rtol=1e-10)
        np.testing.assert_allclose(np.exp(jg.log_posterior(c, sparse)), posterior, rtol=1e-9)
    np.testing.assert_allclose(jax.jit(jg.log_likelihood)(c, entries), expected, rtol=1e-10)
    counts = jg.pad_rows(scipy.sparse.csr_array(x))
    np.testing.assert_allclose(jg.log_likelihood(c, counts), expected, rtol=1e-10)

    @jax.jit
    def evidence(density):
        return jnp.sum(jg.log_evidence(compound(density), entries))

    check_grads(evidence, (density,), 1, modes=["rev"])


def test_sparse_rows_are_dealt_out_to_the_cores_and_share_a_program(monkeypatch):
    monkeypatch.setattr(compressed, "_FEW_ENTRIES", 0)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    density, x, oracle = DENSITIES["DirichletMultinomial"]
    rows = np.concatenate([np.zeros_like(x[:2]), np.tile(x, (5, 1)), 3 * x])
    expected = np.array([[oracle(k, row) for k in range(K)] for row in rows])
    before = score_programs.program._cache_size()
    found = jg.log_likelihood(compound(density), scipy.sparse.csr_array(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
    assert score_programs.program._cache_size() == before + 1
    rows[-1, 1] = 0.0
    negative = scipy.sparse.csr_array(rows.astype(float))
    negative.data[-1] = -1.0
    with pytest.raises(ValueError, match=f"found -1.0 at row {len(rows) - 1}, column"):
        jg.log_posterior(compound(density), negative)
    assert jg.log_likelihood(compound(density), scipy.sparse.csr_array((0, x.shape[1]))).shape == (0, K)


def test_posteriors_of_long_documents_keep_their_digits_in_float32():
    rng = np.random.default_rng(0)
    alpha = rng.gamma(1.0, 0.1, size=(4, 5_000)).astype(np.float32) + np.float32(0.01)
    x = np.stack([rng.multinomial(1_000, rng.dirichlet(np.ones(5_000))) for _ in range(20)])
    rates = np.float32([[0.5], [1.0], [1.5], [2.0]])
    exact = alpha.astype(float)
    words = [stats.dirichlet_multinomial(exact[k], x.sum(axis=1)).logpmf(x) for k in range(4)]
    events = [stats.nbinom(exact[k], rates[k] / (1 + rates[k].astype(float))).logpmf(x).sum(axis=1) for k in range(4)]
    for density, expected in (
        (jg.DirichletMultinomial(jnp.asarray(alpha)), words),
        (jg.NegativeBinomial(jnp.asarray(alpha), jnp.asarray(rates)), events),
    ):
        c = jg.Classifier(jnp.zeros(4, np.float32), density)
        posterior = np.stack(expected, axis=1)
        posterior -= scipy.special.logsumexp(posterior, axis=1, keepdims=True)
        found = np.asarray(jg.log_posterior(c, scipy.sparse.csr_array(x.astype(np.float32))))
        np.testing.assert_allclose(found, posterior, rtol=2e-5, atol=5e-3)


@pytest.mark.parametrize("density", [jg.DirichletMultinomial, lambda a: jg.NegativeBinomial(a, jnp.ones((2, 1)))])
def test_a_parameter_that_is_not_positive_is_seen_in_sparse_rows(density):
    c = jg.Classifier(jnp.zeros(2), density(jnp.array([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])))  # of a word that is absent
    x = np.array([[1.0, 0.0, 2.0]])
    for rows in (x, scipy.sparse.csr_array(x)):
        np.testing.assert_array_equal(np.isnan(jg.log_likelihood(c, rows)), [[True, False]])


@each_density
@pytest.mark.thorough
def test_predictive_densities_have_their_moments_and_marginals(density, x, oracle):
    c, total = compound(density), 6 if isinstance(density, jg.DirichletMultinomial) else None
    draws = np.asarray(jg.sample(jax.random.key(0), c, 40_000, y=np.ones(40_000, int), total_count=total)[0])
    if isinstance(density, jg.DirichletMultinomial):
        law = stats.dirichlet_multinomial(TABLE[1], 6)
        mean, covariance = law.mean(), law.cov()
        np.testing.assert_array_equal(draws.sum(axis=1), 6)
    elif isinstance(density, jg.NegativeBinomial):
        law = stats.nbinom(TABLE[1], 2 / 3)
        mean, covariance = law.mean(), np.diag(law.var())
    else:
        mean = TABLE[1]
        nu, scale = {2: (9, PRIORS["full"]), 1: (7, 4 * PRIORS["full"])}.get(
            0 if isinstance(density, jg.DiagonalStudentT) else len(density.cholesky), (8, np.diag(TABLE[0] ** 2))
        )
        covariance = scale * nu / (nu - 2)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.03 * deviation.max())
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(deviation, deviation),
                               covariance / np.outer(deviation, deviation), atol=0.1)  # fmt: skip
    observed = np.array([True, False, True])
    some = jg.log_likelihood(c, np.where(observed, x, np.nan), observed=np.broadcast_to(observed, x.shape))
    if isinstance(density, jg.StudentT):
        covariances = np.einsum("kij,klj->kil", density.cholesky, density.cholesky)[:, observed][:, :, observed]
        mine = density._replace(mean=density.mean[:, observed], cholesky=np.linalg.cholesky(covariances))
    else:
        mine = density._replace(**{
            name: leaf[:, observed] if leaf.shape[1] == D else leaf for name, leaf in density._asdict().items()
        })  # fmt: skip
    np.testing.assert_allclose(some, jg.log_likelihood(compound(mine), x[:, observed]), rtol=1e-10)
    nothing = jg.log_likelihood(c, x, observed=np.zeros(x.shape, bool))
    np.testing.assert_allclose(nothing, 0.0, atol=1e-12)


def test_dirichlet_multinomial_sums_to_one_over_documents_of_a_length():
    documents = np.array([x for x in itertools.product(range(6), repeat=D) if sum(x) == 5], float)
    estimator, x = FAMILIES["multinomial"]
    c = jg.predictive(estimator, estimator.statistics(x, Y))
    np.testing.assert_allclose(np.exp(jg.log_likelihood(c, documents)).sum(axis=0), 1.0, rtol=1e-12)


def test_the_predictive_of_a_bernoulli_is_the_estimate():
    for name in ("Bernoulli", "categorical"):
        estimator, x = FAMILIES[name]
        statistics = estimator.statistics(x, Y)
        both = jg.predictive(estimator, statistics), jg.estimate(estimator, statistics)
        jax.tree.map(np.testing.assert_array_equal, *both)


@pytest.mark.parametrize(
    "name",
    ["multinomial", "Poisson", "full own"]
    + [pytest.param(name, marks=pytest.mark.thorough) for name in ("diagonal shared", "spherical own")],
)
def test_the_predictive_of_much_data_is_nearly_the_estimate(name):
    estimator, x = FAMILIES[name]
    statistics = jg.scale(estimator.statistics(x, Y), 1e7)
    both = [jg.log_likelihood(f(estimator, statistics), x) for f in (jg.predictive, jg.estimate)]
    np.testing.assert_allclose(*both, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["Bernoulli", "multinomial", "Poisson", "full shared", "diagonal own", "spherical own"]
)
@pytest.mark.thorough
def test_evidence_and_predictive_of_float32_keep_their_digits(name):
    """Of a million rows, whose log gamma functions are as large as the evidence and lose its digits."""
    estimator, x = FAMILIES[name]

    def both(dtype):
        statistics = jg.scale(estimator.statistics(x.astype(dtype), Y), 1e5)
        c = jg.predictive(estimator, statistics)
        return jg.log_marginal_likelihood(estimator, statistics), jg.log_likelihood(c, x.astype(dtype))

    (evidence, scores), (exact, exact_scores) = both(np.float32), both(np.float64)
    assert evidence.dtype == scores.dtype == np.float32
    ill = 50 if name == "full shared" else 1  # nine rows in three dimensions
    np.testing.assert_allclose(evidence, exact, rtol=1e-6 * ill)
    np.testing.assert_allclose(scores, exact_scores, rtol=2e-6 * ill, atol=2e-6 * ill)


@pytest.mark.parametrize(
    ("covariance", "shared"),
    [
        ("diagonal", True),
        *(pytest.param(form, False, marks=pytest.mark.thorough) for form in ("full", "spherical")),
    ],
)
def test_a_large_mean_costs_no_digits_in_float32(covariance, shared):
    x = (REALS + 1e4).astype(np.float32)
    estimator = gda(covariance, shared, mean=np.float32(1e4) + np.array([0.5, 1.0, 2.0], np.float32))
    results = []
    for dtype in (np.float32, np.float64):
        statistics = estimator.statistics(x.astype(dtype), Y)
        c, p = jg.estimate(estimator, statistics), jg.predictive(estimator, statistics)
        evidence = jg.log_marginal_likelihood(estimator, statistics)
        results.append((evidence, jg.log_likelihood(c, x.astype(dtype)), jg.log_likelihood(p, x.astype(dtype))))
    for single, double in zip(*results, strict=True):
        np.testing.assert_allclose(single, double, rtol=5e-4, atol=2e-3)


@pytest.mark.parametrize("name", ["Poisson", "diagonal shared"])
def test_missing_features_are_integrated_out_of_the_evidence(name):
    estimator, x = FAMILIES[name]
    observed = RNG.random(x.shape) < 0.7
    statistics = estimator.statistics(x, Y, observed=observed)
    total = 0.0
    for j in range(D):
        if isinstance(estimator, jg.GDA):
            prior = estimator.prior
            prior = dataclasses.replace(prior, mean=prior.mean[j : j + 1], scale=prior.scale[j : j + 1])
            one = dataclasses.replace(estimator, prior=prior)
        else:
            names = [name for name in ("alpha", "beta", "exposure") if hasattr(estimator, name)]
            tables = {name: np.broadcast_to(getattr(estimator, name), (K, D))[:, j : j + 1] for name in names}
            one = dataclasses.replace(estimator, **tables)
        rows = observed[:, j]
        column = one.statistics(x[rows, j : j + 1], Y[rows], num_classes=K)
        total += float(jg.log_marginal_likelihood(one, column))
    np.testing.assert_allclose(jg.log_marginal_likelihood(estimator, statistics), total, rtol=1e-10)


def test_a_second_call_compiles_nothing_and_vmap_over_a_prior_equals_a_loop():
    estimator, x = FAMILIES["full shared"]
    statistics = estimator.statistics(x, Y)
    scales = jnp.array([0.5, 1.0, 2.0])
    stack = jax.vmap(lambda s: dataclasses.replace(estimator, prior=jg.NormalInverseWishart(scale=s)))(scales)
    evidence = jax.vmap(lambda e: jg.log_marginal_likelihood(e, statistics))(stack)
    classifiers = jax.vmap(lambda e: jg.predictive(e, statistics))(stack)
    points = jax.vmap(jg.log_joint, in_axes=(0, None))(classifiers, x)
    for i, s in enumerate(scales):
        one = dataclasses.replace(estimator, prior=jg.NormalInverseWishart(scale=s))
        with jax.no_tracing(i == 2):
            both = jg.log_marginal_likelihood(one, statistics), jg.log_joint(jg.predictive(one, statistics), x)
        np.testing.assert_allclose(both[0], evidence[i], rtol=1e-12)
        np.testing.assert_allclose(both[1], points[i], rtol=1e-10)


# Gradients


@pytest.mark.parametrize(
    "name",
    ["Bernoulli", "full own"]
    + [
        pytest.param(name, marks=pytest.mark.thorough)
        for name in ("multinomial", "categorical", "Poisson", "diagonal shared", "spherical own")
    ],
)
def test_gradients_of_evidence_and_predictive_by_hyperparameters(name):
    (estimator, x), modes = FAMILIES[name], ("fwd", "rev") if name == "full own" else ("rev",)
    statistics = estimator.statistics(x, Y)

    @jax.jit
    def both(estimator):
        scores = jg.log_likelihood(jg.predictive(estimator, statistics), x[:2])
        return jg.log_marginal_likelihood(estimator, statistics), jnp.sum(jnp.sin(scores))

    float_leaves = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), estimator)
    check_grads(both, (float_leaves,), order=1, modes=modes, rtol=1e-5, atol=1e-5)


def test_empirical_bayes_finds_the_pseudo_count_that_scipy_finds():
    words = COUNTS * np.array([1.0, 3.0, 7.0])
    statistics = jg.MultinomialNB().statistics(words, Y)
    loss = lambda t: -jg.log_marginal_likelihood(jg.MultinomialNB(jnp.exp(t)), statistics)  # noqa: E731
    newton = jax.jit(lambda t: t - jax.grad(loss)(t) / jax.hessian(loss)(t))
    t = jnp.asarray(0.0)
    for _ in range(12):
        t = newton(t)
    n = [words[Y == k].sum(axis=0).astype(int) for k in range(K)]
    found = scipy.optimize.minimize_scalar(
        lambda t: -sum(stats.dirichlet_multinomial(np.full(D, np.exp(t)), m.sum()).logpmf(m) for m in n), (0.0, 3.0)
    )
    np.testing.assert_allclose(t, found.x, rtol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        gda("full", False),
        jg.QDA(pooling=jnp.asarray(0.3), shrinkage=jnp.array([0.2, 0.5])),
        jg.GaussianNB(pooling=jnp.asarray(0.0), shrinkage=jnp.asarray(0.2)),
        jg.LDA(shrinkage=jnp.asarray(0.4), target="diagonal"),
    ],
    ids=["prior", "QDA", "GaussianNB", "LDA"],
)
@pytest.mark.thorough
def test_gradients_of_regularised_fits(estimator):
    def loss(estimator, x):
        return jnp.sum(jnp.sin(jg.log_joint(jg.fit(estimator, x, Y), REALS[:2])))

    estimator = dataclasses.replace(estimator, prior_alpha=0.1)
    estimator = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), estimator)
    if estimator.prior is None and estimator.pooling == 0:  # the edge of what is allowed
        loss_at = jax.jit(lambda pooling: loss(dataclasses.replace(estimator, pooling=pooling), REALS))
        step = 1e-6
        numerical = (4 * loss_at(step) - loss_at(2 * step) - 3 * loss_at(0.0)) / (2 * step)
        np.testing.assert_allclose(jax.grad(loss_at)(0.0), numerical, rtol=1e-4)
        estimator = dataclasses.replace(estimator, pooling=jnp.asarray(0.1))
    estimator = dataclasses.replace(estimator, ridge=jnp.asarray(0.1))
    check_grads(jax.jit(loss), (estimator, jnp.asarray(REALS)), order=1, modes=("rev",), rtol=1e-4, atol=1e-4)


# Regularised discriminant analysis and Ledoit & Wolf


def regularised(x, y, pooling, shrinkage, target):
    """Friedman (1989), in NumPy."""
    scatters = np.stack(
        [(x[y == k] - x[y == k].mean(axis=0)).T @ (x[y == k] - x[y == k].mean(axis=0)) for k in range(K)]
    )
    rows = np.bincount(y)[:, None, None]
    sigma = ((1 - pooling) * scatters + pooling * scatters.sum(axis=0)) / ((1 - pooling) * rows + pooling * len(y))
    shrinkage = np.broadcast_to(shrinkage, K)
    simple = [np.eye(D) * np.trace(s) / D if target == "spherical" else np.diag(np.diag(s)) for s in sigma]
    return np.stack([(1 - g) * s + g * t for g, s, t in zip(shrinkage, sigma, simple, strict=True)])


@pytest.mark.parametrize("target", ["spherical", "diagonal"])
@pytest.mark.parametrize(("pooling", "shrinkage"), [(0.0, 0.3), (0.4, 0.0), (0.7, np.array([0.1, 0.9])), (1.0, 1.0)])
def test_regularised_discriminant_analysis_against_numpy(pooling, shrinkage, target):
    expected = regularised(REALS, Y, pooling, shrinkage, target)
    full = jg.fit(jg.QDA(0.0, pooling=pooling, shrinkage=shrinkage, target=target), REALS, Y).density
    np.testing.assert_allclose(np.einsum("kij,klj->kil", full.cholesky, full.cholesky), expected, rtol=1e-9, atol=1e-12)
    diagonal = jg.fit(jg.GaussianNB(0.0, pooling=pooling, shrinkage=shrinkage, target=target), REALS, Y).density
    np.testing.assert_allclose(diagonal.scale**2, np.diagonal(expected, axis1=1, axis2=2), rtol=1e-9)
    spherical = jg.GDA("spherical", shared=False, ridge=0.0, pooling=pooling, shrinkage=shrinkage, target=target)
    mean_variance = np.trace(expected, axis1=1, axis2=2) / D
    np.testing.assert_allclose(jg.fit(spherical, REALS, Y).density.scale[:, 0] ** 2, mean_variance, rtol=1e-9)


def test_pooling_ends_at_lda_and_rescues_a_class_of_one_row():
    lda, pooled = (jg.fit(e, REALS, Y) for e in (jg.LDA(0.0), jg.QDA(0.0, pooling=1.0)))
    np.testing.assert_allclose(jg.log_joint(pooled, REALS), jg.log_joint(lda, REALS), rtol=1e-9)
    few = np.where(np.arange(N) == 0, 0, 1)
    c = jg.fit(jg.QDA(0.0, pooling=0.5), REALS, few, num_classes=3)
    assert np.isfinite(jg.log_likelihood(c, REALS)).all()


def test_shrinkage_equals_scikit_learn():
    theirs = sklearn.discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3).fit(REALS, Y)
    ours = jg.fit(jg.LDA(0.0, shrinkage=0.3), REALS, Y)
    np.testing.assert_allclose(jg.log_posterior(ours, REALS), theirs.predict_log_proba(REALS), rtol=1e-8)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_ledoit_wolf_equals_scikit_learn(shift):
    x = RNG.normal(size=(40, 30)) @ RNG.normal(size=(30, 30)) + shift
    y = np.arange(40) % 3
    theirs = sklearn.covariance.ledoit_wolf_shrinkage
    tolerance = 1e-10 if shift == 0 else 1e-7
    np.testing.assert_allclose(jg.ledoit_wolf(x), theirs(x), rtol=tolerance)
    each = jg.ledoit_wolf(x, y)
    np.testing.assert_allclose(each, [theirs(x[y == k]) for k in range(3)], rtol=tolerance)
    residual = x - np.stack([x[y == k].mean(axis=0) for k in range(3)])[y]
    np.testing.assert_allclose(
        jg.ledoit_wolf(x, y, shared=True), theirs(residual, assume_centered=True), rtol=tolerance
    )
    soft = jax.jit(lambda x: jg.ledoit_wolf(x, np.eye(3)[y]))(x)
    np.testing.assert_allclose(soft, each, rtol=tolerance)
    if shift:
        np.testing.assert_allclose(jg.ledoit_wolf(x.astype(np.float32), y), each, rtol=1e-3)


def test_ledoit_wolf_without_labels_has_one_class():
    with pytest.raises(ValueError, match="num_classes must be None without y, which is one class; found 5"):
        jg.ledoit_wolf(REALS, num_classes=5)


def test_a_scale_of_few_bits_is_looked_at_as_any_other():
    scale = np.eye(REALS.shape[1])
    fits = [jg.fit(jg.QDA(prior=jg.NormalInverseWishart(scale=each)), REALS, Y) for each in (scale, np.float16(scale))]
    chex.assert_trees_all_equal(*fits)
    with pytest.raises(ValueError, match="positive definite"):
        jg.fit(jg.QDA(prior=jg.NormalInverseWishart(scale=np.float16(-scale))), REALS, Y)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("value", [1e10, 1e18, 1e30, np.nan])
def test_ledoit_wolf_does_not_know_what_an_absent_row_holds(value, soft):
    """In float32 fourth powers overflow from 1e10 on, squares from 1e19 on."""
    x, weight = REALS.astype(np.float32), np.arange(len(REALS)) != 3
    spoilt = np.where(weight[:, None], x, np.float32(value))
    of_each = jg.ledoit_wolf(spoilt, np.eye(K, dtype=np.float32)[Y] if soft else Y, sample_weight=weight)
    theirs = [sklearn.covariance.ledoit_wolf_shrinkage(REALS[weight & (k == Y)]) for k in range(K)]
    np.testing.assert_allclose(of_each, theirs, rtol=1e-4)


def test_ledoit_wolf_of_weights_and_of_little_data():
    weight = np.arange(N) % 3
    twice = jg.ledoit_wolf(np.repeat(REALS, weight, axis=0), np.repeat(Y, weight))
    spoilt = np.where(weight[:, None] > 0, REALS, np.nan)
    np.testing.assert_allclose(jg.ledoit_wolf(spoilt, Y, sample_weight=weight), twice, rtol=1e-10)
    np.testing.assert_array_equal(jg.ledoit_wolf(np.ones((4, 3)), np.array([0, 0, 1, 1]), num_classes=3), 0.0)
    np.testing.assert_array_equal(jg.ledoit_wolf(REALS[:, :1], Y), 0.0)
    for x in np.random.default_rng(0).normal(size=(30, 23, 1)):  # of one feature, by rounding some would be 1
        assert jg.ledoit_wolf(x) == 0
    check_grads(jax.jit(lambda x: jg.ledoit_wolf(x, Y, num_classes=K)), (REALS,), order=1, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="x must hold finite numbers"):
        jg.ledoit_wolf(np.full((2, 2), np.nan))


# What is refused


MATRIX = np.array([[1.0, 2.0], [2.0, 1.0]])
NIW = jg.NormalInverseWishart


@pytest.mark.parametrize(
    ("estimator", "x", "error", "message"),
    [
        (jg.BernoulliNB(np.ones(4)), BITS, ValueError, r"BernoulliNB.alpha must be one .* broadcast to \(2, 3\)"),
        (jg.PoissonNB(np.ones((3, 3))), COUNTS, ValueError, r"alpha .* classes by features; found shape \(3, 3"),
        (jg.CategoricalNB(SIZES, np.ones(8)), VALUES, ValueError, r"broadcast to \(2, 9\).*found shape \(8,\)"),
        (jg.ComplementNB(TABLE), COUNTS, ValueError, r"ComplementNB.alpha must be one number or broadcast to \(1, 3\)"),
        (jg.MultinomialNB(-TABLE), COUNTS, ValueError, "MultinomialNB.alpha must be finite and 0.*at row 0, column 0"),
        (jg.PoissonNB(exposure=np.array([1.0, np.nan, 1.0])), COUNTS, ValueError, "exposure .* found nan at index 1"),
        (jg.BernoulliNB(beta=-1.0), BITS, ValueError, "BernoulliNB.beta must be finite and 0 or more; found -1.0"),
        (jg.BernoulliNB([1.0, 2.0, 3.0]), BITS, TypeError, "alpha must be one real number or an array of them"),
        (jg.QDA(pooling=1.5), REALS, ValueError, "GDA.pooling must be from 0 to 1; found 1.5"),
        (jg.QDA(pooling=0.5, prior=NIW()), REALS, ValueError, "GDA.pooling must be 0 beside a prior.*found 0.5"),
        (jg.LDA(shrinkage=0.1, prior=NIW()), REALS, ValueError, "GDA.shrinkage must be 0 beside a prior.*found 0.1"),
        (jg.QDA(shrinkage=np.array([0.5, -0.1])), REALS, ValueError, "shrinkage must be from 0 to 1; .* at index 1"),
        (jg.LDA(shrinkage=np.ones(2)), REALS, ValueError, r"one for each of 1 covariances.*shared=True\) gives one"),
        (jg.LDA(target="identity"), REALS, ValueError, "target must be 'spherical' or 'diagonal'; found 'identity'"),
        (jg.LDA(prior=1.0), REALS, TypeError, "prior must be a NormalInverseWishart or None; found 1.0"),
        (jg.LDA(prior=NIW(mean_weight=0.0)), REALS, ValueError, "mean_weight must be positive; found 0.0"),
        (jg.LDA(prior=NIW(mean=np.inf)), REALS, ValueError, "NormalInverseWishart.mean must be finite; found inf"),
        (jg.LDA(prior=NIW(degrees=2.0)), REALS, ValueError, "degrees must be more than 2 for full .* None takes 5"),
        (jg.LDA(prior=NIW(mean=np.ones(2))), REALS, ValueError, r"mean must have shape \(\) or \(3,\) for full"),
        (jg.LDA(prior=NIW(scale=MATRIX)), REALS, ValueError, "scale must be symmetric and positive definite"),
        (jg.LDA(prior=NIW(scale=np.eye(2))), REALS, ValueError, r"scale must have shape .*\(3, 3\).*found \(2, 2\)"),
        (jg.GaussianNB(prior=NIW(scale=np.eye(3))), REALS, ValueError, r"or \(3,\) for diagonal .*found \(3, 3\)"),
        (jg.GDA("spherical", prior=NIW(scale=np.ones(3))), REALS, ValueError, r"shape \(\) for spherical"),
        (jg.LDA(prior=NIW(mean_weight=np.ones(3))), REALS, ValueError, "mean_weight must have no axes.*vmap"),
        (jg.LDA(prior=NIW(scale="wide")), REALS, TypeError, "scale must be a real numeric array"),
        (jg.LDA(prior=NIW(mean=None)), REALS, TypeError, "mean must be a number or an array; found None"),
    ],
)  # fmt: skip
def test_what_a_fit_refuses(estimator, x, error, message):
    with pytest.raises(error, match=message):
        jg.fit(estimator, x, Y)


def test_what_has_no_posterior():
    for estimator, x, error, message in (
        (jg.LDA(), REALS, ValueError, "GDA.prior must be given here; found None. Give one: prior="),
        (jg.BernoulliNB(0.0), BITS, ValueError, "BernoulliNB.alpha must be positive here: .*improper"),
        (jg.PoissonNB(exposure=np.array([1.0, 0.0, 1.0])), COUNTS, ValueError, "PoissonNB.exposure must be positive"),
        (jg.ComplementNB(), COUNTS, TypeError, "must have a conjugate prior; found ComplementNB"),
        (jg.LogisticRegression(), REALS, TypeError, "must have a conjugate prior; found LogisticRegression"),
        (jg.MultinomialNB, COUNTS, TypeError, "found MultinomialNB itself, which is to be called"),
        (jg.MixedNB(((jg.PoissonNB(), (0, 1)), (jg.LDA(), (2,)))), COUNTS, ValueError, "GDA.prior must be given"),
    ):
        made = estimator if isinstance(estimator, jg.GenerativeEstimator) else jg.LDA()
        statistics = made.statistics(x, Y)
        for verb in (jg.log_marginal_likelihood, jg.predictive):
            with pytest.raises(error, match=message):
                verb(estimator, statistics)
    counts = jg.PoissonNB().statistics(COUNTS, Y)
    with pytest.raises(TypeError, match="those that an estimator of this structure makes"):
        jg.predictive(gda("full", True), counts)
    mixed = jg.MixedNB(((jg.LDA(prior=NIW(degrees=1.5)), (0, 1, 2)),))
    with pytest.raises(ValueError, match="degrees must be more than 2"):
        jg.fit(mixed, REALS, Y)
    with pytest.raises(ValueError, match=r"no finite evidence .* overflow"):
        jg.log_marginal_likelihood(
            jg.GaussianNB(prior=NIW(scale=np.float32(1e38))),
            jg.GaussianNB().statistics(np.float32([[1e19], [3e19]]), [0, 0]),
        )


def test_under_a_trace_what_is_improper_is_nan():
    gaussian = jg.QDA().statistics(REALS, Y)
    for bad in ({"mean_weight": 0.0}, {"scale": -1.0}, {"degrees": 2.0}, {"scale": np.diag([1.0, 1.0, -1.0])}):
        prior = dataclasses.replace(NIW(degrees=5.0), **bad)
        evidence = jax.jit(lambda p: jg.log_marginal_likelihood(jg.QDA(prior=p), gaussian))(prior)
        c = jax.jit(lambda p: jg.estimate(jg.QDA(prior=p), gaussian))(prior)
        assert np.isnan(evidence)
        assert np.isnan(jg.log_posterior(c, REALS)).all()
    counts = jg.PoissonNB().statistics(COUNTS, Y)
    for bad in ({"alpha": 0.0}, {"exposure": 0.0}):
        estimator = dataclasses.replace(jg.PoissonNB(), **bad)
        assert np.isnan(jax.jit(jg.log_marginal_likelihood)(estimator, counts))
        assert np.isnan(jg.log_likelihood(jax.jit(jg.predictive)(estimator, counts), COUNTS)).all()
    c = jax.jit(lambda p: jg.estimate(jg.QDA(pooling=p), gaussian))(1.5)
    assert np.isnan(jg.log_posterior(c, REALS)).all()


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical"])
def test_a_prior_scale_that_is_none_is_nan_under_a_trace_however_small(covariance):
    x, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    bad = [-1e-3]
    if covariance == "full":
        bad += [np.diag([1e-3, 1e-3, -1e-3]), 1e-3 * np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])]

    @jax.jit
    def posterior(scale):
        prior = jg.NormalInverseWishart(scale=scale)
        c = jg.fit(jg.GDA(covariance, shared=False, prior=prior), x, y, num_classes=2)
        return jg.log_posterior(c, x)

    for scale in bad:
        assert np.isnan(posterior(scale)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ledoit_wolf_of_two_rows_is_none_and_not_less(dtype):
    """Both are as far from their mean: fourth powers are the squares of C, and rounding may put them below."""
    x, y = np.random.default_rng(0).normal(size=(200, 3)).astype(dtype), np.repeat(np.arange(100), 2)
    intensity = np.asarray(jg.ledoit_wolf(x, y))
    assert (intensity >= 0).all()
    np.testing.assert_allclose(intensity, 0.0, atol=1e-5)


def test_the_predictive_of_mixed_families_has_their_class_prior():
    x, y = np.random.default_rng(0).poisson(3.0, (20, 2)), np.repeat([0, 1], [15, 5])
    mixed = jg.MixedNB(((jg.PoissonNB(), (0,)), (jg.PoissonNB(), (1,))), prior_alpha=5.0)
    c = jg.predictive(mixed, mixed.statistics(x, y))
    np.testing.assert_allclose(np.exp(c.log_prior), np.array([20.0, 10.0]) / 30, rtol=1e-10)


def test_the_evidence_of_counts_under_a_strong_prior_in_float32():
    """Alpha of as many rows is a rate of one, as if it were known."""
    x, y = np.random.default_rng(0).poisson(1.0, (40, 3)), np.arange(40) % 2
    statistics = jg.PoissonNB().statistics(x.astype(np.float32), y)
    evidence = jg.log_marginal_likelihood(jg.PoissonNB(alpha=1e9, exposure=1e9), statistics)
    np.testing.assert_allclose(evidence, -x.size, rtol=1e-5)
