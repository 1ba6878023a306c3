"""What suits which platform: the one place where a program is made differently for a CPU and for an accelerator.

Under a trace the platform is not known, and one program holds both choices (`lax.platform_dependent`). An eager call
knows where its data are and compiles one of them. What never runs but on the host has its bounds beside it, as in
`class_parts` and `chunks`.
"""

from __future__ import annotations

import contextlib
import math
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

import jax
from jax import lax

from jaxgen.tracing import is_recorded, is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Tuning:
    """The choices that depend on the platform.

    Attributes:
        class_sum: how rows are summed by class: scatter-add, or a matrix product with one-hot rows.
        sort: how rows are put in the order of their classes: counted one by one, or compared.
        scatter_width: rows of floats are filled up with zeros to a multiple of so many, to be scattered.
        fold_elements: elements of a block of rows that becomes statistics.
        class_fold_elements: elements of rows of one class that are multiplied at a time, at most.
        chunks_of_class: into how many chunks the rows of a class are cut that are multiplied, about.
        least_chunk: rows of such a chunk, for each feature, at least, where the classes have so many.
        strip: rows of a symmetric product that are made at a time, up to the diagonal alone; None for the whole.
        loss_elements: elements of a block of rows whose loss and its gradient are computed, for each core.
        score_elements: elements of a block of rows that is scored.
        judge_elements: elements of a block of rows whose scores are looked at class by class.
        product_elements: of rows that are scored at once where scores are products, by one program on every core.
        product_columns: a product of rows is made with so many, if it has fewer and more than half of them.
        many_rows: rows that are scored, for each feature, from which a form is worth it that takes longer to make.
        most_rows: rows of a block that is folded, at most.
        undivided: bytes of a block that is folded where each core runs a program of its own, at most.
        window: nonzeros of sparse rows that are read at a time.
        entries: nonzeros of a concrete sparse matrix that scipy's loops take at a time, at least where they add up.
        stacks: how the matrices of a stack are made of chunks of rows, and factorised by LAPACK or in its place.
        sparse: what adds up and multiplies concrete sparse matrices: scipy's loops, or compiled programs.
    """

    class_sum: Literal["scatter", "matmul"]
    sort: Literal["count", "compare"]
    scatter_width: int
    fold_elements: int
    class_fold_elements: int
    chunks_of_class: int
    least_chunk: int
    strip: int | None
    loss_elements: int
    score_elements: int
    judge_elements: int
    product_elements: int
    product_columns: int
    many_rows: float
    most_rows: int
    undivided: int
    window: int
    entries: int
    stacks: Literal["in turn", "together"]
    sparse: Literal["scipy", "compiled"]

    def columns(self, number: int) -> int:
        """With how many columns a product is made of which so many are wanted."""
        return self.product_columns if self.product_columns / 2 < number < self.product_columns else number


# A CPU reads blocks that stay near a core, in its second-level cache or the third. Measured on two cores, float32,
# 200k × 100, K = 10: a Gaussian NB fit takes 17 ms in blocks of 2^16 elements and 14 ms from 2^17 to 2^19; an LDA fit
# 45, 42, 40 and 40 ms. Class sums by scatter-add take 20 ms where one-hot products take 25, and the same for any K.
# A scatter-add takes as many columns at a time as divide their number, up to sixteen: a fit of 400k × 50 takes 22 ms,
# and 13 as wide as 56. Counts, which it converts on its way, take twice as long where they are widened first.
# Adding 4,096 floats one after the other keeps the rounding of a sum below 2.5e-4 of it, 4e-6 usually. A loop that
# counts orders 200,000 labels in 2 ms, a sort in 8. Nonzeros: windows of 2^14 take 9.5 ms for 4.7 million, the whole at
# once 14 ms. Scores that are products XLA makes, centred and normalised, in one pass over rows of any number, in
# parallel and with no temporary of their size: LDA 20 ms against 28 in blocks by two threads, 14 against 31 for
# 40k × 500; Gaussian NB 27 against 46. Blocks of them would be copied: 51 ms for each 200k of 2.4 million rows, not 27.
# Products of 200,000 × 100 with a table of 4 columns take 2.4 ms, of 8 3.5, of 10 5.2, of 15 5.8, and of 16, which fill
# a vector, 3.1; of 20 as much as of 32. So LDA's posterior takes 5.3 ms in place of 6.7.
# XLA makes products of few columns in tiles of 48 numbers: scatters of 1,250 rows in strips of so many take 0.82 of
# the time of the whole for 64 and 96 features, 0.87 for 100, 0.79 for 128, and 0.74 for 200 (1.07 for 80).
# XLA divides a loop over 256 KiB or more among the cores. Where each runs a program of its own, the halves wait for one
# another: fits of Gaussian NB to 400,000 × 20 and × 50 of JAX's take 14.9 and 20.2 ms so, and 12.9 and 16.3 in blocks
# that are not divided. One program that has all cores takes 14.7 and 19.4, and in such blocks 24.7 and 28.6.
# Twenty steps of L-BFGS with ten classes: 170 ms for 100k × 50 at once, 133 in blocks of 2^18 for each core, 119 of
# 2^19, 138 of 2^20; 357, 273, 239 and 219 for 20k × 784. Fifteen: 121 at once and 90 in blocks; where the machine's two
# cores share no cache for a while, 160 and 200.
# QDA's fits to 10k × 50, 20k × 100 and 100k × 30, ten classes of about one size, take 5.8, 16.5 and 14.5 ms in eighths
# of a class, 4.3, 10.8 and 11.0 in halves, and 3.8, 10.7 and 14.9 in one chunk for most; where the largest class has a
# third of all rows 5.5, 16.2 and 12.5 ms, then 5.0, 11.0 and 11.7, and 4.6, 13.4 and 12.0. The gradient of one to
# 20k × 50 takes 63 ms in eighths, 31 in halves.
# LAPACK factorises ten matrices of 100 × 100 in turn in 0.28 ms and 1,000 of 30 × 30 in 3.0, in one call in 0.48 and
# 2.0, which may wait for ever (lapack.py).
# QDA's scores of classes in pairs: 120 ms in place of 170 to 210. To pair ten classes takes 5 ms, once for each
# classifier, and up to 20 of a core that waits in LAPACK for more.
# Scores of 10,000 × 50 by class, ten times, on both cores: 5 ms in blocks of up to 1,250 rows, 7 in larger ones, whose
# products each ask for both; by row, 9.
# For scipy's loops values and columns of a stretch, 4 MiB, stay in the cache between the steps that read them: fits of
# two classes take 8.4 and 9.7 ms (multinomial, Bernoulli), in a quarter of one 9.0 and 10.1, at once 9.3 and 10.9.
CPU = Tuning(
    class_sum="scatter",
    sort="count",
    scatter_width=8,
    fold_elements=2**18,
    class_fold_elements=2**17,
    chunks_of_class=2,
    least_chunk=0,
    strip=48,
    loss_elements=2**19,
    score_elements=2**19,
    judge_elements=2**16,
    product_elements=2**28,
    product_columns=16,
    many_rows=2**10,
    most_rows=2**12,
    undivided=250_000,
    window=2**14,
    entries=2**19,
    stacks="in turn",
    sparse="scipy",
)
# An accelerator wants few large steps. float32 scatter-add into small arrays is up to thousands of times slower than a
# product on GPUs in jaxlib 0.10 (jax issue 38806), and TPUs serialise it. TPUs multiply tiles of 128 rows or more.
# Measured on an H100 with jaxlib 0.11.2, float32, 2 million × 100, K = 10: class sums by products take 0.9 ms, by
# scatter-add 2.3; all scatter-adds of a fit of 55 million nonzeros in 2^20 cells 0.9. In blocks of 2^28 elements, which
# all of it is, the fit of Gaussian NB takes 4.1 ms (6.5 in blocks of 2^26), of LDA 5.6 (10.5), and the posterior of LDA
# 1.5 (3.2): the host waits between the steps of a loop. QDA's fit takes 8.9 ms where all chunks are multiplied at once,
# and 27 one after the other. A row for each of the 55 million nonzeros is found in 0.6 ms, by a search in 14. Of ten
# matrices of 100 × 100 Cholesky takes 0.26 ms together, 0.65 in turn.
ACCELERATOR = Tuning(
    class_sum="matmul",
    sort="compare",
    scatter_width=1,
    fold_elements=2**28,
    class_fold_elements=2**24,
    chunks_of_class=64,
    least_chunk=4,
    strip=None,
    loss_elements=2**40,
    score_elements=2**26,
    judge_elements=2**26,
    product_elements=2**28,
    product_columns=1,
    many_rows=math.inf,
    most_rows=2**20,
    undivided=2**40,
    window=2**22,
    entries=2**19,
    stacks="together",
    sparse="compiled",
)

_override: ContextVar[Tuning | None] = ContextVar("tuning", default=None)


@contextlib.contextmanager
def override(tuning: Tuning) -> Iterator[None]:
    """Use this tuning on every platform, for a benchmark of the choices.

    Args:
        tuning: `CPU`, `ACCELERATOR`, or one of them with other choices. A function of your own that `jax.jit` has
            traced before keeps the program that it has.

    Raises:
        TypeError: if it is no `Tuning`.
        ValueError: for a choice that there is not.

    Example:
        >>> import dataclasses, numpy as np, jaxgen as jg
        >>> products = dataclasses.replace(jg.platform.CPU, class_sum="matmul")
        >>> with jg.platform.override(products):
        ...     c = jg.fit(jg.GaussianNB(), np.arange(8.0)[:, None], np.arange(8) % 2)
        >>> print(c.density.mean[:, 0])
        [3. 4.]
    """
    if not isinstance(tuning, Tuning):
        raise TypeError(
            "tuning must be a Tuning, such as dataclasses.replace(jaxgen.platform.CPU, class_sum='matmul'); found "
            f"{tuning!r}."
        )
    _check_choices(tuning)
    token = _override.set(tuning)
    try:
        yield
    finally:
        _override.reset(token)


@cache
def _check_choices(tuning: Tuning) -> None:
    for name, kind in get_type_hints(Tuning).items():
        choices, found = get_args(kind), getattr(tuning, name)
        if isinstance(getattr(CPU, name), str):
            fits, expected = found in choices, " or ".join(map(repr, choices))
        else:
            least, optional = 0 if name == "least_chunk" else 1, type(None) in choices
            numbers = (int, float) if kind is float else int
            fits = found >= least if isinstance(found, numbers) else optional and found is None
            expected = f"a {'whole ' * (kind is not float)}number, {least} or more{' or None' * optional}"
        if not fits:
            raise ValueError(f"Tuning.{name} must be {expected}; found {found!r}.")


def tuned(tuning: Tuning | None) -> contextlib.AbstractContextManager[None]:
    """Trace with the tuning of an eager call; without one, under a trace itself, with both."""
    return contextlib.nullcontext() if tuning is None else override(tuning)


def platform_of(*trees: Any) -> str | None:
    """The platform that a program on these arguments runs on; None under a trace, where it is not known yet.

    Raises:
        ValueError: as `check_places`.
    """
    if is_traced(trees) or is_recorded():
        return None
    check_places(*trees)
    devices = {device for array in _arrays(trees) for device in array.devices()}
    if devices:
        return min(device.platform for device in devices)
    default: Any = getattr(jax.config, "jax_default_device", None)
    return getattr(default, "platform", default) or jax.default_backend()


def check_places(*trees: Any) -> None:
    """Raise a ValueError for arguments that were put on different devices; where one is a trace cannot be seen."""
    if is_recorded():
        return
    places = {frozenset(array.devices()) for array in _arrays(trees) if array.committed}
    if len(places) > 1:
        found = " and ".join(sorted(", ".join(sorted(map(str, place))) for place in places))
        raise ValueError(
            f"arguments must lie on the same devices; found some on {found}. Move them together with jax.device_put."
        )


def _arrays(trees: Any) -> list[jax.Array]:
    """Those of JAX whose values are known."""
    return [leaf for leaf in jax.tree.leaves(trees) if isinstance(leaf, jax.Array) and not is_traced(leaf)]


def tuning_of(*trees: Any) -> Tuning | None:
    """The tuning for a program on these arguments; None under a trace, where both are compiled."""
    return tuning_on(platform_of(*trees))


def tuning_on(platform: str | None) -> Tuning | None:
    """The tuning of a platform; None for one that is not known."""
    return _override.get() or (None if platform is None else CPU if platform == "cpu" else ACCELERATOR)


def run(function: Callable[..., Any], *data: Any, tuning: Tuning | None) -> Any:
    """`function(*data, tuning=…)`, with the tuning of the platform that the program is lowered for."""
    if tuning is not None:
        return function(*data, tuning=tuning)
    cpu, elsewhere = (partial(function, tuning=each) for each in (CPU, ACCELERATOR))
    return lax.platform_dependent(*data, cpu=cpu, default=elsewhere)
