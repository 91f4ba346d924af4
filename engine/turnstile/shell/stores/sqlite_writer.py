"""Group commit: what many runs append while one commit is under way goes into the next one, together.

A commit waits for the disk, and that costs the same for one record as for a hundred. So there is one writer, which
takes all that is waiting, writes it in one transaction, and tells all who wait.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import apsw

from turnstile.core.errors import StoreError, TurnstileError
from turnstile.shell.stores.sqlite_file import Channel

T = TypeVar("T")
Write = Callable[[apsw.Connection], T]

_STAYS = 0.02  # seconds: longer than a busy run takes for a turn, and what the end of the process may wait for


class _Kept(asyncio.Future[T]):
    """What comes of something written, for who must hear of it: a task that awaits it is cancelled once it is there.

    A task cancels what it awaits. Where that refuses, the task is cancelled as it goes on (`asyncio.Task.cancel`).
    """

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - as asyncio calls it
        """Refuse."""
        return False


class _Job(Generic[T]):
    """One thing to write, and who waits for what comes of it."""

    def __init__(self, run_id: str | None, write: Write[T], done: asyncio.Future[T] | None) -> None:
        self.run_id = run_id
        self.loop = done.get_loop() if done else None
        self.done = done
        self.error: Exception | None = None
        self._write = write
        self._value: list[T] = []

    def attempt(self, connection: apsw.Connection) -> None:
        """Write it, inside a transaction."""
        try:
            self._value.append(self._write(connection))
        except TurnstileError as refusal:
            self.error = refusal

    def tell(self) -> None:
        """Say what came of it, in the event loop of who waits."""
        if self.done is None or self.done.done():  # cancelled, with the task that awaited it
            return
        if self.error is None:
            self.done.set_result(self._value[0])
        else:
            self.done.set_exception(self.error)


class Writer:
    """Writes in one thread, in the order in which it was asked, as many jobs with one commit as are waiting.

    A commit that fails may have been kept or not, so nobody in it is told that it was, and its runs take nothing more
    until they are claimed anew: what comes after a record that may be missing is refused, not written into the gap.
    """

    def __init__(self, channel: Channel, place: str) -> None:
        self._channel = channel
        self._place = place
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._working = False
        self._stays = _STAYS
        self._unsure: dict[str, str] = {}  # runs whose journal may have a gap, and why
        self._suspect = False  # whether the log may hold what the disk does not

    def submit(self, run_id: str, write: Write[T]) -> asyncio.Future[T]:
        """Have something written; it is, whether or not somebody still awaits what is returned.

        Args:
            run_id: The run that it belongs to.
            write: Writes it inside the transaction, or refuses with a `TurnstileError` before it has written anything.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._enqueue(_Job(run_id, write, done))
        return done

    async def keep(self, run_id: str, write: Write[T]) -> T:
        """Have something written, and wait for it to its end, although the task that awaits it is cancelled meanwhile.

        That task hears of its cancellation once it is kept, and of a failure in place of it: acting on what may not be
        in the journal is what a cancelled run must not do either.

        Args:
            run_id: The run that it belongs to.
            write: As `submit` takes it.
        """
        done: _Kept[T] = _Kept()
        self._enqueue(_Job(run_id, write, done))
        try:
            return await done
        except asyncio.CancelledError:
            done.result()  # raises what went wrong
            raise

    def leave(self, write: Write[None]) -> None:
        """Have something written that nobody waits for, and that no journal misses when it fails; from any thread."""
        self._enqueue(_Job(None, write, None))

    def put(self, write: Write[None]) -> bool:
        """As `leave`, but takes no lock; whether who may take one has to `rouse` the thread."""
        self._waiting.put(_Job(None, write, None))
        return not self._working

    def rouse(self) -> None:
        """Have what is waiting written."""
        with self._lock:
            if not self._working and not self._waiting.empty():
                self._channel.submit(self._work)
                self._working = True

    def _enqueue(self, job: _Job[Any] | None) -> None:
        self._waiting.put(job)
        self.rouse()

    def close(self) -> None:
        """Have the thread go on to what else it was given as soon as all is written."""
        self._stays = 0.0
        self._enqueue(None)

    def check(self, run_id: str) -> None:
        """Refuse to write after a record that may be missing.

        Raises:
            StoreError: An earlier record of the run may not have been kept.
        """
        why = self._unsure.get(run_id)
        if why is not None:
            raise StoreError(
                self._place,
                f"an earlier record of run {run_id!r} may be missing; leave it, and go on with "
                f"`await agent.resume({run_id!r})`, which reads what was kept ({why})",
            )

    def trust(self, run_id: str) -> None:
        """The run is claimed anew, by one who reads what was kept."""
        self._unsure.pop(run_id, None)

    def _work(self) -> None:
        while self._settled():
            pass

    def _settled(self) -> bool:
        """Whether anything came, and is written; the thread that waits for more holds nothing of it alive."""
        arrived = self._arrived()
        jobs = [job for job in arrived if job is not None]
        if jobs:
            self._commit(jobs)
            self._tell(jobs)
        return bool(arrived)

    def _arrived(self) -> list[_Job[Any] | None]:
        """All that is waiting, or comes in a moment: a thread that waits already is woken sooner than one is called.

        When nothing comes, the thread is called anew for what does.
        """
        with suppress(queue.Empty):
            return [self._waiting.get(timeout=self._stays), *self._others()]
        with self._lock:
            self._working = False  # who puts something there from now on has the thread called anew
            jobs = self._others()
            self._working = bool(jobs)
        return jobs

    def _others(self) -> list[_Job[Any] | None]:
        return [self._waiting.get() for _ in range(self._waiting.qsize())]  # nobody else takes any

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        try:
            with self._channel.connection() as connection:
                self._renew_log(connection)
                connection.execute("BEGIN IMMEDIATE")
                for job in jobs:
                    job.attempt(connection)
                connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
            self._suspect = True
            why = error.problem if isinstance(error, StoreError) else repr(error)
            for job in jobs:
                job.error = error
                if job.run_id is not None:
                    job.error = _naming(job.run_id, error)
                    self._unsure[job.run_id] = why

    def _renew_log(self, connection: apsw.Connection) -> None:
        """After a failure, write anew what can be read, and begin the log afresh.

        When fsync has failed, the kernel may hold what it could not write for written: a later fsync of the same pages
        succeeds without it (wiki.postgresql.org/wiki/Fsync_Errors), and what follows in the log would be lost with it.
        """
        if self._suspect:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._suspect = False

    def _tell(self, jobs: list[_Job[Any]]) -> None:
        """Wake those who wait, with one call for each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
        for job in jobs:
            if job.loop is not None:
                by_loop.setdefault(job.loop, []).append(job)
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_tell_all, settled)
            except RuntimeError:  # the loop is closed: nobody waits there any more
                continue


def _naming(run_id: str, error: Exception) -> Exception:
    """The error of a commit, for one of the runs that were in it."""
    if not isinstance(error, StoreError):
        return error
    named = type(error)(error.place, f"run {run_id!r} cannot be kept: {error.problem}")
    named.__cause__ = error
    return named


def _tell_all(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.tell()
