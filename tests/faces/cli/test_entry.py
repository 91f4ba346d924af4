"""The command line's door: help, version, completion, usage errors, and streams that are closed or full."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.core.errors import NoRow

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Here

COMMAND = [sys.executable, "-c", "from turnstile.cli import main; main()"]
HEAVY = ("httpx", "orjson", "pydantic", "rich", "structlog")


def test_help_names_every_command_with_examples(here: Here) -> None:
    """Who runs it for the first time must learn from --help alone what there is and how to call it."""
    result = here("--help")
    assert result.exit_code == 0
    for word in ("run", "chat", "diagram", "agents", "tools", "models", "Examples:", "Exit status"):
        assert word in result.stdout


@pytest.mark.parametrize("command", ["run", "chat", "diagram", "agents list", "tools list", "models list"])
def test_each_command_teaches_by_example(here: Here, command: str) -> None:
    """An example says more than a list of options, so each command's help has one that starts as one would type it."""
    result = here(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"  turnstile {command}" in result.stdout


def test_run_and_chat_share_their_options(here: Here) -> None:
    """An option learnt with one command must work with the other; the names are fixed by the design."""
    shared = ("--model", "--store", "--session", "--max-turns", "--json", "--log-json", "--log-content", "--quiet")
    for command in ("run", "chat"):
        text = here(command, "--help").stdout
        assert all(f"{option} " in text for option in shared), command


def test_version_is_the_packages(here: Here) -> None:
    """A bug report begins with the version, so it must be that of what is installed."""
    from importlib.metadata import version

    assert here("--version").stdout == f"turnstile {version('turnstile-agent')}\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(option: str) -> None:
    """They must answer at once, so nothing that only a run needs may be imported for them."""
    code = (
        "import sys; sys.argv = ['turnstile', sys.argv[1]]\n"
        "from turnstile.cli import main\n"
        "try: main()\n"
        "finally: print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    shown = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True).stdout
    loaded = shown.partition("LOADED")[2].split()
    assert not set(HEAVY) & set(loaded)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rnu"], r"no such command 'rnu'.*did you mean 'run'"),
        (["--loud"], "no such option: --loud"),
        (["run"], "missing argument"),
        (["run", "demo:agent", "hi", "--modle", "x"], "no such option: --modle.*--model"),
        (["run", "demo:agent", "hi", "--max-turns", "0"], "--max-turns"),
        (["run", "demo:agent", "hi", "--max-turns", "many"], "--max-turns"),
        (["run", "demo:agent", "hi", "there"], "extra argument"),
        (["diagram", "--format", "jpeg"], "--format"),
    ],
)
def test_a_wrong_word_is_one_line_and_the_way_out(here: Here, arguments: list[str], says: str) -> None:
    """Whoever mistypes must see what was wrong and where to look, not a page to search through."""
    result = here(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.search(says, result.stderr, re.IGNORECASE)
    assert len(result.stderr.splitlines()) == 1
    assert "--help` tells what it takes" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["agents"], ["tools"], ["models"]])
def test_a_group_without_a_command_shows_what_there_is(here: Here, arguments: list[str]) -> None:
    """Half a command is misuse, and the list of what could follow is its way out."""
    result = here(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Commands:" in result.stderr


def test_agent_names_complete(environment: dict[str, str]) -> None:
    """A shell asks the program for completions through its environment; installed agents' names must come back."""
    asked = {"_TURNSTILE_COMPLETE": "complete_bash", "COMP_WORDS": "turnstile run bun", "COMP_CWORD": "2"}
    shown = subprocess.run(COMMAND, env={**environment, **asked}, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["bundled"]


def test_completion_can_be_shown_for_a_shell(environment: dict[str, str]) -> None:
    """Users copy the completion script or have it installed; both start from what --show-completion prints."""
    shown = subprocess.run(
        [*COMMAND, "--show-completion", "bash"], env=environment, capture_output=True, text=True, check=True
    )
    assert "_TURNSTILE_COMPLETE" in shown.stdout


def _run_with(
    folder: Path, environment: dict[str, str], redirection: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    script = f'exec "$@" {redirection}'
    command = ["sh", "-c", script, "sh", *COMMAND, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_closed_standard_output_is_said_before_money_is_spent(folder: Path, environment: dict[str, str]) -> None:
    """An answer that has nowhere to go must not be asked for."""
    result = _run_with(folder, environment, ">&-", "run", "demo:agent", "hi")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "turnstile: standard output is closed, so no answer can be given; leave it open, or send it to a file"
    ]


needs_full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a device that is always full"
)


@needs_full_device
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "demo:agent", "hi", "--quiet"],
        ["run", "demo:agent", "hi", "--quiet", "--json"],
        ["diagram"],
        ["tools", "list", "demo:agent"],
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["--show-completion", "bash"],
    ],
)
def test_a_full_disk_is_one_line(
    folder: Path, environment: dict[str, str], arguments: list[str], unbuffered: str
) -> None:
    """A failed write must neither look like success nor end in a traceback, whatever was to be written."""
    result = _run_with(folder, {**environment, "PYTHONUNBUFFERED": unbuffered}, ">/dev/full", *arguments)
    assert result.returncode == 2
    way_out = "send it to a terminal, a pipe, or a file with room"
    told = [line for line in result.stderr.splitlines() if line != "printed by a tool"]
    assert told == [f"turnstile: standard output cannot be written: No space left on device; {way_out}"]


@needs_full_device
def test_a_full_standard_error_changes_nothing_else(folder: Path, environment: dict[str, str]) -> None:
    """Nobody can be told that nothing can be told, and the answer is no worse for it."""
    result = _run_with(folder, environment, "2>/dev/full", "run", "demo:agent", "hi")
    assert (result.returncode, result.stdout) == (0, "Answer 1: sunny.\n")


def test_a_reader_that_has_gone_is_no_event(folder: Path, environment: dict[str, str]) -> None:
    """In `turnstile … | head -1` the reader's leaving is its own business: no traceback and no complaint."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "tools", "list", "demo:agent"]
    try:
        result = subprocess.run(
            command, cwd=folder, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (2, "")


def test_closed_standard_error_changes_nothing_else(folder: Path, environment: dict[str, str]) -> None:
    """What is told along the way may be unwanted; the answer still comes, and alone."""
    result = _run_with(folder, environment, "2>&-", "run", "demo:agent", "hi")
    assert (result.returncode, result.stdout) == (0, "Answer 1: sunny.\n")


def test_ctrl_c_while_it_loads_is_no_bug(cli: Cli, folder: Path) -> None:
    """Loading takes a moment, in which people change their minds; a traceback would tell them of our imports."""
    (folder / "typer.py").write_text("raise KeyboardInterrupt\n")
    result = cli("--version")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_a_table_with_a_hole_shows_its_traceback(here: Here, folder: Path) -> None:
    """An event that no row takes is a bug in a table, with all that is needed to report it."""
    (folder / "holed.py").write_text(
        "from turnstile.agent import Agent\nfrom turnstile.core.machine import Machine\n"
        "from turnstile.core.table import TABLE\nfrom turnstile.testing import ScriptedModel\n"
        "ends = {'answered', 'repair_output', 'invalid_output', 'nudge_empty', 'no_answer'}\n"
        "machine = Machine(rows=[row for row in TABLE if row.name not in ends])\n"
        "agent = Agent(ScriptedModel(['Hello.']), machine=machine)\n"
    )
    assert isinstance(here("run", "holed:agent", "hi").exception, NoRow)


def test_an_agents_own_bug_shows_its_traceback(here: Here, folder: Path) -> None:
    """A bug in user code is neither misuse nor a failed run: hiding where it happened would cost its author hours."""
    (folder / "buggy.py").write_text(
        "from turnstile.agent import Agent\nfrom turnstile.testing import ScriptedModel\n"
        "agent = Agent(ScriptedModel(lambda request: 1 / 0))\n"
    )
    result = here("run", "buggy:agent", "hi")
    assert isinstance(result.exception, ZeroDivisionError)
