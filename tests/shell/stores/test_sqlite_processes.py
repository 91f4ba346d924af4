"""Several processes and their deaths: what a process was told is kept stays kept, whatever becomes of it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Record
from turnstile.stores import SQLiteStore

APPEND = """
import asyncio, sys
from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Record, Summary
from turnstile.stores import SQLiteStore

LIVE = Summary("await_model")
path, run_id, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def main():
    store = SQLiteStore(path)
    print("ready", flush=True)
    sys.stdin.readline()
    lease = await store.create(Record(RunStarted(run_id, "prompt")), LIVE, print)
    for number in range(count):
        await store.append(lease, [Record(MessageInjected(str(number)))], LIVE)
        print(number, flush=True)

asyncio.run(main())  # and no aclose
"""


@contextmanager
def appending(path: Path, run_id: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that stands ready to create a run and append to it, and says the number of each record that is kept."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND, str(path), run_id, str(count)],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert says(process) == "ready"
        yield process


def go(process: subprocess.Popen[str]) -> None:
    """Let a process begin."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def says(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout
    return process.stdout.readline().strip()


def kept(path: Path, run_id: str) -> list[str]:
    """The texts of a run's messages, its chain verified."""

    async def load() -> tuple[Record, ...]:
        async with SQLiteStore(path) as store:
            return await store.load(run_id)

    start, *records = asyncio.run(load())
    assert start.event == RunStarted(run_id, "prompt")
    return [record.event.text for record in records if isinstance(record.event, MessageInjected)]


@pytest.mark.parametrize("acknowledged", [1, 7, 60])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    """After SIGKILL at any moment, all that was acknowledged is there, in order, and nothing stands behind a gap."""
    path = tmp_path / "runs.db"
    with appending(path, "run", 1_000_000) as process:
        go(process)
        for number in range(acknowledged):
            assert says(process) == str(number)
        process.send_signal(signal.SIGKILL)
        assert process.stdout
        told = acknowledged + len(process.stdout.read().split())  # what it said before it died
    texts = kept(path, "run")
    assert texts == [str(number) for number in range(len(texts))]
    assert told <= len(texts) <= told + 1  # one more may be kept that it had no time to speak of


def test_processes_share_a_file(tmp_path: Path) -> None:
    """A server's workers write at the same time, from the moment when the file does not exist yet."""
    path = tmp_path / "runs.db"
    names = ("run 1", "run 2", "run 3")
    with ExitStack() as stack:
        processes = [stack.enter_context(appending(path, run_id, 50)) for run_id in names]
        for process in processes:
            go(process)
        assert [process.wait() for process in processes] == [0, 0, 0]
    for run_id in names:
        assert kept(path, run_id) == [str(number) for number in range(50)]


def test_a_process_that_just_ends_loses_nothing(tmp_path: Path) -> None:
    """Nobody closes a store at the end of a script; it must neither hang nor lose what it was told is kept."""
    path = tmp_path / "runs.db"
    with appending(path, "run", 5) as process:
        go(process)
        assert process.wait() == 0
    assert kept(path, "run") == ["0", "1", "2", "3", "4"]


def test_a_second_process_cannot_take_a_run_id(tmp_path: Path) -> None:
    """Two processes that choose one id would write into one journal."""
    path = tmp_path / "runs.db"
    with appending(path, "run", 3) as one, appending(path, "run", 3) as two:
        for process in (one, two):
            go(process)
        assert sorted((one.wait(), two.wait())) == [0, 1]
    assert kept(path, "run") == ["0", "1", "2"]
