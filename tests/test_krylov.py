"""GMRES, against the solver of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgen.krylov import gmres


def matrix(n, least, seed=0):
    """Eigenvalues from −1 to −`least`, and not symmetric."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    upper = np.triu(0.02 / n * rng.normal(size=(n, n)), 1) - np.diag(np.geomspace(1.0, least, n))
    return basis @ upper @ basis.T


def solve(a, b):
    return np.asarray(jax.jit(lambda a, b: gmres(lambda x: a @ x, b))(a, b))


@pytest.mark.parametrize("n", [1, 5, 31, 80])  # of more than a cycle has vectors, too
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solutions_are_those_of_numpy(n, dtype):
    a, b = matrix(n, 0.1), 1e5 * np.random.default_rng(1).normal(size=n)
    found = solve(a.astype(dtype), b.astype(dtype))
    assert found.dtype == dtype
    expected = np.linalg.solve(a, b)
    np.testing.assert_allclose(found, expected, atol=300 * np.finfo(dtype).eps * np.abs(expected).max())


def test_several_cycles_find_what_one_does_not():
    a, b = matrix(60, 1e-2), np.random.default_rng(1).normal(size=60)
    np.testing.assert_allclose(a @ solve(a, b), b, atol=1e-13)


def test_what_has_no_solution_is_nan_and_zero_is_zero():
    singular, b = np.diag([1.0, 0.0, 1.0]), np.ones(3)
    assert np.isnan(solve(singular, b)).all()
    assert np.isnan(solve(-np.eye(3), np.array([1.0, np.nan, 2.0]))).all()
    np.testing.assert_array_equal(solve(matrix(3, 0.1), np.zeros(3)), 0.0)
    np.testing.assert_allclose(solve(singular, np.array([2.0, 0.0, 3.0])), [2.0, 0.0, 3.0], rtol=1e-15)


def test_a_stack_and_the_map_stands_once():
    a, b = matrix(7, 0.1), np.random.default_rng(1).normal(size=(3, 7))
    found = jax.jit(jax.vmap(lambda b: gmres(lambda x: jnp.asarray(a) @ x, b)))(b)
    np.testing.assert_allclose(found, np.linalg.solve(a, b.T).T, rtol=1e-12)
    program = jax.make_jaxpr(lambda b: gmres(lambda x: -jnp.cumsum(x), b))(b[0])
    assert str(program).count("cumsum[") == 1
