"""Exact totals, logarithms of zero, factors of singular matrices."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgen as jg
from jaxgen.matrices import cholesky, cholesky_or_nan, factor_of_gram, inverse_factor
from jaxgen.numerics import log1p_less, safe_divide, safe_log, shortcut, working_dtype
from jaxgen.total import Total, all_leaves


def test_total_is_exact_in_any_order_of_merging():
    values = np.random.default_rng(0).integers(0, 2**30, size=2000)
    totals = [Total.of(jnp.float32(v // 2**12 * 2**12)).merge(Total.of(jnp.float32(v % 2**12))) for v in values]
    while len(totals) > 1:  # pairwise
        totals = [a.merge(b) for a, b in zip(totals[::2], totals[1::2], strict=False)] + totals[len(totals) & ~1 :]
    assert totals[0].exact() == values.sum()


def test_total_counts_one_at_a_time_past_two_to_the_24():
    count = jax.jit(
        lambda: jax.lax.fori_loop(0, 100, lambda _, t: t.merge(Total.of(jnp.float32(1))), Total.of(jnp.float32(2**24)))
    )()
    assert count.exact() == 2**24 + 100


def test_total_survives_jit_without_being_simplified_away():
    total = jax.jit(lambda a, b: Total.of(a).merge(Total.of(b)))(jnp.float32(2**26), jnp.float32(1))
    assert (total.high, total.low) == (2**26, 1)


def test_counting_and_float32_accuracy_survive_optimisation(run_script):
    """Reassociated sums would lose the low limb, and contracted ones the variance at a large mean.

    Scores that are made twice, for their largest and for what is left of each, would give posteriors above one.
    """
    printed = run_script("""
import jax, jax.numpy as jnp, numpy as np, jaxgen as jg
from jaxgen.total import Total
one, start = Total.of(jnp.float32(1)), Total.of(jnp.float32(2**24))
print(int(jax.jit(lambda: jax.lax.fori_loop(0, 100, lambda _, t: t.merge(one), start))().exact()) - 2**24)
print(int(jax.jit(lambda t: t.scaled(jnp.float32(7)))(Total.of(jnp.float32(2**24 - 1))).exact()) - 7 * 2**24)
rows = np.ones((2**25 + 5, 1), bool)
print(int(jg.BernoulliNB().statistics(rows, np.zeros(len(rows), int)).feature_sum.exact()[0, 0]) - 2**25)
x = (np.random.default_rng(0).normal(size=(100_000, 3)) + 1e5).astype(np.float32)
c = jg.fit(jg.QDA(), x, np.zeros(len(x), int))
factor = np.asarray(c.density.cholesky[0], np.float64)
print(np.abs(factor @ factor.T - np.cov(x.T.astype(np.float64), bias=True)).max() < 1e-3)
rng, y = np.random.default_rng(0), np.arange(200) % 5
for d in (2, 3, 4):
    c = jg.fit(jg.QDA(), rng.normal(size=(200, d)), y)
    print(np.abs(np.exp(jg.log_posterior(c, rng.uniform(500, 1500, (100, d)))).sum(axis=1) - 1).max() < 1e-5)
""")
    assert printed == ["100", "-7", "5", "True", *["True"] * 3]


def test_factors_of_many_matrices():
    root = np.random.default_rng(0).normal(size=(5, 18, 18))
    matrices = root @ np.swapaxes(root, 1, 2) + np.eye(18)
    stacked = jax.vmap(jax.vmap(cholesky))(np.stack([[matrices, 4 * matrices], [matrices, -matrices]]))
    np.testing.assert_allclose(stacked[0, 1], 2 * np.linalg.cholesky(matrices), atol=1e-12)
    assert np.isnan(stacked[1, 1]).any(axis=(1, 2)).all()
    small = jnp.asarray(matrices[:2, :3, :3])
    factors = jax.jit(jax.vmap(lambda a: cholesky((a + jnp.swapaxes(a, 1, 2)) / 2)))
    check_grads(factors, (jnp.stack([small, 2 * small]),), order=2, rtol=1e-5)


def test_the_factor_of_a_gram_matrix_has_the_digits_of_its_rows():
    rows = np.random.default_rng(0).normal(size=(2, 7, 3))
    gram = np.swapaxes(rows, 1, 2) @ rows
    np.testing.assert_allclose(jax.vmap(factor_of_gram)(rows), np.linalg.cholesky(gram), atol=1e-12)
    check_grads(jax.jit(jax.vmap(factor_of_gram)), (rows,), order=2, rtol=1e-5)
    near = np.array([[1.0, 1], [1e-9, 0], [0, 0]])  # whose products hold nothing of 1e-18
    np.testing.assert_allclose(factor_of_gram(near)[1, 1], 1e-9, rtol=1e-6)


def test_subtracting_whole_numbers_is_exact_where_little_remains():
    whole = Total.of(jnp.float32(2**30)).merge(Total.of(jnp.float32(3)))
    assert whole.subtract(Total.of(jnp.float32(2**30))).exact() == 3


def test_a_remainder_of_fractions_below_rounding_is_zero():
    parts = np.random.default_rng(0).random(1000).astype(np.float32)
    whole = Total.of(jnp.asarray(np.sum(parts.astype(np.float64)) * (1 + 3e-7), jnp.float32))
    assert whole.subtract(Total.of(jnp.sum(jnp.asarray(parts)))).value == 0.0


def test_gradient_of_a_total_is_one():
    gradient = jax.grad(lambda a, b: Total.of(a).merge(Total.of(b)).value, argnums=(0, 1))(1e8, 1.0)
    assert gradient == (1.0, 1.0)


def test_a_stack_takes_a_shortcut_where_all_may():
    taken = []

    def way(name):
        def power(x):
            jax.debug.callback(lambda: taken.append(name))
            return x**2 if name == "short" else x * x

        return power

    def through(holds, x):
        return shortcut(holds, way("short"), way("whole"), x)

    holds, x = jnp.ones((2, 3), bool), jnp.arange(6.0).reshape(2, 3)
    for transformed in (jax.vmap(jax.vmap(through)), jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(through, 1))))):
        for all_hold, expected in ((holds, {"short"}), (holds.at[1, 2].set(False), {"whole"})):
            results = jax.tree.leaves(transformed(all_hold, x))
            jax.effects_barrier()
            for result, exact in zip(results, (x**2, 2 * x), strict=False):
                np.testing.assert_array_equal(result, exact)
            assert set(taken) == expected
            taken.clear()


def test_safe_log_and_division_have_finite_gradients_at_zero():
    assert safe_log(jnp.array(0.0)) == -jnp.inf
    assert jax.grad(safe_log)(0.0) == 0.0
    assert jax.grad(jax.grad(safe_log))(0.0) == 0.0
    assert safe_divide(jnp.array(1.0), jnp.array(0.0), 7.0) == 7.0
    assert jax.grad(safe_divide, argnums=1)(1.0, 0.0) == 0.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_what_a_logarithm_leaves_of_its_argument_keeps_its_digits(dtype):
    x = np.concatenate([np.geomspace(1e-9, 1e9, 400), -np.geomspace(1e-9, 0.999, 400)]).astype(dtype)
    exact = [Fraction(float(each)) for each in x]
    near = [sum(-((-a) ** i) / i for i in range(2, 14)) for a in exact]  # where 13 terms of the series are enough
    far = np.log1p(x.astype(np.longdouble)) - x
    expected = np.where(np.abs(x) < 0.03, np.array([float(a) for a in near]), far.astype(float))
    np.testing.assert_allclose(log1p_less(jnp.asarray(x)), expected, rtol=1e-6 if dtype == jnp.float32 else 3e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_covariances_are_nan_one_by_one(dtype):
    regular, rank_one = np.array([[2.0, 1], [1, 2]]), np.ones((2, 2))
    factors = cholesky_or_nan(jnp.asarray(np.stack([regular, rank_one, 0 * regular]), dtype), jnp.asarray(False))
    np.testing.assert_allclose(factors[0], np.linalg.cholesky(regular), rtol=1e-6)
    assert np.isnan(factors[1:]).all()


def test_a_ridge_lost_in_rounding_is_raised_to_it():
    d = 50
    rank_one = jnp.asarray(np.ones((1, d, d)) + 1e-7 * np.eye(d), jnp.float32)
    beside = jnp.asarray(np.cov(np.random.default_rng(0).normal(size=(d, 200))), jnp.float32)[None]
    stack = jnp.concatenate([beside, rank_one, jnp.full((1, d, d), jnp.nan)])
    factors = cholesky_or_nan(stack, jnp.asarray(True))
    factor = np.asarray(factors[1], np.float64)
    change = np.abs(factor @ factor.T - np.asarray(rank_one[0], np.float64)).max()
    assert 0 < change < 4 * d * np.finfo(np.float32).eps
    # What needs no raise has none, whatever stands beside it, in a stack or under vmap.
    np.testing.assert_array_equal(factors[0], cholesky_or_nan(beside, jnp.asarray(True))[0])
    np.testing.assert_allclose(factors[0], np.linalg.cholesky(beside[0]), atol=1e-5)
    assert np.isnan(factors[2]).all()
    each = jax.vmap(lambda one: cholesky_or_nan(one[None], jnp.asarray(True))[0])(stack)
    np.testing.assert_array_equal(each, factors)
    assert np.isnan(cholesky_or_nan(rank_one, jnp.asarray(False))).all()


def test_inverse_factor_whitens():
    factor = np.linalg.cholesky(np.cov(np.random.default_rng(0).normal(size=(4, 30))))
    np.testing.assert_allclose(inverse_factor(jnp.asarray(factor)[None])[0], np.linalg.inv(factor), atol=1e-12)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("float64", "float64"), ("float32", "float32"), ("bfloat16", "float32"), ("float16", "float32"),
     ("int32", "float64"), ("uint8", "float64"), ("bool", "float64")],
)  # fmt: skip
def test_working_dtype_with_x64_on(given, expected):
    assert working_dtype(jnp.dtype(given)) == expected


@pytest.mark.parametrize("size", [3, 70_000])
@pytest.mark.parametrize("place", [0, -1])
def test_one_bad_number_among_many_is_seen(size, place):
    largest = np.finfo(np.float32).max
    for value, finite, below in [
        (largest, True, True),
        (-largest, True, True),
        (-np.inf, False, True),
        (np.inf, False, False),
        (np.nan, False, False),
    ]:
        numbers = np.full((size, 2), -largest if value < 0 else largest, np.float32)
        numbers[place, 1] = value
        tree = {"a": jnp.asarray(numbers), "b": Total.of(jnp.asarray(numbers[:, 0])), "c": jnp.float32(0)}
        assert all_leaves(jnp.isfinite, tree) == finite
        assert all_leaves(lambda number: number < jnp.inf, tree) == below


def test_what_fractions_leave_of_a_whole_number_is_noise_too():
    whole, part = Total.of(jnp.array([1.0, 3.0], jnp.float32)), Total.of(jnp.array([1 - 2.0**-24, 0.1], jnp.float32))
    rest = whole.subtract(part)
    np.testing.assert_array_equal(rest.value[0], 0.0)
    np.testing.assert_allclose(rest.value[1], 2.9, rtol=1e-6)


def test_a_combination_of_features_is_singular_whatever_rounding_leaves():
    x = np.random.default_rng(0).normal(size=(300, 100, 19))
    x = np.float32(np.concatenate([x, x.sum(axis=2, keepdims=True) / np.sqrt(19)], axis=2))
    covariance = jnp.asarray(np.swapaxes(x, 1, 2) @ x / 100)
    assert np.isnan(cholesky_or_nan(covariance, jnp.zeros((), bool))).all()


@pytest.mark.parametrize("classes", [1, 2])
def test_what_stands_above_a_factor_plays_no_part_and_has_no_derivative(classes):
    rng, d = np.random.default_rng(0), 20
    factor = np.tril(0.1 * rng.normal(size=(classes, d, d))) + np.eye(d)
    x, mean = rng.normal(size=(5, d)), jnp.asarray(rng.normal(size=(2, d)))

    @jax.value_and_grad
    def loss(factor):
        return jnp.sum(jg.log_evidence(jg.Classifier(jnp.log(jnp.array([0.4, 0.6])), jg.Gaussian(mean, factor)), x))

    (value, gradient), (other, _) = loss(jnp.asarray(factor)), loss(jnp.asarray(factor + np.triu(np.ones((d, d)), 1)))
    np.testing.assert_allclose(value, other, rtol=1e-10)
    np.testing.assert_array_equal(np.triu(gradient, 1), 0.0)
    assert (np.tril(gradient) != 0).any()
