"""Growth of time with size: the exponent, and its picture."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.records import INK, MUTED, OURS, PEER, figure, plain, save_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

END = 3  # points at the large end that the exponent is fitted to; the small end is the cost of a call
MARKERS = ("o", "s")


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float | None:
    """The b of time ∝ sizeᵇ at the large end, by least squares on logarithms; None of fewer than two points."""
    if len(sizes) < 2:
        return None
    x, y = (np.log(np.asarray(values[-END:], np.float64)) for values in (sizes, times))
    x = x - x.mean()
    return float(x @ y / (x @ x))


def draw(record: dict[str, Any], sweep: dict[str, str], path: Path) -> None:
    """Time against size on logarithmic axes: fit left, score right, both libraries in each."""
    lines = [line for line in record["lines"] if line["sweep"] == sweep["name"]]
    models = list(dict.fromkeys(line["model"] for line in lines))
    picture = figure(11, 5.9, left=0.85, right=0.25, bottom=1.75, top=1.0)
    panels = picture.subplots(1, 2, sharey=True)
    middles = [median(repeats) for line in lines for repeats in line["seconds"]]
    panels[0].set_ylim(min(middles) / 1.5, max(middles) * 1.5)  # of both panels, and not moved by the guides
    for panel, verb in zip(panels, ("fit", "score"), strict=True):
        chosen = sorted((line for line in lines if line["verb"] == verb), key=lambda line: line["library"] != "jaxgen")
        for line in chosen:
            ours = line["library"] == "jaxgen"
            grows = "" if line["exponent"] is None else f"  (exponent {line['exponent']:.2f})"
            panel.loglog(
                line["sizes"],
                [median(repeats) for repeats in line["seconds"]],
                color=OURS if ours else PEER,
                linestyle="-" if ours else "--",
                marker=MARKERS[models.index(line["model"])],
                markersize=5.5,
                linewidth=1.8,
                label=f"{line['library']}, {line['model']}{grows}",
            )
        _linear_guide(panel, chosen)
        panel.set_title({"fit": "Fit", "score": "Log posterior of every row"}[verb], loc="left", fontsize=11)
        panel.set_xlabel(f"{sweep['axis']} (log scale)", fontsize=9.5)
        panel.grid(which="major", color="#e4e4e4", linewidth=0.8)
        for axis, form in ((panel.xaxis, _count), (panel.yaxis, duration)):
            axis.set_major_locator(LogLocator(subs=(1, 3), numticks=20))
            axis.set_major_formatter(FuncFormatter(form))
        panel.minorticks_off()
        plain(panel)
        panel.legend(fontsize=8.5, frameon=False, handlelength=3.4, loc="upper left", bbox_to_anchor=(-0.02, -0.17))
    panels[0].set_ylabel("time of one call (log scale)", fontsize=9.5)
    panels[1].tick_params(axis="y", length=0)
    about = record["environment"]
    picture.text(0.012, 0.94, f"How time grows with the number of {sweep['axis']}", fontsize=13, color=INK)
    picture.text(
        0.012,
        0.897,
        f"{sweep['fixed']}; {about['device']}, {about['machine']}; medians; exponents of the last {END} points",
        fontsize=8.5,
        color="#555555",
    )
    save_picture(picture, path)


def _linear_guide(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """A dotted line of exponent 1 through the end of jaxgen's slowest line, to see at a glance what grows faster."""
    ours = [line for line in lines if line["library"] == "jaxgen"]
    slowest = max(ours, key=lambda line: median(line["seconds"][-1]))
    end, time = slowest["sizes"][-1], median(slowest["seconds"][-1])
    starts = max(slowest["sizes"][0], end * panel.get_ylim()[0] / time)
    panel.plot([starts, end], [time * starts / end, time], ":", color=MUTED, linewidth=1.4, label="exponent 1: linear")


def _count(value: float, _position: Any = None) -> str:
    """1k, 30k, 1M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def duration(seconds: float, _position: Any = None) -> str:
    """300 µs, 30 ms, 1 s, to two digits."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= 0.9995 * unit:
            return f"{float(f'{seconds / unit:.2g}'):g} {name}"
    return f"{float(f'{seconds * 1e6:.2g}'):g} µs"
