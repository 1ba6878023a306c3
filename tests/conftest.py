"""Strict JAX for every test: float64 where it is asked for, no silent promotion of dtypes or ranks.

The suite spends its time compiling programs that run once, so they are compiled without LLVM's optimisations, which
saves a quarter of it. What optimisation could break runs in a process of its own, as users run it: see `run_script`.
"""

import os
import subprocess
import sys

OPTIMISED = dict(os.environ)
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def run_script():
    """Run Python code as a user would, with JAX's own defaults, and return the lines that it printed."""

    def run(code):
        script = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=OPTIMISED)
        return script.stdout.splitlines()

    return run
