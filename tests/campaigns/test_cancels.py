"""Campaign 9: a run is cancelled at each turn of the event loop, in each way, whatever kind of tool is at work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any, Literal

import pytest

from case import Case, Effort, Head
from crashing import Remembered
from invariants import violations
from journals import rows_of
from ledger import Entry, Ledger
from plays import DONE, LOOK, calls, look
from sizes import CANCELS
from tally import Tally
from through import Noting
from turnstile import Agent, Limits, Run, Tool, ToolContext, tool
from turnstile.core.errors import NoSuchRun, RunFinished
from turnstile.core.events import Access, Cancelled
from turnstile.shell.toolbox import Toolbox
from turnstile.stores import MemoryStore
from turnstile.testing import ScriptedModel, call

GRACE = 0.02  # seconds that a tool may go on after it was told to stop, so that stubborn ones cost little time
TURNS = 5  # of the event loop, that a tool takes; in each repetition of the campaign one more

Kind = Literal["cooperating", "stubborn", "in a thread"]
Way = Literal["by the run", "by its task", "by a letter"]
KINDS: tuple[Kind, ...] = ("cooperating", "stubborn", "in a thread")
WAYS: tuple[Way, ...] = ("by the run", "by its task", "by a letter")
ACCESSES: tuple[Access, ...] = ("read", "idempotent", "write")


class Ticking(asyncio.SelectorEventLoop):
    """An event loop that does something at its Nth turn from now, or when it would wait.

    Attributes:
        act: What it does; ``None`` once it has.
        left: How many turns are left until then.
    """

    act: Callable[[], object] | None = None
    left = 0

    def _run_once(self) -> None:
        if self.act is not None and (not self.left or not self._ready):  # type: ignore[attr-defined]
            act, self.act = self.act, None
            act()
        elif self.act is not None:
            self.left -= 1
        super()._run_once()  # type: ignore[misc]


@dataclass(slots=True)
class Bench:
    """What a tool needs.

    Attributes:
        ledger: Where it writes down what it does.
        release: Lets a tool in a thread go.
    """

    ledger: Ledger
    release: threading.Event


def tool_of(kind: Kind, access: Access, turns: int) -> Tool[..., Any]:
    """A tool that takes some turns of the event loop, or blocks a thread."""

    async def cooperate(ctx: ToolContext) -> str:
        """Work, and stop when told to."""
        with ctx.deps.ledger.effect("work", ctx):
            for _ in range(turns):
                await asyncio.sleep(0)
        return "done"

    async def go_on(ctx: ToolContext) -> str:
        """Work, and go on when told to stop."""
        with ctx.deps.ledger.effect("work", ctx):
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                await asyncio.to_thread(ctx.deps.release.wait)
        return "done"

    def block(ctx: ToolContext) -> str:
        """Work in a thread, where nobody can be told to stop."""
        with ctx.deps.ledger.effect("work", ctx):
            ctx.deps.release.wait()
        return "done"

    function: Any = {"cooperating": cooperate, "stubborn": go_on, "in a thread": block}[kind]
    return tool(function, name="work", access=access)


@dataclass(slots=True)
class Trial:
    """One run that is cancelled once.

    Attributes:
        way: How.
        store: Its store.
        ordered: When it was, on the clock of this process; ``None`` while it wasn't.
    """

    way: Way
    store: Noting
    ordered: float | None = None
    run: Run[str] | None = None
    driving: asyncio.Task[None] | None = None
    posting: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Give the order to stop."""
        assert self.run
        assert self.driving
        self.ordered = time.monotonic()
        if self.way == "by the run":
            self.run.cancel("enough")
        elif self.way == "by its task":
            self.driving.cancel()
        else:
            self.posting = asyncio.get_running_loop().create_task(self._post())

    async def _post(self) -> None:
        assert self.run
        with suppress(RunFinished):
            try:
                await self.store.post(self.run.run_id, Cancelled("enough"))
            except NoSuchRun:  # it has not begun, so that only its own process can reach it
                self.run.cancel("enough")


async def drive(trial: Trial, agent: Agent[str], bench: Bench) -> None:
    """The run to its end, whatever cancels it."""

    async def to_the_end() -> None:
        assert trial.run
        async with trial.run:
            await trial.run.finish()

    loop = asyncio.get_running_loop()
    assert isinstance(loop, Ticking)
    trial.run = agent.start("Work.", run_id="run", deps=bench)
    trial.driving = loop.create_task(to_the_end())
    loop.act = trial.cancel
    with suppress(asyncio.CancelledError):
        await trial.driving
    loop.act = None
    if trial.posting is not None:
        await trial.posting


def tried(way: Way, turn: int, work: Tool[..., Any]) -> tuple[list[str], bool]:
    """What is wrong with a run that was cancelled at that turn; and whether it came so far without waiting."""
    entries: list[Entry] = []
    bench = Bench(Remembered(entries), threading.Event())
    inner = MemoryStore()
    trial = Trial(way, Noting(inner, bench.ledger))
    model = ScriptedModel(lambda request: calls(LOOK, call("work")) if len(request.items) == 1 else DONE)
    agent = Agent(model, tools=[look, work], limits=Limits(tokens=100_000), store=trial.store)
    agent.toolbox = Toolbox([look, work], grace=GRACE)
    loop = Ticking()
    loop.left = turn
    try:
        loop.run_until_complete(drive(trial, agent, bench))
        took = None if trial.ordered is None else time.monotonic() - trial.ordered
        bench.release.set()
        case = loop.run_until_complete(case_in(inner, tuple(entries)))
        loop.run_until_complete(loop.shutdown_default_executor())
        while tasks := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()
    if case is None:
        return [], loop.left == 0
    wrong = violations(replace(case, effort=Effort(to_stop=took)))
    if not case.states[-1].finished:
        wrong.append(f"the run did not end: it is {case.states[-1].state}")
    assert trial.run
    if not trial.run.finished:
        wrong.append(f"the run does not know that it ended: it is {trial.run.state}")
    return wrong, trial.ordered is not None and loop.left == 0


async def case_in(store: MemoryStore, entries: tuple[Entry, ...]) -> Case | None:
    """The run as a store in memory holds it; ``None`` when it never began."""
    records = await store.load("run")
    if not records:
        return None
    ((entry),) = await store.runs()
    rows = rows_of("run", records)
    return Case("run", rows, Head(len(rows), rows[-1].seal, entry.summary), entries)


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_at_each_await(kind: Kind, tally: Callable[[str], Tally]) -> None:
    """Nothing begins after the order to stop, every call has an answer, and the end comes soon."""
    counts = tally(f"9 cancel, tools {kind}")
    for repetition, access, way in product(range(CANCELS.cases), ACCESSES, WAYS):
        work = tool_of(kind, access, TURNS + repetition)
        for turn in count():
            wrong, came = tried(way, turn, work)
            counts.count(f"{access}, cancelled {way} at turn {turn}", wrong)
            if not came:
                break
    counts.verdict()
