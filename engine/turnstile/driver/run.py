"""`Run`: the live handle of a run, and the only loop there is.

It performs the state's effect, receives its event, and takes one transition. The effect is a task of its own, so that a
message from outside (cancel, inject, the deadline) can be taken meanwhile, and so that whoever awaits a step
can be cancelled without losing it: the effect goes on, and the next step receives what it brings.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Generic, Self, TypeVar

from turnstile.core.effects import Effect
from turnstile.core.errors import RunBusy, RunFinished, SessionBusy, UsageError
from turnstile.core.events import (
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    Event,
    MessageInjected,
    ResultsAppended,
    RunStarted,
)
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import Step, Transition, begin, effect_of, step
from turnstile.core.strict_json import JsonValue
from turnstile.driver.listener import Listener
from turnstile.driver.perform import Outside, Performer
from turnstile.driver.session import said_before
from turnstile.ports import Notice, Observer, Record
from turnstile.result import Result

T = TypeVar("T")

_log = logging.getLogger("turnstile")
_log.addHandler(
    logging.NullHandler()
)  # a library says nothing unless its user asks for it (docs.python.org, "logging")
GRACE = 10.0  # seconds that an abandoned effect may take to let go; RELIABILITY: 10 s for what does not cooperate


class Run(Generic[T]):
    """A run under way. Get one from `Agent.start`, and leave it with ``async with``.

    One task drives it, by `step`, `until`, `finish` or `events`. The control calls (`cancel`, `inject`) are plain
    functions, safe from any task or thread.
    """

    def __init__(self, outside: Outside, start: RunStarted, convert: Callable[[JsonValue], T]) -> None:
        self._outside = outside
        self._convert = convert
        self._run = begin_run(start)
        self._transitions: list[Transition] = []
        self._performer: Performer | None = None
        self._next = effect_of(outside.machine, self._run)  # what the next step will perform
        self._effect: asyncio.Task[Event] | None = None
        self._began = 0.0
        self._mail: list[Event] = []
        self._wake: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._idle = asyncio.Event()  # cleared while a task steps
        self._idle.set()
        self._left = False
        self._created = False  # also while the store is at it: what was begun there goes on when a task is cancelled
        self._unkept: tuple[Event, float] | None = None
        self._call_off: Callable[[], None] | None = None
        self._leave_session: Callable[[], object] | None = None
        self._observers: list[Observer] = list(outside.observers)

    # What it is

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    @property
    def state(self) -> str:
        """Name of the state it is in."""
        return self._run.state

    @property
    def snapshot(self) -> RunState:
        """All that is true of it now, as a frozen value."""
        return self._run

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self._run.finished

    @property
    def effect(self) -> Effect | None:
        """What the next step will perform, or what is under way; ``None`` when the state asks nothing."""
        return effect_of(self._outside.machine, self._run)

    @property
    def result(self) -> Result[T]:
        """What it came to, or how far it is: always with a valid history."""
        return Result(self._run, tuple(self._transitions), self._convert)

    # Driving it

    async def step(self) -> Transition:
        """Take exactly one transition: perform the state's effect unless it is under way, and receive its event.

        When the awaiting task is cancelled, the run stays valid, and the effect goes on; the next step receives what it
        brings.

        Raises:
            RunFinished: It has ended.
            RunBusy: Another task is stepping it.
            UsageError: It was left with its effect under way, or belongs to another event loop.
        """
        if self.finished:
            raise RunFinished(self.run_id, self.state)
        if not self._idle.is_set():
            raise RunBusy(self.run_id)
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            msg = f"run {self.run_id!r} belongs to the event loop that it was begun in; step it there"
            raise UsageError(msg)
        if self._left:
            msg = (
                f"run {self.run_id!r} was left in state {self.state!r} with its effect under way, which is lost; "
                "start a new run with history=run.result.messages"
            )
            raise UsageError(msg)
        self._idle.clear()
        try:
            if self._loop is None:
                await self._open()
            event, duration_ms = await self._next_event()
            return await self._take(event, duration_ms)
        finally:
            self._idle.set()

    async def until(self, state: str) -> Transition | None:
        """Step until the run enters a state; gives the last transition.

        Gives ``None`` when it has ended before it moved. A run that ends elsewhere stops there: look at `state`.

        Raises:
            UsageError: The machine has no such state.
        """
        names = [known.name for known in self._outside.machine.states]
        if state not in names:
            msg = f"no state {state!r} to step to; the states are {', '.join(names)}"
            raise UsageError(msg)
        transition = None
        while not self.finished:
            transition = await self.step()
            if transition.dest == state and not transition.stays:
                break
        return transition

    async def finish(self) -> Result[T]:
        """Step to the end."""
        while not self.finished:
            await self.step()
        return self.result

    async def events(self) -> AsyncGenerator[Notice, None]:
        """Drive the run to its end, and give each transition and each piece of progress as it comes.

        It takes a step when it is asked for what comes next, so a loop that breaks off at a transition leaves the run
        between two steps. One that may break off elsewhere is closed with ``contextlib.aclosing``.
        """
        queue: asyncio.Queue[Notice | None] = asyncio.Queue()
        listener = Listener(queue)
        self._observers.append(listener)
        stepping: asyncio.Task[Transition] | None = None
        try:
            while not self.finished:
                stepping = asyncio.get_running_loop().create_task(self.step())
                stepping.add_done_callback(lambda _: queue.put_nowait(None))
                while (notice := await queue.get()) is not None:
                    yield notice
                await stepping
        finally:
            self._drop(listener)
            if stepping is not None and not stepping.done():
                stepping.cancel()
                with suppress(asyncio.CancelledError):
                    await stepping

    # Telling it something

    def cancel(self, why: str = "") -> None:
        """Ask it to stop: nothing new starts, running tools are told to end, and it fails as ``cancelled``."""
        _require_text("cancel", why)
        self._post(Cancelled(why))

    def inject(self, text: str) -> None:
        """Say something to the model while the run is under way; it is sent as soon as no call is open."""
        _require_text("inject", text)
        self._post(MessageInjected(text))

    def _post(self, event: Event) -> None:
        if self.finished:
            _log.info("run %s is %s; %s is dropped", self.run_id, self.state, event)
            return
        self._mail.append(event)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._awake)

    # The loop's parts

    async def _open(self) -> None:
        start, store, clock = self._run.start, self._outside.store, self._outside.clock
        if start.session is not None:
            self._enter(start.session)
            start = replace(start, history=await said_before(self._outside, start.session))
        if not self._created:
            self._created = True
            try:
                await store.create(Record(start, clock.time()))
            except Exception:
                self._created = False
                raise
        self._run = begin_run(start)
        self._next = effect_of(self._outside.machine, self._run)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._performer = Performer(self._outside, self._run, self._notify)
        if start.deadline is not None:
            self._call_off = clock.alarm(start.deadline, lambda: self._post(DeadlinePassed()))
        self._notify(start)

    def _enter(self, session: str) -> None:
        """Be the one run of the session, until it has ended, was left, or is forgotten."""
        if session in self._outside.sessions:
            raise SessionBusy(session)
        self._outside.sessions.add(session)
        self._leave_session = weakref.finalize(self, self._outside.sessions.discard, session)

    async def _next_event(self) -> tuple[Event, float]:
        """The event that comes first: one that could not be kept, from the mail, or what the effect brings."""
        if self._unkept is not None:
            return self._unkept
        while True:
            # A finished effect comes before an order to stop, so that no paid reply and no result is dropped.
            done = self._effect is not None and self._effect.done()
            if self._mail and not (done and isinstance(self._mail[0], Cancelled | DeadlinePassed)):
                return self._mail.pop(0), 0.0
            if self._effect is None:
                if self._next is None:
                    return ResultsAppended(), 0.0
                await self._begin(self._next)
            elif done:
                task, self._effect = self._effect, None
                duration_ms = (self._outside.clock.monotonic() - self._began) * 1000
                return task.result(), duration_ms
            else:
                self._wake = asyncio.get_running_loop().create_future()
                try:
                    await self._wake
                finally:
                    self._wake = None

    async def _begin(self, effect: Effect) -> None:
        try:
            await self._outside.store.append(self.run_id, Record(EffectBegun(), self._outside.clock.time()))
        except asyncio.CancelledError:
            self._launch(effect)  # it is on record as begun, so it begins
            raise
        self._launch(effect)

    def _launch(self, effect: Effect) -> None:
        assert self._performer is not None  # noqa: S101 - _open made it
        self._run = begin(self._run)
        self._performer.stop.clear()  # before the task begins, or an order to stop that comes in between is lost
        self._began = self._outside.clock.monotonic()
        self._effect = asyncio.get_running_loop().create_task(self._perform(effect))
        self._effect.add_done_callback(self._awake)

    async def _perform(self, effect: Effect) -> Event:
        assert self._performer is not None  # noqa: S101 - _open made it
        try:
            return await self._performer.perform(effect, self._run)
        finally:
            self._awake()  # a turn of the event loop earlier than the task's callback, which serves when it never began

    async def _take(self, event: Event, duration_ms: float) -> Transition:
        self._unkept = event, duration_ms  # until it is kept: whatever raises first, a paid reply is not lost
        at = self._outside.clock.time()
        moved = step(self._outside.machine, self._run, event, at=at, duration_ms=duration_ms)
        try:
            await self._outside.store.append(self.run_id, Record(event, at, duration_ms))
        except asyncio.CancelledError:
            await self._move(moved)  # the store goes on, so the run does: else the effect would be repeated
            raise
        await self._move(moved)
        return moved.transition

    async def _move(self, taken: Step) -> None:
        """Be in the next state, and let go of what belonged to the last one."""
        moved, transition, self._next = taken
        self._unkept = None
        self._run = moved
        self._transitions.append(transition)
        if moved.stopping is not None and self._performer is not None:
            self._performer.stop.set()
        if moved.finished:
            self._let_go()
        self._notify(transition)
        if self._effect is not None and not transition.stays:
            await self._abandon()
        if self._performer is not None and self._performer.raised is not None:
            raised, self._performer.raised = self._performer.raised, None
            raise raised

    async def _abandon(self) -> None:
        """End an effect whose event nobody waits for."""
        task, self._effect = self._effect, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=GRACE)
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()):
            _log.warning("an effect of run %s failed as it was ended: %r", self.run_id, error)

    def _awake(self, _task: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _notify(self, notice: Notice) -> None:
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._notify, notice)
            return
        for observer in tuple(self._observers):
            try:
                observer.observe(notice, self._run)
            except Exception:  # noqa: BLE001 - whatever is wrong with an observer, the run goes on
                self._drop(observer)
                _log.exception("observer %r of run %s failed and hears no more of it", observer, self.run_id)

    def _drop(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]

    def _let_go(self) -> None:
        """Call off the deadline, and free the session for its next run."""
        if self._call_off is not None:
            self._call_off()
        if self._leave_session is not None:
            self._leave_session()

    async def __aenter__(self) -> Self:
        """Open the run.

        Raises:
            RunExists: The store has a run of this id.
        """
        if self._loop is None:
            await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the run.

        Cancelled with its task it ends as cancelled; else it stays where it is, and what is under way is lost.
        """
        if kind is not None and issubclass(kind, asyncio.CancelledError) and not self.finished:
            await self._end_cancelled()
        elif self._effect is not None:
            self._left = True
            await self._abandon()
        self._let_go()

    async def _end_cancelled(self) -> None:
        """Drive the run to its end as cancelled; what goes wrong meanwhile does not hide that cancellation."""
        self.cancel("the task that awaited the run was cancelled")
        try:
            while not self.finished:
                if self._idle.is_set():
                    await self.step()
                else:
                    await self._idle.wait()
        except Exception:  # noqa: BLE001 - the cancellation goes first, whatever else went wrong
            _log.exception("run %s could not be ended as cancelled", self.run_id)
        finally:
            await self._abandon()


def _require_text(call: str, text: object) -> None:
    if not isinstance(text, str):
        msg = f"run.{call}() takes text; got {text!r}"
        raise UsageError(msg)
