"""`python -m benchmarks scaling`: how time grows with words, with nonzeros and with rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from rich import box
from rich.progress import Progress
from rich.table import Table
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB

import jaxgen as jg
from benchmarks.growth import draw, exponent
from benchmarks.peers import SKLEARN
from benchmarks.records import describe, save_json, wide_console
from benchmarks.synthetic import TextModel, gaussian_rows
from benchmarks.timing import QUICK, REST, Effort, environment, milliseconds, race, seconds

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 7  # in each of which every point is timed once
ONCE = Effort(budget=0.0, least=1, rest=REST)
PATIENCE = 2.5  # seconds: a peer's call that would take longer is left out


@dataclass(frozen=True)
class Sweep:
    """One size that grows while the others stay.

    Attributes:
        name: of the picture and in the record.
        axis: what grows, for the axis of the picture.
        fixed: what stays, in words.
        sizes: from the smallest to the largest.
        data: (x, y, num_classes) at a size.
        models: name, jaxgen's estimator, and what makes scikit-learn's.
        nonzeros: whether the size of a point is the number of nonzeros that its data have.
    """

    name: str
    axis: str
    fixed: str
    sizes: list[int]
    data: Callable[[int], tuple[Any, np.ndarray, int]]
    models: list[tuple[str, Any, Callable[[], Any]]]
    nonzeros: bool = False


class Point(NamedTuple):
    """A verb of a model at one size, and the call of each library that is timed."""

    model: str
    verb: str
    size: int
    calls: dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Line:
    """The times of one verb of one library over a sweep; `skipped` are sizes that would have taken it too long."""

    sweep: str
    model: str
    library: str
    verb: str
    sizes: list[int]
    seconds: list[list[float]]
    skipped: list[int]
    exponent: float | None


_COUNTS: list[tuple[str, Any, Callable[[], Any]]] = [
    ("multinomial NB", jg.MultinomialNB(), MultinomialNB),
    ("Bernoulli NB", jg.BernoulliNB(binarize=0.0), BernoulliNB),
]
_GAUSSIANS: list[tuple[str, Any, Callable[[], Any]]] = [
    ("Gaussian NB", jg.GaussianNB(), GaussianNB),
    ("LDA", jg.LDA(), partial(LinearDiscriminantAnalysis, solver="lsqr")),
]


QUICKLY = "A quick run, to see that everything works: sizes are too small for exponents to mean anything.\n"


def sweeps(max_rows: int, *, quick: bool) -> list[Sweep]:
    """Words, nonzeros and rows; half decades from a thousand (from a hundred where it has to be quick)."""
    first, words, documents = (100, 1_000, 200) if quick else (1_000, 1_000_000, 20_000)
    vocabulary = 1_000 if quick else 50_000
    rows = half_decades(first, min(max_rows, 1_000) if quick else max_rows)
    largest: list[Any] = []  # the longest sample, of which the shorter ones are the head: made once, when it is needed

    def few_words(size: int) -> tuple[Any, np.ndarray, int]:
        return *TextModel.make(size, 20).sample(documents), 20

    def long_documents(distinct: int) -> tuple[Any, np.ndarray, int]:
        return *TextModel.make(vocabulary, 20, distinct=distinct).sample(documents // 4), 20

    def many_documents(size: int) -> tuple[Any, np.ndarray, int]:
        if not largest:
            largest.extend(TextModel.make(vocabulary, 20).sample(rows[-1]))
        return largest[0][:size], largest[1][:size], 20

    def many_rows(size: int) -> tuple[Any, np.ndarray, int]:
        return *gaussian_rows(size, 20, 10)[:2], 10

    kept = f"{documents:,} documents, 20 classes"
    return [
        Sweep("words", "words in the vocabulary", kept, half_decades(first, words), few_words, _COUNTS),
        Sweep(
            "nonzeros",
            "nonzeros in the data",
            f"{documents // 4:,} documents of {vocabulary:,} words, 20 classes",
            [5, 10, 20] if quick else [10, 30, 100, 300, 1_000, 3_000],
            long_documents,
            _COUNTS,
            nonzeros=True,
        ),
        Sweep("documents", "documents", f"{vocabulary:,} words, 20 classes", rows, many_documents, _COUNTS),
        Sweep("rows", "rows", "20 dense features, 10 classes", rows, many_rows, _GAUSSIANS),
    ]


def half_decades(first: int, last: int) -> list[int]:
    """1, 3, 10, 30, … times `first`, up to `last` and with it."""
    sizes = [first * 10 ** (i // 2) * (3 if i % 2 else 1) for i in range(40)]
    return [*(size for size in sizes if size < last), last]


def run(out: Path, *, max_rows: int | None = None, quick: bool = False) -> None:
    """Measure every sweep, print the growth exponents, write JSON and a picture for each sweep.

    Up to so many rows; None for a million, and ten on an accelerator, which fewer leave idle.
    """
    console = wide_console(112)
    max_rows = max_rows or 10 ** (6 if jax.default_backend() == "cpu" else 7)
    planned = sweeps(max_rows, quick=quick)
    rounds, effort = (1, QUICK) if quick else (ROUNDS, ONCE)
    lines: list[Line] = []
    with Progress(console=console, transient=True) as progress:
        points = sum(2 * len(sweep.sizes) * len(sweep.models) for sweep in planned)
        task = progress.add_task("scaling", total=points * (1 + rounds))
        for sweep in planned:

            def advance(point: Point, sweep: Sweep = sweep) -> None:
                what = f"{sweep.name}: {point.model} {point.verb}, {point.size:,}"
                progress.update(task, description=what, advance=1)

            lines += measure(sweep, advance, rounds, effort)
    about = environment()
    console.print(_table(planned, lines))
    skipped = [f"{line.library} {line.verb} of {line.model} at {line.skipped}" for line in lines if line.skipped]
    console.print(
        "Exponents: the slope of log time on log size over the last three points; 1 is linear, 0 does not grow.\n"
        + (f"Left out, since one call would take over {PATIENCE:g} s: {'; '.join(skipped)}.\n" if skipped else "")
        + QUICKLY * quick
        + describe(about),
        highlight=False,
    )
    record = {
        "environment": about,
        "quick": quick,
        "sweeps": [{"name": s.name, "axis": s.axis, "fixed": s.fixed} for s in planned],
        "lines": [asdict(line) for line in lines],
    }
    save_json(record, out / "scaling.json")
    for sweep in record["sweeps"]:
        draw(record, sweep, out / f"scaling-{sweep['name']}.png")
    console.print(f"Written to {out}: scaling.json and scaling-*.png", highlight=False)


def measure(sweep: Sweep, advance: Callable[[Point], None], rounds: int, effort: Effort) -> list[Line]:
    """Both libraries at every size, in turn: a machine that is slow for a minute is slow for all sizes.

    A peer drops out of a line once its next point would take too long.
    """
    points: list[Point] = []
    latest: dict[tuple[str, str], tuple[int, float]] = {}  # of each line of the peer: its last size, and seconds
    left_out: dict[tuple[str, str, str], list[int]] = {}
    for planned in sweep.sizes:
        x, y, num_classes = sweep.data(planned)
        size = int(x.nnz) if sweep.nonzeros else planned
        for name, estimator, peer in sweep.models:
            for verb, ours, prepare, theirs in _verbs(estimator, peer(), x, y, num_classes):
                point = Point(name, verb, size, {"jaxgen": ours})
                seconds(ours)
                last, took = latest.get((name, verb), (size, 0.0))
                if took * size / last < PATIENCE:  # were it linear from there on
                    point.calls[SKLEARN] = theirs
                    prepare()
                    latest[name, verb] = size, seconds(theirs)
                else:
                    left_out.setdefault((name, SKLEARN, verb), []).append(size)
                points.append(point)
                advance(point)
    points.sort(key=attrgetter("model", "verb"))  # the sizes of a line one after the other
    times: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for _ in range(rounds):
        for point in points:
            for library, repeats in zip(point.calls, race(list(point.calls.values()), effort), strict=True):
                line = times.setdefault((point.model, library, point.verb), {})
                line.setdefault(point.size, []).extend(repeats)
            advance(point)
    return [
        Line(
            sweep.name,
            *line,
            sizes=list(at),
            seconds=list(at.values()),
            skipped=left_out.get(line, []),
            exponent=exponent(list(at), [milliseconds(repeats) for repeats in at.values()]),
        )
        for line, at in times.items()
    ]


def _verbs(
    estimator: Any, peer: Any, x: Any, y: np.ndarray, num_classes: int
) -> list[tuple[str, Callable[[], Any], Callable[[], Any], Callable[[], Any]]]:
    """Fit and score: jaxgen's call, and scikit-learn's with what comes before it."""
    classifier = jg.fit(estimator, x, y, num_classes=num_classes)
    fit = partial(peer.fit, x, y)
    return [
        ("fit", partial(jg.fit, estimator, x, y, num_classes=num_classes), lambda: None, fit),
        ("score", lambda: jg.log_posterior(classifier, x), fit, lambda: peer.predict_log_proba(x)),
    ]


def _table(planned: list[Sweep], lines: list[Line]) -> Table:
    table = Table(title="Growth of time", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for header in ("in", "from – to", "job"):
        table.add_column(header, no_wrap=True)
    for header in ("exponent", "sklearn", "ms at the end", "sklearn"):
        table.add_column(header, justify="right", no_wrap=True)
    by_key = {(line.sweep, line.model, line.library, line.verb): line for line in lines}
    for sweep in planned:
        for model, *_ in sweep.models:
            for verb in ("fit", "score"):
                ours, theirs = (by_key[sweep.name, model, library, verb] for library in ("jaxgen", SKLEARN))
                table.add_row(
                    sweep.name,
                    f"{ours.sizes[0]:,} – {ours.sizes[-1]:,}",
                    f"{model} {verb}",
                    *("–" if line.exponent is None else f"{line.exponent:.2f}" for line in (ours, theirs)),
                    f"{milliseconds(ours.seconds[-1]):.1f}",
                    "left out" if theirs.skipped else f"{milliseconds(theirs.seconds[-1]):.1f}",
                )
        table.add_section()
    return table
