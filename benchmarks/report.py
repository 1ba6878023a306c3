"""`python -m benchmarks report FOLDER`: the README's tables, made from the records of a run."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.data import InputError
from benchmarks.workloads import Sizes

if TYPE_CHECKING:
    from pathlib import Path


def markdown(folder: Path) -> str:
    """The tables of a run in markdown; throughput.json has to be there, scaling.json and large.json may be.

    Raises:
        InputError: if a record cannot be read.
    """
    throughput = _load(folder / "throughput.json")
    parts = [_throughput(throughput)]
    if (folder / "scaling.json").exists():
        parts.append(_scaling(_load(folder / "scaling.json")))
    if (folder / "large.json").exists():
        from benchmarks.large import summary

        parts.append(summary(_load(folder / "large.json")))
    return "\n\n".join(parts)


def _load(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise InputError(f"cannot read {path}: {reason}") from None


def _throughput(record: dict[str, Any]) -> str:
    results, rates, about = record["results"], record["rates"], record["environment"]
    libraries = list(dict.fromkeys(library for r in results for library in r["ms"]))
    header = ["job", *(f"{library}, ms" for library in libraries), "ratio", "asked", "GB/s", "GFLOP/s"]
    rows = [
        [
            r["name"],
            *(_number(r["ms"].get(library)) for library in libraries),
            f"{_number(r['ratio'])}×",
            "–" if r["target"] is None else f"{r['target']:g}×",
            _number(r["gigabytes_per_second"]),
            _number(r["gigaflops"]),
        ]
        for r in results
    ]
    caption = (
        f"{Sizes(**record['sizes']).describe()} {about['device']}, {about['machine']}, jax {about['jax']}, "
        f"scikit-learn {about['scikit-learn']}; in the same "
        f"run the device reads {rates['GB/s']:.0f} GB/s and multiplies matrices at {rates['GFLOP/s']:.0f} GFLOP/s."
    )
    return _table(header, rows) + "\n\n" + caption


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
    return _table(header, rows, words=3)


def _exponent(line: dict[str, Any]) -> str:
    return "–" if line["exponent"] is None else f"{line['exponent']:.2f}"


def _number(value: float | None) -> str:
    """Three digits where they mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(header: list[str], rows: list[list[str]], words: int = 1) -> str:
    """Markdown, whose first `words` columns are text and whose others are numbers."""
    rule = ["---" if i < words else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
