"""Resuming a run: what its process left behind is settled, and nothing that changes the world is done twice."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import apsw
import pytest

from turnstile import Agent, Limits, Price, Tool, ToolCall, ToolResult, Usage, tool
from turnstile.core.errors import Changed, NoSuchRun, RunFinished, RunIsLeased, UsageError, WaitingForHuman
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    ChangesAccepted,
    EffectBegun,
    Event,
    MessageInjected,
    ModelFailed,
)
from turnstile.core.fold import fold
from turnstile.core.messages import Reply
from turnstile.core.receipts import idempotency_key
from turnstile.driver import Recovery, Run
from turnstile.ports import Lease, ModelRequest, Record, Summary
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call

Access = Literal["read", "idempotent", "write"]


class Crash(BaseException):
    """The process is gone: nothing catches it."""


class Crashing(MemoryStore):
    """A store of a process that dies when it is about to keep an event, or right after that.

    Attributes:
        at: The kind of event to die at; ``None`` for a process that lives.
        after: Whether it is kept first.
        commits: How often something was kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: type[Event] | None = None
        self.after = False
        self.commits = 0

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Keep records, unless the process dies before."""
        dies = self.at is not None and any(isinstance(record.event, self.at) for record in records)
        if not dies or self.after:
            await super().append(lease, records, summary, letters)
            self.commits += 1
        if dies:
            self.release(lease)  # as a dead process holds nothing
            raise Crash


def answering(request: ModelRequest) -> Reply | str:
    """Ask for the tools once, and answer once their results are there."""
    last = request.items[-1]
    results = getattr(last, "results", ())
    if results:
        return "; ".join(f"{result.name}: {result.status} {result.content}" for result in results)
    return Reply(
        calls=tuple(ToolCall(f"c {spec.name}", spec.name, "{}") for spec in request.tools), finish="tool_calls"
    )


class Work:
    """Tools that note when they begin, and end when they may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}
        self.all_begun = asyncio.Event()
        self.expected = 0

    def tool(
        self, name: str, access: Access = "write", on_in_doubt: Literal["tell", "ask"] = "tell", *, ends: bool = True
    ) -> Tool[[], object]:
        """A tool of that name."""
        self.expected += 1
        gate = self.may_end[name] = asyncio.Event()
        if ends:
            gate.set()

        async def work() -> str:
            self.begun.append(name)
            if len(self.begun) >= self.expected:
                self.all_begun.set()
            await gate.wait()
            return f"{name} done"

        return tool(work, name=name, description=f"{name}.", access=access, on_in_doubt=on_in_doubt)


async def events(store: MemoryStore, run_id: str = "r") -> list[Event]:
    """The events of a stored run."""
    return [record.event for record in await store.load(run_id)]


async def lost(run: Run[str], work: Work) -> None:
    """Let the process of a run be lost while its tools are at work, and those that ended are kept."""
    driving = asyncio.create_task(run.finish())
    await work.all_begun.wait()
    await asyncio.sleep(0)
    await run._drive.keeper.flush()
    driving.cancel()
    with suppress(asyncio.CancelledError):
        await driving
    await run.__aexit__(None, None, None)


async def test_a_turn_with_one_tool_costs_two_commits() -> None:
    """What needs no wait shares a commit: a reply with the intents that follow it, a result with the next request's."""
    store = Crashing()

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    await Agent(ScriptedModel([call("pay"), call("pay"), "thanks"]), tools=[pay], store=store).run("pay", run_id="r")
    assert [type(event).__name__ for event in await events(store)] == [
        *("RunStarted", "EffectBegun"),
        *("ModelReplied", "EffectBegun", "CallStarted", "ToolsFinished", "ResultsAppended", "EffectBegun"),
        *("ModelReplied", "EffectBegun", "CallStarted", "ToolsFinished", "ResultsAppended", "EffectBegun"),
        "ModelReplied",
    ]
    assert store.commits == 1 + 2 + 2 + 1  # the first intent, two turns with a tool, the answer


async def test_each_further_call_adds_its_receipts() -> None:
    """A call that ends before the others has a receipt of its own; one that waits for its turn an intent of its own."""
    store, work = Crashing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("a"), work.tool("b"), work.tool("c")], store=store)
    result = await agent.run("go", run_id="r", limits=Limits(parallel=2))
    assert result.output == "a: ok a done; b: ok b done; c: ok c done"
    names = [type(event).__name__ for event in await events(store)]
    assert (names.count("CallStarted"), names.count("CallFinished")) == (3, 2)
    assert names.index("CallFinished") < [n for n, name in enumerate(names) if name == "CallStarted"][2]
    assert store.commits <= 1 + 2 + 3 + 1


async def test_an_intent_says_all_that_a_call_is() -> None:
    """Whoever reads the journal can tell what was to be done, with what key, before it was done."""
    store, work = Crashing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    await agent.run("go", run_id="r")
    intent = next(event for event in await events(store) if isinstance(event, CallStarted))
    assert (intent.call_id, intent.name, intent.key) == ("c pay", "pay", idempotency_key("r", "c pay"))
    assert intent.fingerprint == dict(agent.toolbox.fingerprints)["pay"]
    assert len(intent.digest) == 64


async def test_no_call_starts_whose_intent_is_not_kept() -> None:
    """A crash before the commit leaves nothing done."""
    store, work = Crashing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    store.at = CallStarted
    with pytest.raises(Crash):
        await agent.run("go", run_id="r")
    assert work.begun == []
    store.at = None
    run = await agent.resume("r")
    assert run.recovery is not None
    assert run.recovery.request_lost
    assert (await run.finish()).output == "pay: ok pay done"
    assert work.begun == ["pay"]


async def test_who_is_cancelled_starts_no_call_whose_intent_is_not_kept(tmp_path: Path) -> None:
    """A run that is cancelled while the disk is slow pays nothing that its journal does not know of."""
    path, work = tmp_path / "runs.db", Work()
    async with SQLiteStore(path) as store:
        disk = apsw.Connection(str(path))

        def answer(_: ModelRequest) -> Reply:
            disk.execute("BEGIN IMMEDIATE")  # nothing is written from here on
            return Reply(calls=(ToolCall("c", "pay", "{}"),), finish="tool_calls")

        async with Agent(ScriptedModel(answer), tools=[work.tool("pay")], store=store).start("go", run_id="r") as run:
            driving = asyncio.create_task(run.finish())
            while run._drive._unkept is None:  # noqa: ASYNC110 - a run tells nobody what it keeps at the moment
                await asyncio.sleep(0)
            driving.cancel()
            for _ in range(10):  # a call that was begun would have run by then
                await asyncio.sleep(0)
            assert (work.begun, run.state) == ([], "await_model")
            disk.execute("ROLLBACK")
            with pytest.raises(asyncio.CancelledError):
                await driving
            await work.all_begun.wait()
            assert any(isinstance(record.event, CallStarted) for record in await store.load("r"))
        disk.close()


@pytest.mark.parametrize(
    ("access", "outcome", "begun"),
    [
        ("read", "pay: ok pay done", 1),
        ("idempotent", "pay: ok pay done", 1),
        ("write", "pay: unknown outcome unknown: the process that ran it was lost", 0),
    ],
)
async def test_a_call_in_doubt_runs_again_only_if_it_may(access: Access, outcome: str, begun: int) -> None:
    """A crash between the intent and the result: nobody knows whether the call did its work."""
    store, work = Crashing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay", access)], store=store)
    store.at, store.after = CallStarted, True
    with pytest.raises(Crash):
        await agent.run("go", run_id="r")
    store.at = None
    run = await agent.resume("r")
    assert run.recovery is not None
    found = run.recovery.in_doubt if access == "write" else run.recovery.rerun
    assert [asked.id for asked in found] == ["c pay"]
    assert (await run.step()).row == "recovered"
    assert (await run.finish()).output == outcome
    assert len(work.begun) == begun
    intents = [event for event in await events(store) if isinstance(event, CallStarted)]
    assert len({intent.key for intent in intents}) == 1
    assert len(intents) == 1 + begun


async def test_finished_calls_keep_their_results() -> None:
    """Of a batch that was under way, each call is where its receipt says."""
    store, work = MemoryStore(), Work()
    tools = [work.tool("done"), work.tool("reads", "read", ends=False), work.tool("pays", ends=False)]
    agent = Agent(ScriptedModel(answering), tools=tools, store=store)
    await lost(agent.start("go", run_id="r"), work)
    run = await agent.resume("r")
    assert run.recovery is not None
    assert [
        [c.name for c in calls] for calls in (run.recovery.finished, run.recovery.rerun, run.recovery.in_doubt)
    ] == [
        ["done"],
        ["reads"],
        ["pays"],
    ]
    work.may_end["reads"].set()
    result = await run.finish()
    assert result.output == (
        "done: ok done done; reads: ok reads done; pays: unknown outcome unknown: the process that ran it was lost"
    )
    assert work.begun == ["done", "reads", "pays", "reads"]
    assert fold(agent.machine, await events(store)) == run.snapshot


async def test_a_run_that_was_paused_between_steps_was_not_in_flight() -> None:
    """Nothing is lost where nothing was under way."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    async with agent.start("go", run_id="r") as run:
        await run.step()
    again = await agent.resume("r")
    assert again.recovery == Recovery()
    assert (await again.finish()).output == "pay: ok pay done"
    assert [move.row for move in again.result.transitions] == ["run_tools", "finished", "appended", "answered"]


async def test_a_run_that_crashes_again_and_again_ends() -> None:
    """A tool that kills its process must not kill every process that resumes it."""
    store, work = Crashing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay", "read")], store=store, limits=Limits(recoveries=2))
    store.at, store.after = CallStarted, True
    with pytest.raises(Crash):
        await agent.run("go", run_id="r")
    for _ in range(2):
        run = await agent.resume("r")
        with pytest.raises(Crash):
            await run.finish()
    store.at = None
    result = await (await agent.resume("r")).finish()
    assert result.stop is not None
    assert result.stop.reason == "crash_loop"
    assert isinstance(result.messages[-1], ToolResult)
    assert result.messages[-1].status == "unknown"


async def test_a_lost_request_is_charged_at_its_worst() -> None:
    """Nobody knows whether the provider answered, so a budget counts what it may have cost."""
    store = Crashing()
    model = ScriptedModel([Reply("never", usage=Usage(10, 5)), Reply("hello", usage=Usage(10, 5))], price=Price(1, 1))
    agent = Agent(model, store=store, limits=Limits(tokens=1000, cost=1.0), settings={"max_tokens": 200})
    store.at, store.after = EffectBegun, True
    with pytest.raises(Crash):
        await agent.run("go", run_id="r")
    store.at = None
    run = await agent.resume("r")
    reserved = run.snapshot.reserved
    assert 200 < reserved[0] < 300
    await run.step()
    assert (run.snapshot.charged_tokens, run.snapshot.charged_cost) == reserved
    assert run.snapshot.reserved == (0, 0.0)
    await run.finish()
    assert run.snapshot.charged_tokens == reserved[0] + 15


async def test_a_wait_before_a_retry_goes_on_where_it_was() -> None:
    """A restart in the middle of the wait neither skips the rest of it nor begins it anew."""
    store, clock = MemoryStore(), FrozenClock()
    agent = Agent(ScriptedModel([ModelFailed("overloaded", retry_after=20.0), "hello"]), store=store, clock=clock)
    async with agent.start("go", run_id="r") as run:
        await run.step()
    clock.advance(8)
    assert (await (await agent.resume("r")).finish()).output == "hello"
    assert clock.slept == [12]


async def test_a_deadline_that_passed_meanwhile_lets_nothing_start() -> None:
    """The time that a run has does not stop with its process."""
    store, clock, work = MemoryStore(), FrozenClock(), Work()
    agent = Agent(
        ScriptedModel(answering), tools=[work.tool("pay")], store=store, clock=clock, limits=Limits(seconds=60)
    )
    async with agent.start("go", run_id="r") as run:
        await run.step()
    clock.advance(61)
    result = await (await agent.resume("r")).finish()
    assert result.stop is not None
    assert result.stop.reason == "time_limit"
    assert work.begun == []


async def asked(work: Work, store: MemoryStore, clock: FrozenClock | None = None) -> Agent[str]:
    """An agent with a run ``r`` that was lost while its tool, which asks a human, was at work."""
    agent = Agent(
        ScriptedModel(answering),
        tools=[work.tool("pay", on_in_doubt="ask", ends=False)],
        store=store,
        clock=clock,
        limits=Limits(seconds=None if clock is None else 60),
    )
    await lost(agent.start("go", run_id="r"), work)
    work.may_end["pay"].set()
    return agent


async def test_a_human_is_asked_about_a_call_in_doubt() -> None:
    """The run waits, says for what, and costs nothing meanwhile."""
    store, work = MemoryStore(), Work()
    agent = await asked(work, store)
    run = await agent.resume("r")
    result = await run.finish()
    assert (result.ok, result.stop, [c.id for c in result.waiting]) == (False, None, ["c pay"])
    assert (run.state, str(run.effect)) == ("await_approval", "AskHuman (pay)")
    assert [c.id for c in run.waiting] == ["c pay"]
    with pytest.raises(WaitingForHuman, match=r"turnstile approve r CALL"):
        await run.step()
    assert work.begun == ["pay"]


@pytest.mark.parametrize(
    ("decision", "output", "times"),
    [
        ({"rerun": True}, "pay: ok pay done", 2),
        ({"result": "it went through"}, "pay: ok it went through", 1),
        (
            {"unknown": True},
            "pay: unknown outcome unknown: the process that ran it was lost; a person was asked, and does not know",
            1,
        ),
    ],
)
async def test_a_decision_lets_the_run_go_on(decision: dict[str, object], output: str, times: int) -> None:
    """Rerun, given, or unknown: the three things that a human can know."""
    store, work = MemoryStore(), Work()
    run = await (await asked(work, store)).resume("r")
    await run.finish()
    run.settle("c pay", **decision)  # type: ignore[arg-type]
    assert (await run.finish()).output == output
    assert len(work.begun) == times
    rerun = [event for event in await events(store) if isinstance(event, CallStarted)][1:]
    decided = next(move.seq for move in run.result.transitions if move.row == "decided")
    assert [intent.approval for intent in rerun] == [str(decided)] * (times - 1)


async def test_a_decision_may_come_by_letter_and_deny_wins() -> None:
    """Two people decide in other processes; the careful one is heard, and the letters are used up."""
    store, work = MemoryStore(), Work()
    agent = await asked(work, store)
    run = await agent.resume("r")
    await run.finish()
    await run.__aexit__(None, None, None)
    await store.post("r", ApprovalDecided("c pay", "rerun"))
    await store.post("r", ApprovalDecided("c pay", "unknown", "the bank is closed"))
    run = await agent.resume("r")
    result = await run.finish()
    assert result.output.endswith("a person was asked, and does not know (the bank is closed)")
    assert work.begun == ["pay"]
    assert sum(isinstance(event, ApprovalDecided) for event in await events(store)) == 1


async def test_waiting_for_a_human_takes_no_time() -> None:
    """`Limits.seconds` counts what the machine does, not how long a person thinks."""
    store, clock, work = MemoryStore(), FrozenClock(), Work()
    agent = await asked(work, store, clock)
    run = await agent.resume("r")
    await run.finish()
    clock.advance(3_000)
    run.inject("take your time")
    await run.finish()  # what is said meanwhile does not begin the wait anew
    clock.advance(600)
    run.deny("c pay")
    result = await run.finish()
    assert result.ok
    assert run.snapshot.waited == 3_600


async def test_a_waiting_run_can_be_cancelled() -> None:
    """Nobody need decide about a call of a run that nobody wants any more."""
    store, work = MemoryStore(), Work()
    run = await (await asked(work, store)).resume("r")
    await run.finish()
    run.cancel("never mind")
    result = await run.finish()
    assert result.stop is not None
    assert result.stop.reason == "cancelled"
    assert isinstance(result.messages[-1], ToolResult)
    assert result.messages[-1].status == "unknown"


async def test_decisions_that_make_no_sense_are_refused() -> None:
    """A typing error in a call's id must not wait for ever in a mailbox."""
    store, work = MemoryStore(), Work()
    run = await (await asked(work, store)).resume("r")
    await run.finish()
    with pytest.raises(UsageError, match=r"'c play' of run 'r' is not in doubt; those that are: \('c pay',\)"):
        run.approve("c play")
    with pytest.raises(UsageError, match="takes one of"):
        run.settle("c pay")
    with pytest.raises(UsageError, match="takes one of"):
        run.settle("c pay", rerun=True, unknown=True)


async def test_letters_reach_a_live_run() -> None:
    """A run is told from another process as it is from its own."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay", ends=False)], store=store)
    async with agent.start("go", run_id="r") as run:
        driving = asyncio.create_task(run.finish())
        await work.all_begun.wait()
        assert "process" in await store.post("r", MessageInjected("and quick"))
        await store.post("r", Cancelled("enough"))
        result = await driving
    assert result.stop is not None
    assert (result.stop.reason, result.stop.detail) == ("cancelled", "enough")
    assert result.undelivered == ("and quick",)


async def test_one_drives_a_run() -> None:
    """The second hears who has it; once it is let go, or ended, there is nothing to hold."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    async with agent.start("go", run_id="r") as run:
        await run.step()
        with pytest.raises(RunIsLeased, match="process"):
            await agent.resume("r")
    again = await agent.resume("r")
    await again.finish()
    with pytest.raises(RunFinished):
        await agent.resume("r")
    with pytest.raises(NoSuchRun):
        await agent.resume("s")


async def test_a_run_that_another_took_over_ends_here() -> None:
    """A writer that was away for too long writes nothing, and what it had under way is told to end."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay", ends=False)], store=store)
    run = agent.start("go", run_id="r")
    driving = asyncio.create_task(run.finish())
    await work.all_begun.wait()
    assert run._drive.keeper._lease is not None
    store.release(run._drive.keeper._lease)
    other = await agent.resume("r")
    kept = await events(store)
    work.may_end["pay"].set()
    with pytest.raises(RunIsLeased):
        await driving
    assert await events(store) == kept
    assert (await other.finish()).ok


async def test_a_left_run_that_another_has_driven_does_not_go_on() -> None:
    """What it knows is no longer true; while the other drives it, nothing was lost here, and it says who does."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    async with agent.start("go", run_id="r") as run:
        await run.step()
    other = await agent.resume("r")
    for _ in range(2):
        with pytest.raises(RunIsLeased):
            await run.step()
    await other.step()
    await other.__aexit__(None, None, None)
    with pytest.raises(UsageError, match="was driven by another"):
        await run.step()


async def test_a_forgotten_run_is_free() -> None:
    """A program that drops a run holds nobody up, though its time is not over yet."""
    store, work = MemoryStore(), Work()
    limits = Limits(seconds=3_600)
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store, limits=limits)
    run = agent.start("go", run_id="r")
    await run.step()
    await asyncio.sleep(0)  # its effect's task calls back once more
    del run
    gc.collect()
    assert (await (await agent.resume("r")).finish()).ok


async def test_a_resumed_run_that_is_forgotten_before_its_first_step_is_free() -> None:
    """Who only looks at what was found, and drops the run, holds nobody up either."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    async with agent.start("go", run_id="r") as run:
        await run.step()
    again = await agent.resume("r")
    assert again.recovery is not None
    del again
    gc.collect()
    assert (await (await agent.resume("r")).finish()).ok


async def test_a_changed_tool_stops_the_resume() -> None:
    """What a run was begun under is not swapped under it, unless that is accepted, and on record."""
    store = MemoryStore()
    first = Agent(ScriptedModel(answering), tools=[Work().tool("pay")], store=store)
    async with first.start("go", run_id="r") as run:
        await run.step()
    second = Agent(ScriptedModel(answering), tools=[Work().tool("pay", "read"), Work().tool("look")], store=store)
    with pytest.raises(Changed, match=r"tool pay was [0-9a-f]{16}, is [0-9a-f]{16}; tool look was not there, is"):
        await second.resume("r")
    again = await second.resume("r", accept_changes=True)
    assert (await again.finish()).ok
    accepted = [event for event in await events(store) if isinstance(event, ChangesAccepted)]
    assert [dict(event.fingerprints).keys() for event in accepted] == [{"machine", "model", "tool pay", "tool look"}]
    async with second.start("go", run_id="s") as run:
        await run.step()
    await (await second.resume("s")).finish()


async def test_receipts_survive_a_store_that_fails_for_a_while() -> None:
    """A receipt that could not be kept at once is kept with what comes next."""

    class Failing(MemoryStore):
        fails = 2

        async def append(
            self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
        ) -> None:
            if self.fails and any(isinstance(record.event, CallFinished) for record in records):
                self.fails -= 1
                raise UsageError("not now")
            await super().append(lease, records, summary, letters)

    store, work = Failing(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("a"), work.tool("b", ends=False)], store=store)
    run = agent.start("go", run_id="r")
    driving = asyncio.create_task(run.finish())
    await work.all_begun.wait()
    while store.fails == 2:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0)
    work.may_end["b"].set()
    with pytest.raises(UsageError, match="not now"):
        await driving
    assert (await run.finish()).output == "a: ok a done; b: ok b done"
    assert fold(agent.machine, await events(store)) == run.snapshot


async def test_a_run_can_be_forked_while_it_is_under_way() -> None:
    """Both go on, each in its own way, and share what came before."""
    store, work = MemoryStore(), Work()
    agent = Agent(ScriptedModel(answering), tools=[work.tool("pay")], store=store)
    async with agent.start("go", run_id="r") as run:
        await run.until("append_results")
        other = await run.fork(2)
        assert other.run_id != "r"
        assert (await run.finish()).output == (await other.finish()).output == "pay: ok pay done"
        with pytest.raises(UsageError, match="transitions 1 to 4"):
            await run.fork(9)
    assert work.begun == ["pay"]
    assert other.snapshot.start.forked_from == "r@2"
