"""Tools as the Messages API describes them: one object schema each, also for calls of tools that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnstile.core.messages import Exchange, Item, ToolSpec
from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.chat_request import safe_name
from turnstile.shell.models.json_text import as_dict

Schema = dict[str, JsonValue]

_EITHER = ("anyOf", "oneOf")


def tool(spec: ToolSpec) -> Schema:
    """One tool's definition."""
    definition: Schema = {"name": spec.name, "input_schema": object_schema(spec.parameters)}
    return definition | ({"description": spec.description} if spec.description.strip() else {})


def tools_of_the_past(items: Sequence[Item]) -> list[Schema]:
    """A definition for each tool that the conversation has calls of.

    A request that holds calls or results is refused when it defines no tools; with these, an agent without tools can go
    on with a conversation that used some.
    """
    exchanges = [item for item in items if isinstance(item, Exchange)]
    names = dict.fromkeys(safe_name(call.name) for exchange in exchanges for call in exchange.reply.calls)
    return [{"name": name, "input_schema": object_schema({})} for name in names]


def object_schema(parameters: Mapping[str, JsonValue]) -> Schema:
    """The schema as one object schema: the API refuses ``anyOf``, ``oneOf`` and ``allOf`` at the top.

    Their properties are put together; required is what every alternative requires, so that no valid input is lost. What
    the tool takes is checked against its own schema when it is called.
    """
    schema: Schema = {"type": "object", "properties": {}, **parameters}
    for word in (*_EITHER, "allOf"):
        given = schema.pop(word, None)
        parts = [object_schema(as_dict(part)) for part in given] if isinstance(given, list) else []
        if parts:
            schema = _folded(schema, parts, every=word not in _EITHER)
    return schema


def _folded(schema: Schema, parts: list[Schema], *, every: bool) -> Schema:
    properties: Schema = {}
    for part in (*parts, schema):
        for name, described in as_dict(part.get("properties")).items():
            known = properties.get(name, described)
            properties[name] = described if known == described else _either(known, described)
    needed = [_required(part) for part in parts]
    shared = set().union(*needed) if every else needed[0].intersection(*needed[1:])
    required: list[JsonValue] = [name for name in properties if name in shared | _required(schema)]
    folded = {key: value for key, value in schema.items() if key != "required"} | {"properties": properties}
    return folded | ({"required": required} if required else {})


def _either(one: JsonValue, other: JsonValue) -> Schema:
    """A property that two alternatives describe differently."""
    choices = one["anyOf"] if isinstance(one, dict) and list(one) == ["anyOf"] else None
    known = choices if isinstance(choices, list) else [one]
    return {"anyOf": known if other in known else [*known, other]}


def _required(schema: Schema) -> set[str]:
    given: Iterable[JsonValue] = found if isinstance(found := schema.get("required"), list) else ()
    return {name for name in given if isinstance(name, str)}
