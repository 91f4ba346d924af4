"""`turnstile fork`: a new run that shares its beginning with a stored one, and goes on from there."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.agent import Agent
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel, WireServer

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here

FORKED = """
from turnstile.agent import Agent
from turnstile.testing import ScriptedModel
from turnstile.tools import tool
import demo


def answers(request):
    last = request.items[-1]
    if last.kind == "user":
        return demo.talk(request)
    return "; ".join(result.content for result in last.results)


repeating = ScriptedModel(answers, name="repeating")
agent = Agent(repeating, name="demo", tools=[demo.get_weather, demo.explode])
fewer = Agent(repeating, name="demo", tools=[demo.get_weather])
"""


@pytest.fixture
def run_id(here: Here, folder: Path) -> str:
    """A stored run of the demo agent."""
    (folder / "forked.py").write_text(FORKED)
    return str(json.loads(here("run", "demo:agent", "hi", "--json").stdout)["run_id"])


def test_it_goes_on_with_the_runs_own_agent_and_says_its_id(here: Here, run_id: str) -> None:
    """Nobody should have to remember how the agent was called when the journal knows it."""
    result = here("fork", run_id[:6], "--at", "3")
    assert (result.exit_code, result.stdout) == (0, "Answer 1: sunny.\n")
    said = re.search(rf"^run (\w+), forked from {run_id} at 3$", result.stderr, re.MULTILINE)
    assert said is not None
    assert "printed by a tool" not in result.stderr
    assert f"  forked   from {run_id}@3\n" in here("runs", "show", said[1]).stdout
    assert here("runs", "audit").exit_code == 0


def test_prompt_result_and_model_can_be_others(here: Here, run_id: str) -> None:
    """The three things that one tries: another question, another fact, another model."""
    given = ["--result", "call_1_1=rain=heavy", "--prompt", "Rather wet?", "--agent", "forked:agent", "--json"]
    result = here("fork", run_id, "--at", "2", *given)
    told = json.loads(result.stdout)
    assert told["output"].startswith("rain=heavy; sunny in Rome")
    shown = json.loads(here("runs", "show", told["run_id"], "--json").stdout)
    assert (shown["prompt"], shown["models"]) == ("Rather wet?", ["repeating"])
    assert "note: the run's own model was scripted:model" in result.stderr
    with WireServer([{"status": 401}]) as server:
        other = here("fork", run_id, "--at", "3", "--model", "ollama:x", OLLAMA_BASE_URL=server.url)
    assert other.exit_code == 1  # nobody is let in there: the fork was made, and failed
    assert "model: ollama:x (--model)" in other.stderr
    assert "note:" not in other.stderr


def test_another_tool_must_be_accepted(here: Here, run_id: str) -> None:
    """A fork that goes on with other tools than it seems to is worse than none."""
    refused = here("fork", run_id, "--at", "3", "--agent", "forked:fewer")
    assert refused.exit_code == 2
    assert "tool explode" in refused.stderr
    assert here("runs", "list").stdout.count("\n") == 1
    assert here("fork", run_id, "--at", "3", "--agent", "forked:fewer", "--accept-changes").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "missing option '--at'"),
        (["--at", "9"], "has the transitions 1 to 4; got 9"),
        (["--at", "4"], "ended with its transition 4"),
        (["--at", "-1"], "invalid value for '--at'"),
        (["--at", "2", "--result", "rain"], "--result is given as CALL=TEXT, with a call's id; got 'rain'"),
        (["--at", "2", "--result", "=rain"], "--result is given as CALL=TEXT"),
        (["--at", "2", "--result", "call_9=rain"], "call 'call_9' has no result up to transition 2"),
        (["--at", "2", "--prompt", ""], "the fork's prompt is empty"),
        (["--at", "2", "--agent", "nobody"], "no agent 'nobody'"),
        (["--at", "2", "--store", "none.db"], "no store 'none.db' to look for runs in"),
    ],
)
def test_what_cannot_be_forked_is_one_line(here: Here, run_id: str, arguments: list[str], says: str) -> None:
    """Each slip has its own way out, and none leaves half of a run."""
    result = here("fork", run_id, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr.splitlines()[-1]
    assert here("runs", "list").stdout.count("\n") == 1


async def _keep(folder: Path) -> None:
    async with SQLiteStore(folder / "kept.db") as store:
        await Agent(ScriptedModel(["Hello."]), store=store).run("Hi", run_id="mine")


def test_a_run_of_a_program_does_not_say_where_its_agent_is(here: Here, folder: Path) -> None:
    """Only the command line knows an agent by a name that it can find again."""
    asyncio.run(_keep(folder))
    result = here("fork", "mine", "--at", "0")
    assert result.exit_code == 2
    assert "run 'mine' does not say how its agent is found; name it with --agent AGENT" in result.stderr


def test_the_store_of_the_run_is_that_of_the_fork(here: Here, folder: Path, run_id: str) -> None:
    """An agent may bring a store of its own, in which the run is not."""
    (folder / "bringing.py").write_text(
        "import demo\nfrom turnstile.agent import Agent\nfrom turnstile.stores import SQLiteStore\n"
        'agent = Agent(demo.agent.model, name="demo", tools=[demo.get_weather, demo.explode], '
        'store=SQLiteStore("own.db"))\n'
    )
    assert here("fork", run_id, "--at", "3", "--agent", "bringing:agent").exit_code == 0
    assert not (folder / "own.db").exists()
    assert here("runs", "list").stdout.count("\n") == 2
