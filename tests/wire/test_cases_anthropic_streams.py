"""Streams of Anthropic's Messages API, whole, broken, and unlike its documentation."""

from __future__ import annotations

import json

from turnstile.ports import Delta
from wire_case import Case, Tools, blocks, play, use


async def test_anthropic_redacted_thinking_roundtrip(case: Case, tools: Tools) -> None:
    """What is sealed goes back sealed, in its place."""
    played = await play(case, tools("f"))
    assert tools.ran == [("f", {})]
    assert blocks(played.last[1]) == [{"type": "redacted_thinking", "data": "ENC"}, use("toolu_1")]
    assert played.result.output == "done"


async def test_anthropic_block_start_without_text(case: Case) -> None:
    """A block may begin without what it will hold."""
    assert (await play(case)).result.output == "Hi"


async def test_anthropic_events_before_message_start(case: Case) -> None:
    """A stream without its first event still says what it says; what it doesn't say is unknown."""
    played = await play(case)
    assert played.result.output == "Hi"
    assert played.result.usage.input_tokens is None


async def test_anthropic_message_delta_without_usage(case: Case) -> None:
    """Counts that never come are unknown."""
    assert (await play(case)).result.output == "Hi"
    for usage in (None, "absent"):
        exchange = json.loads(json.dumps(case.exchanges[0]))
        start = json.loads(exchange["sse"][0].split("data: ")[1])
        start["message"]["usage"] = usage
        if usage == "absent":
            del start["message"]["usage"]
        exchange["sse"][0] = f"event: message_start\ndata: {json.dumps(start)}"
        assert (await play(case, exchanges=[exchange])).result.output == "Hi"


async def test_anthropic_no_arg_tool_stream(case: Case, tools: Tools) -> None:
    """A call without arguments has an empty object of them."""
    played = await play(case, tools("now"))
    assert tools.ran == [("now", {})]
    assert blocks(played.last[1]) == [use("t1", "now")]


async def test_anthropic_truncated_before_message_stop(case: Case) -> None:
    """A stream that ends too soon is a failure that passes, not a short answer."""
    for broken in (case.exchanges[0], {**case.exchanges[0], "sse": []}):
        played = await play(case, exchanges=[broken, case.exchanges[1]])
        assert played.result.output == "done"
        assert played.rows == ["retry", "answered"]
        assert "par" not in repr(played.result.messages)


async def test_anthropic_error_event_in_stream(case: Case) -> None:
    """An error amid a stream is one under a bad status; what came before it is void, and observers are told."""
    played = await play(case)
    assert (played.result.output, played.rows) == ("done", ["retry", "answered"])
    failed = played.result.transitions[0].error
    assert failed is not None
    assert failed.kind == "overloaded"
    attempts = [notice.attempt for notice in played.notices if isinstance(notice, Delta)]
    assert attempts[0] == 1
    assert attempts[-1] == 2


async def test_anthropic_max_tokens_mid_tool_use(case: Case, tools: Tools) -> None:
    """A call that was cut does not run, also when its JSON happens to be whole."""
    whole = json.loads(json.dumps(case.exchanges[0]).replace(r"\\\"x\"", r"\\\"x\\\"}\""))
    assert whole != case.exchanges[0]
    for exchange in (case.exchanges[0], whole):
        played = await play(case, tools("write_file", path=str, content=str), exchanges=[exchange, case.exchanges[1]])
        assert tools.ran == []
        (call,) = (block for block in blocks(played.last[1]) if block["type"] == "tool_use")
        assert isinstance(call["input"], dict)
        (result,) = blocks(played.last[2])
        assert (result["is_error"], "again" in result["content"]) == (True, True)
        assert played.result.output == "done"


async def test_anthropic_stream_refusal_after_partial(case: Case, tools: Tools) -> None:
    """A refusal ends the run, whatever was begun before it."""
    played = await play(case, tools("f", a=int))
    assert (played.reason, len(played.requests)) == ("refused", 1)
    assert tools.ran == []
