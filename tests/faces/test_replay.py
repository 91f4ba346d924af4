"""`replay`: a run made again from its records alone, with its requests, and the first place where it would differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from turnstile import Agent, LastTurns, Limits, tool
from turnstile.core.changes import accept
from turnstile.core.errors import UsageError
from turnstile.core.events import EffectBegun, Event, ModelFailed, ModelReplied, RunStarted, ToolsFinished
from turnstile.core.guards import is_answer
from turnstile.core.machine import loop
from turnstile.core.messages import ToolResult, UserTurn
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.run_state import RunState
from turnstile.core.states import await_model
from turnstile.core.values import evolve
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import ModelClient, ModelRequest, Record, Summary
from turnstile.replay import replay
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, WireServer, call

HISTORIES = Path(__file__).parents[1] / "histories"


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


@tool(on_in_doubt="ask")
def send(text: str) -> str:
    """Send something."""
    return f"sent {text}"


def called(city: str = "Oslo") -> Any:
    """A model's wish to know the weather."""
    return call("get_weather", city=city)


async def records_of(agent: Agent[Any], prompt: str = "Is it warm?", **options: Any) -> tuple[Record, ...]:
    """The journal of a run that an agent went through."""
    result = await agent.run(prompt, **options)
    return await agent.store.load(result.run_id)


def asked(request: ModelRequest) -> list[object]:
    """All of a request that says what is asked, with nothing of where it is kept."""
    return [
        request.instructions,
        list(request.items),
        request.tools,
        request.tools_on,
        request.max_output,
        dict(request.settings),
        request.output_schema,
    ]


async def test_the_path_the_times_and_the_state_come_from_the_records_alone() -> None:
    """Whoever has the journal has the run, whatever became of the process and its agent."""
    agent = Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather], clock=FrozenClock())
    result = await agent.run("Is it warm?")
    again = replay(await agent.store.load(result.run_id))
    assert again.transitions == result.transitions
    assert again.run == result.run
    assert again.divergence is None
    assert len(again.states) == len(again.records)


async def test_stepped_or_straight_on_a_run_is_made_again() -> None:
    """Intents stand in other commits when a run is stepped, and must mean the same."""
    agent = Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather])
    async with agent.start("Is it warm?") as run:
        while not run.finished:
            await run.step()
            assert replay(await agent.store.load(run.run_id)).run == run.snapshot
    assert replay(await agent.store.load(run.run_id)).divergence is None


def _scripts() -> dict[str, tuple[Agent[Any], ScriptedModel]]:
    def agent(script: Sequence[Any], **options: Any) -> tuple[Agent[Any], ScriptedModel]:
        model = ScriptedModel(script)
        return Agent(model, tools=[get_weather], clock=FrozenClock(), **options), model

    wraps = Limits(turns=1, on_exhausted="wrap_up")
    return {
        "plain": agent(["Yes."]),
        "tools": agent([called(), (called("Rome"), called("Oslo")), "Yes."], instructions="Be brief."),
        "settings": agent([called(), "Yes."], settings={"max_tokens": 100, "temperature": 0}),
        "schema": agent(["[1, 2]"], output=list[int]),
        "wrap_up": agent([called(), "Yes."], limits=wraps),
        "budget": agent([called(), "Yes."], limits=Limits(tokens=100_000)),
        "retry": agent([ModelFailed("overloaded"), "Yes."]),
        "trimmed": agent([called(), called("Rome"), ModelFailed("context_overflow"), "Yes."]),
        "window": agent([called(), "Yes."], context=LastTurns(1)),
        "nudged": agent(["", "Yes."]),
    }


@pytest.mark.parametrize("name", _scripts())
async def test_every_request_is_made_again_as_it_was_sent(name: str) -> None:
    """What a model was asked is not stored; it follows from the journal, or the journal does not tell the run."""
    agent, model = _scripts()[name]
    history = (UserTurn("Good morning."), UserTurn("And good day."))
    again = replay(await records_of(agent, history=history))
    assert list(map(asked, again.requests)) == list(map(asked, model.requests))
    assert len(again.digests) == len(again.requests) > 0
    assert again.divergence is None


async def test_what_was_injected_is_in_the_requests_made_again() -> None:
    """It waits in an inbox and goes out with a request, which no event of its own says."""
    model = ScriptedModel([called(), "Yes."])
    agent = Agent(model, tools=[get_weather])
    async with agent.start("Is it warm?") as run:
        await run.step()
        run.inject("In Oslo, I mean.")
        await run.finish()
    again = replay(await agent.store.load(run.run_id))
    assert again.requests[-1].items[-1] == UserTurn("In Oslo, I mean.")
    assert list(map(asked, again.requests)) == list(map(asked, model.requests))


WEATHER = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
CHAT: list[Any] = [
    {"message": {"tool_calls": [{"id": "a", "type": "function", "function": WEATHER}]}, "finish_reason": "tool_calls"},
    {"message": {"content": "Yes."}, "finish_reason": "stop"},
]
USE = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Oslo"}}
MESSAGES: list[Any] = [
    {"content": [{"type": "text", "text": "Let me see."}, USE], "stop_reason": "tool_use"},
    {"content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"},
]


@pytest.mark.parametrize(
    ("client", "bodies"),
    [
        (
            lambda url: OpenAIChat("any", base_url=url, api_key="k", stream=False),
            [{"choices": [choice]} for choice in CHAT],
        ),
        (
            lambda url: AnthropicMessages("any", base_url=url, api_key="k", stream=False),
            [{**message, "role": "assistant", "type": "message"} for message in MESSAGES],
        ),
    ],
)
async def test_the_bytes_on_the_wire_are_the_same(client: Any, bodies: list[Any], tmp_path: Path) -> None:
    """A request that is only alike would be another request, to a provider's cache and to whoever audits it."""
    with WireServer([{"body": body} for body in bodies]) as server:
        model: ModelClient = client(server.url)
        async with SQLiteStore(tmp_path / "runs.db") as store:
            agent = Agent(model, tools=[get_weather], instructions="Be brief.", store=store)
            records = await records_of(agent)
        await model.aclose()
    with WireServer([{"body": body} for body in bodies]) as second:
        model = client(second.url)
        for request in replay(records).requests:
            await model.reply(request, lambda _: None)
        await model.aclose()
    assert [request.content for request in second.requests] == [request.content for request in server.requests]


async def test_nothing_is_asked_and_no_code_of_a_users_runs() -> None:
    """A replay that sends a mail or costs money would be the opposite of one."""
    ran: list[str] = []

    @tool
    def spend() -> str:
        """Spend something."""
        ran.append("tool")
        return "spent"

    def instructions(deps: object) -> str:
        ran.append("instructions")
        return "Be brief."

    model = ScriptedModel([call("spend"), "Yes."])
    agent = Agent(model, tools=[spend], instructions=instructions)
    records = await records_of(agent)
    before, asked_before = list(ran), len(model.requests)
    again = replay(records, agent=agent)
    assert (again.divergence, again.changes) == (None, ())
    assert (ran, len(model.requests)) == (before, asked_before)


def _changed(records: tuple[Record, ...], kind: type[Event], **changes: Any) -> tuple[Record, ...]:
    """The records, with something else in the first one of a kind."""
    place = next(place for place, record in enumerate(records) if isinstance(record.event, kind))
    return (*records[:place], evolve(records[place], **changes), *records[place + 1 :])


async def test_another_row_is_told_with_both_sides() -> None:
    """A table that changed sends old runs another way; where, and from what to what, is the question."""
    records = await records_of(Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather]))
    again = replay(_changed(records, ModelReplied, row="answered"))
    assert again.divergence is not None
    seq = next(seq for seq, record in enumerate(records, 1) if isinstance(record.event, ModelReplied))
    divergence = again.divergence
    assert (divergence.seq, divergence.what, divergence.recorded, divergence.now) == (
        seq,
        "row",
        "answered",
        "run_tools",
    )
    assert str(divergence) == f"record {seq}: the row was answered, and is run_tools now"
    assert len(again.transitions) == 1  # what follows is of another run


def _is_first(run: RunState, event: ModelReplied) -> bool:
    return run.turns == 0


async def test_a_table_that_takes_the_event_no_more_is_told_too() -> None:
    """The built-in table has no row for what follows a state that only an extension leads to."""
    doubt = row("doubt", await_model, ModelReplied, [_is_first, is_answer], AGAIN, accept)
    agent = Agent(ScriptedModel(["Hello.", "Really."]), machine=loop.extend(rows=[before("answered", doubt)]))
    records = await records_of(agent)
    assert replay(records, agent=agent).divergence is None
    again = replay(records, loop)
    assert again.divergence is not None
    assert (again.divergence.what, again.divergence.recorded, again.divergence.now) == ("row", "doubt", "answered")
    begun = EffectBegun()  # in journals of format 1 it says no more
    older = replay(
        tuple(Record(begun if isinstance(record.event, EffectBegun) else record.event) for record in records), loop
    )
    assert older.divergence is not None
    assert older.divergence.recorded == "one of another machine"
    assert older.divergence.now.startswith("none: no row takes")


async def test_another_request_is_told_with_both_digests() -> None:
    """Instructions that were changed in a copy of a journal would have been another request."""
    records = await records_of(Agent(ScriptedModel(["Yes."]), instructions="Be brief."))
    start = records[0].event
    assert isinstance(start, RunStarted)
    again = replay((evolve(records[0], event=evolve(start, instructions="Be long.")), *records[1:]))
    assert again.divergence is not None
    assert again.divergence.what == "request"
    assert again.divergence.now == again.digests[0] != again.divergence.recorded
    assert again.run.finished  # the rows are the same, so it is followed to its end


async def test_results_of_other_calls_are_told() -> None:
    """What fits no call that is open cannot have happened in this run."""
    records = await records_of(Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather]))
    again = replay(_changed(records, ToolsFinished, event=ToolsFinished((ToolResult("other", "get_weather", ""),))))
    assert again.divergence is not None
    assert again.divergence.recorded == "finished"
    assert again.divergence.now.startswith("none: ")
    assert "other" in again.divergence.now


@pytest.mark.parametrize("items", [((0, 9),), ((0, 1),)])
async def test_a_request_that_cannot_have_been_sent_is_told(items: tuple[tuple[int, int], ...]) -> None:
    """A journal that was tampered with may claim anything, and must not break who looks at it."""
    records = await records_of(Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather]))
    place = [place for place, record in enumerate(records) if isinstance(record.event, EffectBegun)][
        0 if items == ((0, 9),) else 1
    ]
    forged = evolve(records[place], event=EffectBegun("0" * 32, items))
    again = replay((*records[:place], forged, *records[place + 1 :]))
    assert again.divergence is not None
    assert (again.divergence.seq, again.divergence.recorded) == (place + 1, "0" * 32)
    assert again.divergence.now.startswith("none: ")


async def test_the_summary_beside_the_journal_is_compared() -> None:
    """Lists read summaries only, so one that lies would lie for ever."""
    agent = Agent(ScriptedModel(["Yes."]))
    records = await records_of(agent)
    (entry,) = await agent.store.runs()
    assert replay(records, summary=entry.summary).divergence is None
    again = replay(records, summary=Summary("done", "answered", 7))
    assert again.divergence is not None
    assert (again.divergence.seq, again.divergence.what) == (len(records), "summary")
    assert "turns=7" in again.divergence.recorded
    assert replay(records, summary=Summary("unknown", "unknown")).divergence is None  # older than summaries


async def test_what_is_different_about_an_agent_is_told_with_both_sides() -> None:
    """Whoever asks why a run would go otherwise today looks at what was changed since."""
    agent = Agent(ScriptedModel(["Yes."], name="one"), instructions="Be brief.", tools=[get_weather])
    records = await records_of(agent)
    other = Agent(
        ["two", ScriptedModel([], name="three")],
        instructions="Be long.",
        tools=[tool(send.function, name="get_weather"), send],
        settings={"temperature": 1},
        output=list[int],
    )
    changes = {
        change.what: (change.recorded, change.now) for change in replay(records, agent=other, machine=loop).changes
    }
    assert changes.keys() == {
        "models", "instructions", "settings", "output_schema", "tool get_weather", "tool send",
        "fingerprint of machine", "fingerprint of tool get_weather", "fingerprint of tool send",
    }  # fmt: skip
    assert changes["models"] == ("one", "two, three")
    assert changes["settings"] == ("{}", '{"temperature": 1}')
    assert changes["tool send"][0] == ""
    assert replay(records, agent=agent).changes == ()


async def test_an_agent_that_names_no_model_has_none_to_compare() -> None:
    """Which model it would ask depends on the environment, and nothing of that is looked up."""
    records = await records_of(Agent(ScriptedModel(["Yes."])))
    assert replay(records, agent=Agent()).changes == ()


async def test_a_run_that_may_ask_a_human_is_known_by_its_fingerprint() -> None:
    """Its machine has a sixth state, and whoever has only the journal must not have to say so."""
    agent = Agent(ScriptedModel([call("send", text="hi"), "Sent."]), tools=[send])
    again = replay(await records_of(agent))
    assert again.machine.fingerprint == agent.machine.fingerprint != loop.fingerprint


async def test_journals_of_format_1_are_made_again(tmp_path: Path) -> None:
    """They have neither rows nor digests, and tell their runs all the same."""
    copytree(HISTORIES, tmp_path / "histories")
    async with SQLiteStore(tmp_path / "histories" / "format-1.sqlite") as store:
        entries = await store.runs()
        assert entries
        for entry in entries:
            again = replay(await store.load(entry.run_id), agent=Agent(), summary=entry.summary)
            assert again.divergence is None
            assert again.requests == ()
            assert "settings" not in {change.what for change in again.changes}


@pytest.mark.parametrize(("records", "found"), [((), "no record at all"), ((Record(EffectBegun()),), "EffectBegun")])
def test_what_is_no_journal_is_refused(records: tuple[Record, ...], found: str) -> None:
    """A list that was cut at its front tells of no run."""
    with pytest.raises(UsageError, match=f"begin with RunStarted; got {found}"):
        replay(records)


async def test_ten_replays_are_the_same(tmp_path: Path) -> None:
    """Same records, same run: nothing of the time or the process goes in."""
    agent = Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather])
    records = await records_of(agent)
    first = replay(records)
    assert all(
        (other.states, other.transitions, other.digests) == (first.states, first.transitions, first.digests)
        for other in (replay(records) for _ in range(10))
    )


async def test_a_replay_is_spelled_out_in_one_line() -> None:
    """With all its states in it, that of 1,000 turns took 1.3 GB, which `asyncio.run` made whenever it returned one."""
    again = replay(await records_of(Agent(ScriptedModel([called(), "Yes."]), tools=[get_weather])))
    assert repr(again) == f"Replay({again.run.run_id!r}, 4 transitions, 2 requests, divergence=None)"
