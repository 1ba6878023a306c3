"""What is compiled, how often, and for which platforms."""

import dataclasses
import re
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from conftest import of_a_cpu
from jax import export
from registry import CASES, D, K, each, each_case

import jaxgen as jg
from jaxgen import linear_regression, platform

pytestmark = pytest.mark.every_platform


COMPILATIONS = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **__: COMPILATIONS.append(event) if event == "/jax/core/compile/backend_compile_duration" else None
)


def use_everything(estimator, x, y):
    c = jg.fit(estimator, x, y)
    for verb in (jg.log_posterior, jg.predict):
        jax.block_until_ready(verb(c, x))
    if isinstance(c, jg.Classifier):
        jax.block_until_ready((jg.log_joint(c, x), jg.log_likelihood(c, x), jg.log_evidence(c, x)))
        statistics = estimator.statistics(x, y)
        jg.subtract(jg.merge(statistics, statistics), statistics)


@pytest.mark.parametrize(
    ("estimator", "array", "n"),
    [(estimator, np.asarray, 23) for estimator in (jg.LDA(), jg.LogisticRegression())]
    + [
        pytest.param(*case, marks=pytest.mark.thorough)
        for case in ((jg.MultinomialNB(), np.asarray, 23), (jg.QDA(), jnp.asarray, 25))
    ],
)
def test_a_second_eager_call_of_the_same_shapes_compiles_nothing(estimator, array, n):
    x = np.random.default_rng(0).integers(0, 2, size=(n, D)).astype(np.float32)
    y = np.arange(n) % K
    use_everything(estimator, array(x), array(y))
    COMPILATIONS.clear()
    other = jax.tree.map(lambda leaf: 2 * leaf + 0.5, estimator)  # other values, same structure
    use_everything(other, array(1 - x), array(y[::-1].copy()))
    for kind in (int, np.int64, np.float32):  # of another type
        use_everything(jax.tree.map(lambda _, kind=kind: kind(1), estimator), array(x), array(y))
    assert not COMPILATIONS
    use_everything(estimator, array(x[1:]), array(y[1:]))
    assert COMPILATIONS  # they are seen where there are any


def test_a_number_of_another_type_makes_no_other_program():
    """Of those that take an estimator and no test above runs."""
    x, y = np.arange(24.0, dtype=np.float32).reshape(12, 2) % 3, np.arange(12) % 2
    statistics, key = jg.MultinomialNB().statistics(x, y), jax.random.key(0)

    def use(number):
        estimator = jg.MultinomialNB(alpha=number, prior_alpha=number)
        jax.block_until_ready((jg.predictive(estimator, statistics), jg.log_marginal_likelihood(estimator, statistics)))
        jg.cross_validate(estimator, x, y, folds="leave-one-out")
        jg.bootstrap(key, estimator, x, y, num_replicates=2)
        jg.train_em(estimator, x, np.where(y, y, -1), num_classes=2, key=key, max_steps=2)
        jg.estimate(jg.ComplementNB(alpha=number), statistics)

    use(2.0)
    COMPILATIONS.clear()
    for kind in (int, np.int64, np.float32):
        use(kind(1))
    assert not COMPILATIONS


def test_padded_rows_of_about_as_many_entries_share_programs():
    rng, y = np.random.default_rng(0), np.arange(50) % 3
    few, many = ((rng.random((50, 40)) < share).astype(np.float32) for share in (0.3, 0.33))
    fits = []
    for x in (few, many):
        COMPILATIONS.clear()
        rows = jg.pad_rows(scipy.sparse.csr_array(x))
        c, _ = jg.train_em(jg.MultinomialNB(), rows, np.where(y, y, -1), num_classes=3, key=jax.random.key(0))
        fits.append((len(COMPILATIONS), jg.log_likelihood(c, rows), jg.log_likelihood(c, x)))
    (first, *_), (second, sparse, dense) = fits
    assert first > second == 0
    np.testing.assert_allclose(sparse, dense, rtol=1e-5)


@pytest.mark.parametrize("estimator", [jg.GaussianNB(), jg.BernoulliNB()])
def test_no_trace_outlives_its_program(estimator):
    x, y = np.arange(60).reshape(30, 2) % 2, np.arange(30) % 2
    with jax.checking_leaks():
        jax.block_until_ready(jax.jit(lambda x: jg.fit(estimator, x, y, num_classes=2))(x))


@each_case
def test_jit_traces_once(case):
    x, y = case.data()
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def fit_and_score(estimator, x, y):
        return jg.log_posterior(jg.fit(estimator, x, y, num_classes=K), x)

    for scale in (1.0, 2.0):
        fit_and_score(jax.tree.map(lambda leaf, scale=scale: scale * leaf, case.estimator), x, y)


def programs(case):
    """Every public function as a function of arrays."""
    x, y = case.data(n=12, dtype=np.float32)
    c = jg.fit(case.estimator, x, y)
    statistics = case.estimator.statistics(x, y)
    # `fit` is `statistics` and `estimate`.
    yield "statistics", lambda x, y: case.estimator.statistics(x, y, num_classes=K), (x, y)
    yield "soft", lambda x, r: case.estimator.statistics(x, r), (x, np.eye(K, dtype=np.float32)[y])
    yield "estimate", lambda s: jg.estimate(case.estimator, s), (statistics,)
    yield "merge", jg.merge, (statistics, statistics)
    yield "subtract", jg.subtract, (statistics, statistics)
    yield "scale", jg.scale, (statistics, np.float32(0.5))
    for verb in (jg.log_likelihood, jg.log_joint, jg.log_posterior, jg.log_evidence, jg.predict):
        yield verb.__name__, verb, (c, x)
    total = 5 if getattr(c.density, "needs_total_count", False) else None
    yield "sample", lambda key, c: jg.sample(key, c, 7, total_count=total), (jax.random.PRNGKey(0), c)
    observed = np.random.default_rng(0).random(x.shape) < 0.5
    yield "observed", lambda c, x, o: jg.log_posterior(c, x, observed=o), (c, x, observed)
    if total is None:
        yield "impute", lambda key, c, x, o: jg.impute(c, x, o, key=key), (jax.random.PRNGKey(0), c, x, observed)
    if case.linear:
        yield "to_linear", jg.to_linear, (c,)
    if isinstance(c.density, (jg.Gaussian, jg.DiagonalGaussian)):
        yield "mahalanobis", jg.relative_mahalanobis, (c, x)  # which is both
    yield "gradient", jax.grad(lambda x: jnp.sum(jg.log_evidence(jg.fit(case.estimator, x, y), x))), (x,)
    yield "posterior", partial(use_posterior, with_prior(case.estimator), total), (jax.random.PRNGKey(0), statistics, x)


def with_prior(estimator):
    """The same estimator with a conjugate prior, where it has none yet."""
    if isinstance(estimator, jg.MixedNB):
        return jg.MixedNB(tuple((with_prior(part), columns) for part, columns in estimator.parts))
    prior = {"prior": jg.NormalInverseWishart()} if isinstance(estimator, jg.GDA) else {}
    return dataclasses.replace(estimator, **prior)


def use_posterior(estimator, total, key, statistics, x):
    c = jg.predictive(estimator, statistics)
    draws = jg.sample(key, c, 3, total_count=total)
    evidence = jg.log_marginal_likelihood(estimator, statistics)
    return jg.log_posterior(c, x), draws, evidence, jg.estimate(estimator, statistics)


def lower(name, function, arguments):
    def flat(*leaves):  # export knows no pytree types but JAX's own
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))

    leaves, structure = jax.tree.flatten(arguments)
    exported = export.export(jax.jit(flat), platforms=("cuda", "rocm", "tpu", "cpu"))(*leaves)
    assert exported.platforms == ("cuda", "rocm", "tpu", "cpu"), name
    assert len(exported.mlir_module_serialized) > 0, name


@each(CASES, first=("QDA", "MultinomialNB"))
def test_every_public_function_lowers_for_every_platform(case):
    for program in programs(case):
        lower(*program)


def exported_for_any_number_of_rows(function, *arrays):
    """A function of arrays of d columns, for every platform, of those of any length."""
    shape = export.symbolic_shape(f"n, {arrays[0].shape[1]}")
    kinds = [jax.ShapeDtypeStruct(shape, array.dtype) for array in arrays]
    return export.export(jax.jit(function), platforms=("cuda", "rocm", "tpu", "cpu"))(*kinds)


@each(CASES, first=("LDA", "MultinomialNB"))
def test_scores_are_exported_for_any_number_of_rows(case):
    x, y = case.data(n=12, dtype=np.float32)
    c, observed = jg.fit(case.estimator, x, y), np.random.default_rng(0).random(x.shape) < 0.5

    def score(x, observed):
        return jg.log_posterior(c, x), jg.log_evidence(c, x, observed=observed), jg.predict(c, x)

    exported = exported_for_any_number_of_rows(score, x, observed)
    for n in (1, 12):
        for found, expected in zip(exported.call(x[:n], observed[:n]), score(x[:n], observed[:n]), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@each([case for case in CASES if case.name != "MultinomialNB"], first=("QDA",))
def test_draws_of_missing_features_are_exported_for_any_number_of_rows(case):
    x, y = case.data(n=12, dtype=np.float32)
    c, observed = jg.fit(case.estimator, x, y), np.random.default_rng(0).random(x.shape) < 0.5

    def draw(x, observed):
        return jg.impute(c, x, observed, key=jax.random.PRNGKey(0))

    found = exported_for_any_number_of_rows(draw, x, observed).call(x, observed)
    np.testing.assert_allclose(found, draw(x, observed), rtol=2e-4, atol=2e-5)


def test_a_fit_to_a_symbolic_number_of_rows_is_refused():
    (n,) = export.symbolic_shape("n")
    kinds = jax.ShapeDtypeStruct((n, 2), np.float32), jax.ShapeDtypeStruct((n,), np.int32)
    with pytest.raises(ValueError, match=r"x must have a known number of rows to be fitted to; found n, .* fill x up"):
        export.export(jax.jit(lambda x, y: jg.fit(jg.LDA(), x, y, num_classes=2)))(*kinds)


def test_resampling_lowers_for_every_platform():
    x, y = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32), np.arange(12) % 2
    lower("folds", lambda ridge: jg.cross_validate(jg.LDA(ridge), x, y, folds="leave-one-out"), (np.float32(0.1),))
    words = np.eye(12, 2, dtype=np.float32)
    lower(
        "counts",
        lambda alpha: jg.cross_validate(jg.BernoulliNB(alpha), words, y, folds="leave-one-out"),
        (np.float32(0.1),),
    )
    rows, both = scipy.sparse.csr_array(words), ((jg.GaussianNB(), (0,)), (jg.MultinomialNB(), (1,)))
    for name, estimator in (("complement", jg.ComplementNB()), ("families", jg.MixedNB(both))):
        floats = jax.tree.map(np.float32, estimator)
        lower(name, lambda estimator: jg.cross_validate(estimator, rows, y, folds="leave-one-out"), (floats,))
    draw = partial(jg.bootstrap, num_replicates=2, num_classes=2)
    lower("bootstrap", lambda key, x, y: draw(key, jg.LDA(), x, y), (jax.random.PRNGKey(0), x, y))


def test_complement_naive_bayes_and_shrinkage_lower_for_every_platform():
    x, y = np.ones((6, 2), np.float32), np.arange(6) % 2
    lower("fit", lambda x: jg.fit(jg.ComplementNB(), x, y), (x,))
    lower("ledoit_wolf", lambda x: jg.fit(jg.QDA(shrinkage=jg.ledoit_wolf(x, y)), x, y), (x,))


@pytest.mark.parametrize("estimator", [pytest.param(jg.LDA(), marks=pytest.mark.thorough), jg.BernoulliNB()])
def test_em_lowers_for_every_platform(estimator):
    x = np.random.default_rng(0).integers(0, 2, (12, 3)).astype(np.float32)

    def log_prior(x, key):
        options = {"num_classes": 2, "key": key, "observed": x > 0, "max_steps": 5, "restarts": 2}
        return jnp.sum(jg.fit_em(estimator, x, **options).log_prior ** 2)

    lower("fit_em and its gradient", jax.value_and_grad(log_prior), (x, jax.random.PRNGKey(0)))


@pytest.mark.parametrize("classes", [2, 3])
def test_training_lowers_for_every_platform(classes):
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    y = np.arange(12) % classes
    lower("train", lambda x, y: jg.train(jg.LogisticRegression(), x, y, num_classes=classes), (x, y))
    lower("linear", jg.log_posterior, (jg.fit(jg.LogisticRegression(), x, y), x))
    lower("gradient", jax.grad(lambda x: jnp.sum(jg.fit(jg.LogisticRegression(), x, y).weights ** 2)), (x,))


def test_training_of_many_parameters_lowers_for_every_platform():
    x, y = np.random.default_rng(0).normal(size=(130, 130)).astype(np.float32), np.arange(130) % 3

    def train(x, y):
        return jg.train(jg.LogisticRegression(), x, y, num_classes=3)

    assert "cholesky" in str(jax.make_jaxpr(train)(x, y))  # of a preconditioner, since nobody can look
    lower("train", train, (x, y))


@pytest.mark.parametrize("estimator", [jg.LDA(), jg.MultinomialNB()])
def test_blocks_of_different_sizes_per_platform_are_one_program(estimator):
    """Large enough that a CPU folds what an accelerator takes whole."""
    x, y = np.ones((70_000, 8), np.float32), np.arange(70_000) % 2
    lower("fit", lambda x: jg.fit(estimator, x, y), (x,))
    c = jg.fit(estimator, x, y)
    lower("log_posterior", jg.log_posterior, (c, x))


def test_a_second_process_finds_what_the_first_compiled(run_script, tmp_path):
    code = f"""
import jax, numpy as np, jaxgen as jg
from pathlib import Path
Path.home = None  # is not asked for where a folder is given
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
print(jg.enable_compilation_cache({str(tmp_path / "programs")!r}).name)
x = np.arange(24.0).reshape(12, 2) % 7
jg.predict(jg.fit(jg.LDA(), x, np.arange(12) % 2), x)
print(len(hits))
another = jg.enable_compilation_cache({str(tmp_path / "others")!r})
jg.predict(jg.fit(jg.GaussianNB(), x, np.arange(12) % 2), x)
print(len(list(another.iterdir())) >= 3)
"""
    assert run_script(code) == ["programs", "0", "True"]
    assert int(run_script(code)[1]) >= 3  # statistics, estimate, predict


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        (b"programs", TypeError, "folder must be a path.*found b'programs'"),
        ("gs://bucket/programs", ValueError, "folder must be on a file system; found 'gs://bucket"),
        ("/proc", OSError, "/proc"),
    ],
)
def test_folders_in_which_no_programs_are_kept(folder, error, message):
    with pytest.raises(error, match=message):
        jg.enable_compilation_cache(folder)


@pytest.mark.thorough
def test_what_is_loaded_on_a_thread_has_been_when_a_call_ends(run_script):
    """Else a caller who loads another part of it meets Python's error for imports that wait for each other."""
    code = """
import sys, threading, time, numpy, jaxgen as jg
from jaxgen import lapack
load, threads = lapack.import_module, []
def slowly(name):
    threads.append(threading.current_thread())
    time.sleep(2)
    load(name)
lapack.import_module = slowly
x, y = numpy.random.default_rng(0).normal(size=(20, 2)), numpy.arange(20) % 2
jg.LDA().statistics(x, y)
print(len(threads), threads[0].is_alive(), "scipy.linalg" in sys.modules)
"""
    assert run_script(code, optimised=False) == ["1 False True"]


def fits_that_factorise():
    """A fit for each kind of factorisation, and for rows of which each has one."""
    y, observed = np.arange(40) % 2, np.random.default_rng(1).random((40, 4)) < 0.8
    halves = jg.MixedNB(((jg.QDA(), (0, 1)), (jg.QDA(), (2, 3))))

    def by_em(x):
        c = jg.fit(jg.LDA(), x, y, num_classes=2, observed=observed)
        return jg.log_evidence(c, x, observed=observed), jg.impute(c, x, observed, key=jax.random.key(0))

    def mixture(x):
        return jnp.sum(jg.fit_em(jg.GaussianNB(), x, y - 1, num_classes=2, key=jax.random.key(0)).density.mean)

    def evidence(x):
        estimator = jg.QDA(prior=jg.NormalInverseWishart(jnp.zeros(4)))
        return jg.log_marginal_likelihood(estimator, estimator.statistics(x, y, num_classes=2))

    return (
        lambda x: jg.relative_mahalanobis(jg.fit(jg.QDA(), x, y, num_classes=2), x),
        lambda x: jg.fit(halves, x, y, num_classes=2),
        lambda x: jg.train(jg.LogisticRegression(), x, y, num_classes=2),  # by Newton's method
        lambda x: jg.train(jg.LogisticRegression(), x, y, num_classes=60),  # by L-BFGS
        lambda x: jg.train(jg.LogisticRegression(l2=0.0), x, y, num_classes=2),  # are classes separable?
        lambda x: linear_regression.ridge(x, x[:, 0], 1.0),
        jax.grad(lambda x: jnp.sum(linear_regression.lasso(x, x[:, 0], 1.0).weights)),
        jax.grad(mixture),  # whose equations are solved by GMRES
        evidence,
        by_em,
    )


@pytest.mark.thorough
@of_a_cpu
def test_no_program_factorises_several_matrices_by_one_call():
    """Two such calls at once wait for each other for ever, and XLA, or two threads of a caller, run them so."""
    x = jnp.zeros((3, 40, 4))
    for fit in fits_that_factorise():
        with platform.override(platform.CPU):
            program = jax.jit(jax.vmap(fit)).lower(x).as_text()
        calls = re.findall(r'lapack_.(?:potrf|geqrf|orgqr|syevd|gesdd|trsm)_ffi.*num_batch_dims = "(.)"', program)
        assert set(calls) == {"0"}


@pytest.mark.thorough
def test_fits_at_the_same_time_do_not_wait_for_each_other(run_script):
    code = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
import jax, numpy, jaxgen as jg
threading.Timer(60, os._exit, [1]).start()
rng, qda = numpy.random.default_rng(0), jg.QDA(ridge=0.1)
x, y = rng.normal(size=(3_000, 64)).astype(numpy.float32), rng.integers(0, 64, 3_000)
with ThreadPoolExecutor(2) as pool:
    print(len(list(pool.map(lambda _: jg.fit(qda, x[:, :32], y), range(50)))))
both = jg.MixedNB(((qda, tuple(range(32))), (qda, tuple(range(32, 64)))))
print(len([jax.block_until_ready(jg.fit(both, x, y)) for _ in range(50)]), flush=True)
os._exit(0)
"""
    assert run_script(code, cpus=1) == ["50", "50"]
