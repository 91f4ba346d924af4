"""`receipts`: what became of each tool call of a run, as its journal tells it."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

from turnstile import Agent, Limits, tool
from turnstile.core.events import CallStarted, EffectLost
from turnstile.ports import Record
from turnstile.replay import Receipt, receipts, replay
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel, call

HISTORIES = Path(__file__).parents[1] / "histories"


@tool(access="read")
def look(at: str) -> str:
    """Look at something."""
    if at == "nothing":
        raise ValueError("there is nothing")
    return f"saw {at}"


@tool
def send(text: str) -> str:
    """Send something."""
    return f"sent {text}"


@tool(on_in_doubt="ask")
def pay(amount: int) -> str:
    """Pay something."""
    return f"paid {amount}"


async def records_of(agent: Agent[Any]) -> tuple[Record, ...]:
    """The journal of a run that an agent went through."""
    result = await agent.run("Go on.")
    return await agent.store.load(result.run_id)


def told(found: tuple[Receipt, ...]) -> list[tuple[str, int, int, str, int]]:
    """What matters of receipts."""
    return [(each.call.name, each.turn, each.seq, each.outcome, each.begun) for each in found]


async def test_calls_that_ended_say_how_and_where() -> None:
    """Which transition ended a call, and how, is what a reader of a path asks first."""
    script: list[Any] = [
        (call("look", at="it"), call("look", at="nothing"), call("fly")),
        call("send", text="hi"),
        "Done.",
    ]
    found = receipts(replay(await records_of(Agent(ScriptedModel(script), tools=[look, send]))))
    assert told(found) == [
        ("look", 1, 2, "finished", 1),
        ("look", 1, 2, "finished", 1),
        ("fly", 1, 2, "not run", 0),
        ("send", 2, 5, "finished", 1),
    ]
    assert [each.result and each.result.status for each in found] == ["ok", "error", "error", "ok"]


async def test_calls_that_a_limit_forbade_were_not_run() -> None:
    """They have results, since every call has one, and were never begun."""
    agent = Agent(ScriptedModel([call("look", at="it")]), tools=[look], limits=Limits(turns=1))
    assert told(receipts(replay(await records_of(agent)))) == [("look", 1, 1, "not run", 0)]


def cut(records: tuple[Record, ...], length: int) -> tuple[Record, ...]:
    """A journal as a process leaves it that dies once so many calls have been begun."""
    begun = [place for place, record in enumerate(records) if isinstance(record.event, CallStarted)]
    return records[: begun[length - 1] + 1] if length else records[: begun[0]]


async def test_calls_under_way_are_open_or_started() -> None:
    """Of a run that is going on, or whose process has just died, nothing is known to have ended."""
    script: list[Any] = [(call("look", at="it"), call("send", text="hi")), "Done."]
    records = await records_of(Agent(ScriptedModel(script), tools=[look, send]))
    assert told(receipts(replay(cut(records, 0)))) == [("look", 1, 0, "open", 0), ("send", 1, 0, "open", 0)]
    assert told(receipts(replay(cut(records, 1)))) == [("look", 1, 0, "started", 1), ("send", 1, 0, "open", 0)]


async def test_after_a_crash_what_may_have_happened_is_in_doubt() -> None:
    """A call that changes the world is not made again, and nobody may say that it was not made."""
    script: list[Any] = [(call("look", at="it"), call("send", text="hi"), call("pay", amount=3)), "Done."]
    agent = Agent(ScriptedModel(script), tools=[look, send, pay])
    records = (*cut(await records_of(agent), 3), Record(EffectLost()))
    found = receipts(replay(records, agent.machine))
    assert told(found) == [
        ("look", 1, 0, "started", 1),  # it may be begun again, and so far nothing says that it is not under way
        ("send", 1, 0, "in doubt", 1),
        ("pay", 1, 0, "in doubt", 1),
    ]
    assert found[1].result is not None
    assert found[2].result is None  # a human decides about it


async def test_results_that_wait_to_be_appended_have_their_transition() -> None:
    """Between the end of a batch and its place in the history the calls have ended already."""
    agent = Agent(ScriptedModel([call("look", at="it"), "Done."]), tools=[look])
    async with agent.start("Go on.") as run:
        await run.until("append_results")
    assert told(receipts(replay(await agent.store.load(run.run_id)))) == [("look", 1, 2, "finished", 1)]


async def test_a_journal_older_than_intents_may_have_begun_all(tmp_path: Path) -> None:
    """Format 1 says only that tools were run: any of them may have done its work."""
    copytree(HISTORIES, tmp_path / "histories")
    async with SQLiteStore(tmp_path / "histories" / "format-1.sqlite") as store:
        found = receipts(replay(await store.load("working")))
    assert [each.outcome for each in found] == ["finished", "started", "started", "started"]
