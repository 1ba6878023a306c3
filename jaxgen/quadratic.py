"""Gaussian densities with a covariance for each class, whose rows are whitened for several classes at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxgen import domains
from jaxgen.distances import log_normal
from jaxgen.numerics import einsum

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

# Strips of a triangle that is multiplied: of four, five eighths are read. A third less time than one class after the
# other, 294 ms and 200 (200,000 × 100, ten classes); more strips are too narrow.
_STRIPS = 4
# Ratio of the standard deviations of two classes, from one direction to another, up to which one matrix whitens both.
# Made in float64, it errs by 2^-53 times the square of that; in float32 a class beside a narrow one would lose as many
# digits as that is narrower. So each class errs by at most three times what it does when it is whitened by itself.
_SPREAD = 2.0**10


class CentredGaussian(NamedTuple):
    """Classes whose means lie near a centre: rows are whitened for all of them by triangles, and then subtracted.

    Attributes:
        center: c, (d,).
        whitening: L⁻¹, (K, d, d).
        offset: L_k⁻¹ (μ_k − c), (K, d).
        log_scale: Σ_j log L_k,jj, (K,).
    """

    center: Float[Array, " d"]
    whitening: Float[Array, "classes d d"]
    offset: Float[Array, "classes d"]
    log_scale: Float[Array, " classes"]

    domain = domains.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.center.shape[0]

    @property
    def score_width(self) -> int:
        """Elements that a row takes."""
        return self.offset.size

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return log_normal(self.squared_distances(x), self.log_scale[None], self.num_features)

    scores = log_likelihood

    def squared_distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances (x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k)."""
        classes, d = self.offset.shape
        centred, distance = x - self.center[None], jnp.zeros((classes, x.shape[0]), x.dtype)
        for first in range(0, d, size := -(-d // _STRIPS)):
            rows = slice(first, first + size)  # of the triangles, which are zero behind their last column
            white = einsum("kij,nj->kin", self.whitening[:, rows, : rows.stop], centred[:, : rows.stop])
            distance += jnp.sum((white - self.offset[:, rows, None]) ** 2, axis=1)
        return distance.T

    def for_many_rows(self) -> PairedGaussian | None:
        """The form that takes longer to make and is quicker for each row; None where it would be less accurate.

        By NumPy, of concrete arrays in float32.
        """
        if self.whitening.dtype != np.float32:
            return None
        whitening, offset = np.asarray(self.whitening, np.float64), np.asarray(self.offset, np.float64)
        paired = 2 * (len(offset) // 2)
        first, second = (slice(k, paired, 2) for k in (0, 1))
        # L₂⁻¹ L₁ = U diag(s) Vᵀ, by the eigenvectors V of its square, which take half the time of singular vectors.
        change = np.linalg.solve(whitening[first].mT, whitening[second].mT).mT
        square, right = np.linalg.eigh(change.mT @ change)
        if not np.all((square[:, 0] > 0) & (square[:, -1] <= _SPREAD**2 * square[:, 0])):
            return None
        spread = np.sqrt(square)
        left = change @ right / spread[:, None]
        of_pairs = {
            "whitening": right.mT @ whitening[first],
            "offset": np.einsum("pji,pj->pi", right, offset[first]),
            "spread": spread,
            "second_offset": np.einsum("pji,pj->pi", left, offset[second]),
        }
        rest = {name: getattr(self, name)[paired:] for name in ("whitening", "offset", "log_scale")}
        return PairedGaussian(
            self.center,
            **{name: jnp.asarray(array, np.float32) for name, array in of_pairs.items()},
            log_scale=self.log_scale,
            rest=self._replace(**rest),
        )


class PairedGaussian(NamedTuple):
    """A `CentredGaussian` whose classes go by two: one matrix whitens both, but for a scale of each direction.

    With L₂⁻¹ L₁ = U diag(s) Vᵀ and z = Vᵀ L₁⁻¹ (x − c), the squared distances from two classes are

        ‖z − Vᵀ L₁⁻¹ (μ₁ − c)‖²,    ‖s z − Uᵀ L₂⁻¹ (μ₂ − c)‖²

    since no turn changes a length (simultaneous diagonalisation: Fukunaga 1990, Introduction to Statistical Pattern
    Recognition, section 2.3). A matrix product of half the size of two triangles' squares.

    Attributes:
        center: c, (d,).
        whitening: Vᵀ L₁⁻¹ of each pair, (pairs, d, d).
        offset: Vᵀ L₁⁻¹ (μ₁ − c), (pairs, d).
        spread: s, (pairs, d).
        second_offset: Uᵀ L₂⁻¹ (μ₂ − c), (pairs, d).
        log_scale: Σ_j log L_k,jj, (K,).
        rest: the last of an odd number of classes, by itself.
    """

    center: Float[Array, " d"]
    whitening: Float[Array, "pairs d d"]
    offset: Float[Array, "pairs d"]
    spread: Float[Array, "pairs d"]
    second_offset: Float[Array, "pairs d"]
    log_scale: Float[Array, " classes"]
    rest: CentredGaussian

    domain = domains.FINITE

    @property
    def num_features(self) -> int:
        """d."""
        return self.center.shape[0]

    @property
    def score_width(self) -> int:
        """Elements that a row takes."""
        return self.offset.size + self.rest.score_width

    def log_likelihood(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        return log_normal(self.squared_distances(x), self.log_scale[None], self.num_features)

    scores = log_likelihood

    def squared_distances(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The squared Mahalanobis distances (x − μ_k)ᵀ Σ_k⁻¹ (x − μ_k)."""
        white = einsum("pij,nj->pin", self.whitening, x - self.center[None])
        first = jnp.sum((white - self.offset[..., None]) ** 2, axis=1)
        second = jnp.sum((white * self.spread[..., None] - self.second_offset[..., None]) ** 2, axis=1)
        paired = jnp.stack([first, second], axis=1).reshape(-1, x.shape[0])
        if not len(self.rest.offset):
            return paired.T
        return jnp.concatenate([paired.T, self.rest.squared_distances(x)], axis=1)
