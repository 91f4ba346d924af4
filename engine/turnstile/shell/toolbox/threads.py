"""Threads for tools that block: one for each call at work; one whose call has ended waits a while for the next.

Not a pool's workers: the calls of a batch are truly at once however many they are, and one that is given up takes no
place from another. Daemons, so that they never keep the process from ending. Starting a thread holds up the event loop
until the system has run it, which takes milliseconds where processors are busy, so it isn't done for each call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

PATIENCE = 60.0  # seconds; as Java's pool that grows with its work (Executors.newCachedThreadPool)
MOST_IDLE = 32  # as many as asyncio's own pool ever has

idle: list[Worker] = []
"""The threads that wait for something to do, the one that has waited shortest last."""


class Worker(threading.Thread):
    """A thread that does one thing after another.

    Args:
        patience: Seconds that it waits for something to do before it ends.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        super().__init__(daemon=True)
        self._patience = patience
        self._given: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._retired = False

    def give(self, work: Callable[[], object]) -> None:
        """Let it do something that doesn't raise; who calls has made it, or has taken it from `idle`."""
        self._given.put(work)

    def retire(self) -> None:
        """Let it end with what it does now."""
        self._retired = True

    def run(self) -> None:
        """Do what is given, until nothing is for a while."""
        work: Callable[[], object] | None = self._given.get()
        while work is not None:
            work()
            work = None  # while it waits, nothing of a call lives on by it
            if not self._retired and len(idle) < MOST_IDLE:
                work = self._next()

    def _next(self) -> Callable[[], object] | None:
        idle.append(self)
        while True:
            try:
                return self._given.get(timeout=self._patience)
            except Empty:
                with suppress(ValueError):  # it has just been taken, and will be given something
                    idle.remove(self)
                    return None


def begin(name: str, work: Callable[[], object]) -> Worker:
    """Have some work done in a thread that does nothing else meanwhile, and bears this name."""
    worker = None
    with suppress(IndexError):
        worker = idle.pop()
    if worker is None or not worker.is_alive():  # a process that was forked has none of the other's threads
        worker = Worker()
        worker.start()
    worker.name = name
    worker.give(work)
    return worker
