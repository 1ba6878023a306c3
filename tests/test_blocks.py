"""The fold over blocks of rows."""

import dataclasses
import threading
import time
import weakref
from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import of_a_cpu
from scipy.special import log_softmax

import jaxgen as jg
from jaxgen import blocks, chunks, host_arrays, platform, threads
from jaxgen.pytree import pytree
from jaxgen.total import Total


@pytree
@dataclass(frozen=True)
class Sequence:
    """Remembers how many rows it saw and which ones at its ends; its merge is associative and not commutative."""

    rows: jax.Array
    first: jax.Array
    last: jax.Array

    def merge(self, other):
        return Sequence(self.rows + other.rows, self.first, other.last)


def summarise(position, x, labels):
    del position
    return Sequence(jnp.asarray(x.shape[0]), x[0, 0], labels[-1])


pytestmark = pytest.mark.every_platform


@pytest.mark.parametrize("n", [1, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("block_size", [1, 3, 6, 100])
def test_every_row_is_seen_once_and_in_order(n, block_size):
    x = np.arange(n, dtype=np.float64)[:, None]
    total = blocks.fold(summarise, x, jnp.arange(n), block=block_size)
    assert (total.rows, total.first, total.last) == (n, 0, n - 1)


@pytest.mark.parametrize("n", [1, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("block_size", [1, 3, 6, 100])
def test_rows_map_in_blocks_as_they_do_at_once(n, block_size):
    x = np.random.default_rng(0).normal(size=(n, 2))
    for threshold in (x.max(), x.max() - 1e-9):
        rows, flag = blocks.map_rows(lambda x, most=threshold: (2 * x, jnp.any(x > most)), x, block=block_size)
        np.testing.assert_array_equal(rows, 2 * x)
        assert flag == (threshold < x.max())


@pytest.mark.parametrize(("n", "block_size"), [(1, 1), (5, 3), (6, 3), (13, 6), (12, 100)])
def test_every_row_is_summed_once(n, block_size):
    rng = np.random.default_rng(0)
    x, weight = rng.integers(9, size=(n, 2)), rng.integers(1, 9, size=n)
    sums = lambda x, w: (w @ x, jnp.sum(w))  # noqa: E731
    table, total = blocks.sum_rows(sums, jnp.asarray(x), jnp.asarray(weight), block=block_size)
    np.testing.assert_array_equal(table, weight @ x)
    assert total == weight.sum()


@pytest.mark.parametrize("block_size", [1, 3, 5, 6, 100])
def test_a_stretch_is_read_where_it_lies(block_size):
    x = np.random.default_rng(0).normal(size=(13, 2))

    def weighted(position, x):
        return Total.of(jnp.sum(x * (position + jnp.arange(len(x), dtype=jnp.int32)).astype(x.dtype)[:, None]))

    @jax.jit
    def of(first):
        within = blocks.Stretch(first, 6)
        total = blocks.fold(weighted, jnp.asarray(x), block=block_size, within=within)
        return total.value, blocks.map_rows(lambda x: (2 * x, jnp.any(x > 1.2)), x, block=block_size, within=within)

    for first in (0, 4, 7):
        mine = x[first : first + 6]
        total, (rows, flag) = of(np.int32(first))
        np.testing.assert_allclose(total, (mine * np.arange(6)[:, None]).sum(), rtol=1e-12)
        np.testing.assert_array_equal(rows, 2 * mine)
        assert flag == (mine > 1.2).any()


def test_a_fold_knows_the_position_of_each_block():
    x = jnp.arange(10.0)[:, None]
    total = blocks.fold(lambda position, x: Total.of(position.astype(x.dtype) + x.sum()), x, block=4)
    assert total.value == x.sum() + 0 + 2 + 6


def test_under_a_trace_both_platforms_are_compiled_and_an_eager_call_knows_its_own():
    seen = []

    def record(x, tuning):
        seen.append(tuning)
        return x

    jax.jit(lambda x: platform.run(record, x, tuning=platform.tuning_of(x)))(jnp.ones(2))
    assert set(seen) == {platform.CPU, platform.ACCELERATOR}
    own = platform.CPU if jax.default_backend() == "cpu" else platform.ACCELERATOR
    assert platform.tuning_of(np.ones(2), jnp.ones(2)) == own
    tuning = dataclasses.replace(platform.CPU, class_sum="matmul")
    with platform.override(tuning):
        assert platform.tuning_of(jnp.ones(2)) == tuning
    assert platform.tuning_of(jnp.ones(2)) == own


def test_choices_that_there_are_not_are_refused():
    for tuning, error, message in (
        ("cpu", TypeError, "tuning must be a Tuning.*found 'cpu'"),
        (dataclasses.replace(platform.CPU, class_sum="hash"), ValueError, "'scatter' or 'matmul'; found 'hash'"),
        (dataclasses.replace(platform.CPU, class_sum=2), ValueError, "'scatter' or 'matmul'; found 2"),
        (
            dataclasses.replace(platform.CPU, entries=0),
            ValueError,
            "Tuning.entries must be a whole number, 1 or more; f",
        ),
        (dataclasses.replace(platform.CPU, window=2.5), ValueError, "Tuning.window .* found 2.5"),
        (
            dataclasses.replace(platform.CPU, many_rows=0.5),
            ValueError,
            "Tuning.many_rows must be a number, 1 or more; ",
        ),
        (dataclasses.replace(platform.CPU, least_chunk=-1), ValueError, "Tuning.least_chunk .*, 0 or more; found -1"),
        (dataclasses.replace(platform.CPU, strip="a"), ValueError, "Tuning.strip .*, 1 or more or None; found 'a'"),
    ):
        with pytest.raises(error, match=message), platform.override(tuning):
            pass


@of_a_cpu
@pytest.mark.parametrize("n", [1, 5, 16, 33, 100, 1001, 1024])
@pytest.mark.parametrize("piece", [16, 2000])
def test_chunks_cover_every_row_once(monkeypatch, n, piece):
    monkeypatch.setattr(chunks, "_FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(chunks, "_PIECE", piece)
    values = np.arange(float(n))[:, None]
    for x in (values, jnp.asarray(values), jax.device_put(values, jax.devices()[0])):
        rows = []
        for chunk in chunks.split(x, jnp.arange(n)):
            np.testing.assert_array_equal(chunk.x[:, 0], chunk.labels)
            np.testing.assert_array_equal(chunk.x, values[chunk.place])
            assert host_arrays.placement(chunk.x) == host_arrays.placement(x)
            rows += np.asarray(chunk.labels)[int(chunk.skip) :].tolist()
        assert rows == list(range(n))
        assert len({chunk.x.shape for chunk in chunks.split(x)}) == 1


@of_a_cpu
def test_chunks_of_an_array_of_jax_are_not_copied(monkeypatch):
    monkeypatch.setattr(chunks, "_FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    x = jnp.zeros((1003, 7), jnp.float32)
    for chunk in chunks.split(x):
        assert np.asarray(chunk.x).ctypes.data == x.unsafe_buffer_pointer() + chunk.place.start * 28


def behind_boundary(x, offset):
    """A copy of x that begins so many bytes behind a boundary."""
    buffer = host_arrays.aligned(x.nbytes + offset, np.uint8)
    copy = buffer[offset:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@of_a_cpu
@pytest.mark.parametrize("offset", [0, 4, 16, 48])
def test_chunks_of_an_array_of_numpy_are_read_where_they_lie(monkeypatch, offset):
    monkeypatch.setattr(chunks, "_FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(chunks, "_PIECE", 4000)
    values = np.arange(1003 * 5, dtype=np.float32).reshape(1003, 5)
    x, covered = behind_boundary(values, offset), []
    parts = chunks.split(x)
    for number, chunk in enumerate(parts):
        assert np.shares_memory(chunk.x, x)
        # Where JAX copies none but the first, and the last of an array that lies otherwise than NumPy's usually do.
        copied = (0,) if offset == 16 else (0, len(parts) - 1)
        assert chunk.x.ctypes.data % host_arrays.BOUNDARY == 0 or number in copied
        covered += chunk.x[int(chunk.skip) :, 0].tolist()
    np.testing.assert_array_equal(covered, values[:, 0])


def test_chunks_are_of_one_shape_wherever_an_array_begins(monkeypatch):
    monkeypatch.setattr(chunks, "_FEWEST_ELEMENTS", 1)
    values = np.arange(1003 * 5, dtype=np.float32).reshape(1003, 5)
    starts = [behind_boundary(values, 4 * words) for words in range(16)]
    assert len({chunk.x.shape for x in starts for chunk in chunks.split(x)}) == 1


@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_scores_of_many_rows_equal_those_of_few(shared):
    import jaxgen as jg

    x = np.random.default_rng(0).normal(size=(400_000, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    c = jg.fit(jg.GDA("full", shared=shared), x, y)
    posterior = jg.log_posterior(c, x)
    for same in (jnp.asarray(x), behind_boundary(x, 0), behind_boundary(x, 16)):
        np.testing.assert_allclose(jg.log_posterior(c, same), posterior, atol=1e-5)
        np.testing.assert_array_equal(jg.predict(c, same), np.argmax(posterior, axis=1))
    for start in (0, 87_000, 299_000):
        few = jg.log_posterior(c, x[start : start + 1000])
        np.testing.assert_allclose(posterior[start : start + 1000], few, atol=1e-5)


@of_a_cpu
def test_scores_that_would_be_new_pages_are_made_in_pieces(monkeypatch):
    import jaxgen as jg

    rng = np.random.default_rng(0)
    x, weights, bias = (rng.normal(size=size).astype(np.float32) for size in ((400_000, 3), (3, 4), 4))
    c, exact = jg.LinearClassifier(weights, bias), log_softmax(x @ weights.astype(float) + bias, axis=1)
    split, pieces = chunks.split, []

    def counted(*args, **options):
        pieces.append(split(*args, **options))
        return pieces[-1]

    monkeypatch.setattr(chunks, "split", counted)
    np.testing.assert_allclose(jg.log_posterior(c, jnp.asarray(x)), exact, atol=1e-5)
    assert not pieces
    monkeypatch.setattr(chunks, "KEPT", 2**22)
    monkeypatch.setattr(chunks, "_PIECE", 2**20)
    np.testing.assert_allclose(jg.log_posterior(c, jnp.asarray(x)), exact, atol=1e-5)
    assert len(pieces[0]) > 6  # whose scores are a megabyte each


def test_a_caller_works_beside_the_threads_of_the_pool(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    together = threading.Barrier(2, timeout=60)

    def who(item):
        together.wait()
        return item, threading.get_ident()

    results = threads.over(who, range(6))
    assert [item for item, _ in results] == list(range(6))
    workers = {worker for _, worker in results}
    assert len(workers) == 2
    assert threading.get_ident() in workers


def test_what_a_context_manager_changed_holds_for_every_thread(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)

    def kind(value):
        time.sleep(0.01)  # so long that a thread of the pool, if it took any, would take some
        return jnp.asarray(value).dtype

    with jax.enable_x64(False):
        kinds = threads.over(kind, np.arange(20.0))
    assert set(kinds) == {np.dtype(np.float32)}


def test_jit_turned_off_leaves_nothing_for_another_mode():
    x, y = np.random.default_rng(0).normal(size=(7, 2)), np.arange(7) % 3
    with jax.enable_x64(False), jax.disable_jit():
        jg.GaussianNB().statistics(x, y)
    assert jg.GaussianNB().statistics(x, y).scatter.dtype == np.float64


@pytest.mark.parametrize(
    "estimator",
    [jg.GaussianNB(), *(pytest.param(e, marks=pytest.mark.thorough) for e in (jg.LDA(), jg.QDA()))],
    ids=["GaussianNB", "LDA", "QDA"],
)
def test_jit_turned_off_changes_no_fit(estimator):
    x, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 3
    with jax.disable_jit():
        apart = jg.fit(estimator, x, y)
    chex.assert_trees_all_close(apart, jg.fit(estimator, x, y), rtol=1e-12, atol=1e-12)


def test_the_error_of_an_item_reaches_the_caller_and_ends_the_work(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    done = []

    def fail_at_three(item):
        if item == 3:
            raise ValueError("item 3")
        time.sleep(0.001)
        done.append(item)

    with pytest.raises(ValueError, match="item 3"):
        threads.over(fail_at_three, range(1_000))
    assert len(done) < 999


def test_an_interrupt_of_the_caller_is_not_kept_for_later(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    caller, begun, done = threading.get_ident(), threading.Event(), []

    def interrupted(item):
        if threading.get_ident() != caller:
            begun.set()
            time.sleep(0.5)
            return
        begun.wait(60)  # so that the caller waits for an item of the other thread, and takes others meanwhile
        done.append(item)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.over(interrupted, range(100))
    assert len(done) == 1


def test_results_are_not_kept_once_they_are_taken(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    alive = weakref.WeakSet()

    class Result:
        def __init__(self):
            alive.add(self)

        def block_until_ready(self):
            return self

    most = 0
    for _ in chunks.run(lambda *_: Result(), [chunks.Chunk(None, None, None, slice(0))] * 100):
        time.sleep(0.001)
        most = len(alive)
    assert most <= 2


@of_a_cpu
@pytest.mark.parametrize(
    ("rows", "features", "num_classes"), [(75_003, 20, 3), (20_003, 60, 10), (75_003, 20, 40), (6_003, 200, 3)]
)
def test_cores_side_by_side_read_blocks_that_xla_leaves_to_one_of_them(monkeypatch, rows, features, num_classes):
    fold, used = blocks.fold, []
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(
        blocks, "fold", lambda *data, block, within: used.append(block) or fold(*data, block=block, within=within)
    )
    x, y = np.random.default_rng(0).normal(size=(rows, features)).astype(np.float32), np.arange(rows) % num_classes
    eager = jg.GaussianNB().statistics(x, y, num_classes=num_classes)
    jax.jit(lambda x: jg.GaussianNB().statistics(x, y, num_classes=num_classes)).lower(x)
    side_by_side, (alone, *_) = used[0], used[1:]
    if num_classes > 10 or features > 100:  # a merge costs more, or a block would be of too few rows
        assert side_by_side == alone
    else:  # columns up to a multiple of eight, of four bytes
        assert side_by_side * -(-features // 8) * 32 <= 250_000 < alone * features * 4
    of_class = [x[y == k].astype(float) for k in range(num_classes)]
    np.testing.assert_allclose(eager.mean.value, [mine.mean(axis=0) for mine in of_class], atol=1e-6)
    np.testing.assert_allclose(eager.scatter, [len(mine) * mine.var(axis=0) for mine in of_class], rtol=1e-5)


def test_a_block_has_a_row_for_each_of_many_classes(monkeypatch):
    import jaxgen as jg

    rng, fold, used = np.random.default_rng(0), blocks.fold, []
    x, y = rng.normal(size=(1500, 2)), rng.integers(0, 900, 1500)
    monkeypatch.setattr(
        blocks, "fold", lambda *data, block, within: used.append(block) or fold(*data, block=block, within=within)
    )
    with platform.override(dataclasses.replace(platform.CPU, fold_elements=16)):
        statistics = jg.GaussianNB().statistics(x, y, num_classes=1000)
    assert used == [1000]
    count = np.bincount(y, minlength=1000)[:, None]
    mean = np.stack([np.bincount(y, column, minlength=1000) for column in x.T], axis=1) / np.maximum(count, 1)
    squares = np.stack([np.bincount(y, column, minlength=1000) for column in (x - mean[y]).T ** 2], axis=1)
    np.testing.assert_allclose(statistics.class_weight.value, count[:, 0])
    np.testing.assert_allclose(statistics.mean.value, mean, atol=1e-13)
    np.testing.assert_allclose(statistics.scatter, squares, atol=1e-12)
