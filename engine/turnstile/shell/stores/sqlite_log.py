"""The log beside a store's file (``-wal``): whether a disk has spoilt commits in it that SQLite would drop in silence.

After a crash SQLite reads the log up to the first frame whose checksum is wrong, and takes what follows for a commit
that was under way. That is right for the last one. But commits stand behind one another, each on the disk before the
next is begun; so where two or more stand behind that frame, what is wrong there is no commit that was under way, and to
go on would lose what was acknowledged, and do it again. The layout is that of sqlite.org/fileformat2.html, "The
Write-Ahead Log".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import apsw

_HEADER = struct.Struct(">IIII8sII")
_FRAME = struct.Struct(">II8s8x")
_BIG_ENDIAN = 0x377F0683  # how the checksum's words are read; the other of the two has 2 in place of the 3 at its end
_WORDS = 6  # of the header that its checksum covers


@dataclass(frozen=True, slots=True)
class Log:
    """What a log held before SQLite looked at it.

    Attributes:
        salts: What its frames carry, so that those of an earlier use of the file are told from these.
        commits: The numbers of the frames that end a commit, from 1.
        frames: The number of the last frame.
    """

    salts: bytes
    commits: tuple[int, ...] = ()
    frames: int = 0


def log_of(path: Path) -> Log | None:
    """What stands in the log of a store's file, before a connection to it is made; ``None`` where there is none."""
    try:
        with path.with_name(f"{path.name}-wal").open("rb") as file:
            return _read(file)
    except OSError:
        return None


def lost_in(log: Log | None, path: Path, connection: apsw.Connection) -> tuple[int, int]:
    """How many commits, and how many frames, SQLite does not see of what stood in a log before.

    Args:
        log: What stood there.
        path: The store's file.
        connection: One that has read from it since.
    """
    now = None if log is None else log_of(path)
    if log is None or now is None or now.salts != log.salts:  # another process has begun it afresh
        return 0, 0
    seen, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return sum(number > seen for number in log.commits), max(0, log.frames - seen)


def _read(file: BinaryIO) -> Log | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, _, page, _, salts, *_ = _HEADER.unpack(header)
    place = _HEADER.size
    if not _is_sound(header, magic):  # then its frames say what use of the file this is
        salts = _frame(file, place)[2]
    commits: list[int] = []
    number, frames, last = 0, 0, 0
    while True:
        page_number, size_after, carried = _frame(file, place)
        number += 1
        if not carried:
            return Log(salts, tuple(commits), frames)
        if carried == salts:
            frames = number
            if size_after and not (commits and commits[-1] == number - 1 and page_number == last):
                commits.append(number)  # not one that is there once more, to fill up a sector
        last = page_number
        place += _FRAME.size + page


def _frame(file: BinaryIO, place: int) -> tuple[int, int, bytes]:
    """A frame's page, the file's size after its commit if it ends one, and its salts; zeros behind the last one."""
    file.seek(place)
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return 0, 0, b""
    page, size_after, salts = _FRAME.unpack(head)
    return page, size_after, salts


def _is_sound(header: bytes, magic: int) -> bool:
    """Whether a header's checksum is right."""
    words = struct.unpack((">" if magic == _BIG_ENDIAN else "<") + f"{_WORDS}I", header[: 4 * _WORDS])
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.unpack(">II", header[4 * _WORDS :]) == (first, second)
