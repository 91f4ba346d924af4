"""Streamed messages: put together as they would have come whole, told as they come, and never half taken for whole."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile import Agent
from turnstile.core.events import FailureKind, ModelFailed
from turnstile.core.messages import Reply, ToolCall, Usage
from turnstile.models import AnthropicMessages
from turnstile.ports import Delta, ModelRequest
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.anthropic_reply import MessageReader
from turnstile.shell.models.anthropic_stream import MessageStream
from turnstile.shell.models.pricing import Pricing
from turnstile.shell.models.redaction import Redactor
from turnstile.testing import FrozenClock, WireServer, assert_path

Ask = Callable[..., Awaitable[Reply | ModelFailed]]
Event = dict[str, Any]

START: Event = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1},
    },
}
STOP: Event = {"type": "message_stop"}


def begin(index: int, kind: str, **more: Any) -> Event:
    """The event that announces a block."""
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def piece(index: int, kind: str, **more: Any) -> Event:
    """The event that brings a piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def end(index: int) -> Event:
    """The event that ends a block."""
    return {"type": "content_block_stop", "index": index}


def ending(stop: str | None = "end_turn", **usage: Any) -> Event:
    """The event that says why the message ends."""
    return {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage or {"output_tokens": 9}}


def streamed(*events: Event, **more: Any) -> dict[str, Any]:
    """An exchange with these events."""
    return {"sse": [f"event: {event['type']}\ndata: {json.dumps(event)}" for event in events], **more}


HI = (begin(0, "text", text=""), piece(0, "text_delta", text="H"), piece(0, "text_delta", text="i"), end(0))
THOUGHT = (
    begin(0, "thinking", thinking="", signature=""),
    piece(0, "thinking_delta", thinking="Hm"),
    piece(0, "thinking_delta", thinking=".\n"),
    piece(0, "signature_delta", signature="SIG"),
    end(0),
)
CALL = (
    begin(1, "tool_use", id="t1", name="f", input={}),
    piece(1, "input_json_delta", partial_json=""),
    piece(1, "input_json_delta", partial_json='{"a": '),
    piece(1, "input_json_delta", partial_json='"é"}'),
    end(1),
)


async def test_a_stream_is_the_message_that_it_would_be_whole(ask_anthropic: Ask) -> None:
    """Thinking with its signature, calls and usage: whoever reads the run cannot tell that it was streamed."""
    reply = await ask_anthropic(streamed(START, *THOUGHT, *CALL, ending("tool_use"), STOP))
    assert isinstance(reply, Reply)
    assert json.loads(reply.native) == [
        {"type": "thinking", "thinking": "Hm.\n", "signature": "SIG"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "é"}},
    ]
    assert (reply.reasoning, reply.text, reply.finish) == ("Hm.\n", "", "tool_calls")
    assert reply.calls == (ToolCall("t1", "f", '{"a": "é"}'),)
    assert (reply.usage, reply.model, reply.request_id) == (Usage(12, 9, 7), "m", "msg_1")


async def test_pieces_are_told_as_they_come() -> None:
    """Each once, in order, and arguments too: somebody prints them."""
    heard: list[Delta] = []
    with WireServer([streamed(START, *THOUGHT, *CALL, *HI, ending(), STOP)]) as server:
        client = AnthropicMessages("m", base_url=server.url)
        await client.reply(ModelRequest("", []), heard.append)
        await client.aclose()
    assert [(delta.kind, delta.text) for delta in heard] == [
        ("reasoning", "Hm"),
        ("reasoning", ".\n"),
        ("arguments", '{"a": '),
        ("arguments", '"é"}'),
        ("text", "H"),
        ("text", "i"),
    ]
    assert isinstance(server.requests[0].body, dict)
    assert server.requests[0].body["stream"] is True


async def test_the_first_piece_is_told_before_the_next_is_sent() -> None:
    """The server sends the rest only after the client has told of the first piece: no buffer in between."""
    told = threading.Event()
    first = json.dumps(HI[1])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(f"data: {json.dumps(HI[0])}\n\ndata: {first}\n\n".encode())
        await writer.drain()
        await asyncio.to_thread(told.wait, 10)
        writer.writelines(f"data: {json.dumps(event)}\n\n".encode() for event in (*HI[2:], ending(), STOP))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = AnthropicMessages("m", base_url=f"http://127.0.0.1:{port}")
    reply = await client.reply(ModelRequest("", []), lambda delta: told.set())
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"
    await client.aclose()
    server.close()


@pytest.mark.parametrize(
    "events",
    [
        (*HI, ending(), STOP),  # anthropic-events-before-message-start
        (START, begin(0, "text"), *HI[1:], ending(), STOP),  # anthropic-block-start-without-text
        (START, begin(0, "text", text="H"), piece(0, "text_delta", text="i"), ending(), STOP),
        (START, *HI[1:3], ending(), STOP),  # no block was announced
        (START, *HI[:3], ending(), STOP),  # none was ended
        (START, *HI, ending()),  # the end of the message is known, and with it all of the message
        (START, *HI, STOP),  # a gateway that knows no reason
        (START, *HI, {"type": "ping"}, {"type": "from_next_year"}, ending(), STOP, piece(0, "text_delta", text="!")),
        (START, *[{**event, "index": None} for event in HI], ending(), STOP),
        (START, *HI[:3], HI[0], end(0), ending(), STOP),
        (START, begin(0, "thinking"), *HI[1:3], end(0), ending(), STOP),
    ],
)
async def test_slips_that_lose_nothing_are_forgiven(ask_anthropic: Ask, events: tuple[Event, ...]) -> None:
    """Compatible servers leave out, add and reorder what the message does not depend on."""
    reply = await ask_anthropic(streamed(*events))
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"
    assert reply.finish in {"stop", "unknown"}


async def test_usage_may_be_missing_anywhere(ask_anthropic: Ask) -> None:
    """anthropic-message-delta-without-usage: and counts of 0 that stand for nothing change nothing."""
    bare = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    for events, usage in [
        ((START, *HI, bare, STOP), Usage(12, 1, 7)),
        ((START, *HI, ending(input_tokens=0, output_tokens=3), STOP), Usage(12, 3, 7)),
        (({"type": "message_start", "message": {"usage": None}}, *HI, bare, STOP), None),
        (({"type": "message_start"}, *HI, ending(input_tokens=40, output_tokens=3), STOP), Usage(40, 3)),
    ]:
        reply = await ask_anthropic(streamed(*events))
        assert isinstance(reply, Reply)
        assert reply.usage == usage


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([], "{}"),
        ([piece(0, "input_json_delta", partial_json="")], "{}"),
        ([piece(0, "input_json_delta", partial_json='{"a":1}')], '{"a":1}'),
    ],
)
async def test_a_call_without_arguments_is_a_call(ask_anthropic: Ask, pieces: list[Event], arguments: str) -> None:
    """anthropic-no-arg-tool-stream: no piece, an empty one, or the input in the announcement."""
    head = begin(0, "tool_use", id="t1", name="now", input={})
    reply = await ask_anthropic(streamed(START, head, head, *pieces, end(0), ending("tool_use"), STOP))
    assert isinstance(reply, Reply)
    assert reply.calls == (ToolCall("t1", "now", arguments),)
    whole = begin(0, "tool_use", id="t1", name="now", input={"a": 2})
    told = await ask_anthropic(streamed(START, whole, end(0), ending("tool_use"), STOP))
    assert isinstance(told, Reply)
    assert told.calls[0].arguments == '{"a":2}'


async def test_citations_and_fields_of_next_year_are_kept(ask_anthropic: Ask) -> None:
    """What is not understood goes back all the same."""
    events = [
        begin(0, "text", text="", citations=None),
        piece(0, "text_delta", text="Hi"),
        piece(0, "citations_delta", citation={"cited_text": "a"}),
        piece(0, "citations_delta", citation={"cited_text": "b"}),
        piece(0, "mood_delta", mood="good"),
        end(0),
        begin(1, "server_tool_use", id="s", name="web_search"),
        piece(1, "input_json_delta", partial_json='{"query": "x"}'),
        end(1),
    ]
    reply = await ask_anthropic(streamed(START, *events, ending(), STOP))
    assert isinstance(reply, Reply)
    cited = [{"cited_text": "a"}, {"cited_text": "b"}]
    assert json.loads(reply.native) == [
        {"type": "text", "text": "Hi", "citations": cited, "mood": "good"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    ]
    assert not reply.calls


@pytest.mark.parametrize(
    ("exchange", "kind", "words"),
    [
        (streamed(START, *HI[:2]), "network", "the stream ended before the reply was whole"),
        (streamed(START, *HI), "network", "ended before"),
        (streamed(START), "network", "ended before"),
        (streamed(START, STOP), "network", "ended before"),
        (streamed(START, *HI[:2], STOP), "network", "ended before"),
        (streamed(START, *HI[:2], end="reset"), "network", ""),
        ({"sse": ["data: [DONE]"]}, "network", "ended before"),
        ({"sse": [], "headers": {"content-type": "text/event-stream"}}, "network", "ended before"),
        ({"sse": ["data: {oops"]}, "protocol", "an event of the stream is no JSON"),
        ({"sse": ["data: [1]"]}, "protocol", "is a list, not an object; the body begins '[1]'"),
        (streamed(START, {"type": "content_block_start", "index": 0}), "protocol", "a block of the stream has no type"),
        (streamed(START, piece(0, "input_json_delta", partial_json="{")), "protocol", "belongs to no block"),
        (streamed(START, *HI[:1], piece(0, "input_json_delta", partial_json="{")), "protocol", "belongs to no block"),
        (
            streamed(START, *HI[:2], {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            "overloaded",
            "Overloaded",
        ),
        (
            streamed({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}),
            "context_overflow",
            "prompt is too long",
        ),
        ({"status": 529, "body": {"type": "error", "error": {"type": "overloaded_error"}}}, "overloaded", ""),
    ],
)
async def test_less_than_a_message_is_a_failure(
    ask_anthropic: Ask, exchange: dict[str, Any], kind: FailureKind, words: str
) -> None:
    """anthropic-truncated-before-message-stop: a stream that breaks is never a short answer."""
    failed = await ask_anthropic(exchange)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == kind
    assert words in failed.message


async def test_a_stream_that_breaks_after_its_end_has_lost_nothing(ask_anthropic: Ask) -> None:
    """The stop reason is the last thing said; asking again would cost a second reply."""
    for last in ({"end": "reset"}, {"end": "close"}):
        reply = await ask_anthropic(streamed(START, *HI, ending(), **last))
        assert isinstance(reply, Reply)
        assert reply.text == "Hi"


async def test_a_server_that_does_not_stream_is_read_all_the_same(ask_anthropic: Ask) -> None:
    """A gateway may leave the wish to stream unread."""
    body = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    reply = await ask_anthropic({"body": body})
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"


async def test_nothing_of_a_broken_attempt_is_in_the_next() -> None:
    """anthropic-error-event-in-stream: the text that came before the error is void, and its attempt says so."""
    broken = streamed(START, *HI[:2], {"type": "error", "error": {"type": "overloaded_error", "message": "O"}})
    heard: list[object] = []

    class Ear:
        def observe(self, notice: object, run: object) -> None:
            heard.append(notice)

    with WireServer([broken, streamed(START, *HI, ending(), STOP)]) as server:
        client = AnthropicMessages("m", base_url=server.url)
        result = await Agent(client, clock=FrozenClock(), observers=[Ear()]).run("q")
        await client.aclose()
    assert result.output == "Hi"
    assert_path(result, "await_model await_model done")
    deltas = [notice for notice in heard if isinstance(notice, Delta)]
    assert [(delta.text, delta.attempt) for delta in deltas] == [("H", 1), ("H", 2), ("i", 2)]


def outcome(events: list[tuple[str, str]], *, most: int = 10_000) -> tuple[Reply | ModelFailed | str, list[Delta]]:
    """What comes of events that a listener takes, and what it told."""
    heard: list[Delta] = []
    listener = MessageStream(heard.append, max_bytes=most)
    for name, data in events:
        listener.take(name, data)
    if listener.problem or not listener.whole:
        return listener.problem or "cut", heard
    reader = MessageReader(Redactor(), "anthropic x", Pricing(None, "m", "http://x"))
    return reader.message(listener.body(), Answer(200, {}, b"", streamed=True), 0.0), heard


def test_a_message_without_end_is_ended() -> None:
    """What is kept of a reply is bounded, in pieces that say much and in ones that say nothing."""
    for events in (
        [piece(0, "text_delta", text="x" * 100)] * 1000,
        [piece(0, "text_delta", text="")] * 1000,
        [begin(n, "text") for n in range(1000)],
        [piece(0, "text_delta", text=""), *[piece(0, "citations_delta", citation=None)] * 1000],
        [piece(0, "text_delta", text=""), *[piece(0, "x", mood="x" * 100)] * 1000],
    ):
        told, _ = outcome([("", json.dumps(event)) for event in events])
        assert told == "the message is longer than what is kept of one"


def test_comments_and_nothing_are_nothing() -> None:
    """Keep-alives come as comments, as blank data and as ``null``."""
    events = [("", ""), ("ping", " "), ("", ": keep"), ("", "null"), *[("", json.dumps(event)) for event in HI]]
    told, _ = outcome([*events, ("message_delta", '{"delta": {"stop_reason": "end_turn"}}')])
    assert isinstance(told, Reply)
    assert told.text == "Hi"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
loose = st.fixed_dictionaries(
    {"type": st.sampled_from([START["type"], HI[0]["type"], HI[1]["type"], HI[3]["type"], "message_delta", "error"])},
    optional={
        "index": st.integers(0, 2) | json_values,
        "content_block": st.sampled_from([HI[0]["content_block"], CALL[0]["content_block"]]) | json_values,
        "delta": st.sampled_from([HI[1]["delta"], CALL[2]["delta"], ending()["delta"], {"citation": 1}]) | json_values,
        "message": json_values,
        "usage": json_values,
        "error": json_values,
    },
)


@given(st.lists(loose | json_values, max_size=8))
def test_any_events_are_a_reply_or_a_failure(events: list[Any]) -> None:
    """No event that a server can send raises, and what was told is what was kept."""
    told, heard = outcome([("", json.dumps(event)) for event in events])
    assert isinstance(told, Reply | ModelFailed | str)
    if isinstance(told, Reply) and told.finish != "refusal":
        assert told.text == "".join(delta.text for delta in heard if delta.kind == "text")


STREAM = "".join(
    f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
    for event in (START, *THOUGHT, *CALL, *[{**event, "index": 2} for event in HI], ending("tool_use"), STOP)
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_and_line_ends_make_no_difference(cuts: list[int], eol: bytes) -> None:
    """Wherever the network cuts it, within a character or a line end too."""
    content = STREAM.replace(b"\n", eol)
    places = sorted({0, *cuts, len(content)})  # a set, so that no chunk is empty
    chunks = [content[a:b].hex() for a, b in itertools.pairwise(places)]
    exchange: Mapping[str, object] = {"headers": {"content-type": "text/event-stream"}, "raw_hex_chunks": chunks}

    async def ask() -> Reply | ModelFailed:
        with WireServer([exchange]) as server:
            client = AnthropicMessages("m", base_url=server.url)
            return await client.reply(ModelRequest("", []), lambda delta: None)

    reply = asyncio.run(ask())
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning, reply.calls) == ("Hi", "Hm.\n", (ToolCall("t1", "f", '{"a": "é"}'),))
