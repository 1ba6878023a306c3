"""`python -m benchmarks throughput`: how fast, beside the peers and beside what the machine allows."""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import jax
from rich import box
from rich.progress import Progress
from rich.table import Table

from benchmarks import logistic_jobs
from benchmarks.growth import duration
from benchmarks.peers import SKLEARN
from benchmarks.records import (
    INK,
    MUTED,
    OURS,
    WARM,
    describe,
    figure,
    plain,
    run_of,
    save_json,
    save_picture,
    wide_console,
)
from benchmarks.throughput_cases import CASES, Case
from benchmarks.timing import QUICK, REST, Effort, environment, machine_rates, milliseconds, race, ratios, seconds
from benchmarks.workloads import Sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = {"ratio": 1.09, "asked": 1.18, "jaxgen": 1.3}  # beside the picture's bars, where each ends
# For a case, one after the other. What is slow for as long as a process lives, such as where its memory lies, or while
# others use the machine, is then seen for what it is.
PROCESSES = 3
# In each of them: nine rounds in all, at least. A machine that others share may be half as fast for a second at a time,
# and of 15 ms nine calls in a row were at 13 to 31.
EFFORT = Effort(budget=4.0, least=3, most=12, rest=REST)
# Where one side is on an accelerator, and the other on the cores beside it.
ACCELERATED = Effort(budget=1.0, least=1, in_turn=False)


class DisagreementError(Exception):
    """Two libraries that should compute the same do not; nothing is timed then."""


@dataclass(frozen=True)
class Result:
    """One case, measured: the figures of the process whose ratio is in the middle, and the times of all of them.

    Figures that a case has not are None.
    """

    name: str
    target: float | None
    sizes: dict[str, int]
    difference: float
    compile_ms: float | None
    ms: dict[str, float]
    seconds: list[dict[str, list[float]]]
    ratio: float
    gigabytes_per_second: float | None
    gigaflops: float | None
    accuracy: float | None
    best_accuracy: float | None


def measure(case: Case, sizes: Sizes, effort: Effort = EFFORT) -> Result:
    """Prepare a case, check that all libraries agree, then time them in turn.

    Raises:
        DisagreementError: if the answers are further apart than the case tolerates, with its name.
    """
    jax.clear_caches()  # so that the first call compiles, whichever cases ran before
    job = case.prepare(sizes)
    result: Any = None

    def first() -> Any:
        nonlocal result
        result = job.ours()
        return result

    first_seconds = seconds(first)
    difference = 0.0
    for library, call in job.others.items():
        apart = job.difference(result, call())
        if not apart <= case.tolerance:
            raise DisagreementError(
                f"{case.name}: jaxgen and {library} differ by {apart:.2g}, more than {case.tolerance:.2g}; not timed."
            )
        difference = max(difference, apart)
    accuracy, best = job.quality(result) if job.quality else (None, None)
    libraries = ["jaxgen", *job.others]
    times = dict(zip(libraries, race([job.ours, *job.others.values()], effort), strict=True))
    ms = {library: milliseconds(times[library]) for library in libraries}
    warm = ms["jaxgen"] / 1e3
    return Result(
        name=case.name,
        # Which is of full sizes, for a CPU beside a CPU.
        target=case.target if sizes == Sizes() and jax.default_backend() == "cpu" else None,
        sizes=job.sizes,
        difference=difference,
        compile_ms=1e3 * max(0.0, first_seconds - warm) if job.compiles else None,
        ms=ms,
        seconds=[times],
        ratio=ms[SKLEARN] / ms["jaxgen"],
        gigabytes_per_second=1e-9 * job.read / warm if job.read else None,
        gigaflops=1e-9 * job.flops / warm if job.flops else None,
        accuracy=accuracy,
        best_accuracy=best,
    )


def of_processes(runs: Sequence[Result]) -> Result:
    """One case in several processes: the result whose ratio is in the middle, with the times of all."""
    ordered = sorted(runs, key=lambda run: run.ratio)
    return replace(ordered[(len(ordered) - 1) // 2], seconds=[times for run in runs for times in run.seconds])


def run(out: Path, *, quick: bool = False, rows: Sequence[str] = (), processes: int | None = None) -> None:
    """Measure the cases whose names contain one of `rows` (all by default), print the table, write JSON and PNG.

    Of a record in the folder the cases that are not measured again are kept, where `rows` chooses; else it is replaced.
    Each in so many processes, one after the other; None for three at full size on a CPU, and one elsewhere.

    Raises:
        DisagreementError: as `measure` does.
        ValueError: if one of `rows` is in the name of no case, or the folder has a record that they cannot join.
    """
    unknown = [row for row in rows if not any(row.lower() in case.name.lower() for case in CASES)]
    if unknown:
        raise ValueError(
            f"no case has {' or '.join(unknown)} in its name; there are: {'; '.join(c.name for c in CASES)}"
        )
    cases = [case for case in CASES if not rows or any(row.lower() in case.name.lower() for row in rows)]
    console = wide_console(176)
    results: list[Result] = []
    # What ran before in a process may stay with the next case, as threads and memory do: each case that is timed has
    # its own. This one never starts JAX, which would take an accelerator's memory. Spawned, since JAX has threads.
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(
            1,
            context,
            initializer=_begin,
            max_tasks_per_child=None if quick and not processes else 1,
        ) as process,
        Progress(console=console, transient=True) as progress,
    ):
        task = progress.add_task("the machine's own rates", total=len(cases))
        about, backend, rates = process.submit(_machine, quick=quick).result()
        sizes = Sizes.quick() if quick else Sizes().filling(backend)
        effort = QUICK if quick else EFFORT if backend == "cpu" else ACCELERATED
        processes = processes or (PROCESSES if effort is EFFORT else 1)
        record: dict[str, Any] = {"environment": about, "rates": rates, "sizes": asdict(sizes)}
        kept = _others(out / "throughput.json", record, cases) if rows else {}
        for case in cases:
            progress.update(task, description=case.name)
            runs = [process.submit(measure, case, sizes, effort).result() for _ in range(processes)]
            results.append(of_processes(runs))
            kept[case.name] = {**asdict(results[-1]), "run": run_of(record)}
            record["results"] = [kept[each.name] for each in CASES if each.name in kept]
            save_json(record, out / "throughput.json")  # so that an interrupted run keeps what it measured
            progress.advance(task)
    which = "in the middle" if processes % 2 else "the lower of the middle ones"
    console.print(_table(results, rates))
    console.print(
        f"{sizes.describe()}\n{logistic_jobs.NOTE}\n"
        f"Medians of {'alternating ' * effort.in_turn}warm calls in a process of its own for each job"
        f"{f', of {processes} that whose ratio is {which}' * (processes > 1)}; "
        "ratio = scikit-learn / jaxgen; "
        "compile = first call − warm call.\n"
        "GB/s = the data read once / time, GFLOP/s = the plainest algorithm's operations / time: lower bounds on what "
        "the program moves and computes.\n"
        "apart = the largest difference from a peer's answer, checked before timing; best = that of the classifier "
        "that generated the data (1 − Bayes error).\n" + describe(about),
        highlight=False,
    )
    draw(record, out / "throughput.png")
    console.print(f"Written to {out}: throughput.json, throughput.png", highlight=False)


def _begin() -> None:
    """In a process that measures: interrupted it ends at once, without a word, and it compiles all that it runs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    jax.config.update("jax_enable_compilation_cache", val=False)


def _others(path: Path, record: dict[str, Any], cases: Sequence[Case]) -> dict[str, Any]:
    """The results of a stored record, by name, without those of some cases."""
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        alike = _lasting(stored) == _lasting(record)
        others = {each["name"]: {"run": run_of(stored), **each} for each in stored["results"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        alike, others = False, {}
    if not alike:
        raise ValueError(
            f"{path} is no record of this machine, these versions and sizes, which the rows could join; give --out "
            "another folder"
        )
    again = {case.name for case in cases}
    return {name: each for name, each in others.items() if name not in again}


def _lasting(record: dict[str, Any]) -> dict[str, Any]:
    """What two runs that belong together have in common."""
    about = {name: each for name, each in record["environment"].items() if name not in ("date", "commit")}
    return {"environment": about, "sizes": record["sizes"]}


def _machine(*, quick: bool) -> tuple[dict[str, str], str, dict[str, float]]:
    """Device and versions, the backend's name, and its rates."""
    backend = jax.default_backend()
    return environment(), backend, machine_rates(0.02 if quick else 1.0 if backend == "cpu" else 10.0)


def _table(results: list[Result], rates: dict[str, float]) -> Table:
    others = sorted({library for r in results for library in r.ms} - {"jaxgen", SKLEARN})
    table = Table(
        title=f"Throughput; this machine in this run: {rates['GB/s']:.1f} GB/s read, "
        f"{rates['GFLOP/s']:.0f} GFLOP/s in a float32 matrix product",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("job", no_wrap=True)
    asked = ["asked"] * any(r.target is not None for r in results)
    several = ["between"] * any(len(r.seconds) > 1 for r in results)
    headers = ["jaxgen ms", "sklearn ms", *(f"{library} ms" for library in others), "ratio", *several, *asked]
    headers.append("compile ms")
    judged = any(r.accuracy is not None for r in results)
    for header in [*headers, "GB/s", "GFLOP/s", "apart", *(["accuracy (best)"] if judged else [])]:
        table.add_column(header, justify="right", no_wrap=True)
    for r in results:
        ratio = _ratio(r.ratio)
        missed = r.target is not None and r.ratio < r.target
        table.add_row(
            r.name,
            f"{r.ms['jaxgen']:.2f}",
            f"{r.ms[SKLEARN]:.2f}",
            *(_figure(r.ms.get(library), ".2f") for library in others),
            f"[red]{ratio}[/red]" if missed else ratio,
            *(_between(r.seconds) for _ in several),
            *("–" if r.target is None else f"{r.target:g}×" for _ in asked),
            _figure(r.compile_ms, ".0f"),
            _figure(r.gigabytes_per_second, ".2f"),
            _figure(r.gigaflops, ".2f"),
            f"{r.difference:.0e}",
            *(["–" if r.accuracy is None else f"{r.accuracy:.3f} ({r.best_accuracy:.3f})"] if judged else []),
        )
    return table


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def draw(record: dict[str, Any], path: Path) -> None:
    """A bar for each case: how many times as fast as scikit-learn, with a mark at the ratio asked for, if any is."""
    results, sizes = record["results"], Sizes(**record["sizes"])
    judged, about = any(r["target"] is not None for r in results), record["environment"]
    caption = [
        f"bars: the measured ratio{', in red where it is below the black mark, the ratio that is asked for' * judged}"
        f"{'; lines: that of each process, from the smallest to the largest' * (len(results[0]['seconds']) > 1)}",
        f"{about['device']}, {about['machine']}, jax {about['jax']}, scikit-learn {about['scikit-learn']}",
        *wrap(sizes.describe(), 150),
    ]
    top = 0.7 + 0.15 * len(caption)
    picture = figure(11.1, 0.6 + top + 0.34 * len(results), left=3.35, right=1.85, bottom=0.6, top=top)
    axes = picture.add_subplot()
    columns = COLUMNS if judged else {"ratio": COLUMNS["ratio"], "jaxgen": COLUMNS["asked"] + 0.03}
    places = range(len(results), 0, -1)
    bars = [r["ratio"] for r in results]
    met = [r["target"] is None or r["ratio"] >= r["target"] for r in results]
    # Bars grow from 1, the peer's own time, to either side.
    axes.barh(
        list(places),
        [ratio - 1 for ratio in bars],
        left=1,
        height=0.62,
        color=[OURS if good else WARM for good in met],
    )
    largest = max([*bars, *(r["target"] or 1 for r in results)])
    smallest = min([*bars, *(r["target"] or 1 for r in results)])
    axes.set_xscale("log")
    axes.set_xlim(min(0.6, smallest / 1.3), max(largest * 1.3, 2.2))  # two ticks, at least
    beside = axes.get_yaxis_transform()  # across in parts of the axes, up in cases
    for place, r in zip(places, results, strict=True):
        if len(r["seconds"]) > 1:
            found = ratios(r["seconds"], SKLEARN)
            axes.plot([found[0], found[-1]], [place] * 2, color=INK, linewidth=0.9, alpha=0.6)
        if r["target"] is not None:
            axes.plot([r["target"]] * 2, [place - 0.42, place + 0.42], color=INK, linewidth=2, solid_capstyle="butt")
        asked = "–" if r["target"] is None else f"{r['target']:g}×"
        entries = {"ratio": _ratio(r["ratio"]), "asked": asked, "jaxgen": duration(r["ms"]["jaxgen"] / 1e3)}
        for name, column in columns.items():
            entry = entries[name]
            axes.annotate(entry, (column, place), xycoords=beside, va="center", ha="right", fontsize=9, color=INK)
    for header, column in columns.items():
        axes.annotate(header, (column, 1), xycoords="axes fraction", ha="right", fontsize=8.5, color="#555555")
    axes.axvline(1, color=MUTED, linewidth=1)
    axes.set_yticks(list(places), [r["name"] for r in results])
    axes.set_ylim(0.3, len(results) + 0.7)
    powers = range(math.floor(math.log10(axes.get_xlim()[0])), math.ceil(math.log10(axes.get_xlim()[1])) + 1)
    within = (1, 2, 5) if len(powers) < 5 else (1,)  # of a decade
    ticks = [m * 10.0**p for p in powers for m in within if axes.get_xlim()[0] <= m * 10.0**p <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("times as fast as scikit-learn, in the same run (log scale; 1× = the same time)", fontsize=9.5)
    height = picture.get_figheight()
    title = "How many times as fast as scikit-learn is jaxgen?"
    picture.text(0.012, 1 - 0.32 / height, title, fontsize=13, color=INK)
    picture.text(0.012, 1 - 0.45 / height, "\n".join(caption), va="top", fontsize=8.5, color="#555555")
    save_picture(picture, path)


def _between(processes: list[dict[str, list[float]]]) -> str:
    found = ratios(processes, SKLEARN)
    return f"{_ratio(found[0])} – {_ratio(found[-1])}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 2 else f"{ratio:.1f}×"
