"""`python -m benchmarks efficiency`: what LDA's assumptions are worth where they hold, and cost where they do not.

First Efron's asymptotic relative efficiency of logistic regression, simulated beside his integral; then learning curves
of both models on truths that the generative one is wrong about.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks import efron, misfits
from benchmarks.efficiency_pictures import draw_efficiency, draw_misfits, round_to
from benchmarks.efron import FEATURES, Normals
from benchmarks.records import (
    describe,
    save_json,
    wide_console,
)
from benchmarks.timing import environment

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sizes:
    """How much is simulated.

    Attributes:
        distances: Δ between the normal classes.
        priors: π₁ of the second.
        rows: of a sample.
        replications: samples of each case.
        plan: training sizes of the misfits and their replications, by the rows that are drawn for them.
        test_rows: on which the errors of the misfits are means.
    """

    distances: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
    priors: tuple[float, ...] = (0.5, 0.7, 0.9)
    rows: int = 2**16
    replications: int = 32
    plan: dict[int, tuple[tuple[int, ...], int]] = field(
        default_factory=lambda: {
            1_000: ((20, 50, 100, 200, 500, 1_000), 400),
            20_000: ((2_000, 5_000, 10_000, 20_000), 40),
        }
    )
    test_rows: int = 20_000

    @classmethod
    def quick(cls) -> Sizes:
        """A few seconds' worth, most of which go into compiling."""
        return cls((1.0, 2.0, 3.0), (0.5, 0.9), 2**12, 16, {400: ((20, 100, 400), 20)}, 2_000)


def run(out: Path, *, quick: bool = False) -> None:
    """Simulate both parts, print their tables, write JSON and two pictures."""
    console = wide_console(118)
    sizes = Sizes.quick() if quick else Sizes()
    cases = [Normals(distance, prior) for prior in sizes.priors for distance in sizes.distances]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    started = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as progress:
        simulated = efron.simulate(cases, sizes.rows, sizes.replications, progress)
        between = time.perf_counter()
        curves = misfits.learning_curves(sizes.plan, sizes.test_rows, progress)
    ended = time.perf_counter()
    record: dict[str, Any] = {
        "environment": environment(),
        "features": FEATURES,
        "test_rows": sizes.test_rows,
        "penalties": dict(zip(misfits.RULES[1:], misfits.PENALTIES, strict=True)),
        "seconds": {"efron": between - started, "misfits": ended - between},
        "efron": simulated,
        "misfits": curves,
    }
    console.print(_efron_table(simulated))
    console.print(_agreement(simulated), highlight=False)
    console.print(_misfit_table(curves))
    console.print(
        f"Errors are those on the same {sizes.test_rows:,} rows, given the true posterior there; 'logistic' has l2 = "
        f"{misfits.PENALTIES[0]:g}, for the sake of separable samples.\n"
        + "\n".join(map(verdict, curves))
        + f"\n{describe(record['environment'])}",
        highlight=False,
    )
    save_json(record, out / "efficiency.json")
    draw_efficiency(record, out / "efficiency.png")
    draw_misfits(record, out / "efficiency-misspecified.png")
    console.print(
        f"{ended - started:.0f} s. Written to {out}: efficiency.json, efficiency.png, efficiency-misspecified.png",
        highlight=False,
    )


def _efron_table(records: list[dict[str, Any]]) -> Table:
    table = _empty("Efficiency of logistic regression against LDA, where LDA's assumptions hold")
    for header in ("π₁", "Δ", "angle", "± s.e.", "integral", "z"):
        table.add_column(header, justify="right", no_wrap=True)
    for header in (f"regret, p = {FEATURES}", "± s.e.", "theory", "z"):
        table.add_column(header, justify="right", no_wrap=True)
    for record, following in zip(records, [*records[1:], None], strict=True):
        cells = [
            text
            for found in (record["angle"], record["regret"])
            for text in (
                f"{found['ratio']:.4f}",
                f"{found['error']:.4f}",
                f"{found['theory']:.4f}",
                f"{found['z']:+.1f}",
            )
        ]
        table.add_row(
            f"{record['prior']:g}",
            f"{record['distance']:g}",
            *cells,
            end_section=following is not None and following["prior"] != record["prior"],
        )
    return table


def _agreement(records: list[dict[str, Any]]) -> str:
    """What a reader would otherwise have to add up."""
    saved = [r[name]["with_cross_terms"]["error"] / r[name]["error"] for r in records for name in ("angle", "regret")]
    lines = [
        f"Both are fitted to the same {records[0]['replications']} samples of {records[0]['rows']:,} rows. Products of "
        "different rows, which are noise of mean zero, are left out of the squares: that makes standard errors "
        f"{np.median(saved):.0f} times smaller (the median)."
    ]
    for name, what in (("angle", "angle beside Efron's integral"), ("regret", "regret beside theory")):
        z = np.array([record[name]["z"] for record in records])
        lines.append(f"{what}: Σz² = {z @ z:.1f} in {len(z)} cases, largest |z| {np.abs(z).max():.1f}")
    unfinished = sum(record["converged"] < 1 for record in records)
    return "\n".join(lines) + (f"\n{unfinished} cases have fits that did not converge." if unfinished else "")


def _misfit_table(curves: list[dict[str, Any]]) -> Table:
    table = _empty("Error against training rows, where the generative model is wrong (z > 0: logistic is better)")
    for header in (
        "truth",
        "rows",
        "samples",
        "generative",
        "± s.e.",
        "logistic",
        "± s.e.",
        "z",
        "l2 = 1",
        "± s.e.",
        "z",
    ):
        table.add_column(header, justify="left" if header == "truth" else "right", no_wrap=True)
    for misfit in curves:
        for i, point in enumerate(misfit["sizes"]):
            cells = []
            for rule in misfits.RULES:
                found = point[rule]
                cells += [f"{found['mean']:.4f}", f"{found['error']:.4f}"]
                cells += [f"{found['z']:+.1f}"] if "z" in found else []
            name = (misfit["name"], f"Bayes {misfit['bayes_error']:.4f}")[i] if i < 2 else ""
            table.add_row(name, f"{point['rows']:,}", f"{point['replications']}", *cells)
        table.add_section()
    return table


def _empty(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)


def verdict(misfit: dict[str, Any]) -> str:
    """When logistic regression is the better one, in a sentence."""
    parts = []
    for rule, name in (("logistic", "logistic regression"), ("penalised", "with l2 = 1 it")):
        found = misfit["overtakes"][rule]
        if found is None:
            parts.append(f"{name} is not ahead at {misfit['sizes'][-1]['rows']:,} rows")
        else:
            crossing = found["crossing"]
            met = f"the errors meet at about {round_to(crossing):,}" if crossing else "the lower one at every size"
            parts.append(f"{name} is ahead from {found['rows']:,} rows on ({met})")
    return f"{misfit['name']} ({misfit['wrong']}): " + "; ".join(parts) + "."
