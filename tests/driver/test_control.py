"""Telling a run something while it is under way: cancel, inject, the deadline, and a cancelled task around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import pytest

from turnstile import (
    Agent,
    Event,
    Limits,
    Reply,
    Result,
    Retry,
    Run,
    RunState,
    SessionBusy,
    State,
    StoreFull,
    ToolResult,
    Usage,
    UsageError,
    UserTurn,
    before,
    loop,
    row,
    tool,
)
from turnstile.core.changes import answer
from turnstile.core.events import CallFinished, CallStarted, Cancelled, ModelFailed, ModelReplied
from turnstile.core.guards import is_answer
from turnstile.core.states import await_model, done
from turnstile.options import AgentOptions
from turnstile.ports import Delta, Lease, ModelRequest, Notice, Record, Summary
from turnstile.stores import MemoryStore
from turnstile.testing import FrozenClock, ScriptedModel, assert_path, call
from turnstile.testing.scripted import Answering, Said


class Gate:
    """A tool or model that says when it has begun, and waits until it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.times = 0

    async def wait(self) -> None:
        """Begin, and wait."""
        self.times += 1
        self.begun.set()
        await self.open.wait()


def slow_tool_agent(gate: Gate, *after: Said | Answering, **options: Unpack[AgentOptions]) -> Agent[str]:
    """An agent whose tool waits at the gate."""

    @tool
    async def pay() -> str:
        """Pay."""
        await gate.wait()
        return "paid"

    options["tools"] = [pay]
    return Agent(ScriptedModel([call("pay"), *after]), **options)


async def test_cancel_before_the_first_step() -> None:
    """A run that was never wanted spends nothing."""
    model = ScriptedModel(["hello"])
    async with Agent(model).start("hi") as run:
        run.cancel("changed my mind")
        result = await run.finish()
    assert result.stop is not None
    assert (result.stop.reason, result.stop.detail) == ("cancelled", "changed my mind")
    assert model.requests == []


async def test_cancel_while_the_model_is_asked_ends_the_request() -> None:
    """Nobody pays for an answer that nobody waits for."""
    gate, ended = Gate(), asyncio.Event()

    async def ask(_: ModelRequest) -> str:
        try:
            await gate.wait()
        finally:
            ended.set()
        return "never"

    async with Agent(ScriptedModel(ask)).start("hi") as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.cancel()
        transition = await step
    assert (transition.row, transition.dest) == ("cancelled", "failed")
    assert ended.is_set()


async def test_cancel_while_tools_run_stops_them_and_answers_each_call() -> None:
    """The order to stop is a transition of its own; the tools' end is the next."""
    gate = Gate()
    async with slow_tool_agent(gate, "never").start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.cancel("enough")
        first = await step
        assert (first.row, first.stays, run.state) == ("stopping", True, "execute_tools")
        second = await run.step()
        assert (second.row, second.reason, second.dest) == ("stopped", "cancelled", "failed")
    assert run.result.stop is not None
    assert run.result.stop.detail == "enough"
    answer = run.result.messages[-1]
    assert isinstance(answer, ToolResult)
    assert answer.status == "unknown"


async def test_cancel_at_the_moment_that_tools_begin_runs_no_tool() -> None:
    """An order that comes after the intent is on record, and before the first tool starts, is obeyed."""
    gate = Gate()
    runs: list[Run[str]] = []

    class Meddling(MemoryStore):
        async def append(
            self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
        ) -> None:
            """Cancel the run when its tools are about to begin."""
            await super().append(lease, records, summary, letters)
            if any(isinstance(record.event, CallStarted) for record in records):
                runs[0].cancel()

    async with slow_tool_agent(gate, store=Meddling()).start("hi") as run:
        runs.append(run)
        result = await run.finish()
    assert [t.row for t in result.transitions] == ["run_tools", "stopping", "stopped"]
    assert gate.times == 0
    assert [m.status for m in result.messages if isinstance(m, ToolResult)] == ["not_run"]


async def test_calls_whose_task_was_ended_are_not_begun_anew() -> None:
    """A program that ends all its tasks and then lives on does not pay twice: it is as if they were lost."""
    gate = Gate()
    async with slow_tool_agent(gate, "I don't know").start("hi") as run:
        driving = asyncio.create_task(run.finish())
        await gate.begun.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        with pytest.raises(asyncio.CancelledError):
            await run.finish()  # what it brings is that it was cancelled, too
        result = await run.finish()
    assert (result.output, gate.times) == ("I don't know", 1)
    assert [transition.row for transition in result.transitions][1:3] == ["recovered", "finished"]
    assert [message.status for message in result.messages if isinstance(message, ToolResult)] == ["unknown"]


async def test_cancel_between_steps_runs_no_tool() -> None:
    """A paused run that is cancelled answers its open calls without running them."""
    gate = Gate()
    async with slow_tool_agent(gate).start("hi") as run:
        await run.step()
        run.cancel()
        await run.step()
    assert gate.times == 0
    answer = run.result.messages[-1]
    assert isinstance(answer, ToolResult)
    assert (answer.status, answer.content) == ("not_run", "not run: cancelled")


async def test_cancel_from_another_thread() -> None:
    """A signal handler or a web request in another thread can stop a run."""
    gate = Gate()
    async with slow_tool_agent(gate).start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        thread = threading.Thread(target=run.cancel)
        thread.start()
        assert (await step).row == "stopping"
        thread.join()
        await run.finish()
    assert run.state == "failed"


async def test_cancelling_the_task_that_steps_loses_nothing() -> None:
    """The effect goes on, and the next step receives what it brings: the payment is made once."""
    gate = Gate()
    async with slow_tool_agent(gate, "thanks").start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert run.state == "execute_tools"
        assert run.result.messages  # valid, though a call is open
        gate.open.set()
        assert (await run.finish()).output == "thanks"
    assert gate.times == 1


class Receipts(MemoryStore):
    """A store that tells of each call's result that it keeps.

    Attributes:
        kept: Released once for each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept = asyncio.Semaphore(0)

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Keep them."""
        await super().append(lease, records, summary, letters)
        for record in records:
            if isinstance(record.event, CallFinished):
                self.kept.release()


@pytest.mark.parametrize("goes_on", [True, False])
async def test_what_tools_bring_is_kept_though_nobody_steps_the_run(*, goes_on: bool) -> None:
    """They end together while the program does something else; a crash then must leave none of them in doubt."""
    begun, gate, paid = asyncio.Semaphore(0), asyncio.Event(), list[int]()

    @tool
    async def pay(number: int) -> str:
        """Pay."""
        begun.release()
        await gate.wait()
        paid.append(number)
        return f"paid {number}"

    store, calls = Receipts(), [call("pay", number=number) for number in range(3)]
    agent = Agent(ScriptedModel([calls, "done"]), tools=[pay], store=store)
    async with agent.start("hi", run_id="r") as run:
        await run.step()
        stepping = asyncio.create_task(run.step())
        for _ in calls:
            await begun.acquire()
        stepping.cancel()
        await asyncio.wait([stepping])
        gate.set()
        for _ in calls:
            await store.kept.acquire()
        if goes_on:
            assert [each.content for each in (await run.step()).tools] == ["paid 0", "paid 1", "paid 2"]
            assert (await run.finish()).output == "done"
    if not goes_on:
        async with await agent.resume("r") as again:
            assert again.recovery is not None
            assert len(again.recovery.finished) == 3
            assert again.recovery.in_doubt == ()
            assert (await again.finish()).output == "done"
    assert paid == [0, 1, 2]


async def test_what_a_tool_has_brought_is_kept_when_its_run_is_left() -> None:
    """The step is cancelled in the very moment in which its effect has ended, and no other takes what it brought."""
    store = MemoryStore()

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    class Leaving:
        """Cancels the step as soon as the call has ended."""

        def observe(self, notice: Notice, run: RunState) -> None:
            """Hear of it."""
            if isinstance(notice, ToolResult):
                stepping.cancel()

    agent = Agent(ScriptedModel([call("pay"), "done"]), tools=[pay], store=store, observers=[Leaving()])
    async with agent.start("hi", run_id="r") as run:
        await run.step()
        stepping = asyncio.create_task(run.step())
        await asyncio.wait([stepping])
        assert stepping.cancelled()
    async with await agent.resume("r") as again:
        assert again.recovery is not None
        assert [call.name for call in again.recovery.finished] == ["pay"]
        assert again.recovery.in_doubt == ()


async def test_cancelling_the_task_of_agent_run_ends_the_run_and_goes_on() -> None:
    """A cancelled task must end as cancelled, and the conversation it leaves is valid."""
    gate = Gate()
    agent = slow_tool_agent(gate, "never")
    runs = []

    async def drive() -> None:
        async with agent.start("hi") as run:
            runs.append(run)
            await run.finish()

    task = asyncio.create_task(drive())
    await gate.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = runs[0].result
    assert result.stop is not None
    assert result.stop.reason == "cancelled"
    assert isinstance(result.messages[-1], ToolResult)
    again = await Agent(ScriptedModel(["fine"])).run("go on", history=result.messages)
    assert again.ok


async def test_leaving_a_run_with_its_effect_under_way_says_that_it_is_lost() -> None:
    """A run that was left in the middle must not repeat a payment by being stepped again."""
    gate = Gate()
    async with slow_tool_agent(gate).start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
    with pytest.raises(UsageError, match="effect under way"):
        await run.step()
    answer = run.result.messages[-1]
    assert isinstance(answer, ToolResult)
    assert answer.status == "unknown"


async def test_leaving_a_run_between_steps_lets_it_go_on() -> None:
    """Nothing was under way, so nothing is lost."""
    async with Agent(ScriptedModel(["hello"])).start("hi") as run:
        pass
    assert (await run.step()).dest == "done"


async def test_an_order_that_reaches_a_finished_run_changes_nothing() -> None:
    """A late cancel is no news."""
    async with Agent(ScriptedModel(["hello"])).start("hi") as run:
        result = await run.finish()
        run.cancel()
        assert run.result == result


async def test_injected_text_waits_until_no_call_is_open() -> None:
    """A user's remark in the middle of a batch must not stand between a call and its result."""
    gate = Gate()
    model_saw: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        model_saw.append(request)
        return "noted"

    async with slow_tool_agent(gate, answer).start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.inject("and a receipt, please")
        assert (await step).row == "injected"
        gate.open.set()
        assert (await run.finish()).output == "noted"
    assert model_saw[0].items[-1] == UserTurn("and a receipt, please")
    assert run.result.undelivered == ()


async def test_injected_text_makes_a_finished_answer_unfinished() -> None:
    """What came before the answer was complete is answered too."""
    gate = Gate()

    async def first(_: ModelRequest) -> str:
        await gate.wait()
        return "first"

    async with Agent(ScriptedModel([first, "second"])).start("hi") as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.inject("one more thing")
        assert (await step).row == "injected"
        gate.open.set()
        result = await run.finish()
    assert result.output == "second"
    assert [t.row for t in result.transitions] == ["injected", "ask_injected", "answered"]


async def test_what_a_limit_left_unsent_is_undelivered() -> None:
    """Text that nobody read is given back."""
    gate = Gate()

    async def first(_: ModelRequest) -> str:
        await gate.wait()
        return "first"

    async with Agent(ScriptedModel([first])).start("hi", limits=Limits(turns=1)) as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.inject("too late")
        await step
        gate.open.set()
        result = await run.finish()
    assert result.output == "first"
    assert result.undelivered == ("too late",)


async def test_the_deadline_stops_a_run_between_two_steps() -> None:
    """Time passes while a run is paused."""
    clock = FrozenClock()
    async with Agent(ScriptedModel(["hello"]), clock=clock, limits=Limits(seconds=60)).start("hi") as run:
        clock.advance(61)
        assert (await run.step()).reason == "time_limit"


async def test_the_deadline_stops_running_tools() -> None:
    """A tool that hangs does not outlive the run's time."""
    gate, clock = Gate(), FrozenClock()
    async with slow_tool_agent(gate, clock=clock, limits=Limits(seconds=60)).start("hi") as run:
        await run.step()
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        clock.advance(61)
        assert (await step).row == "stopping"
        result = await run.finish()
    assert result.stop is not None
    assert result.stop.reason == "time_limit"


async def test_a_paid_reply_is_kept_though_the_run_is_cancelled_at_that_moment() -> None:
    """A finished effect comes before an order to stop, and what it wants is not run."""
    gate = Gate()

    async def ask(_: ModelRequest) -> Reply:
        gate.begun.set()
        return Reply("", (call("pay"),), "tool_calls", usage=Usage(5, 7))

    @tool
    def pay() -> str:
        """Pay."""
        gate.times += 1
        return "paid"

    async with Agent(ScriptedModel(ask), tools=[pay]).start("hi") as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        for _ in range(3):
            await asyncio.sleep(0)
        run.cancel()
        result = await run.finish()
    assert [t.row for t in result.transitions] == ["run_tools", "cancelled"]
    assert result.usage == Usage(5, 7)
    assert gate.times == 0


async def test_a_keyboard_interrupt_in_a_tool_reaches_the_caller_and_keeps_the_results() -> None:
    """Ctrl-C is never a text for the model."""
    ran = []

    @tool
    def one() -> str:
        """One."""
        ran.append("one")
        return "1"

    @tool(sequential=True)
    def stop() -> str:
        """Stop."""
        raise KeyboardInterrupt

    @tool
    def two() -> str:
        """Two."""
        ran.append("two")
        return "2"

    agent = Agent(ScriptedModel([[call("one"), call("stop"), call("two")], "never"]), tools=[one, stop, two])
    async with agent.start("go") as run:
        await run.step()
        with pytest.raises(KeyboardInterrupt):
            await run.step()
    assert ran == ["one"]
    assert [m.status for m in run.result.messages if isinstance(m, ToolResult)] == ["ok", "unknown", "not_run"]


async def test_a_retry_waits_as_long_as_was_drawn_and_can_be_cancelled() -> None:
    """The wait is part of the effect, so a cancel during it takes effect at once."""

    class Patient(FrozenClock):
        def __init__(self) -> None:
            super().__init__()
            self.waiting = asyncio.Event()

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)
            self.waiting.set()
            await asyncio.Event().wait()

    clock = Patient()
    model = ScriptedModel([ModelFailed("overloaded", retry_after=7.0), "never"])
    async with Agent(model, clock=clock).start("hi") as run:
        assert (await run.step()).row == "retry"
        step = asyncio.create_task(run.step())
        await clock.waiting.wait()
        run.cancel()
        assert (await step).row == "cancelled"
    assert clock.slept[0] >= 7.0
    assert len(model.requests) == 1
    assert_path(run.result, "await_model await_model failed")


async def test_a_timeout_around_a_run_that_another_task_drives_stays_a_timeout() -> None:
    """A task group relies on the cancellation that it sent coming back."""
    gate = Gate()
    drivers: list[asyncio.Task[object]] = []

    async def own() -> None:
        async with slow_tool_agent(gate).start("hi") as run:
            drivers.append(asyncio.create_task(run.finish()))
            await asyncio.Event().wait()

    owner = asyncio.create_task(own())
    await gate.begun.wait()
    owner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owner
    result = await drivers[0]
    assert isinstance(result, Result)
    assert result.stop is not None
    assert result.stop.reason == "cancelled"


async def test_a_store_that_fails_meanwhile_does_not_hide_a_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    """The cancellation goes on, and what went wrong is reported."""
    gate = Gate()

    class Failing(MemoryStore):
        async def append(
            self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
        ) -> None:
            """Fail once the run is told to stop."""
            if any(isinstance(record.event, Cancelled) for record in records):
                raise StoreFull("the disk", "no space left")
            await super().append(lease, records, summary, letters)

    task = asyncio.create_task(slow_tool_agent(gate, store=Failing()).run("hi"))
    await gate.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "could not be ended" in caplog.text


async def test_a_step_cancelled_while_its_move_is_kept_ends_the_effect_that_is_left_behind() -> None:
    """The run has moved all the same, so nobody will ever take what the request brings."""
    gate, ended, keeping, kept = Gate(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def append(
            self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
        ) -> None:
            """Keep an order to stop slowly."""
            await super().append(lease, records, summary, letters)
            if any(isinstance(record.event, Cancelled) for record in records):
                keeping.set()
                await kept.wait()

    async def ask(_: ModelRequest) -> str:
        try:
            await gate.wait()
        finally:
            ended.set()
        return "never"

    async with Agent(ScriptedModel(ask), store=Slow()).start("hi") as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.cancel()
        await keeping.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert run.finished
        assert ended.is_set()


async def test_an_effect_that_fails_while_it_is_ended_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """An error that nobody awaits is in the log of the library, and not on the terminal."""
    gate = Gate()

    async def ask(_: ModelRequest) -> str:
        try:
            await gate.wait()
        finally:
            raise ZeroDivisionError("a bug")

    async with Agent(ScriptedModel(ask)).start("hi") as run:
        step = asyncio.create_task(run.step())
        await gate.begun.wait()
        run.cancel()
        assert (await step).row == "cancelled"
    assert "ZeroDivisionError" in caplog.text


async def test_control_calls_take_text_only() -> None:
    """What is no text would be kept, and the run could never be stepped again."""
    async with Agent(ScriptedModel(["hello"])).start("hi") as run:
        with pytest.raises(UsageError, match=r"inject\(\) takes text; got None"):
            run.inject(None)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"cancel\(\) takes text; got 5"):
            run.cancel(5)  # type: ignore[arg-type]
        assert (await run.finish()).ok


def test_a_run_stays_in_its_event_loop() -> None:
    """In another loop it would be deaf to its deadline and to orders."""
    run = Agent(ScriptedModel([" ", "hello"])).start("hi")
    asyncio.run(run.step())
    with pytest.raises(UsageError, match="belongs to the event loop"):
        asyncio.run(run.step())
    assert not run.finished


async def test_a_session_has_one_run_at_a_time() -> None:
    """The second would not know what the first one says, and one answer would be lost."""
    gate = Gate()

    async def slowly(_: ModelRequest) -> str:
        await gate.wait()
        return "one"

    model = ScriptedModel([slowly, "two"])
    agent = Agent(model)
    first = asyncio.create_task(agent.run("first", session="trip"))
    await gate.begun.wait()
    with pytest.raises(SessionBusy, match="'trip'"):
        await agent.run("second", session="trip")
    gate.open.set()
    await first
    await agent.run("second", session="trip")
    assert len(model.requests[1].items) == 3


async def test_a_session_whose_run_was_left_goes_on() -> None:
    """A run that was left, or forgotten, does not hold its session for ever."""
    agent = Agent(ScriptedModel(["one"]))
    async with agent.start("first", session="trip"):
        pass
    assert (await agent.run("second", session="trip")).ok


async def test_a_session_of_another_machine_says_so() -> None:
    """A journal that this machine cannot read is no bug of it."""

    @dataclass(frozen=True)
    class Looked(Event):
        def apply(self, run: RunState) -> RunState:
            """Change nothing."""
            return run

    async def look(_: RunState) -> Looked:
        return Looked()

    looking = State("looking", asks="Look")
    machine = loop.extend(
        states=[looking],
        rows=[
            before("answered", row("look", await_model, ModelReplied, [is_answer], looking, answer)),
            row("looked", looking, Looked, [], done),
        ],
        performs={"Look": look},
    )
    store = MemoryStore()
    assert (await Agent(ScriptedModel(["hello"]), machine=machine, store=store).run("hi", session="trip")).ok
    with pytest.raises(UsageError, match="another machine"):
        await Agent(ScriptedModel(["hello"]), store=store).run("hi", session="trip")


async def test_what_a_users_state_gives_is_an_event() -> None:
    """A performer that gives something else is named, not the table."""

    async def nothing(_: RunState) -> None:
        return None

    looking = State("looking", asks="Look")
    machine = loop.extend(
        states=[looking],
        rows=[before("answered", row("look", await_model, ModelReplied, [is_answer], looking, answer))],
        performs={"Look": nothing},  # type: ignore[dict-item]
    )
    with pytest.raises(UsageError, match="'Look' gives an event; got None"):
        await Agent(ScriptedModel(["hello"]), machine=machine).run("hi")


async def test_a_guard_that_raises_loses_no_paid_reply() -> None:
    """The reply is taken again by the next step; the model is not asked twice."""
    tries = iter([1, 2, 3])

    def is_fine(_run: RunState, _event: ModelReplied) -> bool:
        if next(tries) == 1:
            raise ZeroDivisionError("a bug")
        return True

    machine = loop.extend(rows=[before("answered", row("fine", await_model, ModelReplied, [is_fine], done, answer))])
    model = ScriptedModel(["hello", "never"])
    async with Agent(model, machine=machine).start("hi") as run:
        with pytest.raises(ZeroDivisionError):
            await run.step()
        assert (await run.finish()).output == "hello"
    assert len(model.requests) == 1


async def test_a_model_client_that_gives_nonsense_is_named() -> None:
    """Whoever writes a client is told what it has to give."""

    class Odd(ScriptedModel):
        async def reply(self, request: ModelRequest, progress: Callable[[Delta], None]) -> Any:
            """Give what is neither a reply nor a failure."""
            return "text"

    with pytest.raises(UsageError, match=r"'scripted:model' gives a Reply or a ModelFailed; got 'text'"):
        await Agent(Odd([])).run("hi")


async def test_very_many_retries_have_a_longest_wait() -> None:
    """The wait doubles to its bound, and no number overflows on the way."""
    clock = FrozenClock()
    retry = Retry(attempts=1_100, base_delay=0.001, max_delay=0.002)
    failing = [ModelFailed("overloaded")] * 1_100
    result = await Agent(ScriptedModel(failing), clock=clock, retry=retry).run("hi")
    assert result.stop is not None
    assert result.stop.reason == "infrastructure_error"
    assert max(clock.slept) <= 0.002
