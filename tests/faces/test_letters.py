"""Letters: what a run is told from elsewhere, by Python, whoever drives it or nobody."""

from __future__ import annotations

import asyncio

import pytest

from turnstile import Agent, Limits, Reply, Tool, ToolCall, tool
from turnstile.core.errors import NoSuchRun, RunFinished, SessionBusy, UsageError
from turnstile.core.events import ApprovalDecided
from turnstile.letters import approve, cancel, deny, inject, settle
from turnstile.ports import Deliver, Lease, Letter, ModelRequest
from turnstile.stores import MemoryStore
from turnstile.testing import ScriptedModel

LOST = "outcome unknown: the process that ran it was lost"


class Calls:
    """Tools that count their calls, and hang until they may end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.times = 0

    def tool(self, name: str) -> Tool[[], object]:
        """A tool of that name, about which a human is asked."""

        async def work() -> str:
            self.times += 1
            self.begun.set()
            await self.may_end.wait()
            return "done"

        return tool(work, name=name, description="Works.", on_in_doubt="ask")


def answering(request: ModelRequest) -> Reply | str:
    """Call each tool once, then tell what came of them, and what was said meanwhile."""
    results = [result for item in request.items for result in getattr(item, "results", ())]
    if results:
        said = [item.text for item in request.items if item.kind == "user"][1:]
        return "; ".join([*(f"{result.status}: {result.content}" for result in results), *map(str, said)])
    return Reply(
        calls=tuple(ToolCall(f"c {spec.name}", spec.name, "{}") for spec in request.tools), finish="tool_calls"
    )


async def left(calls: Calls, *names: str, session: str | None = None, recoveries: int = 3) -> Agent[str]:
    """An agent whose store has a run ``r`` that was lost with these calls at work."""
    limits = Limits(recoveries=recoveries)
    agent = Agent(ScriptedModel(answering), tools=map(calls.tool, names), store=MemoryStore(), limits=limits)
    run = agent.start("go", run_id="r", session=session)
    driving = asyncio.create_task(run.finish())
    await calls.begun.wait()
    driving.cancel()
    await asyncio.wait([driving])
    await run.__aexit__(None, None, None)
    calls.may_end.set()
    return agent


async def test_a_run_that_nobody_drives_ends_here() -> None:
    """Cancelling needs neither a model nor a tool, so it is done when the call returns."""
    agent = await left(Calls(), "a")
    told = await cancel(agent.store, "r", "never mind")
    assert str(told) == "it has ended (failed: cancelled)"
    assert (told.holder, told.waits) == ("", False)
    assert told.run.stop is not None
    assert told.run.stop.detail == "never mind"
    with pytest.raises(RunFinished):
        await cancel(agent.store, "r")
    with pytest.raises(RunFinished):
        await approve(agent.store, "r", "c a")


async def test_a_run_that_is_driven_gets_the_letter() -> None:
    """What is said reaches the run as if its own process had said it, and who has it is told."""
    calls = Calls()
    agent = Agent(ScriptedModel(answering), tools=[calls.tool("a")], store=MemoryStore())
    async with agent.start("go", run_id="r") as run:
        driving = asyncio.create_task(run.finish())
        await calls.begun.wait()
        told = await inject(agent.store, "r", "and quick")
        assert str(told).endswith(" drives it, and gets the letter")
        assert str(told).startswith("process ")
        with pytest.raises(UsageError, match=r"call 'c a' of run 'r' is at work, so .+ process \d+ .*drives it; wait"):
            await approve(agent.store, "r", "c a")
        calls.may_end.set()
        assert (await driving).output == "ok: done; and quick"


async def test_what_is_said_to_a_run_that_nobody_drives_is_in_its_journal() -> None:
    """Whoever resumes it finds it said; the calls under way were lost before that."""
    agent = await left(Calls(), "a")
    told = await inject(agent.store, "r", "and quick")
    assert str(told) == "it has taken the letter, and stands in execute_tools"
    await deny(agent.store, "r", "c a")
    result = await (await agent.resume("r")).finish()
    assert result.output == f"unknown: {LOST}; a person was asked, and does not know; and quick"


@pytest.mark.parametrize("resumed", [False, True])
async def test_decisions_before_and_while_the_run_waits(*, resumed: bool) -> None:
    """One may decide as soon as the process is gone, or once the run says that it waits: it comes to the same."""
    calls = Calls()
    agent = await left(calls, "a", "b", "c")
    if resumed:
        async with await agent.resume("r") as run:
            assert len((await run.finish()).waiting) == 3
    told = [
        await approve(agent.store, "r", "c a"),
        await settle(agent.store, "r", "c b", "it went through"),
        await deny(agent.store, "r", "c c", "closed"),
    ]
    assert [each.waits for each in told] == [not resumed] * 3
    if not resumed:
        assert str(told[0]) == "nobody drives it, and the letter waits for whoever resumes it"
    result = await (await agent.resume("r")).finish()
    unknown = f"unknown: {LOST}; a person was asked, and does not know (closed)"
    assert result.output == f"ok: done; ok: it went through; {unknown}"
    assert calls.times == 3 + 1


async def test_what_waits_for_no_decision() -> None:
    """A mistyped id, or one that was decided about, is refused with those that there are."""
    agent = await left(Calls(), "a", "b")
    with pytest.raises(UsageError, match=r"call 'c x' of run 'r' waits for no decision; those that do: none"):
        await approve(agent.store, "r", "c x")
    async with await agent.resume("r") as run:
        await run.finish()
    await approve(agent.store, "r", "c a")
    with pytest.raises(UsageError, match=r"waits for no decision; those that do: 'c b' \(turnstile runs show r"):
        await deny(agent.store, "r", "c a")


async def test_a_run_that_can_recover_no_more_ends() -> None:
    """Deciding about a call means to take the run up, and a run that is lost again and again ends by that."""
    agent = await left(Calls(), "a", recoveries=0)
    with pytest.raises(RunFinished):
        await approve(agent.store, "r", "c a")
    (entry,) = await agent.store.runs()
    assert entry.summary.reason == "crash_loop"


async def test_a_session_that_goes_on_elsewhere() -> None:
    """A lost run of a conversation that goes on cannot be taken up now; its letter waits until it can be."""
    agent = await left(Calls(), "a", session="monday")
    other = Agent(ScriptedModel(["hello"]), store=agent.store)
    async with other.start("go on", session="monday"):
        told = await cancel(agent.store, "r")
        assert told.waits
        with pytest.raises(SessionBusy):
            await approve(agent.store, "r", "c a")
    assert (await (await agent.resume("r")).finish()).stop is not None
    assert (await agent.store.runs(live=True))[0].run_id != "r"


async def test_somebody_was_faster() -> None:
    """A run that is taken up between the letter and the claim has a driver, who gets the letter."""

    class Raced(MemoryStore):
        deliver: Deliver | None = None

        async def claim(self, run_id: str, deliver: Deliver) -> Lease:
            """Let another claim it first."""
            if self.deliver is not None:
                first, self.deliver = self.deliver, None
                await super().claim(run_id, first)
            return await super().claim(run_id, deliver)

    store = Raced()
    letters: list[Letter] = []
    async with Agent(ScriptedModel(["hello"]), store=store).start("hi", run_id="r"):
        pass
    store.deliver = letters.append
    told = await cancel(store, "r")
    assert told.holder.startswith("process ")
    assert len(letters) == 1


async def test_misuse() -> None:
    """What a letter cannot hold, or whom it cannot reach, is said at once, and nothing is posted."""
    agent = await left(Calls(), "a")
    for telling in (
        cancel(agent.store, "r", 5),  # type: ignore[arg-type]
        inject(agent.store, "r", None),  # type: ignore[arg-type]
        deny(agent.store, "r", "c a", 5),  # type: ignore[arg-type]
        settle(agent.store, "r", "c a", {"paid": True}),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match=r"^(cancel|inject|deny|settle)\(\) takes text; got "):
            await telling
    for telling in (cancel(agent.store, "s"), approve(agent.store, "s", "c a")):
        with pytest.raises(NoSuchRun):
            await telling
    assert (await (await agent.resume("r")).finish()).waiting


async def test_a_decision_for_nobody_waits_for_nobody() -> None:
    """A letter that came too late to be of use leaves nothing behind that would be taken later."""
    calls = Calls()
    agent = await left(calls, "a")
    async with await agent.resume("r") as run:
        await run.finish()
        await agent.store.post("r", ApprovalDecided("c a", "unknown"))
        await agent.store.post("r", ApprovalDecided("c a", "rerun"))
        result = await run.finish()
    assert result.output.startswith("unknown")
    assert calls.times == 1
