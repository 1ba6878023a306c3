"""L-BFGS: its directions against the recursion of the textbooks, and its minimum against a linear solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgen import lbfgs

turn = jax.jit(lbfgs._turn)


def two_loops(pairs, gradient):
    """−H g (Nocedal & Wright 2006, algorithm 7.4)."""
    q, turned = gradient.copy(), []
    for s, y in reversed(pairs):
        alpha = s @ q / (s @ y)
        q -= alpha * y
        turned.append(alpha)
    s, y = pairs[-1]
    r = s @ y / (y @ y) * q
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
