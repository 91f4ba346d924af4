"""A log that a disk has spoilt is found before anything is written behind it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnstile.core.errors import StoreDamaged
from turnstile.ports import Letter
from turnstile.stores import SQLiteStore

COMMITS = 20
DYING = f"""
import asyncio, os, signal, sys
from turnstile.core.events import MessageInjected, RunStarted
from turnstile.ports import Record, Summary
from turnstile.stores import SQLiteStore

async def main():
    store, live = SQLiteStore(sys.argv[1]), Summary("await_model")
    lease = await store.create(Record(RunStarted("run", "prompt")), live, lambda letter: None)
    for number in range({COMMITS}):
        await store.append(lease, [Record(MessageInjected(str(number)))], live)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def ignore(letter: Letter) -> None:
    """Take no letters."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file and the log of a process that died."""
    folder = tmp_path_factory.mktemp("left")
    subprocess.run([sys.executable, "-c", DYING, folder / "runs.db"], check=False)
    assert (folder / "runs.db-wal").stat().st_size
    return folder


def spoilt(left: Path, folder: Path, place: Callable[[int], int]) -> Path:
    """A copy of what was left, with one bit of its log flipped."""
    for name in ("runs.db", "runs.db-wal"):
        shutil.copy(left / name, folder / name)
    log = folder / "runs.db-wal"
    content = bytearray(log.read_bytes())
    content[place(len(content))] ^= 1
    log.write_bytes(content)
    return folder / "runs.db"


async def claimed(path: Path) -> int:
    """How many records the run has, once it is claimed."""
    async with SQLiteStore(path) as store:
        await store.claim("run", ignore)
        return len(await store.load("run"))


@pytest.mark.parametrize("place", [lambda _: 5, lambda _: 20, lambda size: size // 2], ids=["magic", "salt", "a page"])
def test_nothing_goes_on_behind_commits_that_cannot_be_read(
    left: Path, tmp_path: Path, place: Callable[[int], int]
) -> None:
    """SQLite drops them in silence, and a run that goes on from there does again what was done and acknowledged."""
    path = spoilt(left, tmp_path, place)
    before = path.with_name("runs.db-wal").read_bytes()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"its log 'runs.db-wal' is damaged, and \d+ commits behind the damage"):
            asyncio.run(claimed(path))
    assert path.with_name("runs.db-wal").read_bytes() == before


def test_what_can_be_read_is_read_and_an_audit_says_what_is_lost(left: Path, tmp_path: Path) -> None:
    """The rest can be exported, and looking does not destroy what a rescuer would need."""

    async def look(path: Path) -> tuple[int, tuple[str, ...]]:
        async with SQLiteStore(path) as store:
            return len(await store.load("run")), await store.check()

    path = spoilt(left, tmp_path, lambda size: size * 3 // 4)
    before = path.with_name("runs.db-wal").read_bytes()
    records, problems = asyncio.run(look(path))
    assert 1 < records < COMMITS
    assert ["runs export --all" in problem for problem in problems] == [True]
    assert path.with_name("runs.db-wal").read_bytes() == before


def test_the_last_commit_may_have_been_under_way(left: Path, tmp_path: Path) -> None:
    """A process that dies as it writes leaves such a log, and its run must go on."""
    path = spoilt(left, tmp_path, lambda size: size - 100)
    assert asyncio.run(claimed(path)) == COMMITS
    assert asyncio.run(claimed(path)) == COMMITS


def test_a_whole_log_is_whole(left: Path, tmp_path: Path) -> None:
    """What every crash leaves is no damage."""
    path = spoilt(left, tmp_path, lambda size: size - 100)
    shutil.copy(left / "runs.db-wal", path.with_name("runs.db-wal"))
    assert asyncio.run(claimed(path)) == 1 + COMMITS


@pytest.mark.parametrize("length", [0, 10, 40, 5000])
def test_a_log_that_is_cut_short_is_none(left: Path, tmp_path: Path, length: int) -> None:
    """A log is as long as the disk made it; what is missing at its end cannot be told from what was never written."""
    path = spoilt(left, tmp_path, lambda size: size - 100)
    log = path.with_name("runs.db-wal")
    log.write_bytes((left / "runs.db-wal").read_bytes()[:length])

    async def runs() -> int:
        async with SQLiteStore(path) as store:
            return len(await store.runs())

    assert asyncio.run(runs()) == 0


def test_normal_takes_what_a_power_cut_left(left: Path, tmp_path: Path) -> None:
    """Who chose not to wait for the disk at each commit is not told that some are missing."""

    async def runs(path: Path) -> int:
        async with SQLiteStore(path, synchronous="normal") as store:
            await store.claim("run", ignore)
            return len(await store.load("run"))

    assert 1 < asyncio.run(runs(spoilt(left, tmp_path, lambda size: size // 2))) < COMMITS
