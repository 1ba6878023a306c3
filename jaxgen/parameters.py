"""Whether the arrays of a classifier are what they must be: of shapes that fit, numbers in the form that is meant."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen.arguments import place_of
from jaxgen.density import optional, parts

# How far from 1 the sum of probabilities may be that are known as such.
_ROUNDED = 1e-3


def check_shapes(owner: Any) -> None:
    """Raise for an array that does not fit the others, as its owner or a part of it says in `shapes`, and the like."""
    for part in parts(owner).values():
        check_shapes(part)
    optional(owner, "check_structure")()
    for name, allowed in optional(owner, "shapes").items():
        if (found := jnp.shape(getattr(owner, name))) not in allowed:
            shapes = " or ".join(f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for shape in allowed)
            raise ValueError(
                f"{type(owner).__name__}.{name} must have shape {shapes}, beside its other arrays; found {found}."
            )


def check_parameters(c: Any) -> None:
    """Raise a ValueError for a classifier that holds NaN or +∞, or what must be positive and is not."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(c):
        array = np.asarray(leaf)
        if array.dtype.kind not in "biu" and not array.max(initial=-np.inf) < np.inf:
            remedy = "A fit under jit is NaN where the same fit outside of it has an error, which says why."
            _raise_for_numbers(f"c{place_of(path)}", array, array < np.inf, "numbers below infinity", remedy)
    _check_positive("c", c)


def _check_positive(name: str, owner: Any) -> None:
    for attribute in optional(owner, "positive"):
        array = np.asarray(getattr(owner, attribute))
        factors = array.ndim > 2
        array = np.diagonal(array, axis1=-2, axis2=-1) if factors else array
        if not (good := array > 0).all():
            expected = "positive numbers" + " in the diagonal of each factor" * factors
            _raise_for_numbers(f"{name}.{attribute}", array, good, expected, "Were these their logarithms?")
    for place, part in parts(owner).items():
        _check_positive(name + place, part)


def check_forms(owner: Any, name: str) -> None:
    """Raise a ValueError for concrete parameters in another form than theirs, which scores would take for what it is.

    Factors that are not triangular, of which scores would look at one half; and probabilities in place of their logs.
    """
    prior = np.asarray(getattr(owner, "log_prior", -np.inf), float)
    if np.all(prior >= 0) and abs(prior.sum() - 1) < _ROUNDED:
        raise ValueError(
            f"{name}.log_prior must be log probabilities, in nats; found {prior}, which are probabilities. Give "
            "jnp.log of them."
        )
    for attribute in optional(owner, "log_probabilities"):
        array = np.asarray(getattr(owner, attribute))
        # The largest takes no memory, where a truth for each of a million words does; NaN hides it.
        if array.size and not array.max() <= _ROUNDED and (above := array > _ROUNDED).any():
            _raise_for_numbers(f"{name}.{attribute}", array, ~above, "log probabilities", "Give jnp.log of them.")
    for attribute in optional(owner, "positive"):
        array = np.asarray(getattr(owner, attribute))
        if array.ndim > 2 and (upper := abs(np.triu(array, 1)) > 0).any():
            remedy = "jnp.linalg.cholesky makes the factor of a covariance."
            _raise_for_numbers(f"{name}.{attribute}", array, ~upper, "lower triangular factors", remedy)
    for place, part in parts(owner).items():
        check_forms(part, name + place)


def _raise_for_numbers(name: str, array: np.ndarray, good: np.ndarray, expected: str, remedy: str) -> NoReturn:
    first = np.unravel_index(np.argmin(good), good.shape)
    raise ValueError(f"{name} must hold {expected}; found {array[first]} at [{', '.join(map(str, first))}]. {remedy}")
