"""The six Gaussian forms against the formulas of the notes in NumPy float64, and their numerical rules."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import FORMS, each_form
from scipy.special import log_softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

import jaxgen as jg
from jaxgen.matrices import cholesky_or_nan

K, D = 3, 4
each_scatter = pytest.mark.parametrize(("covariance", "shared"), FORMS[:4])  # spherical forms keep a diagonal one


def data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % K)
    x = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + rng.normal(size=(K, D))[y]
    return x * np.array([1.0, 10.0, 0.1, 3.0]), y


def covariances(c):
    """Σ_k of every class, from whichever density."""
    if isinstance(c.density, jg.Gaussian):
        return np.einsum("kij,klj->kil", *(np.asarray(c.density.cholesky, np.float64),) * 2)
    scale = np.broadcast_to(np.asarray(c.density.scale, np.float64), (c.density.scale.shape[0], c.density.num_features))
    return np.stack([np.diag(s**2) for s in scale])


def maximum_likelihood(x, r, covariance, shared, ridge=0.0):
    """CS229 notes, section 4.1.2, for responsibilities r; the other forms keep the diagonal, or its mean."""
    x, r = np.asarray(x, np.float64), np.asarray(r, np.float64)
    weight = r.sum(axis=0)
    mean = (r.T @ x) / weight[:, None]
    centred = x[:, None, :] - mean
    sigma = np.einsum("nk,nki,nkj->kij", r, centred, centred) / weight[:, None, None]
    pooled = np.einsum("k,kij->ij", weight, sigma) / weight.sum()
    if shared:
        sigma = pooled[None]
    sigma = sigma + ridge * np.diag(np.diag(pooled))
    if covariance != "full":
        sigma = np.stack([np.diag(np.diag(s)) for s in sigma])
    if covariance == "spherical":
        sigma = np.stack([np.eye(x.shape[1]) * np.trace(s) / x.shape[1] for s in sigma])
    return weight / weight.sum(), mean, sigma


@pytest.mark.parametrize("estimator", [jg.QDA(), jg.GaussianNB()])
@pytest.mark.parametrize("gone", [100, 100_000])
@pytest.mark.parametrize("distance", [0.0, 3.0, 100.0])
def test_subtraction_keeps_the_bound_that_it_states(estimator, gone, distance):
    rng = np.random.default_rng(0)
    left, away = (rng.normal(size=(n, 3)).astype(np.float32) for n in (50, gone))
    kept, taken, exact = (
        estimator.statistics(x, np.zeros(len(x), int)) for x in (left, away + np.float32(distance), left.astype(float))
    )
    whole = jg.merge(kept, taken)
    rest = jg.subtract(whole, taken)
    unit = np.finfo(np.float32).eps
    assert rest.class_weight.value == 50
    error = np.abs(np.asarray(rest.mean.value, np.float64) - exact.mean.value).max()
    assert error <= 4 * unit * gone / 50 * (distance + 1)
    error = np.abs(np.asarray(rest.scatter, np.float64) - exact.scatter).max()
    assert error <= 8 * unit * (np.abs(whole.scatter).max() + gone * distance**2)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.QDA(), jg.GaussianNB()], ids=["LDA", "QDA", "GaussianNB"])
def test_what_does_not_vary_in_the_rows_that_remain_is_a_constant(estimator, dtype):
    rng, weight = np.random.default_rng(0), np.random.default_rng(1).random(20) + 0.1
    x = np.stack([rng.normal(size=20), np.r_[rng.normal(size=10), np.full(10, 0.37)]], axis=1).astype(dtype)
    parts = [slice(10), slice(10, 20)]
    taken, kept = (
        estimator.statistics(x[part], np.arange(10) % 2, sample_weight=weight[part].astype(dtype)) for part in parts
    )
    less = jg.subtract(estimator.statistics(x, np.arange(20) % 2, sample_weight=weight.astype(dtype)), taken)
    assert np.all(less.scatter.reshape(-1, 2, *less.scatter.shape[2:])[:, -1] == 0)
    expected, found = (jg.log_posterior(jg.estimate(estimator, rest), x[10:]) for rest in (kept, less))
    np.testing.assert_allclose(found, expected, atol=100 * np.finfo(dtype).eps)
    slope = jax.grad(lambda gone: jg.subtract(gone, taken).scatter.sum())(jg.merge(kept, taken))
    assert np.all(slope.scatter == 1)


@pytest.mark.parametrize("covariance", ["diagonal", pytest.param("full", marks=pytest.mark.thorough)])
def test_a_class_of_which_nothing_remains_has_no_part_in_a_shared_variance(covariance):
    x = (np.random.default_rng(0).normal(size=(40, 2)) + 1e3).astype(np.float32)
    estimator, y = jg.GDA(covariance, shared=True), np.repeat([0, 1], 20)
    whole, taken = (estimator.statistics(x[part], y[part], num_classes=2) for part in (slice(40), slice(20, 40)))
    scatter = np.asarray(jg.subtract(whole, taken).scatter[0])
    found = scatter if covariance == "diagonal" else np.diagonal(scatter)
    np.testing.assert_allclose(found, 20 * x[:20].astype(float).var(axis=0), rtol=1e-4)


@pytest.mark.parametrize("estimator", [jg.QDA(), pytest.param(jg.GaussianNB(), marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("gone", "distance"), [(100_000, 3.0), (40, 100_000.0)])
def test_subtraction_adds_the_errors_of_what_was_read_at_once(estimator, gone, distance):
    """Its first row may be far from most others."""
    rng = np.random.default_rng(0)
    left, away = (rng.normal(size=(n, 3)).astype(np.float32) for n in (500, gone))
    away += np.float32(distance)
    both = np.concatenate([away, left])
    whole, taken = (estimator.statistics(x, np.zeros(len(x), int)) for x in (both, away))
    exact = [estimator.statistics(x.astype(float), np.zeros(len(x), int)) for x in (left, both, away)]

    def error(found, exact):
        return np.abs(np.asarray(found, np.float64) - exact).max()

    rest, (unit, ratio) = jg.subtract(whole, taken), (np.finfo(np.float32).eps, gone / 500)
    of_means = [error(a.mean.value, b.mean.value) for a, b in zip((whole, taken), exact[1:], strict=True)]
    of_scatters = [error(a.scatter, b.scatter) for a, b in zip((whole, taken), exact[1:], strict=True)]
    e = sum(of_means)
    bound = 4 * unit * ratio * (distance + 1) + (1 + ratio) * e
    assert error(rest.mean.value, exact[0].mean.value) <= bound
    bound = 8 * unit * (np.abs(whole.scatter).max() + gone * distance**2) + gone * e * (2 * distance + (1 + ratio) * e)
    assert error(rest.scatter, exact[0].scatter) <= bound + sum(of_scatters)


@each_form
@pytest.mark.parametrize("soft", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_rows_without_weight_have_their_derivatives_where_a_whole_batch_has_none(covariance, shared, soft):
    """First and second derivatives, by the weights of two batches of which the second weighs nothing."""
    x, y = data(n=36)
    responsibilities = np.random.default_rng(1).dirichlet(np.ones(K), 36) if soft else np.eye(K)[y]
    labels = responsibilities if soft else y
    weight = np.where(np.arange(36) < 18, np.linspace(0.5, 2.0, 36), 0.0)
    estimator = jg.GDA(covariance, shared=shared, ridge=0.0)

    def statistics(rows, w):
        return estimator.statistics(x[rows], labels[rows], num_classes=K, sample_weight=w[rows])

    def ours(w):
        first, second = statistics(slice(0, 18), w), statistics(slice(18, 36), w)
        three = jg.merge(first, second), jg.merge(second, first), statistics(slice(0, 36), w)
        return [(each.mean.value, each.scatter) for each in three]

    def formula(w):
        r = w[:, None] * responsibilities
        mean = r.T @ x / r.sum(axis=0)[:, None]
        centred = x[:, None, :] - mean[None]
        scatter = jnp.einsum("nk,nki,nkj->kij" if covariance == "full" else "nk,nki,nki->ki", r, centred, centred)
        return [(mean, scatter.sum(axis=0, keepdims=True) if shared else scatter)] * 3

    def derivatives(f):
        step = jnp.asarray(np.random.default_rng(2).normal(size=36))
        return jax.jvp(lambda w: jax.jvp(f, (w,), (step,)), (jnp.asarray(weight),), (step,))

    for mine, exact in zip(jax.tree.leaves(derivatives(ours)), jax.tree.leaves(derivatives(formula)), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-9, atol=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.QDA()], ids=["LDA", "QDA"])
def test_a_feature_that_varies_by_rounding_alone_varies_with_nothing(estimator):
    x, y = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32), np.arange(300) % 2
    x[:, 0] = np.where(x[:, 1] > 1.3, np.nextafter(np.float32(1e6), np.float32(2e6)), np.float32(1e6))
    ours = covariances(jg.fit(estimator, x, y))
    alone = covariances(jg.fit(estimator, np.stack([np.zeros(300), x[:, 1]], axis=1), y))
    np.testing.assert_allclose(ours, alone, rtol=1e-5)
    assert (ours[:, 0, 1] == 0).all()


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_class_far_away_leaves_the_shared_variance_what_it_is(covariance):
    x, y = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    x[:, 0] = np.where(y, -999_999.0, 0.01 * x[:, 0])
    ours = covariances(jg.fit(jg.GDA(covariance, shared=True, ridge=0.0), x.astype(np.float32), y))
    sigma = maximum_likelihood(x, np.eye(2)[y], covariance, shared=True)[2]
    scale = np.sqrt(np.diag(sigma[0]))
    np.testing.assert_allclose(ours / np.outer(scale, scale), sigma / np.outer(scale, scale), atol=1e-5)


@pytest.mark.parametrize("covariance", [pytest.param("full", marks=pytest.mark.thorough), "diagonal", "spherical"])
def test_the_variance_of_one_row_moves_with_the_weight_of_another(covariance):
    """S/N + ridge · pooled: from 0 and 9/5 by (x₁ − μ₀)²/N₀ = 2, and 0.7 (1 · 5/2 − 9/2)/(5/2)² of the pooled one."""
    x, y, weight = np.array([[1.0], [2.0], [0.0], [3.0]]), np.array([0, 0, 1, 1]), jnp.array([0.5, 0.0, 1.0, 1.0])
    estimator = jg.GDA(covariance, shared=False, ridge=0.7)

    def variance(w):
        density = jg.fit(estimator, x, y, num_classes=2, sample_weight=w).density
        return (density.cholesky if covariance == "full" else density.scale).ravel()[0] ** 2

    np.testing.assert_allclose(variance(weight), 0.7 * 9 / 5, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(variance)(weight)[1], 2 - 0.7 * 0.32, rtol=1e-12)


def test_what_weighs_nothing_has_a_derivative_when_it_is_taken_away_or_scaled():
    """A batch at 1 and 3: a row at 6 of weight w = 0 is taken away; or γ = 0 of the batch is kept beside others."""
    e, x, y = jg.GaussianNB(), np.array([[1.0], [3.0]]), np.zeros(2, int)

    def without(w):
        row = e.statistics(np.array([[6.0]]), y[:1], num_classes=1, sample_weight=w[None])
        rest = jg.subtract(e.statistics(x, y), row)
        return rest.mean.value[0, 0], rest.scatter[0, 0]

    # (4 − 6w) / (2 − w), and 10 − 36w − (4 − 6w)² / (2 − w)
    np.testing.assert_allclose(jax.jacobian(without)(jnp.zeros(())), [-2.0, -16.0], rtol=1e-12)

    def kept(gamma):
        both = jg.merge(jg.scale(e.statistics(x, y), gamma), e.statistics(np.array([[5.0], [7.0]]), y))
        return both.mean.value[0, 0], both.scatter[0, 0]

    # (12 + 4γ) / (2 + 2γ), and 74 + 10γ − (12 + 4γ)² / (2 + 2γ)
    np.testing.assert_allclose(jax.jacobian(kept)(jnp.zeros(())), [-4.0, 34.0], rtol=1e-12)


@each_form
@pytest.mark.parametrize("ridge", [0.0, pytest.param(0.3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("soft", [False, True])
def test_fit_is_the_maximum_likelihood_estimate(covariance, shared, ridge, soft):
    x, y = data()
    r = np.random.default_rng(1).random((len(y), K)) if soft else np.eye(K)[y]
    c = jg.fit(jg.GDA(covariance, shared=shared, ridge=ridge), x, r if soft else y)
    prior, mean, sigma = maximum_likelihood(x, r, covariance, shared, ridge)
    np.testing.assert_allclose(np.exp(c.log_prior), prior, rtol=1e-10)
    np.testing.assert_allclose(c.density.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(covariances(c), sigma, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("n", "d"),
    [(1720, 70), pytest.param(220, 200, marks=pytest.mark.thorough)],  # strips on a CPU: two, and four
)
@pytest.mark.parametrize("labels", [pytest.param("hard", marks=pytest.mark.thorough), "weighted", "soft"])
@pytest.mark.parametrize("shared", [True, False])
def test_wide_scatters_and_their_derivatives(n, d, labels, shared):
    """d/dx_i of Σ_ij A_ij S_ij is r_ik (A + Aᵀ)(x_i − μ_k), since the rest of a class is about its mean."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)), np.arange(n) % 2
    r, weight = np.eye(2)[y], rng.uniform(0.5, 2.0, size=n) if labels == "weighted" else np.ones(n)
    if labels == "soft":
        y = r = rng.dirichlet(np.ones(2), size=n)
    r = weight[:, None] * r
    towards = rng.normal(size=(1 if shared else 2, d, d))  # of no symmetry
    options = {"sample_weight": weight} if labels == "weighted" else {}
    estimator = jg.GDA("full", shared=shared)

    def product(x):
        scatter = estimator.statistics(x, y, num_classes=2, **options).scatter
        return jnp.sum(towards * scatter), scatter

    gradient, scatter = jax.jit(jax.grad(product, has_aux=True))(x)
    centred = x[:, None] - (r.T @ x) / r.sum(axis=0)[:, None]
    each = np.einsum("nk,nki,nkj->kij", r, centred, centred)
    np.testing.assert_allclose(scatter, each.sum(axis=0)[None] if shared else each, rtol=1e-10, atol=1e-10)
    both = np.broadcast_to(towards + np.swapaxes(towards, 1, 2), (2, d, d))
    np.testing.assert_allclose(gradient, np.einsum("nk,kij,nkj->ni", r, both, centred), rtol=1e-9, atol=1e-9)


@each_scatter
@pytest.mark.parametrize(
    "apart", [1.0, pytest.param(100.0, marks=pytest.mark.thorough)]
)  # about one point, and about the mean of each class
def test_moments_of_rows_that_classes_share_and_their_derivatives(covariance, shared, apart):
    """d/dr_ik of Σ_kj A_kj S_kj is Σ_j A_kj (x_ij − μ_kj)², and d/dx_ij is 2 Σ_k r_ik A_kj (x_ij − μ_kj)."""
    rng, (n, d) = np.random.default_rng(0), (300, 24)
    x = rng.normal(size=(n, d)) + apart * rng.normal(size=(K, d))[np.arange(n) % K]
    r = np.eye(K)[np.arange(n) % K] * 0.9999 + 0.0001 / K
    towards = rng.normal(size=(K, d)) if not shared else rng.normal(size=(1, d))
    estimator = jg.GDA(covariance, shared=shared)

    def product(x, r):
        scatter = estimator.statistics(x, r).scatter
        diagonal = jnp.diagonal(scatter, axis1=1, axis2=2) if covariance == "full" else scatter
        return jnp.sum(towards * diagonal), scatter

    (by_x, by_r), scatter = jax.jit(jax.grad(product, argnums=(0, 1), has_aux=True))(x, r)
    centred = x[:, None] - (r.T @ x) / r.sum(axis=0)[:, None]
    each = np.einsum("nk,nki,nkj->kij" if covariance == "full" else "nk,nkj,nkj->kj", r, centred, centred)
    np.testing.assert_allclose(scatter, each.sum(axis=0)[None] if shared else each, rtol=1e-10, atol=1e-9)
    towards = np.broadcast_to(towards, (K, d))
    np.testing.assert_allclose(by_x, 2 * np.einsum("nk,kj,nkj->nj", r, towards, centred), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(by_r, np.einsum("kj,nkj->nk", towards, centred**2), rtol=1e-8, atol=1e-7)


@pytest.mark.thorough
def test_moments_of_rows_that_classes_share_keep_their_digits(run_script):
    """In float32 at a mean of a hundred thousand deviations, near to each other and far apart; as XLA optimises them.

    Of a mean, its second limb is a share of what float32 rounds the first to, which is half a hundredth of a deviation.
    """
    lines = run_script(
        """
import itertools, numpy as np, jaxgen as jg

rng, (n, d) = np.random.default_rng(0), (3000, 24)
label, noise, places = np.arange(n) % 3, rng.normal(size=(n, d)), rng.normal(size=(3, d))
r = (np.eye(3)[label] * 0.99 + 0.01 / 3).astype(np.float32)
weight = r.sum(axis=0, dtype=float)
for covariance, shared, apart in itertools.product(("full", "diagonal"), (True, False), (1.0, 300.0)):
    x = (1e5 + apart * places[label] + noise).astype(np.float32)
    mean = (r.T.astype(float) @ x) / weight[:, None]
    centred = x - mean[:, None]
    scatter = np.einsum("nk,knj,knj->kj", r, centred, centred)
    exact = scatter.sum(axis=0, keepdims=True) if shared else scatter
    statistics = jg.GDA(covariance, shared=shared).statistics(x, r)
    found = np.asarray(statistics.scatter, float)
    found = np.diagonal(found, axis1=1, axis2=2) if covariance == "full" else found
    print(abs(found / exact - 1).max(), (abs(statistics.mean.exact() - mean) / np.sqrt(scatter.mean() / n)).max())
"""
    )
    assert len(lines) == 8
    for line in lines:
        of_scatter, of_mean = map(float, line.split())
        assert of_scatter < 1e-5
        assert of_mean < 1e-5


@each_scatter
def test_moments_of_rows_that_classes_share_do_not_overflow_by_the_distance_of_classes(covariance, shared):
    """Squares about one point for all would: 4e18² is 1.6e37, and sixty of them are no float32."""
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    x = (1e15 * rng.normal(size=(60, 3)) + 4e18 * (2 * y - 1)[:, None]).astype(np.float32)
    scatter = jg.GDA(covariance, shared=shared).statistics(x, np.eye(2, dtype=np.float32)[y]).scatter
    centred = np.stack([x[y == k] - x[y == k].mean(axis=0, dtype=float) for k in (0, 1)])
    exact = np.einsum("kni,knj->kij" if covariance == "full" else "knj,knj->kj", centred, centred)
    exact = exact.sum(axis=0, keepdims=True) if shared else exact
    np.testing.assert_allclose(np.asarray(scatter, float), exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())


@each_form
def test_fit_is_exact_across_many_blocks(covariance, shared):
    """Classes arrive one after the other, so that most blocks lack most classes."""
    x, y = data(n=3000)
    order = np.argsort(y, kind="stable")
    estimator = jg.GDA(covariance, shared=shared, ridge=0.0)
    c = jg.estimate(estimator, estimator.statistics(x[order], y[order], block_size=64))
    _, mean, sigma = maximum_likelihood(x, np.eye(K)[y], covariance, shared)
    np.testing.assert_allclose(c.density.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(covariances(c), sigma, rtol=1e-10, atol=1e-10)


def test_more_classes_than_fit_a_one_hot_matrix():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3000, 2)), rng.permutation(np.arange(3000) % 500)
    c = jg.fit(jg.GaussianNB(ridge=0.0), x, y)
    _, mean, sigma = maximum_likelihood(x, np.eye(500)[y], "diagonal", False)
    np.testing.assert_allclose(c.density.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(covariances(c), sigma, rtol=1e-10, atol=1e-10)


def test_twenty_thousand_classes_share_one_scatter():
    y = np.arange(40_000) % 20_000
    x = np.random.default_rng(0).normal(size=(40_000, 3)) + y[:, None] / 1e4
    statistics = jg.LDA().statistics(x, y)
    assert statistics.scatter.shape == (1, 3, 3)
    residual = 0.5 * (x[:20_000] - x[20_000:])
    np.testing.assert_allclose(statistics.scatter[0], 2 * residual.T @ residual, rtol=1e-10)


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.QDA(), jg.GaussianNB(), jg.GDA("spherical", shared=False)])
@pytest.mark.parametrize("block_size", [None, 500])
@pytest.mark.thorough
def test_float32_covariance_at_a_mean_of_a_hundred_thousand(estimator, block_size):
    rng = np.random.default_rng(0)
    y = np.arange(20_000) % 2
    x = (rng.normal(size=(20_000, 5)) + 1e5 + y[:, None]).astype(np.float32)
    single, double = (estimator.statistics(x.astype(t), y, block_size=block_size) for t in (np.float32, np.float64))
    error = covariances(jg.estimate(estimator, single)) - covariances(jg.estimate(estimator, double))
    assert np.abs(error).max() < 1e-5


@each_form
def test_float32_posteriors_at_a_mean_of_ten_thousand(covariance, shared):
    rng = np.random.default_rng(0)
    y = np.arange(3_000) % 3
    x = (rng.normal(size=(3_000, 10)) + 1e4 + 0.5 * rng.normal(size=(3, 10))[y]).astype(np.float32)
    single, double = (jg.fit(jg.GDA(covariance, shared=shared), x.astype(t), y) for t in (np.float32, np.float64))
    difference = np.exp(jg.log_posterior(single, x)) - np.exp(jg.log_posterior(double, x.astype(np.float64)))
    assert np.abs(difference).max() < 5e-3
    evidence = jg.log_evidence(single, x) - np.float32(jg.log_evidence(double, x.astype(np.float64)))
    assert np.abs(evidence).max() < 1e-2


@each_form
def test_digits_with_its_constant_pixels(covariance, shared):
    x, y = load_digits(return_X_y=True)
    c = jg.fit(jg.GDA(covariance, shared=shared), x.astype(np.float32), y)
    assert np.isfinite(jg.log_evidence(c, x)).all()
    assert np.mean(jg.predict(c, x) == y) > 0.85


@pytest.mark.parametrize(
    ("covariance", "shared"),
    [pytest.param(*form, marks=[pytest.mark.thorough] * (form[0] != "full")) for form in FORMS],
)
def test_digits_with_a_class_of_one_row(covariance, shared):
    x, y = load_digits(return_X_y=True)
    keep = np.cumsum(y == 3) * (y == 3) <= 1
    c = jg.fit(jg.GDA(covariance, shared=shared), x[keep].astype(np.float32), y[keep], num_classes=10)
    assert np.isfinite(jg.log_posterior(c, x)[:, np.arange(10) != 3]).all()
    assert np.mean((jg.predict(c, x) == y)[y != 3]) > 0.83


@each_form
@pytest.mark.parametrize("scale", [1e-10, 1e10])
@pytest.mark.thorough
def test_any_scale_gives_the_same_posterior_in_float32(covariance, shared, scale):
    x, y = load_wine(return_X_y=True)
    dtype = np.float32
    x = ((x - x.mean(0)) / x.std(0)).astype(dtype)
    small, large = (jg.fit(jg.GDA(covariance, shared=shared), z, y) for z in (x, (x * dtype(scale)).astype(dtype)))
    assert np.isfinite(jg.log_evidence(large, x * dtype(scale))).all()
    posterior = np.exp(jg.log_posterior(small, x))
    np.testing.assert_allclose(np.exp(jg.log_posterior(large, x * dtype(scale))), posterior, atol=1e-4)


@pytest.mark.parametrize(
    ("num_classes", "scale"),
    [
        *((1, [1e-36]), (1, [1e32]), (2, [1e-36]), (2, [1e32]), (2, [3e-20, 6e-20]), (2, [1e18, 2e18])),
        *((2, [1e-36, 1e-18]), (2, [1e14, 1e32]), (2, [1e18, 1e12])),
    ],
)
def test_no_square_of_a_scale_overflows_or_underflows(num_classes, scale):
    """By logarithms of densities in longdouble."""
    unit, scale = scale[0], np.array(scale, np.float32)[:, None]
    mean = (unit * np.array([[0.0], [1.0]])[:num_classes]).astype(np.float32)
    x = np.concatenate([mean, (unit * np.array([[-0.3], [30.0], [5e4]])).astype(np.float32)])
    mine = np.broadcast_to(scale, mean.shape).astype(np.longdouble)[:, 0]
    white = (x.astype(np.longdouble) - mean[:, 0]) / mine
    expected = (-(white**2) / 2 - np.log(mine) - np.log(2 * np.pi) / 2).astype(float)
    c = jg.Classifier(np.full(num_classes, -np.log(num_classes), np.float32), jg.DiagonalGaussian(mean, scale))
    size = np.maximum(np.abs(expected), 100)
    for verb, value in ((jg.log_likelihood, expected), (jg.log_posterior, log_softmax(expected, axis=1))):
        found = np.asarray(verb(c, x))
        assert found.dtype == np.float32
        assert np.all(np.abs(found - value) <= 4e-6 * np.max(size, axis=1, keepdims=True))
    assert np.array_equal(jg.predict(c, x), expected.argmax(axis=1))


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.QDA(), jg.GaussianNB(), jg.GDA("diagonal", shared=True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unequal_units_change_nothing(estimator, dtype):
    x, y = data()
    units = 10.0 ** np.array([-8, 0, 4, 8])
    plain, scaled = (jg.fit(estimator, z.astype(dtype), y) for z in (x, x * units))
    difference = np.exp(jg.log_posterior(plain, x.astype(dtype))) - np.exp(
        jg.log_posterior(scaled, (x * units).astype(dtype))
    )
    assert np.abs(difference).max() < (1e-4 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_feature_that_is_constant_within_each_class(dtype):
    """Rounding must not pass for variance: the ridge's unit is the mean variance of the other features."""
    rng = np.random.default_rng(0)
    y = np.arange(5000) % 3
    x = np.column_stack([rng.normal(size=5000), np.array([0.1, 0.7, 1.3])[y]]).astype(dtype)
    c = jg.fit(jg.GDA("diagonal", shared=True, ridge=1e-2), x, y)
    np.testing.assert_allclose(covariances(c)[0, 1, 1], 1e-2 * np.var(x[:, 0]), rtol=2e-2)


def test_ridge_of_data_without_any_variance_is_one():
    c = jg.fit(jg.LDA(ridge=0.5), np.ones((4, 2)), np.array([0, 0, 1, 1]))
    np.testing.assert_allclose(covariances(c)[0], 0.5 * np.eye(2))


def test_a_class_without_data_takes_the_pooled_mean_and_covariance():
    x, y = data()
    c = jg.fit(jg.QDA(ridge=0.0), x, y, num_classes=K + 1)
    _, _, sigma = maximum_likelihood(x, np.eye(K)[y], "full", True)
    np.testing.assert_allclose(covariances(c)[K], sigma[0], rtol=1e-10)
    np.testing.assert_allclose(c.density.mean[K], x.mean(axis=0), rtol=1e-10)


def test_statistics_of_nothing_give_a_uniform_prior_and_no_nan():
    x, y = data(n=6)
    empty = jg.QDA().statistics(np.full_like(x, np.nan), y, sample_weight=np.zeros(6))
    c = jg.estimate(jg.QDA(), empty)
    np.testing.assert_allclose(np.exp(c.log_prior), 1 / K)
    assert np.isfinite(jg.log_evidence(c, x)).all()


@pytest.mark.parametrize("estimator", [jg.QDA(ridge=0.0), jg.GaussianNB(ridge=0.0)])
def test_a_class_far_away_costs_the_others_no_digits_in_float32(estimator):
    y = np.arange(2000) % 3
    x = (np.random.default_rng(0).normal(size=(2000, 3)) + np.where(y == 0, 1e7, 0.0)[:, None]).astype(np.float32)
    single, double = (jg.fit(estimator, x.astype(dtype), y) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(covariances(single)[1:], covariances(double)[1:], rtol=1e-4, atol=1e-5)


@each_form
@pytest.mark.parametrize(
    "way",
    ["eager", pytest.param("stacked", marks=pytest.mark.thorough), pytest.param("traced", marks=pytest.mark.thorough)],
)
def test_a_class_far_away_moves_no_posterior_of_the_others_in_float32(covariance, shared, way):
    """It is ten thousand deviations away: squares about a common point would lose ten nats.

    So they would in a stack with a classifier whose classes are near, of which alone they would be good enough.
    """
    rng = np.random.default_rng(0)
    mean = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5], [8e3, 6e3, 0.0]])
    y = np.arange(600) % 3
    x = (mean[y] + rng.normal(size=(600, 3))).astype(np.float32)
    c = jg.fit(jg.GDA(covariance, shared=shared), x, y)
    sigma = np.broadcast_to(covariances(c), (3, 3, 3))
    log_joint = [
        multivariate_normal.logpdf(x.astype(np.float64), np.asarray(c.density.mean[k], np.float64), sigma[k])
        for k in range(3)
    ]
    exact = log_softmax(np.stack(log_joint, axis=1) + np.asarray(c.log_prior, np.float64), axis=1)
    if way == "stacked":
        about_first = c.density.mean[:1] + np.eye(3, dtype=np.float32)
        near = c._replace(density=c.density._replace(mean=about_first))
        stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), near, c)
        of_near, ours = jax.vmap(jg.log_posterior, in_axes=(0, None))(stack, x)
        np.testing.assert_allclose(of_near[::3], jg.log_posterior(near, x)[::3], atol=2e-3)
    else:
        ours = (jg.log_posterior if way == "eager" else jax.jit(jg.log_posterior))(c, x)
    assert ours.dtype == np.float32
    likely = exact > -30
    np.testing.assert_allclose(ours[likely], exact[likely], atol=2e-3)
    clear = np.abs(np.diff(exact[:, :2], axis=1)[:, 0]) > 2e-3
    np.testing.assert_array_equal(jg.predict(c, x)[clear], exact.argmax(axis=1)[clear])


@pytest.mark.parametrize("distance", [1.0, 100.0])
def test_likelihoods_of_many_classes_with_one_covariance_in_float32(distance):
    """By products where the classes are near, by a pass for each where squares about their centre would cost digits."""
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(np.cov(rng.normal(size=(8, 20)))).astype(np.float32)
    mean = ((1e3 + distance * rng.normal(size=(60, 8))) @ factor.T).astype(np.float32)
    x = (mean[np.arange(300) % 60] + rng.normal(size=(300, 8)) @ factor.T).astype(np.float32)
    c = jg.Classifier(np.zeros(60, np.float32), jg.Gaussian(mean, factor[None]))
    sigma = factor.astype(np.float64) @ factor.T
    exact = np.stack([multivariate_normal.logpdf(x.astype(np.float64), m.astype(np.float64), sigma) for m in mean])
    np.testing.assert_allclose(jg.log_likelihood(c, x), exact.T, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("distance", [10.0, 110.0, 10_000.0])
@pytest.mark.parametrize("traced", [False, True])
def test_a_row_far_from_all_classes_is_told_apart_in_float32(distance, traced):
    """Its squared distance, common to the classes, would drown what tells them apart."""
    mean = np.zeros((3, 5), np.float32)
    mean[1, 0], mean[2, 1] = 1.0, distance
    x = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    x[:, 2] += 1000 * distance
    two = x[:, None, :2].astype(np.float64) - mean[:, :2]  # features, in which alone the means differ
    exact = log_softmax(-0.5 * np.sum(two**2, axis=-1), axis=1)
    verb = jax.jit(jg.log_posterior) if traced else jg.log_posterior
    for density in (
        jg.Gaussian(mean, np.eye(5, dtype=np.float32)[None]),
        jg.DiagonalGaussian(mean, np.ones_like(mean[:1])),
    ):
        ours = verb(jg.Classifier(np.zeros(3, np.float32), density), x)
        np.testing.assert_allclose(ours[:, :2], exact[:, :2], atol=1e-4)


def test_float32_does_not_drift_over_thousands_of_merges():
    x = (np.random.default_rng(0).normal(size=(20_000, 2)) + 1e5).astype(np.float32)
    y = np.zeros(20_000, int)
    single = jg.GaussianNB(ridge=0.0).statistics(x, y, block_size=5)
    np.testing.assert_allclose(single.mean.exact()[0], x.astype(np.float64).mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(single.scatter[0] / 20_000, x.astype(np.float64).var(axis=0), rtol=1e-4)


def test_class_weights_count_past_two_to_the_24_in_float32():
    statistics = jg.LDA().statistics(np.arange(8, dtype=np.float32)[:, None], np.arange(8) % 2)
    for _ in range(23):
        statistics = jg.merge(statistics, statistics)
    one = jg.LDA().statistics(np.ones((1, 1), np.float32), np.array([1]), num_classes=2)
    np.testing.assert_array_equal(jg.merge(statistics, one).class_weight.exact(), [2**25, 2**25 + 1])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (jg.LDA(ridge=0.0), "the shared covariance is singular"),
        (jg.QDA(ridge=0.0), "the covariance of class 0 is singular"),
        (jg.GaussianNB(ridge=0.0), "the covariance of class 1 is singular"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
def test_singular_covariance_names_the_class_and_the_remedy(estimator, message, dtype):
    x, y = data()
    x[:, 3] = x[:, 0] + 2 * x[:, 1]
    if estimator.covariance == "diagonal":
        x[:, 3] = np.where(y == 1, 5.0, x[:, 3])
    with pytest.raises(ValueError, match=f"{message} in {np.dtype(dtype)}.*Raise ridge") as caught:
        jg.fit(estimator, x.astype(dtype), y)
    assert ("compute in float64" in str(caught.value)) == (dtype == np.float32)
    traced = jax.jit(lambda x: jg.fit(estimator, x, y))(x.astype(dtype))
    assert np.isnan(jg.log_posterior(traced, x)).all()
    jg.fit(jg.GDA(estimator.covariance, shared=estimator.shared), x.astype(dtype), y)


@pytest.mark.thorough
def test_gradient_is_finite_where_float32_lifts_a_covariance():
    x, y = data(n=9)
    x = jnp.asarray(x, jnp.float32)
    gradient = jax.grad(lambda x: jnp.sum(jg.log_evidence(jg.fit(jg.QDA(), x, y, num_classes=K), x)))(x)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (jg.LDA(ridge=0.0), LinearDiscriminantAnalysis(solver="lsqr")),
        (jg.GaussianNB(ridge=0.0), GaussianNB(var_smoothing=0.0)),
        (jg.QDA(ridge=0.0), QuadraticDiscriminantAnalysis(store_covariance=True)),
    ],
)
def test_posterior_equals_scikit_learn(ours, theirs):
    x, y = load_wine(return_X_y=True)
    tolerance = 1e-6
    if isinstance(theirs, QuadraticDiscriminantAnalysis):
        # scikit-learn divides by N_k − 1 here; the comparison is with its own covariance put into our density.
        theirs.fit(x, y)
        c = jg.Classifier(
            jnp.log(theirs.priors_), jg.Gaussian(theirs.means_, np.linalg.cholesky(np.stack(theirs.covariance_)))
        )
    else:
        theirs.fit(x, y)
        c = jg.fit(ours, x, y)
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), theirs.predict_proba(x), atol=tolerance)
    np.testing.assert_array_equal(jg.predict(c, x), theirs.predict(x))


def test_diagonal_equals_full_where_features_do_not_correlate():
    corners = np.array([[a, b] for a in (-1.0, 1.0) for b in (-2.0, 2.0)])
    x, y = np.concatenate([corners, 3 * corners + 1]), np.repeat([0, 1], 4)
    for shared in (True, False):
        full, diagonal = (jg.fit(jg.GDA(form, shared=shared), x, y) for form in ("full", "diagonal"))
        np.testing.assert_allclose(jg.log_joint(full, x), jg.log_joint(diagonal, x), rtol=1e-12)


def test_overflow_is_an_error_and_not_an_answer():
    x = np.array([[1e25], [2e25], [3e25]], np.float32)
    with pytest.raises(ValueError, match=r"statistics of x are not finite.*Rescale"):
        jg.fit(jg.GaussianNB(), x, np.array([0, 0, 1]))


def test_overflow_of_a_sum_of_variances_is_an_error():
    x, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=r"overflow"):
        jg.fit(jg.GaussianNB(), (x * 1e17).astype(np.float32), y)


def test_named_forms():
    assert jg.LDA(ridge=0.1, prior_alpha=2.0) == jg.GDA("full", shared=True, ridge=0.1, prior_alpha=2.0)
    assert jg.QDA(ridge=0.1) == jg.GDA("full", shared=False, ridge=0.1)
    assert jg.GaussianNB(ridge=0.1) == jg.GDA("diagonal", shared=False, ridge=0.1)


def test_a_factor_that_is_known_has_the_derivatives_of_one_that_is_made():
    half = np.random.default_rng(0).normal(size=(2, 3, 5))
    covariance = jnp.asarray(half @ half.swapaxes(1, 2))

    def ours(covariance):
        return jnp.sum(jnp.sin(cholesky_or_nan(covariance, jnp.asarray(True))))

    def theirs(covariance):
        return jnp.sum(jnp.sin(jnp.linalg.cholesky(covariance)))

    def everything(f):
        return jax.jit(lambda a: (f(a), jax.grad(f)(a), jax.hessian(f)(a), jax.jacrev(jax.jacfwd(f))(a)))(covariance)

    (value, *derivatives), (expected, *exact) = everything(ours), everything(theirs)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    chex.assert_trees_all_close(derivatives, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("estimator", [jg.LDA(ridge=0.0), jg.GaussianNB(ridge=0.0)])
def test_an_absent_first_row_is_no_origin(estimator):
    x, y = (np.random.default_rng(0).normal(size=(2_000, 2)) + 1e4).astype(np.float32), np.arange(2_000) % 2
    weight = (np.arange(2_000) > 1).astype(float)
    x[:2] = np.nan
    single, double = (
        estimator.statistics(x.astype(dtype), y, sample_weight=weight.astype(dtype)).scatter
        for dtype in (np.float32, np.float64)
    )
    np.testing.assert_allclose(single, double, atol=5e-6 * np.abs(double).max())


@pytest.mark.parametrize("held", [np.nan, np.inf, -np.inf, 1e30, -1e19])
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()])
def test_what_an_absent_row_holds_leaves_no_trace(estimator, held):
    x = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    y, weight = np.arange(600) % 2, np.arange(600.0, dtype=np.float32) % 3
    x[3, 1] = held  # whose square overflows, at least together with that of another row
    statistics = estimator.statistics(x, y, sample_weight=weight)
    w, rows = weight[weight > 0].astype(float), x[weight > 0].astype(float)
    for k, mine in enumerate(y[weight > 0] == np.arange(2)[:, None]):
        mean = np.average(rows[mine], axis=0, weights=w[mine])
        np.testing.assert_allclose(statistics.mean.value[k], mean, atol=1e-6)
    gradient = jax.grad(lambda w: jnp.sum(estimator.statistics(x, y, sample_weight=w).mean.value))(weight)
    assert np.isfinite(gradient).all()
    assert gradient[3] == 0
    assert np.count_nonzero(gradient) == 599


@pytest.mark.parametrize(("covariance", "shared"), [("full", True), ("full", False), ("diagonal", False)])
def test_responsibilities_at_a_large_mean_cost_no_digits_in_float32(covariance, shared):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(3_000, 2)) + 1e5).astype(np.float32)
    r = rng.dirichlet(np.ones(2), len(x)).astype(np.float32)
    c = jg.fit(jg.GDA(covariance, shared=shared), x, r)
    exact = jg.fit(jg.GDA(covariance, shared=shared), x.astype(float), r.astype(float))
    np.testing.assert_allclose(jax.tree.leaves(c.density)[1], jax.tree.leaves(exact.density)[1], rtol=1e-5, atol=1e-5)
    mean = jg.GDA(covariance, shared=shared).statistics(x, r).mean.exact()
    np.testing.assert_allclose(mean, exact.density.mean, rtol=0, atol=1e-3)


def test_the_pooled_mean_moves_with_the_weight_of_a_class_that_has_none():
    x, y = np.array([[1.0], [3.0], [10.0]]), np.array([0, 0, 1])

    def pooled(weight):
        weight = jnp.ones(3).at[2].set(weight)
        return jg.fit(jg.GaussianNB(), x, y, num_classes=3, sample_weight=weight).density.mean[2, 0]

    np.testing.assert_allclose(jax.grad(pooled)(0.0), (10.0 - 2.0) / 2, rtol=1e-10)


def test_a_shrinkage_that_float32_cannot_tell_from_zero_keeps_a_covariance_regular():
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    x, y = np.concatenate([x, x], axis=1), np.arange(60) % 2
    for estimator in (jg.LDA(ridge=0.0, shrinkage=1e-9), jg.QDA(ridge=0.0, shrinkage=1e-9)):
        assert np.isfinite(jg.fit(estimator, x, y).density.cholesky).all()
