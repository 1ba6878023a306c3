"""The data of the experiments, and what a case of `throughput` prepares before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

import jaxgen as jg
from benchmarks.synthetic import TextModel, gaussian_rows

if TYPE_CHECKING:
    from collections.abc import Callable

HELD_OUT = 2_000  # rows that the accuracy is measured on


@dataclass(frozen=True)
class Sizes:
    """How large the data are."""

    documents: int = 100_000
    words: int = 50_000
    many_words: int = 1_000_000
    rows: int = 200_000
    features: int = 100
    many_fits: int = 1_000
    images: int = 20_000

    @classmethod
    def quick(cls) -> Sizes:
        """Small enough for a test."""
        return cls(400, 1_000, 3_000, 1_500, 10, 20, 500)

    def describe(self) -> str:
        """What a reader of the table has to know."""
        return "A quick run: small data, not what names say. " * (self == Sizes.quick()) + (
            f"Text: {self.documents:,} documents × {self.words:,} words, or × {self.many_words:,} where V is named, "
            f"K = 20 unless named; dense: {self.rows:,} × {self.features}, K = 10, and half of each for "
            f"logistic regression, mixtures, cross-validation and categories, 100 to a feature; "
            f"uint8: {self.images:,} × 784; many fits: {self.many_fits:,} of 200 × 30, K = 2; float32 otherwise."
        )

    def filling(self, backend: str) -> Sizes:
        """Ten times the rows on an accelerator, which smaller data leave idle."""
        if backend == "cpu":
            return self
        return replace(self, documents=10 * self.documents, rows=10 * self.rows, images=10 * self.images)


@dataclass(frozen=True)
class Data:
    """Rows to fit, rows held out, and the classifier that generated both."""

    x: Any
    y: np.ndarray
    held_out_x: Any
    held_out_y: np.ndarray
    truth: Any

    @property
    def num_classes(self) -> int:
        """K."""
        return self.truth.log_prior.shape[0]


@cache
def text(sizes: Sizes, num_classes: int, *, many_words: bool = False) -> Data:
    """Synthetic text, with 50,000 words or a million."""
    model = TextModel.make(sizes.many_words if many_words else sizes.words, num_classes)
    held_out = model.sample(min(HELD_OUT, sizes.documents), seed=2)
    return Data(*model.sample(sizes.documents), *held_out, model.classifier)


@cache
def gaussian(sizes: Sizes, num_classes: int = 10) -> Data:
    """Gaussian rows."""
    x, y, truth = gaussian_rows(sizes.rows, sizes.features, num_classes)
    return Data(x, y, *gaussian_rows(min(HELD_OUT, sizes.rows), sizes.features, num_classes, seed=2)[:2], truth)


@cache
def images(sizes: Sizes) -> Data:
    """Dense counts 0 … 255 in uint8, 784 to a row: Poisson, whose words given their total are multinomial."""
    rng = np.random.default_rng(0)
    rate = rng.gamma(0.3, 40.0, (10, 784))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(10, size=n, dtype=np.int32)
        return np.minimum(rng.poisson(rate[y]), 255).astype(np.uint8), y

    log_theta = np.log(rate / rate.sum(axis=1, keepdims=True)).astype(np.float32)
    # The totals differ between the classes, so this is not the density of the rows: no Bayes error is read from it.
    truth = jg.Classifier(jnp.full(10, -np.log(10), jnp.float32), jg.Multinomial(jnp.asarray(log_theta)))
    return Data(*draw(sizes.images), *draw(min(HELD_OUT, sizes.images)), truth)


@cache
def levels(sizes: Sizes) -> Data:
    """Half as many dense rows, of half as many features with a hundred categories each."""
    rng, d, categories = np.random.default_rng(0), sizes.features // 2, 100
    theta = rng.dirichlet(np.full(categories, 5.0), (10, d))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(10, size=n, dtype=np.int32)
        u, x = rng.random((n, d)), np.empty((n, d), np.int32)
        for k in range(10):
            for j in range(d):
                x[y == k, j] = np.searchsorted(np.cumsum(theta[k, j])[:-1], u[y == k, j])
        return x, y

    log_theta = jnp.asarray(np.log(theta).reshape(10, -1), jnp.float32)
    truth = jg.Classifier(jnp.full(10, -np.log(10), jnp.float32), jg.Categorical(log_theta, (categories,) * d))
    return Data(*draw(sizes.rows // 2), *draw(min(HELD_OUT, sizes.rows)), truth)


@dataclass(frozen=True)
class Job:
    """A case made ready: what is called, what it reads and computes, and whether the answers agree.

    Attributes:
        sizes: of the data, for the record.
        ours: jaxgen's call.
        others: the call of each other library, by its name.
        difference: how far two results are apart, theirs that of the named library.
        read: bytes of the data, read once.
        flops: floating-point operations of the plainest algorithm.
        compiles: whether the first call compiles and the later ones do not.
        quality: of jaxgen's result, the accuracy on held-out rows, and that of the true classifier on the same.
    """

    sizes: dict[str, int]
    ours: Callable[[], Any]
    others: dict[str, Callable[[], Any]]
    difference: Callable[[Any, Any], float]
    read: int = 0
    flops: int = 0
    compiles: bool = True
    quality: Callable[[Any], tuple[float, float]] | None = None
