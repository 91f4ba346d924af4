"""Streams of chat completions: whatever a server streams is put together to the reply it meant, or is one failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile import Agent, Retry
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, ToolCall, Usage
from turnstile.models import OpenAIChat
from turnstile.ports import Delta, ModelRequest
from turnstile.shell.models.chat_stream import ChatStream, merged
from turnstile.testing import FrozenClock, WireServer

Ask = Callable[..., Awaitable[Reply | ModelFailed]]

DONE = "data: [DONE]"


def chunk(delta: object = None, finish: object = None, **more: object) -> str:
    """An event of a stream with one choice."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return "data: " + json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [choice], **more})


def text(said: str) -> str:
    """An event that says a piece of text."""
    return chunk({"content": said})


def stream(*events: str, **exchange: object) -> dict[str, object]:
    """An exchange that streams these events."""
    return {"sse": [*events], **exchange}


def piece(
    index: object = 0, call_id: object = None, name: object = None, arguments: object = None, **extra: object
) -> dict[str, object]:
    """A piece of a call, with only what is given."""
    function = {"name": name, "arguments": arguments}
    return {
        **({} if index is None else {"index": index}),
        **({} if call_id is None else {"id": call_id}),
        "function": {key: part for key, part in function.items() if part is not None},
        **extra,
    }


async def test_a_stream_is_put_together_with_all_that_it_says(ask: Ask) -> None:
    """usage-only-final-chunk: the label comes before the usage, and both belong to the reply."""
    usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    exchange = stream(
        chunk({"role": "assistant", "content": ""}, model="m", usage=None),
        chunk({"reasoning_content": "hm"}),
        text("H"),
        text("i"),
        chunk(finish="stop", usage=None),
        "data: " + json.dumps({"choices": [], "usage": usage}),
        DONE,
    )
    assert await ask(exchange) == Reply(
        "Hi", finish="stop", finish_raw="stop", reasoning="hm", usage=Usage(12, 5), model="m", request_id="c1"
    )


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [chunk(finish="stop", usage={"prompt_tokens": 3, "completion_tokens": 1}), DONE], id="with-the-label"
        ),
        pytest.param(
            ['data: {"choices":[{"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":1}}]}'],
            id="in-the-choice",
        ),
        pytest.param(
            [chunk(finish="stop", x_groq={"usage": {"prompt_tokens": 3, "completion_tokens": 1}})], id="x-groq"
        ),
        pytest.param(
            [
                chunk(usage={"prompt_tokens": 3, "completion_tokens": 0}),
                chunk(usage={"prompt_tokens": None, "completion_tokens": 1}),
                chunk(finish="stop", usage={}),
            ],
            id="growing",
        ),
    ],
)
async def test_usage_is_found_wherever_it_stands(ask: Ask, events: list[str]) -> None:
    """usage-on-role-bearing-finish-delta: a budget that misses a reply's tokens is no budget."""
    reply = await ask(stream(text("Hi"), *events))
    assert isinstance(reply, Reply)
    assert reply.usage == Usage(3, 1)


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param([piece(0, "a", "f", '{"k":'), piece(0, arguments="1}")], [("a", "f", '{"k":1}')], id="plain"),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(1, "b", "g", "{"), piece(0, arguments="}"), piece(1, arguments="}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="interleaved",
        ),
        pytest.param(
            [piece(0, "a", "f", "{}"), piece(0, "b", "f", "{}")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="delta-same-index-for-distinct-calls",
        ),
        pytest.param(
            [piece(0, "a", "f", ""), piece(0, "b", "f", "")],
            [("a", "f", ""), ("b", "f", "")],
            id="same-index-without-arguments",
        ),
        pytest.param(
            [piece(0, "a", "f", "{}"), piece(0, "b", "g", '{"k":'), piece(1, arguments="1}"), piece(1, arguments="")],
            [("a", "f", "{}"), ("b", "g", '{"k":1}')],
            id="delta-head-index-collides-tail-correct",
        ),
        pytest.param(
            [piece(0, "a", "f", ""), piece(0, "z", None, '{"k":'), piece(0, "z", None, "1}")],
            [("a", "f", '{"k":1}')],
            id="delta-id-changes-mid-call",
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(0, "z", "f", '"k":'), piece(0, "y", "f", "1}")],
            [("a", "f", '{"k":1}')],
            id="id-changes-and-name-repeats",
        ),
        pytest.param(
            [piece(0, "a", "f", ""), piece(0, "", "", '{"k":'), piece(0, "", None, "1}")],
            [("a", "f", '{"k":1}')],
            id="delta-id-empty-on-continuation",
        ),
        pytest.param(
            [piece(0, "a"), piece(0, None, "f"), piece(0, None, None, "{}")],
            [("a", "f", "{}")],
            id="delta-id-and-name-in-separate-chunks",
        ),
        pytest.param(
            [piece(0, "a", "f", "{}"), piece(0, "b"), piece(0, None, "g"), piece(0, None, None, "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="second-id-and-name-in-separate-chunks",
        ),
        pytest.param(
            [piece(0, "a", "get_", ""), piece(0, None, "weather", ""), piece(0, None, None, "{}")],
            [("a", "get_weather", "{}")],
            id="delta-name-fragmented",
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(0, "a", "f", '"k":1'), piece(0, "a", "f", "}"), piece(0, "a", "f", "")],
            [("a", "f", '{"k":1}')],
            id="delta-name-repeated-each-chunk",
        ),
        pytest.param(
            [piece("0", "a", "f", "{}"), piece("1", "b", "g", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="delta-invalid-index-type",
        ),
        pytest.param(
            [piece(-1, "a", "f", "{}"), piece(None, "b", "g", "{}"), piece([], None, "h", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}"), ("", "h", "{}")],
            id="no-usable-index",
        ),
        pytest.param([piece(0, None, "f", "{}")], [("", "f", "{}")], id="delta-no-id-at-all"),
        pytest.param(
            [piece(None, None, "f", "{}"), piece(None, None, "f", "{}")],
            [("", "f", "{}"), ("", "f", "{}")],
            id="neither-index-nor-id",
        ),
        pytest.param(
            [piece(0, "x", "f", '{"k":1}'), piece(0, "x", "f", '{"k":2}')],
            [("x", "f", '{"k":1}'), ("x", "f", '{"k":2}')],
            id="one-id-for-all",
        ),
        pytest.param(
            [piece(0, "a", "f", "{"), piece(0, None, None, "}"), piece(0, "a", "f", "{}")],
            [("a", "f", "{}")],
            id="whole-call-again-at-the-end",
        ),
        pytest.param(
            [piece(0, "a", "f", '{"k":"}{\\"'), piece(0, "a", "f", '"}')],
            [("a", "f", '{"k":"}{\\""}')],
            id="braces-inside-a-string",
        ),
        pytest.param([piece(0, 7, "f", {"k": 1})], [("7", "f", '{"k":1}')], id="id-number-arguments-object"),
        pytest.param([piece(), piece(None), piece(3, extra_content={"x": 1})], [], id="nothing-said"),
        pytest.param([piece(0, None, None, "{}")], [("", "", "{}")], id="arguments-without-a-head"),
    ],
)
async def test_pieces_of_calls_find_their_call(
    ask: Ask, pieces: list[object], calls: list[tuple[str, str, str]]
) -> None:
    """Never one call made of two, whichever of index, id and name a server leaves out or gets wrong."""
    reply = await ask(stream(*(chunk({"tool_calls": [each]}) for each in pieces), chunk(finish="tool_calls"), DONE))
    assert isinstance(reply, Reply)
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == calls


async def test_calls_in_one_chunk_without_index_are_separate(ask: Ask) -> None:
    """A gateway that has the whole reply sends all calls at once, and may number none of them."""
    entries = [piece(None, None, "f"), piece(None, None, "g", "{}"), None]
    reply = await ask(stream(chunk({"tool_calls": entries}, "tool_calls")))
    assert isinstance(reply, Reply)
    assert [call.name for call in reply.calls] == ["f", "g"]


@pytest.mark.parametrize(
    ("exchange", "said"),
    [
        pytest.param(stream(text("Hi"), chunk(finish="stop")), "Hi", id="no-done"),
        pytest.param(stream(text("Hi"), DONE), "Hi", id="no-finish-reason"),
        pytest.param(stream(text("Hi"), chunk(finish="stop"), DONE, "data: {", text("x")), "Hi", id="after-done"),
        pytest.param(stream(text("Hi"), chunk(finish="stop"), "data: {"), "Hi", id="garbage-behind-the-end"),
        pytest.param(stream(text("Hi"), chunk(finish="stop"), end="reset"), "Hi", id="reset-behind-the-end"),
        pytest.param(stream(text("Hi"), chunk(finish="stop"), DONE, end="hang"), "Hi", id="stays-open"),
        pytest.param(
            stream(
                'data: {"choices":[{"index":1,"delta":{"content":"B"},"finish_reason":"stop"}]}',
                text("H"),
                'data: {"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"i"}}]}',
                DONE,
            ),
            "Hi",
            id="multiple-choices-in-stream",
        ),
        pytest.param(stream("data: ", "data: : ping", ": c", "data: null", text("Hi"), DONE), "Hi", id="keep-alives"),
        pytest.param(stream("data: [" + text("Hi")[6:] + "]", DONE), "Hi", id="list-around-a-chunk"),
        pytest.param(stream(text("Hi"), DONE, headers={"content-type": "text/plain"}), "Hi", id="content-type"),
        pytest.param(stream(text("Hi"), DONE, headers={"content-type": "application/json"}), "Hi", id="json-type"),
        pytest.param(stream("\ufeff" + text("Hi"), DONE), "Hi", id="byte-order-mark"),
        pytest.param(stream("event: x\nid: 7\nretry: 9\n" + text("Hi"), DONE, eol="\r"), "Hi", id="bare-cr"),
        pytest.param(stream(chunk({"content": [{"type": "text", "text": "Hi"}, "!"]}), DONE), "Hi!", id="parts"),
        pytest.param(
            stream('data: {"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}'),
            "Hi",
            id="whole",
        ),
        pytest.param(
            stream(text("Hi"), 'data: {"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}'),
            "Hi",
            id="whole-message-again",
        ),
        pytest.param(
            {"body": {"choices": [{"message": {"content": "Hi"}}]}, "headers": {"content-type": "text/event-stream"}},
            "Hi",
            id="no-stream-at-all",
        ),
        pytest.param({"text": ' {"choices":[{"message":{"content":"Hi"}}]}'}, "Hi", id="json-under-no-type"),
    ],
)
async def test_a_whole_reply_is_a_reply_however_it_ends(ask: Ask, exchange: dict[str, object], said: str) -> None:
    """Servers forget the end, say too much behind it, or answer with something else than a stream."""
    reply = await ask(exchange)
    assert isinstance(reply, Reply)
    assert reply.text == said


@pytest.mark.parametrize(
    ("exchange", "kind", "words"),
    [
        pytest.param(stream(text("par")), "network", "before the reply was whole", id="ends-early"),
        pytest.param(stream(chunk({"content": "par"}, "null")), "network", "before the reply", id="null-as-a-text"),
        pytest.param(stream(text("par"), end="reset"), "network", "127.0.0.1", id="reset"),
        pytest.param(stream(text("par"), end="hang"), "timeout", "silent for 0.2 s", id="stall"),
        pytest.param(
            stream(headers={"content-type": "text/event-stream"}),
            "network",
            "before the reply was whole",
            id="no-event",
        ),
        pytest.param(stream(": c", end="hang"), "timeout", "silent for 0.2 s", id="no-byte"),
        pytest.param(stream(DONE), "protocol", "neither a choice nor an error", id="done-only"),
        pytest.param(stream(text("A"), 'data: {"cho', text("C"), DONE), "protocol", "no JSON", id="garbage"),
        pytest.param(stream(chunk({"content": [7]}), DONE), "protocol", "holds a int", id="part-of-no-kind"),
        pytest.param(stream(text("A"), "data: 7", DONE), "protocol", "is a int, not an object", id="number"),
        pytest.param(
            stream(chunk({"tool_calls": [piece(0, "a", "f", '{"k":')]}), DONE),
            "network",
            "before the reply was whole",
            id="done-inside-a-call",
        ),
        pytest.param(stream(text("A"), 'data: {"error":{"message":"boom"}}'), "protocol", "boom", id="error"),
        pytest.param(stream('event: error\ndata: {"code":429,"message":"slow"}'), "rate_limited", "slow", id="event"),
        pytest.param(stream('event: error\ndata: {"oops":1}'), "protocol", "oops", id="error-of-no-shape"),
        pytest.param(stream(text("A"), chunk(finish="error")), "server", "'error'", id="error-label"),
        pytest.param(stream('data: {"error":"x"}', end="reset"), "protocol", "x", id="error-then-reset"),
        pytest.param(
            stream('data: {"choices":[],"error":{"code":400,"message":"prompt is too long: 2 > 1"}}'),
            "context_overflow",
            "prompt is too long",
            id="error-in-stream-400",
        ),
        pytest.param(
            stream('data: {"choices":null,"error_type":"BadRequestError","error_message":"no","code":400}'),
            "bad_request",
            "no",
            id="error-chunk-nonstandard-fields",
        ),
        pytest.param({"raw_hex_chunks": [b"data: \xff\n\n".hex()]}, "protocol", "not UTF-8", id="no-utf-8"),
        pytest.param({"raw_hex_chunks": [b"data: {}\n\n\xf0\x9f".hex()]}, "protocol", "not UTF-8", id="cut-character"),
    ],
)
async def test_what_is_no_whole_reply_is_one_failure(ask: Ask, exchange: dict[str, Any], kind: str, words: str) -> None:
    """A stream that breaks is never a short answer."""
    failed = await ask(exchange, idle_timeout=0.2)
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, words in failed.message) == (kind, True), failed


async def test_comments_keep_a_stream_alive_but_not_for_ever(ask: Ask) -> None:
    """A server that only says that it is busy must not hold a run: an event has to come in time."""
    failed = await ask(stream(text("A"), *[": busy"] * 3, end="hang"), timeout=0.2, idle_timeout=60)
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, "without an event" in failed.message) == ("timeout", True)


async def test_nothing_of_a_broken_attempt_is_in_the_answer() -> None:
    """incomplete-chunked-read: the retry begins anew, and observers can tell the attempts apart."""
    heard: list[Delta] = []

    class Listener:
        def observe(self, notice: object, run: object) -> None:
            if isinstance(notice, Delta):
                heard.append(notice)

    with WireServer([stream(text("par"), end="reset"), stream(text("done"), DONE)]) as server:
        client = OpenAIChat("m", base_url=server.url)
        result = await Agent(client, clock=FrozenClock(), observers=[Listener()], retry=Retry(attempts=2)).run("Hi")
        await client.aclose()
    assert result.output == "done"
    assert heard == [Delta("text", "par", 1), Delta("text", "done", 2)]


async def test_the_first_piece_is_told_before_the_second_is_sent(hello: ModelRequest) -> None:
    """A server that waits for it proves it: no piece is held back for the next."""
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(text("first").encode() + b"\r\r")
        await seen.wait()
        writer.write(text(" second").encode() + b"\n\n" + DONE.encode() + b"\n\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = OpenAIChat("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        reply = await client.reply(hello, lambda delta: seen.set())
        await client.aclose()
    assert isinstance(reply, Reply)
    assert reply.text == "first second"


async def test_a_connection_whose_stream_ended_is_used_again(hello: ModelRequest) -> None:
    """A new connection for each turn costs a handshake, which is what users wait for."""
    served = 0
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served, opened
        opened += 1
        while served < 2:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            served += 1
            body = f"{text('Hi')}\n\n{DONE}\n\n".encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = OpenAIChat("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(2):
            assert isinstance(await client.reply(hello, lambda delta: None), Reply)
        await client.aclose()
    assert (served, opened) == (2, 1)


async def test_a_reply_that_grows_without_end_is_given_up() -> None:
    """No server decides how much memory a reply takes, not with text, calls, choices or fields of its own."""
    for delta in (
        {"content": "x" * 100},
        {"tool_calls": [piece(None, None, "f", "{}")]},
        {"reasoning_details": [{"text": "x" * 100}]},
    ):
        listener = ChatStream(lambda delta: None, echo=("reasoning_details",), max_bytes=5_000)
        for _ in range(100):
            listener.take("message", chunk(delta)[6:])
        assert listener.done
        assert listener.problem == "the reply is longer than what is kept of one"


async def test_what_a_provider_wants_back_goes_back_to_it_only() -> None:
    """gemini-thought-signature-on-trailing-delta: signatures and details are echoed as they came, to their server."""
    details = [{"type": "reasoning.text", "index": 0, "text": "h"}, {"type": "reasoning.text", "index": 0, "text": "m"}]
    exchange = stream(
        *(chunk({"reasoning_details": [detail]}) for detail in details),
        chunk({"tool_calls": [piece(None, "a", "f", "{}")]}),
        chunk({"tool_calls": [{"extra_content": {"google": {"thought_signature": "SIG+/=="}}}]}),
        chunk(finish="stop"),
        DONE,
    )
    answer = stream(text("done"), DONE)
    with WireServer([exchange, answer]) as server, WireServer([answer]) as other:
        client = OpenAIChat("m", base_url=server.url, echo=("reasoning_details",))
        elsewhere = OpenAIChat("m", base_url=other.url)
        result = await Agent(client).run("Hi")
        await Agent(elsewhere).run("And?", history=result.messages)
        for each in (client, elsewhere):
            await each.aclose()
    bodies: list[Any] = [server.requests[1].body, other.requests[0].body]
    back, converted = (body["messages"][1] for body in bodies)
    assert back["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "SIG+/=="}}
    assert back["reasoning_details"] == [{"type": "reasoning.text", "index": 0, "text": "hm"}]
    assert set(converted) == {"role", "content", "tool_calls"}
    assert set(converted["tool_calls"][0]) == {"id", "type", "function"}


def test_pieces_of_a_providers_own_field_are_merged() -> None:
    """They are sent back as if they had never been cut."""
    assert merged(None, {"a": 1}) == {"a": 1}
    assert merged({"a": 1, "text": "x"}, {"b": {"c": 2}, "text": "y", "a": None}) == {
        "a": 1,
        "b": {"c": 2},
        "text": "xy",
    }
    assert merged([{"index": 0, "data": "x"}], [{"index": 1}, {"index": 0, "data": "y"}, {"id": "z"}]) == [
        {"index": 0, "data": "xy"},
        {"index": 1},
        {"id": "z"},
    ]
    assert merged("a", None) == "a"


async def test_a_server_that_stays_open_without_an_end_loses_its_connection(ask: Ask) -> None:
    """The label says that the reply is whole; its usage is waited for, but not for long."""
    reply = await ask(stream(text("Hi"), chunk(finish="stop"), end="hang"), idle_timeout=1)
    assert isinstance(reply, Reply)
    assert reply.text == "Hi"


async def test_what_could_have_been_a_tag_is_told_in_the_end(hello: ModelRequest) -> None:
    """A held back piece belongs to the text that is seen as to the text that is kept."""
    heard: list[Delta] = []
    with WireServer([stream(text("<thi"), chunk(finish="stop"))]) as server:
        client = OpenAIChat("m", base_url=server.url, think_tags="strip")
        reply = await client.reply(hello, heard.append)
        await client.aclose()
    assert isinstance(reply, Reply)
    assert heard == [Delta("text", "<thi")]
    assert reply.text == "<thi"


@pytest.mark.parametrize("how", ["keep", "strip"])
async def test_the_same_reply_streamed_and_not(ask: Ask, how: str) -> None:
    """Both ways are read by one set of rules, so that a user can turn streaming off without a surprise."""
    message = {
        "content": "<think>why</think>\n\nbecause",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    whole = {"id": "c1", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    plain = await ask({"body": whole}, stream=False, think_tags=how)
    cut = [chunk({"content": char}) for char in str(message["content"])]
    calls = chunk({"tool_calls": [piece(0, "a", "f", "{}")]})
    streamed = await ask(stream(*cut, calls, chunk(finish="stop", usage=usage, model="m"), DONE), think_tags=how)
    assert streamed == plain
    assert isinstance(plain, Reply)
    assert plain.calls == (ToolCall("a", "f", "{}"),)
    assert plain.text == ("because" if how == "strip" else message["content"])


FRAGMENTS = st.sampled_from(
    [
        *(
            "data: ",
            "data:",
            "event: error",
            "id: 1",
            ": c",
            "\n",
            "\r",
            "\r\n",
            "\n\n",
            "[DONE]",
            "null",
            "{",
            "}",
            "x",
        ),
        *(text("Hi 🌍"), chunk({"tool_calls": [piece(0, "a", "f", "{")]}), chunk(finish="stop"), "\ufeff"),
        *('data: {"error":{"message":"boom"}}', '{"choices":[{"message":{"content":"x"}}]}', "\x00", "\x85", "\u2028"),
    ]
).map(str.encode) | st.binary(max_size=4)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_where_bytes_are_cut_makes_no_difference(data: st.DataObject, hello: ModelRequest) -> None:
    """sse-utf8-split-between-chunks: any bytes, cut anywhere, are the reply or the failure that they are uncut."""
    content = b"".join(data.draw(st.lists(FRAGMENTS, min_size=1, max_size=12)))
    places = sorted(data.draw(st.sets(st.integers(1, max(1, len(content) - 1)), max_size=6)))
    cuts = [content[start:end] for start, end in zip([0, *places], [*places, len(content)], strict=True)]
    every = [content[place : place + 1] for place in range(len(content))]
    exchanges = [{"raw_hex_chunks": [part.hex() for part in parts if part]} for parts in ([content], cuts, every)]

    stream = data.draw(st.booleans())

    async def outcomes() -> list[Reply | ModelFailed]:
        client = OpenAIChat("m", base_url=server.url, stream=stream)
        try:
            return [await client.reply(hello, lambda delta: None) for _ in exchanges]
        finally:
            await client.aclose()

    with WireServer(exchanges) as server:
        whole, *others = asyncio.run(outcomes())
    assert others == [whole, whole]


@pytest.mark.parametrize(
    ("piece_of_it", "words"),
    [
        pytest.param(b"data: " + b"x" * 1_000_000, "an event of more than", id="one-endless-event"),
        pytest.param(
            b"data: x\ndata: " + b"x" * 1_000_000 + b"\n", "an event of more than", id="one-endless-event-in-lines"
        ),
        pytest.param((text("x" * 1_000_000) + "\n\n").encode(), "longer than what is kept", id="endless-text"),
        pytest.param(b'{"choices": "' + b"x" * 1_000_000, "at most", id="endless-body"),
    ],
)
async def test_a_stream_without_end_is_given_up(hello: ModelRequest, piece_of_it: bytes, words: str) -> None:
    """A server that never stops takes neither all memory nor for ever, and its connection is closed."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(piece_of_it)
                await writer.drain()
        writer.close()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = OpenAIChat("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        failed = await client.reply(hello, lambda delta: None)
        await closed.wait()
        await client.aclose()
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, words in failed.message) == ("protocol", True), failed


@pytest.mark.parametrize("exchange", ["{}", 'data: {"choices":{}}'])
async def test_a_few_megabytes_of_brackets_are_refused(ask: Ask, exchange: str) -> None:
    """They would take a hundred times their size once they are read."""
    failed = await ask({"text": exchange.replace("{}", "[" + "[]," * 1_000_000 + "[]]")})
    assert isinstance(failed, ModelFailed)
    assert (failed.kind, "more than 1000000 values" in failed.message) == ("protocol", True), failed


async def test_a_cancelled_stream_closes_its_connection(hello: ModelRequest) -> None:
    """A server that goes on writing for nobody costs tokens, and on a small machine the only slot there is."""
    begun, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + text("Hi").encode() + b"\n\n")
        await writer.drain()
        while await reader.read(1_000):
            pass
        writer.close()
        closed.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = OpenAIChat("m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        task = asyncio.create_task(client.reply(hello, lambda delta: begun.set()))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await closed.wait()
        await client.aclose()
    assert task.cancelled()
