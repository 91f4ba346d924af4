"""Threads for tools that block: one for each call at work; one whose call has ended waits a while for the next.

Not a pool's workers: the calls of a batch are truly at once however many they are, and one that is given up takes no
place from another. Daemons, so that they never keep the process from ending. Starting a thread holds up the event loop
until the system has run it, which takes milliseconds where processors are busy, so it isn't done for each call.
"""

from __future__ import annotations

import asyncio
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


class Deliveries:
    """Brings an event loop what threads have for it; it is woken once for all that comes until it looks.

    Each time that it is woken (`call_soon_threadsafe`) a thread lets others run, and has to wait until it may go on:
    eight calls that end at the same moment would hold up each other, and the loop.

    Args:
        loop: The event loop.
    """

    __slots__ = ("_brought", "_is_called", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._brought: list[Callable[[], object]] = []  # a few: a deque takes ten times the memory
        self._is_called = False

    def bring(self, callback: Callable[[], object]) -> None:
        """Have the loop call this, from any thread; a loop that is closed does not."""
        self._brought.append(callback)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # it is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._is_called = False  # first: what is brought from here on may come too late to be seen now
        try:
            while self._brought:
                self._brought.pop(0)()
        finally:
            if self._brought:  # one has failed, and holds up no other
                self._loop.call_soon(self._look)


def begin(name: str, work: Callable[[], object]) -> Worker:
    """Have some work done in a thread that does nothing else meanwhile, and bears this name."""
    try:
        worker: Worker | None = idle.pop()
    except IndexError:
        worker = None
    if worker is None or not worker.is_alive():  # a process that was forked has none of the other's threads
        worker = Worker()
        worker.start()
    worker.name = name
    worker.give(work)
    return worker
