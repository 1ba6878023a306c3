"""Dataclasses that JAX sees through, each a type of its own."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import jax
from jax.tree_util import GetAttrKey

if TYPE_CHECKING:
    from collections.abc import Callable

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

    children_of, static_of = _getter(children), _getter(static)

    def flatten(node: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return children_of(node), static_of(node)

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


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The quickest function from an object to the tuple of these attributes: every eager call flattens arguments."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    only = attrgetter(*names)
    return lambda node: (only(node),)
