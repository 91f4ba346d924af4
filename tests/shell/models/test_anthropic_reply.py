"""What the client makes of a Messages API server's answer: a whole reply, or the failure that it stands for."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.events import FailureKind, ModelFailed
from turnstile.core.messages import FinishReason, Reply, ToolCall, Usage
from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.anthropic_reply import MessageReader
from turnstile.shell.models.pricing import Pricing
from turnstile.shell.models.redaction import Redactor

Ask = Callable[..., Awaitable[Reply | ModelFailed]]


def message(*content: Any, stop: Any = "end_turn", **more: Any) -> dict[str, Any]:
    """An exchange with a message of this content."""
    usage = {"input_tokens": 5, "output_tokens": 3}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    return {"body": {**body, "stop_reason": stop, "stop_sequence": None, "usage": usage, **more}}


def text(words: str) -> dict[str, str]:
    """A block of text."""
    return {"type": "text", "text": words}


def use(given: Any = None, **more: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": "t1", "name": "f", "input": {} if given is None else given, **more}


async def test_an_answer_is_read(ask_anthropic: Ask) -> None:
    """All that the log and the price need of it; text and calls alone are kept once, not twice."""
    assert await ask_anthropic(message(text("Hi"))) == Reply(
        "Hi", finish_raw="end_turn", usage=Usage(5, 3), model="m", request_id="msg_1", wire="anthropic 127.0.0.1"
    )
    reply = await ask_anthropic(
        {**message(text("Hi"), use({"a": 1}), stop="tool_use"), "headers": {"request-id": "r1"}}
    )
    assert isinstance(reply, Reply)
    assert (reply.text, reply.calls, reply.request_id) == ("Hi", (ToolCall("t1", "f", '{"a":1}'),), "r1")
    assert (reply.finish, reply.native) == ("tool_calls", "")


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "thinking", "thinking": "aé\n ", "signature": "S1"}, text("Hi")],
        [{"type": "redacted_thinking", "data": "ENC"}, use()],
        [text("Hi"), {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}],
        [{**text("Hi"), "citations": [{"type": "char_location", "cited_text": "x"}]}],
        [use(), text("after the call")],
        [text("in "), text("two")],
        [use(caller={"type": "direct"})],
        [{"type": "from_next_year", "data": [1, 1.5, None, 10**30]}],
    ],
)
async def test_what_text_and_calls_cannot_say_is_kept_as_it_came(ask_anthropic: Ask, blocks: list[Any]) -> None:
    """anthropic-redacted-thinking-roundtrip: what is dropped here is refused, or missed, in the next request."""
    reply = await ask_anthropic(message(*blocks))
    assert isinstance(reply, Reply)
    assert json.loads(reply.native) == blocks
    assert len(reply.calls) == sum(block["type"] == "tool_use" for block in blocks)


async def test_thinking_is_reasoning_and_never_an_answer(ask_anthropic: Ask) -> None:
    """A reply that only thinks says nothing to the user."""
    reply = await ask_anthropic(message({"type": "thinking", "thinking": "Hm.", "signature": "S"}))
    assert isinstance(reply, Reply)
    assert (reply.reasoning, reply.text, reply.says_something) == ("Hm.", "", False)


@pytest.mark.parametrize(
    ("stop", "content", "finish"),
    [
        ("end_turn", [text("a")], "stop"),
        ("stop_sequence", [text("a")], "stop"),
        ("max_tokens", [text("a")], "length"),
        ("max_tokens", [use()], "length"),
        ("model_context_window_exceeded", [text("a")], "length"),
        ("tool_use", [use()], "tool_calls"),
        ("tool_use", [], "tool_calls"),
        ("end_turn", [use()], "tool_calls"),
        ("refusal", [text("a")], "refusal"),
        ("refusal", [use()], "refusal"),
        ("pause_turn", [text("a")], "pause"),
        (None, [text("a")], "unknown"),
        ("from_next_year", [text("a")], "unknown"),
        ("stop", [text("a")], "stop"),
        ("content_filter", [], "refusal"),
    ],
)
async def test_labels_mean_what_the_documentation_says(
    ask_anthropic: Ask, stop: str | None, content: list[Any], finish: FinishReason
) -> None:
    """anthropic-model-context-window-exceeded and its like: an unknown label is no answer, and a call counts more."""
    reply = await ask_anthropic(message(*content, stop=stop))
    assert isinstance(reply, Reply)
    assert (reply.finish, reply.finish_raw) == (finish, stop or "")


async def test_a_refusal_says_why(ask_anthropic: Ask) -> None:
    """The explanation is all that a reader of the run gets."""
    details = {"type": "refusal", "category": "bio", "explanation": "This could do harm."}
    reply = await ask_anthropic(message(stop="refusal", stop_details=details))
    assert isinstance(reply, Reply)
    assert reply.text == "This could do harm."


@pytest.mark.parametrize(
    ("block", "call", "input_back"),
    [
        (use('{"a": 1}'), ToolCall("t1", "f", '{"a": 1}'), {"a": 1}),
        (use('{"a": '), ToolCall("t1", "f", '{"a": '), {"_raw": '{"a": '}),
        (use(""), ToolCall("t1", "f", "{}"), {}),
        ({"type": "tool_use", "id": 7, "name": "f"}, ToolCall("7", "f", "{}"), {}),
        ({"type": "tool_use", "name": None, "input": None}, ToolCall("", "", "{}"), {}),
        (use([1]), ToolCall("t1", "f", "[1]"), {"_raw": "[1]"}),
    ],
)
async def test_calls_of_compatible_servers_are_read(
    ask_anthropic: Ask, block: Any, call: ToolCall, input_back: Any
) -> None:
    """An input that is text, missing or no object: the run goes on, and an object goes back."""
    reply = await ask_anthropic(message({"type": "thinking", "thinking": "", "signature": "S"}, block))
    assert isinstance(reply, Reply)
    assert reply.calls == (call,)
    assert json.loads(reply.native)[1]["input"] == input_back


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 5, "output_tokens": 3}, Usage(5, 3)),
        (
            {
                "input_tokens": 5,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 1000,
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 4},
            },
            Usage(1105, 9, 1000, 4),
        ),
        ({"input_tokens": "5", "output_tokens": -3}, Usage(5)),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": None, "cache_read_input_tokens": 7}, Usage(7, None, 7)),
        (None, None),
        ([], None),
    ],
)
async def test_usage_is_read_as_far_as_it_is_said(ask_anthropic: Ask, usage: Any, expected: Usage | None) -> None:
    """Tokens written to and read from the cache are part of the request; what is not said stays unknown."""
    reply = await ask_anthropic(message(text("Hi"), usage=usage))
    assert isinstance(reply, Reply)
    assert reply.usage == expected


@pytest.mark.parametrize(
    ("content", "expected"), [("Hi", "Hi"), (["Hi", text("!")], "Hi!"), (None, ""), ([{"type": "text"}], "")]
)
async def test_content_of_compatible_servers_is_read(ask_anthropic: Ask, content: Any, expected: str) -> None:
    """Plain text where a list of blocks should be makes no difference."""
    exchange = message()
    exchange["body"]["content"] = content
    reply = await ask_anthropic(exchange)
    assert isinstance(reply, Reply)
    assert reply.text == expected


@pytest.mark.parametrize(
    ("exchange", "kind", "words"),
    [
        ({"text": ""}, "protocol", "the answer is no JSON"),
        ({"text": "null"}, "protocol", "the answer is a NoneType, not an object"),
        ({"text": "{}"}, "protocol", "neither content nor an error"),
        ({"body": {"content": 7}}, "protocol", "content is a int, not a list of blocks"),
        ({"body": {"content": [7]}}, "protocol", "content[0] is no block: 7"),
        ({"body": {"content": [{"text": "a"}]}}, "protocol", "content[0] is no block"),
        (message(stop="error"), "server", "'error'"),
        ({"body": [{"type": "error", "error": {"type": "overloaded_error", "message": "O"}}]}, "overloaded", "O"),
        ({"body": {"type": "error", "error": {"type": "api_error", "message": "Internal"}}}, "server", "Internal"),
    ],
)
async def test_what_is_no_message_is_a_failure(
    ask_anthropic: Ask, exchange: dict[str, Any], kind: FailureKind, words: str
) -> None:
    """Under a good status too; never a shorter answer."""
    failed = await ask_anthropic(exchange)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == kind
    assert words in failed.message


@pytest.mark.parametrize(
    ("status", "error", "said", "kind"),
    [
        (400, "invalid_request_error", "messages.1: all messages must have non-empty content", "bad_request"),
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "context_overflow"),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            "context_overflow",
        ),
        (400, "invalid_request_error", "Your credit balance is too low to access the API.", "billing"),
        (401, "authentication_error", "invalid x-api-key", "authentication"),
        (402, "billing_error", "Pay.", "billing"),
        (403, "permission_error", "Not yours.", "permission"),
        (404, "not_found_error", "model: claude-9", "not_found"),
        (413, "request_too_large", "Request exceeds the maximum size", "context_overflow"),
        (429, "rate_limit_error", "This request would exceed your rate limit.", "rate_limited"),
        (500, "api_error", "Internal server error", "server"),
        (504, "timeout_error", "The request took too long.", "timeout"),
        (529, "overloaded_error", "Overloaded", "overloaded"),
    ],
)
async def test_errors_of_the_documentation_are_told_apart(
    ask_anthropic: Ask, status: int, error: str, said: str, kind: FailureKind
) -> None:
    """Claude API, "Errors": by these kinds the machine retries, trims, falls back or ends."""
    body = {"type": "error", "error": {"type": error, "message": said}, "request_id": "req_1"}
    failed = await ask_anthropic({"status": status, "headers": {"retry-after": "7"}, "body": body})
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, failed.status, failed.request_id, failed.retry_after) == (kind, status, "req_1", 7)
    assert failed.message == said


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("api_error", "server"),
        ("overloaded_error", "overloaded"),
        ("invalid_request_error", "bad_request"),
        ("timeout_error", "timeout"),
        ("rate_limit_error", "rate_limited"),
        ("authentication_error", "authentication"),
        ("request_too_large", "context_overflow"),
        ("from_next_year", "protocol"),
    ],
)
async def test_an_error_without_a_status_is_told_by_its_type(ask_anthropic: Ask, error: str, kind: FailureKind) -> None:
    """In a stream, and behind gateways, the type is all there is; a bad request must not be sent four times."""
    failed = await ask_anthropic({"body": {"type": "error", "error": {"type": error, "message": "x"}}})
    assert isinstance(failed, ModelFailed)
    assert failed.kind == kind


async def test_a_key_is_never_shown(ask_anthropic: Ask) -> None:
    """A gateway that echoes the key it refuses, as ours was sent."""
    key = "very-secret-key"
    body = {"type": "error", "error": {"type": "authentication_error", "message": f"bad key {key}"}}
    failed = await ask_anthropic({"status": 401, "body": body}, api_key=key)
    assert isinstance(failed, ModelFailed)
    assert key not in repr(failed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["text", "thinking", "tool_use", "other"])
blocks = st.fixed_dictionaries(
    {}, optional={"type": kinds | json_values, "text": json_values, "input": json_values, "name": json_values}
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(blocks | json_values, max_size=3) | json_values,
        "stop_reason": json_values,
        "usage": json_values,
        "error": json_values,
        "type": json_values,
        "id": json_values,
        "model": json_values,
    },
)


@given(messages | json_values, st.integers(200, 599))
def test_any_json_is_a_reply_or_a_failure(body: JsonValue, status: int) -> None:
    """No shape that a server can send raises, and what is kept can be read again."""
    answer = Answer(status, {}, json.dumps(body).encode())
    outcome = MessageReader(Redactor(), "anthropic x", Pricing(None, "m", "http://x")).answer(answer, 0.0)
    assert isinstance(outcome, Reply | ModelFailed)
    if isinstance(outcome, Reply) and outcome.native:
        assert isinstance(json.loads(outcome.native), list)
