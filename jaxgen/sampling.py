"""Samples of a generative classifier: a class from the prior, then x from its density."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxgen import arguments, chunks, draws, host_arrays, platform
from jaxgen.classifier import Classifier, generative
from jaxgen.density import optional
from jaxgen.numerics import working_dtype
from jaxgen.preparing import check_classifier, check_numbers, in_one_dtype
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float, Int

# Numbers that are drawn at a time, about. All at once their arrays are new pages in every call: five million of
# Gaussian naive Bayes take 66 ms so, and 35 to 40 in chunks of 2^18 to 2^20.
_NUMBERS = 2**19
# Numbers of a chunk, at least, for each cell of the largest table. To sort a table of categories takes as long for each
# cell as a few draws.
_FOR_A_CELL = 16


def sample(
    key: Array, c: Classifier[Any], n: int, *, y: Any = None, total_count: Any = None
) -> tuple[Float[Array, "n d"], Int[Array, " n"]]:
    """Independent draws from p(x, y), or from p(x | y) of given classes; exact.

    Gaussian features are made from standard normal ones, x = μ + L z, and have the derivatives of that. Classes, and
    features that are counts or categories, jump: their derivatives are 0, and are not those of an expectation. In
    float32 what is rarer than 2⁻⁴¹ is never drawn, and no normal number beyond 7.15 deviations.

    Args:
        key: a key of `jax.random`. One of the usual kind tells all draws of so many, under `jit` and `jax.vmap` too.
        c: a generative classifier of any family.
        n: how many; static under `jit`.
        y: the class of each, (n,), or one for all; drawn from the prior without it.
        total_count: m, the words of a document, one number or (n,), at most 2²⁴ in float32; for the multinomial, which
            it must be given for.

    Returns:
        x in the dtype of the classifier, and y, (n,). A row is NaN where no class has a probability, and under a trace
        where its class does not exist.

    Raises:
        ValueError: for n below 1, y or total_count out of range, and a total_count that is missing or has no use.
        TypeError: if c is discriminative, or its features were binarised.

    Example:
        >>> import jax, jax.numpy as jnp, jaxgen as jg
        >>> c = jg.Classifier(jnp.log(jnp.array([0.5, 0.5])), jg.Poisson(jnp.log(jnp.array([[1.0], [50.0]]))))
        >>> x, y = jg.sample(jax.random.key(1), c, 10_000)
        >>> x.shape, y.shape
        ((10000, 1), (10000,))
        >>> print(jnp.array([x[y == k].mean() for k in (0, 1)]).round())
        [ 1. 50.]
    """
    c = generative(c, "sample")
    check_classifier(c)
    if not is_traced(c) and not host_arrays.is_distributed(c):
        check_numbers(c)
    n = arguments.check_integer("n", n)
    needs_total = optional(c.density, "needs_total_count")
    if (total_count is not None) != needs_total:
        name = type(c.density).__name__
        raise ValueError(
            f"total_count must be given for {name}, which has shares of words alone; found none. Give one, or (n,)."
            if needs_total
            else f"total_count is for families that have shares of words alone; found one for {name}. Leave it out."
        )
    num_classes = c.class_shape[0]
    if y is not None:
        y = arguments.as_array("y", y)
        arguments.check_whole("y", y, (n,) if y.ndim else (), most=num_classes - 1)
    if total_count is not None:
        total_count = arguments.as_array("total_count", total_count)
        most = 2 ** (jnp.finfo(working_dtype(jax.tree.leaves(c.density)[0].dtype)).nmant + 1)
        arguments.check_whole("total_count", total_count, (n,) if total_count.ndim else (), most=most)
    arguments.check_key(key)
    platform.check_places(key, c, y, total_count)
    count = 1 if needs_total else _num_chunks(c, n)  # how words are drawn depends on the totals of all
    if count == 1 or platform.platform_of(key, c, y) != "cpu" or host_arrays.is_distributed(key, c, y):
        return _sample_program(key, c, n, count, y, total_count)
    rows = -(-n // count)
    places = [slice(first, min(first + rows, n)) for first in range(0, n, rows)]
    return chunks.gather(lambda i: (_chunk_program(key, c, rows, y, i), False), range(len(places)), places, n)[0]


def _num_chunks(c: Classifier[Any], n: int) -> int:
    """Chunks in which so many rows are drawn, each by a key of its own: by shapes alone, so that a key tells the draws.

    What is prepared of a table is prepared for each of them.
    """
    tables = max(leaf.size for leaf in jax.tree.leaves(c.density))
    return max(1, -(-n * c.num_features // max(_NUMBERS, _FOR_A_CELL * tables)))


@partial(jax.jit, static_argnums=(2, 3))
def _sample_program(
    key: Array, c: Classifier[Any], n: int, count: int, y: Any, total_count: Any
) -> tuple[Array, Array]:
    """All rows, those of all chunks side by side."""
    if count == 1:
        return _draw(key, c, n, y, total_count)
    rows = -(-n // count)
    drawn = jax.vmap(lambda i: _draw_chunk(key, c, rows, y, i))(jnp.arange(count, dtype=jnp.int32))
    return jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:])[:n], drawn)


def _draw_chunk(
    key: Array, c: Classifier[Any], rows: int, y: Any, i: int | Int[Array, ""]
) -> tuple[Float[Array, "rows d"], Int[Array, " rows"]]:
    """The rows of one chunk, as many as of every other: the last one goes on beyond the end."""
    if y is not None and jnp.ndim(y):
        y = jnp.asarray(y).at[i * rows + jnp.arange(rows, dtype=jnp.int32)].get(mode="clip")
    return _draw(jax.random.fold_in(key, i), c, rows, y, None)


_chunk_program = jax.jit(_draw_chunk, static_argnums=2)


def _draw(
    key: Array, c: Classifier[Any], n: int, y: Any, total_count: Any
) -> tuple[Float[Array, "n d"], Int[Array, " n"]]:
    c = in_one_dtype(c)
    of_class, of_features = jax.random.split(key)
    # Of a prior that is NaN, or 0 for all, no class can be drawn; of given ones none is.
    is_prior = y is not None or (jnp.max(c.log_prior) > -jnp.inf)
    if y is None:
        y = draws.classes(of_class, c.log_prior, n)
    y = jnp.broadcast_to(jnp.asarray(y).astype(jnp.int32), (n,))
    if total_count is not None:
        total_count = jnp.broadcast_to(jnp.asarray(total_count), (n,))
    x = c.density.sample(of_features, y, total_count)
    exists = (y >= 0) & (y < c.class_shape[0]) & is_prior
    return jnp.where(exists[:, None], x, jnp.nan), y
