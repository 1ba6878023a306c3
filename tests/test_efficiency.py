"""Efron's efficiency: his integrals and covariances by other ways, the simulations, and what the command leaves."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import jaxgen as jg
from benchmarks import efficiency, efron, misfits
from benchmarks.efron import Normals
from benchmarks.misfits import MISFITS, RULES

# B. Efron, JASA 70 (1975): Eff∞ at π₁ = ½.
PUBLISHED = {0.5: 1.000, 1.0: 0.995, 1.5: 0.968, 2.0: 0.899, 2.5: 0.786, 3.0: 0.641, 3.5: 0.486, 4.0: 0.343}
SETTINGS = [Normals(1.0, 0.5), Normals(2.0, 0.7), Normals(3.5, 0.9), Normals(2.0, 0.2)]


@pytest.mark.parametrize("distance", PUBLISHED)
def test_the_published_efficiencies(distance):
    normals = Normals(distance, 0.5)
    assert normals.efficiency() == pytest.approx(PUBLISHED[distance], abs=5e-4)
    # At π₁ = ½ Efron's efficiency is the same in any number of dimensions.
    assert normals.efficiency(3) == pytest.approx(normals.efficiency(), rel=1e-9)


@pytest.mark.parametrize("normals", SETTINGS, ids=str)
def test_the_quadrature_is_a_sum_over_the_mixture(normals):
    """π₀π₁ A_i = E[p(1 − p) x₁ⁱ], from the posterior and the density as they are defined."""
    x, step = np.linspace(-14, 14, 4001, retstep=True)
    joint = [
        prior * norm.pdf(x, sign * normals.distance / 2)
        for sign, prior in ((-1, 1 - normals.prior), (1, normals.prior))
    ]
    posterior = joint[1] / (joint[0] + joint[1])
    for i in range(3):
        expected = step * np.sum((joint[0] + joint[1]) * posterior * (1 - posterior) * x**i)
        assert normals.mixing * normals.integrals[i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("model", ["lda", "logistic"])
def test_the_covariances_are_those_of_the_influence_of_every_row(model):
    """n·Cov = E[ψψᵀ], where ψ is the derivative of the fit to the population with respect to the weight of a row.

    The population is a grid with both classes at each point: sums over it are integrals to rounding, in x₁ by the
    trapezoid rule, in x₂ by Gauss's.
    """
    line, step = np.linspace(-10, 10, 81, retstep=True)
    nodes, mass = np.polynomial.hermite_e.hermegauss(3)
    x = np.stack(np.meshgrid(line, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    share = np.repeat(step, len(line))[:, None] * mass / mass.sum()
    rows, labels = np.vstack([x, x]), np.repeat(np.int32([0, 1]), len(x))
    estimator = jg.LDA(ridge=0.0) if model == "lda" else jg.LogisticRegression(l2=0.0)

    @jax.jit
    def rule_and_influence(weight, truth):
        def rule(weight):
            start = jg.LinearClassifier(jnp.outer(truth[:2], jnp.array([-0.5, 0.5])), truth[2] * jnp.array([-0.5, 0.5]))
            if model == "lda":
                fitted = jg.to_linear(jg.fit(estimator, rows, labels, num_classes=2, sample_weight=weight))
            else:
                fitted, _ = jg.train(estimator, rows, labels, num_classes=2, sample_weight=weight, start=start)
            return jnp.append(fitted.weights[:, 1] - fitted.weights[:, 0], fitted.bias[1] - fitted.bias[0])

        return rule(weight), jax.jacrev(rule)(weight)

    for normals in SETTINGS:
        density = [norm.pdf(line, sign * normals.distance / 2)[:, None] * share for sign in (-1, 1)]
        weight = np.concatenate([(1 - normals.prior) * density[0].ravel(), normals.prior * density[1].ravel()])
        truth = np.array([normals.distance, 0.0, -normals.boundary * normals.distance])
        rule, influence = rule_and_influence(weight, truth)
        np.testing.assert_allclose(rule, truth, atol=1e-6)
        covariance = np.asarray(influence) * weight @ np.asarray(influence).T
        theory = getattr(normals, model)
        np.testing.assert_allclose(covariance[np.ix_([2, 0], [2, 0])], theory.along, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(covariance[1, 1], theory.across, rtol=1e-5)
        np.testing.assert_allclose(covariance[1, [0, 2]], 0, atol=1e-5)


@pytest.mark.parametrize("normals", SETTINGS, ids=str)
def test_the_regret_and_its_curvature(normals):
    """The regret is an integral over the plane; its second derivatives at the truth make the finite efficiencies."""
    truth = np.array([normals.distance, 0.0, -normals.boundary * normals.distance])
    assert normals.regret(truth) == pytest.approx(0, abs=1e-15)
    rule = truth + np.array([0.3, -0.8, 0.4])
    # Given x₁ the second feature is beyond the boundary with a normal probability: one integral is left.
    x, step = np.linspace(-13, 13, 40_001, retstep=True)
    right = ndtr(-(rule[0] * x + rule[2]) / 0.8)  # p(−0.8 x₂ > −w₁x₁ − b) is 1 less this
    mass = [
        prior * norm.pdf(x, sign * normals.distance / 2)
        for sign, prior in ((-1, 1 - normals.prior), (1, normals.prior))
    ]
    error = step * np.sum(mass[0] * (1 - right) + mass[1] * right)
    bayes = step * np.sum(np.minimum(*mass))
    assert normals.regret(rule) == pytest.approx(error - bayes, rel=1e-5)

    h = 1e-3
    steps = h * np.eye(3)
    second = np.array([[normals.regret(truth + a + b) - normals.regret(truth + a - b) for b in steps] for a in steps])
    second -= np.array([[normals.regret(truth - a + b) - normals.regret(truth - a - b) for b in steps] for a in steps])
    hessian = second / (4 * h * h)
    regrets = []
    for theory in (normals.lda, normals.logistic):
        covariance = np.zeros((3, 3))
        covariance[np.ix_([2, 0], [2, 0])] = theory.along
        covariance[1, 1] = theory.across
        regrets.append(np.trace(hessian @ covariance) / 2)
    assert regrets[0] / regrets[1] == pytest.approx(normals.efficiency(2), rel=1e-3)
    assert hessian[1, 1] / 2 == pytest.approx(normals.curvature, rel=1e-3)


def test_many_dimensions_leave_only_the_angle():
    normals = Normals(2.0, 0.8)
    assert normals.efficiency(1e9) == pytest.approx(normals.efficiency(), rel=1e-6)
    assert abs(normals.efficiency(2) - normals.efficiency()) > 5e-3


def test_cross_terms_are_the_products_of_different_rows():
    influence = np.random.default_rng(0).standard_normal((7, 2))
    products = np.einsum("ia,ja->aij", influence, influence)
    expected = [(p.sum() - np.trace(p)) / 49 for p in products]
    np.testing.assert_allclose(efron._cross_terms(jnp.asarray(influence)), expected, rtol=1e-12)


def test_the_error_of_a_ratio():
    """As the ratios of many repetitions scatter."""
    rng = np.random.default_rng(1)
    b = 5 + rng.standard_normal((4_000, 100))
    a = 0.4 * b + 1 + 0.5 * rng.standard_normal(b.shape)
    found = [efron.ratio(*pair) for pair in zip(a, b, strict=True)]
    assert np.mean([f["ratio"] for f in found]) == pytest.approx(0.6, abs=2e-3)
    assert np.mean([f["error"] for f in found]) == pytest.approx(np.std([f["ratio"] for f in found]), rel=0.05)


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_what_is_drawn_has_the_density_that_is_said(misfit):
    """Labels are then Bernoulli with the posterior, whatever they are multiplied with."""
    key_y, key_x = jax.random.split(jax.random.key(5))
    y = jax.random.randint(key_y, (20_000,), 0, 2, jnp.int32)
    x = np.asarray(misfit.draw(key_x, y), np.float64)
    posterior = misfit.posterior(x)
    sure = (posterior - 0.5)[:, None]  # which a wrong scale makes too much or too little
    features = np.hstack([np.ones((len(x), 1)), x, sure, np.abs(sure), np.minimum(x**2, 9)])
    residual = (np.asarray(y) - posterior)[:, None] * features
    z = residual.sum(axis=0) / np.sqrt((residual**2).sum(axis=0))
    assert np.abs(z).max() < 4.5
    assert 0.1 < np.minimum(posterior, 1 - posterior).mean() < 0.3


def test_when_logistic_regression_overtakes():
    def points(gains, z):
        return [
            {"rows": 10 ** (i + 1), "generative": {"mean": 0.3 + gain}, "logistic": {"mean": 0.3, "z": score}}
            for i, (gain, score) in enumerate(zip(gains, z, strict=True))
        ]

    found = misfits.overtakes(points([-0.1, -0.02, 0.02, 0.03], [-9, -3, 4, 9]), "logistic")
    assert found == {"rows": 1_000, "crossing": pytest.approx(10**2.5)}
    # Ahead at 100 rows, but by less than two standard errors: they meet before.
    found = misfits.overtakes(points([-0.1, 0.1, 0.2, 0.3], [-9, 1, 4, 9]), "logistic")
    assert found == {"rows": 1_000, "crossing": pytest.approx(10**1.5)}
    assert misfits.overtakes(points([0.1, 0.2], [3, 4]), "logistic") == {"rows": 10, "crossing": None}
    assert misfits.overtakes(points([0.1, -0.2], [3, -4]), "logistic") is None


def test_a_quick_run(tmp_path, capsys):
    efficiency.run(tmp_path, quick=True)
    printed = capsys.readouterr().out
    assert "Efron's integral" in printed
    assert "correlated features" in printed
    for name in ("efficiency.png", "efficiency-misspecified.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / "efficiency.json").read_text(encoding="utf-8"))
    assert record["environment"]["jax"] == jax.__version__
    assert [(r["prior"], r["distance"]) for r in record["efron"]] == [(p, d) for p in (0.5, 0.9) for d in (1, 2, 3)]
    for r in record["efron"]:
        assert r["converged"] == 1
        assert (r["rows"], r["replications"]) == (2**12, 16)
        normals = Normals(r["distance"], r["prior"])
        for name, theory in (("angle", normals.efficiency()), ("regret", normals.efficiency(record["features"]))):
            assert r[name]["theory"] == pytest.approx(theory)
            assert abs(r[name]["ratio"] - theory) < 5 * r[name]["error"]
            assert 0 < r[name]["error"] < r[name]["with_cross_terms"]["error"]
            assert 0 < r[name]["means"]["LDA"]
        # The angle's mean square, in theory V/(n Δ²) for each of the other features.
        expected = (record["features"] - 1) * normals.lda.across / (r["rows"] * r["distance"] ** 2)
        assert r["angle"]["means"]["LDA"] == pytest.approx(expected, rel=0.25)
    assert [m["name"] for m in record["misfits"]] == [misfit.name for misfit in MISFITS]
    for misfit in record["misfits"]:
        assert [point["rows"] for point in misfit["sizes"]] == [20, 100, 400]
        means = {rule: [point[rule]["mean"] for point in misfit["sizes"]] for rule in RULES}
        for rule in RULES:
            assert all(misfit["bayes_error"] < mean < 0.5 for mean in means[rule])
            assert means[rule][-1] < means[rule][0]
        assert misfit["sizes"][0]["logistic"]["z"] < 2  # no penalty, ten features and twenty rows
        assert set(misfit["overtakes"]) == {"logistic", "penalised"}
    assert record["misfits"][2]["sizes"][0]["generative"]["mean"] < record["misfits"][2]["sizes"][0]["logistic"]["mean"]


def test_verdicts():
    misfit = {"name": "counts", "wrong": "a reason", "sizes": [{"rows": 400}]}
    found = {"logistic": {"rows": 200, "crossing": 123.4}, "penalised": None}
    assert efficiency.verdict(misfit | {"overtakes": found}) == (
        "counts (a reason): logistic regression is ahead from 200 rows on (the errors meet at about 120); with l2 = 1 "
        "it is not ahead at 400 rows."
    )
