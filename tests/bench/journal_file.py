"""What a SQLite file tells of who wrote it: its size once all is in it, and how often something was committed.

After "Database File Format" of SQLite: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

CHANGES = struct.Struct(">24xI")
"""§1.3: the header's counter of changes, which each transaction raises unless there is a write-ahead log."""
PAGE_SIZE = struct.Struct(">8xI")
"""§4.1: in the header of a write-ahead log."""
HEADER = 32  # bytes of it
FRAME = struct.Struct(">4xI")
"""§4.1: of a frame of the log, the size of the database after a commit, or 0 where the frame ends none."""
FRAME_HEAD = 24  # bytes before its page


def settled(file: Path) -> int:
    """Size in bytes, with all in the file that its log still held."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return file.stat().st_size


def commits(file: Path) -> int:
    """Commits to count from: those of now less those of before, if the log was empty then and began nowhere anew."""
    log = file.with_name(file.name + "-wal")
    (changes,) = CHANGES.unpack_from(file.read_bytes())
    return int(changes) + (logged(log.read_bytes()) if log.exists() else 0)


def logged(log: bytes) -> int:
    """Commits in a write-ahead log."""
    if not log:
        return 0
    (page,) = PAGE_SIZE.unpack_from(log)
    return sum(bool(FRAME.unpack_from(log, at)[0]) for at in range(HEADER, len(log), FRAME_HEAD + page))
