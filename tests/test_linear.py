"""The exact linear form: θ = f(φ, μ, Σ), which the notes promise and do not write down."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import CASES, K, each
from scipy import stats
from scipy.sparse import csr_array
from scipy.special import log_softmax

import jaxgen as jg
from jaxgen import chunks, platform, two_steps
from jaxgen.preparing import ready


@each([c for c in CASES if c.linear])
def test_linear_form_has_the_same_posterior(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y)
    line = jg.to_linear(c)
    assert line.weights.shape == (x.shape[1], K)
    joint = np.array([[case.log_density(c.density, k, row) for k in range(K)] for row in x]) + np.asarray(c.log_prior)
    expected = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    scores = x @ np.asarray(line.weights) + np.asarray(line.bias)
    np.testing.assert_allclose(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), expected, atol=1e-10)
    np.testing.assert_allclose(np.exp(jg.log_posterior(line, x)), expected, atol=1e-10)


@each([c for c in CASES if not c.linear])
def test_quadratic_log_odds_are_refused(case):
    with pytest.raises(TypeError, match=r"not linear in x.*shared=True"):
        jg.to_linear(jg.fit(case.estimator, *case.data()))


@pytest.mark.parametrize("far", [0.0, 0.3, 3.0, 1e4])
@pytest.mark.parametrize(("num_classes", "d"), [(2, 8), (3, 5)], ids=["two steps", "one step"])
def test_many_rows_are_scored_by_the_linear_form_where_that_costs_no_digits(monkeypatch, far, num_classes, d):
    monkeypatch.setattr(two_steps, "_MOST_CLASSES", 2)
    rng = np.random.default_rng(0)
    root = (np.tril(rng.normal(size=(d, d))) / 4 + np.eye(d)).astype(np.float32)
    mean = (rng.normal(size=(num_classes, d)) + far).astype(np.float32)
    log_prior = jnp.log(jnp.arange(1.0, num_classes + 1)).astype(jnp.float32)
    c = jg.Classifier(log_prior, jg.Gaussian(jnp.asarray(mean), jnp.asarray(root)[None]))
    x = (mean[np.arange(1024 * d) % num_classes] + rng.normal(size=(1024 * d, d)) @ root.T).astype(np.float32)
    wide = root.astype(np.float64)
    logs = [stats.multivariate_normal(mu, wide @ wide.T).logpdf(x.astype(np.float64)) for mu in mean.astype(np.float64)]
    expected = log_softmax(np.stack(logs, axis=1) + np.asarray(log_prior), axis=1)
    assert isinstance(ready(c, likelihood=False, many=True), jg.LinearClassifier) == (far < 1)
    many, few = jg.log_posterior(c, x), jg.log_posterior(c, x[:500])
    np.testing.assert_allclose(many, expected, rtol=1e-6, atol=4e-6)
    np.testing.assert_allclose(np.exp(many[:500]), np.exp(few), atol=1e-6)
    clear = np.ptp(np.sort(expected, axis=1)[:, -2:], axis=1) > 1e-4
    np.testing.assert_array_equal(np.asarray(jg.predict(c, x))[clear], expected.argmax(axis=1)[clear])
    for wrong in (1, num_classes + 1):
        with pytest.raises(ValueError, match="log_prior must have one entry for each of the density's"):
            jg.predict(jg.Classifier(jnp.zeros(wrong, jnp.float32), c.density), x)
    x[4321, 2] = np.inf
    for verb in (jg.predict, jg.log_posterior):
        with pytest.raises(ValueError, match="found inf at row 4321, column 2"):
            verb(c, x)


@pytest.mark.parametrize(("num_classes", "filled"), [(8, 8), (9, 16), (15, 16), (17, 17)])
def test_a_product_that_nearly_fills_a_vector_is_made_with_all_of_it(num_classes, filled):
    d, rng = 4 * num_classes, np.random.default_rng(0)
    weights, bias = rng.normal(size=(d, num_classes)), rng.normal(size=num_classes)
    x = rng.poisson(1.0, size=(150, d)).astype(float)
    exact = log_softmax(x @ weights + bias, axis=1)
    log_p = weights.T - 9.0  # no probabilities: scores are what is asked for
    for c in jg.LinearClassifier(*map(jnp.asarray, (weights, bias))), jg.Classifier(bias, jg.Multinomial(log_p)):
        with platform.override(platform.CPU):
            np.testing.assert_allclose(jg.log_posterior(c, x), exact, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(jg.predict(c, x), exact.argmax(axis=1))
            one = jax.vmap(partial(jg.log_posterior, c))(x)
            np.testing.assert_allclose(one, exact, rtol=1e-12, atol=1e-12)
            programs = [jax.make_jaxpr(partial(jg.log_posterior, c))(x), jax.make_jaxpr(partial(jg.predict, c))(x)]
            most, few = (
                str(jax.make_jaxpr(partial(jg.log_posterior, c))(np.zeros((n, d))))
                for n in (chunks.KEPT // 8 // num_classes, 128)
            )
        assert [f"f64[150,{filled}] = dot_general" in str(program) for program in programs] == [True, True]
        # Of products the largest is not looked for first; the form in which counts may be impossible is no product.
        assert str(programs[1]).count("reduce_max") == (num_classes == 17) + isinstance(c, jg.Classifier)
        assert f",{num_classes}] = dot_general" in most  # more than what is kept
        assert f"f64[128,{num_classes}] = dot_general" in few  # less than the table's copy is worth


def test_a_product_of_few_features_is_made_as_it_is():
    c = jg.LinearClassifier(jnp.ones((35, 9)), jnp.zeros(9))
    with platform.override(platform.CPU):
        assert "f64[150,9] = dot_general" in str(jax.make_jaxpr(partial(jg.log_posterior, c))(np.ones((150, 35))))


def test_a_classifier_of_small_pictures_is_prepared_once():
    c = jg.Classifier(jnp.zeros(2), jg.Gaussian(jnp.zeros((2, 784)), jnp.eye(784)[None]))
    assert ready(c, likelihood=False, many=False) is ready(c, likelihood=False, many=False)


def test_theta_of_gaussian_discriminant_analysis():
    """θ = Σ⁻¹(μ₁ − μ₀) and θ₀ = ½(μ₀ᵀΣ⁻¹μ₀ − μ₁ᵀΣ⁻¹μ₁) + log φ/(1 − φ), from parameters given by hand."""
    phi, mean, sigma = 0.3, np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[2.0, 0.5], [0.5, 1.0]])
    density = jg.Gaussian(jnp.asarray(mean), jnp.linalg.cholesky(jnp.asarray(sigma))[None])
    line = jg.to_linear(jg.Classifier(jnp.log(jnp.array([1 - phi, phi])), density))
    inverse = np.linalg.inv(sigma)
    theta = inverse @ (mean[1] - mean[0])
    bias = 0.5 * (mean[0] @ inverse @ mean[0] - mean[1] @ inverse @ mean[1]) + np.log(phi / (1 - phi))
    np.testing.assert_allclose(line.weights[:, 1] - line.weights[:, 0], theta, rtol=1e-12)
    np.testing.assert_allclose(line.bias[1] - line.bias[0], bias, rtol=1e-12)
    x = np.array([0.7, -0.2])
    np.testing.assert_allclose(np.exp(jg.log_posterior(line, x))[1], 1 / (1 + np.exp(-(theta @ x + bias))), rtol=1e-12)


def test_linear_form_of_a_linear_classifier_is_itself():
    line = jg.LinearClassifier(jnp.ones((2, 3)), jnp.zeros(3))
    assert jg.to_linear(line) is line


def test_impossible_events_have_no_finite_weights():
    c = jg.fit(jg.BernoulliNB(alpha=0.0), np.array([[1, 0], [1, 1]]), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"not finite.*alpha > 0"):
        jg.to_linear(c)


def test_what_is_nan_is_no_impossible_event():
    c = jg.Classifier(np.zeros(2), jg.Gaussian(np.array([[0.0], [np.nan]]), np.ones((1, 1, 1))))
    with pytest.raises(ValueError, match=r"^c\.density\.mean must hold numbers below infinity; found nan at \[1, 0\]"):
        jg.to_linear(c)


def test_parameters_of_few_bits_have_the_same_posterior():
    x = 100 + np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    c = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), jg.fit(jg.LDA(), x, np.arange(40) % 2))
    np.testing.assert_allclose(jg.log_posterior(jg.to_linear(c), x), jg.log_posterior(c, x), atol=1e-4)


def test_binarized_features_are_not_linear_in_x():
    c = jg.fit(jg.BernoulliNB(binarize=0.5), np.array([[1.0, 0.2], [1, 1]]), np.array([0, 1]))
    with pytest.raises(TypeError, match="not linear in x"):
        jg.to_linear(c)


def test_what_is_no_classifier():
    with pytest.raises(TypeError, match="to_linear takes a classifier"):
        jg.to_linear(jg.LDA())  # pyright: ignore[reportArgumentType]


def test_a_stack_wants_vmap():
    case = CASES[0]
    stacked = jax.vmap(lambda ridge: jg.fit(jg.LDA(ridge=ridge), *case.data()))(jnp.ones(2))
    with pytest.raises(ValueError, match=r"one classifier.*vmap"):
        jg.to_linear(stacked)


def test_linear_form_is_differentiable_and_jits():
    case = CASES[0]
    x, y = case.data()
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jg.to_linear(jg.fit(case.estimator, x, y)).bias ** 2)))(x)
    assert np.isfinite(gradient).all()


def test_what_all_classes_have_in_common_costs_no_digits():
    """Weights of rare words, such as ComplementNB's, are large in every class; the posterior is of differences."""
    rng = np.random.default_rng(0)
    weights = 14 + rng.exponential(size=(5_000, 1)) + 0.05 * rng.normal(size=(5_000, 20))
    c = jg.LinearClassifier(*(np.asarray(part, np.float32) for part in (weights, rng.normal(size=20))))
    x = rng.poisson(0.1, size=(40, 5_000)).astype(np.float32)
    exact = log_softmax(x.astype(float) @ c.weights.astype(float) + c.bias.astype(float), axis=1)
    for rows in (x, csr_array(x), csr_array(x[:3])):
        np.testing.assert_allclose(jg.log_posterior(c, rows), exact[: rows.shape[0]], atol=2e-5)
