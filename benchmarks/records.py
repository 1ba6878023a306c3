"""What an experiment leaves behind: a console wide enough for its tables, JSON, and pictures in one style."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

matplotlib.rcParams["text.parse_math"] = False  # a name with two dollars in it is no formula
INK, MUTED, OURS, PEER, WARM = "#222222", "#8a8a8a", "#0b6e8f", "#c8641b", "#b3261e"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Go on in silence where a reader has seen enough, such as head: what is measured is still written to files."""
        self.quiet = True
        silence()


def silence() -> None:
    """Let go of a closed pipe, into which Python would write the rest of the output at its end, with an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wide_console(width: int) -> Console:
    """A console at least this wide, also where the output is a file."""
    console = _Console()
    console.width = max(console.width, width)
    return console


def save_json(record: dict[str, Any], path: Path) -> None:
    """Write a record; its folder is made where it is missing. JSON has no NaN and no infinity: they become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_finite(record), indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure(width: float, height: float, *, left: float, right: float, bottom: float, top: float) -> Figure:
    """A figure and its margins, all in inches, apart from pyplot's state."""
    picture = Figure(figsize=(width, height), dpi=150, facecolor="white")
    FigureCanvasAgg(picture)
    picture.subplots_adjust(
        left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height, wspace=0.06
    )
    return picture


def plain(axes: Axes) -> None:
    """Nothing but what carries meaning: no frame, quiet ticks."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(MUTED)
    axes.tick_params(colors=INK, which="both", labelsize=9)
    axes.set_axisbelow(True)


def save_picture(picture: Figure, path: Path) -> None:
    """Write a PNG; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path)


def run_of(record: dict[str, Any]) -> dict[str, Any]:
    """When, of which commit and on how quick a machine what is in a record was measured, as far as it says so."""
    about = {key: record["environment"][key] for key in ("date", "commit") if key in record["environment"]}
    return {**about, "rates": record["rates"]}


def describe(environment: dict[str, str]) -> str:
    """Device and versions in one line."""
    return ", ".join(f"{key} {value}" for key, value in environment.items())
