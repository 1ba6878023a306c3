"""`python -m benchmarks large`: naive Bayes on more text than memory holds, in chunks whose statistics merge."""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import jaxgen as jg
from benchmarks.records import describe, save_json, wide_console
from benchmarks.synthetic import TextModel, bayes_error
from benchmarks.timing import environment

if TYPE_CHECKING:
    from pathlib import Path

HELD_OUT = 20_000


def run(out: Path, documents: int, words: int, chunk: int, classes: int) -> None:
    """Generate, count and merge chunk by chunk; then estimate, and score documents that were held out."""
    console = wide_console(100)
    started = time.perf_counter()
    model = TextModel.make(words, classes)
    held_out_x, held_out_y = model.sample(min(HELD_OUT, documents), seed=2)
    generating, fitting = time.perf_counter() - started, []
    before = peak_bytes()
    estimator, nonzeros = jg.MultinomialNB(), 0
    statistics: Any = None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("documents", total=documents)
        started = time.perf_counter()
        for x, y in model.chunks(documents, chunk):
            made = time.perf_counter()
            part = estimator.statistics(x, y, num_classes=classes)
            statistics = jax.block_until_ready(part if statistics is None else jg.merge(statistics, part))
            fitted = time.perf_counter()
            generating += made - started
            fitting.append(fitted - made)
            nonzeros += int(x.nnz)
            progress.advance(task, x.shape[0])
            started = time.perf_counter()
    started = time.perf_counter()
    classifier = jax.block_until_ready(jg.estimate(estimator, statistics))
    fitting.append(time.perf_counter() - started)
    total = sum(fitting)
    record: dict[str, Any] = {
        "environment": environment(),
        "documents": documents,
        "words": words,
        "chunk": chunk,
        "classes": classes,
        "nonzeros": nonzeros,
        "generating_seconds": generating,
        "fitting_seconds": total,
        "chunk_seconds": fitting,
        "documents_per_second": documents / total,
        "nonzeros_per_second": nonzeros / total,
        "peak_bytes": peak_bytes(),
        "peak_bytes_before_the_fit": before,
        "accuracy": float(np.mean(np.asarray(jg.predict(classifier, held_out_x)) == held_out_y)),
        "best_accuracy": 1 - bayes_error(model.classifier, held_out_x),
    }
    save_json(record, out / "large.json")
    console.print(summary(record) + "\n" + describe(record["environment"]), highlight=False)
    console.print(f"Written to {out}: large.json", highlight=False)


def summary(record: dict[str, Any]) -> str:
    """The run in a few words."""
    return (
        f"Multinomial naive Bayes on {record['documents']:,} documents × {record['words']:,} words "
        f"({record['nonzeros']:,} nonzeros, K = {record['classes']}), in chunks of {record['chunk']:,} documents: "
        f"fitted in {record['fitting_seconds']:.1f} s ({record['documents_per_second']:,.0f} documents/s, "
        f"{record['nonzeros_per_second'] / 1e6:.3g} million nonzeros/s), generated in "
        f"{record['generating_seconds']:.0f} s; peak memory of the process {record['peak_bytes'] / 2**30:.2f} GiB. "
        f"Accuracy on held-out documents {record['accuracy']:.3f}, of the true classifier "
        f"{record['best_accuracy']:.3f}."
    )


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in KiB
