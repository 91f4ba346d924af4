"""The half of a `SQLiteStore` that reads, on a connection and in a thread of its own: it waits for no writer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from turnstile.core.codec import Codec
from turnstile.core.errors import CodecError, ConfigurationError, NoSuchRun, StoreDamaged, UsageError
from turnstile.core.events import Event
from turnstile.core.expecting import expect, expect_several
from turnstile.ports import Record, RunEntry
from turnstile.shell.stores import sqlite_audit, sqlite_lists
from turnstile.shell.stores.chain import verified
from turnstile.shell.stores.holder import this_process
from turnstile.shell.stores.sqlite_file import Channel
from turnstile.shell.stores.sqlite_lists import StoredRun
from turnstile.shell.stores.sqlite_rows import name

P = ParamSpec("P")
T = TypeVar("T")


class Reading:
    """Reads journals, and lists of them."""

    def __init__(
        self, path: str | PathLike[str], *, events: Iterable[type[Event]], wait: float, synchronous: str
    ) -> None:
        expect("SQLiteStore's path", path, (str, PathLike), "the path of a file")
        events = expect_several("SQLiteStore's events", events, "a list of event classes")
        if str(path) in ("", ":memory:"):
            raise ConfigurationError(
                f"SQLiteStore needs the path of a file; got {str(path)!r} (for memory, use MemoryStore())"
            )
        self.path = Path(path).absolute()
        self._place = str(self.path)
        self._reading = Channel(self.path, wait, synchronous)
        self._codec = Codec(events)
        self._me = this_process()
        self._closed = False

    def __repr__(self) -> str:
        return f"SQLiteStore({self._place!r})"

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, oldest first; empty for an unknown run.

        Raises:
            RecordDamaged: The first record that is not what was written.
            StoreError: The store cannot be read.
        """
        self._check_usable()
        return await asyncio.wrap_future(self._reading.submit(self._load, name("run_id", run_id)))

    async def newest(self, session: str) -> str | None:
        """Id of the run of that session that began last; ``None`` when there is none.

        Raises:
            StoreError: The store cannot be read.
        """
        self._check_usable()
        return await self._read(sqlite_lists.newest, name("session", session))

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """Stored runs, the newest first.

        Raises:
            NoSuchRun: There is no run `before`.
            StoreError: The store cannot be read.
        """
        self._check_usable()
        for what, value in (("before", before), ("session", session)):
            name(what, value or "")
        return await self._read(
            sqlite_lists.page, self._place, self._me, most=most, before=before, session=session, live=live
        )

    async def entry(self, run_id: str) -> RunEntry | None:
        """A run as a list shows it; ``None`` for an unknown one.

        Raises:
            StoreError: The store cannot be read.
        """
        self._check_usable()
        return await self._read(sqlite_lists.entry, self._place, self._me, name("run_id", run_id))

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """Ids of the runs whose id begins so, sorted; the one that is the whole prefix stands first.

        Raises:
            StoreError: The store cannot be read.
        """
        self._check_usable()
        return await self._read(sqlite_lists.find, name("prefix", prefix), most)

    async def raw(self, run_id: str) -> StoredRun:
        """A run's journal exactly as it is stored, damaged or not, so that what is left of it can be saved.

        Raises:
            NoSuchRun: There is no such run.
            StoreError: The store cannot be read.
        """
        self._check_usable()
        found = await self._read(sqlite_lists.stored, self._place, name("run_id", run_id))
        if found is None:
            raise NoSuchRun(self._place, run_id)
        return found

    async def check(self) -> tuple[str, ...]:
        """What is wrong with the file, a sentence for each problem; empty when nothing is.

        It reads all there is: the pages and indexes of the file, each run's chain, and the letters.

        Raises:
            StoreError: The store cannot be read at all.
        """
        self._check_usable()
        problems: list[str] = []
        for look in (sqlite_audit.of_file, partial(sqlite_audit.of_letters, codec=self._codec)):
            try:
                problems += await self._read(look)
            except StoreDamaged as damage:
                problems.append(damage.problem)
        try:
            last = 0
            while runs := await self._read(sqlite_audit.some_runs, last):
                last = runs[-1][0]
                for _, run_id in runs:
                    problems += await asyncio.wrap_future(self._reading.submit(self._problems_of, run_id))
        except StoreDamaged as damage:  # it cannot even be told which runs there are
            problems.append(damage.problem)
        return tuple(problems + ([self._reading.flaw] if self._reading.flaw else []))

    async def _read(self, work: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read something in one transaction, which sees one moment."""
        return await asyncio.wrap_future(self._reading.submit(self._at_one_moment, work, *args, **kwargs))

    def _at_one_moment(
        self, work: Callable[Concatenate[apsw.Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self._reading.connection() as connection, connection:
            found = work(connection, *args, **kwargs)
        return found  # noqa: RET504 - to a type checker, leaving the block may swallow an error

    def _problems_of(self, run_id: str) -> list[str]:
        try:
            self._load(run_id)
        except StoreDamaged as damage:
            return [damage.problem]
        except CodecError as error:
            return [f"run {run_id!r}: {error}"]
        return []

    def _load(self, run_id: str) -> tuple[Record, ...]:
        stored = self._at_one_moment(sqlite_lists.stored, self._place, run_id)
        if stored is None:
            return ()
        return verified(run_id, stored.records, stored.seq, stored.seal, codec=self._codec, place=self._place)

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(f"store {self._place!r} is closed; make a new SQLiteStore for the file")
        # Neither threads nor SQLite's locks survive a fork (sqlite.org/howtocorrupt.html, 2.6).
        if os.getpid() != self._me.pid:
            raise UsageError(
                f"store {self._place!r} belongs to process {self._me.pid}, which forked this one; make a new one here"
            )
