"""Rows without labels: EM against scikit-learn's mixtures, against closed forms, and its gradients."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from conftest import of_a_cpu
from jax.experimental.sparse import BCOO
from jax.test_util import check_grads
from registry import CASES, K, each
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture

import jaxgen as jg
from jaxgen import chunks, em, em_cores, em_data, platform, starts, threads

BY_NAME = {case.name: case for case in CASES}


SAME = np.ones((60, 2))


def close(a, b, tolerance=1e-10):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)


def clusters(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    return rng.normal(size=(n, 2)) @ np.array([[1.0, 0.5], [0.0, 0.7]]) + 4.0 * np.eye(3)[y, :2], y


@pytest.mark.parametrize(
    ("covariance", "shared", "peer"),
    [
        ("full", False, "full"),
        pytest.param("full", True, "tied", marks=pytest.mark.thorough),
        pytest.param("diagonal", False, "diag", marks=pytest.mark.thorough),
        pytest.param("spherical", False, "spherical", marks=pytest.mark.thorough),
    ],
)
def test_gaussian_mixtures_take_the_steps_of_scikit_learn(covariance, shared, peer):
    compare_steps(covariance, shared, peer)


@of_a_cpu
def test_steps_that_cores_share_are_those_of_scikit_learn_as_well(dealt):
    compare_steps("diagonal", False, "diag")
    assert dealt.count(3) == 2


@pytest.mark.thorough
@of_a_cpu
@pytest.mark.parametrize("name", ["LDA", "QDA", "GaussianNB", "MixedNB"])
def test_runs_that_cores_share_are_those_of_one_program(name, request):
    case = BY_NAME[name]
    x, y = case.data(n=200)
    rng = np.random.default_rng(3)
    weight, observed = rng.integers(3, size=200) * 0.5, rng.random(x.shape) < 0.8
    y = np.where(rng.random(200) < 0.3, y, -1)
    missing = np.where(observed, x, np.nan)

    options = {"num_classes": K, "sample_weight": weight, "tolerance": 1e-4, "max_steps": 40, "observed": observed}
    restarts = 2 if case.estimator.fills_in else 1

    def runs(x):
        return jg.train_em(case.estimator, x, y, key=jax.random.key(0), restarts=restarts, **options)

    at_once = runs(missing)
    dealt = request.getfixturevalue("dealt")
    close(runs(missing), at_once, 1e-9)
    assert dealt.count(3) == 2  # to see whether, and then for the steps
    bad = np.argmax(observed[:, 0] & (weight > 0))
    missing[bad, 0] = np.nan
    with pytest.raises(ValueError, match=f"row {bad}"):
        runs(missing)


@pytest.mark.thorough
@of_a_cpu
def test_steps_that_cores_share_are_traced_for_the_tuning_of_the_call(dealt, monkeypatch):
    x, traced = clusters()[0], []
    each_run = em_cores.each_run

    def seen(*arguments):
        traced.append(platform.tuning_on(None))
        return each_run(*arguments)

    monkeypatch.setattr(em_cores, "each_run", seen)
    tunings = [dataclasses.replace(platform.CPU, stacks=stacks) for stacks in ("together", "in turn", "together")]
    for tuning in tunings:
        with platform.override(tuning):
            jg.train_em(jg.GaussianNB(), x, num_classes=2, start=jg.fit(jg.GaussianNB(), x[:6], np.arange(6) % 2))
    half = len(traced) // 2
    assert half
    assert traced == half * [tunings[0]] + half * [tunings[1]]


@of_a_cpu
def test_flags_that_look_at_every_program_see_one(dealt):
    x = clusters()[0]
    with jax.debug_infs(True):
        jg.train_em(jg.GaussianNB(), x, num_classes=2, key=jax.random.key(0))
    assert 3 not in dealt


@pytest.mark.thorough
def test_jit_turned_off_changes_no_run():
    x, y = np.array([[0], [1], [8], [9], [2]]), np.array([0, -1, -1, 1, -1])

    def run():
        return jg.train_em(jg.PoissonNB(), x, y, key=jax.random.key(0), tolerance=0.0, max_steps=2)

    with jax.disable_jit():
        apart = run()
    close(apart, run(), 1e-12)


@pytest.fixture
def dealt(monkeypatch):
    """Rows are dealt out to three cores, however few they are; in how many parts, each time."""
    for room in (chunks, em_cores):
        monkeypatch.setattr(room, "_FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    split, parts = chunks.split, []

    def counted(*data, **more):
        found = split(*data, **more)
        parts.append(len(found))
        return found

    monkeypatch.setattr(chunks, "split", counted)
    return parts


def compare_steps(covariance, shared, peer):
    x, _ = clusters()
    steps = 7
    first = jnp.asarray(x[:3] + 0.5)
    precisions = {
        "full": np.stack([np.eye(2)] * 3),
        "tied": np.eye(2),
        "diag": np.ones((3, 2)),
        "spherical": np.ones(3),
    }
    sklearn = GaussianMixture(
        3, covariance_type=peer, reg_covar=0, tol=0, max_iter=steps, weights_init=np.full(3, 1 / 3), means_init=first,
        precisions_init=precisions[peer],
    )  # fmt: skip
    with pytest.warns(UserWarning, match="did not converge"):
        sklearn.fit(x)
    if covariance == "full":
        density = jg.Gaussian(first, jnp.stack([jnp.eye(2)] * (1 if shared else 3)))
    else:
        density = jg.DiagonalGaussian(first, jnp.ones((3, 2 if covariance == "diagonal" else 1)))
    start = jg.Classifier(jnp.log(jnp.full(3, 1 / 3)), density)
    c, report = jg.train_em(
        jg.GDA(covariance, shared=shared, ridge=0.0), x, num_classes=3, start=start, tolerance=0.0, max_steps=steps
    )
    # Ours ends with an E-step and the estimate from it, so the start's E-step stands for the first of theirs.
    close(np.exp(c.log_prior), next_weights(sklearn, x), 1e-9)
    close(c.density.mean, next_means(sklearn, x), 1e-9)
    close(report.log_evidence[steps - 1], sklearn.score(x), 1e-9)
    assert not report.converged


@pytest.mark.parametrize("covariance", ["diagonal", pytest.param("spherical", marks=pytest.mark.thorough)])
def test_mixtures_of_one_diagonal_scatter_take_the_steps_of_numpy(covariance):
    x, _ = clusters()
    steps, first = 7, x[:3] + 0.5
    weight, mean, variance, trace = np.full(3, 1 / 3), first, np.ones(2), []
    for _ in range(steps + 1):
        density = scipy.stats.norm(mean, np.sqrt(variance)).logpdf(x[:, None]).sum(axis=-1)
        evidence = scipy.special.logsumexp(density + np.log(weight), axis=1)
        trace.append(evidence.mean())
        r = np.exp(density + np.log(weight) - evidence[:, None])
        weight, mean = r.mean(axis=0), r.T @ x / r.sum(axis=0)[:, None]
        variance = np.einsum("nk,nkd->d", r, (x[:, None] - mean) ** 2) / len(x)
        if covariance == "spherical":
            variance = np.full(2, variance.mean())
    density = jg.DiagonalGaussian(jnp.asarray(first), jnp.ones((1, 2 if covariance == "diagonal" else 1)))
    start = jg.Classifier(jnp.log(jnp.full(3, 1 / 3)), density)
    estimator = jg.GDA(covariance, shared=True, ridge=0.0)
    c, report = jg.train_em(estimator, x, num_classes=3, start=start, tolerance=0.0, max_steps=steps)
    close(report.log_evidence[:steps], np.array(trace[1:]), 1e-12)
    close(c.density.mean, mean, 1e-12)
    close(np.broadcast_to(c.density.scale[0] ** 2, 2), variance, 1e-12)


def next_weights(mixture, x):
    return mixture.predict_proba(x).mean(axis=0)


def next_means(mixture, x):
    posterior = mixture.predict_proba(x)
    return posterior.T @ x / posterior.sum(axis=0)[:, None]


@each(CASES, first=("MixedNB",))
def test_every_step_raises_the_evidence_and_the_best_run_is_returned(case):
    x, _ = case.data(n=120)
    estimator = dataclasses.replace(case.estimator, **case.mle)
    options = {"num_classes": 2, "max_steps": 60, "tolerance": 0.0}
    c, report = jg.train_em(estimator, x, key=jax.random.key(0), restarts=3, **options)
    trace = np.asarray(report.log_evidence[: report.steps])
    assert (np.diff(trace) > -1e-12).all()
    assert np.isnan(report.log_evidence[report.steps :]).all()
    assert jnp.mean(jg.log_evidence(c, x)) >= trace[-1] - 1e-12
    assert trace[-1] > np.mean(jg.log_evidence(jg.fit(estimator, x, np.zeros(len(x), int)), x))
    if case.name == "BernoulliNB":  # one run is one of the many
        ends = [jg.train_em(estimator, x, key=jax.random.key(s), **options)[1].last for s in range(3)]
        many = jg.train_em(estimator, x, key=jax.random.key(9), restarts=20, **options)[1].last
        assert many >= max(ends) - 1e-6


def test_rows_with_labels_keep_them():
    x, y = clusters()
    some = np.where(np.arange(len(y)) % 5 == 0, y, -1)
    estimator, key = jg.QDA(), jax.random.key(0)
    close(jg.fit_em(estimator, x, y), jg.fit(estimator, x, y))
    without = jg.fit_em(estimator, x, some, key=key, unlabelled_weight=0.0)
    close(without, jg.fit(estimator, x[some >= 0], y[some >= 0]))
    shares = np.where((some >= 0)[:, None], np.eye(3)[y], 0.0)
    c, _ = jg.train_em(estimator, x, some, key=key, tolerance=1e-12)
    close(jg.train_em(estimator, x, shares, key=key, tolerance=1e-12)[0], c)
    labelled_first = np.argsort(some < 0, kind="stable")
    # At the maximum the estimate from the posterior of the others is the classifier itself.
    posterior = np.where((some >= 0)[:, None], shares, np.exp(jg.log_posterior(c, x)))
    close(jg.fit(estimator, x[labelled_first], posterior[labelled_first]), c, 1e-5)
    assert (np.asarray(jg.predict(c, x)) == y).mean() > 0.9


def test_a_row_counts_by_its_weight():
    x, y = clusters(60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    start = jg.fit(jg.GaussianNB(), x, y)
    options = {"num_classes": 3, "start": start, "tolerance": 1e-12}
    weighted, _ = jg.train_em(
        jg.GaussianNB(), np.where(weight[:, None] > 0, x, np.nan), sample_weight=weight, **options
    )
    twice, _ = jg.train_em(jg.GaussianNB(), np.repeat(x, weight, axis=0), **options)
    close(weighted, twice, 1e-6)


@pytest.mark.parametrize("start", ["k-means++", pytest.param("random", marks=pytest.mark.thorough)])
def test_clusters_are_found_with_missing_features(start):
    x, y = clusters(300)
    observed = np.random.default_rng(2).random(x.shape) < 0.9
    options = {"num_classes": 3, "key": jax.random.key(1), "restarts": 4, "start": start, "tolerance": 1e-4}
    c = jg.fit_em(jg.GaussianNB(), np.where(observed, x, np.nan), observed=observed, **options)
    found = np.asarray(jg.predict(c, x))
    table = np.array([[np.sum((y == a) & (found == b)) for b in range(3)] for a in range(3)])
    assert table.max(axis=1).sum() > 0.9 * len(y)
    assert sorted(table.argmax(axis=1)) == [0, 1, 2]


@pytest.mark.parametrize(
    "container", [scipy.sparse.csr_array, pytest.param(BCOO.fromdense, marks=pytest.mark.thorough)]
)
def test_mixtures_of_sparse_rows_are_those_of_dense_ones(container):
    x, y = BY_NAME["MultinomialNB"].data()
    start = jg.fit(jg.MultinomialNB(), x, y)
    options = {"num_classes": K, "start": start, "tolerance": 1e-10}
    close(jg.train_em(jg.MultinomialNB(), container(x), **options)[0], jg.train_em(jg.MultinomialNB(), x, **options)[0])
    if container is scipy.sparse.csr_array:
        jg.fit_em(jg.MultinomialNB(), jg.pad_rows(container(x)), num_classes=K, key=jax.random.key(0), tolerance=1e-3)


@pytest.mark.parametrize("name", [pytest.param("GaussianNB", marks=pytest.mark.thorough), "BernoulliNB"])
def test_gradients_go_through_the_maximum(name):
    case = BY_NAME[name]
    x, y = clusters(30)
    x = x if case.continuous else (x > 2).astype(float)
    leaves, structure = jax.tree.flatten(case.estimator)

    @jax.jit
    def loss(weight, leaves):
        estimator = jax.tree.unflatten(structure, leaves)
        options = {"num_classes": K, "key": jax.random.key(0), "sample_weight": weight, "tolerance": 0.0}
        c, _ = jg.train_em(estimator, x, np.where(np.arange(30) % 3, y, -1), **options)
        return jnp.sum(jnp.sin(jg.log_evidence(c, x[:3])))

    arguments = jnp.ones(30), [jnp.asarray(leaf + 0.2) for leaf in leaves]
    check_grads(loss, arguments, order=1, modes=("rev" if case.continuous else "fwd",), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "num_classes must be given where no row has a label"),
        ({"y": np.arange(9) % 2 - 1}, ValueError, "num_classes must be given where all labels are 0"),
        ({"num_classes": 2}, ValueError, "key must be given for the start"),
        ({"y": np.full(9, -2), "num_classes": 2}, ValueError, r"y must hold labels in \[0, 2\); found -2"),
        (
            {"num_classes": 2, "start": "kmeans"},
            ValueError,
            "start must be .* 'random' or a generative classifier",
        ),
        ({"num_classes": 2, "restarts": 0}, ValueError, "restarts must be at least 1; found 0"),
        ({"num_classes": 2, "max_steps": 2**31}, ValueError, "max_steps must be at most 2147483647"),
        ({"num_classes": 2, "tolerance": -1.0}, ValueError, "tolerance must be finite and 0 or more; found -1.0"),
        ({"num_classes": 2, "unlabelled_weight": np.ones(2)}, TypeError, "unlabelled_weight must be one real number"),
        ({"num_classes": 2, "unlabelled_weight": "1"}, TypeError, "unlabelled_weight must be one real number.*'1'"),
        ({"num_classes": 2, "x": np.full((9, 2), np.nan)}, ValueError, "x must hold finite numbers"),
        (
            {"num_classes": 3, "x": np.ones((60, 2)), "max_steps": 2, "estimator": jg.QDA(ridge=0.0)},
            ValueError,
            "the covariance of class 0 is singular .* a feature is constant or a combination of others",
        ),
        (
            {"num_classes": 2, "x": np.eye(9, 2), "max_steps": 2, "estimator": jg.GaussianNB(ridge=0.0)},
            ValueError,
            "every one of 1 runs broke down: a class was left with too few rows",
        ),
        ({"estimator": jg.GaussianNB(pooling=2.0), "num_classes": 2}, ValueError, "GDA.pooling must be from 0 to 1"),
        ({"num_classes": 2, "sample_weight": np.zeros(9)}, ValueError, "the weights of all rows are zero"),
        (
            {"start": jg.Classifier(jnp.zeros(2), jg.Poisson(jnp.zeros((2, 2))))},
            ValueError,
            "start must be a classifier of x, as Poisson is not: x must hold finite counts",
        ),
        ({"estimator": jg.LogisticRegression(), "num_classes": 2}, TypeError, "estimator must be a generative one"),
        (
            {"estimator": jg.ComplementNB(), "num_classes": 2, "x": np.ones((9, 2))},
            TypeError,
            "with a density .*found ComplementNB",
        ),
    ],
)
def test_what_is_refused_and_why(options, error, message):
    x, _ = clusters(9)
    arguments = {"estimator": jg.GaussianNB(), "x": x, "key": jax.random.key(0)} | options
    if "key must" in message:
        arguments["key"] = None
    with pytest.raises(error, match=message):
        jg.train_em(arguments.pop("estimator"), **arguments)


@pytest.mark.thorough
def test_a_start_is_not_blamed_for_what_is_not_of_it():
    x, _ = clusters(30)
    start = jg.fit(jg.GaussianNB(), x, np.arange(30) % 3)
    x[4, 1] = np.nan
    with pytest.raises(ValueError, match=r"^x must hold finite numbers; found nan at row 4, column 1"):
        jg.fit_em(jg.GaussianNB(), x, start=start)


@pytest.mark.thorough
def test_nor_is_it_where_features_are_constant():
    x, _ = clusters(30)
    start = jg.fit(jg.GaussianNB(), x, np.arange(30) % 3)
    x[4, 1] = np.nan
    weight = np.where(np.arange(30) == 4, 0.0, 1.0)
    x[~np.isnan(x)] = 1.0
    with pytest.raises(ValueError, match=r"^the covariance of class 0 is singular"):
        jg.fit_em(jg.QDA(ridge=0.0), x, start=start, sample_weight=weight)


def test_a_start_under_which_a_row_is_impossible_is_named():
    never = jg.Classifier(jnp.zeros(2), jg.Bernoulli(jnp.full((2, 2), -jnp.inf), jnp.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"start must be .* possible; found row 3, which is impossible under every"):
        jg.fit_em(jg.BernoulliNB(), np.eye(5)[:, [4, 3]], start=never)


def test_a_run_that_ends_early_warns():
    x, _ = clusters(60)
    with pytest.warns(RuntimeWarning, match="EM did not converge in 2 steps") as warned:
        jg.fit_em(jg.QDA(), x, num_classes=3, key=jax.random.key(0), max_steps=2)
    assert warned[0].filename == __file__


def test_seeds_of_classes_without_labels_are_rows_without_labels():
    """An outlier of known class is farthest from all; a cluster that nobody has named is where the second seed is."""
    x = np.r_[np.random.default_rng(0).normal(size=(40, 1)), np.full((1, 1), 1e3), [[30.0], [30.5], [31.0]]]
    y = np.where(np.arange(44) < 41, 0, -1)
    c = jg.fit_em(jg.GaussianNB(), x, y, num_classes=2, key=jax.random.key(0))
    np.testing.assert_allclose(c.density.mean[1], 30.5, atol=1e-6)


def test_the_seed_of_a_class_is_the_mean_of_what_was_observed():
    """A row that lacks the feature must not draw the seed towards the middle, from 9 to 6.85: 4.5 is nearer to 1."""
    x = np.array([[9.0], [np.nan], [1.0], [1.0], [8.0], [4.5]])
    labelled = np.eye(2)[[0, 0, 1, 1, 0, 0]] * (np.arange(6) < 4)[:, None]
    data = em_data.Data(x, ~np.isnan(x), jnp.asarray(labelled), jnp.asarray(1.0 - labelled.sum(axis=1)))
    found = starts.by_nearest_seed(jax.random.key(0), data)
    np.testing.assert_array_equal(found[4:], np.eye(2))


@pytest.mark.thorough
def test_the_best_run_is_the_one_that_raised_evidence_and_prior_highest():
    """Here the evidence alone prefers another."""
    rng = np.random.default_rng(0)
    x = (rng.random((12, 4)) < 0.5).astype(float)
    estimator = jg.BernoulliNB(alpha=0.2)
    begun = [rng.dirichlet(np.ones(2), 12) for _ in range(3)]
    data = em_data.Data(jnp.asarray(x), None, jnp.zeros((12, 2)), jnp.ones(12))

    def best(*begun):
        return em.ascend(estimator, (jnp.stack(begun), None), data, jnp.array(1e-9), max_steps=5000)[0]

    def log_prior(c):  # of a Beta(0.2, 0.2) + 1 for each word
        return float(0.2 * (c.density.log_present + c.density.log_absent).sum())

    evidence = [float(jg.log_evidence(best(each), x).sum()) for each in begun]
    raised = [e + log_prior(best(each)) for e, each in zip(evidence, begun, strict=True)]
    assert np.argmax(raised) != np.argmax(evidence)
    np.testing.assert_allclose(jg.log_evidence(best(*begun), x).sum(), evidence[np.argmax(raised)], rtol=1e-6)


def test_a_class_near_zero_keeps_its_digits_beside_one_far_away():
    x = np.float32([[0.0], [0.25], [-0.5], [1.0], [1e7], [1.1e7], [0.9e7], [1.2e7]])
    c = jg.fit_em(jg.GaussianNB(ridge=0.0), x, np.repeat([0, 1], 4))
    np.testing.assert_allclose(c.density.mean[0], 0.1875, rtol=1e-6)
    np.testing.assert_allclose(c.density.scale[0] ** 2, 0.29296875, rtol=1e-6)


@pytest.mark.thorough
def test_whole_numbers_need_no_promotion():
    counts = np.random.default_rng(0).poisson(4.0, (30, 2))
    options = {"num_classes": 2, "key": jax.random.key(0), "start": "random"}
    close(jg.fit_em(jg.PoissonNB(), counts, **options), jg.fit_em(jg.PoissonNB(), counts.astype(float), **options))


def by_unlabelled_weight(estimator, x, y, unit, dtype, *, size=1.0, tolerance=1e-8):
    """How the means of a fit to a fifth of the labels move, in the units of x."""
    z, some = (x / unit).astype(dtype), np.where(np.arange(len(y)) % 5 == 0, y, -1)
    start = jg.fit(estimator, z, y)

    def mean(weight):
        c = jg.fit_em(estimator, z, some, start=start, unlabelled_weight=weight, tolerance=tolerance)
        return size * c.density.mean

    forward = np.asarray(jax.jit(lambda weight: jax.jvp(mean, (weight,), (jnp.ones(()),))[1])(jnp.asarray(0.5)))
    if dtype == np.float32:
        backward = np.asarray(jax.jit(jax.grad(lambda weight: mean(weight)[0, 0]))(jnp.asarray(0.5)))
        np.testing.assert_allclose(backward, forward[0, 0], rtol=1e-3)
    return forward * unit / size


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()])
def test_derivatives_do_not_depend_on_units(estimator):
    x, y = load_wine(return_X_y=True)
    x = x[:, [0, 7, 10, 12]]  # of which the deviations are 0.8, 0.1, 0.2 and 314
    exact = by_unlabelled_weight(estimator, x, y, x.std(axis=0), np.float64)
    single = by_unlabelled_weight(estimator, x, y, np.ones(4), np.float32, size=1e-12)
    np.testing.assert_allclose(single, exact, rtol=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()])
def test_nor_do_derivatives_in_float64(estimator):
    x, y = load_wine(return_X_y=True)
    x = x[:, [0, 7, 10, 12]]
    exact, other = (
        by_unlabelled_weight(estimator, x, y, unit, np.float64)
        for unit in (x.std(axis=0), np.array([1e3, 1e-3, 1.0, 1e-2]))
    )
    np.testing.assert_allclose(other, exact, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()])
def test_derivatives_beside_a_constant_whose_deviation_is_its_rounding(estimator):
    x, y = load_wine(return_X_y=True)
    x = x[:, [0, 7, 10, 12]]
    exact = by_unlabelled_weight(estimator, x, y, np.ones(4), np.float64, tolerance=1e-11)
    beside = np.append(x, np.full((len(y), 1), 0.1), axis=1)
    beside = by_unlabelled_weight(estimator, beside, y, np.ones(5), np.float64, tolerance=1e-11)
    np.testing.assert_allclose(beside[:, :4], exact, rtol=1e-4)


@pytest.mark.thorough
def test_a_derivative_changes_no_value():
    x, y = load_wine(return_X_y=True)
    x, some = (1e4 + x[:, [0, 12]]).astype(np.float32), np.where(np.arange(len(y)) % 5 == 0, y, -1)
    start = jg.fit(jg.GaussianNB(), x, y)

    def mean(weight):
        return jg.fit_em(jg.GaussianNB(), x, some, start=start, unlabelled_weight=weight).density.mean

    value, _ = jax.jvp(mean, (jnp.asarray(0.5),), (jnp.asarray(1.0),))
    np.testing.assert_array_equal(value, mean(jnp.asarray(0.5)))


def test_units_follow_those_of_the_data():
    y = np.arange(40) % 2
    x = np.random.default_rng(3).integers(0, 9, size=(40, 3)).astype(float)
    mixed = jg.MixedNB(((jg.LDA(), (0, 2)), (jg.PoissonNB(), (1,))))
    for estimator in (jg.GaussianNB(), jg.PoissonNB(), mixed):
        one, other = (estimator.statistics(z, y) for z in (x, x * np.array([8.0, 4.0, 0.5])))
        chex.assert_trees_all_close(*(jax.tree.map(jnp.divide, s, s.unit()) for s in (one, other)), rtol=1e-12)


@pytest.mark.thorough
def test_the_weight_of_an_absent_row_with_a_missing_feature_has_its_derivative():
    """The mean of a class moves by (x − μ)/N with the weight of a row."""
    x = np.array([[0.0, 1], [1, 0], [2, 2], [5, 3], [4, 5], [6, 7], [3, np.nan]])
    y, weight = np.array([0, 0, 0, 1, 1, 1, 1]), jnp.array([1.0] * 6 + [0])

    def mean(w):
        c = jg.fit(jg.LDA(ridge=0.1), x, y, num_classes=2, sample_weight=w, observed=np.isfinite(x))
        return c.density.mean[1, 0]

    np.testing.assert_allclose(jax.grad(mean)(weight)[6], (3 - 5) / 3, rtol=1e-6)


@pytest.mark.thorough
def test_the_weight_of_an_absent_row_without_a_label_has_its_derivative():
    """The same, since this row is of the class for sure."""
    x, y = np.array([[0.0], [1], [0.5], [9], [10], [9.5], [8]]), np.array([0, -1, -1, 1, -1, -1, -1])
    start = jg.fit(jg.GaussianNB(ridge=0.1), x, np.array([0, 0, 0, 1, 1, 1, 1]))

    def mean(w):
        c = jg.fit_em(jg.GaussianNB(ridge=0.1), x, y, num_classes=2, start=start, sample_weight=w)
        return c.density.mean[1, 0]

    np.testing.assert_allclose(jax.grad(mean)(jnp.array([1.0] * 6 + [0]))[6], (8 - 9.5) / 3, rtol=1e-4)


@pytest.mark.thorough
def test_a_turn_of_the_evidence_on_the_way_does_not_end_a_run():
    """With alpha > 0 each step raises evidence and log prior together, of which the first turns long before the end."""
    rng = np.random.default_rng(1)
    y, probability = rng.integers(0, 3, 120), rng.uniform(0.2, 0.8, (3, 8))
    x = (rng.random((120, 8)) < probability[y]).astype(float)
    some = np.where(rng.random(120) < 0.2, y, -1)

    def train(**options):
        return jg.train_em(jg.BernoulliNB(), x, some, num_classes=3, key=jax.random.key(0), **options)

    (c, report), (end, _) = train(), train(tolerance=1e-13, max_steps=100_000)
    change = np.diff(np.asarray(report.log_evidence)[: int(report.steps)])
    assert report.converged
    assert (change[:-1] < 0).any()  # it did turn
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), np.exp(jg.log_posterior(end, x)), atol=0.03)


@pytest.mark.thorough
def test_float32_goes_on_while_rounding_hides_what_steps_raise():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = 1e6 * (rng.normal(size=(120, 4)) + 1.5 * y[:, None])  # a large unit has a large evidence
    found = {}
    for dtype in (np.float32, np.float64):
        start = jg.fit(jg.GaussianNB(), x[:30].astype(dtype), y[:30])
        c, report = jg.train_em(jg.GaussianNB(), x.astype(dtype), num_classes=3, start=start)
        found[dtype] = np.exp(np.asarray(jg.log_posterior(c, x.astype(dtype)), np.float64))
        assert report.converged
    # 4 eps of the evidence is 3e-5 nats a row: where a step raises less, posteriors are 0.02 away.
    np.testing.assert_allclose(found[np.float32], found[np.float64], atol=5e-3)


def test_what_an_absent_row_holds_reaches_no_derivative():
    x, y = np.array([[0.0], [1], [0.5], [9], [10], [9.5], [8]]), np.array([0, -1, -1, 1, -1, -1, -1])
    weight = jnp.array([1.0] * 6 + [0])
    start = jg.fit(jg.GaussianNB(ridge=0.1), x, np.array([0, 0, 0, 1, 1, 1, 1]))

    def evidence(ridge, x, weight):
        c = jg.fit_em(jg.GaussianNB(ridge=ridge), x, y, num_classes=2, start=start, sample_weight=weight)
        return jg.log_evidence(c, x[:6]).sum()

    gradient = jax.grad(evidence, argnums=(0, 1, 2))
    by_ridge, by_x, by_weight = gradient(0.1, jnp.asarray(x), weight)
    for spoil in (np.nan, 1e160, -np.inf):  # a square of 1e160 overflows
        spoilt = gradient(0.1, jnp.asarray(x).at[6].set(spoil), weight)
        chex.assert_trees_all_close(spoilt, (by_ridge, by_x, by_weight.at[6].set(0.0)), rtol=1e-9)


@pytest.mark.parametrize(("of_x", "of_start"), [("float32", "float64"), ("float64", "float32")])
def test_a_start_may_be_of_another_dtype(of_x, of_start):
    x, y = np.array([[1.0], [2], [9], [8], [7]]), np.array([0, 0, 1, 1, -1])
    start = jg.fit(jg.PoissonNB(), x[:4].astype(of_start), y[:4])
    found = jg.fit_em(jg.PoissonNB(), x.astype(of_x), y, start=start)
    assert found.log_prior.dtype == of_x
    np.testing.assert_allclose(np.exp(found.log_prior), [0.4, 0.6], rtol=1e-2)


def test_labels_without_a_sign_are_labels_under_a_trace_too():
    x, labels = np.array([[1.0], [2], [9], [8], [7]]), np.array([0, 0, 1, 1, 255], np.uint8)

    @jax.jit
    def log_prior(y):
        return jg.fit_em(jg.PoissonNB(), x, y, num_classes=256, key=jax.random.PRNGKey(0)).log_prior

    np.testing.assert_allclose(np.exp(log_prior(labels))[[0, 1, 255]], [0.4, 0.4, 0.2], rtol=1e-9)

    @jax.jit
    def of_two(y):
        return jg.fit_em(jg.PoissonNB(), x, y, num_classes=2, key=jax.random.PRNGKey(0)).log_prior

    assert np.isnan(of_two(labels)).all()


@pytest.mark.thorough
def test_a_run_that_broke_down_is_not_the_best():
    x = np.random.default_rng(0).normal(size=(12, 2))
    estimator = jg.QDA(ridge=0.0)
    data = em_data.Data(jnp.asarray(x), None, jnp.zeros((12, 2)), jnp.ones(12))
    lonely = np.eye(2)[(np.arange(12) == 0).astype(int)]  # a class of one row
    begun = [lonely, np.random.default_rng(1).dirichlet(np.ones(2), 12)]
    for order in (begun, begun[::-1]):
        c, report = em.ascend(estimator, (jnp.stack(order), None), data, jnp.array(1e-3), max_steps=5)
        assert np.isfinite(report.last)
        assert np.isfinite(c.density.cholesky).all()


def test_a_row_with_a_label_may_be_impossible_under_the_other_classes():
    x, y = np.array([[1, 0], [0, 1], [1, 0], [0, 1]]), np.array([0, 1, -1, -1])
    estimator = jg.BernoulliNB(alpha=0.0)
    c, report = jg.train_em(estimator, x, y, start=jg.fit(estimator, x[:2], y[:2]))
    close(report.last, np.log(0.5))
    np.testing.assert_array_equal(jg.predict(c, x), [0, 1, 0, 1])


def test_the_evidence_that_is_reported_is_the_weighted_mean():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), np.arange(30) % 3 - 1
    weight = rng.uniform(0.0, 3.0, 30)
    start = jg.fit(jg.QDA(), x[y >= 0], y[y >= 0])
    options = {"start": start, "sample_weight": weight, "unlabelled_weight": 0.3, "max_steps": 2}
    first = jg.train_em(jg.QDA(), x, y, **options)[1].log_evidence[0]
    # Its statistics are those expected under the start, of which the first step makes an estimate.
    own = np.where(y >= 0, weight, 0.3 * weight)
    shares = np.where((y >= 0)[:, None], np.eye(2)[np.maximum(y, 0)], np.exp(jg.log_posterior(start, x)))
    c = jg.fit(jg.QDA(), x, shares, sample_weight=own)
    logs = np.where(y >= 0, np.asarray(jg.log_joint(c, x))[np.arange(30), np.maximum(y, 0)], jg.log_evidence(c, x))
    close(first, np.average(logs, weights=own))
