"""What a generative classifier expects of the features that were not observed, given those that were."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import arguments, blocks, chunks, draws, host_arrays, inputs, platform
from jaxgen.classifier import Classifier, generative
from jaxgen.classify import log_joint
from jaxgen.density import marginal_width, optional
from jaxgen.missing import PartialRows
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Real

    from jaxgen.arguments import AnyArray
    from jaxgen.platform import Tuning


def impute(
    c: Classifier[Any], x: Real[AnyArray, "*n d"], observed: Bool[AnyArray, "*n d"], *, key: Array | None = None
) -> Float[Array, "*n d"]:
    """x with its missing features filled in: by their mean given the observed ones, or by a draw.

        E[x_m | x_o] = Σ_k p(y = k | x_o) E[x_m | x_o, y = k]

    the mean of a mixture of conditional densities (Little & Rubin 2019, Statistical Analysis with Missing Data).

    Args:
        c: a generative classifier; the mean of a category is none. Of a multinomial the total of a document is as its
            observed words tell: x_m = θ_m Σ x_o / Σ θ_o on the average, and nothing beside no word.
        x: one point (d,) or points (n, d).
        observed: True for what was observed, of the same shape.
        key: of `jax.random`; with it a class is drawn for each row, and what is missing from its density.

    Returns:
        Of the shape of x, in the dtype of the classifier; what was observed is as it was.

    Raises:
        ValueError: as `log_likelihood`.
        TypeError: where a feature is missing whose family has no such mean, or no such draw; under a trace any may be.

    Example:
        >>> import jax.numpy as jnp, numpy as np, jaxgen as jg
        >>> height_and_weight = jg.Gaussian(jnp.array([[170.0, 70.0]]), jnp.array([[[10.0, 0.0], [8.0, 6.0]]]))
        >>> c = jg.Classifier(jnp.zeros(1), height_and_weight)
        >>> print(jg.impute(c, np.array([180.0, np.nan]), np.array([True, False])))  # 70 + 0.8 · 10
        [180.  78.]
    """
    c = generative(c, "impute")
    if observed is None:
        raise TypeError("observed must be given, True for the entries of x that are known; found None: ~np.isnan(x)?")
    if key is not None:
        arguments.check_key(key)
    joint = log_joint(c, x, observed=observed)
    counts = marginal_width(c, None) > 0
    rows = inputs.check_points(x, c.num_features, observed=observed, counts=counts)
    d = c.num_features
    missing = np.ones(d, bool) if is_traced(mask := rows.observed) else ~np.asarray(mask).reshape(-1, d).all(axis=0)
    optional(c.density, "check_fills_in")(missing, drawn=key is not None)
    platform.check_places(c, key)
    if not joint.size:
        return jnp.zeros(rows.shape, joint.dtype)
    place = platform.platform_of(c, rows)
    tuning = platform.tuning_on(place)
    by_itself = key is None and rows.ndim == 2 and place and not host_arrays.is_distributed(c)  # draws are of all rows
    pieces = chunks.split(rows, joint, width=marginal_width(c, rows.most_missing)) if by_itself else []
    if len(pieces) < 2:
        return _program(c, rows, joint, key, tuning=tuning)

    def fill(piece: chunks.Chunk) -> tuple[Array, bool]:
        return _program(c, piece.x, piece.labels, None, tuning=tuning), False

    return chunks.gather(fill, pieces, [piece.place for piece in pieces], joint.shape[0])[0]


@partial(jax.jit, static_argnames="tuning")
def _program(c: Classifier[Any], x: PartialRows, joint: Array, key: Array | None, *, tuning: Tuning | None) -> Array:
    dtype = joint.dtype
    density = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), c.density)
    rows, joint = jax.tree.map(jnp.atleast_2d, (x.astype(dtype), joint))
    keys = None if key is None else jax.random.split(key, joint.shape[:1])

    def fill(data: tuple[PartialRows, Array, Any]) -> tuple[Array, Array]:
        x, joint, keys = data
        # A row that is impossible, or bad under a trace, has no posterior; nor has it a part in any derivative.
        possible = jnp.max(joint, axis=1, keepdims=True) > -jnp.inf  # of NaN it is not
        joint = jnp.where(possible, joint, 0.0)
        if keys is None:
            posterior = jnp.where(possible, jax.nn.softmax(joint, axis=1), 0.0)[:, :, None]
            mean = optional(density, "conditional_mean")(x)  # a class that is impossible may have none
            missing = jnp.sum(posterior * jnp.where(posterior > 0, mean, 0.0), axis=1)
        else:
            of_class, of_features = jax.random.split(keys[0])
            y = draws.class_of_each(of_class, joint)
            missing = optional(density, "conditional_sample")(of_features, x, y)
        return jnp.where(x.observed, x.values, jnp.where(possible, missing, jnp.nan)), jnp.zeros((), bool)

    def in_blocks(*data: Any, tuning: Tuning) -> Array:
        width = max(joint.shape[1] * rows.shape[1], marginal_width(density, rows.most_missing))
        return blocks.map_rows(fill, data, block=blocks.num_rows(tuning.score_elements, width, fewest=16))[0]

    return platform.run(in_blocks, rows, joint, keys, tuning=tuning).reshape(x.shape)
