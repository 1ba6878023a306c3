"""The pictures of `python -m benchmarks efficiency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, PercentFormatter
from scipy.special import ndtr

from benchmarks.efron import Normals
from benchmarks.records import (
    INK,
    MUTED,
    OURS,
    PEER,
    WARM,
    figure,
    plain,
    save_picture,
)

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

COLOURS = (OURS, PEER, WARM)
MARKERS = ("o", "s", "D")


def round_to(value: float) -> int:
    """To two digits."""
    return int(float(f"{value:.2g}"))


def draw_efficiency(record: dict[str, Any], path: Path) -> None:
    """Efron's curves with the simulated points on them, and what is between the two."""
    picture = figure(9.2, 7.2, left=0.95, right=0.3, bottom=0.75, top=1.25)
    upper, lower = picture.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.1, 1), "hspace": 0.13})
    records = record["efron"]
    priors = list(dict.fromkeys(r["prior"] for r in records))
    distances = sorted({r["distance"] for r in records})
    grid = np.linspace(max(0.05, distances[0] - 0.25), distances[-1] + 0.1, 120)
    for i, (prior, colour, marker) in enumerate(zip(priors, COLOURS, MARKERS, strict=False)):
        curve = [Normals(float(distance), prior).efficiency() for distance in grid]
        upper.plot(grid, curve, color=colour, linewidth=1.6)
        label = f"classes {100 * prior:.0f} : {100 * (1 - prior):.0f}"
        upper.plot([], [], color=colour, linewidth=1.6, marker=marker, markersize=5.5, label=label)
        chosen = [r for r in records if r["prior"] == prior]
        x = np.array([r["distance"] for r in chosen])
        found, error, theory = (np.array([r["angle"][name] for r in chosen]) for name in ("ratio", "error", "theory"))
        style: dict[str, Any] = {"fmt": marker, "color": colour, "capsize": 2.5, "elinewidth": 1.3}
        upper.errorbar(x, found, 2 * error, markersize=5.5, **style)
        shift = 0.06 * (i - (len(priors) - 1) / 2)
        lower.errorbar(x + shift, found / theory - 1, 2 * error / theory, markersize=4, **style)
    last = [r for r in records if r["prior"] == priors[0]][-1]
    upper.annotate(
        f"{last['angle']['theory']:.0%}: LDA is as good with {1000 * last['angle']['theory']:.0f} rows\n"
        "as logistic regression with 1,000",
        (last["distance"], last["angle"]["theory"]),
        xytext=(0, 110),
        textcoords="offset points",
        fontsize=9,
        color=INK,
        ha="right",
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 1, "relpos": (1, 0), "shrinkB": 5},
    )
    upper.axhline(1, color=MUTED, linewidth=1)
    upper.text(grid[-1], 1.012, "as good as LDA", fontsize=8.5, color=MUTED, ha="right", va="bottom")
    lower.axhline(0, color=MUTED, linewidth=1)
    upper.set_ylim(0, 1.08)
    upper.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    lower.yaxis.set_major_formatter(FuncFormatter(_signed_percent))
    upper.set_ylabel("efficiency of logistic regression", fontsize=9.5)
    lower.set_ylabel("simulated /\nintegral − 1", fontsize=9)
    picture.align_ylabels([upper, lower])
    lower.set_xticks(distances, [f"{d:g}\n{_percent(float(ndtr(-d / 2)))}" for d in distances])
    lower.set_xlabel("distance Δ between the classes, and the least possible error there at 50 : 50", fontsize=9.5)
    for panel in (upper, lower):
        panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        plain(panel)
    upper.tick_params(axis="x", length=0)
    upper.legend(fontsize=9, frameon=False, loc="lower left", labelspacing=0.35)
    _head(
        picture,
        "Where the classes are normal, logistic regression needs more rows than LDA",
        "Efficiency e: with e · n rows LDA finds the angle of the boundary as well as logistic regression with n.\n"
        f"Lines: Efron's integral (1975). Points: jaxgen's fits of both to {records[0]['replications']} samples of "
        f"{records[0]['rows']:,} rows, ± 2 standard errors.",
    )
    save_picture(picture, path)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def _signed_percent(share: float, _position: Any = None) -> str:
    return f"{100 * share:+g}%".replace("-", "−") if share else "0%"


def _head(picture: Any, title: str, text: str) -> None:
    height = picture.get_figheight()
    picture.text(0.012, 1 - 0.32 / height, title, fontsize=12.5, color=INK, va="center")
    picture.text(0.012, 1 - 0.5 / height, text, fontsize=8.5, color="#555555", va="top", linespacing=1.4)


def draw_misfits(record: dict[str, Any], path: Path) -> None:
    """A panel for each truth: how far both errors are above Bayes' against the training rows, and where they meet."""
    misfits = record["misfits"]
    picture = figure(13, 5.9, left=0.9, right=0.25, bottom=1.15, top=1.5)
    panels = picture.subplots(1, len(misfits), sharey=True)
    for panel, misfit in zip(panels, misfits, strict=True):
        _draw_misfit(panel, misfit)
    panels[0].set_ylabel("error above the Bayes error,\npercentage points (log scale from 0.1 up)", fontsize=9.5)
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, fontsize=9, frameon=False, loc="lower left", ncols=4, bbox_to_anchor=(0.005, 0.0))
    points = [point for misfit in misfits for point in misfit["sizes"]]
    replications, rows = ([point[name] for point in points] for name in ("replications", "rows"))
    overtaken = sum(misfit["overtakes"]["logistic"] is not None for misfit in misfits)
    in_some = "" if overtaken == len(misfits) else f" in {overtaken} of {len(misfits)} cases, by {max(rows):,} rows"
    _head(
        picture,
        f"Where the generative model is wrong, logistic regression overtakes it{in_some}",
        f"Two classes, 50 : 50, ten features. All models are fitted to the same samples, {min(replications)} or more "
        "of each size; bands are ± 2 standard errors.",
    )
    save_picture(picture, path)


def _draw_misfit(panel: Axes, misfit: dict[str, Any]) -> None:
    sizes = [point["rows"] for point in misfit["sizes"]]
    lines = (
        ("generative", OURS, "-", "o", "generative model: LDA, diagonal LDA in the third panel"),
        ("logistic", PEER, "-", "s", "logistic regression, no penalty"),
        ("penalised", PEER, ":", None, "logistic regression, l2 = 1"),
    )
    for rule, colour, style, marker, label in lines:
        mean, error = (np.array([point[rule][name] for point in misfit["sizes"]]) for name in ("mean", "error"))
        mean = mean - misfit["bayes_error"]
        panel.plot(sizes, mean, style, color=colour, marker=marker, markersize=4, linewidth=1.6, label=label)
        if marker:
            panel.fill_between(sizes, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, linewidth=0)
    panel.axhline(0, color=INK, linestyle="--", linewidth=1.1, label="Bayes error: no rule does better")
    bayes, foot = f"Bayes error {misfit['bayes_error']:.1%} ", panel.get_yaxis_transform()
    panel.text(1, -8e-5, bayes, transform=foot, fontsize=8.5, color=INK, ha="right", va="top")
    found = misfit["overtakes"]["logistic"]
    if found is not None and found["crossing"] is not None:
        crossing = found["crossing"]
        level = np.interp(np.log(crossing), np.log(sizes), [p["logistic"]["mean"] for p in misfit["sizes"]])
        meeting = (crossing, float(level) - misfit["bayes_error"])
        panel.plot(*meeting, "o", markersize=10, markerfacecolor="none", markeredgecolor=WARM, zorder=5)
        # The curves fall: there is room above them, and on the right half of the axis more below them.
        right = crossing**2 > sizes[0] * sizes[-1]
        panel.annotate(
            f"errors meet at about {round_to(crossing):,}",
            meeting,
            xytext=(-12, -36) if right else (12, 36),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=9,
            color=WARM,
            arrowprops={
                "arrowstyle": "-",
                "color": WARM,
                "linewidth": 1,
                "shrinkB": 6,
                "relpos": (0.9, 1) if right else (0.1, 0),
            },
        )
    panel.set_xscale("log")
    powers = [10**i for i in range(1, 6) if sizes[0] <= 10**i <= sizes[-1]]
    panel.set_xticks(powers if len(powers) > 1 else sizes)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.set_yscale("symlog", linthresh=1e-3, linscale=0.4)
    panel.set_yticks([0, 1e-3, 3e-3, 1e-2, 3e-2, 0.1])
    panel.set_ylim(-5e-4, 0.25)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
    panel.minorticks_off()
    panel.grid(color="#e4e4e4", linewidth=0.8)
    panel.set_title(f"{misfit['name'][0].upper()}{misfit['name'][1:]}\n", loc="left", fontsize=11)
    panel.text(0, 1.03, misfit["wrong"], transform=panel.transAxes, fontsize=8.5, color="#555555")
    panel.set_xlabel("training rows (log scale)", fontsize=9.5)
    plain(panel)
