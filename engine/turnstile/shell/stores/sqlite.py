"""`SQLiteStore`: journals in one file, kept before anything acts on them.

What is acknowledged survives a crash of the process and a power cut: each commit waits until the disk has it (WAL
with ``synchronous=FULL``). One thread writes, and what many runs append at the same time shares a commit
(`sqlite_writer`). Another thread reads, on a connection of its own, so that neither waits for the other. Several
processes may use one file.

SQLite itself comes with `apsw`: the one in most Pythons can corrupt a file that two connections use
(sqlite.org/wal.html, "The WAL-Reset Bug", fixed in 3.51.3).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Self

import apsw

from turnstile.core.codec import Codec
from turnstile.core.errors import ConfigurationError, NoSuchRun, RunExists, StoreDamaged, UsageError
from turnstile.core.events import Event, RunStarted
from turnstile.ports import Record
from turnstile.shell.stores.chain import first_seal, seal, verified
from turnstile.shell.stores.sqlite_file import Channel
from turnstile.shell.stores.sqlite_writer import Writer


class SQLiteStore:
    """Keeps journals in a SQLite file, on a local disk.

    The file is opened at the first use; it and its folder are made when they are missing, the file readable by its
    owner alone. A store may be used from several event loops, one after another or at once.

    Args:
        path: The file.
        events: Those of an extended machine, besides the engine's own.
        wait: How long to wait for another process that has the file locked, in seconds.

    Raises:
        ConfigurationError: The path names no file, or an event cannot be written as JSON.
    """

    def __init__(self, path: str | PathLike[str], *, events: Iterable[type[Event]] = (), wait: float = 10.0) -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigurationError(
                f"SQLiteStore needs the path of a file; got {str(path)!r} (for memory, use MemoryStore())"
            )
        self.path = Path(path).absolute()
        self._place = str(self.path)
        self._reading = Channel(self.path, wait)
        self._writing = Channel(self.path, wait)
        self._writer = Writer(self._writing, self._place)
        self._codec = Codec(events)
        self._process = os.getpid()
        self._closed = False

    def __repr__(self) -> str:
        return f"SQLiteStore({self._place!r})"

    async def create(self, start: Record) -> None:
        """Begin a run's journal with its `RunStarted`.

        Raises:
            RunExists: There is a run of that id; nothing was changed.
            StoreError: It could not be kept.
        """
        self._check_usable()
        begun = start.event
        assert isinstance(begun, RunStarted)  # noqa: S101 - a caller's bug, not a user's
        run_id = _name("run_id", begun.run_id)
        about = run_id, _name("agent", begun.agent), begun.session and _name("session", begun.session)
        at, duration_ms, event = self._columns(start)

        def write(connection: apsw.Connection) -> None:
            sealed = seal(first_seal(run_id), 1, at, duration_ms, event)
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchall():
                raise RunExists(run_id)
            connection.execute(
                "INSERT INTO runs (id, agent, session, started, seq, at, seal) VALUES (?, ?, ?, ?, 1, ?, ?)",
                (*about, at, at, sealed),
            )
            number = connection.last_insert_rowid()
            connection.execute(
                "INSERT INTO records VALUES (?, 1, ?, ?, ?, ?)", (number, at, duration_ms, event, sealed)
            )
            self._writer.trust(run_id)

        await self._writer.submit(run_id, write)

    async def append(self, run_id: str, record: Record) -> None:
        """Add a record to a run's journal. Once called it goes on, even when the task that awaits it is cancelled.

        Raises:
            NoSuchRun: No run of that id was created, or it was deleted.
            StoreError: It may not have been kept. The run takes no more records before it is loaded anew.
        """
        self._check_usable()
        _name("run_id", run_id)
        at, duration_ms, event = self._columns(record)

        def write(connection: apsw.Connection) -> None:
            self._writer.check(run_id)
            head = _head(connection, self._place, run_id)
            if head is None:
                raise NoSuchRun(self._place, run_id)
            number, last, previous = head
            seq = last + 1
            sealed = seal(previous, seq, at, duration_ms, event)
            connection.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", (number, seq, at, duration_ms, event, sealed)
            )
            connection.execute("UPDATE runs SET seq = ?, at = ?, seal = ? WHERE number = ?", (seq, at, sealed, number))

        await self._writer.submit(run_id, write)

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, oldest first; empty for an unknown run.

        Raises:
            RecordDamaged: The first record that is not what was written.
            StoreError: The store cannot be read.
        """
        self._check_usable()
        self._writer.trust(_name("run_id", run_id))
        return await asyncio.wrap_future(self._reading.submit(self._load, run_id))

    async def newest(self, session: str) -> str | None:
        """Id of the run of that session that began last; ``None`` when there is none.

        Raises:
            StoreError: The store cannot be read.
        """
        self._check_usable()
        return await asyncio.wrap_future(self._reading.submit(self._newest, _name("session", session)))

    async def aclose(self) -> None:
        """Write what is waiting, close the file, and end the threads. A store that is closed stays closed.

        Without this nothing is lost: the process ends after all that was given to the store is written.
        """
        if self._closed:
            return
        self._closed = True
        for channel in (self._writing, self._reading):
            await asyncio.wrap_future(channel.submit(channel.close))
            channel.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(f"store {self._place!r} is closed; make a new SQLiteStore for the file")
        # Neither threads nor SQLite's locks survive a fork (sqlite.org/howtocorrupt.html, 2.6).
        if os.getpid() != self._process:
            raise UsageError(
                f"store {self._place!r} belongs to process {self._process}, which forked this one; make a new one here"
            )

    def _columns(self, record: Record) -> tuple[float, float, bytes]:
        """A record as it is stored; what cannot be stored fails here, before it could spoil a commit of others."""
        # SQLite stores NaN as NULL, and -0.0 as 0.0: adding 0.0 makes of it what it will be read as.
        at, duration_ms = record.at + 0.0, record.duration_ms + 0.0
        if not isfinite(at) or not isfinite(duration_ms):
            raise UsageError(f"a record needs finite times; got at={at!r}, duration_ms={duration_ms!r}")
        return at, duration_ms, self._codec.encode(record.event)

    def _newest(self, session: str) -> str | None:
        with self._reading.connection() as connection:
            found = connection.execute(
                "SELECT id FROM runs WHERE session = ? ORDER BY number DESC LIMIT 1", (session,)
            ).fetchall()
        return str(found[0][0]) if found else None

    def _load(self, run_id: str) -> tuple[Record, ...]:
        with self._reading.connection() as connection, connection:  # a transaction: both queries see one moment
            head = _head(connection, self._place, run_id)
            if head is None:
                return ()
            number, last, last_seal = head
            rows = connection.execute(
                "SELECT seq, at, duration_ms, event, seal FROM records WHERE run = ? ORDER BY seq", (number,)
            ).fetchall()
        return verified(run_id, rows, last, last_seal, codec=self._codec, place=self._place)


def _head(connection: apsw.Connection, place: str, run_id: str) -> tuple[int, int, bytes] | None:
    """A run's number, and the number and the seal of its newest record; ``None`` for an unknown run."""
    match connection.execute("SELECT number, seq, seal FROM runs WHERE id = ?", (run_id,)).fetchall():
        case []:
            return None
        case [(int(number), int(seq), bytes(sealed))]:
            return number, seq, sealed
        case found:
            raise StoreDamaged(place, f"run {run_id!r} has the summary {found!r:.200}; restore the store from a copy")


def _name(what: str, value: str) -> str:
    """A name as it is, if text in UTF-8 can hold it.

    Raises:
        UsageError: It cannot.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} must be text that UTF-8 can hold; got {value!r}") from None
    return value
