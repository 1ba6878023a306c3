"""What a fit takes beside its data, at its peak, in a process of its own."""

import json
import subprocess
import sys

import pytest
from conftest import OPTIMISED

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

SCRIPT = """
import json, re, sys
import jax, jax.numpy as jnp, numpy as np, scipy.sparse
import jaxgen as jg
from jax.experimental import sparse as jsparse

def resident(what):
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(what + r":\\s+(\\d+) kB", file.read()).group(1))

def beside(fit, small):
    fit(*small)  # what a first program loads is not the fit's
    before = resident("VmRSS")
    for _ in range(2):
        fit()
    return resident("VmHWM") - before

rng = np.random.default_rng(0)

def dense(estimator, library):
    x = library.tile(library.asarray(rng.standard_normal((10_000, 128), np.float32)), (150, 1))  # 768 MB
    y = rng.integers(0, 10, len(x))
    return beside(lambda x=x, y=y: jax.block_until_ready(jg.fit(estimator, x, y)), (x[:2000], y[:2000])) / x.nbytes

def sparse(estimator, classes, d):
    n = 100_000
    columns = np.sort(rng.integers(0, d // 50, (n, 50), np.int32) + d // 50 * np.arange(50, dtype=np.int32))
    x = scipy.sparse.csr_array((np.ones(50 * n, np.float32), columns.ravel(), 50 * np.arange(n + 1)), (n, d))
    y = rng.integers(0, classes, n)
    small = scipy.sparse.csr_array(x[:2000, :1000]), y[:2000]
    return beside(lambda x=x, y=y: jax.block_until_ready(jg.fit(estimator, x, y)), small) / (classes * d * 4)

def all_of_sparse(container):
    n, d = 20_000, 100_000  # 8 GB were it dense
    columns = np.sort(rng.integers(0, d, (n, 5), np.int32))
    x = scipy.sparse.csr_array((np.ones(5 * n, np.float32), columns.ravel(), 5 * np.arange(n + 1)), (n, d))
    x, y = container(x), np.arange(n) % 2

    def everything(x=x, y=y):
        c = jg.fit(jg.MultinomialNB(), x, y, num_classes=2)
        return jg.log_posterior(c, x), jg.log_likelihood(c, x), jax.jit(jg.log_posterior)(c, inside(x))

    inside = jsparse.BCOO.from_scipy_sparse if container is same else same
    return beside(lambda: jax.block_until_ready(everything()), ()) / (4 * n * d)

def same(x):
    return x

print(json.dumps(eval(sys.argv[1])))
"""


def run(expression):
    environment = OPTIMISED | {"JAX_PLATFORMS": "cpu"}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, expression], capture_output=True, text=True, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.thorough
def test_a_dense_fit_takes_at_most_a_quarter_of_its_data():
    assert run("dense(jg.QDA(), np)") < 0.25


def test_a_sparse_fit_takes_at_most_a_few_tables():
    assert run("sparse(jg.BernoulliNB(), 2, 12_000_000)") < 7


@pytest.mark.thorough
def test_neither_fit_nor_scores_make_sparse_rows_dense():
    for share in run("[all_of_sparse(c) for c in (same, jg.pad_rows, jsparse.BCSR.from_scipy_sparse)]"):
        assert share < 0.05
