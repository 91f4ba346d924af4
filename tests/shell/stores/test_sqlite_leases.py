"""Leases and letters in the SQLite store: renewed, taken over, given back; no thread of it outlives its use."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import apsw
import pytest

from turnstile.core.errors import ConfigurationError, RunIsLeased, SessionBusy, StoreError, UsageError
from turnstile.core.events import Cancelled, EffectBegun, MessageInjected, RunStarted
from turnstile.core.run_state import begin_run
from turnstile.driver.keeper import Keeper
from turnstile.ports import Lease, Letter, Record, Summary
from turnstile.stores import SQLiteStore

START = Record(RunStarted("run", "prompt", session="chat"))
BEGUN = Record(EffectBegun())
LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a store."""
    return tmp_path / "runs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    """A store whose leases are renewed by hand alone, since their time is long."""
    async with SQLiteStore(path, lease=3600.0) as store:
        yield store


@pytest.fixture
def behind(path: Path) -> Iterator[apsw.Connection]:
    """A connection that goes behind the store's back."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    yield connection
    connection.close()


def move_elsewhere(behind: apsw.Connection, ttl: float) -> None:
    """Let all leases be held on another host, for a time of theirs."""
    behind.execute("UPDATE leases SET host = 'web-2', boot = 'another boot', ttl = ?", (ttl,))


def lease_threads() -> list[threading.Thread]:
    """The threads that look after leases."""
    return [thread for thread in threading.enumerate() if thread.name == "turnstile-store-leases"]


async def renew(store: SQLiteStore) -> None:
    """Renew now what the store holds, and wait for it."""
    await store._writer.submit("run", store._held.renew)


async def test_a_lease_is_renewed(store: SQLiteStore, behind: apsw.Connection) -> None:
    """A contender elsewhere sees by the counter alone that the holder lives, and one here by the time beside it."""
    await store.create(START, LIVE, ignore)
    query = "SELECT renewals, renewed FROM leases"
    [(before, since)] = behind.execute(query).fetchall()
    await renew(store)
    [(after, then)] = behind.execute(query).fetchall()
    assert (before, after) == (0, 1)
    assert isinstance(since, float)
    assert isinstance(then, float)
    assert since <= then


async def test_the_thread_renews(path: Path, behind: apsw.Connection) -> None:
    """Nobody but the store knows when it is time."""
    async with SQLiteStore(path, lease=0.05) as store:
        await store.create(START, LIVE, ignore)
        while behind.execute("SELECT renewals FROM leases").fetchall()[0][0] in (0, 1, 2):  # noqa: ASYNC110 - in a file
            await asyncio.sleep(0.001)


async def test_a_taken_over_lease_is_not_renewed(path: Path, store: SQLiteStore, behind: apsw.Connection) -> None:
    """A holder that was stopped for too long must not keep the new one's lease, nor write, nor get its letters."""
    got: list[Letter] = []
    old = await store.create(START, LIVE, got.append)
    behind.execute("UPDATE leases SET renewed = -1e9")
    async with SQLiteStore(path) as other:
        new = await other.claim("run", ignore)
        await renew(store)
        assert behind.execute("SELECT epoch, renewals FROM leases").fetchall() == [(new.epoch, 0)]
        await other.post("run", Cancelled())
        await asyncio.wrap_future(store._reading.submit(store._held.poll))
        assert got == []
        with pytest.raises(RunIsLeased, match="run 'run' is driven by process"):
            await store.append(old, [BEGUN], LIVE)
        await other.append(new, [BEGUN], LIVE)
        assert await other.load("run") == (START, BEGUN)


async def test_a_dead_holder_elsewhere_is_replaced_when_its_time_is_over(
    path: Path, store: SQLiteStore, behind: apsw.Connection
) -> None:
    """Nothing else tells that a process on another host is gone."""
    old = await store.create(START, LIVE, ignore)
    move_elsewhere(behind, ttl=0.05)
    async with SQLiteStore(path) as other:
        assert (await other.claim("run", ignore)).epoch > old.epoch


async def test_a_living_holder_elsewhere_is_not_replaced(
    path: Path, store: SQLiteStore, behind: apsw.Connection
) -> None:
    """Its counter moves while the contender watches, and the contender is told by whom."""
    await store.create(START, LIVE, ignore)
    move_elsewhere(behind, ttl=60.0)
    async with SQLiteStore(path) as other:
        claim = asyncio.ensure_future(other.claim("run", ignore))
        while not claim.done():
            behind.execute("UPDATE leases SET renewals = renewals + 1")
            await asyncio.sleep(0.001)
        with pytest.raises(RunIsLeased, match="on host 'web-2'"):
            await claim


async def test_a_session_is_watched_elsewhere_too(path: Path, store: SQLiteStore, behind: apsw.Connection) -> None:
    """A run of the session that is under way on another host blocks as one here does, and a dead one does not."""
    await store.create(START, LIVE, ignore)
    second = Record(RunStarted("second", "prompt", session="chat"))
    async with SQLiteStore(path) as other:
        move_elsewhere(behind, ttl=60.0)
        creating = asyncio.ensure_future(other.create(second, LIVE, ignore))
        while not creating.done():
            behind.execute("UPDATE leases SET renewals = renewals + 1")
            await asyncio.sleep(0.001)
        with pytest.raises(SessionBusy, match="'chat'"):
            await creating
        move_elsewhere(behind, ttl=0.05)
        await other.create(second, LIVE, ignore)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_claim_that_nobody_waits_for_is_given_back(path: Path, behind: apsw.Connection, *, begun: bool) -> None:
    """A cancelled task may have got the lease just then, and nobody else would ever let go of it."""
    async with SQLiteStore(path) as store:
        await store.create(Record(RunStarted("other", "prompt")), LIVE, ignore)
        if begun:
            store.release(await store.create(START, LIVE, ignore))
            await store.load("run")
        behind.execute("BEGIN IMMEDIATE")  # holds up the writer until the task is cancelled
        task = asyncio.ensure_future(store.claim("run", ignore) if begun else store.create(START, LIVE, ignore))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        behind.execute("ROLLBACK")
        await store.claim("run", ignore)


async def test_closing_releases_what_is_held(path: Path) -> None:
    """Who closes a store in the middle of a run lets others go on with it at once."""
    async with SQLiteStore(path) as store:
        await store.create(START, LIVE, ignore)
    async with SQLiteStore(path) as other:
        lease = await other.claim("run", ignore)
    other.release(lease)  # closing did it; a run that ends later may still say so


async def test_threads_end_with_their_use(path: Path) -> None:
    """A thread looks after leases only while there are any, and none is left when the store is closed."""
    before = lease_threads()
    async with SQLiteStore(path, lease=0.01) as store:
        assert lease_threads() == before
        lease = await store.create(START, LIVE, ignore)
        [thread] = [each for each in lease_threads() if each not in before]
        store.release(lease)
        await asyncio.to_thread(thread.join)
        await store.claim("run", ignore)
        [thread] = [each for each in lease_threads() if each not in before]
        assert thread.daemon  # nothing waits for it at the end of a process
    assert not thread.is_alive()


async def test_a_store_let_go_without_closing_ends_its_lease_thread(path: Path) -> None:
    """Nobody can release what such a store held, but it must not be renewed for ever either."""
    before = lease_threads()
    store = SQLiteStore(path, lease=0.01)
    await store.create(START, LIVE, ignore)
    [thread] = [each for each in lease_threads() if each not in before]
    del store
    gc.collect()
    await asyncio.to_thread(thread.join)
    async with SQLiteStore(path) as other:
        while True:
            try:
                await other.claim("run", ignore)
            except RunIsLeased:  # until its time is over
                await asyncio.sleep(0.001)
            else:
                break


def test_a_run_forgotten_while_a_pool_is_locked_holds_nobody_up(path: Path) -> None:
    """The collector may let go of a run in the middle of anything: whoever waited for a lock there would hang."""
    script = """
import asyncio, gc, sys
from concurrent.futures import ThreadPoolExecutor
from turnstile.core.errors import RunIsLeased
from turnstile.core.events import RunStarted
from turnstile.core.run_state import begin_run
from turnstile.driver.keeper import Keeper
from turnstile.ports import Record
from turnstile.stores import SQLiteStore

class Named(str):
    def __str__(self):  # called by the pool, which holds the lock of all pools
        gc.collect()
        return "named"

async def main():
    async with SQLiteStore(sys.argv[1], lease=3600.0) as store, SQLiteStore(sys.argv[1]) as other:
        begun = RunStarted("run", "prompt")
        keeper = Keeper(store, begin_run(begun))
        await keeper.create(Record(begun), print)
        while store._writer._working:  # a thread that is at work need not be called
            await asyncio.sleep(0.001)
        gc.disable()
        cycle = [keeper]
        cycle.append(cycle)
        del keeper, cycle
        with ThreadPoolExecutor(thread_name_prefix=Named("pool")) as pool:
            pool.submit(int).result()
        while True:
            try:
                return other.release(await other.claim("run", print))
            except RunIsLeased:
                await asyncio.sleep(0.001)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(path)]
    subprocess.run(command, env=dict(os.environ), check=True, timeout=30)


async def test_a_run_forgotten_together_with_its_store_holds_nobody_up(path: Path) -> None:
    """A program that drops all that it had must not wait for the lease's time; the store can still write by then."""
    begun = RunStarted("run", "prompt")
    store = SQLiteStore(path, lease=3600.0)
    keeper = Keeper(store, begin_run(begun))
    await keeper.create(Record(begun), ignore)
    while store._writer._working:  # noqa: ASYNC110 - a thread at work need not be called, and tells nobody when it rests
        await asyncio.sleep(0.001)
    cycle: list[object] = [keeper]
    cycle.append(cycle)
    del store, keeper, cycle
    gc.collect()
    async with SQLiteStore(path) as other, asyncio.timeout(30):
        while True:
            try:
                await other.claim("run", ignore)
            except RunIsLeased:
                await asyncio.sleep(0.001)
            else:
                break


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_run_forgotten_in_a_fork_or_at_the_very_end_says_nothing(path: Path) -> None:
    """Python prints what is raised there, and nobody can do anything about it."""
    script = """
import asyncio, atexit, os, sys
from turnstile.core.events import RunStarted
from turnstile.core.run_state import begin_run
from turnstile.driver.keeper import Keeper
from turnstile.ports import Record
from turnstile.stores import SQLiteStore

async def main():
    begun = RunStarted("run", "prompt")
    keepers.append(Keeper(SQLiteStore(sys.argv[1]), begin_run(begun)))
    await keepers[0].create(Record(begun), print)

keepers = []
asyncio.run(main())
child = os.fork()
if not child:
    keepers.clear()
    os._exit(0)
os.waitpid(child, 0)
atexit.register(keepers.clear)
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(path)]
    ended = subprocess.run(command, env=dict(os.environ), check=True, capture_output=True, text=True)
    assert not ended.stderr


async def test_letters_of_another_process_are_noticed(path: Path) -> None:
    """Whoever drives a run learns of a cancellation without asking for it."""
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with SQLiteStore(path) as store, SQLiteStore(path) as other:

        def deliver(letter: Letter) -> None:
            loop.call_soon_threadsafe(arrived.set)

        await store.create(START, LIVE, deliver)
        await other.post("run", Cancelled())
        await arrived.wait()


async def test_the_mailbox_is_looked_at_only_when_something_was_written(store: SQLiteStore) -> None:
    """The look is taken five times a second for as long as a run lasts, so it has to cost next to nothing."""
    got: list[Letter] = []
    lease = await store.create(START, LIVE, got.append)
    await store.post("run", Cancelled())
    asked: list[str] = []

    def trace(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        asked.append(statement)
        return True

    def look() -> None:
        with store._reading.connection() as connection:
            connection.exec_trace = trace
        store._held.poll()

    for _ in range(2):
        await asyncio.wrap_future(store._reading.submit(look))
    assert not any("mailbox" in statement for statement in asked)
    assert [letter.event for letter in got] == [Cancelled()]
    await store.append(lease, [BEGUN], LIVE)
    await asyncio.wrap_future(store._reading.submit(look))
    assert any("mailbox" in statement for statement in asked)
    assert len(got) == 1  # it is still there, and was handed over


async def test_a_damaged_letter_hinders_no_other(store: SQLiteStore, behind: apsw.Connection) -> None:
    """It is told by `check`, and the letters behind it are handed over."""
    got: list[Letter] = []
    await store.create(START, LIVE, got.append)
    behind.execute("INSERT INTO mailbox (run, event) VALUES (1, x'00')")
    await store.post("run", Cancelled())
    await asyncio.wrap_future(store._reading.submit(store._held.poll))
    assert [letter.event for letter in got] == [Cancelled()]
    [problem] = await store.check()
    assert problem.startswith("letter 1 of run 'run': ")


async def test_a_holder_whose_loop_has_ended_hinders_no_other(store: SQLiteStore) -> None:
    """A program may drive runs in threads, and one of these may be over."""
    got: list[Letter] = []

    def gone(letter: Letter) -> None:
        raise RuntimeError("Event loop is closed")

    await store.create(Record(RunStarted("gone", "prompt")), LIVE, gone)
    await store.create(START, LIVE, got.append)
    await store.post("gone", Cancelled())
    await store.post("run", Cancelled())
    await asyncio.wrap_future(store._reading.submit(store._held.poll))
    assert [letter.event for letter in got] == [Cancelled()]


async def test_only_letters_are_posted(store: SQLiteStore) -> None:
    """Nobody outside of a run can know what its model said."""
    await store.create(START, LIVE, ignore)
    with pytest.raises(UsageError, match=r"takes Cancelled, MessageInjected, ApprovalDecided; got EffectBegun"):
        await store.post("run", EffectBegun())


async def test_letters_are_those_of_the_lease(store: SQLiteStore) -> None:
    """A store hands letters only to who holds the run now."""
    first: list[Letter] = []
    second: list[Letter] = []
    store.release(await store.create(START, LIVE, first.append))
    await store.claim("run", second.append)
    await store.post("run", MessageInjected("hello"))
    await asyncio.wrap_future(store._reading.submit(store._held.poll))
    assert (first, [letter.event for letter in second]) == ([], [MessageInjected("hello")])


async def test_an_append_to_a_deleted_run(path: Path, store: SQLiteStore) -> None:
    """A lease that outlived its run cannot bring it back."""
    lease = await store.create(START, LIVE, ignore)
    store.release(lease)
    await store.delete("run")
    with pytest.raises(UsageError, match="has no run 'run'"):
        await store.append(lease, [BEGUN], LIVE)
    assert await store.load("run") == ()


async def test_an_append_of_nothing_says_how_the_run_stands(store: SQLiteStore) -> None:
    """A summary may change, or a letter be taken, without a record."""
    lease = await store.create(START, LIVE, ignore)
    await store.append(lease, [], Summary("failed", "cancelled"))
    [entry] = await store.runs()
    assert (entry.records, entry.summary, entry.holder) == (1, Summary("failed", "cancelled"), "")


async def test_a_server_may_claim_any_number_of_tokens(store: SQLiteStore) -> None:
    """One that SQLite cannot hold would fail the commit of everyone who shares it."""
    lease = await store.create(START, LIVE, ignore)
    await store.append(lease, [BEGUN], Summary("await_model", tokens=10**30))
    [entry] = await store.runs()
    assert entry.summary.tokens == 2**63 - 1


@pytest.mark.parametrize("options", [{"lease": 0.0}, {"lease": float("nan")}, {"wait": -1.0}, {"wait": float("nan")}])
def test_times_must_make_sense(path: Path, options: dict[str, float]) -> None:
    """A lease of no time would be anybody's."""
    with pytest.raises(ConfigurationError, match="needs wait >= 0 and lease > 0"):
        SQLiteStore(path, **options)  # type: ignore[arg-type]


async def test_a_failed_look_at_the_mailbox_fails_no_claim(store: SQLiteStore, behind: apsw.Connection) -> None:
    """The lease is taken by then, and the next look may succeed."""
    store.release(await store.create(START, LIVE, ignore))
    await store.load("run")
    behind.execute("ALTER TABLE mailbox RENAME TO elsewhere")
    lease = await store.claim("run", ignore)
    with pytest.raises(StoreError):
        await asyncio.wrap_future(store._reading.submit(store._held.poll))
    behind.execute("ALTER TABLE elsewhere RENAME TO mailbox")
    assert lease == Lease("run", lease.epoch)
    await store.append(lease, [BEGUN], LIVE)


async def test_the_thread_ends_when_the_interpreter_does(path: Path) -> None:
    """At the end of a process no thread takes work any more, and that is no error to be printed."""
    store = SQLiteStore(path, lease=0.01)
    before = lease_threads()
    await store.create(START, LIVE, ignore)
    [thread] = [each for each in lease_threads() if each not in before]
    store._reading.shut_down()
    store._writing.shut_down()
    await asyncio.to_thread(thread.join)


async def test_looks_at_the_mailbox_do_not_pile_up(store: SQLiteStore) -> None:
    """A long journal that is being read holds up the looks, and one is enough when it is read."""
    await store.create(START, LIVE, ignore)
    go = threading.Event()
    store._reading.submit(go.wait)
    assert store._held.round()
    looking = store._held._polling
    assert looking
    assert store._held.round()
    assert store._held._polling is looking
    go.set()
    await asyncio.wrap_future(looking)


async def test_a_claim_that_is_under_way_when_the_store_closes_is_given_back(
    path: Path, behind: apsw.Connection
) -> None:
    """Nobody would renew it, and everybody would have to wait until its time is over."""
    store = SQLiteStore(path)
    store.release(await store.create(START, LIVE, ignore))
    await store.load("run")
    behind.execute("BEGIN IMMEDIATE")  # holds up the writer until all is called
    claim = asyncio.ensure_future(store.claim("run", ignore))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    behind.execute("ROLLBACK")
    await closing
    with pytest.raises(UsageError, match="is closed; make a new SQLiteStore"):
        await claim
    async with SQLiteStore(path) as other:
        await other.claim("run", ignore)


async def test_who_watches_a_holder_hears_of_the_close(path: Path, store: SQLiteStore, behind: apsw.Connection) -> None:
    """It may take as long as a lease, and a store that is closed meanwhile can look no more."""
    await store.create(START, LIVE, ignore)
    move_elsewhere(behind, ttl=0.1)
    other = SQLiteStore(path)
    await other.load("run")
    claim = asyncio.ensure_future(other.claim("run", ignore))
    await asyncio.sleep(0)
    behind.execute("UPDATE leases SET ttl = 3600.0")
    await other.aclose()
    with pytest.raises(UsageError, match="is closed; make a new SQLiteStore"):
        await claim
