"""Prompted tool calling: tools for models and servers that know none, by words, a schema and strict reading.

The tools stand in the instructions. A reply is one JSON object: ``{"calls": […]}`` or ``{"answer": …}``, which servers
that can are made to keep to (llama.cpp, vLLM and SGLang turn a schema into a grammar). What was called and what came of
it goes back in the same form. Text that begins as JSON and is not of that form is the model's own fault, and it is
asked again; prose, from a server that keeps to no schema, is an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from turnstile.core.errors import InvalidJSON
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolSpec
from turnstile.core.strict_json import JsonValue, loads
from turnstile.core.values import evolve
from turnstile.ports import ModelRequest
from turnstile.shell.models.json_text import dumps
from turnstile.shell.models.schema_forms import inlined

Schema = dict[str, JsonValue]

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)
_TOOLS = """You can call tools. They are described here, each with the JSON Schema of its arguments:
{tools}

Reply with one JSON object and nothing else. To call tools:
{{"calls": [{{"name": "…", "arguments": {{…}}}}]}}
You then get {{"results": [{{"name": "…", "result": "…"}}]}} from the user. To give your answer:
{{"answer": {answer}}}"""


def instructions_of(request: ModelRequest) -> str:
    """The instructions, with the tools and the form of a reply behind them."""
    tools = "\n".join(_described(spec) for spec in request.tools) if request.tools_on else "(no tool can be called now)"
    answer = '"…"' if request.output_schema is None else "…, as its JSON Schema says"
    return "\n\n".join(part for part in (request.instructions, _TOOLS.format(tools=tools, answer=answer)) if part)


def _described(spec: ToolSpec) -> str:
    return json.dumps(
        {"name": spec.name, "description": spec.description, "arguments": inlined(spec.parameters)}, ensure_ascii=False
    )


def schema_of(request: ModelRequest) -> Schema:
    """The JSON Schema of a reply: calls of the tools, unless none may be called now, or an answer."""
    output: Schema = {"type": "string"} if request.output_schema is None else inlined(request.output_schema)
    answer = _object({"answer": output})
    if not request.tools_on:
        return answer
    calls: list[JsonValue] = [
        _object({"name": {"const": spec.name}, "arguments": {"type": "object", **inlined(spec.parameters)}})
        for spec in request.tools
    ]
    return {"anyOf": [_object({"calls": {"type": "array", "minItems": 1, "items": {"anyOf": calls}}}), answer]}


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def said(exchange: Exchange) -> list[Schema]:
    """The messages of an exchange: a reply as the model wrote it, and the results as what the user says."""
    reply = exchange.reply
    if not reply.calls:
        return [{"role": "assistant", "content": _text({"answer": reply.text})}]
    calls: list[JsonValue] = [{"name": call.name, "arguments": _read(call.arguments)} for call in reply.calls]
    results: list[JsonValue] = [{"name": result.name, "result": result.content} for result in exchange.results]
    return [
        {"role": "assistant", "content": _text({"calls": calls})},
        {"role": "user", "content": _text({"results": results})},
    ]


def _text(value: JsonValue) -> str:
    return dumps(value).decode()


def _read(arguments: str) -> JsonValue:
    try:
        return loads(arguments or "{}")
    except InvalidJSON:
        return arguments


def read(reply: Reply, *, names: Sequence[str], typed: bool = False) -> Reply | ModelFailed:
    """The reply that a text in this form stands for; one that was cut, refused or is prose stays as it is.

    Args:
        reply: What the model wrote.
        names: The tools that it may call.
        typed: Whether an answer is of a type other than text: then its JSON is kept, also when it is a string.
    """
    if reply.calls or reply.finish not in {"stop", "unknown"} or not reply.says_something:
        return reply
    fenced = _FENCE.match(reply.text)
    text = (fenced[1] if fenced else reply.text).strip()
    if not text.startswith("{"):
        return reply
    try:
        value = loads(text)
    except InvalidJSON as error:
        return _malformed(f"no valid JSON: {error}")
    match value:
        case {"answer": answer, **rest} if not rest:
            return evolve(reply, text=answer if isinstance(answer, str) and not typed else _text(answer))
        case {"calls": [_, *_] as entries, **rest} if not rest:
            calls = [_call(entry, names) for entry in entries]
            if all(calls):
                return evolve(reply, text="", calls=tuple(filter(None, calls)), finish="tool_calls")
    return _malformed(f"the reply fits neither form; it began {text[:80]!r}")


def _call(entry: JsonValue, names: Sequence[str]) -> ToolCall | None:
    match entry:
        case {"name": str(name), "arguments": dict(arguments), **rest} if name in names and not rest:
            return ToolCall("", name, _text(arguments))
    return None


def _malformed(problem: str) -> ModelFailed:
    known = '{"calls": [{"name": "…", "arguments": {…}}]} or {"answer": …}'
    return ModelFailed("generation_failed", f"expected {known} and nothing else; {problem}")
