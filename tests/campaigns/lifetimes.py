"""Runs the subject in processes of its own, and kills them at a system call, or at an operation of SQLite's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from case import Case
from ledger import Ledger
from stored import case_of, opened, run_ids
from subject import drive
from turnstile.core.errors import NoSuchRun

SUBJECT = Path(__file__).with_name("subject.py")
CALLS = ("write", "pwrite64", "fsync", "fdatasync", "rename", "unlink", "ftruncate")
TIMEOUT = 120.0  # seconds, of a process that takes one
KILLED = -9
CANARY = "sk-canary-4f1c9a7e"  # a key in the environment of every process, to be found in no file


@dataclass(frozen=True, slots=True)
class Scene:
    """Where one run is kept and written down.

    Attributes:
        folder: Holds the store's file and the ledger.
        run_id: The run.
    """

    folder: Path
    run_id: str = "run"

    @property
    def store(self) -> Path:
        """The store's file."""
        return self.folder / "runs.db"

    @property
    def ledger(self) -> Ledger:
        """What happened."""
        return Ledger(self.folder / "ledger")

    def command(self, what: str, *more: str) -> list[str]:
        """The subject's command line."""
        return [sys.executable, str(SUBJECT), what, str(self.store), str(self.ledger.path), self.run_id, *more]

    def case(self) -> Case:
        """The run as it is stored, with what is known of it, and all that was written."""
        with opened(self.store) as connection:
            case = case_of(connection, self.run_id, self.ledger.entries())
        written = tuple(file.read_bytes() for file in self.folder.iterdir())
        return replace(case, secrets=(CANARY,), written=written)

    @property
    def begun(self) -> bool:
        """Whether the run is stored at all."""
        if not self.store.exists():
            return False
        with opened(self.store) as connection:
            return self.run_id in run_ids(connection)

    async def finish(self) -> None:
        """Go on with the run in this process until it has ended; begin it when it never was."""
        try:
            await drive("resume", self.store, self.ledger, self.run_id)
        except NoSuchRun:
            await drive("start", self.store, self.ledger, self.run_id)


def environment() -> dict[str, str]:
    """That of the processes: ours, without what would have them written about or write more than they do."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "OPENAI_API_KEY": CANARY}


def run(command: Sequence[str]) -> tuple[int, str]:
    """Run a process to its end; gives its exit status and what it said to stderr."""
    done = subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stderr


def traced(*how: str) -> list[str]:
    """How a command is begun that strace watches, with its threads.

    Without ``--seccomp-bpf``, under which strace 6.1 counts the calls and sends no signal.
    """
    return ["strace", "-f", "-qq", *how]


def why_no_strace() -> str:
    """Why no process can be killed at a system call here; empty when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    killing = traced("-o", os.devnull, "-e", "trace=write", "-e", "inject=write:signal=SIGKILL:when=1")
    status, said = run([*killing, "echo", "said"])
    return "" if status == KILLED else f"strace cannot kill here (exit status {status}): {said.strip()[:200]}"


def counted(scene: Scene) -> dict[str, int]:
    """How often one thread of the subject makes each system call at most, from a run of it that nothing kills."""
    trace = scene.folder / "trace"
    status, said = run([*traced("-o", str(trace), "-e", f"trace={','.join(CALLS)}"), *scene.command("start")])
    assert status == 0, said
    counts: dict[tuple[str, str], int] = {}
    for line in trace.read_text().splitlines():
        thread, _, rest = line.partition(" ")
        name = rest.strip().partition("(")[0]
        if name in CALLS:
            counts[thread, name] = counts.get((thread, name), 0) + 1
    most: dict[str, int] = {}
    for (_, name), count in counts.items():
        most[name] = max(count, most.get(name, 0))
    return most


def killed_at(scene: Scene, what: str, name: str, number: int) -> int:
    """Run the subject, killed when a thread makes a system call for the so many-th time; gives its exit status."""
    inject = f"inject={name}:signal=SIGKILL:when={number}"
    status, said = run([*traced("-o", os.devnull, "-e", f"trace={name}", "-e", inject), *scene.command(what)])
    assert status in {0, KILLED}, f"{what} under {inject}: exit status {status}: {said}"
    return status


def killed_writing(scene: Scene, what: str, number: int) -> int:
    """Run the subject, killed at SQLite's so many-th operation on a file; gives its exit status."""
    status, said = run(scene.command(what, str(number)))
    assert status in {0, KILLED}, f"{what} to operation {number}: exit status {status}: {said}"
    return status
