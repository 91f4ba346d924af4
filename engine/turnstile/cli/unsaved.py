"""`WatchedStore`: a store that remembers what it could not keep, so that what was paid for can still be shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from turnstile.cli.screen import one_line
from turnstile.cli.wording import counted
from turnstile.core.errors import StoreError
from turnstile.core.events import CallFinished, Event, ModelReplied, ToolsFinished
from turnstile.core.messages import ToolResult
from turnstile.ports import Deliver, Lease, Record, RunEntry, Store, Summary


class WatchedStore:
    """Passes everything on to another store, and remembers the events that it failed to keep.

    Args:
        store: The other store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.unsaved: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        return repr(self._store)

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Add records, as the other store does.

        Raises:
            StoreError: What the other store raises; the events of the records are remembered.
        """
        try:
            await self._store.append(lease, records, summary, letters)
        except StoreError:
            self.unsaved = tuple(record.event for record in records)
            raise

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Begin a run's journal, as the other store does."""
        return await self._store.create(start, summary, deliver)

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Hold a run's lease, as the other store has it."""
        return await self._store.claim(run_id, deliver)

    def release(self, lease: Lease) -> None:
        """Let others claim the run."""
        self._store.release(lease)

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, as the other store has them."""
        return await self._store.load(run_id)

    async def newest(self, session: str) -> str | None:
        """Id of a session's newest run, as the other store has it."""
        return await self._store.newest(session)

    async def post(self, run_id: str, event: Event) -> str:
        """Put a letter into a run's mailbox, as the other store does."""
        return await self._store.post(run_id, event)

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """Stored runs, as the other store has them."""
        return await self._store.runs(most=most, before=before, session=session, live=live)

    async def entry(self, run_id: str) -> RunEntry | None:
        """A run as a list shows it, as the other store has it."""
        return await self._store.entry(run_id)

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """Ids of the runs whose id begins so, as the other store has them."""
        return await self._store.find(prefix, most)

    async def delete(self, run_id: str) -> None:
        """Forget a run, as the other store does."""
        await self._store.delete(run_id)


def told(events: Iterable[Event], written: str) -> str:
    """What events brought that could not be kept, for people: a reply's words, or the tools' results.

    Args:
        events: The events.
        written: What the user has seen of the reply already.
    """
    lines: list[str] = []
    results: list[ToolResult] = []
    for event in events:
        if isinstance(event, ModelReplied):
            lines += _of_reply(event, written)
        elif isinstance(event, ToolsFinished):
            results += event.results
        elif isinstance(event, CallFinished):
            results.append(event.result)
    if results:
        lines.append("unsaved, what the tools did:")
        lines += [f"  {one_line(each.name, 64)} {each.status}: {one_line(each.content, 300)}" for each in results]
    return "\n".join(lines)


def _of_reply(event: ModelReplied, written: str) -> list[str]:
    reply = event.reply
    text = "the reply above" if reply.text == written else f"what the model said:\n{reply.text}"
    calls = f"not run: {counted(call.name for call in reply.calls)}" if reply.calls else ""
    return [f"unsaved, {part}" for part in (text if reply.text else "", calls) if part]
