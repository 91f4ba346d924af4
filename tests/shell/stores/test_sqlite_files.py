"""Files that cannot be used: each gets one error that names the file, what is wrong and the way out."""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.errors import (
    ConfigurationError,
    RecordDamaged,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnreachable,
)
from turnstile.core.events import Cancelled, EffectBegun, MessageInjected, RunStarted
from turnstile.ports import Letter, Record, Summary
from turnstile.shell.stores.sqlite_schema import MIGRATIONS
from turnstile.stores import SQLiteStore

RECORDS = (
    Record(RunStarted("run", "prompt", session="chat")),
    *(Record(MessageInjected(f"message {n}")) for n in range(40)),
)

LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


async def make(path: Path) -> None:
    """A store that holds one run."""
    async with SQLiteStore(path) as store:
        lease = await store.create(RECORDS[0], LIVE, ignore)
        for record in RECORDS[1:]:
            await store.append(lease, [record], LIVE)


async def load(path: Path) -> tuple[Record, ...]:
    """The run, read by a store of its own."""
    async with SQLiteStore(path, wait=0.0) as store:
        return await store.load("run")


async def append(path: Path) -> None:
    """Add a record, by a store of its own."""
    async with SQLiteStore(path, wait=0.0) as store:
        lease = await store.claim("run", ignore)
        await store.append(lease, [Record(EffectBegun())], LIVE)


def sql(path: Path, script: str) -> None:
    """Change a file behind the store's back."""
    connection = apsw.Connection(str(path))
    connection.execute(script)
    connection.close()


def replace_by_another_programs(path: Path) -> None:
    """Put a database of something else in the store's place."""
    path.unlink()
    sql(path, "CREATE TABLE users (name)")


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change a closed file's bytes."""
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def cut(size: int) -> Callable[[bytearray], None]:
    """Cut off all after some bytes."""

    def change(content: bytearray) -> None:
        del content[size:]

    return change


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        pytest.param(lambda p: p.write_text("plain text " * 500), StoreForeign, "not a database", id="text"),
        pytest.param(lambda p: p.write_text("short"), StoreForeign, "not a database", id="short text"),
        pytest.param(
            replace_by_another_programs,
            StoreForeign,
            "another program's: expected the table 'turnstile_schema', got 'users'; choose",
            id="another program's",
        ),
        pytest.param(
            lambda p: sql(p, "INSERT INTO turnstile_schema (version) VALUES (99)"),
            StoreTooNew,
            "version 99 of the schema, and this Turnstile reads versions up to 2; upgrade",
            id="newer",
        ),
        pytest.param(
            lambda p: sql(p, "DELETE FROM turnstile_schema"), StoreDamaged, "its schema is None", id="no version"
        ),
        pytest.param(lambda p: edit(p, cut(60)), StoreDamaged, "cut short; keep this file", id="cut in the header"),
        pytest.param(lambda p: edit(p, cut(8192)), StoreDamaged, "cut short; keep this file", id="cut in the middle"),
        pytest.param(lambda p: (p.unlink(), p.mkdir()), StoreUnreachable, "check that it is a file", id="a folder"),
        pytest.param(
            lambda p: (p.unlink(), p.symlink_to(p.parent / "gone" / "there")),
            StoreUnreachable,
            "check that it is a file",
            id="a link to nowhere",
        ),
    ],
)
async def test_a_file_that_is_no_store(
    tmp_path: Path, spoil: Callable[[Path], object], error: type[StoreError], words: str
) -> None:
    """Neither reading nor writing may take such a file for an empty store, nor change it."""
    path = tmp_path / "runs.db"
    await make(path)
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    for use in (load, append):
        with pytest.raises(error, match=words) as raised:
            await use(path)
        assert raised.value.place == str(path)
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_changed_record_is_named(tmp_path: Path) -> None:
    """Who finds a damaged run wants to know how far it can be trusted."""
    path = tmp_path / "runs.db"
    await make(path)

    def change(content: bytearray) -> None:
        content[:] = content.replace(b"message 6", b"message 7")  # all copies: pages keep bytes that are free again

    edit(path, change)
    with pytest.raises(RecordDamaged, match="record 8 of run 'run' is damaged: its SHA-256") as raised:
        await load(path)
    assert raised.value.seq == 8


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("DELETE FROM records WHERE seq = 5", "record 5 of run 'run' is damaged"),
        ("DELETE FROM records WHERE seq > 30", "record 31 of run 'run' is damaged: expected 41 records, got 30"),
        ("UPDATE runs SET seq = 40", "record 41 of run 'run' is damaged: expected 40 records, got 41"),
        ("UPDATE runs SET seal = x'00'", "record 41 of run 'run' is damaged: its SHA-256"),
    ],
)
async def test_records_and_summary_must_agree(tmp_path: Path, script: str, words: str) -> None:
    """A run that lost its end is whole in itself, and only its summary tells."""
    path = tmp_path / "runs.db"
    await make(path)
    sql(path, script)
    with pytest.raises(StoreDamaged, match=words):
        await load(path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("UPDATE runs SET seq = 'many'", r"run 'run' has the summary .*'many'.*; restore"),
        ("UPDATE records SET at = cast(x'ff' AS TEXT)", "a text in it is not UTF-8"),
    ],
)
async def test_values_of_another_type(tmp_path: Path, script: str, words: str) -> None:
    """SQLite hands over what it finds, whatever the column was declared to hold."""
    path = tmp_path / "runs.db"
    await make(path)
    sql(
        path,
        """
        PRAGMA writable_schema = 1;
        UPDATE sqlite_schema SET sql = replace(replace(sql, 'seq INTEGER', 'seq ANY'), 'at REAL', 'at ANY');
        PRAGMA writable_schema = RESET;
        """,
    )
    sql(path, script)
    with pytest.raises(StoreDamaged, match=words):
        await load(path)


@pytest.fixture(scope="module")
def sound() -> Iterator[Path]:
    """A store that is copied before it is damaged."""
    folder = Path(tempfile.mkdtemp())
    asyncio.run(make(folder / "sound.db"))
    yield folder / "sound.db"
    shutil.rmtree(folder)


@given(data=st.data())
def test_a_flipped_bit_never_gives_another_run(sound: Path, data: st.DataObject) -> None:
    """Wherever a disk flips a bit: what is loaded is what was written, or nothing is."""
    path = sound.with_name("flipped.db")
    content = bytearray(sound.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        outcome: object = asyncio.run(load(path))
    except StoreError as error:
        outcome = error.place
    assert outcome in (RECORDS, (), str(path))
    for left in path.parent.glob("flipped.db*"):
        left.unlink()


async def test_a_locked_file(tmp_path: Path) -> None:
    """Another process in a long transaction must not look like a hang; once it is done, writing goes on."""
    path = tmp_path / "runs.db"
    await make(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLocked, match="another process has kept it locked for too long; end that process"):
        await append(path)
    assert await load(path) == RECORDS  # reading goes on meanwhile
    other.execute("ROLLBACK")
    other.close()
    await append(path)


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Path]:
    """A folder of a user whom file modes bind, which they do not for root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    if os.geteuid() != 0:
        yield path
    else:
        os.chown(path, 65534, 65534)
        os.seteuid(65534)
        yield path
        os.seteuid(0)
    path.chmod(0o755)
    shutil.rmtree(path)


def protect(path: Path, mode: int) -> None:
    """Set a file's mode."""
    path.chmod(mode)


async def read_and_fail_to_write(path: Path) -> None:
    """All that reads works, and all that writes says why it cannot."""
    async with SQLiteStore(path) as store:
        for _ in range(2):
            assert await store.load("run") == RECORDS
            assert [entry.run_id for entry in await store.runs()] == ["run"]
            assert len((await store.raw("run")).records) == len(RECORDS)
            assert await store.find("r") == ("run",)
            assert await store.newest("chat") == "run"
            assert await store.check() == ()
        for use in (
            store.create(Record(RunStarted("another", "prompt")), LIVE, ignore),
            store.claim("run", ignore),
            store.post("run", Cancelled()),
            store.delete("run"),
        ):
            with pytest.raises(StoreReadOnly, match="read, but not written; make the file and its folder writable"):
                await use
        assert await store.load("run") == RECORDS


@pytest.mark.parametrize(
    ("file", "folder"), [(0o400, 0o755), (0o444, 0o755), (0o400, 0o500), (0o600, 0o500)], ids=lambda mode: f"{mode:o}"
)
async def test_a_read_only_file(nobody: Path, file: int, folder: int) -> None:
    """It can still be looked at, also where SQLite has no place for its log; what is written is refused, not lost."""
    path = nobody / "runs.db"
    await make(path)
    protect(path, file)
    protect(nobody, folder)
    await read_and_fail_to_write(path)


async def test_a_read_only_file_beside_its_log(nobody: Path) -> None:
    """What a killed process left in the log is not passed over, only because the log cannot be joined to the file."""
    path = nobody / "runs.db"
    await make(path)
    async with SQLiteStore(path) as store:
        lease = await store.claim("run", ignore)
        await store.append(lease, [Record(EffectBegun())], LIVE)
        for name in ("copy.db", "copy.db-wal"):  # as the file and its log are at this moment
            shutil.copy(path.with_name(name.replace("copy", "runs")), path.with_name(name))
    protect(nobody, 0o500)
    with pytest.raises(StoreUnreachable, match="cannot be opened; check that it is a file"):
        await load(nobody / "copy.db")


async def test_a_read_only_file_is_looked_at_anew(nobody: Path) -> None:
    """Somebody who may write it goes on while we look at it, and we cannot be told of that."""
    path = nobody / "runs.db"
    await make(path)
    protect(nobody, 0o500)
    async with SQLiteStore(path) as reader:
        assert await reader.load("run") == RECORDS
        protect(nobody, 0o755)
        await append(path)
        protect(nobody, 0o500)
        assert await reader.load("run") == (*RECORDS, Record(EffectBegun()))


async def test_an_old_file_that_cannot_be_upgraded(nobody: Path) -> None:
    """Its tables are others than those that are asked for, so it says what to do instead of failing at a query."""
    path = nobody / "runs.db"
    sql(path, f"CREATE TABLE turnstile_schema (version INTEGER PRIMARY KEY); {MIGRATIONS[0]}")
    sql(path, "INSERT INTO turnstile_schema VALUES (1); PRAGMA journal_mode = wal")
    protect(path, 0o400)
    protect(nobody, 0o500)
    with pytest.raises(StoreReadOnly, match=r"version 1 of the schema, .* can bring to 2; open it once"):
        await load(path)


async def test_a_folder_that_must_not_be_written(nobody: Path) -> None:
    """A missing file in it, or a folder under it, cannot be made, and the system's own words say why."""
    protect(nobody, 0o500)
    for path in (nobody / "runs.db", nobody / "folder" / "runs.db"):
        with pytest.raises(StoreUnreachable, match=r"cannot be made: Permission denied \('.*'\); choose another file"):
            await load(path)


async def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    """The path leads through a file, and the message says which part of it is wrong."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnreachable, match=r"its folder '.*/file' is a file; choose another folder"):
        await load(tmp_path / "file" / "runs.db")
    with pytest.raises(StoreUnreachable, match="cannot be made: Not a directory"):
        await load(tmp_path / "file" / "folder" / "runs.db")


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_names_no_file(path: str) -> None:
    """SQLite has meanings of its own for these, none of which keeps anything."""
    with pytest.raises(ConfigurationError, match=r"needs the path of a file; got .*MemoryStore\(\)"):
        SQLiteStore(path)


async def test_new_files_are_their_owners_alone(tmp_path: Path) -> None:
    """They hold prompts; missing folders are made, and the files beside the database are no more open than it."""
    path = tmp_path / "a" / "b" / "runs.db"
    async with SQLiteStore(path) as store:
        await store.create(RECORDS[0], LIVE, ignore)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    assert [file.name for file in path.parent.iterdir()] == ["runs.db"]


async def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    """Who shares a store with a group has set its mode on purpose."""
    path = tmp_path / "runs.db"
    path.touch()
    path.chmod(0o660)
    await make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
