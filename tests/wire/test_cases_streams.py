"""Streams of chat completions as servers really send them: framed oddly, cut, stalled, or with an error inside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from turnstile import Agent, Reply, Retry
from turnstile.core.events import ModelFailed
from turnstile.core.run_state import RunState
from turnstile.models import OpenAIChat
from turnstile.ports import Delta, Notice
from turnstile.testing import FrozenClock, WireServer
from wire_case import Case, Played, Tools, chat, play


def last_reply(played: Played) -> Reply:
    """The newest reply that the history holds."""
    return [message for message in played.result.messages if isinstance(message, Reply)][-1]


def deltas(played: Played, kind: str = "text") -> list[Delta]:
    """The pieces of a reply that an observer heard."""
    return [notice for notice in played.notices if isinstance(notice, Delta) and notice.kind == kind]


def error(played: Played) -> ModelFailed:
    """The failure that ended a run."""
    assert played.result.stop is not None
    assert played.result.stop.error is not None
    return played.result.stop.error


def assert_hi(played: Played) -> None:
    """Check that a stream was read whole."""
    assert played.result.output == "Hi"
    assert last_reply(played).finish == "stop"
    assert "".join(delta.text for delta in deltas(played)) == "Hi"
    assert len(played.requests) == 1
    assert played.bodies[0]["stream"] is True


def assert_asked_again(played: Played, kind: str) -> None:
    """Check that a stream that broke was a passing failure, of which nothing is left."""
    assert played.result.output == "done"
    assert played.rows == ["retry", "answered"]
    failed = played.result.transitions[0].error
    assert failed is not None
    assert failed.kind == kind
    assert [delta.text for delta in deltas(played) if delta.attempt == 2] == ["done"]
    assert "par" not in repr(played.result.messages)


async def test_azure_empty_choices_first_chunk(case: Case) -> None:
    """A chunk without choices says something of the request only."""
    played = await play(case)
    assert_hi(played)
    assert last_reply(played).model in {"", "m"}


@pytest.mark.cases("sse-crlf", "sse-data-without-space", "sse-comment-keepalive")
async def test_framing(case: Case) -> None:
    """Line ends, a missing blank and comments are matters of framing, not of content."""
    assert_hi(await play(case))


async def test_sse_bare_cr_and_split_crlf(case: Case) -> None:
    """A line may end in a bare CR, and a CR and its LF may come apart."""
    played = await play(case)
    assert_hi(played)
    assert len(deltas(played)) == 1


async def test_sse_garbage_json_event(case: Case) -> None:
    """A hole in the text is a broken stream; the failure shows where, in few words."""
    played = await play(case)
    assert_asked_again(played, "protocol")
    failed = played.result.transitions[0].error
    assert failed is not None
    assert '"B"' in failed.message.replace("\\", "")
    assert len(failed.message) <= 500


async def test_sse_unterminated_last_event(case: Case) -> None:
    """A last event without its blank line counts when it is whole, and else the stream was cut."""
    assert_hi(await play(case))
    (chunk,) = case.exchanges[0]["raw_text_chunks"]
    for cut in range(2, 40, 6):
        broken = {**case.exchanges[0], "raw_text_chunks": [chunk[:-cut]]}
        played = await play(case, exchanges=[broken, chat()])
        assert_asked_again(played, "network" if error_kind(played) == "network" else "protocol")


def error_kind(played: Played) -> str:
    """What the first move failed of."""
    failed = played.result.transitions[0].error
    return failed.kind if failed else ""


async def test_sse_utf8_split_between_chunks(case: Case) -> None:
    """Characters come apart in the network, and together again here, wherever the bytes are cut."""
    whole = "".join(case.exchanges[0]["raw_hex_chunks"])
    singly = [whole[place : place + 2] for place in range(0, len(whole), 2)]
    for chunks in (case.exchanges[0]["raw_hex_chunks"], singly):
        played = await play(case, exchanges=[{**case.exchanges[0], "raw_hex_chunks": chunks}])
        assert played.result.output == "\N{EARTH GLOBE EUROPE-AFRICA}"
        assert "".join(delta.text for delta in deltas(played)) == "\N{EARTH GLOBE EUROPE-AFRICA}"


async def test_multiple_choices_in_stream(case: Case) -> None:
    """Only the first choice was asked for, and only its end is the end."""
    assert (await play(case)).result.output == "Aa"


async def test_think_tags_inline_split(case: Case) -> None:
    """Reasoning in tags is told from the answer where that is asked for, however the tags are cut."""
    strip = {"think_tags": "strip"}
    played = await play(case, options=strip)
    assert played.result.output == "Answer x < y"
    assert last_reply(played).reasoning == "a > b, secret"
    assert "".join(delta.text for delta in deltas(played)) == "Answer x < y"
    assert "".join(delta.text for delta in deltas(played, "reasoning")) == "a > b, secret"
    plain = await play(case)
    assert plain.result.output == "<think>a > b, secret</think>Answer x < y"
    literal = await play(case, exchanges=[chat("In HTML <think> is no tag.")], options=strip)
    assert literal.result.output == "In HTML <think> is no tag."
    unclosed = await play(case, exchanges=[{**chat("<think>hm"), "repeat": 2}], options=strip)
    assert unclosed.reason == "empty_answer"


async def test_stream_stop_in_own_chunk_after_tool_deltas(case: Case, tools: Tools) -> None:
    """A call that came stays, whatever the last chunk is labelled."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    first = next(message for message in played.result.messages if isinstance(message, Reply))
    assert (first.finish, first.finish_raw) == ("tool_calls", "stop")
    assert played.result.output == "done"


async def test_openai_refusal_delta_stream(case: Case) -> None:
    """A refusal that comes in pieces is a refusal."""
    played = await play(case)
    assert (played.reason, len(played.requests)) == ("refused", 1)
    assert last_reply(played).text == "I cannot."


async def test_stream_done_but_socket_stays_open(case: Case) -> None:
    """The protocol's own end is the end, though the connection stays open."""
    async with asyncio.timeout(300):
        assert_hi(await play(case, options={"timeout": 900}))


async def test_stream_ends_mid_tool_arguments(case: Case, tools: Tools) -> None:
    """Half a call is none, and leaves nothing behind."""
    played = await play(case, tools("write_file", path=str, content=str))
    assert tools.ran == []
    assert played.result.output == "done"
    assert played.rows == ["retry", "answered"]
    assert played.bodies[0] == played.bodies[1]


async def test_error_chunk_nonstandard_fields(case: Case) -> None:
    """An error in a server's own words is one, and its words are kept."""
    played = await play(case)
    assert not played.result.ok
    assert "maximum context length is 8192" in error(played).message


async def test_error_in_stream_400_not_retryable(case: Case) -> None:
    """An error amid a stream is what its code says."""
    played = await play(case)
    assert len(played.requests) == 1
    assert (error(played).kind, played.reason) == ("context_overflow", "context_overflow")
    assert "prompt is too long: 1200345 tokens" in error(played).message


async def test_incomplete_chunked_read(case: Case) -> None:
    """A connection that breaks amid a body is a network failure, and its text is void."""
    assert_asked_again(await play(case), "network")


async def test_stream_exception_swallowed_as_clean_end(case: Case) -> None:
    """A stream that falls silent ends the attempt once, with an error."""
    played = await play(case, options={"idle_timeout": 1}, retry=Retry(attempts=1))
    assert (error(played).kind, played.rows) == ("timeout", ["gave_up"])


async def test_stream_stall_idle_timeout(case: Case) -> None:
    """Silence ends an attempt, and lets go of its connection; a slow stream that lives is not cut."""
    played = await play(case, options={"idle_timeout": 1})
    assert_asked_again(played, "timeout")
    assert played.connections == 2
    alive = asyncio.Event()

    class Ears:
        def observe(self, notice: Notice, run: RunState) -> None:
            if isinstance(notice, Delta):
                alive.set()

    chunks = [f'data: {{"choices":[{{"index":0,"delta":{{"content":"{n}"}}}}]}}\n\n' for n in range(5)]
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with _SlowServer([*chunks, end], alive) as url:
        client = OpenAIChat("m", base_url=url, stream=True, idle_timeout=5)
        result = await Agent(client, observers=[Ears()], clock=FrozenClock()).run("q")
        await client.aclose()
    assert result.output == "01234"


class _SlowServer:
    """Sends one piece after another, each only once the piece before was heard; the first at once."""

    def __init__(self, pieces: Sequence[str], heard: asyncio.Event) -> None:
        self._pieces = pieces
        self._heard = heard

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(head)
        for piece in self._pieces:
            self._heard.clear()
            writer.write(piece.encode())
            await writer.drain()
            if "[DONE]" not in piece:
                await self._heard.wait()
        writer.close()


async def test_usage_on_role_bearing_finish_delta(case: Case) -> None:
    """Usage counts on whatever chunk it rides."""
    played = await play(case)
    assert_hi(played)
    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (3, 1)


async def test_usage_only_final_chunk(case: Case) -> None:
    """Usage comes after the end of the text, and is waited for."""
    played = await play(case)
    assert_hi(played)
    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (12, 5)


async def test_event_loop_closed_on_second_run(case: Case) -> None:
    """`run_sync` works as often as it is called, streaming or not, and says what to do inside an event loop."""
    from turnstile import InsideEventLoop

    def twice(agent: Agent[str]) -> list[str]:
        return [agent.run_sync("q").output, agent.run_sync("q").output]

    for stream in (True, False):
        with WireServer(case.exchanges) as server:
            agent = Agent(case.client(server.url, stream=stream))
            assert await asyncio.to_thread(twice, agent) == ["done", "done"]
            with pytest.raises(InsideEventLoop, match=r"await agent\.run"):
                agent.run_sync("q")


async def test_no_proxy_cidr_crashes_client(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network in NO_PROXY, which httpx cannot read, stops nobody; a server on this machine is asked directly."""
    for name, given in case.input["env"].items():
        monkeypatch.setenv(name, given)
    for options in ({}, {"trust_env": False}):
        assert (await play(case, options=options)).result.output == "done"
