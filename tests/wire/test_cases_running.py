"""Tools at work while things go wrong around them: nothing runs twice, and every call is answered."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from turnstile import Agent, Limits, Run, ToolResult
from turnstile.core.run_state import RunState
from turnstile.models import OpenAIChat
from turnstile.ports import Notice
from turnstile.stores import MemoryStore
from turnstile.testing import WireServer
from wire_case import Case, Tools, chat, play


def contents(messages: Any) -> list[str]:
    """What tools gave, in order."""
    return [message["content"] for message in messages if message["role"] == "tool"]


async def test_cancelled_error_bypasses_except_exception(case: Case, tools: Tools) -> None:
    """Whoever cancels gets the cancellation, and a history that can be gone on from."""
    fast_ended = asyncio.Event()

    class Ears:
        def observe(self, notice: Notice, run: RunState) -> None:
            if isinstance(notice, ToolResult) and notice.name == "fast":
                fast_ended.set()

    async def hang(**_: object) -> None:
        await asyncio.Event().wait()

    made = [tools("slow", hang), tools("fast", lambda: "F")]
    with WireServer(case.exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        agent = Agent(client, tools=made, observers=[Ears()])
        started: list[Run[str]] = []

        async def drive() -> None:
            async with agent.start("q") as run:
                started.append(run)
                await run.finish()

        task = asyncio.create_task(drive())
        await fast_ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = started[0].result
        result = await agent.run("go on", history=left.messages)
        await client.aclose()
    assert left.stop is not None
    assert left.stop.reason == "cancelled"
    given = {message.name: message for message in left.messages if isinstance(message, ToolResult)}
    assert list(given) == ["slow", "fast"]
    assert given["fast"].content == "F"
    assert "cancelled" in given["slow"].content
    assert result.output == "done"


async def test_keyboardinterrupt_in_sync_tool(case: Case, tools: Tools) -> None:
    """Ctrl-C reaches the caller, and what had not begun does not begin."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    made = [tools("a", lambda: 1), tools("b", interrupt), tools("c")]
    with WireServer(case.exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        agent = Agent(client, tools=made, limits=Limits(parallel=1))
        run = agent.start("q")
        await run.step()
        with pytest.raises(KeyboardInterrupt):
            await run.step()
        await client.aclose()
    assert [name for name, _ in tools.ran] == ["a", "b"]
    results = [message for message in run.result.messages if isinstance(message, ToolResult)]
    assert [result.status for result in results] == ["ok", "unknown", "not_run"]
    assert results[0].content == "1"
    assert "interrupted" in results[1].content
    assert "not run" in results[2].content


async def test_tool_raises_cancellederror_itself(case: Case, tools: Tools) -> None:
    """A library that cancels what it waits for has failed; the run goes on."""

    async def cancel(**_: object) -> None:
        raise asyncio.CancelledError

    played = await play(case, tools("mcp", cancel))
    assert played.result.output == "done"
    assert played.results[0].status == "error"
    assert "CancelledError" in played.results[0].content


async def test_tool_swallows_cancel(case: Case, tools: Tools) -> None:
    """A tool that answers when told to stop keeps its answer, and the run stops all the same."""
    began = asyncio.Event()

    async def hold(**_: object) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "Status: cancelled"
        return "never"

    with WireServer(case.exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        async with Agent(client, tools=[tools("term", hold)]).start("q") as run:
            finishing = asyncio.create_task(run.finish())
            await began.wait()
            run.cancel()
            result = await finishing
        await client.aclose()
    assert result.stop is not None
    assert (result.stop.reason, len(server.requests)) == ("cancelled", 1)
    assert [m.content for m in result.messages if isinstance(m, ToolResult)] == ["Status: cancelled"]


async def test_run_retry_repeats_finished_tool(case: Case, tools: Tools) -> None:
    """Only the failed request is sent again; what was paid stays paid."""
    played = await play(case, tools("charge_card", amt=int))
    assert tools.ran == [("charge_card", {"amt": 5})]
    assert played.bodies[1] == played.bodies[2]
    assert contents(played.last) == ["ok"]
    assert (played.result.output, len(played.requests)) == ("done", 3)


async def test_tool_exception_triggers_second_invoke(case: Case, tools: Tools) -> None:
    """A tool that failed is not called again behind the model's back."""

    def fail(to: str) -> None:
        raise ValueError("smtp")

    played = await play(case, tools("send", fail, to=str))
    assert len(tools.ran) == 1
    assert "ValueError: smtp" in contents(played.last)[0]
    assert "Traceback" not in contents(played.last)[0]
    assert "turnstile" not in contents(played.last)[0]
    assert played.result.output == "done"


async def test_step_limit_with_open_tool_calls(case: Case, tools: Tools) -> None:
    """At the limit every call is answered, and the run says which limit it was."""
    played = await play(case, tools("f", i=int), limits=Limits(turns=3))
    assert (played.reason, len(played.requests)) == ("max_turns", 3)
    assert [result.status for result in played.results] == ["ok", "ok", "not_run"]
    assert "turn limit" in played.results[-1].content
    again = await play(case, history=played.result.messages, exchanges=[chat()])
    assert again.result.output == "done"


_seen: contextvars.ContextVar[str] = contextvars.ContextVar("_seen", default="nothing")


async def test_sync_tool_blocks_event_loop(case: Case, tools: Tools) -> None:
    """Tools that block run at once, each in a thread of its own, and the event loop goes on meanwhile."""
    together = threading.Barrier(3)  # both calls, and the loop's own heart
    seen: list[str] = []

    def block(i: int) -> str:
        together.wait(10)
        seen.append(f"{i} {_seen.get()}")
        return str(i)

    async def beat() -> None:
        while together.n_waiting < 2:  # noqa: ASYNC110 - a barrier of threads has no event to await
            await asyncio.sleep(0.001)
        together.wait(10)

    _seen.set("the caller's value")
    heart = asyncio.create_task(beat())
    played = await play(case, tools("s", block, i=int))
    await heart
    assert sorted(seen) == ["1 the caller's value", "2 the caller's value"]
    assert contents(played.last) == ["1", "2"]

    async def where(**_: object) -> str:
        return threading.current_thread().name

    def hand_over(i: int) -> Any:
        return where()

    loops = threading.current_thread().name
    for does in (where, hand_over):
        played = await play(case, tools("s", does, i=int))
        assert contents(played.last) == [loops, loops]


async def test_tool_result_lone_surrogate(case: Case, tools: Tools) -> None:
    """Half a character, from a file that is no UTF-8, costs no request."""
    played = await play(case, tools("read", lambda: "ok \udc97 \ud83d end"))
    assert (len(played.requests), list(played.slept)) == (2, [])
    assert contents(played.last)[0].startswith("ok ")
    played = await play(case, tools("read", lambda: "\ud83c\udf0d"))
    assert played.result.output == "done"


async def test_tool_returns_odd_values(case: Case, tools: Tools) -> None:
    """Whatever a tool returns, its call gets one text, or is told what cannot be shown."""
    cycle: list[object] = []
    cycle.append(cycle)
    values = {
        "none": None,
        "bytes": b"\xff\x00",
        "set": {1, 2},
        "date": datetime(2025, 1, 2, tzinfo=UTC),
        "obj": object(),
        "cycle": cycle,
        "nan": float("nan"),
    }
    texts = []
    for _ in range(2):
        played = await play(case, tools("f", lambda k: values[k], k=str))
        assert played.result.output == "done"
        texts.append(contents(played.last))
    assert len(texts[0]) == 7
    assert all(first == second for first, second in pairwise(texts))
    shown = dict(zip(values, texts[0], strict=True))
    assert "2025-01-02" in shown["date"]
    assert "'f'" in shown["cycle"]
    assert "list" in shown["cycle"]
    assert "'f'" in shown["obj"]
    assert "object" in shown["obj"]


async def test_resume_does_not_repeat_finished_tools(case: Case, tools: Tools) -> None:
    """What a lost process had begun is not begun again: the next run is told of each call once, in order."""
    begun = asyncio.Event()

    async def pay(n: int) -> str:
        if n == 3:
            begun.set()
            await asyncio.Event().wait()
        return f"paid {n}"

    with WireServer(case.exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        agent = Agent(client, tools=[tools("pay", pay, n=int)], store=MemoryStore(), limits=Limits(parallel=1))
        async with agent.start("q", session="s") as run:
            await run.step()
            step = asyncio.create_task(run.step())
            await begun.wait()
            step.cancel()  # whoever drove the run is gone, and what it was at is lost with it
        result = await agent.run("go on", session="s")
        await client.aclose()
    assert result.output == "done"
    assert [given["n"] for _, given in tools.ran] == [1, 2, 3]
    results = [message for message in result.messages if isinstance(message, ToolResult)]
    assert [message.call_id for message in results] == ["c1", "c2", "c3"]
    assert results[-1].status == "unknown"
