"""Dense rows in two steps: they are multiplied by a table, and what stands for a classifier scores the products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxgen import blocks, chunks
from jaxgen.density import optional
from jaxgen.numerics import matmul

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.platform import Tuning

# Classes up to which dense rows are scored in two steps. XLA fuses what is made of a product into it, which on a CPU
# takes longer than the product and then the rest where columns are few: 200,000 rows of 20 features are predicted in 10
# classes in 1.9 ms and 1.1 (posterior 2.1 and 2.0), of 4 in 2 in 1.1 and 0.4 (1.5 and 1.1), of 100 in 12 in 7.5 and 4.3
# (7.7 and 6.1). In 20 classes one or the other is quicker; in 40, of 784 features, it takes 6.2 and 7.4 (4.9 and 6.2).
_MOST_CLASSES = 16
# Features, for each column of a product, from which it is worth it to have more columns that fill a vector: with fewer
# it is their results that take the time.
_FEWEST_FEATURES = 4
# Rows of which a product takes no longer than it takes to copy the table.
_FEW_ROWS = 2**7


def first_step(c: Any) -> tuple[Float[Array, "d classes"], Any] | None:
    """The table that rows are multiplied by, and the classifier of the products; None where one step is to be taken."""
    step = optional(c, "first_step")
    return step if step and step[0].shape[1] <= _MOST_CLASSES else None


def products(x: Float[Array, "n d"], table: Float[Array, "d classes"], tuning: Tuning) -> Float[Array, "n m"]:
    """Rows times a table; and zeros behind that, where the product is quicker with more columns."""
    n, (d, columns) = x.shape[0], table.shape
    padding = tuning.columns(columns) - columns
    if padding and d >= _FEWEST_FEATURES * columns and not blocks.at_most(n, _FEW_ROWS):
        # The scores are copied from such products: they, the products and the table are to be what the allocator keeps.
        size = (n * (2 * columns + padding) + d * (columns + padding)) * table.dtype.itemsize
        table = jnp.pad(table, [(0, 0), (0, padding)]) if size <= chunks.KEPT else table
    return matmul(x, table)
