"""What EM takes: rows of which some have labels, made ready for its steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxgen import domains
from jaxgen.containers import is_sparse
from jaxgen.missing import Mask, PartialRows
from jaxgen.pytree import STATIC, pytree
from jaxgen.total import Total

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Bool, Float, Int

    from jaxgen.domains import Domain


@pytree
@dataclass(frozen=True)
class Most:
    """How many features a row misses at most, as in `Mask`, as part of a type: a program is for one number of them.

    In a named tuple a number by itself would be traced.
    """

    missing: int | None = dataclasses.field(default=None, metadata=STATIC)


class Data(NamedTuple):
    """Rows, of which some have a label.

    Attributes:
        x: features (n, d), or sparse rows.
        observed: True for the entries of x that count; None where all do.
        labelled: responsibilities of the rows that have labels, times their weight, (n, K); zero for the others.
        unlabelled: weight of each row without a label, (n,); zero for the others.
        labels: where every row has one, the labels (n,) and their weights: a row then is of one class.
        most: how many features a row misses at most.
    """

    x: Any
    observed: Bool[Array, "n d"] | None
    labelled: Float[Array, "n classes"]
    unlabelled: Float[Array, " n"]
    labels: tuple[Int[Array, " n"], Float[Array, " n"]] | None = None
    most: Most = Most()

    @property
    def mask(self) -> Mask | None:
        """What was observed; None where all was."""
        return None if self.observed is None else Mask(self.observed, self.most.missing)


def seen(data: Data) -> np.ndarray:
    """Whether a row that may be of each class shows each feature, (K, d); True for a class without rows."""
    members = np.asarray(data.labelled) + np.asarray(data.unlabelled)[:, None] > 0
    seen = members.T.astype(np.float32) @ np.asarray(data.observed, np.float32) > 0
    return seen | np.all(~members, axis=0)[:, None]


def without_unusable(data: Data, domain: Domain) -> Data:
    """The data with zeros in place of absent rows of which not even a derivative may know what they hold."""
    if is_sparse(data.x):  # whose programs leave out what absent rows hold
        return data
    rows = jnp.asarray(data.x) if data.observed is None else PartialRows(data.x, data.observed)
    rows = rows.astype(data.labelled.dtype)
    absent = (jnp.sum(data.labelled, axis=1) == 0) & (data.unlabelled == 0)
    dropped = domains.unusable(rows.values if isinstance(rows, PartialRows) else rows, absent, domain)
    return _weighing_nothing(data._replace(x=jnp.where(dropped[:, None], 0, data.x)), dropped)


def without_first(data: Data, skip: Array | None) -> Data:
    """The data without the first so many rows, which then weigh nothing; with all, where that is None."""
    return data if skip is None else _weighing_nothing(data, jnp.arange(len(data.unlabelled), dtype=skip.dtype) < skip)


def _weighing_nothing(data: Data, dropped: Bool[Array, " n"]) -> Data:
    """The data where some rows weigh nothing."""
    return data._replace(
        labelled=jnp.where(dropped[:, None], 0, data.labelled),
        unlabelled=jnp.where(dropped, 0, data.unlabelled),
        labels=data.labels and (data.labels[0], jnp.where(dropped, 0, data.labels[1])),
    )


def origin_of(data: Data) -> Float[Array, " d"]:
    """The mean of what is observed of each feature, roughly, where every row less that keeps all digits; else 0.

    About the mean of all rows, those of a class far from it would be rounded to the digits of that.
    """
    x, present = jnp.asarray(data.x).astype(data.labelled.dtype), jnp.any(data.labelled > 0, axis=1)
    counts = (present | (data.unlabelled > 0))[:, None] & (
        True if data.observed is None else jnp.asarray(data.observed)
    )
    share = 1 / jnp.maximum(jnp.sum(counts, axis=0), 1).astype(x.dtype)
    x = jax.lax.stop_gradient(jnp.where(counts, x, 0.0))
    mean = jnp.sum(x * share[None], axis=0)
    rounded = counts & (Total.of_sum(x, -mean[None]).low != 0)
    return jnp.where(jnp.any(rounded, axis=0), 0.0, mean)


def with_constants(data: Data, columns: np.ndarray) -> Data:
    """The data with what is missing of a feature that is constant in each class filled in, where it may be.

    In a row of one class it is the constant of that class; in others that of all, if there is one.
    """
    if data.observed is None or not columns.any():
        return data
    x, observed = jnp.asarray(data.x).astype(data.labelled.dtype), jnp.asarray(data.observed)
    member = (data.labelled > 0) | (data.unlabelled > 0)[:, None]

    def bounds(mine: Array) -> tuple[Array, Array]:
        present = observed & mine[:, None]
        return jnp.where(present, x, jnp.inf).min(axis=0), jnp.where(present, x, -jnp.inf).max(axis=0)

    least, largest = jax.lax.map(bounds, member.T)
    in_each = jnp.asarray(columns) & jnp.all(least >= largest, axis=0)  # a class that shows none has ∞ and −∞
    in_all = in_each & (least.min(axis=0) == largest.max(axis=0))
    own = jnp.argmax(member, axis=1)
    of_one = (jnp.sum(member, axis=1) == 1)[:, None] & (least == largest)[own]
    constant = in_each[None] & of_one | in_all[None]
    value = jnp.where(of_one, least[own], least.min(axis=0)[None])
    return data._replace(x=jnp.where(constant & ~observed, value, x), observed=observed | constant)
