"""What is wrong with the file of a `SQLiteStore`, beyond what loading a single run finds."""

from __future__ import annotations

import apsw

from turnstile.core.codec import Codec
from turnstile.core.errors import CodecError, UsageError
from turnstile.shell.stores.letters import refuse_other_letters

_AT_ONCE = 1000  # runs listed with one query: others read between two of them


def of_file(connection: apsw.Connection) -> list[str]:
    """What SQLite finds: pages and indexes that don't agree, and records or letters of no run."""
    found = [str(problem) for (problem,) in connection.execute("PRAGMA integrity_check").fetchall()]
    problems = [f"the file: {problem}" for problem in found if problem != "ok"]
    for table, whose in (("records", "records"), ("mailbox", "letters"), ("leases", "leases")):
        query = f"SELECT DISTINCT run FROM {table} WHERE run NOT IN (SELECT number FROM runs)"  # noqa: S608 - our own words
        strays = [str(number) for (number,) in connection.execute(query).fetchall()]
        if strays:
            problems.append(f"{whose} of no run: numbers {', '.join(strays[:10])}")
    return problems


def of_letters(connection: apsw.Connection, codec: Codec) -> list[str]:
    """Letters that nobody can read."""
    problems = []
    query = "SELECT m.number, r.id, m.event FROM mailbox m JOIN runs r ON r.number = m.run ORDER BY m.number"
    for number, run_id, event in connection.execute(query).fetchall():
        try:
            refuse_other_letters(codec.decode(event if isinstance(event, bytes) else b""))
        except (CodecError, UsageError) as error:
            problems.append(f"letter {number} of run {run_id!r}: {error}")
    return problems


def some_runs(connection: apsw.Connection, after: int) -> list[tuple[int, str]]:
    """Numbers and ids of runs, in the order in which they began."""
    query = "SELECT number, id FROM runs WHERE number > ? ORDER BY number LIMIT ?"
    found = connection.execute(query, (after, _AT_ONCE)).fetchall()
    return [(number, str(run_id)) for number, run_id in found if isinstance(number, int)]
