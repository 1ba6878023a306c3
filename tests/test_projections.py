"""Tables that sparse rows are multiplied by: of all columns at once, some at a time, and those alone that occur."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp, xlog1py, xlogy

import jaxgen as jg
from jaxgen import projections
from jaxgen.compressed import CompressedRows

CLASSES, WORDS, DOCUMENTS = 3, 2_000, 12
PIECE = 500 * CLASSES


@pytest.fixture(params=[10, 150, 1_000], ids=["few columns", "columns that occur", "all columns"])
def rows(request, monkeypatch):
    """Documents of which fewer than all words occur, for whose table there are several pieces."""
    monkeypatch.setattr(projections, "_PIECE", PIECE)
    monkeypatch.setattr(projections, "_WHOLE", PIECE)
    rng = np.random.default_rng(0)
    entries = request.param * DOCUMENTS // 2
    assert (entries < projections.ENTRIES_OF_A_COLUMN * WORDS) == (request.param < 1_000)
    x = np.zeros((DOCUMENTS, WORDS), np.float32)
    x[:-2].flat[rng.choice((DOCUMENTS - 2) * WORDS, entries, replace=False)] = rng.integers(1, 4, entries)
    x[0, 0] = 1  # a word that may be impossible
    return x  # the last two documents are empty


def probabilities(impossible):
    """Of each class and word; some of a word that occurs and of one that does not are 0, or 1 where that is asked."""
    p = np.random.default_rng(1).uniform(0.01, 0.3, (CLASSES, WORDS)).astype(np.float32).astype(float)
    if impossible:
        p[0, ::400], p[1, 7::500] = 0, 0
    return p


def bernoulli(impossible):
    p = probabilities(impossible)
    if impossible:
        p[2, 1_111] = 1  # so a document without that word is impossible for the class
    with np.errstate(divide="ignore"):
        density = jg.Bernoulli(*np.float32([np.log(p), np.log1p(-p)]), binarize=0.0)

    def log_likelihood(x):
        x = (x > 0)[:, None]
        return np.sum(np.where(x, xlogy(1.0, p), xlog1py(1.0, -p)), axis=-1)

    return density, log_likelihood


def multinomial(impossible):
    p = probabilities(impossible)
    p /= p.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        density = jg.Multinomial(np.float32(np.log(p)))

    def log_likelihood(x):
        x = x.astype(float)[:, None]
        return gammaln(x.sum(-1) + 1) - gammaln(x + 1).sum(-1) + xlogy(x, p).sum(-1)

    return density, log_likelihood


def poisson(impossible):
    p = probabilities(impossible)
    with np.errstate(divide="ignore"):
        density = jg.Poisson(np.float32(np.log(p)))
    return density, lambda x: stats.poisson.logpmf(x[:, None], p).sum(-1)


@pytest.mark.parametrize("impossible", [False, True], ids=["", "some impossible"])
@pytest.mark.parametrize("family", [bernoulli, multinomial, poisson])
def test_scores_of_sparse_rows_are_those_of_scipy(rows, family, impossible):
    density, oracle = family(impossible)
    prior = np.float32(np.log([0.5, 0.3, 0.2]))
    c = jg.Classifier(prior, density)
    expected = oracle(rows)
    assert np.isneginf(expected).any() == impossible
    found = np.asarray(jg.log_likelihood(c, sparse.csr_array(rows)))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with np.errstate(invalid="ignore"):
        joint = expected + prior
        posterior = joint - logsumexp(joint, axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(jg.log_posterior(c, sparse.csr_array(rows))), posterior, rtol=1e-5, atol=3e-4)


def test_a_word_that_no_row_has_may_be_certain_of_a_class(monkeypatch):
    monkeypatch.setattr(projections, "_PIECE", 60)
    monkeypatch.setattr(projections, "_WHOLE", 60)
    p = np.full((2, 200), 0.1)
    p[1, 150] = 1.0
    with np.errstate(divide="ignore"):
        c = jg.Classifier(np.zeros(2, np.float32), jg.Bernoulli(*np.float32([np.log(p), np.log1p(-p)])))
    x = np.zeros((3, 200), np.float32)
    x[0, 3] = 1
    found = np.asarray(jg.log_likelihood(c, sparse.csr_array(x)))
    np.testing.assert_allclose(found[:, 0], [199 * np.log(0.9) + np.log(0.1), *[200 * np.log(0.9)] * 2], rtol=1e-6)
    assert np.isneginf(found[:, 1]).all()


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_rows_without_an_entry(monkeypatch, kind):
    monkeypatch.setattr(projections, "_PIECE", PIECE)
    monkeypatch.setattr(projections, "_WHOLE", PIECE)
    density, oracle = bernoulli(impossible=False)
    nothing = np.zeros((2, WORDS), np.float32)
    found = jg.log_likelihood(jg.Classifier(np.zeros(CLASSES, np.float32), density), kind(nothing))
    np.testing.assert_allclose(np.asarray(found), oracle(nothing), rtol=1e-5)


def test_results_lie_where_the_classifier_does(run_script):
    code = """
import jax, jax.numpy as jnp, numpy as np, jaxgen as jg
from jaxgen import projections
from scipy import sparse
projections._PIECE = projections._WHOLE = 20
log_share = jnp.log(jnp.full((2, 50), 0.02))
c = jax.device_put(jg.Classifier(jnp.zeros(2), jg.Multinomial(log_share)), jax.devices()[1])
for x in (np.eye(3, 50), np.ones((3, 50))):
    for verb in (jg.log_likelihood, jg.log_posterior, jg.predict):
        result = verb(c, sparse.csr_array(x))
        print(result.devices() == {jax.devices()[1]}, result.committed)
"""
    assert run_script(code, optimised=False, cpus=2) == ["True True"] * 6


def test_a_float64_classifier_where_x64_is_off_again(rows):
    density, oracle = multinomial(impossible=False)
    with jax.enable_x64(True):
        c = jax.tree.map(lambda leaf: jnp.asarray(leaf, np.float64), jg.Classifier(np.zeros(CLASSES), density))
    with jax.enable_x64(False):
        for x in (rows, sparse.csr_array(rows)):
            np.testing.assert_allclose(np.asarray(jg.log_likelihood(c, x)), oracle(rows), rtol=1e-5)


def test_the_columns_that_occur():
    x = sparse.csr_array(([1.0, 2.0, 0.0], ([0, 0, 2], [7, 3, 3])), shape=(3, 9))
    np.testing.assert_array_equal(CompressedRows.of(x).occurring(), [3, 7])
    np.testing.assert_array_equal(CompressedRows.of(sparse.csr_array((3, 9))).occurring(), [0])


def test_a_column_outside_the_matrix_is_an_error(rows, monkeypatch):
    density, _ = bernoulli(impossible=False)
    x = sparse.csr_array(rows)
    x.indices = x.indices.copy()
    x.indices[5] = WORDS
    with pytest.raises(ValueError, match=r"x has column indices outside \[0, 2000\); found \d+ to 2000"):
        jg.log_posterior(jg.Classifier(np.zeros(CLASSES, np.float32), density), x)
