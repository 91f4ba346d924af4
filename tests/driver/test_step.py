"""Driving a run: one transition a step, and a handle that says where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from typing import Unpack

import pytest

from turnstile import (
    Agent,
    CallModel,
    Limits,
    RunBusy,
    RunExists,
    RunFinished,
    RunState,
    RunTools,
    Transition,
    UsageError,
    tool,
)
from turnstile.core.errors import StoreFull
from turnstile.core.events import ToolsFinished
from turnstile.core.fold import fold
from turnstile.options import AgentOptions
from turnstile.ports import Deliver, Delta, Lease, ModelRequest, Notice, Record, Summary, ToolStarted
from turnstile.stores import MemoryStore
from turnstile.testing import FrozenClock, ScriptedModel, assert_path, call
from turnstile.testing.scripted import Answering, Said


@tool(access="read")
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def adder(*script: Said | Answering, **options: Unpack[AgentOptions]) -> Agent[str]:
    """An agent with one tool, that follows a script."""
    options.setdefault("clock", FrozenClock())
    options["tools"] = [add]
    return Agent(ScriptedModel(list(script)), **options)


async def test_a_step_takes_exactly_one_transition() -> None:
    """Stepping is the product's promise: between two steps nothing moves."""
    async with adder(call("add", a=1, b=2), "three").start("1 + 2?") as run:
        assert run.state == "await_model"
        assert isinstance(run.effect, CallModel)
        first = await run.step()
        assert str(first) == "1 await_model --ModelReplied--> execute_tools"
        assert isinstance(run.effect, RunTools)
        assert run.snapshot.tool_calls == 1
        assert str(await run.step()) == "2 execute_tools --ToolsFinished--> append_results"
        assert run.effect is None
        assert str(await run.step()) == "3 append_results --ResultsAppended--> await_model"
        assert not run.finished
        assert str(await run.step()) == "4 await_model --ModelReplied--> done"
        assert run.finished
        assert run.result.output == "three"


async def test_a_finished_run_refuses_to_step() -> None:
    """A loop that forgets to look at `finished` is told so, instead of hanging."""
    async with adder("hello").start("hi") as run:
        await run.finish()
        with pytest.raises(RunFinished, match=r"look at run\.finished"):
            await run.step()


async def test_two_tasks_cannot_step_one_run() -> None:
    """Two drivers would take each other's events."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly(_: object) -> str:
        asked.set()
        await answer.wait()
        return "done"

    async with Agent(ScriptedModel(slowly)).start("hi") as run:
        stepping = asyncio.create_task(run.step())
        await asked.wait()
        with pytest.raises(RunBusy):
            await run.step()
        answer.set()
        assert (await stepping).dest == "done"


async def test_a_loop_that_begins_tasks_at_once_takes_the_same_steps() -> None:
    """A program may let its loop start tasks as they are made (Python 3.12): an effect may end before it is known."""
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("this Python has no eager tasks")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def ask(_: ModelRequest) -> Said:
        begun.set()
        await may_end.wait()
        return "three"

    event_loop = asyncio.get_running_loop()
    event_loop.set_task_factory(factory)
    try:
        async with adder(call("add", a=1, b=2), ask).start("1 + 2?") as run:
            await run.until("await_model")
            stepping = event_loop.create_task(run.step())
            await begun.wait()
            stepping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stepping
            finishing = event_loop.create_task(run.finish())
            may_end.set()
            result = await finishing
    finally:
        event_loop.set_task_factory(None)
    assert_path(result, "await_model execute_tools append_results await_model done")
    assert result.output == "three"


async def test_until_stops_where_it_was_told() -> None:
    """A debugger runs to a state, and looks."""
    async with adder(call("add", a=1, b=2), "three").start("1 + 2?") as run:
        transition = await run.until("append_results")
        assert transition is not None
        assert transition.dest == run.state == "append_results"
        assert (await run.until("execute_tools")) == run.result.transitions[-1]
        assert run.state == "done"
        assert await run.until("done") is None


async def test_until_refuses_a_state_that_isnt_there() -> None:
    """A misspelt state would otherwise run to the end."""
    async with adder("hello").start("hi") as run:
        with pytest.raises(UsageError, match="await_model, execute_tools"):
            await run.until("execute_tool")


async def test_events_gives_progress_and_transitions_in_order() -> None:
    """One iterator is enough to show a run as it happens."""
    async with adder(call("add", a=1, b=2), "three").start("1 + 2?") as run:
        notices = [notice async for notice in run.events()]
    assert [n.dest for n in notices if isinstance(n, Transition)] == [
        "execute_tools",
        "append_results",
        "await_model",
        "done",
    ]
    assert [n.name for n in notices if isinstance(n, ToolStarted)] == ["add"]
    assert "".join(n.text for n in notices if isinstance(n, Delta)) == "three"


async def test_breaking_off_at_a_transition_leaves_the_run_between_two_steps() -> None:
    """A consumer that breaks out of the loop can go on by stepping, at once."""
    async with adder(call("add", a=1, b=2), "three").start("1 + 2?") as run:
        async for notice in run.events():
            if isinstance(notice, Transition):
                break
        assert (await run.step()).row == "finished"
        assert (await run.finish()).output == "three"


async def test_breaking_off_inside_a_step_loses_nothing() -> None:
    """The step that is under way is given up, its effect goes on, and the next step receives what it brings."""
    async with adder(call("add", a=1, b=2), "three").start("1 + 2?") as run:
        async with aclosing(run.events()) as events:
            async for notice in events:
                if isinstance(notice, ToolStarted):
                    break
        assert (await run.finish()).output == "three"


async def test_of_two_equal_observers_the_one_that_raises_is_dropped() -> None:
    """Equality is an observer's own business."""

    class Equal:
        def __init__(self, *, raises: bool) -> None:
            self.raises, self.heard = raises, 0

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def observe(self, notice: Notice, run: RunState) -> None:
            self.heard += 1
            if self.raises:
                raise ValueError("no")

    good, bad = Equal(raises=False), Equal(raises=True)
    await adder("hello", observers=[good, bad]).run("hi")
    assert bad.heard == 1
    assert good.heard > 1


async def test_events_raises_what_the_run_raises() -> None:
    """A bug in an adapter reaches whoever watches, not only a log."""

    def broken(_: object) -> str:
        raise ZeroDivisionError("a bug")

    async with Agent(ScriptedModel(broken)).start("hi") as run:
        with pytest.raises(ZeroDivisionError):
            async for _ in run.events():
                pass


async def test_a_bug_in_an_adapter_leaves_the_run_where_it_was() -> None:
    """A step that raises can be taken again: nothing was committed."""
    tries = iter([1, 2])

    def broken_once(_: object) -> str:
        if next(tries) == 1:
            raise ZeroDivisionError("a bug")
        return "well"

    async with Agent(ScriptedModel(broken_once)).start("hi") as run:
        with pytest.raises(ZeroDivisionError):
            await run.step()
        assert run.state == "await_model"
        assert (await run.finish()).output == "well"


async def test_a_run_id_is_used_once() -> None:
    """Two runs under one id would mix their journals."""
    agent = adder("one", "two")
    await agent.run("hi", run_id="r1")
    with pytest.raises(RunExists, match="r1"):
        await agent.run("hi", run_id="r1")


async def test_an_observer_that_raises_is_reported_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A broken log must not break a run that spends money."""

    class Broken:
        heard = 0

        def observe(self, notice: object, run: object) -> None:
            self.heard += 1
            raise ValueError("no")

    broken = Broken()
    result = await adder("hello", observers=[broken]).run("hi")
    assert result.ok
    assert broken.heard == 1
    assert "hears no more" in caplog.text


async def test_a_run_entered_by_hand_can_be_stepped_without_entering() -> None:
    """`async with` is for leaving in good order; a step alone opens the run too."""
    run = adder("hello").start("hi")
    assert (await run.step()).dest == "done"


async def test_same_events_same_trace_ten_times() -> None:
    """A run is a function of what happened: with a clock that stands still, byte for byte."""
    traces = set()
    for _ in range(10):
        agent = adder(call("add", a=1, b=2), [call("add", a=1, b=1), call("nope")], "done", limits=Limits(turns=5))
        result = await agent.run("go", run_id="same")
        traces.add(repr(result.transitions) + repr(result.messages))
        assert_path(
            result,
            "await_model execute_tools append_results await_model execute_tools append_results await_model done",
        )
    assert len(traces) == 1


class SlowStore(MemoryStore):
    """A store whose appends wait, as a disk's do, and go on when the task that awaits them is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()
        self.open = asyncio.Event()
        self.fails = 0

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Wait after it was kept."""
        lease = await super().create(start, summary, deliver)
        await self._wait()
        return lease

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Fail as often as told, or wait after it was kept."""
        if self.fails and any(isinstance(record.event, ToolsFinished) for record in records):
            self.fails -= 1
            raise StoreFull("the disk", "no space left")
        await super().append(lease, records, summary, letters)
        await self._wait()

    async def _wait(self) -> None:
        self.waiting.set()
        await self.open.wait()


async def test_a_step_cancelled_while_it_is_kept_repeats_no_effect() -> None:
    """What the store was given is kept, so the run has moved: its payment is made once, and its journal folds."""
    paid, store = [], SlowStore()

    @tool
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "thanks"]), tools=[pay], store=store)
    run = agent.start("pay", run_id="r")
    for _ in range(40):  # cancelled at each await of each step, and driven on
        store.waiting.clear()
        store.open.clear()
        if run.finished:
            break
        step = asyncio.create_task(run.step())
        waiting = asyncio.create_task(store.waiting.wait())
        await asyncio.wait([step, waiting], return_when=asyncio.FIRST_COMPLETED)
        step.cancel()
        waiting.cancel()
        await asyncio.gather(step, waiting, return_exceptions=True)
        store.open.set()
    assert run.result.output == "thanks"
    assert paid == [1]
    assert fold(agent.machine, [record.event for record in await store.load("r")]) == run.snapshot


async def test_an_event_that_could_not_be_kept_is_not_lost() -> None:
    """A full disk stops the run where it is; with room again it goes on, and the tool is not run again."""
    paid, store = [], SlowStore()
    store.open.set()
    store.fails = 1

    @tool
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    run = Agent(ScriptedModel([call("pay"), "thanks"]), tools=[pay], store=store).start("pay")
    await run.step()
    with pytest.raises(StoreFull):
        await run.step()
    assert run.state == "execute_tools"
    assert (await run.finish()).output == "thanks"
    assert paid == [1]
