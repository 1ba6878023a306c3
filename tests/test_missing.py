"""Missing features: integrated out of every score, left out of every fit, filled in from what is known."""

import dataclasses
import itertools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from conftest import of_a_cpu
from jax.test_util import check_grads
from registry import CASES, SIZES, K, each, each_case

import jaxgen as jg
from jaxgen import chunks, inputs, platform, threads
from jaxgen.density import marginal_width
from jaxgen.missing import Mask

stats: Any = scipy.stats  # its stubs know less than it does
fit: Any = jg.fit

BY_NAME = {case.name: case for case in CASES}
TAKES_MISSING = [case for case in CASES if case.estimator.takes_missing]


def close(a, b, tolerance=1e-10):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)


def partly(case, n=60, seed=0):
    """Rows with NaN for what was not observed: one row without anything, one with everything."""
    x, y = case.data(n=n, seed=seed)
    observed = np.random.default_rng(1).random(x.shape) < 0.7
    observed[0], observed[1] = False, True
    return np.where(observed, x, np.nan), y, observed


def marginal(case, density, k, x, observed):
    """log p(x_observed | k) by SciPy, or by the sum over everything that the missing features may be."""
    at = np.flatnonzero(observed)
    if not len(at):
        return 0.0
    if case.name in ("LDA", "QDA"):
        factor = np.asarray(density.cholesky)[k if density.cholesky.shape[0] > 1 else 0]
        covariance = (factor @ factor.T)[np.ix_(at, at)]
        return stats.multivariate_normal(np.asarray(density.mean[k])[at], covariance).logpdf(x[at])
    if case.estimator.__class__ is jg.GDA:
        scale = np.broadcast_to(np.asarray(density.scale), density.mean.shape)[k]
        return stats.norm(np.asarray(density.mean[k])[at], scale[at]).logpdf(x[at]).sum()
    if case.name == "MultinomialNB":
        theta = np.exp(np.asarray(density.log_probability[k]))[at]
        return stats.multinomial(int(x[at].sum()), theta / theta.sum()).logpmf(x[at])
    values = {
        "BernoulliNB": [range(2)] * 4,
        "PoissonNB": [range(40)] * 4,
        "CategoricalNB": [range(m) for m in SIZES],
        # Temperature is Gaussian and has no sum; it is left as observed below.
        "MixedNB": [(), range(2), range(3), range(40)],
    }[case.name]
    whole = [values[j] if not observed[j] else (x[j],) for j in range(4)]
    if case.name == "MixedNB" and not observed[0]:
        whole[0] = (0.0,)
        without = stats.norm(*(float(np.asarray(getattr(density.densities[1], a))[k, 0]) for a in ("mean", "scale")))
        return scipy.special.logsumexp(
            [case.log_density(density, k, np.array(v)) for v in itertools.product(*whole)]
        ) - without.logpdf(0.0)
    return scipy.special.logsumexp([case.log_density(density, k, np.array(v)) for v in itertools.product(*whole)])


@each(CASES, first=("QDA", "MultinomialNB", "MixedNB"))
def test_scores_integrate_out_what_was_not_observed(case):
    c = jg.fit(case.estimator, *case.data())
    x, _, observed = partly(case)
    rows = [0, 1, 2, 3] if case.name in ("PoissonNB", "MixedNB") else range(8)
    if case.name == "PoissonNB":  # forty values of each missing feature
        rows = [i for i in range(30) if observed[i].sum() >= 2][:4]
    expected = [[marginal(case, c.density, k, x[i], observed[i]) for k in range(K)] for i in rows]
    got = jg.log_likelihood(c, x, observed=observed)
    close(got[np.array(rows)], np.array(expected), 1e-8)
    close(jg.log_posterior(c, x, observed=observed), jax.nn.log_softmax(got + c.log_prior[None], axis=1))
    close(jg.log_posterior(c, x, observed=observed)[0], c.log_prior)
    close(jg.log_joint(c, x[5], observed=observed[5]), got[5] + c.log_prior)
    joint = np.asarray(got + c.log_prior[None])
    found = joint[np.arange(len(x)), np.asarray(jg.predict(c, x, observed=observed))]
    close(found, joint.max(axis=1))  # a document of one observed word is a tie


@of_a_cpu
@pytest.mark.parametrize("name", ["GaussianNB", pytest.param("QDA", marks=pytest.mark.thorough)])
def test_rows_that_cores_share_are_summed_scored_and_filled_in_as_by_one_program(name, monkeypatch):
    case = BY_NAME[name]
    x, y, observed = partly(case, n=200)
    c = jg.fit(case.estimator, *case.data())
    given = c if case.estimator.fills_in else None

    def all_of(x, observed):
        made = case.estimator.statistics(x, y, num_classes=K, observed=observed, given=given)
        return (
            jg.log_posterior(c, x, observed=observed),
            jg.predict(c, x, observed=observed),
            jg.impute(c, x, observed),
            jg.estimate(case.estimator, made).density,
        )

    at_once = jax.jit(all_of)(x, observed)
    monkeypatch.setattr(chunks, "_FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    split, parts = chunks.split, []
    monkeypatch.setattr(chunks, "split", lambda *data, **more: parts.append(split(*data, **more)) or parts[-1])
    for given_as in (np.asarray, jnp.asarray):
        close(all_of(given_as(x), given_as(observed)), at_once, 1e-12)
    assert [len(each) for each in parts] == [3] * 10
    if given is not None:

        def expected(c):
            return case.estimator.statistics(x, y, num_classes=K, observed=observed, given=c)

        close(jax.jvp(expected, (c,), (c,)), jax.jvp(jax.jit(expected), (c,), (c,)), 1e-9)
    broken = np.where(observed, x, np.nan)
    broken[-1, np.argmax(observed[-1])] = np.nan
    with pytest.raises(ValueError, match=f"row {len(x) - 1}"):
        jg.log_posterior(c, broken, observed=observed)


@each_case
def test_what_missing_entries_hold_leaks_into_nothing(case):
    """Neither values nor derivatives, of scores and of fits, whatever is there."""
    x, y, observed = partly(case, n=24)
    fits = case.estimator.takes_missing and not case.estimator.fills_in
    fixed = jg.fit(case.estimator, *case.data())

    @jax.jit
    @jax.value_and_grad
    def loss(x):
        c = jg.fit(case.estimator, x, y, num_classes=K, observed=observed) if fits else fixed
        return jnp.sum(jg.log_evidence(c, x, observed=observed))

    value, gradient = loss(x)
    np.testing.assert_array_equal(np.asarray(gradient)[~observed], 0.0)
    close((value, gradient), loss(np.where(observed, x, -7.5)), 0.0)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def expected_fit(case, x, y, observed):
    """The maximum likelihood estimate (or smoothed one) of naive families, feature by feature."""
    seen = np.array([[observed[y == k, j].sum() for j in range(4)] for k in range(K)], float)
    total = np.array([[np.nansum(x[y == k, j]) for j in range(4)] for k in range(K)])
    if case.name == "BernoulliNB":
        return np.log((total + 1) / (seen + 2)), np.log((seen - total + 1) / (seen + 2))
    if case.name == "PoissonNB":
        return (np.log((total + 0.1) / (seen + 0.1)),)
    if case.name == "CategoricalNB":
        counts = [[(x[y == k, j] == v).sum() for j, m in enumerate(SIZES) for v in range(m)] for k in range(K)]
        size, weight = np.repeat(SIZES, SIZES), np.repeat(seen, SIZES, axis=1)
        return (np.log((np.array(counts) + 1) / (weight + size)),)
    mean = total / seen
    scatter = np.array([[np.nansum((x[y == k, j] - mean[k, j]) ** 2) for j in range(4)] for k in range(K)])
    spherical, shared = case.estimator.covariance == "spherical", case.estimator.shared
    axes = ((0,) if shared else ()) + ((1,) if spherical else ())
    variance = scatter.sum(axes, keepdims=True) / seen.sum(axes, keepdims=True) if axes else scatter / seen
    return mean, np.sqrt(variance)


@each([case for case in TAKES_MISSING if case.name not in ("LDA", "QDA", "MultinomialNB", "MixedNB")])
def test_naive_families_are_fitted_to_each_feature_where_it_was_observed(case):
    x, y, observed = partly(case)
    estimator = (
        case.estimator
        if not isinstance(case.estimator, jg.GDA)
        else jg.GDA(case.estimator.covariance, shared=case.estimator.shared, ridge=0.0)
    )
    c = jg.fit(estimator, x, y, observed=observed)
    close(jax.tree.leaves(c.density), list(expected_fit(case, x, y, observed)))
    close(np.exp(c.log_prior), np.bincount(y) / len(y))
    soft = jg.fit(estimator, x, np.eye(K)[y], observed=observed)
    close(soft, c)


@pytest.mark.thorough
def test_mixed_families_are_fitted_each_as_by_itself():
    case = BY_NAME["MixedNB"]
    x, y, observed = partly(case)
    mixed: Any = case.estimator
    c = fit(mixed, x, y, observed=observed)
    for (estimator, columns), density in zip(mixed.parts, c.density.densities, strict=True):
        close(density, jg.fit(estimator, x[:, list(columns)], y, observed=observed[:, list(columns)]).density)


@each(TAKES_MISSING, first=("QDA",))
def test_partial_batches_merge_and_subtract(case):
    x, y, observed = partly(case)
    given = jg.fit(case.estimator, *case.data()) if case.estimator.fills_in else None

    def of(rows, **options):
        options |= {"num_classes": K, "observed": observed[rows], "given": given}
        return case.estimator.statistics(x[rows], y[rows], **options)

    whole, parts = of(slice(None)), [of(slice(30)), of(slice(30, None))]
    close(jg.merge(*parts), whole)
    close(of(slice(None), block_size=7), whole)
    close(jg.subtract(whole, parts[0]), parts[1], 1e-9)
    observed[:30] = True
    complete = case.estimator.statistics(case.data()[0][:30], y[:30], num_classes=K)
    x[:30] = case.data()[0][:30]
    whole = of(slice(None))
    for both in ((complete, parts[1]), (parts[1], complete)):
        close(jg.merge(*both), whole)
    close(jg.subtract(whole, complete), parts[1], 1e-9)
    weight = np.random.default_rng(2).permutation(np.arange(len(x)) % 3)  # as many rows again: the program of the whole
    close(of(slice(None), sample_weight=weight), of(np.repeat(np.arange(len(x)), weight)))


@pytest.mark.parametrize("soft", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("given", [jg.LDA(), jg.QDA(), jg.GDA("spherical", shared=True), jg.GaussianNB()])
def test_statistics_expected_under_a_classifier_of_another_form(given, shared, soft):
    """Covariances are summed as the estimator has them, not as the classifier has that fills features in."""
    case = BY_NAME["QDA"]
    x, y, observed = partly(case, n=30)
    complete = case.data()
    c: Any = jg.fit(given, *complete)
    if isinstance(c.density, jg.Gaussian):
        sigma = np.asarray(c.density.cholesky) @ np.swapaxes(c.density.cholesky, 1, 2)
    else:
        sigma = np.eye(x.shape[1]) * np.asarray(c.density.scale)[:, None] ** 2
    mean = np.asarray(c.density.mean)
    sigma = np.broadcast_to(sigma, (K, *sigma.shape[1:]))
    r = np.random.default_rng(4).dirichlet(np.ones(K), len(x)) if soft else np.eye(K)[y]
    filled, spread = np.repeat(x[:, None], K, axis=1), np.zeros((len(x), K, *sigma.shape[1:]))
    for i, k in itertools.product(range(len(x)), range(K)):
        o, m = np.flatnonzero(observed[i]), np.flatnonzero(~observed[i])
        slope = sigma[k][np.ix_(m, o)] @ np.linalg.inv(sigma[k][np.ix_(o, o)])
        filled[i, k, m] = mean[k][m] + slope @ (x[i, o] - mean[k][o])
        spread[i, k][np.ix_(m, m)] = sigma[k][np.ix_(m, m)] - slope @ sigma[k][np.ix_(o, m)]
    center = np.einsum("nk,nkj->kj", r, filled) / r.sum(axis=0)[:, None]
    rest = filled - center
    expected = np.einsum("nk,nki,nkj->kij", r, rest, rest) + np.einsum("nk,nkij->kij", r, spread)
    estimator = jg.GDA("full", shared=shared)
    found = estimator.statistics(x, r if soft else y, num_classes=K, observed=observed, given=c)
    close(found.mean.value, center, 1e-9)
    close(found.scatter, expected.sum(axis=0, keepdims=True) if shared else expected, 1e-8)
    assert jg.estimate(estimator, found).density.mean.shape == mean.shape


def few_missing(estimator, n=40, d=12):
    """A classifier of many features, and rows that miss three of them at most."""
    rng = np.random.default_rng(7)
    y = np.arange(n) % K
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + y[:, None]
    missing = rng.random((n, d)).argsort(axis=1) < np.arange(n)[:, None] % 4
    return jg.fit(estimator, x, y), np.where(missing, np.nan, x), y, ~missing


def by_numpy(c, k, x, observed):
    """log p(x_observed | k), E[x | x_observed, k] and its covariance, by the covariance of what was observed."""
    factor = np.asarray(c.density.cholesky)[k if len(c.density.cholesky) > 1 else 0]
    mean, covariance, (o, m) = np.asarray(c.density.mean[k]), factor @ factor.T, (observed, ~observed)
    slope = np.linalg.solve(covariance[np.ix_(o, o)], covariance[np.ix_(o, m)]).T
    filled, spread = np.array(x), np.zeros_like(covariance)
    filled[m] = mean[m] + slope @ (x[o] - mean[o])
    spread[np.ix_(m, m)] = covariance[np.ix_(m, m)] - slope @ covariance[np.ix_(o, m)]
    return stats.multivariate_normal(mean[o], covariance[np.ix_(o, o)]).logpdf(x[o]), filled, spread


@pytest.mark.parametrize(
    "estimator", [jg.LDA(), pytest.param(jg.QDA(), marks=pytest.mark.thorough)], ids=["LDA", "QDA"]
)
def test_of_few_missing_features_what_depends_on_them_is_made_of_few(estimator):
    c, x, y, observed = few_missing(estimator)
    assert Mask.counted(observed).most_missing == Mask.counted(jnp.asarray(observed)).most_missing == 4
    likelihoods, filled, spread = (
        np.stack(each)
        for each in zip(
            *(
                [np.stack(each) for each in zip(*(by_numpy(c, k, *row) for k in range(K)), strict=True)]
                for row in zip(x, observed, strict=True)
            ),
            strict=True,
        )
    )
    close(jg.log_likelihood(c, x, observed=observed), likelihoods)
    for known in (observed, jnp.asarray(observed)):
        close(jax.jit(lambda x, known=known: jg.log_likelihood(c, x, observed=known))(x), likelihoods)
    posterior = scipy.special.softmax(likelihoods + np.asarray(c.log_prior), axis=1)
    close(jg.impute(c, x, observed), np.einsum("nk,nkd->nd", posterior, filled), 1e-9)
    draw = jax.jit(lambda x, observed: jg.impute(c, x, observed, key=jax.random.key(0)))
    close(jg.impute(c, x, observed, key=jax.random.key(0)), draw(x, observed))  # which does not know how few they are
    for responsibilities in (np.eye(K)[y], posterior):
        labels = y if responsibilities is not posterior else posterior
        moments = estimator.statistics(x, labels, observed=observed, given=c)
        weight = responsibilities.sum(axis=0)[:, None]
        mean = np.einsum("nk,nkd->kd", responsibilities, filled) / weight
        away = filled - mean[None]
        scatter = np.einsum("nk,nkd,nke->kde", responsibilities, away, away)
        scatter += np.einsum("nk,nkde->kde", responsibilities, spread)
        close(moments.mean.value, mean)
        close(moments.scatter, scatter.sum(axis=0, keepdims=True) if len(moments.scatter) == 1 else scatter, 1e-9)


@pytest.mark.thorough
def test_a_group_of_columns_knows_how_few_of_it_are_missing():
    _, x, y, observed = few_missing(jg.QDA())
    few, whole = inputs.check_rows(x, observed=observed, counts=True), inputs.check_rows(x, observed=observed)
    assert [few.take(np.arange(d)).most_missing for d in (7, 8, 12)] == [None, 4, 4]
    c = jg.fit(jg.MixedNB(((jg.QDA(), tuple(range(9))), (jg.GaussianNB(), (9, 10, 11)))), np.nan_to_num(x), y)
    assert [marginal_width(c, most) for most in (None, 4, 8)] == [K * 81, K * 16, K * 81]
    close(c.density.log_marginal(few.astype(float)), c.density.log_marginal(whole.astype(float)))


@pytest.mark.thorough
def test_the_likelihood_of_few_missing_features_has_its_derivatives():
    c, x, _, observed = few_missing(jg.QDA(), n=120)

    def score(mean, cholesky):
        density = c.density._replace(mean=mean, cholesky=jnp.tril(cholesky))
        return jg.log_likelihood(c._replace(density=density), x[:6], observed=observed[:6]).mean()

    check_grads(score, tuple(c.density), order=2, modes=("rev",), rtol=1e-4)


@pytest.mark.thorough
def test_em_of_few_missing_features_is_that_of_any():
    """Under jit nothing says how few are missing."""
    c, x, y, observed = few_missing(jg.LDA())
    y = np.where(np.arange(len(y)) % 2 == 0, y, -1)

    def steps(x, observed):
        return jg.train_em(jg.LDA(), x, y, observed=observed, start=c, max_steps=5, num_classes=K)

    close(steps(x, observed), jax.jit(steps)(x, observed), 1e-9)


def test_expected_statistics_have_the_dtype_of_the_rows():
    """Also where x64 is on, rows are shared by classes and all chunks are multiplied at once."""
    case = BY_NAME["QDA"]
    x, y, observed = partly(case, n=12)
    x, shared = x.astype(np.float32), np.eye(K, dtype=np.float32)[y]
    c = jg.fit(case.estimator, *case.data(dtype=np.float32))
    for tuning in (platform.CPU, platform.ACCELERATOR):
        with platform.override(tuning):
            found = case.estimator.statistics(x, shared, observed=observed, given=c)
        assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}


def bivariate(n=120):
    rng = np.random.default_rng(3)
    y = rng.permutation(np.arange(n) % 2)
    x = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]]) + y[:, None]
    observed = np.ones((n, 2), bool)
    observed[:, 1] = rng.random(n) < 0.6
    return np.where(observed, x, np.nan), y, observed


def test_em_finds_the_maximum_that_is_known_in_closed_form():
    """Anderson (1957): with one feature always observed the likelihood factors into a marginal and a regression."""
    x, y, observed = bivariate()
    c, report = jg.train_em(jg.QDA(ridge=0.0), x, y, observed=observed, tolerance=1e-15, max_steps=5000)
    density: Any = c.density
    assert report.converged
    assert (np.diff(report.log_evidence[: report.steps]) > -1e-14).all()
    for k in range(2):
        rows, both = x[y == k], x[(y == k) & observed[:, 1]]
        slope, intercept = np.polyfit(both[:, 0], both[:, 1], 1)
        rest = np.mean((both[:, 1] - slope * both[:, 0] - intercept) ** 2)
        mean, variance = rows[:, 0].mean(), rows[:, 0].var()
        close(c.density.mean[k], np.array([mean, intercept + slope * mean]), 1e-7)
        covariance = np.array([[variance, slope * variance], [slope * variance, rest + slope**2 * variance]])
        close(density.cholesky[k] @ density.cholesky[k].T, covariance, 1e-7)
    close(jg.fit(jg.QDA(ridge=0.0), x, y, observed=observed), c, 1e-4)


@pytest.mark.parametrize("name", ["LDA", pytest.param("QDA", marks=pytest.mark.thorough)])
def test_the_observed_likelihood_is_stationary_where_em_ends(name):
    case = BY_NAME[name]
    x, y, observed = bivariate()
    observed = observed & (np.random.default_rng(5).random(x.shape) < 0.8)
    estimator = jg.GDA("full", shared=name == "LDA", ridge=0.0)
    c, _ = jg.train_em(estimator, x, y, observed=observed, tolerance=0.0)

    def loss(density):
        joint = jg.log_joint(c._replace(density=case.unconstrained(density)), x, observed=observed)
        return jnp.mean(joint[jnp.arange(len(y)), y])

    for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(c.density)):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-6)


def test_gradients_go_through_a_fit_by_em():
    x, y, observed = bivariate(24)

    @jax.jit
    def loss(x, weight, ridge):
        c = jg.fit(jg.LDA(ridge), x, y, num_classes=2, sample_weight=weight, observed=observed)
        return jnp.sum(jnp.sin(jg.log_joint(c, x[:3], observed=observed[:3])))

    arguments = np.where(observed, x, 0.0), np.ones(len(x)), 0.1
    check_grads(loss, arguments, order=1, modes=("rev",), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_a_fit_by_em_goes_on_until_its_gradients_are_exact():
    rng, y = np.random.default_rng(3), np.arange(60) % 3
    x = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3)) + rng.normal(size=(3, 3))[y]
    observed = rng.random(x.shape) > 0.25

    @jax.jit
    def loss(x):
        c = jg.fit(jg.QDA(), x, y, num_classes=3, observed=observed)
        return jnp.sum(jnp.sin(jg.log_joint(c, x[:3], observed=observed[:3])))

    # They differ by 9e-5 of them where a step gains 1e-9 nats a row.
    check_grads(loss, (np.where(observed, x, 0.0),), order=1, modes=("rev",), rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_a_fit_by_em_in_float32_ends_though_rounding_makes_its_evidence_fall():
    rng, y = np.random.default_rng(0), np.arange(500) % 3
    x = rng.normal(size=(500, 10)) @ rng.normal(size=(10, 10)) / 300 + rng.normal(size=(3, 10))[y] / 100
    observed = rng.random(x.shape) > 0.25
    c = jg.fit(jg.LDA(), x.astype(np.float32), y, observed=observed)  # a warning, here an error, if it did not
    seen = np.stack([x[y == k].mean(axis=0, where=observed[y == k]) for k in range(3)])
    assert np.abs(np.asarray(c.density.mean) - seen).max() < x.std(axis=0).max()


@pytest.mark.thorough
def test_a_mean_that_nothing_determines_has_no_derivative_and_takes_no_other():
    x, y = np.random.default_rng(7).normal(size=(6, 2)), np.array([0, 1, 0, 1, 0, 2])
    observed = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [1, 1], [1, 0]], bool)

    def mean(x, *place):
        return jg.fit(jg.LDA(0.1), x, y, num_classes=3, observed=observed).density.mean[place]

    x = np.where(observed, x, 0.0)
    check_grads(lambda x: mean(x, 0, 1), (x,), order=1, modes=("rev",), rtol=1e-5, atol=1e-5)
    assert np.isnan(jax.grad(lambda x: mean(x, 2, 1))(x)[observed]).all()


@pytest.mark.thorough
def test_a_mixed_fit_fills_in_where_a_family_correlates():
    x, y, observed = bivariate()
    estimator = jg.MixedNB(((jg.QDA(), (2, 0)), (jg.BernoulliNB(), (1,))))
    flags = np.random.default_rng(4).random(len(x)) < 0.5
    both = np.stack([x[:, 1], flags, x[:, 0]], axis=1)
    seen = np.stack([observed[:, 1], np.arange(len(x)) % 3 > 0, observed[:, 0]], axis=1)
    c = jg.fit(estimator, both, y, observed=seen)
    close(c.density.densities[0], jg.fit(jg.QDA(), x, y, observed=observed).density, 1e-3)
    close(c.density.densities[1], jg.fit(jg.BernoulliNB(), both[:, 1:2], y, observed=seen[:, 1:2]).density)


@pytest.mark.thorough
def test_float32_at_a_large_mean_keeps_its_digits():
    x, y, observed = bivariate()
    exact = fit(jg.LDA(), x, y, observed=observed)
    c = fit(jg.LDA(), (x + 1e4).astype(np.float32), y, observed=observed)
    close(c.density.cholesky, exact.density.cholesky.astype(np.float32), 3e-3)
    got = jg.log_posterior(c, (x + 1e4).astype(np.float32), observed=observed)
    close(got, jg.log_posterior(exact, x, observed=observed).astype(np.float32), 3e-2)


@pytest.mark.parametrize("estimator", [jg.MultinomialNB(), jg.PoissonNB(), jg.BernoulliNB()])
def test_float32_posteriors_of_long_documents_keep_their_digits(estimator):
    rng = np.random.default_rng(0)
    x, y = rng.poisson(1.0, (40, 20_000)), np.arange(40) % 2
    x = np.minimum(x, 1) if isinstance(estimator, jg.BernoulliNB) else x
    c = jg.fit(estimator, x.astype(np.float32), y)
    observed = rng.random((3, 20_000)) < 0.9
    double = jax.tree.map(lambda leaf: leaf.astype(np.float64), c)
    exact, odds = (
        np.diff(jg.log_joint(double, x[:3], observed=observed))[:, 0],
        np.diff(jg.log_posterior(c, x[:3].astype(np.float32), observed=observed))[:, 0],
    )
    np.testing.assert_allclose(odds, exact, atol=5e-3)


def test_imputation_is_the_conditional_mean_and_its_draws_have_it():
    case = BY_NAME["QDA"]
    c = jg.fit(case.estimator, *case.data())
    for key in (None, jax.random.key(0)):
        assert jg.impute(c, np.zeros((0, 4)), np.zeros((0, 4), bool), key=key).shape == (0, 4)
    x, _, observed = partly(case, n=6)
    filled = np.asarray(jg.impute(c, x, observed))
    posterior = np.exp(jg.log_posterior(c, x, observed=observed))
    i = int(np.argmax((observed.sum(axis=1) > 0) & (observed.sum(axis=1) < 4)))
    o, m = np.flatnonzero(observed[i]), np.flatnonzero(~observed[i])
    mean, covariance = [], []
    for k in range(K):
        sigma = np.asarray(c.density.cholesky[k] @ c.density.cholesky[k].T)
        gain = sigma[np.ix_(m, o)] @ np.linalg.inv(sigma[np.ix_(o, o)])
        mean.append(np.asarray(c.density.mean[k])[m] + gain @ (x[i, o] - np.asarray(c.density.mean[k])[o]))
        covariance.append(sigma[np.ix_(m, m)] - gain @ sigma[np.ix_(o, m)])
    expected = posterior[i] @ np.array(mean)
    close(filled[i, m], expected, 1e-9)
    np.testing.assert_array_equal(filled[observed], x[observed])
    n = 20_000
    draws = np.asarray(jg.impute(c, *(np.repeat(a[i : i + 1], n, 0) for a in (x, observed)), key=jax.random.key(0)))
    np.testing.assert_array_equal(draws[:, o], np.repeat(x[i : i + 1, o], n, 0))
    second = sum(p * (s + np.outer(u, u)) for p, s, u in zip(posterior[i], covariance, mean, strict=True))
    spread = second - np.outer(expected, expected)
    np.testing.assert_allclose(draws[:, m].mean(axis=0), expected, atol=5 * np.sqrt(spread.max() / n))
    np.testing.assert_allclose(np.cov(draws[:, m].T), spread, rtol=0.05, atol=0.05 * spread.max())


@pytest.mark.thorough
def test_imputation_of_a_mixture_of_families():
    case = BY_NAME["MixedNB"]
    c = jg.fit(case.estimator, *case.data())
    x, _, observed = partly(case, n=10)
    with pytest.raises(TypeError, match="no mean of a missing feature of Categorical"):
        jg.impute(c, x, observed)
    drawn = jg.impute(c, x, observed, key=jax.random.key(1))
    assert np.isfinite(jg.log_evidence(c, drawn)).all()
    bits = jg.fit(jg.BernoulliNB(), *BY_NAME["BernoulliNB"].data())
    some = np.array([[1.0, np.nan, 0.0, np.nan]])
    posterior = np.exp(jg.log_posterior(bits, some, observed=~np.isnan(some)))[0]
    close(jg.impute(bits, some[0], ~np.isnan(some[0]))[1], posterior @ np.exp(bits.density.log_present[:, 1]))


@pytest.mark.thorough
def test_imputation_beside_a_family_that_has_nothing_to_fill_in_with():
    """A category that was seen says which class a row may be of; it need not have a mean."""
    case = BY_NAME["MixedNB"]
    x, y = case.data()
    c = jg.fit(case.estimator, x, y)
    number = next(group[0] for (part, group) in case.estimator.parts if isinstance(part, jg.GDA))
    observed = np.ones(x.shape, bool)
    observed[::2, number] = False
    filled = jg.impute(c, np.where(observed, x, np.nan), observed)
    np.testing.assert_array_equal(filled[observed], x[observed])
    mean = next(d.mean[:, 0] for d in c.density.densities if isinstance(d, jg.DiagonalGaussian))
    close(filled[::2, number], np.exp(jg.log_posterior(c, x, observed=observed))[::2] @ mean)
    gradient = jax.grad(lambda c: jnp.sum(jg.impute(c, x, observed)), allow_int=True)(c)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    with pytest.raises(TypeError, match="no mean of a missing feature of Categorical"):
        jax.jit(jg.impute)(c, x, observed)
    both = jg.MixedNB(((jg.GaussianNB(), (0,)), (jg.BernoulliNB(binarize=0.5), (1,))))
    known = np.arange(12) % 3 > 0
    pairs, seen = np.random.default_rng(0).random((12, 2)), np.stack([known, np.ones(12, bool)], axis=1)
    binary = jg.fit(both, pairs, np.arange(12) % 2)
    for key in (None, jax.random.key(0)):
        assert np.isfinite(jg.impute(binary, pairs, seen, key=key)).all()
        with pytest.raises(TypeError, match=r"feature of Bernoulli: what x was before binarize=0.5 is not known"):
            jg.impute(binary, pairs, seen[:, ::-1], key=key)
    text, d = words(), words().density.num_features
    events = text._replace(density=jg.Mixed((text.density, jg.Poisson(jnp.zeros((K, 1)))), (tuple(range(d)), (d,))))
    row = np.r_[np.ones(d), np.nan]
    drawn = jg.impute(events, row, ~np.isnan(row), key=jax.random.key(0))
    np.testing.assert_array_equal(drawn[:d], 1)
    assert drawn[d] >= 0
    predictive = events._replace(density=jg.DirichletMultinomial(jnp.ones((K, d + 1))))
    with pytest.raises(TypeError, match="cannot draw a missing feature of DirichletMultinomial"):
        jg.impute(predictive, row, row > 1, key=jax.random.key(0))


def test_imputation_under_students_t_by_quadrature():
    mean, scale, degrees, seen = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]]), 2.5, 4.0
    factor = np.linalg.cholesky(scale) / 1.5
    density = jg.StudentT(mean[None], jnp.asarray(factor)[None], jnp.array([degrees]), jnp.array([1.5]))
    c, observed = jg.Classifier(jnp.zeros(1), density), np.array([True, False])
    grid = np.linspace(-60, 60, 240_001)
    weight = scipy.stats.multivariate_t(mean, scale, degrees).pdf(np.column_stack([np.full_like(grid, seen), grid]))
    filled = jg.impute(c, np.array([seen, np.nan]), observed)
    np.testing.assert_allclose(filled[1], np.average(grid, weights=weight), rtol=1e-5)
    n = 4_000
    rows = np.tile([seen, np.nan], (n, 1))
    draws = np.asarray(jg.impute(c, rows, np.tile(observed, (n, 1)), key=jax.random.key(0)))
    np.testing.assert_array_equal(draws[:, 0], seen)
    below = np.cumsum(weight) / weight.sum()
    assert scipy.stats.kstest(draws[:, 1], lambda x: np.interp(x, grid, below)).pvalue > 0.01
    wild = c._replace(density=density._replace(degrees=jnp.array([0.5])))
    assert np.isnan(jg.impute(wild, np.full(2, np.nan), ~observed & observed)).all()  # there is no mean


@pytest.mark.thorough
def test_imputation_under_predictive_densities_of_independent_features():
    prior, some = jnp.zeros(1), np.array([[True, False]])
    x = np.array([[2.0, np.nan]])
    events = jg.Classifier(prior, jg.NegativeBinomial(jnp.array([[1.0, 3.0]]), jnp.array([[2.0]])))
    close(jg.impute(events, x, some), np.array([[2.0, 1.5]]))
    density = jg.DiagonalStudentT(jnp.array([[0.0, 5.0]]), jnp.ones((1, 2)), jnp.array([[3.0]]))
    close(jg.impute(jg.Classifier(prior, density), x, some), np.array([[2.0, 5.0]]))
    mixed = jg.Classifier(prior, jg.Mixed((events.density, density), ((0, 1), (2, 3))))
    both, of_both = np.concatenate([x, x], axis=1), np.concatenate([some, some], axis=1)
    close(jg.impute(mixed, both, of_both), np.array([[2.0, 1.5, 2.0, 5.0]]))
    assert np.isfinite(jg.impute(mixed, both, of_both, key=jax.random.key(0))).all()


def words():
    return jg.fit(jg.MultinomialNB(), *BY_NAME["MultinomialNB"].data())


def many():
    """The predictive of words."""
    return words()._replace(density=jg.DirichletMultinomial(jnp.ones((K, 4))))


def two(c):
    """The first two classes."""
    return jax.tree.map(lambda leaf: leaf[:2], c)


FIRST_LACKS_ONE = np.array([[True, i > 2, True, True] for i in range(6)])
NONE_HAS_THE_LAST = np.tile(np.arange(4) < 3, (6, 1))


def documents(n=60):
    """Documents of two classes, with words that were not counted; one document without any, one with all."""
    rng = np.random.default_rng(0)
    y, theta = np.arange(n) % 2, rng.dirichlet(np.ones(5), 2)
    x = rng.multinomial(rng.integers(1, 30, n), theta[y]).astype(float)
    observed = rng.random(x.shape) < 0.7
    observed[0], observed[1] = False, True
    return np.where(observed, x, np.nan), y, observed


@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_words_are_fitted_to_what_was_counted_given_its_total(alpha):
    """The maximum of Σ x_o log θ_o/θ(o) + alpha Σ log θ is where SciPy finds it; whole documents need no EM."""
    x, y, observed = documents()
    c = jg.fit(jg.MultinomialNB(alpha), x, y, observed=observed)
    for k in range(2):
        counts, seen = np.where(observed, x, 0)[y == k], observed[y == k]

        def loss(log_odds, counts=counts, seen=seen):
            log_theta = log_odds - scipy.special.logsumexp(log_odds)
            shares = scipy.special.logsumexp(np.where(seen, log_theta, -np.inf)[seen.any(axis=1)], axis=1)
            of_words = counts.sum(axis=1)[seen.any(axis=1)] @ shares
            return of_words - counts.sum(axis=0) @ log_theta - alpha * log_theta.sum()

        found = scipy.optimize.minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).x
        np.testing.assert_allclose(np.exp(c.density.log_probability[k]), scipy.special.softmax(found), atol=2e-6)
    whole = np.nan_to_num(x)
    complete = jg.fit(jg.MultinomialNB(alpha), whole, y, observed=np.ones_like(observed))
    close(complete, jg.fit(jg.MultinomialNB(alpha), whole, y))


def test_a_word_that_a_class_never_has_is_impossible_there_though_some_did_not_count_it():
    rng, q = np.random.default_rng(0), np.array([[40.0, 2, 1, 10]])
    x = np.vstack([rng.multinomial(20, [0.6, 0.1, 0, 0.3], 40), rng.multinomial(20, [0.1, 0.3, 0.3, 0.3], 40)])
    x, y, observed = x.astype(float), np.repeat([0, 1], 40), np.ones(x.shape, bool)
    observed[:30, 2] = False
    observed[40], x[40, 2] = [False, False, True, False], 1000  # by which what is unlikely elsewhere is divided
    c = jg.fit(jg.MultinomialNB(alpha=0.0), x, y, observed=observed)
    assert np.isneginf(c.density.log_probability[0, 2])
    np.testing.assert_array_equal(jg.log_posterior(c, q), [[-np.inf, 0.0]])
    x[y == 0], observed[0, 2] = 0, True  # a class without a word
    c = jg.fit(jg.MultinomialNB(alpha=0.0), x, y, observed=observed)
    close(np.exp(c.density.log_probability[0]), np.full(4, 0.25))
    tiny = jg.Classifier(
        jnp.zeros(2), jg.Multinomial(jnp.log(jnp.array([[0.5, 0.5 - 1e-308, 1e-308], [0.2, 0.3, 0.5]])))
    )
    row, seen = np.array([[1.0, 2.0, 1e3]]), np.array([[False, False, True]])
    given = jg.MultinomialNB().statistics(row, [1], num_classes=2, observed=seen, given=tiny)
    close(given.feature_sum.value, np.array([[0.0, 0.0, 0.0], [400.0, 600.0, 1000.0]]))


def test_gradients_go_through_a_fit_to_words_that_were_counted():
    x, y, observed = documents(20)

    def evidence(alpha, weight):
        c = jg.fit(jg.MultinomialNB(alpha), x, y, num_classes=2, sample_weight=weight, observed=observed)
        return jnp.sum(jg.log_evidence(c, x, observed=observed))

    weight = np.random.default_rng(1).uniform(0.5, 2, 20)
    check_grads(jax.jit(evidence), (0.7, weight), order=1, modes=("rev",), eps=1e-4, rtol=1e-4, atol=1e-4)


def test_words_that_were_not_counted_are_as_many_as_their_total_leaves():
    """By sums over all totals m, of prior 1/m, and draws by their frequencies; nothing is beside no word."""
    theta = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    prior, x = np.log([0.4, 0.6]), np.array([2.0, 3.0, np.nan])
    c = jg.Classifier(jnp.asarray(prior), jg.Multinomial(jnp.log(theta)))
    number = np.arange(400)
    joint = np.exp(prior)[:, None] * [
        stats.multinomial.pmf(np.column_stack([[2] * 400, [3] * 400, number]), 5 + number, p) / (5 + number)
        for p in theta
    ]
    chance = joint.sum(axis=0) / joint.sum()
    observed = np.array([True, True, False])
    close(jg.impute(c, x, observed), np.array([2.0, 3.0, chance @ number]), 1e-9)
    close(jg.log_posterior(c, x, observed=observed), np.log(joint.sum(axis=1) / joint.sum()), 1e-9)
    n = 20_000
    drawn = np.asarray(jg.impute(c, np.tile(x, (n, 1)), np.tile(observed, (n, 1)), key=jax.random.key(0)))
    np.testing.assert_array_equal(drawn[:, :2], np.tile(x[:2], (n, 1)))
    counted = np.bincount(np.minimum(drawn[:, 2].astype(int), 15), minlength=16)
    assert stats.chisquare(counted, n * np.append(chance[:15], chance[15:].sum())).pvalue > 1e-3
    none = np.zeros(3, bool)
    for key in (None, jax.random.key(0)):
        np.testing.assert_array_equal(jg.impute(c, x, none, key=key), 0.0)


def test_words_beside_numbers_are_fitted_as_by_themselves():
    x, y, observed = documents()
    words, numbers = (1, 3, 4), (0, 2)
    c = jg.fit(jg.MixedNB(((jg.MultinomialNB(), words), (jg.GaussianNB(), numbers))), x, y, observed=observed)
    for estimator, columns, density in zip(
        (jg.MultinomialNB(), jg.GaussianNB()), (words, numbers), c.density.densities, strict=True
    ):
        alone = jg.fit(estimator, x[:, columns], y, observed=observed[:, columns])
        close(density, alone.density, 1e-5)  # each stops where its own evidence stands still


@pytest.mark.thorough
def test_labels_out_of_range_and_absent_rows_under_em():
    x, y, observed = bivariate(30)
    jitted = jax.jit(lambda y: jg.fit(jg.LDA(), x, y, num_classes=2, observed=observed).density.mean)
    assert np.isnan(jitted(np.where(np.arange(30) == 3, 5, y))).all()
    weight = np.where(np.arange(30) == 3, 0.0, 1.0)
    absent = np.where(weight[:, None] > 0, x, np.nan), np.where(weight > 0, y, -1)

    def loss(ridge):
        options = {"num_classes": 2, "observed": observed | (weight == 0)[:, None], "sample_weight": weight}
        return jnp.sum(fit(jg.LDA(ridge), *absent, **options).density.cholesky ** 2)

    assert np.isfinite(jax.grad(loss)(0.1))


@pytest.mark.thorough
def test_a_fit_with_missing_features_begins_where_its_prior_alone_makes_it_possible():
    x, _, observed = bivariate(30)
    lonely = np.where(np.arange(30) == 0, 1, 0)
    prior = jg.NormalInverseWishart()
    assert np.isfinite(fit(jg.QDA(ridge=0.0, prior=prior), x, lonely, observed=observed).density.cholesky).all()


@pytest.mark.parametrize(
    "estimator",
    [
        jg.GaussianNB(),
        *(pytest.param(e, marks=pytest.mark.thorough) for e in (jg.GDA("spherical", shared=False), jg.LDA(), jg.QDA())),
    ],
    ids=str,
)
def test_a_feature_that_no_row_observed_is_refused_where_no_prior_speaks_for_it(estimator):
    x, y, observed = bivariate(30)
    observed = observed & (np.arange(observed.shape[1]) != 1)
    with pytest.raises(ValueError, match=r"feature 1 was observed in no row.*NormalInverseWishart"):
        jg.fit(estimator, x, y, observed=observed)


def test_a_feature_that_no_row_observed_is_refused_in_a_mixture_too():
    x, y, observed = bivariate(30)
    observed = observed & (np.arange(observed.shape[1]) != 1)
    mixed = jg.MixedNB(((jg.GaussianNB(), (1,)), (jg.PoissonNB(), (0,))))
    with pytest.raises(ValueError, match="column 1: feature 1 was observed in no row"):
        jg.fit(mixed, np.abs(x).round(), y, observed=observed)
    with pytest.raises(ValueError, match="feature 1 was observed in no row"):
        jg.fit_em(jg.GaussianNB(), x, observed=observed, num_classes=2, key=jax.random.key(0))


@pytest.mark.thorough
def test_a_feature_that_no_row_observed_is_where_its_prior_says():
    x, y, observed = bivariate(30)
    observed = observed & (np.arange(observed.shape[1]) != 1)
    prior = jg.NormalInverseWishart(mean=np.array([0.0, 7.0]), scale=np.array([[2.0, 0.5], [0.5, 1.0]]))
    c = jg.fit(jg.QDA(prior=prior), x, y, observed=observed)
    np.testing.assert_allclose(c.density.mean[:, 1], 7.0 + 0.25 * (c.density.mean[:, 0] - 0.0), atol=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda c, x, o: jg.LDA().statistics(x, np.arange(6) % 2, observed=o, given=c),
            ValueError,
            "given must have 2 classes",
        ),
        (lambda c, x, o: jg.impute(many(), np.abs(x), o), TypeError, "no mean of a missing feature of DirichletMulti"),
        (
            lambda c, x, o: jg.impute(many(), np.abs(x), o, key=jax.random.key(0)),
            TypeError,
            "cannot draw a missing feature of DirichletMultinomial",
        ),
        (
            lambda c, x, o: jg.fit(jg.MultinomialNB(alpha=0.0), abs(x), [0, 0, 0, 1, 1, 1], observed=FIRST_LACKS_ONE),
            ValueError,
            "no row of class 0 shows feature 1, .* its share there. Give a positive alpha",
        ),
        (
            lambda c, x, o: jg.fit(jg.MultinomialNB(0.0), abs(x), [0, 0, 0, 1, 1, 1], observed=NONE_HAS_THE_LAST),
            ValueError,
            "no row of class 0 shows feature 3,",
        ),
        (
            lambda c, x, o: jg.fit(jg.MultinomialNB(np.ones(3)), abs(x), [0, 0, 0, 1, 1, 1], observed=o),
            ValueError,
            r"MultinomialNB.alpha must be one number or broadcast to \(2, 4\)",
        ),
        (
            lambda c, x, o: jg.MultinomialNB().statistics(abs(x), np.arange(6) % 2, observed=o, given=two(c)),
            TypeError,
            "given must be a classifier with a Multinomial density, or a Poisson one; found Gaussian",
        ),
        (
            lambda c, x, o: jg.log_joint(c, x, observed=o[:, :2]),
            ValueError,
            r"observed must have the shape of x, \(6, 4\)",
        ),
        (lambda c, x, o: jg.log_joint(c, x, observed=o.astype(int)), TypeError, "observed must be boolean"),
        (
            lambda c, x, o: jg.log_joint(c, np.where(o, np.nan, x), observed=o),
            ValueError,
            "x must hold finite numbers; found nan",
        ),
        (lambda c, x, o: jg.predict(jg.to_linear(c), x, observed=o), TypeError, "observed= needs a generative"),
        (
            lambda c, x, o: fit(jg.LogisticRegression(), x, np.arange(6) % 2, observed=o),
            TypeError,
            "cannot leave features out",
        ),
        (
            lambda c, x, o: jg.fit(jg.ComplementNB(), x, np.arange(6) % 2, observed=o),
            TypeError,
            "^ComplementNB cannot be fitted with observed",
        ),
        (
            lambda c, x, o: jg.LDA().statistics(x, np.arange(6) % 2, observed=o),
            TypeError,
            "take given, the current classifier",
        ),
        (lambda c, x, o: jg.LDA().statistics(x, np.arange(6) % 2, given=c), TypeError, "given goes with observed"),
        (
            lambda c, x, o: jg.fit(jg.LDA(), np.where(o, np.nan, x), np.arange(6) % 2, observed=o),
            ValueError,
            "x must hold finite numbers; found nan",
        ),
        (
            lambda c, x, o: fit(jg.BernoulliNB(), scipy.sparse.csr_array(x), np.arange(6) % 2, observed=o),
            TypeError,
            "observed is for dense x",
        ),
        (
            lambda c, x, o: jg.predict(words(), scipy.sparse.csr_array(np.abs(x)), observed=o),
            TypeError,
            "observed is for dense x",
        ),
        (
            lambda c, x, o: jg.fit(jg.GaussianNB(), np.where(o, 1e200 * x, np.nan), np.arange(6) % 2, observed=o),
            ValueError,
            r"the largest is \d",
        ),
    ],
)
def test_what_is_refused_and_why(call, error, message):
    case = BY_NAME["LDA"]
    c = jg.fit(case.estimator, *case.data())
    x, _, observed = partly(case, n=6)
    with pytest.raises(error, match=message):
        call(c, x, observed)


@pytest.mark.parametrize(
    ("estimator", "dtype", "apart"),
    [
        (jg.LDA(), "float32", 0.0),
        pytest.param(jg.QDA(), "float32", 1.0, marks=pytest.mark.thorough),
        pytest.param(jg.LDA(), "float64", 1.0, marks=pytest.mark.thorough),
        pytest.param(jg.QDA(ridge=0.1), "float64", 0.0, marks=pytest.mark.thorough),
        pytest.param(
            jg.MixedNB(((jg.LDA(), (0, 1)), (jg.PoissonNB(), (2,)))), "float64", 1.0, marks=pytest.mark.thorough
        ),
    ],
    ids=["LDA32", "QDA32", "LDA64", "QDA64", "mixed"],
)
def test_what_is_missing_of_a_constant_feature_is_that_constant(estimator, dtype, apart):
    """Its variance, filled in and taken for its unit, would fall for ever, as would that of one of each class."""
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    x = np.stack([rng.normal(size=40) + y, 7 + apart * y, rng.poisson(3.0, 40)], axis=1).astype(dtype)
    observed = np.ones(x.shape, bool)
    observed[:6, 1] = False
    c = fit(estimator, np.where(observed, x, np.nan), y, observed=observed)
    chex.assert_trees_all_close(c, fit(estimator, x, y), rtol=1e-5)


def test_a_feature_that_a_class_never_shows_is_refused_where_its_variance_would_grow_for_ever():
    rng = np.random.default_rng(0)
    y = np.r_[np.arange(40) % 2, 2, 2]
    x = rng.normal(size=(42, 2))
    observed = np.ones(x.shape, bool)
    observed[y == 2, 1] = False
    for estimator in (jg.QDA(ridge=0.1), jg.MixedNB(((jg.QDA(), (0, 1)),))):
        with pytest.raises(ValueError, match="no row of class 2 shows feature 1, so that nothing is known"):
            fit(estimator, x, y, observed=observed)
    assert np.isfinite(fit(jg.GaussianNB(), x, y, observed=observed).density.mean).all()


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", [jg.LDA(), jg.QDA(prior=jg.NormalInverseWishart())])
def test_a_feature_that_a_class_never_shows_is_known_where_others_or_a_prior_speak_for_it(estimator):
    x = np.random.default_rng(0).normal(size=(42, 2))
    y = np.r_[np.arange(40) % 2, 2, 2]
    observed = np.ones(x.shape, bool)
    observed[y == 2, 1] = False
    assert np.isfinite(fit(estimator, x, y, observed=observed).density.mean).all()
    assert np.isfinite(fit(jg.QDA(), x, y, num_classes=4, observed=observed | (y == 2)[:, None]).density.mean).all()


def test_a_class_that_is_impossible_fills_nothing_in():
    """The Student t of a class without data may have no mean."""
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    estimator = jg.GaussianNB(prior=jg.NormalInverseWishart(degrees=0.8))
    three, two = (jg.predictive(estimator, estimator.statistics(x, y, num_classes=classes)) for classes in (3, 2))
    assert np.isneginf(three.log_prior[2])
    row, observed = np.array([1.0, np.nan]), np.array([True, False])
    close(jg.impute(three, row, observed), jg.impute(two, row, observed))


@pytest.mark.thorough
def test_what_fills_in_is_of_the_same_columns():
    rng, y = np.random.default_rng(0), np.arange(30) % 2
    x = rng.normal(size=(30, 3)) + y[:, None]
    observed = rng.random(x.shape) < 0.9
    first, second = (jg.MixedNB(((jg.QDA(), a), (jg.QDA(), b))) for a, b in [((0, 1), (2,)), ((2,), (0, 1))])
    given = jg.fit(second, x, y)
    with pytest.raises(TypeError, match=r"on columns \(\(0, 1\), \(2,\)\); found columns \(\(2,\), \(0, 1\)\)"):
        first.statistics(x, y, observed=observed, given=given)
    with pytest.raises(TypeError, match=r"on columns .* found columns"):
        jg.fit_em(first, x, y, observed=observed, start=given)
    with pytest.raises(TypeError, match=r"on columns .* found Gaussian"):
        first.statistics(x, y, observed=observed, given=jg.fit(jg.QDA(), x, y))
    with pytest.raises(TypeError, match="given must be a Gaussian classifier; found Poisson"):
        jg.QDA().statistics(x, y, observed=observed, given=jg.fit(jg.PoissonNB(), np.abs(x), y))


@pytest.mark.parametrize("scale", [[[2.0]], [[2.0], [3.0]], [[1.0, 2.0, 3.0, 4.0]]], ids=["one", "classes", "features"])
def test_many_rows_with_missing_features(scale):
    """Enough for several blocks: of one scale for all, compiled loops once read numbers from elsewhere."""
    rng, mean = np.random.default_rng(0), np.array([[0.0] * 4, [1.0] * 4])
    x = rng.normal(size=(20_000, 4)).astype(np.float32)
    observed = rng.random(x.shape) < 0.6
    c = jg.Classifier(jnp.log(jnp.array([0.2, 0.8])), jg.DiagonalGaussian(jnp.asarray(mean), jnp.asarray(scale)))
    terms = stats.norm.logpdf(x[:, None].astype(float), mean, np.broadcast_to(scale, mean.shape))
    expected = np.sum(terms, axis=2, where=observed[:, None])
    np.testing.assert_allclose(jg.log_likelihood(c, x, observed=observed), expected, atol=1e-4)


@pytest.mark.parametrize("estimator", [jg.GaussianNB(), jg.PoissonNB(), jg.MixedNB(((jg.GaussianNB(), (0, 1)),))])
def test_a_part_of_which_more_was_observed_is_none_of_the_whole(estimator):
    y, observed = np.arange(40) % 2, np.arange(80).reshape(40, 2) % 3 > 0
    x = np.where(observed, np.arange(80).reshape(40, 2) % 5, 0)
    whole = estimator.statistics(x, y, observed=observed)
    of_ten = estimator.statistics(x[:10], y[:10], observed=observed[:10])
    rest = estimator.statistics(x[10:], y[10:], observed=observed[10:])
    chex.assert_trees_all_close(jg.subtract(whole, of_ten), rest, atol=1e-9)
    forgot = estimator.statistics(x, y)  # where all of it counts as observed
    with pytest.raises(
        ValueError, match=r"whole must contain part; found column 0 of the weights of what was observed"
    ):
        jg.subtract(whole, forgot)


def em_by_numpy(x, y, observed, ridge, steps):
    """EM of a Gaussian for each class, of which features are missing, from independent features."""
    both = (~observed)[:, :, None] & (~observed)[:, None, :]
    mine = [y == k for k in range(y.max() + 1)]
    pooled = sum(np.nanvar(x[k], axis=0) * observed[k].sum(axis=0) for k in mine) / observed.sum(axis=0)
    mean = np.stack([np.nanmean(x[k], axis=0) for k in mine])
    sigma = np.stack([np.diag(np.nanvar(x[k], axis=0) + ridge * pooled) for k in mine])
    for _ in range(steps):
        scatter = []
        for k, rows in enumerate(mine):
            precision = np.linalg.inv(sigma[k])
            covariance = np.where(both[rows], np.linalg.inv(np.where(both[rows], precision, np.eye(x.shape[1]))), 0.0)
            residual = np.where(observed[rows], x[rows] - mean[k], 0.0)
            residual -= np.einsum("nij,nj->ni", covariance, residual @ precision)
            mean[k] += residual.mean(axis=0)
            residual -= residual.mean(axis=0)
            scatter.append(residual.T @ residual + covariance.sum(axis=0))
        unit = np.diag(np.diag(sum(scatter))) / len(y)
        sigma = np.stack([each / rows.sum() + ridge * unit for each, rows in zip(scatter, mine, strict=True)])
    return sigma


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "error"), [(np.float32, 2e-3), pytest.param(np.float64, 2e-4, marks=pytest.mark.thorough)]
)
def test_em_goes_on_where_a_ridge_has_made_the_evidence_fall_and_turn(dtype, error):
    rng, y = np.random.default_rng(3), np.arange(60) % 3
    x = (rng.normal(size=(60, 4)) + 0.8 * y[:, None]).astype(np.float32).astype(dtype)
    observed = rng.random(x.shape) < 0.6
    c = jg.fit(jg.QDA(ridge=0.01), x, y, observed=observed)  # which passes a saddle after 2,400 steps
    found = np.einsum("kij,klj->kil", c.density.cholesky, c.density.cholesky)
    expected = em_by_numpy(np.where(observed, x, np.nan).astype(float), y, observed, 0.01, 4_500)
    np.testing.assert_allclose(found, expected, atol=error)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "estimator",
    [
        jg.QDA(ridge=0.01),
        jg.MixedNB(((jg.QDA(ridge=0.01), (0, 2, 1, 3)),)),
    ],
)
def test_a_large_mean_costs_no_digits_where_features_are_missing(estimator):
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    x = (rng.normal(size=(60, 4)) + 0.8 * y[:, None] + 1e5).astype(np.float32)
    observed = rng.random(x.shape) < 0.6
    single, double = (jg.fit(estimator, x.astype(dtype), y, observed=observed).density for dtype in (np.float32, float))
    if isinstance(estimator, jg.MixedNB):
        single, double = single.densities[0], double.densities[0]
    np.testing.assert_allclose(single.cholesky, double.cholesky, atol=1e-5)
    np.testing.assert_allclose(single.mean, double.mean, atol=0.01)  # 1.3 of its last digits


def test_a_class_near_zero_keeps_its_digits_beside_one_far_away():
    rng, y, observed = np.random.default_rng(0), np.repeat([0, 1], 30), np.ones((60, 2), bool)
    x = np.float32(rng.normal(size=(60, 2)) * np.where(y == 0, 1, 1e6)[:, None] + 1e7 * y[:, None])
    observed[::6, 1] = False
    density, first = jg.fit(jg.QDA(ridge=0.0), x, y, observed=observed).density, x[:, 0].astype(float).reshape(2, 30)
    np.testing.assert_allclose(density.mean[:, 0], first.mean(axis=1), rtol=1e-5)  # which was never missing
    np.testing.assert_allclose(density.cholesky[:, 0, 0], first.std(axis=1), rtol=1e-5)


@pytest.mark.thorough
def test_a_prior_mean_is_where_it_was_after_em():
    rng, y = np.random.default_rng(0), np.arange(40) % 2
    x, observed = rng.normal(size=(40, 2)) + 50.0, rng.random((40, 2)) < 0.7
    near, far = (
        jg.fit(jg.QDA(prior=jg.NormalInverseWishart(mean=at, mean_weight=1e6)), x, y, observed=observed)
        for at in (50.0, np.array([40.0, 60.0]))
    )
    np.testing.assert_allclose(near.density.mean, 50.0, atol=1e-3)
    np.testing.assert_allclose(far.density.mean, [[40.0, 60.0]] * 2, atol=1e-3)


def test_a_row_that_is_impossible_is_not_filled_in():
    half = np.log(0.5)
    density = jg.Bernoulli(jnp.array([[-jnp.inf, half]] * 2), jnp.array([[0.0, half]] * 2))
    c, x = jg.Classifier(jnp.full(2, half), density), np.array([[1.0, np.nan], [0.0, np.nan]])
    for key in (None, jax.random.key(0)):
        filled = np.asarray(jg.impute(c, x, ~np.isnan(x), key=key))
        assert filled[0, 0] == 1.0
        assert np.isnan(filled[0, 1])
        assert np.isfinite(filled[1]).all()


def test_a_row_that_is_impossible_has_no_part_in_the_derivatives_of_others():
    """E[x₂ | x₁ = 0] = Σ_k π_k p_k2 beside a row of x₁ = 1, and E[x₂ | 2 of the first word] = 2 Σ_k π_k θ_k2 / θ_k1."""
    prior, p = np.array([0.3, 0.7]), np.array([0.5, 0.2])
    of_bits = jnp.stack([jnp.zeros(2), p], axis=1)
    bits = jg.Bernoulli(jnp.log(of_bits), jnp.log1p(-of_bits))
    theta = np.array([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0]])
    words = jg.Multinomial(jnp.log(theta))
    for density, x, ratio in (
        (bits, np.array([[1.0, np.nan], [0.0, np.nan]]), p),
        (words, np.array([[1.0, np.nan, 1.0], [2.0, np.nan, 0.0]]), 2 * theta[:, 1] / theta[:, 0]),
    ):
        c = jg.Classifier(jnp.log(prior), density)
        assert np.isnan(jg.impute(c, x, ~np.isnan(x))[0, 1])
        change = jax.grad(lambda c: jg.impute(c, x, ~np.isnan(x))[1, 1])(c)  # noqa: B023
        np.testing.assert_allclose(change.log_prior, prior * (ratio - prior @ ratio), atol=1e-12)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(change))


def test_no_two_rows_are_filled_in_with_one_draw():
    c = jg.Classifier(jnp.zeros(1), jg.Gaussian(jnp.zeros((1, 2)), jnp.eye(2)[None]))
    x = np.tile([0.0, np.nan], (200, 1))
    with platform.override(dataclasses.replace(platform.CPU, score_elements=100)):  # a few rows at a time
        drawn = np.asarray(jg.impute(c, x, ~np.isnan(x), key=jax.random.key(0)))[:, 1]
    assert len(np.unique(drawn)) == len(drawn)


def test_groups_of_features_are_filled_in_by_draws_of_their_own():
    one = jg.DiagonalGaussian(jnp.zeros((1, 1)), jnp.ones((1, 1)))
    c, n = jg.Classifier(jnp.zeros(1), jg.Mixed((one, one), ((0,), (1,)))), 2_000
    filled = jg.impute(c, np.zeros((n, 2)), np.zeros((n, 2), bool), key=jax.random.key(0))
    assert abs(np.corrcoef(np.asarray(filled).T)[0, 1]) < 5 / np.sqrt(n)


def test_what_a_wide_t_is_filled_in_with_is_as_wide():
    degrees, spread, n = 2.5, 4.0, 4_000
    density = jg.StudentT(jnp.zeros((1, 2)), jnp.eye(2)[None], jnp.array([degrees]), jnp.array([spread]))
    rows = np.tile([0.0, np.nan], (n, 1))
    drawn = jg.impute(jg.Classifier(jnp.zeros(1), density), rows, ~np.isnan(rows), key=jax.random.key(0))
    grid = np.linspace(-400, 400, 400_001)
    at = np.column_stack([np.zeros_like(grid), grid])
    weight = stats.multivariate_t(np.zeros(2), spread**2 * np.eye(2), degrees).pdf(at)
    below = np.cumsum(weight) / weight.sum()
    assert stats.kstest(np.asarray(drawn)[:, 1], lambda x: np.interp(x, grid, below)).pvalue > 0.01


def test_what_was_observed_gives_a_t_of_few_degrees_its_mean():
    density = jg.StudentT(jnp.zeros((1, 2)), jnp.array([[[1.0, 0.0], [0.6, 0.8]]]), jnp.array([0.75]), jnp.ones(1))
    c, row = jg.Classifier(jnp.zeros(1), density), np.array([2.0, np.nan])
    close(jg.impute(c, row, ~np.isnan(row))[1], 1.2)  # 0.6 · 2: given one feature it has 1.75 degrees
    assert np.isnan(jg.impute(c, row, np.zeros(2, bool))).all()
    alone = jg.Classifier(
        jnp.zeros(1), jg.DiagonalStudentT(jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.array([[3.0, 1.0]]))
    )
    np.testing.assert_array_equal(jg.impute(alone, row, np.zeros(2, bool)), [0.0, np.nan])  # Cauchy's has none


@pytest.mark.thorough
def test_a_fit_goes_on_where_em_is_slow():
    """Anderson (1957), as above, with nine in ten of the second feature lost."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    observed = np.ones((200, 2), bool)
    observed[:, 1] = np.arange(200) % 10 == 0
    c = jg.fit(jg.LDA(ridge=0.0), np.where(observed, x, np.nan), np.zeros(200, int), observed=observed)
    slope, intercept = np.polyfit(*x[observed[:, 1]].T, 1)
    np.testing.assert_allclose(c.density.mean[0, 1], intercept + slope * x[:, 0].mean(), atol=2e-4)
    rest = np.mean((x[::10, 1] - slope * x[::10, 0] - intercept) ** 2)
    variance = (c.density.cholesky[0] @ c.density.cholesky[0].T)[1, 1]
    np.testing.assert_allclose(variance, rest + slope**2 * x[:, 0].var(), rtol=5e-4)


def test_pooled_spherical_variances_weigh_features_by_what_was_observed():
    rng, pooling = np.random.default_rng(0), 0.3
    x, y = rng.normal(size=(60, 3)) * np.array([1.0, 5.0, 20.0]), np.arange(60) % 2
    observed = rng.random((60, 3)) < np.array([0.9, 0.5, 0.2]) + 0.1 * y[:, None]
    x = np.where(observed, x, np.nan)
    weight = np.stack([observed[y == k].sum(axis=0) for k in (0, 1)])
    scatter = np.stack([np.nanvar(x[y == k], axis=0) for k in (0, 1)]) * weight
    both = [(1 - pooling) * each + pooling * each.sum(axis=0) for each in (scatter, weight)]
    c = jg.fit(jg.GDA("spherical", shared=False, ridge=0.0, pooling=pooling), x, y, observed=observed)
    close(c.density.scale[:, 0] ** 2, both[0].sum(axis=1) / both[1].sum(axis=1))


def test_a_class_without_data_takes_the_pooled_spherical_variance_of_what_was_observed():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)) * np.array([1.0, 5.0, 20.0]), np.arange(60) % 2
    observed = rng.random((60, 3)) < np.array([0.9, 0.5, 0.2])
    own, shared = (
        jg.fit(jg.GDA("spherical", s, ridge=0.0), x, y, observed=observed, num_classes=3).density for s in (False, True)
    )
    close(own.scale[2], shared.scale[0])


@pytest.mark.parametrize("shared", [True, False])
def test_shrinkage_moves_no_spherical_covariance_of_missing_features_either(shared):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)) * np.array([1.0, 5.0, 20.0]), np.arange(60) % 2
    observed = rng.random((60, 3)) < np.array([0.9, 0.5, 0.2])
    fits = [jg.fit(jg.GDA("spherical", shared, ridge=0.0, shrinkage=s), x, y, observed=observed) for s in (0.0, 0.7)]
    close(fits[1].density, fits[0].density)


def test_what_is_never_absent_is_impossible_where_it_is_absent():
    """No word is ever impossible here but by its absence, of which the second word alone is not known."""
    half = np.log(0.5)
    density = jg.Bernoulli(jnp.array([[0.0, half], [half, half]]), jnp.array([[-jnp.inf, half], [half, half]]))
    c, x = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), density), np.array([[0.0, 1.0], [1.0, 0.0]])
    expected = np.array([[-np.inf, 2 * half], [half, 2 * half]])
    close(jg.log_likelihood(c, x), expected)
    close(jg.log_likelihood(c, scipy.sparse.csr_array(x)), expected)
    first = np.array([[True, False]] * 2)
    close(jg.log_likelihood(c, x, observed=first), expected - half)
    np.testing.assert_array_equal(jg.log_posterior(c, x, observed=first)[0], [-np.inf, 0.0])
