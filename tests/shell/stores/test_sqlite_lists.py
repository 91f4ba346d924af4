"""Lists of stored runs: that a page costs the same among a hundred thousand runs, and what a file of old lists."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from turnstile.core.codec import codec
from turnstile.core.errors import NoSuchRun, StoreDamaged
from turnstile.core.events import Cancelled, EffectBegun, MessageInjected, RunStarted
from turnstile.ports import Letter, Record, Summary
from turnstile.shell.stores.chain import first_seal, seal
from turnstile.shell.stores.leases import RIVALS
from turnstile.shell.stores.sqlite_lists import FIND, page_query
from turnstile.shell.stores.sqlite_schema import MIGRATIONS
from turnstile.stores import SQLiteStore

LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a store."""
    return tmp_path / "runs.db"


@pytest.fixture
def behind(path: Path) -> Iterator[apsw.Connection]:
    """A connection that goes behind the store's back."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)  # a store may still be writing what nobody waits for
    yield connection
    connection.close()


def plan(connection: apsw.Connection, query: str, values: dict[str, object] | tuple[object, ...]) -> str:
    """How SQLite goes about a query."""
    rows = connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
    return "; ".join(str(row[3]) for row in rows)


async def make_tables(path: Path) -> None:
    """An empty store."""
    async with SQLiteStore(path) as store:
        await store.runs()


@pytest.mark.parametrize(("paged", "of_session", "live"), list(itertools.product([False, True], repeat=3)))
async def test_a_page_reads_no_more_than_itself(
    path: Path, behind: apsw.Connection, *, paged: bool, of_session: bool, live: bool
) -> None:
    """Among 100,000 runs a list must be there at once: it walks one index, sorts nothing, and stops."""
    await make_tables(path)
    query = page_query(paged=paged, of_session=of_session, live=live)
    steps = plan(behind, query, {"session": "chat", "before": 5, "most": 100})
    assert "TEMP B-TREE" not in steps
    first, *joined = steps.split("; ")
    assert [step.split(" LEFT-JOIN")[0] for step in joined] == ["SEARCH l USING INTEGER PRIMARY KEY (rowid=?)"]
    expected = {
        (False, False): "INTEGER PRIMARY KEY (rowid<?)" if paged else "SCAN r",
        (True, False): "INDEX runs_of_session (session=?",
        (False, True): "INDEX live_runs (reason=?",
        (True, True): "INDEX live_runs_of_session (session=?",
    }
    assert expected[of_session, live] in first
    assert first == "SCAN r" or first.startswith("SEARCH r USING")


async def test_a_run_is_found_by_the_index_of_ids(path: Path, behind: apsw.Connection) -> None:
    """A prefix of an id is looked up, not compared with each."""
    await make_tables(path)
    steps = plan(behind, FIND, ("a", 10))
    assert steps == "SEARCH runs USING COVERING INDEX sqlite_autoindex_runs_1 (id>?)"


async def test_a_session_is_judged_by_its_own_index(path: Path, behind: apsw.Connection) -> None:
    """A run begins as fast when there are many others."""
    await make_tables(path)
    steps = plan(behind, RIVALS, ("chat", "run"))
    assert steps.startswith("SEARCH r USING INDEX live_runs_of_session (session=?)")


async def test_pages_of_many_runs(path: Path, behind: apsw.Connection) -> None:
    """The last page is found as the first one is."""
    await make_tables(path)
    count = 100_000
    behind.execute(
        """
        INSERT INTO runs (id, agent, session, started, seq, at, seal, state, reason)
        WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
        SELECT printf('run-%06d', n), 'agent', CASE WHEN n % 1000 = 0 THEN 'chat' END, n, 1, n, x'00', 'done',
               CASE WHEN n % 5000 = 0 THEN '' ELSE 'answered' END
        FROM n
        """,
        (count,),
    )
    async with SQLiteStore(path) as store:
        assert [entry.run_id for entry in await store.runs(most=2)] == ["run-100000", "run-099999"]
        assert [entry.run_id for entry in await store.runs(before="run-000003")] == ["run-000002", "run-000001"]
        assert len(await store.runs(session="chat", most=count)) == 100
        assert len(await store.runs(live=True, most=count)) == 20
        assert [entry.run_id for entry in await store.runs(live=True, before="run-010000")] == ["run-005000"]
        assert await store.find("run-09999", most=3) == ("run-099990", "run-099991", "run-099992")
        assert await store.runs(most=-1) == ()
        assert await store.find("run", most=-1) == ()


async def test_a_damaged_entry_is_named(path: Path, behind: apsw.Connection) -> None:
    """A list that leaves out what it cannot read would hide it."""
    async with SQLiteStore(path) as store:
        await store.create(Record(RunStarted("run", "prompt")), LIVE, ignore)
        behind.execute("PRAGMA writable_schema = 1")
        behind.execute("UPDATE sqlite_schema SET sql = replace(sql, 'turns INTEGER', 'turns ANY')")
        behind.execute("PRAGMA writable_schema = RESET")
        behind.execute("UPDATE runs SET turns = 'many'")
    async with SQLiteStore(path) as store:
        with pytest.raises(StoreDamaged, match=r"a run is listed as \('run', .*'many'.*; restore"):
            await store.runs()


def make_old(path: Path) -> tuple[Record, ...]:
    """A file as the first version made it, with one run in it."""
    records = Record(RunStarted("run", "prompt", session="chat"), at=1.5), Record(EffectBegun(), at=2.5)
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE turnstile_schema (version INTEGER PRIMARY KEY, since TEXT) STRICT")
    connection.execute("INSERT INTO turnstile_schema VALUES (1, '2026-01-01')")
    connection.execute(MIGRATIONS[0])
    sealed = first_seal("run")
    for seq, record in enumerate(records, 1):
        event = codec.encode(record.event)
        sealed = seal(sealed, seq, record.at, record.duration_ms, event)
        values = (1, seq, record.at, record.duration_ms, event, sealed)
        connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute("INSERT INTO runs VALUES (1, 'run', 'travel', 'chat', 1.5, 2, 2.5, ?)", (sealed,))
    connection.close()
    return records


async def test_a_file_of_the_first_version_is_read_and_gone_on_with(path: Path) -> None:
    """An upgrade must not lose a run; how one stood was not kept then, which its entry says until it goes on."""
    records = make_old(path)
    async with SQLiteStore(path) as store:
        assert await store.load("run") == records
        assert await store.check() == ()
        [entry] = await store.runs()
        assert (entry.agent, entry.session, entry.prompt, entry.records) == ("travel", "chat", "", 2)
        assert entry.summary == Summary("unknown", "unknown")
        assert await store.runs(live=True) == ()
        lease = await store.claim("run", ignore)
        await store.append(lease, [Record(MessageInjected("go on"), row="injected")], Summary("await_model", turns=3))
        assert [entry.summary for entry in await store.runs(live=True)] == [Summary("await_model", turns=3)]
        assert await store.load("run") == (*records, Record(MessageInjected("go on"), row="injected"))


async def test_processes_may_upgrade_at_once(path: Path) -> None:
    """Workers of one server start together after an upgrade."""
    records = make_old(path)
    stores = [SQLiteStore(path) for _ in range(4)]
    assert await asyncio.gather(*(store.load("run") for store in stores)) == [records] * 4
    for store in stores:
        await store.aclose()


async def test_a_run_as_it_is_stored(path: Path, behind: apsw.Connection) -> None:
    """What is left of a damaged run can be saved, and an export shows the very bytes that were sealed."""
    start, second = Record(RunStarted("run", "prompt"), at=1.5), Record(EffectBegun(), at=2.5, row="a_row")
    async with SQLiteStore(path) as store:
        lease = await store.create(start, LIVE, ignore)
        await store.append(lease, [second], LIVE)
        events = [codec.encode(record.event) for record in (start, second)]
        one = seal(first_seal("run"), 1, 1.5, 0.0, events[0])
        two = seal(one, 2, 2.5, 0.0, events[1], row="a_row")
        stored = await store.raw("run")
        assert stored.records == ((1, 1.5, 0.0, "", events[0], one), (2, 2.5, 0.0, "a_row", events[1], two))
        assert (stored.run_id, stored.seq, stored.seal) == ("run", 2, two)
        behind.execute("UPDATE records SET event = x'00' WHERE seq = 1")
        assert [values[4] for values in (await store.raw("run")).records] == [b"\0", events[1]]
        with pytest.raises(NoSuchRun, match="has no run 'typo'"):
            await store.raw("typo")


async def make_three(store: SQLiteStore) -> None:
    """Three runs of two records."""
    for run_id in ("one", "two", "three"):
        lease = await store.create(Record(RunStarted(run_id, "prompt")), LIVE, ignore)
        await store.append(lease, [Record(EffectBegun())], LIVE)
        store.release(lease)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("UPDATE records SET at = 9.0 WHERE run = 2 AND seq = 2", ["record 2 of run 'two' is damaged"]),
        ("UPDATE records SET row = 'typo' WHERE run = 1", ["record 1 of run 'one' is damaged"]),
        (
            "DELETE FROM records WHERE run != 2",
            ["record 1 of run 'one' is damaged", "record 1 of run 'three' is damaged"],
        ),
        ("DELETE FROM runs WHERE number = 2", ["records of no run: numbers 2"]),
        ("INSERT INTO mailbox (run, event) VALUES (1, x'')", ["letter 1 of run 'one': "]),
        ("INSERT INTO mailbox (run, event) VALUES (77, x'')", ["letters of no run: numbers 77"]),
    ],
)
async def test_an_audit_names_what_is_wrong(path: Path, behind: apsw.Connection, script: str, words: list[str]) -> None:
    """Whoever has a bad disk wants to know all of it, and not only of the run that was looked at."""
    async with SQLiteStore(path) as store:
        await make_three(store)
        assert await store.check() == ()
        behind.execute(script)
        problems = await store.check()
    assert len(problems) == len(words)
    assert all(expected in problem for expected, problem in zip(words, problems, strict=True))


async def test_an_audit_finds_what_an_extension_wrote(path: Path, behind: apsw.Connection) -> None:
    """A record that this program cannot read is told with its run."""
    text = b'{"v": 1, "type": "Elsewhere"}'
    async with SQLiteStore(path) as store:
        await make_three(store)
        [(first,)] = behind.execute("SELECT seal FROM records WHERE run = 2 AND seq = 1").fetchall()
        assert isinstance(first, bytes)
        sealed = seal(first, 2, 0.0, 0.0, text)
        behind.execute("UPDATE records SET event = ?, seal = ? WHERE run = 2 AND seq = 2", (text, sealed))
        behind.execute("UPDATE runs SET seal = ? WHERE number = 2", (sealed,))
        [problem] = await store.check()
    assert problem.startswith("run 'two': ")
    assert "Elsewhere" in problem


async def test_an_audit_finds_a_damaged_index(path: Path, behind: apsw.Connection) -> None:
    """Loading a run by a sound index does not tell that another one has lost it."""
    async with SQLiteStore(path) as store:
        await make_three(store)
        behind.execute("PRAGMA writable_schema = 1")
        other = "CREATE INDEX live_runs ON runs (agent) WHERE reason = ''"
        behind.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'live_runs'", (other,))
        behind.execute("PRAGMA writable_schema = RESET")
    async with SQLiteStore(path) as store:
        problems = await store.check()
    assert problems
    assert all(problem.startswith("the file: ") for problem in problems)


async def test_an_audit_of_a_file_that_can_hardly_be_read(path: Path, behind: apsw.Connection) -> None:
    """It says as much as it can find out, and does not stop at the first thing that cannot be read."""
    async with SQLiteStore(path) as store:
        await make_three(store)
        await store.post("one", Cancelled())
        behind.execute("UPDATE records SET event = x'00' WHERE run = 1")
        behind.execute("UPDATE runs SET id = CAST(x'ff' AS TEXT) WHERE number = 1")
        problems = await store.check()
    assert len(problems) == 2  # the letters, and the list of runs
    assert all("a text in it is not UTF-8" in problem for problem in problems)
