"""Bayes' rule on classifiers made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from registry import stats

import jaxgen as jg


def by_hand():
    mean, sigma = np.array([[0.0, 0.0], [2.0, 1.0]]), np.array([[1.0, 0.3], [0.3, 0.5]])
    density = jg.Gaussian(jnp.asarray(mean), jnp.linalg.cholesky(jnp.asarray(sigma))[None])
    return jg.Classifier(jnp.log(jnp.array([0.25, 0.75])), density), mean, sigma


def test_a_classifier_made_from_known_parameters():
    c, mean, sigma = by_hand()
    x = np.array([[0.5, -1.0], [3.0, 0.0], [1.0, 0.5]])
    likelihood = np.stack([stats.multivariate_normal(m, sigma).pdf(x) for m in mean], axis=1)
    joint = likelihood * np.array([0.25, 0.75])
    evidence = joint.sum(axis=1)
    np.testing.assert_allclose(np.exp(jg.log_likelihood(c, x)), likelihood, rtol=1e-12)
    np.testing.assert_allclose(np.exp(jg.log_joint(c, x)), joint, rtol=1e-12)
    np.testing.assert_allclose(np.exp(jg.log_evidence(c, x)), evidence, rtol=1e-12)
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), joint / evidence[:, None], rtol=1e-12)
    np.testing.assert_array_equal(jg.predict(c, x), joint.argmax(axis=1))


def test_numpy_parameters_serve_as_well():
    c, _, _ = by_hand()
    x = np.array([0.5, -1.0])
    np.testing.assert_allclose(jg.log_joint(jax.tree.map(np.asarray, c), x), jg.log_joint(c, x))


def test_another_prior_moves_the_posterior_by_its_odds():
    c, _, _ = by_hand()
    even = c._replace(log_prior=jnp.log(jnp.array([0.5, 0.5])))
    x = np.array([1.0, 0.5])
    odds = [np.diff(jg.log_posterior(classifier, x))[0] for classifier in (c, even)]
    np.testing.assert_allclose(odds[0] - odds[1], np.log(3), rtol=1e-12)


def test_shapes_of_one_point_and_of_many():
    c, _, _ = by_hand()
    for x, lead in ((np.zeros(2), ()), (np.zeros((1, 2)), (1,)), (np.zeros((5, 2)), (5,))):
        assert jg.log_likelihood(c, x).shape == (*lead, 2)
        assert jg.log_joint(c, x).shape == (*lead, 2)
        assert jg.log_posterior(c, x).shape == (*lead, 2)
        assert jg.log_evidence(c, x).shape == lead
        assert jg.predict(c, x).shape == lead
        assert jnp.issubdtype(jg.predict(c, x).dtype, jnp.integer)


def test_no_points_give_no_scores():
    c, _, _ = by_hand()
    assert jg.log_posterior(c, np.zeros((0, 2))).shape == (0, 2)
    assert jg.predict(c, np.zeros((0, 2))).shape == (0,)


def test_an_impossible_class_has_finite_gradients_elsewhere():
    c, _, _ = by_hand()
    never = c._replace(log_prior=jnp.array([0.0, -jnp.inf]))
    posterior = jg.log_posterior(never, np.zeros(2))
    np.testing.assert_array_equal(posterior, [0.0, -np.inf])
    gradient, second = (d(lambda x: jg.log_posterior(never, x)[0])(jnp.zeros(2)) for d in (jax.grad, jax.hessian))
    np.testing.assert_array_equal(gradient, 0.0)
    np.testing.assert_array_equal(second, 0.0)
    assert np.isfinite(jax.grad(lambda x: jg.log_evidence(never, x))(jnp.ones(2))).all()


@pytest.mark.every_platform
def test_verbs_on_known_arguments_inside_jit():
    x, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    words = scipy.sparse.csr_array(np.abs(x).round())
    for estimator, rows in ((jg.LDA(), x), (jg.QDA(), x), (jg.LogisticRegression(), x), (jg.MultinomialNB(), words)):
        c = jg.fit(estimator, rows, y)
        inside = jax.jit(lambda number, c=c, rows=rows: number + jg.log_posterior(c, rows))(1.0)
        np.testing.assert_allclose(inside, 1.0 + jg.log_posterior(c, rows), rtol=1e-10)
        assert jax.eval_shape(lambda c=c, rows=rows: jg.predict(c, rows)).shape == (30,)


def test_the_latest_classifier_that_was_prepared_is_forgotten_for_another():
    x, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    c = jg.fit(jg.LDA(), x, y)
    other = c._replace(log_prior=c.log_prior[::-1] + jnp.array([0.0, 1.0]))
    for _ in range(2):
        for each in (c, other):
            exact = jg.log_joint(each, x)
            np.testing.assert_allclose(jg.log_posterior(each, x), exact - np.logaddexp.reduce(exact, axis=1)[:, None])
    mean = np.asarray(c.density.mean).copy()
    mutable = c._replace(density=c.density._replace(mean=mean))
    before = jg.predict(mutable, x)
    mean[:] = mean[::-1].copy()
    assert (jg.predict(mutable, x) != before).any()


def test_gradient_of_the_evidence_is_the_score_function():
    c, mean, sigma = by_hand()
    x = np.array([1.0, 0.5])
    posterior = np.exp(jg.log_posterior(c, x))
    expected = sum(p * np.linalg.solve(sigma, m - x) for p, m in zip(posterior, mean, strict=True))
    np.testing.assert_allclose(jax.grad(lambda x: jg.log_evidence(c, x))(jnp.asarray(x)), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_have_the_dtype_of_the_classifier(dtype):
    c, _, _ = by_hand()
    c = jax.tree.map(lambda leaf: leaf.astype(dtype), c)
    assert jg.log_posterior(c, np.zeros(2)).dtype == dtype


@pytest.mark.parametrize(
    "estimator", [jg.BernoulliNB(alpha=0.0), jg.MultinomialNB(0.0), jg.PoissonNB(0.0, 0.0)], ids=str
)
def test_an_impossible_row_has_no_part_in_the_derivative_of_the_evidence(estimator):
    x, y, rows = np.array([[1.0, 0], [1, 0], [0, 0], [1, 0]]), np.array([0, 0, 1, 1]), np.array([[0.0, 1], [1, 0]])

    def slope(rows):
        def total(w):
            evidence = jg.log_evidence(jg.fit(estimator, x, y, num_classes=2, sample_weight=w), rows)
            return jnp.sum(jnp.where(evidence > -jnp.inf, evidence, 0.0))

        return jax.grad(total)(jnp.ones(4))

    np.testing.assert_allclose(slope(rows), slope(rows[1:]))
    assert np.all(np.isfinite(slope(rows)))


def test_an_impossible_row_has_no_part_in_the_derivative_of_other_posteriors():
    """Of log p = log π p_1 … of the first row, whose derivative by log π_0 is 1 less its posterior."""
    density = jg.Multinomial(jnp.log(jnp.array([[0.4, 0.6, 0.0], [0.3, 0.7, 0.0]])))
    rows = np.array([[1.0, 1, 0], [0, 1, 2]])

    def loss(prior):
        posterior = jg.log_posterior(jg.Classifier(prior, density), rows)
        return jg.metrics.log_loss(np.array([0, 1]), posterior, sample_weight=np.array([1.0, 0.0]))

    first = 0.24 / (0.24 + 0.21)
    prior = jnp.log(jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(jax.grad(loss)(prior), [first - 1, 1 - first], rtol=1e-12)
    spread = first * (1 - first)
    np.testing.assert_allclose(jax.hessian(loss)(prior), [[spread, -spread], [-spread, spread]], rtol=1e-12)
