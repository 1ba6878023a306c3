"""How a case of `throughput` is made ready: fits and scores of any estimator, and many fits at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from sklearn.naive_bayes import GaussianNB

import jaxgen as jg
from benchmarks.peers import SKLEARN, furthest, peers
from benchmarks.synthetic import bayes_error, gaussian_rows, on_device, unaligned
from benchmarks.workloads import Data, Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

COMPARED = 1_000  # rows whose posteriors are compared after the fit of a library whose parameters are not known here

Form = Literal["as it is", "device", "unaligned", "padded"]


def _arranged(x: Any, y: np.ndarray, form: Form) -> tuple[Any, Any]:
    """The data as a caller may hold them."""
    if form == "device":
        return on_device(x), on_device(y)
    if form == "unaligned":
        return unaligned(x), y
    return (jg.pad_rows(x) if form == "padded" else x), y


def num_bytes(x: Any) -> int:
    """Bytes of a matrix, of all three arrays where it is sparse."""
    return x.nbytes if isinstance(x, np.ndarray) else x.data.nbytes + x.indices.nbytes + x.indptr.nbytes


def _sizes(data: Data) -> dict[str, int]:
    sparse = {} if isinstance(data.x, np.ndarray) else {"nonzeros": int(data.x.nnz)}
    return {"rows": data.x.shape[0], "features": data.x.shape[1], "classes": data.num_classes, **sparse}


def _quality(data: Data, classifier: Any) -> tuple[float, float]:
    accuracy = np.mean(np.asarray(jg.predict(classifier, data.held_out_x)) == data.held_out_y)
    return float(accuracy), 1 - bayes_error(data.truth, data.held_out_x)


def _apart(a: Any, b: Any) -> float:
    """The largest difference of two log posteriors, as probabilities."""
    return float(np.max(np.abs(np.exp(np.asarray(a, np.float64)) - np.exp(np.asarray(b, np.float64)))))


def fit(
    sizes: Sizes,
    estimator: Any,
    peer: Callable[[], Any],
    data: Callable[[Sizes], Data],
    flops: Callable[[int, int, int], int],
    form: Form = "as it is",
    normal: str | None = None,
    *,
    known: bool = True,
) -> Job:
    """A fit. `flops(cells, d, K)` counts operations, where cells are those that are stored."""
    made = data(sizes)
    x, y = _arranged(made.x, made.y, form)
    others = peers(peer, made.num_classes, normal)

    def difference(ours: Any, theirs: Any) -> float:
        if (found := furthest(ours, theirs)) is not None:
            return found
        some = made.x[:COMPARED]
        return _apart(jg.log_posterior(ours, some), theirs.predict_log_proba(some))

    cells = getattr(made.x, "nnz", made.x.size)
    return Job(
        sizes=_sizes(made),
        ours=partial(jg.fit, estimator, x, y, num_classes=made.num_classes),
        others={other.library: partial(other.fit, made.x, made.y) for other in others},
        difference=difference,
        read=num_bytes(made.x) + made.y.nbytes,
        flops=flops(cells, made.x.shape[1], made.num_classes),
        quality=partial(_quality, made) if known else None,
    )


def score(
    sizes: Sizes,
    estimator: Any,
    peer: Callable[[], Any],
    data: Callable[[Sizes], Data],
    flops: Callable[[int, int, int], int],
    form: Form = "as it is",
    normal: str | None = None,
) -> Job:
    """A log posterior of every row."""
    made = data(sizes)
    x, _ = _arranged(made.x, made.y, form)
    ours = jg.fit(estimator, made.x, made.y, num_classes=made.num_classes)
    others = {other.library: (other, other.fit(made.x, made.y)) for other in peers(peer, made.num_classes, normal)}
    cells = getattr(made.x, "nnz", made.x.size)
    return Job(
        sizes=_sizes(made),
        ours=lambda: jg.log_posterior(ours, x),
        others={name: partial(other.log_posterior, model, made.x) for name, (other, model) in others.items()},
        difference=_apart,
        read=num_bytes(made.x),
        flops=flops(cells, made.x.shape[1], made.num_classes),
        quality=lambda _: _quality(made, ours),
    )


def many_fits(sizes: Sizes) -> Job:
    """Many small fits in one program, as cross-validation or the bootstrap has them."""
    fits, n, d, classes = sizes.many_fits, 200, 30, 2
    x, y, _ = gaussian_rows(fits * n, d, classes)
    xs, ys = x.reshape(fits, n, d), y.reshape(fits, n)
    device_x, device_y = on_device(xs), on_device(ys)
    program = jax.jit(jax.vmap(lambda x, y: jg.fit(jg.GaussianNB(), x, y, num_classes=classes)))

    def difference(ours: Any, theirs: Any) -> float:
        mean, scale = (np.asarray(array, np.float64) for array in (ours.density.mean, ours.density.scale))
        return max(
            float(max(np.max(np.abs(mean[i] - one.theta_)), np.max(np.abs(scale[i] ** 2 - one.var_))))
            for i, one in enumerate(theirs)
        )

    return Job(
        sizes={"fits": fits, "rows": n, "features": d, "classes": classes},
        ours=lambda: program(device_x, device_y),
        others={SKLEARN: lambda: [GaussianNB().fit(a, b) for a, b in zip(xs, ys, strict=True)]},
        difference=difference,
        read=xs.nbytes + ys.nbytes,
        flops=4 * xs.size,
    )
