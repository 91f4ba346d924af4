"""Ways to use the command line as people and scripts do: as a process with pipes, and as one in a terminal."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from turnstile.agent import Agent
from turnstile.cli.app import app
from turnstile.cli.storing import file_store
from turnstile.core.run_state import RunState
from turnstile.driver import Run
from turnstile.ports import Notice, ToolStarted

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
commands = cache(get_command)  # typer makes all of them anew each time, which takes twice as long as most of them do
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
LEFT = '''
import asyncio
import os
import sys
import time
from pathlib import Path

from turnstile.agent import Agent
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, ToolCall
from turnstile.testing import FrozenClock, ScriptedModel
from turnstile.tools import tool


async def work(name):
    """Note that it began, and end, unless this process is told to hang there."""
    with Path("begun").open("a") as file:
        file.write(f"{name}\\n")
    if name in os.environ.get("HANG", "").split():
        print(f"began {name}", file=sys.stderr, flush=True)
        await asyncio.Event().wait()
    return f"{name} done"


@tool
async def pay() -> str:
    """Pay."""
    return await work("pay")


@tool(on_in_doubt="ask")
async def wire() -> str:
    """Send money."""
    return await work("wire")


@tool(access="read")
async def look() -> str:
    """Look."""
    return await work("look")


@tool(access="read")
async def quick() -> str:
    """Look quickly."""
    return await work("quick")


async def script(request):
    """Call the tools that the user names, then tell what came of them."""
    last = request.items[-1]
    if last.kind != "user":
        return "; ".join(f"{result.name} {result.status}: {result.content}" for result in last.results)
    if last.text == "model":
        return await work("model")
    if last.text == "retry":
        return ModelFailed("overloaded", "busy", retry_after=50.0) if "BUSY" in os.environ else "Answered at last."
    return Reply("I work.", tuple(ToolCall(f"c_{name}", name, "{}") for name in last.text.split()), "tool_calls")


class Frozen(FrozenClock):
    """Waits for nothing, and says so."""

    async def sleep(self, seconds):
        """Tell how long it would be."""
        print(f"waits {seconds > 0 and seconds < 50}", file=sys.stderr)


clock = Frozen(time.time()) if "FROZEN" in os.environ else None
agent = Agent(ScriptedModel(script), name="left", tools=[pay, wire, look, quick], clock=clock)
'''
ENTRY_POINTS = """[turnstile.agents]
bundled = demo:bundled
needy = needy:agent
"""


class Process:
    """A process of the command line under way, whose standard error is read as it comes."""

    def __init__(self, arguments: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=pipe, stderr=pipe, stdin=pipe, text=True, cwd=folder, env=environment
        )
        self._patience = threading.Timer(PATIENCE, self._process.kill)
        self._patience.start()
        self.pid = self._process.pid
        self.stderr = ""

    def wait_for(self, pattern: str) -> Process:
        """Wait until it says what matches."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.stderr += line
            if re.search(pattern, line):
                return self
        raise AssertionError(f"{pattern!r} never came; it said {self.stderr!r}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self.finish()

    def close(self) -> None:
        """End it, whatever it does."""
        self._patience.cancel()
        self._process.kill()
        with self._process:
            pass

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Wait until it has ended, and give all that it said."""
        with self._process as process:
            assert process.stderr is not None
            assert process.stdout is not None
            self.stderr += process.stderr.read()
            stdout = process.stdout.read()
        self._patience.cancel()
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, self.stderr)


class Begun:
    """Waits for a number of calls to have begun."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.all = asyncio.Event()

    def observe(self, notice: Notice, run: RunState) -> None:
        """Count them."""
        self._left -= isinstance(notice, ToolStarted)
        if not self._left:
            self.all.set()


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
    (tmp_path / "left.py").write_text(LEFT)
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
Start = Callable[..., Process]
Leave = Callable[..., None]


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
    monkeypatch.setattr("typer.testing._get_command", commands, raising=False)  # a release without it takes longer
    before = set(sys.modules)

    def run(*arguments: str, stdin: str | bytes | None = None, **variables: str) -> Result:
        return CliRunner().invoke(app, arguments, input=stdin, env=variables, prog_name="turnstile")

    yield run
    for name in [name for name in sys.modules if name not in before and _is_in(folder, sys.modules[name])]:
        del sys.modules[name]


@pytest.fixture
def start(folder: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Starts the command line with pipes, and goes on while it works; variables are for its environment."""
    started: list[Process] = []

    def run(*arguments: str, **variables: str) -> Process:
        started.append(Process(arguments, folder, {**environment, **variables}))
        return started[-1]

    yield run
    for each in started:
        each.close()


@pytest.fixture
def leave(folder: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Leaves a run of `left` with its calls under way, as a lost process leaves it; which takes no process."""

    def run(prompt: str, run_id: str, name: str = "left:agent", session: str | None = None) -> None:
        module, _, attribute = name.partition(":")
        with monkeypatch.context() as patched:
            patched.setenv("HANG", prompt)
            agent = copy(getattr(import_module(module), attribute))
            agent.origin = name
            asyncio.run(begun(agent, prompt, run_id, session))

    async def begun(agent: Agent[str], prompt: str, run_id: str, session: str | None) -> None:
        agent.store = store = file_store(str(folder / STORE), agent.machine)
        calls = Begun(len(prompt.split()))
        live: Run[str] = agent.start(prompt, run_id=run_id, session=session, observers=[calls])
        driving = asyncio.create_task(live.finish())
        await calls.all.wait()
        driving.cancel()
        await asyncio.wait([driving])
        await live.__aexit__(None, None, None)
        await store.aclose()

    return run


def _is_in(folder: Path, module: ModuleType) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(folder))
