"""`python -m benchmarks regions`: what six Gaussian classifiers and logistic regression make of the same points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from rich import box
from rich.table import Table

import jaxgen as jg
from benchmarks.records import INK, MUTED, OURS, PEER, describe, figure, save_json, save_picture, wide_console
from benchmarks.timing import environment

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

SEED = 0
POINTS = 120  # of each class, to fit
SAMPLE = 100_000  # of each class, to measure errors in truth
# Both classes are correlated and neither is like the other, so that what each model assumes of Σ can be seen.
MEAN = np.array([[0.0, 0.0], [2.0, 0.7]])
COVARIANCE = np.array([[[4.2, 1.4], [1.4, 1.0]], [[0.5, 0.6], [0.6, 1.2]]])
TRUTH = "Truth"
# Row by row: the name, the estimator, and what Σ looks like with the boundary that follows.
PANELS: list[tuple[str, Any, str]] = [
    ("QDA", jg.GDA("full", shared=False), "tilted ellipses: any conic"),
    ("Diagonal QDA", jg.GDA("diagonal", shared=False), "upright ellipses: an upright conic"),
    ("Spherical QDA", jg.GDA("spherical", shared=False), "circles: a circle"),
    (TRUTH, None, "the densities that the points are drawn from"),
    ("LDA", jg.GDA("full", shared=True), "one tilted ellipse, twice: a line"),
    ("Diagonal LDA", jg.GDA("diagonal", shared=True), "one upright ellipse, twice: a line"),
    ("Spherical LDA", jg.GDA("spherical", shared=True), "one circle, twice: halfway between the means"),
    ("Logistic regression", jg.LogisticRegression(l2=1.0), "no density: a line"),
]
LEFT, RIGHT, BOTTOM, TOP = -5.2, 5.2, -3.6, 4.2
COLORS, MARKERS = (OURS, PEER), ("o", "s")
SHADES = LinearSegmentedColormap.from_list("posterior", ["#a9d2de", "#ffffff", "#f3caa9"])


def draw_points(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`size` points of each class from the true densities, and their labels."""
    noise = np.random.default_rng(seed).standard_normal((2, size, 2))
    x = MEAN[:, None] + noise @ np.linalg.cholesky(COVARIANCE).transpose(0, 2, 1)
    return x.reshape(-1, 2), np.repeat(np.arange(2), size)


def classifiers(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Every model fitted to the points, and the truth, which is a classifier like the others."""
    truth = jg.Gaussian(jnp.asarray(MEAN), jnp.asarray(np.linalg.cholesky(COVARIANCE)))
    return {
        name: jg.fit(estimator, x, y) if estimator else jg.Classifier(jnp.log(jnp.full(2, 0.5)), truth)
        for name, estimator, _ in PANELS
    }


def covariances(density: jg.Gaussian | jg.DiagonalGaussian) -> np.ndarray:
    """Σ_k of each class as a matrix, also where it is shared, diagonal or spherical: (K, d, d)."""
    classes, d = density.mean.shape
    if isinstance(density, jg.Gaussian):
        factor = np.asarray(density.cholesky)
    else:
        factor = np.eye(d) * np.asarray(density.scale)[:, None, :]
    return np.broadcast_to(factor @ factor.transpose(0, 2, 1), (classes, d, d))


def ellipse(mean: np.ndarray, covariance: np.ndarray, deviations: float, size: int = 181) -> np.ndarray:
    """Points at the Mahalanobis distance `deviations` from the mean, once around it: a circle under L of Σ = LLᵀ."""
    angle = np.linspace(0, 2 * np.pi, size)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return mean + deviations * circle @ np.linalg.cholesky(covariance).T


def measure(fitted: dict[str, Any], x: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Parameters and errors of each model.

    The true error is the mean of p(y ≠ prediction | x) under the truth over a large sample, which varies less than a
    count of mistakes; that of the truth itself is the Bayes error.
    """
    many, _ = draw_points(SAMPLE, SEED + 1)
    posterior = np.exp(np.asarray(jg.log_posterior(fitted[TRUTH], many), np.float64))
    models = []
    for name, classifier in fitted.items():
        right = posterior[np.arange(len(many)), np.asarray(jg.predict(classifier, many))]
        models.append(
            {
                "name": name,
                "training_error": float(np.mean(np.asarray(jg.predict(classifier, x)) != y)),
                "true_error": float(1 - right.mean()),
                "parameters": _parameters(classifier),
            }
        )
    return models


def _parameters(classifier: Any) -> dict[str, Any]:
    if isinstance(classifier, jg.LinearClassifier):
        return {"weights": np.asarray(classifier.weights).tolist(), "bias": np.asarray(classifier.bias).tolist()}
    return {
        "prior": np.exp(np.asarray(classifier.log_prior)).tolist(),
        "mean": np.asarray(classifier.density.mean).tolist(),
        "covariance": covariances(classifier.density).tolist(),
    }


def run(out: Path) -> None:
    """Fit every model to the points, print errors, write JSON and the picture."""
    console = wide_console(80)
    x, y = draw_points(POINTS, SEED)
    fitted = classifiers(x, y)
    record = {
        "environment": environment(),
        "seed": SEED,
        "points_of_each_class": POINTS,
        "sample_of_each_class": SAMPLE,
        "models": measure(fitted, x, y),
    }
    table = Table(title="Decision regions", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("model", no_wrap=True)
    for header in ("error on the points", "true error"):
        table.add_column(header, justify="right", no_wrap=True)
    for model in record["models"]:
        table.add_row(model["name"], *(f"{model[key]:.1%}" for key in ("training_error", "true_error")))
    console.print(table)
    console.print(
        f"{POINTS} points of each of two Gaussian classes. The true error of the truth is the Bayes error.\n"
        + describe(record["environment"]),
        highlight=False,
    )
    save_json(record, out / "regions.json")
    draw(record, fitted, x, y, out / "regions.png")
    console.print(f"Written to {out}: regions.json and regions.png", highlight=False)


def draw(record: dict[str, Any], fitted: dict[str, Any], x: np.ndarray, y: np.ndarray, path: Path) -> None:
    """A panel for each model: a covariance for each class above, a shared one below, the truth and logistic right."""
    picture = figure(13.2, 7.9, left=0.45, right=0.2, bottom=0.45, top=1.75)
    panels = picture.subplots(2, 4, gridspec_kw={"hspace": 0.42, "wspace": 0.07})
    for panel, (name, _, note), model in zip(panels.flat, PANELS, record["models"], strict=True):
        _panel(panel, fitted[name], x, y)
        panel.text(0, 1.105, name, transform=panel.transAxes, fontsize=12, color=INK, weight="bold")
        here, truth = model["training_error"], model["true_error"]
        errors = f"error {here:.1%} here, {truth:.1%} in truth" + (" (Bayes)" if name == TRUTH else "")
        panel.text(0, 1.03, errors, transform=panel.transAxes, fontsize=9.5, color=INK)
        panel.set_xlabel(note, fontsize=9.5, color="#555555", loc="left")
    for panel, text in zip(panels[:, 0], ("Σ of each class its own", "one Σ for both classes"), strict=True):
        panel.set_ylabel(text, fontsize=11, color=INK)
    picture.text(0.012, 0.945, "What is assumed of Σ shapes the boundary", fontsize=15, color=INK)
    about = f"The same {2 * POINTS} points of two Gaussian classes everywhere; the deeper a shade, the surer the model"
    picture.text(0.012, 0.905, about, fontsize=10, color="#555555")
    _legend(picture)
    save_picture(picture, path)


def _panel(panel: Axes, classifier: Any, x: np.ndarray, y: np.ndarray) -> None:
    across, up = np.meshgrid(np.linspace(LEFT, RIGHT, 261), np.linspace(BOTTOM, TOP, 196))
    grid = np.stack([across.ravel(), up.ravel()], axis=1)
    log_posterior = np.asarray(jg.log_posterior(classifier, grid), np.float64).reshape(*across.shape, 2)
    extent = (LEFT, RIGHT, BOTTOM, TOP)
    panel.imshow(np.exp(log_posterior[..., 1]), SHADES, extent=extent, origin="lower", vmin=0, vmax=1)
    panel.contour(across, up, log_posterior[..., 1] - log_posterior[..., 0], [0.0], colors=INK, linewidths=2.0)
    wrong = np.asarray(jg.predict(classifier, x)) != y
    for k, (color, marker) in enumerate(zip(COLORS, MARKERS, strict=True)):
        for rows, look in (((y == k) & ~wrong, marker), ((y == k) & wrong, "x")):
            panel.scatter(*x[rows].T, s=11 if look == marker else 22, c=color, marker=look, linewidths=1.1, alpha=0.75)
        if isinstance(classifier, jg.Classifier):
            mean, covariance = np.asarray(classifier.density.mean)[k], covariances(classifier.density)[k]
            for deviations in (1, 2):
                panel.plot(*ellipse(mean, covariance, deviations).T, color=color, linewidth=1.8 / deviations)
            panel.plot(*mean, "+", color=INK)
    panel.set(xlim=(LEFT, RIGHT), ylim=(BOTTOM, TOP), xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set_color(MUTED)


def _legend(picture: Any) -> None:
    entries = [
        Line2D([], [], color=INK, linewidth=2.0, label="boundary: both equally probable"),
        Line2D([], [], color=MUTED, linewidth=1.8, label="one deviation, the outer line two"),
    ]
    for k, (color, marker) in enumerate(zip(COLORS, MARKERS, strict=True)):
        entries.append(Line2D([], [], color=color, marker=marker, linestyle="", markersize=5, label=f"class {k}"))
        entries.append(Line2D([], [], color=color, marker="x", linestyle="", label=f"class {k}, mistaken"))
    picture.legend(
        handles=entries, ncols=3, fontsize=9.5, frameon=False, loc="upper right", bbox_to_anchor=(0.99, 0.99)
    )
