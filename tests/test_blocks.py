"""The fold over blocks of rows."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgen import blocks


@partial(jax.tree_util.register_dataclass, data_fields=("rows", "first", "last"), meta_fields=())
@dataclass(frozen=True)
class Sequence:
    """Remembers how many rows it saw and which ones at its ends; its merge is associative and not commutative."""

    rows: jax.Array
    first: jax.Array
    last: jax.Array

    def merge(self, other):
        return Sequence(self.rows + other.rows, self.first, other.last)


def summarise(x, labels):
    return Sequence(jnp.asarray(x.shape[0]), x[0, 0], labels[-1])


@pytest.mark.parametrize("n", [1, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("block_size", [1, 3, 6, 100])
def test_every_row_is_seen_once_and_in_order(n, block_size):
    x = np.arange(n, dtype=np.float64)[:, None]
    total = blocks.fold(summarise, x, np.arange(n), width=1, block_size=block_size)
    assert (total.rows, total.first, total.last) == (n, 0, n - 1)


@pytest.mark.parametrize("n", [1, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("block_size", [1, 3, 6, 100])
def test_rows_map_in_blocks_as_they_do_at_once(n, block_size):
    x = np.random.default_rng(0).normal(size=(n, 2))
    rows, sums = blocks.map_rows(lambda x: (2 * x, jnp.sum(x, axis=1)), x, width=2, block_size=block_size)
    np.testing.assert_array_equal(rows, 2 * x)
    np.testing.assert_allclose(sums, x.sum(axis=1))


def test_the_platform_chooses_the_block_size():
    sizes = []

    def record(x):
        sizes.append(x.shape[0])
        return x

    x = jnp.ones((2**19, 1))
    jax.jit(lambda x: blocks.map_rows(record, x, width=1))(x)
    assert set(sizes) == {2**18, 2**19}  # a CPU's cache, and an accelerator's memory
    sizes.clear()
    blocks.map_rows(record, x, width=2**20)
    assert 256 in sizes  # wide rows still come in numbers


def test_scores_of_many_rows_equal_those_of_few():
    import jaxgen as jg

    x = np.random.default_rng(0).normal(size=(300_000, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    c = jg.fit(jg.QDA(), x, y)
    posterior = jg.log_posterior(c, x)
    for start in (0, 87_000, 299_000):
        few = jg.log_posterior(c, x[start : start + 1000])
        np.testing.assert_allclose(posterior[start : start + 1000], few, atol=1e-5)
