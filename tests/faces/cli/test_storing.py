"""Which file keeps the runs, and which of its runs is meant."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.agent import Agent
from turnstile.cli.installed import complete_run
from turnstile.cli.storing import entries_of
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here

READS = [
    ["runs", "list", "--limit", "5"],
    ["runs", "show", "a"],
    ["runs", "export", "a"],
    ["runs", "delete", "a", "--yes"],
    ["runs", "audit"],
    ["replay", "a"],
    ["fork", "a", "--at", "1"],
    ["diff", "a", "b"],
    ["diagram", "--run", "a"],
]


def test_without_a_word_runs_are_kept_in_the_users_state_folder(here: Here, folder: Path) -> None:
    """What cost money is there tomorrow, readable by nobody else, without an option that must be known first."""
    result = here("run", "demo:agent", "hi", "--json", TURNSTILE_DB="", XDG_STATE_HOME=str(folder / "state"))
    assert result.exit_code == 0
    kept = folder / "state" / "turnstile" / "runs.db"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    listed = here("runs", "list", "--json", TURNSTILE_DB=" ", XDG_STATE_HOME=str(folder / "state"))
    assert [entry["run_id"] for entry in json.loads(listed.stdout)] == [json.loads(result.stdout)["run_id"]]


def test_the_environment_names_another_file(here: Here, folder: Path) -> None:
    """A project keeps its runs beside its code by one line in its environment."""
    assert here("run", "demo:agent", "hi", TURNSTILE_DB="project.db").exit_code == 0
    assert (folder / "project.db").is_file()
    assert here("run", "demo:agent", "hi", TURNSTILE_DB="no/such/project.db").stderr.splitlines()[-1] == (
        "turnstile: no folder 'no/such' for the store 'no/such/project.db' ($TURNSTILE_DB); make it, or name a file in "
        "one that exists"
    )


def test_the_option_comes_before_the_environment(here: Here, folder: Path) -> None:
    """Whoever names a file means that one, for runs and for looking at them."""
    assert here("run", "demo:agent", "hi", "--store", "this.db", TURNSTILE_DB="that.db").exit_code == 0
    assert not (folder / "that.db").exists()
    assert here("runs", "list", "--store", "this.db", TURNSTILE_DB="that.db").stdout.count("\n") == 1


def test_in_memory_nothing_is_left(here: Here, folder: Path) -> None:
    """A prompt that must not be written to disk is not."""
    assert here("run", "demo:agent", "hi", "--store", "memory").exit_code == 0
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize("command", READS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("none.db", "no store 'none.db' to look for runs in; give --store the file that they were run with"),
        ("memory", "a store in memory ends with its process"),
        ("n" * 300, "cannot be looked at: File name too long; give a path that you may read"),
        (" ", "--store is empty; name a file, or leave the option out"),
        ("demo.py", "it is not a database; choose another file"),
    ],
)
def test_a_store_that_is_none_is_one_line(here: Here, folder: Path, command: list[str], store: str, says: str) -> None:
    """Looking at runs must not make an empty store under a mistyped name."""
    if store == "demo.py":
        (folder / "demo.py").write_text("# no database\n" * 100)
    result = here(*command, "--store", store)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (folder / "none.db").exists()


async def _keep(path: Path, *run_ids: str) -> None:
    async with SQLiteStore(path) as store:
        for run_id in run_ids:
            await Agent(ScriptedModel(["Hello."]), store=store).run(f"I am {run_id}", run_id=run_id)


@pytest.fixture
async def three(folder: Path) -> Path:
    """A store with three runs, of which two begin alike, and one as a whole other."""
    await _keep(folder / "kept.db", "abc", "abcd", "abx")
    return folder / "kept.db"


@pytest.mark.parametrize(
    ("given", "meant"), [("abc", "abc"), ("abcd", "abcd"), ("abx", "abx")], ids=["whole", "longer", "other"]
)
def test_a_run_is_named_by_what_only_it_begins_with(here: Here, three: Path, given: str, meant: str) -> None:
    """Nobody types twelve digits, and an id that is whole means itself though another begins so."""
    assert here("runs", "show", given).stdout.startswith(f"run {meant}  ")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("ab", "'ab' may be any of the runs abc, abcd, abx; give more of its id"),
        ("z", "has no run 'z'; check its id"),
        (" ", "has no run ' '"),
    ],
)
@pytest.mark.parametrize("command", READS[1:4] + READS[5:], ids=lambda command: " ".join(command[:2]))
def test_a_run_that_is_not_there_or_may_be_several_is_one_line(
    here: Here, three: Path, command: list[str], given: str, says: str
) -> None:
    """A guess would show, fork or delete the wrong one."""
    result = here(*[given if word == "a" else word for word in command])
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_shell_completes_ids(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tab key is how ids are typed; before anything is typed it offers the newest."""
    monkeypatch.setenv("TURNSTILE_DB", str(three))
    assert complete_run("abc") == ["abc", "abcd"]
    assert complete_run("") == ["abx", "abcd", "abc"]
    monkeypatch.setenv("TURNSTILE_DB", "none.db")
    assert complete_run("") == []


def test_a_shell_that_completes_shows_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback between two keys would be worse than nothing to choose from."""
    monkeypatch.setenv("TURNSTILE_DB", str(folder / "demo.py"))
    assert complete_run("a") == []


async def test_all_runs_are_gone_through_although_one_is_deleted(three: Path) -> None:
    """Who exports, audits or resumes everything must not stop since the last run of a page went meanwhile."""
    async with SQLiteStore(three) as store:
        found = []
        async for entry in entries_of(store, page=1):
            found.append(entry.run_id)
            if len(found) == 1:
                await store.delete(entry.run_id)
    assert len(found) == len(set(found)) == 3
