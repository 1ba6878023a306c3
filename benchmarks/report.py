"""`python -m benchmarks report FOLDER`: the README's tables, made from the records of a run."""

from __future__ import annotations

import json
from statistics import median, median_low
from typing import TYPE_CHECKING, Any

from benchmarks import logistic_jobs
from benchmarks.data import InputError
from benchmarks.peers import SKLEARN
from benchmarks.records import run_of
from benchmarks.timing import ratios
from benchmarks.verdict import crosses_at, of_penalty, of_tables
from benchmarks.workloads import Sizes

if TYPE_CHECKING:
    from pathlib import Path


def markdown(folder: Path, only: list[str] | None = None) -> str:
    """The tables of a run in markdown, of those records that are there, or of those that are asked for.

    Raises:
        InputError: if a record cannot be read, or there is none.
    """
    unknown = set(only or ()) - set(RECORDS)
    if unknown:
        raise InputError(f"--only takes {', '.join(RECORDS)}; found {', '.join(sorted(unknown))}")
    names = only or [name for name in RECORDS if (folder / f"{name}.json").exists()]
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; expected one such as benchmarks/results/2026-11-28-cpu-2-cores")
    if not names:
        raise InputError(f"{folder} holds no record; expected one of {', '.join(f'{name}.json' for name in RECORDS)}")
    return "\n\n".join(_section(name, folder / f"{name}.json") for name in names)


def _section(name: str, path: Path) -> str:
    title, table = RECORDS[name]
    try:
        return f"**{title}**\n\n{table(_load(path))}"
    except (KeyError, TypeError, IndexError, AttributeError):
        raise InputError(f"cannot read {path}: it is no record of {name}, or one of another version") from None


def _load(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise InputError(f"cannot read {path}: {reason}") from None


def _throughput(record: dict[str, Any]) -> str:
    results, about = record["results"], record["environment"]
    libraries = list(dict.fromkeys(library for r in results for library in r["ms"]))
    asked = ["asked"] * any(r["target"] is not None for r in results)
    several = ["between"] * any(len(r["seconds"]) > 1 for r in results)
    header = ["job", *(f"{library}, ms" for library in libraries), "ratio", *several, *asked]
    header += ["compile, ms", "GB/s", "GFLOP/s"]
    rows = [
        [
            r["name"],
            *(_number(r["ms"].get(library)) for library in libraries),
            f"{_number(r['ratio'])}×",
            *(_between(ratios(r["seconds"], SKLEARN)) for _ in several),
            *("–" if r["target"] is None else f"{r['target']:g}×" for _ in asked),
            _number(r["compile_ms"]),
            _number(r["gigabytes_per_second"]),
            _number(r["gigaflops"]),
        ]
        for r in results
    ]
    caption = (
        f"{Sizes(**record['sizes']).describe()} {logistic_jobs.NOTE} {about['device']}, {about['machine']}, "
        f"jax {about['jax']}, scikit-learn {about['scikit-learn']}; {_runs(record)}."
    )
    for library in libraries:
        if library not in ("jaxgen", SKLEARN) and (beside := [r for r in results if library in r["ms"]]):
            caption += f" {library} / jaxgen: {'; '.join(_beside(r, library) for r in beside)}."
    if several:
        caption += (
            " The figures of a job are those of the process whose ratio to scikit-learn is in the middle; other ratios "
            "are the middle one of their own."
        )
    return _table(header, rows) + "\n\n" + caption


def _runs(record: dict[str, Any]) -> str:
    """What the machine did in each run that a record is of, and when and of which commit that was."""
    runs: dict[str, list[str]] = {}
    for result in record["results"]:
        run = result.get("run") or run_of(record)
        speed = (
            f"reads {run['rates']['GB/s']:.0f} GB/s and multiplies matrices at {run['rates']['GFLOP/s']:.0f} GFLOP/s"
        )
        place = ", ".join(filter(None, [run.get("date"), f"commit {run['commit']}" if "commit" in run else None]))
        runs.setdefault(f"{speed}{f' ({place})' * bool(place)}", []).append(result["name"])
    (most, _), *others = sorted(runs.items(), key=lambda run: -len(run[1]))
    if not others:
        return f"in the same run the device {most}"
    return f"in the run of most jobs the device {most}; " + "; ".join(
        f"in that of {', '.join(names)} it {speed}" for speed, names in others
    )


def _beside(result: dict[str, Any], library: str) -> str:
    found = ratios(result["seconds"], library)
    between = f" ({_between(found)})" if len(found) > 1 else ""
    return f"{_number(median_low(found))}×{between} in {result['name']}"


def _scaling(record: dict[str, Any]) -> str:
    lines = {(n["sweep"], n["model"], n["verb"], n["library"]): n for n in record["lines"]}
    rows = []
    for (sweep, model, verb, library), line in lines.items():
        if library != "jaxgen":
            continue
        peer = lines.get((sweep, model, verb, "scikit-learn"))
        rows.append(
            [
                sweep,
                f"{model} {verb}",
                f"{line['sizes'][0]:,} – {line['sizes'][-1]:,}",
                _exponent(line),
                "–" if peer is None else _exponent(peer),
                _number(1e3 * median(line["seconds"][-1])),
                "–" if peer is None or peer["skipped"] else _number(1e3 * median(peer["seconds"][-1])),
            ]
        )
    header = ["time in", "job", "from – to", "jaxgen: exponent", "scikit-learn: exponent"]
    header += ["jaxgen at the end, ms", "scikit-learn, ms"]
    slopes = "An exponent is the slope of log time on log size over the last three sizes: 1 is linear, 0 does not grow."
    if record.get("quick"):
        slopes += " A quick run: sizes are too small for exponents to mean anything."
    return f"{_table(header, rows, words=3)}\n\n{slopes}"


def _large(record: dict[str, Any]) -> str:
    from benchmarks.large import summary

    return summary(record)


def _curves(record: dict[str, Any]) -> str:
    rows = []
    for each in record["tables"]:
        generative, discriminative = (model["error"] for model in each["models"][:2])
        cells = [each["name"]]
        for i in (0, -1):
            errors = [f"{100 * generative[i]:.1f}", f"{100 * discriminative[i]:.1f}"]
            if each["winner"][i] is not None:
                best = 0 if each["winner"][i] == "generative" else 1
                errors[best] = f"**{errors[best]}**"
            cells += [f"{each['sizes'][i]:,}", *errors]
        trust = [f"{model['reliability']['calibration_error']:.3f}" for model in each["models"][:2]]
        rows.append([*cells, crosses_at(each), *trust])
    header = ["table", "m", "generative, %", "logistic, %", "m", "generative, %", "logistic, %", "cross at"]
    header += ["calibration error: generative", "logistic"]
    fits = sum(len(each["sizes"]) for each in record["tables"]) * record["splits"] * 2
    seconds, compiling = record["seconds"]["pairs"], record["compile_seconds"]["pairs"]
    caption = (
        f"Error on held-out rows, means of {record['splits']:,} random splits; bold where a t-test for rows and "
        "samples like those of the table says so at 5 %; “cross at”: the m from which the generative model is behind; "
        "calibration error, with the most rows: how far the probability of the predicted class is from how often it is "
        f"right. {of_tables(record['tables'])} Logistic regression has l2 = {record['l2']:g}."
        f"{of_penalty(record['tables']) if record['l2'] != 1 else ''} {fits:,} fits and "
        f"tests of the pairs took {seconds:.0f} s, of which the threads together spent {compiling:.0f} s compiling."
    )
    by_loop, optimum = record["loop"], record["optimum"]
    early = ", for it stops early" * (by_loop["disagreement"] > 0)
    caption += (
        f" A loop of scikit-learn and NumPy would take {by_loop['seconds']:,.0f} s, by its time for "
        f"{by_loop['splits']} splits a point: {by_loop['seconds'] / seconds:.1f} times as long. It predicts another "
        f"class for {by_loop['disagreement']:.1%} of the rows, and its mean error differs by {by_loop['largest']:+.3f} "
        f"at one point{early}: run to the optimum on {optimum['splits']} splits, its logistic regression "
        f"predicts another for {optimum['disagreement']:.2%} and differs by {optimum['largest']:+.3f} at the most."
    )
    return _table(header, rows) + "\n\n" + caption


def _efficiency(record: dict[str, Any]) -> str:
    rows = []
    for distance in dict.fromkeys(each["distance"] for each in record["efron"]):
        cells = [f"{distance:g}"]
        for each in record["efron"]:
            if each["distance"] == distance:
                angle = each["angle"]
                cells += [f"{angle['theory']:.3f}", f"{angle['ratio']:.3f} ± {angle['error']:.3f}"]
        rows.append(cells)
    priors = dict.fromkeys(each["prior"] for each in record["efron"])
    header = ["Δ", *(text for p in priors for text in (f"Efron, π = {p:g}", "simulated ± s.e."))]
    return _table(header, rows)


def _warm_start(record: dict[str, Any]) -> str:
    starts = list(dict.fromkeys(each["start"] for each in record["results"]))
    rows = []
    for name in dict.fromkeys(each["data"] for each in record["results"]):
        mine = {each["start"]: each for each in record["results"] if each["data"] == name}
        cells = [(f"{mine[start]['steps']}", _number(1e3 * median(mine[start]["seconds"]))) for start in starts]
        rows.append([name, *(cell for pair in cells for cell in pair)])
    return _table(["table", *(text for start in starts for text in (f"steps from {start}", "ms"))], rows)


def _exponent(line: dict[str, Any]) -> str:
    return "–" if line["exponent"] is None else f"{line['exponent']:.2f}"


def _number(value: float | None) -> str:
    """Three digits where they mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _between(values: list[float]) -> str:
    return f"{_number(values[0])} – {_number(values[-1])}"


def _table(header: list[str], rows: list[list[str]], words: int = 1) -> str:
    """Markdown, whose first `words` columns are text and whose others are numbers."""
    rule = ["---" if i < words else "---:" for i in range(len(header))]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *escaped])


RECORDS = {
    "throughput": ("Fits and scores beside scikit-learn", _throughput),
    "scaling": ("Exponents by which time grows", _scaling),
    "large": ("More text than memory holds, in chunks", _large),
    "curves": ("Error by number of rows", _curves),
    "efficiency": ("Efficiency of logistic regression against LDA, by distance Δ and prior π", _efficiency),
    "warm-start": ("Steps and time of logistic regression, the generative fit included", _warm_start),
}
