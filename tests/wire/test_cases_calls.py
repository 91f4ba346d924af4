"""Names and ids of calls as servers really send them: each call is answered once, and no name is guessed."""

from __future__ import annotations

import re

import pytest

from turnstile import Agent, LastTurns, ToolDefinitionError, UsageError, tool
from turnstile.testing import ScriptedModel
from wire_case import NAME, Case, Tools, calls_of, chat, play, said


def ids(message: dict[str, list[dict[str, str]]]) -> list[str]:
    """The ids of a message's calls."""
    return [call["id"] for call in message["tool_calls"]]


async def test_constant_id_for_every_call(case: Case, tools: Tools) -> None:
    """An id that a server gives twice still means two calls, and each has its result."""
    played = await play(case, tools("w", lambda i: f"w{i}", i=int))
    assert tools.ran == [("w", {"i": 1}), ("w", {"i": 2})]
    assert [message["role"] for message in played.last] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [message["content"] for message in played.last if message["role"] == "tool"] == ["w1", "w2"]


async def test_duplicate_ids_in_one_message(case: Case, tools: Tools) -> None:
    """Two calls of one id are told apart, the same way on both sides."""
    played = await play(case, tools("grep", lambda q: q.upper(), q=str))
    assert sorted(q["q"] for _, q in tools.ran) == ["a", "b"]
    call_ids = ids(played.last[1])
    assert len(set(call_ids)) == 2
    assert [(m["tool_call_id"], m["content"]) for m in played.last[2:]] == [(call_ids[0], "A"), (call_ids[1], "B")]


async def test_ids_reused_across_turns(case: Case) -> None:
    """Where a result stands says whose it is; an id that was answered before does not answer a later call."""
    history = said(case.messages)
    played = await play(case, history=history[1:], prompt="go on", exchanges=[chat()], context=LastTurns(1))
    assert [m["role"] for m in played.last] == ["user"]
    with pytest.raises(AssertionError, match="ids used before"):
        await play(case, history=history, prompt="go on", exchanges=[chat()])
    with pytest.raises(UsageError, match="list_dir:0"):
        await play(case, history=history[:-1], prompt="go on", exchanges=[chat()])


async def test_mistral_id_nine_alnum(case: Case) -> None:
    """Ids in another form are told apart still, and are the same on both sides and in every request."""
    history = said(case.messages)
    sent = []
    for _ in range(2):
        played = await play(case, history=history, exchanges=[chat()], options={"call_id_format": "nine"})
        sent.append([*ids(played.last[1]), *(m["tool_call_id"] for m in played.last if m["role"] == "tool")])
        assert played.result.messages[: len(history)] == tuple(history)
    assert sent[0] == sent[1]
    assert sent[0][:2] == sent[0][2:]
    assert len(set(sent[0])) == 2
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", call_id) for call_id in sent[0])


async def test_tool_call_id_empty_string(case: Case, tools: Tools) -> None:
    """A call without an id gets one."""
    played = await play(case, tools("a"), tools("b"))
    assert sorted(name for name, _ in tools.ran) == ["a", "b"]
    assert all(ids(played.last[1]))


async def test_tool_name_garbled_near_miss(case: Case, tools: Tools) -> None:
    """A name that resembles a tool's is not that tool's."""
    played = await play(case, tools("run", cmd=str))
    assert tools.ran == []
    assert "no tool" in played.results[0].content
    assert "run" in played.results[0].content.split("the tools are")[1]
    assert calls_of(played.last[1])[0][0] == "runt_5_shell__run"
    assert played.result.output == "done"


async def test_tool_name_harmony_token_leak(case: Case, tools: Tools) -> None:
    """A name with control tokens is an unknown tool, and is sent back in letters that servers take."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == []
    assert "get_weather" in played.results[0].content
    assert all(re.fullmatch(NAME, name) for name, _ in calls_of(played.last[1]))
    assert played.result.output == "done"


async def test_tool_name_invalid_pattern_at_registration(case: Case) -> None:
    """A name that every server refuses is refused where it is written, not after a request."""
    model = ScriptedModel([])
    for given in case.input["tools"]:
        with pytest.raises(ToolDefinitionError) as caught:
            Agent(model, tools=[tool(lambda: "x", name=given["name"])])
        assert given["name"] in str(caught.value)
        assert "a-zA-Z0-9_-" in str(caught.value)
    assert model.requests == []


async def test_tool_name_null_or_padded(case: Case, tools: Tools) -> None:
    """Blanks around a name mean nothing, no name means no tool, and all three calls are answered."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    assert [result.status for result in played.results] == ["error", "error", "ok"]
    assert all(re.fullmatch(NAME, name) for name, _ in calls_of(played.last[1]))


async def test_duplicate_tool_names(case: Case, tools: Tools) -> None:
    """Two tools of one name are told of where they are put together."""
    given = [tools(each["name"]) for each in case.input["tools"]]
    with pytest.raises(ToolDefinitionError, match="search"):
        Agent(ScriptedModel([]), tools=given)


async def test_parallel_results_in_call_order(case: Case, tools: Tools) -> None:
    """Results stand in the order of the calls, whichever is ready first."""
    import asyncio

    fast_ended = asyncio.Event()

    async def wait(**_: object) -> str:
        await fast_ended.wait()
        return "S"

    def end(**_: object) -> str:
        loop.call_soon_threadsafe(fast_ended.set)
        return "F"

    loop = asyncio.get_running_loop()
    played = await play(case, tools("slow", wait), tools("fast", end))
    assert [(m["tool_call_id"], m["content"]) for m in played.last[2:]] == [("c1", "S"), ("c2", "F")]


async def test_function_call_and_tool_calls_both(case: Case, tools: Tools) -> None:
    """The legacy field repeats a call, and a call runs once."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    assert set(played.last[1]) == {"role", "content", "tool_calls"}


async def test_loop_of_invalid_json_calls(case: Case, tools: Tools) -> None:
    """Calls that never parse count as repeated calls, too."""
    played = await play(case, tools("f", a=int))
    assert played.reason == "stuck_loop"
    assert tools.ran == []
    assert len(played.requests) <= 4


async def test_reordered_parallel_batch_loop(case: Case, tools: Tools) -> None:
    """The same calls in another order, with their keys in another order, are the same calls."""
    exchanges = [case.exchanges[place % 2] for place in range(10)]
    played = await play(case, tools("f", a=int, b=int), tools("g"), exchanges=exchanges)
    assert played.reason == "stuck_loop"
    assert len(played.requests) == 4
    assert played.results[-1].status == "not_run"
