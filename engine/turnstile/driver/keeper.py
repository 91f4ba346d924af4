"""`Keeper`: a run's journal as its driver writes it, and the run's state, which moves once the journal has why.

One thing is written at a time, in the order in which it happened: a move, the intents of an effect, or the receipts of
calls. Whoever awaits a write may be cancelled: it is kept all the same, and the state moves (`Store.append`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from turnstile.core.errors import StoreError, TurnstileError, UsageError
from turnstile.core.events import CallFinished, Event, RunStarted, ToolsFinished
from turnstile.core.messages import ToolResult
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import Step, note
from turnstile.core.values import evolve
from turnstile.ports import Deliver, Lease, Record, Store, Summary

_log = logging.getLogger("turnstile")


class Keeper:
    """Writes a run's journal, and has its state.

    Args:
        store: Keeps it.
        run: The run as it is now.

    Attributes:
        run: The run after all that is kept.
        turn: Held by who writes, so that each write begins where the one before has led.
        holds: Whether its lease is ours.
    """

    __slots__ = (
        "_arrived",
        "_creating",
        "_flushing",
        "_is_in_doubt",
        "_lease",
        "_owed",
        "_regaining",
        "_store",
        "holds",
        "run",
        "turn",
    )

    def __init__(self, store: Store, run: RunState) -> None:
        self.run = run
        self.holds = False
        self.turn = asyncio.Lock()
        self._store = store
        self._creating: asyncio.Future[None] | None = None
        self._regaining: asyncio.Future[None] | None = None
        self._lease: Lease | None = None
        self._arrived: tuple[Record, ...] = ()  # receipts that the state does not have yet
        self._owed: tuple[Record, ...] = ()  # receipts that it has, and the store has not
        self._flushing: asyncio.Task[None] | None = None
        self._is_in_doubt = False  # whether the last write failed, which may have been kept all the same

    async def create(self, start: Record, deliver: Deliver) -> None:
        """Begin the journal, once, however often this is called: a task that awaited it may have been cancelled.

        Raises:
            RunExists: The store has a run of this id.
            SessionBusy: Its session has a run under way.
        """
        if self._lease is not None:
            return
        if self._creating is None:
            assert isinstance(start.event, RunStarted)  # noqa: S101 - the driver's own
            if start.event is not self.run.start:
                self.run = begin_run(start.event)
            self._creating = asyncio.ensure_future(self._create(start, deliver))
        try:
            await asyncio.shield(self._creating)
        except Exception:
            self._creating = None
            raise
        self._creating = None  # the lease says that it is done, and a task holds much

    async def _create(self, start: Record, deliver: Deliver) -> None:
        self.hold(await self._store.create(start, summary_of(self.run), deliver))

    @property
    def created(self) -> bool:
        """Whether the journal has been begun, though perhaps nobody has waited for it."""
        return self._creating is not None or self._lease is not None

    def hold(self, lease: Lease) -> None:
        """Write under this lease; it is let go when the run is, or is forgotten."""
        self._lease, self.holds = lease, True

    def release(self) -> None:
        """Let others have the run."""
        if self.holds and self._lease is not None:
            self.holds = False
            self._store.release(self._lease)

    def __del__(self) -> None:
        """Let others have a run that is forgotten; a process that ends holds nothing any more."""
        if self.holds and not sys.is_finalizing():
            with suppress(UsageError):  # nor does one that was forked: the lease is its parent's
                self.release()

    async def regain(self, deliver: Deliver) -> None:
        """Have the run again after it was let go, if nobody had it meanwhile.

        Raises:
            RunIsLeased: Somebody drives it.
            UsageError: Somebody did, or it isn't known what was kept last.
        """
        if self._lease is None or self.holds:
            return
        if self._is_in_doubt:
            msg = (
                f"the last that was written of run {self._lease.run_id!r} may be kept or not; "
                "go on with `await agent.resume(run_id)`, which reads what was"
            )
            raise UsageError(msg)
        if self._regaining is None or self._regaining.done():
            self._regaining = asyncio.ensure_future(self._claim(self._lease, deliver))
        await asyncio.shield(self._regaining)

    async def _claim(self, had: Lease, deliver: Deliver) -> None:
        """Claim the run anew, to the end: who gave a claim back half-way could not tell it from another's."""
        lease = await self._store.claim(had.run_id, deliver)
        if lease.epoch != had.epoch + 1:
            self._store.release(lease)
            msg = (
                f"run {had.run_id!r} was driven by another since it was left here; "
                "go on with `await agent.resume(run_id)`"
            )
            raise UsageError(msg)
        self.hold(lease)

    def keep(
        self,
        moves: Sequence[tuple[Event, Step]],
        intents: Iterable[Event],
        letters: Sequence[int],
        then: Callable[[], None],
    ) -> Awaitable[None]:
        """Keep moves, and the intents of the effect that begins with the last one; then do what follows from it.

        The caller has the turn, and has seen the receipts (`collect`).

        Raises:
            RunIsLeased: Another process has taken the run over.
            StoreError: It may not have been kept.
        """
        last = moves[-1][1]
        records = [
            Record(event, taken.transition.at, taken.transition.duration_ms, taken.transition.row)
            for event, taken in moves
        ]
        records += [Record(intent, last.transition.at) for intent in intents]
        return self._append(records, last.run, letters, then)

    async def note(self, events: Sequence[Event], at: float, then: Callable[[], None] = lambda: None) -> None:
        """Keep what no row takes; then the state has it, and `then` is called."""

        def move() -> None:
            self.noted(events)
            then()

        async with self.turn:
            self.collect()
            await self._append([Record(event, at) for event in events], self.run, (), move)

    def noted(self, events: Iterable[Event]) -> None:
        """Have in the state what is kept."""
        for event in events:
            self.run = note(self.run, event)

    def receipt(self, result: ToolResult, at: float) -> None:
        """Keep a call's result soon; what is kept next has it before it."""
        self._arrived += (Record(CallFinished(result), at),)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self.flush())

    def set_aside(self, event: Event, at: float) -> None:
        """Keep what calls came to, as far as it isn't kept, before the event is taken that brings it.

        While nobody steps the run, none is taken, and the run may be left or lost. That an outcome is unknown is said
        by an intent without a result, too.
        """
        if not isinstance(event, ToolsFinished):
            return
        kept = {result.call_id for result in self.run.receipts} | {
            record.event.result.call_id for record in self._arrived if isinstance(record.event, CallFinished)
        }
        begun = {intent.call_id for intent in self.run.started} - kept
        for result in event.results:
            if result.call_id in begun and result.status in {"ok", "error"}:
                self.receipt(result, at)

    def rest_of(self, event: Event) -> Event:
        """An event that is taken now, without the results that were set aside before."""
        if not isinstance(event, ToolsFinished) or not self.run.receipts:
            return event
        kept = {result.call_id for result in self.run.receipts}
        return evolve(event, results=tuple([result for result in event.results if result.call_id not in kept]))

    def collect(self) -> None:
        """Have the receipts in the state that have come; whoever writes next keeps them."""
        if self._arrived:
            arrived, self._arrived = self._arrived, ()
            self._owed += arrived
            self.noted(record.event for record in arrived)

    async def flush(self) -> None:
        """Keep the receipts that have come; what goes wrong shows when the next move is kept, which needs them too."""
        while self._arrived or self._owed:  # while some are written, more may come
            async with self.turn:
                self.collect()
                if not self._owed:  # who had the turn has kept them
                    return
                try:
                    await self._append([], self.run, (), lambda: None)
                except TurnstileError as error:
                    _log.info("receipts of run %s are not kept yet: %s", self.run.run_id, error)
                    return

    async def _append(
        self, records: Sequence[Record], after: RunState, letters: Sequence[int], then: Callable[[], None]
    ) -> None:
        assert self._lease is not None  # noqa: S101 - nothing is written before the run is opened
        owed = len(self._owed)
        try:
            await self._store.append(self._lease, (*self._owed, *records), summary_of(after), letters)
        except asyncio.CancelledError:
            self._kept(owed, then)  # the store says so once it has it, so the run goes on: else it would be repeated
            raise
        except StoreError:
            self._is_in_doubt = True
            raise
        self._kept(owed, then)

    def _kept(self, owed: int, then: Callable[[], None]) -> None:
        """Owe what was written no more, and do what follows from it."""
        if owed:
            self._owed = self._owed[owed:]
        self._is_in_doubt = False
        then()


def summary_of(run: RunState) -> Summary:
    """How a run stands, for lists."""
    reason = run.stop.reason if run.stop else ""
    return Summary(run.state, reason, run.turns, run.usage.total_tokens, run.cost)
