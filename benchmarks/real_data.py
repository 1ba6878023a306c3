"""The main job: every estimator on real data, beside scikit-learn's own."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits

import jaxgen as jg
from benchmarks.cases import CASES, MOST_CELLS, Case
from benchmarks.data import TABLES, Split, load_messages, load_table
from benchmarks.records import save_json, wide_console
from benchmarks.timing import environment, milliseconds, race, seconds

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """One estimator on one data set: held-out quality, and what fitting and scoring took."""

    data: str
    estimator: str
    library: str
    failure: str | None
    accuracy: float
    log_loss: float
    first_fit_ms: float
    fit_ms: float
    posterior_ms: float
    fit_seconds: list[float]
    posterior_seconds: list[float]


class _Ours:
    """jaxgen by the three calls that a comparison needs."""

    library = "jaxgen"

    def __init__(self, estimator: Any, num_classes: int) -> None:
        self.estimator, self.num_classes = estimator, num_classes

    def fit(self, x: Any, y: np.ndarray) -> Any:
        self.classifier = jg.fit(self.estimator, x, y, num_classes=self.num_classes)
        return self.classifier

    def posterior(self, x: Any) -> Any:
        return jg.log_posterior(self.classifier, x)

    def predict(self, x: Any) -> np.ndarray:
        return np.asarray(jg.predict(self.classifier, x))


# Why log losses differ, and why they are huge where a feature is constant in a class.
_SMOOTHING = (
    "Gaussian NB: to a variance jaxgen adds 1e-6 of that feature's own within the classes, scikit-learn 1e-9 of the\n"
    "largest. Of a feature that is constant in a class that is all, for QDA too: another value there costs up to\n"
    "millions of nats.\n"
)


class _Theirs:
    """scikit-learn by the same three calls."""

    library = "scikit-learn"

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, x: Any, y: np.ndarray) -> Any:
        self.estimator.fit(x, y)

    def posterior(self, x: Any) -> Any:
        return self.estimator.predict_log_proba(x)

    def predict(self, x: Any) -> np.ndarray:
        return self.estimator.predict(x)


def compare(case: Case, split: Split) -> list[Result]:
    """Fit and score one case on both sides, in turn."""
    train_x, test_x = (case.prepare(split.train_x, x) for x in (split.train_x, split.test_x))
    ours = _Ours(case.estimator, split.num_classes)
    sides: list[Any] = [ours] if case.peer is None else [ours, _Theirs(case.peer())]
    first, failures = [], []
    for side in sides:
        try:
            first.append(seconds(lambda side=side: side.fit(train_x, split.train_y)))
        except np.linalg.LinAlgError as error:  # scikit-learn's QDA, on classes that are not of full rank
            failures.append(_failure(split, case, side.library, str(error)))
    sides = sides[: len(first)]
    posteriors = [np.asarray(side.posterior(test_x), np.float64) for side in sides]
    fits = race([lambda side=side: side.fit(train_x, split.train_y) for side in sides])
    scores = race([lambda side=side: side.posterior(test_x) for side in sides])
    return failures + [
        Result(
            data=split.name,
            estimator=case.name,
            library=side.library,
            failure=None,
            accuracy=float(np.mean(side.predict(test_x) == split.test_y)),
            log_loss=float(-np.mean(log_posterior[np.arange(len(split.test_y)), split.test_y])),
            first_fit_ms=1e3 * first[i],
            fit_ms=milliseconds(fits[i]),
            posterior_ms=milliseconds(scores[i]),
            fit_seconds=fits[i],
            posterior_seconds=scores[i],
        )
        for i, (side, log_posterior) in enumerate(zip(sides, posteriors, strict=True))
    ]


def _failure(split: Split, case: Case, library: str, message: str) -> Result:
    nothing = dict.fromkeys(("accuracy", "log_loss", "first_fit_ms", "fit_ms", "posterior_ms"), math.nan)
    return Result(split.name, case.name, library, message, **nothing, fit_seconds=[], posterior_seconds=[])


def run(text: Path | None, json_path: Path | None, tables: list[str] | None = None) -> None:
    """Compare every case on every data set that suits it, print the tables, and write JSON where asked."""
    console = wide_console(112)
    splits = [load_table(name) for name in tables or TABLES] if text is None else [load_messages(text)]
    suited = [(case, split) for split in splits for case in CASES if case.suits(split, text=text is not None)]
    jobs = [(case, split) for case, split in suited if not case.is_too_large(split)]
    results: list[Result] = []
    # On small tables threads of BLAS wait for each other, and on a busy machine many times as long as they work.
    with threadpool_limits(1, "blas"), Progress(console=console, transient=True) as progress:
        task = progress.add_task("fitting", total=len(jobs))
        for case, split in jobs:
            progress.update(task, description=f"{split.name}: {case.name}")
            results += compare(case, split)
            progress.advance(task)
    for split in splits:
        console.print(_table(split, [r for r in results if r.data == split.name]))
    about = environment()
    console.print(
        "Held-out rows; log loss in nats; times in ms, medians of alternating calls; ratio = scikit-learn / jaxgen.\n"
        "The first fit includes compilation; “fails” is a peer's own error on the same data; BLAS has one thread.\n"
        + (_SMOOTHING if text is None else "")
        + "".join(
            f"Left out: {case.name}, which takes dense rows; these would have more than {MOST_CELLS:,} cells.\n"
            for case, split in suited
            if case.is_too_large(split)
        )
        + ", ".join(f"{key} {value}" for key, value in about.items()),
        highlight=False,
    )
    if json_path is not None:
        record = {"environment": about, "results": [asdict(result) for result in results]}
        save_json(record, json_path)
        console.print(f"Written to {json_path}")


def _table(split: Split, results: list[Result]) -> Table:
    table = Table(title=split.describe(), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("estimator", no_wrap=True)
    for header in ("accuracy", "sklearn", "log loss", "sklearn", "1st fit", "fit", "ratio", "score", "ratio"):
        table.add_column(header, justify="right", no_wrap=True)
    peers = {r.estimator: r for r in results if r.library != "jaxgen"}
    for r in results:
        if r.library != "jaxgen":
            continue
        peer = peers.get(r.estimator)
        theirs = ["–"] * 4
        if peer is not None and peer.failure is not None:
            theirs = ["fails"] + ["–"] * 3
        elif peer is not None:
            ratios = (peer.fit_ms / r.fit_ms, peer.posterior_ms / r.posterior_ms)
            theirs = [f"{peer.accuracy:.3f}", _nats(peer.log_loss), *(f"{ratio:.1f}×" for ratio in ratios)]
        table.add_row(
            r.estimator,
            f"{r.accuracy:.3f}",
            theirs[0],
            _nats(r.log_loss),
            theirs[1],
            f"{r.first_fit_ms:.0f}",
            f"{r.fit_ms:.2f}",
            theirs[2],
            f"{r.posterior_ms:.2f}",
            theirs[3],
        )
    return table


def _nats(value: float) -> str:
    return f"{value:.3f}" if value < 1000 else f"{value:.1e}"
