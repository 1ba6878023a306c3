"""L-BFGS: its directions against the recursion of the textbooks, and its minimum against a linear solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgen import lbfgs
from jaxgen.preconditioner import Preconditioner

turn = jax.jit(lbfgs._turn)


def two_loops(pairs, gradient, metric=None):
    """−H g (Nocedal & Wright 2006, algorithm 7.4), where H begins with a multiple of the metric, or of I."""
    metric = np.eye(len(gradient)) if metric is None else metric
    q, turned = gradient.copy(), []
    for s, y in reversed(pairs):
        alpha = s @ q / (s @ y)
        q -= alpha * y
        turned.append(alpha)
    s, y = pairs[-1]
    r = s @ y / (y @ metric @ y) * metric @ q
    for (s, y), alpha in zip(pairs, reversed(turned), strict=True):
        r += s * (alpha - y @ r / (s @ y))
    return -r


def quadratic(p=30, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(p, p)))[0]
    return basis * np.geomspace(1, 1e3, p) @ basis.T, rng.normal(size=p)


def begin(gradient):
    m, p = lbfgs._MEMORY, len(gradient)
    memory = lbfgs._Memory(np.zeros((2 * m + 1, p)), np.zeros((m, m)))
    return turn(memory, np.int32(-1), np.zeros(p), gradient)


def test_directions_are_those_of_the_two_loop_recursion():
    """Also when the memory is full, and old pairs make room."""
    hessian, linear = quadratic()
    rng, point, pairs = np.random.default_rng(1), np.zeros(30), []
    gradient = -linear
    memory, direction, slope, norm = begin(gradient)
    np.testing.assert_allclose(direction, -gradient, rtol=1e-12)
    for step in range(2 * lbfgs._MEMORY + 5):
        move = np.asarray(direction) * rng.uniform(0.2, 1.0)
        after = hessian @ (point + move) - linear
        pairs = [*pairs, (move, after - gradient)][-lbfgs._MEMORY :]
        memory, direction, slope, norm = turn(memory, np.int32(step), move, after)
        point, gradient = point + move, after
        expected = two_loops(pairs, gradient)
        np.testing.assert_allclose(direction, expected, rtol=1e-6, atol=1e-8 * np.linalg.norm(expected))
        np.testing.assert_allclose(slope, expected @ gradient, rtol=1e-6)
        np.testing.assert_allclose(norm, np.linalg.norm(gradient), rtol=1e-12)


def test_a_pair_without_curvature_is_none():
    hessian, linear = quadratic()
    gradient = -linear
    memory, *_ = begin(gradient)
    pairs = []
    for step, move in enumerate(np.random.default_rng(2).normal(size=(6, 30))):
        change = hessian @ move * (-1 if step in (2, 5) else 1)
        gradient = gradient + change
        pairs += [] if step in (2, 5) else [(move, change)]
        memory, direction, *_ = turn(memory, np.int32(step), move, gradient)
        if step not in (2, 5):  # where H begins with I
            np.testing.assert_allclose(direction, two_loops(pairs, gradient), rtol=1e-7, atol=1e-9)
    assert np.isfinite(direction).all()


@pytest.mark.parametrize("shape", [(30,), (10, 3)])
def test_it_ends_at_the_minimum(shape):
    hessian, linear = quadratic()
    steps = 500

    def loss(point):
        flat = point.ravel()
        return 0.5 * flat @ jnp.asarray(hessian) @ flat - jnp.asarray(linear) @ flat

    evaluate = jax.value_and_grad(loss)
    found = lbfgs.minimise(evaluate, jnp.zeros(shape), jnp.asarray(1e-9), jnp.asarray(-jnp.inf), steps)
    assert found.point.shape == shape
    assert found.norm <= 1e-9
    assert found.steps < steps
    np.testing.assert_allclose(found.point.ravel(), np.linalg.solve(hessian, linear), atol=1e-9)
    few = lbfgs.minimise(evaluate, jnp.zeros(shape), jnp.asarray(1e-9), jnp.asarray(-jnp.inf), 3)
    assert few.steps == 3
    assert few.norm > 1e-9


def test_it_ends_where_the_loss_is_low_enough_and_where_rounding_hides_the_rest():
    hessian, linear = quadratic()
    evaluate = jax.value_and_grad(lambda p: 0.5 * p @ jnp.asarray(hessian) @ p - jnp.asarray(linear) @ p)
    least = -0.5 * linear @ np.linalg.solve(hessian, linear)
    found = lbfgs.minimise(evaluate, jnp.zeros(30), jnp.asarray(1e-9), jnp.asarray(least / 2), 500)
    assert found.value < least / 2
    assert found.norm > 1
    found = lbfgs.minimise(evaluate, jnp.zeros(30), jnp.asarray(0.0), jnp.asarray(-jnp.inf), 20_000)
    assert found.steps < 5_000


def positive(p, seed):
    a = np.random.default_rng(seed).normal(size=(p, p))
    return a @ a.T + p * np.eye(p)


def test_a_preconditioner_may_change_on_the_way():
    """The memory goes along: directions are those of all pairs, from the newer metric."""
    p, m = 10, 3
    hessian, linear = quadratic(p * m)
    first, second = (Preconditioner.of(jnp.asarray(positive(p, seed))) for seed in (1, 2))
    metrics = [np.kron(np.linalg.inv(positive(p, seed)), np.eye(m)) for seed in (1, 2)]
    memory = lbfgs._Memory(jnp.zeros((2 * lbfgs._MEMORY + 1, p * m)), jnp.zeros((lbfgs._MEMORY, lbfgs._MEMORY)))
    number, point = jnp.zeros(()), np.zeros(p * m)
    nowhere = jnp.zeros(p * m)
    s = lbfgs._Descent(nowhere, *[number] * 2, nowhere, *[number] * 2, memory, *[number] * 3, -1, 0, first)
    rng, pairs, gradient = np.random.default_rng(3), [], -linear
    turn = jax.jit(lambda s, move, gradient: lbfgs._turn_of(s, move, gradient, (p, m)))
    renew = jax.jit(lambda s: lbfgs._renewed(s, lambda table: second, (p, m), jnp.asarray(True)))
    memory, *_ = turn(s, nowhere, gradient)
    for step in range(6):
        move = rng.normal(size=p * m)
        after = hessian @ (point + move) - linear
        pairs.append((move, after - gradient))
        point, gradient = point + move, after
        s = s._replace(memory=memory, steps=jnp.asarray(step), looks=jnp.asarray(lbfgs._RENEWAL if step == 3 else 1))
        s = renew(s)
        metric = metrics[step >= 3]
        memory, direction, slope, norm = turn(s, move, gradient)
        expected = two_loops(pairs, gradient, metric)
        # A preconditioner adds a ten-thousandth to the diagonal.
        np.testing.assert_allclose(direction, expected, rtol=1e-3, atol=1e-3 * np.linalg.norm(expected))
        np.testing.assert_allclose(slope, np.asarray(direction) @ gradient, rtol=1e-9)
        np.testing.assert_allclose(norm, np.linalg.norm(gradient), rtol=1e-12)


def test_with_the_curvature_itself_a_few_steps_are_enough():
    p, m = 10, 3
    hessian, linear = quadratic(p)
    linear = np.outer(linear, np.arange(1, m + 1))

    def loss(table):
        return 0.5 * jnp.sum(table * (jnp.asarray(hessian) @ table)) - jnp.sum(jnp.asarray(linear) * table)

    ends = jnp.asarray(1e-6), jnp.asarray(-jnp.inf), 500
    evaluate, expected = jax.value_and_grad(loss), np.linalg.solve(hessian, linear)
    plain = lbfgs.minimise(evaluate, jnp.zeros((p, m)), *ends)
    for curvature, most in ((hessian, 5), (positive(p, 1), 500)):  # any other is right as well

        def precondition(table, curvature=curvature):
            return Preconditioner.of(jnp.asarray(curvature) * (1 + jnp.sum(table**2)))

        found = lbfgs.minimise(evaluate, jnp.zeros((p, m)), *ends, precondition)
        assert found.norm <= 1e-6
        assert found.steps <= most
        np.testing.assert_allclose(found.point, expected, atol=1e-6)
    assert plain.steps > 10
