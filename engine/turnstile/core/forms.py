"""How values of a declared type are written as JSON and read back: a `Form` for each type, made from its annotation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass
from functools import cache
from inspect import signature
from math import isfinite
from types import NoneType, UnionType
from typing import Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from turnstile.core.errors import ConfigurationError
from turnstile.core.strict_json import MAX_DEPTH, MAX_DIGITS, JsonValue
from turnstile.core.values import fields_of, is_record

V = TypeVar("V")
W = TypeVar("W")

DEPTH = MAX_DEPTH + 16  # a JSON value as deep as any that is read from outside, inside the fields of a record


class Misfit(Exception):
    """A value is not of its declared type. The codec makes its own error of it, with the event's name.

    Attributes:
        path: Names of the fields that lead to it, outermost first.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str] = []


@dataclass(frozen=True, slots=True)
class Form:
    """How values of one type are written and read; both raise `Misfit` for a value of another type."""

    write: Callable[[object], JsonValue]
    read: Callable[[JsonValue], object]


@cache
def form_of(hint: object) -> Form:
    """The form of an annotated type.

    Raises:
        ConfigurationError: The type has no form.
    """
    if isinstance(hint, type) and hint in _SCALARS:
        return Form(_SCALARS[hint], _SCALARS[hint])
    if is_record(hint):
        return record_form(hint)
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal and all(isinstance(option, str) for option in options):
        return _choice(options)
    if origin is tuple:
        return _tuple(options)
    if origin is Mapping:
        return Form(_object, _object)
    if origin in {Union, UnionType}:
        is_json = {get_origin(option) or option for option in options} == _JSON
        return Form(_json, lambda value: value) if is_json else _union(options)
    msg = (
        f"{hint!r} has no form in a record; use str, int, float, bool, Literal texts, tuples, frozen dataclasses, "
        "one of these or None, dataclasses told apart by a Literal `kind`, or JsonValue"
    )
    raise ConfigurationError(msg)


def _text(value: object) -> JsonValue:
    return value if isinstance(value, str) else _refuse("a text", value)


def _flag(value: object) -> JsonValue:
    return value if isinstance(value, bool) else _refuse("true or false", value)


def _whole(value: object) -> JsonValue:
    if isinstance(value, int) and not isinstance(value, bool) and _LEAST < value < _MOST:
        return value
    return _refuse(f"a whole number of at most {MAX_DIGITS} characters", value)


def _number(value: object) -> JsonValue:
    if isinstance(value, float):
        return value if isfinite(value) else _refuse("a finite number", value)
    return _whole(value)


_LEAST, _MOST = -(10 ** (MAX_DIGITS - 1)), 10**MAX_DIGITS
_SCALARS: dict[type, Callable[[object], JsonValue]] = {str: _text, bool: _flag, int: _whole, float: _number}
_JSON = {NoneType, bool, int, float, str, list, dict}


def _choice(options: tuple[str, ...]) -> Form:
    texts = {option: option for option in options}

    def check(value: object) -> JsonValue:
        if isinstance(value, str) and value in texts:
            return texts[value]
        return _refuse(f"one of {', '.join(map(repr, options))}", value)

    return Form(check, check)


def _tuple(options: tuple[object, ...]) -> Form:
    repeats = options[1:] == (...,)
    forms = [form_of(option) for option in (options[:1] if repeats else options)]
    writers, readers = [form.write for form in forms], [form.read for form in forms]
    what = "a sequence" if repeats else f"a sequence of {len(forms)}"

    def write(value: object) -> JsonValue:
        if not isinstance(value, tuple) or not (repeats or len(value) == len(forms)):
            return _refuse(what, value)
        return _each(writers * len(value) if repeats else writers, value)

    def read(value: JsonValue) -> object:
        if not isinstance(value, list) or not (repeats or len(value) == len(forms)):
            return _refuse(what, value)
        return tuple(_each(readers * len(value) if repeats else readers, value))

    return Form(write, read)


def _each(converters: Sequence[Callable[[V], W]], values: Sequence[V]) -> list[W]:
    converted: list[W] = []
    try:
        for convert, value in zip(converters, values, strict=True):
            converted.append(convert(value))
    except Misfit as misfit:
        misfit.path.insert(0, str(len(converted)))
        raise
    return converted


@cache
def record_form(kind: type) -> Form:
    """The form of a type whose values have fields told by name: an object of exactly its fields.

    A field that has a default may be missing when it is read, since a record may be older than the field.

    Raises:
        ConfigurationError: A field's type has no form.
    """
    forms = _fields(kind)
    return Form(_writer(kind, forms), _reader(kind, forms))


def _writer(kind: type, forms: Mapping[str, Form]) -> Callable[[object], JsonValue]:
    writers = [form.write for form in forms.values()]
    names = (*forms,)

    def write(value: object) -> JsonValue:
        if type(value) is not kind:
            return _refuse(f"a {kind.__name__}", value)
        written: list[JsonValue] = []
        try:
            for name, convert in zip(names, writers, strict=True):
                written.append(convert(getattr(value, name)))
        except Misfit as misfit:
            misfit.path.insert(0, names[len(written)])
            raise
        return dict(zip(names, written, strict=True))

    return write


def _reader(kind: type, forms: Mapping[str, Form]) -> Callable[[JsonValue], object]:
    readers = [form.read for form in forms.values()]
    names = (*forms,)
    required = {field.name for field in fields_of(kind) if field.required}
    by_name = any(field.by_name for field in fields_of(kind))

    def read(value: JsonValue) -> object:
        if not by_name and isinstance(value, dict) and (*value,) == names:  # as it was written here
            try:
                return kind(*[read(part) for read, part in zip(readers, value.values(), strict=True)])
            except (Misfit, ValueError, ConfigurationError):
                return _read_by_name(value, kind, forms, required)  # which says where it is wrong
        return _read_by_name(value, kind, forms, required)

    return read


def _read_by_name(value: JsonValue, kind: type, forms: Mapping[str, Form], required: AbstractSet[str]) -> object:
    if not isinstance(value, dict):
        return _refuse("an object", value)
    if value.keys() != forms.keys():
        _check_names(value.keys(), required, forms.keys())
    found: dict[str, object] = {}
    name = ""
    try:
        for name, form in forms.items():
            if name in value:
                found[name] = form.read(value[name])
        return kind(**found)
    except Misfit as misfit:
        misfit.path.insert(0, name)
        raise
    except (ValueError, ConfigurationError) as error:
        raise Misfit(str(error)) from None


def _check_names(found: AbstractSet[str], required: AbstractSet[str], known: AbstractSet[str]) -> None:
    missing, unknown = required - found, found - known
    if missing or unknown:
        msg = f"expected the fields {', '.join(known)}; missing: {sorted(missing)}, unknown: {sorted(unknown)}"
        raise Misfit(msg)


def _fields(kind: type) -> dict[str, Form]:
    hints: dict[str, object] = get_type_hints(kind)
    forms: dict[str, Form] = {}
    for field in fields_of(kind):
        try:
            forms[field.name] = form_of(hints[field.name])
        except ConfigurationError as error:
            msg = f"{kind.__name__}.{field.name}: {error}"
            raise ConfigurationError(msg) from None
    if is_dataclass(kind):
        _check_made(kind, forms)
    return forms


def _check_made(kind: type, names: Collection[str]) -> None:
    """Refuse a dataclass that could be written and not be read: who makes one gives all its fields, and no more."""
    try:
        signature(kind).bind(**dict.fromkeys(names))
    except TypeError as error:
        msg = f"{kind.__name__} cannot be made of its fields alone, which are {', '.join(names)}: {error}; "
        raise ConfigurationError(msg + "give each to the constructor, and nothing else that has no default") from None


def _union(options: tuple[object, ...]) -> Form:
    """``X | None``, or several records that a field ``kind`` tells apart."""
    rest = [option for option in options if option is not NoneType]
    form = form_of(rest[0]) if len(rest) == 1 else _tagged(rest)
    if len(rest) == len(options):
        return form
    return Form(
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


def _tagged(options: list[object]) -> Form:
    forms: dict[str, Form] = {}
    for option in options:
        hint = get_type_hints(option).get("kind") if is_record(option) else None
        tags = get_args(hint) if get_origin(hint) is Literal else ()
        if len(tags) != 1 or tags[0] in forms:
            msg = f"{option!r} needs a field `kind: Literal['…']` that tells it from the others of its union"
            raise ConfigurationError(msg)
        forms[tags[0]] = form_of(option)
    what = f"a record of kind {' or '.join(map(repr, forms))}"

    def write(value: object) -> JsonValue:
        form = forms.get(getattr(value, "kind", ""))
        return _refuse(what, value) if form is None else form.write(value)

    def read(value: JsonValue) -> object:
        kind = value.get("kind") if isinstance(value, dict) else None
        form = forms.get(kind) if isinstance(kind, str) else None
        return _refuse(what, value) if form is None else form.read(value)

    return Form(write, read)


def _json(value: object, levels: int = MAX_DEPTH) -> JsonValue:
    """The value, if it is JSON that the strict decoder would read."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _number(value)
    if not isinstance(value, list | dict):
        return _refuse("a JSON value", value)
    if not levels:
        msg = f"nested deeper than {MAX_DEPTH} levels"
        raise Misfit(msg)
    if isinstance(value, list):
        return [_json(part, levels - 1) for part in value]
    return {cast("str", _text(key)): _json(part, levels - 1) for key, part in value.items()}


def _object(value: object) -> JsonValue:
    return _json(dict(value)) if isinstance(value, Mapping) else _refuse("a JSON object", value)


def _refuse(expected: str, value: object) -> NoReturn:
    msg = f"expected {expected}; got {repr(value)[:80]}"
    raise Misfit(msg)
