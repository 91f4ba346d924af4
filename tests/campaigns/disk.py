"""`Disk`: the machine's own file system, which keeps a record of every write, and fails on order.

What it recorded says what a power cut may leave: all that was synced, and of what was written since, any part, in any
order, torn at sectors.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import apsw

from ledger import Entry

SECTOR = 512  # bytes that a disk writes as a whole; those with larger sectors tear less

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that was done to a file.

    Attributes:
        kind: What. After a failed sync the kernel may ``forget`` what it could not write, and believe it written.
            ``mark`` is no operation, but something that came to be known between two.
        path: The file.
        offset: Where it was written, or the length it was cut to.
        data: What was written.
        entry: Of a mark: what came to be known.
    """

    kind: Literal["open", "write", "truncate", "sync", "forget", "delete", "mark"]
    path: str = ""
    offset: int = 0
    data: bytes = b""
    entry: Entry | None = None


@dataclass(slots=True)
class Failing:
    """Which operations fail.

    Attributes:
        calls: The kinds that count.
        first: The number, from 0, of the first that fails; ``None`` when none does.
        code: SQLite's result code that it fails with.
        sticky: Whether all after it fail too.
        seen: How many there were.
    """

    calls: tuple[str, ...] = ()
    first: int | None = None
    code: int = apsw.SQLITE_IOERR
    sticky: bool = False
    seen: int = 0

    def count(self, call: str) -> None:
        """Raise if it is this operation's turn to fail."""
        if call not in self.calls:
            return
        number, self.seen = self.seen, self.seen + 1
        if self.first is not None and (number == self.first or (self.sticky and number > self.first)):
            raise apsw.exception_for(self.code)


class Disk(apsw.VFS):
    """A file system that every database opened meanwhile is on; see `mounted`.

    Attributes:
        log: What was done to files, oldest first.
        failing: Which operations fail.
        syncs: Whether a sync does anything; a mutant's does not.
    """

    def __init__(self, *, syncs: bool = True) -> None:
        self.name = f"disk{next(_names)}"
        super().__init__(self.name, "unix")
        self.log: list[Operation] = []
        self.failing = Failing()
        self.syncs = syncs
        self._lock = threading.Lock()

    def did(self, operation: Operation) -> None:
        """Record an operation."""
        with self._lock:
            self.log.append(operation)

    def mark(self, entry: Entry) -> None:
        """Record that something is known now."""
        self.did(Operation("mark", entry=entry))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        """Open a file."""
        self.failing.count("xOpen")
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.did(Operation("open", path))
        return DiskFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's signature
        """Delete a file."""
        self.failing.count("xDelete")
        super().xDelete(filename, syncdir)
        self.did(Operation("delete", filename))


class DiskFile(apsw.VFSFile):
    """One opened file of a `Disk`."""

    def __init__(self, disk: Disk, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = path

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        """Read."""
        self._disk.failing.count("xRead")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        """Write, to the kernel's memory."""
        self._disk.failing.count("xWrite")
        super().xWrite(data, offset)
        self._disk.did(Operation("write", self._path, offset, bytes(data)))  # SQLite lends its own memory

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        """Cut the file short, in the kernel's memory."""
        self._disk.failing.count("xTruncate")
        super().xTruncate(newsize)
        self._disk.did(Operation("truncate", self._path, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        """Bring the file to the disk; a real one is not waited for, since only what is recorded counts."""
        try:
            self._disk.failing.count("xSync")
        except apsw.Error:
            self._disk.did(Operation("forget", self._path))
            raise
        if self._disk.syncs:
            self._disk.did(Operation("sync", self._path))


@contextmanager
def mounted(disk: Disk) -> Iterator[Disk]:
    """Let every database that is opened meanwhile be on the disk."""
    usual = apsw.vfs_names()[0]
    apsw.set_default_vfs(disk.name)
    try:
        yield disk
    finally:
        apsw.set_default_vfs(usual)
        disk.unregister()


@dataclass(slots=True)
class _File:
    """A file as a power cut may find it."""

    safe: bytearray = field(default_factory=bytearray)
    named: bool = False  # whether its folder is known to hold it
    unsynced: list[Operation] = field(default_factory=list)


class Platter:
    """What is on the disk for sure, and what may be, after the first operations of a log.

    Args:
        existing: Files that stood in their folder, empty, before the log began.
    """

    def __init__(self, existing: tuple[str, ...] = ()) -> None:
        self._files = {path: _File(named=True) for path in existing}

    def apply(self, operation: Operation) -> None:
        """Take the next operation of the log."""
        if operation.kind == "mark":
            return
        if operation.kind == "delete":
            self._files.pop(operation.path, None)
            return
        file = self._files.setdefault(operation.path, _File())
        if operation.kind == "sync":
            for written in file.unsynced:
                _do(file.safe, written)
            file.unsynced, file.named = [], True
        elif operation.kind == "forget":
            file.unsynced = []
        elif operation.kind != "open":
            file.unsynced.append(operation)

    def cut(self, draw: Random, to: Path) -> None:
        """Put into a folder what a power cut at this moment may leave."""
        for path, file in self._files.items():
            if not file.named and draw.random() < 0.5:
                continue
            content = bytearray(file.safe)
            survives = draw.choice((0.0, 0.5, 0.9, 1.0))
            order = list(file.unsynced)
            if draw.random() < 0.5:
                draw.shuffle(order)
            for written in order:
                _tear(content, written, draw, survives)
            (to / Path(path).name).write_bytes(content)


def _do(content: bytearray, operation: Operation) -> None:
    if operation.kind == "truncate":
        del content[operation.offset :]
        return
    content.extend(bytes(max(0, operation.offset - len(content))))
    content[operation.offset : operation.offset + len(operation.data)] = operation.data


def _tear(content: bytearray, operation: Operation, draw: Random, survives: float) -> None:
    """Do an operation, or a part of it: whole sectors that happened to be written."""
    if operation.kind == "truncate":
        if draw.random() < survives:
            _do(content, operation)
        return
    begin = operation.offset
    while begin < operation.offset + len(operation.data):
        end = min((begin // SECTOR + 1) * SECTOR, operation.offset + len(operation.data))
        if draw.random() < survives:
            part = operation.data[begin - operation.offset : end - operation.offset]
            _do(content, Operation("write", operation.path, begin, part))
        begin = end
