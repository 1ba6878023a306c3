"""Classifiers of rows in two steps: the rows times a table, and a classifier of the products.

For sparse rows the table is made here. That of a million words is large, and few of them occur in a few documents: then
it has those alone. A large one is made some columns at a time into NumPy's memory, by every core, as large classifiers
are (`class_tables`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import chunks, domains, host_arrays
from jaxgen.pytree import STATIC, pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array
    from jaxtyping import Float

    from jaxgen.compressed import CompressedRows

# Cells of a table that is made as a whole: of 20 × 50,000 in 1.0 ms, in pieces in 2.3. With more it depends on where
# the room for them comes from.
_WHOLE = 2**22
# Cells of a larger one that are made at a time.
_PIECE = 2**18
# With fewer entries than this for a column, the table has the columns that have entries. Measured with a million words
# in 20 classes: 1.1 million entries are scored in 52 ms, in 75 with a table of all columns; 2.2 million in 91 and 93,
# 5.5 million in 188 and 142; by the weights of a linear classifier 1.1 million in 17 and 50. Where all columns are made
# as a whole, the limit is lower: of 50,000 words 5,500 entries take 1.7 ms, and 2.7 with all columns; 27,000 take 2.5
# and 2.2, 55,000 4.0 and 2.9.
ENTRIES_OF_A_COLUMN = 2
_ENTRIES_OF_A_WHOLE_COLUMN = 0.25


@pytree
@dataclass(frozen=True)
class Projection:
    """A classifier of sparse rows in two steps.

    Attributes:
        encode: what is multiplied, of rows.
        terms: functions of values whose sums over a row are further columns of the products.
        classifier: of the products.
        table: what is multiplied by, (m, products).
        columns: the m columns of the rows that it is for; None for all.
    """

    encode: Callable[[Any], Any] = dataclasses.field(metadata=STATIC)
    terms: tuple[Callable[[Any], Any], ...] = dataclasses.field(metadata=STATIC)
    classifier: Any
    table: Any
    columns: np.ndarray | None = None


class Coefficient(NamedTuple):
    """A term of the log likelihood that is common to all classes, by sums over the features of each row.

    Attributes:
        terms: f of each sum Σ_j f(x_ij); f(0) must be 0.
        of_sums: the term, from those sums.
    """

    terms: tuple[Callable[[Any], Any], ...]
    of_sums: Callable[..., Array]


@pytree
@dataclass(frozen=True)
class ProjectedDensity:
    """The density of a row by its products with the table of a prepared density, and by the sums of its coefficient.

    Attributes:
        constant: the score of x = 0, (K,).
        impossible_at_zero: how many impossible events x = 0 holds, (K,); None where nothing is impossible.
        coefficient: as in the prepared density; its sums come next in a row. What else a row holds plays no part.
    """

    constant: Float[Array, " classes"]
    impossible_at_zero: Float[Array, " classes"] | None
    coefficient: Coefficient | None = dataclasses.field(metadata=STATIC)
    domain = domains.NOT_NAN
    in_one_pass = True
    of_products = True

    @property
    def num_products(self) -> int:
        """Columns of a row that are products."""
        return self.constant.shape[0] * (1 if self.impossible_at_zero is None else 2)

    def log_likelihood(self, x: Float[Array, "n m"]) -> Float[Array, "n classes"]:
        """log p(x | k), in nats."""
        if self.coefficient is None:
            return self.scores(x)
        return self.scores(x) + self.coefficient.of_sums(*x[:, self.num_products :].T)[:, None]

    def scores(self, x: Float[Array, "n m"]) -> Float[Array, "n classes"]:
        """The log likelihood without the coefficient."""
        k = self.constant.shape[0]
        total = self.constant[None] + x[:, :k]
        if self.impossible_at_zero is None:
            return total
        return jnp.where(self.impossible_at_zero[None] + x[:, k : 2 * k] > 0, -jnp.inf, total)


def as_they_are(x: Any) -> Any:
    """What is multiplied is x itself."""
    return x


def projection(density: Any, x: CompressedRows, *, likelihood: bool) -> Projection:
    """The projection of a density for these rows.

    Args:
        density: tables (K, d) of one dtype; its `prepared` form has `projection` and `affine`.
        x: the rows.
        likelihood: whether for functions of the log likelihood, where else the scores do.
    """
    classes, d = jax.tree.leaves(density)[0].shape
    size, columns, whole = max(_PIECE // classes, 1), None, classes * d <= _WHOLE
    if d > 2 * size and x.num_entries < (_ENTRIES_OF_A_WHOLE_COLUMN if whole else ENTRIES_OF_A_COLUMN) * d:
        columns = x.occurring()
        size = next((small for small in (size >> 4, size >> 2) if len(columns) <= small), size)
        columns = np.pad(columns, (0, max(size - len(columns), 0)), mode="edge")  # programs of three shapes

    def steps(*, impossible: bool) -> tuple[Projection, Any]:
        if columns is None and whole:
            return _whole_program(density, likelihood, impossible)
        return _in_pieces(density, columns, size, likelihood=likelihood, impossible=impossible)

    result, is_impossible = steps(impossible=False)
    return steps(impossible=True)[0] if is_impossible else result


def _in_pieces(
    density: Any, columns: np.ndarray | None, size: int, *, likelihood: bool, impossible: bool
) -> tuple[Projection, bool]:
    """The projection of these columns, or of all, `size` at a time; and whether any event is impossible."""
    tables = jax.tree.map(np.asarray, density)
    num_rows = jax.tree.leaves(tables)[0].shape[1] if columns is None else len(columns)
    places = chunks.pieces(num_rows, size)

    def piece(place: slice) -> tuple[Array, Array]:
        chosen = None if columns is None else columns[place]
        some = jax.tree.map(lambda t: t[:, place] if chosen is None else t.take(chosen, axis=1, mode="clip"), tables)
        return _table_program(jax.device_put(some, where), likelihood, impossible)

    where = host_arrays.placement(density)
    rest, always = _rest_program(density, likelihood, impossible)
    table, sometimes = chunks.gather(piece, places, places, num_rows)
    return dataclasses.replace(rest, table=table, columns=columns), bool(always) or sometimes


@partial(jax.jit, static_argnums=(1, 2))
def _whole_program(density: Any, likelihood: bool, impossible: bool) -> tuple[Projection, Array]:  # noqa: FBT001
    prepared = density.prepared(likelihood=likelihood)
    return prepared.projection(likelihood=likelihood, impossible=impossible), prepared.affine.may_be_impossible


@partial(jax.jit, static_argnums=(1, 2))
def _table_program(density: Any, likelihood: bool, impossible: bool) -> tuple[Array, Array]:  # noqa: FBT001
    """The table of a few columns, and whether any event of theirs is impossible."""
    whole, is_impossible = _whole_program(density, likelihood, impossible)
    return whole.table, is_impossible


@partial(jax.jit, static_argnums=(1, 2))
def _rest_program(density: Any, likelihood: bool, impossible: bool) -> tuple[Projection, Array]:  # noqa: FBT001
    """All but the table, and whether x = 0 is impossible for a class."""
    prepared = density.prepared(likelihood=likelihood)
    whole = prepared.projection(likelihood=likelihood, impossible=impossible)
    return dataclasses.replace(whole, table=None), jnp.any(prepared.affine.impossible_at_zero > 0)
