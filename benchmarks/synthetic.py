"""Synthetic data whose Bayes error is known: text that is like text, and Gaussian rows.

The generator's own density is a jaxgen classifier, so the classifier that no other can beat is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

import jaxgen as jg

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPONENT = 1.05  # of Zipf's law; a little above 1, as in most corpora
STOP_WORDS = 100  # the most frequent words belong to no topic
TOPIC_SHARE = 0.05  # of the other words, for each class
TOPIC_BOOST = 6.0
LENGTH_DEVIATION = 0.7  # of the logarithm of a document's length
GUIDE = 4  # entries a word of the table that starts the search for one; 16 MB for a million, which a cache holds
BATCH = 100_000  # documents sampled at once; bounds the memory that sampling takes


def bayes_error(truth: Any, x: Any) -> float:
    """The error that remains to the true classifier: the mean of 1 − max_k p(k | x) over rows that it generated."""
    return float(np.mean(1 - np.exp(np.max(np.asarray(jg.log_posterior(truth, x), np.float64), axis=1))))


@dataclass(frozen=True)
class TextModel:
    """Documents as bags of words: y from a prior, a log-normal length independent of y, words from θ_y.

    Attributes:
        classifier: the prior and θ.
        median_length: of a document, in words, before duplicates are summed.
    """

    classifier: jg.Classifier[jg.Multinomial]
    median_length: float

    @classmethod
    def make(cls, num_words: int, num_classes: int, *, distinct: float = 53.0, seed: int = 0) -> TextModel:
        """A model with Zipf's law for its words, in shuffled order, and a random topic for each class.

        Args:
            num_words: V.
            num_classes: K.
            distinct: mean number of distinct words in a document; it fixes the median length.
            seed: of the shuffle and the topics.
        """
        rng = np.random.default_rng([seed, num_words, num_classes])
        zipf = np.arange(1, num_words + 1, dtype=np.float64) ** -EXPONENT
        zipf /= zipf.sum()
        order = rng.permutation(num_words)
        log_theta = np.empty((num_classes, num_words), np.float32)
        first = min(STOP_WORDS, num_words // 10)
        for k in range(num_classes):
            word = zipf.copy()
            topic = rng.choice(num_words - first, max(1, int(TOPIC_SHARE * num_words)), replace=False) + first
            word[topic] *= TOPIC_BOOST
            log_theta[k, order] = np.log(word / word.sum())
        prior = np.log(rng.dirichlet(np.full(num_classes, 20.0))).astype(np.float32)
        classifier = jg.Classifier(jnp.asarray(prior), jg.Multinomial(jnp.asarray(log_theta)))
        # No document has more words than there are, and hardly one all of them, however long it is.
        return cls(classifier, _median_length(zipf, min(distinct, num_words / 2)))

    @cached_property
    def _prior(self) -> np.ndarray:
        prior = np.exp(np.asarray(self.classifier.log_prior, np.float64))
        return prior / prior.sum()

    @cached_property
    def _tables(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each class the cumulated θ, and the first word above each of equally spaced values of it."""
        tables = []
        for log_theta in np.asarray(self.classifier.density.log_probability):
            cumulative = np.cumsum(np.exp(log_theta.astype(np.float64)))
            cumulative /= cumulative[-1]
            size = GUIDE * len(cumulative)
            guide = np.searchsorted(cumulative, np.arange(size + 1) / size, side="right")
            tables.append((cumulative, np.minimum(guide, len(cumulative) - 1).astype(np.int32)))
        return tables

    def sample(self, num_documents: int, *, seed: int = 1) -> tuple[Any, np.ndarray]:
        """Counts (n, V) as a canonical CSR matrix in float32, and labels in int32."""
        parts = list(self.chunks(num_documents, BATCH, seed=seed))
        x = parts[0][0] if len(parts) == 1 else sparse.vstack([part for part, _ in parts], format="csr")
        return sparse.csr_matrix(x), np.concatenate([y for _, y in parts])

    def chunks(self, num_documents: int, size: int, *, seed: int = 1) -> Iterator[tuple[Any, np.ndarray]]:
        """The same, `size` documents at a time: no more than one chunk is in memory."""
        for i, start in enumerate(range(0, num_documents, size)):
            yield self._chunk(min(size, num_documents - start), np.random.default_rng([seed, i]))

    def _chunk(self, n: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
        num_words = self.classifier.num_features
        labels = rng.choice(len(self._prior), n, p=self._prior).astype(np.int32)
        lengths = np.maximum(1, np.rint(self.median_length * np.exp(LENGTH_DEVIATION * rng.standard_normal(n))))
        lengths = lengths.astype(np.int64)
        ends = np.cumsum(lengths)
        cells = np.empty(ends[-1], np.int64)  # document · V + word, which one sort puts into the order of CSR
        start = 0
        for k, (cumulative, guide) in enumerate(self._tables):
            documents = np.flatnonzero(labels == k)
            rows = np.repeat(documents * num_words, lengths[documents])
            cells[start : start + len(rows)] = rows + _draw(cumulative, guide, rng.random(len(rows)))
            start += len(rows)
        cells.sort()
        firsts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
        counts = np.diff(firsts, append=len(cells)).astype(np.float32)
        row, word = np.divmod(cells[firsts], num_words)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int32)
        x = sparse.csr_matrix((counts, word.astype(np.int32), indptr), shape=(n, num_words))
        x.has_canonical_format = True  # sorted and summed above; SciPy need not look
        return x, labels


def _draw(cumulative: np.ndarray, guide: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Words by the inverse of the cumulated θ: exact, and several times faster than a search from scratch."""
    word = guide[(uniform * (len(guide) - 1)).astype(np.int32)]
    late = np.flatnonzero(cumulative[word] <= uniform)
    while len(late):
        word[late] += 1
        late = late[cumulative[word[late]] <= uniform[late]]
    return word


def _median_length(zipf: np.ndarray, distinct: float) -> float:
    """The median length at which a document has so many distinct words in the mean, by bisection.

    A document of m words has Σ_j 1 − (1 − θ_j)^m of them. A few thousand ranks stand for all: every one of the first,
    then ever fewer.
    """
    edges = np.unique(np.geomspace(1, len(zipf) + 1, 3000).astype(np.int64))
    weight, log_rest = np.diff(edges), np.log1p(-np.minimum(zipf[edges[:-1] - 1], 1 - 1e-12))
    nodes, mass = np.polynomial.hermite_e.hermegauss(16)
    mass = mass / mass.sum()

    def expected(median: float) -> float:
        lengths = np.maximum(1.0, median * np.exp(LENGTH_DEVIATION * nodes))
        return float(mass @ (-np.expm1(np.outer(lengths, log_rest)) @ weight))

    low, high = 0.0, 2.0
    while expected(high) < distinct and high < 1e7:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < distinct else (low, middle)
    return high


def gaussian_rows(
    num_rows: int, num_features: int, num_classes: int, *, seed: int = 1
) -> tuple[np.ndarray, np.ndarray, jg.Classifier[jg.DiagonalGaussian]]:
    """Rows (n, d) in float32 with a scale for each feature, labels in int32, and the classifier that they follow.

    The classes stand about five standard deviations apart, whatever d, so that each is sometimes taken for another.
    """
    truth = np.random.default_rng([num_features, num_classes])  # so that rows of any seed follow the same truth
    scale = truth.uniform(0.5, 2.0, num_features).astype(np.float32)
    spread = truth.standard_normal((num_classes, num_features)).astype(np.float32)
    mean = scale * (1 + np.float32(3.5 / np.sqrt(num_features)) * spread)
    rng = np.random.default_rng(seed)
    y = rng.integers(num_classes, size=num_rows, dtype=np.int32)
    x = rng.standard_normal((num_rows, num_features), dtype=np.float32)
    x *= scale
    x += mean[y]
    log_prior = jnp.full(num_classes, -np.log(num_classes), jnp.float32)
    return x, y, jg.Classifier(log_prior, jg.DiagonalGaussian(jnp.asarray(mean), jnp.asarray(scale[None])))


def unaligned(x: np.ndarray) -> np.ndarray:
    """A copy that starts 4 bytes past a 64-byte boundary, so that JAX cannot take it without copying it."""
    buffer = np.empty(x.nbytes + 128, np.uint8)
    start = -buffer.ctypes.data % 64 + 4
    copy = buffer[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[:] = x
    return copy


def on_device(array: np.ndarray) -> jax.Array:
    """The array as JAX's own, already there."""
    return jax.block_until_ready(jax.device_put(array))
