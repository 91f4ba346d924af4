"""`turnstile resume`: what a lost process left goes on in another, and it is said what was found and what is done."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING

import apsw
import pytest

from turnstile.agent import Agent
from turnstile.core.events import CallFinished, ChangesAccepted, Event
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Leave, Open, Start

PATIENCE = 60.0  # seconds until what should have come counts as missing; nothing waits that long otherwise


async def _events(path: Path, run_id: str) -> list[Event]:
    async with SQLiteStore(path) as store:
        return [record.event for record in await store.load(run_id)]


def events(folder: Path, run_id: str) -> list[Event]:
    """The events of a kept run."""
    return asyncio.run(_events(folder / "kept.db", run_id))


async def _only(path: Path) -> str:
    async with SQLiteStore(path) as store:
        (run_id,) = await store.find("")
        return run_id


def only(folder: Path) -> str:
    """The id of the one run that is kept."""
    return asyncio.run(_only(folder / "kept.db"))


def begun(folder: Path) -> list[str]:
    """What tools and models began, in order."""
    return (folder / "begun").read_text().split()


def test_killed_in_a_tool_that_writes(start: Start, folder: Path) -> None:
    """What may have changed the world is not done again; the model is told, and the person, too."""
    lost = start("run", "left:agent", "quick pay", HANG="pay").wait_for("began pay")
    run_id, until = only(folder), time.monotonic() + PATIENCE
    while not any(isinstance(event, CallFinished) for event in events(folder, run_id)):
        assert time.monotonic() < until
    lost.kill()
    resumed = start("resume", run_id[:4]).finish()
    outcome = "outcome unknown: the process that ran it was lost"
    assert (resumed.returncode, resumed.stdout) == (0, f"quick ok: quick done; pay unknown: {outcome}\n")
    assert resumed.stderr.splitlines() == [
        "model: scripted:model (the agent's own)",
        f"run {run_id} goes on in execute_tools after 1 transition",
        "  finished, and kept: quick (c_quick)",
        "  in doubt, and not run again: pay (c_pay)",
        "execute_tools → execute_tools: recovered",
        f"done (answered): 2 turns, 2 tool calls, run {run_id}",
    ]
    assert sorted(begun(folder)) == ["pay", "quick"]


def test_killed_in_a_tool_that_reads(start: Start, here: Here, folder: Path) -> None:
    """What only looks is looked at again; with --quiet only the answer is told."""
    start("run", "left:agent", "look", HANG="look").wait_for("began look").kill()
    resumed = here("resume", only(folder), "--quiet")
    assert (resumed.exit_code, resumed.stdout, resumed.stderr) == (0, "look ok: look done\n", "")
    assert begun(folder) == ["look", "look"]


def test_killed_during_a_model_request(start: Start, folder: Path) -> None:
    """The request is sent again, and a program can read what came of it as of any run."""
    start("run", "left:agent", "model", HANG="model").wait_for("began model").kill()
    resumed = start("resume", only(folder), "--json").finish()
    told = json.loads(resumed.stdout)
    assert (resumed.returncode, told["output"], told["path"]) == (
        0,
        "model done",
        ["await_model", "await_model", "done"],
    )
    assert "\n  a model request was under way: it is sent again\n" in resumed.stderr


def test_killed_in_the_wait_before_a_retry(start: Start, folder: Path) -> None:
    """The wait goes on where it was, in another process, which says that it waits for a retry."""
    start("run", "left:agent", "retry", BUSY="1").wait_for("retry").kill()
    resumed = start("resume", only(folder), FROZEN="1").finish()
    assert (resumed.returncode, resumed.stdout) == (0, "Answered at last.\n")
    assert "  the retry of a model request was waited for, or under way: it is sent when its time has come\n" in (
        resumed.stderr
    )
    assert "waits True" in resumed.stderr


def test_a_human_is_asked(start: Start, here: Here, folder: Path) -> None:
    """The status is 3, each way out can be typed as it is shown, and asking again asks the same."""
    start("run", "left:agent", "wire", HANG="wire").wait_for("began wire").kill()
    run_id = only(folder)
    resumed = start("resume", run_id).finish()
    assert resumed.returncode == 3
    assert resumed.stderr.splitlines()[-8:] == [
        "I work.",
        f"await_approval (waiting): 1 turn, 1 tool call, run {run_id}",
        "waiting for you: what was begun here may have done its work, or not; decide about it",
        "  wire {}",
        f"    to run it again:    turnstile approve {run_id} c_wire",
        f"    if you know better: turnstile approve --result TEXT {run_id} c_wire",
        f"    if nobody knows:    turnstile deny {run_id} c_wire",
        f"  then go on:           turnstile resume {run_id}",
    ]
    again = here("resume", run_id, "--json")
    assert again.exit_code == 3
    told = json.loads(again.stdout)
    assert (told["ok"], told["stop"]) == (False, None)
    assert told["waiting"] == [{"id": "c_wire", "name": "wire", "arguments": "{}"}]
    approved = here("approve", run_id, "c_wire")
    line = f"run {run_id}: it has taken the letter, and stands in execute_tools; "
    assert (approved.exit_code, approved.stdout) == (0, "")
    assert approved.stderr == f"{line}`turnstile resume {run_id}` goes on with it\n"
    settled = here("resume", run_id)
    assert (settled.exit_code, settled.stdout) == (0, "wire ok: wire done\n")
    assert begun(folder) == ["wire", "wire"]


def test_ids_that_a_shell_would_take_for_something_else(here: Here, leave: Leave) -> None:
    """A server chooses the ids of calls, and a program those of runs: what is shown to be typed does only that."""
    leave("wire", "-r; rm")
    shown = here("resume", "--", "-r; rm")
    assert "turnstile approve --result TEXT -- '-r; rm' c_wire\n" in shown.stderr
    assert here("deny", "--", "-r; rm", "c_wire").exit_code == 0
    assert here("resume", "--", "-r; rm").exit_code == 0
    assert "`turnstile runs show -- '-r; rm'` tells how" in here("resume", "--", "-r; rm").stderr


def test_a_run_that_somebody_drives(start: Start, here: Here, folder: Path) -> None:
    """The second hears who has it and what can be done, on one line, and the first does not notice."""
    live = start("run", "left:agent", "look", HANG="look").wait_for("began look")
    run_id = only(folder)
    refused = here("resume", run_id, "-q")
    assert refused.exit_code == 2
    assert re.fullmatch(
        rf"turnstile: run '{run_id}' is driven by process {live.pid} on host '.+'; wait for its end, or send it word: "
        rf"turnstile cancel {run_id}, approve or deny\n",
        refused.stderr,
    )
    passed = here("resume", "--all")
    assert passed.exit_code == 0
    assert f"run {run_id} is driven by process {live.pid} on host" in passed.stderr
    assert "no run was left: each has ended, or is driven by somebody" in passed.stderr
    assert here("cancel", run_id).exit_code == 0
    assert live.finish().returncode == 1


def test_a_finished_run(here: Here) -> None:
    """There is nothing to resume, and the line says what else there is."""
    here("run", "demo:agent", "hi", "-q")
    (line,) = here("runs", "list").stdout.splitlines()
    run_id = line.split("\t")[0]
    refused = here("resume", run_id, "-q")
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"turnstile: run '{run_id}' has ended (done), so there is nothing to resume; `turnstile runs show {run_id}` "
        f"tells how, `turnstile fork --at SEQ {run_id}` goes on from earlier on\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "has no run 'nope'"),
        (["r"], "'r' may be any of the runs r1, r2; give more of its id"),
        ([], "name one run, or give --all; `turnstile runs list --live` shows what has not ended"),
        (["r1", "--all"], "name one run, or give --all"),
        (["r1", "--agent", "left:nobody"], "module 'left' has no 'nobody'"),
        (["r1", "--agent", "demo:agent"], "was begun under other things: .*tool pay was [0-9a-f]+, is not there"),
        (["r1", "--store", "nope.db"], "no store 'nope.db' to look for runs in"),
        (["r1", "--store", "memory"], "a store in memory ends with its process"),
        (["r1", "--log-content"], "add --log-json FILE"),
    ],
)
def test_misuse_is_one_line(here: Here, leave: Leave, arguments: list[str], says: str) -> None:
    """Each wrong call names the thing and the way out, and leaves the run as it was."""
    leave("look", "r1")
    leave("look", "r2")
    result = here("resume", *arguments, "-q")
    assert result.exit_code == 2
    assert re.search(says, result.stderr)
    assert result.stderr.count("\n") == 1
    assert here("resume", "r1", "-q").stdout == "look ok: look done\n"


def test_a_changed_tool_stops_the_resume(here: Here, leave: Leave, folder: Path) -> None:
    """Both fingerprints are named; whoever accepts the change goes on, and the journal says under what."""
    leave("look", "r")
    module = folder / "left.py"
    module.write_text(module.read_text().replace('"""Look."""', '"""Look well."""'))
    copy(module, folder / "changed.py")  # as another process would import it
    stopped = here("resume", "r", "--agent", "changed:agent", "-q")
    assert stopped.exit_code == 2
    found = re.search(r"tool look was ([0-9a-f]{16}), is ([0-9a-f]{16}); resume it", stopped.stderr)
    assert found is not None
    assert stopped.stderr.count("\n") == 1
    assert "--accept-changes" in stopped.stderr
    assert here("resume", "r", "--agent", "changed:agent", "--accept-changes", "-q").stdout == "look ok: look done\n"
    (accepted,) = [event for event in events(folder, "r") if isinstance(event, ChangesAccepted)]
    assert dict(accepted.fingerprints)["tool look"].startswith(found[2])
    assert found[2] != found[1]
    assert "changed  tool look: accepted, as record" in here("runs", "show", "r").stdout


def test_all_that_was_left(start: Start, here: Here, leave: Leave, folder: Path) -> None:
    """Each goes on that can, the oldest first; what one lacks keeps no other; and the worst decides the status."""
    copy(folder / "left.py", folder / "gone.py")
    leave("look", "finds")
    leave("look", "lost", name="gone:agent")
    leave("wire", "waits")
    here("run", "demo:agent", "hi", "-q")
    live = start("run", "left:agent", "model", HANG="model").wait_for("began model")
    (folder / "gone.py").unlink()
    resumed = start("resume", "--all").finish()
    assert (resumed.returncode, resumed.stdout) == (1, "look ok: look done\n")
    for line in (
        rf"run \w+ is driven by process {live.pid} on host '.+'",
        "1 of 3: run finds",
        r"done \(answered\): 2 turns, 1 tool call, run finds",
        "2 of 3: run lost",
        r"run lost does not go on: no module 'gone' for 'gone:agent': .+",
        "3 of 3: run waits",
        r"await_approval \(waiting\): 1 turn, 1 tool call, run waits",
    ):
        assert re.search(f"^{line}$", resumed.stderr, re.MULTILINE), line
    assert "Traceback" not in resumed.stderr
    here("cancel", "lost")
    again = here("resume", "--all", "--json", "-q")
    assert again.exit_code == 3
    assert [json.loads(line)["run_id"] for line in again.stdout.splitlines()] == ["waits"]


TAKEN = """
import os
from pathlib import Path

from turnstile.agent import Agent
from turnstile.core.messages import Reply
from turnstile.letters import cancel
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel, call
from turnstile.tools import tool

held = []


@tool(access="read")
async def meddle() -> str:
    "Does what another process may do at any time."
    if "HANG" in os.environ:
        await __import__("asyncio").Event().wait()
    store = SQLiteStore(os.environ["TURNSTILE_DB"])
    await cancel(store, "ends")
    held.append((store, await store.claim("taken", held.append)))
    return "done"


def script(request):
    return "Answered." if request.items[-1].kind == "exchange" else call("meddle")


agent = Agent(ScriptedModel(script), tools=[meddle])


def bug(request):
    if "HANG" in os.environ:
        return call("meddle")
    raise ZeroDivisionError("oops")


broken = Agent(ScriptedModel(bug), tools=[meddle])
"""


def test_what_others_do_meanwhile_is_theirs(here: Here, leave: Leave, folder: Path) -> None:
    """Two may resume all at once, from a timer on two hosts, say: what the other has is no failure."""
    (folder / "taken.py").write_text(TAKEN)
    leave("meddle", "first", name="taken:agent")
    leave("look", "ends")
    leave("look", "taken")
    resumed = here("resume", "--all")
    assert resumed.exit_code == 0
    assert "run ends has ended by now (failed)" in resumed.stderr
    assert re.search(r"run taken is driven by process \d+ on host '.+' by now", resumed.stderr)


def test_a_bug_in_one_agent_keeps_no_other(here: Here, leave: Leave, folder: Path) -> None:
    """Its traceback is shown to whoever can mend it, and the rest goes on."""
    (folder / "taken.py").write_text(TAKEN)
    leave("meddle", "bug", name="taken:broken")
    leave("look", "fine")
    resumed = here("resume", "--all")
    assert (resumed.exit_code, resumed.stdout) == (1, "look ok: look done\n")
    assert "Traceback" in resumed.stderr
    assert "run bug does not go on: its agent raised ZeroDivisionError('oops')" in resumed.stderr


def test_a_run_that_cannot_be_read(here: Here, leave: Leave, folder: Path) -> None:
    """A damaged record is named with its run, and keeps no other run from going on."""
    leave("look", "bad")
    leave("look", "fine")
    connection = apsw.Connection(str(folder / "kept.db"))
    connection.execute(
        "UPDATE records SET event = x'00' WHERE seq = 1 AND run = (SELECT number FROM runs WHERE id = 'bad')"
    )
    connection.close()
    resumed = here("resume", "--all")
    assert (resumed.exit_code, resumed.stdout) == (1, "look ok: look done\n")
    assert re.search("run bad does not go on: .*'bad'", resumed.stderr)
    alone = here("resume", "bad", "-q")
    assert (alone.exit_code, alone.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("statement", ["UPDATE records SET seq = seq + 100 WHERE seq = 1", "DELETE FROM records"])
def test_a_run_whose_beginning_is_lost(here: Here, leave: Leave, folder: Path, statement: str) -> None:
    """Nothing says how its agent is found; that is damage to be named, and no fault of the agent's."""
    leave("look", "bad")
    connection = apsw.Connection(str(folder / "kept.db"))
    connection.execute(statement)
    connection.close()
    for command in (["resume", "bad"], ["fork", "bad", "--at", "0"]):
        told = here(*command)
        assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
        assert "record 1 of run 'bad' is damaged" in told.stderr


async def _program(path: Path) -> None:
    async with SQLiteStore(path) as store, Agent(ScriptedModel(["Hi."]), store=store).start("hi", run_id="own"):
        pass


def test_a_run_that_a_program_began(here: Here, folder: Path) -> None:
    """It does not say how its agent is found; the user can, and nothing else is needed."""
    asyncio.run(_program(folder / "kept.db"))
    refused = here("resume", "own", "-q")
    assert refused.exit_code == 2
    assert "run 'own' does not say how its agent is found; name it with --agent AGENT" in refused.stderr


def test_ctrl_c_cancels_and_leaves_the_others(terminal: Open, leave: Leave) -> None:
    """It is about the run that goes on at the moment: those that have not had their turn are as they were."""
    leave("look", "first")
    leave("look", "second")
    opened = terminal("resume", "--all", HANG="look")
    opened.wait_for("began look")
    opened.type("\x03")
    opened.wait_for(r"failed \(cancelled\): 1 turn, 1 tool call, run first; interrupted from the keyboard")
    opened.wait_for(r"kept 1 turn and 0 tool results of run first in \S+kept\.db")
    opened.wait_for("1 of 2 runs are left as they were")
    assert opened.finish() == 130
