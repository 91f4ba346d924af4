"""`Run`: the live handle of a run, and the only loop there is.

It performs the state's effect, receives its event, and takes one transition. The effect is a task of its own, so that a
message from outside (cancel, inject, the deadline) can be taken meanwhile, and so that whoever awaits a step
can be cancelled without losing it: the effect goes on, and the next step receives what it brings.

Whatever is acted upon is in the journal first (`turnstile.driver.keeper`). A run that goes straight on keeps the intent
of its next effect together with the move that leads there; one that is stepped keeps it when the effect begins, since
between two steps nothing is under way.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Generic, Literal, Self, TypeVar

from turnstile.core.effects import AskHuman, Effect, RunTools
from turnstile.core.errors import RunBusy, RunFinished, RunIsLeased, UsageError, WaitingForHuman
from turnstile.core.events import (
    ApprovalDecided,
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ResultsAppended,
    RunStarted,
)
from turnstile.core.messages import ToolCall, ToolResult
from turnstile.core.requests import Ranges
from turnstile.core.run_state import RunState, at_work, begin_run
from turnstile.core.step import Step, Transition, effect_of, step
from turnstile.core.strict_json import JsonValue
from turnstile.driver.keeper import Keeper
from turnstile.driver.listener import Listener
from turnstile.driver.mail import Mail
from turnstile.driver.perform import Outside, Performer
from turnstile.driver.resuming import Found, Recovery
from turnstile.driver.session import going_on
from turnstile.ports import Notice, Observer, Record
from turnstile.result import Result

T = TypeVar("T")

_log = logging.getLogger("turnstile")
_log.addHandler(
    logging.NullHandler()
)  # a library says nothing unless its user asks for it (docs.python.org, "logging")
GRACE = 10.0  # seconds that an abandoned effect may take to let go; RELIABILITY: 10 s for what does not cooperate


class Run(Generic[T]):
    """A run under way. Get one from `Agent.start` or `Agent.resume`, and leave it with ``async with``.

    One task drives it, by `step`, `until`, `finish` or `events`. The control calls (`cancel`, `inject`, `settle`,
    `approve`, `deny`) are plain functions, safe from any task or thread.

    Attributes:
        recovery: What was found when it was resumed; ``None`` for a run that was started here.
    """

    def __init__(
        self,
        outside: Outside,
        start: RunStarted,
        convert: Callable[[JsonValue], T],
        found: Found | None = None,
        *,
        fork: Callable[[str, int], Awaitable[Run[T]]] | None = None,
    ) -> None:
        self._outside = outside
        self._fork = fork
        self._convert = convert
        self._found = found
        self._keeper = Keeper(outside.store, found.run if found else begin_run(start))
        self._transitions: list[Transition] = [*found.transitions] if found else []
        self._performer: Performer | None = None
        self._next = effect_of(outside.machine, self._keeper.run)  # what the next step will perform
        self._effect: asyncio.Task[Event] | None = None
        self._began = 0.0
        self._mail = found.mail if found else Mail(start.run_id)
        self._wake: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._is_stepped = False
        self._idle: asyncio.Future[None] | None = None  # for who waits until no task steps it
        self._left = False
        self._unkept: tuple[Event, float] | None = None
        self._call_off: Callable[[], None] | None = None
        self._observers: list[Observer] = list(outside.observers)
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
        return self._keeper.run

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
        return not self.finished and self._mail.next(self.snapshot, done=False) is not None

    @property
    def effect(self) -> Effect | None:
        """What the next step will perform, or what is under way; ``None`` when the state asks nothing."""
        return effect_of(self._outside.machine, self.snapshot)

    @property
    def result(self) -> Result[T]:
        """What it came to, or how far it is: always with a valid history."""
        return Result(self.snapshot, tuple(self._transitions), self._convert)

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
        return await self._turn(onward=False)

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
            await self._turn(onward=True)
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
            while self._can_move():
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

    def _can_move(self) -> bool:
        return not self.finished and (not self.waiting or self.has_mail)

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
        return await self._fork(self.run_id, seq)

    # Telling it something

    def cancel(self, why: str = "") -> None:
        """Ask it to stop: nothing new starts, running tools are told to end, and it fails as ``cancelled``."""
        _require_text("cancel", why)
        self._post(Cancelled(why))

    def inject(self, text: str) -> None:
        """Say something to the model while the run is under way; it is sent as soon as no call is open."""
        _require_text("inject", text)
        self._post(MessageInjected(text))

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
            _require_text("settle", result)
        self._decide(call_id, "rerun" if rerun else "unknown" if unknown else "result", result or "")

    def approve(self, call_id: str) -> None:
        """Let a call that is in doubt run again; `settle` has the other choices."""
        self._decide(call_id, "rerun", "")

    def deny(self, call_id: str, why: str = "") -> None:
        """Do not let a call that is in doubt run again: the model is told that its outcome is unknown, and why."""
        _require_text("deny", why)
        self._decide(call_id, "unknown", why)

    def _decide(self, call_id: str, decision: Literal["rerun", "result", "unknown"], content: str) -> None:
        if call_id not in self.snapshot.in_doubt:
            msg = f"call {call_id!r} of run {self.run_id!r} is not in doubt; those that are: {self.snapshot.in_doubt!r}"
            raise UsageError(msg)
        self._post(ApprovalDecided(call_id, decision, content))

    def _post(self, event: Event) -> None:
        if self.finished:
            _log.info("run %s is %s; %s is dropped", self.run_id, self.state, event)
            return
        self._mail.put(event)
        self._ring()

    def _ring(self) -> None:
        """Let the loop look into its mail, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._awake)

    # The loop's parts

    async def _turn(self, *, onward: bool) -> Transition:
        """Receive the next event and take its transition; onward, with what follows of itself."""
        if self._is_stepped:
            raise RunBusy(self.run_id)
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            msg = f"run {self.run_id!r} belongs to the event loop that it was begun in; step it there"
            raise UsageError(msg)
        if self._left:
            msg = (
                f"run {self.run_id!r} was left in state {self.state!r} with its effect under way, which is lost; "
                "go on with `await agent.resume(run_id)`"
            )
            raise UsageError(msg)
        self._is_stepped = True
        try:
            if self._loop is None:
                await self._open()
            await self._keeper.regain(self._mail)
            event, duration_ms = await self._next_event()
            return await self._take(event, duration_ms, onward=onward)
        except RunIsLeased:
            self._left = True
            await self._abandon()
            raise
        finally:
            self._is_stepped = False
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    async def _open(self) -> None:
        start, clock = self.snapshot.start, self._outside.clock
        if self._found is not None:
            self._keeper.hold(self._found.lease)
        else:
            if not self._keeper.created and start.session is not None:
                start = await going_on(self._outside, start)
            await self._keeper.create(Record(start, clock.time()), self._mail)
            start = self.snapshot.start
        self._next = effect_of(self._outside.machine, self.snapshot)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._performer = Performer(self._outside, self.snapshot, self._notify, self._begin_call, self._call_ended)
        if self._found is not None:
            self._performer.due = self._found.due
        ring = weakref.WeakMethod(self._ring)  # the store holds the mail, and must not hold a run that is forgotten
        self._mail.on_arrival = lambda: (awake := ring()) and awake()
        self._set_alarm()
        self._notify(start)

    def _set_alarm(self) -> None:
        """Be told when the time is over; while the run waits for a human, its time stands still."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None
        deadline = self.snapshot.deadline
        if deadline is not None and not self.finished and not self.waiting:
            post = weakref.WeakMethod(self._post)  # nor must the clock hold a run that is forgotten
            self._call_off = self._outside.clock.alarm(deadline, lambda: (late := post()) and late(DeadlinePassed()))

    def _is_late(self) -> bool:
        deadline = self.snapshot.deadline
        return deadline is not None and self._outside.clock.time() >= deadline

    async def _next_event(self) -> tuple[Event, float]:
        """The event that comes first: one that could not be kept, from the mail, or what the effect brings."""
        if self._unkept is not None:
            return self._unkept
        while True:
            # A finished effect comes before an order to stop, so that no paid reply and no result is dropped.
            done = self._effect is not None and self._effect.done()
            letter = self._mail.next(self.snapshot, done=done)
            if letter is not None:
                return self._mail.take(letter), 0.0
            if self._effect is None:
                if self.waiting:
                    raise WaitingForHuman(self.run_id, tuple(call.id for call in self.waiting))
                if self._next is None:
                    return ResultsAppended(), 0.0
                if self._is_late():
                    return DeadlinePassed(), 0.0
                await self._begin(self._next)
            elif done:
                task, self._effect = self._effect, None
                duration_ms = (self._outside.clock.monotonic() - self._began) * 1000
                if (task.cancelled() or task.exception() is not None) and at_work(self.snapshot):
                    self._mail.put_first(EffectLost())  # calls that were begun must not be begun anew
                return task.result(), duration_ms
            else:
                self._wake = asyncio.get_running_loop().create_future()
                try:
                    await self._wake
                finally:
                    self._wake = None

    async def _begin(self, effect: Effect) -> None:
        assert self._performer is not None  # noqa: S101 - _open made it
        intents = self._performer.intents(effect, self.snapshot)
        await self._keeper.note(intents, self._outside.clock.time(), then=lambda: self._launch(effect, intents))

    def _launch(self, effect: Effect, intents: Sequence[Event]) -> None:
        """Begin an effect whose intents are kept."""
        assert self._performer is not None  # noqa: S101 - _open made it
        items = next((intent.items for intent in intents if isinstance(intent, EffectBegun)), ())
        # Before the task begins, or an order to stop that comes in between is lost; only tools can be told.
        loop = asyncio.get_running_loop()
        self._performer.stop = loop.create_future() if isinstance(effect, RunTools) else None
        self._began = self._outside.clock.monotonic()
        self._effect = loop.create_task(self._perform(effect, items))
        self._effect.add_done_callback(self._awake)

    async def _perform(self, effect: Effect, items: Ranges) -> Event:
        assert self._performer is not None  # noqa: S101 - _open made it
        try:
            return await self._performer.perform(effect, self.snapshot, items)
        finally:
            self._awake()  # a turn of the event loop earlier than the task's callback, which serves when it never began

    async def _take(self, event: Event, duration_ms: float, *, onward: bool) -> Transition:
        """Keep an event and take its transition; onward, also what follows of itself, and the next effect's intents."""
        self._unkept = event, duration_ms  # until it is kept: whatever raises first, a paid reply is not lost
        async with self._keeper.turn:
            at = self._outside.clock.time()
            self._keeper.collect()
            moves = self._moves(event, at, duration_ms, onward=onward)
            last = moves[-1][1]
            intents, effect = self._onward(last) if onward else ((), None)
            letters = self._mail.taken

            def move() -> None:
                self._unkept = None
                self._mail.forget(letters)
                for _, taken in moves:
                    self._move(taken)
                if effect is not None:
                    self._keeper.noted(intents)
                    self._launch(effect, intents)

            await self._keeper.keep(moves, intents, letters, then=move)
        if self._effect is not None and effect is None and not last.transition.stays:
            await self._abandon()
        if self._performer is not None and self._performer.raised is not None:
            raised, self._performer.raised = self._performer.raised, None
            raise raised
        return last.transition

    def _moves(self, event: Event, at: float, duration_ms: float, *, onward: bool) -> list[tuple[Event, Step]]:
        """The steps that an event makes: one, and onward also those that nothing is waited for."""
        machine = self._outside.machine
        if isinstance(event, ApprovalDecided):
            asked = next(move for move in reversed(self._transitions) if not move.stays)
            event = replace(event, waited=max(0.0, at - asked.at))
        taken = step(machine, self.snapshot, event, at=at, duration_ms=duration_ms)
        moves = [(event, taken)]
        while onward and taken.effect is None and not taken.run.finished and not self._mail:
            event = ResultsAppended()
            taken = step(machine, taken.run, event, at=at)
            moves.append((event, taken))
        return moves

    def _onward(self, last: Step) -> tuple[tuple[Event, ...], Effect | None]:
        """The effect that begins with the last step, and its intents; none when something else comes first."""
        assert self._performer is not None  # noqa: S101 - _open made it
        effect = last.effect
        first = self._effect is not None or bool(self._mail) or self._is_late()  # what comes before a new effect
        if effect is None or first or last.transition.stays or isinstance(effect, AskHuman):
            return (), None
        return self._performer.intents(effect, last.run), effect

    def _move(self, taken: Step) -> None:
        """Be in the next state, and let go of what belonged to the last one."""
        moved, transition, self._next = taken
        self._keeper.run = moved
        self._transitions.append(transition)
        stop = self._performer.stop if self._performer is not None else None
        if moved.stopping is not None and stop is not None and not stop.done():
            stop.set_result(None)
        if moved.finished or "await_approval" in {transition.source, transition.dest}:
            self._set_alarm()
        self._notify(transition)

    async def _begin_call(self, call: ToolCall) -> bool:
        """Keep the intent to run a call before it runs; tells whether it may."""
        assert self._performer is not None  # noqa: S101 - _open made it
        for intent in self.snapshot.started:
            if intent.call_id == call.id:
                return True
        if self.snapshot.stopping is not None or self._is_late():
            return False
        started = self._performer.intent(call, self.snapshot)
        await self._keeper.note([started], self._outside.clock.time())
        return self.snapshot.stopping is None

    def _call_ended(self, result: ToolResult) -> None:
        self._keeper.receipt(result, self._outside.clock.time())

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
                observer.observe(notice, self.snapshot)
            except Exception:  # noqa: BLE001 - whatever is wrong with an observer, the run goes on
                self._drop(observer)
                _log.exception("observer %r of run %s failed and hears no more of it", observer, self.run_id)

    def _drop(self, observer: Observer) -> None:
        self._observers = [other for other in self._observers if other is not observer]

    def _let_go(self) -> None:
        """Call off the deadline, and let others have the run."""
        if self._call_off is not None:
            self._call_off()
        self._keeper.release()

    async def __aenter__(self) -> Self:
        """Open the run.

        Raises:
            RunExists: The store has a run of this id.
            SessionBusy: Its session has a run under way.
        """
        if self._loop is None:
            try:
                await self._open()
            except asyncio.CancelledError:  # nobody will leave it, and its journal may have begun
                if self._keeper.created:
                    await self._end_cancelled()
                    self._let_go()
                raise
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
            await self._keeper.flush()
        self._let_go()

    async def _end_cancelled(self) -> None:
        """Drive the run to its end as cancelled; what goes wrong meanwhile does not hide that cancellation."""
        self.cancel("the task that awaited the run was cancelled")
        try:
            while not self.finished:
                if self._is_stepped:
                    self._idle = self._idle or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._idle)
                else:
                    await self.step()
        except Exception:  # noqa: BLE001 - the cancellation goes first, whatever else went wrong
            _log.exception("run %s could not be ended as cancelled", self.run_id)
        finally:
            await self._abandon()


def _require_text(call: str, text: object) -> None:
    if not isinstance(text, str):
        msg = f"run.{call}() takes text; got {text!r}"
        raise UsageError(msg)
