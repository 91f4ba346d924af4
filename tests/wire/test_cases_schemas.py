"""Schemas of tools as strict servers want them."""

from __future__ import annotations

import copy
import json
from typing import Any

from turnstile import Reply, UserTurn
from turnstile.core.messages import ToolSpec
from turnstile.core.strict_json import JsonValue
from turnstile.ports import ModelRequest
from turnstile.testing import WireServer
from wire_case import Case, chat


async def sent(case: Case, spec: ToolSpec, **options: Any) -> dict[str, Any]:
    """The tool's function as a server receives it."""
    with WireServer([chat()]) as server:
        client = case.client(server.url, **options)
        assert isinstance(await client.reply(ModelRequest("", [UserTurn("q")], (spec,)), lambda delta: None), Reply)
        await client.aclose()
    body: Any = server.requests[0].body
    function: dict[str, Any] = body["tools"][0]["function"]
    return function


async def test_schema_refs_defs(case: Case) -> None:
    """References are put in place where a server cannot follow them, and a schema that never ends is cut."""
    (given,) = case.input["tools"]
    spec = ToolSpec("f", "", given["parameters"])
    before = copy.deepcopy(given)
    inlined = (await sent(case, spec, inline_refs=True))["parameters"]
    text = json.dumps(inlined)
    assert "$ref" not in text
    assert "$defs" not in text
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert inlined["properties"] == {"p": point, "l": {"type": "array", "items": point}}
    assert (await sent(case, spec))["parameters"] == given["parameters"]
    assert given == before
    node: dict[str, JsonValue] = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}
    endless = ToolSpec("f", "", {"type": "object", "$defs": {"N": node}, "properties": {"n": {"$ref": "#/$defs/N"}}})
    assert "$ref" not in json.dumps(await sent(case, endless, inline_refs=True))


async def test_schema_strict_additional_properties(case: Case) -> None:
    """Strict mode is asked for only with schemas that it takes."""
    (given,) = case.input["tools"]
    spec = ToolSpec("f", "", given["parameters"])
    assert "strict" not in await sent(case, spec)
    before = copy.deepcopy(given)
    function = await sent(case, spec, strict_tools=True)
    assert function.get("strict", False) is False or assert_strict(function["parameters"])
    closed: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    function = await sent(case, ToolSpec("f", "", {**closed, "additionalProperties": False}), strict_tools=True)
    assert function["strict"] is True
    assert assert_strict(function["parameters"])
    assert given == before


def assert_strict(schema: Any) -> bool:
    """Check that every object of a schema is closed, and requires all it has."""
    if isinstance(schema, list):
        for part in schema:
            assert_strict(part)
    if not isinstance(schema, dict):
        return True
    if "properties" in schema:
        assert schema["additionalProperties"] is False
        assert sorted(schema["required"]) == sorted(schema["properties"])
    return all(assert_strict(part) for part in schema.values())
