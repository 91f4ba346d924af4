"""`WatchedStore`: a store that remembers what it could not keep, so that what was paid for can still be shown."""

from __future__ import annotations

from turnstile.cli.screen import one_line
from turnstile.cli.wording import counted
from turnstile.core.errors import StoreError
from turnstile.core.events import Event, ModelReplied, ToolsFinished
from turnstile.ports import Record, Store


class WatchedStore:
    """Passes everything on to another store, and remembers the event that it failed to keep.

    Args:
        store: The other store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.unsaved: Event | None = None

    async def create(self, start: Record) -> None:
        """Begin a run's journal, as the other store does."""
        await self._store.create(start)

    async def append(self, run_id: str, record: Record) -> None:
        """Add a record, as the other store does.

        Raises:
            StoreError: What the other store raises; the record's event is remembered.
        """
        try:
            await self._store.append(run_id, record)
        except StoreError:
            self.unsaved = record.event
            raise

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, as the other store has them."""
        return await self._store.load(run_id)

    async def newest(self, session: str) -> str | None:
        """Id of a session's newest run, as the other store has it."""
        return await self._store.newest(session)


def told(event: Event | None, written: str) -> str:
    """What an event brought that could not be kept, for people: a reply's words, or the tools' results.

    Args:
        event: The event; ``None`` when nothing was lost.
        written: What the user has seen of the reply already.
    """
    if isinstance(event, ModelReplied):
        reply = event.reply
        text = "the reply above" if reply.text == written else f"what the model said:\n{reply.text}"
        calls = f"not run: {counted(call.name for call in reply.calls)}" if reply.calls else ""
        return "\n".join(f"unsaved, {part}" for part in (text if reply.text else "", calls) if part)
    if isinstance(event, ToolsFinished):
        lines = [f"  {one_line(each.name, 64)} {each.status}: {one_line(each.content, 300)}" for each in event.results]
        return "\n".join(["unsaved, what the tools did:", *lines])
    return ""
