"""The tables of a `SQLiteStore`, and how an older file comes to have them.

A file knows its version by the rows of ``turnstile_schema``: one for each migration that it went through. A new
version is one more script at the end of `MIGRATIONS`; the scripts before it never change, so that a file of any age
takes the same steps.

``runs`` has a row for each run, with how it stands, so that a list of runs reads no journal. Of runs that an earlier
version left, which did not keep that, state and reason are ``unknown``: they count as ended until somebody goes on with
them, which says anew how they stand.

``records`` is a plain table in the order of
arrival, so that a commit for many runs writes few pages at its end; the index on (run, seq) finds those of one run.
"""

from __future__ import annotations

import apsw

from turnstile.core.errors import StoreDamaged, StoreForeign, StoreTooNew

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,  -- in the order in which the runs began
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        session TEXT,
        started REAL NOT NULL,       -- seconds since the epoch, as all times
        seq INTEGER NOT NULL,        -- number of the newest record
        at REAL NOT NULL,            -- its time
        seal BLOB NOT NULL           -- its seal, so that records missing at the end are noticed
    ) STRICT;
    CREATE INDEX runs_of_session ON runs (session, number) WHERE session IS NOT NULL;
    CREATE TABLE records (
        run INTEGER NOT NULL REFERENCES runs (number),
        seq INTEGER NOT NULL,        -- from 1
        at REAL NOT NULL,
        duration_ms REAL NOT NULL,
        event BLOB NOT NULL,         -- JSON, as the codec wrote it
        seal BLOB NOT NULL,
        UNIQUE (run, seq)
    ) STRICT;
    """,
    """
    ALTER TABLE records ADD COLUMN row TEXT NOT NULL DEFAULT '';  -- name of the row that took the event
    ALTER TABLE runs ADD COLUMN prompt TEXT NOT NULL DEFAULT '';  -- its beginning, for people
    ALTER TABLE runs ADD COLUMN state TEXT NOT NULL DEFAULT 'unknown';
    ALTER TABLE runs ADD COLUMN reason TEXT NOT NULL DEFAULT 'unknown';  -- empty while the run has not ended
    ALTER TABLE runs ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN cost REAL NOT NULL DEFAULT 0.0;
    ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;  -- how often its lease was taken
    CREATE TABLE deleted (epoch INTEGER NOT NULL) STRICT;  -- the highest of all runs that were deleted
    INSERT INTO deleted VALUES (0);
    CREATE INDEX live_runs ON runs (reason) WHERE reason = '';
    CREATE INDEX live_runs_of_session ON runs (session) WHERE reason = '' AND session IS NOT NULL;
    CREATE TABLE leases (
        run INTEGER PRIMARY KEY REFERENCES runs (number),
        epoch INTEGER NOT NULL,      -- the run's
        renewals INTEGER NOT NULL,
        renewed REAL NOT NULL,       -- on the holder's boot clock
        ttl REAL NOT NULL,
        host TEXT NOT NULL,
        boot TEXT NOT NULL,
        space TEXT NOT NULL,
        pid INTEGER NOT NULL,
        born TEXT NOT NULL
    ) STRICT;
    CREATE TABLE mailbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run INTEGER NOT NULL REFERENCES runs (number),
        event BLOB NOT NULL          -- JSON, as the codec wrote it
    ) STRICT;
    CREATE INDEX mail_of_run ON mailbox (run, number);
    """,
)
_VERSIONS = (
    "CREATE TABLE turnstile_schema (version INTEGER PRIMARY KEY, since TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT;"
)


def version_of(connection: apsw.Connection, place: str) -> int:
    """The schema version of a file: 0 for an empty one.

    Raises:
        StoreForeign: It holds another program's tables.
        StoreTooNew: A newer Turnstile made it.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
    if not tables:
        return 0
    if "turnstile_schema" not in tables:
        found = ", ".join(sorted(map(repr, tables)))
        raise StoreForeign(
            place,
            f"it is another program's: expected the table 'turnstile_schema', got {found}; choose another file",
        )
    version = connection.execute("SELECT max(version) FROM turnstile_schema").fetchall()[0][0]
    if not isinstance(version, int):
        raise StoreDamaged(place, f"the version of its schema is {version!r}; restore the store from a copy")
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            place,
            f"it has version {version} of the schema, and this Turnstile reads versions up to {len(MIGRATIONS)}; "
            "upgrade turnstile-agent, or choose another file",
        )
    return version


def migrate(connection: apsw.Connection, place: str) -> None:
    """Bring a file to the newest schema, all in one transaction, whoever else does the same at this moment."""
    connection.execute("BEGIN IMMEDIATE")
    version = version_of(connection, place)
    if version == 0:
        connection.execute(_VERSIONS)
    for number, script in enumerate(MIGRATIONS[version:], version + 1):
        connection.execute(script)
        connection.execute("INSERT INTO turnstile_schema (version) VALUES (?)", (number,))
    connection.execute("COMMIT")
