"""Campaign 3: the power goes at any moment, and of what was not synced any part is on the disk, torn at sectors.

A real SQLite writes to a file system that records each operation. A cut is drawn from the record: so a thousand cuts
cost a thousand small files, and no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import apsw

from checks_of_records import chained, digest_of, gapless, kept
from disk import Disk, Platter, mounted
from invariants import INVARIANTS, Checker, violations
from ledger import Entry
from sizes import POWER_CUTS, SEED
from stored import case_of, opened, run_ids
from tally import Tally
from through import unheard
from turnstile.core.codec import codec
from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Lease, Record, Summary
from turnstile.stores import SQLiteStore

PARTS = 3  # how often the store is opened and closed, which empties its log into the file
APPENDS = 8  # by each of two runs at once, which share commits
LEASE = 0.02  # seconds: so that renewals are among what is written, and no lease outlives its cut
EVERY = 50  # of so many cuts, one is looked at in every way, and gone on from with the store itself
WAITING = Summary("await_model")
STORAGE: tuple[Checker, ...] = (gapless, chained, kept)


async def write(path: Path, disk: Disk, synchronous: str = "full") -> None:
    """Two runs at a time that append, each pair to a store of its own."""
    draw = Random(SEED)
    for part in range(PARTS):
        async with SQLiteStore(path, lease=LEASE, synchronous=synchronous) as store:  # type: ignore[arg-type]
            await asyncio.gather(
                *(append(store, disk, f"run {part} {number}", Random(draw.random())) for number in "ab")
            )


async def append(store: SQLiteStore, disk: Disk, run_id: str, draw: Random) -> None:
    """A run, with a mark in the disk's log for each record that was acknowledged."""
    start = Record(RunStarted(run_id, "prompt"), at=1.0)
    lease = await store.create(start, WAITING, unheard)
    seq = acknowledge(disk, lease, 0, [start])
    for number in range(APPENDS):
        text = str(number) * draw.choice((1, 10, 2_000))
        records = [Record(MessageInjected(f"{text} {each}"), row="injected") for each in range(draw.choice((1, 1, 3)))]
        await store.append(lease, records, WAITING)
        seq = acknowledge(disk, lease, seq, records)


def acknowledge(disk: Disk, lease: Lease, seq: int, records: list[Record]) -> int:
    """Mark that records are kept; gives the number of the newest."""
    for number, record in enumerate(records, seq + 1):
        entry = Entry("kept", lease.run_id, seq=number, digest=digest_of(codec.encode(record.event)), epoch=lease.epoch)
        disk.mark(entry)
    return seq + len(records)


def cut_and_look(path: Path, disk: Disk, to: Path, cuts: int, tally: Tally) -> None:
    """Cut the power at drawn moments, oldest first, and look at what is left."""
    draw = Random(SEED)
    moments = sorted(draw.randrange(1, len(disk.log) + 1) for _ in range(cuts))
    platter, done, known = Platter(existing=(str(path),)), 0, list[Entry]()
    for cut, moment in enumerate(moments):
        for operation in disk.log[done:moment]:
            platter.apply(operation)
            known.extend([operation.entry] if operation.entry else [])
        done = moment
        for left in to.iterdir():
            left.unlink()
        platter.cut(draw, to)
        tally.count(f"cut {cut} at operation {moment}", look(to / path.name, known, go_on=cut % EVERY == 0))


def look(path: Path, known: list[Entry], *, go_on: bool) -> list[str]:
    """What is wrong with a file after a cut: each run must be whole as far as it was acknowledged."""
    try:
        there, wrong = _look(path, tuple(known), INVARIANTS if go_on else STORAGE)
        if go_on and not wrong and there:
            asyncio.run(resume(path, there[-1]))
            wrong = _look(path, tuple(known), INVARIANTS)[1]
    except (apsw.Error, ValueError) as error:
        return [f"the file cannot be read: {error}"]
    return wrong


def _look(path: Path, ledger: tuple[Entry, ...], checkers: tuple[Checker, ...]) -> tuple[tuple[str, ...], list[str]]:
    with opened(path) as connection:
        there = run_ids(connection)
        wrong = [f"run {run_id!r} is gone" for run_id in {entry.run for entry in ledger} - {*there}]
        for run_id in there:
            wrong += violations(case_of(connection, run_id, ledger, whole=checkers is INVARIANTS), checkers)
    return there, wrong


async def resume(path: Path, run_id: str) -> None:
    """Go on with a run after the cut, as whoever resumes it would."""
    async with SQLiteStore(path, lease=LEASE) as store:
        lease = await store.claim(run_id, unheard)
        before = await store.load(run_id)
        await store.append(lease, [Record(MessageInjected("after the cut"), row="injected")], WAITING)
        assert len(await store.load(run_id)) == len(before) + 1


def cut_power(counts: Tally, disk: Disk, folder: Path, cuts: int, synchronous: str = "full") -> None:
    """Write to a disk, and cut its power so often."""
    path, to = folder / "runs.db", folder / "left"
    to.mkdir()
    with mounted(disk):
        asyncio.run(write(path, disk, synchronous))
    cut_and_look(path, disk, to, cuts, counts)


def test_no_acknowledged_record_is_lost(memory: Path, tally: Callable[[str], Tally]) -> None:
    """The driver acts on a record as soon as it is acknowledged, so from then on no power cut may take it away."""
    counts = tally("3 power cut")
    cut_power(counts, Disk(), memory, POWER_CUTS.cases)
    counts.verdict()


def test_a_commit_that_does_not_wait_may_be_lost(memory: Path) -> None:
    """`synchronous="normal"` may be chosen by name; the campaign must see what that loses, or it would see nothing."""
    counts = Tally("3 power cut, at NORMAL")
    cut_power(counts, Disk(), memory, 100, "normal")
    assert counts.wrong
    assert all("was acknowledged" in each or "is gone" in each for each in counts.wrong)  # and nothing else is wrong
