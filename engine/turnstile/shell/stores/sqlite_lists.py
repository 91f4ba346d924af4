"""What a `SQLiteStore` reads: single runs, and lists of them whose cost does not grow with the number of runs."""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from turnstile.core.errors import NoSuchRun, StoreDamaged
from turnstile.ports import RunEntry, Summary
from turnstile.shell.stores.chain import Values
from turnstile.shell.stores.holder import Holder
from turnstile.shell.stores.leases import COLUMNS, read_row, shown
from turnstile.shell.stores.sqlite_rows import head

FIND = "SELECT id FROM runs WHERE id >= ? ORDER BY id LIMIT ?"
_ENTRY = "r.id, r.agent, r.session, r.prompt, r.started, r.at, r.seq, r.state, r.reason, r.turns, r.tokens, r.cost"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's journal exactly as it is stored, whatever has become of it.

    Attributes:
        run_id: The run.
        records: Its records, oldest first.
        seq: How many there should be, as the run's summary says.
        seal: The seal of the last, as the run's summary says.
    """

    run_id: str
    records: tuple[Values, ...]
    seq: int
    seal: bytes


def stored(connection: apsw.Connection, place: str, run_id: str) -> StoredRun | None:
    """A run's journal as it is stored; ``None`` for an unknown run."""
    run = head(connection, place, run_id)
    if run is None:
        return None
    query = "SELECT seq, at, duration_ms, row, event, seal FROM records WHERE run = ? ORDER BY seq"
    return StoredRun(run_id, tuple(connection.execute(query, (run.number,)).fetchall()), run.seq, run.seal)


def newest(connection: apsw.Connection, session: str) -> str | None:
    """Id of the run of a session that began last."""
    query = "SELECT id FROM runs WHERE session = ? ORDER BY number DESC LIMIT 1"
    found = connection.execute(query, (session,)).fetchall()
    return str(found[0][0]) if found else None


def find(connection: apsw.Connection, prefix: str, most: int) -> tuple[str, ...]:
    """Ids that begin so: in the order of the index they stand together, from the prefix itself on."""
    found = [str(run_id) for (run_id,) in connection.execute(FIND, (prefix, max(most, 0))).fetchall()]
    return tuple(run_id for run_id in found if run_id.startswith(prefix))


def page_query(*, paged: bool, of_session: bool, live: bool) -> str:
    """The query for a page of runs; each form of it walks one index backwards, and stops when the page is full."""
    conditions = [
        *(["r.session = :session"] if of_session else []),
        *(["r.reason = ''"] if live else []),
        *(["r.number < :before"] if paged else []),
    ]
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    return (
        f"SELECT {_ENTRY}, {COLUMNS} FROM runs r LEFT JOIN leases l ON l.run = r.number {where}"  # noqa: S608 - our own words
        "ORDER BY r.number DESC LIMIT :most"
    )


def page(
    connection: apsw.Connection,
    place: str,
    me: Holder,
    *,
    most: int,
    before: str | None,
    session: str | None,
    live: bool,
) -> tuple[RunEntry, ...]:
    """Stored runs, the newest first.

    Raises:
        NoSuchRun: There is no run `before`.
    """
    number = None
    if before is not None:
        found = connection.execute("SELECT number FROM runs WHERE id = ?", (before,)).fetchall()
        if not found:
            raise NoSuchRun(place, before)
        number = found[0][0]
    query = page_query(paged=before is not None, of_session=session is not None, live=live)
    values = {"session": session, "before": number, "most": max(most, 0)}
    return tuple(_entry(row, place, me) for row in connection.execute(query, values).fetchall())


ENTRY = f"SELECT {_ENTRY}, {COLUMNS} FROM runs r LEFT JOIN leases l ON l.run = r.number WHERE r.id = ?"  # noqa: S608 - our own words


def entry(connection: apsw.Connection, place: str, me: Holder, run_id: str) -> RunEntry | None:
    """A run as a list shows it; ``None`` for an unknown one."""
    found = connection.execute(ENTRY, (run_id,)).fetchall()
    return _entry(found[0], place, me) if found else None


def _entry(values: tuple[object, ...], place: str, me: Holder) -> RunEntry:
    match values:
        case (
            str(run_id), str(agent), str() | None as session, str(prompt), float(started), float(at), int(seq),
            str(state), str(reason), int(turns), int(tokens), float(cost), *lease,
        ):  # fmt: skip
            held = None if lease[0] is None else read_row(tuple(lease), place)
            summary = Summary(state, reason, turns, tokens, cost)
            return RunEntry(run_id, agent, session, prompt, started, at, seq, summary, shown(held, me))
        case _:
            raise StoreDamaged(place, f"a run is listed as {values!r:.200}; restore the store from a copy")
