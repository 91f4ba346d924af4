"""Running calls: all at once as far as they may, each with one result, in call order."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest

from turnstile.core.effects import RunTools
from turnstile.core.errors import StopRun
from turnstile.core.events import Verdict
from turnstile.core.messages import ToolCall, ToolResult
from turnstile.ports import ToolBatch, ToolProgress, ToolStarted
from turnstile.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from tests.shell.toolbox.conftest import Stage

WAIT = 30  # seconds that a barrier waits for what must come, before a broken test fails instead of hanging


def contents(batch: ToolBatch) -> list[tuple[str, str]]:
    """Status and content of each result."""
    return [(result.status, result.content) for result in batch.event.results]


async def test_results_stand_in_call_order(stage: type[Stage]) -> None:
    """A provider pairs results with calls by their order, whichever ends first (parallel-results-in-call-order)."""
    fast_is_done = asyncio.Event()

    async def slow() -> str:
        await fast_is_done.wait()
        return "S"

    async def fast() -> str:
        fast_is_done.set()
        return "F"

    on = stage(slow, fast)
    batch = await on.play("slow", "fast")
    assert contents(batch) == [("ok", "S"), ("ok", "F")]
    assert [result.call_id for result in batch.event.results] == ["c1", "c2"]
    assert [notice.name for notice in on.notices if isinstance(notice, ToolResult)] == ["fast", "slow"]


async def test_eight_blocking_tools_are_at_work_at_once(stage: type[Stage]) -> None:
    """Blocking tools are what people write, and eight of them must not wait for each other."""
    barrier = threading.Barrier(8)

    def meet() -> int:
        barrier.wait(WAIT)
        return threading.get_ident()

    batch = await stage(meet).play(*["meet"] * 8)
    threads = {result.content for result in batch.event.results if result.status == "ok"}
    assert len(threads) == 8
    assert str(threading.get_ident()) not in threads


async def test_eight_async_tools_are_at_work_at_once(stage: type[Stage]) -> None:
    """Async tools share the event loop, and run there."""
    barrier = asyncio.Barrier(8)

    async def meet() -> int:
        await barrier.wait()
        return threading.get_ident()

    batch = await stage(meet).play(*["meet"] * 8)
    assert contents(batch) == [("ok", str(threading.get_ident()))] * 8


async def test_no_more_calls_run_at_once_than_may(stage: type[Stage]) -> None:
    """The cap protects what the tools work on: a model may ask for hundreds of calls in one reply."""
    running, most = 0, 0

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    batch = await stage(work, parallel=2).play(*["work"] * 7)
    assert contents(batch) == [("ok", "done")] * 7
    assert most == 2


async def test_a_sequential_tool_runs_alone_in_its_place(stage: type[Stage]) -> None:
    """Whoever moves a cursor or writes a file relies on what was called before being done, and nothing after begun."""
    log: list[str] = []

    def noting(name: str, *, sequential: bool = False) -> Tool[[], Awaitable[str]]:
        async def work() -> str:
            log.append(f"{name} begins")
            for _ in range(3):
                await asyncio.sleep(0)
            log.append(f"{name} ends")
            return name

        return tool(work, name=name, sequential=sequential)

    on = stage(noting("a"), noting("b"), noting("s", sequential=True), noting("t", sequential=True), noting("z"))
    batch = await on.play("a", "b", "s", "t", "z")
    assert contents(batch) == [("ok", name) for name in "abstz"]
    assert log[:2] == ["a begins", "b begins"]
    assert set(log[2:4]) == {"a ends", "b ends"}
    assert log[4:] == ["s begins", "s ends", "t begins", "t ends", "z begins", "z ends"]


mood: contextvars.ContextVar[str] = contextvars.ContextVar("mood", default="calm")


async def test_tools_see_the_callers_context_and_keep_theirs(stage: type[Stage]) -> None:
    """Tracing and request data travel in context variables; what one tool sets there is no other tool's business."""

    def in_thread() -> str:
        seen = mood.get()
        mood.set("angry")
        return seen

    async def on_loop() -> str:
        seen = mood.get()
        mood.set("angry")
        return seen

    mood.set("happy")
    on = stage(in_thread, on_loop, parallel=1)
    batch = await on.play("in_thread", "on_loop", "in_thread", "on_loop")
    assert contents(batch) == [("ok", "happy")] * 4
    assert mood.get() == "happy"


async def test_what_a_sync_function_gives_to_await_is_awaited(stage: type[Stage]) -> None:
    """A decorator often hides that a function is async; its result must not be the text of a coroutine."""

    async def inner(fails: bool) -> str:  # noqa: FBT001 - a tool's parameter
        await asyncio.sleep(0)
        if fails:
            raise ValueError("inside")
        return f"on {threading.get_ident()}"

    def hidden(fails: bool = False) -> Awaitable[str]:  # noqa: FBT001, FBT002 - a tool's parameter
        return inner(fails)

    batch = await stage(hidden).play("hidden", ("hidden", '{"fails":true}'))
    assert contents(batch) == [("ok", f"on {threading.get_ident()}"), ("error", "ValueError: inside")]


async def test_the_context_says_which_call_it_is(stage: type[Stage]) -> None:
    """A tool needs the run's dependencies, and a key that tells servers which call this is."""
    contexts: list[ToolContext] = []

    def sync_tool(ctx: ToolContext, word: str) -> str:
        contexts.append(ctx)
        ctx.progress("half")
        return word

    async def async_tool(word: str, ctx: ToolContext | None = None) -> str:
        assert ctx is not None
        contexts.append(ctx)
        ctx.progress("two \ud83d")
        ctx.progress(2)  # type: ignore[arg-type] # what authors do
        return word

    on = stage(sync_tool, async_tool, deps={"db": 1}, run_id="r1", parallel=1)
    batch = await on.play(("sync_tool", '{"word":"a"}'), ("async_tool", '{"word":"b"}'))
    assert contents(batch) == [("ok", "a"), ("ok", "b")]
    assert [(ctx.run_id, ctx.call_id, ctx.deps) for ctx in contexts] == [
        ("r1", "c1", {"db": 1}),
        ("r1", "c2", {"db": 1}),
    ]
    assert contexts[0].idempotency_key != contexts[1].idempotency_key
    contexts[0].progress("too late")
    assert on.notices == [
        ToolStarted("c1", "sync_tool"),
        ToolProgress("c1", "sync_tool", "half"),
        batch.event.results[0],
        ToolStarted("c2", "async_tool"),
        ToolProgress("c2", "async_tool", "two \ufffd"),
        ToolProgress("c2", "async_tool", "2"),
        batch.event.results[1],
    ]


async def test_how_long_a_call_took_is_told(stage: type[Stage]) -> None:
    """The log shows where a run's time goes; the clock is the one that the toolbox was given."""

    async def work() -> str:
        return "done"

    batch = await stage(work).play("work", ("work", "{"))
    assert [result.duration_ms for result in batch.event.results] == [1.0, 0.0]


def fail(kind: str) -> str:
    """Fail in some way."""
    raise FAILURES[kind]


async def fail_async(kind: str) -> str:
    """Fail in some way, on the loop."""
    raise FAILURES[kind]


FAILURES: dict[str, BaseException] = {
    "value": ValueError("smtp"),
    "empty": RuntimeError(),
    "cancelled": asyncio.CancelledError("lost"),
    "group": ExceptionGroup("all", [OSError("disk")]),
    "lookup": LookupError("\ud83d" * 3),
}


@pytest.mark.parametrize("name", ["fail", "fail_async"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("value", "ValueError: smtp"),
        ("empty", "RuntimeError"),
        ("cancelled", "CancelledError: lost"),
        ("group", "ExceptionGroup: all (1 sub-exception); OSError: disk"),
        ("lookup", "LookupError: \ufffd\ufffd\ufffd"),
    ],
)
async def test_an_exception_is_an_observation(stage: type[Stage], name: str, kind: str, text: str) -> None:
    """A failing tool is news for the model, and a tool's own cancellation is (tool-raises-cancellederror-itself)."""
    batch = await stage(fail, fail_async).play((name, f'{{"kind":"{kind}"}}'))
    assert contents(batch) == [("error", text)]
    assert (batch.event.aborted, batch.raised) == (None, None)


async def test_a_tool_out_of_items_fails_like_any_other(stage: type[Stage]) -> None:
    """``StopIteration`` cannot pass through futures and coroutines, where it would end another loop."""

    def first() -> str:
        return next(iter([]))

    async def first_async() -> str:
        return next(iter([]))

    batch = await stage(first, first_async).play("first", "first_async")
    assert contents(batch) == [("error", "StopIteration"), ("error", "RuntimeError: coroutine raised StopIteration")]


async def test_a_tool_that_takes_itself_for_a_closed_generator_fails_like_any_other(stage: type[Stage]) -> None:
    """A coroutine that is closed lets ``GeneratorExit`` through; one that raises it must keep nobody waiting."""

    async def close() -> str:
        raise GeneratorExit

    async def work() -> str:
        return "done"

    assert contents(await stage(close, work).play("close", "work")) == [("error", "GeneratorExit"), ("ok", "done")]


@pytest.mark.parametrize("passes", [0, 3])
async def test_a_tool_that_cancels_all_tasks_keeps_nobody_waiting(stage: type[Stage], passes: int) -> None:
    """The call beside it is cancelled before it began, and has a result like any other."""

    async def sweep() -> str:
        for task in asyncio.all_tasks() - {asyncio.current_task(), batch, waits}:
            task.cancel()
        for _ in range(passes):
            await asyncio.sleep(0)
        return "clean"

    async def work() -> str:
        raise AssertionError("never runs")

    waits = asyncio.current_task()
    batch = asyncio.ensure_future(stage(sweep, work).play("sweep", "work"))
    assert contents(await batch) == [("ok", "clean"), ("not_run", "not run: cancelled")]


async def test_a_failing_tool_is_called_once(stage: type[Stage]) -> None:
    """A retry that nobody ordered would send a mail twice (wire case tool-exception-triggers-second-invoke)."""
    count = 0

    def send(to: str) -> str:
        nonlocal count
        count += 1
        raise TypeError("send() got an unexpected keyword argument")

    batch = await stage(send).play(("send", '{"to":"a@example.com"}'))
    assert contents(batch)[0][0] == "error"
    assert count == 1


async def test_an_unwritable_result_names_tool_and_type(stage: type[Stage]) -> None:
    """The tool did its work, so the model must not believe that it did not run."""

    def handle() -> object:
        return object()

    batch = await stage(handle).play("handle")
    text = "'handle' ran, but what it returned, a object, cannot be shown: a value of type 'object' has no JSON form"
    assert contents(batch) == [("error", text)]


async def test_a_result_is_never_longer_than_its_tool_allows(stage: type[Stage]) -> None:
    """One large page must not push the conversation out of the model's context, and an error text neither."""

    @tool(max_result_chars=200)
    def page(fails: bool = False) -> str:  # noqa: FBT001, FBT002 - a tool's parameter
        if fails:
            raise ValueError("x" * 10_000)
        return "y" * 10_000

    batch = await stage(page).play("page", ("page", '{"fails":true}'))
    assert [len(result.content) <= 200 for result in batch.event.results] == [True, True]
    assert all("characters left out" in result.content for result in batch.event.results)


async def test_a_call_with_a_problem_gets_it_as_its_result(stage: type[Stage]) -> None:
    """What vetting found is what the model reads, and the tool beside it runs all the same."""
    ran: list[str] = []

    def work(word: str) -> str:
        ran.append(word)
        return word

    on = stage(work)
    batch = await on.play(("work", "{"), ("wrok", "{}"), ("work", '{"word":"a"}'))
    assert [status for status, _ in contents(batch)] == ["error", "error", "ok"]
    assert contents(batch)[1][1] == "there is no tool 'wrok'; did you mean work? the tools are: work"
    assert ran == ["a"]
    started = [notice.call_id for notice in on.notices if isinstance(notice, ToolStarted)]
    assert started == ["c3"]
    assert sum(isinstance(notice, ToolResult) for notice in on.notices) == 3


async def test_what_is_wrong_with_a_call_is_never_longer_than_its_tool_allows(stage: type[Stage]) -> None:
    """A tool whose results are kept short must not fill the context when it is called wrongly."""

    @tool(max_result_chars=200)
    def work(word: int) -> str:
        raise AssertionError(word)

    batch = await stage(work).play(("work", '{"w":"' + "x" * 1_000 + '"}'), (" work", "{" * 1_000))
    assert [status for status, _ in contents(batch)] == ["error", "error"]
    assert all(len(content) <= 200 for _, content in contents(batch))


async def test_only_problems_need_no_waiting(stage: type[Stage]) -> None:
    """A batch in which nothing can run is answered at once."""
    batch = await stage().play(("gone", "{}"))
    assert [status for status, _ in contents(batch)] == ["error"]


async def test_a_resumed_run_runs_what_another_process_vetted(stage: type[Stage]) -> None:
    """After a crash the calls come from the journal, and this process has never seen them."""

    def work(word: str) -> str:
        return word

    calls = (ToolCall("a", "work", '{"word":"x"}'), ToolCall("b", "gone", "{}"), ToolCall("c", "work", '{"n":1}'))
    effect = RunTools(calls, tuple(Verdict(call.id, "digest") for call in calls))
    on = stage(work)
    batch = await on.box.run(effect, on.work())
    assert [(result.status, result.content[:20]) for result in batch.event.results] == [
        ("ok", "x"),
        ("error", "there is no tool 'go"),
        ("error", "the arguments of wor"),
    ]


async def test_each_call_gets_arguments_of_its_own(stage: type[Stage]) -> None:
    """Two turns may have calls of one id and one text; a tool that changes its arguments changes no other's."""

    def grow(items: list[int]) -> int:
        items.append(0)
        return len(items)

    on = stage(grow)
    for _ in range(2):
        batch = await on.play(("grow", '{"items":[1]}'), ("grow", '{"items":[1]}'))
        assert contents(batch) == [("ok", "2"), ("ok", "2")]


async def test_nothing_is_left_running(stage: type[Stage]) -> None:
    """A batch that has ended leaves no task behind that watches for a stop."""
    other = asyncio.Event()

    async def first() -> str:
        await other.wait()
        return "first"

    async def second() -> str:
        await asyncio.sleep(0)
        other.set()
        return "second"

    await stage(first, second).play("first", "second")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_results_that_come_together_come_with_the_batch(stage: type[Stage]) -> None:
    """Each receipt of its own is written to disk, which the batch waits for, though its own write is due at once."""

    async def work() -> str:
        return "done"

    on = stage(work)
    batch = await on.play(*["work"] * 8)
    await asyncio.sleep(0)
    assert contents(batch) == [("ok", "done")] * 8
    assert on.receipts == []


async def test_a_result_is_handed_over_while_others_are_at_work(stage: type[Stage]) -> None:
    """Its process may be lost long before they end, and what was done must not be in doubt then."""

    async def quick() -> str:
        return "done"

    async def slow() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return ", ".join(result.name for result in on.receipts)

    on = stage(quick, slow)
    assert contents(await on.play("quick", "slow", "quick")) == [("ok", "done"), ("ok", "quick, quick"), ("ok", "done")]
    assert [result.call_id for result in on.receipts] == ["c1", "c3"]


async def test_what_ended_is_handed_over_before_the_next_call_begins(stage: type[Stage]) -> None:
    """A journal that knows of a call, and not how the one ended that it waited for, tells a wrong story."""

    async def work() -> int:
        return len(on.receipts)

    on = stage(work, parallel=2)
    assert contents(await on.play(*["work"] * 4)) == [("ok", "0"), ("ok", "1"), ("ok", "2"), ("ok", "3")]


async def test_tasks_that_begin_at_once_are_the_same(stage: type[Stage]) -> None:
    """A program may let its loop start tasks while they are made (Python 3.12); a long batch must not nest for that."""
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("this Python has no eager tasks")

    async def work() -> str:
        return "done"

    async def ender() -> str:
        raise StopRun("enough")

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        batch = await stage(work, ender, parallel=2).play(*["work"] * 2_000, "ender", "work")
    finally:
        loop.set_task_factory(None)
    expected = [("ok", "done")] * 2_000 + [("error", "StopRun: enough"), ("not_run", "not run: ender ended the run")]
    assert contents(batch) == expected


async def test_a_tool_ends_the_run(stage: type[Stage]) -> None:
    """``StopRun`` is an order: finished calls keep their results, running ones stop, and the rest doesn't begin."""
    begun = asyncio.Event()

    async def finished() -> str:
        return "done"

    async def endless() -> str:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def ender() -> str:
        await begun.wait()
        raise StopRun("that's \ud83d enough")

    on = stage(finished, endless, ender, parallel=3)
    batch = await on.play("finished", "endless", "ender", "finished")
    assert contents(batch) == [
        ("ok", "done"),
        ("unknown", "ender ended the run: it was stopped while it ran, and its outcome is unknown"),
        ("error", "StopRun: that's \ufffd enough"),
        ("not_run", "not run: ender ended the run"),
    ]
    assert batch.event.aborted == "that's \ufffd enough"


async def test_the_first_order_counts(stage: type[Stage]) -> None:
    """Two tools may end the run at once; one reason is kept, and an empty one is a reason."""

    async def ender(why: str) -> str:
        try:
            await asyncio.sleep(0)
        finally:
            raise StopRun(why)

    batch = await stage(ender).play(("ender", '{"why":""}'), ("ender", '{"why":"b"}'), ("ender", '{"why":"c"}'))
    assert batch.event.aborted == ""
    assert [status for status, _ in contents(batch)] == ["error", "error", "error"]


async def test_an_order_in_a_task_group_is_heard(stage: type[Stage]) -> None:
    """A task group wraps what its tasks raise, and the author of the tool means what they wrote."""

    async def grouped() -> str:
        raise ExceptionGroup("group", [StopRun("enough")])

    batch = await stage(grouped).play("grouped")
    assert batch.event.aborted == "enough"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_an_interrupt_stops_the_batch_and_goes_on(
    stage: type[Stage],
    error: BaseException,
    in_thread: bool,  # noqa: FBT001 - a table's column
) -> None:
    """An interrupt is the user's, not the model's; the history stays whole (keyboardinterrupt-in-sync-tool)."""

    async def a() -> int:
        return 1

    def b() -> str:
        raise error

    async def b_async() -> str:
        raise error

    async def c() -> str:
        raise AssertionError("never runs")

    on = stage(a, tool(b if in_thread else b_async, name="b"), c, parallel=1 if in_thread else 2)
    batch = await on.play("a", "b", "c")
    said = f"{type(error).__name__}: {error}" if error.args else type(error).__name__
    assert contents(batch) == [
        ("ok", "1"),
        ("unknown", f"interrupted by {said}: the outcome is unknown"),
        ("not_run", "not run: interrupted"),
    ]
    assert batch.raised is error
