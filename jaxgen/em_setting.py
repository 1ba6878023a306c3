"""What EM sets out with: its data about an origin, and the responsibilities from which each run climbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxgen import em, starts
from jaxgen.containers import is_sparse
from jaxgen.density import optional
from jaxgen.em_data import origin_of, with_constants, without_unusable

if TYPE_CHECKING:
    from jax import Array
    from jaxtyping import Float

    from jaxgen.classifier import Classifier
    from jaxgen.em_data import Data
    from jaxgen.estimator import D, GenerativeEstimator

STARTS = {"k-means++": starts.by_nearest_seed, "random": starts.at_random}


class Setting(NamedTuple):
    """What EM sets out with.

    Attributes:
        estimator: of features less the origin.
        starts: for `em.ascend`, responsibilities and what fills in what is missing, of each run.
        data: of features less the origin.
        origin: about which features are taken: about a large mean every step would round what it fills in, and the mean
            itself, to the digits of that. 0 for a feature that would lose digits itself; None, where what features are
            counted from plays a part.
    """

    estimator: GenerativeEstimator[Any, Any]
    starts: tuple[Float[Array, "runs n classes"], Classifier[Any] | None]
    data: Data
    origin: Float[Array, " d"] | None

    @classmethod
    def of(
        cls,
        estimator: GenerativeEstimator[Any, Any],
        key: Array | None,
        data: Data,
        start: Classifier[Any] | None,
        *,
        how: str,
        restarts: int,
    ) -> Setting:
        """That of an estimator and of data as they were given.

        Args:
            estimator: of any family with a density.
            key: for one of `STARTS`; None where there is another start.
            data: with what absent rows hold.
            start: a classifier to start from, if there is one.
            how: the name of one of `STARTS`; "labels", where every row has one; or "classifier".
            restarts: runs with a key of their own each, of those in `STARTS`.
        """
        data = with_constants(without_unusable(data, estimator.domain), estimator.takes_for_constant(data.x.shape[1]))
        given, origin = data, None
        if not is_sparse(data.x):
            estimator, origin = estimator.from_origin(origin_of(data))
        if origin is not None:
            data = data._replace(x=jnp.asarray(data.x).astype(origin.dtype) - origin[None])

        fills_in = data.observed is not None and estimator.fills_in

        def begin(key: Any) -> tuple[Array, Classifier[Any] | None]:
            if start is not None:
                known = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(data.labelled.dtype), start)
                responsibilities, *_ = em.responsibilities_of(known, given)  # of one that may not know how to move
                return responsibilities, home(None if origin is None else -origin, known) if fills_in else None
            responsibilities = data.labelled if how == "labels" else STARTS[how](key, data)
            if not fills_in:
                return responsibilities, None
            # Correlations by which features are filled in are not known yet.
            naive, num_classes = estimator.naive(), responsibilities.shape[1]
            first = naive.statistics(data.x, responsibilities, num_classes=num_classes, observed=data.observed)
            return responsibilities, naive.estimate(first)

        if key is not None and how in STARTS:
            begun = jax.vmap(begin)(jax.random.split(key, restarts))
        else:
            begun = jax.tree.map(lambda leaf: leaf[None], begin(None))
        return cls(estimator, begun, data, origin)


def home(origin: Float[Array, " d"] | None, c: Classifier[D]) -> Classifier[D]:
    """The classifier of features to which the origin is added again."""
    return c if origin is None else c._replace(density=optional(c.density, "moved")(origin))
