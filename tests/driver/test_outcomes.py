"""What a run comes to, whatever a server does: through a real socket, by a row, with its reason in the log."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from turnstile import Agent, Limits, ToolContext, ToolResult, tool
from turnstile.log import JsonLog
from turnstile.models import OpenAIChat
from turnstile.testing import FrozenClock, WireServer, assert_path

RAN: list[str] = []


@tool(access="read")
def look_up(word: str, ctx: ToolContext) -> str:
    """Look a word up."""
    RAN.append(ctx.call_id)
    return f"{word}: found"


def says(text: str | None, *calls: tuple[str, str, str], finish: str = "stop") -> dict[str, Any]:
    """An answer of a chat completions server."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in calls
        ]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"status": 200, "body": {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}}


def error(status: int, message: str, **more: object) -> dict[str, Any]:
    """An error of such a server."""
    return {"status": status, "body": {"error": {"message": message, **more}}}


CALL = ("c1", "look_up", '{"word": "fjord"}')
OTHER = ("c2", "look_up", '{"word": "tarn"}')


@dataclass(frozen=True)
class Case:
    """A server's answers, and what the run makes of them."""

    name: str
    exchanges: Sequence[Mapping[str, Any]]
    path: str
    rows: str
    stop: str
    limits: Limits = field(default_factory=lambda: Limits(turns=4))
    ran: tuple[str, ...] = ()


START, TOOLS, APPEND = "await_model", "execute_tools", "append_results"
ROUND = f"{START} {TOOLS} {APPEND}"
WRAP = Limits(turns=1, on_exhausted="wrap_up")

CASES = [
    Case("direct answer", [says("Hello")], f"{START} done", "answered", "answered"),
    Case(
        "one tool call",
        [says(None, CALL, finish="tool_calls"), says("Found")],
        f"{ROUND} {START} done",
        "run_tools finished appended answered",
        "answered",
        ran=("c1",),
    ),
    Case(
        "several rounds",
        [says(None, CALL, finish="tool_calls"), says("so", OTHER, finish="tool_calls"), says("Found")],
        f"{ROUND} {ROUND} {START} done",
        "run_tools finished appended run_tools finished appended answered",
        "answered",
        ran=("c1", "c2"),
    ),
    Case(
        "calls though the label says stop",
        [says(None, CALL, finish="stop"), says("Found")],
        f"{ROUND} {START} done",
        "run_tools finished appended answered",
        "answered",
        ran=("c1",),
    ),
    Case(
        "unknown tool",
        [says(None, ("c1", "lookup", "{}"), finish="tool_calls"), says("Sorry")],
        f"{ROUND} {START} done",
        "run_tools finished appended answered",
        "answered",
    ),
    Case(
        "turn limit",
        [says(None, ("c", "look_up", '{"word": "{n}"}'), finish="tool_calls") | {"repeat": 9}],
        f"{ROUND} {ROUND} {ROUND} {START} failed",
        "run_tools finished appended run_tools finished appended run_tools finished appended limit",
        "max_turns",
        ran=("c", "c_2_1", "c_3_1"),
    ),
    Case(
        "stuck in a loop",
        [says(None, CALL, finish="tool_calls") | {"repeat": 9}],
        f"{ROUND} {ROUND} {ROUND} {START} failed",
        "run_tools finished appended run_tools finished appended run_tools finished appended limit",
        "stuck_loop",
        limits=Limits(turns=10),
        ran=("c1", "c1_2_1", "c1_3_1"),
    ),
    Case(
        "wrap up at the turn limit",
        [says(None, CALL, finish="tool_calls"), says("What I have")],
        f"{START} {APPEND} {START} done",
        "wrap_up appended answered",
        "answered",
        limits=WRAP,
    ),
    Case(
        "calls while wrapping up",
        [says(None, CALL, finish="tool_calls"), says(None, OTHER, finish="tool_calls")],
        f"{START} {APPEND} {START} failed",
        "wrap_up appended limit",
        "max_turns",
        limits=WRAP,
    ),
    Case(
        "empty reply, then an answer",
        [says(""), says("Hello")],
        f"{START} {START} done",
        "nudge_empty answered",
        "answered",
    ),
    Case("empty replies", [says(""), says(" \n")], f"{START} {START} failed", "nudge_empty no_answer", "empty_answer"),
    Case(
        "empty reply after results",
        [says(None, CALL, finish="tool_calls"), says(None)],
        f"{ROUND} {START} done",
        "run_tools finished appended empty_answer",
        "empty_answer",
        ran=("c1",),
    ),
    Case(
        "promise of a call without one",
        [says("I will look it up", finish="tool_calls"), says(None, CALL, finish="tool_calls"), says("Found")],
        f"{START} {ROUND} {START} done",
        "nudge_promise run_tools finished appended answered",
        "answered",
        ran=("c1",),
    ),
    Case("refusal", [says("I cannot", finish="content_filter")], f"{START} failed", "refused", "refused"),
    Case("truncation", [says("Once upon", finish="length")], f"{START} failed", "truncated", "truncated"),
    Case(
        "truncated call",
        [says(None, CALL, finish="length"), says(None, OTHER, finish="tool_calls"), says("Found")],
        f"{START} {APPEND} {ROUND} {START} done",
        "cut_call appended run_tools finished appended answered",
        "answered",
        ran=("c2",),
    ),
    Case(
        "authentication failure",
        [error(401, "bad key")],
        f"{START} failed",
        "gave_up",
        "infrastructure_error",
    ),
    Case(
        "500, then an answer",
        [error(500, "oops"), says("Hello")],
        f"{START} {START} done",
        "retry answered",
        "answered",
    ),
    Case(
        "500 for ever",
        [error(500, "oops") | {"repeat": 9}],
        f"{START} {START} {START} {START} failed",
        "retry retry retry gave_up",
        "infrastructure_error",
    ),
    Case(
        "timeout, then an answer",
        [{"status": "hang"}, says("Hello")],
        f"{START} {START} done",
        "retry answered",
        "answered",
    ),
    Case(
        "invalid JSON body, then an answer",
        [{"status": 200, "text": "<html>gateway</html>"}, says("Hello")],
        f"{START} {START} done",
        "retry answered",
        "answered",
    ),
    Case(
        "connection closed, then an answer",
        [{"status": "close_before_response"}, says("Hello")],
        f"{START} {START} done",
        "retry answered",
        "answered",
    ),
    Case(
        "too long for the model",
        [
            says(None, CALL, finish="tool_calls"),
            says(None, OTHER, finish="tool_calls"),
            error(400, "maximum context length is 10 tokens", code="context_length_exceeded"),
            says("Short"),
        ],
        f"{ROUND} {ROUND} {START} {START} done",
        "run_tools finished appended run_tools finished appended trimmed answered",
        "answered",
        ran=("c1", "c2"),
    ),
    Case(
        "too long for the model, and nothing can be left out",
        [
            says(None, CALL, finish="tool_calls"),
            error(400, "maximum context length is 10 tokens", code="context_length_exceeded"),
        ],
        f"{ROUND} {START} failed",
        "run_tools finished appended overflow",
        "context_overflow",
        ran=("c1",),
    ),
    Case(
        "malformed call rejected by the server",
        [error(400, "Failed to call a function", code="tool_use_failed"), says("Hello")],
        f"{START} {START} done",
        "repair_call answered",
        "answered",
    ),
    Case(
        "token limit before the first request",
        [],
        f"{START} failed",
        "over_budget",
        "token_limit",
        limits=Limits(tokens=20),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_each_outcome_is_a_row_with_its_reason_in_the_log(case: Case) -> None:
    """The log alone tells the path and the reason, and agrees with the transitions."""
    RAN.clear()
    stream = io.BytesIO()
    with WireServer(case.exchanges) as server:
        model = OpenAIChat("m", base_url=server.url, timeout=2 if case.name.startswith("timeout") else 30)
        agent = Agent(model, tools=[look_up], limits=case.limits, clock=FrozenClock(), observers=[JsonLog(stream)])
        result = await agent.run("What is a fjord?")
        await model.aclose()
    assert_path(result, case.path)
    assert [t.row for t in result.transitions] == case.rows.split()
    assert result.stop is not None
    assert result.stop.reason == case.stop
    assert tuple(RAN) == case.ran
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    moves = [line for line in lines if line["event"] == "transition"]
    assert [line["row"] for line in moves] == case.rows.split()
    assert moves[-1]["reason"] == case.stop
    _check_history(server.requests[-1].body if server.requests else None)
    again = [m.call_id for m in result.messages if isinstance(m, ToolResult)]
    assert len(again) == len(set(again))


def _check_history(body: Any) -> None:
    """Every call that was sent has its result right after it, in order."""
    open_ids: list[str] = []
    for message in body["messages"] if body else []:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_ids.pop(0)
        else:
            assert not open_ids
            open_ids = [call["id"] for call in message.get("tool_calls") or []]
    assert not open_ids


async def test_a_result_carries_the_id_of_its_call() -> None:
    """A provider matches results to calls by id alone."""
    with WireServer([says(None, CALL, OTHER, finish="tool_calls"), says("Found")]) as server:
        model = OpenAIChat("m", base_url=server.url)
        await Agent(model, tools=[look_up]).run("What is a fjord?")
        await model.aclose()
    body: Any = server.requests[1].body
    assert [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"] == ["c1", "c2"]
    assert [m["content"] for m in body["messages"] if m["role"] == "tool"] == ["fjord: found", "tarn: found"]


async def test_a_key_is_never_told() -> None:
    """A server that echoes the key in its error gives it to nobody."""
    stream = io.BytesIO()
    with WireServer([error(401, "key sk-canary-123456 is not valid")]) as server:
        model = OpenAIChat("m", base_url=server.url, api_key="sk-canary-123456")
        result = await Agent(model, observers=[JsonLog(stream, content=True)]).run("hi")
        await model.aclose()
    assert result.stop is not None
    for told in (repr(result.stop), repr(result), stream.getvalue().decode(), repr(model)):
        assert "sk-canary" not in told
    assert result.stop.error is not None
    assert (result.stop.error.kind, result.stop.error.status) == ("authentication", 401)


async def test_fallback_models_are_tried_in_order() -> None:
    """A model whose key is refused is not asked again; the next one is."""
    with WireServer([error(401, "no")]) as first, WireServer([says("Hello")]) as second:
        models = [OpenAIChat("a", base_url=first.url), OpenAIChat("b", base_url=second.url)]
        result = await Agent(models).run("hi")
        for model in models:
            await model.aclose()
    assert [t.row for t in result.transitions] == ["next_model", "answered"]
    assert result.output == "Hello"
