"""Cases of `throughput` in a new Python: all that it takes, or its first fit alone; with and without the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits

import jaxgen as jg
from benchmarks import logistic_jobs
from benchmarks.peers import SKLEARN
from benchmarks.timing import Clocked
from benchmarks.workloads import Job, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Script:
    """What a new Python does with x and y that it has loaded.

    Attributes:
        setup: imports, and what is fitted.
        fit: an expression, the fitted model.
        answer: another, of `model`: the numbers to be compared.
    """

    setup: str
    fit: str
    answer: str


_SCRIPT = """
import sys
import time
import numpy as np
data = np.load(sys.argv[1])
x, y = data["x"], data["y"]
{setup}
start = time.perf_counter()
model = {fit}
print(time.perf_counter() - start)
print(*np.asarray({answer}).ravel().tolist())
"""
_SETUP = """
import jax
import jaxgen as jg
if len(sys.argv) > 2:
    jg.enable_compilation_cache(sys.argv[2])
"""

LDA = (
    Script(_SETUP, "jax.block_until_ready(jg.fit(jg.LDA(), x, y))", "model.density.mean"),
    Script(
        "from sklearn.discriminant_analysis import LinearDiscriminantAnalysis",
        'LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)',
        "model.means_",
    ),
)
LOGISTIC = (
    Script(
        _SETUP + "estimator = jg.LogisticRegression(l2=1.0)",
        "jax.block_until_ready(jg.fit(estimator, x, y))",
        "jg.log_posterior(model, x[:50])",
    ),
    Script(
        "from sklearn.linear_model import LogisticRegression",
        "LogisticRegression(C=1.0, max_iter=1_000).fit(x, y)",
        "model.predict_log_proba(x[:50])",
    ),
)


@cache
def _digits(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    del sizes  # they are what they are
    bunch: Any = load_digits()
    return bunch.data.astype(np.float32), bunch.target.astype(np.int32)


def _rows(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    return logistic_jobs.rows(sizes.rows // 2, sizes.features // 2)


def new_process(
    sizes: Sizes,
    scripts: tuple[Script, Script],
    data: Callable[[Sizes], tuple[np.ndarray, np.ndarray]],
    *,
    cached: bool,
    first_fit: bool = False,
) -> Job:
    """A new Python on each side, which loads x and y that were saved, fits, and prints the numbers to be compared.

    Args:
        sizes: of the data.
        scripts: jaxgen's and scikit-learn's.
        data: x and y of such sizes.
        cached: whether compiled programs are there, of a process before.
        first_fit: whether the fit alone is timed, by the process itself; else all that it takes, from outside.
    """
    # Lives as long as the job, whose calls hold it, and is removed with it.
    folder = tempfile.TemporaryDirectory(prefix="jaxgen-benchmark-", ignore_cleanup_errors=True)
    path = Path(folder.name) / "data.npz"
    x, y = data(sizes)
    np.savez(path, x=x, y=y)
    ours, theirs = scripts
    arguments = [str(path), *([str(Path(folder.name) / "cache")] if cached else [])]

    def call(_folder: Any = folder) -> Clocked | np.ndarray:
        return _python(ours, arguments, clocked=first_fit)

    if cached:
        call()
    return Job(
        sizes={"rows": x.shape[0], "features": x.shape[1], "classes": int(y.max()) + 1},
        ours=call,
        others={SKLEARN: partial(_python, theirs, [str(path)], clocked=first_fit)},
        difference=lambda a, b: float(np.max(np.abs(_numbers(a) - _numbers(b)))),
        compiles=False,
    )


def _numbers(answer: Clocked | np.ndarray) -> np.ndarray:
    return answer.result if isinstance(answer, Clocked) else answer


def _python(script: Script, arguments: list[str], *, clocked: bool) -> Clocked | np.ndarray:
    """What a new Python prints, with this process's packages and nothing of its JAX cache."""
    package = str(Path(jg.__file__).parent.parent)
    # Byte code is kept, as that of an installed package is: without, 0.2 of the 0.3 s that jaxgen takes beside JAX.
    other = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in other}
    path = os.pathsep.join(filter(None, [package, inherited.get("PYTHONPATH")]))
    # An accelerator's memory is this process's already; the child takes what it needs, not three quarters of it.
    environment = inherited | {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    code = _SCRIPT.format(setup=script.setup, fit=script.fit, answer=script.answer)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    took, answer = done.stdout.splitlines()
    numbers = np.array(answer.split(), float)
    return Clocked(numbers, float(took)) if clocked else numbers


def _both(name: str, targets: tuple[float | None, float | None], tolerance: float, **how: Any) -> list[Any]:
    """Without and with the cache."""
    return [
        (f"{name}{', cached' * cached}", targets[cached], tolerance, partial(new_process, cached=cached, **how))
        for cached in (False, True)
    ]


CASES = [
    *_both("new process, LDA on digits", (0.8, 1), 1e-3, scripts=LDA, data=_digits),
    *_both("new process, logistic", (None, None), 0.05, scripts=LOGISTIC, data=_rows),
    *_both("first fit, logistic", (None, None), 0.05, scripts=LOGISTIC, data=_rows, first_fit=True),
]
