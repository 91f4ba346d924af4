"""Which model is asked and why, where runs are kept, and what the log's options must bring along."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.stores import MemoryStore
from turnstile.testing import WireServer

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Here, Open

OWN_MODEL = """
from turnstile.agent import Agent
from turnstile.stores import MemoryStore
from turnstile.testing import ScriptedModel
from turnstile.stores import SQLiteStore
first, second = ScriptedModel(["hello"], name="first"), ScriptedModel(["hello"], name="second")
listed = Agent([first, second])
none = Agent()
storing = Agent(first, store=SQLiteStore("own.db"))
"""


@pytest.fixture
def owners(folder: Path) -> Path:
    """A module of agents with models of their own, and one without."""
    (folder / "owners.py").write_text(OWN_MODEL)
    return folder


@pytest.mark.parametrize(
    ("agent", "variables", "says"),
    [
        ("demo:agent", {"TURNSTILE_MODEL": "ollama:x"}, "model: scripted:model (the agent's own)"),
        ("owners:listed", {}, "model: first, then second (the agent's own)"),
        ("bundled", {}, "model: offline (scripted and offline, since no model is named and no provider's key is set)"),
    ],
)
def test_one_line_says_which_model_and_why(
    here: Here, owners: Path, agent: str, variables: dict[str, str], says: str
) -> None:
    """A model costs money and decides the answer, so nobody may have to guess which was asked, also in a pipe."""
    result = here("run", agent, "hi", **variables)
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == says


@pytest.mark.parametrize(
    ("arguments", "variables", "says"),
    [
        (["--model", "ollama:x"], {"TURNSTILE_MODEL": "vllm:y", "OPENAI_API_KEY": "k"}, "model: ollama:x (--model)"),
        ([], {"TURNSTILE_MODEL": "ollama:x", "OPENAI_API_KEY": "k"}, "model: ollama:x ($TURNSTILE_MODEL)"),
        ([], {"DEEPSEEK_API_KEY": "k", "DEEPSEEK_BASE_URL": "{url}"}, r"model: deepseek:.* (DEEPSEEK_API_KEY is set)"),
    ],
)
def test_options_come_before_the_environment_and_that_before_scripts(
    here: Here, owners: Path, arguments: list[str], variables: dict[str, str], says: str
) -> None:
    """The order is fixed by the design: --model, the agent's own, $TURNSTILE_MODEL, a key, and only then the script."""
    with WireServer([{"status": 401, "repeat": 9}]) as server:
        variables = {name: value.format(url=server.url) for name, value in variables.items()}
        bases = {"OLLAMA_BASE_URL": server.url, "VLLM_BASE_URL": server.url}
        result = here("run", "bundled", "hi", *arguments, "--max-turns", "1", **bases, **variables)
    first = result.stderr.splitlines()[0]
    head, _, reason = says.partition(".*")
    assert first.startswith(head)
    assert first.endswith(reason)
    assert result.exit_code == 1  # nobody is let in: the run fails, which is no misuse


@pytest.mark.parametrize(
    ("agent", "arguments", "says"),
    [
        ("owners:none", [], "no model is named and no key is set"),
        ("demo:agent", ["--model", "openai:gpt-5-mini"], "needs a key of openai: set OPENAI_API_KEY"),
        ("demo:agent", ["--model", "opanai:gpt-5-mini"], "did you mean 'openai:gpt-5-mini'"),
        ("demo:agent", ["--model", " "], "--model is empty; name one as provider:name"),
        ("demo:agent", ["--log-content"], "--log-content says what the log holds, and there is none; add --log-json"),
        ("demo:agent", ["--session", ""], "--session is empty; name the conversation"),
        ("demo:agent", ["--log-json", "no/such/folder.jsonl"], "the log 'no/such/folder.jsonl' cannot be opened"),
        ("demo:agent", ["--store", "demo.py"], "demo.py"),
        ("demo:agent", ["--store", "."], "cannot|not a"),
        (
            "demo:agent",
            ["--store", "no/such/runs.db"],
            "no folder 'no/such' for the store 'no/such/runs.db'; make it, or",
        ),
        ("demo:agent", ["--store", "demo.py/runs.db"], "its folder '.*demo.py' is a file; choose another folder"),
    ],
)
def test_what_is_missing_or_unreadable_is_one_line_before_any_request(
    here: Here, owners: Path, agent: str, arguments: list[str], says: str
) -> None:
    """A missing key or an unreadable file must be said at once, with what to set or give instead."""
    result = here("run", agent, "hi", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert re.search(says, last), last
    assert "Traceback" not in result.stderr
    assert not (owners / "no").exists()


def test_a_scripted_model_may_be_made_already(here: Here, folder: Path) -> None:
    """An installed agent's offline model may be a client as well as a function that makes one."""
    (folder / "needy.py").write_text(OWN_MODEL + "agent, offline_model = none, first\n")
    result = here("run", "needy", "hi")
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert result.stderr.startswith("model: first (scripted and offline")


def test_an_agent_made_for_one_provider_is_run_there(here: Here, folder: Path) -> None:
    """Keys of several are set: the one that the bundled agent prefers decides, and the line says so."""
    (folder / "needy.py").write_text(OWN_MODEL + "agent, PREFERS = none, 'anthropic'\n")
    body = {"content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"}
    with WireServer([{"body": body}]) as server:
        keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        result = here("run", "needy", "hi", **keys)
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    assert re.match(r"model: anthropic:\S+ \(ANTHROPIC_API_KEY is set\)", result.stderr)


def test_quiet_says_nothing_but_the_answer(here: Here, owners: Path) -> None:
    """A script that wants the answer only must get an empty standard error when all is well."""
    result = here("run", "owners:listed", "hi", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "")


def test_the_agent_of_a_module_stays_as_it_is(here: Here) -> None:
    """Options are for one command; the agent is its module's, which may run it, too."""
    assert here("run", "demo:agent", "hi", "--store", "runs.db").exit_code == 0
    assert isinstance(sys.modules["demo"].agent.store, MemoryStore)


def test_a_session_in_a_file_goes_on(here: Here) -> None:
    """The same session in another process must know what was said: that is what --store and --session are for."""
    options = ("--store", "runs.db", "--session", "monday", "--quiet")
    assert here("run", "demo:agent", "hi", *options).stdout == "Answer 1: sunny.\n"
    assert here("run", "demo:agent", "hi", *options).stdout == "Answer 2: sunny.\n"


def test_a_session_in_memory_is_said_to_end(here: Here) -> None:
    """Losing a conversation in silence would be a surprise, also to who asked for no file."""
    result = here("run", "demo:agent", "hi", "--session", "monday", "--store", "memory")
    assert result.exit_code == 0
    assert "note: session 'monday' is kept in memory and ends with this process" in result.stderr


def test_an_agents_own_store_is_used_and_let_go(here: Here, owners: Path) -> None:
    """An agent may bring its store, and without --store nothing takes its place."""
    result = here("run", "owners:storing", "hi", "--session", "monday")
    assert result.exit_code == 0
    assert "note: session" not in result.stderr
    assert (owners / "own.db").is_file()


def test_the_log_holds_content_only_when_told_to(here: Here, folder: Path) -> None:
    """What was said may be private, so a log has it only with --log-content."""
    assert here("run", "demo:agent", "a private matter", "--log-json", "plain.jsonl").exit_code == 0
    assert here("run", "demo:agent", "a private matter", "--log-json", "full.jsonl", "--log-content").exit_code == 0
    assert "a private matter" not in (folder / "plain.jsonl").read_text()
    assert "a private matter" in (folder / "full.jsonl").read_text()


def test_a_log_on_standard_output_makes_all_of_it_json(here: Here) -> None:
    """Whoever pipes the log to jq must be able to read every line, so the answer is JSON then, too."""
    result = here("run", "demo:agent", "hi", "--log-json", "-")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["event"] for line in lines[:-1]] == ["run_started", *["transition"] * 4]
    assert lines[-1]["output"] == "Answer 1: \x1b[1msunny\x1b[0m."


needs_full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a device that is always full"
)


@needs_full_device
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_lost_log_is_one_line_and_no_success(cli: Cli, command: str) -> None:
    """Who relies on the log must learn that it is not whole, though the answer is as good as ever."""
    prompt, stdin = (["hi"], "") if command == "run" else ([], "hi\n")
    result = cli(command, "demo:agent", *prompt, "--log-json", "/dev/full", "--quiet", stdin=stdin)
    assert (result.returncode, result.stdout) == (2, "Answer 1: sunny.\n")
    told = [line for line in result.stderr.splitlines() if line != "printed by a tool"]
    reason = "No space left on device"
    assert told == [f"the log '/dev/full' ends before the run does: {reason}; send it to a file with room"]


@needs_full_device
def test_a_log_lost_in_a_persons_chat_counts_when_they_leave(terminal: Open) -> None:
    """Leaving a chat is no failure, but a log that was asked for and is not there is one."""
    opened = terminal("chat", "demo:agent", "--log-json", "/dev/full")
    opened.wait_for("you> ")
    opened.type("hi\n")
    opened.wait_for("the log '/dev/full' ends before the run does")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 2
