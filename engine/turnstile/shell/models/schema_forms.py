"""JSON Schemas in the forms that some servers demand: without references, or in OpenAI's strict subset.

Neither changes the schema it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.json_text import as_dict, as_text

Schema = dict[str, JsonValue]

_DEFINITIONS = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_VALUES = ("const", "default", "enum", "examples")
_NOT_STRICT = {"allOf", "oneOf", "not", "if", "patternProperties", "default", "prefixItems", "dependentRequired"}


def inlined(schema: Mapping[str, JsonValue]) -> Schema:
    """The schema with each reference replaced by what it names; where one leads back to itself, only its type stays."""
    found = _inlined(dict(schema), dict(schema), ())
    return as_dict(found)


def _inlined(part: JsonValue, root: Schema, within: tuple[str, ...]) -> JsonValue:
    if isinstance(part, list):
        return [_inlined(each, root, within) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        name = as_text(part["$ref"])
        target = _target(root, name)
        if name in within:
            return {key: target[key] for key in ("type", "description") if key in target}
        beside = {key: value for key, value in part.items() if key != "$ref"}
        return _inlined({**target, **beside}, root, (*within, name))
    return {
        key: value
        if key in _VALUES
        else _named(value, root, within)
        if key in _NAMED
        else _inlined(value, root, within)
        for key, value in part.items()
        if key not in _DEFINITIONS
    }


def _named(parts: JsonValue, root: Schema, within: tuple[str, ...]) -> JsonValue:
    """Schemas under names of the user's own, which may be any word."""
    return {name: _inlined(part, root, within) for name, part in as_dict(parts).items()}


def _target(root: Schema, name: str) -> Schema:
    """What a reference within the schema names (RFC 6901); an empty schema, which anything fits, if that is nothing."""
    target: JsonValue = root
    for step in name.removeprefix("#").split("/")[1:]:
        target = as_dict(target).get(step.replace("~1", "/").replace("~0", "~"))
    return as_dict(target)


def strict(schema: Mapping[str, JsonValue]) -> Schema | None:
    """The schema closed at every level, as strict mode wants it; ``None`` when that would change what it means.

    Strict mode takes no optional fields and no open objects (OpenAI, "Structured outputs", "Supported schemas"). Made
    required and nullable, an optional field would come as a ``null`` that its tool does not take.
    """
    closed = _strict(dict(schema))
    return closed if isinstance(closed, dict) else None


def _strict(part: JsonValue) -> JsonValue:
    """The part closed; ``None`` for one that cannot be."""
    if not isinstance(part, dict) or _NOT_STRICT & part.keys():
        return None
    closed = dict(part)
    for key in ("properties", *_DEFINITIONS):
        if key in part:
            inner = {name: _strict(value) for name, value in as_dict(part[key]).items()}
            if None in inner.values():
                return None
            closed[key] = inner
    if "items" in part and (items := _strict(part["items"])) is not None:
        closed["items"] = items
    elif "items" in part:
        return None
    if "anyOf" in part:
        options = part["anyOf"]
        kept: list[JsonValue] = [_strict(option) for option in options] if isinstance(options, list) else [None]
        if None in kept:
            return None
        closed["anyOf"] = kept
    return _closed(closed) if _is_object(part) else closed


def _is_object(part: Schema) -> bool:
    kind = part.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in part


def _closed(part: Schema) -> JsonValue:
    names, required = list(as_dict(part.get("properties"))), part.get("required")
    listed = required if isinstance(required, list) else []
    if part.get("additionalProperties", False) is not False or set(names) != {as_text(name) for name in listed}:
        return None
    if not names and "properties" not in part:
        return None  # an object of any shape
    return {**part, "properties": part.get("properties", {}), "required": [*names], "additionalProperties": False}
