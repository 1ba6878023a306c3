"""What a Gaussian knows of the features that were not observed, given those that were.

    x_m | x_o ~ N(μ_m − P_mm⁻¹ P_mo (x_o − μ_o), P_mm⁻¹),    P = Σ⁻¹

in fixed shapes: rows and columns of P that were observed are those of the identity. P is the square of the whitening,
so nothing is subtracted that could cancel (Petersen & Pedersen 2012, The Matrix Cookbook, section 8.1.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from jaxgen.labels import HardLabels
from jaxgen.matrices import cholesky_or_nan, inverse_factor
from jaxgen.numerics import einsum, matmul

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.labels import Labels
    from jaxgen.missing import PartialRows


class Missing(NamedTuple):
    """Which features each row misses: all of them by a mask, or few in so many places, the rest of which are empty.

    Attributes:
        places: whether there is a missing feature, (n, m); of all features m = d.
        features: which it is, (n, m); None where the places are the features themselves.
        num_features: d.
    """

    places: Bool[Array, "n m"]
    features: Int[Array, "n m"] | None
    num_features: int

    @classmethod
    def of(cls, x: PartialRows) -> Missing:
        """Those of rows."""
        missing = ~jnp.asarray(x.observed)
        n, d = missing.shape
        if x.most_missing is None:
            return cls(missing, None, d)
        most, row = x.most_missing, jnp.arange(n, dtype=jnp.int32)[:, None]
        number = jnp.cumsum(missing, axis=1, dtype=jnp.int32)
        place, feature = jnp.where(missing, number - 1, most), jnp.arange(d, dtype=jnp.int32)[None]
        features = jnp.zeros_like(number, shape=(n, most)).at[row, place].set(feature, mode="drop")
        return cls(jnp.arange(most, dtype=jnp.int32)[None] < number[:, -1:], features, d)

    @property
    def pairs(self) -> Bool[Array, "n m m"]:
        """Whether there are missing features in two places."""
        return self.places[:, :, None] & self.places[:, None, :]

    def submatrices(self, matrices: Float[Array, "c d d"], own: Int[Array, " n"] | None) -> Float[Array, "n _ m m"]:
        """The rows and columns of what is missing of all matrices, or of each row's own; of the identity elsewhere."""
        if self.features is None:
            chosen = matrices[None] if own is None else matrices[own][:, None]
        else:
            rows, columns = self.features[:, :, None], self.features[:, None, :]
            if own is None:
                chosen = jnp.moveaxis(matrices[:, rows, columns], 0, 1)
            else:
                chosen = matrices[own[:, None, None], rows, columns][:, None]
        identity = jnp.eye(self.places.shape[1], dtype=matrices.dtype)
        return jnp.where(self.pairs[:, None], chosen, identity[None, None])

    def of_features(self, values: Float[Array, "n c d"]) -> Float[Array, "n c m"]:
        """What stands at missing features; zero elsewhere."""
        chosen = values if self.features is None else jnp.take_along_axis(values, self.features[:, None], axis=2)
        return jnp.where(self.places[:, None], chosen, 0.0)

    def to_features(self, values: Float[Array, "n c m"]) -> Float[Array, "n c d"]:
        """Values in the places of missing features as those of all features; zero elsewhere."""
        values = jnp.where(self.places[:, None], values, 0.0)
        if self.features is None:
            return values
        row = jnp.arange(values.shape[0], dtype=jnp.int32)[:, None]
        whole = jnp.zeros_like(values, shape=(*values.shape[:1], self.num_features, values.shape[1]))
        return jnp.swapaxes(whole.at[row, self.features].add(jnp.swapaxes(values, 1, 2)), 1, 2)

    def total(self, matrices: Float[Array, "n c m m"]) -> Float[Array, "c d d"]:
        """Their sums over rows, in the rows and columns of what is missing."""
        matrices = jnp.where(self.pairs[:, None], matrices, 0.0)
        if self.features is None:
            return jnp.sum(matrices, axis=0)
        columns = jnp.arange(matrices.shape[1], dtype=jnp.int32)[None]
        return _scattered(matrices, columns, self.features, (matrices.shape[1], self.num_features))

    def class_sum(self, labels: HardLabels, matrices: Float[Array, "n m m"]) -> Float[Array, "classes d d"]:
        """Their sums over the rows of each class, times their weights."""
        matrices = jnp.where(self.pairs, matrices, 0.0)
        if self.features is None:
            return labels.class_sum(matrices)
        weighted = labels.row_weight[:, None, None] * matrices
        index = jnp.asarray(labels.index)[:, None]
        return _scattered(weighted[:, None], index, self.features, (labels.num_classes, self.num_features))


def _scattered(
    matrices: Float[Array, "n c m m"], index: Int[Array, "_ c"], features: Int[Array, "n m"], shape: tuple[int, int]
) -> Float[Array, "count d d"]:
    """The sums of each index in [0, count), in the rows and columns of some features; others are dropped."""
    count, d = shape
    rows, columns = features[:, None, :, None], features[:, None, None, :]
    whole = jnp.zeros_like(matrices, shape=(count, d, d))
    return whole.at[index[:, :, None, None], rows, columns].add(matrices, mode="drop")


def residuals(
    x: PartialRows,
    mean: Float[Array, "classes d"],
    whitening: Float[Array, "covariances d d"],
    own: Int[Array, " n"] | None = None,
) -> tuple[Float[Array, "n _ d"], Float[Array, "n _ m m"], Missing]:
    """Every row less the mean of each class, its missing features at E[x_m | x_o], and R⁻¹ of P_mm = RRᵀ.

    Args:
        x: rows, zero where they were not observed.
        mean: μ of each class.
        whitening: L⁻¹ of each class, or one for all.
        own: the class of each row, where that alone is asked for.
    """
    missing, observed = Missing.of(x), jnp.asarray(x.observed)[:, None]
    of_each = None if len(whitening) == 1 else own
    precision = einsum("cji,cjk->cik", whitening, whitening)
    padded = missing.submatrices(precision, of_each)
    factor = cholesky_or_nan(padded.reshape(-1, *padded.shape[2:]), jnp.ones((), bool))
    inverse = inverse_factor(factor).reshape(padded.shape)
    # The gradient of the distance in what is missing, at its mean μ_m; shared factors take all classes at once.
    residual = jnp.where(observed, x.values[:, None] - (mean[None] if own is None else mean[own][:, None]), 0.0)
    if of_each is not None and len(mean) > mean.shape[1]:
        mine = whitening[of_each]
        slope = einsum("nji,ncj->nci", mine, einsum("nij,ncj->nci", mine, residual))
    elif of_each is not None:  # by all classes takes less room than a copy of its own for each row
        white = einsum("cij,nj->nci", whitening, residual[:, 0])
        row = jnp.arange(residual.shape[0], dtype=jnp.int32)  # of rows that a trace may count by a symbol
        slope = einsum("cji,ncj->nci", whitening, white)[row, of_each][:, None]
    else:
        each = jnp.broadcast_to(whitening, (residual.shape[1], *whitening.shape[1:]))
        slope = einsum("cji,ncj->nci", each, einsum("cij,ncj->nci", each, residual))
    slope = missing.of_features(slope)
    if inverse.shape[1] == slope.shape[1]:
        step = einsum("ncji,ncj->nci", inverse, einsum("ncij,ncj->nci", inverse, slope))
    else:
        step = matmul(matmul(slope, jnp.swapaxes(inverse[:, 0], 1, 2)), inverse[:, 0])
    return residual - missing.to_features(step), inverse, missing


def covariance(inverse: Float[Array, "n _ m m"]) -> Float[Array, "n _ m m"]:
    """P_mm⁻¹, the covariance of what is missing, from R⁻¹."""
    return matmul(jnp.swapaxes(inverse, 2, 3), inverse)


def expected(
    x: PartialRows,
    labels: Labels,
    mean: Float[Array, "classes d"],
    whitening: Float[Array, "covariances d d"],
    *,
    shared: bool,
) -> tuple[Float[Array, "rows d"], HardLabels, Float[Array, "sums d d"]]:
    """Rows as they are expected under their own class, whose they are, and the covariances of what was missing, summed.

    Rows that are shared by classes are given once for each. The sums are of each class, or `shared` by all, whether the
    covariances by which they are made are or not.
    """
    if not shared:
        whitening = jnp.broadcast_to(whitening, (len(mean), *whitening.shape[1:]))
    (n, d), k, observed = x.shape, labels.num_classes, jnp.asarray(x.observed)[:, None]
    if isinstance(labels, HardLabels):
        own = jnp.minimum(jnp.asarray(labels.index), k - 1)  # of an absent row any class, with a weight of 0
        residual, inverse, missing = residuals(x, mean, whitening, own)
        filled = jnp.where(observed, x.values[:, None], mean[own][:, None] + residual)[:, 0]
        return filled, labels, _over_classes(missing.class_sum(labels, covariance(inverse)[:, 0]), shared=shared)
    r = labels.dense()
    residual, inverse, missing = residuals(x, mean, whitening)
    filled = jnp.where(observed, x.values[:, None], mean[None] + residual)
    weight = r if len(whitening) == k else jnp.sum(r, axis=1, keepdims=True)
    spread = missing.total(weight[..., None, None] * covariance(inverse))
    each = jnp.tile(jnp.arange(k, dtype=jnp.int32), n)
    labels = HardLabels(each, r.reshape(-1), k, tuning=labels.tuning, dtype=r.dtype)
    return filled.reshape(-1, d), labels, _over_classes(spread, shared=shared)


def _over_classes(sums: Float[Array, "classes d d"], *, shared: bool) -> Float[Array, "sums d d"]:
    return jnp.sum(sums, axis=0, keepdims=True) if shared else sums


def drawn(
    x: PartialRows,
    y: Int[Array, " n"],
    mean: Float[Array, "classes d"],
    whitening: Float[Array, "covariances d d"],
    normal: Float[Array, "n d"],
) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """The residuals of each row in its class y, and standard normal draws as draws of N(0, P_mm⁻¹).

    What was observed is not to be looked at in either.
    """
    residual, inverse, missing = residuals(x, mean, whitening, y)
    noise = einsum("ncji,ncj->nci", inverse, missing.of_features(normal[:, None]))
    return residual[:, 0], missing.to_features(noise)[:, 0]
