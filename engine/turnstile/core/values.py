"""`Value`: what events, messages and a run's state are made of, and how one is made that differs a little from another.

A value is made and changed in C, by msgspec: a frozen dataclass takes fifteen times as long to be made, and a turn
makes some thirty. An extension's events may be dataclasses; who looks at fields takes both.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from inspect import Parameter, signature
from typing import TYPE_CHECKING, NamedTuple, TypeGuard, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

if TYPE_CHECKING:  # a type checker looks at the fields' names and types only here
    from dataclasses import replace as evolve
else:
    from msgspec.structs import replace as evolve

__all__ = ["Field", "Struct", "Value", "asdict", "evolve", "field", "fields_of", "is_record"]

_BY_PLACE = Parameter.POSITIONAL_OR_KEYWORD


class Value(Struct, frozen=True, gc=False):
    """Plain data, with fields that are told by name.

    What is made before all that refers to it cannot refer to itself, so the garbage collector need not look for that.
    """


class Field(NamedTuple):
    """A field of a value.

    Attributes:
        name: Its name.
        required: Whether it has no default.
        by_name: Whether it is given by name: the constructor takes it so alone, or something else at its place.
    """

    name: str
    required: bool
    by_name: bool = False


def is_record(kind: object) -> TypeGuard[type]:
    """Whether a type's values have fields that are told by name: a ``msgspec.Struct`` or a dataclass."""
    return isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind))


def fields_of(kind: type) -> tuple[Field, ...]:
    """The fields of a type that `is_record`, in their order."""
    return _looked_up(kind)


@cache  # msgspec evaluates all annotations of a type each time that it is asked
def _looked_up(kind: type) -> tuple[Field, ...]:
    if issubclass(kind, Struct):
        by_place = kind.__match_args__
        return tuple(
            Field(field.name, field.required, field.name not in by_place) for field in msgspec.structs.fields(kind)
        )
    takes = [name for name, parameter in signature(kind).parameters.items() if parameter.kind is _BY_PLACE]
    return tuple(
        Field(
            field.name,
            field.default is MISSING and field.default_factory is MISSING,
            takes[place : place + 1] != [field.name],  # an `InitVar` may come before it, or the constructor be its own
        )
        for place, field in enumerate(fields(cast("type", kind)))
    )
