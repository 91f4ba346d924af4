"""`MemoryStore`: journals that live as long as the process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice

from turnstile.core.errors import ConfigurationError, NoSuchRun, RunExists, RunFinished, RunIsLeased, SessionBusy
from turnstile.core.events import Event, RunStarted
from turnstile.ports import Deliver, Lease, Letter, Record, RunEntry, Summary
from turnstile.shell.stores.letters import refuse_other_letters
from turnstile.shell.stores.prompts import first_line

_PLACE = "memory"


@dataclass(slots=True)
class _Kept:
    """One run: its journal, how it stands, who holds it, and its letters."""

    start: RunStarted
    records: list[Record]
    summary: Summary
    epoch: int | None = None
    epochs: int = 0  # how often the lease was taken
    deliver: Deliver | None = None
    letters: dict[int, Letter] = field(default_factory=dict)

    def let_go(self) -> None:
        self.epoch = self.deliver = None


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
        self._runs: dict[str, _Kept] = {}  # in the order in which they began
        self._newest: dict[str, str] = {}  # the run that each session goes on from
        self._letters = count(1)
        self._past = 0  # the highest epoch of all runs that are gone, above which that of a new run begins
        self._lock = threading.RLock()  # an agent may run in several threads

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Begin a run's journal, and hold its lease.

        Raises:
            RunExists: There is a run of that id.
            SessionBusy: Another run of its session is under way.
        """
        begun = start.event
        assert isinstance(begun, RunStarted)  # noqa: S101 - a caller's bug, not a user's
        with self._lock:
            if begun.run_id in self._runs:
                raise RunExists(begun.run_id)
            self._refuse_rivals(begun.run_id, begun.session)
            if begun.session is not None:
                if begun.previous not in (None, self._newest.get(begun.session, "")):
                    raise SessionBusy(begun.session)
                self._newest[begun.session] = begun.run_id
            while len(self._runs) >= self._keep:
                self._forget_one()
            self._runs[begun.run_id] = _Kept(begun, [start], summary, epochs=self._past)
            return self._take(begun.run_id, deliver)

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Hold the lease of a run that nobody holds.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds it.
            SessionBusy: Another run of its session is under way.
        """
        with self._lock:
            kept = self._known(run_id)
            if kept.epoch is not None:
                raise RunIsLeased(run_id, _holder(kept))
            self._refuse_rivals(run_id, kept.start.session)
            lease, waiting = self._take(run_id, deliver), tuple(kept.letters.values())
        for letter in waiting:
            deliver(letter)
        return lease

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Add records; a run that was let go meanwhile is not begun again.

        Raises:
            RunIsLeased: Another has taken the lease over, or it was released; nothing was changed.
        """
        with self._lock:
            kept = self._runs.get(lease.run_id)
            if kept is None:
                return
            if kept.epoch != lease.epoch:
                raise RunIsLeased(lease.run_id, _holder(kept) or "nobody now; this lease of it is over")
            kept.records += records
            kept.summary = summary
            for number in letters:
                kept.letters.pop(number, None)
            if summary.reason:
                kept.let_go()
                kept.letters.clear()

    def release(self, lease: Lease) -> None:
        """Let others claim the run."""
        with self._lock:
            kept = self._runs.get(lease.run_id)
            if kept is not None and kept.epoch == lease.epoch:
                kept.let_go()

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, oldest first; empty for an unknown run."""
        with self._lock:
            kept = self._runs.get(run_id)
            return tuple(kept.records) if kept else ()

    async def newest(self, session: str) -> str | None:
        """Id of the run of that session that began last; ``None`` when there is none."""
        return self._newest.get(session)

    async def post(self, run_id: str, event: Event) -> str:
        """Put a letter into a run's mailbox; gives who holds its lease, for people.

        Raises:
            NoSuchRun: There is no such run.
            RunFinished: It has ended.
        """
        refuse_other_letters(event)
        with self._lock:
            kept = self._known(run_id)
            if kept.summary.reason:
                raise RunFinished(run_id, kept.summary.state)
            letter = Letter(next(self._letters), event)
            kept.letters[letter.number] = letter
            deliver, holder = kept.deliver, _holder(kept)
        if deliver is not None:
            with suppress(RuntimeError):  # its event loop has ended; the letter waits for who claims the run next
                deliver(letter)
        return holder

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """Stored runs, the newest first.

        Raises:
            NoSuchRun: There is no run `before`.
        """
        with self._lock:
            newest_first = list(reversed(self._runs))
            if before is not None:
                self._known(before)
                newest_first = newest_first[newest_first.index(before) + 1 :]
            wanted = (
                kept
                for kept in map(self._runs.__getitem__, newest_first)
                if (session is None or kept.start.session == session) and not (live and kept.summary.reason)
            )
            return tuple(_entry(kept) for kept in islice(wanted, max(most, 0)))

    async def entry(self, run_id: str) -> RunEntry | None:
        """A run as a list shows it; ``None`` for an unknown one."""
        with self._lock:
            kept = self._runs.get(run_id)
            return None if kept is None else _entry(kept)

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """Ids of the runs whose id begins so, sorted."""
        with self._lock:
            return tuple(sorted(run_id for run_id in self._runs if run_id.startswith(prefix))[: max(most, 0)])

    async def delete(self, run_id: str) -> None:
        """Forget a run.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds its lease.
        """
        with self._lock:
            kept = self._known(run_id)
            if kept.epoch is not None:
                raise RunIsLeased(run_id, _holder(kept))
            self._remove(run_id)
            session = kept.start.session
            if session is not None and self._newest[session] == run_id:
                del self._newest[session]
                for other, rest in self._runs.items():
                    if rest.start.session == session:
                        self._newest[session] = other

    def _remove(self, run_id: str) -> None:
        self._past = max(self._past, self._runs.pop(run_id).epochs)

    def _known(self, run_id: str) -> _Kept:
        try:
            return self._runs[run_id]
        except KeyError:
            raise NoSuchRun(_PLACE, run_id) from None

    def _take(self, run_id: str, deliver: Deliver) -> Lease:
        kept = self._runs[run_id]
        kept.epochs += 1
        kept.epoch, kept.deliver = kept.epochs, deliver
        return Lease(run_id, kept.epoch)

    def _refuse_rivals(self, run_id: str, session: str | None) -> None:
        for other, kept in self._runs.items() if session is not None else ():
            if kept.start.session == session and other != run_id and kept.epoch is not None:
                raise SessionBusy(session or "")

    def _forget_one(self) -> None:
        going_on = {run_id: session for session, run_id in self._newest.items()}
        oldest = next((run_id for run_id in self._runs if run_id not in going_on), next(iter(self._runs)))
        self._remove(oldest)
        if oldest in going_on:
            del self._newest[going_on[oldest]]


def _holder(kept: _Kept) -> str:
    return "" if kept.epoch is None else f"process {os.getpid()} on host {socket.gethostname()!r}"


def _entry(kept: _Kept) -> RunEntry:
    first, last = kept.records[0], kept.records[-1]
    return RunEntry(
        run_id=kept.start.run_id,
        agent=kept.start.agent,
        session=kept.start.session,
        prompt=first_line(kept.start.prompt),
        started=first.at,
        at=last.at,
        records=len(kept.records),
        summary=kept.summary,
        holder=_holder(kept),
    )
