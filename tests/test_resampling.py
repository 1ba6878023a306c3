"""Cross-validation and leave-one-out against fits without a fold and scikit-learn's; the bootstrap against its rows."""

import dataclasses
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
from conftest import of_a_cpu
from jax.experimental import sparse
from registry import CASES, K, each
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

import jaxgen as jg
from jaxgen import downdating, merged_rests, platform, single_rows, threads
from jaxgen.dealing import Folds
from jaxgen.folds import Deal, Part, Rows, all_but_each
from jaxgen.held_out import _forms_program, _judge_program
from jaxgen.refits import Fitted, FittedInTurn, Merged, kind_for
from jaxgen.replicates import row_counts
from jaxgen.total import Total

BY_NAME = {case.name: case for case in CASES}
RNG = np.random.default_rng(0)
N = 120
Y = RNG.permutation(np.arange(N) % 3)
X = RNG.normal(size=(N, 4)) + Y[:, None]
WORDS = RNG.poisson(1.0 + np.eye(3)[Y] @ RNG.random((3, 4)))
FOLD = RNG.permutation(np.arange(N) % 5)


@pytest.mark.parametrize(
    ("estimator", "peer", "x"),
    [
        (jg.LDA(ridge=0.0), LinearDiscriminantAnalysis(solver="lsqr"), X),
        (jg.GaussianNB(ridge=0.0), GaussianNB(var_smoothing=0.0), X),
        (jg.MultinomialNB(), MultinomialNB(), WORDS),
        (jg.MultinomialNB(), MultinomialNB(), scipy.sparse.coo_array(WORDS)),
        (jg.MultinomialNB(), MultinomialNB(), sparse.BCOO.fromdense(WORDS, nse=WORDS.size)),
        (jg.MultinomialNB(), MultinomialNB(), jg.pad_rows(scipy.sparse.csr_array(WORDS))),
        (jg.LogisticRegression(l2=0.5), LogisticRegression(C=2.0, tol=1e-10, max_iter=1000), X),
    ],
)
def test_folds_are_scored_as_scikit_learn_scores_them(estimator, peer, x):
    ours = jg.cross_validate(estimator, x, Y, folds=FOLD)
    dense = x if isinstance(x, np.ndarray) else WORDS
    cuts = [(np.flatnonzero(FOLD != f), np.flatnonzero(FOLD == f)) for f in range(5)]
    np.testing.assert_allclose(ours.accuracy, cross_val_score(peer, dense, Y, cv=cuts), atol=1e-12)
    loss = cross_val_score(peer, dense, Y, cv=cuts, scoring="neg_log_loss")
    np.testing.assert_allclose(ours.log_loss, -loss, rtol=1e-6)


@pytest.mark.parametrize("distance", [1.0, pytest.param(1e4, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("estimator", "peer"),
    [
        (jg.LDA(ridge=0.0), LinearDiscriminantAnalysis(solver="lsqr")),
        (jg.GaussianNB(ridge=0.0), GaussianNB(var_smoothing=0.0)),
    ],
)
def test_folds_are_judged_in_blocks_of_rows(estimator, peer, distance):
    """Scores class by class, of means that are near to each other; of those that are not, row by row."""
    rng = np.random.default_rng(1)
    y, fold = rng.integers(0, 3, 1501), rng.integers(0, 2, 1501)
    x = rng.normal(size=(1501, 2)) + distance * y[:, None]
    cuts = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(2)]
    with platform.override(dataclasses.replace(platform.CPU, judge_elements=1)):
        ours = jg.cross_validate(estimator, x, y, folds=fold)
    np.testing.assert_allclose(ours.accuracy, cross_val_score(peer, x, y, cv=cuts), atol=1e-12)
    loss = cross_val_score(peer, x, y, cv=cuts, scoring="neg_log_loss")
    np.testing.assert_allclose(ours.log_loss, -loss, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "peer"), [(jg.GaussianNB(), GaussianNB()), (jg.MultinomialNB(), MultinomialNB())]
)
def test_labels_that_are_true_or_false_and_whole_numbers_beyond_32_bits(estimator, peer):
    y, fold = np.arange(N) % 2 == 1, np.arange(N) // 40
    x = np.random.default_rng(2).poisson(np.where(y[:, None], [3.0, 9.0], [9.0, 3.0])) * 2**33
    cuts = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(3)]
    with jax.enable_x64(False):
        ours = jg.cross_validate(estimator, x, y, folds=fold)
    np.testing.assert_allclose(ours.accuracy, cross_val_score(peer, x.astype(float), y, cv=cuts), rtol=1e-6)
    assert np.all(ours.accuracy > 0.8)


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()], ids=str)
def test_a_fold_of_many_classes_is_judged_without_all_its_scores_at_once(estimator):
    n, classes = 10_000, 300
    y = np.arange(n, dtype=np.int32) % classes
    c = jg.fit(estimator, np.random.default_rng(4).normal(size=(n, 2)) + y[:, None] / classes, y)
    _, (quick, _), _ = _forms_program(Fitted((c,)), tuning=platform.CPU)
    part = Part(Rows(np.zeros((n, 2)), y, None, None), np.zeros(1, np.int32), None)
    compiled = _judge_program.lower(quick, np.zeros(1, np.int32), part, tuning=platform.CPU).compile()
    assert quick.scores_by_class
    assert compiled.memory_analysis().temp_size_in_bytes < n * classes * np.dtype(float).itemsize / 4


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.GaussianNB()], ids=str)
def test_of_classes_that_are_alike_the_first_is_predicted(estimator):
    judged = jg.cross_validate(estimator, np.repeat(X, 2, axis=0), np.tile([0, 1], N), folds=np.arange(2 * N) // N)
    np.testing.assert_array_equal(judged.accuracy, 0.5)
    np.testing.assert_allclose(judged.log_loss, np.log(2), rtol=1e-12)


def test_weights_count_in_the_fit_and_in_the_judgement():
    weight, half = RNG.integers(0, 3, N), FOLD % 2
    ours = jg.cross_validate(jg.GaussianNB(), X, Y, folds=half, sample_weight=weight)
    twice = jg.cross_validate(
        jg.GaussianNB(), *(np.repeat(each, weight, axis=0) for each in (X, Y)), folds=np.repeat(half, weight)
    )
    np.testing.assert_allclose(ours.accuracy, twice.accuracy, rtol=1e-12)
    np.testing.assert_allclose(ours.log_loss, twice.log_loss, rtol=1e-9)


def posterior_of_naive_bayes(x, y, weight, rows):
    """log p(y | x) of rows by NumPy, from Gaussian features of which those that are NaN are left out."""
    joint = []
    for k in range(3):
        mine, w = x[y == k], np.where(np.isnan(x[y == k]), 0.0, weight[y == k, None])
        mean = np.sum(w * np.nan_to_num(mine), axis=0) / w.sum(axis=0)
        variance = np.sum(w * np.nan_to_num(mine - mean) ** 2, axis=0) / w.sum(axis=0)
        terms = scipy.stats.norm(mean, np.sqrt(variance)).logpdf(x[rows])
        joint.append(np.nansum(terms, axis=1) + np.log(weight[y == k].sum() / weight.sum()))
    return scipy.special.log_softmax(np.stack(joint, axis=1), axis=1)


@pytest.mark.parametrize("folds", [FOLD[:40], "leave-one-out"], ids=["five", "leave-one-out"])
def test_missing_features_are_left_out_of_the_fits_and_of_the_judgement(folds):
    rng = np.random.default_rng(1)  # whatever was drawn before, two rows of a class must be left for every feature
    x, y, weight = np.where(rng.random((40, 4)) < 0.7, X[:40], np.nan), Y[:40], rng.integers(1, 3, 40).astype(float)
    keywords = {"folds": folds, "sample_weight": weight, "observed": ~np.isnan(x)}
    ours = jg.cross_validate(jg.GaussianNB(ridge=0.0), x, y, **keywords)
    fold = np.arange(40) if isinstance(folds, str) else folds
    for f in range(fold.max() + 1):
        mine, rest = fold == f, fold != f
        posterior = posterior_of_naive_bayes(x, y, weight * rest, mine)
        right = np.average(posterior.argmax(axis=1) == y[mine], weights=weight[mine])
        loss = np.average(-posterior[np.arange(mine.sum()), y[mine]], weights=weight[mine])
        np.testing.assert_allclose(ours.accuracy[f], right, rtol=1e-12)
        np.testing.assert_allclose(ours.log_loss[f], loss, rtol=1e-9)


@pytest.mark.thorough
def test_what_correlated_features_fill_in_is_fitted_for_each_fold():
    x, half = np.where(RNG.random((N, 4)) < 0.9, X, np.nan), FOLD % 2
    ours = jg.cross_validate(jg.LDA(), x, Y, folds=half, observed=~np.isnan(x))
    for f in range(2):
        mine, rest = half == f, half != f
        c = jg.fit(jg.LDA(), x[rest], Y[rest], observed=~np.isnan(x[rest]))
        posterior = np.asarray(jg.log_posterior(c, x[mine], observed=~np.isnan(x[mine])))
        np.testing.assert_allclose(ours.log_loss[f], -posterior[np.arange(mine.sum()), Y[mine]].mean(), rtol=1e-9)


@pytest.mark.parametrize("estimator", [jg.GaussianNB(), jg.LogisticRegression()], ids=str)
def test_something_must_be_left_to_fit_to(estimator):
    fold, x = np.arange(8) % 2, X[:8].astype(np.float32)
    weights_of_one = fold, np.where(fold == 0, 1e-50, 1.0)  # which is zero in float32
    for weight, message in (
        *((weight, "weights of all rows are zero") for weight in (np.zeros(8), np.full(8, 1e-50))),
        *((weight, "found all of it in fold 1") for weight in weights_of_one),
    ):
        with pytest.raises(ValueError, match=message):
            jg.cross_validate(estimator, x, Y[:8], folds=fold, sample_weight=weight)
    with pytest.raises(ValueError, match="found all of it in fold 3"):
        jg.cross_validate(estimator, X[:8], Y[:8], folds="leave-one-out", sample_weight=np.arange(8) == 3)


@pytest.mark.parametrize(
    ("labels", "number"),
    [
        (Y, 10),
        (np.sort(Y)[::-1], 7),
        (np.repeat([4, 0, -2], [9, 80, 23]), 9),  # a row without weight may have any label
        (np.repeat([1, 0, 3], [1, 2, 13]), 12),  # more than there are rows of most classes
        (np.arange(40) % 20, 2),
        (np.random.default_rng(0).permutation(np.repeat(np.arange(6), [1, 2, 5, 13, 21, 34])), 17),
    ],
)
def test_a_number_of_folds_means_those_of_scikit_learn(labels, number):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small classes
        splits = list(StratifiedKFold(number).split(np.zeros((len(labels), 1)), labels))
    folds = Folds.of(number, labels)
    for mine, size, (_, test) in zip(folds.members(), folds.sizes, splits, strict=True):
        np.testing.assert_array_equal(mine, test)
        assert size == len(test)


def test_a_number_of_folds_shares_every_class_out_and_reads_the_data_once(monkeypatch):
    few, read, at = np.array([0] * 50 + [1] * 10), [], Rows.at

    def spy(self, index):
        read.extend(index)
        return at(self, index)

    monkeypatch.setattr(Rows, "at", spy)
    jg.cross_validate(jg.GaussianNB(), X[:60], few, folds=5)
    assert [np.bincount(few[mine]).tolist() for mine in np.split(np.array(read), 5)] == [[10, 2]] * 5
    np.testing.assert_array_equal(np.sort(read), np.arange(60))


@pytest.mark.parametrize(
    ("number", "cores", "groups"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 1, [[0, 1, 2, 3, 4]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7, 0]]),
        (5, 2, [[0], [1], [2], [3], [4]]),
        (3, 8, [[0], [1], [2]]),
        (60, 2, [list(range(30)), list(range(30, 60))]),
    ],
)
def test_folds_are_dealt_to_cores_so_that_none_waits(monkeypatch, number, cores, groups):
    rows, fold = Rows(X, Y, None, None), np.arange(N) % number
    deal = Deal.of(rows, Folds.of(fold, Y).members(), cores=cores)
    assert [group.tolist() for group in deal.groups] == groups
    for group in deal.groups:
        part = deal.copy(group)
        for i, f in enumerate(group):
            np.testing.assert_array_equal(part.present(i).x, X[fold == f])
            np.testing.assert_array_equal(part.present(i).y, Y[fold == f])
    monkeypatch.setattr(threads, "cores", lambda: cores)
    ours = jg.cross_validate(jg.LDA(ridge=0.0), X, Y, folds=fold)
    cuts = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(number)]
    peer = LinearDiscriminantAnalysis(solver="lsqr")
    np.testing.assert_allclose(ours.accuracy, cross_val_score(peer, X, Y, cv=cuts), rtol=1e-9)


@pytest.mark.parametrize(
    "weight", [pytest.param(None, marks=pytest.mark.thorough), RNG.integers(0, 3, N)], ids=["", "weighted"]
)
@pytest.mark.parametrize(
    "estimator",
    [
        jg.QDA(ridge=0.0),
        *(pytest.param(each, marks=pytest.mark.thorough) for each in (jg.GaussianNB(ridge=0.0), jg.LDA(ridge=0.0))),
    ],
    ids=str,
)
def test_folds_of_almost_one_size_take_one_program_in_which_what_fills_them_up_plays_no_part(estimator, weight):
    fold = RNG.permutation(np.arange(N) % 7)
    assert len(set(np.bincount(fold))) == 2
    compiled = _judge_program._cache_size()
    ours = jg.cross_validate(estimator, X, Y, folds=fold, sample_weight=weight)
    assert _judge_program._cache_size() <= compiled + 1
    for f in range(7):
        mine, rest = fold == f, fold != f
        w = np.ones(N) if weight is None else weight
        c = jg.fit(estimator, X[rest], Y[rest], sample_weight=w[rest])
        posterior = np.asarray(jg.log_posterior(c, X[mine]))
        np.testing.assert_allclose(ours.accuracy[f], np.average(posterior.argmax(1) == Y[mine], weights=w[mine]))
        loss = np.average(-posterior[np.arange(mine.sum()), Y[mine]], weights=w[mine])
        np.testing.assert_allclose(ours.log_loss[f], loss, rtol=1e-9)


def test_a_grid_of_hyperparameters_from_the_same_statistics():
    values = jnp.array([0.01, 1.0, 30.0])
    grid = jax.vmap(lambda alpha: jg.cross_validate(jg.MultinomialNB(alpha), WORDS, Y, folds=4).log_loss)(values)
    for value, row in zip(values, grid, strict=True):
        np.testing.assert_allclose(row, jg.cross_validate(jg.MultinomialNB(float(value)), WORDS, Y, folds=4).log_loss)
    slope = jax.grad(lambda a: jg.cross_validate(jg.MultinomialNB(a), WORDS, Y, folds=4).log_loss.mean())
    step = 1e-5
    high, low = (jg.cross_validate(jg.MultinomialNB(1 + s), WORDS, Y, folds=4).log_loss.mean() for s in (step, -step))
    np.testing.assert_allclose(slope(1.0), (high - low) / (2 * step), rtol=1e-5)


def test_folds_of_a_classifier_without_a_density_equal_refits():
    counts, y = np.random.default_rng(0).poisson(2, (60, 4)) + 1, np.arange(60) % 3
    fold = np.arange(60) % 4
    found = jg.cross_validate(jg.ComplementNB(), counts, y, folds=fold)
    for f in range(4):
        peer = ComplementNB().fit(counts[fold != f], y[fold != f])
        assert found.accuracy[f] == np.mean(peer.predict(counts[fold == f]) == y[fold == f])


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"folds": 1}, ValueError, "folds must be at least 2; found 1. Of 120 rows there are from 2 to 120 folds"),
        ({"folds": 121}, ValueError, "found 121"),
        ({"folds": 2.0}, TypeError, r"folds must be a Python integer, static under jit; found 2.0\.$"),
        ({"folds": np.array(2)}, TypeError, r"folds must be a Python integer, static under jit; found array\(2\)\.$"),
        ({"folds": np.bool_(True)}, TypeError, "folds must be a Python integer, static under jit; found .*True.{0,2}$"),
        ({"folds": 10**20}, ValueError, "folds must be at most 120; found 10{20}"),
        ({"folds": "loo"}, ValueError, "or 'leave-one-out'; found 'loo'"),
        ({"folds": None}, TypeError, "folds must be a number of folds.*found None"),
        ({"folds": KFold(3)}, TypeError, r"the fold of each row.*found KFold\(n_splits=3.*fold\[test\] = f"),
        ({"folds": KFold(3).split(X)}, TypeError, r"found <generator.*fold\[test\] = f"),
        ({"folds": list(KFold(7).split(X))}, TypeError, r"the fold of each row.*found \[\(.*fold\[test\] = f"),
        ({"folds": list(KFold(2).split(X))}, TypeError, r"the fold of each row.*found \[\(.*fold\[test\] = f"),
        ({"folds": FOLD.astype("m8[s]")}, TypeError, "folds must be a number of folds"),
        ({"folds": np.zeros(N, int)}, ValueError, "two or more, each with a row; found 1"),
        ({"folds": 2 * (np.arange(N) % 2)}, ValueError, "fold 1 is empty"),
        (
            {"folds": np.uint8(255) * (np.arange(N) % 2).astype(np.uint8)},
            ValueError,
            "found 256 of them, and fold 1 is",
        ),
        ({"folds": 10**15 * (np.arange(N) % 2)}, ValueError, "found 1000000000000001 of them, and fold 1 is empty"),
        ({"folds": np.arange(4)}, ValueError, r"folds must have shape \(120,\); found \(4,\)"),
        ({"y": None}, TypeError, "y must be a real numeric array; found None. Rows without labels.*jaxgen.fit_em"),
        ({"x": X[:0], "y": Y[:0]}, ValueError, r"x must have shape \(n, d\) with two rows or more"),
        ({"observed": np.ones((N, 3), bool)}, ValueError, r"observed must have the shape of x, \(120, 4\)"),
        ({"sample_weight": np.full(N, -1.0)}, ValueError, "sample_weight must be finite and 0 or more"),
        ({"y": Y + 2**40}, ValueError, "y must hold labels.*found 1099511627778 in row [0-9]+, too large"),
        ({"estimator": jg.GDA}, TypeError, "estimator must be one of jaxgen's"),
        ({"estimator": GaussianNB()}, TypeError, r"estimator must be one of jaxgen's.*found GaussianNB\(\)"),
        ({"y": Y + 0.0}, TypeError, r"y must be integer labels 0 … K−1; found float64. Convert .* y.astype\(int\)"),
        ({"y": np.eye(3)[Y]}, ValueError, r"y must be labels of shape \(120,\)"),
        (
            {"x": np.where(np.arange(N)[:, None] == 7, np.nan, X)},
            ValueError,
            "x must hold finite numbers; found nan at row 7, column 0",
        ),
    ],
)
def test_what_is_refused_and_why(keywords, error, message):
    arguments = {"estimator": jg.LDA(), "x": X, "y": Y, "folds": 3} | keywords
    with pytest.raises(error, match=message):
        jg.cross_validate(**arguments)


@pytest.mark.parametrize(
    ("estimator", "observed"), [(jg.LogisticRegression(), None), (jg.LDA(), np.ones((N, 4), bool))], ids=str
)
def test_what_is_bad_is_named_by_its_row_of_all_where_each_fold_is_fitted(estimator, observed):
    bad, weight = np.arange(N) == 70, (np.arange(N) != 50).astype(float)
    x = np.where(bad[:, None], np.nan, X)
    x[50] = np.inf  # of a row that is absent
    options = {"folds": 3, "num_classes": 3, "sample_weight": weight, "observed": observed}
    with pytest.raises(ValueError, match="found nan at row 70, column 0"):
        jg.cross_validate(estimator, x, Y, **options)
    with pytest.raises(ValueError, match="found -1 in row 70"):
        jg.cross_validate(estimator, X, np.where(bad, -1, Y), **options)


def wide(x):
    """Sparse rows beside many words that no document has."""
    return scipy.sparse.csr_array(np.pad(x, [(0, 0), (0, 1000)]))


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array, wide])
def test_a_row_that_the_other_folds_make_impossible_is_named(container):
    x, y = np.tile([[1, 2, 0]], (12, 1)), np.arange(12) % 2
    x[7, 2] = 1  # a word that no other document has
    fold = np.array([2, 1, 0, 2, 1, 0, 2, 1, 0, 2, 0, 0])
    estimator, rows = jg.MultinomialNB(alpha=0.0), container(x)
    message = "found row 7 and 0 more of fold 1 impossible under every class.*alpha > 0"
    with pytest.raises(ValueError, match=message):
        jg.cross_validate(estimator, rows, y, folds=fold)
    without = jg.cross_validate(estimator, rows, y, folds=fold, sample_weight=np.arange(12) != 7)
    assert np.isfinite(without.log_loss).all()


@pytest.mark.parametrize("documents", [24, 300])
def test_folds_of_sparse_rows_are_merged_where_tables_are_small_and_fitted_where_they_are_large(documents):
    rng = np.random.default_rng(5)
    y, fold = np.arange(documents) % 3, rng.permutation(np.arange(documents) % 7)
    words = rng.poisson(0.02 + 0.3 * (rng.random((3, 40)) < 0.1)[y])
    words[5] = -1  # of a document that is absent
    weight, rows = (np.arange(documents) != 5).astype(float), scipy.sparse.csr_array(words)
    options = {"folds": fold, "num_classes": 3}
    assert kind_for(jg.MultinomialNB(), Rows(rows, y, None, None), 3) is (FittedInTurn if documents < 30 else Merged)
    ours = jg.cross_validate(jg.MultinomialNB(), rows, y, sample_weight=weight, **options)
    for f in range(7):
        mine, rest = np.flatnonzero((fold == f) & (weight > 0)), (fold != f) & (weight > 0)
        log_posterior = MultinomialNB().fit(words[rest], y[rest]).predict_log_proba(words[mine])
        assert ours.accuracy[f] == pytest.approx(np.mean(log_posterior.argmax(axis=1) == y[mine]), abs=1e-12)
        np.testing.assert_allclose(ours.log_loss[f], -log_posterior[np.arange(len(mine)), y[mine]].mean(), rtol=1e-9)
    loss = jax.vmap(lambda a: jg.cross_validate(jg.MultinomialNB(a), rows, y, sample_weight=weight, **options).log_loss)
    np.testing.assert_allclose(loss(jnp.ones(1))[0], ours.log_loss, rtol=1e-9)
    with pytest.raises(ValueError, match="found -1 at row 5, column 0"):
        jg.cross_validate(jg.MultinomialNB(), rows, y, **options)
    with pytest.raises(ValueError, match="alpha must be finite and 0 or more"):
        jg.cross_validate(jg.MultinomialNB(-1.0), rows, y, sample_weight=weight, **options)


@pytest.mark.parametrize("number", [2, 3, 7, 10])
def test_all_parts_but_one_are_merged_for_each(number):
    values = 3.0 ** np.arange(number)
    rests = list(all_but_each(tuple(Total.of(jnp.asarray(value)) for value in values)))
    np.testing.assert_array_equal([rest.exact() for rest in rests], values.sum() - values)


def test_traced_rows_are_refused():
    with pytest.raises(TypeError, match="deals concrete rows out to folds"):
        jax.jit(lambda x: jg.cross_validate(jg.LDA(), x, Y))(X)


def leave_one_out(estimator, x, y, **keywords):
    return jg.cross_validate(estimator, x, y, folds="leave-one-out", **keywords)


def refits(estimator, x, y, num_classes=K, weight=None):
    """The log posterior of each row from a fit of its own to all others."""
    weight = np.ones(len(y), x.dtype) if weight is None else weight
    posteriors = []
    for i, others in enumerate(~np.eye(len(y), dtype=bool)):
        c = jg.fit(estimator, x[others], y[others], num_classes=num_classes, sample_weight=weight[others])
        posteriors.append(np.asarray(jg.log_posterior(c, x[i])))
    return np.array(posteriors)


def check_against(ours, posterior, y, present=slice(None), **tolerance):
    loss = -posterior[np.arange(len(y)), y]
    np.testing.assert_allclose(ours.log_loss[present], loss[present], **tolerance)
    np.testing.assert_array_equal(ours.accuracy[present], (posterior.argmax(axis=1) == y)[present])


@each(CASES, first=("LDA", "BernoulliNB"))
def test_leaving_a_row_out_is_fitting_to_the_others(case):
    x, y = case.data(n=20)
    check_against(leave_one_out(case.estimator, x, y), refits(case.estimator, x, y), y, rtol=1e-9, atol=1e-12)


OF_A_PRIOR = jg.GDA("diagonal", shared=False, prior=jg.NormalInverseWishart())


@of_a_cpu
@pytest.mark.parametrize(
    "estimator",
    [OF_A_PRIOR, *(pytest.param(case.estimator, id=case.name, marks=pytest.mark.thorough) for case in CASES)],
)
def test_rows_that_cores_share_are_left_out_as_well(estimator, shares, monkeypatch):
    case = next((case for case in CASES if case.estimator is estimator), BY_NAME["GaussianNB"])
    x, y = case.data(n=20)
    monkeypatch.setattr(downdating, "is_exact", lambda statistics: False)  # counts are merged as others are
    check_against(leave_one_out(estimator, x, y), refits(estimator, x, y), y, rtol=1e-9, atol=1e-12)
    assert shares == [7, 7, 7]


@pytest.fixture
def shares(monkeypatch):
    """How many rows each of three cores takes."""
    program, lengths = merged_rests._program, []
    monkeypatch.setattr(merged_rests, "_SHARE", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    monkeypatch.setattr(merged_rests, "_program", lambda *a, **b: lengths.append(len(a[2].y)) or program(*a, **b))
    return lengths


@pytest.mark.thorough
@of_a_cpu
def test_rows_that_cores_share_have_weights_and_keep_their_dtype_and_their_number(shares):
    estimator, x, y, present = jg.GaussianNB(), X[:20].astype(np.float32), Y[:20], np.arange(20) % 3 > 0
    present[:7] = False  # a whole share
    ours = leave_one_out(estimator, np.where(present[:, None], x, np.nan), y, sample_weight=present)
    assert ours.log_loss.dtype == np.float32
    assert shares == [7, 7, 7]
    check_against(ours, refits(estimator, x, y, weight=present.astype(np.float32)), y, present, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.isnan(ours.accuracy), ~present)
    x[16, 2] = np.nan
    with pytest.raises(ValueError, match="found nan at row 16, column 2"):
        leave_one_out(estimator, x, y)
    shares.clear()
    with platform.override(dataclasses.replace(platform.CPU, fold_elements=10)):  # fewer than its statistics have
        leave_one_out(estimator, X[:20], y)
    assert shares == [20]


SOME = np.random.default_rng(3)
TABLE = SOME.random((5, 4)) + 0.1


@pytest.mark.parametrize(
    ("estimator", "weight"),
    [
        (jg.MultinomialNB(TABLE, prior_alpha=0.5), SOME.integers(0, 3, 30)),
        (jg.MultinomialNB(TABLE[:, :1]), None),
        (jg.MultinomialNB(TABLE[0]), SOME.random(30) * (SOME.random(30) < 0.8)),
        (jg.PoissonNB(0.5, exposure=TABLE), SOME.random(30) < 0.8),
        (jg.BernoulliNB(TABLE, binarize=1.0, beta=2.0), SOME.integers(0, 3, 30).astype(np.float32)),
        (jg.BernoulliNB(binarize=0.0), None),
        (jg.BernoulliNB(TABLE[0], binarize=0.0, beta=TABLE), SOME.choice([0, 0.25, 1.5], 30)),
        (jg.ComplementNB(TABLE[0]), SOME.random(30) * (SOME.random(30) < 0.8)),
        (jg.ComplementNB(prior_alpha=1.0), None),
    ],
    ids=["table", "by class", "fractions", "Poisson", "binarised", "bits", "absence", "complement", "of whole numbers"],
)
@pytest.mark.parametrize(
    "form", [np.asarray, scipy.sparse.csc_array, pytest.param(sparse.BCOO.fromdense, marks=pytest.mark.thorough)]
)
def test_a_row_is_taken_away_from_the_counts_of_its_class(estimator, weight, form, monkeypatch):
    monkeypatch.setattr(single_rows, "_NUMBERS", 28)  # seven rows at a time
    monkeypatch.setattr(single_rows, "_FEW_CELLS", 0)  # rows of about one length
    x, y = WORDS[:30].astype(float), Y[:30].copy()
    y[5], x[9] = 3, 0.0  # a class of one row, an empty row
    absent = np.zeros(30, bool) if weight is None else np.asarray(weight) == 0
    given = x if form is sparse.BCOO.fromdense else np.where(absent[:, None], np.nan, x)
    ours = leave_one_out(estimator, form(given), y, sample_weight=weight, num_classes=5)  # and one of none
    np.testing.assert_array_equal(np.isnan(ours.log_loss), absent)
    weight = None if weight is None else np.asarray(weight, float)
    check_against(ours, refits(estimator, x, y, 5, weight), y, ~absent, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("estimator", [jg.BernoulliNB(binarize=0.0), jg.ComplementNB()])
def test_sparse_rows_are_taken_away_on_an_accelerator_as_well(estimator):
    x, y = WORDS[:30], Y[:30]
    check_against(leave_one_out(estimator, scipy.sparse.csr_array(x), y), refits(estimator, x, y), y)


WORDS_BESIDE_NUMBERS = jg.MixedNB(
    (
        (jg.MultinomialNB(0.5), (3, 1, 0)),
        (jg.MixedNB(((jg.LDA(ridge=0.1), (2, 0)), (jg.PoissonNB(), (1,)))), (4, 2, 5)),
        (jg.CategoricalNB(3), (6,)),
    ),
    prior_alpha=0.3,
)


def beside_numbers(n=30):
    return np.concatenate([WORDS[:n], X[:n, :2], Y[:n, None]], axis=1)


@pytest.mark.parametrize("weight", [None, SOME.random(30) * (SOME.random(30) < 0.8)], ids=["", "weighted"])
@pytest.mark.parametrize("prior_alpha", [pytest.param(0.0, marks=pytest.mark.thorough), 0.3])
def test_each_family_leaves_out_what_it_has_of_a_sparse_row(weight, prior_alpha):
    estimator = dataclasses.replace(WORDS_BESIDE_NUMBERS, prior_alpha=prior_alpha)
    x, y = beside_numbers(), Y[:30].copy()
    y[5] = 3  # a class of one row
    absent = np.zeros(30, bool) if weight is None else weight == 0
    spoilt = scipy.sparse.csr_array(np.where(absent[:, None], np.nan, x))
    ours = leave_one_out(estimator, spoilt, y, sample_weight=weight)
    np.testing.assert_array_equal(np.isnan(ours.log_loss), absent)
    check_against(ours, refits(estimator, x, y, 4, weight), y, ~absent, rtol=1e-9, atol=1e-12)
    x[8, 3] = -1.0
    with pytest.raises(ValueError, match=r"0 or more in columns 3, 1, 0.*found -1\.0 at row 8, column 3"):
        leave_one_out(estimator, scipy.sparse.csr_array(x), y)


def test_an_absent_sparse_row_of_several_families_may_have_any_label_and_leaves_no_nan_in_a_derivative():
    x, weight = beside_numbers(20), np.r_[np.ones(18), 0, 0]
    y = np.r_[Y[:18], -1, 10**9]

    def loss(ridge, form):
        estimator = jg.MixedNB(((jg.MultinomialNB(), (0, 1, 2, 3)), (jg.LDA(ridge=ridge), (4, 5, 6))), prior_alpha=0.5)
        return jnp.nansum(leave_one_out(estimator, form(x), y, num_classes=K, sample_weight=weight).log_loss)

    ours, expected = (
        jax.value_and_grad(partial(loss, form=form))(0.3) for form in (scipy.sparse.csr_array, np.asarray)
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


@pytest.mark.parametrize("estimator", [jg.MultinomialNB(0.0), jg.ComplementNB(1e-9)])
def test_fractions_of_sparse_rows_are_taken_away_as_they_were_rounded(estimator):
    """Without x64 numbers of float64 are summed in float32: what remains of a word that a row alone has is nothing."""
    x = np.array([[0.1, 1, 0], [0, 0.7, 0.3], [0.3, 1, 0], [0, 0.5, 0.2], [0, 0.6, 0.1], [0.2, 0.4, 0.3]])
    y = np.array([0, 0, 1, 1, 1, 1])
    with jax.enable_x64(False):
        ours, theirs = leave_one_out(estimator, scipy.sparse.csr_array(x), y), refits(estimator, x, y, 2)
    check_against(ours, theirs, y, rtol=1e-5)


def test_a_row_of_hardly_any_weight_is_still_a_row_of_its_class():
    x, y = np.array([[5, 1], [0, 3], [2, 2], [3, 0], [1, 4]], np.float32), np.array([0, 0, 1, 1, 2])
    weight = np.array([1e7, 1e-7, 1, 1, 1])
    theirs = refits(jg.ComplementNB(), x.astype(np.float64), y, weight=weight)
    ours = leave_one_out(jg.ComplementNB(), scipy.sparse.csr_array(x), y, sample_weight=weight)
    check_against(ours, theirs, y, rtol=1e-5)


def test_a_word_that_one_class_alone_has_when_its_row_is_left_out_is_an_error_that_names_the_row():
    x, y = np.array([[1, 2], [2, 1], [3, 1], [1, 0], [4, 0]]), np.array([0, 0, 1, 1, 2])
    with pytest.raises(ValueError, match=r"row 2 left out: ComplementNB has no finite weight.* alpha > 0"):
        leave_one_out(jg.ComplementNB(alpha=0), scipy.sparse.csr_array(x), y)


@pytest.mark.parametrize(
    ("estimator", "x"),
    [
        (jg.ComplementNB(), WORDS[:20]),
        (jg.BernoulliNB(TABLE[:K], binarize=1.0, beta=0.5), WORDS[:20]),
        pytest.param(jg.PoissonNB(), WORDS[:20], marks=pytest.mark.thorough),
        pytest.param(WORDS_BESIDE_NUMBERS, beside_numbers(20), marks=pytest.mark.thorough),
    ],
)
def test_rows_that_are_taken_away_in_parts_have_derivatives_by_hyperparameters(estimator, x):
    rows, leaves, structure = scipy.sparse.csr_array(x), *jax.tree.flatten(estimator)

    def loss(more):
        moved = jax.tree.unflatten(structure, [leaf + more for leaf in leaves])
        return leave_one_out(moved, rows, Y[:20]).log_loss.mean()

    more = jnp.array([0.1, 0.3])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(loss)))(more)
    np.testing.assert_allclose(values, [loss(each) for each in (0.1, 0.3)], rtol=1e-12)
    differences = [(loss(each + 1e-5) - loss(each - 1e-5)) / 2e-5 for each in (0.1, 0.3)]
    np.testing.assert_allclose(slopes, differences, rtol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("estimator", [jg.MultinomialNB(), jg.ComplementNB()])
def test_what_remains_of_long_documents_keeps_its_digits_in_float32(estimator, form):
    """Their coefficients of 300,000 nats are common to all classes."""
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    x = rng.poisson(rng.gamma(1.0, 1e3, 30) * (1 + 0.03 * y[:, None] * rng.random(30)))
    theirs = refits(estimator, x.astype(np.float64), y, 2)
    assert np.abs(theirs).max() > 1
    check_against(leave_one_out(estimator, form(x.astype(np.float32)), y), theirs, y, rtol=2e-3, atol=2e-3)


@pytest.mark.thorough
def test_jit_turned_off_leaves_the_same_rows_out():
    forms, both = (np.asarray, scipy.sparse.csr_array), beside_numbers(9)
    cases = [(jg.MultinomialNB(TABLE[:K]), WORDS[:9], form) for form in forms]
    cases += [(jg.ComplementNB(), WORDS[:9], forms[1]), (WORDS_BESIDE_NUMBERS, both, forms[1])]
    for estimator, x, form in cases:
        expected = leave_one_out(estimator, x, Y[:9]).log_loss
        with jax.disable_jit():
            np.testing.assert_allclose(leave_one_out(estimator, form(x), Y[:9]).log_loss, expected, rtol=1e-9)


BIG = 2.0**24
MANY_WORDS = np.ones((5, 200)) * (np.arange(200) < [[50], [150], [20], [50], [170]])


@pytest.mark.parametrize(
    ("estimator", "x", "weight"),
    [
        (jg.MultinomialNB(1e-3), [[1e6 + 0.5, 1], [0.25, 1], [0.5, 3], [2, 0.125], [1, 1.5]], None),
        (jg.PoissonNB(0.01), [[4e6 + 0.5], [1.25], [0.25], [3.0], [2.0]], None),  # whose sum is a whole number
        (jg.MultinomialNB(), [[3, 1], [1, 2], [1, 3], [2, 2], [1, 1]], [4e6 + 0.5, 1.25, 0.25, 1, 1]),
        (jg.MultinomialNB(1e-3), [[BIG - 1, 1], [0, 2], [0, 1], [1, 2], [2, 0]], [3, 1, 1, 1, 1]),  # products round
        (jg.MultinomialNB(), [[1, 0], [0, 1], [1, 1], [1, 3], [1, 1]], [9e-7, 1, 1, 3e-7, 1]),
        (jg.BernoulliNB(), [[1, 0], [0, 1], [1, 1], [1, 0], [1, 1]], [3e8, 1, 1, 1, 1]),
        (jg.PoissonNB(), MANY_WORDS, [1e6, 1, 3, 1e6, 1]),
        (jg.ComplementNB(1e-3), [[1e6 + 0.5, 1], [0.25, 1], [0.5, 3], [2, 0.125], [1, 1.5]], None),
        (jg.ComplementNB(), [[3, 1], [1, 2], [1, 3], [2, 2], [1, 1]], [4e6 + 0.5, 1.25, 0.25, 1, 1]),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_little_remains_of_much_in_float32(estimator, x, weight, form):
    x, y = np.array(x, np.float32), np.array([0, 0, 0, 1, 1])
    theirs = refits(estimator, x.astype(np.float64), y, 2, None if weight is None else np.array(weight))
    check_against(leave_one_out(estimator, form(x), y, sample_weight=weight), theirs, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "weight", [None, np.array([1.0, 3.0, 1.0, 1.0, 2.0, 1.0, 1.0, 0.5, 0.5])], ids=["", "weighted"]
)
@pytest.mark.parametrize(
    "estimator",
    [jg.BernoulliNB(0.0), jg.BernoulliNB(0.0, beta=np.array([[0.0, 0.5, 0.0, 0.0]])), jg.PoissonNB(0.0, exposure=0.0)],
)
def test_a_row_may_lack_what_all_others_have_and_have_what_they_lack(estimator, weight):
    """Without smoothing its class is impossible then; but not for a word that every row has."""
    first = [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    x = np.array([*first, [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    y = np.array([0] * 5 + [1] * 4)
    theirs = refits(estimator, x, y, 2, weight)
    assert set(np.isinf(theirs[:5, 0]).tolist()) == {True, False}
    check_against(leave_one_out(estimator, scipy.sparse.csr_array(x), y, sample_weight=weight), theirs, y, atol=1e-12)


def test_rows_go_by_their_length_however_many_numbers_it_would_take_to_fill_them_up():
    """More than an int32 holds, which is what scipy's indices are."""
    lengths, longest = np.array([40_000, 3, 2], np.int32), []
    entries = single_rows.Entries(np.zeros(3), np.zeros(3), Total(np.zeros(3), np.zeros(3)), np.arange(40_000))

    def program(some, rows, *, block):
        longest.append(len(some.longest))
        return jnp.asarray(rows)

    found = single_rows.by_length(program, entries, np.arange(3.0), lengths, 20_000, (None, jnp.zeros(1)))
    np.testing.assert_array_equal(found, [0, 1, 2])
    assert set(longest) == {40_000, 3}


def test_what_fills_a_short_row_up_is_no_word_that_it_lacks():
    """Nothing remains of its class, where without a pseudo-count of absence the first word is certain."""
    x, y = np.array([[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0]]), np.array([0, 1, 1, 1, 1])
    estimator = jg.BernoulliNB(1.0, beta=np.array([0, 0.5, 0.5, 0.5]), prior_alpha=1.0)
    check_against(leave_one_out(estimator, scipy.sparse.csr_array(x), y), refits(estimator, x, y, 2), y, atol=1e-12)


def test_a_document_that_is_its_whole_class_has_derivatives_when_it_is_left_out():
    x, y = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 1, 1])

    def loss(x, beta):
        return leave_one_out(jg.BernoulliNB(1e-9, beta=beta, prior_alpha=1.0), x, y).log_loss.sum()

    slope = jax.grad(partial(loss, scipy.sparse.csr_array(x.astype(np.float32))))(1.0)
    difference = (loss(x, 1.0 + 1e-4) - loss(x, 1.0 - 1e-4)) / 2e-4
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


def test_nothing_remains_of_a_class_of_one_document():
    """Whose words sum up to something else in another order; shares of nothing are equal."""
    x, y = np.random.default_rng(0).random((4, 3000)), np.array([0, 0, 1, 1])
    x[2], x[3] = np.r_[1.0, np.full(2999, 1e-16)], 0.0
    estimator = jg.MultinomialNB(0.0, prior_alpha=1.0)
    check_against(leave_one_out(estimator, scipy.sparse.csr_array(x), y), refits(estimator, x, y, 2), y, atol=1e-9)


BITS = (RNG.random((N, 4)) < 0.4).astype(int)
LEVELS = RNG.integers(0, 3, (N, 4))


@pytest.mark.parametrize(
    ("estimator", "peer", "x"),
    [
        (jg.LDA(ridge=0.0), LinearDiscriminantAnalysis(solver="lsqr"), X),
        pytest.param(jg.GaussianNB(ridge=0.0), GaussianNB(var_smoothing=0.0), X, marks=pytest.mark.thorough),
        (jg.MultinomialNB(), MultinomialNB(), scipy.sparse.csr_array(WORDS)),
        pytest.param(jg.MultinomialNB(), MultinomialNB(), WORDS, marks=pytest.mark.thorough),
        pytest.param(jg.BernoulliNB(), BernoulliNB(), BITS, marks=pytest.mark.thorough),
        pytest.param(jg.CategoricalNB(3), CategoricalNB(min_categories=3), LEVELS, marks=pytest.mark.thorough),
        (jg.LogisticRegression(l2=0.5), LogisticRegression(C=2.0, tol=1e-10, max_iter=1000), X),
    ],
)
def test_rows_left_out_are_scored_as_scikit_learn_scores_them(estimator, peer, x):
    rows = slice(40)
    posterior = cross_val_predict(peer, x[rows], Y[rows], cv=LeaveOneOut(), method="predict_log_proba")
    check_against(leave_one_out(estimator, x[rows], Y[rows]), posterior, Y[rows], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "dtype"),
    [
        (jg.GaussianNB(prior_alpha=1.0), np.float32),
        pytest.param(jg.LDA(), np.float64, marks=pytest.mark.thorough),
    ],
)
def test_rows_are_left_out_in_parts_with_weights_an_outlier_and_a_class_of_one_row(estimator, dtype):
    """Taking the outlier away from sums in float32 would leave no digits of the others."""
    x, y, weight = X[:30].astype(dtype), Y[:30].copy(), RNG.integers(0, 3, 30).astype(dtype)
    y[5], weight[[5, 7]], x[7] = 3, 1.5, 1e5 * RNG.normal(size=4)
    absent = weight == 0
    x[absent] = np.nan
    with platform.override(dataclasses.replace(platform.CPU, fold_elements=400)):  # a few rows at a time
        ours = leave_one_out(estimator, x, y, sample_weight=weight)
    np.testing.assert_array_equal(np.isnan(ours.log_loss) & np.isnan(ours.accuracy), absent)
    expected = refits(estimator, np.where(absent[:, None], 0, x), y, 4, weight)
    assert np.isposinf(ours.log_loss[5]) == (estimator.prior_alpha == 0)
    check_against(ours, expected, y, ~absent, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "x", [WORDS[:20], pytest.param(WORDS[:20] / 4, marks=pytest.mark.thorough), scipy.sparse.csr_array(WORDS[:20])]
)
def test_a_grid_of_hyperparameters_for_rows_left_out(x):
    def loss(alpha):
        return leave_one_out(jg.MultinomialNB(alpha), x, Y[:20]).log_loss.mean()

    with platform.override(dataclasses.replace(platform.CPU, fold_elements=200)):
        grid = jax.jit(jax.vmap(jax.value_and_grad(loss)))(jnp.array([0.1, 1.0]))
        step = 1e-5
        for alpha, value, slope in zip((0.1, 1.0), *grid, strict=True):
            np.testing.assert_allclose(value, loss(alpha), rtol=1e-12)
            np.testing.assert_allclose(slope, (loss(alpha + step) - loss(alpha - step)) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "x", "y", "error", "message"),
    [
        (jg.LDA(), X, Y[:5], ValueError, r"y must be labels of shape \(120,\)"),
        (jg.LDA(), X[:1], Y[:1], ValueError, r"two rows or more, to fit to the others; found \(1, 4\)"),
        (jg.LDA(), np.where(np.arange(N)[:, None] == 7, np.nan, X), Y, ValueError, "found nan at row 7, column 0"),
        (jg.GaussianNB(), scipy.sparse.csr_array(X), Y, TypeError, "x must be dense for this model; found csr_array"),
        (jg.MultinomialNB(0.0), np.eye(4, dtype=int), np.arange(4) % 2, ValueError, "row 0 is impossible under every"),
        (
            jg.GaussianNB(0.0),
            np.arange(6.0)[:, None],
            np.array([0, 0, 0, 0, 1, 1]),
            ValueError,
            "row 4 left out: the covariance of class 1 is singular",
        ),
    ],
)
def test_rows_that_cannot_be_left_out_and_why(estimator, x, y, error, message):
    with pytest.raises(error, match=message):
        leave_one_out(estimator, x, y)


def test_what_is_wrong_without_any_fold_names_none():
    with pytest.raises(ValueError, match=r"^LogisticRegression\.l2 must be finite and 0 or more"):
        jg.cross_validate(jg.LogisticRegression(l2=-1.0), X, Y)
    with pytest.raises(ValueError, match=r"^GDA\.pooling must be from 0 to 1"):
        jg.cross_validate(jg.QDA(pooling=2.0), X, Y, observed=np.ones_like(X, bool))


# merged, and fitted one by one
@pytest.mark.parametrize("observed", [None, pytest.param(np.ones((40, 3), bool), marks=pytest.mark.thorough)])
def test_a_fold_without_which_there_is_no_fit_is_named(observed):
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[:30, 2] = 1.0  # the last ten alone say how it varies
    with pytest.raises(ValueError, match=r"^fold 3 left out: .*a feature is .*combination of others\. Raise"):
        jg.cross_validate(jg.LDA(ridge=0.0), x, np.arange(40) % 2, folds=np.arange(40) // 10, observed=observed)


@pytest.mark.parametrize(
    ("estimator", "x", "weight", "observed"),
    [
        (jg.GaussianNB(), X[:40], None, np.random.default_rng(0).random((40, 4)) < 0.8),
        pytest.param(jg.LogisticRegression(), X[:40], None, None, marks=pytest.mark.thorough),
        (jg.MultinomialNB(), scipy.sparse.csr_array(WORDS[:40]), np.arange(40) % 3, None),
    ],
)
def test_a_replicate_is_the_fit_to_its_rows(estimator, x, weight, observed):
    key, y = jax.random.key(3), Y[:40]
    many = jg.bootstrap(key, estimator, x, y, num_replicates=4, sample_weight=weight, observed=observed)
    present = np.arange(40) if weight is None else np.flatnonzero(weight)
    rows = np.concatenate([present, np.flatnonzero(~np.isin(np.arange(40), present))])
    for r, own in enumerate(jax.random.split(key, 4)):
        counts = np.asarray(row_counts(own, jnp.asarray(rows, jnp.int32), jnp.int32(len(present))))
        assert counts.sum() == len(present)
        assert not counts[rows[len(present) :]].any()
        drawn = np.repeat(np.arange(40), counts)
        options = {"sample_weight": weight, "observed": observed}
        options = {name: None if each is None else each[drawn] for name, each in options.items()}
        one = jg.fit(estimator, x[drawn], y[drawn], **options)
        jax.tree.map(lambda a, b, r=r: np.testing.assert_allclose(a[r], b, rtol=1e-6, atol=1e-9), many, one)


def test_the_spread_of_a_mean_is_its_standard_error_also_under_jit():
    x, y, key = 3.0 * RNG.normal(size=(400, 2)), np.arange(400) % 2, jax.random.key(0)
    many = jg.bootstrap(key, jg.GaussianNB(), x, y, num_replicates=600)
    expected = np.stack([x[y == k].std(axis=0) for k in (0, 1)]) / np.sqrt(200)
    # Of 600 replicates a deviation is known to 1 part in √1200.
    np.testing.assert_allclose(many.density.mean.std(axis=0), expected, rtol=4 / np.sqrt(1200))
    draw = jax.jit(lambda x, y: jg.bootstrap(key, jg.GaussianNB(), x, y, num_replicates=600, num_classes=2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), draw(x, y), many)


def test_a_class_that_a_resample_lacks_is_impossible_there():
    many = jg.bootstrap(jax.random.key(0), jg.GaussianNB(), X[:6], np.array([0, 0, 0, 0, 0, 1]), num_replicates=20)
    lacking = np.isneginf(many.log_prior[:, 1])
    assert 0 < lacking.sum() < 20
    assert np.isfinite(many.density.mean).all()


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_replicates": 0}, ValueError, "num_replicates must be at least 1; found 0"),
        ({"estimator": jg.LDA}, TypeError, "estimator must be one of jaxgen's"),
        ({"estimator": jg.LDA(ridge=-1.0)}, ValueError, "GDA.ridge must be finite and 0 or more"),
        ({"y": Y[:5]}, ValueError, "y must have one entry for each of the 120 rows"),
        ({"x": np.where(np.arange(N)[:, None] == 7, np.nan, X)}, ValueError, "found nan at row 7, column 0"),
        ({"sample_weight": np.zeros(N)}, ValueError, "the weights of all rows are zero"),
        ({"sample_weight": np.full(N, 1e-320)}, ValueError, "the weights of all rows are zero"),
        (
            {"estimator": jg.GaussianNB(ridge=0.0), "x": X[:6], "y": np.arange(6) % 2},
            ValueError,
            "resample [0-9]+: the covariance of class [01] is singular",
        ),
    ],
)
def test_what_the_bootstrap_refuses_and_why(changed, error, message):
    arguments = {"estimator": jg.LDA(), "x": X, "y": Y, "num_replicates": 20} | changed
    with pytest.raises(error, match=message):
        jg.bootstrap(jax.random.key(0), **arguments)


@pytest.mark.parametrize("estimator", [pytest.param(jg.LDA, marks=pytest.mark.thorough), jg.BernoulliNB])
def test_a_grid_under_jit_is_the_grid(estimator):
    x = (X > 0).astype(float)

    def loss(value):
        return jg.cross_validate(estimator(value), x, Y, folds=3).log_loss.mean()

    values = jnp.array([0.5, 2.0])
    grid, slopes = jax.jit(jax.vmap(jax.value_and_grad(loss)))(values)
    np.testing.assert_allclose(grid, [loss(float(value)) for value in values], rtol=1e-9)
    np.testing.assert_allclose(slopes, [(loss(v + 1e-5) - loss(v - 1e-5)) / 2e-5 for v in (0.5, 2.0)], rtol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [jg.LDA(), pytest.param(jg.BernoulliNB(), marks=pytest.mark.thorough), jg.LogisticRegression()],
    ids=str,
)
def test_a_row_of_weight_zero_may_hold_anything(estimator):
    weight = (np.arange(N) % 11 > 0).astype(float)
    x = (X > 1).astype(float) if isinstance(estimator, jg.BernoulliNB) else X
    spoilt = np.where(weight[:, None] > 0, x, np.nan)
    expected, found = (jg.cross_validate(estimator, each, Y, folds=4, sample_weight=weight) for each in (x, spoilt))
    np.testing.assert_allclose(found.log_loss, expected.log_loss, rtol=1e-9)
    np.testing.assert_array_equal(found.accuracy, expected.accuracy)
    alone = FOLD > 0
    of_none = jg.cross_validate(
        estimator, np.where(alone[:, None], x, np.nan), Y, folds=FOLD, sample_weight=alone.astype(float)
    )
    assert np.isnan(of_none.log_loss).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("estimator", [pytest.param(jg.GaussianNB, marks=pytest.mark.thorough), jg.LDA])
def test_what_an_absent_row_holds_reaches_no_derivative_where_rows_are_left_out(estimator):
    x, y, weight = X[:20].astype(np.float64), Y[:20], np.ones(20)
    weight[7] = 0.0

    def by_ridge(value):
        spoilt = x.copy()
        spoilt[7] = value

        def loss(ridge):
            judged = leave_one_out(estimator(ridge=ridge), spoilt, y, sample_weight=weight)
            return jnp.nansum(judged.log_loss)

        return jax.grad(loss)(0.1)

    np.testing.assert_allclose([by_ridge(np.nan), by_ridge(1e200)], by_ridge(0.0), rtol=1e-9)


@pytest.mark.parametrize("estimator", [jg.GaussianNB(), jg.LDA()])
def test_subtraction_at_a_large_mean_keeps_the_digits_of_both_limbs(estimator):
    x, y = np.float32(np.random.default_rng(0).normal(size=(300, 2)) + 1e5), np.arange(300) % 2
    part, rest = (estimator.statistics(x[some], y[some]) for some in (slice(200), slice(200, 300)))
    found = jg.subtract(jg.merge(part, rest), part)
    exact = np.stack([x[200:][y[200:] == k].mean(axis=0, dtype=np.float64) for k in (0, 1)])
    np.testing.assert_allclose(found.mean.exact(), exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("estimator", [jg.GaussianNB(), jg.QDA()])
def test_no_variance_turns_negative_where_one_row_remains(estimator):
    x, y = np.float32(np.random.default_rng(0).normal(size=(400, 3))), np.arange(400) % 100
    whole, part = (estimator.statistics(x[:n], y[:n], num_classes=100) for n in (400, 300))
    scatter = np.asarray(jg.subtract(whole, part).scatter)
    variance = scatter if scatter.ndim == 2 else np.diagonal(scatter, axis1=1, axis2=2)
    assert (variance >= 0).all()
