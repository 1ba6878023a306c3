"""How a verb runs: arguments checked, one compiled program, rows in blocks, blocks on every core."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import blocks, culprits, inputs, platform, shares
from jaxgen.compressed import CompressedRows
from jaxgen.missing import PartialRows
from jaxgen.numerics import varying_alike, working_dtype
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.domains import Domain
    from jaxgen.platform import Tuning


class Scorer(Protocol):
    """What the verbs ask of any classifier, generative or discriminative: a pytree of arrays."""

    @property
    def domain(self) -> Domain:
        """What the features may be."""
        ...

    @property
    def num_features(self) -> int:
        """d."""
        ...

    @property
    def class_shape(self) -> tuple[int, ...]:
        """(K,); longer for a stack of classifiers."""
        ...

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be sparse.

        It may have `in_two_steps`, whether it has `projection(x, likelihood=…)` as well: a `Projection` for those rows.
        """
        ...

    def prepared(self, *, likelihood: bool) -> Any:
        """The same classifier, with what scoring needs of it computed once for all rows.

        With `likelihood` for functions of the log likelihood, without for those of the scores alone.
        """
        ...

    def scores(self, x: Float[Array, "n d"]) -> Float[Array, "n classes"]:
        """The log posterior up to a term common to all classes."""
        ...


def score(
    function: Callable[[Any, Any], Any], c: Scorer, x: Any, *, observed: Any = None, likelihood: bool = False
) -> Any:
    """`function(c, rows)` of every row of x: one result a row; an error, or NaN under a trace, for a bad value.

    Args:
        function: a module-level function, since programs are kept by it; from a classifier and rows to an array, or to
            one and another that is not finite where a value of x is not.
        c: the classifier.
        x: (d,), (n, d) or sparse rows.
        observed: True for the entries of x that count, where some do not.
        likelihood: whether the function needs the log likelihood itself, where scores would not do.
    """
    if not all(hasattr(c, name) for name in ("scores", "domain", "num_features")):
        raise TypeError(f"c must be a classifier, such as jaxgen.fit returns; found {type(c).__name__}.")
    x = inputs.check_points(x, c.num_features, sparse=c.takes_sparse, observed=observed)
    check_single(c)
    tuning = platform.tuning_of(c, x)
    eager_on_cpu = platform.platform_of(c, x) == "cpu"
    in_two_steps = eager_on_cpu and getattr(c, "in_two_steps", False)
    if isinstance(x, CompressedRows) and in_two_steps and tuning and tuning.sparse == "scipy":
        result, bad = _score_compressed(function, c, x, tuning, likelihood=likelihood)
    elif (
        not eager_on_cpu
        or not isinstance(x, (jax.Array, np.ndarray))
        or x.ndim == 1
        or (_in_one_pass(c, x, likelihood=likelihood) and shares.lies_on_boundary(x))
    ):
        result, bad = _program(function, c, x.whole() if isinstance(x, CompressedRows) else x, tuning, likelihood)
    else:
        result, bad = _score_shares(function, c, x, tuning, likelihood=likelihood)
    if not inputs.is_traced(bad, x) and bad:
        culprits.raise_for_points(x, c.domain)
    return result


def _score_shares(
    function: Callable[[Any, Array], Any], c: Scorer, x: Any, tuning: Tuning | None, *, likelihood: bool
) -> tuple[Array, Any]:
    """The rows dealt out to the cores."""
    parts = shares.split(x)
    if len(parts) < 2:
        return _program(function, c, x, tuning, likelihood)
    ready = jax.block_until_ready(_prepare_program(c, likelihood))
    one_pass = _in_one_pass(ready, x, likelihood=likelihood)
    form, _ = jax.eval_shape(lambda: _share_program(function, ready, parts[0].x, tuning, one_pass))
    return shares.gather(
        lambda share: _share_program(function, ready, share.x, tuning, one_pass),
        parts,
        [share.place for share in parts],
        x.shape[0],
        form,
    )


def _score_compressed(
    function: Callable[[Any, Array], Any], c: Scorer, x: CompressedRows, tuning: Tuning, *, likelihood: bool
) -> tuple[Array, bool]:
    """Rows times a table, by scipy; then the products are dense rows, and what scores them is a classifier as well."""
    projection = _in_one_dtype(c).projection(x, likelihood=likelihood)
    products, bad = x.products(projection, c.domain, entries=tuning.entries)
    products = jax.device_put(products, shares.placement(c))
    result, _ = _score_shares(function, projection.classifier, products, tuning, likelihood=likelihood)
    return result, bad


def check_single(c: Scorer) -> None:
    """Raise for a stack of classifiers, which only vmap takes apart."""
    if len(c.class_shape) != 1:
        raise ValueError(
            f"c must be one classifier, whose log_prior or bias has shape (K,); found {c.class_shape}. "
            "For a stack of classifiers: jax.vmap(verb, in_axes=(0, None))(c, x)."
        )


@partial(jax.jit, static_argnums=(0, 3, 4))
def _program(
    function: Callable[[Any, Array], Any],
    c: Scorer,
    x: Array | SparseRows,
    tuning: Tuning | None,
    likelihood: bool,  # noqa: FBT001
) -> tuple[Array, Array]:
    """The answer, and whether a value of x was outside the classifier's domain."""
    c = _prepared(c, likelihood=likelihood)
    c, x = varying_alike(c, x)
    if isinstance(x, SparseRows):
        score = partial(_score_sparse, function)
        return platform.run(lambda c, x, tuning: score(c, x.reading(tuning.window).inside()), c, x, tuning=tuning)
    rows = jax.tree.map(jnp.atleast_2d, x)
    one_pass = _in_one_pass(c, rows, likelihood=likelihood)
    result, bad = platform.run(partial(_score_dense, function, one_pass=one_pass), c, rows, tuning=tuning)
    return (result[0] if x.ndim == 1 else result), bad


@partial(jax.jit, static_argnums=(0, 3, 4))
def _share_program(
    function: Callable[[Any, Array], Any],
    c: Any,
    x: Array,
    tuning: Tuning,
    one_pass: bool,  # noqa: FBT001
) -> tuple[Array, Array]:
    return _score_dense(function, c, x, tuning=tuning, one_pass=one_pass)


@partial(jax.jit, static_argnums=1)
def _prepare_program(c: Scorer, likelihood: bool) -> Any:  # noqa: FBT001
    """The classifier in the form in which many pieces are scored."""
    return _prepared(c, likelihood=likelihood)


def _in_one_pass(c: Any, x: Any, *, likelihood: bool) -> bool:
    """Whether the scores of rows are products of what x holds."""
    if likelihood or not getattr(c, "in_one_pass", False) or not isinstance(x, (jax.Array, np.ndarray)):
        return False
    return x.dtype == getattr(jax.tree.leaves(c)[0], "dtype", None)


def _score_dense(
    function: Callable[[Any, Array], Any], c: Any, x: Array, *, tuning: Tuning, one_pass: bool = False
) -> tuple[Array, Array]:
    dtype = _dtype(c)
    # One pass holds the scores of all rows: these may be as many numbers as the rows are, not more.
    num_scores = x.shape[0] * c.class_shape[0]
    one_pass = one_pass and x.size <= tuning.product_elements and num_scores <= max(x.size, tuning.score_elements)
    width = getattr(getattr(c, "density", c), "score_width", 0)
    fewest = 16 if isinstance(x, PartialRows) else None
    elements = tuning.product_elements if one_pass else tuning.score_elements
    block_size = blocks.num_rows(elements, max(x.shape[-1], c.class_shape[0], width), fewest=fewest)
    in_blocks = partial(blocks.map_rows, x=x, block=block_size)

    def block(x: Any) -> tuple[Array, Array]:
        result, witness = (_in_quick_form if one_pass else _as_it_is)(function, c, x.astype(dtype))
        # A value that is not finite leaves a witness that is not: only then are the values themselves looked at.
        return result, ~jnp.isfinite(jnp.sum(witness)) if c.domain.shows else jnp.ones_like(witness, bool, shape=())

    def outside(x: Any) -> tuple[Array, Array]:
        x = x.astype(dtype)
        bad = ~jnp.all(c.domain.contains(x.values if isinstance(x, PartialRows) else x), axis=-1)
        return bad, jnp.any(bad)

    def spoil(result: Array) -> tuple[Array, Array]:
        bad, any_bad = in_blocks(outside)
        return _spoil(result, bad), suspect & any_bad

    result, suspect = in_blocks(block)
    return lax.cond(suspect, spoil, lambda result: (result, jnp.zeros_like(suspect)), result)


def _as_it_is(function: Callable[[Any, Any], Any], c: Any, x: Any) -> tuple[Array, Array]:
    """The result, and its witness: what is not finite where a value of x is not. Itself, if there is no other."""
    result = function(c, x)
    return result if isinstance(result, tuple) else (result, result)


def _in_quick_form(function: Callable[[Any, Any], Any], c: Any, x: Any) -> tuple[Array, Array]:
    """The same by the quickest form of the classifier that is accurate.

    The choice is made about the whole function: XLA makes scores and what is made of them in one pass over x.
    """
    forms = c.expanded() if hasattr(c, "expanded") else None
    if forms is None:
        return _as_it_is(function, c, x)
    quick, accurate = forms
    return lax.cond(accurate, lambda: _as_it_is(function, quick, x), lambda: _as_it_is(function, c, x))


def _score_sparse(function: Callable[[Any, Any], Any], c: Any, x: SparseRows) -> tuple[Array, Array]:
    x = x.astype(_dtype(c))
    x = x if c.domain.adds else x.summed()
    bad = ~x.within(c.domain.contains)
    in_row = lax.cond(
        bad,
        lambda: x.row_sum(lambda values: (~c.domain.contains(values)).astype(x.dtype)) > 0,
        lambda: jnp.zeros_like(bad, shape=x.shape[0]),
    )
    return _spoil(_as_it_is(function, c, x)[0], in_row), bad


def _prepared(c: Scorer, *, likelihood: bool) -> Any:
    return _in_one_dtype(c).prepared(likelihood=likelihood)


def _in_one_dtype(c: Scorer) -> Any:
    """The classifier in one working dtype: parameters given by hand may mix float32 and float64."""
    leaves = jax.tree.leaves(c)
    if all(isinstance(leaf, jax.Array) and leaf.dtype == working_dtype(leaves[0].dtype) for leaf in leaves):
        return c
    with jax.numpy_dtype_promotion("standard"):
        dtype = working_dtype(jnp.result_type(*map(jnp.asarray, jax.tree.leaves(c))))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), c)


def _dtype(c: Any) -> Any:
    return jax.tree.leaves(c)[0].dtype


def _spoil(result: Array, rows: Array) -> Array:
    """NaN for some rows, where the result can hold it."""
    if not jnp.issubdtype(result.dtype, jnp.floating):
        return result
    return jnp.where(rows.reshape(-1, *(1,) * (result.ndim - 1)), jnp.nan, result)
