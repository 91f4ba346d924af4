"""Anthropic's Messages API: content blocks that must come back unchanged, roles that alternate, its own endings."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from turnstile import Agent, Exchange, KeepAll, LastTokens, Limits, Reply, ToolCall, ToolResult, UsageError, UserTurn
from turnstile.core.messages import Message, ToolSpec
from turnstile.testing import FrozenClock, WireServer
from wire_case import MARK, Body, Case, Played, Tools, blocks, play, said, text, turn, use

DONE = turn(text("done"))


def roles(body: Body) -> list[str]:
    """Who speaks, in order."""
    return [message["role"] for message in body["messages"]]


async def test_anthropic_trailing_whitespace_final_assistant(case: Case) -> None:
    """The API refuses a last message of the model's that ends in white space, so a paused one loses it; no other."""
    paused = turn(text("Partial answer \n"), reason="pause_turn")
    history: list[Message] = [UserTurn("q"), Reply("Earlier \n")]
    played = await play(case, history=history, exchanges=[paused, DONE])
    assert blocks(played.last[-1]) == [text("Partial answer")]
    assert blocks(played.last[1]) == [text("Earlier \n")]
    assert roles(played.bodies[-1])[-1] == "assistant"


async def test_cache_control_more_than_four(case: Case, tools: Tools) -> None:
    """However long a run gets, there are four markers at most, each at the end of a message; the history has none."""
    three = [turn(*(use(f"t{n}{k}", i=n * 3 + k) for k in range(3)), reason="tool_use") for n in range(6)]
    played = await play(case, tools("f", i=int), instructions="s", exchanges=[*three, DONE])
    assert len(played.bodies) == 7
    for body in played.bodies:
        assert 1 <= json.dumps(body).count(MARK) <= 4
        for message in body["messages"]:
            marked = [place for place, block in enumerate(message["content"]) if MARK in block]
            assert marked in ([], [len(message["content"]) - 1])
    assert MARK not in repr(played.result.messages)


async def test_cache_control_on_empty_text(case: Case) -> None:
    """Blank text is not sent, so no marker can stand on it, nor on thinking."""
    history = _said(case)
    history += [UserTurn(" ")]
    played = await play(case, history=history, exchanges=[DONE])
    for message in played.last:
        for block in message["content"]:
            assert block.get("text", "x").strip()
            assert not (MARK in block and "thinking" in block["type"])


async def test_thinking_blocks_modified(case: Case, tools: Tools) -> None:
    """Thinking comes back as it was signed, also out of a stored run; only blank text is left out."""
    written = case.messages[1]["content"]
    played = await play(case, tools("f", k=float), exchanges=[turn(*written, reason="tool_use"), DONE])
    assert blocks(played.last[1]) == [block for block in written if block["type"] != "text"]
    again = await play(case, history=played.result.messages, exchanges=[DONE])
    assert blocks(again.last[1]) == blocks(played.last[1])
    assert '"k":1.0' in played.requests[-1].content.decode().replace(" ", "")


async def test_tool_result_error_with_empty_content(case: Case, tools: Tools) -> None:
    """A failure without a word is told by its type."""

    def fail() -> None:
        raise TimeoutError

    played = await play(case, tools("f", fail))
    (result,) = blocks(played.last[2])
    assert (result["tool_use_id"], result["is_error"]) == ("t1", True)
    assert "TimeoutError" in json.dumps(result["content"])
    assert played.result.output == "done"


async def test_anthropic_tool_use_stop_empty_content(case: Case) -> None:
    """A promise without a call is asked after once, and nothing empty is sent back."""
    played = await play(case)
    assert (played.reason, len(played.requests)) == ("incomplete", 2)
    assert all(blocks(message) for message in played.last)
    assert roles(played.bodies[-1]) == ["user"]


async def test_compaction_keeps_leading_tool_result(case: Case) -> None:
    """A history that begins with a result is refused where it is handed in; a window never begins with one."""
    with pytest.raises(UsageError, match="t9"):
        await play(case, history=_said(case))
    call = Exchange(Reply("", (ToolCall("t9", "f", "{}"),)), (ToolResult("t9", "f", "x"),))
    played = await play(case, history=[call, Reply("a")], prompt="b", exchanges=[DONE], context=KeepAll())
    assert played.last[0]["role"] == "user"
    assert blocks(played.last[0])[0]["type"] == "text"


async def test_duplicate_tool_result_for_one_id(case: Case) -> None:
    """A second result for a call is refused before it is sent."""
    with pytest.raises(UsageError, match="t1"):
        await play(case, history=_said(case))


async def test_interrupt_after_tool_result_before_reply(case: Case, tools: Tools) -> None:
    """What the user says after an interruption stands in one message with the result, behind it."""
    with WireServer(case.exchanges) as server:
        client = case.client(server.url)
        agent = Agent(client, tools=[tools("f")], clock=FrozenClock())
        async with agent.start("q") as run:
            finishing = asyncio.create_task(run.finish())
            await asyncio.to_thread(server.wait_for, 2)
            run.cancel()
            left = await finishing
        result = await agent.run("go on", history=left.messages)
        await client.aclose()
    assert left.stop is not None
    assert left.stop.reason == "cancelled"
    assert result.output == "ok"
    assert tools.ran == [("f", {})]
    body = server.requests[-1].body
    assert isinstance(body, dict)
    assert roles(body) == ["user", "assistant", "user"]
    messages: Any = body["messages"]
    assert [block["type"] for block in blocks(messages[2])] == ["tool_result", "text"]


async def test_anthropic_model_context_window_exceeded(case: Case, tools: Tools) -> None:
    """An answer that the window cut is cut."""
    played = await play(case)
    assert (played.reason, played.result.partial) == ("truncated", "The first half of")
    assert _replies(played)[-1].finish_raw == "model_context_window_exceeded"
    cut = turn(use("t1"), reason="model_context_window_exceeded")
    await play(case, tools("f"), exchanges=[cut, DONE])
    assert tools.ran == []


async def test_anthropic_pause_turn(case: Case) -> None:
    """A turn that the provider paused goes back as it is, and goes on, so often and no more."""
    played = await play(case)
    assert played.result.output == "Answer"
    assert blocks(played.last[-1]) == case.exchanges[0]["body"]["content"]
    assert roles(played.bodies[-1]) == ["user", "assistant"]
    played = await play(case, exchanges=[{**case.exchanges[0], "repeat": 20}], limits=Limits(turns=4))
    assert (played.reason, len(played.requests)) == ("max_turns", 4)


async def test_tool_history_without_tools_param(case: Case, tools: Tools) -> None:
    """A history with calls goes with definitions of their tools, none of which may be called."""
    played = await play(case, history=_said(case), exchanges=[DONE])
    body = played.bodies[0]
    assert [tool["name"] for tool in body["tools"]] == ["f"]
    assert body["tool_choice"] == {"type": "none"}
    calling = [turn(use(f"x{n}"), reason="tool_use") for n in range(3)]
    played = await play(case, tools("f"), exchanges=calling, limits=Limits(turns=1, on_exhausted="wrap_up"))
    assert played.bodies[1]["tool_choice"] == {"type": "none"}
    assert tools.ran == []


async def test_anthropic_first_message_must_be_user(case: Case) -> None:
    """Whatever is left out, the user speaks first, and says something."""
    history = said(case.messages[:-1])
    for tokens in range(1, 90, 4):
        played = await play(case, prompt="now", history=history, exchanges=[DONE], context=LastTokens(tokens))
        assert played.last[0]["role"] == "user"
        assert blocks(played.last[0])[0]["text"].strip()
        assert blocks(played.last[-1])[-1] == text("now")


async def test_anthropic_system_role_in_messages(case: Case) -> None:
    """Instructions stand at the top, and the roles alternate."""
    history = said([message for message in case.messages if message["role"] != "system"])
    played = await play(case, instructions="A\n\nB", history=history, exchanges=[DONE])
    assert "system" not in roles(played.bodies[0])
    assert "A\n\nB" in json.dumps(played.bodies[0]["system"], ensure_ascii=False).replace("\\n", "\n")
    assert roles(played.bodies[0]) == ["user", "assistant", "user"]


async def test_schema_anthropic_top_level_combinator(case: Case) -> None:
    """A schema of alternatives becomes one object schema, which the API takes."""
    from turnstile.ports import ModelRequest

    (given,) = case.input["tools"]
    spec = ToolSpec(given["name"], "", given["input_schema"])
    with WireServer([DONE]) as server:
        client = case.client(server.url)
        assert isinstance(await client.reply(ModelRequest("", [UserTurn("q")], (spec,)), lambda delta: None), Reply)
        await client.aclose()
    body = server.requests[0].body
    assert isinstance(body, dict)
    listed: Any = body["tools"]
    schema = listed[0]["input_schema"]
    assert schema["type"] == "object"
    assert schema.keys().isdisjoint({"anyOf", "oneOf", "allOf"})
    assert set(schema["properties"]) == {"content", "url"}
    assert not schema.get("required")


def _replies(played: Played) -> list[Reply]:
    return [message for message in played.result.messages if isinstance(message, Reply)]


def _said(case: Case) -> list[Message]:
    """The case's history as the engine's own."""
    found: list[Message] = []
    for message in case.messages:
        parts = blocks(message)
        words = "".join(part["text"] for part in parts if part["type"] == "text")
        if message["role"] == "assistant":
            uses = [part for part in parts if part["type"] == "tool_use"]
            found.append(Reply(words, tuple(ToolCall(u["id"], u["name"], json.dumps(u["input"])) for u in uses)))
            continue
        results = [part for part in parts if part["type"] == "tool_result"]
        found += [ToolResult(part["tool_use_id"], "f", part["content"]) for part in results]
        if words or not results:
            found.append(UserTurn(words))
    return found
