"""What a `SQLiteStore` writes for a run, inside the caller's transaction: its journal, how it stands, its letters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from types import NoneType
from typing import NamedTuple, TypeGuard

import apsw

from turnstile.core.codec import Codec
from turnstile.core.errors import NoSuchRun, StoreDamaged, UsageError
from turnstile.core.events import RunStarted
from turnstile.ports import Record, Summary
from turnstile.shell.stores.chain import first_seal, seal
from turnstile.shell.stores.prompts import first_line

_MOST_TOKENS = 2**63 - 1  # what SQLite's INTEGER holds; a server may claim anything


class Head(NamedTuple):
    """A run and the end of its journal.

    Attributes:
        number: The run's.
        seq: How many records it has.
        seal: The newest one's seal.
        session: Its conversation.
        state: Name of its state.
        reason: Why it ended; empty while it hasn't.
        epoch: That of its lease; ``None`` when nobody has it.
    """

    number: int
    seq: int
    seal: bytes
    session: str | None
    state: str
    reason: str
    epoch: int | None


_HEAD = (  # no join: SQLite would plan it anew for each value that is bound, which takes longer than the rest of it
    "SELECT number, seq, seal, session, state, reason, (SELECT epoch FROM leases WHERE run = number) "
    "FROM runs WHERE id = ?"
)
_HEAD_TYPES = {(int, int, bytes, session, str, str, epoch) for session in (str, NoneType) for epoch in (int, NoneType)}
Columns = tuple[float, float, str, bytes]
"""A record as it is stored: at, duration_ms, row, event."""


def columns(record: Record, codec: Codec) -> Columns:
    """A record as it is stored; what cannot be stored fails here, before it could spoil a commit of others."""
    # SQLite stores NaN as NULL, and -0.0 as 0.0: adding 0.0 makes of it what it will be read as.
    at, duration_ms = record.at + 0.0, record.duration_ms + 0.0
    if not isfinite(at) or not isfinite(duration_ms):
        raise UsageError(f"a record needs finite times; got at={at!r}, duration_ms={duration_ms!r}")
    return at, duration_ms, name("row", record.row), codec.encode(record.event)


Standing = tuple[str, str, int, int, float]
"""A summary as it is stored: state, reason, turns, tokens, cost."""


def standing(summary: Summary) -> Standing:
    """A summary as it is stored; what cannot be stored fails here."""
    if not isfinite(summary.cost):
        raise UsageError(f"a summary needs a finite cost; got {summary.cost!r}")
    tokens = min(summary.tokens, _MOST_TOKENS)
    return name("state", summary.state), name("reason", summary.reason), summary.turns, tokens, summary.cost + 0.0


def name(what: str, value: str) -> str:
    """A name that SQLite can look up; a model's text need not be one, but a name is chosen."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} must be text that UTF-8 can hold; got {value!r}") from None
    return value


def head(connection: apsw.Connection, place: str, run_id: str) -> Head | None:
    """A run and the end of its journal; ``None`` for an unknown run."""
    found = connection.execute(_HEAD, (run_id,)).fetchall()
    if not found:
        return None
    if not _is_head(found[0]):
        raise StoreDamaged(place, f"run {run_id!r} has the summary {found!r:.200}; restore the store from a copy")
    return Head(*found[0])


def _is_head(values: tuple[object, ...]) -> TypeGuard[tuple[int, int, bytes, str | None, str, str, int | None]]:
    """Whether values are of the types that a head has, as of a damaged file they need not be."""
    return (*map(type, values),) in _HEAD_TYPES


def known_head(connection: apsw.Connection, place: str, run_id: str) -> Head:
    """A run and the end of its journal.

    Raises:
        NoSuchRun: There is no such run.
    """
    found = head(connection, place, run_id)
    if found is None:
        raise NoSuchRun(place, run_id)
    return found


def begin(connection: apsw.Connection, begun: RunStarted, record: Columns, stands: Standing) -> int:
    """Write a run with its first record; gives its number."""
    sealed = _seal(first_seal(begun.run_id), 1, record)
    connection.execute(
        "INSERT INTO runs "
        "(id, agent, session, prompt, started, seq, at, seal, state, reason, turns, tokens, cost, epoch) "
        "VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, (SELECT epoch FROM deleted))",
        (begun.run_id, begun.agent, begun.session, first_line(begun.prompt), record[0], record[0], sealed, *stands),
    )
    number = connection.last_insert_rowid()
    _insert(connection, [(number, 1, *record, sealed)])
    return number


def add(connection: apsw.Connection, run: Head, records: Sequence[Columns], stands: Standing) -> None:
    """Write records behind those that a run has, and how it stands then."""
    seq, sealed, rows = run.seq, run.seal, []
    for seq, record in enumerate(records, run.seq + 1):
        sealed = _seal(sealed, seq, record)
        rows.append((run.number, seq, *record, sealed))
    _insert(connection, rows)
    at = records[-1][0] if records else None
    state, reason, *spent = stands
    connection.execute(
        "UPDATE runs SET seq = ?, at = coalesce(?, at), seal = ?, state = ?, turns = ?, tokens = ?, cost = ? "
        "WHERE number = ?",
        (seq, at, sealed, state, *spent, run.number),
    )
    if reason != run.reason:  # apart: naming it writes the indexes of live runs anew, a fourth of all pages
        connection.execute("UPDATE runs SET reason = ? WHERE number = ?", (reason, run.number))


def take_letters(connection: apsw.Connection, number: int, letters: Collection[int]) -> None:
    """Take letters out of a run's mailbox."""
    taken = [(letter, number) for letter in letters]
    connection.executemany("DELETE FROM mailbox WHERE number = ? AND run = ?", taken)


def let_go(connection: apsw.Connection, number: int) -> None:
    """Take a run's lease away, and all its letters."""
    connection.execute("DELETE FROM leases WHERE run = ?", (number,))
    connection.execute("DELETE FROM mailbox WHERE run = ?", (number,))


def delete(connection: apsw.Connection, number: int) -> None:
    """Take a run away with all that belongs to it."""
    let_go(connection, number)
    rise = "UPDATE deleted SET epoch = max(epoch, (SELECT epoch FROM runs WHERE number = ?))"
    connection.execute(rise, (number,))
    connection.execute("DELETE FROM records WHERE run = ?", (number,))
    connection.execute("DELETE FROM runs WHERE number = ?", (number,))


def _insert(connection: apsw.Connection, rows: Sequence[tuple[int, int, float, float, str, bytes, bytes]]) -> None:
    connection.executemany(
        "INSERT INTO records (run, seq, at, duration_ms, row, event, seal) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
    )


def _seal(previous: bytes, seq: int, record: Columns) -> bytes:
    at, duration_ms, row, event = record
    return seal(previous, seq, at, duration_ms, event, row=row)
