"""What the client sends: bodies that every server takes back, encoded once."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

import pytest

from turnstile.core.errors import ConfigurationError
from turnstile.core.history import History
from turnstile.core.messages import Exchange, Item, Reply, ToolCall, ToolResult, ToolSpec, UserTurn
from turnstile.core.strict_json import JsonValue
from turnstile.models import OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.shell.models.chat_request import ChatEncoder
from turnstile.shell.models.options import ChatOptions, complete
from turnstile.testing import WireServer

Sent = Callable[..., Awaitable[dict[str, Any]]]
Settings = dict[str, JsonValue]

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
SCHEMA: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}}


def called(arguments: str = "{}", *, name: str = "f", call_id: str = "call_1", **reply: Any) -> Exchange:
    """A reply with one call, and its result."""
    call = ToolCall(call_id, name, arguments)
    return Exchange(Reply(calls=(call,), **reply), (ToolResult(call_id, name, "ok"),))


async def test_a_conversation_goes_out_in_order(sent: Sent) -> None:
    """Instructions first, each call with its result right behind it, and the engine's words as a user's."""
    items: list[Item] = [
        UserTurn("q"),
        called('{"a": 1}', text="Let me see."),
        Exchange(Reply("half an answer")),
        UserTurn("Go on.", synthetic=True),
    ]
    body = await sent(ModelRequest("Be brief.", items))
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "assistant", "content": "half an answer"},
        {"role": "user", "content": "Go on."},
    ]
    assert body["model"] == "m"


async def test_without_tools_no_key_speaks_of_them(sent: Sent) -> None:
    """empty-tools-array, parallel-tool-calls-without-tools: servers answer 400 to each of these keys."""
    settings: Settings = {"parallel_tool_calls": False, "tool_choice": "auto", "temperature": 0}
    body = await sent(ModelRequest("", [UserTurn("hi")], settings=settings))
    assert set(body) == {"model", "messages", "temperature"}


async def test_tools_are_described_and_may_be_steered(sent: Sent) -> None:
    """Settings about tools go out when there are tools."""
    request = ModelRequest("", [UserTurn("hi")], (ADD,), settings={"parallel_tool_calls": False})
    body = await sent(request)
    function = {"name": "add", "description": "Adds.", "parameters": dict(ADD.parameters)}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["parallel_tool_calls"] is False


async def test_tools_off_keeps_them_and_forbids_calls(sent: Sent) -> None:
    """The history still speaks of the tools, so most servers want to see them."""
    request = ModelRequest("", [UserTurn("hi")], (ADD,), tools_on=False, settings={"parallel_tool_calls": False})
    body = await sent(request)
    assert (body["tool_choice"], len(body["tools"])) == ("none", 1)
    assert "parallel_tool_calls" not in body


async def test_tools_off_can_leave_them_out(sent: Sent) -> None:
    """Some servers know no tool_choice."""
    body = await sent(ModelRequest("", [UserTurn("hi")], (ADD,), tools_on=False), tools_off="omit")
    assert set(body) == {"model", "messages"}


@pytest.mark.parametrize("parameters", [{"type": "object"}, {}, {"type": "object", "properties": {}}])
async def test_a_tool_without_parameters_has_an_object_schema(sent: Sent, parameters: Mapping[str, Any]) -> None:
    """schema-noarg-missing-properties: OpenAI refuses an object schema without properties."""
    body = await sent(ModelRequest("", [UserTurn("hi")], (ToolSpec("ping", "", parameters),)))
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(("option", "content"), [("null", {"content": None}), ("empty", {"content": ""}), ("omit", {})])
async def test_the_content_of_a_message_of_calls_is_an_option(sent: Sent, option: str, content: dict[str, Any]) -> None:
    """assistant-content-null-vs-empty-per-provider: each choice breaks some server, and text is never touched."""
    items: list[Item] = [UserTurn("q"), called(), called(call_id="call_2", text="words"), Exchange(Reply("a"))]
    body = await sent(ModelRequest("", items), empty_content=option)
    message = body["messages"][1]
    assert {key: message[key] for key in message if key == "content"} == content
    assert [m.get("content") for m in body["messages"] if m["role"] == "assistant"][-2:] == ["words", "a"]


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_reply_that_says_nothing_is_not_sent_back(sent: Sent, blank: str) -> None:
    """assistant-empty-content-no-tools-in-history: a strict gateway would refuse every later request."""
    items: list[Item] = [UserTurn("a"), Exchange(Reply(blank)), UserTurn("b")]
    body = await sent(ModelRequest("", items))
    assert body["messages"] == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


async def test_reasoning_stays_at_home_unless_asked_for(sent: Sent) -> None:
    """internal-fields-leak-into-messages: Mistral and Groq refuse unknown fields."""
    items: list[Item] = [
        UserTurn("q"),
        called(reasoning="hm"),
        Exchange(Reply("a", reasoning="x", model="m", finish_raw="stop")),
    ]
    body = await sent(ModelRequest("", items))
    assert [set(message) for message in body["messages"]] == [
        {"role", "content"},
        {"role", "content", "tool_calls"},
        {"role", "tool_call_id", "content"},
        {"role", "content"},
    ]


@pytest.mark.parametrize(("option", "echoed"), [("calls", ["hm", None]), ("always", ["hm", ""])])
async def test_reasoning_is_sent_back_where_a_server_wants_it(
    sent: Sent, option: str, echoed: list[str | None]
) -> None:
    """deepseek-reasoning-on-plain-assistant-too: DeepSeek wants it on every message, Moonshot on those with calls."""
    items: list[Item] = [UserTurn("q"), called(reasoning="hm"), Exchange(Reply("a"))]
    body = await sent(ModelRequest("", items), reasoning_echo=option)
    said = [message for message in body["messages"] if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in said] == echoed


@pytest.mark.parametrize(
    ("written", "sent_back"),
    [
        pytest.param('{"a": 1,  "b": [2]}', '{"a": 1,  "b": [2]}', id="valid-stays-as-it-is"),
        pytest.param(
            '{"content":"a:\\\\n\\\\tb"}', '{"content":"a:\\\\n\\\\tb"}', id="double-escaped-newlines-not-rewritten"
        ),
        pytest.param("", "{}", id="arguments-empty-string"),
        pytest.param(" \n", "{}", id="arguments-whitespace-only"),
        pytest.param('"{\\"city\\":\\"Oslo\\"}"', '{"city":"Oslo"}', id="arguments-double-encoded"),
        pytest.param('"\\"{}\\""', '{"_raw":"\\"\\\\\\"{}\\\\\\"\\""}', id="arguments-triple-encoded"),
        pytest.param('{"cmd":"a\nb\tc"}', '{"cmd":"a\\nb\\tc"}', id="arguments-literal-control-characters"),
        pytest.param('{"x": NaN}', '{"_raw":"{\\"x\\": NaN}"}', id="arguments-nan-infinity"),
        pytest.param('{"p":1,"p":2}', '{"_raw":"{\\"p\\":1,\\"p\\":2}"}', id="arguments-duplicate-keys"),
        pytest.param(
            'description": "x"}', '{"_raw":"description\\": \\"x\\"}"}', id="poisoned-history-invalid-arguments"
        ),
        pytest.param("[1, 2]", '{"_raw":"[1, 2]"}', id="arguments-is-list"),
        pytest.param('"not json"', '{"_raw":"\\"not json\\""}', id="arguments-is-text"),
        pytest.param(
            '{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}', id="big-integer"
        ),
        pytest.param(
            '"{\\"n\\": 123456789012345678901234567890}"',
            '{"n":123456789012345678901234567890}',
            id="big-integer-inside",
        ),
    ],
)
async def test_arguments_go_back_as_the_text_of_an_object(sent: Sent, written: str, sent_back: str) -> None:
    """A history with anything else in it is refused by strict servers for ever."""
    body = await sent(ModelRequest("", [UserTurn("q"), called(written)]))
    arguments = body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert arguments == sent_back
    assert isinstance(json.loads(arguments), dict)


async def test_arguments_that_are_no_object_are_shortened(sent: Sent) -> None:
    """The model must see what it wrote, not pay for a megabyte of it again each turn."""
    body = await sent(ModelRequest("", [UserTurn("q"), called("x" * 50_000)]))
    assert len(body["messages"][1]["tool_calls"][0]["function"]["arguments"]) < 1_100


@pytest.mark.parametrize(
    "name", ["get_weather<|channel|>commentary", "", " f\n", "a.b", "x" * 80, "天气", "memory_recall={}"]
)
async def test_a_made_up_name_goes_back_in_letters_that_servers_take(sent: Sent, name: str) -> None:
    """tool-name-harmony-token-leak: one bad name in the history makes every later request fail."""
    body = await sent(ModelRequest("", [UserTurn("q"), called(name=name)]))
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", body["messages"][1]["tool_calls"][0]["function"]["name"])


async def test_ids_are_written_as_mistral_wants_them(sent: Sent) -> None:
    """mistral-id-nine-alnum: distinct, equal on both sides and in every request, and one that fits stays."""
    ids = ["call_AAAABBBBCCCCDDDDEEEEFFFFa", "call_AAAABBBBCCCCDDDDEEEEFFFFb", "abcDEF123"]
    calls = tuple(ToolCall(each, "f", "{}") for each in ids)
    exchange = Exchange(Reply(calls=calls), tuple(ToolResult(each, "f", each) for each in ids))
    first = await sent(ModelRequest("", [UserTurn("q"), exchange]), call_id_format="nine")
    again = await sent(ModelRequest("", [UserTurn("other"), exchange]), call_id_format="nine")
    written = [call["id"] for call in first["messages"][1]["tool_calls"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", each) for each in written)
    assert len(set(written)) == 3
    assert written[2] == ids[2]
    assert written == [message["tool_call_id"] for message in first["messages"][2:]]
    assert written == [call["id"] for call in again["messages"][1]["tool_calls"]]
    assert exchange.reply.calls[0].id == ids[0]


async def test_messages_of_one_role_are_joined_where_roles_must_alternate(sent: Sent) -> None:
    """successive-user-messages: nothing is lost, and calls and results stay alone."""
    items: list[Item] = [
        UserTurn("a"),
        UserTurn("b"),
        Exchange(Reply("c")),
        Exchange(Reply("d")),
        called(),
        called(call_id="call_2"),
        UserTurn("e"),
    ]
    body = await sent(ModelRequest("s", items), merge_consecutive=True)
    said = [(message["role"], message.get("content")) for message in body["messages"]]
    assert said == [
        ("system", "s"),
        ("user", "a\n\nb"),
        ("assistant", "c\n\nd"),
        ("assistant", None),
        ("tool", "ok"),
        ("assistant", None),
        ("tool", "ok"),
        ("user", "e"),
    ]


@pytest.mark.parametrize(("placement", "first"), [("developer", "developer"), ("user", "user")])
async def test_instructions_stand_where_the_server_reads_them(sent: Sent, placement: str, first: str) -> None:
    """Some models know no system role."""
    body = await sent(ModelRequest("s", [UserTurn("a")]), system_placement=placement)
    assert body["messages"][0] == {"role": first, "content": "s"}


@pytest.mark.parametrize(
    ("client", "agent", "engine", "expected"),
    [
        ({}, {}, None, []),
        ({"max_tokens": 100}, {}, None, [100]),
        ({"max_tokens": 100}, {"max_tokens": 50}, None, [50]),
        ({"max_tokens": 100}, {}, 20, [20]),
        ({}, {"max_completion_tokens": 7}, 20, [7]),
        ({"max_tokens": None}, {}, 20, [20]),
    ],
)
async def test_the_least_token_limit_goes_out_under_the_servers_name(
    sent: Sent, client: Settings, agent: Settings, engine: int | None, expected: list[int]
) -> None:
    """A budget may only make a reply shorter, and a reasoning model of OpenAI refuses the old name."""
    request = ModelRequest("", [UserTurn("a")], settings=agent, max_output=engine)
    for field, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
        body = await sent(request, settings=client, max_tokens_field=field)
        assert [body[name] for name in (field, other) if name in body] == expected
        assert other not in body


async def test_an_agents_settings_go_before_the_clients(sent: Sent) -> None:
    """What is nearer to the request counts."""
    request = ModelRequest("", [UserTurn("a")], settings={"temperature": 1})
    body = await sent(request, settings={"temperature": 0, "seed": 7})
    assert (body["temperature"], body["seed"]) == (1, 7)


@pytest.mark.parametrize(
    ("options", "tools", "expected"),
    [
        ({}, (), {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}),
        ({}, (ADD,), None),
        (
            {"output_with_tools": True},
            (ADD,),
            {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        ),
        ({"output_format": "json_object"}, (), {"type": "json_object"}),
        ({"output_format": "nothing"}, (), None),
    ],
)
async def test_an_output_type_is_told_as_the_server_can_hear_it(
    sent: Sent, options: dict[str, Any], tools: tuple[ToolSpec, ...], expected: object
) -> None:
    """A constrained reply never calls a tool on many servers, so it is asked for only where both work."""
    request = ModelRequest("", [UserTurn("a")], tools, output_schema=SCHEMA)
    body = await sent(request, **options)
    assert body.get("response_format") == expected


async def test_lone_surrogates_become_valid_text(sent: Sent) -> None:
    """tool-result-lone-surrogate: a file's odd bytes must not end the run, and a pair stands for its character."""
    result = ToolResult("c", "read", "ok \udc97 \ud83d end \ud83d\ude00")
    items: list[Item] = [UserTurn("q"), Exchange(Reply(calls=(ToolCall("c", "read", "{}"),)), (result,))]
    body = await sent(ModelRequest("", items))
    assert body["messages"][2]["content"] == "ok \ufffd \ufffd end 😀"


@pytest.mark.parametrize("settings", [{"messages": []}, {"model": "x"}, {"stream": True}, {"tools": []}])
def test_settings_cannot_take_the_engines_place(settings: dict[str, Any]) -> None:
    """A setting that overwrites the conversation would be a hidden one."""
    with pytest.raises(ConfigurationError, match=r"settings may not hold \['(messages|model|stream|tools)'\]"):
        OpenAIChat("m", settings=settings)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many", True])
def test_a_token_limit_is_a_whole_number(limit: Any) -> None:
    """A limit that the server ignores would be none."""
    with pytest.raises(ConfigurationError, match="max_tokens is a whole number above 0; got"):
        OpenAIChat("m", settings={"max_tokens": limit})


def test_settings_that_are_no_json_are_refused_at_once() -> None:
    """Found when the client is built, not in the middle of the night."""
    with pytest.raises(ConfigurationError, match="settings must be JSON"):
        OpenAIChat("m", settings={"stop": object()})  # type: ignore[dict-item]


async def test_a_requests_settings_are_checked_too(sent: Sent) -> None:
    """An agent's settings reach the client with the request only."""
    with pytest.raises(ConfigurationError, match="settings must be JSON"):
        await sent(ModelRequest("", [UserTurn("a")], settings={"stop": {1, 2}}))  # type: ignore[dict-item]


def encoder(**options: Unpack[ChatOptions]) -> ChatEncoder:
    """An encoder as the client has one."""
    return ChatEncoder("m", complete(options), {})


def test_an_item_is_encoded_once_in_a_run() -> None:
    """Encoding the whole history each turn is what makes peers slow."""
    items = History([UserTurn("a"), called(), UserTurn("b")])
    memo: dict[tuple[str, int], bytes] = {}
    first = encoder().body(ModelRequest("", items, memo=memo))
    assert len(memo) == 3
    before = dict(memo)
    longer = items.append(UserTurn("c"))
    encoder().body(ModelRequest("", longer, memo=memo))
    assert {key: memo[key] for key in before} == before
    assert all(memo[key] is piece for key, piece in before.items())
    assert encoder().body(ModelRequest("", items, memo=memo)) == first


def test_a_kept_piece_is_never_taken_for_another_item() -> None:
    """An id is free again when its item is gone, so a piece holds on to the item it was made from."""
    memo: dict[tuple[str, int], bytes] = {}
    for number in range(200):
        items = [UserTurn(f"number {number}"), UserTurn("last")]
        assert f"number {number}".encode() in encoder().body(ModelRequest("", items, memo=memo))


def test_what_a_window_left_behind_is_forgotten() -> None:
    """A cache that only grows would hold all that a long run has ever sent, twice."""
    memo: dict[tuple[str, int], bytes] = {}
    history = History([UserTurn(str(number)) for number in range(1_000)])
    for start in range(0, 990, 10):
        encoder().body(ModelRequest("", history[start : start + 10], memo=memo))
    assert len(memo) < 200


def test_clients_that_write_differently_keep_their_pieces_apart() -> None:
    """A fallback to another provider shares the run's cache, and its messages look different."""
    memo: dict[tuple[str, int], bytes] = {}
    items: list[Item] = [UserTurn("q"), called(), UserTurn("last")]
    assert b'"content":null' in encoder().body(ModelRequest("", items, memo=memo))
    assert b'"content":""' in encoder(empty_content="empty").body(ModelRequest("", items, memo=memo))


def test_agents_that_share_a_client_each_send_their_own_tools() -> None:
    """Tools are encoded once, and never mixed up."""
    shared = encoder()
    for number in range(40):
        specs = (ToolSpec(f"tool_{number}", "", {}),)
        for _ in range(2):
            body = json.loads(shared.body(ModelRequest("", [UserTurn("a")], specs)))
            assert [tool["function"]["name"] for tool in body["tools"]] == [f"tool_{number}"]


async def test_the_bytes_that_arrive_are_the_bytes_that_were_joined() -> None:
    """A replay compares requests byte for byte."""
    request = ModelRequest("s", [UserTurn("é 大理")], (ADD,), settings={"temperature": 0})
    with WireServer([{"body": {"choices": [{"message": {"content": "x"}}]}}]) as server:
        client = OpenAIChat("m", base_url=server.url)
        await client.reply(request, lambda delta: None)
        await client.aclose()
    assert server.requests[0].content == encoder().body(request, stream=True)
