"""Logistic regression from a stream of batches."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export

import jaxgen as jg
from jaxgen import minibatches


def data(n=600, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return 100 + 10 * (rng.normal(size=(n, 4)) + 0.6 * y[:, None]), y


def epochs(x, y, count, size=50, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        order = rng.permutation(len(y))
        for first in range(0, len(y), size):
            rows = order[first : first + size]
            yield x[rows], y[rows]


def falling(steps):
    return optax.adam(optax.cosine_decay_schedule(0.05, steps))


@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_many_epochs_come_close_to_the_optimum(classes):
    x, y = data(classes=classes)
    optimum = jg.fit(jg.LogisticRegression(l2=5.0), x, y)
    estimator = jg.LogisticRegression(l2=5.0, optimizer=falling(40 * 12))
    c, report = jg.train_batches(estimator, epochs(x, y, 40), num_classes=classes, num_rows=len(y))
    assert report.steps == 480
    assert not report.converged
    apart = np.exp(jg.log_posterior(c, x)) - np.exp(jg.log_posterior(optimum, x))
    assert abs(apart).max() < 0.02
    unfitted = np.exp(jg.log_posterior(optimum, x)) - 1 / classes
    assert abs(unfitted).max() > 0.4  # so the bound says something


@pytest.mark.thorough
def test_a_first_batch_of_one_row_is_a_unit_too():
    x, y = data()
    x = 1_000 * x  # far from any unit that could be guessed
    optimum = jg.fit(jg.LogisticRegression(l2=5.0), x, y)
    estimator = jg.LogisticRegression(l2=5.0, optimizer=falling(2_001))
    batches = [(x[:1], y[:1]), *[(x, y)] * 2_000]
    c, _ = jg.train_batches(estimator, batches, num_classes=3, num_rows=len(y))
    np.testing.assert_allclose(np.exp(jg.log_posterior(c, x)), np.exp(jg.log_posterior(optimum, x)), atol=0.02)


def test_a_batch_without_weight_is_not_there():
    x, y = data(100)
    estimator = jg.LogisticRegression(l2=np.int64(1), optimizer=optax.adam(0.1))
    absent, rest = (x, y, np.zeros(100)), [(x, y)] * 5
    with_it, without = (
        jg.train_batches(estimator, batches, num_classes=3, num_rows=100)
        for batches in ([absent, *rest[:3], absent, *rest[3:], absent], rest)
    )
    chex.assert_trees_all_equal(with_it, without)
    assert without[1].steps == 5
    with pytest.raises(ValueError, match="weights of all rows are zero"):
        jg.train_batches(estimator, [absent], num_classes=3, num_rows=100)


def test_whole_batches_take_the_steps_of_a_plain_loop():
    """Three steps of gradient descent, by NumPy in the coordinates that are promised."""
    x, y = data(n=40, classes=2)
    estimator = jg.LogisticRegression(l2=3.0, optimizer=optax.sgd(0.5))
    c, _ = jg.train_batches(estimator, [(x, y)] * 3, num_classes=2, num_rows=len(y))
    unit = np.sqrt(x.var(axis=0) / 4 + 3.0 / len(y))
    z, w, b = (x - x.mean(axis=0)) / unit, np.zeros(4), 0.0
    for _ in range(3):
        residual = 1 / (1 + np.exp(-z @ w - b)) - y
        w, b = w - 0.5 * (z.T @ residual / len(y) + 3.0 / len(y) / unit**2 * w), b - 0.5 * residual.mean()
    np.testing.assert_allclose(c.weights[:, 1] - c.weights[:, 0], w / unit, rtol=1e-9)
    np.testing.assert_allclose(c.bias[1] - c.bias[0], b - x.mean(axis=0) @ (w / unit), rtol=1e-9)


def test_a_start_at_the_optimum_stays_there():
    x, y = data()
    optimum = jg.fit(jg.LogisticRegression(), x, y)
    estimator = jg.LogisticRegression(optimizer=optax.sgd(0.1))
    c, report = jg.train_batches(estimator, [(x, y)], num_classes=3, num_rows=len(y), start=optimum)
    assert report.gradient_norm < 1e-6
    np.testing.assert_allclose(c.weights, optimum.weights, atol=1e-6)


def test_the_report_is_of_the_last_batch():
    x, y = data(n=40)
    estimator = jg.LogisticRegression(optimizer=optax.sgd(0.1))
    first, one = jg.train_batches(estimator, [(x, y)], num_classes=3, num_rows=40)
    _, two = jg.train_batches(estimator, [(x, y)] * 2, num_classes=3, num_rows=40)
    _, last = jg.train_batches(estimator, [(x, y)], num_classes=3, num_rows=40, start=first)
    assert two.gradient_norm == pytest.approx(float(last.gradient_norm), rel=1e-9)
    assert two.gradient_norm < 0.9 * one.gradient_norm


def test_weights_and_soft_labels_in_a_batch():
    x, y = data(n=40)
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    estimator = jg.LogisticRegression(optimizer=optax.sgd(0.1))
    spoilt = np.where(weight[:, None] > 0, x, np.nan)
    fits = [
        jg.train_batches(estimator, [batch], num_classes=3, num_rows=40)[0]
        for batch in (
            (spoilt, y, weight),
            (np.repeat(x, weight.astype(int), 0), np.repeat(y, weight.astype(int))),
            (spoilt, np.eye(3)[y], weight),
        )
    ]
    for leaves in zip(*(jax.tree.leaves(c) for c in fits), strict=True):
        np.testing.assert_allclose(leaves[1], leaves[0], atol=1e-12)
        np.testing.assert_allclose(leaves[2], leaves[0], atol=1e-12)


def test_what_is_wrong_with_a_batch_is_said_with_its_number():
    x, y = data(n=20)
    spoilt = np.where(np.arange(20)[:, None] == 7, np.nan, x)

    def train(*batches, **arguments):
        estimator = jg.LogisticRegression(optimizer=optax.sgd(0.1))
        return jg.train_batches(estimator, batches, **{"num_classes": 3, "num_rows": 20, **arguments})

    for batches, kind, message in (
        ([], ValueError, "at least one; found none"),
        ([(x, y), (spoilt, y)], ValueError, "batch 2: x must hold finite numbers.*row 7"),
        ([(x, y), (x[:, :2], y)], ValueError, "batch 2: x must have 4 features, as the first batch; found 2"),
        ([(x, y + 3)], ValueError, "batch 1: y"),
        ([x], TypeError, r"batch 1: it must be a tuple \(x, y\)"),
    ):
        with pytest.raises(kind, match=message):
            train(*batches)
    for start, message in (
        (
            jg.LinearClassifier(np.zeros((2, 3)), np.zeros(3)),
            r"start must have weights of shape \(4, 3\).*found \(2, 3\)",
        ),
        (jg.LinearClassifier(np.full((4, 3), np.nan), np.zeros(3)), "start must have finite weights"),
    ):
        with pytest.raises(ValueError, match=f"batch 1: {message}"):
            train((x, y), start=start)
    with pytest.raises(TypeError, match=r"num_classes must be a Python integer.*found 3.0"):
        train((x, y), num_classes=3.0)
    negative = jg.LogisticRegression(l2=-1.0, optimizer=optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"LogisticRegression\.l2 must be finite and 0 or more; found -1"):
        jg.train_batches(negative, [(x, y)], num_classes=3, num_rows=20)
    with pytest.raises(ValueError, match="num_rows must be at least 1; found 0"):
        train((x, y), num_rows=0)
    assert np.isfinite(train((x, y), num_rows=10**11)[0].weights).all()  # more than a compiled counter counts
    with pytest.raises(TypeError, match="one batch after the other, outside of traces"):
        jax.jit(lambda start: train((x, y), start=start)[0])(jg.LinearClassifier(jnp.zeros((4, 3)), jnp.zeros(3)))
    with pytest.raises(TypeError, match=r"outside of traces.*found l2 or start under one"):
        jax.jit(
            lambda l2: jg.train_batches(dataclasses.replace(negative, l2=l2), [(x, y)], num_classes=3, num_rows=20)
        )(1.0)
    with pytest.raises(TypeError, match=r"batches must be .* iterable of tuples \(x, y\).*found None"):
        jg.train_batches(jg.LogisticRegression(optimizer=optax.sgd(0.1)), None, num_classes=3, num_rows=20)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="with an optimizer"):
        jg.train_batches(jg.LogisticRegression(), [(x, y)], num_classes=3, num_rows=20)


@pytest.mark.every_platform
def test_a_step_lowers_for_every_platform():
    estimator = jg.LogisticRegression(optimizer=optax.adam(1e-2))

    def step(x, y):
        rows, labels = minibatches._check_batch((x, y), 3)
        decay = jnp.asarray(estimator.l2) / 20.0
        frame, _ = minibatches._frame_program(rows, labels, decay)
        table = frame.table(None)
        state = estimator.optimizer.init(table)
        found = minibatches._step_program(table, state, frame, rows, labels, decay, optimizer=estimator.optimizer)
        return jax.tree.leaves((frame.classifier(found.table)[0], found))

    platforms = ("cuda", "rocm", "tpu", "cpu")
    exported = export.export(jax.jit(step), platforms=platforms)(jnp.ones((20, 4)), jnp.arange(20) % 3)
    assert exported.platforms == platforms
