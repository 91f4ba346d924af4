"""The leases that a store holds: renewed, and their letters handed over, by one thread as long as there are any."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from turnstile.core.codec import Codec
from turnstile.core.errors import CodecError, UsageError
from turnstile.ports import Deliver, Lease, Letter
from turnstile.shell.stores.holder import boot_clock
from turnstile.shell.stores.letters import refuse_other_letters
from turnstile.shell.stores.sqlite_file import Channel
from turnstile.shell.stores.sqlite_writer import Write, Writer

PAUSE = 0.2  # seconds between two looks at the mailbox: a person who cancels a run should not notice them


@dataclass(slots=True)
class _Held:
    """A lease that is held, who takes its letters, and the newest letter handed over."""

    deliver: Deliver
    newest: int = 0


class HeldLeases:
    """The leases that a store holds.

    The thread begins with the first lease and ends when none is held. It never waits for the file: what it wants done
    it gives to the store's own two threads. It keeps neither the store nor the process alive.

    Args:
        writer: Writes the renewals.
        reading: Where the mailbox is looked at.
        codec: Reads letters.
        ttl: How long a lease holds without being renewed, in seconds; it is renewed three times as often.
    """

    def __init__(self, writer: Writer, reading: Channel, codec: Codec, ttl: float) -> None:
        self._writer = writer
        self._reading = reading
        self._codec = codec
        self._ttl = ttl
        self._lock = threading.Lock()
        self._held: dict[Lease, _Held] = {}
        self._thread: threading.Thread | None = None
        self._bell: SimpleQueue[bool] = SimpleQueue()  # has the thread rouse the writer, and go on or end
        self._renewed = 0.0
        self._polling: Future[None] | None = None
        self._polled: tuple[apsw.Connection, int] | None = None

    def add(self, lease: Lease, deliver: Deliver) -> None:
        """Hold a lease, and hand its letters over from now on."""
        with self._lock:
            if not self._held:
                self._renewed = time.monotonic()
            self._held[lease] = _Held(deliver)
            self._polled = None  # it may have letters that were passed over before
            if self._thread is None:
                pause = min(PAUSE, self._ttl / 6)
                work = weakref.ref(self), self._writer.rouse, self._bell, pause
                self._thread = threading.Thread(target=_watch, args=work, name="turnstile-store-leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        """Hold a lease no longer."""
        with self._lock:
            self._held.pop(lease, None)

    def give_back(self, lease: Lease, write: Write[None]) -> None:
        """Hold a lease no longer, if it is held, and have that written.

        It takes no lock, nor calls who does: the garbage collector may call it, for a run that is forgotten, in the
        middle of anything, and whoever holds the lock may be the thread that waits here. So the leases' own thread,
        which is there as long as any is held, has the writer go on.
        """
        if lease in self._held:
            if self._writer.put(write):
                self._bell.put(True)
            self._held.pop(lease, None)

    def close(self) -> list[Lease]:
        """Hold nothing any more, and end the thread; gives what was held."""
        with self._lock:
            leases = list(self._held)
            self._held.clear()
            thread = self._thread
        self._bell.put(False)
        if thread is not None:
            thread.join()
        return leases

    def round(self) -> bool:
        """Renew what it is time to renew, and have the mailbox looked at; whether any lease is held."""
        with self._lock:
            is_over = not self._held
            if is_over:
                self._thread = None
        if is_over:
            self._writer.rouse()  # the bell is not heard any more
            return False
        now = time.monotonic()
        if now - self._renewed >= self._ttl / 3:
            self._renewed = now
            self._writer.leave(self.renew)
        if self._polling is None or self._polling.done():
            self._polling = self._reading.submit(self.poll)
        return True

    def renew(self, connection: apsw.Connection) -> None:
        """Renew all that is held; what another has taken over is held no longer."""
        now = boot_clock()
        with self._lock:
            leases = list(self._held)
        for lease in leases:
            connection.execute(
                "UPDATE leases SET renewals = renewals + 1, renewed = ? "
                "WHERE run = (SELECT number FROM runs WHERE id = ?) AND epoch = ?",
                (now, lease.run_id, lease.epoch),
            )
            if not connection.changes():
                self.remove(lease)

    def poll(self) -> None:
        """Hand over the letters that have come, in the reading thread; it asks only when anything was written."""
        with self._reading.connection() as connection:
            moment = connection, connection.pragma("data_version")
            if moment == self._polled:
                return
            self._polled = moment
            letters: list[tuple[Any, ...]] = connection.execute(
                "SELECT r.id, l.epoch, m.number, m.event FROM mailbox m "
                "JOIN leases l ON l.run = m.run JOIN runs r ON r.number = m.run ORDER BY m.number"
            ).fetchall()
        for run_id, epoch, number, event in letters:
            self._hand_over(Lease(run_id, epoch), number, event)

    def _hand_over(self, lease: Lease, number: int, event: bytes) -> None:
        with self._lock:
            held = self._held.get(lease)
            if held is None or number <= held.newest:
                return
            held.newest = number
        # A damaged letter is `SQLiteStore.check`'s matter, and a loop that has ended takes no letters: in either case
        # those of other runs still have to be handed over.
        with suppress(CodecError, UsageError, RuntimeError):
            letter = Letter(number, self._codec.decode(event))
            refuse_other_letters(letter.event)
            held.deliver(letter)


def _watch(
    leases: Callable[[], HeldLeases | None], rouse: Callable[[], None], bell: SimpleQueue[bool], pause: float
) -> None:
    """What the thread does, until nothing is held, or the store or the process is gone.

    It holds the writer, not the store: a store that is forgotten together with its runs still writes that they are let
    go, which needs the writer's thread.
    """
    is_there = True
    with suppress(RuntimeError):  # the interpreter is ending, and takes no more work
        while True:
            try:
                goes_on = bell.get(timeout=pause)
            except Empty:
                if not is_there:  # what the store was asked as it went has been heard, too
                    return
            else:
                rouse()
                if not goes_on:
                    return
            held = leases()
            is_there = held is not None
            if held is not None and not held.round():
                return
            del held
