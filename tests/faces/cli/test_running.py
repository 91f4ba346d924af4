"""`turnstile run`: answers and exit statuses, the result as JSON, and where a prompt may come from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Here, Open

KINDS = """
from pydantic import BaseModel

from turnstile.agent import Agent
from turnstile.core.events import ModelFailed
from turnstile.core.limits import Limits, Retry
from turnstile.core.messages import Reply, Usage
from turnstile.testing import ScriptedModel, call
from turnstile.tools import tool


class Trip(BaseModel):
    city: str
    days: int


@tool
def look() -> str:
    "Look."
    return "seen"


def saying(*script: str, **options: str) -> None:
    return Agent(ScriptedModel(script), tools=[look], **options)


typed = saying('{"city": "大理", "days": 4}', output=Trip)
refused = saying(ModelFailed("authentication", "bad \\x1b[31mkey", 401, "req-1"))
endless = saying(Reply("I look.", (call("look"),), "tool_calls"), limits=Limits(turns=1))
wrapping = saying(call("look"), "What I have.", limits=Limits(turns=1, on_exhausted="wrap_up"))
empty = saying(call("look"), "")
flaky = saying(ModelFailed("overloaded", status=529), "Here.", retry=Retry(base_delay=0))
dear = saying("Hello.", limits=Limits(cost=1))
unusual = saying(*["lone \\ud83d surrogate, \\u202eoverride, \\x9b31mC1, \\r\\nbreak"] * 2)
echo = Agent(ScriptedModel(lambda request: request.items[-1].text))
writing = Agent(ScriptedModel(lambda request: open("no/such/file", "w")))
"""


@pytest.fixture(autouse=True)
def _kinds(folder: Path) -> None:
    (folder / "kinds.py").write_text(KINDS)


def test_the_answer_alone_is_on_standard_output(cli: Cli) -> None:
    """What a script reads must be the answer, cleaned of escape sequences; how it went is told beside it."""
    result = cli("run", "demo:agent", "hi")
    assert result.returncode == 0
    assert result.stdout == "Answer 1: sunny.\n"
    lines = result.stderr.splitlines()
    assert lines[0] == "model: scripted:model (the agent's own)"
    assert "turn 1: get_weather ×2, explode" in lines
    assert any(line.startswith("  explode error") and line.endswith("ValueError: no luck") for line in lines)
    assert lines[-1].startswith("done (answered): 2 turns, 3 tool calls, 350 tokens, run ")
    assert lines.count("printed by a tool") == 2
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("agent", "status", "stdout", "says"),
    [
        ("typed", 0, '{\n  "city": "大理",\n  "days": 4\n}\n', "done (answered)"),
        ("refused", 1, "", "failed (infrastructure_error): 0 turns, run "),
        ("endless", 1, "", "failed (max_turns): 1 turn, run "),
        ("wrapping", 0, "What I have.\n", "it ran into its limit max_turns and answered with what it had"),
        ("empty", 0, "", "mind: empty_answer"),
        ("flaky", 0, "Here.\n", "await_model → await_model: retry (overloaded 529); next CallModel (attempt 2"),
        ("dear", 2, "", "Limits.cost=1 cannot be held"),
    ],
)
def test_exit_status_and_summary_tell_how_it_ended(here: Here, agent: str, status: int, stdout: str, says: str) -> None:
    """Scripts branch on the status and people read the last line, so both must tell the same ending."""
    result = here("run", f"kinds:{agent}", "hi")
    assert (result.exit_code, result.stdout) == (status, stdout)
    assert says in result.stderr


def test_a_failed_run_says_why_and_what_to_do(here: Here) -> None:
    """A stop reason without the server's words or a way out would send its reader to the source."""
    assert "authentication 401 bad key" in here("run", "kinds:refused", "hi").stderr
    ended = here("run", "kinds:endless", "hi").stderr
    assert "the last that the model wrote:\nI look.\n" in ended
    assert "--max-turns N allows more" in ended


def test_max_turns_takes_the_place_of_the_agents(here: Here) -> None:
    """The limit on the command line is for this run, whatever the agent's author chose."""
    result = here("run", "demo:agent", "hi", "--max-turns", "1")
    assert result.exit_code == 1
    assert "failed (max_turns): 1 turn" in result.stderr


def test_json_tells_all_of_an_answered_run(here: Here) -> None:
    """A program needs the answer as it was, how it ended, what it spent and its path, under fixed names."""
    result = here("run", "demo:agent", "hi", "--json", "--session", "s")
    told = json.loads(result.stdout)
    run_id = told.pop("run_id")
    assert f"run {run_id}" in result.stderr
    assert told == {
        "session": "s",
        "ok": True,
        "output": "Answer 1: \x1b[1msunny\x1b[0m.",
        "partial": "Answer 1: \x1b[1msunny\x1b[0m.",
        "stop": {"reason": "answered", "detail": "", "exhausted": None, "flags": [], "error": None},
        "waiting": [],
        "turns": 2,
        "usage": {"input_tokens": 300, "output_tokens": 50, "cached_tokens": None, "reasoning_tokens": None},
        "cost": None,
        "path": ["await_model", "execute_tools", "append_results", "await_model", "done"],
    }


def test_json_tells_all_of_a_failed_run(here: Here) -> None:
    """A failure must be as readable to a program as an answer: kind, status and request id of the error."""
    result = here("run", "kinds:refused", "hi", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (told["ok"], told["output"], told["path"]) == (False, None, ["await_model", "failed"])
    assert told["stop"]["error"] == {
        "kind": "authentication",
        "status": 401,
        "message": "bad \x1b[31mkey",
        "request_id": "req-1",
    }


def test_json_gives_a_typed_output_as_it_is(here: Here) -> None:
    """An output type exists so that its value need not be parsed out of text a second time."""
    assert json.loads(here("run", "kinds:typed", "hi", "--json").stdout)["output"] == {"city": "大理", "days": 4}


def test_json_escapes_what_a_terminal_obeys_and_keeps_the_text(here: Here) -> None:
    """JSON on a terminal must be as harmless as text, and still hold what the model wrote."""
    shown = here("run", "kinds:unusual", "hi", "--json").stdout
    assert not set(shown) & set("\ud83d\u202e\x9b\x1b")
    assert json.loads(shown)["output"] == "lone \ud83d surrogate, \u202eoverride, \x9b31mC1, \r\nbreak"
    assert here("run", "kinds:unusual", "hi").stdout == "lone \ufffd surrogate, override, C1, \nbreak\n"


def test_an_agents_own_failed_write_is_not_taken_for_ours(here: Here) -> None:
    """An agent's code has files of its own, and their trouble is its bug, not a full standard output."""
    assert isinstance(here("run", "kinds:writing", "hi").exception, FileNotFoundError)


def test_a_prompt_can_come_through_a_pipe(here: Here) -> None:
    """`-` is how a file or another program's output becomes the prompt, as it is but for a byte order mark."""
    assert (
        here(
            "run",
            "kinds:echo",
            "-",
            stdin="\ufeff大理\n第二行\n",
        ).stdout
        == "大理\n第二行\n\n"
    )


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        ([], None, "no prompt; give it as an argument, or `-` to read standard input"),
        ([""], None, "the prompt is empty; the argument has nothing but white space"),
        ([" \n"], None, "the prompt is empty"),
        (["-"], "", "the prompt is empty; standard input has nothing but white space"),
        (["-"], b"abc\xff", "standard input is not valid UTF-8 (byte 3)"),
        (["a\udcffb"], None, "the prompt is not valid UTF-8"),
    ],
)
def test_a_prompt_that_is_none_is_misuse(
    here: Here, arguments: list[str], stdin: str | bytes | None, says: str
) -> None:
    """An empty or garbled prompt would cost a request and bring nonsense, so it ends before."""
    result = here("run", "kinds:echo", *arguments, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_dash_at_a_terminal_does_not_wait_for_ever(terminal: Open) -> None:
    """`-` with nothing piped in would look like a hang, so it says what it needs."""
    opened = terminal("run", "kinds:echo", "-")
    opened.wait_for("`-` reads the prompt from a pipe or a file, and standard input is neither")
    assert opened.finish() == 2


def test_an_unreadable_standard_input_is_one_line(folder: Path, environment: dict[str, str]) -> None:
    """A slip in a shell's redirection leaves a standard input that can only be written."""
    command = [sys.executable, "-c", "from turnstile.cli import main; main()", "run", "demo:agent", "-"]
    script = ["sh", "-c", 'exec "$@" 0>written', "sh", *command]
    result = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "turnstile: standard input cannot be read: Bad file descriptor; give the prompt as an argument"
    ]


@pytest.mark.parametrize("name", ["run.mmd", "run.svg", "run.png", "run.dot"])
def test_a_run_is_drawn_as_it_ended(here: Here, folder: Path, name: str) -> None:
    """The picture is asked for before the run and made after it, in the format that the file's name says."""
    result = here("run", "demo:agent", "hi", "--diagram", name)
    assert result.exit_code == 0
    content = (folder / name).read_bytes()
    assert content.startswith({"mmd": b"flowchart", "svg": b"<svg", "png": b"\x89PNG", "dot": b"digraph"}[name[-3:]])


@pytest.mark.parametrize(
    ("name", "says"),
    [("run.jpeg", "does not say what to write"), ("no/such/run.svg", "no folder 'no/such'")],
)
def test_a_picture_that_cannot_be_made_is_said_before_the_run(here: Here, name: str, says: str) -> None:
    """A run that was paid for must not end in a message that could have come first."""
    result = here("run", "demo:agent", "hi", "--diagram", name)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "model:" not in result.stderr
