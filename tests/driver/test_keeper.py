"""`Keeper`: what a run becomes is in its journal first, once and in order, whatever happens to who awaits that."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Collection, Sequence

import pytest

from turnstile import Agent
from turnstile.core.errors import RunExists, RunIsLeased, StoreFull, UsageError
from turnstile.core.events import CallFinished, EffectBegun, MessageInjected, RunStarted
from turnstile.core.machine import loop
from turnstile.core.messages import ToolResult
from turnstile.core.run_state import begin_run
from turnstile.core.step import step
from turnstile.driver.keeper import Keeper, summary_of
from turnstile.ports import Deliver, Lease, Record, Summary
from turnstile.stores import MemoryStore
from turnstile.testing import ScriptedModel

START = RunStarted("r", "go")


class Gated(MemoryStore):
    """A store that says when it begins something, goes on when it may, and fails as often as it is told.

    Attributes:
        begun: Set while something is under way.
        may_end: Whether it may be kept.
        fails: How often it still fails.
        appends: How many records each successful append had.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.fails = 0
        self.appends: list[int] = []

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Create, once it may."""
        await self._gate()
        return await super().create(start, summary, deliver)

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Claim, once it may."""
        lease = await super().claim(run_id, deliver)
        try:
            await self._gate()
        except asyncio.CancelledError:
            self.release(lease)
            raise
        return lease

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Append, once it may, although who awaits it is cancelled meanwhile."""
        written = asyncio.ensure_future(self._append(lease, records, summary, letters))
        try:
            await asyncio.shield(written)
        except asyncio.CancelledError:
            await asyncio.wait([written])
            written.result()  # raises what went wrong
            raise

    async def _append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int]
    ) -> None:
        await self._gate()
        await super().append(lease, records, summary, letters)
        self.appends.append(len(records))

    async def _gate(self) -> None:
        self.begun.set()
        await self.may_end.wait()
        if self.fails:
            self.fails -= 1
            raise StoreFull("here", "the disk is full")


def deliver(_: object) -> None:
    """No letter is awaited."""


async def kept(store: MemoryStore) -> list[str]:
    """Names of the kept events."""
    return [type(record.event).__name__ for record in await store.load("r")]


async def opened(store: MemoryStore) -> Keeper:
    """A keeper whose journal is begun."""
    keeper = Keeper(store, begin_run(START))
    await keeper.create(Record(START), deliver)
    return keeper


async def test_a_journal_is_begun_once() -> None:
    """A task that waited for its beginning may be cancelled, and the next one waits for the same."""
    store = Gated()
    store.may_end.clear()
    keeper = Keeper(store, begin_run(START))
    assert not keeper.created
    first = asyncio.create_task(keeper.create(Record(START), deliver))
    await store.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert keeper.created
    store.may_end.set()
    await keeper.create(Record(START), deliver)
    assert await kept(store) == ["RunStarted"]


async def test_a_beginning_that_failed_may_be_tried_again() -> None:
    """A disk that was full for a moment does not make a run unusable; a taken id does."""
    store = Gated()
    store.fails = 1
    keeper = Keeper(store, begin_run(START))
    with pytest.raises(StoreFull):
        await keeper.create(Record(START), deliver)
    assert not keeper.created
    await keeper.create(Record(START), deliver)
    with pytest.raises(RunExists):
        await Keeper(store, begin_run(START)).create(Record(START), deliver)


async def test_the_state_moves_when_the_journal_has_why() -> None:
    """Not before, so that nothing is acted upon that a crash would make undone; and not at all if it fails."""
    store = Gated()
    keeper = await opened(store)
    event = MessageInjected("hello")
    taken = step(loop, keeper.run, event, at=1.0)
    moved: list[int] = []

    def then() -> None:
        moved.append(1)
        keeper.run = taken.run

    store.fails = 1
    with pytest.raises(StoreFull):
        await keeper.keep([(event, taken)], [EffectBegun()], (), then)
    assert (moved, keeper.run.inbox) == ([], ())
    await keeper.keep([(event, taken)], [EffectBegun()], (), then)
    assert moved == [1]
    assert [(record.row, record.at) for record in await store.load("r")][1:] == [("injected", 1.0), ("", 1.0)]


async def test_who_is_cancelled_while_it_is_kept_has_moved() -> None:
    """The store goes on with what it was given; a run that did not would do the same once more.

    And not before it is kept, or an effect would begin whose intent a crash takes away.
    """
    store = Gated()
    keeper = await opened(store)
    store.begun.clear()
    store.may_end.clear()
    keeping = asyncio.create_task(keeper.note([EffectBegun()], 1.0))
    await store.begun.wait()
    keeping.cancel()
    await asyncio.sleep(0)
    assert not keeper.run.in_flight
    store.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert keeper.run.in_flight
    assert await kept(store) == ["RunStarted", "EffectBegun"]


async def test_receipts_are_kept_soon_and_together() -> None:
    """What ends at the same moment shares a commit, and comes before what is kept next."""
    store = Gated()
    keeper = await opened(store)
    keeper.receipt(ToolResult("a", "pay", "done"), 1.0)
    keeper.receipt(ToolResult("b", "pay", "done"), 2.0)
    await keeper.note([EffectBegun()], 3.0)
    assert await kept(store) == ["RunStarted", "CallFinished", "CallFinished", "EffectBegun"]
    assert store.appends == [3]
    await keeper.flush()  # nothing is owed any more
    assert store.appends == [3]


async def test_a_receipt_that_could_not_be_kept_comes_with_the_next_write(caplog: pytest.LogCaptureFixture) -> None:
    """A result is never lost for a disk that was full for a moment, and never kept twice; the log says what went on."""
    caplog.set_level(logging.INFO, "turnstile")
    store = Gated()
    keeper = await opened(store)
    store.fails = 1
    keeper.receipt(ToolResult("a", "pay", "done"), 1.0)
    await keeper.flush()
    assert await kept(store) == ["RunStarted"]
    assert "receipts of run r are not kept yet: store 'here': the disk is full" in caplog.text
    keeper.receipt(ToolResult("b", "pay", "done"), 2.0)
    await keeper.flush()
    finished = [
        record.event.result.call_id for record in await store.load("r") if isinstance(record.event, CallFinished)
    ]
    assert finished == ["a", "b"]


async def test_a_receipt_that_comes_while_others_are_written_is_kept_soon() -> None:
    """The next move may be an hour away while another call is at work, and a crash until then puts it in doubt."""
    store = Gated()
    keeper = await opened(store)
    store.begun.clear()
    store.may_end.clear()
    keeper.receipt(ToolResult("a", "pay", "done"), 1.0)
    await store.begun.wait()
    keeper.receipt(ToolResult("b", "pay", "done"), 2.0)
    store.may_end.set()
    assert keeper._flushing is not None
    await keeper._flushing
    assert await kept(store) == ["RunStarted", "CallFinished", "CallFinished"]


async def test_a_lease_that_was_let_go_is_had_again() -> None:
    """A run that was left and is driven again by the same program goes on, if nobody had it meanwhile."""
    store = MemoryStore()
    keeper = await opened(store)
    await keeper.regain(deliver)  # it has it
    keeper.release()
    keeper.release()  # a second time changes nothing
    await keeper.regain(deliver)
    await keeper.note([EffectBegun()], 1.0)
    keeper.release()
    lease = await store.claim("r", deliver)
    with pytest.raises(RunIsLeased):
        await keeper.regain(deliver)
    store.release(lease)
    with pytest.raises(UsageError, match="run 'r' was driven by another since it was left here"):
        await keeper.regain(deliver)
    store.release(await store.claim("r", deliver))  # what it refused to go on with is free for others


async def test_a_lease_is_had_again_although_who_asked_for_it_is_cancelled() -> None:
    """A claim that was given back would look as if another had driven the run meanwhile."""
    store = Gated()
    keeper = await opened(store)
    keeper.release()
    store.begun.clear()
    store.may_end.clear()
    regaining = asyncio.create_task(keeper.regain(deliver))
    await store.begun.wait()
    regaining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await regaining
    store.may_end.set()
    await keeper.regain(deliver)
    await keeper.note([EffectBegun()], 1.0)
    keeper.release()
    await keeper.regain(deliver)  # and whenever it is let go
    await keeper.note([EffectBegun()], 2.0)


async def test_without_a_lease_there_is_nothing_to_have_again() -> None:
    """A run that was never opened holds nothing, and letting go of it is no error."""
    keeper = Keeper(MemoryStore(), begin_run(START))
    keeper.release()
    await keeper.regain(deliver)


async def test_a_keeper_that_is_forgotten_holds_nobody_up() -> None:
    """A program that drops a run without leaving it must not keep others from it."""
    store = MemoryStore()
    keeper = await opened(store)
    del keeper
    gc.collect()
    store.release(await store.claim("r", deliver))


async def test_a_journal_whose_beginning_nobody_awaited_holds_nobody_up() -> None:
    """A program may be told to stop while its run begins, and drop it."""
    store = Gated()
    store.may_end.clear()
    keeper = Keeper(store, begin_run(START))
    creating = asyncio.create_task(keeper.create(Record(START), deliver))
    await store.begun.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    begun = keeper._creating
    assert begun is not None
    store.may_end.set()
    await begun
    del keeper, creating, begun
    gc.collect()
    store.release(await store.claim("r", deliver))


def test_a_summary_says_how_a_run_stands() -> None:
    """Lists read no journal, so what they show is kept beside it."""
    assert summary_of(begin_run(START)) == Summary("await_model")


async def test_a_run_whose_last_write_failed_is_not_had_again() -> None:
    """It may be kept all the same, and what the handle knows would then stand in the journal twice."""

    class Failing(MemoryStore):
        fails = False

        async def append(
            self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
        ) -> None:
            """Keep it, and say that nobody knows."""
            await super().append(lease, records, summary, letters)
            if self.fails:
                raise StoreFull("the disk", "no space left")

    store = Failing()
    agent = Agent(ScriptedModel(["hello"]), store=store)
    async with agent.start("hi", run_id="r") as run:
        store.fails = True
        with pytest.raises(StoreFull):
            await run.step()
    store.fails = False
    with pytest.raises(UsageError, match=r"may be kept or not; go on with `await agent.resume"):
        await run.step()
    assert (await (await agent.resume("r")).finish()).output == "hello"
