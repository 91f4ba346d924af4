"""A hundred runs at once on one file: our journal beside the same events written through aiosqlite.

Usage: ``python journal_at_once.py``. It makes an environment of its own (`peers`), and ends with status 1 when ours
keeps less than five times the events a second of one transaction an event through aiosqlite.

Each run awaits one event after the other, as an agent does, and every event is on the disk (WAL, ``synchronous=FULL``)
when its wait is over. The other side writes the event's bytes alone: no seal, no lease, no summary, as ours does. It is
measured as one writes it first, with a transaction for each event, and at its best: one connection that all share, on
which whoever commits also commits what others have written by then. That second way has no transactions of one's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from peers import ROOT, Peer, make_environment
from processes import ENVIRONMENT

RUNS = 100
EVENTS = 50
ROUNDS = 5
BAR = 5.0
TEXT = "a message of the length that tool results often have. " * 8
HOME = Peer("journal", "the journal's comparison", ("--editable", str(ROOT), "aiosqlite==0.22.1"))

Work = Callable[[Path], Awaitable[None]]


async def ours(file: Path) -> None:
    """Each run in our store."""
    from turnstile.core.events import MessageInjected, RunStarted
    from turnstile.ports import Record, Summary
    from turnstile.stores import SQLiteStore

    stands = Summary("await_model")

    async def drive(store: SQLiteStore, number: int) -> None:
        lease = await store.create(Record(RunStarted(f"run {number}", "prompt")), stands, lambda _: None)
        for _ in range(EVENTS):
            await store.append(lease, [Record(MessageInjected(TEXT))], stands)

    async with SQLiteStore(file) as store:
        await asyncio.gather(*(drive(store, number) for number in range(RUNS)))


async def one_transaction_each(file: Path) -> None:
    """Each event in a transaction of its own, one after the other on one connection."""
    await _through_aiosqlite(file, asyncio.Lock())


async def shared(file: Path) -> None:
    """All on one connection at once, where a commit takes along what others have written."""
    await _through_aiosqlite(file, None)


async def _through_aiosqlite(file: Path, turn: asyncio.Lock | None) -> None:
    import aiosqlite

    from turnstile.core.codec import codec
    from turnstile.core.events import MessageInjected

    insert = "INSERT INTO records VALUES (?, ?, ?)"

    async def drive(number: int) -> None:
        for seq in range(EVENTS + 1):
            values = number, seq, codec.encode(MessageInjected(TEXT))
            if turn is None:
                await connection.execute(insert, values)
                await connection.commit()
                continue
            async with turn:
                await connection.execute(insert, values)
                await connection.commit()

    async with aiosqlite.connect(file) as connection:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute("PRAGMA synchronous = FULL")
        await connection.execute("CREATE TABLE records (run INTEGER, seq INTEGER, event BLOB, UNIQUE (run, seq))")
        await asyncio.gather(*(drive(number) for number in range(RUNS)))


WAYS: dict[str, Work] = {
    "SQLiteStore": ours,
    "aiosqlite, a transaction an event": one_transaction_each,
    "aiosqlite, one connection shared": shared,
}


OURS = "SQLiteStore"
FLOORS = {
    "journal_at_once": "aiosqlite, a transaction an event",
    "journal_shared": "aiosqlite, one connection shared",
}
"""What ours stands beside, by the row of the table; the first is what the bar compares with."""


def rates(rounds: int) -> dict[str, list[float]]:
    """Events a second of each way, round by round, measured in the environment that has both."""
    make_environment(HOME)
    done = subprocess.run([HOME.python, __file__, str(rounds)], env=ENVIRONMENT, check=True, capture_output=True)
    readings: dict[str, list[float]] = json.loads(done.stdout)
    return readings


def measured(rounds: int) -> dict[str, list[float]]:
    """All ways in turn, in an order drawn anew for each round."""
    readings: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in random.sample(list(WAYS), len(WAYS)):
            with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:  # on a disk, which /tmp may not be
                start = time.perf_counter()
                asyncio.run(_to_end(WAYS[way], Path(folder) / "journal.db"))
                readings[way].append(RUNS * (EVENTS + 1) / (time.perf_counter() - start))
    return readings


def show() -> int:
    """Print the medians of all ways, and give the exit status."""
    medians = {way: statistics.median(readings) for way, readings in rates(ROUNDS).items()}
    ours_rate, theirs = medians[OURS], medians[FLOORS["journal_at_once"]]
    print(f"{RUNS} runs at once, {EVENTS + 1} events each, on one file; median of {ROUNDS}")
    for way, rate in medians.items():
        ratio = "" if way == OURS else f"   ours is {ours_rate / rate:.1f} x"
        print(f"{way:36}{rate:8,.0f} events/s{ratio}")
    return 0 if ours_rate >= BAR * theirs else 1


async def _to_end(work: Work, file: Path) -> None:
    await work(file)


if __name__ == "__main__":
    if sys.argv[1:]:
        json.dump(measured(int(sys.argv[1])), sys.stdout)
    else:
        sys.exit(show())
