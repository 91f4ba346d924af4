"""The table of leases: who may write to which run, and when somebody else may take that over.

A lease is a row with the run's epoch, which rises by one whenever the lease is taken; that of a new run begins above
those of all deleted ones, so that no run of any id has the same twice. A writer is known by the epoch it was given:
when the row is gone, or has another, it writes nothing more.

A holder whose process is known to have ended holds nothing. One on the same boot that has not renewed its lease for the
lease's time hangs or is stopped, and holds nothing either. Of one elsewhere nothing is known but that its counter moves
or stands still, so a contender watches the counter on its own clock (`Watch`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import apsw

from turnstile.core.errors import RunIsLeased, SessionBusy, StoreDamaged, TurnstileError
from turnstile.ports import Lease
from turnstile.shell.stores.holder import Holder, boot_clock

_LOOK = 0.5  # seconds between two looks at a counter, so that who contends in vain is told soon
COLUMNS = "l.epoch, l.run, l.renewals, l.renewed, l.ttl, l.host, l.boot, l.space, l.pid, l.born"
"""What `read_row` reads of the table of leases, under the name ``l``."""
RIVALS = (
    f"SELECT {COLUMNS} FROM runs r CROSS JOIN leases l ON l.run = r.number "  # noqa: S608 - our own words
    "WHERE r.session = ? AND r.reason = '' AND r.id != ?"
)
"""The leases of a session's other runs that have not ended; the cross join has SQLite begin with these."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of leases.

    Attributes:
        epoch: How often it was taken.
        run: The run's.
        renewals: How often it was renewed.
        renewed: When it was renewed last, on the holder's `boot_clock`.
        ttl: How long it holds without being renewed, in seconds.
        holder: Who holds it.
    """

    epoch: int
    run: int
    renewals: int
    renewed: float
    ttl: float
    holder: Holder


class HolderUnknown(TurnstileError):
    """It takes time to see whether a holder is still there.

    Attributes:
        pause: When to look again, in seconds.
    """

    def __init__(self, ttl: float) -> None:
        self.pause = min(ttl / 10, _LOOK)
        super().__init__(f"look again in {self.pause} s")


class Watch:
    """What one contender has seen of holders elsewhere, for as long as it contends.

    Args:
        me: The contender.
        clock: The contender's own clock, in seconds.
        boot: The clock that all processes of one boot share.
    """

    def __init__(
        self, me: Holder, *, clock: Callable[[], float] = time.monotonic, boot: Callable[[], float] = boot_clock
    ) -> None:
        self.me = me
        self._clock = clock
        self._boot = boot
        self._first: dict[tuple[int, int], tuple[int, float]] = {}

    def is_held(self, row: Row) -> bool | None:
        """Whether a lease is held; ``None`` when that cannot be told yet."""
        if row.holder.shares_clock(self.me):
            return not row.holder.is_gone(self.me) and self._boot() - row.renewed < row.ttl
        renewals, since = self._first.setdefault((row.run, row.epoch), (row.renewals, self._clock()))
        if row.renewals != renewals:
            return True
        return False if self._clock() - since >= row.ttl else None


def read_row(values: tuple[object, ...], place: str) -> Row:
    """A lease as it is stored.

    Raises:
        StoreDamaged: It is nothing that a store wrote.
    """
    match values:
        case (
            int(epoch), int(run), int(renewals), float(renewed), float(ttl),
            str(host), str(boot), str(space), int(pid), str(born),
        ):  # fmt: skip
            return Row(epoch, run, renewals, renewed, ttl, Holder(host, boot, space, pid, born))
        case _:
            raise StoreDamaged(place, f"a lease is {values!r:.200}; restore the store from a copy")


class Leases:
    """The table of leases, as one process sees it and writes to it; inside a transaction of the caller's.

    Args:
        me: The process.
        ttl: How long its leases hold without being renewed, in seconds.
        place: Where the store is, for errors.
    """

    def __init__(self, me: Holder, ttl: float, place: str) -> None:
        self.me = me
        self._ttl = ttl
        self._place = place

    def take(self, connection: apsw.Connection, number: int) -> int:
        """Give a run's lease to this process, whoever had it; gives the epoch."""
        rise = "UPDATE runs SET epoch = epoch + 1 WHERE number = ? RETURNING epoch"
        [(epoch,)] = connection.execute(rise, (number,)).fetchall()
        assert isinstance(epoch, int)  # noqa: S101 - the table is strict
        me = self.me
        connection.execute(
            "INSERT OR REPLACE INTO leases (run, epoch, renewals, renewed, ttl, host, boot, space, pid, born) "
            "VALUES (?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
            (number, epoch, boot_clock(), self._ttl, me.host, me.boot, me.space, me.pid, me.born),
        )
        return epoch

    def give_back(self, connection: apsw.Connection, *leases: Lease) -> None:
        """Let others have leases that this process was given; it has no effect on what is another's by now."""
        connection.executemany(
            "DELETE FROM leases WHERE run = (SELECT number FROM runs WHERE id = ?) AND epoch = ?",
            [(lease.run_id, lease.epoch) for lease in leases],
        )

    def of_run(self, connection: apsw.Connection, number: int) -> Row | None:
        """A run's lease, whether or not its holder is still there."""
        found = connection.execute(f"SELECT {COLUMNS} FROM leases l WHERE l.run = ?", (number,)).fetchall()  # noqa: S608 - our own words
        return read_row(found[0], self._place) if found else None

    def refuse_held(self, connection: apsw.Connection, run_id: str, number: int, watch: Watch) -> None:
        """Refuse to touch a run that somebody drives.

        Raises:
            RunIsLeased: Somebody does.
            HolderUnknown: It takes time to see.
        """
        row = self.of_run(connection, number)
        if row is None:
            return
        held = watch.is_held(row)
        if held is None:
            raise HolderUnknown(row.ttl)
        if held:
            raise RunIsLeased(run_id, str(row.holder))

    def refuse_rivals(self, connection: apsw.Connection, run_id: str, session: str | None, watch: Watch) -> None:
        """Refuse to drive a run while another of its session is under way.

        Raises:
            SessionBusy: Another is.
            HolderUnknown: It takes time to see.
        """
        if session is None:
            return
        found = connection.execute(RIVALS, (session, run_id)).fetchall()
        rows = [read_row(values, self._place) for values in found]
        held = [watch.is_held(row) for row in rows]  # all are looked at, so that all are watched at once
        if any(held):
            raise SessionBusy(session)
        if None in held:
            raise HolderUnknown(min(row.ttl for row in rows))

    def whose(self, connection: apsw.Connection, number: int) -> str:
        """Who drives a run, for people; empty when nobody does, as far as that can be told at once."""
        row = self.of_run(connection, number)
        return shown(row, self.me)


def shown(row: Row | None, me: Holder) -> str:
    """A lease's holder for people; empty for none, and for one that is known to be gone."""
    return "" if row is None or Watch(me).is_held(row) is False else str(row.holder)
