"""Samples: their distribution against SciPy's and against the density itself, and what is refused."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from registry import CASES, D, K, each, each_case

import jaxgen as jg
from benchmarks import __main__ as command
from benchmarks import samples
from jaxgen import continuous_draws, count_draws, draws, sampling

N = 20_000
TOTAL = 7


def fitted(case):
    return jg.fit(case.estimator, *case.data(n=90))


def total_of(c):
    return TOTAL if getattr(c.density, "needs_total_count", False) else None


def moments(case, c, k):
    """Mean and covariance of class k, from the parameters."""
    density = c.density
    if isinstance(density, jg.Gaussian):
        factor = np.asarray(density.cholesky)[k if density.cholesky.shape[0] > 1 else 0]
        return density.mean[k], factor @ factor.T
    if isinstance(density, jg.DiagonalGaussian):
        return density.mean[k], np.diag(np.broadcast_to(np.asarray(density.scale), density.mean.shape)[k] ** 2)
    if isinstance(density, jg.Bernoulli):
        p = np.exp(density.log_present[k])
        return p, np.diag(p * (1 - p))
    if isinstance(density, jg.Multinomial):
        p = np.exp(density.log_probability[k])
        return TOTAL * p, TOTAL * (np.diag(p) - np.outer(p, p))
    if isinstance(density, jg.Poisson):
        rate = np.exp(density.log_rate[k])
        return rate, np.diag(rate)
    if isinstance(density, jg.Categorical):
        tables = np.split(np.exp(density.log_probability[k]), np.cumsum(density.num_categories)[:-1])
        mean = np.array([table @ np.arange(len(table)) for table in tables])
        square = np.array([table @ np.arange(len(table)) ** 2 for table in tables])
        return mean, np.diag(square - mean**2)
    parts = [moments(case, jg.Classifier(c.log_prior, part), k) for part in density.densities]
    order = np.argsort(np.concatenate(density.columns))
    variance = np.concatenate([np.diag(covariance) for _, covariance in parts])
    return np.concatenate([mean for mean, _ in parts])[order], np.diag(variance[order])


@each_case
def test_samples_have_the_moments_of_their_class(case):
    c = fitted(case)
    x, y = jg.sample(jax.random.key(1), c, N, total_count=total_of(c))
    assert x.shape == (N, D)
    assert x.dtype == jax.tree.leaves(c.density)[0].dtype
    share = np.bincount(y, minlength=K) / N
    np.testing.assert_allclose(share, np.exp(c.log_prior), atol=5 * np.sqrt(0.25 / N))
    for k in range(K):
        mine = np.asarray(x)[np.asarray(y) == k]
        mean, covariance = moments(case, c, k)
        deviation = np.sqrt(np.diag(covariance))
        error = np.abs(mine.mean(axis=0) - mean) * np.sqrt(len(mine)) / np.maximum(deviation, 1e-12)
        assert error.max() < 5, (case.name, k, error)
        correlation = np.cov(mine.T) / np.outer(deviation, deviation)
        np.testing.assert_allclose(correlation, covariance / np.outer(deviation, deviation), atol=0.15)
    # Every sample lies in the domain of its own classifier.
    assert np.isfinite(jg.log_evidence(c, x[:50])).all()


def test_gaussian_samples_pass_a_test_of_their_distribution():
    mean, factor = jnp.array([[1.0, -2.0]]), jnp.array([[[2.0, 0.0], [1.5, 0.5]]])
    x, _ = jg.sample(jax.random.key(3), jg.Classifier(jnp.zeros(1), jg.Gaussian(mean, factor)), 5_000)
    for direction in (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -1.0])):
        spread = np.linalg.norm(np.asarray(factor[0]).T @ direction)
        normal = scipy.stats.norm(np.asarray(mean[0]) @ direction, spread)
        assert scipy.stats.kstest(np.asarray(x) @ direction, normal.cdf).pvalue > 1e-3


def test_poisson_and_categorical_samples_have_their_frequencies():
    poisson = jg.Classifier(jnp.zeros(1), jg.Poisson(jnp.log(jnp.array([[3.5]]))))
    x = np.asarray(jg.sample(jax.random.key(0), poisson, 5_000)[0])[:, 0]
    seen = np.bincount(np.minimum(x, 9).astype(int), minlength=10)
    expected = np.append(scipy.stats.poisson(3.5).pmf(np.arange(9)), scipy.stats.poisson(3.5).sf(8))
    assert scipy.stats.chisquare(seen, 5_000 * expected).pvalue > 1e-3
    tables = np.array([0.2, 0.8, 0.5, 0.1, 0.4])
    categorical = jg.Classifier(jnp.zeros(1), jg.Categorical(jnp.log(jnp.array([tables])), (2, 3)))
    x = np.asarray(jg.sample(jax.random.key(0), categorical, 5_000)[0]).astype(int)
    for column, table in ((0, tables[:2]), (1, tables[2:])):
        assert scipy.stats.chisquare(np.bincount(x[:, column]), 5_000 * table).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_uniform_numbers_are_fine_near_their_ends(dtype):
    shape = (2_000_001,)
    u = np.asarray(draws.uniform(jax.random.key(0), shape, dtype), np.float64)
    distance, is_above = map(np.asarray, draws.to_nearer_end(jax.random.key(1), shape, dtype))
    assert 0 < u.min() < u.max() < 1
    assert 0 < distance.min() < distance.max() <= 0.5
    assert abs(is_above.mean() - 0.5) < 0.002
    for numbers in (u, distance[is_above], distance[~is_above]):
        few = 2.0**10 * np.asarray(numbers, np.float64)[numbers < 2.0**-10]
        assert scipy.stats.kstest(few, "uniform").pvalue > 1e-3
        assert np.mean(few % 2.0**-13 == 0) < 0.01  # as all of jax.random are
    by_four = np.asarray(draws._bits(jax.random.key(2), shape, dtype)[0 if dtype == jnp.float64 else 1], np.float64)
    apart = np.corrcoef(by_four[:2_000_000].reshape(-1, 4).T) - np.eye(4)  # of float32 one word has the rest of four
    assert np.abs(apart).max() < 5 / np.sqrt(500_000)
    whole = np.where(is_above, 1 - np.asarray(distance, np.float64), distance)
    for numbers in (u[:100_000], whole[:100_000]):
        assert scipy.stats.kstest(numbers, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_normal_numbers_are_quantiles_of_fine_uniform_ones(dtype):
    key, shape = jax.random.key(0), (1_000, 1_000)
    z = np.asarray(continuous_draws.normal(key, shape, dtype), np.float64)
    distance, is_above = map(np.asarray, draws.to_nearer_end(key, shape, dtype))
    expected = scipy.stats.norm.ppf(distance.astype(np.float64))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(np.where(is_above, -z, z), expected, rtol=8 * eps, atol=2 * eps)
    assert scipy.stats.kstest(z[:100].ravel(), "norm").pvalue > 1e-3
    beyond = scipy.stats.norm.sf(np.abs(z)[np.abs(z) > 3]) / scipy.stats.norm.sf(3)
    assert scipy.stats.kstest(beyond, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.thorough)])
def test_gamma_variables_have_their_distribution_and_derivative(dtype):
    n, shapes = 100_000, np.array([0.05, 0.7, 1.0, 3.0, 40.0, 1e7], dtype)
    draw = jax.jit(lambda key, a: continuous_draws.gamma(key, jnp.broadcast_to(a, (n, len(a)))))
    larger, log_power = (np.asarray(each, np.float64) for each in draw(jax.random.key(0), shapes))
    for a, column in zip(shapes.astype(float), (larger * np.exp(log_power)).T, strict=True):
        below = scipy.stats.gamma(a).cdf(column)
        assert scipy.stats.kstest(below, "uniform").pvalue > 1e-3
        for rare in (below, 1 - below):
            assert scipy.stats.kstest(rare[rare < 1e-2] / 1e-2, "uniform").pvalue > 1e-3
    a = np.append(np.linspace(1, 9, 20), [900, 1100, 1e6]).astype(dtype)  # where the power is 1
    (drawn, _), (slope, _) = jax.jvp(lambda a: continuous_draws.gamma(jax.random.key(1), a), (a,), (np.ones_like(a),))
    a, drawn = a.astype(float), np.asarray(drawn, np.float64)
    below, step = scipy.special.gammainc(a, drawn), 1e-4 * a
    expected = (scipy.special.gammaincinv(a + step, below) - scipy.special.gammaincinv(a - step, below)) / (2 * step)
    np.testing.assert_allclose(slope, expected, rtol=1e-4 if dtype == jnp.float32 else 1e-6)
    ends = [0.0, -0.0, np.inf, np.nan, -2.0, -1e-30]
    larger, log_power = continuous_draws.gamma(jax.random.key(2), jnp.array(ends, dtype))
    np.testing.assert_array_equal(larger * jnp.exp(log_power), [0, 0, np.inf, np.nan, np.nan, np.nan])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n", "rare", "least", "most"),
    # Of the second 0.2 are expected, and 2.4 by uniform numbers that are multiples of 2^-23.
    [(2_000_000, 1e-4, 130, 270), (20_000_000, 1e-8, 0, 1)],
)
def test_rare_events_are_drawn_with_their_own_probability_in_float32(n, rare, least, most):
    @jax.jit
    def numbers(key, log_chance):
        log_present, log_absent = (jnp.broadcast_to(log, (n,)) for log in log_chance)
        seen, unseen = draws.events(key, log_present, log_absent), draws.events(key, log_absent, log_present)
        first = draws.Wheel.of(jnp.exp(log_chance)[None, None]).draw(key, jnp.zeros(n, jnp.int32)) == 0
        raced = draws.class_of_each(key, jnp.broadcast_to(log_chance, (n, 2))) == 0
        chance = jnp.broadcast_to(jnp.exp(log_chance[0]), (n,))
        counted = count_draws.poisson(key, chance)
        tried = count_draws.binomial(key, jnp.ones_like(chance), chance, 1 - chance)
        near_one = continuous_draws.gamma(key, chance)[1] > -1
        return jnp.array([jnp.sum(each) for each in (seen, ~unseen, first, raced, counted > 0, tried > 0, near_one)])

    found = numbers(jax.random.key(0), jnp.log(jnp.asarray([rare, 1 - rare], jnp.float32)))
    assert np.all((least <= found) & (found <= most)), found


def agree_in_distribution(x, law):
    """Whether draws have mean, variance and frequencies of a law of SciPy, between forty quantiles and beyond them."""
    bounds = np.unique(law.ppf(np.linspace(0.001, 0.999, 40)))
    expected = len(x) * np.diff(law.cdf(bounds), prepend=0, append=1)
    seen = np.histogram(x, np.concatenate([[-np.inf], bounds + 0.5, [np.inf]]))[0]
    enough = expected > 5
    assert not seen[expected == 0].any()
    assert np.sum((seen - expected)[enough] ** 2 / expected[enough]) < scipy.stats.chi2(enough.sum()).isf(1e-3)
    mean, variance, excess = (float(moment) for moment in law.stats("mvk"))
    assert abs(x.mean() - mean) < 4 * np.sqrt(variance / len(x))
    assert abs(np.mean((x - mean) ** 2) / variance - 1) < 4 * np.sqrt((2 + excess) / len(x))


@pytest.mark.parametrize(
    ("dtype", "n"),
    [(jnp.float32, 80_000), pytest.param(jnp.float64, 20_000, marks=pytest.mark.thorough)],
    ids=["float32", "float64"],
)
def test_numbers_of_events_have_their_distribution(dtype, n):
    rates = np.array([1e-3, 0.124, 0.7, 3.5, 9.99, 10.1, 57.0, 3e4, 1e6, 1.6e7], dtype)
    draw = jax.jit(lambda key, rates: count_draws.poisson(key, jnp.broadcast_to(rates, (n, len(rates)))))
    for rate, x in zip(rates, np.asarray(draw(jax.random.key(0), rates), np.float64).T, strict=True):
        agree_in_distribution(x, scipy.stats.poisson(float(rate)))
    counts = np.array([3, 40, 40, 1000, 10**6, 2**24, 2**24, 2**24], dtype)
    chances = np.array([0.4, 0.2, 0.3, 1e-5, 0.93, 1e-3, 0.5, 3e-7], dtype)
    draw = jax.jit(lambda key, *each: count_draws.binomial(key, *(jnp.broadcast_to(a, (n, len(a))) for a in each)))
    drawn = np.asarray(draw(jax.random.key(1), counts, chances, 1 - chances), np.float64)
    for count, chance, x in zip(counts, chances, drawn.T, strict=True):
        agree_in_distribution(x, scipy.stats.binom(int(count), float(chance)))


@pytest.mark.thorough
def test_proposals_of_many_events_come_from_above_their_distribution(monkeypatch):
    """Level 1 is accepted nowhere, whatever the place of the proposal."""
    u, accepted = np.linspace(0, 1, 20_001)[1:-1], []

    def once(key, propose, parameters, otherwise, wanted):
        accepted.append(np.asarray(propose(key, parameters)[1] & wanted))
        return otherwise

    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.broadcast_to(u, shape))
    monkeypatch.setattr(draws, "uniform", lambda key, shape, dtype: jnp.full(shape, 0.9999))
    monkeypatch.setattr(draws, "until_accepted", once)
    rates = np.array([10.0, 10.5, 11.9, 24.5, 300.0])
    counts, chances = np.array([20.0, 25.0, 34.0, 100.0, 1e5]), np.array([0.5, 0.45, 0.3, 0.105, 1e-3])
    rates, counts, chances = (np.repeat(each[:, None], len(u), axis=1) for each in (rates, counts, chances))
    with jax.disable_jit():
        count_draws.poisson(jax.random.key(0), jnp.asarray(rates))
        count_draws.binomial(jax.random.key(0), *(jnp.asarray(each) for each in (counts, chances, 1 - chances)))
    assert [each.shape for each in accepted] == [rates.shape] * 2
    assert not np.any(accepted)
    monkeypatch.setattr(draws, "uniform", lambda key, shape, dtype: jnp.full(shape, 0.9))
    with jax.disable_jit():
        count_draws.poisson(jax.random.key(0), jnp.asarray(rates))
    assert accepted[-1].any(axis=1).all()  # and not from far above


def test_numbers_whose_rates_and_shares_are_drawn_have_their_distribution():
    n, short = 30_000, jnp.float32
    shape, rate = np.array([0.02, 0.5, 3.0, 200.0]), np.array([0.01, 0.5, 0.1, 2.0])
    events = jg.Classifier(
        jnp.zeros(1, short), jg.NegativeBinomial(*jnp.asarray(np.stack([shape, rate])[:, None], short))
    )
    x = np.asarray(jg.sample(jax.random.key(0), events, n)[0], np.float64)
    for a, b, column in zip(shape, rate, x.T, strict=True):
        agree_in_distribution(column, scipy.stats.nbinom(a, b / (1 + b)))
    words = jg.Classifier(jnp.zeros(1, short), jg.DirichletMultinomial(jnp.array([[0.05, 2.0]], short)))
    x = np.asarray(jg.sample(jax.random.key(0), words, n, total_count=30)[0], np.float64)
    agree_in_distribution(x[:, 0], scipy.stats.betabinom(30, 0.05, 2.0))
    np.testing.assert_array_equal(x.sum(axis=1), 30)


@pytest.mark.thorough
def test_no_numbers_at_all():
    for shape in ((0,), (3, 0)):
        assert count_draws.poisson(jax.random.key(0), jnp.full(shape, 20.0)).shape == shape
        assert (
            count_draws.binomial(jax.random.key(0), *(jnp.full(shape, each) for each in (40.0, 0.5, 0.5))).shape
            == shape
        )
        assert continuous_draws.gamma(jax.random.key(0), jnp.full(shape, 2.0))[0].shape == shape


@pytest.mark.thorough
def test_numbers_of_events_at_the_ends():
    for dtype, most in ((jnp.float32, 3e38), (jnp.float64, 1.7e308)):
        rates = jnp.array([0.0, jnp.inf, jnp.nan, most, 1e30], dtype)
        x = np.asarray(jax.jit(count_draws.poisson)(jax.random.key(0), rates))
        np.testing.assert_array_equal(x[:4], rates[:4])
        np.testing.assert_allclose(x[4], rates[4], rtol=1e-14)
    counts, chances = jnp.array([0.0, 5.0, 5.0, 1e6, 1e6]), jnp.array([0.5, 0.0, 1.0, 0.0, 1.0])
    drawn = jax.jit(count_draws.binomial)(jax.random.key(0), counts, chances, 1 - chances)
    np.testing.assert_array_equal(drawn, [0, 0, 5, 0, 1e6])


@pytest.mark.parametrize(("n", "total"), [(4_000, 30), (400, 20_000)], ids=["single draws", "shares"])
def test_words_of_large_tables_have_their_distribution(n, total):
    """Of more than are drawn in turn, and of many in sectors and in parts: each by itself, and two together."""
    d = 1_500
    p = np.random.default_rng(0).gamma(0.2, size=(2, d)) * (np.arange(d) % 3 > 0)
    p /= p.sum(axis=1, keepdims=True)
    c = jg.Classifier(jnp.zeros(2), jg.Multinomial(jnp.log(jnp.asarray(p, jnp.float32))))
    y = np.arange(n) % 2
    x = np.asarray(jg.sample(jax.random.key(0), c, n, y=y, total_count=total)[0], np.float64)
    np.testing.assert_array_equal(x.sum(axis=1), total)
    for k in range(2):
        mine = x[y == k]
        assert not mine[:, p[k] == 0].any()
        expected = mine.sum() * p[k]
        often = expected > 5
        seen = np.append(mine.sum(axis=0)[often], mine[:, ~often].sum())
        assert scipy.stats.chisquare(seen, np.append(expected[often], expected[~often].sum())).pvalue > 1e-3
        first, second = np.argsort(p[k])[-2:]
        agree_in_distribution(mine[:, first], scipy.stats.binom(total, p[k, first]))
        agree_in_distribution(
            mine[:, [first, second]].sum(axis=1), scipy.stats.binom(total, p[k, [first, second]].sum())
        )


@pytest.mark.parametrize("place", [0, 1, pytest.param(49, marks=pytest.mark.thorough)])
def test_a_rare_word_has_its_own_probability_wherever_it_stands(place):
    """Of all others together the share is 1 in float32."""
    n, d, rare = 1_000, 2 if place < 2 else 50, 1e-8
    p = jnp.full((1, d), (1 - rare) / (d - 1), jnp.float32).at[0, place].set(rare)
    c = jg.Classifier(jnp.zeros(1, jnp.float32), jg.Multinomial(jnp.log(p)))
    x = np.asarray(jg.sample(jax.random.key(0), c, n, total_count=2**24)[0])
    expected = n * 2**24 * rare  # 168
    assert abs(x[:, place].sum(dtype=np.float64) - expected) < 4 * np.sqrt(expected)
    np.testing.assert_array_equal(x.sum(axis=1, dtype=np.float64), 2**24)


def test_totals_of_documents_may_differ_and_a_table_without_words_has_none():
    logs = jnp.stack([jnp.full(100, -np.log(100)), jnp.full(100, -jnp.inf), jnp.full(100, jnp.nan)])
    totals = np.array([0, 1, 99, 100, 5, 5])

    @jax.jit
    def draw(totals):
        c = jg.Classifier(jnp.zeros(3), jg.Multinomial(logs))
        return jg.sample(jax.random.key(0), c, 6, y=np.array([0, 0, 0, 0, 1, 2]), total_count=totals)[0]

    for more in (0, 1_000):
        x = np.asarray(draw(totals + more))
        np.testing.assert_array_equal(x.sum(axis=1)[:4], totals[:4] + more)
        assert np.isnan(x[4:]).all()
    alone = jax.vmap(draw)(jnp.stack([totals, totals + 1_000]))
    np.testing.assert_array_equal(alone.sum(axis=-1)[:, :4], [totals[:4], totals[:4] + 1_000])


@pytest.mark.thorough
def test_under_a_trace_what_has_no_distribution_draws_nan():
    y = np.array([0, 1, 0])
    for density, total in (
        (lambda bad: jg.DirichletMultinomial(jnp.array([[1.0, 2.0], [1.0, bad]])), 5),
        (lambda bad: jg.NegativeBinomial(jnp.array([[1.0], [bad]]), jnp.ones((2, 1))), None),
        (lambda bad: jg.DiagonalStudentT(jnp.zeros((2, 1)), jnp.ones((2, 1)), jnp.array([[3.0], [bad]])), None),
    ):
        draw = jax.jit(
            lambda bad, density=density, total=total: jg.sample(
                jax.random.key(0), jg.Classifier(jnp.zeros(2), density(bad)), 3, y=y, total_count=total
            )[0]
        )
        for bad in (np.nan, -1.0, -1e-20):
            np.testing.assert_array_equal(np.isnan(draw(bad)).all(axis=1), [False, True, False])


def test_each_row_has_a_class_by_its_own_probabilities():
    n = 30_000
    log_weight = np.log(np.random.default_rng(0).gamma(0.5, size=(3, 4))) + np.array([[-500.0], [0.0], [500.0]])
    log_weight[1, 2] = -np.inf
    drawn = np.asarray(draws.class_of_each(jax.random.key(0), jnp.asarray(np.repeat(log_weight, n, axis=0))))
    for weight, mine in zip(scipy.special.softmax(log_weight, axis=1), drawn.reshape(3, n), strict=True):
        seen = np.bincount(mine, minlength=4)
        assert not seen[weight == 0].any()
        assert scipy.stats.chisquare(seen[weight > 0], n * weight[weight > 0]).pvalue > 1e-3


def test_an_impossible_category_is_never_drawn():
    table = jnp.asarray([[[0.0, 0.3, 0.0, 0.7, 0.0]], [[0.0, 0.0, 1.0, 0.0, 0.0]]])
    which = np.arange(20_000) % 2
    x = np.asarray(draws.Wheel.of(table).draw(jax.random.key(0), jnp.asarray(which)))[:, 0]
    assert set(x[which == 0]) == {1, 3}
    assert set(x[which == 1]) == {2}
    assert scipy.stats.chisquare(np.bincount(x[which == 0])[[1, 3]], [3_000, 7_000]).pvalue > 1e-3


@each([c for c in CASES if c.name in ("LDA", "MultinomialNB", "MixedNB")], first=("MultinomialNB",))
def test_given_classes_are_kept_and_jit_changes_nothing(case):
    c, y = fitted(case), np.array([2, 0, 1, 1, 0])
    draw = jax.jit(jg.sample, static_argnums=2)
    x, same = jg.sample(jax.random.key(5), c, 5, y=y, total_count=total_of(c))
    np.testing.assert_array_equal(same, y)
    ones, of_all = (jg.sample(jax.random.key(5), c, 5, y=y, total_count=total_of(c)) for y in (np.ones(5, int), 1))
    jax.tree.map(np.testing.assert_array_equal, ones, of_all)
    np.testing.assert_array_equal(draw(jax.random.key(5), c, 5, y=y, total_count=total_of(c))[0], x)
    if total_of(c):
        totals = np.arange(5)
        np.testing.assert_array_equal(jg.sample(jax.random.key(5), c, 5, total_count=totals)[0].sum(axis=1), totals)


@pytest.mark.parametrize("family", ["Gaussian", pytest.param("Poisson", marks=pytest.mark.thorough)])
def test_chunks_are_drawn_apart_and_jit_changes_nothing(family, monkeypatch):
    monkeypatch.setattr(sampling, "_NUMBERS", 200)
    monkeypatch.setattr(sampling, "_FOR_A_CELL", 0)
    n, mean, key = 2_050, np.array([[3.0, 40.0], [12.0, 0.5]]), jax.random.key(4)
    gaussian = jg.DiagonalGaussian(jnp.asarray(mean), jnp.ones((2, 2)))
    c = jg.Classifier(
        jnp.log(jnp.array([0.5, 0.5])), gaussian if family == "Gaussian" else jg.Poisson(jnp.log(jnp.asarray(mean)))
    )
    x, y = jg.sample(key, c, n)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(jg.sample, static_argnums=2)(key, c, n), (x, y))
    stack = jax.vmap(lambda key: jg.sample(key, c, n))(jnp.stack([jax.random.key(3), key]))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda each: each[1], stack), (x, y))
    assert family == "Poisson" or len(np.unique(x)) == x.size
    for k, j in np.ndindex(2, 2):
        mine = np.asarray(x)[np.asarray(y) == k, j]
        if family == "Gaussian":
            assert scipy.stats.kstest(mine, scipy.stats.norm(mean[k, j]).cdf).pvalue > 1e-3
        else:
            agree_in_distribution(mine, scipy.stats.poisson(mean[k, j]))
    given = np.random.default_rng(0).integers(2, size=n)
    of_given, same = jg.sample(key, c, n, y=given)
    np.testing.assert_array_equal(same, given)
    np.testing.assert_array_equal(jax.jit(lambda key, y: jg.sample(key, c, n, y=y))(key, given)[0], of_given)
    assert abs(np.asarray(of_given)[given == 1, 0].mean() - 12) < 0.5
    ones, of_all = (jg.sample(key, c, n, y=y) for y in (np.ones(n, int), 1))
    jax.tree.map(np.testing.assert_array_equal, ones, of_all)


def test_the_command_draws_digits_that_are_recognised(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "samples", "--out", str(tmp_path)])
    monkeypatch.setattr(samples, "EACH", 20)
    assert command.main() == 0
    assert "QDA: a covariance for each digit" in capsys.readouterr().out
    recognised = json.loads((tmp_path / "samples.json").read_text())["recognised"]
    assert list(recognised) == ["real", "real ink", *(name for name, *_ in samples.MODELS)]
    assert min(recognised.values()) > 0.7
    assert (tmp_path / "samples.png").stat().st_size > 20_000


def test_what_is_refused_and_why():
    key, x, y = jax.random.key(0), np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1])
    gaussian, words = jg.fit(jg.LDA(ridge=1.0), x, y), jg.fit(jg.MultinomialNB(), x, y)
    short = jg.fit(jg.MultinomialNB(), x.astype(np.float32), y)
    for arguments, keywords, error, message in (
        ((gaussian, 0), {}, ValueError, "n must be at least 1; found 0"),
        ((gaussian, 3), {"y": np.array([0, 1])}, ValueError, r"y must have shape \(3,\); found \(2,\)"),
        ((gaussian, 2), {"y": np.array([0, 2])}, ValueError, "y must be 0 to 1; found 2 in place 1"),
        ((gaussian, 2), {"y": np.array([0.0, 1.0])}, TypeError, "y must be integers; found float64"),
        ((gaussian, 2), {"total_count": 3}, ValueError, "shares of words alone; found one for Gaussian. Leave it out"),
        ((words, 2), {}, ValueError, "total_count must be given for Multinomial, .* found none. Give"),
        ((words, 2), {"total_count": np.array([3, -1])}, ValueError, "total_count must be 0 to 9007.*; found -1 in"),
        ((short, 2), {"total_count": 2**24 + 1}, ValueError, "total_count must be 0 to 16777216; found 16777217[.]$"),
        ((jg.to_linear(gaussian), 2), {}, TypeError, "sample needs a generative classifier"),
        ((jg.fit(jg.BernoulliNB(binarize=0.5), x, y), 2), {}, TypeError, "no density to sample"),
    ):
        with pytest.raises(error, match=message):
            jg.sample(key, *arguments, **keywords)


def test_parameters_by_hand_are_of_one_dtype_and_classes_exist():
    mean = np.array([[0], [40]])  # whole numbers
    c = jg.Classifier(np.log(np.array([0.5, 0.5], np.float32)), jg.DiagonalGaussian(mean, np.ones((1, 1))))
    x, y = jg.sample(jax.random.key(0), c, 200)
    assert (abs(np.asarray(x)[:, 0] - mean[:, 0][y]) < 6).all()
    np.testing.assert_array_equal(jg.predict(c, x), y)
    drawn = jax.jit(lambda y: jg.sample(jax.random.key(0), c, 4, y=y)[0])(jnp.array([1, 2, -1, 0]))
    np.testing.assert_array_equal(np.isnan(drawn[:, 0]), [False, True, True, False])


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("rate", [9e4, 1e8, 1e12])
def test_large_counts_have_their_mean_and_variance(rate, dtype):
    c = jg.Classifier(jnp.zeros(1, dtype), jg.Poisson(jnp.log(jnp.full((1, 1), rate, dtype))))
    x = np.asarray(jg.sample(jax.random.key(0), c, 20_000)[0], np.float64)
    rate = float(jnp.exp(c.density.log_rate)[0, 0])
    np.testing.assert_allclose(x.mean(), rate, atol=5 * np.sqrt(rate / 20_000))
    if dtype == jnp.float64 or rate < 1e10:  # beyond, float32 knows no number beside the next
        np.testing.assert_allclose(x.var() / rate, 1, atol=0.06)
    assert (x == np.round(x)).all()


@pytest.mark.parametrize("form", [pytest.param("full", marks=pytest.mark.thorough), "diagonal"])
def test_draws_of_few_degrees_overflow_no_sooner_than_they_must(form):
    """Of ν = 0.1 in float32 one draw in 7,000 is beyond what it holds; χ²_ν itself underflows for one in 80."""
    degrees, one = 0.1, jnp.ones((1, 1), jnp.float32)
    nu = jnp.full((1,) if form == "full" else (1, 1), degrees, jnp.float32)
    density = jg.StudentT(0 * one, one[None], nu, one[0]) if form == "full" else jg.DiagonalStudentT(0 * one, one, nu)
    most = float(np.finfo(np.float32).max)
    for scale in (1.0, 1e-18):  # where the draw is no larger than float32 holds, though 1/√u is
        name = "spread" if form == "full" else "scale"
        part = density._replace(**{name: scale * getattr(density, name)})
        x = np.abs(jg.sample(jax.random.key(0), jg.Classifier(jnp.zeros(1, jnp.float32), part), 100_000)[0])
        for limit in (1.0, 1e10, 1e30, most):
            expected = 2 * scipy.stats.t.sf(limit / scale, degrees)
            assert abs(np.mean(x > limit) - expected) < 5 * np.sqrt(expected / len(x)) + 1e-5


def test_gaussian_draws_move_with_their_parameters_and_counts_do_not():
    y, key, rng = np.array([0, 1, 1]), jax.random.key(0), np.random.default_rng(0)
    factor = np.tril(rng.normal(size=(1, D, D))) + 3 * np.eye(D)
    c = jg.Classifier(jnp.log(jnp.full(2, 0.5)), jg.Gaussian(jnp.zeros((2, D)), jnp.asarray(factor)))
    z = np.linalg.solve(factor[0], np.asarray(jg.sample(key, c, 3, y=y)[0]).T).T
    moved = jax.jacobian(lambda density: jg.sample(key, c._replace(density=density), 3, y=y)[0])(c.density)
    np.testing.assert_allclose(moved.mean, np.einsum("nk,ij->nikj", np.eye(2)[y], np.eye(D)))
    by_factor = np.einsum("im,nj->nimj", np.eye(D), z) * np.tril(np.ones((D, D)))  # x_i = Σ_j L_ij z_j
    np.testing.assert_allclose(np.tril(moved.cholesky[:, :, 0]), by_factor, atol=1e-12)
    counts = jg.Classifier(c.log_prior, jg.Poisson(jnp.log(jnp.full((2, D), 3.0))))
    still = jax.jacobian(lambda density: jg.sample(key, counts._replace(density=density), 3, y=y)[0])(counts.density)
    assert not np.any(still.log_rate)


@pytest.mark.parametrize("entries", [1, 3])
@pytest.mark.parametrize("family", ["Gaussian", "diagonal", "Poisson", "mixed"])
def test_a_prior_of_other_classes_than_the_density_is_refused(family, entries):
    mean, counts = jnp.zeros((2, 2)), jg.Poisson(jnp.zeros((2, 2)))
    density = {
        "Gaussian": jg.Gaussian(mean, jnp.eye(2)[None]),
        "diagonal": jg.DiagonalGaussian(mean, jnp.ones((1, 2))),
        "Poisson": counts,
        "mixed": jg.Mixed((counts, counts), ((0, 1), (2, 3))),
    }[family]
    c = jg.Classifier(jnp.zeros(entries), density)
    calls = [lambda: jg.sample(jax.random.key(0), c, 3), lambda: jg.to_linear(c)]
    if family in ("Gaussian", "diagonal"):
        calls.append(lambda: jg.relative_mahalanobis(c, np.ones((3, 2))))
    for call in calls:
        with pytest.raises(ValueError, match=r"log_prior must have one entry for each of the density's 2 classes"):
            call()


def test_a_prior_that_is_none_draws_no_class():
    density, key = jg.Gaussian(jnp.zeros((2, 2)), jnp.eye(2)[None]), jax.random.key(0)
    unknown, impossible = (jg.Classifier(jnp.array([p, q]), density) for p, q in ((np.nan, 0.0), (-np.inf, -np.inf)))
    with pytest.raises(ValueError, match=r"c\.log_prior must hold numbers below infinity; found nan"):
        jg.sample(key, unknown, 2)
    draw = jax.jit(lambda c: jg.sample(key, c, 2)[0])
    for x in (draw(unknown), draw(impossible), jg.sample(key, impossible, 2)[0]):
        assert np.isnan(x).all()
    assert np.isfinite(jg.sample(key, impossible, 2, y=np.array([0, 1]))[0]).all()
    seen = np.array([[True, False]])
    for c in (unknown, impossible):
        np.testing.assert_array_equal(jg.impute(c, np.ones((1, 2)), seen, key=key), [[1.0, np.nan]])


@pytest.mark.thorough
def test_classes_and_features_are_drawn_apart_where_there_are_as_many():
    n, mean = 4_000, np.array([[0.0, 0.0], [100.0, 100.0]])
    c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), jg.Gaussian(jnp.asarray(mean), jnp.eye(2)[None]))
    x, y = map(np.asarray, jg.sample(jax.random.key(0), c, n))
    nothing = np.zeros((n, 2), bool)
    filled = np.asarray(jg.impute(c, np.zeros((n, 2)), nothing, key=jax.random.key(0)))
    for rows, labels in ((x, y), (filled, (filled[:, 0] > 50).astype(int))):
        for k in (0, 1):
            mine = rows[labels == k] - mean[k]
            assert np.abs(mine.mean(axis=0)).max() < 5 / np.sqrt(len(mine))
