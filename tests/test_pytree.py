"""Dataclasses as pytrees: the children, what is static, and that no class is taken for another."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

import jaxgen as jg
from jaxgen.pytree import STATIC, pytree


@pytree
@dataclasses.dataclass(frozen=True)
class Weighted:
    name: str = dataclasses.field(metadata=STATIC)
    value: jax.Array
    weight: jax.Array | float = 1.0


def test_fields_are_children_and_static_ones_are_part_of_the_type():
    node = Weighted("a", jnp.ones(2), 3.0)
    leaves, structure = jax.tree.flatten(node)
    assert leaves[0] is node.value
    assert leaves[1:] == [3.0]
    assert jax.tree.unflatten(structure, leaves) == node
    assert jax.tree.structure(Weighted("b", jnp.ones(2), 3.0)) != structure
    assert [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(node)] == [
        ".value",
        ".weight",
    ]
    doubled = jax.jit(lambda node: dataclasses.replace(node, value=2 * node.value))(node)
    assert doubled.name == "a"
    assert doubled.value.tolist() == [2.0, 2.0]


def test_no_class_is_run_by_the_program_of_another():
    """A fifth of these classes was, each as `jax.tree_util.register_dataclass` would register it (jaxlib 0.10.2)."""
    number = jax.jit(lambda node: node.value * float(type(node).__name__[1:]))
    for i in range(60):
        cls = pytree(dataclasses.make_dataclass(f"C{i}", [("value", float)], frozen=True))
        assert number(cls(1.0)) == i


ESTIMATORS = [
    jg.MultinomialNB(), jg.ComplementNB(), jg.BernoulliNB(), jg.PoissonNB(), jg.CategoricalNB(num_categories=2),
    jg.LDA(), jg.GaussianNB(), jg.LogisticRegression(),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["estimators", "densities"])
def test_no_two_families_have_one_structure(kind):
    table = jnp.zeros((2, 3))
    densities = [
        jg.Multinomial(table), jg.Poisson(table), jg.Bernoulli(table, table), jg.NegativeBinomial(table, table),
        jg.DirichletMultinomial(table), jg.DiagonalGaussian(table, table), jg.Categorical(table, (2,)),
    ]  # fmt: skip
    nodes = ESTIMATORS if kind == "estimators" else densities
    for a, b in itertools.combinations(map(jax.tree.structure, nodes), 2):
        assert a != b
