"""Several processes and their deaths: what a process was told is kept stays kept, whatever becomes of it."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw
import pytest

from turnstile.core.errors import RunIsLeased
from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Lease, Letter, Record, Summary
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

DRIVE = """
import asyncio, sys
from turnstile.core.errors import UsageError
from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Record, Summary
from turnstile.stores import SQLiteStore

path, time, live = sys.argv[1], float(sys.argv[2]), Summary("await_model")

def deliver(letter):
    print("letter", letter.number, letter.event.text, flush=True)

async def do(store, word, what, lease):
    if word == "create":
        return await store.create(Record(RunStarted(what, "prompt", session="chat")), live, deliver)
    if word == "claim":
        return await store.claim(what, deliver)
    await store.append(lease, [Record(MessageInjected(what))], live)
    return lease

async def main():
    store, lease = SQLiteStore(path, lease=time), None
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, what = line.split()
        try:
            lease = await do(store, word, what, lease)
        except UsageError as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("epoch", lease.epoch, flush=True)

asyncio.run(main())
"""


@contextmanager
def driving(path: Path, lease: float = 3600.0) -> Iterator[subprocess.Popen[str]]:
    """A process that creates, claims or appends as it is told, and says what came of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVE, str(path), str(lease)],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert says(process) == "ready"
        yield process
        process.kill()


def tell(process: subprocess.Popen[str], word: str, what: str) -> None:
    """Tell a process what to do."""
    assert process.stdin
    process.stdin.write(f"{word} {what}\n")
    process.stdin.flush()


def ask(process: subprocess.Popen[str], word: str, what: str) -> str:
    """Tell a process what to do, and hear what came of it."""
    tell(process, word, what)
    return says(process)


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
    assert isinstance(start.event, RunStarted)
    assert start.event.run_id == run_id
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


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


async def claim(path: Path) -> Lease:
    """Claim the run in a process of its own, and let go of it."""
    async with SQLiteStore(path) as store:
        return await store.claim("run", ignore)


def test_one_of_three_processes_gets_a_run(tmp_path: Path) -> None:
    """Two that drive one run would do everything twice; each of the others is told who has it."""
    path = tmp_path / "runs.db"
    asyncio.run(begin(path))
    with ExitStack() as stack:
        processes = {process.pid: process for process in (stack.enter_context(driving(path)) for _ in range(3))}
        for process in processes.values():
            tell(process, "claim", "run")
        answers = {pid: says(process) for pid, process in processes.items()}
        [winner] = [pid for pid, answer in answers.items() if answer.startswith("epoch")]
        others = [answer for pid, answer in answers.items() if pid != winner]
        holder = f"process {winner} on host {socket.gethostname()!r}"
        assert all(answer.startswith(f"RunIsLeased run 'run' is driven by {holder};") for answer in others)
        assert ask(processes[winner], "append", "mine").startswith("epoch")
    assert kept(path, "run") == ["mine"]


async def begin(path: Path) -> None:
    """A store with a run that nobody drives."""
    async with SQLiteStore(path) as store:
        await store.create(Record(RunStarted("run", "prompt")), Summary("await_model"), ignore)


def test_a_killed_holder_is_replaced_at_once(tmp_path: Path) -> None:
    """Nobody should wait for a lease of an hour when its process is gone; the run's session is free as well."""
    path = tmp_path / "runs.db"
    with driving(path) as first, driving(path) as second:
        assert ask(first, "create", "run") == "epoch 1"
        assert ask(second, "claim", "run").startswith("RunIsLeased")
        assert ask(second, "create", "another").startswith("SessionBusy")
        first.kill()
        first.wait()
        assert ask(second, "create", "another") == "epoch 1"
        second.kill()
        second.wait()
    assert asyncio.run(claim(path)).epoch == 2


@contextmanager
def stopped(path: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """A process that is stopped, but not while it has the file locked."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")  # so that the process can only be waiting for it
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    connection.execute("ROLLBACK")
    connection.close()
    try:
        yield
    finally:  # or nobody could end it
        process.send_signal(signal.SIGCONT)


def test_a_stopped_holder_is_replaced_when_its_time_is_over(tmp_path: Path) -> None:
    """It may be revived at any moment, and must then find that nothing it writes is kept."""
    path = tmp_path / "runs.db"

    async def take_over() -> Lease:
        async with SQLiteStore(path) as store:
            while True:
                try:
                    lease = await store.claim("run", ignore)
                except RunIsLeased:  # until its time is over
                    await asyncio.sleep(0.01)
                else:
                    await store.append(lease, [Record(MessageInjected("taken over"))], Summary("await_model"))
                    return lease

    with driving(path, lease=0.2) as process, driving(path) as later:
        assert ask(process, "create", "run") == "epoch 1"
        assert ask(process, "append", "before").startswith("epoch")
        with stopped(path, process):
            assert asyncio.run(take_over()).epoch == 2
            assert ask(later, "claim", "run") == "epoch 3"
        answer = ask(process, "append", "revived")
        assert answer.startswith(f"RunIsLeased run 'run' is driven by process {later.pid} on host ")
        assert kept(path, "run") == ["before", "taken over"]
        assert ask(later, "append", "after") == "epoch 3"
    assert kept(path, "run") == ["before", "taken over", "after"]


def test_a_stopped_holder_keeps_its_run_within_its_time(tmp_path: Path) -> None:
    """A laptop's lid or a debugger stops a process for a while, and nobody else may take that for its end."""
    path = tmp_path / "runs.db"
    with driving(path) as process:
        assert ask(process, "create", "run") == "epoch 1"
        with stopped(path, process), pytest.raises(RunIsLeased, match=f"process {process.pid} on host"):
            asyncio.run(claim(path))
        assert ask(process, "append", "revived") == "epoch 1"


def test_letters_reach_a_run_in_another_process(tmp_path: Path) -> None:
    """Someone at a terminal speaks to an agent that runs elsewhere."""
    path = tmp_path / "runs.db"

    async def post(text: str) -> str:
        async with SQLiteStore(path) as store:
            return await store.post("run", MessageInjected(text))

    with driving(path) as first, driving(path) as second:
        assert ask(first, "create", "run") == "epoch 1"
        assert asyncio.run(post("hello")) == f"process {first.pid} on host {socket.gethostname()!r}"
        assert says(first) == "letter 1 hello"
        first.kill()
        first.wait()
        assert asyncio.run(post("anybody?")) == ""
        tell(second, "claim", "run")
        assert [says(second) for _ in range(3)] == ["letter 1 hello", "letter 2 anybody?", "epoch 2"]


def test_a_process_ends_although_it_holds_leases(tmp_path: Path) -> None:
    """The thread that renews them must not keep a finished script alive."""
    path = tmp_path / "runs.db"
    with driving(path) as process:
        assert ask(process, "create", "run") == "epoch 1"
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0
    assert asyncio.run(claim(path)).epoch == 2
