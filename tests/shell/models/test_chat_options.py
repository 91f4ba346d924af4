"""What can be asked of the client for servers and models that lack something: each option, through a real socket."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from turnstile import Agent, Attachment, Limits, tool
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Exchange, Item, Reply, ToolCall, ToolResult, ToolSpec, UserTurn
from turnstile.models import OpenAIChat
from turnstile.ports import Delta, ModelRequest
from turnstile.shell.models.schema_forms import inlined, strict
from turnstile.shell.models.think_tags import ThinkTags, parted
from turnstile.testing import WireServer

Ask = Callable[..., Awaitable[Reply | ModelFailed]]
Sent = Callable[..., Awaitable[dict[str, Any]]]

WEATHER = ToolSpec("get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
ASKED = ModelRequest("Be brief.", [UserTurn("q")], (WEATHER,))


def answer(text: str, finish: str = "stop", **message: object) -> dict[str, object]:
    """An exchange with one choice."""
    return {"body": {"choices": [{"message": {"content": text, **message}, "finish_reason": finish}]}}


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"{city}: 20 °C"


# Attachments


async def test_pictures_and_files_are_parts_of_a_message(sent: Sent) -> None:
    """Each kind has a part of its own; a text goes as text, which every model reads."""
    attachments = (
        Attachment("image/png", data="QQ=="),
        Attachment("image/png", url="https://example.com/a.png"),
        Attachment("application/pdf", data="QQ==", name="a.pdf"),
        Attachment("audio/wav", data="QQ=="),
        Attachment.of("é".encode(), "text/plain", name="a.txt"),
        Attachment.of(b"b", "text/csv"),
    )
    body = await sent(
        ModelRequest("", [UserTurn("look", attachments=attachments), UserTurn("", attachments=attachments[:1])])
    )
    png = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        png,
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        {"type": "text", "text": "a.txt\n\né"},
        {"type": "text", "text": "b"},
    ]
    assert body["messages"][1]["content"] == [png]


async def test_merged_messages_keep_their_parts(sent: Sent) -> None:
    """Joining neighbours must not lose a picture."""
    picture = Attachment("image/png", data=base64.b64encode(b"A").decode())
    body = await sent(
        ModelRequest("", [UserTurn("a"), UserTurn("b", attachments=(picture,)), UserTurn("c")]), merge_consecutive=True
    )
    (message,) = body["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "text", "image_url", "text"]


# What a server wants back


async def test_extras_of_calls_go_back_in_their_order() -> None:
    """Ids may have been made unique meanwhile, so a signature finds its call by its place; most calls have none."""
    calls = [{"id": "x", "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}} for city in "AB"]
    signed = [calls[0], {**calls[1], "extra_content": {"sig": "B"}}]
    exchanges = [answer("", tool_calls=signed), answer("noted", reasoning_details=[{"text": "hm"}]), answer("done")]
    with WireServer(exchanges) as server:
        client = OpenAIChat("m", base_url=server.url, echo=("reasoning_details",))
        agent = Agent(client, tools=[get_weather])
        result = await agent.run("q")
        await agent.run("and?", history=result.messages)
        await client.aclose()
    bodies: list[Any] = [request.body for request in server.requests]
    messages = bodies[2]["messages"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [call.get("extra_content") for call in messages[1]["tool_calls"]] == [None, {"sig": "B"}]
    assert [message["tool_call_id"] for message in messages[2:4]] == ids
    assert messages[4] == {"role": "assistant", "content": "noted", "reasoning_details": [{"text": "hm"}]}


# Think tags


@pytest.mark.parametrize(
    ("text", "said", "thought"),
    [
        ("<think>a > b, secret</think>Answer x < y", "Answer x < y", "a > b, secret"),
        ("\n<think>\nhm\n</think>\n\nAnswer", "Answer", "\nhm\n"),
        ("An answer with <think> in it", "An answer with <think> in it", ""),
        ("<think>never closed", "", "never closed"),
        ("<think>almost</thin", "", "almost</thin"),
        ("<thi", "<thi", ""),
        ("<think></think>", "", ""),
        ("<think>a</think>b<think>c</think>", "b<think>c</think>", "a"),
        (" x", " x", ""),
    ],
)
def test_think_tags_are_parted_the_same_however_they_are_cut(text: str, said: str, thought: str) -> None:
    """think-tags-inline-split: only tags at the beginning count, and an unclosed one leaves no answer."""
    assert parted(text) == (said, thought)
    tags = ThinkTags()
    parts = [part for char in text for part in tags.feed(char)] + list(tags.end())
    assert "".join(piece for kind, piece in parts if kind == "text") == said
    assert "".join(piece for kind, piece in parts if kind == "reasoning") == thought


# Calls in the text


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "said", "calls", "flags"),
    [
        (CALL, "", 1, ()),
        (f"I look.\n{CALL}\n{CALL}\n", "I look.", 2, ()),
        (f"{CALL} and more", None, 0, ("suspected_text_tool_call",)),
        (f"Models write\n```\n{CALL}\n```", None, 0, ()),
        (f"Like this:\n```\n{CALL}", None, 0, ()),
        ("The tag <tool_call> begins a call.", None, 0, ()),
        (CALL.replace("get_weather", "rm"), None, 0, ("suspected_text_tool_call",)),
        (CALL.replace('{"city": "Oslo"}', '"Oslo"'), None, 0, ("suspected_text_tool_call",)),
        (CALL.replace('"Oslo"', "Oslo"), None, 0, ("suspected_text_tool_call",)),
        ('[TOOL_CALLS] [{"name": "get_weather"}]', None, 0, ("suspected_text_tool_call",)),
        ("Hello", None, 0, ()),
    ],
)
async def test_calls_in_the_text_are_run_only_when_whole_and_wished(
    ask: Ask, text: str, said: str | None, calls: int, flags: tuple[str, ...]
) -> None:
    """tool-call-as-text-in-content: prose that mentions the tag, or an unknown name, is never run."""
    run = await ask(answer(text), ASKED, text_tool_calls="run")
    assert isinstance(run, Reply)
    assert (run.text, len(run.calls), run.flags) == (text if said is None else said, calls, flags)
    assert all(call == ToolCall("", "get_weather", '{"city":"Oslo"}') for call in run.calls)
    left = await ask(answer(text), ASKED)
    assert isinstance(left, Reply)
    assert (left.text, left.calls) == (text, ())
    assert bool(left.flags) == text.startswith(("<tool_call>", "[TOOL_CALLS]"))


async def test_without_tools_no_text_is_suspected(ask: Ask) -> None:
    """A model that was offered none writes about calls, and makes none."""
    reply = await ask(answer(CALL), text_tool_calls="run")
    assert isinstance(reply, Reply)
    assert (reply.calls, reply.flags) == ((), ())


async def test_a_suspected_call_is_a_flag_of_the_run() -> None:
    """A plain success would hide that nothing was done."""
    with WireServer([answer(CALL)]) as server:
        client = OpenAIChat("m", base_url=server.url)
        result = await Agent(client, tools=[get_weather]).run("Weather?")
        await client.aclose()
    assert result.stop is not None
    assert (result.ok, result.stop.flags) == (True, ("suspected_text_tool_call",))


# Prompted tool calling


async def test_prompted_calls_go_out_and_come_back_as_json() -> None:
    """A whole round trip on a server that knows no tools: nothing native is sent, and the results are read."""
    exchanges = [
        answer('```json\n{"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}\n```'),
        answer('{"answer": "20 °C"}'),
    ]
    heard: list[Delta] = []

    class Listener:
        def observe(self, notice: object, run: object) -> None:
            if isinstance(notice, Delta):
                heard.append(notice)

    with WireServer(exchanges) as server:
        client = OpenAIChat("m", base_url=server.url, tool_calling="prompted")
        agent = Agent(client, tools=[get_weather], instructions="Be brief.", observers=[Listener()])
        result = await agent.run("Weather?")
        await client.aclose()
    assert result.output == "20 °C"
    assert heard == [Delta("text", "20 °C")]
    bodies: list[Any] = [request.body for request in server.requests]
    first, second = bodies
    assert "tools" not in first
    assert first["response_format"]["json_schema"]["schema"]["anyOf"][0]["required"] == ["calls"]
    system, question, called, results = second["messages"]
    assert system["content"].startswith("Be brief.")
    assert "get_weather" in system["content"]
    assert question == {"role": "user", "content": "Weather?"}
    assert json.loads(called["content"]) == {"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
    assert (results["role"], json.loads(results["content"])) == (
        "user",
        {"results": [{"name": "get_weather", "result": "Oslo: 20 °C"}]},
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"calls": []}',
        '{"calls": [{"name": "rm", "arguments": {}}]}',
        '{"calls": [{"name": "get_weather", "arguments": "Oslo"}]}',
        '{"calls": [{"name": "get_weather"}]}',
        '{"calls": [{"name": "get_weather", "arguments": {}, "x": 1}]}',
        '{"calls": [{"name": "get_weather", "arguments": {}}], "answer": "x"}',
        '{"answer": "a", "answer": "b"}',
        '{"city": "Oslo"}',
    ],
)
async def test_what_begins_as_json_must_be_of_the_form(ask: Ask, text: str) -> None:
    """Parsed strictly: half a call is the model's fault, and it is asked again rather than guessed at."""
    failed = await ask(answer(text), ASKED, tool_calling="prompted")
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "generation_failed"
    assert failed.message.startswith('expected {"calls"')


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (answer("It is warm."), ("It is warm.", 0, "stop")),
        (answer('{"answer": {"t": 20}}'), ('{"t":20}', 0, "stop")),
        (answer('{"calls": [{"na', "length"), ('{"calls": [{"na', 0, "length")),
        (answer(""), ("", 0, "stop")),
        (answer("", tool_calls=[{"function": {"name": "get_weather", "arguments": "{}"}}]), ("", 1, "tool_calls")),
    ],
)
async def test_prose_cut_text_and_native_calls_stay_as_they_are(
    ask: Ask, exchange: dict[str, object], expected: tuple[str, int, str]
) -> None:
    """A server without grammars lets its model answer in prose, and a cut text is the table's matter."""
    reply = await ask(exchange, ASKED, tool_calling="prompted")
    assert isinstance(reply, Reply)
    assert (reply.text, len(reply.calls), reply.finish) == expected


async def test_the_schema_of_a_prompted_reply(sent: Sent) -> None:
    """llama.cpp and vLLM make a grammar of it: it names the tools, closes every object and holds no reference."""
    output: Mapping[str, Any] = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}}
    on = await sent(ModelRequest("", [UserTurn("q")], (WEATHER,), output_schema=output), tool_calling="prompted")
    off = await sent(ModelRequest("", [UserTurn("q")], (WEATHER,), tools_on=False), tool_calling="prompted")
    calls, answered = on["response_format"]["json_schema"]["schema"]["anyOf"]
    (entry,) = calls["properties"]["calls"]["items"]["anyOf"]
    assert entry["properties"]["name"] == {"const": "get_weather"}
    assert answered["properties"] == {"answer": {"type": "integer"}}
    assert off["response_format"]["json_schema"]["schema"]["required"] == ["answer"]
    assert "no tool can be called now" in off["messages"][0]["content"]


async def test_a_prompted_history_is_in_the_same_form(sent: Sent) -> None:
    """What a model sees of itself is what it is asked to write, arguments that were no JSON included."""
    call = ToolCall("a", "get_weather", "{oops")
    items: list[Item] = [
        UserTurn("q"),
        Exchange(Reply(calls=(call,)), (ToolResult("a", "get_weather", "bad"),)),
        Exchange(Reply("x")),
    ]
    body = await sent(ModelRequest("", items, (WEATHER,)), tool_calling="prompted")
    plain = await sent(ModelRequest("", items), tool_calling="prompted")
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert json.loads(body["messages"][2]["content"])["calls"][0]["arguments"] == "{oops"
    assert body["messages"][4]["content"] == '{"answer":"x"}'
    assert plain["messages"][-1] == {"role": "assistant", "content": "x"}


async def test_a_malformed_prompted_reply_is_asked_again() -> None:
    """The row `repair_call` takes it, a counter bounds it, and the second try is read."""
    with WireServer([answer("{"), answer('{"answer": "fine"}')]) as server:
        client = OpenAIChat("m", base_url=server.url, tool_calling="prompted")
        result = await Agent(client, tools=[get_weather], limits=Limits(repairs=1)).run("q")
        await client.aclose()
    assert result.output == "fine"


# Schemas


REFS: dict[str, Any] = {
    "type": "object",
    "$defs": {"P": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "properties": {"p": {"$ref": "#/$defs/P"}, "l": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
}


async def test_references_are_inlined_only_when_asked(sent: Sent) -> None:
    """schema-refs-defs: Gemini refuses both keys; everybody else takes the schema as it is."""
    before = deepcopy(REFS)
    spec = ToolSpec("f", "", REFS)
    plain = await sent(ModelRequest("", [UserTurn("q")], (spec,)))
    flat = await sent(ModelRequest("", [UserTurn("q")], (spec,)), inline_refs=True)
    assert plain["tools"][0]["function"]["parameters"] == before == REFS
    point = REFS["$defs"]["P"]
    assert flat["tools"][0]["function"]["parameters"]["properties"] == {
        "p": point,
        "l": {"type": "array", "items": point},
    }
    assert "$" not in json.dumps(flat)


def test_inlining_ends_and_knows_a_schema_from_a_name() -> None:
    """A tree refers to itself; a property may be called like a keyword; a value may look like a reference."""
    tree: dict[str, Any] = {
        "$defs": {"T/1": {"type": "object", "description": "tree", "properties": {"left": {"$ref": "#/$defs/T~11"}}}},
        "properties": {
            "t": {"$ref": "#/$defs/T~11", "title": "T"},
            "definitions": {"enum": [{"$ref": "x"}]},
            "lost": {"$ref": "#/$defs/none"},
            "list": {"anyOf": [True, {"type": "null"}]},
        },
    }
    assert inlined(tree)["properties"] == {
        "t": {
            "type": "object",
            "description": "tree",
            "title": "T",
            "properties": {"left": {"type": "object", "description": "tree"}},
        },
        "definitions": {"enum": [{"$ref": "x"}]},
        "lost": {},
        "list": {"anyOf": [True, {"type": "null"}]},
    }


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object schema as strict mode wants it."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **more,
    }


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            closed({"a": {"type": "string"}}),
        ),
        ({"type": "object", "properties": {}}, closed({})),
        (
            {"properties": {"a": {"type": ["object", "null"], "properties": {}}}, "required": ["a"]},
            {**closed({"a": {**closed({}), "type": ["object", "null"]}}), "type": None},
        ),
        (
            {**closed({"a": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}}), "$defs": {"B": {"properties": {}}}},
            closed(
                {"a": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}},
                **{"$defs": {"B": {**closed({}), "type": None}}},
            ),
        ),
        (
            closed({"a": {"type": "array", "items": {"type": "integer"}}}),
            closed({"a": {"type": "array", "items": {"type": "integer"}}}),
        ),
        ({"type": "object", "properties": {"a": {}}}, None),
        ({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}, None),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, None),
        ({"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]}, None),
        ({"type": "object", "properties": {"a": {"items": {"oneOf": []}}}, "required": ["a"]}, None),
        ({"type": "object", "properties": {"a": {"anyOf": [{"type": "object"}]}}, "required": ["a"]}, None),
        ({"type": "object", "properties": {"a": {"anyOf": {}}}, "required": ["a"]}, None),
    ],
)
async def test_strict_is_sent_only_with_schemas_that_stay_what_they_mean(
    sent: Sent, schema: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    """schema-strict-additional-properties: every level is closed, or strict isn't sent; the caller's schema stays."""
    before = deepcopy(schema)
    if expected is not None:
        expected = json.loads(
            json.dumps(expected), object_hook=lambda part: {k: v for k, v in part.items() if v is not None}
        )
    assert strict(schema) == expected
    assert schema == before
    body = await sent(ModelRequest("", [UserTurn("q")], (ToolSpec("f", "", schema),)), strict_tools=True)
    assert body["tools"][0]["function"].get("strict", False) is (expected is not None)
