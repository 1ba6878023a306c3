"""Dataclasses that JAX sees through, each a type of its own."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
from jax.tree_util import GetAttrKey

T = TypeVar("T")

# The metadata of a field that is part of the type: structure, not numbers.
STATIC = {"static": True}


def pytree(cls: type[T]) -> type[T]:
    """Register a frozen dataclass as a pytree: its fields are its children, those marked `STATIC` part of its type.

    What `jax.tree_util.register_dataclass` does, but that two classes are never taken for each other. In jaxlib 0.10.2
    the structures of any two dataclasses compare equal where they have as many children and equal static fields:
    `jax.jit` then runs the program of one for the other wherever seven bits of their hashes agree as well. A Poisson
    classifier was scored as a multinomial one.
    """
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    static = tuple(field.name for field in fields if field.metadata.get("static"))
    children = tuple(field.name for field in fields if field.name not in static)

    def flatten(node: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values = node.__dict__
        return tuple([values[name] for name in children]), tuple([values[name] for name in static])

    def flatten_with_keys(node: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        leaves, structure = flatten(node)
        return [(GetAttrKey(name), leaf) for name, leaf in zip(children, leaves, strict=True)], structure

    def unflatten(structure: tuple[Any, ...], leaves: Any) -> T:
        node = object.__new__(cls)
        node.__dict__.update(zip(children, leaves, strict=True))
        node.__dict__.update(zip(static, structure, strict=True))
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
