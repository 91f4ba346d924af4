"""Campaign 4: the disk fails at the Nth operation, once or from then on, or is full; the run goes on later."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from random import Random

import apsw
import pytest

from case import Case
from disk import Disk, Failing, Platter, mounted
from invariants import violations
from lives import Life
from plays import MACHINE, PLAYS
from sizes import DISK_FAILURES, SEED
from stored import case_of, opened
from tally import Tally
from turnstile.core.errors import RunIsLeased, StoreError, StoreFull
from turnstile.stores import SQLiteStore

LEASE = 0.05  # seconds: a store that cannot write cannot give its lease back, and this process lives on
PLAY = "appended"
RUN = "run"
FAILURES = (
    ("xWrite", apsw.SQLITE_IOERR_WRITE),
    ("xWrite", apsw.SQLITE_FULL),
    ("xSync", apsw.SQLITE_IOERR_FSYNC),
    ("xRead", apsw.SQLITE_IOERR_READ),
    ("xTruncate", apsw.SQLITE_IOERR_TRUNCATE),
    ("xOpen", apsw.SQLITE_CANTOPEN),
    ("xDelete", apsw.SQLITE_IOERR_DELETE),
)
SIZES = (120, 160, 200, 240, 280)  # KiB of a whole disk; the run takes about 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """What fails in one case."""

    call: str
    code: int
    sticky: bool
    first: int

    def __str__(self) -> str:
        what = apsw.mapping_extended_result_codes.get(self.code) or apsw.mapping_result_codes[self.code]
        return f"{self.call} {self.first} fails as {what}{' and all after it' if self.sticky else ''}"


def one_process(life: Life, path: Path) -> str:
    """Let a run go on in a process with a store of its own; gives how that failed, in the error's words."""
    life.store = store = SQLiteStore(path, lease=LEASE)
    try:
        while True:
            try:
                assert life.process(None)
            except RunIsLeased:  # by the store that could not give it back; it renews it no more
                continue
            return ""
    except StoreError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        asyncio.run(store.aclose())


def sweep(counts: dict[str, int]) -> Iterator[Trouble]:
    """All troubles, each at places spread over those where it can come."""
    kinds = [(call, code, sticky) for call, code in FAILURES for sticky in (False, True)]
    total = sum(counts[call] for call, _, _ in kinds)
    for call, code, sticky in kinds:
        cases = ceil(DISK_FAILURES.cases * counts[call] / total)
        yield from (Trouble(call, code, sticky, case * counts[call] // cases) for case in range(cases))


def counted(folder: Path) -> dict[str, int]:
    """How often each operation comes while a run has a disk that is well."""
    counts: dict[str, int] = {}
    for call, _ in FAILURES:
        with mounted(Disk()) as disk:
            disk.failing = Failing((call,))
            assert (
                one_process(Life(SQLiteStore(folder / "unused"), RUN, PLAYS[PLAY], Random(SEED)), folder / call) == ""
            )
        counts[call] = disk.failing.seen
    return counts


def look(path: Path, life: Life) -> list[str]:
    """What is wrong with the run in a file."""
    with opened(path) as connection:
        return _look(case_of(connection, RUN, life.ledger.entries(), machine=MACHINE))


def _look(case: Case) -> list[str]:
    return violations(case) + ([] if case.states[-1].finished else [f"the run is {case.states[-1].state}"])


def suffer(folder: Path, trouble: Trouble) -> tuple[list[str], bool]:
    """A run on a disk that fails, then on one that is well again, then after a power cut; whether it noticed."""
    folder.mkdir()
    path = folder / "runs.db"
    life = Life(SQLiteStore(path), RUN, PLAYS[PLAY], Random(f"{SEED} {trouble}"))
    with mounted(Disk()) as disk:
        disk.failing = Failing((trouble.call,), trouble.first, trouble.code, trouble.sticky)
        noticed = one_process(life, path)
        disk.failing = Failing()
        if failed := one_process(life, path):
            return [f"after {noticed!r} it cannot go on: {failed}"], True
    wrong = look(path, life)
    platter = Platter(existing=(str(path),))
    for operation in disk.log:
        platter.apply(operation)
    (folder / "left").mkdir()
    platter.cut(Random(SEED), folder / "left")
    wrong += [f"after a power cut: {each}" for each in look(folder / "left" / "runs.db", life)]
    shutil.rmtree(folder)  # a release has thousands
    return wrong, bool(noticed)


def test_a_disk_that_fails(memory: Path, tally: Callable[[str], Tally]) -> None:
    """What fails is said, nothing is lost that was acknowledged, and the run goes on once the disk is well."""
    counts, noticed = tally("4 failing disk"), 0
    for number, trouble in enumerate(sweep(counted(memory))):
        wrong, seen = suffer(memory / str(number), trouble)
        counts.count(trouble, wrong)
        noticed += seen
    counts.notes = f"{noticed} were noticed"
    counts.verdict()
    assert noticed


@contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[Callable[[], object]]:
    """Make a folder that holds so much, in a file system of its own, until the function that is given makes room."""
    mount = ["mount", "-t", "tmpfs", "-o"]
    subprocess.run([*mount, f"size={kibibytes}k", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=10m", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def small_files(_: Path, kibibytes: int) -> Iterator[Callable[[], object]]:
    """Let no file of this process grow beyond that size, where no file system may be mounted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kibibytes * 1024, hard))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def may_mount(folder: Path) -> bool:
    """Whether this user may mount a file system."""
    try:
        with small_disk(folder, 100):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.mark.parametrize("small", [small_disk, small_files])
def test_a_disk_that_is_really_full(
    tmp_path: Path,
    tally: Callable[[str], Tally],
    small: Callable[[Path, int], AbstractContextManager[Callable[[], object]]],
) -> None:
    """The kernel's own errors count too: the run stops as a full disk, and goes on when there is room."""
    if small is small_disk and not may_mount(tmp_path):
        pytest.skip("no file system can be mounted here; files of a limited size are tried in its place")
    counts, noticed = tally(f"4 {small.__name__.replace('_', ' ')}"), 0
    for kibibytes in SIZES:
        folder = tmp_path / str(kibibytes)
        folder.mkdir()
        with small(folder, kibibytes) as make_room:
            path = folder / "runs.db"
            life = Life(SQLiteStore(path), RUN, PLAYS[PLAY], Random(SEED))
            said = one_process(life, path)
            noticed += bool(said)  # not when the log was emptied in time, which makes room
            full = small is small_files or not said or said.startswith(StoreFull.__name__)
            wrong = [] if full else [f"it says {said!r}"]  # of a file that may not grow it says an I/O error
            make_room()
            failed = one_process(life, path)
            counts.count(f"{kibibytes} KiB", wrong + ([f"it cannot go on: {failed}"] if failed else look(path, life)))
    counts.notes = f"{noticed} were noticed"
    counts.verdict()
    assert noticed
