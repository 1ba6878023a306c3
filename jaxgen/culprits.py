"""What is wrong with data whose statistics or scores are not finite: the first bad value, by name and place.

Programs answer NaN where a value is bad; only then is x searched, on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jaxgen.columns import named
from jaxgen.compressed import CompressedRows
from jaxgen.missing import PartialRows
from jaxgen.numerics import or_in_float64, working_dtype
from jaxgen.sparse import SparseRows
from jaxgen.tracing import primal

if TYPE_CHECKING:
    from jaxgen.domains import Domain
    from jaxgen.labels import Labels


def raise_for_values(x: Any, domain: Domain, present: Any = None) -> None:
    """Raise a ValueError that names the first value of x outside the domain; return if there is none.

    Args:
        x: the data, concrete.
        domain: what its values may be.
        present: boolean array (n,); rows where it is False are passed over.
    """
    x, present = primal((x, present))
    values, row, column = _entries(x)
    with np.errstate(invalid="ignore"):  # an infinity has no remainder
        wide = values.astype(np.float64)
        entries = isinstance(x, (CompressedRows, SparseRows))
        bad = ~(domain.contains_entries(wide, column) if entries else domain.contains(wide))
    if present is not None:
        bad &= np.asarray(present)[row]
    if isinstance(x, PartialRows):
        bad &= np.atleast_2d(np.asarray(x.observed))
    if bad.any():
        first = np.unravel_index(np.argmax(bad), bad.shape)
        where = tuple(np.broadcast_to(index, bad.shape)[first] for index in (row, column))
        domain, expected = _of_column(domain, int(where[1]))
        raise ValueError(
            f"x must hold {expected}; found {values[first]} at {position(where)}{and_more(bad)}. "
            f"{domain.remedy_for(values[first])}"
        )


def _of_column(domain: Domain, j: int) -> tuple[Domain, str]:
    """The domain of a feature, and what is expected there, in words."""
    domain, columns = domain.of_column(j)
    return domain, domain.expected + (f" in {named(columns)}" if columns else "")


def and_more(bad: np.ndarray) -> str:
    """How many bad values there are beside the one that is named, as words of a message."""
    more = int(bad.sum()) - 1
    return f" and {more} more such value{'s' * (more > 1)}" if more else ""


def _entries(x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values of x, and the row and the column of each, in shapes that broadcast to that of the values."""
    if isinstance(x, CompressedRows):
        return x.values, x.rows, x.columns
    if isinstance(x, SparseRows):
        x = x.inside()
        return np.asarray(x.values), np.asarray(x.rows)[:, None], np.asarray(x.columns)
    if isinstance(x, PartialRows):  # what was not observed may be anything
        x = np.where(x.observed, x.values, np.zeros((), x.dtype))
    x = np.atleast_2d(np.asarray(x))
    row, column = np.ogrid[: x.shape[0], : x.shape[1]]
    return x, row, column


def raise_for_points(x: Any, domain: Domain) -> NoReturn:
    """Raise the ValueError for points that cannot be scored: a value outside the domain, or one that overflows."""
    x = primal(x)
    raise_for_values(x, domain)
    values, _, column = _entries(x)
    largest = np.unravel_index(np.argmax(np.abs(values)), values.shape)
    _, expected = _of_column(domain, int(np.broadcast_to(column, values.shape)[largest]))
    raise ValueError(
        f"x must hold {expected} in the dtype of the classifier, which the largest of x, "
        f"{float(np.abs(values[largest])):g}, overflows. Rescale the features, or compute in float64 "
        "(jax.config.update('jax_enable_x64', True))."
    )


def raise_for_rows(x: Any, labels: Labels, domain: Domain, optimizer: Any = None) -> NoReturn:
    """Raise the ValueError for rows whose statistics are not finite: a value outside the domain, or an overflow.

    With an optimizer that a caller chose, it is that which left the numbers.
    """
    x, labels = primal((x, labels))
    present = np.asarray(labels.prepare(working_dtype(x.dtype)).row_weight) > 0
    raise_for_values(x, domain, present)
    if optimizer is not None:
        raise_for_divergence()
    values, row, _ = _entries(x)
    largest = float(np.max(np.abs(values), where=present[row], initial=0))
    raise ValueError(
        f"the statistics of x are not finite, though every value is: the largest is {largest:g}, and its square or sum "
        "overflows. Rescale the features, and weights whose sum overflows"
        f"{or_in_float64(working_dtype(x.dtype))}."
    )


def raise_for_divergence() -> NoReturn:
    """Raise the ValueError for an optimizer that a caller chose, and that left the numbers."""
    raise ValueError(
        "optimizer must converge; found a gradient that is not finite, though every value of x is. Lower its "
        "learning rate, or rescale the features."
    )


def raise_for_no_weight() -> NoReturn:
    """Raise the ValueError for rows that are all absent."""
    raise ValueError(
        "the weights of all rows are zero, or too small to be added up in their dtype: there is nothing to fit. Give "
        "some row a positive weight, or scale them."
    )


def position(where: tuple[int, ...]) -> str:
    """The place of an entry, in words."""
    if len(where) == 1:
        return f"index {where[0]}"
    return f"row {where[0]}, column {where[1]}"
