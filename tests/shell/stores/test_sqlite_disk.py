"""What a failing disk and a power cut do to the SQLite store: a real SQLite, on a file system that fails on order."""

import asyncio
import itertools
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from turnstile.core.errors import StoreError, StoreFull, StoreUnreachable
from turnstile.core.events import EffectBegun, MessageInjected, RunStarted
from turnstile.ports import Letter, Record, Summary
from turnstile.stores import SQLiteStore

Write = Callable[[bytearray], None]


class Disk(apsw.VFS):
    """The machine's own file system, with a record of what would survive a power cut.

    Attributes:
        fails: What fails from now on: the call (``"xSync"``, ``"xWrite"``), and the SQLite result code it fails with.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "unix")
        self.name = name
        self.fails: dict[str, int] = {}
        self._safe: dict[str, bytearray] = {}
        self._unsynced: dict[str, list[Write]] = {}

    def cut_power(self, to: Path) -> None:
        """Put what a power cut would leave of all files into a folder."""
        to.mkdir()
        for name, content in self._safe.items():
            (to / Path(name).name).write_bytes(content)

    def fail(self, call: str) -> None:
        """Raise if a call is to fail."""
        if call in self.fails:
            raise apsw.exception_for(self.fails[call])

    def written(self, name: str, write: Write) -> None:
        """A change that the disk need not have yet."""
        self._unsynced.setdefault(name, []).append(write)

    def synced(self, name: str, *, fully: bool) -> None:
        """What was written to a file is on the disk now; after a failed sync only the kernel believes so."""
        for write in self._unsynced.pop(name, []):
            if fully:
                write(self._safe[name])

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        """Open a file; its name is on the disk from now on."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._safe.setdefault(path, bytearray())
        return DiskFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's signature
        """Delete a file."""
        super().xDelete(filename, syncdir)
        self._safe.pop(filename, None)
        self._unsynced.pop(filename, None)


class DiskFile(apsw.VFSFile):
    """One opened file of a `Disk`."""

    def __init__(self, disk: Disk, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = path

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        """Write, to the kernel's memory."""
        self._disk.fail("xWrite")
        super().xWrite(data, offset)
        copy = bytes(data)  # SQLite lends its own memory

        def write(content: bytearray) -> None:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(copy)] = copy

        self._disk.written(self._path, write)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        """Cut the file short, in the kernel's memory."""
        super().xTruncate(newsize)

        def write(content: bytearray) -> None:
            del content[newsize:]

        self._disk.written(self._path, write)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        """Bring the file to the disk."""
        try:
            self._disk.fail("xSync")
        except apsw.Error:
            self._disk.synced(self._path, fully=False)
            raise
        super().xSync(flags)
        self._disk.synced(self._path, fully=True)


_names = itertools.count()


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A disk that every database opened in the test is on."""
    disk = Disk(f"disk{next(_names)}")
    usual = apsw.vfs_names()[0]
    apsw.set_default_vfs(disk.name)
    yield disk
    apsw.set_default_vfs(usual)
    disk.unregister()


START = Record(RunStarted("run", "prompt"))
LIVE = Summary("await_model")


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


async def test_what_is_acknowledged_survives_a_power_cut(disk: Disk, tmp_path: Path) -> None:
    """The driver acts on a record as soon as it is acknowledged, so from then on nothing may take it away."""
    records = [START, *(Record(MessageInjected(f"message {n}")) for n in range(20))]
    async with SQLiteStore(tmp_path / "runs.db") as store:
        lease = await store.create(START, LIVE, ignore)
        for count, record in enumerate(records, 1):
            if record is not START:
                await store.append(lease, [record], LIVE)
            disk.cut_power(tmp_path / f"after {count}")
            async with SQLiteStore(tmp_path / f"after {count}" / "runs.db") as left:
                assert await left.load("run") == tuple(records[:count])


async def test_a_failed_sync_is_not_made_good_by_the_next_one(disk: Disk, tmp_path: Path) -> None:
    """The kernel forgets pages that it could not write, so what comes later must not depend on them."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        lease = await store.create(START, LIVE, ignore)
        disk.fails = {"xSync": apsw.SQLITE_IOERR_FSYNC}
        with pytest.raises(StoreError, match="SQLITE_IOERR_FSYNC"):
            await store.append(lease, [Record(MessageInjected("lost?"))], LIVE)
        disk.fails = {}
        store.release(lease)
        lease = await store.claim("run", ignore)
        before = await store.load("run")
        await store.append(lease, [Record(MessageInjected("kept"))], LIVE)
        disk.cut_power(tmp_path / "left")
    async with SQLiteStore(tmp_path / "left" / "runs.db") as left:
        assert await left.load("run") == (*before, Record(MessageInjected("kept")))


@pytest.mark.parametrize(
    ("call", "code", "error", "words"),
    [
        ("xWrite", apsw.SQLITE_FULL, StoreFull, "the disk is full; make room"),
        ("xWrite", apsw.SQLITE_IOERR_WRITE, StoreError, "SQLITE_IOERR_WRITE"),
        ("xSync", apsw.SQLITE_IOERR_FSYNC, StoreError, "SQLITE_IOERR_FSYNC"),
    ],
)
async def test_a_disk_that_fails_loses_nothing(
    disk: Disk, tmp_path: Path, *, call: str, code: int, error: type[StoreError], words: str
) -> None:
    """A failed commit may be kept or not: nobody is told that it was, and nothing is put where it may be missing."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        lease = await store.create(START, LIVE, ignore)
        disk.fails = {call: code}
        with pytest.raises(error, match=words) as failed:
            await store.append(lease, [Record(EffectBegun())], LIVE)
        assert failed.value.place == str(tmp_path / "runs.db")
        assert failed.value.problem.startswith("run 'run' cannot be kept: ")
        disk.fails = {}
        with pytest.raises(StoreError, match=f"may be missing; leave it, and go on with .*{words}"):
            await store.append(lease, [Record(MessageInjected("into the gap"))], LIVE)
        await store.create(Record(RunStarted("other", "prompt")), LIVE, ignore)  # others go on
        store.release(lease)
        lease = await store.claim("run", ignore)
        known = await store.load("run")
        assert known in ((START,), (START, Record(EffectBegun())))
        await store.append(lease, [Record(MessageInjected("after reading anew"))], LIVE)
        assert await store.load("run") == (*known, Record(MessageInjected("after reading anew")))


async def test_each_run_in_a_failed_commit_is_named_to_its_own(disk: Disk, tmp_path: Path) -> None:
    """Runs share commits, and whoever waits for one must be told of it, not of another."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        names = ("one", "two", "three")
        leases = {name: await store.create(Record(RunStarted(name, "prompt")), LIVE, ignore) for name in names}
        disk.fails = {"xSync": apsw.SQLITE_IOERR_FSYNC}
        appended = (store.append(leases[name], [Record(EffectBegun())], LIVE) for name in names)
        failed = await asyncio.gather(*appended, return_exceptions=True)
    assert all(f"run {name!r} cannot be kept" in str(error) for name, error in zip(names, failed, strict=True))


async def test_a_disk_that_stays_broken_keeps_saying_so(disk: Disk, tmp_path: Path) -> None:
    """A store that cannot write must refuse each time, and still be readable and closable."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        lease = await store.create(START, LIVE, ignore)
        disk.fails = {"xSync": apsw.SQLITE_IOERR_FSYNC}
        for _ in range(3):
            assert (await store.load("run"))[0] == START
            with pytest.raises(StoreError, match="SQLITE_IOERR_FSYNC"):
                await store.append(lease, [Record(EffectBegun())], LIVE)
    disk.fails = {}
    async with SQLiteStore(tmp_path / "runs.db") as store:
        assert (await store.load("run"))[0] == START


async def test_a_run_that_could_not_begin_can_be_begun_again(disk: Disk, tmp_path: Path) -> None:
    """Whoever makes room on a full disk wants to try the same run again."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await store.create(Record(RunStarted("earlier", "prompt")), LIVE, ignore)
        disk.fails = {"xWrite": apsw.SQLITE_FULL}
        with pytest.raises(StoreFull):
            await store.create(START, LIVE, ignore)
        disk.fails = {}
        lease = await store.create(START, LIVE, ignore)
        await store.append(lease, [Record(EffectBegun())], LIVE)
        assert await store.load("run") == (START, Record(EffectBegun()))


async def test_a_disk_where_processes_share_no_memory(tmp_path: Path) -> None:
    """Without a write-ahead log a reader would stop the writer, so such a place is refused at once."""
    usual = apsw.vfs_names()[0]
    apsw.set_default_vfs("unix-dotfile")  # SQLite's own way for network disks: locks by files, no shared memory
    try:
        async with SQLiteStore(tmp_path / "runs.db") as store:
            with pytest.raises(StoreUnreachable, match=r"expected journal mode 'wal', got 'delete'; .* local disk"):
                await store.create(START, LIVE, ignore)
    finally:
        apsw.set_default_vfs(usual)


async def test_a_full_disk_has_no_room_for_the_shared_memory_either(tmp_path: Path) -> None:
    """SQLite calls it an I/O error, and nobody would think of making room."""
    async with SQLiteStore(tmp_path / "runs.db") as store:
        await store.create(START, LIVE, ignore)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # the kernel lets no file grow beyond
    try:
        async with SQLiteStore(tmp_path / "runs.db") as store:
            with pytest.raises(StoreFull, match="disk is full; make room"):
                await store.load("run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    async with SQLiteStore(tmp_path / "runs.db") as store:
        assert await store.load("run") == (START,)
