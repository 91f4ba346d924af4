"""`Run`: the live handle of a run, with which it is driven, looked at and told something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from turnstile.core.effects import Effect
from turnstile.core.errors import RunFinished, UsageError
from turnstile.core.events import ApprovalDecided, Cancelled, MessageInjected, RunStarted
from turnstile.core.expecting import expect_text
from turnstile.core.messages import ToolCall
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition, effect_of
from turnstile.core.strict_json import JsonValue
from turnstile.driver.listener import Listener
from turnstile.driver.loop import Loop
from turnstile.driver.perform import Outside
from turnstile.driver.resuming import Found, Recovery
from turnstile.ports import Notice
from turnstile.result import Result

T = TypeVar("T")


class Run(Generic[T]):
    """A run under way. Get one from `Agent.start` or `Agent.resume`, and leave it with ``async with``.

    One task drives it, by `step`, `until`, `finish` or `events`. The control calls (`cancel`, `inject`, `settle`,
    `approve`, `deny`) are plain functions, safe from any task or thread.

    Attributes:
        recovery: What was found when it was resumed; ``None`` for a run that was started here.
    """

    __slots__ = ("__weakref__", "_convert", "_drive", "_fork", "_outside", "recovery")

    def __init__(
        self,
        outside: Outside,
        start: RunStarted,
        convert: Callable[[JsonValue], T],
        found: Found | None = None,
        *,
        fork: Callable[[Outside, str, int], Awaitable[Run[T]]] | None = None,
    ) -> None:
        self._outside = outside
        self._convert = convert
        self._fork = fork
        self._drive = Loop(outside, start, found)
        self.recovery: Recovery | None = found.recovery if found else None

    # What it is

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.snapshot.run_id

    @property
    def state(self) -> str:
        """Name of the state it is in."""
        return self.snapshot.state

    @property
    def snapshot(self) -> RunState:
        """All that is true of it now, as a frozen value."""
        return self._drive.keeper.run

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self.snapshot.finished

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that a human must decide about before it goes on; empty when it waits for nobody."""
        return self.snapshot.waiting

    @property
    def has_mail(self) -> bool:
        """Whether the next step takes something that the run was told, and performs nothing."""
        return not self.finished and self._drive.mail.next(self.snapshot, done=False) is not None

    @property
    def effect(self) -> Effect | None:
        """What the next step will perform, or what is under way; ``None`` when the state asks nothing."""
        return effect_of(self._outside.machine, self.snapshot)

    @property
    def result(self) -> Result[T]:
        """What it came to, or how far it is: always with a valid history."""
        return Result(self.snapshot, tuple(self._drive.transitions), self._convert)

    # Driving it

    async def step(self) -> Transition:
        """Take exactly one transition: perform the state's effect unless it is under way, and receive its event.

        When the awaiting task is cancelled, the run stays valid, and the effect goes on; the next step receives what it
        brings.

        Raises:
            RunFinished: It has ended.
            RunBusy: Another task is stepping it.
            WaitingForHuman: It waits for a decision that nobody has made yet.
            RunIsLeased: Another process has taken it over; what was under way here is ended.
            UsageError: It was left with its effect under way, or belongs to another event loop.
        """
        if self.finished:
            raise RunFinished(self.run_id, self.state)
        return await self._drive.turn(onward=False)

    async def until(self, state: str) -> Transition | None:
        """Step until the run enters a state, ends, or waits for a human; gives the last transition.

        Gives ``None`` when it has ended before it moved. A run that ends elsewhere stops there: look at `state`.

        Raises:
            UsageError: The machine has no such state.
        """
        names = [known.name for known in self._outside.machine.states]
        if state not in names:
            msg = f"no state {state!r} to step to; the states are {', '.join(names)}"
            raise UsageError(msg)
        transition = None
        while self._can_move():
            transition = await self.step()
            if transition.dest == state and not transition.stays:
                break
        return transition

    async def finish(self) -> Result[T]:
        """Drive it to its end, or until it waits for a human: then the result is not `ok`, and has no stop yet."""
        while self._can_move():
            await self._drive.turn(onward=True)
        return self.result

    async def events(self) -> AsyncGenerator[Notice, None]:
        """Drive the run to its end, and give each transition and each piece of progress as it comes.

        It takes a step when it is asked for what comes next, so a loop that breaks off at a transition leaves the run
        between two steps. One that may break off elsewhere is closed with ``contextlib.aclosing``.
        """
        listener = Listener()
        self._drive.audience.add(listener)
        stepping: asyncio.Task[Transition] | None = None
        try:
            while self._can_move():
                stepping = asyncio.get_running_loop().create_task(self.step())
                stepping.add_done_callback(lambda _: listener.woken.set())
                while not stepping.done():
                    await listener.woken.wait()
                    listener.woken.clear()
                    while listener.heard:
                        yield listener.heard.popleft()
                await stepping
        finally:
            self._drive.audience.drop(listener)
            if stepping is not None and not stepping.done():
                stepping.cancel()
                with suppress(asyncio.CancelledError):
                    await stepping

    def _can_move(self) -> bool:
        run = self._drive.keeper.run
        return run.stop is None and (not run.waiting or self.has_mail)

    async def fork(self, seq: int) -> Run[T]:
        """A new run that shares this one's journal up to a transition, and goes on from there in its own way.

        What was begun in that time is not run again. `turnstile.replay.fork` can also change what was asked, the model,
        or what a tool gave.

        Args:
            seq: Number of the last transition that both share; 0 for none.

        Raises:
            UsageError: The run has no such transition, or has ended with it.
        """
        if self._fork is None:
            msg = f"run {self.run_id!r} was made without an agent, which a fork goes on with"
            raise UsageError(msg)
        return await self._fork(self._outside, self.run_id, seq)

    # Telling it something

    def cancel(self, why: str = "") -> None:
        """Ask it to stop: once that is kept nothing starts, running tools are told to end, and it is ``cancelled``."""
        expect_text("run.cancel()", why)
        self._drive.post(Cancelled(why))

    def inject(self, text: str) -> None:
        """Say something to the model while the run is under way; it is sent as soon as no call is open.

        Raises:
            UsageError: It says nothing.
        """
        expect_text("run.inject()", text, empty=False)
        self._drive.post(MessageInjected(text))

    def settle(self, call_id: str, *, rerun: bool = False, result: str | None = None, unknown: bool = False) -> None:
        """Decide about a call in doubt (`waiting`): it was begun, and nobody knows whether it did its work.

        Args:
            call_id: The call.
            rerun: It runs again.
            result: Its result is known: this is what the model reads.
            unknown: Nobody knows; the model is told so.

        Raises:
            UsageError: Not exactly one of the three is given, or the call is not in doubt.
        """
        choices = (rerun, result is not None, unknown)
        if sum(choices) != 1:
            msg = "run.settle() takes one of rerun=True, result='…' and unknown=True"
            raise UsageError(msg)
        if result is not None:
            expect_text("run.settle()", result)
        self._decide(call_id, "rerun" if rerun else "unknown" if unknown else "result", result or "")

    def approve(self, call_id: str) -> None:
        """Let a call that is in doubt run again; `settle` has the other choices."""
        self._decide(call_id, "rerun", "")

    def deny(self, call_id: str, why: str = "") -> None:
        """Do not let a call that is in doubt run again: the model is told that its outcome is unknown, and why."""
        expect_text("run.deny()", why)
        self._decide(call_id, "unknown", why)

    def _decide(self, call_id: str, decision: Literal["rerun", "result", "unknown"], content: str) -> None:
        if call_id not in self.snapshot.in_doubt:
            msg = f"call {call_id!r} of run {self.run_id!r} is not in doubt; those that are: {self.snapshot.in_doubt!r}"
            raise UsageError(msg)
        self._drive.post(ApprovalDecided(call_id, decision, content))

    async def __aenter__(self) -> Self:
        """Open the run.

        Raises:
            RunExists: The store has a run of this id.
            SessionBusy: Its session has a run under way.
        """
        await self._drive.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the run.

        Cancelled with its task it ends as cancelled; else it stays where it is, and what is under way is lost.
        """
        await self._drive.leave(cancelled=kind is not None and issubclass(kind, asyncio.CancelledError))
