"""What is kept and said of learning curves: means with their spread, who wins where, and how a loop compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table as Grid

from benchmarks.uncertainty import half_width, p_value, standard_error
from benchmarks.verdict import SIGNIFICANT, crosses_at, crossing, of_tables, winner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.loop import Loop
    from benchmarks.programs import Timed
    from benchmarks.splits import Splits, Task
    from benchmarks.tables import Table

# Rows that the loop may predict differently, for both stop short of the optimum.
MOST_DISAGREEMENT = 0.1


@dataclass(frozen=True)
class Plan:
    """What is fitted on one table.

    Attributes:
        table: which.
        splits: of its rows.
        curves: the tasks of each model, on samples of growing size; the first two are the pair's.
    """

    table: Table
    splits: Splits
    curves: list[list[Task]]


def of_table(plan: Plan, results: list[list[Timed]]) -> dict[str, Any]:
    """Means over the splits, the difference of the pair with its significance, and where the curves cross."""
    table, splits, n = plan.table, plan.splits, len(plan.table.x)
    sizes = [task.m for task in plan.curves[0]]
    pair = [[timed.outcome.wrong for timed in curve] for curve in results[:2]]
    differences = [a.astype(float) - b for a, b in zip(*pair, strict=True)]
    errors = [standard_error(each, splits, m) for each, m in zip(differences, sizes, strict=True)]
    means = [float(each.mean()) for each in differences]
    p_values = [p_value(mean, error, n) for mean, error in zip(means, errors, strict=True)]
    return {
        "name": table.name,
        "kind": table.kind,
        "describe": table.describe(),
        "classes": table.classes,
        "remarks": table.remarks,
        "sizes": sizes,
        "held_out": splits.held_out,
        "models": [_of_model(*each, splits) for each in zip(plan.curves, results, strict=True)],
        "p_value": p_values,
        "winner": [winner(mean, p) for mean, p in zip(means, p_values, strict=True)],
        "crossing": crossing(sizes, means),
    }


def _of_model(curve: list[Task], timed: list[Timed], splits: Splits) -> dict[str, Any]:
    """Means over the splits at each size, and the reliability diagram of the largest."""
    outcomes, n = [each.outcome for each in timed], splits.orders.shape[1]
    last = outcomes[-1]
    weight = last.weight.sum(axis=0)
    confidence, accuracy = (
        np.divide(np.nansum(each * last.weight, axis=0), weight, out=np.full(len(weight), np.nan), where=weight > 0)
        for each in (last.confidence, last.accuracy)
    )
    return {
        "name": curve[0].model.name,
        "error": [float(o.wrong.mean()) for o in outcomes],
        "deviation_over_splits": [float(o.wrong.mean(axis=1).std(ddof=1)) for o in outcomes],
        "half_width": [
            half_width(standard_error(o.wrong, splits, task.m), n) for o, task in zip(outcomes, curve, strict=True)
        ],
        "log_loss": [_finite(o.log_loss.mean()) for o in outcomes],
        "impossible": [float(np.isinf(o.log_loss).mean()) for o in outcomes],
        "seconds": [each.seconds for each in timed],
        "reliability": {
            "confidence": [_finite(v) for v in confidence],
            "accuracy": [_finite(v) for v in accuracy],
            "share": [float(v) for v in weight / weight.sum()],
            "calibration_error": float(np.nansum(weight * abs(accuracy - confidence)) / weight.sum()),
        },
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def compare(loops: list[tuple[Loop, np.ndarray]], splits: int) -> dict[str, float]:
    """What loops would take for all splits, and how their predictions differ from ours on those they went through."""
    pairs = [(theirs.wrong, wrong[: len(theirs.wrong)]) for theirs, wrong in loops]
    theirs, ours = (np.concatenate([wrong.ravel() for wrong in each]) for each in zip(*pairs, strict=True))
    return {
        "splits": len(loops[0][0].wrong),
        "seconds": splits * sum(each.seconds for each, _ in loops),
        "disagreement": float(np.mean(theirs != ours)),
        "excess": float(np.mean(theirs) - np.mean(ours)),
        "largest": max((float(np.mean(a) - np.mean(b)) for a, b in pairs), key=abs),
    }


def grid(records: list[dict[str, Any]]) -> Grid:
    """The errors of the pair with the fewest rows and with the most, who wins there, and where they cross."""
    table = Grid(
        title="Error of the generative model and of logistic regression",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("table")
    for header in ("m", "gen.", "disc.", "wins", "m", "gen.", "disc.", "wins", "cross at"):
        table.add_column(header, justify="right", no_wrap=True)
    for each in records:
        generative, discriminative = (model["error"] for model in each["models"][:2])
        cells = []
        for i in (0, -1):
            won = {"generative": "gen.", "discriminative": "disc.", None: "–"}[each["winner"][i]]
            cells += [f"{each['sizes'][i]:,}", f"{generative[i]:.3f}", f"{discriminative[i]:.3f}", won]
        table.add_row(escape(each["name"]), *cells, crosses_at(each))
    return table


def sentences(record: dict[str, Any]) -> Iterator[str]:
    """What the curves say, what they took, and how a loop of scikit-learn and NumPy compares."""
    tables, looped, solved = record["tables"], record["loop"], record["optimum"]
    yield (
        f"“wins” where a t-test, for rows and samples like those of the table, says so at {SIGNIFICANT:.0%}.\n"
        f"{of_tables(tables)}"
    )
    seconds, compiling = record["seconds"], record["compile_seconds"]
    fits = 2 * record["splits"] * sum(len(each["sizes"]) for each in tables)
    yield (
        f"{fits:,} fits and tests of the pairs in {seconds['pairs']:.1f} s, of which the threads together spent "
        f"{compiling['pairs']:.1f} s compiling ({seconds['others']:.1f} s more for the models beside them); logistic "
        f"regression with l2 = {record['l2']:g}"
    )
    early = ": it stops early" * (looped["disagreement"] > 0)
    yield (
        f"A loop of scikit-learn and NumPy, timed on {looped['splits']} splits a point, would take "
        f"{looped['seconds']:,.0f} s: {looped['seconds'] / seconds['pairs']:.1f} times as long. Its predictions are "
        f"other ones on "
        f"{looped['disagreement']:.2%} of the rows, its mean error differs by {looped['excess']:+.4f}, at one point by "
        f"{looped['largest']:+.3f}{early}. Its logistic regression, run to the optimum on {solved['splits']} "
        f"splits, predicts another class for {solved['disagreement']:.2%}, and its mean error differs by "
        f"{solved['largest']:+.3f} at the most."
    )
    if looped["disagreement"] > MOST_DISAGREEMENT:
        yield "[bold red]That is too much for rounding and early stopping: do not trust these curves."
