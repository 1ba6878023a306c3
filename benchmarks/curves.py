"""Learning curves: when does modelling p(x | y) beat modelling p(y | x)? The experiment of Ng & Jordan (2002).

For each table a generative model and its discriminative partner are fitted on nested random samples of growing size m,
and tested on rows held out; 1,000 random splits a point. Logistic regression has next to no penalty here, as in the
paper; beside the pair stand logistic regression with scikit-learn's default penalty, and least squares on indicators of
the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import jax
import numpy as np
from rich.markup import escape
from rich.progress import Progress

import jaxgen as jg
from benchmarks import loop
from benchmarks.curve_pictures import draw_overview, draw_table
from benchmarks.curve_records import Plan, compare, grid, of_table, sentences
from benchmarks.programs import Programs
from benchmarks.records import describe, save_json, wide_console
from benchmarks.splits import Model, Splits, Task, columns
from benchmarks.timing import environment
from jaxgen.pytree import pytree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jax import Array

    from benchmarks.programs import Curves, Timed
    from benchmarks.tables import Table

SEED = 0
SIZES = 10
# Splits of each point that a loop of scikit-learn and NumPy goes through too; by two its time was anything from 540 to
# 1,300 s.
LOOPED = 20
# Rows of small samples, at most, which are padded to the size of the largest; and of the pieces in which samples are
# summarised by generative models.
_SMALL = 128
# The curves of a plan.
_PAIR, _BESIDE = slice(2), slice(2, None)
# Splits that are fitted to the optimum as well, which scikit-learn's defaults stop short of.
CONVERGED = 5
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
    """What samples are padded to, so that a few programs serve them.

    Small ones are padded to one size, and others to every second of their table. A table does without a size of its own
    where another's is less than twice as large. A program for less than 256 rows would take longer to compile than it
    saves.

    Args:
        samples: the sizes of each table, in ascending order, of tables whose columns and classes are alike.
    """
    small = [m for sizes in samples for m in sizes if m <= _SMALL]
    kept: list[int] = []
    for size in sorted({m for sizes in samples for m in sizes[::-2]}, reverse=True):
        if size > _SMALL and (not kept or kept[-1] >= 2 * size >= 4 * _SMALL):
            kept.append(size)
    return [max(small), *reversed(kept)]


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
    plans = _plans(tables, splits, l2, pair=pair)
    pairs, others = ([curve for plan in plans for curve in plan.curves[which]] for which in (_PAIR, _BESIDE))
    programs = Programs()
    with Progress(console=console, transient=True) as progress:
        steps = sum(len(task.chunks()) for curve in (*pairs, *others) for task in curve)
        bar = progress.add_task("fitting", total=steps)

        def note(task: Task) -> None:
            progress.update(bar, description=escape(f"{task.table.name}: {task.model.name}, m = {task.m}"), advance=1)

        of_pairs, of_others = (programs.run(curves, note) for curves in (pairs, others))
        results = _by_plan(plans, of_pairs, of_others)
        bar = progress.add_task("a loop of scikit-learn and NumPy", total=sum(len(curve) for curve in pairs))
        looped, solved = _loops(plans, results, l2, lambda: progress.advance(bar))
    about = environment()
    record = {
        "environment": about,
        "splits": splits,
        "l2": l2,
        "seed": SEED,
        "seconds": {"pairs": of_pairs.seconds, "others": of_others.seconds},
        "compile_seconds": {"pairs": of_pairs.compile_seconds, "others": of_others.compile_seconds},
        "loop": compare(looped, splits),
        "optimum": compare(solved, splits),
        "tables": [of_table(plan, timed) for plan, timed in zip(plans, results, strict=True)],
    }
    save_json(record, out / "curves.json")
    for each, slug in zip(record["tables"], _slugs([table.name for table in tables]), strict=True):
        draw_table(each, splits, out / f"curves-{slug}.png")
    draw_overview(record["tables"], splits, out / "curves.png")
    console.print(grid(record["tables"]))
    for sentence in sentences(record):
        console.print(sentence, highlight=False)
    console.print(describe(about), highlight=False)
    console.print(f"Written to {out}: curves.json, curves.png and curves-*.png", highlight=False)


def _plans(tables: list[Table], splits: int, l2: float, *, pair: bool) -> list[Plan]:
    """What is fitted on each table, with samples padded to sizes that they share."""
    drawn = [Splits.of(len(table.x), splits, SEED) for table in tables]
    sizes = [sample_sizes(table, each.most) for table, each in zip(tables, drawn, strict=True)]
    alike = [(table.num_classes, columns(table)) for table in tables]  # those of one program, but for its rows
    plans = []
    for table, orders, growing, shape in zip(tables, drawn, sizes, alike, strict=True):
        steps = paddings([each for each, other in zip(sizes, alike, strict=True) if other == shape])
        padded = [(m, next(step for step in steps if step >= m)) for m in growing]
        nested = [(m, _SMALL, before) for m, before in zip(growing, [0, *growing], strict=False)]
        generative, *others = models(table, l2)[: 2 if pair else None]
        curves = [[Task(generative, table, orders, *sizes) for sizes in nested]]
        curves += [[Task(model, table, orders, *sizes) for sizes in padded] for model in others]
        plans.append(Plan(table, orders, curves))
    return plans


def _by_plan(plans: list[Plan], of_pairs: Curves, of_others: Curves) -> list[list[list[Timed]]]:
    """The curves of each plan: those of its pair, and those beside them."""
    pairs, others = iter(of_pairs.tasks), iter(of_others.tasks)
    return [[*islice(pairs, len(plan.curves[_PAIR])), *islice(others, len(plan.curves[_BESIDE]))] for plan in plans]


def _loops(
    plans: list[Plan], results: list[list[list[Timed]]], l2: float, advance: Callable[[], None]
) -> tuple[list[tuple[loop.Loop, np.ndarray]], list[tuple[loop.Loop, np.ndarray]]]:
    """Loops of scikit-learn and NumPy over the pair, each beside which rows we misclassify.

    The second are of logistic regression alone, run to its optimum.
    """
    looped, solved = [], []
    for plan, timed in zip(plans, results, strict=True):
        for penalty, curve, ours in zip((None, l2), plan.curves[:2], timed[:2], strict=True):
            for task, each in zip(curve, ours, strict=True):
                wrong, count = each.outcome.wrong, len(task.splits.orders)
                looped.append((loop.run(task, min(LOOPED, count), l2=penalty), wrong))
                if penalty is not None:
                    solved.append((loop.run(task, min(CONVERGED, count), l2=penalty, converged=True), wrong))
                advance()
    return looped, solved


def _slugs(names: list[str]) -> list[str]:
    """The names as parts of file names, a different one for each."""
    slugs = ["-".join("".join(letter if letter.isalnum() else " " for letter in name).split()) for name in names]
    return [f"{slug}-{i}" if slugs.count(slug) > 1 else slug for i, slug in enumerate(slugs, 1)]
