"""A classifier in the form in which rows are scored: checked, the quick form found, the latest small one kept."""

from __future__ import annotations

from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxgen import host_arrays
from jaxgen.arguments import check_arrays
from jaxgen.density import is_density, optional
from jaxgen.numerics import working_dtype
from jaxgen.parameters import check_forms, check_parameters, check_shapes
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.domains import Domain

# Numbers in a classifier of which the prepared form is kept: as many as LDA of 784 features has, which takes 5 ms.
_SMALL = 2**20


class _Kept(NamedTuple):
    """A classifier, known by its arrays and by what else must be the same; and its forms for few and for many rows."""

    of: Any = None
    leaves: Any = ()
    forms: Any = ()

    def is_of(self, of: Any, leaves: list[Any]) -> bool:
        """Whether it is this one: arrays of JAX never change."""
        return len(leaves) == len(self.leaves) and all(map(is_, leaves, self.leaves)) and of == self.of


def _may_be_kept(leaves: list[Any]) -> bool:
    return all(isinstance(leaf, jax.Array) for leaf in leaves) and sum(leaf.size for leaf in leaves) <= _SMALL


# The latest that was prepared, and the latest that each check found to be good.
_prepared = _Kept()
_checked: dict[Callable[..., None], _Kept] = {}


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


def check_classifier(c: Any, name: str = "c") -> None:
    """Raise for what is no classifier, for what are no arrays in it, or do not fit each other, and for a stack of them.

    Only vmap takes a stack.
    """
    if not all(hasattr(type(c), member) for member in ("class_shape", "scores", "domain", "num_features")):
        remedy = "jaxgen.Classifier(log_prior, density) joins a density with a class prior."
        raise TypeError(
            f"{name} must be a classifier, such as jaxgen.fit returns; found {type(c).__name__}."
            + f" {remedy}" * hasattr(c, "log_likelihood")
        )
    check_arrays(name, c)
    density = getattr(c, "density", None)
    if hasattr(c, "log_prior") and not is_density(density):
        raise TypeError(f"{name}.density must be one, such as jaxgen.Gaussian; found {type(density).__name__}.")
    if len(c.class_shape) != 1:
        raise ValueError(
            f"{name} must be one classifier, whose log_prior or bias has shape (K,); found {c.class_shape}. "
            "For a stack of classifiers: jax.vmap(verb, in_axes=(0, None))(c, x)."
        )
    check_shapes(c)
    if not is_traced(c) and not host_arrays.is_distributed(c):
        _once(check_forms, c, name)


def check_numbers(c: Scorer) -> None:
    """Raise for a concrete classifier that makes scores NaN, where an answer cannot say so."""
    _once(check_parameters, c)


def _once(check: Callable[..., None], c: Any, *arguments: str) -> None:
    """A check of a concrete classifier; of the latest small one, it is made once."""
    leaves, structure = jax.tree.flatten(c)
    if not _checked.get(check, _Kept()).is_of(structure, leaves):
        check(c, *arguments)
        if _may_be_kept(leaves):
            _checked[check] = _Kept(structure, leaves)


def ready(c: Scorer, *, likelihood: bool, many: bool) -> Any:
    """The classifier in the form in which rows are scored: the quick one, where it is accurate, is compiled alone.

    With `many` in that for many rows, where it has such. The latest small one is kept for the next call with the same
    arrays: to score one row after the other, it is prepared once.
    """
    global _prepared
    leaves, structure = jax.tree.flatten(c)
    mine = (structure, likelihood, getattr(jax.config, "jax_enable_x64", None))
    kept = _prepared  # read once: another thread may put its own classifier there
    forms = kept.forms if kept.is_of(mine, leaves) else {}
    if many in forms:
        return forms[many]
    form = found = forms[False] if forms else _form(c, likelihood=likelihood)
    if many and (other := optional(form, "for_many_rows")()) is not None:
        found = jax.device_put(other, host_arrays.placement(c))
    if _may_be_kept(leaves):
        _prepared = _Kept(mine, leaves, {False: form, many: found})
    return found


def _form(c: Scorer, *, likelihood: bool) -> Any:
    """The quick form where it is accurate, else what is prepared."""
    form, accurate = _quick_program(c, likelihood)
    return form if accurate is None or accurate else _prepare_program(c, likelihood)


@partial(jax.jit, static_argnums=1)
def _quick_program(c: Scorer, likelihood: bool) -> tuple[Any, Array | None]:  # noqa: FBT001
    """The quick form of the classifier and whether it is accurate; where there is none, what there is, and None."""
    ready, quick = forms_of(c, likelihood=likelihood)
    return quick or (ready, None)


@partial(jax.jit, static_argnums=1)
def _prepare_program(c: Scorer, likelihood: bool) -> Any:  # noqa: FBT001
    """The classifier prepared, in no quick form."""
    return forms_of(c, likelihood=likelihood)[0]


def forms_of(c: Scorer, *, likelihood: bool) -> tuple[Any, tuple[Any, Array] | None]:
    """The classifier prepared; and its quick form with whether that is accurate, where it has one."""
    ready = in_one_dtype(c).prepared(likelihood=likelihood)
    return ready, optional(ready, "quick_form")(likelihood=likelihood)


def in_one_dtype(c: Scorer) -> Any:
    """The classifier in one working dtype: parameters given by hand may mix float32 and float64."""
    leaves = jax.tree.leaves(c)
    if all(isinstance(leaf, jax.Array) and leaf.dtype == working_dtype(leaves[0].dtype) for leaf in leaves):
        return c
    with jax.numpy_dtype_promotion("standard"):
        dtype = working_dtype(jnp.result_type(*map(jnp.asarray, jax.tree.leaves(c))))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), c)
