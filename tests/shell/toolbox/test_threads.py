"""Threads of tools: one for each call at work, used again afterwards, and never waited for in vain."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from queue import SimpleQueue

from turnstile.shell.toolbox.threads import MOST_IDLE, Worker, begin, idle

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
