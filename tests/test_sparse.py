"""Sparse rows: every container, every verb, and what they may hold."""

import contextlib
import dataclasses
import sys
from fractions import Fraction
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from conftest import of_a_cpu
from jax import export
from jax.experimental import sparse
from jax.test_util import check_grads

import jaxgen as jg
from jaxgen import class_parts, containers, platform, preparing, score_programs, threads
from jaxgen.class_sums import _Reader
from jaxgen.compressed import CompressedRows
from jaxgen.sparse import SparseRows

RNG = np.random.default_rng(0)
N, D, K = 60, 11, 3
COUNTS = RNG.poisson(0.5, (N, D)).astype(float)
COUNTS[[0, 7, -1]] = 0  # empty rows, at the ends too
Y = np.arange(N) % K
SOFT = RNG.random((N, K))
WEIGHT = RNG.integers(0, 3, N).astype(float)
VERBS = [jg.log_likelihood, jg.log_joint, jg.log_posterior, jg.log_evidence, jg.predict]


@pytest.fixture
def in_pieces_of():
    """Concrete sparse rows are read so many entries at a time."""
    with contextlib.ExitStack() as until_the_end:
        yield lambda entries: until_the_end.enter_context(
            platform.override(dataclasses.replace(platform.CPU, entries=entries))
        )


@pytest.fixture
def place(request):
    if request.param == "an accelerator":
        request.getfixturevalue("as_on_an_accelerator")
    return request.param


@pytest.fixture(params=[False, True], ids=["where they lie", "class by class"])
def each_way(request, monkeypatch):
    """Rows are read where they lie, as few cells allow; or put side by side class by class, as others need."""
    if request.param:
        monkeypatch.setattr(class_parts, "_FEW_CELLS", 0)
        monkeypatch.setattr(class_parts, "_MOST_CELLS", 0)
        monkeypatch.setattr(class_parts, "_FEW_ENTRIES", 0)


def unsorted_coo(x):
    """Duplicates that sum to x, explicit zeros, in no order."""
    rows, columns = np.nonzero(np.ones_like(x))
    rows, columns = np.tile(rows, 2), np.tile(columns, 2)
    values = np.concatenate([x.ravel(), np.zeros(x.size)])
    order = np.random.default_rng(1).permutation(len(rows))
    return scipy.sparse.coo_array((values[order], (rows[order], columns[order])), shape=x.shape)


def duplicated_csr(x):
    coo = unsorted_coo(x)
    order = np.argsort(coo.row, kind="stable")
    starts = np.searchsorted(coo.row[order], np.arange(len(x) + 1))
    return scipy.sparse.csr_array((coo.data[order], coo.col[order], starts), shape=x.shape)


def padded_bcoo(x):
    return sparse.BCOO.fromdense(x, nse=x.size + 5)


def shuffled_bcoo(x):
    coo = unsorted_coo(x)
    return sparse.BCOO((jnp.asarray(coo.data), jnp.stack([coo.row, coo.col], 1)), shape=x.shape)


CONTAINERS = {
    "csr": scipy.sparse.csr_matrix,
    "csc": scipy.sparse.csc_array,
    "lil": scipy.sparse.lil_matrix,
    "coo with duplicates": unsorted_coo,
    "csr with duplicates": duplicated_csr,
    "bcoo": sparse.BCOO.fromdense,
    "bcoo with padding": padded_bcoo,
    "bcoo with duplicates": shuffled_bcoo,
    "bcsr": lambda x: sparse.BCSR.fromdense(x, nse=x.size + 3),
    "padded rows": lambda x: jg.pad_rows(scipy.sparse.csr_array(x)),
}
FAMILIES = {
    "multinomial": (jg.MultinomialNB(), COUNTS),
    "Bernoulli": (jg.BernoulliNB(), (COUNTS > 0).astype(float)),
    "binarised": (jg.BernoulliNB(binarize=1.0), COUNTS),
    "multinomial MLE": (jg.MultinomialNB(alpha=0.0), COUNTS),
    "Bernoulli MLE": (jg.BernoulliNB(alpha=0.0), (COUNTS > 0).astype(float)),
}
# Families side by side, of which some take sparse rows.
MIXED = jg.MixedNB(
    (
        (jg.MultinomialNB(), (8, 1, 2, 3)),
        (jg.GaussianNB(), (0,)),
        (jg.BernoulliNB(binarize=1.0), (4, 10)),
        (jg.CategoricalNB(6), (7,)),
        (jg.PoissonNB(), (5, 6, 9)),
    )
)
MIXTURE = np.where(np.arange(D) == 0, COUNTS - 0.75 * (COUNTS == 1), COUNTS)
each_platform = pytest.mark.parametrize("place", ["here", "an accelerator"], indirect=True)
each_container = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS.keys())
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def close(a, b, tolerance=1e-10):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)


@each_container
@pytest.mark.parametrize("family", [pytest.param("multinomial", marks=pytest.mark.thorough), "Bernoulli MLE"])
def test_sparse_equals_dense(container, family):
    estimator, x = FAMILIES[family]
    dense = jg.fit(estimator, x, Y)
    close(jg.fit(estimator, container(x), Y), dense)
    for verb in VERBS:
        close(verb(dense, container(x)), verb(dense, x))


@each_family
@pytest.mark.parametrize(("labels", "weight"), [(Y, WEIGHT), (SOFT, None), (SOFT, WEIGHT)])
def test_weights_and_soft_labels(family, labels, weight):
    estimator, x = family
    for container in (scipy.sparse.csr_array, padded_bcoo):
        c = jg.fit(estimator, container(x), labels, num_classes=K, sample_weight=weight)
        close(c, jg.fit(estimator, x, labels, num_classes=K, sample_weight=weight))


@pytest.mark.parametrize(
    "container", ["csr", "bcoo with duplicates", pytest.param("padded rows", marks=pytest.mark.thorough)]
)
def test_families_side_by_side(container):
    rows, dense = CONTAINERS[container](MIXTURE), jg.fit(MIXED, MIXTURE, Y)
    close(jg.fit(MIXED, rows, Y), dense)
    for labels, weight in ((Y, WEIGHT), (SOFT, WEIGHT)):
        options = {"sample_weight": weight, "num_classes": K}
        close(jg.fit(MIXED, rows, labels, **options), jg.fit(MIXED, MIXTURE, labels, **options))
    for verb in VERBS:
        close(verb(dense, rows), verb(dense, MIXTURE))
    close(jg.log_posterior(dense, rows[:7] if container == "csr" else rows)[:7], jg.log_posterior(dense, MIXTURE[:7]))


@pytest.mark.usefixtures("as_on_an_accelerator")
def test_families_side_by_side_on_an_accelerator():
    rows, dense = padded_bcoo(MIXTURE), jg.fit(MIXED, MIXTURE, Y)
    close(jg.fit(MIXED, rows, Y), dense)
    close(jg.log_likelihood(dense, rows), jg.log_likelihood(dense, MIXTURE))
    close(jg.log_posterior(dense, scipy.sparse.csr_array(MIXTURE)), jg.log_posterior(dense, MIXTURE))


def test_families_side_by_side_under_jit_and_their_gradients():
    weight = RNG.normal(size=(N, K))

    def loss(rows, labels):
        c = jg.fit(MIXED, rows, labels)
        return jnp.sum(weight * jg.log_posterior(c, rows))

    def of_entries(values, labels):
        return loss(sparse.BCOO((values, x.indices), shape=x.shape), labels)

    x = sparse.BCOO.fromdense(MIXTURE)
    value, (by_values, by_labels) = jax.jit(jax.value_and_grad(of_entries, argnums=(0, 1)))(x.data, SOFT)
    expected, (by_x, by_responsibilities) = jax.value_and_grad(loss, argnums=(0, 1))(jnp.asarray(MIXTURE), SOFT)
    close((value, by_labels), (expected, by_responsibilities))
    close(by_values, by_x[tuple(x.indices.T)])


@pytest.mark.thorough
def test_families_side_by_side_without_a_row_whose_square_overflows():
    x, weight = MIXTURE.copy(), np.arange(N) != 4
    x[4, 0] = 1e200
    expected = jg.fit(MIXED, MIXTURE, Y, sample_weight=weight)
    for container in (scipy.sparse.csr_array, padded_bcoo, CONTAINERS["padded rows"]):
        close(jg.fit(MIXED, container(x), Y, sample_weight=weight), expected)
    jitted = jax.jit(lambda x: jg.fit(MIXED, x, Y, num_classes=K, sample_weight=weight))
    close(jitted(padded_bcoo(x)), expected)
    with pytest.raises(ValueError, match=r"every value is: the largest is 1e\+200"):
        jg.fit(MIXED, padded_bcoo(x), Y)


def test_columns_of_many_words_are_written_down_in_few():
    wide = jg.MixedNB(((jg.GaussianNB(), (0, 2)), (jg.MultinomialNB(), [1, *range(3, 5_000)])))
    assert repr(wide).endswith("(MultinomialNB(prior_alpha=0.0, alpha=1.0), (1, 3, …, 4999))))")
    other = jg.MixedNB(((jg.GaussianNB(), (0, 2)), (jg.MultinomialNB(), [1, *range(3, 5_000)])))
    assert (wide, hash(wide.columns)) == (other, hash(((0, 2), (1, *range(3, 5_000)))))
    with pytest.raises(ValueError, match="found columns 0, 2; columns 1, 3 – 4998, 5000"):
        jg.MixedNB(((jg.GaussianNB(), (0, 2)), (jg.MultinomialNB(), [1, *range(3, 4_999), 5_000])))
    with pytest.raises(TypeError, match=r"MixedNB takes pairs .{,300}$"):
        jg.MixedNB(((jg.GaussianNB(), (0.5, *range(5_000))),))
    density = jg.Poisson(jnp.zeros((2, 5_000)))
    with pytest.raises(ValueError, match=r"must have 4999 features, .{,150}; found 5000"):
        jg.predict(jg.Classifier(jnp.zeros(2), jg.Mixed((density,), (tuple(range(4_999)),))), np.zeros((1, 4_999)))


def test_one_row_after_the_other_is_scored_by_families_that_are_prepared_once(monkeypatch):
    c, rows, prepared = jg.fit(MIXED, MIXTURE, Y), scipy.sparse.csr_array(MIXTURE), []
    form = preparing._form
    monkeypatch.setattr(preparing, "_form", lambda c, **how: prepared.append(c) or form(c, **how))
    posterior = jnp.concatenate([jg.log_posterior(c, rows[[i]]) for i in range(5)])
    assert [each.density.columns for each in prepared] == [((0,), (1,))]  # of those whose columns are made dense
    close(posterior, jg.log_posterior(c, MIXTURE[:5]))


@pytest.mark.thorough
def test_families_side_by_side_in_folds_resamples_and_unlabelled():
    rows, partly = scipy.sparse.csr_array(MIXTURE), np.where(np.arange(N) % 3, Y, -1)
    close(jg.cross_validate(MIXED, rows, Y, folds=4), jg.cross_validate(MIXED, MIXTURE, Y, folds=4))
    options = {"start": "random", "key": jax.random.key(0), "max_steps": 3, "tolerance": 0.0}
    close(jg.train_em(MIXED, rows, partly, **options), jg.train_em(MIXED, MIXTURE, partly, **options))
    resamples = [jg.bootstrap(jax.random.key(1), MIXED, x, Y, num_replicates=3) for x in (rows, MIXTURE)]
    close(*resamples)
    whole = MIXED.statistics(rows, Y)
    close(jg.merge(MIXED.statistics(rows[:20], Y[:20], num_classes=K), MIXED.statistics(rows[20:], Y[20:])), whole)
    with pytest.raises(TypeError, match="x must be dense for this model"):
        jg.fit(jg.MixedNB(((jg.GaussianNB(), range(D)),)), rows, Y)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        (0, np.nan, r"finite numbers in column 0; found nan at row 5, column 0"),
        (1, -1.0, r"finite counts, 0 or more in columns 8, 1 – 3; found -1\.0 at row 5, column 1"),
        (7, 6.0, r"categories .* in column 7; found 6\.0 at row 5, column 7"),
    ],
)
def test_a_bad_value_is_one_of_its_own_column(column, value, expected):
    c, x = jg.fit(MIXED, MIXTURE, Y), MIXTURE.copy()
    x[5, column] = value
    for container in (np.asarray, scipy.sparse.csr_array):
        with pytest.raises(ValueError, match=expected):
            jg.fit(MIXED, container(x), Y)
        with pytest.raises(ValueError, match=expected):
            jg.log_posterior(c, container(x))
    present = np.where(np.arange(N) == 5, 0.0, 1.0)
    close(
        jg.fit(MIXED, sparse.BCOO.fromdense(x), Y, sample_weight=present),
        jg.fit(MIXED, MIXTURE, Y, sample_weight=present),
    )
    scores = jax.jit(jg.log_posterior)(c, sparse.BCOO.fromdense(x))
    np.testing.assert_array_equal(np.isnan(scores).all(axis=1), np.arange(N) == 5)
    fitted = jax.jit(lambda x: jg.fit(MIXED, x, Y, num_classes=K))(sparse.BCOO.fromdense(x))
    assert np.isnan(fitted.log_prior).all()


@pytest.mark.parametrize("make", [padded_bcoo, CONTAINERS["bcsr"], CONTAINERS["padded rows"]])
@pytest.mark.parametrize("family", ["multinomial", pytest.param("binarised", marks=pytest.mark.thorough)])
def test_under_jit(make, family):
    estimator, x = FAMILIES[family]

    @jax.jit
    def program(x, y):
        c = jg.fit(estimator, x, y, num_classes=K)
        return jg.log_likelihood(c, x), jg.log_posterior(c, x)

    close(program(make(x), Y), program(x, Y))


@pytest.mark.parametrize("make", [sparse.BCOO.fromdense, pytest.param(CONTAINERS["bcsr"], marks=pytest.mark.thorough)])
def test_gradients_to_the_values_and_to_the_classifier(make):
    x = make(COUNTS[:8])
    c = jg.fit(jg.MultinomialNB(), COUNTS, Y)

    @jax.jit
    def through_scores(c, values):
        rows = type(x)(
            (values, *((x.indices,) if isinstance(x, sparse.BCOO) else (x.indices, x.indptr))), shape=x.shape
        )
        return jnp.sum(jnp.sin(jg.log_posterior(c, rows)))

    def through_a_fit(values):
        rows = type(x)(
            (values, *((x.indices,) if isinstance(x, sparse.BCOO) else (x.indices, x.indptr))), shape=x.shape
        )
        return jnp.sum(jg.log_posterior(jg.fit(jg.MultinomialNB(), rows, Y[:8], num_classes=K), COUNTS))

    check_grads(through_scores, (c, x.data), order=1, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)
    check_grads(jax.jit(through_a_fit), (x.data,), order=1, modes=("rev",), rtol=1e-4, atol=1e-4)
    dense = jax.grad(lambda c: jnp.sum(jnp.sin(jg.log_posterior(c, COUNTS[:8]))))(c)
    close(jax.grad(through_scores)(c, x.data), dense)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("num_classes", [2, 12])  # few and many: entries are read one by one, and in groups
def test_many_chunks_equal_one(in_pieces_of, num_classes):
    in_pieces_of(64)
    x, y = COUNTS, np.arange(N) % num_classes
    for family in ("multinomial", "Bernoulli"):
        estimator, x = FAMILIES[family]
        rows = scipy.sparse.csr_array(x)
        dense = jg.fit(estimator, x, y)
        close(jg.fit(estimator, rows, y), dense)
        for verb in VERBS:
            close(verb(dense, rows), verb(dense, x))


@pytest.mark.usefixtures("each_way")
def test_long_and_empty_rows_in_one_matrix(in_pieces_of):
    in_pieces_of(16)
    x = np.zeros((200, 40))
    x[3] = 1.0
    x[150, ::2] = 2.0
    rows, y = scipy.sparse.csr_array(x), np.arange(200) % 9
    c = jg.fit(jg.MultinomialNB(), x, y)
    close(jg.fit(jg.MultinomialNB(), rows, y), c)
    close(jg.log_likelihood(c, rows), jg.log_likelihood(c, x))
    empty = scipy.sparse.csr_array((5, 40))
    close(jg.log_posterior(c, empty), jg.log_posterior(c, np.zeros((5, 40))))
    close(
        jg.fit(jg.BernoulliNB(), empty, np.array([0, 1, 1, 0, 1])),
        jg.fit(jg.BernoulliNB(), np.zeros((5, 40)), np.array([0, 1, 1, 0, 1])),
    )


@pytest.mark.usefixtures("each_way")
def test_statistics_are_arrays_of_jax():
    statistics = jg.MultinomialNB().statistics(scipy.sparse.csr_array(COUNTS), Y)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(statistics))
    expected = np.stack([COUNTS[Y == k].sum(axis=0) for k in range(K)])
    np.testing.assert_array_equal(statistics.feature_sum.high, expected)


def test_counts_past_two_to_the_24_are_exact_in_float32():
    """A hot word: 2^20 documents that hold it 33 times."""
    n = 2**20
    x = scipy.sparse.csr_array((np.full(n, 33, np.float32), np.zeros(n, np.int32), np.arange(n + 1)), shape=(n, 2))
    statistics = jg.MultinomialNB().statistics(x, np.zeros(n, int), num_classes=1)
    assert statistics.feature_sum.exact()[0, 0] == 33 * n
    assert statistics.class_weight.exact()[0] == n


@pytest.mark.usefixtures("each_way")
def test_sums_of_fractions_do_not_drift_in_float32():
    n = 2**18
    value = np.float32(0.37)
    x = scipy.sparse.csr_array((np.full(n, value), np.zeros(n, np.int32), np.arange(n + 1)), shape=(n, 1))
    total = jg.MultinomialNB().statistics(x, np.zeros(n, int), num_classes=1).feature_sum.exact()[0, 0]
    assert abs(total / float(Fraction(float(value)) * n) - 1) < 1e-6


@each_platform
@pytest.mark.parametrize(("dtype", "n"), [(np.int8, 128), (np.uint8, 256), (np.uint8, 300), (np.int16, 2**15)])
def test_indices_of_a_dtype_that_does_not_hold_the_shape(place, dtype, n):
    rows = np.arange(min(n, np.iinfo(dtype).max + 1))
    indices = jnp.asarray(np.stack([rows, rows % 3], 1).astype(dtype))
    x, y = sparse.BCOO((jnp.ones(len(rows)), indices), shape=(n, 3)), np.arange(n) % 2
    expected = np.zeros((2, 3))
    np.add.at(expected, (rows % 2, rows % 3), 1)
    of = partial(jg.MultinomialNB().statistics, y=y, num_classes=2)
    for found in (of(x), jax.jit(of)(x)):
        np.testing.assert_array_equal(found.feature_sum.value, expected)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_fractions_under_jit_leave_nothing_of_a_word_that_is_in_all_documents(alpha):
    n, weight = 20_000, np.float32(0.9)
    x = sparse.BCOO.fromdense(np.ones((n, 1), np.float32))
    fit = partial(jg.fit, jg.BernoulliNB(alpha=np.float32(alpha)), y=np.arange(n) % 2, num_classes=2)
    c = jax.jit(lambda x: fit(x, sample_weight=np.full(n, weight)))(x)
    expected = np.log(alpha / (n / 2 * float(weight) + 2 * alpha)) if alpha else -np.inf
    np.testing.assert_allclose(c.density.log_absent[:, 0], expected, rtol=1e-6)


def test_tiny_fractions_under_jit_keep_their_digits():
    values = np.random.default_rng(0).random((20_000, 1)).astype(np.float32) * np.float32(1e-35)
    x, y = sparse.BCOO.fromdense(values), np.zeros(20_000, int)
    total = jax.jit(lambda x: jg.MultinomialNB().statistics(x, y, num_classes=1))(x).feature_sum.exact()
    np.testing.assert_allclose(total, [values.sum(axis=0, dtype=float)], rtol=2e-6)


@pytest.mark.parametrize("weight", [None, 0.1])
def test_sums_of_fractions_under_jit_do_not_drift_in_float32(weight):
    n, value = 2**18, np.float32(0.37)
    x = sparse.BCOO((jnp.full(n, value), jnp.stack([jnp.arange(n), jnp.zeros(n, int)], 1)), shape=(n, 1))
    y, weight = np.zeros(n, int), None if weight is None else np.full(n, weight, np.float32)
    counts = jax.jit(lambda x: jg.MultinomialNB().statistics(x, y, num_classes=1, sample_weight=weight))(x)
    each = np.float32(1) if weight is None else weight[0]
    assert abs(counts.feature_sum.exact()[0, 0] / (float(value * each) * n) - 1) < 1e-7


def test_more_rows_than_a_float_counts_are_counted_under_jit():
    n = 2**24 + 5
    x = sparse.BCOO((jnp.ones(1, jnp.float32), jnp.zeros((1, 2), int)), shape=(n, 1))
    y = jnp.zeros(n, jnp.int32)
    counts = jax.jit(lambda x: jg.MultinomialNB().statistics(x, y, num_classes=1))(x)
    assert counts.class_weight.exact()[0] == n


@pytest.mark.usefixtures("each_way")
def test_narrow_and_wide_dtypes():
    for dtype in (bool, np.uint8, np.int64, np.float32):
        x = scipy.sparse.csr_array((COUNTS > 0).astype(dtype))
        close(jg.fit(jg.BernoulliNB(), x, Y), jg.fit(jg.BernoulliNB(), (COUNTS > 0).astype(dtype), Y), 1e-6)


def test_absent_rows_may_hold_anything():
    x = COUNTS.copy()
    x[WEIGHT == 0, 0] = np.nan
    estimator = jg.MultinomialNB()
    expected = jg.fit(estimator, COUNTS, Y, sample_weight=WEIGHT)
    close(jg.fit(estimator, scipy.sparse.csr_array(x), Y, sample_weight=WEIGHT), expected)
    with pytest.raises(ValueError, match="finite counts, 0 or more; found nan at row"):
        jg.fit(estimator, scipy.sparse.csr_array(x), Y)
    soft = np.where(WEIGHT[:, None] > 0, SOFT, np.nan)
    expected = jg.fit(estimator, COUNTS, SOFT, sample_weight=WEIGHT)
    close(jg.fit(estimator, scipy.sparse.csr_array(x), soft, sample_weight=WEIGHT), expected)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("labels", [Y % 2, SOFT, np.eye(K)[Y]], ids=["two classes", "soft", "one-hot"])
def test_rows_read_where_they_lie_are_summed_as_numpy_sums_them(labels, in_pieces_of, monkeypatch):
    """Most rows are of most classes, but for one-hot responsibilities; whole numbers past 2^24, and fractions."""
    in_pieces_of(64)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    responsibilities = labels if labels.ndim == 2 else np.eye(2)[labels]
    for scale in (1, 2**24 + 1, 0.1):
        x = COUNTS * scale
        counts = jg.PoissonNB().statistics(scipy.sparse.csr_array(x.astype(np.float32)), labels)
        expected = responsibilities.T @ x.astype(np.float32).astype(np.float64)
        np.testing.assert_allclose(counts.feature_sum.exact(), expected, rtol=1e-14)
        np.testing.assert_allclose(counts.class_weight.exact(), responsibilities.sum(axis=0), rtol=1e-14)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("labels", [np.zeros(64, int), np.arange(64) // 32, np.arange(64) % 4], ids=["1", "2", "4"])
def test_small_sums_that_are_large_together_are_exact(labels, in_pieces_of, monkeypatch):
    """Every piece is below 2^24, what they add up to is not: the second limbs of all parts count."""
    in_pieces_of(8)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    x = np.tile(np.float32([4e6, 1.0]), (64, 1))
    x[::5, 0] += 1
    counts = jg.PoissonNB().statistics(scipy.sparse.csr_array(x), labels)
    expected = [x[labels == k].astype(np.float64).sum(axis=0) for k in range(labels.max() + 1)]
    np.testing.assert_array_equal(counts.feature_sum.exact(), expected)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("public", [False, True], ids=["adds where the total lies", "public functions of scipy alone"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_stretches_are_added_to_one_total(num_classes, public, in_pieces_of, monkeypatch):
    """Rows without entries among them, and a sum that float32 holds for the first stretches and not for the last."""
    in_pieces_of(16)
    monkeypatch.setattr(threads, "cores", lambda: 1)
    if public:
        monkeypatch.setitem(sys.modules, "scipy.sparse._sparsetools", None)
    x, y = np.float32(np.random.default_rng(5).poisson(0.5, (200, 9))), np.arange(200) % num_classes
    x[50:120] = 0
    for largest in (1.0, 2.0**18, 2.0**23 + 1):
        x[-50:, 3] = largest
        expected = np.eye(num_classes)[y].T @ x.astype(np.float64)
        sums = jg.PoissonNB().statistics(scipy.sparse.csr_array(x), y).feature_sum
        np.testing.assert_array_equal(sums.exact(), expected)
        assert np.any(sums.low) == (largest > 2.0**18)


def test_places_of_rows_without_a_sign_do_not_wrap():
    x = scipy.sparse.csr_array(COUNTS)
    x.indptr = x.indptr.astype(np.uint32)
    padded, same = jg.pad_rows(x), jg.pad_rows(scipy.sparse.csr_array(COUNTS))
    jax.tree.map(np.testing.assert_array_equal, padded, same)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("step", [1.0, 2.0**-3, 2.0**-7, 2.0**-20, 2.0**-140], ids=lambda s: f"2^{np.log2(s):.0f}")
def test_sums_of_binary_fractions_keep_every_digit(step, num_classes, in_pieces_of, monkeypatch):
    """Sums by float32 where that is exact, in whatever pieces: of terms that no float32 could all hold, too."""
    in_pieces_of(32)
    monkeypatch.setattr(threads, "cores", lambda: 2)
    rng = np.random.default_rng(4)
    whole = rng.integers(0, [4, 2**10, 2**23], (200, 3))
    whole[::7] = 0  # an explicit zero is less than any step
    x = scipy.sparse.csr_array(np.ones((200, 3), np.float32))
    x.data[:] = (whole * step).ravel()
    y = np.arange(200) % num_classes
    found = jg.PoissonNB().statistics(x, y).feature_sum.exact()
    np.testing.assert_array_equal(found / step, [whole[y == k].sum(axis=0) for k in range(num_classes)])


@of_a_cpu
@pytest.mark.parametrize(
    ("largest", "last", "once"), [(200, 1.0, True), (200, 0.5, False), (1_000, 1.0, True), (1_000, 0.25, False)]
)
def test_whole_counts_are_read_once_while_float32_holds_their_sums(largest, last, once, in_pieces_of, monkeypatch):
    """The bits of 1 to 200 together look like multiples of 1/64, and those sums are held up to 2^18 alone."""
    in_pieces_of(64)
    monkeypatch.setattr(threads, "cores", lambda: 1)
    forms, add_up = [], _Reader._add_up

    def spy(self, part, form):
        forms.append(form)
        return add_up(self, part, form)

    monkeypatch.setattr(_Reader, "_add_up", spy)
    x = np.float32(np.random.default_rng(0).integers(1, largest, (4_000, 2)))
    x[-1, 1] = last
    with jax.enable_x64(False):
        total = jg.MultinomialNB().statistics(scipy.sparse.csr_array(x), np.zeros(4_000, int)).feature_sum
    np.testing.assert_array_equal(total.exact(), x.astype(np.float64).sum(axis=0, keepdims=True))
    assert forms == [np.float32] + [np.float64] * (not once)


def test_sums_that_overflow():
    huge = scipy.sparse.csr_array(np.full((4, 2), 2e38, np.float32))
    with pytest.raises(ValueError, match="the statistics of x are not finite, though every"):
        jg.fit(jg.MultinomialNB(), huge, np.zeros(4, int))


def test_hyperparameters_are_differentiated_through_a_fit_of_a_concrete_matrix():
    def loss(alpha, x):
        c = jg.fit(jg.MultinomialNB(alpha=alpha), x, Y)
        return jnp.sum(jnp.sin(jg.log_posterior(c, x)))

    sparse_gradient = jax.grad(loss)(0.7, scipy.sparse.csr_array(COUNTS))
    close(sparse_gradient, jax.grad(loss)(0.7, COUNTS))


@pytest.mark.usefixtures("each_way")
def test_unbalanced_classes_are_dealt_out(in_pieces_of):
    """One class holds most rows: its parts are added up by several threads."""
    in_pieces_of(8)
    y = np.where(np.arange(N) % 10 == 0, 2, 0)  # and class 1 has none
    for labels, weight in ((y, None), (y, WEIGHT)):
        c = jg.fit(jg.MultinomialNB(), scipy.sparse.csr_array(COUNTS), labels, num_classes=3, sample_weight=weight)
        close(c, jg.fit(jg.MultinomialNB(), COUNTS, labels, num_classes=3, sample_weight=weight))


def test_bad_values_at_scoring():
    c = jg.fit(jg.MultinomialNB(), COUNTS, Y)
    x = COUNTS.copy()
    x[4, 2] = -1
    with pytest.raises(ValueError, match=r"found -1\.0 at row 4, column 2"):
        jg.log_posterior(c, scipy.sparse.csr_array(x))
    scores = jax.jit(jg.log_posterior)(c, sparse.BCOO.fromdense(x))
    np.testing.assert_array_equal(np.isnan(scores).all(axis=1), np.arange(N) == 4)
    with pytest.raises(ValueError, match=r"x must have shape \(11,\) or \(n, 11\)"):
        jg.predict(c, scipy.sparse.csr_array(COUNTS[:, :5]))
    with pytest.raises(TypeError, match="x must be dense for this model"):
        jg.predict(jg.fit(jg.LDA(), COUNTS, Y), scipy.sparse.csr_array(COUNTS))


def test_sums_of_fractions_that_look_whole_do_not_drift():
    """Above 2^23 every float32 is a whole number, and so is the sum of fractions that was rounded to one."""
    x = scipy.sparse.csr_array(np.full((2**19, 1), 25.4, np.float32))
    total = jg.PoissonNB().statistics(x, np.zeros(2**19, int)).feature_sum.exact()
    np.testing.assert_allclose(total, [[2**19 * np.float64(np.float32(25.4))]], rtol=1e-12)


@pytest.mark.parametrize("starts", [[0, 5, 2, 6], [1, 2, 3, 6], [0, 2, 4, 7]])
def test_places_of_rows_outside_the_entries(starts):
    bad = scipy.sparse.csr_array(np.tril(np.ones((3, 3))))
    bad.indptr[:] = starts
    with pytest.raises(ValueError, match=r"x\.indptr must rise from 0 to at most the 6 entries"):
        jg.fit(jg.MultinomialNB(), bad, np.arange(3))


def test_class_weights_that_overflow():
    x = scipy.sparse.csr_array((4, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="the statistics of x are not finite"):
        jg.fit(jg.PoissonNB(), x, np.arange(4) % 2, sample_weight=np.full(4, 1e300))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.uint64])
def test_labels_of_any_dtype(dtype):
    y = np.arange(N) % 2
    c = jg.fit(jg.MultinomialNB(), scipy.sparse.csr_array(COUNTS), y.astype(dtype))
    close(c, jg.fit(jg.MultinomialNB(), COUNTS, y))


def test_indices_outside_the_matrix():
    bad = scipy.sparse.csr_array(COUNTS)
    bad.indices[3] = 99
    with pytest.raises(ValueError, match=r"column indices outside \[0, 11\); found 0 to 99"):
        jg.fit(jg.MultinomialNB(), bad, Y)


def test_a_table_that_outgrows_its_indices():
    x = sparse.BCOO((jnp.ones(1), jnp.zeros((1, 2), int)), shape=(1, 2**29))
    with pytest.raises(ValueError, match=r"fewer than 2\^31 under a trace; found K = 3 classes and d = 536870912"):
        jax.eval_shape(lambda x: jg.fit(jg.MultinomialNB(), x, np.zeros(1, int), num_classes=3), x)


def test_the_users_matrix_is_left_alone():
    x = duplicated_csr(COUNTS)
    before = x.data.copy(), x.indices.copy(), x.indptr.copy()
    jg.fit(jg.MultinomialNB(), x, Y)
    for now, then in zip((x.data, x.indices, x.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_linear_classifiers_take_sparse_rows():
    c = jg.to_linear(jg.fit(jg.BernoulliNB(), (COUNTS > 0).astype(float), Y))
    x = (COUNTS > 0).astype(float)
    close(jg.log_posterior(c, scipy.sparse.csr_array(x)), jg.log_posterior(c, x))


@each_platform
def test_a_second_call_with_about_as_many_nonzeros_compiles_nothing(place):
    x = scipy.sparse.csr_array(COUNTS)
    fewer = x.copy()
    fewer.data[0] = 0
    fewer.eliminate_zeros()
    c = jg.fit(jg.MultinomialNB(), x, Y)
    jg.log_posterior(c, x)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    jg.log_posterior(jg.fit(jg.MultinomialNB(), fewer, Y), fewer)
    assert not compiled
    jax.jit(lambda x: x + 1)(1.0)
    assert compiled  # so it would have been heard


@pytest.mark.usefixtures("each_way")
def test_sums_that_overflow_only_when_parts_are_added_are_refused(in_pieces_of):
    in_pieces_of(8)
    rows = scipy.sparse.csr_array(np.full((64, 1), 2e37, np.float32))  # any four add up, and all do not
    with pytest.raises(ValueError, match="overflows"):
        jg.fit(jg.MultinomialNB(), rows, np.zeros(64, int), num_classes=1)


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("container", ["csr with duplicates", "bcoo with padding", "bcoo with duplicates", "bcsr"])
@pytest.mark.parametrize("family", ["multinomial", pytest.param("Bernoulli MLE", marks=pytest.mark.thorough)])
def test_the_accelerators_choices_give_the_same(container, family):
    estimator, x = FAMILIES[family]
    rows = CONTAINERS[container](x)
    dense = jg.fit(estimator, x, Y)
    close(jg.fit(estimator, rows, Y, sample_weight=WEIGHT), jg.fit(estimator, x, Y, sample_weight=WEIGHT))
    for verb in VERBS:
        close(verb(dense, rows), verb(dense, x))
    close(jg.log_posterior(dense, jg.pad_rows(rows)), jg.log_posterior(dense, x))


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("container", ["bcoo", "bcoo with padding", "bcsr", "bcoo with duplicates"])
def test_on_an_accelerator_a_matrix_of_jax_stays_where_it_is(container):
    rows = containers.as_sparse(CONTAINERS[container](COUNTS))
    assert isinstance(rows, SparseRows)
    assert rows.unique == (container != "bcoo with duplicates")


@pytest.mark.usefixtures("as_on_an_accelerator")
@pytest.mark.parametrize("kind", ["bcoo", "bcsr"])
@pytest.mark.parametrize("place", [-1, 12])
def test_on_an_accelerator_entries_outside_of_a_matrix_of_jax_are_refused(kind, place):
    x = CONTAINERS[kind](COUNTS)
    indices = x.indices.at[(3, 1) if kind == "bcoo" else 3].set(place)
    starts = (x.indptr,) if kind == "bcsr" else ()
    x = type(x)((x.data, indices, *starts), shape=x.shape)
    with pytest.raises(ValueError, match=r"column indices outside \[0, 11\)"):
        jg.fit(jg.MultinomialNB(), x, Y)


@pytest.mark.every_platform
@pytest.mark.parametrize("make", [sparse.BCOO.fromdense, CONTAINERS["bcsr"], CONTAINERS["padded rows"]])
def test_sparse_programs_lower_for_every_platform(make):
    x = make(COUNTS)
    c = jg.fit(jg.BernoulliNB(binarize=0.0), COUNTS, Y)
    leaves, tree = jax.tree.flatten(x)
    repeated = jg.PoissonNB().statistics(COUNTS, Y), jg.MultinomialNB().statistics(COUNTS, Y)
    predictives = [jg.predictive(*pair) for pair in zip((jg.PoissonNB(), jg.MultinomialNB()), repeated, strict=True)]
    side_by_side = jg.MixedNB(((jg.GaussianNB(), range(2)), (jg.MultinomialNB(), range(2, D))))
    for program in (
        lambda leaves, c: jg.fit(jg.BernoulliNB(binarize=0.0), jax.tree.unflatten(tree, leaves), Y, num_classes=K)[0],
        lambda leaves, c: jg.log_joint(c, jax.tree.unflatten(tree, leaves)),
        lambda leaves, c: [jg.log_joint(each, jax.tree.unflatten(tree, leaves)) for each in predictives],
        lambda leaves, c: jg.fit(side_by_side, jax.tree.unflatten(tree, leaves), Y, num_classes=K),
    ):
        flat = jax.tree.leaves(c)
        again = jax.jit(lambda leaves, flat, program=program: program(leaves, jax.tree.structure(c).unflatten(flat)))
        exported = export.export(again, platforms=("cpu", "cuda", "rocm", "tpu"))(leaves, flat)
        assert exported.platforms == ("cpu", "cuda", "rocm", "tpu")


@pytest.mark.parametrize("make", [lambda x: x, sparse.BCSR.from_bcoo])
def test_duplicates_under_jit(make):
    """Halves of every count, in two entries: what is not a sum of halves needs their sum."""
    coo = scipy.sparse.coo_array(COUNTS)
    entries = np.tile(coo.data / 2, 2), np.tile(np.stack([coo.row, coo.col], 1), (2, 1))
    halves = make(sparse.BCOO(tuple(map(jnp.asarray, entries)), shape=COUNTS.shape))
    c = jg.fit(jg.MultinomialNB(), COUNTS, Y)
    close(jax.jit(jg.log_likelihood)(c, halves), jg.log_likelihood(c, COUNTS))
    b = jax.jit(lambda x: jg.fit(jg.BernoulliNB(binarize=1.0), x, Y, num_classes=K))(halves)
    close(b, jg.fit(jg.BernoulliNB(binarize=1.0), COUNTS, Y))
    close(jax.jit(jg.log_posterior)(b, halves), jg.log_posterior(b, COUNTS))


def test_gradients_with_duplicates():
    c = jg.fit(jg.MultinomialNB(), COUNTS, Y)
    indices = jnp.array([[0, 1], [0, 1], [1, 2], [0, 0]])

    def value(data):
        return jnp.sum(jg.log_joint(c, sparse.BCOO((data, indices), shape=(2, D))))

    check_grads(jax.jit(value), (jnp.array([1.0, 0.5, 2.0, 3.0]),), order=1, modes=("fwd", "rev"), rtol=1e-4, atol=1e-4)


def test_counts_under_jit_are_exact_in_float32():
    n = 2**20
    entries = jnp.full(n, 33, jnp.float32), jnp.stack([jnp.arange(n), jnp.zeros(n, int)], 1)
    x, y = sparse.BCOO(entries, shape=(n, 2)), jnp.zeros(n, jnp.int32)
    statistics = jax.jit(lambda x: jg.MultinomialNB().statistics(x, y, num_classes=1))(x)
    assert statistics.feature_sum.exact()[0, 0] == 33 * n


def test_narrow_duplicates_do_not_wrap():
    values, (rows, columns) = np.array([200, 200, 1], np.uint8), np.array([[0, 0, 1], [0, 0, 1]])
    compressed_rows = scipy.sparse.csr_array((values, columns, np.array([0, 2, 3])), shape=(2, 2))
    for x in (
        scipy.sparse.coo_array((values, (rows, columns)), shape=(2, 2)),
        compressed_rows,
        compressed_rows.tocsc(),
        scipy.sparse.bsr_array((values[:, None, None], columns, np.array([0, 2, 3])), shape=(2, 2)),
        sparse.BCOO((jnp.asarray(values), jnp.stack([rows, columns], 1)), shape=(2, 2)),
    ):
        assert jg.MultinomialNB().statistics(x, np.array([0, 1])).feature_sum.exact()[0, 0] == 400


@pytest.mark.parametrize("density", [0.02, 0.0005])
def test_many_classes_of_few_entries_each(density):
    """So many that their rows are not sorted by class, though their table is large, and may hold next to nothing."""
    rng = np.random.default_rng(0)
    x = scipy.sparse.random_array((2000, 4000), density=density, rng=rng, format="csr")
    x.data = rng.integers(1, 9, len(x.data)).astype(float)
    y, weight = rng.integers(0, 300, 2000), rng.integers(1, 4, 2000).astype(float)
    members = scipy.sparse.csr_array((weight, y, np.arange(2001)), shape=(2000, 300))
    some = weight * (np.arange(2000) % 5 > 0)
    of_some = scipy.sparse.csr_array((some, y, np.arange(2001)), shape=(2000, 300))
    for sample_weight, expected in (
        (weight, members.T @ x),
        (some, of_some.T @ x),
        (None, (members > 0).astype(float).T @ x),
    ):
        found = jg.MultinomialNB().statistics(x, y, num_classes=300, sample_weight=sample_weight)
        np.testing.assert_array_equal(found.feature_sum.value, expected.toarray())


@pytest.mark.thorough
def test_sparse_equals_dense_in_float32(run_script):
    """On text: many rare words, whose logs are large in all classes."""
    differences = run_script(
        """
import numpy as np, jaxgen as jg
from benchmarks.synthetic import TextModel
x, y = TextModel.make(5000, 20).sample(1000)
for estimator in (jg.MultinomialNB(), jg.BernoulliNB(binarize=0.0)):
    c = jg.fit(estimator, x, y)
    a, b = (np.asarray(jg.log_posterior(c, rows), np.float64) for rows in (x, x.toarray()))
    print(np.abs(np.exp(a) - np.exp(b)).max())
    a, b = (np.asarray(jg.log_joint(c, rows), np.float64) for rows in (x, x.toarray()))
    print(np.abs(a / b - 1).max())
"""
    )
    assert all(float(difference) < 1e-5 for difference in differences), differences


@pytest.mark.usefixtures("each_way")
def test_an_infinite_weight_stays_with_its_class():
    c = jg.LinearClassifier(jnp.array([[-jnp.inf, 1.0], [0.0, 1.0]]), jnp.zeros(2))
    posterior = jg.log_posterior(c, scipy.sparse.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]])))
    np.testing.assert_allclose(posterior, [[-np.inf, 0.0], [-np.log1p(np.e), -np.log1p(np.exp(-1.0))]], rtol=1e-12)


def test_values_beyond_the_dtype(run_script):
    printed = run_script(
        """
import numpy as np, scipy.sparse, jaxgen as jg
c = jg.fit(jg.MultinomialNB(), np.eye(2), np.arange(2))
for x in (np.array([[1e300, 1.0]]), scipy.sparse.csr_array(np.array([[1e300, 1.0]]))):
    try:
        print(jg.predict(c, x))
    except ValueError as error:
        print("overflows" in str(error))
print(jg.pad_rows(scipy.sparse.csr_array(np.array([[2**32 + 5, 1]]))).values[0, 0] == np.float32(2**32 + 5))
"""
    )
    assert printed == ["True"] * 3


@of_a_cpu
@pytest.mark.parametrize("columns", [2, 6])
def test_long_rows_keep_their_digits(columns):
    """The entries of a row are added one after the other."""
    rng, d = np.random.default_rng(0), 100_000
    log_theta = np.log(rng.dirichlet(np.full(d, 5.0), columns)).astype(np.float32)
    x = rng.poisson(4.0, (2, d)).astype(np.float32)
    c = jg.Classifier(jnp.zeros(columns, jnp.float32), jg.Multinomial(jnp.asarray(log_theta)))
    exact = x.astype(float) @ (log_theta - log_theta[:1]).astype(float).T
    found = np.asarray(jg.log_posterior(c, scipy.sparse.csr_array(x)), float)
    np.testing.assert_allclose(found - found[:, :1], exact, atol=2e-3, rtol=1e-5)


@pytest.mark.thorough
def test_how_long_a_row_is_changes_nothing_that_is_seen_of_a_value(run_script):
    """The products of a matrix with a long row are summed in float64, of values as they are in the working dtype."""
    printed = run_script(
        """
import numpy as np, scipy.sparse, jaxgen as jg
x, y = np.zeros((4, 5_000), np.float32), np.array([0, 0, 1, 1])
x[0], x[1, :50], x[2, ::2], x[3, ::3] = 0.1, 0.1, 0.7, 0.7
c = jg.fit(jg.BernoulliNB(binarize=0.1), x, y)  # in float32 no 0.1 is above it
log_present, log_absent = (np.asarray(log, float) for log in (c.density.log_present, c.density.log_absent))
present = x > np.float32(0.1)
expected = present @ log_present.T + ~present @ log_absent.T
rows = scipy.sparse.csr_array(x)
print(np.abs(jg.log_likelihood(c, rows) / expected - 1).max() < 1e-5, jg.predict(c, rows))
x = scipy.sparse.csr_array(np.where(np.arange(5_000) % 2, 0.0, 1 - 2.0**-53)[None].repeat(2, axis=0))
print(np.isfinite(jg.log_likelihood(jg.fit(jg.BernoulliNB(), x, np.arange(2)), x)).all())
x = np.ones((2, 5_000))
c = jg.fit(jg.MultinomialNB(), x, np.arange(2))
x[1] = np.eye(1, 5_000) * 1e39
try:
    print(jg.log_likelihood(c, scipy.sparse.csr_array(x)))
except ValueError as error:
    print("overflows" in str(error))
"""
    )
    assert printed == ["True [0 0 1 1]", "True", "True"]


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_a_fit_and_its_scores_see_the_same_words_where_float32_rounds_to_the_threshold(dtype):
    x, y = np.zeros((4, 2), dtype), np.array([0, 0, 1, 1])
    x[:2, 0] = 2**24 + 1  # as a float32 no more than 2²⁴
    estimator = jg.BernoulliNB(binarize=2.0**24)
    with jax.enable_x64(False):
        sparse_fit, dense_fit = (jg.fit(estimator, rows, y) for rows in (scipy.sparse.csr_array(x), x))
    np.testing.assert_allclose(np.exp(sparse_fit.density.log_present), np.full((2, 2), 0.25), rtol=1e-6)
    np.testing.assert_array_equal(sparse_fit.density.log_present, dense_fit.density.log_present)


@pytest.mark.parametrize("dtype", [np.float16, ">f4", ">i4"])
def test_entries_that_scipy_does_not_know_are_converted(dtype):
    x = scipy.sparse.csr_array(np.array([[3.0, 1, 0], [2, 0, 0], [0, 0, 4], [1, 0, 5]], np.float32))
    expected = jg.fit(jg.MultinomialNB(), x, np.array([1, 1, 0, 0]))
    x.data = x.data.astype(dtype)
    found = jg.fit(jg.MultinomialNB(), x, np.array([1, 1, 0, 0]))
    np.testing.assert_allclose(found.density.log_probability, expected.density.log_probability, rtol=1e-6)
    np.testing.assert_allclose(jg.log_posterior(found, x), jg.log_posterior(expected, x.astype(np.float32)), atol=1e-6)


def test_narrow_duplicates_sum_alike_outside_of_jit_and_inside():
    indices = jnp.array([[0, 0], [0, 0], [1, 1]])
    estimator = jg.BernoulliNB(binarize=150)
    for values in (np.array([100, 100, 100], np.int8), np.array([200, 100, 7], np.uint8)):
        x = sparse.BCOO((jnp.asarray(values), indices), shape=(2, 2))
        y = jnp.array([0, 1])
        outside = estimator.statistics(x, y, num_classes=2).feature_sum.value
        inside = jax.jit(lambda x: estimator.statistics(x, y, num_classes=2).feature_sum.value)(x)  # noqa: B023
        np.testing.assert_array_equal(outside, inside)
        assert outside[0, 0] == 1
    x = sparse.BCOO((jnp.ones(3, bool), indices), shape=(2, 2))
    of = lambda x: jg.MultinomialNB().statistics(x, y, num_classes=2).feature_sum.value  # noqa: E731
    for sums in (of(x), jax.jit(of)(x)):
        np.testing.assert_array_equal(sums, [[2, 0], [0, 1]])


@each_platform
def test_places_of_jax_rows_are_checked_too(place):
    for starts in ([0, 2, 1], [0, 1, 5]):
        x = sparse.BCSR((jnp.ones(3), jnp.array([0, 1, 0]), jnp.array(starts)), shape=(2, 2))
        with pytest.raises(ValueError, match=r"x.indptr must rise from 0 to at most the 3 entries"):
            jg.fit(jg.MultinomialNB(), x, np.array([0, 1]))


@each_platform
def test_batches_of_any_size_share_programs_and_have_a_score_for_each_row(place):
    rng = np.random.default_rng(0)
    x = scipy.sparse.csr_array(rng.poisson(0.5, (60, 7)))
    c = jg.fit(jg.MultinomialNB(), x, np.arange(60) % 3)
    posterior = jg.log_posterior(c, x.toarray())
    jg.log_posterior(c, x[:20])
    compiled = score_programs.program._cache_size()
    compiled += place == "an accelerator"  # for as many entries as these have
    for n in (17, 18, 19):
        np.testing.assert_allclose(jg.log_posterior(c, x[:n]), posterior[:n], rtol=1e-12)
    assert score_programs.program._cache_size() == compiled
    for n in (1, 2, 9, 33):
        assert jg.predict(c, x[:n]).tolist() == np.argmax(posterior[:n], axis=1).tolist()


@pytest.mark.parametrize(
    "estimator",
    [jg.MultinomialNB(), *(pytest.param(e, marks=pytest.mark.thorough) for e in (jg.PoissonNB(), jg.ComplementNB()))],
)
@pytest.mark.parametrize("weight", [None, np.array([1.0, 2.0, 0.0])])
def test_entries_of_one_place_count_by_their_sum_under_a_trace(estimator, weight):
    """−1 and 3 are the count 2, as in the difference of two matrices; −3 and 2 are none."""
    place, y = jnp.array([[0, 1], [0, 1], [1, 0], [2, 1]]), np.array([0, 1, 1])

    def score(values):
        x = sparse.BCOO((values, place), shape=(3, 2))
        c = jg.fit(estimator, x, y, num_classes=2, sample_weight=weight)
        return jg.log_posterior(c, sparse.BCOO((values[:3], place[:3]), shape=(2, 2)))

    good, bad = jnp.array([-1.0, 3.0, 2.0, 1.0]), jnp.array([2.0, -3.0, 2.0, 1.0])
    dense = np.array([[0.0, 2.0], [2.0, 0.0], [0.0, 1.0]])
    c = jg.fit(estimator, dense, y, sample_weight=weight)
    np.testing.assert_allclose(jax.jit(score)(good), jg.log_posterior(c, dense[:2]), rtol=1e-12)
    assert np.isnan(jax.jit(score)(bad)).any()
    spoilt = good.at[3].set(np.nan)  # of an absent row, where there are weights
    assert np.isnan(jax.jit(score)(spoilt)).any() == (weight is None)


def test_a_negative_threshold_is_refused_for_sparse_rows_under_jit_too():
    x, y = sparse.BCOO.fromdense(np.eye(4)), np.arange(4) % 2
    estimator = jg.BernoulliNB(binarize=-1.0)
    with pytest.raises(ValueError, match="binarize must be 0 or more for sparse rows"):
        jax.jit(lambda x: jg.fit(estimator, x, y, num_classes=2))(x)


def test_likelihoods_of_long_sparse_rows_keep_their_digits():
    rng, d = np.random.default_rng(0), 100_000
    rate = np.float32(rng.uniform(1e-6, 1e-5, (2, d)))
    x = scipy.sparse.csr_array(rng.poisson(4.0, (2, d)).astype(np.float32))
    c = jg.Classifier(jnp.zeros(2, jnp.float32), jg.Poisson(jnp.log(jnp.asarray(rate))))
    table = np.asarray(c.density.log_rate, float)
    dense = x.toarray().astype(float)
    exact = dense @ table.T - np.exp(table).sum(axis=1) - scipy.special.gammaln(dense + 1).sum(axis=1)[:, None]
    np.testing.assert_allclose(jg.log_likelihood(c, x), exact, rtol=3e-7)


def test_places_of_many_classes_by_many_columns_do_not_wrap():
    rows = CompressedRows.of(scipy.sparse.csr_array(np.array([[0.0, 1.0], [2.0, 0.0]])))
    wide = dataclasses.replace(rows, num_columns=2**17)
    places = wide.by_class(np.array([20_000, 1]), 20_001).columns
    np.testing.assert_array_equal(places, np.array([20_000 * 2**17 + 1, 2**17]))


def test_entries_below_the_first_row_and_column_are_ignored_under_jit():
    y, index = np.array([0, 1, 1]), np.array([[0, 0], [1, 1], [2, 0], [1, -1], [-1, 1]])
    entries = np.array([1.0, 2.0, 3.0, 50.0, 70.0])
    inside = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    found = jax.jit(lambda v: jg.fit(jg.PoissonNB(), sparse.BCOO((v, index), shape=(3, 2)), y, num_classes=2))(entries)
    close(found, jg.fit(jg.PoissonNB(), inside, y))


def test_entries_behind_the_last_whole_window_count_under_jit():
    rng, n, d = np.random.default_rng(0), 300, 100
    x, y = rng.poisson(1.5, (n, d)).astype(float), np.arange(n) % 300  # many cells: one piece of many entries
    c = jg.fit(jg.PoissonNB(), x, y % 3)
    entries = sparse.BCOO.fromdense(x)
    assert entries.nse > 2**14
    close(jax.jit(jg.log_likelihood)(c, entries), jg.log_likelihood(c, x), 1e-9)
    found = jax.jit(lambda x: jg.fit(jg.PoissonNB(), x, y, num_classes=300))(entries)
    close(found, jg.fit(jg.PoissonNB(), x, y))
