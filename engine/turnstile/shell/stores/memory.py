"""`MemoryStore`: journals that live as long as the process."""

from __future__ import annotations

from turnstile.core.errors import ConfigurationError, RunExists
from turnstile.core.events import RunStarted
from turnstile.ports import Record


class MemoryStore:
    """Keeps the newest runs in memory; the default of the library, which writes nothing to disk unasked.

    Args:
        keep: How many runs are kept; the oldest is let go for a new one, so that a long-lived process stays small.
    """

    def __init__(self, *, keep: int = 100) -> None:
        if keep < 1:
            msg = f"MemoryStore keeps at least 1 run; got keep={keep!r}"
            raise ConfigurationError(msg)
        self._keep = keep
        self._runs: dict[str, list[Record]] = {}

    async def create(self, start: Record) -> None:
        """Begin a run's journal.

        Raises:
            RunExists: There is a run of that id.
        """
        assert isinstance(start.event, RunStarted)  # noqa: S101 - a caller's bug, not a user's
        run_id = start.event.run_id
        if run_id in self._runs:
            raise RunExists(run_id)
        while len(self._runs) >= self._keep:
            del self._runs[next(iter(self._runs))]
        self._runs[run_id] = [start]

    async def append(self, run_id: str, record: Record) -> None:
        """Add a record; a run that was let go meanwhile is not begun again."""
        records = self._runs.get(run_id)
        if records is not None:
            records.append(record)

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, oldest first; empty for an unknown run."""
        return tuple(self._runs.get(run_id, ()))

    async def newest(self, session: str) -> str | None:
        """Id of the run of that session that began last; ``None`` when there is none."""
        for run_id, records in reversed(self._runs.items()):
            if isinstance(records[0].event, RunStarted) and records[0].event.session == session:
                return run_id
        return None
