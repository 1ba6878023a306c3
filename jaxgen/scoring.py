"""How a verb runs: arguments checked, one compiled program, rows in blocks, blocks on every core."""

from __future__ import annotations

from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import blocks, culprits, inputs, platform, shares
from jaxgen.compressed import CompressedRows
from jaxgen.density import check_parameters, check_shapes, for_many_rows, quick_form, trait
from jaxgen.missing import PartialRows
from jaxgen.numerics import shortcut, varying_alike, working_dtype
from jaxgen.sparse import SparseRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.domains import Domain
    from jaxgen.platform import Tuning


# Numbers in a classifier of which the prepared form is kept.
_SMALL = 2**18


class _Latest(NamedTuple):
    """The classifier that was prepared last: its structure, its arrays, its forms for few rows and (True) for many."""

    of: Any = None
    leaves: Any = ()
    forms: dict[bool, Any] = {}  # noqa: RUF012, which is never written to


_latest = _Latest()
# The arrays of the classifier that was found to hold what a density holds.
_checked: list[Any] = []


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

        With `likelihood` for functions of the log likelihood, without for those of the scores alone. The result may
        have `quick_form(likelihood=…)`: a quicker one, and whether that is accurate. Either may be `in_one_pass`: then
        its scores are products of what x holds.
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
    check_classifier(c)
    x = inputs.check_points(x, c.num_features, sparse=c.takes_sparse, observed=observed)
    place = platform.platform_of(c, x)
    tuning = platform.tuning_on(place)
    in_two_steps = place == "cpu" and tuning and tuning.sparse == "scipy" and trait(c, "in_two_steps")
    rows = x if in_two_steps or not isinstance(x, CompressedRows) else x.whole()
    if place is None or tuning is None:
        result, bad = _traced_program(function, c, rows, tuning, likelihood)
    elif isinstance(rows, CompressedRows):
        result, bad = _score_compressed(function, c, rows, tuning, likelihood=likelihood)
    else:
        many = rows.ndim == 2 and rows.shape[0] >= tuning.many_rows * c.num_features
        result, bad = _score_rows(function, _ready(c, likelihood=likelihood, many=many), rows, tuning)
    if not inputs.is_traced(bad, x) and bad:
        culprits.raise_for_points(x, c.domain)
    if place is not None and not _holds_nan(result) and not shares.is_distributed(c):
        _check_once(c)
    return result


def _check_once(c: Scorer) -> None:
    """Raise for a classifier that makes scores NaN, where an answer cannot say so; of the latest small one, once."""
    global _checked
    leaves = jax.tree.leaves(c)
    if len(leaves) != len(_checked) or not all(map(is_, leaves, _checked)):
        check_parameters(c)
        if all(isinstance(leaf, jax.Array) for leaf in leaves) and sum(leaf.size for leaf in leaves) <= _SMALL:
            _checked = leaves


def _ready(c: Scorer, *, likelihood: bool, many: bool) -> Any:
    """The classifier in the form in which rows are scored: the quick one, where it is accurate, is compiled alone.

    With `many` in that for many rows, where it has such.
    That of the latest small classifier is kept for the next call with the same arrays of JAX, which never change: to
    score one row after the other, it is prepared once.
    """
    global _latest
    leaves, structure = jax.tree.flatten(c)
    mine = (structure, likelihood, getattr(jax.config, "jax_enable_x64", None))
    forms = _latest.forms if mine == _latest.of and all(map(is_, leaves, _latest.leaves)) else {}
    if many in forms:
        return forms[many]
    form = forms[False] if forms else _form(c, likelihood=likelihood)
    ready = form
    if many and (found := for_many_rows(form)) is not None:
        ready = jax.device_put(found, shares.placement(c))
    if all(isinstance(leaf, jax.Array) for leaf in leaves) and sum(leaf.size for leaf in leaves) <= _SMALL:
        _latest = _Latest(mine, leaves, {False: form, many: ready})
    return ready


def _form(c: Scorer, *, likelihood: bool) -> Any:
    """The quick form where it is accurate, else what is prepared."""
    form, accurate = _quick_program(c, likelihood)
    return form if accurate is None or accurate else _prepare_program(c, likelihood)


def _score_rows(function: Callable[[Any, Any], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Any, Any]:
    """The scores of concrete rows by a classifier that is prepared; on a CPU the rows are dealt out to the cores."""

    def one(x: Any) -> tuple[Any, Any]:
        result, suspect = _program(function, c, x, tuning)
        return result, suspect and _outside_program(c, x, tuning)

    at_once = _in_one_pass(c, x) and shares.lies_on_boundary(x)
    parts = [] if at_once or not isinstance(x, (jax.Array, np.ndarray)) or x.ndim == 1 else shares.split(x)
    if len(parts) < 2:
        return one(x)
    jax.block_until_ready(c)
    form, _ = jax.eval_shape(lambda: _program(function, c, parts[0].x, tuning))
    places = [share.place for share in parts]
    return shares.gather(lambda share: one(share.x), parts, places, x.shape[0], form)


def _score_compressed(
    function: Callable[[Any, Array], Any], c: Scorer, x: CompressedRows, tuning: Tuning, *, likelihood: bool
) -> tuple[Array, bool]:
    """Rows times a table, by scipy; then the products are dense rows, and what scores them is a classifier as well."""
    projection = _in_one_dtype(c).projection(x, likelihood=likelihood)
    products, bad = x.products(projection, c.domain, entries=tuning.entries)
    products = jax.device_put(products, shares.placement(c))
    result, _ = _score_rows(function, projection.classifier, products, tuning)
    return result, bad


def check_classifier(c: Any) -> None:
    """Raise for a stack of classifiers, which only vmap takes apart, and for arrays that do not fit each other."""
    if len(c.class_shape) != 1:
        raise ValueError(
            f"c must be one classifier, whose log_prior or bias has shape (K,); found {c.class_shape}. "
            "For a stack of classifiers: jax.vmap(verb, in_axes=(0, None))(c, x)."
        )
    check_shapes(c)


@partial(jax.jit, static_argnums=(0, 3, 4))
def _traced_program(
    function: Callable[[Any, Array], Any],
    c: Scorer,
    x: Any,
    tuning: Tuning | None,
    likelihood: bool,  # noqa: FBT001
) -> tuple[Array, Array]:
    """The answer under a trace, where neither the platform nor what the classifier holds is known, and a bad row's NaN.

    Beside it whether there is such a row.
    """
    ready, quick = _forms(c, likelihood=likelihood)
    c, x, quick = varying_alike(ready, x, quick)
    result, suspect = _score(function, c, x, tuning, quick)

    def spoil(result: Array) -> tuple[Array, Array]:
        bad = _outside(c, x, tuning)
        return _spoil(result, bad), jnp.any(bad)

    if suspect is None:
        return spoil(result)
    return shortcut(~suspect, lambda result: (result, jnp.zeros_like(suspect)), spoil, result)


@partial(jax.jit, static_argnums=(0, 3))
def _program(function: Callable[[Any, Array], Any], c: Any, x: Any, tuning: Tuning) -> tuple[Array, Array]:
    """The answer of a classifier that is prepared, and whether a value of x may be outside its domain."""
    result, suspect = _score(function, c, x, tuning)
    return result, jnp.any(_outside(c, x, tuning)) if suspect is None else suspect


@partial(jax.jit, static_argnums=2)
def _outside_program(c: Any, x: Any, tuning: Tuning) -> Array:
    """Whether a value of x is outside the domain of a classifier."""
    return jnp.any(_outside(c, x, tuning))


@partial(jax.jit, static_argnums=1)
def _quick_program(c: Scorer, likelihood: bool) -> tuple[Any, Array | None]:  # noqa: FBT001
    """The quick form of the classifier and whether it is accurate; where there is none, what there is, and None."""
    ready, quick = _forms(c, likelihood=likelihood)
    return quick or (ready, None)


@partial(jax.jit, static_argnums=1)
def _prepare_program(c: Scorer, likelihood: bool) -> Any:  # noqa: FBT001
    """The classifier prepared, in no quick form."""
    return _forms(c, likelihood=likelihood)[0]


def _forms(c: Scorer, *, likelihood: bool) -> tuple[Any, tuple[Any, Array] | None]:
    """The classifier prepared; and its quick form with whether that is accurate, where it has one."""
    ready = _in_one_dtype(c).prepared(likelihood=likelihood)
    return ready, quick_form(ready, likelihood=likelihood)


def _score(
    function: Callable[[Any, Any], Any],
    c: Any,
    x: Any,
    tuning: Tuning | None,
    quick: tuple[Any, Array] | None = None,
) -> tuple[Any, Array | None]:
    """The answer for rows in any form: sparse, one alone, with features that were not observed, or dense.

    Beside it whether a value of x may be outside the domain; None where only a look at the values tells.
    """
    if isinstance(x, SparseRows):
        score = partial(_score_sparse, function)
        return platform.run(lambda c, x, tuning: score(c, x.reading(tuning.window).inside()), c, x, tuning=tuning)
    rows = jax.tree.map(jnp.atleast_2d, x)
    result, suspect = platform.run(partial(_score_dense, function), c, quick, rows, tuning=tuning)
    return result[0] if x.ndim == 1 else result, suspect if c.domain.shows else None


def _outside(c: Any, x: Any, tuning: Tuning | None) -> Array:
    """Which rows hold a value outside the domain; of one row alone, whether it does."""
    dtype, contains = _dtype(c), c.domain.contains

    def dense(rows: Any, tuning: Tuning) -> Array:
        def block(x: Any) -> tuple[Array, Array]:
            x = x.astype(dtype)
            bad = ~jnp.all(contains(x.values if isinstance(x, PartialRows) else x), axis=-1)
            return bad, jnp.zeros((), bool)

        return blocks.map_rows(block, rows, block=blocks.num_rows(tuning.score_elements, rows.shape[-1]))[0]

    def sparse(x: SparseRows, tuning: Tuning) -> Array:
        x = x.reading(tuning.window).inside().astype(dtype)
        x = x if c.domain.adds else x.summed()
        return x.row_sum(lambda values: (~contains(values)).astype(x.dtype)) > 0

    if isinstance(x, SparseRows):
        return platform.run(sparse, x, tuning=tuning)
    bad = platform.run(dense, jax.tree.map(jnp.atleast_2d, x), tuning=tuning)
    return bad[0] if x.ndim == 1 else bad


def _in_one_pass(c: Any, x: Any) -> bool:
    """Whether the scores of rows are products of what x holds."""
    return trait(c, "in_one_pass") and isinstance(x, (jax.Array, np.ndarray)) and x.dtype == _dtype(c)


def _score_dense(
    function: Callable[[Any, Array], Any], c: Any, quick: tuple[Any, Array] | None, x: Array, *, tuning: Tuning
) -> tuple[Array, Array]:
    """The scores of rows by c, or by its quick form where that is accurate and its scores are made in one pass."""
    dtype = _dtype(c)
    # One pass holds the scores of all rows: these may be as many numbers as the rows are, not more.
    num_scores = x.shape[0] * c.class_shape[0]
    one_pass = x.size <= tuning.product_elements and num_scores <= max(x.size, tuning.score_elements)
    one_pass = one_pass and _in_one_pass(quick[0] if quick else c, x)
    fewest = 16 if isinstance(x, PartialRows) else None
    elements = tuning.product_elements if one_pass else tuning.score_elements
    block_size = blocks.num_rows(elements, max(x.shape[-1], c.class_shape[0], trait(c, "score_width")), fewest=fewest)

    def block(x: Any) -> tuple[Array, Array]:
        x = x.astype(dtype)
        if quick and one_pass:
            # The choice is made about the whole function: XLA makes scores and what is made of them in one pass over x.
            forms = (partial(_witnessed, function, form) for form in (quick[0], c))
            result, witness = shortcut(quick[1], *forms, x)
        else:
            result, witness = _witnessed(function, c, x)
        # A value that is not finite leaves a witness that is not: only then are the values themselves looked at.
        return result, ~jnp.isfinite(witness)

    return blocks.map_rows(block, x, block=block_size)


def _witnessed(function: Callable[[Any, Any], Any], c: Any, x: Any) -> tuple[Array, Array]:
    """The result, and its witness: a sum that is not finite where a value of x is not."""
    result, witness = _with_witness(function(c, x))
    return result, jnp.sum(witness)


def _with_witness(result: Any) -> tuple[Array, Array]:
    """A result and what shows a bad value in it: itself, if there is nothing else."""
    return result if isinstance(result, tuple) else (result, result)


def _score_sparse(function: Callable[[Any, Any], Any], c: Any, x: SparseRows) -> tuple[Array, Array]:
    x = x.astype(_dtype(c))
    x = x if c.domain.adds else x.summed()
    return _with_witness(function(c, x))[0], ~x.within(c.domain.contains)


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


def _holds_nan(result: Any) -> bool:
    """Whether a result can be NaN: a class cannot."""
    return jnp.issubdtype(result.dtype, jnp.floating)


def _spoil(result: Array, bad: Array) -> Array:
    """NaN for some rows, where the result can hold it."""
    if not _holds_nan(result):
        return result
    return jnp.where(bad.reshape(*bad.shape, *(1,) * (result.ndim - bad.ndim)), jnp.nan, result)
