"""Poisson, categorical, complement and mixed naive Bayes: scikit-learn, brute force, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import sklearn.naive_bayes

import jaxgen as jg

RNG = np.random.default_rng(0)
Y = np.arange(40) % 3
WORDS = RNG.poisson(1.5, size=(40, 5)).astype(float)
VALUES = RNG.integers(0, (2, 4, 3), size=(40, 3))


def test_categorical_equals_scikit_learn():
    for alpha in (1.0, 0.3):
        ours = jg.fit(jg.CategoricalNB((2, 4, 3), alpha=alpha), VALUES, Y)
        theirs = sklearn.naive_bayes.CategoricalNB(alpha=alpha, min_categories=(2, 4, 3)).fit(VALUES, Y)
        np.testing.assert_allclose(ours.density.log_probability, np.hstack(theirs.feature_log_prob_), rtol=1e-12)
        np.testing.assert_allclose(jg.log_posterior(ours, VALUES), theirs.predict_log_proba(VALUES), rtol=1e-10)


@pytest.mark.every_platform
@pytest.mark.parametrize("platform", [jg.platform.CPU, jg.platform.ACCELERATOR], ids=["cpu", "accelerator"])
@pytest.mark.parametrize("labels", [pytest.param("hard", marks=pytest.mark.thorough), "weighted", "soft"])
@pytest.mark.parametrize("sizes", [(3, 20, 2), (2, 300, 40)], ids=["few", "many"])
def test_categories_are_counted_however_many_they_are(sizes, labels, platform):
    rng = np.random.default_rng(0)
    n = 900  # more than are always summed by products
    x, observed = rng.integers(0, sizes, (n, 3)), rng.random((n, 3)) < 0.8
    y, weight, share = rng.integers(0, 3, n), rng.random(n), rng.dirichlet(np.ones(3), n)
    r = share if labels == "soft" else np.eye(3)[y] * (weight[:, None] if labels == "weighted" else 1.0)
    keywords = {"sample_weight": weight} if labels == "weighted" else {}
    for mask in (np.ones_like(observed), observed):
        expected = [np.zeros((3, m)) for m in sizes]
        for i, j in zip(*np.nonzero(mask), strict=True):
            expected[j][:, x[i, j]] += r[i]
        values = x if mask.all() else np.where(mask, x, -7)
        with jg.platform.override(platform):
            statistics = jg.CategoricalNB(sizes).statistics(
                values, share if labels == "soft" else y, observed=None if mask.all() else mask, **keywords
            )
        np.testing.assert_allclose(statistics.feature_sum.value, np.hstack(expected), rtol=1e-12, atol=1e-12)
        seen = np.hstack([np.repeat(table.sum(axis=1, keepdims=True), table.shape[1], axis=1) for table in expected])
        np.testing.assert_allclose(np.broadcast_to(statistics.weight.value, seen.shape), seen, rtol=1e-12)


@pytest.mark.every_platform
@pytest.mark.parametrize("platform", [jg.platform.CPU, jg.platform.ACCELERATOR], ids=["cpu", "accelerator"])
def test_categories_take_no_memory_of_rows_times_categories(platform):
    n, estimator = 4_000, jg.CategoricalNB((500, 1_500))
    x, y = np.zeros((n, 2), np.float32), np.zeros(n, int)
    with jg.platform.override(platform):
        program = jax.jit(lambda x, y: estimator.statistics(x, y, num_classes=2)).lower(x, y).compile()
    assert program.memory_analysis().temp_size_in_bytes < n * 2_000 * 4 / 10


def test_a_density_of_categories_of_one_device_scores_rows_of_all():
    mesh, spec = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,)), jax.sharding.PartitionSpec
    table = np.log(np.full((1, 2, 10), 0.5))

    def score(table, x):
        return jg.Categorical(table[0], (2,) * 5).log_likelihood(x)

    score = jax.shard_map(score, mesh=mesh, in_specs=(spec("i"), spec()), out_specs=spec("i"))
    np.testing.assert_allclose(score(table, np.zeros((3, 5))), 5 * np.log(0.5), rtol=1e-12)


def test_complement_equals_scikit_learn_from_dense_and_sparse_rows():
    theirs = sklearn.naive_bayes.ComplementNB(alpha=0.5).fit(WORDS, Y)
    for x in (WORDS, scipy.sparse.csr_array(WORDS)):
        ours = jg.fit(jg.ComplementNB(alpha=0.5), x, Y)
        np.testing.assert_allclose(ours.weights.T, theirs.feature_log_prob_, rtol=1e-12)
        np.testing.assert_allclose(jg.log_posterior(ours, x), theirs.predict_log_proba(WORDS), rtol=1e-10)


def test_complement_scores_have_no_evidence_and_no_density():
    estimator = jg.ComplementNB()
    c = jg.fit(estimator, WORDS, Y)
    for verb in (jg.log_evidence, jg.log_likelihood, jg.log_joint):
        with pytest.raises(TypeError, match=r"needs a generative classifier, which models p\(x \| y\)"):
            verb(c, WORDS)
    statistics = estimator.statistics(WORDS, Y)
    with pytest.raises(TypeError, match=r"with a density .*found ComplementNB"):
        estimator.density(statistics)
    parts = [estimator.statistics(WORDS[i], Y[i], num_classes=3) for i in (slice(9), slice(9, None))]
    np.testing.assert_allclose(jg.estimate(estimator, jg.merge(*parts)).weights, c.weights, rtol=1e-12)


def test_complement_without_smoothing_and_without_data():
    x, y = np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([0, 1])
    with pytest.raises(ValueError, match=r"a word that occurs in one class alone\. Smooth with alpha > 0"):
        jg.fit(jg.ComplementNB(alpha=0.0), x, y)
    c = jg.fit(jg.ComplementNB(), x, y, num_classes=3)
    np.testing.assert_array_equal(jg.log_posterior(c, x)[:, 2], -np.inf)
    nothing = jg.estimate(jg.ComplementNB(), jg.scale(jg.ComplementNB().statistics(x, y), 0.0))
    np.testing.assert_allclose(jg.log_posterior(nothing, x), np.log(0.5), rtol=1e-12)
    traced = jax.jit(lambda x: jg.fit(jg.ComplementNB(), x, y, num_classes=2))(np.array([[np.nan, 1.0], [0.0, 1.0]]))
    assert np.isnan(jg.log_posterior(traced, x)).all()
    gradient = jax.grad(lambda alpha: jg.log_posterior(jg.fit(jg.ComplementNB(alpha), x, y), x)[0, 0])
    step = 1e-6
    numerical = (
        jg.log_posterior(jg.fit(jg.ComplementNB(1 + step), x, y), x)[0, 0]
        - jg.log_posterior(jg.fit(jg.ComplementNB(1 - step), x, y), x)[0, 0]
    ) / (2 * step)
    np.testing.assert_allclose(gradient(1.0), numerical, rtol=1e-6)


def test_poisson_rates_are_means_of_the_gamma_posterior():
    c = jg.fit(jg.PoissonNB(alpha=2.0, exposure=0.5), WORDS, Y)
    for k in range(3):
        mine = WORDS[Y == k]
        posterior = scipy.stats.gamma(2.0 + mine.sum(axis=0), scale=1 / (0.5 + len(mine)))
        np.testing.assert_allclose(np.exp(c.density.log_rate[k]), posterior.mean(), rtol=1e-12)


def test_poisson_takes_sparse_rows_and_keeps_large_rates():
    x = scipy.sparse.csr_array(WORDS)
    dense, sparse = jg.fit(jg.PoissonNB(), WORDS, Y), jg.fit(jg.PoissonNB(), x, Y)
    np.testing.assert_allclose(sparse.density.log_rate, dense.density.log_rate, rtol=1e-12)
    np.testing.assert_allclose(jg.log_likelihood(sparse, x), jg.log_likelihood(dense, WORDS), rtol=1e-12)
    rates = np.array([[1e5, 2e5]], np.float32)
    c = jg.Classifier(jnp.zeros(1, jnp.float32), jg.Poisson(jnp.log(rates)))
    point = np.array([100_100.0, 199_000.0], np.float32)
    expected = scipy.stats.poisson(np.exp(np.asarray(c.density.log_rate, float))).logpmf(point).sum()
    np.testing.assert_allclose(jg.log_likelihood(c, point)[0], expected, atol=0.5)  # of terms of about a million


def test_densities_of_discrete_families_sum_to_one():
    values = np.array(list(itertools.product(range(2), range(4), range(3))))
    mixed = jg.MixedNB(((jg.CategoricalNB((2, 3)), (0, 2)), (jg.CategoricalNB(4), (1,))))
    for estimator in (jg.CategoricalNB((2, 4, 3)), mixed):
        c = jg.fit(estimator, VALUES, Y)
        np.testing.assert_allclose(np.exp(jg.log_likelihood(c, values)).sum(axis=0), 1.0, rtol=1e-12)
    counts = np.array(list(itertools.product(range(25), range(25))), float)
    c = jg.fit(jg.PoissonNB(), WORDS[:, :2], Y)
    np.testing.assert_allclose(np.exp(jg.log_likelihood(c, counts)).sum(axis=0), 1.0, rtol=1e-9)


def test_an_unseen_category_is_impossible_without_smoothing():
    c = jg.fit(jg.CategoricalNB(3, alpha=0.0), np.array([[0], [1], [2], [2]]), np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(np.exp(c.density.log_probability), [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(jg.log_posterior(c, np.array([[0], [2]])), [[0, -np.inf], [-np.inf, 0]])


@pytest.mark.parametrize(
    "numbers",
    [VALUES.max(axis=0) + 1, tuple(VALUES.max(axis=0) + 1), (VALUES.max(axis=0) + 1).astype(np.uint8), [2, 4, 3]],
)
def test_numbers_of_categories_may_be_those_of_numpy(numbers):
    c, expected = (jg.fit(jg.CategoricalNB(each), VALUES, Y) for each in (numbers, (2, 4, 3)))
    np.testing.assert_array_equal(c.density.log_probability, expected.density.log_probability)
    assert jax.tree.structure(c) == jax.tree.structure(expected)


def test_a_mixture_of_families_is_each_of_them():
    x = np.column_stack([RNG.normal(size=(40, 2)) + Y[:, None], WORDS[:, :2]])
    gaussian, poisson = jg.LDA(), jg.PoissonNB()
    c = jg.fit(jg.MixedNB(((poisson, (2, 3)), (gaussian, (1, 0)))), x, Y)
    parts = [jg.log_likelihood(jg.fit(e, x[:, j], Y), x[:, j]) for e, j in ((poisson, [2, 3]), (gaussian, [1, 0]))]
    np.testing.assert_allclose(jg.log_likelihood(c, x), sum(parts), rtol=1e-10)
    np.testing.assert_allclose(jg.log_posterior(jg.to_linear(c), x), jg.log_posterior(c, x), atol=1e-10)


def test_a_mixture_of_families_is_fitted_in_float32_and_then_in_float64():
    estimator = jg.MixedNB(((jg.PoissonNB(), (2, 0)), (jg.GaussianNB(), (1,))))
    x = WORDS[:, :3].astype(float)
    with jax.enable_x64(False):
        single = jg.log_posterior(jg.fit(estimator, x, Y), x)
    double = jg.log_posterior(jg.fit(estimator, x, Y), x)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, atol=1e-4)


def test_one_family_of_mixed_equals_itself_for_every_kind_of_column_list():
    one = jg.fit(jg.QDA(), WORDS[:, :3], Y)
    for columns in ((0, 1, 2), [0, 1, 2], np.arange(3), range(3)):
        c = jg.fit(jg.MixedNB([(jg.QDA(), columns)]), WORDS[:, :3], Y)
        np.testing.assert_allclose(jg.log_joint(c, WORDS[:, :3]), jg.log_joint(one, WORDS[:, :3]), rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: jg.MixedNB(((jg.LDA(), (0, 1)), (jg.PoissonNB(), (1,)))), ValueError, "each in one group"),
        (lambda: jg.MixedNB(((jg.LDA(), (0, 2)),)), ValueError, "each in one group"),
        (lambda: jg.MixedNB(()), ValueError, "each in one group"),
        (
            lambda: jg.MixedNB(((jg.ComplementNB(), (0,)),)),
            TypeError,
            "with a density .*found ComplementNB",
        ),
        (lambda: jg.MixedNB(((jg.LDA(), ()), (jg.PoissonNB(), (0,)))), ValueError, "no group empty"),
        (lambda: jg.MixedNB((jg.LDA(), (0,))), TypeError, "pairs of a generative estimator"),
        (lambda: jg.MixedNB(((jg.LogisticRegression(), (0,)),)), TypeError, "found LogisticRegression"),
        (lambda: jg.fit(jg.MixedNB(((jg.LDA(), (0,)),)), WORDS, Y), ValueError, "x must have the 1 features"),
        (
            lambda: jg.fit(jg.MixedNB(((jg.PoissonNB(-1.0), range(5)),)), WORDS, Y),
            ValueError,
            "PoissonNB.alpha must be",
        ),
        (
            lambda: jg.fit(jg.MixedNB(((jg.BernoulliNB(), (0,)), (jg.PoissonNB(), (1, 2, 3, 4)))), WORDS, Y),
            ValueError,
            "x must hold 0 or 1 in column 0; found",
        ),
        (
            lambda: jg.fit(
                jg.MixedNB(
                    (
                        (jg.MixedNB(((jg.PoissonNB(), (1, 2)), (jg.BernoulliNB(), (0,)))), (4, 0, 2)),
                        (jg.GaussianNB(), (3, 1)),
                    )
                ),
                -np.ones((4, 5)),
                np.arange(4) % 2,
            ),
            ValueError,
            "x must hold finite counts, 0 or more in columns 0, 2; found -1.0 at row 0, column 0",
        ),
        (
            lambda: jg.fit(jg.MixedNB(((jg.QDA(ridge=0.0), (0, 1)),)), np.ones((4, 2)), np.array([0, 0, 1, 1])),
            ValueError,
            "columns 0, 1: .*singular",
        ),
        (lambda: jg.fit(jg.CategoricalNB(0), VALUES, Y), ValueError, "num_categories must be a positive integer"),
        (lambda: jg.fit(jg.CategoricalNB((2, 4)), VALUES, Y), ValueError, "one entry for each of the 3 features"),
        (lambda: jg.fit(jg.CategoricalNB(3), VALUES, Y), ValueError, r"num_categories=3; found 3"),
        (lambda: jg.fit(jg.CategoricalNB((2, 4, 3)), VALUES + 0.5, Y), ValueError, r"categories 0 … m − 1"),
        (lambda: jg.fit(jg.CategoricalNB(3), VALUES - np.inf, Y), ValueError, r"categories 0 … m − 1.*; found -inf"),
        (lambda: jg.fit(jg.CategoricalNB((2, 4, 3)), -VALUES, Y), ValueError, "found -"),
        (lambda: jg.fit(jg.CategoricalNB((2, 4, 3)), scipy.sparse.csr_array(VALUES), Y), TypeError, "must be dense"),
        (lambda: jg.fit(jg.PoissonNB(), -WORDS, Y), ValueError, "finite counts"),
        (lambda: jg.fit(jg.PoissonNB(exposure=-0.5), WORDS, Y), ValueError, "PoissonNB.exposure must be finite"),
        (
            lambda: jg.predict(jg.fit(jg.CategoricalNB((2, 4, 3)), VALUES, Y), np.array([[0, 4, 0]])),
            ValueError,
            r"found 4 at row 0, column 1",
        ),
    ],
)
def test_what_is_refused_and_why(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_an_absence_that_was_never_seen_has_the_derivative_of_its_weight():
    x, y, weight = np.array([[1.0], [1], [0], [0], [1]]), np.array([0, 0, 0, 1, 1]), jnp.array([1.0, 1, 0, 1, 1])

    def fit(w):
        return jg.fit(jg.BernoulliNB(), x, y, num_classes=2, sample_weight=w)

    slope = jax.grad(lambda w: jg.log_likelihood(fit(w), x[:1])[0, 0])(weight)
    np.testing.assert_allclose(slope[2], -1 / (2 + 2))  # of log (N_kj + 1)/(N_k + 2)
    soft = jax.grad(lambda r: jg.log_likelihood(jg.fit(jg.BernoulliNB(), x, r), x[:1])[0, 0])
    np.testing.assert_allclose(soft(jnp.eye(2)[y].at[2, 0].set(0))[2, 0], -1 / (2 + 2))


@pytest.mark.parametrize("sparse", [False, True])
def test_many_features_leave_the_posterior_its_digits(sparse):
    """What documents without a word score differs by little between classes, and is large in each."""
    rng, d = np.random.default_rng(0), 100_000
    rate = 10 * np.exp(0.003 * rng.normal(size=(3, d)))
    x = rng.poisson(10.0, size=(2, d)).astype(np.float32)
    presence = 1 / (1 + np.exp(-1 - 0.01 * rng.normal(size=(3, d))))
    bits = (rng.random((2, d)) < 0.7).astype(np.float32)
    rows = scipy.sparse.csr_array if sparse else np.asarray
    float32 = lambda table: jnp.asarray(table.astype(np.float32))  # noqa: E731
    poisson = jg.Poisson(float32(np.log(rate)))
    bernoulli = jg.Bernoulli(float32(np.log(presence)), float32(np.log1p(-presence)))
    log_rate, p, q = (np.asarray(t, float) for t in (poisson.log_rate, bernoulli.log_present, bernoulli.log_absent))
    of_poisson = x.astype(float) @ (log_rate - log_rate[:1]).T - (np.exp(log_rate) - np.exp(log_rate[:1])).sum(1)
    of_bernoulli = bits.astype(float) @ (p - p[:1]).T + (1 - bits.astype(float)) @ (q - q[:1]).T
    for density, points, exact in ((poisson, x, of_poisson), (bernoulli, bits, of_bernoulli)):
        found = np.asarray(jg.log_posterior(jg.Classifier(jnp.zeros(3, jnp.float32), density), rows(points)), float)
        np.testing.assert_allclose(found - found[:, :1], exact, atol=5e-3)


def test_mixed_families_say_which_columns_of_the_whole_are_meant():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4))
    x[:, [1, 3]] = x[:, [1, 3]] > 0
    y, observed = np.arange(20) % 2, np.ones(x.shape, bool)
    observed[y == 1, 2] = False
    with pytest.raises(ValueError, match="no row of class 1 shows feature 2,"):
        jg.fit(jg.MixedNB(((jg.BernoulliNB(), (1, 3)), (jg.QDA(), (0, 2)))), x, y, observed=observed)
    observed[:, 2] = False
    with pytest.raises(ValueError, match="columns 0, 2: feature 2 was observed in no row"):
        jg.fit(jg.MixedNB(((jg.LDA(), (0, 2)), (jg.BernoulliNB(), (1, 3)))), x, y, observed=observed)
    for columns in ((0.5, 1.0), (False, True)):
        with pytest.raises(TypeError, match="MixedNB takes pairs of a generative estimator and its columns"):
            jg.MixedNB(((jg.LDA(), columns),))
    with pytest.raises(TypeError, match="found LDA itself, which is to be called"):
        jg.MixedNB(((jg.LDA, (0,)),))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"\(5,\) for one of each category"):
        jg.fit(jg.CategoricalNB((2, 3), alpha=np.ones(4)), np.zeros((4, 2), int), np.array([0, 1, 0, 1]))


@pytest.mark.thorough
def test_a_predictive_is_drawn_in_its_own_dtype():
    words = np.random.default_rng(0).poisson(3, (20, 3)).astype(np.float32)
    y = np.arange(20) % 2
    mixed = jg.MixedNB(((jg.MultinomialNB(), (0, 1)), (jg.PoissonNB(), (2,))))
    for estimator in (jg.MultinomialNB(), mixed):
        c = jg.predictive(estimator, estimator.statistics(words, y))
        assert jg.sample(jax.random.key(0), c, 5, total_count=3)[0].dtype == np.float32


def test_complements_of_a_class_that_has_nearly_all_words_keep_their_digits_in_float32():
    x = np.float32([[2**30, 2**29, 0], [1, 0, 2], [0, 3, 1]])
    c = jg.fit(jg.ComplementNB(alpha=1.0), x, np.arange(3))
    np.testing.assert_allclose(np.exp(-np.asarray(c.weights)[:, 0]), np.array([2, 4, 4]) / 10, rtol=1e-5)


def test_a_bad_count_under_a_trace_gives_complement_no_weights():
    x, y = np.random.default_rng(0).poisson(2.0, (12, 3)).astype(float), np.arange(12) % 2
    x[4, 1] = -1.0
    c = jax.jit(lambda x: jg.fit(jg.ComplementNB(), x, y, num_classes=2))(x)
    assert np.isnan(jg.log_posterior(c, np.ones((2, 3)))).all()
    assert np.isnan(c.weights).all()


def test_a_bad_value_of_mixed_families_is_named_where_columns_interleave():
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    x[:, 1] = y
    x[3, 1] = 0.5
    mixed = jg.MixedNB(((jg.BernoulliNB(), (1,)), (jg.GaussianNB(), (0, 2))))
    with pytest.raises(ValueError, match=r"found 0\.5 "):
        jg.fit(mixed, x, y)
    observed = np.ones(x.shape, bool)
    observed[3, 1] = False
    x[3, 1] = np.nan
    assert np.isfinite(jg.fit(mixed, x, y, observed=observed).density.densities[1].mean).all()


def test_a_bad_value_of_one_group_spoils_the_density_of_all_under_a_trace():
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    x[:, 1] = y
    good = x.copy()
    x[3, 1] = 0.5
    mixed = jg.MixedNB(((jg.GaussianNB(), (0,)), (jg.BernoulliNB(), (1,))))
    c = jax.jit(lambda x: jg.fit(mixed, x, y, num_classes=2))(x)
    for leaf in jax.tree.leaves(c):
        assert np.isnan(leaf).all()
    assert np.isnan(jg.log_likelihood(c, good)).all()


def test_a_class_without_data_has_categories_alike_and_rates_of_one():
    x, y = np.array([[0, 1], [1, 2], [0, 0]]), np.array([0, 0, 1])
    c = jg.fit(jg.CategoricalNB((2, 3), alpha=0.0), x, y, num_classes=3)
    np.testing.assert_allclose(np.exp(c.density.log_probability[2]), np.repeat([1 / 2, 1 / 3], [2, 3]), rtol=1e-10)
    rates = jg.fit(jg.PoissonNB(alpha=0.0, exposure=0.0), x, y, num_classes=3).density.log_rate[2]
    np.testing.assert_allclose(rates, 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        (jg.BernoulliNB(alpha=-1.0), ValueError, "BernoulliNB.alpha"),
        (jg.BernoulliNB(binarize="x"), TypeError, "BernoulliNB.binarize"),
        (jg.CategoricalNB(0), ValueError, "CategoricalNB.num_categories"),
        (jg.GaussianNB(ridge=-1.0), ValueError, "GDA.ridge"),
        (jg.GDA("elliptic"), ValueError, "GDA.covariance"),
    ],
)
def test_mixed_families_refuse_what_each_of_them_refuses(part, error, message):
    x, y = np.eye(2)[[0, 1, 1, 0]], np.array([0, 0, 1, 1])
    with pytest.raises(error, match=message):
        jg.fit(jg.MixedNB(((part, (0,)), (jg.GaussianNB(), (1,)))), x, y)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (jg.CategoricalNB((2, 3)), "num_categories must have one entry for each of the 1 features"),
        (jg.GaussianNB(prior=jg.NormalInverseWishart(mean=np.zeros(2))), r"mean must have shape \(\) or \(1,\)"),
    ],
)
def test_mixed_families_refuse_columns_that_do_not_fit_one_of_them(part, message):
    x, y = np.eye(2)[[0, 1, 1, 0]], np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match=message):
        jg.fit(jg.MixedNB(((part, (0,)), (jg.GaussianNB(), (1,)))), x, y)
