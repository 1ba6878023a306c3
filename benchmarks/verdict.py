"""What learning curves say: who wins at each end, and how many tables show the two regimes of Ng & Jordan (2002)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

SIGNIFICANT = 0.05
# By who wins with the fewest rows, and with the most; None where the difference may be chance.
REGIMES = {
    ("generative", "discriminative"): "generative first, discriminative in the end: both regimes",
    ("generative", None): "generative first, then no clear difference",
    (None, "discriminative"): "no clear difference first, discriminative in the end",
    ("generative", "generative"): "generative throughout",
    ("discriminative", "discriminative"): "discriminative throughout",
    (None, "generative"): "no clear difference first, generative in the end",
    ("discriminative", None): "discriminative first, then no clear difference",
    ("discriminative", "generative"): "the reverse, discriminative first and generative in the end",
    (None, None): "no clear difference at either end",
}


def winner(difference: float, p: float) -> str | None:
    """Who has the smaller error, where the mean difference is significant."""
    if p >= SIGNIFICANT:
        return None
    return "generative" if difference < 0 else "discriminative"


def crossing(sizes: list[int], differences: list[float]) -> float | None:
    """Where the generative model falls behind for good, between two sizes by the log of m; None where it does not."""
    for i in range(len(sizes) - 1, 0, -1) if differences[-1] > 0 else ():
        before, after = differences[i - 1], differences[i]
        if before <= 0 < after:
            share = before / (before - after)
            return float(np.exp(np.log(sizes[i - 1]) + share * np.log(sizes[i] / sizes[i - 1])))
    return None


def crosses_at(record: dict[str, Any]) -> str:
    """Where the generative model falls behind for good, in a table; – where it does not."""
    if record["crossing"] is not None:
        return f"{record['crossing']:,.0f}"
    sizes, (generative, discriminative) = record["sizes"], (model["error"] for model in record["models"][:2])
    return f"< {sizes[0]:,}" if np.isfinite(_behind(sizes, generative, discriminative)) else "–"


def of_tables(records: list[dict[str, Any]]) -> str:
    """How many tables show the two regimes, and what the others do, in sentences."""
    counts = Counter((each["winner"][0], each["winner"][-1]) for each in records)
    both = counts[next(iter(REGIMES))]
    crossed = sum(each["crossing"] is not None for each in records)
    throughout = sum(crosses_at(each).startswith("<") for each in records)
    throughout = f", and is behind at every size in {throughout}" if throughout else ""
    found = "; ".join(f"{REGIMES[pair]} {count}" for pair, count in counts.most_common())
    return (
        f"Of {len(records)} table{'s' * (len(records) > 1)}, {both or 'none'} show{'s' * (both < 2)} both regimes "
        f"beyond doubt: {found}. By the mean curves the generative model falls behind for good in {crossed or 'none'}"
        f"{throughout}."
    )


def of_penalty(records: list[dict[str, Any]]) -> str:
    """What the usual penalty does for logistic regression, in a sentence; nothing where the pair stood alone."""
    if any(len(each["models"]) < 3 for each in records):
        return ""
    worse = better = earlier = 0
    for each in records:
        generative, plain, penalised = (model["error"] for model in each["models"][:3])
        worse += penalised[0] > plain[0]
        better += penalised[-1] < plain[-1]
        earlier += _behind(each["sizes"], generative, penalised) < _behind(each["sizes"], generative, plain)
    return (
        f" With l2 = 1 its mean error is higher at the smallest m in {worse} of {len(records)}, and lower at the "
        f"largest in {better}; it overtakes the generative model for good at fewer rows in {earlier}."
    )


def _behind(sizes: list[int], generative: list[float], other: list[float]) -> float:
    """From which m on the generative model is behind for good; infinity where it never is."""
    differences = [a - b for a, b in zip(generative, other, strict=True)]
    if min(differences) > 0:
        return float(sizes[0])
    return crossing(sizes, differences) or np.inf
