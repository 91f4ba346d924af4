"""`turnstile cancel`, `approve` and `deny`: a run hears of it whichever process drives it, or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Leave, Start

LOST = "outcome unknown: the process that ran it was lost; a person was asked, and does not know"
ASKS = """
import os
from dataclasses import dataclass

from turnstile.agent import Agent
from turnstile.core.changes import accept
from turnstile.core.events import Event, ModelReplied
from turnstile.core.guards import is_answer
from turnstile.core.machine import loop
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.states import State, await_model
from turnstile.testing import ScriptedModel, call
from turnstile.tools import tool


def is_first(run, event):
    return run.turns == 0


@tool(access="read")
async def look() -> str:
    "Look."
    if "HANG" in os.environ:
        await __import__("asyncio").Event().wait()
    return "seen"


def script(request):
    last = request.items[-1]
    if last.kind == "user":
        return "Hello."
    return "Really." if last.results else call("look")


doubt = row("doubt", await_model, ModelReplied, [is_answer, is_first], AGAIN, accept)
agent = Agent(ScriptedModel(script), tools=[look], machine=loop.extend(rows=[before("answered", doubt)]))


@dataclass(frozen=True, slots=True)
class Reviewed(Event):
    codec_name = "reviewed"

    def apply(self, run):
        return run


async def perform(run):
    return Reviewed()


review = State("review", asks="Review")
to_review = row("to_review", await_model, ModelReplied, [is_answer, is_first], review, accept)
reviewing = loop.extend(
    states=[review],
    rows=[before("answered", to_review), row("reviewed", review, Reviewed, [], await_model)],
    performs={"Review": perform},
)
reviewed = Agent(ScriptedModel(script), tools=[look], machine=reviewing)
"""


def run_id_of(here: Here) -> str:
    """The id of the newest run."""
    return here("runs", "list").stdout.split("\t")[0]


def test_a_live_run_is_cancelled_from_another_process(start: Start, here: Here) -> None:
    """It ends within moments, its own process tells why with status 1, and so does its journal."""
    live = start("run", "left:agent", "look pay", HANG="pay look").wait_for("began pay")
    run_id = run_id_of(here)
    told = here("cancel", run_id[:5], "--why", "the customer called")
    assert told.exit_code == 0
    line = rf"run {run_id}: process {live.pid} on host '.+' drives it, and gets the letter\n"
    assert re.fullmatch(line, told.stderr)
    ended = live.finish()
    assert (ended.returncode, ended.stdout) == (1, "")
    summary = f"failed (cancelled): 1 turn, 2 tool calls, run {run_id}; the customer called"
    assert ended.stderr.splitlines()[-1] == summary
    shown = here("runs", "show", run_id).stdout
    assert "failed: cancelled" in shown
    assert "the customer called" in shown


def test_a_run_that_nobody_drives_has_ended_then(here: Here, leave: Leave) -> None:
    """There is nobody to wait for; the second time there is nobody to tell, and the line says so."""
    leave("wire pay", "r")
    told = here("cancel", "r")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "run r: it has ended (failed: cancelled)\n")
    again = here("cancel", "r", "-q")
    assert again.exit_code == 2
    assert again.stderr == "turnstile: run 'r' has ended (failed); there is nobody to tell\n"


def test_quiet_says_nothing(here: Here, leave: Leave) -> None:
    """A script that asked for quiet wants the status alone."""
    leave("look", "r")
    told = here("cancel", "r", "--quiet")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("command", "answer", "times"),
    [
        ("approve", "wire ok: wire done", 2),
        ("approve --result sent", "wire ok: sent", 1),
        ("deny", f"wire unknown: {LOST}", 1),
        ("deny --why closed", f"wire unknown: {LOST} (closed)", 1),
    ],
)
def test_decisions(here: Here, leave: Leave, command: str, answer: str, times: int) -> None:
    """Whoever knows what became of a call says so, and the run goes on by that."""
    leave("wire", "r")
    assert here("resume", "r", "-q").exit_code == 3
    told = here(*command.split(), "r", "c_wire")
    assert told.exit_code == 0
    assert told.stderr == (
        "run r: it has taken the letter, and stands in execute_tools; `turnstile resume r` goes on with it\n"
    )
    assert here("resume", "r", "-q").stdout == f"{answer}\n"
    assert Path("begun").read_text().split() == ["wire"] * times


def test_two_deciders_before_the_run_goes_on(here: Here, leave: Leave, folder: Path) -> None:
    """Of two letters that wait, the careful one is heard: what is denied does not run, whoever came first."""
    leave("wire", "r")
    line = (
        "run r: nobody drives it, and the letter waits for whoever resumes it; `turnstile resume r` goes on with it\n"
    )
    assert here("approve", "r", "c_wire").stderr == line
    assert here("deny", "r", "c_wire", "--why", "no").stderr == line
    assert here("resume", "r", "-q").stdout == f"wire unknown: {LOST} (no)\n"
    assert (folder / "begun").read_text().split() == ["wire"]


def test_a_call_at_work_is_not_to_be_decided_about(start: Start, here: Here) -> None:
    """A letter that its driver would drop must not be taken for a decision; what can be done is said."""
    live = start("run", "left:agent", "wire", HANG="wire").wait_for("began wire")
    run_id = run_id_of(here)
    for command in ("approve", "deny"):
        refused = here(command, run_id, "c_wire")
        assert refused.exit_code == 2
        assert re.fullmatch(
            rf"turnstile: call 'c_wire' of run '{run_id}' is at work, so there is nothing to decide yet: process "
            rf"{live.pid} on host '.+' drives it; wait for its end, or stop it: turnstile cancel {run_id}\n",
            refused.stderr,
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cancel", "nope"], "has no run 'nope'"),
        (["cancel", "r"], "'r' may be any of the runs r1, r2"),
        (["approve", "r1", "c_look"], r"call 'c_look' of run 'r1' waits for no decision; those that do: 'c_wire' \("),
        (["deny", "r2", "c_look"], "call 'c_look' of run 'r2' waits for no decision; those that do: none"),
        (["approve", "r1"], "missing argument 'CALL'"),
        (["cancel", "r1", "--store", "nope.db"], "no store 'nope.db' to look for runs in"),
        (["cancel", "r1", "--agent", "left:nobody"], "module 'left' has no 'nobody'"),
    ],
)
def test_misuse_is_one_line(here: Here, leave: Leave, arguments: list[str], says: str) -> None:
    """Each wrong call names the thing and the way out."""
    leave("wire", "r1")
    leave("look", "r2")
    assert here("resume", "r1", "-q").exit_code == 3
    result = here(*arguments)
    assert result.exit_code == 2
    assert re.search(says, result.stderr)
    assert result.stderr.count("\n") == 1


def test_a_run_of_another_machine(here: Here, leave: Leave, folder: Path) -> None:
    """Read by the built-in machine it would seem to have ended; who names its agent is heard."""
    (folder / "asks.py").write_text(ASKS)
    leave("x", "r", name="asks:agent")
    refused = here("cancel", "r")
    assert refused.exit_code == 2
    assert re.search(r"run 'r' was made by another machine .+; give the agent .+\(--agent asks:agent\)", refused.stderr)
    assert refused.stderr.count("\n") == 1
    assert here("resume", "r", "--agent", "left:agent", "-q").exit_code == 2
    assert here("resume", "r", "-q").stdout == "Really.\n"
    leave("x", "s", name="asks:agent")
    assert here("cancel", "s", "--agent", "asks:agent").stderr == "run s: it has ended (failed: cancelled)\n"


def test_a_run_with_events_of_its_own(here: Here, leave: Leave, folder: Path) -> None:
    """The built-in machine cannot even read them, which is no bug: the line says what to add."""
    (folder / "asks.py").write_text(ASKS)
    leave("x", "r", name="asks:reviewed")
    for command in (["cancel", "r"], ["resume", "r", "-q", "--agent", "left:agent"]):
        refused = here(*command)
        assert refused.exit_code == 2
        assert re.search("run 'r' cannot be read: .*reviewed.*; .*add --agent AGENT", refused.stderr)
        assert refused.stderr.count("\n") == 1
    assert here("resume", "r", "-q").stdout == "Really.\n"
    leave("x", "s", name="asks:reviewed")
    assert here("cancel", "s", "--agent", "asks:reviewed", "-q").exit_code == 0
