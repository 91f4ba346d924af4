"""`MemoryStore`: journals that live as long as the process."""

from __future__ import annotations

import threading

from turnstile.core.errors import ConfigurationError, RunExists
from turnstile.core.events import RunStarted
from turnstile.ports import Record


class MemoryStore:
    """Keeps the newest runs in memory; the default of the library, which writes nothing to disk unasked.

    Args:
        keep: How many runs are kept, so that a long-lived process stays small. For a new one the oldest is let go that
            no session goes on from; where all are some session's newest, the oldest session.
    """

    def __init__(self, *, keep: int = 100) -> None:
        if keep < 1:
            msg = f"MemoryStore keeps at least 1 run; got keep={keep!r}"
            raise ConfigurationError(msg)
        self._keep = keep
        self._runs: dict[str, list[Record]] = {}
        self._newest: dict[str, str] = {}  # the run that each session goes on from
        self._lock = threading.Lock()  # an agent may run in several threads

    async def create(self, start: Record) -> None:
        """Begin a run's journal.

        Raises:
            RunExists: There is a run of that id.
        """
        assert isinstance(start.event, RunStarted)  # noqa: S101 - a caller's bug, not a user's
        run_id, session = start.event.run_id, start.event.session
        with self._lock:
            if run_id in self._runs:
                raise RunExists(run_id)
            if session is not None:
                self._newest[session] = run_id
            while len(self._runs) >= self._keep:
                self._forget_one()
            self._runs[run_id] = [start]

    def _forget_one(self) -> None:
        going_on = {run_id: session for session, run_id in self._newest.items()}
        oldest = next((run_id for run_id in self._runs if run_id not in going_on), next(iter(self._runs)))
        del self._runs[oldest]
        if oldest in going_on:
            del self._newest[going_on[oldest]]

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
        return self._newest.get(session)
