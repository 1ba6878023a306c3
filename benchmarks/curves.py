"""Learning curves: when does modelling p(x | y) beat modelling p(y | x)? The experiment of Ng & Jordan (2002).

For each table a generative model and its discriminative partner are fitted on nested random samples of growing size m,
and tested on rows held out; 1,000 random splits a point. Logistic regression has next to no penalty here, as in the
paper; beside the pair stand logistic regression with scikit-learn's default penalty, and least squares on indicators of
the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich import box
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as Grid

import jaxgen as jg
from benchmarks import loop
from benchmarks.curve_pictures import draw_overview, draw_table
from benchmarks.programs import Programs
from benchmarks.records import describe, save_json, wide_console
from benchmarks.splits import Model, Splits, Task
from benchmarks.timing import environment
from benchmarks.uncertainty import half_width, p_value, standard_error
from benchmarks.verdict import SIGNIFICANT, crossing, of_tables, winner
from jaxgen.pytree import pytree

if TYPE_CHECKING:
    from pathlib import Path

    from jax import Array

    from benchmarks.programs import Timed
    from benchmarks.tables import Table

SEED = 0
SIZES = 10
# Splits of each point that a loop of scikit-learn and NumPy goes through too; by two its time was anything from 540 to
# 1,300 s.
LOOPED = 20
# Rows of small samples, which are padded to one size whatever their table.
_SMALL = 128
# Splits that are fitted to the optimum as well, which scikit-learn's defaults stop short of.
CONVERGED = 5
# Rows that the loop may predict differently, for both stop short of the optimum.
MOST_DISAGREEMENT = 0.1
# Of logistic regression. From the optimum of the smaller sample it ends within 0.0013 of the mean error of 1e-7 on four
# tables, from zero within 0.004; where scikit-learn stops by default it is up to 0.037 away, with ten rows.
TOLERANCE = 1e-4


@pytree
@dataclass(frozen=True)
class LeastSquares:
    """Linear regression used as a classifier: least squares on the indicators of the classes, the largest one wins."""

    l2: Array | float

    def fit(self, x: Array, y: Array, *, num_classes: int, sample_weight: Array) -> jg.LinearClassifier:
        """Its scores are no log odds."""
        indicators = jax.nn.one_hot(y, num_classes, dtype=x.dtype)
        line = jg.linear_regression.ridge(x, indicators, self.l2, sample_weight=sample_weight)
        return jg.LinearClassifier(line.weights, line.bias)


def models(table: Table, l2: float) -> list[Model]:
    """The generative model and its discriminative partner, and those that stand beside them."""
    if table.kind == "continuous":
        generative = Model("diagonal LDA", jg.GDA("diagonal", shared=True))
    else:
        generative = Model("Bernoulli NB", jg.BernoulliNB(alpha=1.0))
    return [
        generative,
        Model("logistic regression", jg.LogisticRegression(l2=l2, tolerance=TOLERANCE)),
        Model("logistic regression, l2 = 1", jg.LogisticRegression(l2=1.0, tolerance=TOLERANCE)),
        Model("least squares", LeastSquares(1e-3)),
    ]


def sample_sizes(table: Table, most: int) -> list[int]:
    """Ten sizes in equal ratios, from ten rows, or two a class, to all that are not held out."""
    least = min(max(10, 2 * table.num_classes), most)
    return sorted({round(m) for m in np.geomspace(least, most, SIZES)})


def paddings(samples: list[list[int]]) -> list[int]:
    """What the samples of all tables are padded to, so that they share programs.

    Small ones are padded to one size, and others to every second of their table. A table does without a size of its own
    where another's is less than twice as large. A program for less than 256 rows would take longer to compile than it
    saves.

    Args:
        samples: the sizes of each table's, in ascending order.
    """
    wanted = {sizes[-1] for sizes in samples} | {m for sizes in samples for m in sizes[::-2] if m >= 2 * _SMALL}
    kept: list[int] = []
    for size in sorted(wanted, reverse=True):
        if size > _SMALL and (not kept or kept[-1] >= 2 * size):
            kept.append(size)
    return [_SMALL, *reversed(kept)]


def run(out: Path, tables: list[Table], *, splits: int, l2: float, pair: bool = False) -> None:
    """Draw the curves of every table, say who wins where, and write JSON and pictures.

    Args:
        out: a folder.
        tables: a curve for each.
        splits: at each size.
        l2: penalty of logistic regression.
        pair: leave out the models that stand beside the pair.
    """
    console = wide_console(118)
    for table in tables:
        console.print(table.explain(), highlight=False, markup=False)
    programs = Programs()
    drawn = {table.name: Splits.of(len(table.x), splits, SEED) for table in tables}
    chosen = {table.name: models(table, l2)[: 2 if pair else None] for table in tables}
    sizes = {table.name: sample_sizes(table, drawn[table.name].most) for table in tables}
    steps = paddings(list(sizes.values()))
    plan = [
        Task(model, table, drawn[table.name], m, padded=next(step for step in steps if step >= m))
        for table in tables
        for model in chosen[table.name]
        for m in sizes[table.name]
    ]
    results: dict[tuple[str, str], dict[int, Timed]] = {}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("compiling", total=None)
        pairs = [task for task in plan if task.model in chosen[task.table.name][:2]]
        compile_seconds = programs.prepare(pairs, lambda: progress.advance(bar))
        others_seconds = programs.prepare(plan, lambda: progress.advance(bar))
        bar = progress.add_task("fitting", total=len(plan))
        for task in plan:
            progress.update(bar, description=escape(f"{task.table.name}: {task.model.name}, m = {task.m}"))
            of_model = results.setdefault((task.table.name, task.model.name), {})
            # The samples are nested: the optimum of the one before is near.
            smaller = list(of_model.values())[-1].classifiers if of_model else None
            of_model[task.m] = programs.run(task, smaller)
            progress.advance(bar)
        bar = progress.add_task("a loop of scikit-learn and NumPy", total=len(plan))
        checks, exact, looped, solved = [], [], min(LOOPED, splits), min(CONVERGED, splits)
        for task in plan:
            which = chosen[task.table.name].index(task.model)
            if which < 2:
                wrong = results[task.table.name, task.model.name][task.m].outcome.wrong
                checks.append((loop.run(task, looped, l2=l2 if which else None), wrong))
                if which:
                    exact.append((loop.run(task, solved, l2=l2, converged=True), wrong))
            progress.advance(bar)
    about = environment()
    records = [summarise(table, chosen[table.name], results, drawn[table.name]) for table in tables]
    record = {
        "environment": about,
        "splits": splits,
        "l2": l2,
        "seed": SEED,
        "compile_seconds": compile_seconds,
        "compile_seconds_of_others": others_seconds,
        "loop": _compare(checks, splits, looped),
        "optimum": _compare(exact, splits, solved),
        "tables": records,
    }
    save_json(record, out / "curves.json")
    for each, slug in zip(records, _slugs([table.name for table in tables]), strict=True):
        draw_table(each, splits, out / f"curves-{slug}.png")
    draw_overview(records, splits, out / "curves.png")
    console.print(_grid(records))
    console.print(
        f"“wins” where a t-test, for rows and samples like those of the table, says so at {SIGNIFICANT:.0%}.\n"
        f"{of_tables(records)}",
        highlight=False,
    )
    seconds = sum(sum(model["seconds"]) for each in records for model in each["models"][:2])
    fits = 2 * splits * sum(len(each["sizes"]) for each in records)
    console.print(
        f"{fits:,} fits and tests of the pairs in {seconds:.1f} s, and {compile_seconds:.1f} s of compiling "
        f"({others_seconds:.1f} s more for the models beside them); logistic regression with l2 = {l2:g}",
        highlight=False,
    )
    by_loop = record["loop"]
    console.print(
        f"A loop of scikit-learn and NumPy, timed on {looped} splits a point, would take "
        f"{by_loop['seconds']:,.0f} s: {by_loop['seconds'] / (seconds + compile_seconds):.1f} times as long, and "
        f"{by_loop['seconds'] / seconds:.1f} times without compiling. Its predictions are other ones on "
        f"{by_loop['disagreement']:.2%} of the rows, its mean error differs by {by_loop['excess']:+.4f}, at one point "
        f"by {by_loop['largest']:+.3f}: it stops early. Its logistic regression, run to the optimum on {solved} "
        f"splits, predicts another class for {record['optimum']['disagreement']:.2%}, and its mean error differs by "
        f"{record['optimum']['largest']:+.3f} at the most.",
        highlight=False,
    )
    if by_loop["disagreement"] > MOST_DISAGREEMENT:
        console.print("[bold red]That is too much for rounding and early stopping: do not trust these curves.")
    console.print(describe(about), highlight=False)
    console.print(f"Written to {out}: curves.json, curves.png and curves-*.png", highlight=False)


def _compare(checks: list[tuple[loop.Loop, np.ndarray]], splits: int, looped: int) -> dict[str, float]:
    """What the loop would take for all splits, and how its predictions differ on those that it went through."""
    theirs = np.concatenate([by_loop.wrong.ravel() for by_loop, _ in checks])
    ours = np.concatenate([wrong[: len(by_loop.wrong)].ravel() for by_loop, wrong in checks])
    return {
        "splits": looped,
        "seconds": splits * sum(by_loop.seconds for by_loop, _ in checks),
        "disagreement": float(np.mean(theirs != ours)),
        "excess": float(np.mean(theirs) - np.mean(ours)),
        "largest": max(
            (float(np.mean(each.wrong) - np.mean(wrong[: len(each.wrong)])) for each, wrong in checks), key=abs
        ),
    }


def summarise(
    table: Table, named: list[Model], results: dict[tuple[str, str], dict[int, Timed]], splits: Splits
) -> dict[str, Any]:
    """Means over the splits, the difference of the pair with its significance, and where the curves cross."""
    sizes, n = list(results[table.name, named[0].name]), len(table.x)
    record: dict[str, Any] = {
        "name": table.name,
        "kind": table.kind,
        "describe": table.describe(),
        "classes": table.classes,
        "remarks": table.remarks,
        "sizes": sizes,
        "held_out": splits.held_out,
        "models": [],
    }
    for model in named:
        timed = results[table.name, model.name]
        outcomes = [timed[m].outcome for m in sizes]
        last = outcomes[-1]
        weight = last.weight.sum(axis=0)
        confidence, accuracy = (
            np.divide(np.nansum(each * last.weight, axis=0), weight, out=np.full(len(weight), np.nan), where=weight > 0)
            for each in (last.confidence, last.accuracy)
        )
        record["models"].append(
            {
                "name": model.name,
                "error": [float(o.wrong.mean()) for o in outcomes],
                "deviation_over_splits": [float(o.wrong.mean(axis=1).std(ddof=1)) for o in outcomes],
                "half_width": [
                    half_width(standard_error(o.wrong, splits, m), n) for o, m in zip(outcomes, sizes, strict=True)
                ],
                "log_loss": [_finite(o.log_loss.mean()) for o in outcomes],
                "impossible": [float(np.isinf(o.log_loss).mean()) for o in outcomes],
                "seconds": [timed[m].seconds for m in sizes],
                "reliability": {
                    "confidence": [_finite(v) for v in confidence],
                    "accuracy": [_finite(v) for v in accuracy],
                    "share": [float(v) for v in weight / weight.sum()],
                    "calibration_error": float(np.nansum(weight * abs(accuracy - confidence)) / weight.sum()),
                },
            }
        )
    pair = [[results[table.name, model.name][m].outcome.wrong for m in sizes] for model in named[:2]]
    differences = [a.astype(float) - b for a, b in zip(*pair, strict=True)]
    errors = [standard_error(each, splits, m) for each, m in zip(differences, sizes, strict=True)]
    means = [float(each.mean()) for each in differences]
    record["p_value"] = [p_value(mean, error, n) for mean, error in zip(means, errors, strict=True)]
    record["winner"] = [winner(mean, p) for mean, p in zip(means, record["p_value"], strict=True)]
    record["crossing"] = crossing(sizes, means)
    return record


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _slugs(names: list[str]) -> list[str]:
    """The names as parts of file names, a different one for each."""
    slugs = ["-".join("".join(letter if letter.isalnum() else " " for letter in name).split()) for name in names]
    return [f"{slug}-{i}" if slugs.count(slug) > 1 else slug for i, slug in enumerate(slugs, 1)]


def _grid(records: list[dict[str, Any]]) -> Grid:
    grid = Grid(
        title="Error of the generative model and of logistic regression",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    grid.add_column("table")
    for header in ("m", "gen.", "disc.", "wins", "m", "gen.", "disc.", "wins", "cross at"):
        grid.add_column(header, justify="right", no_wrap=True)
    for each in records:
        generative, discriminative = (model["error"] for model in each["models"][:2])
        cells = []
        for i in (0, -1):
            won = {"generative": "gen.", "discriminative": "disc.", None: "–"}[each["winner"][i]]
            cells += [
                f"{each['sizes'][i]:,}",
                f"{generative[i]:.3f}",
                f"{discriminative[i]:.3f}",
                won,
            ]
        grid.add_row(escape(each["name"]), *cells, "–" if each["crossing"] is None else f"{each['crossing']:,.0f}")
    return grid
