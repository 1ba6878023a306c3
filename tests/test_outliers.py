"""Mahalanobis distances: SciPy's and NumPy's from the data, and digits that no class has seen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.spatial.distance import mahalanobis
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import jaxgen as jg

RNG = np.random.default_rng(0)
K, D = 3, 4
Y = np.repeat(np.arange(K), (20, 30, 40))
X = RNG.normal(size=(len(Y), D)) @ (np.eye(D) + 0.3 * RNG.normal(size=(D, D))) + 3 * RNG.normal(size=(K, D))[Y]
POINTS = RNG.normal(size=(5, D)) * 4
EXACT = {
    "LDA": jg.LDA(ridge=0.0),
    "QDA": jg.QDA(ridge=0.0),
    "GaussianNB": jg.GaussianNB(ridge=0.0),
    "diagonal LDA": jg.GDA("diagonal", shared=True, ridge=0.0),
}


def squared(mean, covariance, points=POINTS):
    inverse = np.linalg.inv(covariance)
    return np.array([mahalanobis(point, mean, inverse) ** 2 for point in points])


def covariance(estimator, rows):
    full = np.cov(rows.T, ddof=0)
    return full if estimator.covariance == "full" else np.diag(np.diag(full))


@pytest.mark.parametrize("name", EXACT)
def test_distances_are_scipys_and_the_background_has_the_moments_of_all_rows(name):
    estimator = EXACT[name]
    c = jg.fit(estimator, X, Y)
    each = [covariance(estimator, X[Y == k]) for k in range(K)]
    if estimator.shared:
        each = [np.average(each, axis=0, weights=np.bincount(Y))] * K
    expected = np.stack([squared(X[Y == k].mean(axis=0), each[k]) for k in range(K)], axis=1)
    np.testing.assert_allclose(jg.mahalanobis(c, POINTS), expected, rtol=1e-10)
    whole = squared(X.mean(axis=0), covariance(estimator, X))
    relative = jg.relative_mahalanobis(c, POINTS)
    np.testing.assert_allclose(relative, expected - whole[:, None], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(jg.relative_mahalanobis(c, POINTS[0]), relative[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [pytest.param("LDA", marks=pytest.mark.thorough), "QDA", "GaussianNB"])
def test_distances_of_what_was_observed_are_those_under_the_marginals(name):
    c = jg.fit(EXACT[name], X, Y)
    observed = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]], bool)
    x = np.where(observed, POINTS, np.nan)
    each = [covariance(EXACT[name], X[Y == k]) for k in range(K)]
    each = [np.average(each, axis=0, weights=np.bincount(Y))] * K if EXACT[name].shared else each
    of_classes = list(zip((X[Y == k].mean(axis=0) for k in range(K)), each, strict=True))
    near, whole = np.zeros((len(x), K)), np.zeros((len(x), 1))
    for i, seen in enumerate(observed[:-1]):  # nothing observed is no distance
        of = lambda mean, full, i=i, seen=seen: squared(mean[seen], full[np.ix_(seen, seen)], POINTS[[i]][:, seen])[0]  # noqa: E731
        near[i] = [of(*terms) for terms in of_classes]
        whole[i] = of(X.mean(axis=0), covariance(EXACT[name], X))
    np.testing.assert_allclose(jg.mahalanobis(c, x, observed=observed), near, rtol=1e-9)
    relative = jg.relative_mahalanobis(c, x, observed=observed)
    np.testing.assert_allclose(relative, near - whole, rtol=1e-9, atol=1e-9)
    one = jg.relative_mahalanobis(c, x[0], observed=observed[0])
    np.testing.assert_allclose(one, relative[0], rtol=1e-10, atol=1e-10)


def test_a_spherical_scale_is_the_same_one_for_every_feature():
    c = jg.fit(jg.GDA("spherical", shared=False), X, Y)
    wide = c._replace(density=c.density._replace(scale=jnp.broadcast_to(c.density.scale, (K, D))))
    for verb in (jg.mahalanobis, jg.relative_mahalanobis):
        np.testing.assert_allclose(verb(c, POINTS), verb(wide, POINTS), rtol=1e-12)


@pytest.mark.parametrize("name", ["QDA", "GaussianNB"])
def test_a_class_of_prior_zero_has_no_part_in_the_background_and_gives_no_nan(name):
    c = jg.fit(EXACT[name], X, Y)
    more = jg.fit(EXACT[name], X, Y, num_classes=K + 1)
    assert np.isneginf(more.log_prior[K])
    relative = jg.relative_mahalanobis(more, POINTS)
    np.testing.assert_allclose(relative[:, :K], jg.relative_mahalanobis(c, POINTS), rtol=1e-10)
    assert np.isfinite(relative).all()
    gradient = jax.jit(jax.grad(lambda c: jnp.sum(jg.relative_mahalanobis(c, POINTS))))(more)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", ["LDA", "GaussianNB"])
def test_gradients(name):
    c = jg.fit(EXACT[name], X, Y)

    @jax.jit
    def loss(x, c):
        if isinstance(c.density, jg.Gaussian):
            c = c._replace(density=c.density._replace(cholesky=jnp.tril(c.density.cholesky)))
        return jnp.sum(jnp.sin(jg.relative_mahalanobis(c, x) / 10))

    check_grads(loss, (jnp.asarray(POINTS[:2]), c), order=1, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["LDA", "GaussianNB"])
def test_a_large_mean_costs_no_digits_in_float32(name):
    x, points = (np.float32(a + 1e4) for a in (X, POINTS))
    single, double = (jg.fit(EXACT[name], x.astype(dtype), Y) for dtype in (np.float32, np.float64))
    for verb in (jg.mahalanobis, jg.relative_mahalanobis):
        np.testing.assert_allclose(verb(single, points), verb(double, points.astype(float)), rtol=2e-2, atol=2e-2)


def test_a_background_of_classes_far_apart_keeps_its_narrow_directions_in_float32():
    """The sum of products has a condition number of 1e8 here, in no direction of the axes: it would be singular."""
    rotation = np.linalg.qr(RNG.normal(size=(D, D)))[0]
    mean = np.outer([-1e4, 1e4], rotation[0])
    prior, points = np.log([0.5, 0.5]), mean[1] + RNG.normal(size=(5, D))
    c = jg.Classifier(*jax.tree.map(np.float32, (prior, jg.Gaussian(mean, np.eye(D)[None]))))
    exact = squared(np.zeros(D), np.eye(D) + 1e8 * np.outer(rotation[0], rotation[0]), points)
    background = jg.mahalanobis(c, points) - jg.relative_mahalanobis(c, points)
    np.testing.assert_allclose(background[:, 1], exact, rtol=1e-2)  # of class 0 little is left of 4e8


def test_stacks_and_traces():
    stack = jax.vmap(lambda ridge: jg.fit(jg.QDA(ridge), X, Y))(jnp.array([0.0, 0.5]))
    both = jax.jit(jax.vmap(jg.relative_mahalanobis, in_axes=(0, None)))(stack, POINTS)
    expected = [jg.relative_mahalanobis(jg.fit(jg.QDA(ridge), X, Y), POINTS) for ridge in (0.0, 0.5)]
    np.testing.assert_allclose(both, np.stack(expected), rtol=1e-9)
    with pytest.raises(ValueError, match=r"For a stack of classifiers: jax\.vmap"):
        jg.relative_mahalanobis(stack, POINTS)


@pytest.mark.parametrize("verb", [jg.mahalanobis, jg.relative_mahalanobis])
def test_what_is_refused_and_why(verb):
    counts = np.arange(12).reshape(6, 2)
    with pytest.raises(TypeError, match=r"needs Gaussian classes.*found Multinomial.*log_evidence"):
        verb(jg.fit(jg.MultinomialNB(), counts, np.arange(6) % 2), counts)
    with pytest.raises(TypeError, match="needs a generative classifier"):
        verb(jg.LinearClassifier(jnp.ones((2, 2)), jnp.ones(2)), counts)
    c = jg.fit(jg.GaussianNB(), X, Y)
    with pytest.raises(ValueError, match="the features that were fitted to"):
        verb(c, X[:, :2])
    with pytest.raises(ValueError, match="x must hold finite numbers"):
        verb(c, np.full((2, D), np.nan))


@pytest.mark.parametrize(
    ("estimator", "least"),  # area under the ROC curve: measured, less 0.01
    [
        (jg.GaussianNB(ridge=1e-2), {"log_evidence": 0.84, "mahalanobis": 0.83, "relative_mahalanobis": 0.89}),
        pytest.param(
            jg.LDA(ridge=1e-2),
            {"log_evidence": 0.83, "mahalanobis": 0.83, "relative_mahalanobis": 0.89},
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            jg.QDA(ridge=1e-1),
            {"log_evidence": 0.94, "mahalanobis": 0.93, "relative_mahalanobis": 0.95},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_eights_and_nines_stand_out_from_the_digits_that_were_seen(estimator, least):
    digits, digit = load_digits(return_X_y=True)
    seen = np.flatnonzero(digit < 8)
    train, held_out = train_test_split(seen, test_size=0.5, random_state=0, stratify=digit[seen])
    test = np.concatenate([held_out, np.flatnonzero(digit >= 8)])
    c = jg.fit(estimator, digits[train], digit[train])
    scores = {
        "log_evidence": -jg.log_evidence(c, digits[test]),
        "mahalanobis": jg.mahalanobis(c, digits[test]).min(axis=1),
        "relative_mahalanobis": jg.relative_mahalanobis(c, digits[test]).min(axis=1),
    }
    for name, score in scores.items():
        assert roc_auc_score(digit[test] >= 8, score) > least[name], name


def test_where_a_class_of_prior_zero_lies_costs_the_background_no_digits():
    mean, scale = jnp.array([[1e20, -1e20], [0.0, 1.0], [2.0, 0.0]]), jnp.ones((3, 2))
    c = jg.Classifier(jnp.array([-jnp.inf, np.log(0.5), np.log(0.5)]), jg.DiagonalGaussian(mean, scale))
    without = jg.Classifier(c.log_prior[1:], jg.DiagonalGaussian(mean[1:], scale[1:]))
    x = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(jg.relative_mahalanobis(c, x)[:, 1:], jg.relative_mahalanobis(without, x), rtol=1e-10)
