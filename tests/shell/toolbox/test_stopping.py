"""Stopping: a cancelled run, a timeout, a lost process; each call has one result still, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from turnstile.core.errors import StopRun
from turnstile.core.messages import ToolCall, ToolResult
from turnstile.ports import ToolBatch, ToolProgress, ToolStarted
from turnstile.shell.toolbox.call import Job, Outcome, perform
from turnstile.shell.toolbox.threads import Deliveries, idle
from turnstile.tools import ToolContext, tool

if TYPE_CHECKING:
    from tests.shell.toolbox.conftest import Stage

STOPPED = "cancelled: it was stopped while it ran, and its outcome is unknown"


def contents(batch: ToolBatch) -> list[tuple[str, str]]:
    """Status and content of each result."""
    return [(result.status, result.content) for result in batch.event.results]


async def test_nothing_starts_after_a_stop(stage: type[Stage]) -> None:
    """A cancelled run does no further work, though its calls are known."""

    async def work() -> str:
        raise AssertionError("never runs")

    on = stage(work)
    on.stop.set_result(None)
    batch = await on.play("work", "work")
    assert contents(batch) == [("not_run", "not run: cancelled")] * 2
    assert not any(isinstance(notice, ToolStarted) for notice in on.notices)


async def test_a_stop_ends_what_runs_and_what_waits(stage: type[Stage]) -> None:
    """A tool that cooperates ends within its own clean-up, and what was finished keeps its result."""
    begun = asyncio.Event()
    cleaned: list[str] = []

    async def quick() -> str:
        return "done"

    async def endless() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")
        raise AssertionError

    on = stage(quick, endless, parallel=2)
    playing = asyncio.create_task(on.play("quick", "endless", "endless", "quick"))
    await begun.wait()
    on.stop.set_result(None)
    batch = await playing
    assert contents(batch) == [
        ("ok", "done"),
        ("unknown", STOPPED),
        ("unknown", STOPPED),
        ("not_run", "not run: cancelled"),
    ]
    assert cleaned == ["up", "up"]


async def test_a_tool_that_takes_the_stop_for_a_result_keeps_it(stage: type[Stage]) -> None:
    """What a tool says it did is worth more than our guess (wire case tool-swallows-cancel)."""
    begun = asyncio.Event()

    async def term() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "Status: cancelled"
        raise AssertionError

    async def breaks() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("half done") from None
        raise AssertionError

    on = stage(breaks, term)
    playing = asyncio.create_task(on.play("breaks", "term"))
    await begun.wait()
    on.stop.set_result(None)
    assert contents(await playing) == [("error", "RuntimeError: half done"), ("ok", "Status: cancelled")]


async def test_a_tool_that_does_not_stop_is_given_up(stage: type[Stage]) -> None:
    """A run ends in bounded time; what the tool says later reaches nobody."""
    begun, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: ToolContext) -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await let_go.wait()
        ctx.progress("still here")
        ended.set()
        return "late"

    on = stage(stubborn, grace=0)
    playing = asyncio.create_task(on.play("stubborn"))
    await begun.wait()
    on.stop.set_result(None)
    batch = await playing
    assert contents(batch) == [("unknown", STOPPED)]
    assert len(on.box._given_up) == 1
    heard = list(on.notices)
    let_go.set()
    await ended.wait()
    await asyncio.wait(set(on.box._given_up))
    assert on.notices == heard


async def test_a_thread_is_abandoned_at_once(stage: type[Stage]) -> None:
    """A thread cannot be stopped, so waiting for it would only keep the user waiting (grace is an hour here)."""
    begun, let_go = asyncio.Event(), threading.Event()
    threads: list[threading.Thread] = []
    loop = asyncio.get_running_loop()

    def stuck(ctx: ToolContext) -> str:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        let_go.wait()
        ctx.progress("still here")
        return "late"

    on = stage(stuck)
    playing = asyncio.create_task(on.play("stuck"))
    await begun.wait()
    on.stop.set_result(None)
    batch = await playing
    assert contents(batch) == [("unknown", STOPPED)]
    let_go.set()
    await asyncio.to_thread(threads[0].join)
    await asyncio.sleep(0)
    assert threads[0].daemon
    assert not any(isinstance(notice, ToolProgress) for notice in on.notices)
    assert sum(isinstance(notice, ToolResult) for notice in on.notices) == 1


def test_a_thread_that_outlives_its_event_loop_is_quiet(stage: type[Stage]) -> None:
    """An abandoned tool ends some day, when there is no loop left to tell; a trace on stderr would help nobody."""
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    async def main() -> ToolBatch:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stuck() -> str:
            threads.append(threading.current_thread())
            loop.call_soon_threadsafe(begun.set)
            let_go.wait()
            return "late"

        on = stage(stuck)
        playing = asyncio.create_task(on.play("stuck"))
        await begun.wait()
        on.stop.set_result(None)
        return await playing

    assert contents(asyncio.run(main())) == [("unknown", STOPPED)]
    let_go.set()
    threads[0].join()  # pytest turns an exception in a thread into a failure


def test_an_abandoned_thread_does_not_keep_the_process(stage: type[Stage]) -> None:
    """A program must end when its work is done, though a tool hangs in a read for ever."""
    code = """
import asyncio, threading
from turnstile.core.effects import RunTools
from turnstile.core.events import Verdict
from turnstile.core.messages import ToolCall
from turnstile.ports import ToolWork
from turnstile.shell.toolbox import Toolbox
from turnstile.tools import tool

@tool(timeout=0.001)
def stuck() -> str:
    threading.Event().wait()
    return ""

async def main() -> None:
    effect = RunTools((ToolCall("a", "stuck", ""),), (Verdict("a", "digest"),))
    work = ToolWork("run", None, 8, asyncio.get_running_loop().create_future(), lambda notice: None, {})
    batch = await Toolbox([stuck]).run(effect, work)
    print(batch.event.results[0].status)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("unknown\n", "")


async def test_a_stop_between_two_calls_is_seen(stage: type[Stage]) -> None:
    """The order to stop may come in the very moment in which the next call would start."""
    on = stage(parallel=1)

    async def last() -> str:
        on.stop.set_result(None)
        return "done"

    async def next_one() -> str:
        raise AssertionError("never runs")

    onto = stage(last, next_one, parallel=1)
    onto.stop = on.stop
    assert contents(await onto.play("last", "next_one")) == [("ok", "done"), ("not_run", "not run: cancelled")]


async def test_a_call_that_has_its_place_but_has_not_begun_does_not_begin(stage: type[Stage]) -> None:
    """No intent follows an order to stop, though the call's task was made before."""
    on = stage()

    async def first() -> str:
        on.stop.set_result(None)
        await asyncio.sleep(0)
        return "done"

    async def second() -> str:
        raise AssertionError("never runs")

    onto = stage(first, second)
    onto.stop = on.stop
    statuses = [status for status, _ in contents(await onto.play("first", "second", "second"))]
    assert statuses == ["unknown", "not_run", "not_run"]
    assert sum(isinstance(notice, ToolStarted) for notice in onto.notices) == 1


async def test_a_call_does_not_begin_when_it_may_not(stage: type[Stage]) -> None:
    """Keeping an intent takes a while, in which the run may be told to stop."""

    class Refusing(stage):  # type: ignore[misc, valid-type] # a fixture gives the class
        """Lets one call begin."""

        async def begin(self, call: ToolCall) -> bool:
            """Whether it is the first."""
            return await super().begin(call) and len(self.begun) == 1

    async def work() -> str:
        return "done"

    on = Refusing(work)
    assert contents(await on.play("work", "work")) == [("ok", "done"), ("not_run", "not run: the run is told to stop")]


@pytest.mark.parametrize(
    ("access", "status", "text"),
    [
        (
            "write",
            "unknown",
            "timed out: slow did not end within 0.001 s, and its outcome is unknown: look before you call it again",
        ),
        ("idempotent", "error", "timed out: slow did not end within 0.001 s"),
        ("read", "error", "timed out: slow did not end within 0.001 s"),
    ],
)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_timeout_says_tool_and_limit(
    stage: type[Stage],
    access: str,
    status: str,
    text: str,
    in_thread: bool,  # noqa: FBT001 - a table's column
) -> None:
    """The model must know whether it may simply try again, or something may have happened out there."""
    let_go = threading.Event()

    def waits() -> str:
        let_go.wait()
        return "late"

    async def waits_async() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    slow = tool(waits if in_thread else waits_async, name="slow", access=access, timeout=0.001)  # type: ignore[call-overload]
    batch = await stage(slow).play("slow")
    assert contents(batch) == [(status, text)]
    let_go.set()


async def test_a_call_in_time_calls_its_alarm_off(stage: type[Stage]) -> None:
    """A tool with a generous timeout must not keep a timer for each call it ever answered."""

    @tool(timeout=3_600)
    async def quick() -> str:
        await asyncio.sleep(0)
        return "done"

    assert contents(await stage(quick).play("quick")) == [("ok", "done")]
    assert not [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]


async def test_a_stop_after_a_timeout_changes_nothing(stage: type[Stage]) -> None:
    """The first reason is the true one, and a second cancellation would break a tool's clean-up."""
    told, let_go = asyncio.Event(), asyncio.Event()

    @tool(timeout=0.001)
    async def tidy() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await let_go.wait()
            raise
        raise AssertionError

    on = stage(tidy)
    playing = asyncio.create_task(on.play("tidy"))
    await told.wait()
    on.stop.set_result(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not playing.done()
    let_go.set()
    ((status, text),) = contents(await playing)
    assert (status, text[:9]) == ("unknown", "timed out")


async def test_the_cancellation_of_the_batch_goes_on_when_all_has_ended(stage: type[Stage]) -> None:
    """Cancelling means that nothing of it goes on; finished calls were told (wire case cancelled-error-bypasses-…)."""
    begun = asyncio.Event()
    cleaned: list[str] = []

    async def slow() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")
        raise AssertionError

    async def fast() -> str:
        return "F"

    on = stage(slow, fast, parallel=2)
    playing = asyncio.create_task(on.play("slow", "fast", "slow", "fast"))
    await begun.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert cleaned
    told = [(notice.call_id, notice.status) for notice in on.notices if isinstance(notice, ToolResult)]
    assert sorted(told)[:2] == [("c1", "unknown"), ("c2", "ok")]
    assert {status for call, status in told if call in {"c3", "c4"}} <= {"unknown", "not_run"}
    assert len(told) == 4


async def test_a_batch_cancelled_twice_hurries(stage: type[Stage]) -> None:
    """Who cancels once more does not want to wait for the grace period, an hour here."""
    begun, told, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await let_go.wait()
        return "late"

    on = stage(stubborn)
    playing = asyncio.create_task(on.play("stubborn"))
    await begun.wait()
    playing.cancel()
    await told.wait()
    assert not playing.done()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert [notice.status for notice in on.notices if isinstance(notice, ToolResult)] == ["unknown"]
    let_go.set()
    await asyncio.wait(set(on.box._given_up))


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_cancelled_batch_hands_over_what_ended_just_before(stage: type[Stage], *, goes_on: bool) -> None:
    """Its event is lost with it, and a call whose result is known must not be in doubt."""

    async def work() -> str:
        return "done"

    async def last() -> str:
        playing.cancel()
        if goes_on:
            await asyncio.Event().wait()
        return "done"

    on = stage(work, last)
    playing = asyncio.create_task(on.play("work", "work", "last"))
    with pytest.raises(asyncio.CancelledError):
        await playing
    ended = ["c1", "c2"] if goes_on else ["c1", "c2", "c3"]
    assert [(result.call_id, result.content) for result in on.receipts] == [(call_id, "done") for call_id in ended]


async def test_a_call_whose_task_somebody_else_ended_is_in_doubt(stage: type[Stage]) -> None:
    """It had begun, and was not told to stop by its run: what it did until then is no failure that is known."""

    async def work() -> str:
        for task in asyncio.all_tasks():
            if task.get_name() == "work":
                asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.Event().wait()
        raise AssertionError

    assert contents(await stage(work).play("work")) == [
        ("unknown", "its task was ended while it ran, and its outcome is unknown")
    ]


async def test_a_batch_cancelled_before_its_tools_began_runs_none(stage: type[Stage]) -> None:
    """A task may be cancelled in the same moment in which it starts its calls."""

    async def work() -> str:
        raise AssertionError("never runs")

    on = stage(work)
    playing = asyncio.create_task(on.play("work"))
    asyncio.get_running_loop().call_soon(playing.cancel)
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert [notice.status for notice in on.notices if isinstance(notice, ToolResult)] == ["not_run"]


async def test_a_task_that_lived_through_a_cancellation_may_run_tools(stage: type[Stage]) -> None:
    """A task may catch its cancellation and then clean up with an agent; what it was told before is no order now."""

    async def work() -> str:
        return "done"

    async def survives() -> ToolBatch:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await stage(work).play("work")
        raise AssertionError

    surviving = asyncio.create_task(survives())
    await asyncio.sleep(0)
    surviving.cancel()
    assert contents(await surviving) == [("ok", "done")]


async def test_a_stop_while_an_interrupt_is_handled_changes_nothing(stage: type[Stage]) -> None:
    """The first reason to stop stays the reason that is told."""
    on = stage()

    async def ender() -> str:
        on.stop.set_result(None)
        raise StopRun("enough")

    async def endless() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    onto = stage(endless, ender)
    onto.stop = on.stop
    batch = await onto.play("endless", "ender")
    assert contents(batch)[0][1].startswith("ender ended the run: ")
    assert batch.event.aborted == "enough"


async def test_a_thread_that_ended_just_before_the_stop_keeps_its_result(stage: type[Stage]) -> None:
    """The result is there, only its task has not seen it yet; losing it would put a done write in doubt."""
    begun, let_go = asyncio.Event(), threading.Event()
    threads: list[threading.Thread] = []
    loop = asyncio.get_running_loop()

    def work() -> str:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        let_go.wait()
        return "done"

    job = Job(0, ToolCall("c1", "work", ""), tool(work), {})
    task = asyncio.create_task(perform(job, lambda: ToolContext("run", "c1"), lambda: False, Deliveries(loop)))
    await begun.wait()
    let_go.set()
    while threads[0].is_alive() and threads[0] not in idle:
        threads[0].join(0.001)  # blocks the loop on purpose: the result is on its way, and has not arrived
    await asyncio.sleep(0)  # it arrives, and the task will see it in the next pass
    job.halted = Outcome("stopped", "unknown")
    task.cancel()
    assert await task == Outcome("done")


@pytest.mark.parametrize("is_told_first", [False, True])
async def test_a_coroutine_that_a_thread_brings_after_the_stop_never_begins(*, is_told_first: bool) -> None:
    """A plain wrapper of an async function does nothing itself: all that the tool does would begin after the order."""
    begun, let_go = asyncio.Event(), threading.Event()
    threads: list[threading.Thread] = []
    loop = asyncio.get_running_loop()

    async def body() -> str:
        pytest.fail("nothing begins any more")

    def wrapper() -> object:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        let_go.wait()
        return body()

    job = Job(0, ToolCall("c1", "wrapper", ""), tool(wrapper), {})
    task = asyncio.create_task(perform(job, lambda: ToolContext("run", "c1"), lambda: False, Deliveries(loop)))
    await begun.wait()
    job.halted = Outcome("stopped", "unknown")
    if is_told_first:
        task.cancel()
        await task
    let_go.set()
    while threads[0].is_alive() and threads[0] not in idle:
        threads[0].join(0.001)  # blocks the loop on purpose: the coroutine is on its way, and has not arrived
    await asyncio.sleep(0)
    task.cancel()
    assert await task == job.halted


@pytest.mark.parametrize("halted", [None, Outcome("timed out", "unknown")])
async def test_a_thread_that_comes_too_late_does_not_begin_its_call(halted: Outcome | None) -> None:
    """It is given its call before it runs, and meanwhile the run, or the call, may have been told to stop."""

    def work() -> str:
        pytest.fail("nothing begins any more")

    job = Job(0, ToolCall("c1", "work", ""), tool(work), {}, halted=halted)
    deliveries = Deliveries(asyncio.get_running_loop())
    outcome = await perform(job, lambda: ToolContext("run", "c1"), lambda: halted is None, deliveries)
    assert (outcome.content, outcome.status) == ("not run: cancelled", "not_run")


async def test_a_loop_that_goes_away_takes_a_call_with_it(stage: type[Stage]) -> None:
    """When a coroutine is closed there is nobody to hand a result to, and swallowing that would be an error itself."""

    async def endless() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    job = Job(0, ToolCall("c1", "endless", ""), tool(endless), {})
    performing = perform(job, lambda: ToolContext("run", "c1"), lambda: False, Deliveries(asyncio.get_running_loop()))
    performing.send(None)
    performing.close()


def test_a_tool_that_ignores_its_end_does_not_keep_a_program_from_ending() -> None:
    """`asyncio.run` waits for every task that it knows, so it must not know one that was given up."""
    program = """
import asyncio
from turnstile import Agent, tool
from turnstile.testing import ScriptedModel, call

@tool(timeout=0.01)
async def stubborn() -> str:
    '''Never ends.'''
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

print(Agent(ScriptedModel([call("stubborn"), "done"]), tools=[stubborn]).run_sync("go").output)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
