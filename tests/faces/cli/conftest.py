"""Ways to use the command line as people and scripts do: as a process with pipes, and as one in a terminal."""

from __future__ import annotations

import errno
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from turnstile.cli.app import app

COMMAND = (sys.executable, "-c", "from turnstile.cli import main; main()")
# A new session takes the terminal at its standard input as its own, so that Ctrl-C there reaches it (tty_ioctl(4)); and
# heeds it, also where these tests run in the background of a shell, whose commands ignore it (POSIX, "sh", 2.11).
IN_TERMINAL = (
    sys.executable,
    "-c",
    "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.default_int_handler); " + COMMAND[-1],
)
STORE = "kept.db"  # in the folder of a test: what the user's own store is elsewhere
PATIENCE = 60.0  # seconds until a process that should have spoken counts as hanging; nothing waits that long otherwise

AGENTS = '''
import sys

from turnstile.agent import Agent
from turnstile.core.messages import Reply, Usage
from turnstile.testing import ScriptedModel, call
from turnstile.tools import tool


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    sys.stdout.write("printed by a tool\\n")  # in one piece, since two threads do so at once
    return f"sunny in {city}\\x1b[31m"


@tool
def explode() -> str:
    """Always fails."""
    raise ValueError("no \\x1b]0;title\\x07luck")


def talk(request):
    """Calls tools first, then answers, for every question."""
    last = request.items[-1]
    if last.kind == "user":
        calls = (call("get_weather", city="Oslo"), call("get_weather", city="Rome"), call("explode"))
        return Reply("Let me look.", calls, "tool_calls", usage=Usage(100, 20))
    asked = sum(item.kind == "user" for item in request.items)
    return Reply(f"Answer {asked}: \\x1b[1msunny\\x1b[0m.", usage=Usage(200, 30))


agent = Agent(ScriptedModel(talk), name="demo", tools=[get_weather, explode])
bundled = Agent(name="bundled", tools=[get_weather, explode])


def offline_model():
    return ScriptedModel(talk, name="offline")
'''
EXTENDED = """
from dataclasses import dataclass

from turnstile.agent import Agent
from turnstile.core.changes import accept, answer
from turnstile.core.events import Event, ModelReplied
from turnstile.core.guards import is_answer
from turnstile.core.machine import loop
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.states import State, await_model, done
from turnstile.testing import ScriptedModel


@dataclass(frozen=True, slots=True)
class Reviewed(Event):
    codec_name = "reviewed"

    def apply(self, run):
        return run


review = State("review", asks="Review")


async def perform(run):
    return Reviewed()


machine = loop.extend(
    states=[review],
    rows=[
        before("answered", row("to_review", await_model, ModelReplied, [is_answer], review, answer)),
        row("reviewed", review, Reviewed, [], done),
    ],
    performs={"Review": perform},
)
agent = Agent(ScriptedModel(["Hello."] * 9), machine=machine)


def is_first(run, event):
    return run.turns == 0


doubt = row("doubt", await_model, ModelReplied, [is_first], AGAIN, accept)
doubting = Agent(ScriptedModel(["Hello.", "Really."]), machine=loop.extend(rows=[before("answered", doubt)]))
"""
ENTRY_POINTS = """[turnstile.agents]
bundled = demo:bundled
needy = needy:agent
"""


class Terminal:
    """A process of the command line in a pseudo-terminal, as a person sees and types it."""

    def __init__(
        self, arguments: tuple[str, ...], folder: Path, environment: dict[str, str], output: Path | None
    ) -> None:
        self._master, slave = pty.openpty()
        stdout = os.open(output, os.O_WRONLY | os.O_CREAT) if output else os.dup(slave)
        self._process = subprocess.Popen(
            [*IN_TERMINAL, *arguments],
            stdin=slave,
            stdout=stdout,
            stderr=slave,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        os.close(stdout)
        self._seen = ""
        self._read_to = 0

    @property
    def raw(self) -> str:
        """All that was written to the terminal so far, escape sequences included."""
        return self._seen

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the terminal shows what matches, after what was waited for before."""
        until = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern).search(self._seen, self._read_to)
            if found:
                self._read_to = found.end()
                return found
            assert self._read_more(until), f"{pattern!r} never came; the terminal shows {self._seen!r}"

    def modes(self) -> list[object]:
        """How the terminal is set: echo, single keys or lines, and so on."""
        return list(termios.tcgetattr(self._master))

    def wait_until_it_waits(self) -> None:
        """Wait until the process sleeps, as it does once it has shown a key and waits for the next one."""
        until = time.monotonic() + PATIENCE
        status = Path(f"/proc/{self._process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < until, f"the process never waits; the terminal shows {self._seen!r}"
            time.sleep(0.01)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def finish(self) -> int:
        """Wait until the process has ended, and give its exit status."""
        until = time.monotonic() + PATIENCE
        while self._read_more(until):
            pass
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read_more(self, until: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError(f"the process is silent; the terminal shows {self._seen!r}")
        try:
            chunk = os.read(self._master, 65536)
        except OSError as error:  # Linux reports the end of a terminal's last process so
            if error.errno != errno.EIO:
                raise
            return False
        self._seen += chunk.decode("utf-8", "replace")
        return bool(chunk)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for commands to run in: modules with agents, and an installed package that names its agents."""
    (tmp_path / "demo.py").write_text(AGENTS)
    (tmp_path / "extended.py").write_text(EXTENDED)
    package = tmp_path / "demo-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """What processes get as their environment: this one's, as bare as the tests have it, and a capable terminal.

    Standard output is buffered in them, as it is for users: what fails at its last flush must be seen here, too. Which
    shell a completion is for is said and not looked up among the parents, where there may be none.
    """
    own = {"TERM": "xterm", "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "", "TURNSTILE_DB": str(folder / STORE)}
    return {**os.environ, **own, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


Cli = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Here = Callable[..., Result]


@pytest.fixture
def cli(folder: Path, environment: dict[str, str]) -> Cli:
    """Runs the command line with pipes, as a script does."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *arguments]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def terminal(folder: Path, environment: dict[str, str]) -> Iterator[Open]:
    """Runs the command line in a terminal, as a person does."""
    opened: list[Terminal] = []

    def run(*arguments: str, output: Path | None = None, **variables: str) -> Terminal:
        opened.append(Terminal(arguments, folder, {**environment, **variables}, output))
        return opened[-1]

    yield run
    for each in opened:
        each.close()


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Runs the command line in this process, in the folder, for what needs no process of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TURNSTILE_DB", str(folder / STORE))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    before = set(sys.modules)

    def run(*arguments: str, stdin: str | bytes | None = None, **variables: str) -> Result:
        return CliRunner().invoke(app, arguments, input=stdin, env=variables, prog_name="turnstile")

    yield run
    for name in [name for name in sys.modules if name not in before and _is_in(folder, sys.modules[name])]:
        del sys.modules[name]


def _is_in(folder: Path, module: ModuleType) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))
