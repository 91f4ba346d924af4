"""The file of a `SQLiteStore`: how it is opened, what each failure means, and a connection with a thread of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import apsw

from turnstile.core.errors import (
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnreachable,
    UsageError,
)
from turnstile.shell.stores.sqlite_log import Log, log_of, lost_in
from turnstile.shell.stores.sqlite_schema import MIGRATIONS, migrate, version_of

P = ParamSpec("P")
T = TypeVar("T")

_EFFECTIVE = os.access in os.supports_effective_ids
_AGAIN = "then resume the run, of which all that was acknowledged is kept"
_FULL = f"the disk is full; make room, {_AGAIN}"

_PAUSE = 0.01  # seconds: a change of the mode takes less
# Pages that the log holds before they are moved into the database, and it is begun afresh: a fourth of SQLite's own
# number. As long as the log grows, each commit waits for the disk to note its new length as well, half as long again.
_LOG_PAGES = 250
DAMAGED_LOG = (
    "its log {log!r} is damaged, and {commits} commits behind the damage cannot be read; what can be is exported by "
    "`turnstile runs export --all`; keep both files, and restore the store from a copy"
)

# SQLite's result codes by what they mean to a user (sqlite.org/rescode.html).
_FAILURES: tuple[tuple[tuple[type[apsw.Error], ...], type[StoreError], str], ...] = (
    (
        (apsw.BusyError, apsw.LockedError),
        StoreLocked,
        "another process has kept it locked for too long; end that process, or try again later",
    ),
    ((apsw.FullError,), StoreFull, _FULL),
    ((apsw.ReadOnlyError,), StoreReadOnly, "it can be read, but not written; make the file and its folder writable"),
    ((apsw.NotADBError,), StoreForeign, "it is not a database; choose another file"),
    (
        (apsw.CorruptError,),
        StoreDamaged,
        "the database is damaged or cut short; keep this file, and restore the store from a copy",
    ),
    (
        (apsw.CantOpenError, apsw.PermissionsError),
        StoreUnreachable,
        "it cannot be opened; check that it is a file, and that you may read and write it and its folder",
    ),
)


class Channel:
    """One connection and the one thread that uses it; opened when first needed, and dropped when anything fails on it.

    Args:
        path: The file.
        wait: How long another process's lock is waited for, in seconds.
        synchronous: Whether each commit waits for the disk: ``full`` or ``normal``.
        writes: Whether it writes. One that only reads may read what is left of a damaged file.

    Attributes:
        flaw: What was found to be wrong with the file when it was opened to be read.
    """

    def __init__(self, path: Path, wait: float, synchronous: str = "full", *, writes: bool = False) -> None:
        self._path = path
        self._wait = wait
        self._synchronous = synchronous
        self._writes = writes
        self.flaw = ""
        # Its thread ends with the process, after all that it was given is done: neither a hang nor a loss.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="turnstile-store")
        self._connection: apsw.Connection | None = None

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do some work in the thread, after all that was submitted before."""
        return self._thread.submit(work, *args, **kwargs)

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """The connection, for work in the thread.

        Raises:
            StoreError: The file cannot be opened, or SQLite failed. What it was about to commit may be kept or not: the
                connection is dropped, and the next use opens the file anew and sees what is true.
        """
        try:
            if self._connection is None:
                self._connection, self.flaw = open_file(self._path, self._wait, self._synchronous, writes=self._writes)
            yield self._connection
            if self._connection.readonly("main"):
                self.close()  # who is not told of others' writing must look anew each time
        except UsageError:  # a refusal: nothing is wrong with the file
            raise
        except BaseException as error:
            self._drop()
            if isinstance(error, apsw.Error | UnicodeDecodeError):
                raise failure(error, self._path) from error
            raise

    def close(self) -> None:
        """Close the connection, in the thread; a later use would open it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):  # a checkpoint that fails loses nothing: what was acknowledged is in the log
                connection.close()

    def shut_down(self) -> None:
        """Let the thread end; it takes no more work."""
        self._thread.shutdown(wait=False)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # No checkpoint: after a failed fsync the kernel may have forgotten what it could not write.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close(force=True)


def open_file(path: Path, wait: float, synchronous: str, *, writes: bool) -> tuple[apsw.Connection, str]:
    """A connection to the file, which is made, with its folder, when there is none, and what is wrong with its log.

    A file that can be read but not written is opened for reading.

    Raises:
        StoreError: What is in the way.
        apsw.Error: The same in SQLite's words.
    """
    _make(path)
    log = log_of(path)
    try:
        return _open(str(path), apsw.SQLITE_OPEN_READWRITE, path, wait, synchronous, log, writes=writes)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        if not _is_still(path):
            raise
    uri = f"{path.as_uri()}?immutable=1"
    return _open(uri, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, path, wait, synchronous, None, writes=False)


def _look_behind(connection: apsw.Connection, log: Log | None, path: Path, *, writes: bool) -> str:
    """Refuse to write behind a log in which commits cannot be read any more; a reader leaves it as it is, and is told.

    Raises:
        StoreDamaged: There is such a log.
    """
    commits, frames = lost_in(log, path, connection)
    if commits > 1:  # one may have been under way when a process died
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        flaw = DAMAGED_LOG.format(log=f"{path.name}-wal", commits=commits)
        if writes:
            raise StoreDamaged(str(path), flaw)
        return flaw
    if frames and writes:
        with suppress(apsw.BusyError):  # begun afresh, so that what is left of it is not taken for more another time
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return ""


def _is_still(path: Path) -> bool:
    """Whether a file is one that we cannot write, and that nobody else is writing.

    SQLite needs a log and shared memory beside the file even to read it, and they cannot be made where the folder, or
    the whole disk, is read-only. When the log is missing or empty, all that was committed is in the file.
    """
    log = path.with_name(f"{path.name}-wal")
    is_whole = not log.exists() or log.stat().st_size == 0
    return is_whole and path.is_file() and not os.access(path.parent, os.W_OK, effective_ids=_EFFECTIVE)


def _open(  # noqa: PLR0917 - all that opening takes, from the one function that knows it
    address: str, flags: int, path: Path, wait: float, synchronous: str, log: Log | None, *, writes: bool
) -> tuple[apsw.Connection, str]:
    place = str(path)
    connection = apsw.Connection(address, flags=flags)
    try:
        connection.set_busy_timeout(int(wait * 1000))
        version = version_of(connection, place)  # first: nothing is written to a file that isn't ours
        # A log that may lack several commits after a power cut is what "normal" was chosen for.
        flaw = _look_behind(connection, log, path, writes=writes or not version) if synchronous == "full" else ""
        if not connection.readonly("main"):
            _set_up(connection, place, wait, synchronous)
        if version < len(MIGRATIONS):
            _refuse_old(connection, place, version)
            migrate(connection, place)
    except BaseException:
        connection.close(force=True)
        raise
    return connection, flaw


def _refuse_old(connection: apsw.Connection, place: str, version: int) -> None:
    """Refuse to read an older file that cannot be brought up to date."""
    if version and connection.readonly("main"):
        raise StoreReadOnly(
            place,
            f"it has version {version} of the schema, which only someone who may write it can bring to "
            f"{len(MIGRATIONS)}; open it once where it is writable, or copy it there",
        )


def _set_up(connection: apsw.Connection, place: str, wait: float, synchronous: str) -> None:
    mode = _to_wal(connection, time.monotonic() + wait)
    if mode != "wal":
        raise StoreUnreachable(
            place,
            f"expected journal mode 'wal', got {mode!r}; choose a file on a local disk, where processes share memory",
        )
    connection.wal_autocheckpoint(_LOG_PAGES)
    connection.pragma("synchronous", synchronous)
    connection.pragma("fullfsync", 1)  # macOS: its plain fsync leaves data in the drive's cache (its fsync(2))


def _to_wal(connection: apsw.Connection, last: float) -> object:
    """The journal mode once WAL was asked for; SQLite itself does not wait for others that ask for it at the moment."""
    while True:
        try:
            return connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() >= last:
                raise
        time.sleep(_PAUSE)


def failure(error: apsw.Error | UnicodeDecodeError, path: Path) -> StoreError:
    """What an error of SQLite means to a user."""
    if isinstance(error, UnicodeDecodeError):  # SQLite hands over text as it finds it
        return StoreDamaged(str(path), f"a text in it is not UTF-8 ({error}); restore the store from a copy")
    number = getattr(error, "extendedresult", 0)  # errors of apsw itself, such as a wrong thread, have none
    code = apsw.mapping_extended_result_codes.get(number, str(number))
    if code == "SQLITE_IOERR_SHMSIZE":  # no room to map the -shm file: SQLite reports ENOSPC there as an I/O error
        return StoreFull(str(path), f"{_FULL} ({error}: {code})")
    for kinds, meaning, advice in _FAILURES:
        if isinstance(error, kinds):
            return meaning(str(path), f"{advice} ({error})")
    return StoreError(str(path), f"{error} ({code}); look at the disk, {_AGAIN}")


def _make(path: Path) -> None:
    """Make the file for its owner alone, with its folder; SQLite gives the files beside it the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An existing file is not even opened: closing it would drop all locks that this process has on it (fcntl(2)).
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        if os.name == "posix":  # a new file's name is safe from a power cut once its folder is written, too (fsync(2))
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except FileExistsError:
        if not path.parent.is_dir():
            raise StoreUnreachable(
                str(path), f"its folder {str(path.parent)!r} is a file; choose another folder"
            ) from None
    except OSError as error:
        raise StoreUnreachable(
            str(path),
            f"it cannot be made: {error.strerror} ({error.filename!r}); choose another file, or make room for it",
        ) from error
