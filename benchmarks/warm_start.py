"""What a warm start saves: logistic regression from the exact linear form of a generative fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table as Grid
from sklearn.datasets import load_digits

import jaxgen as jg
from benchmarks.records import describe, save_json, wide_console
from benchmarks.synthetic import gaussian_rows
from benchmarks.tables import embedded
from benchmarks.timing import environment, milliseconds, race, seconds

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

L2 = 1.0
CLASSES = 10  # of the rows that are drawn
STARTS = {"LDA": jg.LDA(), "diagonal LDA": jg.GDA("diagonal", shared=True)}


@dataclass(frozen=True)
class Result:
    """One data set from one start; a generative start's time has its fit in it."""

    data: str
    start: str
    steps: int
    seconds: list[float]


def measure(name: str, x: np.ndarray, y: np.ndarray) -> list[Result]:
    """From zero, and from each generative fit; all reach the same optimum."""
    estimator = jg.LogisticRegression(l2=L2)

    def warm(generative: jg.GenerativeEstimator) -> tuple[jg.LinearClassifier, jg.Report]:
        return jg.train(estimator, x, y, start=jg.to_linear(jg.fit(generative, x, y)))

    calls = {"zero": partial(jg.train, estimator, x, y)}
    calls |= {start: partial(warm, generative) for start, generative in STARTS.items()}
    reports = {start: call()[1] for start, call in calls.items()}
    for call in calls.values():
        seconds(call)
    times = race(list(calls.values()))
    return [
        Result(name, start, int(report.steps), repeats)
        for (start, report), repeats in zip(reports.items(), times, strict=True)
    ]


def run(out: Path) -> None:
    """Measure every table, print it, and write JSON."""
    console = wide_console(112)
    grid = Grid(
        title=f"Logistic regression (l2 = {L2:g}): steps and ms from each start",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    grid.add_column("table", no_wrap=True)
    for start in ("zero", *STARTS):
        grid.add_column(f"steps, {start}", justify="right")
        grid.add_column("ms", justify="right")
    digits: Any = load_digits()
    data: list[tuple[str, Any, Any]] = [(t.name, t.x, t.y) for t in embedded() if t.kind == "continuous"]
    data.append(("digits, ten classes", digits.data.astype("float32"), digits.target))
    data.append(("Gaussian classes, 100,000 × 50", *gaussian_rows(100_000, 50, CLASSES)[:2]))
    results: list[Result] = []
    for each in data:
        found = measure(*each)
        results += found
        cells = [cell for r in found for cell in (f"{r.steps}", f"{milliseconds(r.seconds):.1f}")]
        grid.add_row(each[0], *cells)
    console.print(grid)
    about = environment()
    console.print("The generative fit is in the time of its start.\n" + describe(about), highlight=False)
    save_json({"environment": about, "l2": L2, "results": [asdict(r) for r in results]}, out / "warm-start.json")
    console.print(f"Written to {out}: warm-start.json", highlight=False)
