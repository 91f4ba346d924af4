"""`Loop`: the only loop there is, which takes a run from state to state.

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
import weakref
from typing import NoReturn

from turnstile.core.effects import AskHuman, Effect, RunTools
from turnstile.core.errors import RunBusy, RunIsLeased, UsageError, WaitingForHuman
from turnstile.core.events import (
    ApprovalDecided,
    Cancelled,
    DeadlinePassed,
    EffectLost,
    Event,
    ResultsAppended,
    RunStarted,
)
from turnstile.core.messages import ToolCall, ToolResult
from turnstile.core.requests import Ranges
from turnstile.core.run_state import RunState, at_work, begin_run
from turnstile.core.step import Step, Transition, effect_of, step
from turnstile.core.values import evolve
from turnstile.driver.alarm import Alarm
from turnstile.driver.audience import Audience
from turnstile.driver.keeper import Keeper
from turnstile.driver.mail import Mail
from turnstile.driver.perform import Intents, Outside, Performer
from turnstile.driver.resuming import Found
from turnstile.driver.session import going_on
from turnstile.ports import Record

_log = logging.getLogger("turnstile")
_log.addHandler(logging.NullHandler())  # a library is silent unless its user asks (docs.python.org, "logging")
_APPENDED = ResultsAppended()
GRACE = 10.0  # seconds that an abandoned effect may take to let go; RELIABILITY: 10 s for what does not cooperate


class Loop:
    """Drives one run: opens it, takes its transitions one by one, and lets it go.

    Args:
        outside: What its effects are performed with.
        start: How it begins.
        found: Where it goes on, if it was begun before.

    Attributes:
        keeper: Writes its journal, and has its state.
        mail: What it was told, and has not taken yet.
        transitions: The moves that it made.
        audience: Who hears of it.
    """

    __slots__ = (
        "__weakref__", "_alarm", "_began", "_effect", "_found", "_home", "_idle", "_is_effect_over", "_is_stepped",
        "_left", "_next", "_outside", "_performer", "_unkept", "_wake", "audience", "keeper", "mail", "transitions",
    )  # fmt: skip

    def __init__(self, outside: Outside, start: RunStarted, found: Found | None) -> None:
        self._outside = outside
        self._found = found
        self.keeper = Keeper(outside.store, found.run if found else begin_run(start))
        if found is not None:
            self.keeper.hold(found.lease)  # from now on: a run that is resumed may be forgotten before it is opened
        self.mail = found.mail if found else Mail(start.run_id)
        self.transitions: list[Transition] = [*found.transitions] if found else []
        self.audience = Audience(outside.observers, self.keeper)
        self._performer: Performer | None = None
        self._next: Effect | None = None  # what the next step will perform, once it is open
        self._effect: asyncio.Task[Event] | None = None
        self._is_effect_over = False  # whether the run has moved on without it, and nobody waits for its event
        self._began = 0.0
        self._wake: asyncio.Future[None] | None = None
        self._home: asyncio.AbstractEventLoop | None = None  # the event loop that it was opened in
        self._is_stepped = False
        self._idle: asyncio.Future[None] | None = None  # for who waits until no task steps it
        self._left = False
        self._unkept: tuple[Event, float] | None = None
        self._alarm = Alarm(outside.clock)

    @property
    def run(self) -> RunState:
        """The run as it is now."""
        return self.keeper.run

    # Telling it something

    def post(self, event: Event) -> None:
        """Tell it something, from any thread; a run that has ended takes nothing any more."""
        if self.run.finished:
            _log.info("run %s is %s; %s is dropped", self.run.run_id, self.run.state, event)
            return
        self.mail.put(event)
        self.ring()

    def ring(self) -> None:
        """Look into the mail, from any thread."""
        if self._home is not None and not self._home.is_closed():
            self._home.call_soon_threadsafe(self._awake)

    def _awake(self, _task: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # Opening it, and leaving it

    async def enter(self) -> None:
        """Open the run, unless it is open.

        Raises:
            RunExists: The store has a run of this id.
            SessionBusy: Its session has a run under way.
        """
        if self._home is not None:
            return
        try:
            await self._open()
        except asyncio.CancelledError:  # nobody will leave it, and its journal may have begun
            if self.keeper.created:
                await self._end_cancelled()
                self._let_go()
            raise

    async def _open(self) -> None:
        start, clock = self.run.start, self._outside.clock
        if self._found is None:
            if not self.keeper.created and start.session is not None:
                start = await going_on(self._outside, start)
            await self.keeper.create(Record(start, clock.time()), self.mail)
            start = self.run.start
        self._next = effect_of(self._outside.machine, self.run)
        self._home = asyncio.get_running_loop()
        self.audience.settle()
        self._performer = Performer(self._outside, self.run, self.audience.tell, self._begin_call, self._call_ended)
        if self._found is not None:
            self._performer.due = self._found.due
        self.mail.run = weakref.ref(self)
        self._alarm.set(self.run, self.post)
        self.audience.tell(start)

    async def leave(self, *, cancelled: bool) -> None:
        """Let go of the run; cancelled, it ends so first, else what is under way is lost."""
        if cancelled and not self.run.finished:
            await self._end_cancelled()
        elif self._effect is not None:
            self._left = True
            await self._abandon()
            await self.keeper.flush()
        self._let_go()

    async def _end_cancelled(self) -> None:
        """Drive the run to its end as cancelled; what goes wrong meanwhile does not hide that cancellation."""
        self.post(Cancelled("the task that awaited the run was cancelled"))
        try:
            while not self.run.finished:
                if self._is_stepped:
                    self._idle = self._idle or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._idle)
                else:
                    await self.turn(onward=False)
        except Exception:  # noqa: BLE001 - the cancellation goes first, whatever else went wrong
            _log.exception("run %s could not be ended as cancelled", self.run.run_id)
        finally:
            await self._abandon()

    def _let_go(self) -> None:
        """Call off the deadline, and let others have the run."""
        self._alarm.call_off()
        self.keeper.release()

    # Taking turns

    async def turn(self, *, onward: bool) -> Transition:
        """Receive the next event and take its transition; onward, with what follows of itself.

        Raises:
            Exception: As `Run.step` raises, but for a run that has ended.
        """
        here = asyncio.get_running_loop()
        if self._is_stepped or self._left or self._home not in {here, None}:
            self._refuse(here)
        self._is_stepped, held = True, False
        try:
            if self._home is None:
                await self._open()
            if not self.keeper.holds:  # asked here, too: nearly always it does, and a coroutine for that is a call
                await self.keeper.regain(self.mail)
            held = True
            event, duration_ms = await self._next_event()
            return await self._take(event, duration_ms, onward=onward)
        except RunIsLeased:
            # Who could not have the run again, and had nothing under way, has lost nothing by that.
            self._left = held or self._effect is not None
            await self._abandon()
            raise
        finally:
            self._is_stepped = False
            if self._effect is not None:
                self._set_aside(self._effect)
            if self._idle is not None:
                self._idle.set_result(None)
                self._idle = None

    def _refuse(self, here: asyncio.AbstractEventLoop) -> NoReturn:
        run = self.run
        if self._is_stepped:
            raise RunBusy(run.run_id)
        if self._home not in {here, None}:
            msg = f"run {run.run_id!r} belongs to the event loop that it was begun in; step it there"
            raise UsageError(msg)
        msg = (
            f"run {run.run_id!r} was left in state {run.state!r} with its effect under way, which is lost; "
            "go on with `await agent.resume(run_id)`"
        )
        raise UsageError(msg)

    async def _next_event(self) -> tuple[Event, float]:
        """The event that comes first: one that could not be kept, from the mail, or what the effect brings."""
        if self._unkept is not None:
            return self._unkept
        while True:
            run, task = self.keeper.run, self._effect
            # A finished effect comes before an order to stop, so that no paid reply and no result is dropped.
            done = task is not None and task.done()
            letter = self.mail.next(run, done=done) if self.mail.waiting else None
            if letter is not None:
                return self.mail.take(letter), 0.0
            if task is None:
                if run.waiting:
                    raise WaitingForHuman(run.run_id, tuple(call.id for call in run.waiting))
                if self._next is None:
                    return _APPENDED, 0.0
                if self._alarm.is_late(self.keeper.run):
                    return DeadlinePassed(), 0.0
                await self._begin(self._next)
            elif done:
                self._effect = None
                duration_ms = (self._outside.clock.monotonic() - self._began) * 1000
                if (task.cancelled() or task.exception() is not None) and at_work(run):
                    self.mail.put_first(EffectLost())  # calls that were begun must not be begun anew
                return task.result(), duration_ms
            else:
                self._wake = task.get_loop().create_future()
                try:
                    await self._wake
                finally:
                    self._wake = None

    def _intents(self, effect: Effect, run: RunState) -> Intents:
        assert self._performer is not None  # noqa: S101 - _open made it
        return self._performer.intents(effect, run)

    async def _begin(self, effect: Effect) -> None:
        intents = self._intents(effect, self.run)
        await self.keeper.note(intents, self._outside.clock.time(), then=lambda: self._launch(effect, intents))

    def _launch(self, effect: Effect, intents: Intents) -> None:
        """Begin an effect whose intents are kept."""
        performer = self._performer
        assert performer is not None  # noqa: S101 - _open made it
        # Before the task begins, or an order to stop that comes in between is lost; only tools can be told.
        loop = asyncio.get_running_loop()
        performer.stop = loop.create_future() if isinstance(effect, RunTools) else None
        self._began = self._outside.clock.monotonic()
        effecting = self._perform(performer, effect, intents[0].items)
        self._effect = task = loop.create_task(effecting, name=self.keeper.run.start.run_id)
        task.add_done_callback(self._awake)  # for one that never begins; one that does tells it earlier

    async def _perform(self, performer: Performer, effect: Effect, items: Ranges) -> Event:
        task = self._effect  # none yet where the loop begins a task as it is made (asyncio.eager_task_factory)
        try:
            event = await performer.perform(effect, self.keeper.run, items)
            if not self._is_stepped:
                self.keeper.set_aside(event, self._outside.clock.time())
            return event
        finally:
            self._awake()
            if task is not None:
                task.remove_done_callback(self._awake)

    def _set_aside(self, task: asyncio.Task[Event]) -> None:
        """Keep what the calls of an effect came to that has ended, though nobody takes its event now, or ever."""
        if task.done() and not task.cancelled() and task.exception() is None:
            self.keeper.set_aside(task.result(), self._outside.clock.time())

    async def _take(self, event: Event, duration_ms: float, *, onward: bool) -> Transition:
        """Keep an event and take its transition; onward, also what follows of itself, and the next effect's intents."""
        self._unkept = event, duration_ms  # until it is kept: whatever raises first, a paid reply is not lost
        await self.keeper.turn.acquire()
        try:
            transition = await self._commit(event, duration_ms, onward=onward)
        finally:  # even for a task that was cancelled as it was kept: the run has moved all the same
            self.keeper.turn.release()
            if self._is_effect_over:
                self._is_effect_over = False
                await self._abandon()
        if self._performer is not None and self._performer.raised is not None:
            raised, self._performer.raised = self._performer.raised, None
            raise raised
        return transition

    async def _commit(self, event: Event, duration_ms: float, *, onward: bool) -> Transition:
        """Keep what an event leads to, and be there; who calls has the turn, and ends an effect that is over."""
        self.keeper.collect()
        event = self.keeper.rest_of(event)
        moves = self._moves(event, self._outside.clock.time(), duration_ms, onward=onward)
        last = moves[-1][1]
        effect = self._follows(last) if onward else None
        intents = self._intents(effect, last.run) if effect is not None else None
        letters = self.mail.taken

        def move() -> None:
            self._unkept = None
            self.mail.forget(letters)
            for _, taken in moves:
                self._move(taken)
            if effect is not None and intents is not None:
                self.keeper.noted(intents)
                self._launch(effect, intents)
            elif self._effect is not None:
                self._is_effect_over = not last.transition.stays

        await self.keeper.keep(moves, intents or (), letters, then=move)
        return last.transition

    def _moves(self, event: Event, at: float, duration_ms: float, *, onward: bool) -> list[tuple[Event, Step]]:
        """The steps that an event makes: one, and onward also those that nothing is waited for."""
        machine = self._outside.machine
        if isinstance(event, ApprovalDecided):
            asked = next(move for move in reversed(self.transitions) if not move.stays)
            event = evolve(event, waited=max(0.0, at - asked.at))
        taken = step(machine, self.run, event, at=at, duration_ms=duration_ms)
        moves = [(event, taken)]
        while onward and taken.effect is None and taken.run.stop is None and not self.mail.waiting:
            event = _APPENDED
            taken = step(machine, taken.run, event, at=at)
            moves.append((event, taken))
        return moves

    def _follows(self, last: Step) -> Effect | None:
        """The effect that begins with the last step; none when something else comes first."""
        comes_first = self.mail.waiting or self._alarm.is_late(self.keeper.run)
        if self._effect is not None or comes_first or last.transition.stays:
            return None
        return None if isinstance(last.effect, AskHuman) else last.effect

    def _move(self, taken: Step) -> None:
        """Be in the next state, and let go of what belonged to the last one."""
        moved, transition, self._next = taken.run, taken.transition, taken.effect
        self.keeper.run = moved
        self.transitions.append(transition)
        if moved.stopping is not None and self._performer is not None:
            self._performer.tell_to_stop()
        if moved.stop is not None or "await_approval" in (transition.source, transition.dest):
            self._alarm.set(moved, self.post)
        self.audience.tell(transition)

    async def _begin_call(self, call: ToolCall) -> bool:
        """Keep the intent to run a call before it runs; tells whether it may."""
        assert self._performer is not None  # noqa: S101 - _open made it
        for intent in self.keeper.run.started:
            if intent.call_id == call.id:
                return True
        if self.run.stopping is not None or self._alarm.is_late(self.keeper.run):
            return False
        started = self._performer.intent(call, self.run)
        await self.keeper.note([started], self._outside.clock.time())
        return self.run.stopping is None

    def _call_ended(self, result: ToolResult) -> None:
        self.keeper.receipt(result, self._outside.clock.time())

    async def _abandon(self) -> None:
        """End an effect whose event nobody waits for."""
        task, self._effect = self._effect, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=GRACE)
        if task is not None:
            self._set_aside(task)
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()):
            _log.warning("an effect of run %s failed as it was ended: %r", self.run.run_id, error)
