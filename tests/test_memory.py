"""What a fit takes beside its data, at its peak, in a process of its own."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys, threading, time
import jax, numpy as np, scipy.sparse
import jaxgen as jg

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def peak(fit, small):
    fit(*small)  # what a first program loads is not the fit's
    before = resident()
    fit()  # compiles
    highest, done = [0], threading.Event()
    def watch():
        while not done.is_set():
            highest[0] = max(highest[0], resident())
            time.sleep(0.0005)
    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(3):
        fit()
    done.set()
    thread.join()
    return highest[0] - before

rng = np.random.default_rng(0)
def dense(estimator, form):
    x = form(np.tile(rng.standard_normal((10_000, 128), np.float32), (150, 1)))  # 768 MB
    y = rng.integers(0, 10, len(x))
    return peak(lambda x=x, y=y: jax.block_until_ready(jg.fit(estimator, x, y)), (x[:2000], y[:2000])) / x.nbytes

def sparse(estimator):
    n, d, classes = 200_000, 3_000_000, 10
    columns = rng.integers(0, d, (n, 50), np.int32).ravel()
    x = scipy.sparse.csr_array((np.ones(50 * n, np.float32), columns, 50 * np.arange(n + 1, dtype=np.int32)), (n, d))
    x.sum_duplicates()
    x.data[:] = 1
    y = rng.integers(0, classes, n)
    small = scipy.sparse.csr_array(x[:2000, :1000]), y[:2000]
    beside = peak(lambda x=x, y=y: jax.block_until_ready(jg.fit(estimator, x, y)), small)
    return beside / (classes * d * 4)

print(json.dumps(eval(sys.argv[1])))
"""


def run(expression):
    result = subprocess.run([sys.executable, "-c", SCRIPT, expression], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@needs_proc
@pytest.mark.parametrize(
    ("estimator", "form"),
    [("GaussianNB", "np.asarray"), ("LDA", "jax.device_put"), ("QDA", "np.asarray")],
)
def test_a_dense_fit_takes_at_most_a_quarter_of_its_data(estimator, form):
    assert run(f"dense(jg.{estimator}(), {form})") < 0.25


@needs_proc
def test_a_sparse_fit_takes_at_most_a_few_tables():
    assert run("sparse(jg.BernoulliNB())") < 7
