"""`SQLiteStore`: journals in one file, kept before anything acts on them.

What is acknowledged survives a crash of the process and a power cut: each commit waits until the disk has it (WAL
with ``synchronous=FULL``). One thread writes, and what many runs append at the same time shares a commit
(`sqlite_writer`). Another thread reads, on a connection of its own, so that neither waits for the other. Several
processes may use one file: each run is written by who holds its lease (`leases`), and reached through its mailbox.

SQLite itself comes with `apsw`: the one in most Pythons can corrupt a file that two connections use
(sqlite.org/wal.html, "The WAL-Reset Bug", fixed in 3.51.3).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from numbers import Real
from os import PathLike
from typing import Literal, ParamSpec, Self, TypeVar

import apsw

from turnstile.core.errors import (
    ConfigurationError,
    RunExists,
    RunFinished,
    RunIsLeased,
    SessionBusy,
    StoreError,
    UsageError,
)
from turnstile.core.events import Event, RunStarted
from turnstile.core.expecting import expect
from turnstile.ports import Deliver, Lease, Record, Summary
from turnstile.shell.stores import sqlite_lists, sqlite_rows
from turnstile.shell.stores.leases import HolderUnknown, Leases, Watch
from turnstile.shell.stores.letters import refuse_other_letters
from turnstile.shell.stores.sqlite_file import Channel
from turnstile.shell.stores.sqlite_held import HeldLeases
from turnstile.shell.stores.sqlite_reading import Reading
from turnstile.shell.stores.sqlite_rows import name
from turnstile.shell.stores.sqlite_writer import Writer

P = ParamSpec("P")
T = TypeVar("T")


class SQLiteStore(Reading):
    """Keeps journals in a SQLite file, on a local disk.

    The file is opened at the first use; it and its folder are made when they are missing, the file readable by its
    owner alone. A store may be used from several event loops, one after another or at once.

    Args:
        path: The file.
        events: Those of an extended machine, besides the engine's own.
        wait: How long to wait for another process that has the file locked, in seconds.
        lease: How long a run stays this store's without a sign of life, in seconds. When the process has ended, others
            on the same host don't wait for that; on other hosts they do.
        synchronous: ``"normal"`` does not wait for the disk at each commit. It survives a crash of the process as well;
            but a power cut or a crash of the system takes away what was acknowledged in the last moments before it, as
            nearly every one does, so that a resumed run may do again what it had done.

    Raises:
        ConfigurationError: The path names no file, a number or a word is none that it may be, or an event cannot be
            written as JSON.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        events: Iterable[type[Event]] = (),
        wait: float = 10.0,
        lease: float = 15.0,
        synchronous: Literal["full", "normal"] = "full",
    ) -> None:
        for what, seconds in (("wait", wait), ("lease", lease)):
            expect(f"SQLiteStore's {what}", seconds, Real, "a number of seconds")
        if not wait >= 0 or not lease > 0:
            raise ConfigurationError(f"SQLiteStore needs wait >= 0 and lease > 0 seconds; got {wait!r} and {lease!r}")
        if synchronous not in ("full", "normal"):
            raise ConfigurationError(f"SQLiteStore needs synchronous 'full' or 'normal'; got {synchronous!r}")
        super().__init__(path, events=events, wait=wait, synchronous=synchronous)
        self._writing = Channel(self.path, wait, synchronous, writes=True)
        self._writer = Writer(self._writing, self._place)
        self._leases = Leases(self._me, lease, self._place)
        self._taking: list[list[Lease]] = []  # what is being taken, each with the lease once it is written
        self._held = HeldLeases(self._writer, self._reading, self._codec, lease)

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Begin a run's journal with its `RunStarted`, and hold its lease.

        Raises:
            RunExists: There is a run of that id; nothing was changed.
            SessionBusy: Another run of its session is under way.
            StoreError: It could not be kept.
        """
        self._check_usable()
        begun = start.event
        assert isinstance(begun, RunStarted)  # noqa: S101 - a caller's bug, not a user's
        run_id, session = name("run_id", begun.run_id), begun.session and name("session", begun.session)
        name("agent", begun.agent)
        record, stands = sqlite_rows.columns(start, self._codec), sqlite_rows.standing(summary)

        def write(connection: apsw.Connection, watch: Watch) -> int:
            if sqlite_rows.head(connection, self._place, run_id) is not None:
                raise RunExists(run_id)
            self._leases.refuse_rivals(connection, run_id, session, watch)
            if session and begun.previous not in (None, sqlite_lists.newest(connection, session) or ""):
                raise SessionBusy(session)
            epoch = self._leases.take(connection, sqlite_rows.begin(connection, begun, record, stands))
            self._writer.trust(run_id)
            return epoch

        return await self._hold(run_id, write, deliver, is_new=True)

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Hold the lease of a run that is there: nobody holds it, or its holder is gone.

        A holder on another host is watched until it shows a sign of life, or its lease has run out.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds it; the error says who.
            SessionBusy: Another run of its session is under way.
            StoreError: It could not be kept.
        """
        self._check_usable()
        name("run_id", run_id)

        def write(connection: apsw.Connection, watch: Watch) -> int:
            run = sqlite_rows.known_head(connection, self._place, run_id)
            self._leases.refuse_held(connection, run_id, run.number, watch)
            self._leases.refuse_rivals(connection, run_id, run.session, watch)
            self._writer.trust(run_id)  # who claims it reads it, and what was given to the writer before is refused now
            return self._leases.take(connection, run.number)

        return await self._hold(run_id, write, deliver, is_new=False)

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Add records to a run's journal, all or none, and take letters out of its mailbox, as one transaction.

        Once called it goes on: a task that is cancelled meanwhile hears so when the records are kept.

        Raises:
            NoSuchRun: The run was deleted.
            RunIsLeased: Another has taken the lease over, or it was released; nothing was changed.
            StoreError: It may not have been kept. The run takes no more records before it is claimed anew.
        """
        self._check_usable()
        run_id = name("run_id", lease.run_id)
        rows, stands = [sqlite_rows.columns(record, self._codec) for record in records], sqlite_rows.standing(summary)

        def write(connection: apsw.Connection) -> None:
            self._writer.check(run_id)
            run = sqlite_rows.known_head(connection, self._place, run_id)
            if run.epoch != lease.epoch:
                self._held.remove(lease)
                now = self._leases.of_run(connection, run.number)
                raise RunIsLeased(run_id, str(now.holder) if now else "nobody now; this lease of it is over")
            sqlite_rows.add(connection, run, rows, stands)
            if letters:
                sqlite_rows.take_letters(connection, run.number, letters)
            if summary.reason:
                sqlite_rows.let_go(connection, run.number)

        await self._writer.keep(run_id, write)
        if summary.reason:
            self._held.remove(lease)

    def release(self, lease: Lease) -> None:
        """Let others claim the run, after all that was given to `append` is kept. Nobody need wait for it."""
        if self._closed:  # which released it
            return
        self._check_usable()
        self._held.give_back(lease, lambda connection: self._leases.give_back(connection, lease))

    async def post(self, run_id: str, event: Event) -> str:
        """Put a letter into a run's mailbox, for whoever holds its lease or will; gives that holder, for people.

        Raises:
            NoSuchRun: There is no such run.
            RunFinished: It has ended.
            StoreError: It could not be kept.
        """
        self._check_usable()
        refuse_other_letters(event)
        name("run_id", run_id)
        text = self._codec.encode(event)

        def write(connection: apsw.Connection) -> str:
            run = sqlite_rows.known_head(connection, self._place, run_id)
            if run.reason:
                raise RunFinished(run_id, run.state)
            connection.execute("INSERT INTO mailbox (run, event) VALUES (?, ?)", (run.number, text))
            return self._leases.whose(connection, run.number)

        holder = await self._writer.submit(run_id, write)
        self._reading.submit(self._held.poll)  # this store may be the holder's
        return holder

    async def delete(self, run_id: str) -> None:
        """Forget a run and all that was kept of it.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds its lease.
            StoreError: It could not be kept that it is gone.
        """
        self._check_usable()
        name("run_id", run_id)

        def write(connection: apsw.Connection, watch: Watch) -> None:
            run = sqlite_rows.known_head(connection, self._place, run_id)
            self._leases.refuse_held(connection, run_id, run.number, watch)
            sqlite_rows.delete(connection, run.number)
            self._writer.trust(run_id)

        await self._contend(run_id, write)

    async def aclose(self) -> None:
        """Write what is waiting, release all leases, close the file, and end the threads.

        A store that is closed stays closed. Without this nothing is lost: the process ends after all that was given to
        the store is written.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._me.pid:  # forked: threads, file and leases are all its parent's
            return
        leases, taking = self._held.close(), list(self._taking)
        if leases or taking:
            # What is being taken at this moment is known once it is written, which comes first.
            self._writer.leave(lambda connection: self._leases.give_back(connection, *leases, *chain(*taking)))
        self._writer.close()
        for channel in (self._writing, self._reading):
            await asyncio.wrap_future(channel.submit(channel.close))
            channel.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _hold(
        self, run_id: str, write: Callable[[apsw.Connection, Watch], int], deliver: Deliver, *, is_new: bool
    ) -> Lease:
        """Take a lease, and hold it; when nobody waits for it any more, give it back."""
        taken: list[Lease] = []

        def take(connection: apsw.Connection, watch: Watch) -> Lease:
            taken.append(Lease(run_id, write(connection, watch)))
            return taken[0]

        self._taking.append(taken)
        try:
            lease = await self._contend(run_id, take)
            self._check_usable()  # it may have been closed meanwhile, which gave the lease back
            self._held.add(lease, deliver)
            if not is_new:
                with suppress(StoreError):  # the next look at the mailbox may succeed
                    await asyncio.wrap_future(self._reading.submit(self._held.poll))
        except UsageError:  # a refusal: nothing was written
            raise
        except BaseException:
            # The commit may still be under way, or have failed in a way that leaves open what was kept.
            self._writer.leave(lambda connection: self._give_back(connection, *taken))
            raise
        finally:
            self._taking = [other for other in self._taking if other is not taken]
        return lease

    def _give_back(self, connection: apsw.Connection, *leases: Lease) -> None:
        for lease in leases:
            self._held.remove(lease)
        self._leases.give_back(connection, *leases)

    async def _contend(self, run_id: str, write: Callable[[apsw.Connection, Watch], T]) -> T:
        """Have something written that a holder may be in the way of, and look again until it is clear."""
        watch = Watch(self._me)
        while True:
            try:
                return await self._writer.submit(run_id, lambda connection: write(connection, watch))
            except HolderUnknown as unknown:
                await asyncio.sleep(unknown.pause)
                self._check_usable()
