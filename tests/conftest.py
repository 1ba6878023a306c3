"""Strict JAX for every test: float64 where it is asked for, no silent promotion of dtypes or ranks.

The suite spends its time compiling programs that run once, so on a CPU they are compiled without optimisations, which
halves it. What optimisation could break runs in a process of its own, as users run it: see `run_script`. Where JAX sees
an accelerator, all that is not of a CPU by its nature runs there. BLAS has one thread: several get in each other's way
where two workers have two cores, and a fit of scikit-learn's then takes 6 s in place of 0.3.
"""

import gc
import os
import subprocess
import sys

FAST = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
SINGLE = {"OMP_NUM_THREADS": "1"}
given = os.environ.get("XLA_FLAGS", "").replace(FAST, "").strip()
OPTIMISED = {name: value for name, value in os.environ.items() if name not in SINGLE} | {"XLA_FLAGS": given}
quick = OPTIMISED | {"XLA_FLAGS": f"{given} {FAST}"}
# An XLA that does not know a flag ends the process. The workers of pytest-xdist inherit what is found out here.
if FAST in os.environ.get("XLA_FLAGS", "") or (
    subprocess.run(
        [sys.executable, "-c", "import jax; print(jax.default_backend())"], env=quick, capture_output=True, text=True
    ).stdout
    == "cpu\n"
):
    os.environ.update(quick)
os.environ.update(SINGLE)

import jax  # noqa: E402
import pytest  # noqa: E402

from jaxgen import platform  # noqa: E402

# Traces are many objects, which a collection would look at again and again: without, a tenth less time. Where a line of
# a program comes from is not looked at here either.
gc.disable()
jax.config.update("jax_traceback_in_locations_limit", 0)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_finish():
    """Look no more at what was imported, whenever the garbage of a module is collected."""
    gc.freeze()


of_a_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="is of a CPU by its nature")


@pytest.fixture
def as_on_an_accelerator(monkeypatch):
    """What lies here is taken for what lies on an accelerator, and treated as there."""
    found = platform.platform_of
    monkeypatch.setattr(platform, "platform_of", lambda *trees: found(*trees) and "elsewhere")
    with platform.override(platform.ACCELERATOR):
        yield


@pytest.fixture
def run_script():
    """Run Python code as a user would, with JAX's own defaults, and return the lines that it printed.

    Not `optimised`, it compiles as the tests here do, in half the time. With `cpus` it sees so many CPU devices alone.
    """

    def run(code, *, optimised=True, cpus=None):
        environment = OPTIMISED if optimised else OPTIMISED | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
        if cpus is not None:
            environment = environment | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(cpus)}
        script = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        return script.stdout.splitlines()

    return run


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Let go of a module's programs: each maps memory dozens of times, and Linux grants a process 65,530 mappings."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def one_platform(request):
    """Trace this platform's form of every program alone, half the work, but where a test is `every_platform`."""
    if request.node.get_closest_marker("every_platform"):
        yield
    else:
        with platform.override(platform.CPU if jax.default_backend() == "cpu" else platform.ACCELERATOR):
            yield
