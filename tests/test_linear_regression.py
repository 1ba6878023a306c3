"""Linear regression: certified digits, optimality, gradients through the optimum, paths, errors."""

import importlib.util
import re
import sys
import warnings
from contextlib import contextmanager
from fractions import Fraction
from functools import partial

import jax
import numpy as np
import optax
import pytest
from jax import export
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso, LinearRegression, Ridge

from jaxgen import linear_regression as lr
from jaxgen.coordinate_descent import solve_active

# NIST Statistical Reference Datasets, linear regression: target, features; and certified bias and weights.
LONGLEY = """60323 83.0 234289 2356 1590 107608 1947
61122 88.5 259426 2325 1456 108632 1948
60171 88.2 258054 3682 1616 109773 1949
61187 89.5 284599 3351 1650 110929 1950
63221 96.2 328975 2099 3099 112075 1951
63639 98.1 346999 1932 3594 113270 1952
64989 99.0 365385 1870 3547 115094 1953
63761 100.0 363112 3578 3350 116219 1954
66019 101.2 397469 2904 3048 117388 1955
67857 104.6 419180 2822 2857 118734 1956
68169 108.4 442769 2936 2798 120445 1957
66513 110.8 444546 4681 2637 121950 1958
68655 112.6 482704 3813 2552 123366 1959
69564 114.2 502601 3931 2514 125368 1960
69331 115.7 518173 4806 2572 127852 1961
70551 116.9 554894 4007 2827 130081 1962"""
LONGLEY_CERTIFIED = (
    "-3482258.63459582 15.0618722713733 -0.0358191792925910 -2.02022980381683 -1.03322686717359 -0.0511041056535807 "
    "1829.15146461355"
)
NORRIS = """0.1 0.2; 338.8 337.4; 118.1 118.2; 888.0 884.6; 9.2 10.1; 228.1 226.5; 668.5 666.3; 998.5 996.3; 449.1 448.6
778.9 777.0; 559.2 558.2; 0.3 0.4; 0.1 0.6; 778.1 775.5; 668.8 666.9; 339.3 338.0; 448.9 447.5; 10.8 11.6; 557.7 556.0;
228.3 228.1; 998.0 995.8; 888.8 887.6; 119.6 120.2; 0.3 0.3; 0.6 0.3; 557.6 556.8; 339.3 339.1; 888.0 887.2;
998.5 999.0; 778.9 779.0; 10.2 11.1; 117.6 118.3; 228.9 229.2; 668.4 669.1; 449.2 448.9; 0.2 0.5"""
NORRIS_CERTIFIED = "-0.262323073774029 1.00211681802045"


def exact_solution(rows):
    """Bias and weights of least squares in exact fractions: the normal equations, eliminated."""
    design = [[Fraction(1), *row[1:]] for row in rows]
    size = len(design[0])
    system = [
        [sum(row[i] * row[j] for row in design) for j in range(size)]
        + [sum(row[i] * of[0] for row, of in zip(design, rows, strict=True))]
        for i in range(size)
    ]
    for i in range(size):
        system[i] = [value / system[i][i] for value in system[i]]  # a Gram matrix needs no pivoting
        for j in set(range(size)) - {i}:
            system[j] = [a - system[j][i] * b for a, b in zip(system[j], system[i], strict=True)]
    return [row[size] for row in system]


def digits(found, exact):
    errors = [abs((Fraction(float(f)) - e) / e) for f, e in zip(found, exact, strict=True)]
    return [-np.log10(max(float(error), 1e-16)) for error in errors]


@pytest.mark.parametrize(
    ("text", "certified", "least"), [(LONGLEY, LONGLEY_CERTIFIED, 13.5), (NORRIS, NORRIS_CERTIFIED, 12)]
)
def test_nist_certified_values(text, certified, least):
    rows = [[Fraction(value) for value in line.split()] for line in re.split("[;\n]+", text)]
    exact = exact_solution(rows)
    np.testing.assert_allclose(np.array(exact, float), np.array(certified.split(), float), rtol=2e-14)
    table = np.array(rows, float)
    line = lr.least_squares(table[:, 1:], table[:, 0])
    assert min(digits([line.bias, *line.weights], exact)) > least


COMPILATIONS = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **__: COMPILATIONS.append(event) if event == "/jax/core/compile/backend_compile_duration" else None
)


@contextmanager
def compiles_once():
    """For a program that nothing else has compiled: then no order of tests, and no other worker, makes a difference."""
    COMPILATIONS.clear()
    yield
    assert len(COMPILATIONS) == 1


def some(n=16, m=None, seed=0):
    """As many rows and features as Longley's: programs are compiled for these shapes once, and serve every test."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)) * [1, 10, 0.1, 3, 1, 0.3] + [5, -100, 0, 1, 0, 2]
    signal = x @ [1.0, 0.2, 20.0, -0.5, 0.0, 3.0]
    return x, (signal if m is None else signal[:, None] * np.arange(1, m + 1)) + rng.normal(size=(n, m) if m else n)


PENALISED = {
    "ridge": (lr.ridge, 3.0),
    "lasso": (lr.lasso, 0.3),
    "gradient descent": (lambda x, t, l2, **options: lr.gradient_descent(x, t, l2=l2, **options), 3.0),
}
FITS = {"least squares": lr.least_squares} | {
    name: lambda x, t, fit=fit, penalty=penalty, **options: fit(x, t, penalty, **options)
    for name, (fit, penalty) in PENALISED.items()
}
PEERS = {
    "least squares": LinearRegression(),
    "ridge": Ridge(3.0, solver="svd"),
    "lasso": Lasso(0.3, tol=1e-12, max_iter=100_000),
    "gradient descent": Ridge(3.0, solver="svd"),
}
TARGETS = {"least squares": None, "ridge": 2, "lasso": None, "gradient descent": 2}
each_fit = pytest.mark.parametrize("name", FITS)
each_penalised = pytest.mark.parametrize("name", PENALISED)


@each_fit
def test_weighted_fit_equals_scikit_learn(name):
    x, target = some(m=TARGETS[name])
    weight = np.random.default_rng(1).random(len(x))
    line = FITS[name](x, target, sample_weight=weight)
    peer = PEERS[name].fit(x, target, sample_weight=weight)
    assert line.weights.shape == (6, *target.shape[1:])
    np.testing.assert_allclose(line.weights, peer.coef_.T, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(line.bias, peer.intercept_, rtol=1e-6)
    np.testing.assert_allclose(lr.predict(line, x), peer.predict(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(lr.predict(line, x[0]).shape, target.shape[1:])


@each_fit
def test_weights_repeat_rows_and_zero_is_absence(name):
    x, target = some(m=TARGETS[name])
    repeats = np.random.default_rng(2).permutation(np.repeat([0, 1, 2], [4, 8, 4]))
    absent = repeats == 0
    spoilt, spoilt_target = x.copy(), target.copy()
    spoilt[absent], spoilt_target[absent] = np.nan, np.inf
    weight = repeats if name == "least squares" else repeats.astype(float)  # whole numbers are weights, too
    line = FITS[name](spoilt, spoilt_target, sample_weight=weight)
    expected = FITS[name](np.repeat(x, repeats, 0), np.repeat(target, repeats, 0))
    np.testing.assert_allclose(line.weights, expected.weights, rtol=1e-8)
    np.testing.assert_allclose(line.bias, expected.bias, rtol=1e-8)


def test_lasso_equals_scikit_learn_and_drops_what_it_drops():
    x, target = load_diabetes(return_X_y=True, scaled=False)
    centred = x - x.mean(0)
    with compiles_once():
        for share in (0.5, 0.01, 1e-4):
            l1 = share * np.max(np.abs(centred.T @ (target - target.mean()))) / len(x)
            line = lr.lasso(x, target, l1)
            peer = Lasso(l1, tol=1e-12, max_iter=1_000_000).fit(x, target)
            np.testing.assert_allclose(line.weights, peer.coef_, rtol=1e-6)
            np.testing.assert_array_equal(np.asarray(line.weights) == 0, peer.coef_ == 0)
            np.testing.assert_allclose(line.bias, peer.intercept_, rtol=1e-6)


def distance_from_optimum(x, target, line, l1):
    """How much the slopes of the loss differ from l1·sign w, or exceed l1 where w is 0; and the mean residual."""
    w = np.asarray(line.weights)
    residual = target - x @ w - float(line.bias)
    x, deviation = x - x.mean(0), np.where(x.std(0) > 0, x.std(0), 1)
    slope = x.T @ residual / len(x)
    excess = np.where(w == 0, np.maximum(np.abs(slope) - l1, 0), np.abs(slope - l1 * np.sign(w)))
    return np.max(excess / deviation) / target.std(), abs(residual.mean())


def collinear():
    grid = np.linspace(0.5, 1, 16)
    x = np.stack([grid**k for k in range(1, 7)], 1)
    return x, np.sin(6 * grid) + 0.1 * np.random.default_rng(0).normal(size=16), 1e-6


def wide():
    x = np.random.default_rng(0).normal(size=(16, 40))
    return x, x[:, 0] - 2 * x[:, 1], 0.05


def duplicates():
    x, target = some()
    return np.concatenate([x[:, :3], x[:, :2], np.full((len(x), 1), 7.0)], 1), target, 0.1


@pytest.mark.parametrize("data", [collinear, wide, duplicates])
def test_lasso_is_optimal_where_coordinate_descent_alone_creeps(data):
    x, target, l1 = data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = lr.lasso(x, target, l1)
    np.testing.assert_allclose(distance_from_optimum(x, target, line, l1), 0.0, atol=1e-10)


@pytest.mark.parametrize("ratio", [1e-3, 1e-4, 1e-5])
def test_lasso_in_float32_is_at_the_optimum_or_says_that_it_is_not(ratio):
    rng = np.random.default_rng(1)
    x = np.repeat(rng.normal(size=(100, 20)), 2, axis=1) + 1e-3 * rng.normal(size=(100, 40))
    target = x @ (rng.normal(size=40) * (rng.random(40) < 0.2)) + rng.normal(size=100)
    x, target = x.astype(np.float32), target.astype(np.float32)
    exact_x, exact_target = x.astype(float), target.astype(float)
    l1 = ratio * np.abs((exact_x - exact_x.mean(0)).T @ (exact_target - exact_target.mean())).max() / 100

    def objective(weights):
        error = exact_target - exact_x @ np.asarray(weights, float)
        return error.var() / 2 + l1 * np.abs(np.asarray(weights, float)).sum()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = objective(lr.lasso(x, target, l1).weights)
        least = objective(lr.lasso(exact_x, exact_target, l1).weights)
    assert found - least <= 2e-6 * target.var() or any("did not converge" in str(w.message) for w in said)
    assert found - least <= 1e-4 * target.var()


def test_steps_descend_where_rounding_has_left_a_negative_eigenvalue():
    gram, v = np.array([[1, 1 + 2.0**-52], [1 + 2.0**-52, 1]]), np.array([1.0, -1])
    assert v @ gram @ v < 0 < v @ np.asarray(jax.jit(solve_active)(gram, np.ones(2), v))


@pytest.mark.parametrize(("unit", "l2"), [(1e-8, 1.0), (1e-6, 1.0), (1.0, 1e20)])
def test_a_penalty_that_outweighs_the_data_leaves_the_digits_of_the_weights(unit, l2):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(100, 2)) * [1.0, unit]).astype(np.float32)
    y = (x @ [1.0, 0.5 / unit] + rng.normal(size=100)).astype(np.float32)
    centred, target = (each.astype(float) - each.astype(float).mean(axis=0) for each in (x, y))
    exact = np.linalg.solve(centred.T @ centred + l2 * np.eye(2), centred.T @ target)
    np.testing.assert_allclose(lr.ridge(x, y, l2).weights, exact, rtol=1e-4)


def test_a_first_row_of_next_to_no_weight_is_no_pivot():
    x, weight = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32), np.ones(200, np.float32)
    x[0], weight[0] = 1e6, 1e-30
    line = lr.least_squares(x, x @ np.float32([1, 2]) + np.float32(1), sample_weight=weight)
    np.testing.assert_allclose([*line.weights, line.bias], [1, 2, 1], rtol=1e-5)


def test_a_constant_feature_has_no_weight_without_a_penalty_either():
    for fit, m in ((lr.lasso, None), (PENALISED["gradient descent"][0], 2)):
        x, target = some(m=m)
        x[:, 5] = 7.1  # whose sum and mean are rounded
        weights, peer = np.asarray(fit(x, target, 0.0).weights), LinearRegression().fit(x[:, :5], target)
        np.testing.assert_array_equal(weights[5], np.zeros(target.shape[1:]))
        np.testing.assert_allclose(weights[:5], peer.coef_.T, rtol=1e-6)


def test_wide_data_without_a_penalty_are_met():
    x, target, _ = wide()
    for line in (lr.lasso(x, target, 0.0), lr.gradient_descent(x, target), lr.ridge(x, target, 1e-9)):
        np.testing.assert_allclose(lr.predict(line, x), target, atol=1e-6)


def weights_and_bias(name):
    fit, _ = PENALISED[name]
    return lambda x, target, weight, penalty: tuple(fit(x, target, penalty, sample_weight=weight))


def gradient(name, arguments, cotangent):
    """Of ⟨cotangent, the fit⟩, by x, target, weight and penalty."""
    return jax.vjp(weights_and_bias(name), *arguments)[1](cotangent)


@partial(jax.jit, static_argnums=0)
def derivatives(name, arguments, tangent, cotangent):
    """Forwards, of the fit; backwards, the gradient; and backwards again, of ⟨tangent, the gradient⟩."""
    first, pull = jax.vjp(lambda *arguments: gradient(name, arguments, cotangent), *arguments)
    return jax.jvp(weights_and_bias(name), arguments, tangent)[1], first, pull(tangent)


def inner(a, b):
    return sum(np.sum(np.multiply(*pair)) for pair in zip(a, b, strict=True))


def problem(name):
    """Data, weights and a penalty; a tangent of these, and a cotangent of the fit."""
    rng = np.random.default_rng(3)
    x, target = some(m=TARGETS[name])
    arguments = x, target, rng.random(16) + 0.5, np.float64(PENALISED[name][1])
    tangent = tuple(rng.normal(size=np.shape(part)) for part in arguments)
    return arguments, tangent, (rng.normal(size=(6, *target.shape[1:])), rng.normal(size=target.shape[1:]))


@pytest.mark.parametrize("name", ["ridge", "lasso"])
def test_derivatives_go_through_the_optimum(name):
    arguments, tangent, cotangent = problem(name)
    forwards, backwards, second = derivatives(name, arguments, tangent, cotangent)

    def around(step):
        moved = tuple(a + step * t for a, t in zip(arguments, tangent, strict=True))
        weights, bias = weights_and_bias(name)(*moved)
        assert name != "lasso" or 0 < np.sum(np.asarray(weights) == 0) < 6
        return map(np.asarray, (weights, bias, *derivatives(name, moved, tangent, cotangent)[1]))

    eps = 1e-5
    for found, above, below in zip((*forwards, *second), around(eps), around(-eps), strict=True):
        difference = (above - below) / (2 * eps)
        np.testing.assert_allclose(found, difference, rtol=1e-7, atol=1e-7 * np.max(np.abs(difference)))
    np.testing.assert_allclose(inner(backwards, tangent), inner(cotangent, forwards), rtol=1e-10)


def test_derivatives_of_gradient_descent_are_those_of_the_closed_form():
    arguments, tangent, cotangent = problem("ridge")
    found = jax.jit(partial(gradient, "gradient descent"))(arguments, cotangent)
    expected = derivatives("ridge", arguments, tangent, cotangent)[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), found, expected)


def slopes(name, x, target, weight, penalty, of_weights, of_bias):
    """The gradient, by all four, of a combination of weights and bias."""
    arguments = x, target, weight, np.float64(penalty)
    return derivatives(name, arguments, arguments, (np.asarray(of_weights, float), np.asarray(of_bias, float)))[1]


def test_derivatives_at_the_edge_are_those_just_inside():
    """A weight of 0 has its derivative, and so have l2 = 0 and l1 = 0."""
    first = np.arange(16) == 0
    for name in ("ridge", "lasso"):
        x, target = some(m=TARGETS[name])
        of = np.zeros((6, *target.shape[1:])), np.ones(target.shape[1:])
        at, inside = (slopes(name, x, target, np.where(first, edge, 1.0), edge, *of)[2:] for edge in (0.0, 1e-9))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), at, inside)
        assert np.all(np.abs(at[0]) > 0)


def test_weights_that_are_zero_for_a_constant_target_have_the_derivatives_of_least_squares():
    x, _ = some()
    of_second = np.arange(6) == 1
    lasso = slopes("lasso", x, np.ones(16), np.ones(16), 0.0, of_second, 0.0)[1]
    ridge = slopes("ridge", x, np.ones((16, 2)), np.ones(16), 0.0, of_second[:, None] * [1, 0], np.zeros(2))[1]
    np.testing.assert_allclose(lasso, np.asarray(ridge)[:, 0], rtol=1e-9)


def test_duplicates_share_what_one_feature_alone_would_do():
    x, target, l1 = duplicates()
    alone = np.where(np.arange(6) < 3, x, 7.0)
    lines = lr.lasso(x, target, l1), lr.lasso(alone, target, l1)
    assert np.asarray(lines[0].weights)[-1] == 0
    assert np.all(np.asarray(lines[1].weights)[3:] == 0)
    np.testing.assert_allclose(lr.predict(lines[0], x), lr.predict(lines[1], alone), atol=1e-8)
    gradients = [slopes("lasso", of, target, np.ones(16), l1, of[0], 1.0)[1] for of in (x, alone)]
    np.testing.assert_allclose(*gradients, atol=1e-8)


def test_a_path_of_penalties_factors_the_data_once():
    x, target = some()
    penalties = np.array([0.01, 0.3, 10.0])
    for fit in (lr.ridge, lr.lasso):
        path = jax.vmap(lambda penalty, fit=fit: fit(x, target, penalty))
        weights, bias = map(np.asarray, path(penalties))
        for i, penalty in enumerate(penalties):
            one = fit(x, target, penalty)
            np.testing.assert_allclose(weights[i], one.weights, rtol=1e-9)
            np.testing.assert_allclose(bias[i], one.bias, rtol=1e-9)
        program = str(jax.make_jaxpr(path)(penalties))
        assert "f64[16,7]" in program
        assert not re.search(r"\[3,16\b|\[16,3\b", program)  # no rows of the data for each penalty


def combination():
    x, _ = some()
    x[:, 2] = x[:, 0] - 2 * x[:, 1]
    return x


@pytest.mark.parametrize(
    ("features", "culprit"),
    [
        (duplicates()[0], 3),
        (np.where(np.arange(6) == 0, 7.1, some()[0]), 0),
        (combination(), 2),
        (wide()[0], 15),
    ],
    ids=["copies", "constant", "combination", "too few rows"],
)
def test_dependent_features_need_a_penalty(features, culprit):
    (_, target), (n, d) = some(), features.shape
    few = rf"as some of {d} features in {n} rows must be.*" if n <= d else "before it, so"
    with pytest.raises(ValueError, match=rf"feature {culprit} is constant or.*{few}.*use ridge\(x, target, l2\)"):
        lr.least_squares(features, target)
    if culprit > 0:  # of a constant the weight is 0, whatever the penalty
        with pytest.raises(ValueError, match=rf"feature {culprit} is constant or.*raise l2"):
            lr.ridge(features, target, 1e-40)
    line = lr.ridge(features, target, 0.5)
    peer = Ridge(0.5, solver="svd").fit(features, target)
    np.testing.assert_allclose(line.weights, peer.coef_, rtol=1e-9, atol=1e-12)


def test_with_a_penalty_dependent_features_have_derivatives():
    (_, target, weight, _), tangent, cotangent = problem("ridge")
    arguments = duplicates()[0], target, weight, np.float64(0.5)
    backwards = derivatives("ridge", arguments, tangent, cotangent)[1]

    def along(step):
        moved = (a + step * t for a, t in zip(arguments, tangent, strict=True))
        return inner(cotangent, weights_and_bias("ridge")(*moved))

    np.testing.assert_allclose(inner(backwards, tangent), (along(1e-5) - along(-1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("name", ["least squares", "lasso"])
def test_float32_keeps_its_digits_where_means_are_large(name):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(16, 6)) + 1e4).astype(np.float32)
    target = (x @ [1.0, -2.0, 0.0, 0.5, 0.0, 0.0] + rng.normal(size=16)).astype(np.float32).astype(float)
    single, double = FITS[name](x, target), FITS[name](x.astype(float), target)
    assert single.weights.dtype == np.float32
    np.testing.assert_allclose(single.weights, double.weights, atol=2e-6)
    if name == "least squares":
        x[:, 3] = x[:, 0] + x[:, 1]  # but for rounding
        with pytest.raises(ValueError, match="feature 3 is constant or"):
            lr.least_squares(x, target)


def test_units_do_not_matter():
    x, target = some(m=2)
    units = np.array([1e-170, 1.0, 1e170, 1e3, 1.0, 1e-3])
    expected = np.asarray(lr.ridge(x, target, 0.0).weights)
    for fit, t, of in (
        (lr.least_squares, target[:, 0], expected[:, 0]),
        (lr.gradient_descent, target, expected),
        (lambda x, target: lr.lasso(x, target, 0.0), target[:, 0], expected[:, 0]),
    ):
        weights = np.asarray(fit(x * units, 1e120 * t).weights)
        np.testing.assert_allclose((weights.T * units).T / 1e120, of, rtol=1e-6, atol=1e-8)


def test_any_optimizer_descends_to_the_same_place_or_says_that_it_did_not():
    x, target = some(m=2)
    adam = optax.adam(0.1)
    with compiles_once():
        line = lr.gradient_descent(x, target, l2=2.0, optimizer=adam, steps=2000)
        with pytest.warns(RuntimeWarning, match=r"did not converge in 2000 steps.*gradient is.*Raise steps"):
            lr.gradient_descent(collinear()[0], target, optimizer=adam, steps=2000)
    np.testing.assert_allclose(line.weights, lr.ridge(x, target, 2.0).weights, atol=1e-6)
    with pytest.warns(RuntimeWarning, match=r"did not converge in 1 steps.*duality gap is.*Raise max_steps"):
        lr.lasso(*collinear(), max_steps=1, tolerance=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lr.lasso(*collinear(), max_steps=1, tolerance=1e3)
        jax.eval_shape(lambda x, t: lr.lasso(x, t, 1e-6, max_steps=1, tolerance=1e-12), *collinear()[:2])


X, T = some()[0], np.arange(16.0)
FIT = lr.least_squares
BAD_CALLS = {
    "one-dimensional x": (lambda: FIT(T, T), ValueError, r"x must have shape \(n, d\).*found \(16,\)"),
    "strings": (lambda: FIT(X.astype(str), T), TypeError, r"x must be a real numeric array"),
    "target of durations": (lambda: FIT(X, T.astype("m8[s]")), TypeError, r"target must be a real.*timedelta64"),
    "masked target": (lambda: FIT(X, np.ma.masked_array(T)), TypeError, r"Give target.data, and .*sample_weight 0"),
    "target of words": (lambda: FIT(X, ["a"] * 16), TypeError, r"target must be a real numeric array"),
    "target of another length": (
        lambda: FIT(X, T[:4]),
        ValueError,
        r"target must have one entry.*16 rows.*found \(4,\)",
    ),
    "target of three axes": (lambda: FIT(X, T[:, None, None]), ValueError, r"target must have.*found \(16, 1, 1\)"),
    "no targets": (lambda: FIT(X, np.ones((16, 0))), ValueError, r"target must have.*found \(16, 0\)"),
    "NaN in x": (
        lambda: FIT(np.where(X == X[1, 1], np.nan, X), T),
        ValueError,
        r"x must hold finite.*nan at row 1, column 1",
    ),
    "NaN in target": (
        lambda: FIT(X, np.where(T == 2, np.nan, T)),
        ValueError,
        r"target must hold finite.*nan in row 2.*impute",
    ),
    "target that overflows": (
        lambda: FIT(X.astype(np.float32), 1e39 * T),
        ValueError,
        r"finite numbers, in float32; found 1e\+39 in row 1",
    ),
    "x that overflows": (
        lambda: FIT(np.where(X > X.mean(0), 1.5e308, -1.5e308), T),
        ValueError,
        r"overflows\. Rescale",
    ),
    "negative weight": (lambda: FIT(X, T, sample_weight=-T), ValueError, r"sample_weight must be finite.*found -1"),
    "no weight": (lambda: FIT(X, T, sample_weight=0 * T), ValueError, r"weights of all rows are zero"),
    "negative l2": (lambda: lr.ridge(X, T, -1.0), ValueError, r"l2 must be finite and 0 or more; found -1"),
    "several l2": (lambda: lr.ridge(X, T, np.ones(2)), TypeError, r"l2 must be one real number.*vmap"),
    "l1 of words": (lambda: lr.lasso(X, T, "much"), TypeError, r"l1 must be one real number.*'much'"),
    "l2 that float reads": (lambda: lr.ridge(X, T, "1"), TypeError, r"l2 must be one real number.*'1'.*with float\(\)"),
    "ragged l2": (lambda: lr.ridge(X, T, [[1.0], [1.0, 2.0]]), TypeError, r"l2 must be one real number"),
    "NaN l1": (lambda: lr.lasso(X, T, np.nan), ValueError, r"l1 must be finite and 0 or more; found nan"),
    "negative tolerance": (lambda: lr.lasso(X, T, 1.0, tolerance=-1), ValueError, r"tolerance must be finite and 0"),
    "no steps": (
        lambda: lr.lasso(X, T, 1.0, max_steps=0),
        ValueError,
        r"max_steps must be at least 1; found 0",
    ),
    "several targets of the lasso": (
        lambda: lr.lasso(X, X, 1.0),
        ValueError,
        r"target must have shape \(n,\) for the lasso.*found \(16, 6\).*vmap",
    ),
    "half a step": (
        lambda: lr.gradient_descent(X, T, steps=0.5),
        TypeError,
        r"steps must be a Python integer.*found 0.5",
    ),
    "optimizer by name": (
        lambda: lr.gradient_descent(X, T, optimizer="sgd"),
        TypeError,
        r"optimizer must be an optax.*found 'sgd'",
    ),
    "squares of the target that overflow": (
        lambda: FIT(X.astype(np.float32), np.where(T > 1, 3e38, -3e38)),
        ValueError,
        r"target must hold numbers whose squares have a sum in float32; found 3e\+38",
    ),
    "NaN in the regressor": (
        lambda: lr.predict(lr.LinearRegressor(np.full(6, np.nan), np.array(0.0)), X),
        ValueError,
        r"regressor must hold finite weights and biases; found NaN",
    ),
    "no regressor": (lambda: lr.predict((T, 0), X), TypeError, r"must be a LinearRegressor; found tuple"),
    "points of other width": (
        lambda: lr.predict(FIT(X, T), X[:, :1]),
        ValueError,
        r"x must have shape \(6,\) or \(n, 6\)",
    ),
    "NaN in a point": (lambda: lr.predict(FIT(X, T), X[0] * np.nan), ValueError, r"x must hold finite.*found nan"),
    "stack of regressors": (
        lambda: lr.predict(lr.LinearRegressor(np.ones((3, 2)), np.ones(3)), X),
        ValueError,
        r"\(3, 2\) and \(3,\).*vmap",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_each_error_says_what_was_expected_and_found(name):
    call, kind, message = BAD_CALLS[name]
    with pytest.raises(kind, match=message):
        call()


@each_penalised
def test_vmap_equals_a_loop_and_bad_values_under_a_trace_give_nan(name):
    fit = PENALISED[name][0]
    (x, target, weight, penalty), _, _ = problem(name)
    first = np.arange(16) == 0
    bad_x, bad_target = x.copy(), target.copy()
    bad_x[0, 0], bad_target[0] = np.nan, np.inf
    good = [(x, target, weight, penalty), (x[::-1], 2 * target, weight[::-1] + 1, 0.1)]
    bad = [
        (bad_x, target, weight, penalty),
        (x, bad_target, weight, penalty),
        (x, target, np.where(first, -1.0, weight), penalty),
        (x, target, 0 * weight, penalty),
        (x, target, weight, -1.0),
    ]
    if name == "ridge":
        good += [(x, target, weight, 0.0), (duplicates()[0], target, weight, 0.5)]
        bad += [(duplicates()[0], target, weight, 0.0)]
    batch = jax.jit(jax.vmap(lambda x, target, weight, penalty: fit(x, target, penalty, sample_weight=weight)))
    lines = jax.tree.map(np.asarray, batch(*(np.stack(part) for part in zip(*good, *bad, strict=True))))
    for i, (x, target, weight, penalty) in enumerate(good):
        line = fit(x, target, penalty, sample_weight=weight)
        np.testing.assert_allclose(lines.weights[i], line.weights, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(lines.bias[i], line.bias, rtol=1e-6)
    assert all(np.isnan(leaf[len(good) :]).all() for leaf in lines)


@pytest.mark.every_platform
def test_programs_lower_for_every_platform():
    x, target = some()
    x = x.astype(np.float32)

    def everything(x, target):
        lines = [fit(x, target) for fit in FITS.values()]
        return [lr.predict(line, x) for line in lines], jax.grad(lambda x: FITS["lasso"](x, target).bias)(x)

    exported = export.export(jax.jit(everything), platforms=("cuda", "rocm", "tpu", "cpu"))(x, target)
    assert exported.platforms == ("cuda", "rocm", "tpu", "cpu")


def test_only_an_optimiser_of_optax_waits_for_optax(monkeypatch):
    by_optax = partial(lr.gradient_descent, optimizer=optax.sgd(0.1))
    monkeypatch.setitem(sys.modules, "optax", None)
    for room in ("optimum", "regression_problem", "coordinate_descent", "linear_regression"):
        spec = importlib.util.find_spec(f"jaxgen.{room}")
        fresh = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fresh)
    x, target = some()
    for fit in (fresh.least_squares, lambda x, target: fresh.lasso(x, target, 0.3), fresh.gradient_descent):
        jax.eval_shape(fit, x, target)  # the whole program is traced
    with pytest.raises(ImportError):
        jax.eval_shape(by_optax, x, target)


def test_a_fit_is_one_program():
    """Also when all is cold; and so is that of the lasso to the diabetes data, and that of Adam: see there."""
    x, target = some(n=17)  # rows enough for no other test
    jax.clear_caches()
    with compiles_once():
        lr.least_squares(x, target)
        lr.ridge(x + 1, 2 * target, 3.0)
        lr.ridge(x, target, 2)


@pytest.mark.parametrize(("dtype", "noise"), [(np.float32, 1e-3), (np.float64, 1e-6)])
def test_without_a_penalty_the_lasso_is_least_squares_of_nearly_dependent_features_too(dtype, noise):
    rng = np.random.default_rng(0)
    first = rng.normal(size=200)
    x = np.c_[first, first + noise * rng.normal(size=200)].astype(dtype)
    t = ((x[:, 1] - x[:, 0]).astype(float) / noise + 0.1 * rng.normal(size=200)).astype(dtype)
    found = lr.lasso(x, t, 0.0)
    exact = np.linalg.lstsq(np.c_[x, np.ones(200)].astype(float), t.astype(float))[0]
    np.testing.assert_allclose(found.weights, exact[:2], rtol=1e-2 if dtype == np.float32 else 1e-8)


def test_gradient_descent_of_a_penalty_that_outweighs_the_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)) * [1e-8, 1.0]
    t = x[:, 1] + 0.1 * rng.normal(size=100)
    for l2 in (1.0, 1e3, 1e6):
        exact = np.linalg.solve(
            (x - x.mean(0)).T @ (x - x.mean(0)) + l2 * np.eye(2), (x - x.mean(0)).T @ (t - t.mean())
        )
        found = lr.gradient_descent(x, t, l2=l2).weights  # and no warning
        np.testing.assert_allclose(x @ np.asarray(found), x @ exact, rtol=1e-6)


@pytest.mark.parametrize("noise", [0.1, 0.01])
def test_the_lasso_of_correlated_features_has_its_derivatives_in_float32(noise):
    """By the penalty they are −G⁻¹ sign(w) of the centred features, where none is zero."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 12))
    x[:, 1:] = x[:, :1] + noise * x[:, 1:]
    t = x @ rng.normal(size=12) + 0.1 * rng.normal(size=60)
    x, t, l1 = (np.asarray(each, np.float32) for each in (x, t, 1e-4 * noise))
    centred = x.astype(float) - x.astype(float).mean(0, keepdims=True)
    expected = -60 * np.linalg.solve(centred.T @ centred, np.sign(lr.lasso(x, t, l1).weights))
    slope = jax.jacrev(lambda l1: lr.lasso(x, t, l1).weights)(l1)
    assert slope.dtype == np.float32
    scale = np.abs(expected).max()
    np.testing.assert_allclose(slope / np.float32(scale), expected / scale, atol=1e-4)


def test_gradient_descent_that_diverges_names_the_optimizer():
    x, target = some()
    with pytest.raises(ValueError, match=r"optimizer must converge; found a gradient .* Lower its learning rate"):
        lr.gradient_descent(x, target, optimizer=optax.sgd(1e5))


def test_a_far_first_row_costs_no_digits_in_float32():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(100_000, 2)) + 3).astype(np.float32)
    x[0] += 1e4
    target = (x @ np.float32([1, 2]) + rng.normal(size=len(x))).astype(np.float32)
    single, double = (lr.least_squares(x.astype(dtype), target.astype(dtype)) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single.weights, double.weights, atol=1e-4)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 1e-5), (np.float64, 1e-9)])
def test_descent_ends_where_the_gradient_is_as_small_as_promised(dtype, most):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(dtype)
    target = (x @ np.array([1.0, 2.0, 3.0], dtype) + rng.normal(size=200)).astype(dtype)
    line = lr.gradient_descent(x, target, optimizer=optax.sgd(0.05), steps=10_000)
    unit, unit_of_target = x.std(axis=0, dtype=float), target.std(dtype=float)
    standard = (x - x.mean(axis=0, dtype=float)) / unit
    residual = (target - target.mean(dtype=float)) / unit_of_target
    residual -= standard @ (np.asarray(line.weights, float) * unit / unit_of_target)
    assert most / 2 < np.linalg.norm(standard.T @ residual / 200) < 1.1 * most


def test_a_prediction_that_overflows_is_said():
    line = lr.LinearRegressor(np.float32([1e38, 1e38]), np.float32(0))
    with pytest.raises(ValueError, match="the prediction overflows"):
        lr.predict(line, np.float32([[10, 10]]))


def test_a_warning_names_the_line_that_called():
    x = np.random.default_rng(0).normal(size=(60, 3))
    with pytest.warns(RuntimeWarning, match="did not converge") as warned:
        lr.gradient_descent(x, x[:, 0], steps=1)
    assert warned[0].filename == __file__
