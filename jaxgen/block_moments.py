"""The moments of a block of rows: their weight, mean and centred scatter by class."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxgen.labels import HardLabels
from jaxgen.matrices import mirrored
from jaxgen.missing import PartialRows
from jaxgen.moments import Moments
from jaxgen.numerics import einsum, matmul, shortcut
from jaxgen.scatter import fixed, keep, lower_scatter, mean_of, scatter_of
from jaxgen.soft_moments import soft_moments
from jaxgen.total import Total

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.labels import Labels

# Rows of one class that are multiplied at a time, at least.
_FEWEST_IN_CHUNK = 16


def block_moments(x: Float[Array, "n d"] | PartialRows, labels: Labels, *, full: bool, shared: bool) -> Moments:
    """The moments of a block of rows.

    Args:
        x: the block; of partial rows the diagonal of the scatter alone.
        labels: its labels.
        full: keep the whole scatter matrix, not its diagonal alone.
        shared: keep one scatter, summed over the classes.
    """
    values, observed = (x.values, x.observed) if isinstance(x, PartialRows) else (x, None)
    by_class = full and not shared and observed is None
    if by_class and isinstance(labels, HardLabels) and labels.tuning.stacks == "in turn":
        return _moments_by_class(values, labels)
    class_weight = labels.class_weight()
    feature_weight = labels.class_sum(x.mask) if isinstance(x, PartialRows) else None
    weight = class_weight[:, None] if feature_weight is None else feature_weight
    if isinstance(labels, HardLabels):
        point, rest, scatter = _hard_moments(values, labels, weight, observed, full=full, shared=shared)
    else:
        point, rest, scatter = soft_moments(values, labels, weight, observed, full=full, shared=shared)
    by_feature = None if feature_weight is None else Total.of(feature_weight)
    return Moments(Total.of(class_weight), Total.of_sum(point, rest), scatter, by_feature)


def _moments_by_class(x: Array, labels: HardLabels) -> Moments:
    """Moments with a full scatter for each class, of rows in the order of their classes, one chunk after the other."""
    d, k = x.shape[1], labels.num_classes
    chunks = _chunks_by_class(labels, d)

    def add(total: Moments, number: Array) -> tuple[Moments, None]:
        label, rows, inside = chunks.place(number)
        nothing_left = label == k
        label = jnp.minimum(label, k - 1)

        def of_chunk() -> Moments:
            weight = jnp.where(inside, labels.row_weight[rows], 0.0)
            block = x.at[rows].get(mode="promise_in_bounds")
            return _moments_of_one_class(block, labels, weight, len(x))

        mine = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, label, 1), total)
        chunk_moments = shortcut(nothing_left, lambda: jax.tree.map(jnp.zeros_like, mine), of_chunk)
        # Merged where the branch has ended: inside it XLA makes the means anew for every cell of their product.
        put = partial(lax.dynamic_update_slice_in_dim, start_index=label, axis=0)
        return jax.tree.map(put, total, mine.merge(chunk_moments)), None

    weight, mean = (Total.of(jnp.zeros_like(x, shape=shape)) for shape in ((k,), (k, d)))
    nothing = Moments(weight, mean, jnp.zeros_like(x, shape=(k, d, d)))
    total, _ = lax.scan(jax.checkpoint(add), nothing, jnp.arange(chunks.number, dtype=jnp.int32))
    return dataclasses.replace(total, scatter=jax.vmap(mirrored)(total.scatter))


def _scatter_by_class(residual: Array, labels: HardLabels) -> Array:
    """Σ_i r_ik e_i e_iᵀ, of rows in the order of their classes, all chunks at once."""
    chunks = _chunks_by_class(labels, residual.shape[1])
    label, rows, inside = jax.vmap(chunks.place)(jnp.arange(chunks.number, dtype=jnp.int32))
    block = residual.at[rows].get(mode="promise_in_bounds")
    weight = jnp.where(inside, labels.row_weight.at[rows].get(mode="promise_in_bounds"), 0.0)
    parts = einsum("cni,cnj->cij", weight[..., None] * block, block)
    return HardLabels(label, None, labels.num_classes, tuning=labels.tuning, dtype=labels.dtype).class_sum(parts)


class _Chunks(NamedTuple):
    """Rows in the order of their classes, cut into chunks of one class each.

    So every row is multiplied once, where a product for each class over all rows would multiply it K times.

    Attributes:
        number: of chunks, at most.
        place: from the number of a chunk to its class, K behind the last one; its rows; and which of them are its own.
    """

    number: int
    place: Callable[[Array], tuple[Array, Array, Array]]


def _chunks_by_class(labels: HardLabels, d: int) -> _Chunks:
    n, k, tuning = jnp.asarray(labels.index).shape[0], labels.num_classes, labels.tuning
    # The last chunk of each class is filled in part. A thirtieth more in each, and classes of about one size take no
    # chunk more for the few rows by which some are larger.
    share = n // (tuning.chunks_of_class * k)
    fewest = max(_FEWEST_IN_CHUNK, min(tuning.least_chunk * d, n // k))
    most = max(fewest, tuning.class_fold_elements // d)
    chunk = min(n, max(fewest, min(-(-(share + share // 30) // 8) * 8, most)))
    order, first_row = labels.by_class()
    size = first_row[1:] - first_row[:-1]
    chunks = (size + chunk - 1) // chunk
    last_chunk = jnp.cumsum(chunks, dtype=jnp.int32)

    def place(number: Array) -> tuple[Array, Array, Array]:
        label = jnp.searchsorted(last_chunk, number, side="right", method="scan_unrolled").astype(jnp.int32)
        mine = jnp.minimum(label, k - 1)
        offset = (number - (last_chunk[mine] - chunks[mine])) * chunk + jnp.arange(chunk, dtype=jnp.int32)
        return label, order[jnp.minimum(first_row[mine] + offset, n - 1)], (offset < size[mine]) & (label < k)

    return _Chunks(-(-n // chunk) + min(k, n), place)


def _moments_of_one_class(x: Array, labels: Labels, weight: Array, num_rows: int) -> Moments:
    """The moments of a chunk of rows, of so many that are summed in all."""
    total = jnp.sum(weight)
    pilot = lax.stop_gradient(jnp.where(total > 0, x[jnp.argmax(weight > 0)], 0.0))
    residual = x - pilot[None]
    rest = mean_of(matmul(weight, residual), total)
    mean = Total.of_sum(pilot[None], rest[None])
    residual -= jnp.where(total > 0, rest, 0.0)[None]
    return Moments(Total.of(total[None]), mean, lower_scatter(residual, labels, weight, num_rows)[None])


def _hard_moments(
    x: Array, labels: HardLabels, weight: Array, observed: Array | None, *, full: bool, shared: bool
) -> tuple[Array, Array, Array]:
    """A point of each class, the mean of what is left when it is taken away, and the scatter about both.

    A sum of raw values would carry the rounding of a large mean, one after a common row that of classes far apart. So a
    row of the class is taken away first; or, where it may not show all, what such a sum makes of the mean. It may be
    any point: it has no derivative.
    """
    d, present = x.shape[1], weight > 0
    if observed is None:
        x = labels.widen(x)
        point = lax.stop_gradient(x.at[labels.first_rows()].get(mode="clip"))
    else:
        point = fixed(mean_of(labels.class_sum(x), weight))
    point = jnp.where(present, point, 0.0)
    residual = keep(x - labels.expand(point), observed)
    rest = mean_of(labels.class_sum(residual), weight)
    residual = keep(residual - labels.expand(jnp.where(present, rest, 0.0)), observed)
    point, rest = point[:, :d], rest[:, :d]
    if not shared and not full:
        return point, rest, labels.class_sum(residual**2)[:, :d]
    residual = residual[:, :d]
    if not shared:
        return point, rest, _scatter_by_class(residual, labels)
    return point, rest, scatter_of(residual, labels, labels.row_weight, full=full)[None]
