"""`diff` and `audit`: two runs beside each other, and whether a stored one is what was written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from turnstile import Agent, Price, tool
from turnstile.core.changes import accept
from turnstile.core.errors import NoSuchRun
from turnstile.core.events import ModelReplied
from turnstile.core.guards import is_answer
from turnstile.core.machine import loop
from turnstile.core.messages import Attachment, Reply, Usage
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.run_state import RunState
from turnstile.core.states import await_model
from turnstile.core.values import evolve
from turnstile.ports import RunEntry
from turnstile.replay import Replay, audit, diff, replay
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


async def run_of(script: Any, prompt: Any = "Is it warm?", **options: Any) -> Replay:
    """A run that follows a script, made again from its journal."""
    agent = Agent(ScriptedModel(script, **options), tools=[get_weather], clock=FrozenClock())
    result = await agent.run(prompt)
    return replay(await agent.store.load(result.run_id))


async def test_runs_that_say_the_same_are_the_same() -> None:
    """Ids and times differ between any two runs, and must not hide that nothing else does."""
    script = [call("get_weather", city="Oslo"), "Yes."]
    compared = diff(await run_of(script), await run_of(script))
    assert compared.same
    assert all(pair.left is not None and pair.right is not None for pair in compared.path)
    assert compared.figures[0] == compared.figures[1]


async def test_paths_are_aligned_by_the_rows_taken() -> None:
    """A round more in the middle must not make all that follows look different."""
    short = await run_of([call("get_weather", city="Oslo"), "Yes."])
    long = await run_of([call("get_weather", city="Oslo"), call("get_weather", city="Rome"), "Yes."])
    compared = diff(short, long)
    assert [pair.same for pair in compared.path].count(False) == 3
    assert all(pair.left is None for pair in compared.path if not pair.same)
    assert compared.path[-1].same
    assert not compared.same


async def test_messages_are_aligned_by_what_was_said() -> None:
    """Another answer, another argument, another question: each stands beside what it takes the place of."""
    one = await run_of([call("get_weather", city="Oslo"), "Yes."])
    two = await run_of([call("get_weather", city="Rome"), "Yes."], prompt="Is it cold?")
    compared = diff(one, two)
    assert [pair.same for pair in compared.messages] == [False, False, False, True]
    assert all(pair.left is not None and pair.right is not None for pair in compared.messages)
    assert not compared.same


async def test_an_attachment_is_part_of_what_was_said() -> None:
    """The same words about another picture are another question."""
    pictures = [Attachment.of(content, "image/png") for content in (b"a", b"b")]
    one, two = [await run_of(["Yes."], prompt=["What is it?", picture]) for picture in pictures]
    assert not diff(one, two).messages[0].same


async def test_what_each_took_stands_beside_each_other() -> None:
    """Whether the other model is worth it is a matter of turns, tokens, dollars and seconds."""
    dear = await run_of([Reply("Yes.", usage=Usage(1000, 10))], price=Price(1, 1))
    free = await run_of([call("get_weather", city="Oslo"), "Yes."])
    left, right = diff(dear, free).figures
    assert (left.turns, left.tool_calls, left.tokens, left.seconds) == (1, 0, 1010, 0.0)
    assert left.cost == pytest.approx(0.00101)
    assert (right.turns, right.tool_calls, right.tokens, right.cost) == (2, 1, 0, None)


def _is_first(run: RunState, event: ModelReplied) -> bool:
    return run.turns == 0


doubt = row("doubt", await_model, ModelReplied, [_is_first, is_answer], AGAIN, accept)
DOUBTING = loop.extend(rows=[before("answered", doubt)])


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    """A store with a run of each machine."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        script: list[Any] = [call("get_weather", city="Oslo"), "Yes."]
        await Agent(ScriptedModel(script), tools=[get_weather], store=store).run("Is it warm?", run_id="plain")
        agent = Agent(ScriptedModel(["Hello.", "Really."]), machine=DOUBTING, store=store)
        await agent.run("Hello", run_id="doubting")
        yield store


async def entry_of(store: SQLiteStore, run_id: str) -> RunEntry:
    """A run as a list shows it."""
    found = await store.entry(run_id)
    assert found is not None
    return found


async def test_a_sound_run_has_no_problem(store: SQLiteStore) -> None:
    """An audit that finds fault with good runs is soon read by nobody."""
    found = await audit(store, "plain", entry=await entry_of(store, "plain"))
    assert (found.run_id, found.records, found.problem) == ("plain", len(await store.load("plain")), "")
    assert (await audit(store, "doubting", DOUBTING)).problem == ""


async def test_what_is_wrong_names_the_record(store: SQLiteStore) -> None:
    """A damaged record, a row that is another now, a summary that lies: each says where."""
    found = await audit(store, "doubting")
    assert "run 'doubting', record 3: the row was doubt, and is answered now" in found.problem
    entry = await entry_of(store, "plain")
    lying = evolve(entry, summary=evolve(entry.summary, turns=9))
    assert "the summary was Summary(" in (await audit(store, "plain", entry=lying)).problem
    for field, value in (("session", "other"), ("prompt", "Pay."), ("agent", "other"), ("started", 0.0), ("at", 0.0)):
        lying = evolve(entry, **{field: value})  # type: ignore[arg-type]
        assert f"{value!r}, and " in (await audit(store, "plain", entry=lying)).problem
    connection = apsw.Connection(str(store.path))
    connection.execute("UPDATE records SET at = 0 WHERE run = 1 AND seq = 3")
    connection.close()
    found = await audit(store, "plain")
    assert found.records == 2
    assert "record 3 of run 'plain' is damaged" in found.problem


async def test_an_unknown_run_is_not_sound(store: SQLiteStore) -> None:
    """Nothing was found wrong with it, since there is nothing."""
    with pytest.raises(NoSuchRun, match="has no run 'none'"):
        await audit(store, "none")
