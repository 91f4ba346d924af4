"""The SQLite store in one process; what every store keeps is in tests/contracts."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import apsw
import pytest

from turnstile.core.errors import CodecError, ConfigurationError, NoSuchRun, StoreLocked, UsageError
from turnstile.core.events import Cancelled, EffectBegun, Event, MessageInjected, RunStarted
from turnstile.core.run_state import RunState
from turnstile.ports import Lease, Letter, Record, Summary
from turnstile.stores import SQLiteStore

START = Record(RunStarted("run", "prompt"))
BEGUN = Record(EffectBegun())
LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a store."""
    return tmp_path / "runs.db"


@pytest.fixture
def commits() -> Iterator[list[apsw.Connection]]:
    """The connection of every commit, counted by SQLite itself."""
    seen: list[apsw.Connection] = []

    def watch(connection: apsw.Connection) -> None:
        def committing() -> bool:
            seen.append(connection)
            return False  # go on

        connection.set_commit_hook(committing)

    apsw.connection_hooks.append(watch)
    yield seen
    apsw.connection_hooks.remove(watch)


async def test_a_store_opened_again_has_what_the_last_one_kept(path: Path) -> None:
    """A journal is for the next process."""
    async with SQLiteStore(path) as store:
        lease = await store.create(Record(RunStarted("run", "prompt", session="chat"), at=1.5), LIVE, ignore)
        await store.append(lease, [BEGUN], LIVE)
    async with SQLiteStore(str(path)) as store:
        assert [record.event for record in await store.load("run")] == [
            RunStarted("run", "prompt", session="chat"),
            EffectBegun(),
        ]
        assert await store.newest("chat") == "run"


async def test_what_waits_shares_a_commit(path: Path, commits: list[apsw.Connection]) -> None:
    """A commit waits for the disk, so a hundred runs must not wait a hundred times."""
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")  # holds up the writer until everything waits
        commits.clear()
        appends = [asyncio.ensure_future(store.append(lease, [BEGUN], LIVE)) for _ in range(100)]
        await asyncio.sleep(0)  # all are called now
        other.execute("ROLLBACK")
        await asyncio.gather(*appends)
        assert len(commits) <= 2  # the one that was held up with what had come by then, and one for the rest
        assert len(await store.load("run")) == 101
        other.close()


async def test_a_commit_writes_no_more_pages_than_it_changes(path: Path) -> None:
    """Each page of a commit waits for the disk: the records', their index's and the run's, but no list of live runs."""
    log = path.with_name(f"{path.name}-wal")
    async with SQLiteStore(path) as store:
        start = Record(RunStarted("run", "prompt", session="chat"))
        lease = await store.create(start, LIVE, ignore)
        before = log.stat().st_size
        await store.append(lease, [BEGUN], LIVE)
        frame = 24 + 4096  # sqlite.org/fileformat2.html: a head and a page
        assert log.stat().st_size - before == 3 * frame


async def test_the_log_is_begun_afresh_before_it_is_long(path: Path) -> None:
    """As long as it grows, each commit waits for the disk to note its length as well."""
    log = path.with_name(f"{path.name}-wal")
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)
        for _ in range(200):
            await store.append(lease, [BEGUN], LIVE)
        assert log.stat().st_size < 300 * (24 + 4096)  # of the 600 pages that these wrote


async def test_a_summary_of_each_run_is_kept_with_it(path: Path) -> None:
    """Listing runs must not have to read journals."""
    async with SQLiteStore(path) as store:
        start = Record(RunStarted("run", "prompt", agent="travel", session="chat"), at=1.5)
        lease = await store.create(start, LIVE, ignore)
        await store.append(lease, [Record(EffectBegun(), at=2.5)], LIVE)
        await store.create(Record(RunStarted("other", "prompt"), at=3.5), LIVE, ignore)
    connection = apsw.Connection(str(path))
    columns = "id, agent, session, started, seq, at"
    assert connection.execute(f"SELECT {columns} FROM runs ORDER BY number").fetchall() == [  # noqa: S608 - ours
        ("run", "travel", "chat", 1.5, 2, 2.5),
        ("other", "agent", None, 3.5, 1, 3.5),
    ]
    connection.close()


def test_serves_several_event_loops_at_once(path: Path) -> None:
    """A program may run agents in threads, each with an event loop of its own, on one store."""
    store = SQLiteStore(path)
    together = threading.Barrier(4)

    async def drive(run_id: str) -> None:
        lease = await store.create(Record(RunStarted(run_id, "prompt")), LIVE, ignore)
        together.wait()
        for _ in range(25):
            await store.append(lease, [BEGUN], LIVE)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(drive(f"run {n}"))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(asyncio.run(store.load(f"run {n}"))) for n in range(4)] == [26] * 4
    asyncio.run(store.aclose())


def test_an_append_outlives_its_event_loop(path: Path) -> None:
    """A program that ends its loop in the middle of an append has called it, so it is kept."""
    store = SQLiteStore(path)
    lease = asyncio.run(store.create(START, LIVE, ignore))
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")  # holds up the writer until the loop is gone

    async def leave() -> None:
        task = asyncio.ensure_future(store.append(lease, [BEGUN], LIVE))
        await asyncio.sleep(0)
        assert not task.done()

    loop = asyncio.new_event_loop()  # `asyncio.run` would wait for the task that it cancels
    loop.run_until_complete(leave())
    loop.close()
    other.execute("ROLLBACK")
    other.close()
    asyncio.run(store.aclose())
    again = SQLiteStore(path)
    assert asyncio.run(again.load("run")) == (START, BEGUN)
    asyncio.run(again.aclose())


async def test_a_store_let_go_without_closing_ends_its_threads(path: Path) -> None:
    """A program may make a store for each request; those that nobody holds must not pile up."""
    store = SQLiteStore(path)
    await store.create(START, LIVE, ignore)
    await store.load("run")
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("turnstile-store")]
    del store
    gc.collect()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    async with SQLiteStore(path) as again:
        assert await again.load("run") == (START,)


async def test_a_closed_store_says_so(path: Path) -> None:
    """Writing after the end would leave a thread and an open file behind."""
    store = SQLiteStore(path)
    lease = await store.create(START, LIVE, ignore)
    await store.aclose()
    await store.aclose()  # twice is once
    for use in (
        store.create(START, LIVE, ignore),
        store.claim("run", ignore),
        store.append(lease, [BEGUN], LIVE),
        store.load("run"),
        store.newest("chat"),
        store.post("run", Cancelled()),
        store.runs(),
        store.find("run"),
        store.delete("run"),
        store.raw("run"),
        store.check(),
    ):
        with pytest.raises(UsageError, match="is closed; make a new SQLiteStore for the file"):
            await use


async def test_closing_writes_what_waits(path: Path) -> None:
    """What was called before the store was closed is kept, though nobody awaits it any more."""
    store = SQLiteStore(path)
    lease = await store.create(START, LIVE, ignore)
    for _ in range(10):
        task = asyncio.ensure_future(store.append(lease, [BEGUN], LIVE))
        await asyncio.sleep(0)
        task.cancel()
    await store.aclose()
    async with SQLiteStore(path) as again:
        assert len(await again.load("run")) == 11


async def test_who_is_cancelled_hears_what_became_of_its_records(path: Path) -> None:
    """A run goes on with what it was cancelled in the middle of keeping, which a full or locked disk may not have."""
    other = apsw.Connection(str(path))
    async with SQLiteStore(path, wait=0) as store:
        lease = await store.create(START, LIVE, ignore)
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(store.append(lease, [BEGUN], LIVE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(StoreLocked):
            await task
        assert await store.load("run") == (START,)
        other.execute("ROLLBACK")
        store.release(lease)
        lease = await store.claim("run", ignore)
        task = asyncio.ensure_future(store.append(lease, [BEGUN], LIVE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.load("run") == (START, BEGUN)
    other.close()


async def test_a_run_that_was_never_created(path: Path) -> None:
    """A record of nothing would be lost, so it is refused; what others append at the same time is kept."""
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)
        refused, kept = await asyncio.gather(
            store.append(Lease("typo", 1), [BEGUN], LIVE), store.append(lease, [BEGUN], LIVE), return_exceptions=True
        )
        assert isinstance(refused, NoSuchRun)
        assert "has no run 'typo'; check its id" in str(refused)
        assert kept is None
        assert await store.load("run") == (START, BEGUN)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_time_must_be_a_number(path: Path, number: float) -> None:
    """SQLite would store NaN as nothing at all, and fail the commit of everyone who shares it."""
    async with SQLiteStore(path) as store:
        with pytest.raises(UsageError, match=r"needs finite times; got at=0\.0, duration_ms="):
            await store.create(Record(RunStarted("run", "prompt"), duration_ms=number), LIVE, ignore)
        with pytest.raises(UsageError, match="needs a finite cost; got"):
            await store.create(START, Summary("await_model", cost=number), ignore)


async def test_a_name_must_be_text(path: Path) -> None:
    """A byte of a command line that is no UTF-8 arrives as half a character, and cannot be looked up again."""
    async with SQLiteStore(path) as store:
        for start in (
            RunStarted("\udcff", "prompt"),
            RunStarted("run", "prompt", session="\udcff"),
            RunStarted("run", "prompt", agent="\udcff"),
        ):
            with pytest.raises(UsageError, match=r"must be text that UTF-8 can hold; got '\\udcff'"):
                await store.create(Record(start), LIVE, ignore)
        lease = await store.create(START, LIVE, ignore)
        for use in (
            store.append(Lease("\udcff", 1), [BEGUN], LIVE),
            store.append(lease, [Record(EffectBegun(), row="\udcff")], LIVE),
            store.append(lease, [BEGUN], Summary("\udcff")),
            store.append(lease, [BEGUN], Summary("failed", "\udcff")),
            store.claim("\udcff", ignore),
            store.load("\udcff"),
            store.newest("\udcff"),
            store.post("\udcff", Cancelled()),
            store.runs(session="\udcff"),
            store.runs(before="\udcff"),
            store.find("\udcff"),
            store.delete("\udcff"),
            store.raw("\udcff"),
        ):
            with pytest.raises(UsageError, match="UTF-8"):
                await use


@dataclass(frozen=True, slots=True)
class ReviewAsked(Event):
    """An event of an extended machine."""

    codec_name: ClassVar[str] = "example.ReviewAsked"
    by: str

    def apply(self, run: RunState) -> RunState:
        """Nothing changes."""
        return run


async def test_events_of_an_extension_are_kept_too(path: Path) -> None:
    """An extension's runs are journaled as the engine's own; a store that doesn't know an event says so at once."""
    asked = Record(ReviewAsked("Ann"))
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)
        with pytest.raises(CodecError, match="ReviewAsked"):
            await store.append(lease, [asked], LIVE)
        await store.append(lease, [BEGUN], LIVE)  # the run goes on
    async with SQLiteStore(path, events=[ReviewAsked]) as store:
        lease = await store.claim("run", ignore)
        await store.append(lease, [asked], LIVE)
        assert await store.load("run") == (START, BEGUN, asked)


async def test_text_with_halves_of_characters_is_kept(path: Path) -> None:
    """A model's reply can be cut inside a character, and the journal holds what came."""
    record = Record(MessageInjected("cut \ud83d"))
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)
        await store.append(lease, [record], LIVE)
        assert await store.load("run") == (START, record)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_told_to_open_its_own(path: Path) -> None:
    """Threads don't survive a fork, so the child would wait for ever; and SQLite's locks don't either."""
    script = """
import asyncio, os, sys
from turnstile.core.errors import UsageError
from turnstile.core.events import RunStarted
from turnstile.ports import Record, Summary
from turnstile.stores import SQLiteStore

store = SQLiteStore(sys.argv[1])
lease = asyncio.run(store.create(Record(RunStarted("run", "prompt")), Summary("await_model"), print))
child = os.fork()
if child:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    [entry] = asyncio.run(store.runs())
    sys.exit(status or (0 if entry.holder else 6))
try:
    store.release(lease)
except UsageError:
    pass
else:
    os._exit(3)
try:
    asyncio.run(store.load("run"))
except UsageError as error:
    asyncio.run(store.aclose())
    os._exit(0 if "which forked this one; make a new one here" in str(error) else 4)
os._exit(5)
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(path)]
    assert subprocess.run(command, env=dict(os.environ), check=False).returncode == 0


def test_sqlite_is_loaded_for_those_who_use_it() -> None:
    """Most programs keep their runs in memory, and a command should not pay for what it does not use."""
    script = (
        "import sys, turnstile.stores; assert 'apsw' not in sys.modules; "
        "turnstile.stores.SQLiteStore; assert 'apsw' in sys.modules; "
        "from turnstile.stores import *; MemoryStore, SQLiteStore"
    )
    subprocess.run([sys.executable, "-c", script], env=dict(os.environ), check=True)


def test_stores_has_nothing_else() -> None:
    """A typing error in a name must fail as it does in any module."""
    import turnstile.stores

    with pytest.raises(AttributeError, match=r"module 'turnstile\.stores' has no attribute 'SqliteStore'"):
        turnstile.stores.SqliteStore  # noqa: B018 - to see it fail


def test_a_store_shows_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears in messages; and a program that changes its folder later means the file that it named."""
    monkeypatch.chdir(path.parent)
    assert repr(SQLiteStore("runs.db")) == f"SQLiteStore({str(path)!r})"


async def test_a_bug_in_a_write_is_told_to_who_waits(path: Path) -> None:
    """Whatever goes wrong inside a commit, those who wait for it must not wait for ever; and the next one works."""
    async with SQLiteStore(path) as store:
        lease = await store.create(START, LIVE, ignore)

        def write(connection: apsw.Connection) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store._writer.submit("other", write)
        await store.append(lease, [BEGUN], LIVE)
        assert await store.load("run") == (START, BEGUN)


@pytest.mark.parametrize(("chosen", "pragma"), [("full", 2), ("normal", 1)])
async def test_how_safe_it_is_can_be_chosen_by_name(path: Path, chosen: Literal["full", "normal"], pragma: int) -> None:
    """Nobody gets less than asked for, and a word that SQLite would take for something else is refused."""
    async with SQLiteStore(path, synchronous=chosen) as store:
        await store.create(START, LIVE, ignore)

        def read(connection: apsw.Connection) -> object:
            return connection.pragma("synchronous")

        assert await store._writer.submit("run", read) == pragma
    with pytest.raises(ConfigurationError, match="needs synchronous 'full' or 'normal'; got 'off'"):
        SQLiteStore(path, synchronous="off")  # type: ignore[arg-type]
