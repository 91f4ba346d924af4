"""`fork`: a new run that shares a beginning, changed where it is told, and that runs no call again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from turnstile import Agent, Limits, Price, Retry, tool
from turnstile.core.errors import Changed, NoSuchRun, RunExists, RunFinished, UsageError
from turnstile.core.events import CallFinished, CallStarted, Cancelled, EffectLost, ModelFailed
from turnstile.core.messages import Reply, Usage, UserTurn
from turnstile.ports import Deliver, Lease, Record, Summary
from turnstile.replay import fork, replay
from turnstile.stores import MemoryStore
from turnstile.testing import FrozenClock, ScriptedModel, call

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    RAN.append(city)
    return f"sunny in {city}"


@tool
def send(text: str) -> str:
    """Send something."""
    RAN.append(text)
    return f"sent {text}"


def answering(*script: Any, **options: Any) -> Agent[Any]:
    """An agent whose model calls for the weather first, and then says what it was told."""
    said = script or (call("get_weather", city="Oslo"), lambda request: request.items[-1].results[0].content)
    return Agent(ScriptedModel(said), tools=[get_weather, send], **options)


async def begun(agent: Agent[Any], prompt: str = "Is it warm?", **options: Any) -> str:
    """The id of a run that an agent went through."""
    return (await agent.run(prompt, **options)).run_id


async def goes_on(agent: Agent[Any], run_id: str, script: Sequence[Any]) -> str:
    """What a fork answers when its model follows a script."""
    model = ScriptedModel(script)
    async with await agent.resume(run_id, model=model) as run:
        result = await run.finish()
    return str(result.output)


def last_results(request: Any) -> str:
    """An answer that repeats what the tools gave."""
    return "; ".join(result.content for result in request.items[-1].results)


async def test_a_fork_goes_on_from_where_it_was_made_and_runs_nothing_again() -> None:
    """Trying another ending must cost one request, and no tool's work."""
    agent = answering()
    run_id = await begun(agent)
    RAN.clear()
    forked = await fork(agent.store, agent, run_id, at=3)
    assert await goes_on(agent, forked, [last_results]) == "sunny in Oslo"
    assert RAN == []
    original, other = [replay(await agent.store.load(each)) for each in (run_id, forked)]
    assert [move.row for move in other.transitions] == [move.row for move in original.transitions]
    assert other.run.start.forked_from == f"{run_id}@3"
    assert other.divergence is None
    assert original.records[1:5] == other.records[1:5]


async def test_from_its_start_a_fork_is_the_run_anew() -> None:
    """Nothing was begun then, so everything happens again, under an id of its own."""
    agent = answering()
    forked = await fork(agent.store, agent, await begun(agent), at=0)
    assert await goes_on(agent, forked, [call("send", text="hi"), last_results]) == "sent hi"


async def test_calls_that_were_not_begun_run_in_the_fork() -> None:
    """At the reply that makes a call nothing has been done yet, so the fork does it, in its own name."""
    agent = answering()
    run_id = await begun(agent)
    RAN.clear()
    forked = await fork(agent.store, agent, run_id, at=1)
    await goes_on(agent, forked, [last_results])
    assert RAN == ["Oslo"]
    keys = [
        [record.event.key for record in await agent.store.load(each) if isinstance(record.event, CallStarted)]
        for each in (run_id, forked)
    ]
    assert keys[0] != keys[1]


async def test_another_prompt_is_what_the_models_sees() -> None:
    """The question may be put otherwise without a new program."""
    agent = answering()
    forked = await fork(agent.store, agent, await begun(agent), at=3, prompt="And in autumn?")
    model = ScriptedModel(["Yes."])
    async with await agent.resume(forked, model=model) as run:
        await run.finish()
    assert model.requests[0].items[0] == UserTurn("And in autumn?")
    assert replay(await agent.store.load(forked)).divergence is None  # its requests have digests of their own


async def test_another_result_is_what_the_model_sees() -> None:
    """What if the tool had said otherwise is the question that debugging asks most."""
    agent = answering((call("get_weather", city="Oslo"), call("get_weather", city="Rome")), "Warm.")
    run_id = await begun(agent)
    for call_id, at, expected in (
        ("call_1_1", 2, "rain; sunny in Rome"),
        ("call_1_2", 3, "sunny in Oslo; rain"),
    ):
        forked = await fork(agent.store, agent, run_id, at, results={call_id: "rain"})
        assert await goes_on(agent, forked, [last_results]) == expected
        assert replay(await agent.store.load(forked)).divergence is None


async def test_another_model_goes_on_at_its_own_price() -> None:
    """A fork under a model that the journal does not name would be resumed as changed."""
    agent = answering(limits=Limits(cost=1.0))
    agent.model = ScriptedModel([call("get_weather", city="Oslo"), "Warm."], name="one", price=Price(1, 1))
    run_id = await begun(agent)
    other = ScriptedModel([Reply("Warm.", usage=Usage(10, 10))], name="two", price=Price(2, 2))
    forked = await fork(agent.store, agent, run_id, at=3, model=other)
    start = replay(await agent.store.load(forked)).run.start
    assert (start.models, start.prices) == (("two",), (Price(2, 2),))
    async with await agent.resume(forked, model=other) as run:
        await run.finish()
    assert len(other.requests) == 1
    plain = answering()
    forked = await fork(plain.store, plain, await begun(plain), at=3, model=other)
    assert replay(await plain.store.load(forked)).run.start.prices == (None,)


async def interrupted(agent: Agent[Any], started: asyncio.Event, let_go: asyncio.Event) -> str:
    """A run that is told something while a tool is at work, and then goes on to its end."""
    async with agent.start("Go on.") as run:
        finishing = asyncio.create_task(run.finish())
        await started.wait()
        run.inject("And be quick.")
        while run.snapshot.seq < 2:  # noqa: ASYNC110 - the step that takes it is what is waited for
            await asyncio.sleep(0)
        let_go.set()
        await finishing
    return run.run_id


@pytest.mark.parametrize("access", ["write", "read"])
async def test_a_call_that_was_under_way_is_never_run_again(access: Any) -> None:
    """The other run may have done its work; the fork's model is told that nobody knows."""
    started, let_go = asyncio.Event(), asyncio.Event()

    @tool(access=access, name="work")
    async def work(what: str) -> str:
        """Work on something."""
        RAN.append(what)
        started.set()
        await let_go.wait()
        return f"did {what}"

    model = ScriptedModel([call("work", what="it"), "Done."])
    agent = Agent(model, tools=[work])
    run_id = await interrupted(agent, started, let_go)
    RAN.clear()
    forked = await fork(agent.store, agent, run_id, at=2)
    records = await agent.store.load(forked)
    assert [type(record.event) for record in records[-2:]] == [CallFinished, EffectLost]
    assert records[-1].row == "recovered"
    answer = await goes_on(agent, forked, [lambda request: request.items[1].results[0].content])
    assert answer == "outcome unknown: it was begun in the run that this one was forked from"
    assert RAN == []
    assert replay(await agent.store.load(forked)).divergence is None


async def test_a_request_that_was_under_way_is_sent_by_the_fork() -> None:
    """A lost request costs money and harms nobody."""
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> str:
        asked.set()
        await let_go.wait()
        return "Done."

    agent = Agent(ScriptedModel([slow, "Done again."]))
    async with agent.start("Go on.") as run:
        finishing = asyncio.create_task(run.finish())
        await asked.wait()
        run.inject("And be quick.")
        while run.snapshot.seq < 1:  # noqa: ASYNC110 - the step that takes it is what is waited for
            await asyncio.sleep(0)
        let_go.set()
        await finishing
    forked = await fork(agent.store, agent, run.run_id, at=1)
    assert [record.row for record in await agent.store.load(forked)][-1] == "recovered"
    assert await goes_on(agent, forked, ["Here."]) == "Here."


async def test_a_fork_has_time_and_no_session_of_its_own() -> None:
    """It would take the conversation's place, and the time that the other run had is over."""
    clock = FrozenClock()
    agent = answering(clock=clock, limits=Limits(seconds=60))
    run_id = await begun(agent, session="monday")
    clock.advance(1000)
    forked = await fork(agent.store, agent, run_id, at=3, new_run_id="mine")
    assert forked == "mine"
    start = replay(await agent.store.load("mine")).run.start
    assert (start.session, start.deadline) == (None, clock.time() + 60)
    assert await agent.store.newest("monday") == run_id
    with pytest.raises(RunExists):
        await fork(agent.store, agent, run_id, at=3, new_run_id="mine")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"at": 5}, r"has the transitions 1 to 4; got 5"),
        ({"at": -1}, r"has the transitions 1 to 4; got -1"),
        ({"at": 4}, r"ended with its transition 4"),
        ({"at": 3, "prompt": " "}, "prompt is empty"),
        (
            {"at": 1, "results": {"call_1_1": "rain"}},
            r"'call_1_1' has no result up to transition 1 .*; no call has",
        ),
        ({"at": 3, "results": {"other": "rain"}}, r"there are 'call_1_1'"),
    ],
)
async def test_what_cannot_be_forked_is_said(options: dict[str, Any], says: str) -> None:
    """Each slip names what there is, and leaves no half of a run behind."""
    agent = answering()
    run_id = await begun(agent)
    with pytest.raises(UsageError, match=says):
        await fork(agent.store, agent, run_id, **options)
    assert len(await agent.store.runs()) == 1


async def test_an_unknown_run_cannot_be_forked() -> None:
    """The store is named, since it may be the wrong one."""
    agent = answering()
    with pytest.raises(NoSuchRun, match="'MemoryStore' has no run 'none'"):
        await fork(agent.store, agent, "none", at=0)


async def test_a_run_that_was_ending_cannot_be_forked_there() -> None:
    """Told to stop, it waits only for its tools; a fork of that would end at once."""
    started, let_go = asyncio.Event(), asyncio.Event()

    @tool(name="work")
    async def work() -> str:
        """Work."""
        started.set()
        await let_go.wait()
        return "done"

    agent = Agent(ScriptedModel([call("work")]), tools=[work])
    async with agent.start("Go on.") as run:
        finishing = asyncio.create_task(run.finish())
        await started.wait()
        run.cancel()
        await finishing
    with pytest.raises(UsageError, match="was ending at its transition 2"):
        await fork(agent.store, agent, run.run_id, at=2)


async def test_changes_that_lead_another_way_are_refused() -> None:
    """With one model instead of two the run would never have come to the second one's reply."""
    failing = ScriptedModel([ModelFailed("authentication")], name="one")
    agent = Agent([failing, ScriptedModel([call("send", text="hi"), "Done."], name="two")], tools=[send])
    run_id = await begun(agent)
    with pytest.raises(UsageError, match=r"with these changes run .* would not have come to its transition 2: record"):
        await fork(agent.store, agent, run_id, at=2, model=ScriptedModel([], name="three"))


async def test_another_tool_needs_to_be_accepted_and_is_recorded() -> None:
    """To mend a tool and to go on from before it was called is what a fork is for; to do so unawares is not."""
    agent = answering()
    run_id = await begun(agent)

    @tool(access="read", name="get_weather")
    def mended(city: str) -> str:
        """Weather of a city, mended."""
        return f"rain in {city}"

    other = Agent(ScriptedModel([]), tools=[mended, send], store=agent.store, settings={"temperature": 0})
    with pytest.raises(Changed) as caught:
        await fork(other.store, other, run_id, at=1)
    assert [name for name, _, _ in caught.value.changes] == ["tool get_weather"]
    forked = await fork(other.store, other, run_id, at=1, accept_changes=True)
    assert await goes_on(other, forked, [last_results]) == "rain in Oslo"
    again = replay(await other.store.load(forked), agent=other)
    assert (again.divergence, again.run.start.settings) == (None, {"temperature": 0})
    assert {change.what for change in again.changes} <= {"models"}


class Cramped(MemoryStore):
    """A store that has no room for more than a first record."""

    async def append(self, *args: Any) -> None:
        """Keep nothing."""
        raise OSError("full")


async def test_a_store_that_fails_leaves_nobody_holding_the_fork() -> None:
    """Whoever tries again, or deletes what is there, must not be told that it is under way."""
    agent = answering()
    run_id = await begun(agent)
    store = Cramped()
    store._runs = dict(agent.store._runs)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="full"):
        await fork(store, agent, run_id, at=3, new_run_id="half")
    await store.delete("half")


async def test_a_finished_fork_is_finished() -> None:
    """It is a run like any other."""
    agent = answering()
    forked = await fork(agent.store, agent, await begun(agent), at=3)
    await goes_on(agent, forked, ["Warm."])
    with pytest.raises(RunFinished):
        await agent.resume(forked)


async def test_a_letter_that_comes_while_it_is_written_waits() -> None:
    """Nobody drives the run yet, so whoever does will have it."""
    agent = answering()
    store = Told()
    store._runs = agent.store._runs  # type: ignore[attr-defined]
    forked = await fork(store, agent, await begun(agent), at=3)
    async with await agent.resume(forked, model=ScriptedModel(["Warm."])) as run:
        result = await run.finish()
    assert result.stop is not None
    assert result.stop.reason == "cancelled"


class Told(MemoryStore):
    """A store in which somebody cancels a run as soon as it is there."""

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Create the run, and cancel it."""
        lease = await super().create(start, summary, deliver)
        await self.post(lease.run_id, Cancelled("at once"))
        return lease


async def test_retries_are_shared_too() -> None:
    """A failed request is part of what happened."""
    agent = Agent(ScriptedModel([ModelFailed("overloaded"), "Done."]), retry=Retry(base_delay=0), clock=FrozenClock())
    run_id = await begun(agent)
    forked = await fork(agent.store, agent, run_id, at=1)
    assert await goes_on(agent, forked, ["Here."]) == "Here."
    again = replay(await agent.store.load(forked))
    assert [move.row for move in again.transitions] == ["retry", "answered"]
