"""Rows with missing features: an array, and which of its entries were observed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import host_arrays
from jaxgen.pytree import STATIC, pytree
from jaxgen.tracing import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jax.typing import DTypeLike
    from jaxtyping import Bool, Real


# The least that rows are said to miss at most: fewer would be another program, which is hardly quicker.
_FEWEST_MISSING = 4


def places(most_missing: int | None, num_features: int) -> int:
    """The rows and columns of a factor of what is missing: of so many features at most, where all are twice as many."""
    return num_features if most_missing is None or 2 * most_missing > num_features else most_missing


class Mask(NamedTuple):
    """Which entries of rows were observed.

    Attributes:
        observed: True for what counts, (n, d).
        most_missing: a number of features of which no row misses more; None where they may be many, or are not known.
    """

    observed: Any
    most_missing: int | None

    @classmethod
    def counted(cls, observed: Any) -> Mask:
        """The mask of concrete entries, with a power of two for the most: programs are for one number of them."""
        d = observed.shape[-1]
        known = not is_traced(observed) and not host_arrays.is_distributed(observed)
        if not known or not observed.size or places(_FEWEST_MISSING, d) == d:
            return cls(observed, None)
        if isinstance(observed, np.ndarray):
            # Sums of bytes take half the time of `count_nonzero` along an axis.
            least = int(np.add.reduce(observed.view(np.uint8), axis=-1, dtype=np.uint8 if d < 256 else np.uint32).min())
        else:
            with jax.ensure_compile_time_eval():  # it lies on a device, and may be known inside of jit
                least = int(jnp.sum(observed, axis=-1, dtype=jnp.int32).min())
        most = max(_FEWEST_MISSING, 1 << max(d - least - 1, 0).bit_length())
        return cls(observed, most if places(most, d) < d else None)


@pytree
@dataclass(frozen=True)
class PartialRows:
    """Rows of x of which only some entries count.

    Attributes:
        values: x, (n, d) or (d,); anything where it was not observed.
        observed: True for what counts, of the same shape.
        most_missing: as of `Mask`.
    """

    values: Real[Array, "*n d"]
    observed: Bool[Array, "*n d"]
    most_missing: int | None = dataclasses.field(default=None, metadata=STATIC)

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
        return self._with(jnp.where(self.observed, self.values, 0).astype(dtype))

    def map(self, function: Callable[[Array], Array]) -> PartialRows:
        """`function` of the observed values, zero for the others."""
        return self._with(jnp.where(self.observed, function(jnp.asarray(self.values)), 0))

    def take(self, columns: Any) -> PartialRows:
        """Some of the features."""
        values = self.values[:, columns]
        few = values.ndim == 2 and places(self.most_missing, values.shape[1]) < values.shape[1]
        return PartialRows(values, self.observed[:, columns], self.most_missing if few else None)

    def _with(self, values: Array) -> PartialRows:
        return dataclasses.replace(self, values=values)
