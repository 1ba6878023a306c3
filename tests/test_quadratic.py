"""Scores under a covariance for each class, of so many rows that classes are whitened in pairs, against the formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import of_a_cpu
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

import jaxgen as jg
from jaxgen.quadratic import CentredGaussian

D = 3
NUM_ROWS = 1024 * D  # from which a CPU takes pairs


def classifier_and_rows(num_classes, spread, dtype):
    """Rows of classes that are turned, every second one `spread` times wider in one direction than in another."""
    rng = np.random.default_rng(num_classes)
    turns = np.linalg.qr(rng.normal(size=(num_classes, D, D)))[0]
    deviations = np.stack([np.geomspace(1, spread if k % 2 else 1, D) for k in range(num_classes)])
    covariance = np.einsum("kij,kj,klj->kil", turns, deviations**2, turns)
    mean, cholesky = rng.normal(size=(num_classes, D)), np.linalg.cholesky(covariance)
    y = np.arange(NUM_ROWS) % num_classes
    x = mean[y] + np.einsum("nij,nj->ni", cholesky[y], rng.normal(size=(NUM_ROWS, D)))
    log_prior = np.log(np.arange(1.0, num_classes + 1) / (num_classes * (num_classes + 1) / 2))
    c = jg.Classifier(log_prior, jg.Gaussian(mean, cholesky))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(dtype)), c), x.astype(dtype)


def distances_and_joint(c, x):
    """The squared distances and log p(x, y), by solving with the factor of each class in NumPy's float64."""
    log_prior, mean, cholesky = (np.asarray(leaf, np.float64) for leaf in (c.log_prior, *c.density))
    residuals = (np.linalg.solve(f, (x.astype(np.float64) - m).T) for m, f in zip(mean, cholesky, strict=True))
    distances = np.stack([np.sum(residual**2, axis=0) for residual in residuals], axis=1)
    log_scale = np.log(np.diagonal(cholesky, axis1=1, axis2=2)).sum(axis=1)
    return distances, log_prior - distances / 2 - log_scale - D / 2 * np.log(2 * np.pi)


@pytest.mark.parametrize(("num_classes", "spread"), [(2, 1.0), (3, 10.0), (4, 100.0), (5, 1000.0), (4, 1e5)])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
def test_scores_of_many_rows_are_those_of_the_formula(num_classes, spread, dtype):
    c, x = classifier_and_rows(num_classes, spread, dtype)
    _, joint = distances_and_joint(c, x)
    tolerance = 8 * spread * np.finfo(dtype).eps  # the smaller deviations are known no better
    for ours, expected in ((jg.log_joint(c, x), joint), (jg.log_posterior(c, x), log_softmax(joint, axis=1))):
        np.testing.assert_allclose(ours, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("num_classes", "spread"), [(2, 1.0), (3, 100.0), (4, 1e5)])
def test_classes_are_paired_where_that_is_accurate(num_classes, spread):
    c, x = classifier_and_rows(num_classes, spread, np.float32)
    centred, _ = c.density.prepared().quick_form(likelihood=True)
    pairs = centred.for_many_rows()
    assert (pairs is not None) == (spread < 1000)
    if pairs is not None:
        expected, _ = distances_and_joint(c, x)
        tolerance = 16 * spread * np.finfo(np.float32).eps
        distances = jax.jit(type(pairs).squared_distances)(pairs, x)
        np.testing.assert_allclose(distances, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("width", [1 / 900, 900.0])
@pytest.mark.parametrize("far", [1.0, 100.0])
def test_a_class_loses_no_digits_beside_a_narrow_or_a_wide_one(width, far):
    rng = np.random.default_rng(0)
    d = 5
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    cholesky = np.stack([np.linalg.cholesky(turn * [width**2, 1, 1, 1, 1] @ turn.T), np.eye(d)])
    mean = rng.normal(scale=0.004, size=(2, d)).astype(np.float32)
    density = jg.Gaussian(jnp.asarray(mean), jnp.asarray(cholesky, jnp.float32))
    x = (far * rng.normal(size=(1024 * d, d))).astype(np.float32)
    joint = jg.log_joint(jg.Classifier(jnp.log(jnp.full(2, 0.5, jnp.float32)), density), x)
    constant = np.log(0.5) - d / 2 * np.log(2 * np.pi)
    expected = constant - np.sum((x.astype(np.float64) - mean[1]) ** 2, axis=1) / 2
    np.testing.assert_allclose(joint[:, 1], expected, rtol=8 * np.finfo(np.float32).eps, atol=1e-5)


@of_a_cpu
def test_classes_are_paired_once_for_all_calls_with_many_rows(monkeypatch):
    made, pair = [], CentredGaussian.for_many_rows
    monkeypatch.setattr(CentredGaussian, "for_many_rows", lambda form: made.append(form) or pair(form))
    c, x = classifier_and_rows(4, 1.0, np.float32)
    few = jg.predict(c, x[:100])
    assert not made
    many = jg.predict(c, x)
    jg.predict(c, x[:100])
    jg.predict(c, x)
    assert len(made) == 1
    np.testing.assert_array_equal(few, many[:100])


def test_many_rows_in_float64_are_scored_in_float64():
    rng, d, n = np.random.default_rng(0), 8, 50_000
    factor = np.linalg.cholesky([a @ a.T + np.eye(d) for a in rng.normal(size=(4, d, d))])
    mean, x = rng.normal(size=(4, d)), rng.normal(size=(n, d))
    c = jg.Classifier(jnp.zeros(4), jg.Gaussian(jnp.asarray(mean), jnp.asarray(factor)))
    exact = np.stack([multivariate_normal(m, f @ f.T).logpdf(x) for m, f in zip(mean, factor, strict=True)], axis=1)
    np.testing.assert_allclose(jg.log_likelihood(c, x), exact, rtol=1e-10)
