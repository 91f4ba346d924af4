"""`export` and `read_export`: a run outside of its store, byte for byte, and what is left of a damaged one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from turnstile import Agent, tool
from turnstile.core.errors import NoSuchRun, RecordDamaged, StoreForeign, StoreTooNew, StoreUnreachable
from turnstile.replay import Export, export, read_export, read_exports, replay
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


RUN = "my-run"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    """A store with one run, whose texts hold what is awkward in JSON lines."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        model = ScriptedModel([call("get_weather", city="Oslo\u2028\n"), 'Yes: ,"event":{}'])
        agent = Agent(model, tools=[get_weather], store=store, clock=FrozenClock())
        await agent.run("Is it warm? \ud83d", run_id=RUN)
        yield store


def spoil(path: Path, statement: str, *values: apsw.SQLiteValue) -> None:
    """Change a store behind its back, as a failing disk would."""
    connection = apsw.Connection(str(path))
    connection.execute(statement, values)
    connection.close()


async def test_twice_the_same_bytes_and_each_event_as_it_is_stored(store: SQLiteStore) -> None:
    """An export that differs each time cannot be compared with a copy, and one that rewrites events proves nothing."""
    first, second = await export(store, RUN), await export(store, RUN)
    assert first.text == second.text
    rows = (await store.raw(RUN)).records
    lines = first.text.splitlines()
    assert len(lines) == len(rows) + 1
    for line, row in zip(lines[1:], rows, strict=True):
        event = row[4]
        assert isinstance(event, bytes)
        assert line.endswith(b',"event":' + event + b"}")


async def test_every_line_is_json_that_other_programs_read(store: SQLiteStore) -> None:
    """The file is for jq as much as for us."""
    head, *records = map(json.loads, (await export(store, RUN)).text.splitlines())
    assert (head["turnstile_export"], head["run_id"], head["records"]) == (1, RUN, len(records))
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert records[-1]["seal"] == head["seal"]
    assert records[0]["event"]["type"] == "RunStarted"


async def test_what_is_read_is_what_was_exported(store: SQLiteStore, tmp_path: Path) -> None:
    """A run that travels as a file is the same run: its records, its chain, and its replay."""
    exported = await export(store, RUN)
    (tmp_path / "run.jsonl").write_bytes(exported.text)
    read = read_export(tmp_path / "run.jsonl")
    assert (read.text, read.damage) == (exported.text, None)
    assert read.records() == await store.load(RUN)
    assert replay(read.records()).divergence is None


async def test_a_store_that_keeps_no_bytes_exports_the_same(store: SQLiteStore) -> None:
    """A run in memory can be saved as well, and looks as if a file had kept it."""
    memory = MemoryStore()
    model = ScriptedModel([call("get_weather", city="Oslo\u2028\n"), 'Yes: ,"event":{}'])
    agent = Agent(model, tools=[get_weather], store=memory, clock=FrozenClock())
    await agent.run("Is it warm? \ud83d", run_id=RUN)
    kept, held = await export(store, RUN), await export(memory, RUN)
    assert held.damage is None
    assert [row[4] for row in held.rows[:3]] == [row[4] for row in kept.rows[:3]]
    with pytest.raises(NoSuchRun, match="'MemoryStore' has no run 'other'"):
        await export(memory, "other")


async def test_an_unknown_run_is_no_export(store: SQLiteStore) -> None:
    """An empty file would look like an empty run."""
    with pytest.raises(NoSuchRun):
        await export(store, "other")


@pytest.mark.parametrize(
    ("statement", "values", "seq"),
    [
        (
            "UPDATE records SET event = CAST(replace(CAST(event AS TEXT), 'Oslo', 'Rome') AS BLOB) WHERE seq = 3",
            (),
            3,
        ),
        ("UPDATE records SET at = at + 1 WHERE seq = 2", (), 2),
        ("UPDATE records SET row = 'answered' WHERE seq = 3", (), 3),
        ("DELETE FROM records WHERE seq = 4", (), 4),
        ("UPDATE records SET event = ? WHERE seq = 5", (b'{"cut',), 5),
        ("UPDATE records SET event = ? WHERE seq = 5", (b'{"v":1,\n"type":"ResultsAppended"}',), 5),
        ("UPDATE records SET event = ? WHERE seq = 5", (b"\xff\xfe",), 5),
    ],
)
async def test_a_damaged_record_is_named_and_the_rest_is_there(
    store: SQLiteStore, tmp_path: Path, statement: str, values: tuple[bytes, ...], seq: int
) -> None:
    """Whoever has lost one record wants all the others, and to know which it is."""
    sound = await export(store, RUN)
    spoil(store.path, statement, *values)
    broken = await export(store, RUN)
    assert broken.damage is not None
    assert (broken.damage.run_id, broken.damage.seq) == (RUN, seq)
    same = [line for line in broken.text.splitlines() if line in set(sound.text.splitlines())]
    assert len(same) == len(sound.text.splitlines()) - 1
    (tmp_path / "run.jsonl").write_bytes(broken.text)
    read = read_export(tmp_path / "run.jsonl")
    assert read.rows == broken.rows
    assert read.damage is not None
    assert read.damage.seq == seq
    with pytest.raises(RecordDamaged):
        read.records()


def test_a_row_that_is_none_has_a_line_that_says_so(tmp_path: Path) -> None:
    """Numbers where texts should be can come from a damaged page, and must not end the export of the rest."""
    broken = Export(RUN, 2, b"", ((1, None, 0.0, "", b"{}", b""), (2, 0.0, 0.0, "", b"{}", b"x")), "somewhere")
    lines = broken.text.splitlines()
    assert json.loads(lines[1]) == {"damaged": "(1, None, 0.0, '', b'{}', b'')"}
    assert json.loads(lines[2])["seq"] == 2
    (tmp_path / "run.jsonl").write_bytes(broken.text)
    damage = read_export(tmp_path / "run.jsonl").damage
    assert damage is not None
    assert damage.seq == 1


@pytest.mark.parametrize(
    ("old", "new", "seq"),
    [
        (b'"seq":2', b'"seq":7', 2),
        (b'"seal":"', b'"seal":"zz', 1),
        (b'"event":{', b'"event_base64":"!","was":{', 1),
        (b"Oslo", b"Rome", 3),
        (b'"records":', b'"records":1', 8),
    ],
)
async def test_a_file_that_was_changed_is_found_out(
    store: SQLiteStore, tmp_path: Path, old: bytes, new: bytes, seq: int
) -> None:
    """The chain goes with the file, so an edit in an editor shows as much as a bit that flipped."""
    head, _, rest = (await export(store, RUN)).text.partition(b"\n")
    if old.startswith(b'"records"'):
        head = head.replace(old, new)
    else:
        rest = rest.replace(old, new, 1)
    (tmp_path / "run.jsonl").write_bytes(head + b"\n" + rest)
    damage = read_export(tmp_path / "run.jsonl").damage
    assert damage is not None
    assert damage.place == str(tmp_path / "run.jsonl")
    assert damage.seq >= seq


async def test_a_file_that_was_cut_is_found_out(store: SQLiteStore, tmp_path: Path) -> None:
    """A download that ended early must not pass for a shorter run."""
    text = (await export(store, RUN)).text
    (tmp_path / "run.jsonl").write_bytes(text[:-20])
    assert read_export(tmp_path / "run.jsonl").damage is not None
    (tmp_path / "run.jsonl").write_bytes(b"\n".join(text.splitlines()[:-1]))
    assert read_export(tmp_path / "run.jsonl").damage is not None


async def test_several_runs_in_one_file(store: SQLiteStore, tmp_path: Path) -> None:
    """All of a store fits into one file, and each run of it is checked by itself."""
    await Agent(ScriptedModel(["No."]), store=store).run("Is it cold?", run_id="second")
    text = (await export(store, RUN)).text + (await export(store, "second")).text
    (tmp_path / "runs.jsonl").write_bytes(text)
    found = read_exports(tmp_path / "runs.jsonl")
    assert [(each.run_id, each.damage) for each in found] == [(RUN, None), ("second", None)]
    assert b"".join(each.text for each in found) == text
    with pytest.raises(StoreForeign, match="expected the export of one run, got those of my-run, second"):
        read_export(tmp_path / "runs.jsonl")


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", StoreForeign, "it is no export"),
        (b"hello\n", StoreForeign, "got b'hello'"),
        (b"[1]\n", StoreForeign, "it is no export"),
        (b'{"turnstile_export":1,"run_id":3}\n', StoreForeign, "it is no export"),
        (b'{"turnstile_export":1,"run_id":"\\ud800","records":0,"seal":""}\n', StoreForeign, "it is no export"),
        (b'{"turnstile_export":2,"run_id":"a","records":0,"seal":""}\n', StoreTooNew, "its format is 2"),
        (None, StoreUnreachable, "it cannot be read: No such file"),
    ],
)
def test_what_is_no_export_is_one_clear_error(
    tmp_path: Path, content: bytes | None, error: type[Exception], says: str
) -> None:
    """A wrong file is the most common mistake, and each kind of it has its own way out."""
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=says):
        read_export(path)


async def test_an_extensions_events_need_not_be_known_to_check_the_chain(store: SQLiteStore) -> None:
    """A file of somebody else's machine can be told sound from damaged without their code."""
    exported = await export(store, RUN)
    row = list(exported.rows[1])
    row[4] = b'{"v":1,"type":"acme.reviewed"}'
    changed = replace(exported, rows=(exported.rows[0], tuple(row), *exported.rows[2:]))
    assert changed.damage is not None
    assert "SHA-256" in str(changed.damage)


async def test_a_row_whose_name_nobody_can_encode_is_damaged(store: SQLiteStore, tmp_path: Path) -> None:
    """JSON spells half a character, of which no hash can be made: the record is named, and no traceback shown."""
    text = (await export(store, RUN)).text.replace(b'"row":""', b'"row":"\\ud800"', 1)
    (tmp_path / "run.jsonl").write_bytes(text)
    damage = read_export(tmp_path / "run.jsonl").damage
    assert damage is not None
    assert damage.seq == 1
