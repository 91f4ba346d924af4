"""`turnstile runs list`, `delete`, `export` and `audit`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

import apsw
import pytest

from turnstile.agent import Agent
from turnstile.cli.runs import _found, moment
from turnstile.core.limits import Limits, Price
from turnstile.core.messages import Reply, Usage
from turnstile.core.values import evolve
from turnstile.replay import read_exports
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open

HISTORIES = Path(__file__).parents[2] / "histories"


async def _keep(path: Path) -> None:
    async with SQLiteStore(path) as store:
        clock = FrozenClock()
        priced = ScriptedModel([Reply("Hello.", usage=Usage(1000, 200))], price=Price(1, 1))
        await Agent(priced, name="first", store=store, clock=clock).run("What is\nup?", run_id="one")
        talk = Agent(ScriptedModel(["Hello."]), name="second", store=store, clock=clock, limits=Limits(turns=1))
        await talk.run("[red]Hi\x1b[31m", run_id="two", session="monday")
        async with Agent(ScriptedModel([""]), name="third", store=store, clock=clock).start(
            "Hm", run_id="three"
        ) as run:
            await run.step()


@pytest.fixture(autouse=True)
async def _kept(folder: Path) -> None:
    await _keep(folder / "kept.db")


def damage(folder: Path, statement: str) -> None:
    """Change the store behind its back, as a failing disk would."""
    connection = apsw.Connection(str(folder / "kept.db"))
    connection.execute(statement)
    connection.close()


def test_the_newest_run_comes_first_with_a_line_for_each(here: Here) -> None:
    """A pipe gets what `cut` and `awk` can read: one line a run, tabs between its fields."""
    rows = [line.split("\t") for line in here("runs", "list").stdout.splitlines()]
    assert [row[0] for row in rows] == ["three", "two", "one"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", rows[0][1])
    assert rows[0][2:] == ["third", "await_model", "", "1", "", "", "Hm"]
    assert rows[2][2:] == ["first", "done: answered", "", "1", "1,200", "$0.0012", "What is up?"]


def test_a_terminal_gets_a_table_that_fits(terminal: Open) -> None:
    """Eighty columns are what a terminal has; the prompt gives way, and no id or reason does."""
    opened = terminal("runs", "list")
    opened.finish()
    shown = re.sub(r"\x1b\[[\d;]*m", "", opened.raw)
    assert re.search(r"^id +when +agent +state +turns +tokens +cost +prompt", shown)
    assert re.search(r"two +\S+ +second +done: answered +1 +\[red\]Hi", shown)
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_time_that_is_no_date_hides_no_run(here: Here, folder: Path) -> None:
    """One damaged time, or one absurd clock, must not make the whole list a traceback."""
    damage(folder, "UPDATE runs SET started = 1e300 WHERE id = 'two'")
    listed = here("runs", "list")
    assert listed.exit_code == 0
    assert [line.split("\t")[1] == "no date" for line in listed.stdout.splitlines()] == [False, True, False]
    assert moment(1e300) == "no date"


def test_pages(here: Here, terminal: Open) -> None:
    """Of a hundred thousand runs the newest are wanted, and then those before."""
    assert [entry["run_id"] for entry in json.loads(here("runs", "list", "--limit", "2", "--json").stdout)] == [
        "three",
        "two",
    ]
    assert here("runs", "list", "--before", "two").stdout.startswith("one\t")
    opened = terminal("runs", "list", "--limit", "2")
    opened.wait_for("older ones: turnstile runs list --before two")
    assert opened.finish() == 0


def test_a_session_alone_and_what_has_not_ended(here: Here) -> None:
    """The two questions that a list is asked: what was this conversation, and what is left to do."""
    assert here("runs", "list", "--session", "monday").stdout.startswith("two\t")
    assert here("runs", "list", "--live").stdout.startswith("three\t")
    assert here("runs", "list", "--session", "never").stdout == ""
    assert here("runs", "list", "--session", "never").stderr == "no runs\n"
    assert json.loads(here("runs", "list", "--session", "never", "--json").stdout) == []


def test_as_json_all_of_it(here: Here) -> None:
    """A program needs numbers, not words for them."""
    entry = json.loads(here("runs", "list", "--json").stdout)[2]
    assert (entry["agent"], entry["state"], entry["reason"], entry["holder"]) == ("first", "done", "answered", "")
    assert (entry["turns"], entry["tokens"], entry["session"], entry["prompt"]) == (1, 1200, None, "What is up?")
    assert entry["cost"] == pytest.approx(0.0012)
    assert entry["at"] >= entry["started"]


def test_before_anything_was_run_there_are_no_runs(here: Here, folder: Path) -> None:
    """A first look must be no error, and leave no file."""
    result = here("runs", "list", TURNSTILE_DB=str(folder / "new.db"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no runs\n")
    assert not (folder / "new.db").exists()


async def test_who_drives_a_run_is_said_and_it_cannot_be_deleted(here: Here, folder: Path) -> None:
    """Two terminals, one run: the list says where the other one is."""
    store = SQLiteStore(folder / "kept.db")
    async with store, Agent(ScriptedModel(["Hello."]), store=store).start("Hi", run_id="live"):
        listed = await asyncio.to_thread(here, "runs", "list")
        shown = await asyncio.to_thread(here, "runs", "show", "live")
        deleted = await asyncio.to_thread(here, "runs", "delete", "live", "--yes")
    assert f"process {os.getpid()}" in listed.stdout.splitlines()[0].split("\t")[4]
    assert f"driven   by process {os.getpid()}" in shown.stdout
    assert deleted.exit_code == 2
    assert f"run 'live' is driven by process {os.getpid()}" in deleted.stderr


def test_runs_older_than_summaries_are_read_for_the_list(here: Here, folder: Path) -> None:
    """Their file has no column for what they came to, and a list full of gaps would help nobody."""
    copytree(HISTORIES, folder / "histories")
    store = str(folder / "histories" / "format-1.sqlite")
    rows = [line.split("\t") for line in here("runs", "list", "--store", store).stdout.splitlines()]
    assert {row[0]: row[3] for row in rows}["answered"] == "done: answered"
    assert all(row[-1] for row in rows)
    connection = apsw.Connection(store)
    connection.execute("UPDATE records SET at = 0 WHERE run = (SELECT number FROM runs WHERE id = 'answered')")
    connection.close()
    rows = [line.split("\t") for line in here("runs", "list", "--store", store).stdout.splitlines()]
    assert {row[0]: row[3] for row in rows}["answered"] == "unknown: unknown"


def test_deleting_names_what_is_gone(here: Here) -> None:
    """Several at once, by their beginnings, and one that is named twice goes once."""
    result = here("runs", "delete", "on", "tw", "one", "--yes")
    assert (result.exit_code, result.stderr) == (0, "deleted run one\ndeleted run two\n")
    assert here("runs", "list").stdout.startswith("three\t")


def test_one_unknown_run_among_several_deletes_none(here: Here) -> None:
    """Half of an order that was mistyped is nothing that anybody wanted."""
    assert here("runs", "delete", "one", "nobody", "--yes").exit_code == 2
    assert here("runs", "list").stdout.count("\n") == 3


def test_a_pipe_is_not_asked(here: Here) -> None:
    """A script must say that it means it."""
    result = here("runs", "delete", "one", stdin="y\n")
    assert result.exit_code == 2
    assert "there is no terminal to ask at; add --yes" in result.stderr
    assert here("runs", "list").stdout.count("\n") == 3


@pytest.mark.parametrize(
    ("typed", "status", "left"),
    [("y\n", 0, 2), ("YES\n", 0, 2), ("\n", 1, 3), ("n\n", 1, 3), ("\x04", 1, 3), ("\x03", 1, 3)],
)
def test_a_person_is_asked(here: Here, terminal: Open, typed: str, status: int, left: int) -> None:
    """Only a clear yes deletes; Enter, Ctrl-D and Ctrl-C keep everything."""
    opened = terminal("runs", "delete", "one")
    opened.wait_for(r"delete one for good\? \[y/N\] ")
    opened.wait_until_it_waits()  # a Ctrl-C that comes a moment before it does is seen only at the next key
    opened.type(typed)
    opened.wait_for("deleted run one" if status == 0 else "nothing was deleted")
    assert opened.finish() == status
    assert here("runs", "list").stdout.count("\n") == left


def test_an_export_is_the_same_on_standard_output_and_in_a_file(here: Here, folder: Path) -> None:
    """Twice, in two ways, and not a byte differs."""
    printed = here("runs", "export", "one")
    assert here("runs", "export", "one", "-o", "one.jsonl").exit_code == 0
    assert printed.stdout_bytes == (folder / "one.jsonl").read_bytes()
    assert here("replay", "one.jsonl").stdout == "run one: 1 transition, 1 request made again, no divergence\n"


def test_all_runs_go_into_one_file(here: Here, folder: Path) -> None:
    """A backup that anybody can read, and that can be checked without us."""
    assert here("runs", "export", "--all", "-o", "all.jsonl").exit_code == 0
    assert [(each.run_id, each.damage) for each in read_exports(folder / "all.jsonl")] == [
        ("three", None),
        ("two", None),
        ("one", None),
    ]
    assert here("replay", "all.jsonl").stdout.count("no divergence") == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name the run to export, or all with --all"),
        (["one", "--all"], "give a run's ID or --all"),
        (["one", "-o", "no/such/one.jsonl"], "no folder 'no/such' for 'no/such/one.jsonl'"),
        (["one", "-o", "."], "'.' cannot be written: Is a directory"),
        (["nobody", "-o", "new.jsonl"], "has no run 'nobody'"),
    ],
)
def test_what_cannot_be_exported_is_one_line(here: Here, folder: Path, arguments: list[str], says: str) -> None:
    """Each slip has its own way out, and none leaves an empty file."""
    result = here("runs", "export", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert not (folder / "new.jsonl").exists()


def test_a_damaged_run_is_exported_with_its_damage_named(here: Here, folder: Path) -> None:
    """What is left must be saved, and nobody may take it for whole."""
    damage(folder, "UPDATE records SET duration_ms = 7 WHERE run = 1 AND seq = 2")
    result = here("runs", "export", "--all", "-o", "all.jsonl")
    assert result.exit_code == 1
    assert "record 2 of run 'one' is damaged: its SHA-256 does not fit what it says" in result.stderr
    found = {each.run_id: each for each in read_exports(folder / "all.jsonl")}
    assert [found[run_id].damage for run_id in ("two", "three")] == [None, None]
    assert len(found["one"].rows) == found["one"].length
    replayed = here("replay", "all.jsonl")
    assert replayed.exit_code == 2
    assert "record 2 of run 'one' is damaged" in replayed.stderr


def test_a_full_disk_is_one_line(here: Here) -> None:
    """An export that ends in the middle is none, so it is an error."""
    if not Path("/dev/full").exists():
        pytest.skip("only Linux has a device that is always full")
    result = here("runs", "export", "one", "-o", "/dev/full")
    assert result.exit_code == 2
    assert "'/dev/full' cannot be written: No space left on device" in result.stderr


def test_an_audit_of_sound_runs_says_how_many(here: Here) -> None:
    """Silence could mean that nothing was looked at."""
    result = here("runs", "audit")
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(r"3 runs, \d+ records: all as it was written\n", result.stdout)
    assert re.fullmatch(r"1 run, \d records: all as it was written\n", here("runs", "audit", "one").stdout)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE records SET at = at + 1 WHERE run = 1 AND seq = 2", "record 2 of run 'one' is damaged"),
        ("DELETE FROM records WHERE run = 1 AND seq = 3", "record 3 of run 'one' is damaged"),
        ("UPDATE runs SET turns = 9 WHERE id = 'one'", "run 'one', record 3: the summary was Summary("),
        ("UPDATE runs SET state = 'failed' WHERE id = 'one'", "state='failed'"),
    ],
)
def test_an_audit_names_the_run_and_the_record(here: Here, folder: Path, statement: str, says: str) -> None:
    """Where, and what: once, whether all runs are looked at or this one."""
    damage(folder, statement)
    for which in ([], ["one"]):
        result = here("runs", "audit", *which)
        assert result.exit_code == 1
        assert says in result.stdout
        assert result.stdout.count("\n") == 1
    assert here("runs", "audit", "two").exit_code == 0


async def test_an_audit_finds_no_fault_with_a_run_that_goes_on(folder: Path) -> None:
    """A live run moves between the list and the look at it, which is nothing wrong with it."""
    async with SQLiteStore(folder / "kept.db") as store:
        listed = await store.entry("three")
        assert listed is not None
        run = await Agent(ScriptedModel(["Well."]), name="third", store=store).resume("three")
        async with run:
            await run.finish()
        found = await _found(store, listed, None)
        assert (found.problem, found.records > listed.records) == ("", True)
        now = await store.entry("three")
        assert now is not None
        lying = evolve(now, summary=evolve(now.summary, turns=9))
        assert "the summary was" in (await _found(store, lying, None)).problem


def test_an_audit_looks_at_the_file_too(here: Here, folder: Path) -> None:
    """A record that belongs to no run is no run's problem, and a problem."""
    damage(folder, "UPDATE runs SET number = 99 WHERE id = 'one'")
    result = here("runs", "audit")
    assert result.exit_code == 1
    assert "records of no run: numbers 1" in result.stdout


def test_an_audit_says_once_that_a_file_is_cut_short(here: Here, folder: Path) -> None:
    """Each look at such a file fails alike, and four lines of the same read like four problems."""
    damage(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    (folder / "cut.db").write_bytes((folder / "kept.db").read_bytes()[:6000])
    result = here("runs", "audit", "--store", "cut.db")
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert "the database is damaged or cut short" in result.stdout


def test_a_run_of_an_extended_machine_is_audited_with_its_agent(here: Here) -> None:
    """Without its agent nobody can read its events, which is said, and is no damage."""
    assert here("run", "extended:agent", "hi", "--store", "own.db").exit_code == 0
    told = here("runs", "audit", "--store", "own.db")
    assert told.exit_code == 1
    assert "unknown event" in told.stdout
    assert here("runs", "audit", "--store", "own.db", "--agent", "extended:agent").exit_code == 0


COMMANDS = (
    ["runs", "list"],
    ["runs", "show", "one"],
    ["runs", "export", "--all"],
    ["runs", "audit"],
    ["replay", "two"],
    ["diff", "one", "two"],
)


def test_whatever_a_disk_did_there_is_no_traceback(here: Here, folder: Path) -> None:
    """Bits that flipped anywhere in the file: each command tells it on its own lines, or was not concerned."""
    damage(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (folder / "kept.db").read_bytes()
    for place in range(100, len(whole), len(whole) // 8):
        flipped = bytearray(whole)
        flipped[place : place + 16] = bytes(byte ^ 0x5A for byte in whole[place : place + 16])
        (folder / "flipped.db").write_bytes(flipped)
        for command in COMMANDS:
            result = here(*command, "--store", "flipped.db")
            assert result.exception is None or isinstance(result.exception, SystemExit), (place, command)
            assert result.exit_code in {0, 1, 2}
        for beside in folder.glob("flipped.db*"):
            beside.unlink()
