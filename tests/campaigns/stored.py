"""Reads a run out of a SQLite file as it is stored, with none of the engine's own reading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import apsw

from case import Case, Head, Row
from ledger import Entry
from turnstile import Machine
from turnstile.core.machine import loop
from turnstile.ports import Summary
from turnstile.replay import Export


@contextmanager
def opened(path: Path) -> Iterator[apsw.Connection]:
    """A connection to a file, closed afterwards without touching it more than that needs."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        yield connection
    finally:
        connection.close()


def run_ids(connection: apsw.Connection) -> tuple[str, ...]:
    """Ids of all runs, oldest first; none where the tables were not made yet."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchall():
        return ()
    return tuple(str(run_id) for (run_id,) in connection.execute("SELECT id FROM runs ORDER BY number").fetchall())


def case_of(
    connection: apsw.Connection,
    run_id: str,
    ledger: tuple[Entry, ...] = (),
    *,
    machine: Machine = loop,
    whole: bool = True,
) -> Case:
    """A run as a file holds it, with what is known of it from outside; whole, also with an exported copy."""
    number, seq, seal, *summary = one(
        connection, "SELECT number, seq, seal, state, reason, turns, tokens, cost FROM runs WHERE id = ?", run_id
    )
    rows = tuple(
        Row(*values)
        for values in every(
            connection, "SELECT seq, at, duration_ms, row, event, seal FROM records WHERE run = ? ORDER BY seq", number
        )
    )
    (epoch,) = one(connection, "SELECT epoch FROM runs WHERE number = ?", number)
    head = Head(seq, seal, Summary(*summary), epoch)
    return Case(run_id, rows, head, ledger, machine, exported=exported(run_id, head, rows) if whole else None)


def exported(run_id: str, head: Head, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The records in an exported copy, read as its documentation says, with none of the engine's own reading."""
    text = Export(run_id, head.seq, head.seal, tuple(map(astuple, rows)), "").text
    return tuple(_row(line) for line in text.splitlines()[1:])


def _row(line: bytes) -> Row:
    values, event = line[:-1].split(b',"event":', 1)
    said = json.loads(values + b"}")
    return Row(said["seq"], said["at"], said["duration_ms"], said["row"], event, bytes.fromhex(said["seal"]))


def every(connection: apsw.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a query, whose types are the schema's matter."""
    return connection.execute(query, values).fetchall()


def one(connection: apsw.Connection, query: str, *values: object) -> tuple[Any, ...]:
    """The one row of a query."""
    (row,) = every(connection, query, *values)
    return row
