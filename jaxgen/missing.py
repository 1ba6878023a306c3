"""Rows with missing features: an array, and which of its entries were observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxgen.pytree import pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jax.typing import DTypeLike
    from jaxtyping import Bool, Real


@pytree
@dataclass(frozen=True)
class PartialRows:
    """Rows of x of which only some entries count.

    Attributes:
        values: x, (n, d) or (d,); anything where it was not observed.
        observed: True for what counts, of the same shape.
    """

    values: Real[Array, "*n d"]
    observed: Bool[Array, "*n d"]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of x."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """1 for a single row, else 2."""
        return self.values.ndim

    @property
    def dtype(self) -> Any:
        """That of x."""
        return self.values.dtype

    @property
    def size(self) -> int:
        """Entries, observed or not."""
        return self.values.size

    @property
    def mask(self) -> Array:
        """1 for what was observed and 0 for what was not, in the dtype of x."""
        return jnp.asarray(self.observed).astype(self.dtype)

    def astype(self, dtype: DTypeLike) -> PartialRows:
        """The rows in another dtype, zero where nothing was observed: every domain holds it."""
        return PartialRows(jnp.where(self.observed, self.values, 0).astype(dtype), self.observed)

    def map(self, function: Callable[[Array], Array]) -> PartialRows:
        """`function` of the observed values, zero for the others."""
        return PartialRows(jnp.where(self.observed, function(jnp.asarray(self.values)), 0), self.observed)

    def take(self, columns: Any) -> PartialRows:
        """Some of the features."""
        return PartialRows(self.values[:, columns], self.observed[:, columns])
