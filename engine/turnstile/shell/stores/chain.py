"""The hash chain of a journal: each record is sealed with a SHA-256 that covers the seal of the one before.

Who has a run's id and its records can check them without the store that kept them::

    seal 0 = SHA-256(run id as UTF-8)
    seal n = SHA-256(seal n-1 ‖ n as int64 ‖ at as float64 ‖ duration_ms as float64 ‖ row ‖ the event's JSON)

with all numbers big-endian, and the row's name as UTF-8 with a zero byte after it. A record without a row has nothing
in that place, as all records had before rows were kept, so the seals of those stay valid.

So a record that is changed, left out, repeated or put into another run breaks the chain where that happened. It finds
what a disk or a copy did; someone who may write the store can seal anew what they changed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import TypeGuard

from turnstile.core.codec import Codec
from turnstile.core.errors import RecordDamaged
from turnstile.ports import Record

_NUMBERS = struct.Struct(">qdd")


def first_seal(run_id: str) -> bytes:
    """What the first record of a run is sealed onto."""
    return hashlib.sha256(run_id.encode()).digest()


def seal(previous: bytes, seq: int, at: float, duration_ms: float, event: bytes, *, row: str = "") -> bytes:
    """The seal of a record.

    Args:
        previous: The seal of the record before it.
        seq: Its number in the run, from 1.
        at: When it happened, in seconds since the epoch.
        duration_ms: How long the effect took that brought it.
        event: Its event, as the codec wrote it.
        row: Name of the row that took it; empty for none.
    """
    taken = row.encode() + b"\0" if row else b""
    return hashlib.sha256(previous + _NUMBERS.pack(seq, at, duration_ms) + taken + event).digest()


Values = tuple[object, ...]
"""A record as a store or a file has it: (seq, at, duration_ms, row, event, seal)."""

_TYPES = (int, float, float, str, bytes, bytes)


def _is_record(values: Values) -> TypeGuard[tuple[int, float, float, str, bytes, bytes]]:
    """Whether values are of the types that a record has; patterns of a `match` would take twenty times as long."""
    return (*map(type, values),) == _TYPES


def verified(
    run_id: str, rows: Iterable[Values], last: int, last_seal: bytes, *, codec: Codec, place: str
) -> tuple[Record, ...]:
    """The records that a run's rows hold, once each is known to be what was written.

    Args:
        run_id: The run.
        rows: Its records as they are stored, oldest first.
        last: How many there should be.
        last_seal: The seal of the last.
        codec: Reads their events.
        place: Where they come from, for an error.

    Raises:
        CodecError: A record is what was written, and the codec cannot read it.
        RecordDamaged: The first one that is not what was written, or is missing.
    """
    records: list[Record] = []
    previous = first_seal(run_id)
    for number, values in enumerate(rows, 1):
        if not _is_record(values) or values[0] != number:
            problem = f"expected the row of record {number}, got {values!r:.200}"
            raise RecordDamaged(place, run_id, number, problem)
        seq, at, duration_ms, row, event, sealed = values
        if sealed != seal(previous, seq, at, duration_ms, event, row=row):
            raise RecordDamaged(place, run_id, number, "its SHA-256 does not fit what it says")
        records.append(Record(codec.decode(event), at, duration_ms, row))
        previous = sealed
    if len(records) != last:
        raise RecordDamaged(place, run_id, min(len(records), last) + 1, f"expected {last} records, got {len(records)}")
    if previous != last_seal:
        raise RecordDamaged(place, run_id, last, "its SHA-256 is not the one that the run's summary holds")
    return tuple(records)
