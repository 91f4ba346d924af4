"""A stage for a toolbox: gives it calls as a driver would, and keeps all that observers are told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from turnstile.core.effects import RunTools
from turnstile.core.events import RunStarted, Verdict
from turnstile.core.limits import Limits
from turnstile.core.messages import Reply, ToolCall, ToolResult
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.values import evolve
from turnstile.ports import Notice, ToolBatch, ToolWork
from turnstile.shell.toolbox import Toolbox

NEVER = 3_600.0  # a grace period in which a test would hang rather than pass by it


class Stage:
    """A toolbox with a run around it.

    Attributes:
        box: The toolbox.
        run: The run, as vetting sees it.
        notices: What observers were told, in order.
        memo: What was found out about calls that have not run yet.
        begun: Names of the tools whose calls said that they begin, in order.
        receipts: The results that were handed over while others were at work.
    """

    def __init__(
        self,
        *tools: Callable[..., Any],
        parallel: int = 8,
        grace: float = NEVER,
        deps: object = None,
        run_id: str = "run",
    ) -> None:
        ticks = itertools.count()
        self.box = Toolbox(tools, grace=grace, monotonic=lambda: next(ticks) / 1000)
        self.run = begin_run(RunStarted(run_id, "hello", limits=Limits(parallel=parallel)))
        self.deps = deps
        self.notices: list[Notice] = []
        self.memo: dict[ToolCall, object] = {}
        self.begun: list[str] = []
        self.receipts: list[ToolResult] = []

    def called(self, **counts: int) -> RunState:
        """The run, after each of these tools was called so often."""
        self.run = evolve(self.run, calls_by_tool=tuple(counts.items()))
        return self.run

    def vet(self, *calls: tuple[str, str]) -> tuple[Verdict, ...]:
        """The verdicts on calls given as name and arguments."""
        return self.box.vet(reply(*calls), self.run, self.memo)

    @cached_property
    def stop(self) -> asyncio.Future[None]:
        """Tells the tools to stop."""
        return asyncio.get_running_loop().create_future()

    def work(self) -> ToolWork:
        """What the toolbox is told of the run."""
        return ToolWork(
            self.run.run_id,
            self.deps,
            self.run.limits.parallel,
            self.stop,
            self.notices.append,
            self.memo,
            self.begin,
            self.receipts.append,
        )

    async def begin(self, call: ToolCall) -> bool:
        """Let a call start, and remember it."""
        self.begun.append(call.name)
        return True

    async def play(self, *calls: str | tuple[str, str]) -> ToolBatch:
        """Vet and run calls; a name alone is a call without arguments. All results are in the batch that comes back."""
        asked = reply(*((call, "") if isinstance(call, str) else call for call in calls))
        batch = await self.box.run(RunTools(asked.calls, self.box.vet(asked, self.run, self.memo)), self.work())
        known = {result.call_id: result for result in (*self.receipts, *batch.event.results)}
        results = tuple(known[call.id] for call in asked.calls)
        return ToolBatch(evolve(batch.event, results=results), batch.raised)


def reply(*calls: tuple[str, str]) -> Reply:
    """A reply with these calls, whose ids are c1, c2 and so on."""
    return Reply(calls=tuple(ToolCall(f"c{number}", *call) for number, call in enumerate(calls, 1)))


@pytest.fixture
def stage() -> type[Stage]:
    """Makes a stage for some tools."""
    return Stage
