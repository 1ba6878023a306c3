"""What runs on each device of a mesh, inside `shard_map`: every public function, of its own data."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import sparse
from jax.sharding import Mesh, PartitionSpec
from registry import CASES, D, K, each
from test_compilation import programs

import jaxgen as jg

ROWS = PartitionSpec("rows")
X = np.random.default_rng(0).normal(size=(12, D)).astype(np.float32)
Y = np.arange(12) % K
THOROUGH = pytest.mark.thorough


def trace(function, *arguments, shared=()):
    """Trace a function inside `shard_map`: the first arguments differ between devices, the shared ones do not."""
    mesh = Mesh(jax.devices()[:1], ("rows",))

    def local(mine, shared):
        result = function(*shared, *jax.tree.map(lambda leaf: leaf[0], mine))
        return jax.tree.map(lambda leaf: leaf[None], result)

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(ROWS, PartitionSpec()), out_specs=ROWS)
    jax.eval_shape(mapped, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], arguments), shared)


@each(CASES, first=("MixedNB",))
def test_every_public_function_of_a_family(case):
    for _, function, arguments in programs(case):
        trace(function, *arguments)


@each(CASES, first=("QDA",))
def test_rows_that_differ_under_a_classifier_that_does_not(case):
    x, y = case.data(n=12, dtype=np.float32)
    c = jg.fit(case.estimator, x, y)
    for verb in (jg.log_likelihood, jg.log_joint, jg.log_posterior, jg.log_evidence, jg.predict):
        trace(verb, x, shared=(c,))
    trace(lambda c, x, observed: jg.log_posterior(c, x, observed=observed), x, x > 0, shared=(c,))
    trace(lambda x, c: jg.log_posterior(c, x), c, shared=(x,))
    several, weights = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), c), np.ones((2, 12), np.float32)
    trace(lambda x, c: jax.vmap(jg.log_posterior, (0, None))(c, x), several, shared=(x,))
    fit = partial(jg.fit, case.estimator, num_classes=K)
    trace(lambda w, x: jax.vmap(lambda w: fit(x, y, sample_weight=w))(w), x, shared=(weights,))


@pytest.mark.parametrize(
    "density",
    [
        jg.Poisson(np.zeros((2, D), np.float32)),
        jg.NegativeBinomial(*np.ones((2, 2, D), np.float32)),
        jg.DiagonalStudentT(*np.ones((3, 2, D), np.float32)),
        jg.DirichletMultinomial(np.ones((2, D), np.float32)),
    ],
    ids=lambda density: type(density).__name__,
)
def test_draws_by_a_key_or_parameters_that_devices_share(density):
    c, seed = jg.Classifier(np.zeros(2, np.float32), density), np.uint32(0)
    total = 5 if isinstance(density, jg.DirichletMultinomial) else None
    trace(lambda seed, c: jg.sample(jax.random.key(seed), c, 3, total_count=total), c, shared=(seed,))
    trace(lambda c, seed: jg.sample(jax.random.key(seed), c, 3, total_count=total), seed, shared=(c,))


def sparse_rows(values):
    """Rows of a pattern that is fixed, without and with duplicates."""
    rows, columns = np.divmod(np.arange(12 * D, dtype=np.int32), D)
    return sparse.BCOO((values.ravel(), jnp.stack([rows, columns], axis=1)), shape=(12, D))


@pytest.mark.parametrize(
    "estimator",
    [
        jg.MultinomialNB(),
        pytest.param(jg.BernoulliNB(binarize=0.0), marks=pytest.mark.thorough),
        pytest.param(jg.PoissonNB(), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_sparse_rows(estimator):
    x, soft = np.abs(X).round(), np.eye(K, dtype=np.float32)[Y]
    c = jg.fit(estimator, x, Y)
    trace(lambda x: jg.fit(estimator, sparse_rows(x), Y, num_classes=K), x)
    trace(lambda x, r, w: jg.fit(estimator, sparse_rows(x), r, sample_weight=w), soft, np.ones(12), shared=(x,))
    trace(lambda c, x: jg.log_likelihood(c, sparse_rows(x)), x, shared=(c,))
    trace(lambda x, c: jg.log_posterior(c, sparse_rows(x)), c, shared=(x,))
    predictive = jg.predictive(estimator, estimator.statistics(x, Y))
    trace(lambda c, x: jg.log_posterior(c, sparse_rows(x)), x, shared=(predictive,))
    trace(lambda x, c: jg.log_posterior(c, sparse_rows(x)), predictive, shared=(x,))


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("optimizer", [None, optax.adam(0.1)], ids=["own", "adam"])
def test_logistic_regression(classes, optimizer):
    y, estimator = np.arange(12) % classes, jg.LogisticRegression(optimizer=optimizer)
    trace(lambda x: jg.train(estimator, x, y, num_classes=classes), X)
    trace(lambda x, y: jg.train(estimator, x, y, num_classes=classes), y, shared=(X,))
    trace(jax.grad(lambda x: jnp.sum(jg.fit(estimator, x, y, num_classes=classes).weights ** 2)), X)
    trace(lambda x, y, l2: jg.fit(jg.LogisticRegression(l2=l2), x, y, num_classes=2), np.float32(1), shared=(X, y))


def test_large_logistic_regression():
    x, y = np.zeros((40, 400), np.float32), np.arange(40) % 3  # of too many parameters for Newton's method
    trace(lambda x: jg.train(jg.LogisticRegression(l2=0.0), x, y, num_classes=3), x)
    x, y = np.zeros((8_500, 130), np.float32), np.arange(8_500) % 3  # with a preconditioner, by some of the rows
    trace(lambda x: jg.train(jg.LogisticRegression(), x, y, num_classes=3), x)


@pytest.mark.parametrize("method", ["least_squares", "ridge", "lasso", "gradient_descent"])
def test_linear_regression(method):
    fit = getattr(jg.linear_regression, method)
    penalty = {"ridge": {"l2": 0.1}, "lasso": {"l1": 0.1}}.get(method, {})
    trace(lambda x, t: fit(x, t, **penalty), X, X[:, 0])
    trace(lambda x, t: fit(x, t, **penalty), X[:, 0], shared=(X,))
    if penalty:
        ((name, value),) = penalty.items()
        trace(lambda x, t, value: fit(x, t, **{name: value}), np.float32(value), shared=(X, X[:, 0]))


EM = [jg.BernoulliNB(binarize=0.0), *(pytest.param(e, marks=THOROUGH) for e in (jg.LDA(), jg.QDA(), jg.GaussianNB()))]


@pytest.mark.parametrize("estimator", EM, ids=str)
def test_labels_that_are_missing_features_that_are_and_resamples(estimator):
    some, observed, key = np.where(Y == 1, -1, Y), X > -0.5, jax.random.PRNGKey(0)
    options = {"num_classes": K, "key": key, "restarts": 2, "max_steps": 5}
    trace(lambda x: jg.train_em(estimator, x, some, **options), X)
    trace(lambda x, y: jg.fit_em(estimator, x, y, **options), some, shared=(X,))
    trace(jax.grad(lambda x: jnp.sum(jg.fit_em(estimator, x, **options).log_prior ** 2)), X)
    trace(lambda x, o: jg.fit(estimator, x, Y, num_classes=K, observed=o), X, observed)
    trace(lambda x: jg.bootstrap(key, estimator, x, Y, num_classes=K, num_replicates=2), X)


def test_metrics():
    log_posterior = np.log(np.full((12, K), 1 / K, np.float32))
    for name in ("log_loss", "brier_score", "expected_calibration_error", "reliability", "roc_auc"):
        trace(partial(getattr(jg.metrics, name), Y), log_posterior)
    for name in ("accuracy", "confusion_matrix", "precision", "recall", "f1"):
        classes = {} if name == "accuracy" else {"num_classes": K}
        trace(partial(getattr(jg.metrics, name), Y, **classes), Y)


def test_shrinkage_and_scores_of_complement_naive_bayes():
    trace(lambda x: jg.fit(jg.QDA(shrinkage=jg.ledoit_wolf(x, Y, num_classes=K)), x, Y, num_classes=K), X)
    c = jg.fit(jg.ComplementNB(), np.abs(X), Y)
    trace(lambda c, x: jg.log_posterior(c, x), np.abs(X), shared=(c,))


def test_statistics_of_devices_merge_and_each_scores_its_own_rows(run_script):
    code = """
import jax, numpy as np, jaxgen as jg
from jax.sharding import Mesh, PartitionSpec as P
x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
on_each = lambda function, *in_specs: jax.jit(
    jax.shard_map(function, mesh=Mesh(jax.devices(), ("rows",)), in_specs=in_specs, out_specs=P("rows"))
)
own = lambda x, y: jax.tree.map(lambda leaf: leaf[None], jg.QDA().statistics(x, y, num_classes=2))
parts = on_each(own, P("rows"), P("rows"))(x, y)
c = jg.estimate(jg.QDA(), jg.merge(*(jax.tree.map(lambda leaf: leaf[i], parts) for i in range(2))))
whole = jg.fit(jg.QDA(), x, y)
print(all(np.allclose(a, b, atol=1e-5) for a, b in zip(jax.tree.leaves(c), jax.tree.leaves(whole))))
print(np.allclose(on_each(jg.log_posterior, P(), P("rows"))(whole, x), jg.log_posterior(whole, x), atol=1e-5))
bad = np.where(np.arange(40)[:, None] == 33, np.nan, x)
print(np.flatnonzero(np.isnan(on_each(jg.log_posterior, P(), P("rows"))(whole, bad)).any(axis=1)))
jax.set_mesh(jax.make_mesh((2,), ("rows",)))  # of explicit axes
scores = jax.jit(jax.sharding.auto_axes(jg.log_posterior, out_sharding=P("rows")))(whole, jax.device_put(x, P("rows")))
print(np.allclose(scores, jg.log_posterior(whole, x), atol=1e-5), scores.sharding.spec[0])
fit = jax.sharding.auto_axes(lambda x, y: jg.fit(jg.QDA(), x, y, num_classes=2), out_sharding=P())
c = jax.jit(fit)(*jax.device_put((x, y), P("rows")))
print(all(np.allclose(a, b, atol=1e-5) for a, b in zip(jax.tree.leaves(c), jax.tree.leaves(whole))))
"""
    assert run_script(code, optimised=False, cpus=2) == ["True", "True", "[33]", "True rows", "True"]


def test_scores_lie_where_the_classifier_does_and_places_must_agree(run_script):
    """Also scores that are so many that one device would make them in pieces."""
    code = """
import jax, jax.numpy as jnp, numpy as np, jaxgen as jg
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
x, y = np.random.default_rng(0).normal(size=(9_000_000, 1)).astype(np.float32), np.arange(60) % 2
c = jg.fit(jg.LDA(), x[:60], y)
on_two = jax.device_put(c, NamedSharding(Mesh(jax.devices()[1:], ("rows",)), P()))
for rows in (x[:60], x, jnp.asarray(x)):
    print([device.id for device in sorted(jg.predict(on_two, rows).devices(), key=lambda device: device.id)])
few, here, there = x[:60], *(lambda tree, device=device: jax.device_put(tree, device) for device in jax.devices()[1:])
apart = [jg.LDA().statistics(put(few), y) for put in (here, there)]
key, seen, naive = there(jax.random.key(0)), here(few > 0), jg.fit(jg.GaussianNB(), few, y)
for call in (
    lambda: jg.predict(here(c), there(few)),
    lambda: jg.merge(*apart),
    lambda: jg.estimate(jg.LDA(ridge=there(1e-3)), apart[0]),
    lambda: jg.sample(key, here(c), 3),
    lambda: jg.bootstrap(key, jg.LDA(), here(few), y, num_replicates=2),
    lambda: jg.fit_em(jg.LDA(), here(few), np.full(60, -1), num_classes=2, key=key),
    lambda: jg.fit_em(jg.LDA(), here(few), np.full(60, -1), start=there(c)),
    lambda: jg.LDA().statistics(here(few), y, observed=seen, given=there(c)),
    lambda: jg.impute(here(naive), few, seen, key=key),
    lambda: jg.metrics.log_loss(there(y), here(jg.log_posterior(c, few))),
    lambda: jg.linear_regression.ridge(here(few), there(few[:, 0]), l2=1.0),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""
    same, apart = "[1, 2]", "arguments must lie on the same devices; found some on cpu:1 and cpu:2. "
    assert run_script(code, optimised=False, cpus=3) == [
        same,
        same,
        same,
        *[apart + "Move them together with jax.device_put."] * 11,
    ]


def test_rows_that_devices_share_are_not_gathered_for_a_fit(run_script):
    """They would be, to be taken in blocks, which begin and end where the rows of a device do not."""
    code = """
import re, jax, numpy as np, jaxgen as jg
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxgen import logistic
rng = np.random.default_rng(0)
x, y = rng.normal(size=(16384, 200)).astype(np.float32), rng.integers(0, 4, 16384)
shared = jax.device_put((x, y), NamedSharding(Mesh(jax.devices(), ("rows",)), P("rows")))
program, collectives = logistic._train_program, []
def watched(*arguments, **keywords):
    text = program.lower(*arguments, **keywords).compile().as_text()
    collectives.append(sorted(set(re.findall("(all-[a-z-]+|collective-[a-z-]+)[(]", text))))
    return program(*arguments, **keywords)
logistic._train_program = watched
of_one, of_two = (jg.train(jg.LogisticRegression(tolerance=1e-6), *data, num_classes=4)[0] for data in ((x, y), shared))
print(np.allclose(of_one.weights, of_two.weights, atol=1e-5), collectives)
"""
    assert run_script(code, optimised=False, cpus=2) == ["True [[], ['all-reduce']]"]
