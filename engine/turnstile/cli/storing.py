"""The store of a command: which file it is, how it is opened, and which of its runs is meant.

It is what ``--store`` names, else ``$TURNSTILE_DB``, else ``runs.db`` in the user's folder for state (`platformdirs`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from turnstile.cli.faults import Misuse
from turnstile.cli.finding import find
from turnstile.core.codec import codec
from turnstile.core.errors import AmbiguousRun, CodecError, NoSuchRun
from turnstile.core.events import EVENTS, RunStarted
from turnstile.core.machine import Machine, loop
from turnstile.ports import RunEntry, Store
from turnstile.replay import Replay, replay
from turnstile.shell.stores.chain import verified

if TYPE_CHECKING:
    from turnstile.stores import SQLiteStore

MEMORY = "memory"
"""What ``--store`` is given for a store that ends with the process."""
PAGE = 100  # runs that are asked of the store at once when all are wanted
VARIABLE = "TURNSTILE_DB"
"""The variable of the environment that names the file."""


def path_of(wanted: str | None) -> Path:
    """The file that keeps runs.

    Raises:
        Misuse: It is named by an empty text, or is not one.
    """
    if wanted is not None:
        if wanted == MEMORY:
            raise Misuse("a store in memory ends with its process, so nothing is kept there; give --store a file")
        if not wanted.strip():
            raise Misuse("--store is empty; name a file, or leave the option out")
        return Path(wanted)
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named.strip() else _own_folder() / "runs.db"


def _own_folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("turnstile", appauthor=False)


def file_store(wanted: str | None, machine: Machine) -> SQLiteStore:
    """The store in a file, for runs of a machine, whose own events it can read.

    Raises:
        Misuse: Its folder is missing. Only that of the user's state is made.
    """
    from turnstile.stores import SQLiteStore

    path = path_of(wanted)
    folder = path.parent  # the store would make it, and so would hide that its name was mistyped
    if not is_there(folder) and path != _own_folder() / "runs.db":
        named = "" if wanted is not None else f" (${VARIABLE})"
        raise Misuse(
            f"no folder {str(folder)!r} for the store {str(path)!r}{named}; make it, or name a file in one that exists"
        )
    own = {event: None for row in machine.rows for event in row.events if event not in EVENTS}
    return SQLiteStore(path, events=own)


def is_there(path: Path) -> bool:
    """Whether a path leads to something.

    Raises:
        Misuse: That cannot be told: its name is too long, or a folder on the way is closed to the user.
    """
    try:
        return path.exists()
    except OSError as error:
        raise Misuse(f"{str(path)!r} cannot be looked at: {error.strerror}; give a path that you may read") from error


@asynccontextmanager
async def opened(wanted: str | None, machine: Machine | None = None) -> AsyncIterator[SQLiteStore]:
    """The store of a command that looks at runs, which must be there already.

    Raises:
        Misuse: There is no such file.
    """
    path = path_of(wanted)
    if not is_there(path):
        raise Misuse(f"no store {str(path)!r} to look for runs in; give --store the file that they were run with")
    store = file_store(wanted, machine or loop)
    try:
        yield store
    finally:
        await store.aclose()


async def run_of(store: Store, prefix: str) -> str:
    """The id of the run that a user means, who may give only its beginning.

    Raises:
        NoSuchRun: There is none.
        AmbiguousRun: There are several.
    """
    found = await store.find(prefix) if prefix.strip() else ()
    if not found:
        raise NoSuchRun(str(getattr(store, "path", "")), prefix)
    if found[0] != prefix and len(found) > 1:
        raise AmbiguousRun(prefix, found)
    return found[0]


def machine_of(name: str | None) -> Machine | None:
    """The machine of the agent of that name; ``None`` when none is named: each run knows which of ours it had."""
    return None if name is None else find(name).agent.machine


def foreign(error: CodecError, run_id: str) -> Misuse:
    """What to tell of a run that holds events of another machine."""
    return Misuse(f"run {run_id!r} cannot be read: {error}; if its agent has a machine of its own, add --agent AGENT")


async def read_run(store: Store, prefix: str, machine: Machine | None = None) -> Replay:
    """The run that a user means, made again from its journal.

    Raises:
        NoSuchRun: There is none.
        AmbiguousRun: There are several.
        Misuse: It was made with a machine of its own, which is not the one that was given.
        StoreError: It cannot be read.
    """
    run_id = await run_of(store, prefix)
    try:
        return replay(await store.load(run_id), machine)
    except CodecError as error:
        raise foreign(error, run_id) from error


async def origin(prefix: str, path: str | None) -> tuple[str, RunStarted]:
    """The run that a user means, by its id, and its first record.

    Raises:
        NoSuchRun: There is none.
        AmbiguousRun: There are several.
        Misuse: There is no such store, or the record cannot be read.
    """
    async with opened(path) as store:
        run_id = await run_of(store, prefix)
        try:
            return run_id, await origin_of(store, run_id)
        except CodecError as error:
            raise foreign(error, run_id) from error


async def origin_of(store: SQLiteStore, run_id: str) -> RunStarted:
    """A run's first record, which says how its agent is found; whatever may be wrong with those after it.

    Raises:
        CodecError: It is one of another machine.
        RecordDamaged: It is not what was written.
    """
    rows = (await store.raw(run_id)).records[:1]
    sealed = rows[0][5] if rows and isinstance(rows[0][5], bytes) else b""
    start = verified(run_id, rows, 1, sealed, codec=codec, place=str(store.path))[0].event
    assert isinstance(start, RunStarted)  # noqa: S101 - the store begins no run otherwise, and it is what was written
    return start


async def entries_of(store: Store, *, live: bool = False, page: int = PAGE) -> AsyncIterator[RunEntry]:
    """All stored runs, the newest first, page by page, whatever is deleted meanwhile."""
    before: str | None = None
    given: set[str] = set()
    while True:
        try:
            entries = await store.runs(most=page, before=before, live=live)
        except NoSuchRun:  # the last of a page was deleted since, so that there is no telling where it stood
            before = None
            continue
        if not entries:
            return
        for entry in entries:
            if entry.run_id not in given:
                given.add(entry.run_id)
                yield entry
        before = entries[-1].run_id
