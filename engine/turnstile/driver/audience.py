"""`Audience`: who hears of a run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable

from turnstile.driver.keeper import Keeper
from turnstile.ports import Notice, Observer

_log = logging.getLogger("turnstile")


class Audience:
    """Tells observers of a run, in the thread of its event loop; one that raises is told no more.

    Args:
        observers: Who hears of it from its beginning.
        keeper: Has the run's state, which they are told along with each notice.
    """

    __slots__ = ("_home", "_keeper", "_observers", "_thread")

    def __init__(self, observers: Iterable[Observer], keeper: Keeper) -> None:
        self._observers = tuple(observers)
        self._keeper = keeper
        self._home: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def settle(self) -> None:
        """Stay in this thread, and in the event loop that runs here: what is told elsewhere is brought here."""
        self._home, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def tell(self, notice: Notice) -> None:
        """Let all of them hear of it, from any thread."""
        if self._home is not None and threading.get_ident() != self._thread:
            self._home.call_soon_threadsafe(self.tell, notice)
            return
        run = self._keeper.run
        for observer in self._observers:
            try:
                observer.observe(notice, run)
            except Exception:  # noqa: BLE001 - whatever is wrong with an observer, the run goes on
                self.drop(observer)
                _log.exception("observer %r of run %s failed and hears no more of it", observer, run.run_id)

    def add(self, observer: Observer) -> None:
        """Let one more hear of the run."""
        self._observers = (*self._observers, observer)

    def drop(self, observer: Observer) -> None:
        """Let one hear no more of it; others that are equal to it still do."""
        self._observers = tuple(other for other in self._observers if other is not observer)
