"""What a run takes on the disk: as much for its thousandth turn as for its first."""

from __future__ import annotations

import asyncio
from pathlib import Path

from turnstile import Agent, Limits, Reply, ToolCall, Usage, tool
from turnstile.ports import ModelRequest
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel

MOST = 2_500  # bytes a turn, PERFORMANCE's bar for the journal
DRIFT = 0.1  # of the figure of 10 turns, by which that of many may differ


@tool(access="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def grown(path: Path, turns: int) -> float:
    """By how many bytes a turn a store's file is longer than an empty one, after a run of so many turns."""
    asyncio.run(drive(path, 0))
    empty = path.stat().st_size
    asyncio.run(drive(path, turns))
    return (path.stat().st_size - empty) / turns


async def drive(path: Path, turns: int) -> None:
    """Keep a run of so many turns; of none, only the store is made."""

    def adding(request: ModelRequest) -> Reply:
        number = len(request.items)
        usage = Usage(100 + number, 20)
        if number == turns:
            return Reply("done", usage=usage)
        calls = (ToolCall(f"call_{number}", "add", f'{{"a": {number}, "b": 1}}'),)
        return Reply("I will add the next two numbers now.", calls, "tool_calls", usage=usage)

    async with SQLiteStore(path) as store:
        limits = Limits(turns=turns + 1)
        agent = Agent(ScriptedModel(adding), tools=[add], limits=limits, store=store, clock=FrozenClock())
        if turns:
            assert (await agent.run("Add them up.")).run.turns == turns
        else:
            await store.runs()


def test_a_turn_takes_as_much_however_many_came_before(tmp_path: Path) -> None:
    """A record holds what is new, so that a long run's journal is as long as its story and no longer."""
    few, many = grown(tmp_path / "few.db", 10), grown(tmp_path / "many.db", 1_000)
    assert abs(many - few) <= DRIFT * few
    assert max(few, many) < MOST
