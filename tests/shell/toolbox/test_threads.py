"""Threads of tools: one for each call at work, used again afterwards, and never waited for in vain."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from functools import partial
from queue import SimpleQueue
from typing import Any

from turnstile.shell.toolbox.threads import MOST_IDLE, Deliveries, Worker, begin, idle

WAIT = 30  # seconds that a test waits for what must come, before a broken one fails instead of hanging


def used(name: str = "tool") -> threading.Thread:
    """A thread that has just done something, and waits for more."""
    seen: SimpleQueue[threading.Thread] = SimpleQueue()
    begin(name, lambda: seen.put(threading.current_thread()))
    thread = seen.get(timeout=WAIT)
    settle(thread)
    return thread


def settle(thread: threading.Thread) -> None:
    """Wait until a thread has done what it was given: then it waits for more, or has ended."""
    while thread.is_alive() and thread not in idle:
        thread.join(0.001)


def test_a_thread_is_used_again() -> None:
    """Starting one holds up the event loop; a tool that blocks is often called turn after turn."""
    first = used("tool a")
    again = used("tool b")

    assert again is first
    assert again.name == "tool b"
    assert again.daemon


def test_a_thread_at_work_is_nobody_elses() -> None:
    """Two calls of one turn must be at work at once, and one that hangs must hold up no other."""
    let_go = threading.Event()
    busy = begin("busy", let_go.wait)

    assert used() is not busy
    let_go.set()
    settle(busy)


def test_a_retired_thread_ends_with_what_it_does() -> None:
    """A call that was given up may leave anything behind in its thread."""
    let_go = threading.Event()
    stuck = begin("stuck", let_go.wait)
    stuck.retire()
    let_go.set()
    stuck.join(WAIT)

    assert not stuck.is_alive()
    assert stuck not in idle


def test_a_thread_that_waits_in_vain_ends() -> None:
    """A program that called a tool once must not keep its thread for ever."""
    worker = Worker(patience=0)
    worker.start()
    worker.give(lambda: None)
    worker.join(WAIT)

    assert not worker.is_alive()
    assert worker not in idle


def test_a_thread_that_is_taken_as_its_patience_ends_does_what_it_is_given() -> None:
    """Between the last moment and the first an order to work must not be lost: its call would never end."""
    done: SimpleQueue[int] = SimpleQueue()
    idle.clear()
    for number in range(100):
        worker = Worker(patience=1e-6)
        worker.start()
        worker.give(lambda: None)
        while worker.is_alive():
            if worker in idle:
                try:
                    idle.remove(worker)
                except ValueError:
                    continue
                worker.give(lambda number=number: done.put(number))  # type: ignore[misc]
                assert done.get(timeout=WAIT) == number
                break


def test_no_more_threads_wait_than_are_of_use() -> None:
    """A burst of a thousand calls must not leave a thousand threads behind."""
    let_go = threading.Event()
    workers = [begin(f"tool {number}", let_go.wait) for number in range(2 * MOST_IDLE)]
    let_go.set()
    for worker in workers:
        settle(worker)

    assert sum(worker.is_alive() for worker in workers) < len(workers)


def test_a_thread_that_waits_holds_nothing_of_its_last_call() -> None:
    """Arguments and results may be large, and the next call may be long in coming."""

    class Large:
        """Something that a call works on."""

        def work(self) -> None:
            """Do something with it."""

    large = Large()
    gone = weakref.ref(large)
    worker = begin("tool", large.work)
    del large
    settle(worker)
    gc.collect()

    assert gone() is None


class Bell(asyncio.SelectorEventLoop):
    """An event loop that counts how often it was woken from another thread."""

    woken = 0

    def call_soon_threadsafe(self, *args: Any, **more: Any) -> asyncio.Handle:  # type: ignore[override] # passed on
        """Count it."""
        self.woken += 1
        return super().call_soon_threadsafe(*args, **more)


def test_a_loop_is_woken_once_for_all_that_ended_while_it_was_busy() -> None:
    """A thread that wakes it lets the others run first: eight of them would keep each other waiting."""

    async def main(loop: Bell) -> list[int]:
        deliveries, came = Deliveries(loop), asyncio.Queue[int]()
        for worker in [
            begin("tool", partial(deliveries.bring, partial(came.put_nowait, number))) for number in range(8)
        ]:
            settle(worker)  # which blocks the loop on purpose
        return [await came.get() for _ in range(8)]

    loop = Bell()
    try:
        assert sorted(loop.run_until_complete(main(loop))) == [*range(8)]
        assert loop.woken == 1
    finally:
        loop.close()


async def test_what_is_brought_while_the_loop_looks_comes_too() -> None:
    """The loop is not woken for what comes before it has seen all, and none of that may be left lying."""
    loop = asyncio.get_running_loop()
    deliveries, came = Deliveries(loop), asyncio.Queue[str]()

    def first() -> None:
        deliveries.bring(partial(came.put_nowait, "second"))
        came.put_nowait("first")

    deliveries.bring(first)
    assert [await came.get(), await came.get()] == ["first", "second"]
    deliveries.bring(partial(came.put_nowait, "third"))
    assert await came.get() == "third"


async def test_one_that_fails_as_it_is_brought_holds_up_no_other() -> None:
    """A coroutine of a call that was given up is closed there, and may raise as it is: others would never end."""
    loop = asyncio.get_running_loop()
    deliveries, came, wrong = Deliveries(loop), asyncio.Queue[str](), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: wrong.append(context))

    def fails() -> None:
        raise ValueError("no luck")

    deliveries.bring(fails)
    deliveries.bring(partial(came.put_nowait, "next"))
    assert await came.get() == "next"
    assert [str(context["exception"]) for context in wrong] == ["no luck"]


async def test_nothing_is_lost_that_many_threads_bring() -> None:
    """One may bring something in the very moment in which the loop has seen all: the call would never end."""
    loop = asyncio.get_running_loop()
    deliveries, came = Deliveries(loop), asyncio.Queue[int]()

    def bring(start: int) -> None:
        for number in range(start, start + 500):
            deliveries.bring(partial(came.put_nowait, number))

    for start in range(0, 4_000, 500):
        begin("tool", partial(bring, start))
    assert sorted([await came.get() for _ in range(4_000)]) == [*range(4_000)]


FORKED = """
import os, threading, warnings
from turnstile.shell.toolbox.threads import begin, idle

def use():
    done = threading.Event()
    begin("tool", done.set)
    assert done.wait(30)

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
use()
while not idle:
    pass
child = os.fork()
if not child:
    use()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    """Servers fork after they were warmed up; the list of threads comes along, and the threads do not."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=WAIT * 2, check=True)

    assert done.stdout == "0\n"
