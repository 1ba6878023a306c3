"""Logistic regression: the optimum, its gradients, and what it says when there is none."""

import dataclasses
import warnings
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.test_util import check_grads
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression

import jaxgen as jg
from jaxgen import logistic, platform, separation
from jaxgen.curvature import Line, curvature, mean_curvature
from jaxgen.frame import Frame
from jaxgen.preconditioner import pays


def overlapping(n=60, d=3, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(n, d)) + 0.5 * y[:, None], y


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.parametrize("l2", [1.0, 0.1])
def test_optimum_equals_scikit_learn(load, l2):
    x, y = load(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(x, y)
    c, report = jg.train(jg.LogisticRegression(l2=l2), x, y)
    assert report.converged
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), theirs.predict_proba(x), atol=3e-6)
    weights = theirs.coef_.T if len(theirs.classes_) > 2 else np.stack([-theirs.coef_[0], theirs.coef_[0]], 1) / 2
    np.testing.assert_allclose(c.weights, weights, atol=2e-5)


@pytest.mark.parametrize(
    ("load", "dtype", "error"),
    [
        (load_breast_cancer, np.float32, 5e-5),
        pytest.param(load_breast_cancer, np.float64, 5e-5, marks=pytest.mark.thorough),
        pytest.param(load_digits, np.float32, 2e-3, marks=pytest.mark.thorough),
    ],
)
def test_raw_units_are_no_obstacle(load, dtype, error):
    x, y = load(return_X_y=True)
    theirs = LogisticRegression(C=1.0, tol=1e-4, max_iter=100_000, solver="newton-cholesky").fit(x, y)
    c, report = jg.train(jg.LogisticRegression(l2=1.0), x.astype(dtype), y)
    assert report.converged
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), theirs.predict_proba(x), atol=error)


@pytest.mark.parametrize(
    ("l2", "classes"),
    [
        (0.0, 3),
        (0.7, 2),
        pytest.param(0.0, 2, marks=pytest.mark.thorough),
        pytest.param(0.7, 3, marks=pytest.mark.thorough),
    ],
)
def test_gradient_of_the_stated_objective_is_zero_at_the_optimum(classes, l2):
    x, y = overlapping(classes=classes)
    weight = np.random.default_rng(1).random(len(y))
    c = jg.fit(jg.LogisticRegression(l2=l2), x, y, sample_weight=weight)

    def objective(c):
        log_p = jax.nn.log_softmax(jnp.asarray(x) @ c.weights + c.bias[None], axis=1)[np.arange(len(y)), y]
        w = c.weights if classes > 2 else c.weights[:, 1] - c.weights[:, 0]
        return -jnp.sum(weight * log_p) + 0.5 * l2 * jnp.sum(w**2)

    if classes == 2:  # the penalty is on the difference; the symmetric form is the one returned
        np.testing.assert_allclose(c.weights[:, 0], -c.weights[:, 1], atol=1e-7)
        np.testing.assert_allclose(c.bias[0], -c.bias[1], atol=1e-7)
    for leaf in jax.tree.leaves(jax.jit(jax.grad(objective))(c)):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-5)


def test_laws_of_weights_and_soft_labels():
    x, y = overlapping()
    estimator = jg.LogisticRegression(l2=0.5)
    repeats = np.random.default_rng(0).integers(0, 3, len(y))
    expected = jg.fit(estimator, np.repeat(x, repeats, 0), np.repeat(y, repeats))
    spoilt = np.where(repeats[:, None] > 0, x, np.nan)
    for labels in (y, np.eye(3)[y]):
        c = jg.fit(estimator, spoilt, labels, sample_weight=repeats.astype(float))
        np.testing.assert_allclose(c.weights, expected.weights, atol=1e-6)
    soft = np.random.default_rng(1).random((len(y), 3))
    c = jg.fit(estimator, x, soft)
    expected = jg.fit(estimator, np.repeat(x, 3, 0), np.tile(np.arange(3), len(y)), sample_weight=soft.ravel())
    np.testing.assert_allclose(c.weights, expected.weights, atol=1e-6)


@pytest.mark.parametrize("classes", [3, pytest.param(2, marks=pytest.mark.thorough)])
def test_gradients_through_the_optimum(classes):
    x, y = overlapping(n=30, d=2, classes=classes)
    points = overlapping(n=5, d=2, seed=3)[0]

    @jax.jit
    def loss(x, weight, l2):
        estimator = jg.LogisticRegression(l2=l2, tolerance=1e-12)
        c = jg.fit(estimator, x, y, num_classes=classes, sample_weight=weight)
        return jnp.sum(jnp.sin(jg.log_posterior(c, points)))

    check_grads(loss, (jnp.asarray(x), jnp.ones(30), 0.7), order=1, rtol=1e-5, atol=1e-5)
    if classes == 3:
        check_grads(lambda l2: loss(x, jnp.ones(30), l2), (0.7,), order=2, modes=("rev",), rtol=1e-4, atol=1e-4)


def test_vmap_over_penalties_and_data_equals_a_loop():
    x, y = overlapping()
    penalties = jnp.array([0.01, 1.0, 100.0])
    stacked = jax.vmap(lambda l2: jg.fit(jg.LogisticRegression(l2=l2), x, y))(penalties)
    for i, l2 in enumerate(penalties):
        np.testing.assert_allclose(stacked.weights[i], jg.fit(jg.LogisticRegression(l2=l2), x, y).weights, atol=1e-6)
    batch = np.stack([overlapping(seed=seed)[0] for seed in range(3)])
    stacked = jax.vmap(lambda x: jg.fit(jg.LogisticRegression(), x, y))(batch)
    for i in range(3):
        np.testing.assert_allclose(stacked.bias[i], jg.fit(jg.LogisticRegression(), batch[i], y).bias, atol=1e-6)


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.thorough), 3])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
def test_separable_data_without_a_penalty_end_with_a_statement(classes, dtype):
    x, y = overlapping(classes=classes)
    x = (x + 20 * np.eye(3)[y]).astype(dtype)
    c, report = jg.train(jg.LogisticRegression(l2=0.0), x, y)
    assert report.separable
    assert not report.converged
    assert report.steps < 100
    np.testing.assert_array_equal(jg.predict(c, x), y)
    with pytest.warns(RuntimeWarning, match="separates the classes.*l2 = 0.*Set l2 > 0"):
        jg.fit(jg.LogisticRegression(l2=0.0), x, y)
    _, report = jg.train(jg.LogisticRegression(l2=1e-42), x, y)  # nothing in float32
    assert report.separable == (dtype == np.float32)
    _, report = jg.train(jg.LogisticRegression(l2=1e-3), x, y)
    assert report.converged
    assert not report.separable


def test_too_few_steps_end_with_a_warning():
    x, y = overlapping()
    estimator = jg.LogisticRegression(max_steps=2)
    with pytest.warns(RuntimeWarning, match="did not converge in 2 steps.*Raise max_steps"):
        jg.fit(estimator, x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda x: jg.fit(estimator, x, y))(x)  # nothing is concrete under a trace
        assert jg.train(estimator, x, y)[1].steps == 2


def test_a_search_that_rounding_ends_is_not_told_to_take_more_steps():
    """Twenty features that agree but for a thousandth have curvatures a million times apart."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 20)) @ (1 + 1e-3 * rng.normal(size=(20, 20)))
    y, estimator = rng.integers(0, 2, 100), jg.LogisticRegression(l2=1e-6)
    with pytest.warns(RuntimeWarning, match=r"Rounding in float32 hides .*: compute in float64, raise l2"):
        jg.fit(estimator, x.astype(np.float32), y)
    assert jg.train(estimator, x, y)[1].converged


def test_any_optax_optimizer_reaches_the_same_optimum():
    x, y = overlapping()
    expected = jg.fit(jg.LogisticRegression(), x, y)
    c, report = jg.train(jg.LogisticRegression(optimizer=optax.adam(0.1), tolerance=1e-6), x, y)
    assert report.converged
    np.testing.assert_allclose(c.weights, expected.weights, atol=1e-4)


def test_large_common_offset_costs_no_digits_in_float32():
    x, y = overlapping(n=300)
    shifted = (x + 1e4).astype(np.float32)
    single = jg.fit(jg.LogisticRegression(), shifted, y)
    double = jg.fit(jg.LogisticRegression(), shifted.astype(np.float64), y)
    np.testing.assert_allclose(single.weights, double.weights, atol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_constant_features_and_an_empty_class(l2):
    x, y = overlapping()
    with_constant = np.column_stack([x, np.full(len(y), 5.0)])
    c, report = jg.train(jg.LogisticRegression(l2=l2), with_constant, y, num_classes=4)
    assert report.converged
    assert not report.separable
    np.testing.assert_allclose(c.weights[3], 0.0, atol=1e-6)  # the constant feature
    np.testing.assert_array_equal(jg.log_posterior(c, with_constant)[:, 3], -np.inf)  # the empty class
    expected = jg.log_posterior(jg.fit(jg.LogisticRegression(l2=l2), x, y), x)
    np.testing.assert_allclose(jg.log_posterior(c, with_constant)[:, :3], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_partly_separable_data_have_no_finite_optimum_either(dtype, traced):
    """One class of iris is separable from the others; and rows that touch the hyperplane do not hold it."""
    iris = load_iris(return_X_y=True)
    touching = np.array([[-2.0], [-1], [0], [0], [1], [2]]), np.array([0, 0, 0, 1, 1, 1])
    for x, y in (iris, touching):
        x = x.astype(dtype)
        train = jax.jit(lambda l2, x=x, y=y: jg.train(jg.LogisticRegression(l2=l2), x, y)[1])
        report = train(0.0) if traced else jg.train(jg.LogisticRegression(l2=0.0), x, y)[1]
        assert report.separable
        assert not report.converged


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("most", [pytest.param(2**11, marks=pytest.mark.thorough), 0])
def test_features_that_depend_on_each_other_separate_nothing(monkeypatch, dtype, most):
    """Indicators that sum to one leave the optimum without a place of its own, but finite."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    x = np.c_[x, np.eye(3)[rng.integers(0, 3, 60)]].astype(dtype)
    y = (x[:, 0] + rng.logistic(size=60) > 0).astype(int)
    monkeypatch.setattr(separation, "_MOST", most)
    jax.clear_caches()
    _, report = jg.train(jg.LogisticRegression(l2=0.0), x, y)
    assert report.converged
    assert not report.separable
    if most:
        alone = ((y == 1) & (rng.random(60) < 0.3)).astype(dtype)  # only class 1 shows it
        assert jg.train(jg.LogisticRegression(l2=0.0), np.c_[x, alone], y)[1].separable
    jax.clear_caches()


def test_float32_tells_classes_that_hardly_overlap_from_those_that_do_not():
    """A first step of Newton's method moves log odds in both, a second one where no step is the last."""
    for seed, n in ((0, 5_000), (1, 5_000), (2, 5_000)):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, n)
        x = (rng.normal(size=n) + 6 * y)[:, None].astype(np.float32)
        apart = x[y == 0].max() < x[y == 1].min()
        assert jg.train(jg.LogisticRegression(l2=0.0), x, y)[1].separable == apart


def test_bad_weights_and_values_under_a_trace_give_nan():
    x, y = overlapping()
    first = np.arange(len(y)) == 0
    fit = jax.jit(lambda x, weight: jg.fit(jg.LogisticRegression(), x, y, sample_weight=weight))
    for spoilt, weight in ((x, np.where(first, -1.0, 1.0)), (np.where(first[:, None], np.nan, x), np.ones(len(y)))):
        assert all(np.isnan(leaf).all() for leaf in fit(spoilt, weight))


@jax.jit
def problem_of(x, fraction, decay):
    return Frame.of(x, fraction, jnp.any(fraction > 0, axis=0), decay).problem(x, fraction, decay)


@jax.jit
def hessian_of(problem, table):
    return jax.hessian(problem.loss)(table)


@pytest.mark.parametrize(
    ("seen", "d", "end"),
    [
        pytest.param((0,), 3, 30, marks=pytest.mark.thorough),
        ((0, 1), 3, 30),
        ((0, 1), 130, 30),  # in four strips of rows
        pytest.param((0, 1, 2, 3), 3, 30, marks=pytest.mark.thorough),
        ((0, 3), 3, 30),
        ((0, 1, 2), 70, 30),  # in two, then mirrored
        pytest.param((0, 1), 70, 15, marks=pytest.mark.thorough),  # half of the rows weigh nothing
        pytest.param((0, 1), 3, 16, marks=pytest.mark.thorough),
        pytest.param((0, 1, 2), 3, 9, marks=pytest.mark.thorough),
    ],
)  # of four classes two may have no data
def test_derivatives_of_the_loss_are_what_autodiff_makes_of_it(seen, d, end):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(30, d))
    fraction = np.zeros((30, 1 + max(seen)))
    fraction[1:end, seen] = rng.dirichlet(np.ones(len(seen)), size=end - 1) / (end - 1)
    problem = problem_of(x, fraction, 0.1)
    table, step = rng.normal(size=(2, *problem.decay.shape))

    @jax.jit
    def ours(table, step):
        *looked, rows = problem.look(table)
        hessian = partial(curvature, problem, tuning=platform.CPU)
        curvatures = [hessian(weighted=weighted)(rows) for weighted in (False, True)]
        line = Line.of(problem, table, step, rows)
        *there, rows = line.end(0.3)
        there.append(hessian(weighted=False)(rows))
        onward = Line.of(problem, there[0], -step, rows).at(0.3)[0]  # back to where it began
        return line.at(0.3), (looked, curvatures, there, onward)

    @jax.jit
    def by_autodiff(table, step):
        loss, gradient = problem.loss, jax.grad(problem.loss)
        line = lambda t: loss(table + t * step)  # noqa: E731
        hessian = lambda table: jax.hessian(loss)(table).reshape(table.size, table.size)  # noqa: E731
        of_line = line(0.3), jax.grad(line)(0.3), jax.grad(jax.grad(line))(0.3)
        there, here = table + 0.3 * step, hessian(table)
        looked = [loss(table), gradient(table)]
        return of_line, (looked, [here, here], [there, gradient(there), hessian(there)], loss(table))

    (of_line, tables), (line_by_autodiff, tables_by_autodiff) = ours(table, step), by_autodiff(table, step)
    for found, expected, rtol in zip(of_line, line_by_autodiff, (1e-12, 1e-9, 1e-9), strict=True):
        np.testing.assert_allclose(found, expected, rtol=rtol)
    # Of two classes the second derivatives are made below the diagonal alone.
    results = (
        jax.tree.map(lambda a: np.tril(a) if a.shape == 2 * (table.size,) else a, each)
        for each in (tables, tables_by_autodiff)
    )
    chex.assert_trees_all_close(*results, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "seen", [pytest.param((0, 1), marks=pytest.mark.thorough), (0, 1, 2), (0, 3)]
)  # of four classes two have no data
def test_the_mean_curvature_is_that_of_all_contrasts(seen):
    rng, k = np.random.default_rng(7), 1 + max(seen)
    x, fraction = rng.normal(size=(40, 3)), np.zeros((40, k))
    fraction[:, seen] = rng.dirichlet(np.ones(len(seen)), size=40) / 40
    problem = problem_of(x, fraction, 0.1)
    table = rng.normal(size=problem.decay.shape)
    varied = np.flatnonzero(np.any(np.asarray(problem.contrast) != 0, axis=1))

    def mean_of_blocks(problem):
        hessian = np.asarray(hessian_of(problem, table))
        return np.mean([hessian[:, a, :, a] for a in varied], axis=0)

    found = jax.jit(mean_curvature)
    np.testing.assert_allclose(found(problem, table), mean_of_blocks(problem), rtol=1e-9, atol=1e-12)
    many = problem._replace(**{name: np.concatenate([getattr(problem, name)] * 20) for name in problem._fields[:3]})
    design = np.array(many.design)
    design[[17, 333], 0] = 7.0  # in rows that are not looked at
    many = many._replace(design=design)
    exact, found = mean_of_blocks(many), np.asarray(found(many, table))
    np.testing.assert_allclose(np.diagonal(found), np.diagonal(exact), rtol=1e-9)
    size = np.sqrt(np.diagonal(exact))
    np.testing.assert_allclose(found / np.outer(size, size), exact / np.outer(size, size), atol=0.4)


@pytest.mark.parametrize("traced", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_correlated_features_take_few_steps(traced):
    """Also where each of a stack is fitted; without a preconditioner they are 450 and more."""
    digits = load_digits()
    x, y = digits.data[:1_198].astype(np.float32).reshape(2, 599, 64), digits.target[:1_198].reshape(2, 599)
    estimator = jg.LogisticRegression(l2=1.0)
    if traced:
        fits, reports = jax.jit(jax.vmap(lambda x, y: jg.train(estimator, x, y, num_classes=10)))(x, y)
    for i in range(2 if traced else 1):
        c, report = (
            jax.tree.map(lambda leaf, i=i: leaf[i], (fits, reports)) if traced else jg.train(estimator, x[i], y[i])
        )
        assert report.converged
        assert report.steps < 120
        exact = LogisticRegression(tol=1e-6, max_iter=10_000).fit(x[i].astype(float), y[i])
        np.testing.assert_allclose(np.exp(jg.log_posterior(c, x[i])), exact.predict_proba(x[i]), atol=5e-3)


def test_when_a_preconditioner_pays():
    rng, found = np.random.default_rng(0), []
    x = rng.normal(size=(5_000, 500)).astype(np.float32)
    assert not pays(x, 3)
    assert not pays(x[:, :1], 3)
    constants = np.full((5_000, 20), 0.1) * np.arange(20)  # which have no correlation
    assert not pays(np.c_[x[:, :30], constants], 3)
    assert pays(x[:, :80] + rng.normal(size=(5_000, 1)), 3)
    series = np.cumsum(x, axis=1)[:, ::3] - np.cumsum(x, axis=1)[:, :1]
    assert pays(series, 3)
    assert pays(jnp.asarray(series), 3)
    series[7] = np.nan  # of a row that may be absent
    assert pays(series, 3)
    assert not pays(series[:20], 3)  # more columns than their matrix is worth
    assert not pays(np.zeros((5_000, 513), np.float32), 3)
    for shape in ((5_000, 500), (5_000, 513), (200, 201)):  # under a trace nobody can look
        jax.eval_shape(lambda x: found.append(pays(x, 3)), jax.ShapeDtypeStruct(shape, np.float32))
    assert found == [True, False, False]


def test_absent_rows_may_hold_anything_where_there_is_a_preconditioner():
    """Also what has no square, in rows of which some are looked at; and where next to no row weighs anything."""
    rng, d = np.random.default_rng(0), 70
    y = np.arange(6_000) % 5
    x = (rng.normal(size=(6_000, d)) + rng.normal(size=(6_000, 1)) + 0.3 * (y[:, None] == np.arange(d))).astype("f4")
    present = rng.random(6_000) < 0.1
    x[:, 0] = 0.1 * (x[:, 0] > 1)
    filled = np.where(present[:, None], x, np.float32(9e18))
    estimator = jg.LogisticRegression(l2=1.0)
    c, report = jg.train(estimator, filled, y, sample_weight=present.astype("f4"))
    assert report.converged
    assert report.steps < 40  # as many as without them
    exact = LogisticRegression(tol=1e-8, solver="newton-cholesky").fit(x[present].astype(float), y[present])
    posterior = exact.predict_proba(x.astype(float))
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), posterior, atol=5e-3)


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.thorough), 4])
def test_the_loss_of_rows_in_blocks_is_that_of_numpy(classes):
    n, d, l2 = 601, 3, 0.3  # three blocks, of which two have a row in common
    rng = np.random.default_rng(3)
    x, r = rng.normal(size=(n, d)), rng.dirichlet(np.ones(classes), size=n) / n
    if classes > 2:
        r[:, 2] = 0  # a class without data
    frame = Frame.of(jnp.asarray(x), jnp.asarray(r), jnp.asarray(r.sum(0) > 0), jnp.asarray(l2))
    problem = frame.problem(jnp.asarray(x), jnp.asarray(r), jnp.asarray(l2))
    tuning = dataclasses.replace(platform.CPU, loss_elements=1)  # for each core; of 256 rows at least
    by_hand = []
    table = rng.normal(size=problem.decay.shape)
    tables = [table, *(table + 1e-6 * s * e.reshape(table.shape) for e in np.eye(table.size) for s in (1, -1))]
    for each in tables:
        c = frame.classifier(jnp.asarray(each))
        scores = (x @ np.asarray(c.weights) + np.asarray(c.bias))[:, r.sum(0) > 0]
        penalty = np.sum(np.asarray(problem.decay) * each**2) / 2
        losses = np.logaddexp.reduce(scores, axis=1)[:, None] - scores
        by_hand.append(np.sum(r[:, r.sum(0) > 0] * losses) + penalty)
    value, gradient = problem.evaluate_in_blocks(jnp.asarray(table), tuning=tuning)
    np.testing.assert_allclose(value, by_hand[0], rtol=1e-12)
    differences = (np.array(by_hand[1::2]) - np.array(by_hand[2::2])) / 2e-6
    np.testing.assert_allclose(gradient.ravel(), differences, atol=1e-8)


@pytest.mark.parametrize("classes", [1, pytest.param(2, marks=pytest.mark.thorough), 3])
def test_without_any_weight_a_traced_fit_knows_nothing_and_is_finite_but_for_classes_without_data(classes):
    x, y = overlapping(classes=classes)
    fit = jax.jit(lambda w: jg.train(jg.LogisticRegression(), x, y, num_classes=classes, sample_weight=w))
    c, report = fit(np.zeros(len(y)))
    assert np.all(c.weights == 0)
    assert np.all(np.isneginf(c.bias))
    assert report.converged


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_newton_and_l_bfgs_reach_the_same_optimum(monkeypatch, classes):
    x, y = overlapping(classes=classes)
    newton, report = jg.train(jg.LogisticRegression(), x, y)
    assert report.converged
    assert report.steps < 10
    monkeypatch.setattr(logistic, "_MOST_NEWTON", 0)
    jax.clear_caches()
    quasi, report = jg.train(jg.LogisticRegression(), x, y)
    assert report.converged
    assert report.steps >= 10
    np.testing.assert_allclose(newton.weights, quasi.weights, atol=1e-6)


@pytest.mark.thorough
def test_a_start_near_the_optimum_saves_steps_and_changes_nothing_else():
    x, y = load_wine(return_X_y=True)
    estimator = jg.LogisticRegression(l2=1.0, tolerance=1e-8)
    cold, from_zero = jg.train(estimator, x, y)
    near = jg.LinearClassifier(cold.weights * 1.01, cold.bias)
    warm, from_near = jg.train(estimator, x, y, start=near)
    assert from_near.converged
    assert from_near.steps < from_zero.steps
    np.testing.assert_allclose(np.exp(jg.log_posterior(warm, x)), np.exp(jg.log_posterior(cold, x)), atol=1e-5)
    assert jg.train(estimator, x, y, start=cold)[1].steps <= 1
    x, y = x[y < 2], y[y < 2]
    cold = jg.fit(jg.LogisticRegression(), x, y)
    assert jg.train(jg.LogisticRegression(), x, y, start=cold)[1].steps <= 1


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.thorough)])
def test_a_start_far_from_the_optimum_ends_there_too(dtype):
    """Where every probability is 0 or 1 there is hardly a curvature to go by."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2)).astype(dtype)
    y = (x[:, 0] > 0).astype(int)
    optimum = jg.fit(jg.LogisticRegression(), x, y)
    for size in (30, 300, 1_000):
        start = jg.LinearClassifier(np.array([[-size, size]] * 2, dtype), np.zeros(2, dtype))
        c, report = jg.train(jg.LogisticRegression(), x, y, start=start)
        assert report.converged
        np.testing.assert_allclose(c.weights, optimum.weights, atol=1e-4)


def test_a_start_that_does_not_fit_is_refused():
    x, y = overlapping()
    lda = jg.fit(jg.LDA(), x, y)
    with pytest.raises(TypeError, match=r"start must be a LinearClassifier.*found Classifier"):
        jg.train(jg.LogisticRegression(), x, y, start=lda)
    lists = jax.tree.map(np.ndarray.tolist, jax.device_get(jg.to_linear(lda)))
    with pytest.raises(TypeError, match=r"start must hold arrays of numbers; found list as start\.weights"):
        jg.train(jg.LogisticRegression(), x, y, start=lists)
    with pytest.raises(ValueError, match=r"weights of shape \(2, 3\).*found \(3, 3\)"):
        jg.train(jg.LogisticRegression(), x[:, :2], y, start=jg.to_linear(lda))
    spoilt = jg.to_linear(lda)._replace(weights=np.full((3, 3), np.nan))
    for wrong in (spoilt, jg.to_linear(lda)._replace(bias=np.array([0.0, np.nan, -np.inf]))):
        with pytest.raises(ValueError, match="finite weights, and biases below infinity"):
            jg.train(jg.LogisticRegression(), x, y, start=wrong)


@pytest.mark.parametrize("k", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_start_far_out_costs_no_more_than_none(k):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(60, 2)), rng.integers(0, k, 60)
        start = jg.LinearClassifier(1e8 * rng.normal(size=(2, k)), np.zeros(k))
        none, far = (jg.train(jg.LogisticRegression(l2=0.01), x, y, start=each)[1] for each in (None, start))
        assert far.converged
        assert far.steps <= none.steps + 1


@pytest.mark.thorough
def test_weights_whose_sum_overflows_are_refused_and_tiny_ones_are_not():
    x, y = overlapping()
    weight = np.full(len(y), 1e308)
    with pytest.raises(ValueError, match="weights whose sum overflows"):
        jg.fit(jg.LogisticRegression(), x, y, sample_weight=weight)
    traced = jax.jit(lambda w: jg.train(jg.LogisticRegression(), x, y, num_classes=3, sample_weight=w))
    c, report = traced(weight)
    assert np.isnan(c.weights).all()
    assert not report.converged
    small = np.where(y == 1, 1e-200, 1e150)  # of the total, nothing
    assert np.isfinite(jg.fit(jg.LogisticRegression(), x, y, sample_weight=small).bias).all()


@pytest.mark.thorough
def test_what_a_class_without_data_might_hold_moves_nothing():
    """The derivative by its responsibilities is zero, as is its share."""
    x, y = overlapping()
    shares = np.eye(3)[y] * [1.0, 0.0, 1.0]
    moved = jax.jacfwd(lambda r: jg.fit(jg.LogisticRegression(), x, r).weights)(shares)
    np.testing.assert_allclose(moved[..., 1], 0.0, atol=1e-9)
    assert np.abs(moved[..., 0]).max() > 1e-3


@pytest.mark.parametrize("seed", [8, 65])
def test_a_step_that_is_too_long_on_a_saturated_row_does_not_end_the_search(seed):
    x, y = np.random.default_rng(seed).normal(size=(12, 5)), np.arange(12) % 3
    _, report = jg.train(jg.LogisticRegression(l2=12e-8), x, y)
    assert report.converged


@pytest.mark.thorough
def test_the_weight_of_an_absent_row_has_its_derivative_where_it_alone_varies():
    x, y, weight = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2, np.ones(30)
    x[:, 1], x[-1, 1], weight[-1] = 3.0, 5.0, 0.0

    def weights(w):
        return jg.fit(jg.LogisticRegression(tolerance=1e-12), x, y, sample_weight=w).weights[:, 1]

    slope, h = jax.jacobian(weights)(jnp.asarray(weight))[:, -1], 1e-6
    assert abs(slope[1]) > 0.1
    np.testing.assert_allclose(slope, (weights(weight + h * (weight == 0)) - weights(weight)) / h, rtol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_constant_feature_has_a_derivative(classes):
    x, y = np.array([[0.0, 1], [1, 1], [2, 1], [3, 1], [1, 1], [4, 1]]), np.arange(6) % classes

    def weights(shift):
        estimator = jg.LogisticRegression(l2=1.0, tolerance=1e-13)
        return jg.fit(estimator, jnp.asarray(x).at[:, 1].add(shift), y, num_classes=classes).weights[1]

    slope, h = jax.jacobian(weights)(jnp.zeros(6)), 1e-4
    for i in range(6):
        high, low = (weights(jnp.zeros(6).at[i].set(step)) for step in (h, -h))
        np.testing.assert_allclose(slope[:, i], (high - low) / (2 * h), atol=1e-6)
        assert np.abs(slope[:, i]).max() > 0.01


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
def test_a_value_that_one_of_two_classes_alone_shows_separates(dtype):
    """Rows with it are classified ever more surely; what is left of them must not be rounding."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        alone = np.arange(100) < 10
        y = np.where(alone, 1, rng.integers(0, 2, 100))
        x = np.c_[rng.normal(size=100), alone].astype(dtype)
        report = jg.train(jg.LogisticRegression(l2=0.0), x, y)[1]
        assert report.separable
        assert not report.converged


def test_a_warning_names_the_line_that_called():
    x, y = overlapping()
    with pytest.warns(RuntimeWarning, match="did not converge") as warned:
        jg.fit(jg.LogisticRegression(max_steps=2), x, y)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("optimizer", [None, pytest.param(optax.adam(0.1), marks=pytest.mark.thorough)])
def test_separable_data_of_many_features_are_left_as_soon_as_the_loss_says_so(optimizer):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 400)), np.arange(100) % 2
    _, report = jg.train(jg.LogisticRegression(l2=0.0, optimizer=optimizer), x, y)
    assert report.separable
    assert report.steps < 10
