"""What all simulations share: replications in chunks on every core, and the rule that a linear classifier is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxgen import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jaxtyping import Float
    from rich.progress import Progress

    import jaxgen as jg

CHUNK_ROWS = 2**17  # rows that one call draws and fits, in as many replications as they make


def each(function: Callable[[Any], Any], items: Sequence[Any], progress: Progress, name: str) -> list[Any]:
    """`function(item)` for each item, by a thread for each core, with a progress bar."""
    task = progress.add_task(name, total=len(items))

    def one(item: Any) -> Any:
        result = jax.device_get(function(item))
        progress.advance(task)
        return result

    return threads.over(one, items)


def rule_of(line: jg.LinearClassifier) -> Float[Array, " d+1"]:
    """(w, b) of the log odds of the second class."""
    return jnp.append(line.weights[:, 1] - line.weights[:, 0], line.bias[1] - line.bias[0])
