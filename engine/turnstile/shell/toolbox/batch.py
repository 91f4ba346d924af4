"""A batch: the calls of one reply, run at once as far as they may, each with exactly one result.

A batch moves when a call ends, or its time is over. `_advance` starts what may start, `_settle` gives a call its
result, and `_halt` lets nothing start any more and tells what runs to stop. Each call that runs is one task. One that
was told to stop, and doesn't within the grace period, is given up: the batch goes on without it.

A result is handed over to be kept while other calls are at work, and before one begins that waited for it. That takes a
commit, so those of calls that end in the same pass of the event loop as the last one come with the batch.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from functools import partial

from turnstile.core.events import ToolsFinished
from turnstile.core.messages import ToolResult
from turnstile.ports import ToolBatch, ToolProgress, ToolStarted, ToolWork
from turnstile.shell.toolbox.call import Job, Outcome, failed, perform
from turnstile.shell.toolbox.text import fit, whole
from turnstile.shell.toolbox.threads import Deliveries
from turnstile.tools import ToolContext

UNKNOWN = "it was stopped while it ran, and its outcome is unknown"


class Batch:
    """The calls of one reply under way.

    Args:
        results: A place for each call's result; filled where a call cannot run, left empty by one that is handed over.
        jobs: The calls that can, in call order.
        work: What is known of the run.
        grace: Seconds that a call may go on after it was told to stop.
        monotonic: Tells the time in seconds.
        given_up: Keeps the tasks that were given up until they end, for asyncio itself does not.
    """

    __slots__ = (
        "_aborted",
        "_advancing",
        "_cancelled",
        "_context",
        "_deliveries",
        "_given_up",
        "_grace",
        "_halted",
        "_has_queue",
        "_idle",
        "_loop",
        "_monotonic",
        "_owner",
        "_raised",
        "_results",
        "_running",
        "_runs_alone",
        "_unkept",
        "_waiting",
        "_work",
    )

    def __init__(
        self,
        results: list[ToolResult | None],
        jobs: Iterable[Job],
        work: ToolWork,
        *,
        grace: float,
        monotonic: Callable[[], float],
        given_up: set[asyncio.Task[None]],
    ) -> None:
        self._results = results
        self._waiting = [*jobs]  # a few: a deque takes ten times the memory
        self._running: dict[int, Job] = {}
        self._unkept: list[int] = []  # whose results have not been handed over, and may have to be
        self._work = work
        self._grace = grace
        self._monotonic = monotonic
        self._given_up = given_up
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
        self._cancelled = self._owner.cancelling() if self._owner else 0  # before, and then lived on
        self._context = contextvars.copy_context()
        self._deliveries = Deliveries(self._loop)
        self._idle: asyncio.Future[None] = self._loop.create_future()  # done when nothing runs and nothing waits
        self._has_queue = True  # whether calls wait for others to end
        self._runs_alone = False
        self._advancing = False
        self._halted = ""
        self._aborted: str | None = None
        self._raised: BaseException | None = None

    async def run(self) -> ToolBatch:
        """Run all calls; cancelled, it ends them first, within the grace period."""
        self._work.stop.add_done_callback(self._told)
        try:
            self._advance()
            self._has_queue = bool(self._waiting)
            await self._idle
        except asyncio.CancelledError:
            self._idle = self._loop.create_future()  # the other one is cancelled, too
            self._halt("cancelled")
            self._advance()
            try:
                await self._idle
            finally:
                for job in [*self._running.values()]:  # told to hurry: cancelled once more
                    self._give_up(job)
                self._hand_over()
            raise
        finally:
            self._work.stop.remove_done_callback(self._told)
        results = tuple([result for result in self._results if result is not None])
        return ToolBatch(ToolsFinished(results, self._aborted), self._raised)

    def _told(self, _stop: asyncio.Future[None]) -> None:
        self._halt("cancelled")

    def _advance(self) -> None:
        """Start what may start: calls in order, as many as may run at once, a sequential one alone."""
        if self._advancing:  # a task may begin, and even end, while it is made (asyncio.eager_task_factory)
            return
        self._advancing = True
        while self._waiting and len(self._running) < self._work.parallel:
            if self._running and (self._runs_alone or self._waiting[0].tool.sequential):
                break
            self._start(self._waiting.pop(0))
        self._advancing = False
        if not self._waiting and not self._running and not self._idle.done():
            self._idle.set_result(None)

    def _is_over(self) -> bool:
        """Whether no call may start any more, though nobody may have been told yet."""
        return self._work.stop.done() or (self._owner is not None and self._owner.cancelling() > self._cancelled)

    def _start(self, job: Job) -> None:
        self._running[job.index] = job
        self._runs_alone = job.tool.sequential
        # In a copy of the batch's context: this may run within another call's task, whose variables are its own.
        job.task = self._loop.create_task(self._drive(job), name=job.call.name, context=self._context.copy())
        job.task.add_done_callback(self._ended)

    async def _drive(self, job: Job) -> None:
        if self._is_over():
            self._settle(job, Outcome("not run: cancelled", "not_run"))
            return
        if not await self._work.begin(job.call):
            self._settle(job, Outcome("not run: the run is told to stop", "not_run"))
            return
        job.began = self._monotonic()
        self._work.notify(ToolStarted(job.call.id, job.call.name))
        if job.tool.timeout is not None:
            job.alarm = self._loop.call_later(job.tool.timeout, self._expire, job)
        self._settle(job, await perform(job, partial(self._tool_context, job), self._is_over, self._deliveries))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Settle a call whose task ended without a result, so that nobody waits for it.

        Its tool raised what `perform` must let through, or another task cancelled it before it began.
        """
        for job in [*self._running.values()]:
            if job.task is task:
                error = None if task.cancelled() else task.exception()
                self._settle(job, failed(error) if error else Outcome("not run: cancelled", "not_run"))

    def _tool_context(self, job: Job) -> ToolContext:
        def report(text: str) -> None:
            if not job.settled:
                self._work.notify(ToolProgress(job.call.id, job.call.name, whole(str(text))))

        return ToolContext(self._work.run_id, job.call.id, self._work.deps, report)

    def _settle(self, job: Job, outcome: Outcome) -> None:
        """Give a call its result, unless it has one."""
        if job.settled:
            return
        job.settled = True
        self._running.pop(job.index, None)
        if job.task is not None:
            job.task.remove_done_callback(self._ended)
        if job.alarm is not None:
            job.alarm.cancel()
        duration_ms = 0.0 if job.began is None else (self._monotonic() - job.began) * 1000
        content = fit(outcome.content, job.tool.max_result_chars)
        result = ToolResult(job.call.id, job.call.name, content, outcome.status, duration_ms)
        self._results[job.index] = result
        # The last one's comes with the batch. That an outcome is unknown is said by an intent without a result, too: a
        # call that was told to stop with its process may be looked at anew.
        if job.began is not None and outcome.status != "unknown":
            self._unkept.append(job.index)
            if self._has_queue and (self._running or self._waiting):
                self._hand_over()
            elif self._running and len(self._unkept) == 1:
                self._loop.call_soon(self._look_back)
        self._work.notify(result)
        if outcome.raised is not None:
            self._raised = outcome.raised if self._raised is None else self._raised
            self._halt("interrupted")
        if outcome.aborted is not None:
            self._aborted = outcome.aborted if self._aborted is None else self._aborted
            self._halt(f"{job.tool.name} ended the run")
        self._advance()

    def _look_back(self) -> None:
        """Hand over the results of the last pass, unless all calls have ended with it."""
        if self._running:
            self._hand_over()

    def _hand_over(self) -> None:
        for index in self._unkept:
            result, self._results[index] = self._results[index], None
            assert result is not None  # noqa: S101 - it has just been given
            self._work.finished(result)
        self._unkept.clear()

    def _halt(self, why: str) -> None:
        """Let no call start any more, and tell those that run to stop; the first reason counts."""
        if self._halted:
            return
        self._halted = why
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._settle(job, Outcome(f"not run: {why}", "not_run"))
        for job in [*self._running.values()]:
            if job.halted is None:
                self._stop(job, Outcome(f"{why}: {UNKNOWN}", "unknown"))

    def _expire(self, job: Job) -> None:
        text = f"timed out: {job.tool.name} did not end within {job.tool.timeout:g} s"
        if job.tool.access == "write":
            self._stop(job, Outcome(f"{text}, and its outcome is unknown: look before you call it again", "unknown"))
        else:
            self._stop(job, Outcome(text, "error"))

    def _stop(self, job: Job, outcome: Outcome) -> None:
        """Tell a call to stop, which comes to `outcome` unless it still brings a result of its own."""
        job.halted = outcome
        assert job.task is not None  # noqa: S101 - it is running
        job.task.cancel()
        if job.began is None:  # a task that is cancelled before it begins never begins
            self._settle(job, Outcome(f"not run: {self._halted}", "not_run"))
            return
        if job.alarm is not None:
            job.alarm.cancel()
        job.alarm = self._loop.call_later(self._grace, self._give_up, job)

    def _give_up(self, job: Job) -> None:
        assert job.task is not None  # noqa: S101 - it is running
        assert job.halted is not None  # noqa: S101 - it was told to stop
        self._given_up.add(job.task)
        job.task.add_done_callback(self._given_up.discard)
        # Nor does the end of the event loop wait for it, which would be for ever where a tool ignores that it is
        # cancelled (docs.python.org, "Extending asyncio": a task is unregistered when it is about to finish).
        asyncio._unregister_task(job.task)  # noqa: SLF001 - documented for just this, in spite of its name
        self._settle(job, job.halted)
