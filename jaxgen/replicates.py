"""The bootstrap: fits to resamples of the rows, by weights, in one program."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxgen import arguments, culprits, inputs, platform
from jaxgen.classifier import Classifier
from jaxgen.compressed import CompressedRows
from jaxgen.fitting import check_estimator, fit
from jaxgen.labels import HardLabels
from jaxgen.missing import PartialRows
from jaxgen.numerics import working_dtype
from jaxgen.sparse import SparseRows
from jaxgen.tracing import is_traced, primal

if TYPE_CHECKING:
    from typing import NoReturn

    from jax import Array
    from jaxtyping import Bool, Float, Int, Real

    from jaxgen.arguments import AnyArray


def bootstrap(
    key: Array,
    estimator: Any,
    x: Real[AnyArray, "n d"],
    y: Int[AnyArray, " n"] | Float[AnyArray, "n classes"],
    *,
    num_replicates: int = 100,
    num_classes: int | None = None,
    sample_weight: Real[AnyArray, " n"] | None = None,
    observed: Bool[AnyArray, "n d"] | None = None,
) -> Any:
    """Classifiers fitted to resamples: how far an estimate would vary if the data were drawn again.

    A resample has as many rows as there are, drawn with replacement (Efron 1979, Bootstrap methods: another look at the
    jackknife). Its fit is that with each row's count as its weight; one program makes all.

    Args:
        key: a key of `jax.random`; replicate r draws `row_counts` by `jax.random.split(key, num_replicates)[r]`.
        estimator: any of jaxgen's. One that is trained says for none whether it converged: keep its `l2` above 0.
        x: features (n, d); sparse rows where the estimator counts.
        y: labels (n,) or responsibilities (n, K), as for `fit`.
        num_replicates: how many; static under `jit`.
        num_classes: K. Inferred from concrete labels; must be given under a trace.
        sample_weight: a weight for each row, (n,), which every draw of it has. Rows of weight 0 are not drawn.
        observed: True for the entries of x that count, as for `fit`. Of full covariances and words, which EM then fits,
            none says whether it converged either.

    Returns:
        A classifier whose arrays have a leading axis of replicates: `jax.vmap(jg.log_posterior, in_axes=(0, None))`
        scores with all. A class that a resample does not have is impossible there, log prior −inf, and its parameters
        are as for a class without data. Under a trace bad values and singular covariances give NaN.

    Raises:
        ValueError: for num_replicates below 1, a resample whose covariance is singular, and as `fit`.
        TypeError: as `fit`.

    Example:
        >>> import jax, numpy as np, jaxgen as jg
        >>> x, y = np.random.default_rng(0).normal(size=(800, 1)), np.arange(800) % 2
        >>> many = jg.bootstrap(jax.random.key(0), jg.GaussianNB(), x, y, num_replicates=500)
        >>> mean = many.density.mean[:, 0, 0]  # of class 0, whose rows have deviation 1
        >>> low, high = np.quantile(mean, (0.025, 0.975))  # a 95 % interval, about 2 · 1.96 / √400 wide
        >>> print(f"standard error {mean.std():.2f}, interval {high - low:.1f}")
        standard error 0.05, interval 0.2
    """
    check_estimator(estimator)
    if any(leaf is estimator for leaf in jax.tree.leaves(estimator)):
        raise TypeError(
            "bootstrap compiles the fits, so that an estimator of your own must be a pytree of its numbers, such as "
            f"jax.tree_util.register_dataclass makes it; found {arguments.brief(estimator)}."
        )
    num_replicates = arguments.check_integer("num_replicates", num_replicates)
    arguments.check_key(key)
    if hasattr(estimator, "check"):
        estimator.check()
    rows = inputs.check_rows(x, sparse=getattr(estimator, "takes_sparse", False), observed=observed)
    labels = inputs.check_labels(rows, y, num_classes, sample_weight)
    weight = labels.weight
    if weight is not None and not is_traced(weight) and not inputs.weighs(weight, rows.dtype).any():
        culprits.raise_for_no_weight()
    rows = rows.whole() if isinstance(rows, CompressedRows) else rows
    rows, mask = (rows.values, rows.observed) if isinstance(rows, PartialRows) else (rows, None)
    data = (rows, labels.index if isinstance(labels, HardLabels) else labels.responsibilities, labels.weight, mask)
    platform.check_places(estimator, key, data)
    # Few rows are fitted many times at once, as many as divide the replicates.
    elements = (platform.tuning_of(*data) or platform.CPU).fold_elements
    most = 1 if isinstance(rows, SparseRows) else max(elements // (rows.shape[0] * rows.shape[1]), 1)
    together = max(size for size in range(1, min(most, num_replicates) + 1) if num_replicates % size == 0)
    program = partial(_bootstrap_program, num_classes=labels.num_classes, together=together)
    classifiers = program(jax.random.split(key, num_replicates), arguments.as_floats(estimator), *data)
    if not is_traced(classifiers):
        bad = [~(np.asarray(leaf) < np.inf).reshape(num_replicates, -1) for leaf in jax.tree.leaves(classifiers)]
        failed = np.concatenate(bad, axis=1).any(axis=1)
        if failed.any():
            # Which says what is wrong.
            fit(estimator, x, y, num_classes=num_classes, sample_weight=sample_weight, observed=observed)
            _raise_for_resample(int(np.argmax(failed)), estimator, classifiers)
    return classifiers


def row_counts(key: Array, rows: Int[Array, " n"], number: Int[Array, ""]) -> Int[Array, " n"]:
    """How often each row is in a resample: in so many draws with replacement from the first so many of `rows`."""
    n = rows.shape[0]
    drawn = rows[jax.random.randint(key, (n,), 0, jnp.maximum(number, 1))]
    counts = jnp.arange(n, dtype=jnp.int32) < number
    return jnp.zeros(n, jnp.int32).at[drawn].add(counts.astype(jnp.int32))


@partial(jax.jit, static_argnames=("num_classes", "together"))
def _bootstrap_program(
    keys: Array,
    estimator: Any,
    x: Any,
    y: Array,
    weight: Array | None,
    observed: Array | None,
    *,
    num_classes: int,
    together: int,
) -> Any:
    """The classifiers of all resamples."""
    n, dtype = x.shape[0], working_dtype(x.dtype)
    present = jnp.ones(n, bool) if weight is None else weight > 0
    rows, number = jnp.argsort(~present, stable=True).astype(jnp.int32), jnp.sum(present, dtype=jnp.int32)

    def replicate(key: Array) -> Any:
        count = row_counts(key, rows, number).astype(dtype)
        count = count if weight is None else count * weight.astype(dtype)
        return fit(estimator, x, y, num_classes=num_classes, sample_weight=count, observed=observed)

    return lax.map(replicate, keys, batch_size=None if together == 1 else together)


def _raise_for_resample(r: int, estimator: Any, classifiers: Any) -> NoReturn:
    """Raise the ValueError for a resample that has no finite classifier, though the data have one."""
    classifier = jax.tree.map(lambda leaf: leaf[r], classifiers)
    generative = isinstance(classifier, Classifier)
    estimator = primal(estimator)
    reason = estimator.explain(classifier.density) if generative else "its classifier is not finite. Regularise more."
    raise ValueError(f"resample {r}: {reason}")
