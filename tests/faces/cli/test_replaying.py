"""`turnstile replay`: a stored or exported run made again, and where it would go another way."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

import apsw
import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here

HISTORIES = Path(__file__).parents[2] / "histories"


@pytest.fixture
def run_id(here: Here) -> str:
    """A stored run."""
    return str(json.loads(here("run", "demo:agent", "hi", "--json").stdout)["run_id"])


def test_a_run_that_would_go_the_same_way_says_so(here: Here, run_id: str) -> None:
    """With the id's beginning and no agent, whatever was changed about that since."""
    result = here("replay", run_id[:5])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"run {run_id}: 4 transitions, 2 requests made again, no divergence\n"


def test_as_json(here: Here, run_id: str) -> None:
    """A script that replays a thousand runs looks at one field."""
    told = json.loads(here("replay", run_id, "--json").stdout)
    assert (told["run_id"], told["state"], told["divergence"], told["changes"]) == (run_id, "done", None, [])
    assert [move["row"] for move in told["transitions"]] == ["run_tools", "finished", "appended", "answered"]
    assert len(told["requests"]) == 2


def test_the_requests_can_be_looked_at(here: Here, run_id: str) -> None:
    """What a model was really asked is the first question about an odd answer."""
    first, second = map(json.loads, here("replay", run_id, "--requests").stdout.splitlines())
    assert first["messages"] == [{"role": "user", "text": "hi", "synthetic": False}]
    assert [message["role"] for message in second["messages"]] == ["user", "model", "tool", "tool", "tool"]
    assert [each["name"] for each in second["tools"]] == ["get_weather", "explode"]
    assert (second["tools_on"], second["settings"], second["output_schema"]) == (True, {}, None)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE runs SET turns = 7",
            ["then it diverges at record", "another summary", "recorded  Summary(", "turns=7", "now       Summary("],
        ),
    ],
)
def test_a_divergence_has_both_sides_and_a_status(
    here: Here, folder: Path, run_id: str, statement: str, says: list[str]
) -> None:
    """What it was and what it is, side by side, and a status that CI can stop at."""
    connection = apsw.Connection(str(folder / "kept.db"))
    connection.execute(statement)
    connection.close()
    result = here("replay", run_id)
    assert result.exit_code == 1
    assert all(each in result.stdout for each in says), result.stdout
    assert json.loads(here("replay", run_id, "--json").stdout)["divergence"]["what"] == "summary"


def test_another_row_is_a_divergence(here: Here) -> None:
    """Without its agent a run of another table would go another way, which is told and not hidden."""
    run_id = json.loads(here("run", "extended:doubting", "hi", "--json").stdout)["run_id"]
    result = here("replay", run_id)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == ["  recorded  doubt", "  now       answered"]
    assert here("replay", run_id, "--agent", "extended:doubting").exit_code == 0


def test_what_is_different_about_the_agent_is_told(here: Here, folder: Path, run_id: str) -> None:
    """Both sides, and no divergence: the run was what it was."""
    (folder / "other.py").write_text(
        "import demo\nfrom turnstile.agent import Agent\nagent = Agent(demo.agent.model, tools=[demo.explode])\n"
    )
    result = here("replay", run_id, "--agent", "other:agent")
    assert result.exit_code == 0
    assert "tool get_weather of the agent changed since\n  recorded  Weather of a city." in result.stdout
    assert "  now       nothing\n" in result.stdout


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("none.jsonl", "no file 'none.jsonl' to replay"),
        ("no/run", "no file 'no/run' to replay"),
        ("n" * 300, "to look for runs in"),
        ("demo.py", "it is no export"),
    ],
)
def test_what_is_no_run_and_no_file_is_one_line(here: Here, named: str, says: str) -> None:
    """A name with a slash or an ending was meant as a file, so that is what is missing."""
    result = here("replay", named)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_file_that_is_not_there_is_one_also_beside_a_store(here: Here) -> None:
    """That the store has no run of that name is no help to who mistyped a file's."""
    assert here("run", "demo:agent", "hi").exit_code == 0
    result = here("replay", "none.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no file 'none.jsonl' to replay" in result.stderr


@pytest.mark.parametrize("kept", ["store", "file"])
def test_an_extensions_run_needs_its_agent(here: Here, kept: str) -> None:
    """Its events are of classes that only its module has, in a store and in a file."""
    run_id = json.loads(here("run", "extended:agent", "hi", "--json").stdout)["run_id"]
    assert here("runs", "export", run_id, "-o", "run.jsonl").exit_code == 0
    named = run_id if kept == "store" else "run.jsonl"
    result = here("replay", named)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "if its agent has a machine of its own, add --agent AGENT" in result.stderr
    assert here("replay", named, "--agent", "extended:agent").exit_code == 0


def test_requests_that_were_never_on_record_are_not_counted(here: Here, folder: Path) -> None:
    """Journals of format 1 say that a request was sent, and not which."""
    copytree(HISTORIES, folder / "histories")
    result = here("replay", "answered", "--store", str(folder / "histories" / "format-1.sqlite"))
    assert result.stdout == "run answered: 7 transitions, its requests are not on record, no divergence\n"
