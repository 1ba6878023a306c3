"""Pictures of learning curves: one for each table, and all tables at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from benchmarks.records import INK, MUTED, OURS, PEER, figure, plain, save_picture

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

LEAST_SHARE = 1e-3  # of the rows in a bin: what fewer say is chance
STYLES = (
    {"color": OURS, "linestyle": "-", "linewidth": 2.2},
    {"color": PEER, "linestyle": "-", "linewidth": 2.2},
    {"color": PEER, "linestyle": ":", "linewidth": 1.6},
    {"color": MUTED, "linestyle": "--", "linewidth": 1.4},
)


def draw_table(record: dict[str, Any], splits: int, path: Path) -> None:
    """Error against training size, and beside it whether the probabilities can be believed."""
    picture = figure(11, 5.2, left=0.85, right=0.3, bottom=1.25, top=1.0)
    grid = picture.add_gridspec(1, 2, width_ratios=(1.6, 1), wspace=0.22)
    errors, trust = picture.add_subplot(grid[0]), picture.add_subplot(grid[1])
    _errors(errors, record, bands=True)
    errors.set_xlabel("training rows m (log scale)", fontsize=9.5)
    errors.set_ylabel("error on held-out rows", fontsize=9.5)
    errors.set_title("Error against training size", loc="left", fontsize=11)
    handles, labels = errors.get_legend_handles_labels()
    picture.legend(handles, labels, fontsize=9, frameon=False, loc="lower left", bbox_to_anchor=(0.01, 0.03), ncols=4)

    trust.plot([0, 1], [0, 1], color=MUTED, linewidth=1)
    for model, style in zip(record["models"][:2], STYLES, strict=False):
        bins = model["reliability"]
        known = [i for i, share in enumerate(bins["share"]) if share > LEAST_SHARE]
        trust.plot(
            [bins["confidence"][i] for i in known],
            [bins["accuracy"][i] for i in known],
            label=f"{model['name']}: calibration error {bins['calibration_error']:.3f}",
            **{**style, "linewidth": 1.3},
        )
        trust.scatter(
            [bins["confidence"][i] for i in known],
            [bins["accuracy"][i] for i in known],
            s=[12 + 300 * bins["share"][i] for i in known],
            color=style["color"],
            alpha=0.6,
            linewidth=0,
            clip_on=False,  # the largest lie at the edge
        )
    least = max(1 / len(record["classes"]), _least(record, "confidence") - 0.05)  # which the predicted class has
    trust.set_xlim(least, 1.01)
    trust.set_ylim(min(least, 0.3, _least(record, "accuracy") - 0.03), 1.01)
    trust.set_xlabel("probability given to the predicted class", fontsize=9.5)
    trust.set_ylabel("share of right predictions", fontsize=9.5)
    trust.set_title(f"Can they be believed? (m = {record['sizes'][-1]:,})", loc="left", fontsize=11)
    trust.legend(
        title="below the grey line: over-confident; area: share of rows",
        title_fontsize=8.5,
        fontsize=8.5,
        frameon=False,
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(-0.03, -0.14),  # below the panel, where no bin can lie
    )
    plain(trust)
    picture.text(0.012, 0.935, record["describe"], fontsize=13, color=INK)
    picture.text(
        0.012,
        0.885,
        f"{splits:,} random splits a point, {_rows(record['held_out'])} held out; bands: 95 % confidence for rows "
        "and samples like these",
        fontsize=8.5,
        color="#555555",
    )
    save_picture(picture, path)


def draw_overview(records: list[dict[str, Any]], splits: int, path: Path) -> None:
    """The pair's curves of every table."""
    columns = min(4, len(records))
    rows = -(-len(records) // columns)
    height = 2.55 * rows + 1.55
    picture = figure(max(2.9 * columns + 0.8, 9.5), height, left=0.6, right=0.2, bottom=0.95, top=1.0)
    picture.subplots_adjust(hspace=0.5, wspace=0.25)
    panels = picture.subplots(rows, columns, squeeze=False).ravel()
    for panel, record in zip(panels, records, strict=False):
        _errors(panel, record, bands=False)
        panel.set_title(record["name"], loc="left", fontsize=9.5)
        panel.tick_params(labelsize=8)
    for panel in panels[len(records) :]:
        panel.set_visible(False)
    names = {}
    for record in records:
        for model, style in zip(record["models"][:2], STYLES, strict=False):
            names.setdefault(style["color"], []).append(model["name"])
    for i, (color, each) in enumerate(names.items()):
        label = " or ".join(dict.fromkeys(each))
        picture.text(0.015 + 0.5 * i, 1 - 0.72 / height, f"—  {label}", color=color, fontsize=10, weight="bold")
    crossed = sum(record["crossing"] is not None for record in records)
    picture.text(0.012, 1 - 0.4 / height, "Generative against discriminative: error and training rows", fontsize=13)
    picture.text(
        0.012,
        0.3 / height,
        f"means of {splits:,} random splits; the dashed line marks where the generative model falls behind for good, "
        f"as in {crossed} of {len(records)}; logarithmic axis of rows",
        fontsize=8.5,
        color="#555555",
    )
    save_picture(picture, path)


def _errors(panel: Axes, record: dict[str, Any], *, bands: bool) -> None:
    sizes = np.asarray(record["sizes"])
    models = record["models"] if bands else record["models"][:2]
    for model, style in zip(models, STYLES, strict=False):
        error, half = np.asarray(model["error"]), np.asarray(model["half_width"])
        panel.plot(sizes, error, label=model["name"], marker="o" if len(sizes) == 1 else None, **style)
        if bands and style["linestyle"] == "-":
            panel.fill_between(sizes, error - half, error + half, color=style["color"], alpha=0.13, linewidth=0)
    panel.set_xscale("log")
    shown = [value for model in models for value in model["error"]]
    if bands:
        shown += [
            edge
            for m in models[:2]
            for e, h in zip(m["error"], m["half_width"], strict=True)
            for edge in (e - h, e + h)
        ]
    margin = 0.06 * (max(shown) - min(shown) + 1e-3)
    head = 2 * margin if bands and record["crossing"] is not None else margin  # above the curves for the words
    lowest = max(-margin / 3, min(shown) - margin)  # a line at 0 is seen whole
    panel.set_ylim(lowest, max(shown) + head)
    if record["crossing"] is not None:
        panel.axvline(record["crossing"], color=INK, linestyle="--", linewidth=0.9)
        if bands:
            late = np.log(record["crossing"] / sizes[0]) > 0.6 * np.log(sizes[-1] / sizes[0])
            panel.text(
                record["crossing"],
                0.97,
                f" cross at m = {record['crossing']:,.0f} ",
                transform=panel.get_xaxis_transform(),
                fontsize=8.5,
                va="top",
                ha="right" if late else "left",
            )
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    subs = (1, 1.5, 2, 3, 4, 5, 7) if sizes[-1] < 5 * sizes[0] else (1, 2, 5) if sizes[-1] < 20 * sizes[0] else (1, 3)
    panel.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.xaxis.set_minor_locator(NullLocator())
    plain(panel)


def _least(record: dict[str, Any], what: str) -> float:
    """The least confidence or accuracy of a bin."""
    bins = [model["reliability"] for model in record["models"][:2]]
    known = [
        value for each in bins for value, share in zip(each[what], each["share"], strict=True) if share > LEAST_SHARE
    ]
    return min(known, default=0.5)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
