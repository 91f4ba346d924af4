"""More of the same kinds as the cases: what servers refuse to take back, and what they are never sent."""

from __future__ import annotations

import json
import re

import pytest

from turnstile import KeepAll, LastTokens, LastTurns, Reply, ToolCall, ToolResult, UserTurn
from turnstile.ports import ContextPolicy
from wire_case import Case, Tools, chat, play

CASE = Case("a kind", "kinds", {"api": "openai", "stream": False}, "")
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


BROKEN = (
    *("null", "None", "[]", '""', "{}{}", "\ufeff{}", "[" * 5000, '{"x":' + "9" * 5000 + "}", '{"x":1e400}'),
    *('{"x":1,}', "// c\n{}", '{"x":1} and so on', r'{"x":"\ud800"}', '{"x":"\ud800"}', 5, [1], True),
)


def calling(arguments: object) -> dict[str, object]:
    """A reply that calls the tool with these arguments."""
    call = {"id": "c1", **CALL, "function": {"name": "f", "arguments": arguments}}
    return chat(None, finish="tool_calls", tool_calls=[call])


async def test_an_id_too_long_for_another_server_is_shortened() -> None:
    """OpenAI takes 40 characters, and the ids of vLLM have 46; two that begin alike stay apart."""
    ids = ["chatcmpl-tool-" + end * 32 for end in "ab"]
    calls = tuple(ToolCall(call_id, "f", "{}") for call_id in ids)
    results = [ToolResult(call_id, "f", "ok") for call_id in ids]
    played = await play(CASE, history=[UserTurn("q"), Reply("", calls), *results], exchanges=[chat()])
    sent = [call["id"] for call in played.last[1]["tool_calls"]]
    assert len(set(sent)) == 2
    assert all(re.fullmatch("[a-zA-Z0-9_]{1,40}", call_id) for call_id in sent)
    assert [message.call_id for message in played.results] == ids


@pytest.mark.parametrize("call_id", [None, "", 5, "é" * 10, "a b", "x" * 500])
async def test_an_id_of_any_form_is_answered(tools: Tools, call_id: object) -> None:
    """Whatever the id, the call runs once, and its result goes back under the id of the call."""
    call = {"id": call_id, **CALL}
    await play(CASE, tools("f"), exchanges=[chat(None, finish="tool_calls", tool_calls=[call]), chat()])
    assert tools.ran == [("f", {})]


@pytest.mark.parametrize("arguments", BROKEN)
async def test_broken_arguments_of_any_form(tools: Tools, arguments: object) -> None:
    """What is not an object with the tool's parameters doesn't run, is told of, and goes back as an object."""
    played = await play(CASE, tools("f", x=int), exchanges=[calling(arguments), chat()])
    assert tools.ran == []
    assert played.results[0].status == "error"
    assert played.result.output == "done"
    sent = played.last[1]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent), dict)
    json.dumps(json.loads(sent), ensure_ascii=False).encode()  # no half of a character, also once it is read


@pytest.mark.parametrize("found", [{"a": 1}, "x", [{"id": "a"}], [{"function": None}], [[]]])
async def test_what_is_no_call_is_no_shorter_answer(found: object) -> None:
    """An answer whose calls cannot be read is a failure, whatever else it says."""
    exchange = chat("I looked it up: 42.", finish="tool_calls", tool_calls=found)
    played = await play(CASE, exchanges=[exchange, chat()])
    assert (played.rows, played.result.output) == (["retry", "answered"], "done")
    assert "42" not in repr(played.result.messages)


@pytest.mark.parametrize("context", [KeepAll(), LastTurns(1), LastTokens(60)], ids=repr)
async def test_an_overflow_under_any_window_is_met_by_a_smaller_request(tools: Tools, context: ContextPolicy) -> None:
    """What a window had left out already doesn't count: half of what was sent goes, and nothing is sent again."""
    old = [turn for n in range(40) for turn in (UserTurn(f"old {n}"), Reply("an answer"))]
    overflow = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "too long"}}}
    calls = [chat(None, finish="tool_calls", tool_calls=[{"id": f"c{n}", **CALL}]) for n in range(4)]
    results = iter(range(9))
    exchanges = [*calls, overflow, chat()]
    played = await play(CASE, tools("f", lambda: next(results)), history=old, exchanges=exchanges, context=context)
    assert played.rows[-2:] == ["trimmed", "answered"]
    assert len(played.requests[-1].content) < len(played.requests[-2].content)
    assert "q" in [message["content"] for message in played.last]
    assert played.last[-1] == {"role": "tool", "tool_call_id": "c3", "content": "3"}
