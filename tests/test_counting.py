"""Bernoulli and multinomial naive Bayes against exact fractions and brute force."""

import math
from contextlib import nullcontext
from fractions import Fraction
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import of_a_cpu
from sklearn.naive_bayes import BernoulliNB, MultinomialNB

import jaxgen as jg
from jaxgen import class_tables

K, D = 3, 5
ALPHAS = [Fraction(0), Fraction(1), Fraction(1, 3)]


def data(estimator, n=40, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % K)
    high = 2 if isinstance(estimator, jg.BernoulliNB) else 6
    return rng.integers(0, high, size=(n, D)), y


def log(fraction):
    """The log of a fraction, in nats, without rounding it first; −inf at 0."""
    return math.log(fraction.numerator) - math.log(fraction.denominator) if fraction else -math.inf


def times(count, log_probability):
    """Count · log p, an event that did not happen costing nothing."""
    return count * log_probability if count else 0.0


def _in_pieces(monkeypatch):
    monkeypatch.setattr(class_tables, "_FEWEST_CELLS", 1)
    monkeypatch.setattr(class_tables, "_CELLS", 2 * D)
    monkeypatch.setattr(class_tables, "_FEWEST_FEATURES", 1)


@pytest.fixture(params=[False, True], ids=["whole", "two classes at a time, where they may be"])
def whole_or_not(request, monkeypatch):
    """As `tables`, but for estimators of which some are estimated as a whole."""
    if request.param:
        _in_pieces(monkeypatch)


@pytest.fixture(params=[False, True], ids=["whole", "two classes at a time"])
def tables(request, monkeypatch):
    """Tables are estimated as a whole, or a few classes at a time, as large ones are."""
    if not request.param:
        yield
        return
    if jax.default_backend() != "cpu":
        pytest.skip("is of a CPU by its nature")
    in_pieces, pieces = class_tables.estimate, []
    _in_pieces(monkeypatch)
    monkeypatch.setattr(class_tables, "estimate", lambda *given: pieces.append(given) or in_pieces(*given))
    yield
    assert pieces


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_bernoulli_equals_exact_fractions(alpha):
    estimator = jg.BernoulliNB(alpha=float(alpha), prior_alpha=float(alpha))
    x, y = data(estimator)
    x[:, 4] = y != 0  # a word that one class never and another always contains
    c = jg.fit(estimator, x, y)
    for k in range(K):
        rows = [[int(v) for v in row] for row in x[y == k]]
        phi = [(sum(row[j] for row in rows) + alpha) / (len(rows) + 2 * alpha) for j in range(D)]
        prior = (len(rows) + alpha) / (len(y) + K * alpha)
        np.testing.assert_allclose(c.log_prior[k], log(prior), atol=1e-12)
        for point in product([0, 1], repeat=D):
            expected = sum(log(p) if v else log(1 - p) for v, p in zip(point, phi, strict=True))
            np.testing.assert_allclose(jg.log_likelihood(c, np.array(point))[k], expected, atol=1e-10)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("alpha", ALPHAS)
def test_multinomial_equals_exact_fractions(alpha):
    estimator = jg.MultinomialNB(alpha=float(alpha))
    x, y = data(estimator)
    x[y == 0, 4] = 0
    c = jg.fit(estimator, x, y)
    for k in range(K):
        counts = [int(x[y == k, j].sum()) for j in range(D)]
        theta = [(count + alpha) / (sum(counts) + D * alpha) for count in counts]
        for point in product([0, 1, 3], repeat=D):
            coefficient = Fraction(math.factorial(sum(point)), math.prod(math.factorial(v) for v in point))
            expected = log(coefficient) + sum(times(v, log(t)) for v, t in zip(point, theta, strict=True))
            np.testing.assert_allclose(jg.log_likelihood(c, np.array(point))[k], expected, atol=1e-10)


@of_a_cpu
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("crowded", [False, True])
def test_words_that_a_class_never_has_are_estimated_once(monkeypatch, alpha, crowded):
    """A hundred words of which a class has a dozen, another none, and a third is empty; or where one has most."""
    _in_pieces(monkeypatch)
    made, of_occurring = [], class_tables._of_occurring
    monkeypatch.setattr(class_tables, "_of_occurring", lambda *given: made.append(given) or of_occurring(*given))
    rng, d = np.random.default_rng(0), 100
    x, y = np.zeros((30, d), int), np.arange(30) % 3
    x[y == 0, :12] = rng.integers(0, 2, size=(10, 12))
    if crowded:
        x[1] = np.arange(d) % 3 > 0
    count, rows = np.stack([x[y == k].sum(axis=0) for k in range(4)]), np.array([10, 10, 10, 0])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        present = np.where(rows + alpha, (count + alpha) / (rows + 2 * alpha), 0.5)
        total = count.sum(axis=1, keepdims=True) + d * alpha
        expected = {
            jg.BernoulliNB(alpha=alpha): np.log([present, 1 - present]),
            jg.MultinomialNB(alpha=alpha): np.log([np.where(total > 0, (count + alpha) / total, 1 / d)]),
            jg.PoissonNB(alpha=alpha, exposure=alpha): np.log(
                [np.where(rows + alpha, (count + alpha) / (rows + alpha), 1)]
            ),
        }
    for estimator, logs in expected.items():
        density = jg.fit(estimator, x, y, num_classes=4).density
        np.testing.assert_allclose(jax.tree.leaves(density), logs, rtol=1e-12)
    assert len(made) == (0 if crowded else len(expected))


def test_bernoulli_sums_to_one():
    estimator = jg.BernoulliNB()
    c = jg.fit(estimator, *data(estimator))
    points = np.array(list(product([0, 1], repeat=D)))
    np.testing.assert_allclose(np.exp(jg.log_likelihood(c, points)).sum(axis=0), 1.0)
    np.testing.assert_allclose(np.exp(jg.log_evidence(c, points)).sum(), 1.0)


def test_multinomial_sums_to_one_over_documents_of_one_length():
    estimator = jg.MultinomialNB()
    c = jg.fit(estimator, *data(estimator))
    points = np.array([point for point in product(range(5), repeat=D) if sum(point) == 4])
    np.testing.assert_allclose(np.exp(jg.log_likelihood(c, points)).sum(axis=0), 1.0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (jg.BernoulliNB(alpha=0.5), BernoulliNB(alpha=0.5)),
        (jg.MultinomialNB(alpha=0.5), MultinomialNB(alpha=0.5)),
        (jg.BernoulliNB(binarize=1.5), BernoulliNB(binarize=1.5)),
    ],
)
def test_posterior_equals_scikit_learn(ours, theirs):
    x, y = data(jg.MultinomialNB() if isinstance(theirs, MultinomialNB) or ours.binarize else ours)
    theirs.fit(x, y)
    np.testing.assert_allclose(jg.log_posterior(jg.fit(ours, x, y), x), theirs.predict_log_proba(x), atol=1e-10)


def test_laplace_smoothing_of_the_notes():
    """COMP 5212, lecture 7: φ = (1 + count)/(2 + N_k), and prior (1 + N_k)/(K + N)."""
    x, y = np.array([[1, 0], [1, 0], [0, 0]]), np.array([1, 1, 0])
    c = jg.fit(jg.BernoulliNB(alpha=1.0, prior_alpha=1.0), x, y)
    np.testing.assert_allclose(np.exp(c.density.log_present), [[1 / 3, 1 / 3], [3 / 4, 1 / 4]])
    np.testing.assert_allclose(np.exp(c.log_prior), [2 / 5, 3 / 5])


@pytest.mark.parametrize("estimator", [jg.BernoulliNB(alpha=0.0), jg.MultinomialNB(alpha=0.0)])
def test_unseen_words_are_impossible_and_never_nan(estimator):
    """The 0/0 of the notes: a word that no class has seen makes the evidence zero and the posterior NaN."""
    x, y = np.array([[1, 0, 0], [0, 1, 0]]), np.array([0, 1])
    c = jg.fit(estimator, x, y)
    seen, unseen = np.array([[1, 0, 0], [0, 1, 0]]), np.array([0, 0, 1])
    np.testing.assert_allclose(jg.log_likelihood(c, seen), [[0, -np.inf], [-np.inf, 0]], atol=1e-12)
    np.testing.assert_array_equal(np.exp(jg.log_posterior(c, seen)), np.eye(2))
    assert jg.log_evidence(c, unseen) == -np.inf
    assert np.isnan(jg.log_posterior(c, unseen)).all()


@pytest.mark.parametrize("estimator", [jg.BernoulliNB(alpha=0.0), jg.MultinomialNB(alpha=0.0)])
def test_gradients_are_finite_where_the_value_is(estimator):
    x, y = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0]]), np.array([0, 1, 0])
    points = np.array([[1.0, 0, 1], [0, 1, 1]])

    def loss(alpha, weight, points):
        c = jg.fit(type(estimator)(alpha=alpha), x, y, num_classes=3, sample_weight=weight)
        return jnp.sum(jnp.exp(jg.log_posterior(c, points))[:, :2] ** 2) + jg.log_likelihood(c, points[0])[0]

    value, gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))(0.0, jnp.ones(3), jnp.asarray(points))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_binarize_applies_to_fit_and_scores_alike():
    x, y = data(jg.MultinomialNB())
    c = jg.fit(jg.BernoulliNB(binarize=2.0), x, y)
    plain = jg.fit(jg.BernoulliNB(), x > 2, y)
    np.testing.assert_allclose(jg.log_joint(c, x), jg.log_joint(plain, x > 2))


def test_parameters_of_a_class_without_data_are_the_limit_of_no_smoothing():
    x, y = data(jg.BernoulliNB())
    for alpha in (0.0, 1e-9):
        bernoulli = jg.fit(jg.BernoulliNB(alpha=alpha), x, y, num_classes=K + 1)
        multinomial = jg.fit(jg.MultinomialNB(alpha=alpha), x, y, num_classes=K + 1)
        np.testing.assert_allclose(np.exp(bernoulli.density.log_present[K]), 0.5)
        np.testing.assert_allclose(np.exp(multinomial.density.log_probability[K]), 1 / D)


@pytest.mark.usefixtures("tables")
def test_statistics_that_are_bad_are_refused_in_tables_of_any_size():
    bad = jax.jit(lambda x: jg.BernoulliNB().statistics(x, np.arange(4) % 2, num_classes=2))(np.full((4, D), 0.5))
    with pytest.raises(ValueError, match="the statistics hold NaN"):
        jg.estimate(jg.BernoulliNB(), bad)


@pytest.mark.usefixtures("whole_or_not")
@pytest.mark.parametrize("alpha", [np.ones(D + 1), np.ones((K + 1, D))])
def test_pseudo_counts_of_another_shape_are_refused_for_tables_of_any_size(alpha):
    x, y = data(jg.BernoulliNB())
    with pytest.raises(ValueError, match=rf"\({K}, {D}\)"):
        jg.fit(jg.BernoulliNB(alpha=alpha), x, y)


@pytest.mark.usefixtures("whole_or_not")
@pytest.mark.parametrize("shape", [(D,), (1, D), (K, 1), (K, D)])
def test_pseudo_counts_of_every_shape_in_tables_of_any_size(shape):
    alpha = np.random.default_rng(0).random(shape)
    x, y = data(jg.BernoulliNB())
    c = jg.fit(jg.BernoulliNB(alpha=alpha), x, y)
    present, rows = (np.array([each[y == k].sum(axis=0) for k in range(K)]) for each in (x, np.ones_like(x)))
    np.testing.assert_allclose(np.exp(c.density.log_present), (present + alpha) / (rows + 2 * alpha), rtol=1e-12)


def test_counter_passes_two_to_the_25_in_float32():
    """2^25 + 3 rows, whose last three arrive one at a time: a float32 counter would miss each of them."""
    rows = np.ones((2**22, 1), bool)
    label = np.zeros(len(rows), np.int8)
    estimator = jg.BernoulliNB(alpha=0.0)
    block = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), estimator.statistics(rows, label))
    statistics = block
    for _ in range(7):
        statistics = jg.merge(statistics, block)
    for _ in range(3):
        one = jg.BernoulliNB().statistics(np.ones((1, 1), np.float32), np.zeros(1, int))
        statistics = jg.merge(statistics, one)
    assert statistics.feature_sum.high.dtype == np.float32
    np.testing.assert_array_equal(statistics.feature_sum.exact(), [[2**25 + 3]])
    rest = statistics
    for _ in range(8):
        rest = jg.subtract(rest, block)
    np.testing.assert_array_equal(rest.feature_sum.value, [[3]])
    np.testing.assert_array_equal(rest.class_weight.value, [3])


def test_one_fold_counts_past_two_to_the_25_in_float32():
    x = np.ones((2**25 + 5, 1), np.float32)
    statistics = jg.BernoulliNB().statistics(x, np.zeros(len(x), np.int8))
    np.testing.assert_array_equal(statistics.class_weight.exact(), [len(x)])
    np.testing.assert_array_equal(statistics.feature_sum.exact(), [[len(x)]])


def test_counts_that_outgrow_float32_within_a_block_are_exact():
    x = np.full((300, 1), 2**20 + 1, np.float32)
    statistics = jg.MultinomialNB().statistics(x, np.zeros(300, int))
    np.testing.assert_array_equal(statistics.feature_sum.exact(), [[300 * (2**20 + 1)]])


def test_counts_of_a_large_block_are_exact_to_the_last_digit():
    x = np.random.default_rng(0).integers(0, 2048, size=(200_000, 1)) * 2 + 1
    y = np.arange(200_000) % 2
    for block_size in (None, 2**24):
        statistics = jg.MultinomialNB().statistics(x.astype(np.float32), y, block_size=block_size)
        np.testing.assert_array_equal(statistics.feature_sum.exact()[:, 0], [x[y == k].sum() for k in (0, 1)])


def test_counts_pass_two_to_the_31():
    x = np.full((1024, 1), 2**23 - 1, np.int32)
    statistics = jg.MultinomialNB().statistics(x.astype(np.float32), np.zeros(1024, int))
    np.testing.assert_array_equal(statistics.feature_sum.exact(), [[1024 * (2**23 - 1)]])


def test_fractional_weights_leave_no_absent_rows_where_a_word_is_always_present():
    """Rounding in a sum of tenths must not make an impossible event possible."""
    x = np.ones((1000, 1), np.float32)
    weight = np.full(1000, 0.1, np.float32)
    c = jg.fit(jg.BernoulliNB(alpha=0.0), x, np.zeros(1000, int), sample_weight=weight)
    assert c.density.log_absent[0, 0] == -np.inf
    assert c.density.log_present[0, 0] == 0.0


@pytest.mark.parametrize("estimator", [jg.BernoulliNB(), jg.MultinomialNB()])
def test_smoothing_is_differentiable_for_empirical_tuning(estimator):
    x, y = data(estimator)
    held_out, labels = data(estimator, seed=1)

    def loss(alpha):
        posterior = jg.log_posterior(jg.fit(type(estimator)(alpha=alpha), x, y), held_out)
        return -jnp.mean(posterior[jnp.arange(len(labels)), labels])

    step = 1e-5
    numerical = (loss(0.7 + step) - loss(0.7 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(loss)(0.7), numerical, rtol=1e-6)


def test_many_rare_words_in_float32():
    """Σ_j log(1 − φ_j) over 100,000 words, each rounded alike, against float64."""
    n, d = 1000, 100_000
    x, y = np.zeros((2, d), np.float32), np.array([0, 1])
    x[0, :3] = 1
    weight = np.array([n, n], np.float32)
    c = jg.fit(jg.BernoulliNB(), x, y, sample_weight=weight)
    expected = (d - 3) * np.log1p(-1 / (n + 2)) + 3 * np.log(1 / (n + 2))
    np.testing.assert_allclose(jg.log_likelihood(c, np.zeros((1, d), np.float32))[0, 0], expected, rtol=3e-7)


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan])
@pytest.mark.parametrize(
    "estimator",
    [jg.MultinomialNB(), jg.MultinomialNB(alpha=0.0), jg.PoissonNB(), jg.BernoulliNB(binarize=0.0)],
    ids=["multinomial", "impossible words", "Poisson", "binarised"],
)
def test_a_bad_value_among_dense_rows_is_found(estimator, bad):
    """Scores that are products show infinity, and the least of the values shows −1, which can be binarised."""
    x = np.random.default_rng(0).poisson(1.0, (300, 5)).astype(np.float32)
    y = np.arange(300) % 3
    x[:, 4] *= y > 0  # a word that the first class never has
    c = jg.fit(estimator, x, y)
    x[77, 2] = bad
    good = bad == -1 and isinstance(estimator, jg.BernoulliNB)
    for verb in (jg.log_posterior, jg.log_evidence):
        found = np.asarray(jax.jit(verb)(c, x)).reshape(300, -1)
        np.testing.assert_array_equal(np.isnan(found).all(axis=1), (np.arange(300) == 77) & (not good))
    for verb in (jg.log_posterior, jg.log_evidence, jg.predict):
        with nullcontext() if good else pytest.raises(ValueError, match=f"found {bad} at row 77, column 2"):
            verb(c, x)


def test_absences_past_two_to_the_25_are_exact_in_float32():
    estimator, one = jg.BernoulliNB(alpha=0.0), np.zeros(1, int)
    often, once = (
        estimator.statistics(np.float32([[bit]]), one, sample_weight=np.float32([weight]))
        for bit, weight in ((1, 2**24), (0, 1))
    )
    c = jg.estimate(estimator, jg.merge(jg.merge(often, often), once))
    np.testing.assert_allclose(c.density.log_absent[0, 0], -np.log(2**25 + 1), rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.5, np.linspace(0.1, 2.0, 100)])
@pytest.mark.parametrize("lost", [False, True])
@of_a_cpu
def test_words_that_a_class_never_has_beside_missing_ones_and_priors_of_their_own(monkeypatch, alpha, lost):
    for name in ("_FEWEST_CELLS", "_FEWEST_FEATURES"):
        monkeypatch.setattr(class_tables, name, 1)
    rng, d = np.random.default_rng(0), 100
    x, y = np.zeros((30, d), int), np.arange(30) % 3
    x[:, :12] = rng.integers(0, 2, size=(30, 12))
    observed = rng.random(x.shape) < (0.6 if lost else 2.0)
    c = jg.fit(jg.BernoulliNB(alpha=alpha), x, y, observed=observed if lost else None)
    count, rows = (np.stack([each[y == k].sum(axis=0) for k in range(3)]) for each in (x * observed, observed))
    np.testing.assert_allclose(np.exp(c.density.log_present), (count + alpha) / (rows + 2 * alpha), rtol=1e-12)
