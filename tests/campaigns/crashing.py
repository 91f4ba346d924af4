"""`Crashing`: a store whose process dies before or after a commit; nobody in it hears of anything any more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger import Entry, Ledger
from through import Through
from turnstile.core.events import Event
from turnstile.ports import Deliver, Lease, Record, Store, Summary

Side = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Death:
    """Where a process dies.

    Attributes:
        side: Before or after the commit is kept.
        of: What the commit holds: the name of a row or of an event that no row takes.
        commit: In place of that: the number of the commit, from 0.
    """

    side: Side
    of: str = ""
    commit: int | None = None

    def __str__(self) -> str:
        return f"{self.side} {self.of or f'commit {self.commit}'}"


class Gone(Exception):
    """The process is dead: what it does from here on never happens."""


class Process:
    """What one process keeps in common, until it dies.

    Args:
        death: Where it dies; ``None`` lets it live.

    Attributes:
        dead: Whether it has died.
        died: Set when it dies.
        leases: The leases that it took; whoever buries it releases them.
    """

    def __init__(self, death: Death | None = None) -> None:
        self.death = death
        self.dead = False
        self.died = asyncio.Event()
        self.leases: list[Lease] = []
        self._commits = 0

    def is_at(self, side: Side, names: Collection[str]) -> bool:
        """Whether this is the place where it dies."""
        if side == "before":
            self._commits += 1
        if self.death is None or self.death.side != side:
            return False
        return self.death.of in names if self.death.of else self.death.commit == self._commits - 1

    async def end(self) -> None:
        """Die: whoever waits for this waits until the process is buried."""
        self.dead = True
        self.died.set()
        await asyncio.Event().wait()

    def check(self) -> None:
        """Refuse to do anything in a process that is dead.

        Raises:
            Gone: It is.
        """
        if self.dead:
            raise Gone


class Crashing(Through):
    """The store of a process that dies.

    Args:
        inner: The real store.
        process: The process.
        kept: The events that the store has, in order; of all processes of one run.
    """

    def __init__(self, inner: Store, process: Process, kept: list[Event]) -> None:
        super().__init__(inner)
        self._process = process
        self._kept = kept

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Die before or after a run begins."""
        await self._die("before", {"RunStarted"})
        lease = await self.inner.create(start, summary, deliver)
        self._process.leases.append(lease)
        self._kept.append(start.event)
        await self._die("after", {"RunStarted"})
        return lease

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Die before or after a run is claimed."""
        await self._die("before", {"claim"})
        lease = await self.inner.claim(run_id, deliver)
        self._process.leases.append(lease)
        await self._die("after", {"claim"})
        return lease

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Die before or after records are kept."""
        names = {record.row or type(record.event).__name__ for record in records}
        await self._die("before", names)
        await self.inner.append(lease, records, summary, letters)
        self._kept.extend(record.event for record in records)
        await self._die("after", names)

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """Learn what other processes have kept."""
        records = await self.inner.load(run_id)
        self._kept[:] = [record.event for record in records]
        return records

    def release(self, lease: Lease) -> None:
        """A dead process releases nothing."""
        if not self._process.dead:
            self.inner.release(lease)

    async def _die(self, side: Side, names: Collection[str]) -> None:
        self._process.check()
        if self._process.is_at(side, names):
            await self._process.end()


class Remembered(Ledger):
    """A ledger in memory.

    Args:
        entries: Where it is written down, by all processes of one run.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def note(self, entry: Entry) -> None:
        """Write an entry down."""
        self._entries.append(entry)

    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, oldest first."""
        return tuple(self._entries)


class Mortal(Ledger):
    """A ledger as a process has it: what is done when it is dead is not written down, for it never happens.

    Args:
        inner: The ledger.
        process: The process.
    """

    def __init__(self, inner: Ledger, process: Process) -> None:
        self._inner = inner
        self._process = process

    def note(self, entry: Entry) -> None:
        """Write an entry down.

        Raises:
            Gone: The process is dead.
        """
        self._process.check()
        self._inner.note(entry)

    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, oldest first."""
        return self._inner.entries()
