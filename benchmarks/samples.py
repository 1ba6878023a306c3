"""`python -m benchmarks samples`: digits drawn from four generative models, beside real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import jaxgen as jg
from benchmarks.records import INK, MUTED, describe, figure, save_json, save_picture, wide_console
from benchmarks.timing import environment

if TYPE_CHECKING:
    from pathlib import Path

SEED = 0
EACH = 200  # of each digit, to be judged
INKED = 8  # a pixel of 0 … 16 above it is ink to the Bernoulli model
MODELS: list[tuple[str, Any, str]] = [
    ("LDA", jg.LDA(), "one covariance for all"),
    ("QDA", jg.QDA(), "a covariance for each digit"),
    ("Gaussian naive Bayes", jg.GaussianNB(), "independent pixels"),
    ("Bernoulli naive Bayes", jg.BernoulliNB(), "independent pixels of ink"),
]


def draw(seed: int = SEED) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, float]]:
    """Images and labels of each model and of the real digits; and how many a classifier of real digits recognises.

    That is scikit-learn's nearest neighbours, trained on half of the real digits; the other half is its own yardstick.
    What has ink or none is judged by one that was trained on ink or none.
    """
    digits: Any = load_digits()
    pixels, y = digits.data.astype(np.float32), digits.target.astype(np.int32)
    inked = (pixels > INKED).astype(np.float32)
    half = np.random.default_rng(seed).permutation(len(y)) % 2 == 0
    judge, judge_of_ink = (KNeighborsClassifier(1).fit(x[half], y[half]) for x in (pixels, inked))
    images = {"real": (pixels[~half], y[~half])}
    recognised = {
        "real": float(judge.score(pixels[~half], y[~half])),
        "real ink": float(judge_of_ink.score(inked[~half], y[~half])),
    }
    classes = np.repeat(np.arange(10, dtype=np.int32), EACH)
    for key, (name, estimator, _) in zip(jax.random.split(jax.random.key(seed), len(MODELS)), MODELS, strict=True):
        ink = isinstance(estimator, jg.BernoulliNB)
        c = jg.fit(estimator, inked if ink else pixels, y)
        x = np.asarray(jg.sample(key, c, len(classes), y=classes)[0])
        images[name] = x, classes
        recognised[name] = float((judge_of_ink if ink else judge).score(x, classes))
    return images, recognised


def run(out: Path) -> None:
    """Draw the digits, and say how many are recognised."""
    images, recognised = draw()
    titles = [("real", "real digits"), *((name, f"{name}: {text}") for name, _, text in MODELS)]
    said = {name: f"{recognised[name]:.0%} recognised" for name, _ in titles}
    said["Bernoulli naive Bayes"] += f", of real ink {recognised['real ink']:.0%}"
    about = environment()
    picture = figure(6.4, 1.62 * len(titles) + 0.95, left=0.15, right=0.15, bottom=0.1, top=1.1)
    picture.subplots_adjust(hspace=0.3)
    picture.suptitle("Digits that generative classifiers imagine", color=INK, x=0.024, y=0.985, ha="left", fontsize=13)
    judged = f"recognised: by the nearest of half of the real digits; {about['device']}, {about['date']}"
    picture.text(0.024, 0.937, judged, color=INK, fontsize=8.5)
    for axes, (name, title) in zip(picture.subplots(len(titles), 1), titles, strict=True):
        x, y = images[name]
        most = 1.0 if name == "Bernoulli naive Bayes" else 16.0
        apart = [x[[np.flatnonzero(y == k)[i] for k in range(10)]].reshape(10, 8, 8) for i in range(2)]
        rows = [np.hstack(list(np.pad(each, [(0, 0), (1, 1), (1, 1)]))) for each in apart]
        axes.imshow(np.vstack(rows), cmap="gray_r", vmin=0, vmax=most, interpolation="nearest")
        axes.set_title(f"{title}; {said[name]}", loc="left", color=INK, fontsize=10)
        axes.set_xticks(np.arange(0, 101, 10) - 0.5, labels=[])
        axes.set_yticks([-0.5, 9.5, 19.5], labels=[])
        axes.tick_params(length=0)
        axes.grid(color=MUTED, linewidth=0.4)
    save_picture(picture, out / "samples.png")
    save_json({"environment": about, "recognised": recognised, "each": EACH, "seed": SEED}, out / "samples.json")
    console = wide_console(118)
    for name, title in titles:
        console.print(f"{title}: {said[name]} by the nearest of half of the real digits", highlight=False)
    console.print(describe(about), highlight=False)
    console.print(f"Written to {out}: samples.json, samples.png", highlight=False)
