"""The laws that every generative estimator obeys; one without a density, those that ask for none."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from registry import CASES, ESTIMATORS, Case, K, each, each_case, each_estimator

import jaxgen as jg
from jaxgen import platform

# The last has the statistics of others and an estimate of its own.
each_estimate = each(ESTIMATORS, first=("QDA", "MixedNB", "ComplementNB"))
# Of sixty rows: tests share the programs of so many, and of twenty.
THIRDS = [slice(0, 20), slice(20, 40), slice(40, 60)]


def close(a, b, tolerance=1e-10):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)


@each_estimator
def test_split_and_merge_equals_whole(case):
    x, y = case.data()
    whole = case.estimator.statistics(x, y, num_classes=K)
    a, b, c = (case.estimator.statistics(x[i], y[i], num_classes=K) for i in THIRDS)
    close(jg.merge(jg.merge(a, b), c), whole)
    close(jg.merge(c, jg.merge(b, a)), whole)


@each_estimator
def test_block_size_changes_nothing(case):
    x, y = case.data()
    blocked = case.estimator.statistics(x, y, num_classes=K, block_size=7)
    close(blocked, case.estimator.statistics(x, y, num_classes=K))


@each_estimator
def test_merge_then_subtract_returns(case):
    x, y = case.data()
    kept, gone = (case.estimator.statistics(x[i], y[i], num_classes=K) for i in THIRDS[:2])
    close(jg.subtract(jg.merge(kept, gone), gone), kept, 1e-9)


@each_estimator
def test_subtracting_everything_leaves_nothing(case):
    x, y = case.data()
    whole = case.estimator.statistics(x, y, num_classes=K)
    for leaf in jax.tree.leaves(jg.subtract(whole, whole)):
        np.testing.assert_array_equal(leaf, 0.0)


@each_estimator
def test_scaled_statistics_are_those_of_rows_that_weigh_so_much(case):
    x, y = case.data()
    old, new = (case.estimator.statistics(x[i], y[i], num_classes=K) for i in THIRDS[:2])
    weight = np.repeat([0.3, 1.0, 0.0], 20)
    close(jg.merge(jg.scale(old, 0.3), new), case.estimator.statistics(x, y, sample_weight=weight))
    close(jg.merge(jg.scale(old, 0), new), new, 0.0)
    close(jg.merge(new, jg.scale(old, 0)), new, 0.0)


def test_the_factor_of_scaled_statistics_has_a_derivative():
    x, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    old, new = (jg.GaussianNB().statistics(x[i], y[i]) for i in (slice(6), slice(6, None)))

    @jax.jit
    def loss(factor):
        both = jg.merge(jg.scale(old, factor), new)
        return jnp.sum(both.class_weight.value) + jnp.sum(jnp.sin(both.mean.value)) + jnp.sum(jnp.sin(both.scatter))

    check_grads(loss, (0.4,), order=1, rtol=1e-6)
    assert np.isnan([loss(-0.1), loss(np.inf)]).all()


@pytest.mark.parametrize(
    ("statistics", "factor", "error", "message"),
    [
        (None, -0.5, ValueError, "factor must be finite and 0 or more; found -0.5"),
        (None, np.inf, ValueError, "found inf"),
        (None, np.nan, ValueError, "found nan"),
        (None, np.ones(2), TypeError, r"found shape \(2,\).*for several at once, jax.vmap over it"),
        (None, "0.5", TypeError, "factor must be one real number.*found '0.5'"),
        (jg.LDA(), 0.5, TypeError, "scale takes statistics, such as .* found GDA"),
    ],
)
def test_what_scale_refuses_and_why(statistics, factor, error, message):
    statistics = statistics or jg.LDA().statistics(np.eye(2), np.array([0, 1]))
    with pytest.raises(error, match=message):
        jg.scale(statistics, factor)


@each_estimator
def test_the_accelerators_choices_give_the_same_statistics_and_scores(case):
    x, y = case.data(n=700)
    weight = np.random.default_rng(3).integers(0, 3, len(x)).astype(float)
    results = []
    for tuning in (platform.CPU, platform.ACCELERATOR):
        with platform.override(tuning):
            weighted = case.estimator.statistics(x, y, num_classes=K, sample_weight=weight)
            results.append((weighted, case.scores(jg.estimate(case.estimator, weighted), x)))
    close(*results)


@each_estimator
def test_row_order_does_not_matter(case):
    x, y = case.data()
    order = np.random.default_rng(1).permutation(len(x))
    close(case.estimator.statistics(x[order], y[order]), case.estimator.statistics(x, y))


@each_estimator
@pytest.mark.parametrize("soft", [False, True])
def test_zero_weight_is_absence_whatever_the_row_holds(case, soft):
    x, y = case.data()
    weight = np.random.default_rng(2).permutation(np.arange(len(x)) < 20).astype(float)
    labels = np.eye(K)[y] if soft else y
    spoilt = np.where(weight[:, None] > 0, x, np.nan)
    with_absent = case.estimator.statistics(spoilt, labels, num_classes=K, sample_weight=weight, block_size=16)
    close(with_absent, case.estimator.statistics(x[weight > 0], y[weight > 0], num_classes=K))


@each_estimator
def test_an_absent_row_leaves_no_trace_and_its_weight_has_a_derivative(case):
    """Weight 0 is absence, not the end of influence: one absent row holds data, one NaN."""
    x, y = case.data(n=20)
    spoilt = np.where(np.arange(20)[:, None] == 4, np.nan, x)
    labels = np.eye(K)[y] * 0.7 if case.linear else y  # soft for some, hard for others: both go through every room
    points, verb = case.data(n=3, seed=6)[0], jg.log_evidence if isinstance(case, Case) else jg.log_posterior

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1, 2))
    def loss(x, a, b):
        weight = jnp.ones(20).at[3].set(a).at[4].set(b)
        c = jg.fit(case.estimator, x, labels, num_classes=K, sample_weight=weight)
        return jnp.sum(verb(c, points))

    value, (by_x, by_a, by_b) = loss(spoilt, 0.0, 0.0)
    step = 1e-6  # weights are not negative
    numerical = (4 * loss(spoilt, step, 0.0)[0] - loss(spoilt, 2 * step, 0.0)[0] - 3 * value) / (2 * step)
    np.testing.assert_allclose(by_a, numerical, rtol=1e-4)
    assert by_b == 0.0
    np.testing.assert_array_equal(by_x[3:5], 0.0)
    assert np.isfinite(by_x).all()
    close(by_x, loss(x, 0.0, 0.0)[1][0])


@each_estimator
def test_weight_two_is_the_row_twice(case):
    x, y = case.data()
    weight = np.random.default_rng(2).permutation(np.arange(len(x)) % 3)  # as many rows again
    weighted = case.estimator.statistics(x, y, sample_weight=weight.astype(float))
    close(weighted, case.estimator.statistics(np.repeat(x, weight, 0), np.repeat(y, weight, 0)))


@each_estimator
def test_one_hot_responsibilities_equal_hard_labels(case):
    x, y = case.data()
    close(case.estimator.statistics(x, np.eye(K)[y]), case.estimator.statistics(x, y))


@each_estimator
def test_soft_labels_are_rows_shared_by_weight(case):
    x = case.data()[0][:20]
    responsibilities = np.random.default_rng(4).random((len(x), K)) * 2
    rows, classes = np.repeat(x, K, 0), np.tile(np.arange(K), len(x))
    expected = case.estimator.statistics(rows, classes, sample_weight=responsibilities.ravel())
    close(case.estimator.statistics(x, responsibilities, block_size=13), expected)


@each_case
def test_log_likelihood_equals_scipy(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y)
    points, _ = case.data(seed=5)
    expected = [[case.log_density(c.density, k, row) for k in range(K)] for row in points[:10]]
    close(jg.log_likelihood(c, points)[:10], np.array(expected), 1e-9)


@each_case
def test_verbs_agree_with_bayes_rule(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y)
    joint = np.asarray(jg.log_likelihood(c, x)) + np.log(np.bincount(y) / len(y))
    evidence = np.log(np.exp(joint).sum(axis=1))
    close(jg.log_joint(c, x), joint)
    close(jg.log_evidence(c, x), evidence)
    close(jg.log_posterior(c, x), joint - evidence[:, None], 1e-9)
    np.testing.assert_array_equal(jg.predict(c, x), joint.argmax(axis=1))


@each_estimator
def test_one_point_equals_a_row_of_many(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y)
    for verb in (case.scores, jg.predict):
        close(verb(c, x[0]), verb(c, x)[0])


@each_case
def test_classifier_of_an_empty_class(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y, num_classes=K + 1)
    assert c.log_prior[K] == -jnp.inf
    assert np.isfinite(jax.tree.leaves(c.density)[0]).all()
    posterior = jg.log_posterior(c, x)
    np.testing.assert_array_equal(posterior[:, K], -np.inf)
    close(posterior[:, :K], jg.log_posterior(jg.fit(case.estimator, x, y), x))
    smoothed = jg.fit(dataclasses.replace(case.estimator, prior_alpha=1.0), x, y, num_classes=K + 1)
    close(jnp.exp(smoothed.log_prior), (np.bincount(y, minlength=K + 1) + 1) / (len(y) + K + 1))
    gradient = jax.jit(jax.grad(lambda c: jnp.sum(jg.log_posterior(c, x)[:, :K])))(c)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@each_case
def test_likelihood_is_stationary_at_the_maximum(case):
    """The gradient of the mean log joint of the data, at the exact MLE, is zero in every free parameter."""
    x, y = case.data()
    c = jg.fit(dataclasses.replace(case.estimator, **case.mle), x, y)

    def loss(parameters):
        prior, density = parameters
        joint = jg.log_joint(jg.Classifier(jax.nn.log_softmax(prior), case.unconstrained(density)), x)
        return jnp.mean(joint[jnp.arange(len(y)), y])

    gradient = jax.jit(jax.grad(loss))((c.log_prior, c.density))
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-9)


@each_case
def test_likelihood_and_prior_together_are_stationary_at_the_estimate(case):
    """With a conjugate prior in place of the ridge, which stands for none."""
    x, y = case.data()
    estimator = dataclasses.replace(_conjugate(case.estimator), prior_alpha=0.5)
    c = jg.fit(estimator, x, y)

    def loss(parameters):
        prior, density = jax.nn.log_softmax(parameters[0]), case.unconstrained(parameters[1])
        joint = jg.log_joint(jg.Classifier(prior, density), x)[jnp.arange(len(y)), y]
        return (jnp.sum(joint) + estimator.log_parameter_prior(density) + 0.5 * jnp.sum(prior)) / len(y)

    gradient = jax.jit(jax.grad(loss))((c.log_prior, c.density))
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-9)


def _conjugate(estimator):
    if isinstance(estimator, jg.MixedNB):
        return jg.MixedNB(tuple((_conjugate(part), group) for part, group in estimator.parts))
    if isinstance(estimator, jg.GDA):
        return dataclasses.replace(estimator, prior=jg.NormalInverseWishart(0.5, 2.0, 1.5))
    return estimator


def through_fit_and_scores(case):
    """A function of data, weights and hyperparameters, and where to differentiate it."""
    x, y = case.data(n=30)
    points, _ = case.data(n=3, seed=6)
    leaves, structure = jax.tree.flatten(case.estimator)
    leaves = [jnp.asarray(leaf + 0.1) for leaf in leaves]

    @jax.jit
    def loss(x, weight, leaves):
        c = jg.fit(jax.tree.unflatten(structure, leaves), x, y, num_classes=K, sample_weight=weight)
        verbs = [jg.log_posterior, *[jg.log_evidence] * isinstance(case, Case)]
        return sum(jnp.sum(jnp.sin(verb(c, points))) for verb in verbs)

    function, arguments = loss, (jnp.asarray(x), jnp.ones(len(x)), leaves)
    if not case.continuous:  # x + ε is not a count
        function, arguments = partial(loss, arguments[0]), arguments[1:]
    return function, arguments


@each_estimate
def test_gradients_through_fit_and_scores(case):
    check_grads(*through_fit_and_scores(case), order=1, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)


@each([case for case in CASES if case.name in ("LDA", "QDA", "GaussianNB")], first=())  # whose arithmetic differs
def test_second_derivatives_through_fit_and_scores(case):
    check_grads(*through_fit_and_scores(case), order=2, modes=("fwd",), rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
@each(ESTIMATORS, first=("QDA",))
def test_the_derivative_of_a_stack_is_a_stack_of_derivatives(case):
    """Of statistics that merge, are taken away and scaled."""
    x, y = case.data(n=20)
    weights = jnp.asarray(np.random.default_rng(8).uniform(0.5, 2.0, size=(2, 20)))
    other = case.estimator.statistics(x, y, num_classes=K)

    def loss(weight):
        mine = case.estimator.statistics(x, y, num_classes=K, sample_weight=weight)
        both = jg.scale(jg.subtract(jg.merge(mine, other), other), jnp.sum(weight))
        return jnp.sum(jnp.sin(case.scores(jg.estimate(case.estimator, both), x[:3])))

    stacked = jax.jit(jax.grad(lambda weights: jnp.sum(jax.vmap(loss)(weights))))(weights)
    one = jax.jit(jax.grad(loss))
    close(stacked, jnp.stack([one(weight) for weight in weights]), 1e-8)


@each_case
def test_hessian_of_the_evidence_is_finite(case):
    x, y = case.data()
    c = jg.fit(case.estimator, x, y, num_classes=K + 1)
    hessian = jax.jit(jax.hessian(lambda c: jg.log_evidence(c, x[0])))(c)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(hessian))


@each_estimate
def test_vmap_over_hyperparameters_equals_a_loop(case):
    x, y = case.data()
    values = jnp.array([0.0, 0.5, 1.0])  # some are shares
    estimators = jax.tree.map(lambda _: values, case.estimator)
    stacked = jax.vmap(lambda e: jg.fit(e, x, y))(estimators)
    scores = jax.vmap(case.scores, in_axes=(0, None))(stacked, x)
    for i, value in enumerate(values):
        c = jg.fit(jax.tree.map(lambda _, value=value: value, case.estimator), x, y)
        close(scores[i], case.scores(c, x), 1e-9)


@each_estimator
def test_vmap_over_data_sets_and_weights_equals_a_loop(case):
    batches = [case.data(seed=seed) for seed in range(3)]
    x, y = (np.stack(part) for part in zip(*batches, strict=True))
    weight = np.random.default_rng(0).random(y.shape)
    fit = partial(jg.fit, case.estimator, num_classes=K)
    stacked = jax.vmap(lambda x, y, w: fit(x, y, sample_weight=w))(x, y, weight)
    for i in range(3):
        close(jax.tree.map(lambda leaf, i=i: leaf[i], stacked), fit(x[i], y[i], sample_weight=weight[i]), 1e-9)


@each_estimate
def test_float32_stays_close_to_float64(case):
    x, y = case.data(dtype=np.float32)
    single, double = (jg.fit(case.estimator, x.astype(dtype), y) for dtype in (np.float32, np.float64))
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {np.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(double)} == {np.dtype("float64")}
    for verb in (case.scores, jg.log_posterior):
        scores = verb(single, x)
        assert scores.dtype == np.float32
        close(np.asarray(scores, np.float64), verb(double, x), 2e-4)


@each_estimator
@pytest.mark.parametrize("of_reals", [False, True])
def test_narrow_inputs_are_computed_in_full(case, of_reals):
    x, y = case.data()
    dtype = ("bfloat16" if of_reals else "uint8") if case.continuous else ("uint8" if of_reals else "bool")
    narrow = jnp.asarray(np.round(x)).astype(dtype)
    same = np.asarray(narrow).astype(np.float32 if "float" in dtype else np.float64)
    close(jg.fit(case.estimator, narrow, y), jg.fit(case.estimator, same, y), 1e-12)
    c = jg.fit(case.estimator, same, y)
    close(case.scores(c, narrow), case.scores(c, same), 1e-12)


@each_estimate
def test_bad_values_under_a_trace_give_nan_and_not_an_answer(case):
    x, y = case.data()
    ones = np.ones(len(y))
    weighted = jax.jit(partial(jg.fit, case.estimator, num_classes=K))

    def fit(x, y, sample_weight=ones):  # one program for all
        return weighted(x, y, sample_weight=sample_weight)

    for bad in (np.nan, np.inf):
        spoilt = x.copy()
        spoilt[3, 1] = bad
        assert np.isnan(jg.log_posterior(fit(spoilt, y), x)).all()
        scores = jax.jit(jg.log_posterior)(jg.fit(case.estimator, x, y), spoilt)
        np.testing.assert_array_equal(np.isnan(scores).all(axis=1), np.arange(len(x)) == 3)
    assert np.isnan(jg.log_posterior(fit(x, np.where(np.arange(len(y)) == 5, K, y)), x)).all()
    assert np.isnan(jg.log_posterior(fit(x, y, sample_weight=np.where(np.arange(len(y)) == 5, -1.0, 1.0)), x)).all()
    negative = jax.tree.map(lambda _: -1.0, case.estimator)
    traced = jax.jit(lambda estimator: jg.fit(estimator, x, y))(negative)
    assert np.isnan(jg.log_posterior(traced, x)).all()
