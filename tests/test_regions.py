"""The decision regions: ellipses, errors, and the files."""

import json
import sys

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from benchmarks import __main__ as command
from benchmarks import regions


@pytest.mark.parametrize("deviations", [1, 2])
def test_an_ellipse_is_as_many_deviations_from_the_mean(deviations):
    mean, covariance = regions.MEAN[1], regions.COVARIANCE[1]
    points = regions.ellipse(mean, covariance, deviations, size=9)
    distances = [mahalanobis(point, mean, np.linalg.inv(covariance)) for point in points]
    np.testing.assert_allclose(distances, deviations, rtol=1e-12)
    assert np.linalg.matrix_rank(points - mean, tol=1e-6) == 2


def test_the_command_measures_the_errors_that_scikit_learn_makes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "regions", "--out", str(tmp_path)])
    monkeypatch.setattr(regions, "SAMPLE", 2_000)
    assert command.main() == 0
    assert "Spherical QDA" in capsys.readouterr().out
    assert (tmp_path / "regions.png").stat().st_size > 100_000
    models = {m["name"]: m for m in json.loads((tmp_path / "regions.json").read_text())["models"]}
    assert len(models) == 8
    x, y = regions.draw_points(regions.POINTS, regions.SEED)
    for name, peer in (
        ("LDA", LinearDiscriminantAnalysis(solver="lsqr")),
        ("QDA", QuadraticDiscriminantAnalysis()),
    ):
        assert models[name]["training_error"] == np.mean(peer.fit(x, y).predict(x) != y)
    covariance = np.array(models["Diagonal QDA"]["parameters"]["covariance"])
    np.testing.assert_allclose([np.diag(c) for c in covariance], [x[y == k].var(axis=0) for k in (0, 1)], rtol=1e-4)
    drawn, label = regions.draw_points(200_000, 5)
    each = zip(regions.MEAN, regions.COVARIANCE, strict=True)
    density = [multivariate_normal(*of_class).logpdf(drawn) for of_class in each]
    bayes, best = np.mean(np.argmax(density, axis=0) != label), models[regions.TRUTH]["true_error"]
    assert abs(best - bayes) < 5 * 0.15 / np.sqrt(4_000)  # probabilities of an error, of 4,000 points, vary by 0.15
