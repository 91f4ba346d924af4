"""Stores that stand before a real one: they hand everything on, and note it, or fail where a campaign says."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from checks_of_records import digest_of
from ledger import Entry, Ledger
from turnstile.core.codec import codec
from turnstile.core.errors import RunIsLeased
from turnstile.core.events import Event
from turnstile.ports import Deliver, Lease, Record, RunEntry, Store, Summary


class Through:
    """Hands all that a store is asked on to another.

    Args:
        inner: The other.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """See `Store.create`."""
        return await self.inner.create(start, summary, deliver)

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """See `Store.claim`."""
        return await self.inner.claim(run_id, deliver)

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """See `Store.append`."""
        await self.inner.append(lease, records, summary, letters)

    def release(self, lease: Lease) -> None:
        """See `Store.release`."""
        self.inner.release(lease)

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """See `Store.load`."""
        return await self.inner.load(run_id)

    async def newest(self, session: str) -> str | None:
        """See `Store.newest`."""
        return await self.inner.newest(session)

    async def post(self, run_id: str, event: Event) -> str:
        """See `Store.post`."""
        return await self.inner.post(run_id, event)

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """See `Store.runs`."""
        return await self.inner.runs(most=most, before=before, session=session, live=live)

    async def entry(self, run_id: str) -> RunEntry | None:
        """See `Store.entry`."""
        return await self.inner.entry(run_id)

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """See `Store.find`."""
        return await self.inner.find(prefix, most)

    async def delete(self, run_id: str) -> None:
        """See `Store.delete`."""
        await self.inner.delete(run_id)


class Unfenced(Through):
    """A mutant: whoever once held a run's lease may write to it, whoever holds it now."""

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Write, under a lease that is taken anew when it is another's."""
        try:
            await self.inner.append(lease, records, summary, letters)
        except RunIsLeased:
            anew = await self.inner.claim(lease.run_id, unheard)
            await self.inner.append(anew, records, summary)
            self.inner.release(anew)


class Noting(Through):
    """Writes down what the store acknowledged, before whoever asked for it hears of that.

    Args:
        inner: The store.
        ledger: Where it is written down.
    """

    def __init__(self, inner: Store, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger
        self._lengths: dict[str, int] = {}

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Note record 1."""
        lease = await self.inner.create(start, summary, deliver)
        self._lengths[lease.run_id] = 1
        self._note(lease, 1, start)
        return lease

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Note what is there already."""
        lease = await self.inner.claim(run_id, deliver)
        records = await self.load(run_id)
        self._ledger.note(Entry("kept", run_id, seq=len(records)))
        return lease

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Note the last of the records; it is kept as well when nobody waits for it any more."""
        number = self._lengths[lease.run_id] = self._lengths[lease.run_id] + len(records)
        await self.inner.append(lease, records, summary, letters)
        self._note(lease, number, records[-1])

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """Learn how many records there are."""
        records = await self.inner.load(run_id)
        self._lengths[run_id] = len(records)
        return records

    def _note(self, lease: Lease, number: int, record: Record) -> None:
        self._ledger.note(Entry("kept", lease.run_id, seq=number, digest=_digest(record), epoch=lease.epoch))


def _digest(record: Record) -> str:
    return digest_of(codec.encode(record.event))


def unheard(_: object) -> None:
    """Let a letter go where none is expected."""
