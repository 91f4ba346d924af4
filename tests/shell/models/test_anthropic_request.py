"""What the client sends to a Messages API server: alternating roles, blocks that it takes, markers that it counts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import ModelFailed
from turnstile.core.messages import (
    Attachment,
    Exchange,
    Item,
    Reply,
    ResultStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserTurn,
)
from turnstile.core.strict_json import JsonValue
from turnstile.models import AnthropicMessages
from turnstile.ports import ModelRequest
from turnstile.shell.models.anthropic_request import AnthropicEncoder
from turnstile.shell.models.options import complete_anthropic

Sent = Callable[..., Awaitable[dict[str, Any]]]

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
WIRE = "anthropic 127.0.0.1"


def called(*ids: str, status: ResultStatus = "ok", content: str = "1", name: str = "f", **reply: Any) -> Exchange:
    """A reply with calls, and their results."""
    calls = tuple(ToolCall(call_id, name, "{}") for call_id in ids)
    return Exchange(Reply(calls=calls, **reply), tuple(ToolResult(call_id, name, content, status) for call_id in ids))


def text(words: str) -> dict[str, str]:
    """A block of text."""
    return {"type": "text", "text": words}


def bare(value: Any) -> Any:
    """The value without cache markers."""
    if isinstance(value, dict):
        return {key: bare(part) for key, part in value.items() if key != "cache_control"}
    return [bare(part) for part in value] if isinstance(value, list) else value


def markers(value: Any) -> int:
    """How many cache markers a body holds."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(markers, value.values()))
    return sum(map(markers, value)) if isinstance(value, list) else 0


async def test_a_conversation_goes_out_in_blocks(sent_anthropic: Sent) -> None:
    """Instructions apart, each result in the user message right behind its call, the next words in the same one."""
    items: list[Item] = [
        UserTurn("q"),
        called("t1", "t2", text="Let me see."),
        UserTurn("Quickly.", synthetic=True),
        Exchange(Reply("half an answer")),
        UserTurn("Go on."),
    ]
    body = await sent_anthropic(ModelRequest("Be brief.", items, (ADD,)), cache=False)
    calls: list[Any] = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ("t1", "t2")]
    results = [{"type": "tool_result", "tool_use_id": call_id, "content": "1"} for call_id in ("t1", "t2")]
    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "system": [text("Be brief.")],
        "tools": [{"name": "add", "description": "Adds.", "input_schema": ADD.parameters}],
        "messages": [
            {"role": "user", "content": [text("q")]},
            {"role": "assistant", "content": [text("Let me see."), *calls]},
            {"role": "user", "content": [*results, text("Quickly.")]},
            {"role": "assistant", "content": [text("half an answer")]},
            {"role": "user", "content": [text("Go on.")]},
        ],
    }


async def test_a_bare_question_needs_no_more(sent_anthropic: Sent) -> None:
    """No empty system prompt and no empty list of tools: servers refuse both."""
    body = await sent_anthropic(ModelRequest(" ", [UserTurn("q")]), cache=False)
    assert body == {"model": "m", "max_tokens": 8192, "messages": [{"role": "user", "content": [text("q")]}]}


@pytest.mark.parametrize(
    ("items", "roles"),
    [
        ([], ["user"]),
        ([UserTurn(" \n")], ["user"]),
        ([Exchange(Reply("a")), UserTurn("q")], ["user", "assistant", "user"]),
        ([UserTurn("q"), Exchange(Reply("")), UserTurn("q2")], ["user"]),
        ([UserTurn("q"), Exchange(Reply("a")), Exchange(Reply("b")), UserTurn("q2")], ["user", "assistant", "user"]),
        ([called("t1"), UserTurn(""), called("t2")], ["user", "assistant", "user", "assistant", "user"]),
    ],
)
async def test_roles_alternate_and_the_user_begins(sent_anthropic: Sent, items: list[Item], roles: list[str]) -> None:
    """anthropic-first-message-must-be-user: whatever a window left over, no message is empty or out of turn."""
    body = await sent_anthropic(ModelRequest("", items))
    assert [message["role"] for message in body["messages"]] == roles
    assert all(message["content"] for message in body["messages"])
    first = body["messages"][0]["content"][0]
    assert first["type"] == "text"
    assert first["text"].strip()


async def test_what_the_server_wrote_goes_back_as_it_came(sent_anthropic: Sent) -> None:
    """thinking-blocks-modified: blank texts alone are left out, and ids are those that the run knows."""
    written: list[JsonValue] = [
        {"type": "thinking", "thinking": "aé\n ", "signature": "S1"},
        {"type": "text", "text": " "},
        {"type": "thinking", "thinking": "", "signature": "S2"},
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"k": 1.0, "é": [10**20]}, "caller": {"type": "direct"}},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
    ]
    exchange = called("t1_2_1", wire=WIRE, native=json.dumps(written), text=" ")
    body = await sent_anthropic(ModelRequest("", [UserTurn("q"), exchange]), cache=False)
    expected = [dict(block) for block in written if isinstance(block, dict) and block["type"] != "text"]
    expected[3]["id"] = "t1_2_1"
    assert body["messages"][1]["content"] == expected
    assert body["messages"][2]["content"][0]["tool_use_id"] == "t1_2_1"
    assert isinstance(body["messages"][1]["content"][3]["input"]["k"], float)


@pytest.mark.parametrize(
    ("wire", "native"),
    [
        ("anthropic elsewhere", '[{"type": "thinking", "thinking": "h", "signature": "S"}]'),
        ("chat api.openai.com", "{}"),
        (WIRE, "not JSON"),
        (WIRE, "{}"),
        (WIRE, '[{"type": "thinking", "thinking": "h", "signature": "S"}]'),  # one call fewer than the reply has
    ],
)
async def test_what_another_server_wrote_is_converted(sent_anthropic: Sent, wire: str, native: str) -> None:
    """A signature is worth something only where it was made; text and calls go everywhere."""
    exchange = called("t1", wire=wire, native=native, text="Let me see.", reasoning="hm")
    body = await sent_anthropic(ModelRequest("", [UserTurn("q"), exchange]), cache=False)
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    assert body["messages"][1]["content"] == [text("Let me see."), call]


async def test_a_conversation_that_ends_with_the_model_ends_without_white_space(sent_anthropic: Sent) -> None:
    """anthropic-trailing-whitespace-final-assistant: only there, since elsewhere white space is the model's own."""
    items: list[Item] = [UserTurn("q"), Exchange(Reply("One \n")), UserTurn("q"), Exchange(Reply("Partial answer \n"))]
    body = await sent_anthropic(ModelRequest("", items), cache=False)
    assert body["messages"][1]["content"] == [text("One \n")]
    assert body["messages"][3]["content"] == [text("Partial answer")]


async def test_a_paused_turn_goes_back_as_it_is(sent_anthropic: Sent) -> None:
    """anthropic-pause-turn: all blocks, in order, and no words of a user behind them; what comes next is joined."""
    paused = [text("Searching"), {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}]
    turn = Exchange(Reply("Searching", finish="pause", wire=WIRE, native=json.dumps(paused)))
    body = await sent_anthropic(ModelRequest("", [UserTurn("q"), turn]))
    assert body["messages"][1:] == [{"role": "assistant", "content": paused}]
    again = await sent_anthropic(ModelRequest("", [UserTurn("q"), turn, turn, called("t1")]), cache=False)
    assert again["messages"][1]["content"][:4] == [*paused, *paused]


@pytest.mark.parametrize(
    ("status", "content", "expected"),
    [
        ("ok", "1", {"content": "1"}),
        ("ok", " ", {"content": "(empty)"}),
        ("error", "TimeoutError", {"content": "TimeoutError", "is_error": True}),
        ("error", "", {"content": "f failed and did not say why", "is_error": True}),
        ("not_run", "not run: cancelled", {"content": "not run: cancelled", "is_error": True}),
        ("unknown", "outcome unknown", {"content": "outcome unknown", "is_error": True}),
    ],
)
async def test_a_result_says_whether_it_is_one(
    sent_anthropic: Sent, status: ResultStatus, content: str, expected: dict[str, Any]
) -> None:
    """tool-result-error-with-empty-content: "content cannot be empty" would end the session for good."""
    body = await sent_anthropic(ModelRequest("", [UserTurn("q"), called("t1", status=status, content=content)]))
    block = bare(body["messages"][2]["content"][0])
    assert block == {"type": "tool_result", "tool_use_id": "t1", **expected}


async def test_calls_of_other_providers_are_written_as_this_one_takes_them(sent_anthropic: Sent) -> None:
    """An id with a colon, a name with a space and arguments that are no object are each a 400 for the whole session."""
    calls = (ToolCall("functions.f:0", "get weather", "[1]"), ToolCall("x" * 65, "f", '"{}"'), ToolCall("ok", "f", ""))
    results = tuple(ToolResult(call.id, call.name, "1") for call in calls)
    body = await sent_anthropic(ModelRequest("", [UserTurn("q"), Exchange(Reply(calls=calls), results)]))
    uses, answers = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [use["input"] for use in uses] == [{"_raw": "[1]"}, {}, {}]
    assert uses[0]["name"] == "get_weather"
    assert [use["id"] for use in uses] == [answer["tool_use_id"] for answer in answers]
    assert uses[2]["id"] == "ok"
    assert all(use["id"].replace("_", "").isalnum() and len(use["id"]) <= 64 for use in uses)


async def test_markers_stand_at_the_ends_and_are_few(sent_anthropic: Sent) -> None:
    """cache-control-more-than-four: three on every turn, each on the last block, none where a server refuses one."""
    items: list[Item] = [UserTurn("q")]
    for turn in range(6):
        items.append(called(*(f"t{turn}_{number}" for number in range(3)), text=" "))
        body = await sent_anthropic(ModelRequest("Be brief.", items, (ADD,)))
        assert markers(body) == 3
        assert all(markers(message["content"][:-1]) == 0 for message in body["messages"])
        assert [markers(message) for message in body["messages"][-3:]] == [1, 0, 1]
        assert markers(body["system"]) == 1
    assert markers(await sent_anthropic(ModelRequest("", items, (ADD,)))) == 3
    assert markers(await sent_anthropic(ModelRequest("", [UserTurn("")]))) == 1
    assert markers(await sent_anthropic(ModelRequest("Be brief.", items, (ADD,)), cache=False)) == 0


def test_what_is_kept_for_the_next_request_changes_nothing() -> None:
    """Pieces are encoded once in a run: the body is the same with and without them, turn after turn."""
    encoder = AnthropicEncoder("m", WIRE, complete_anthropic({}), {})
    memo: dict[tuple[str, int], bytes] = {}
    items: list[Item] = []
    for turn in range(40):
        items += [UserTurn(f"q{turn}"), called(f"t{turn}")]
        window = items[-6:]
        kept = encoder.body(ModelRequest("i", window, (ADD,), memo=memo), stream=False)
        assert kept == encoder.body(ModelRequest("i", window, (ADD,)), stream=False)
        assert len(memo) <= 4 * len(window) + 64 + 9
    others = [(ToolSpec(f"tool{number}", "", {}),) for number in range(20)]
    for tools in others:
        assert tools[0].name.encode() in encoder.body(ModelRequest("", items, tools), stream=True)


async def test_tools_stay_when_they_may_not_be_called(sent_anthropic: Sent) -> None:
    """tool-history-without-tools-param: a history with calls is refused when the request defines no tools."""
    items: list[Item] = [UserTurn("q"), called("t1", name="search it")]
    body = await sent_anthropic(
        ModelRequest("", items, (ADD,), tools_on=False), settings={"tool_choice": {"type": "any"}}
    )
    assert body["tool_choice"] == {"type": "none"}
    assert [tool["name"] for tool in body["tools"]] == ["add"]
    gone = await sent_anthropic(ModelRequest("", items))
    assert gone["tool_choice"] == {"type": "none"}
    assert bare(gone["tools"]) == [{"name": "search_it", "input_schema": {"type": "object", "properties": {}}}]


async def test_tool_choice_goes_out_with_tools_only(sent_anthropic: Sent) -> None:
    """It is refused without tools, and an agent's settings are the same on every turn."""
    settings: dict[str, JsonValue] = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    assert "tool_choice" not in await sent_anthropic(ModelRequest("", [UserTurn("q")], settings=settings))
    body = await sent_anthropic(ModelRequest("", [UserTurn("q")], (ADD,), settings=settings))
    assert body["tool_choice"] == settings["tool_choice"]


async def test_the_servers_own_tools_stand_beside_the_agents(sent_anthropic: Sent) -> None:
    """A search that the provider runs is a definition that no tool of ours stands behind."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    body = await sent_anthropic(ModelRequest("", [UserTurn("q")], (ADD,)), server_tools=[search], cache=False)
    assert [tool["name"] for tool in body["tools"]] == ["add", "web_search"]
    alone = await sent_anthropic(ModelRequest("", [UserTurn("q")]), server_tools=[search], cache=False)
    assert alone["tools"] == [search]
    assert "tool_choice" not in alone


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        (
            {
                "type": "object",
                "anyOf": [
                    {"type": "object", "properties": {"id": {"type": "string"}, "a": {}}, "required": ["id", "a"]},
                    {"properties": {"id": {"type": "integer"}, "b": {}}, "required": ["id", "b"]},
                ],
            },
            {
                "type": "object",
                "properties": {"id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "a": {}, "b": {}},
                "required": ["id"],
            },
        ),
        (
            {
                "properties": {"c": {"type": "null"}},
                "required": ["c", 7],
                "oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}],
            },
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {"type": "null"}}, "required": ["c"]},
        ),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
            {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
        ),
        (
            {"anyOf": [{"properties": {"n": {"type": each}}} for each in ("string", "integer", "null", "string")]},
            {
                "type": "object",
                "properties": {"n": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}},
            },
        ),
        ({"anyOf": [], "oneOf": "x"}, {"type": "object", "properties": {}}),
    ],
)
async def test_a_schema_is_one_object(
    sent_anthropic: Sent, schema: dict[str, JsonValue], expected: dict[str, JsonValue]
) -> None:
    """schema-anthropic-top-level-combinator: one such tool is a 400 for every request of the agent."""
    body = await sent_anthropic(ModelRequest("", [UserTurn("q")], (ToolSpec("attach", " ", schema),)), cache=False)
    assert body["tools"] == [{"name": "attach", "input_schema": expected}]


PDF, PNG = Attachment.of(b"%PDF", "application/pdf", "a.pdf"), Attachment.of(b"png", "image/png")


async def test_pictures_and_files_stand_before_the_words(sent_anthropic: Sent) -> None:
    """As Anthropic's documentation of pictures advises; a text file goes as text, which costs less than a PDF."""
    attachments = (
        PNG,
        PDF,
        Attachment.of("é".encode(), "text/markdown; charset=utf-8", "a.md"),
        Attachment("image/svg+xml", url="https://a.example/b.svg"),
        Attachment("application/pdf", url="https://a.example/b.pdf"),
    )
    body = await sent_anthropic(ModelRequest("", [UserTurn("What is it?", attachments=attachments)]), cache=False)
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "é"},
            "title": "a.md",
        },
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.svg"}},
        {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}},
        text("What is it?"),
    ]


@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        (Attachment.of(b"x", "audio/wav", "a.wav"), "'a.wav' of type 'audio/wav'"),
        (Attachment.of(b"\xff", "text/plain", "a.txt"), "'a.txt' of type 'text/plain' is no base64 of UTF-8"),
        (Attachment("text/plain", data="?"), "is no base64 of UTF-8 text"),
        (Attachment("text/plain", url="https://a.example/a.txt"), "takes pictures"),
    ],
)
async def test_what_has_no_form_is_not_sent(attachment: Attachment, words: str) -> None:
    """Leaving it out would be an answer about something else; so the next model is tried, or the run says why not."""
    client = AnthropicMessages("m", base_url="http://127.0.0.1:9")
    failed = await client.reply(ModelRequest("", [UserTurn("q", attachments=(attachment,))]), lambda delta: None)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "bad_request"
    assert words in failed.message


THINKING: dict[str, JsonValue] = {"type": "enabled", "budget_tokens": 4000}


@pytest.mark.parametrize(
    ("client", "agent", "max_output", "expected"),
    [
        ({}, {}, None, (8192, None)),
        ({}, {}, 100_000, (8192, None)),
        ({}, {}, 64, (64, None)),
        ({"max_tokens": 500}, {}, 1000, (500, None)),
        ({"max_tokens": 500}, {"max_completion_tokens": 900}, None, (500, None)),
        ({"max_tokens": 500}, {"max_tokens": 900}, None, (900, None)),
        ({"thinking": THINKING}, {}, None, (12_192, 4000)),
        ({"thinking": THINKING}, {}, 3000, (3000, 2999)),
        ({"thinking": THINKING}, {}, 1024, (1024, None)),
        ({}, {"thinking": THINKING, "max_tokens": 5000}, None, (5000, 4000)),
    ],
)
async def test_a_limit_is_always_sent_and_never_above_what_is_allowed(
    sent_anthropic: Sent,
    client: dict[str, JsonValue],
    agent: dict[str, JsonValue],
    max_output: int | None,
    expected: tuple[int, int | None],
) -> None:
    """The protocol wants one; a model refuses one above its own most, and thinking that does not fit below it."""
    request = ModelRequest("", [UserTurn("q")], settings=agent, max_output=max_output)
    body = await sent_anthropic(request, settings=client)
    assert (body["max_tokens"], body.get("thinking", {}).get("budget_tokens")) == expected
    assert "max_completion_tokens" not in body


async def test_thinking_is_off_while_another_servers_turn_goes_on(sent_anthropic: Sent) -> None:
    """After a fallback in the middle of a turn no thinking leads it, without which the request is refused."""
    settings: dict[str, JsonValue] = {"thinking": THINKING}
    for wire, thinks in (("chat api.openai.com", False), (WIRE, True)):
        request = ModelRequest("", [UserTurn("q"), called("t1", wire=wire)], settings=settings)
        assert ("thinking" in await sent_anthropic(request)) is thinks
    adaptive: dict[str, JsonValue] = {"thinking": {"type": "adaptive"}}
    request = ModelRequest("", [UserTurn("q"), called("t1", wire="chat")], settings=adaptive)
    assert (await sent_anthropic(request))["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"system": "x"}, "settings may not hold ['system']"),
        ({"tools": [], "stream": True}, "settings may not hold ['stream', 'tools']"),
        ({"max_tokens": 0}, "the setting max_tokens is a whole number above 0; got 0"),
        ({"max_completion_tokens": True}, "max_completion_tokens is a whole number above 0; got True"),
        ({"metadata": object()}, "settings must be JSON"),
    ],
)
def test_settings_that_cannot_be_sent_are_refused_when_they_are_given(settings: Any, words: str) -> None:
    """Before any request is made, and in words that name the setting."""
    with pytest.raises(ConfigurationError) as caught:
        AnthropicMessages("m", settings=settings)
    assert words in str(caught.value)


words = st.text(max_size=8)
turns = st.builds(UserTurn, words, st.booleans())
replies = st.builds(Reply, words, finish=st.sampled_from(["stop", "pause"]))
exchanges = st.one_of(
    st.builds(Exchange, replies),
    st.builds(
        lambda ids, content, said: called(*ids, content=content, text=said),
        st.lists(st.text(max_size=4), min_size=1, max_size=3, unique=True),
        words,
        words,
    ),
)


@given(st.lists(st.one_of(turns, exchanges), max_size=8), words, st.booleans())
def test_every_history_is_a_valid_request(items: list[Item], instructions: str, cache: bool) -> None:  # noqa: FBT001
    """Whatever was said: roles alternate from the user on, nothing is blank, and each call has its result behind it."""
    encoder = AnthropicEncoder("m", WIRE, complete_anthropic({"cache": cache}), {})
    body = json.loads(encoder.body(ModelRequest(instructions, items), stream=False))
    messages = body["messages"]
    assert [message["role"] for message in messages] == [("user", "assistant")[n % 2] for n in range(len(messages))]
    assert markers(body) <= 4
    before: list[str] = []
    for message in messages:
        assert message["content"]
        blocks = message["content"]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == before == [block.get("tool_use_id") for block in blocks[: len(before)]]
        before = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert not before or messages[-1]["role"] == "user"
