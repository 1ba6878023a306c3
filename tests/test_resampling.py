"""Cross-validation: every fold against a fit without it, and scikit-learn's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB, MultinomialNB

import jaxgen as jg

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
        (jg.LogisticRegression(l2=0.5), LogisticRegression(C=2.0, tol=1e-10, max_iter=1000), X),
    ],
)
def test_folds_are_scored_as_scikit_learn_scores_them(estimator, peer, x):
    ours = jg.cross_validate(estimator, x, Y, folds=FOLD)
    dense = x.toarray() if scipy.sparse.issparse(x) else x
    cuts = [(np.flatnonzero(FOLD != f), np.flatnonzero(FOLD == f)) for f in range(5)]
    np.testing.assert_allclose(ours.accuracy, cross_val_score(peer, dense, Y, cv=cuts), atol=1e-12)
    loss = cross_val_score(peer, dense, Y, cv=cuts, scoring="neg_log_loss")
    np.testing.assert_allclose(ours.log_loss, -loss, rtol=1e-6)


def test_weights_count_in_the_fit_and_in_the_judgement():
    weight, half = RNG.integers(0, 3, N), FOLD % 2
    ours = jg.cross_validate(jg.GaussianNB(), X, Y, folds=half, sample_weight=weight)
    twice = jg.cross_validate(
        jg.GaussianNB(), *(np.repeat(each, weight, axis=0) for each in (X, Y)), folds=np.repeat(half, weight)
    )
    np.testing.assert_allclose(ours.accuracy, twice.accuracy, rtol=1e-12)
    np.testing.assert_allclose(ours.log_loss, twice.log_loss, rtol=1e-9)


def test_a_number_of_folds_shares_every_class_out_and_reads_the_data_once(monkeypatch):
    few, calls, statistics = np.array([0] * 50 + [1] * 10), [], jg.GDA.statistics

    def spy(self, x, y, **keywords):
        calls.append(np.bincount(y, minlength=2).tolist())
        return statistics(self, x, y, **keywords)

    monkeypatch.setattr(jg.GDA, "statistics", spy)
    jg.cross_validate(jg.GaussianNB(), X[:60], few, folds=5)
    assert calls == [[10, 2]] * 5


def test_a_grid_of_hyperparameters_from_the_same_statistics():
    values = jnp.array([0.01, 1.0, 30.0])
    grid = jax.vmap(lambda alpha: jg.cross_validate(jg.MultinomialNB(alpha), WORDS, Y, folds=4).log_loss)(values)
    for value, row in zip(values, grid, strict=True):
        np.testing.assert_allclose(row, jg.cross_validate(jg.MultinomialNB(float(value)), WORDS, Y, folds=4).log_loss)
    slope = jax.grad(lambda a: jg.cross_validate(jg.MultinomialNB(a), WORDS, Y, folds=4).log_loss.mean())
    step = 1e-5
    high, low = (jg.cross_validate(jg.MultinomialNB(1 + s), WORDS, Y, folds=4).log_loss.mean() for s in (step, -step))
    np.testing.assert_allclose(slope(1.0), (high - low) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"folds": 1}, ValueError, "folds must be a whole number from 2 to the 120 rows"),
        ({"folds": 121}, ValueError, "found 121"),
        ({"folds": 2.0}, ValueError, "found 2.0"),
        ({"folds": np.zeros(N, int)}, ValueError, "two or more, each with a row; found 1"),
        ({"folds": 2 * (np.arange(N) % 2)}, ValueError, "fold 1 is empty"),
        ({"folds": np.arange(4)}, ValueError, r"folds must have shape \(120,\); found \(4,\)"),
        ({"sample_weight": np.full(N, -1.0)}, ValueError, "sample_weight must be finite and 0 or more"),
        ({"y": np.eye(3)[Y]}, ValueError, r"y must be labels of shape \(120,\)"),
        ({"x": np.where(np.arange(N)[:, None] == 7, np.nan, X)}, ValueError, "fold .*: x must hold finite numbers"),
    ],
)
def test_what_is_refused_and_why(keywords, error, message):
    arguments = {"x": X, "y": Y, "folds": 3} | keywords
    with pytest.raises(error, match=message):
        jg.cross_validate(jg.LDA(), **arguments)


def test_traced_rows_are_refused():
    with pytest.raises(TypeError, match="deals concrete rows out to folds"):
        jax.jit(lambda x: jg.cross_validate(jg.LDA(), x, Y))(X)
