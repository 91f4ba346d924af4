"""`export`, `read_export`: a run as JSON lines that anyone can read, keep and check, byte for byte as it was stored.

The first line is a header, and each further one a record::

    {"turnstile_export":1,"run_id":"3f9a0c1b2d4e","records":7,"seal":"…"}
    {"seq":1,"at":1764470400.5,"duration_ms":0.0,"row":"","seal":"…","event":{"v":1,"type":"RunStarted",…}}

``seal`` is the hash chain's, in hexadecimal (`turnstile.shell.stores.chain`). What stands after ``"event":`` and before
the line's last brace is the event exactly as it was stored, so the chain can be checked from the file alone. Where that
is no longer one line of JSON, it stands there as ``"event_base64"``; where a record is not even the row that it should
be, its line is ``{"damaged":"…"}``. Exports of several runs may follow each other in one file.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

from turnstile.core.codec import MAX_BYTES, Codec, codec
from turnstile.core.errors import (
    InvalidJSON,
    NoSuchRun,
    RecordDamaged,
    StoreForeign,
    StoreTooNew,
    StoreUnreachable,
)
from turnstile.core.events import Event, ResultsAppended
from turnstile.core.forms import DEPTH
from turnstile.core.strict_json import JsonValue, loads
from turnstile.ports import Record, Store
from turnstile.shell.stores.chain import Values, first_seal, seal, verified

VERSION = 1
_EVENT = b',"event":'  # its quotes would be escaped inside a JSON string, so its first place is the right one


class Stored(Protocol):
    """A run exactly as a store keeps it: its rows (seq, at, duration_ms, row, event, seal), how many, the last seal."""

    @property
    def records(self) -> tuple[Values, ...]:
        """The rows, oldest first."""

    @property
    def seq(self) -> int:
        """How many there should be."""

    @property
    def seal(self) -> bytes:
        """The seal of the last."""


@runtime_checkable
class KeepsBytes(Protocol):
    """A store that gives what it keeps as it is, damaged or not."""

    async def raw(self, run_id: str) -> Stored:
        """A run exactly as it is kept; raises `NoSuchRun`."""


@dataclass(frozen=True, slots=True)
class Export:
    """A run as it is stored, outside of its store.

    Attributes:
        run_id: The run.
        length: How many records it should have.
        seal: The seal of the last.
        rows: The records that are there: (seq, at, duration_ms, row, event, seal).
        place: Where they were read, for an error.
    """

    run_id: str
    length: int
    seal: bytes
    rows: tuple[Values, ...]
    place: str

    @property
    def text(self) -> bytes:
        """The run as JSON lines; the same bytes whenever it is exported."""
        head = {"turnstile_export": VERSION, "run_id": self.run_id, "records": self.length, "seal": self.seal.hex()}
        return b"".join(line + b"\n" for line in (_compact(head), *map(_line, self.rows)))

    @property
    def damage(self) -> RecordDamaged | None:
        """The first record that is not what was written, or is missing; ``None`` when all are there and sound."""
        try:
            self.records(_UNREAD)
        except RecordDamaged as error:
            return error
        return None

    def records(self, reads: Codec = codec) -> tuple[Record, ...]:
        """The records, once each is known to be what was written.

        Raises:
            RecordDamaged: The first one that isn't, or is missing.
            CodecError: The codec cannot read one.
        """
        return verified(self.run_id, self.rows, self.length, self.seal, codec=reads, place=self.place)


class _Unread(Codec):
    """Reads no event, for whom the chain alone matters: an extension's events need not be known."""

    def decode(self, record: bytes) -> Event:  # noqa: ARG002 - that it isn't looked at is the point
        """Any event."""
        return ResultsAppended()


_UNREAD = _Unread()


async def export(store: Store, run_id: str, writes: Codec = codec) -> Export:
    """A run as its store keeps it; look at `Export.damage` before you rely on it.

    Args:
        store: The store. Of one that keeps no bytes, such as `MemoryStore`, the records are written anew.
        run_id: The run.
        writes: Writes them then; a machine with events of its own has a codec of its own, `Codec.of(machine)`.

    Raises:
        NoSuchRun: The store has no such run.
        StoreError: The store cannot be read.
    """
    if isinstance(store, KeepsBytes):
        stored = await store.raw(run_id)
        return Export(run_id, stored.seq, stored.seal, stored.records, place_of(store))
    records = await store.load(run_id)
    if not records:
        raise NoSuchRun(place_of(store), run_id)
    rows, last = [], first_seal(run_id)
    for seq, record in enumerate(records, 1):
        event = writes.encode(record.event)
        last = seal(last, seq, record.at, record.duration_ms, event, row=record.row)
        rows.append((seq, record.at, record.duration_ms, record.row, event, last))
    return Export(run_id, len(rows), last, tuple(rows), place_of(store))


def place_of(store: Store) -> str:
    """Where a store is, for people."""
    return str(getattr(store, "path", type(store).__name__))


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _line(row: Values) -> bytes:
    match row:
        case (int(seq), float(at), float(duration_ms), str(taken), bytes(event), bytes(sealed)):
            head = {"seq": seq, "at": at, "duration_ms": duration_ms, "row": taken, "seal": sealed.hex()}
        case _:
            return _compact({"damaged": repr(row)})
    if _is_line(event):
        return _compact(head)[:-1] + _EVENT + event + b"}"
    return _compact({**head, "event_base64": b64encode(event).decode()})


def _is_line(event: bytes) -> bool:
    if b"\n" in event or b"\r" in event:
        return False
    try:
        loads(event, max_bytes=MAX_BYTES, max_depth=DEPTH)
    except InvalidJSON:
        return False
    return True


def read_export(path: str | PathLike[str]) -> Export:
    """The one run of an exported file.

    Raises:
        StoreForeign: It is no export, or one of several runs.
        StoreError: What `read_exports` raises.
    """
    found = read_exports(path)
    if len(found) != 1:
        names = ", ".join(each.run_id for each in found)
        raise StoreForeign(str(path), f"expected the export of one run, got those of {names}; use read_exports")
    return found[0]


def read_exports(path: str | PathLike[str]) -> tuple[Export, ...]:
    """The runs of an exported file; look at `Export.damage` before you rely on one.

    Raises:
        StoreUnreachable: It cannot be read.
        StoreForeign: It is no export.
        StoreTooNew: A newer Turnstile wrote it.
    """
    place = str(path)
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise StoreUnreachable(place, f"it cannot be read: {error.strerror}; give a file that you may read") from error
    return tuple(
        Export(run_id, length, sealed, tuple(map(_row, rows)), place)
        for (run_id, length, sealed), rows in _parted(iter(lines), place)
    )


def _parted(lines: Iterator[bytes], place: str) -> Iterator[tuple[tuple[str, int, bytes], list[bytes]]]:
    """Each header of a file with the lines that belong to it."""
    head = _head(next(lines), place)
    rows: list[bytes] = []
    for line in lines:
        if line.startswith(b'{"turnstile_export"'):
            yield head, rows
            head, rows = _head(line, place), []
        elif line:
            rows.append(line)
    yield head, rows


def _head(line: bytes, place: str) -> tuple[str, int, bytes]:
    match _object(line):
        case {"turnstile_export": int(version)} if version > VERSION:
            raise StoreTooNew(
                place, f"its format is {version}, and this Turnstile reads up to {VERSION}; upgrade turnstile-agent"
            )
        case {"turnstile_export": int(), "run_id": str(run_id), "records": int(length), "seal": str(sealed)}:
            if _is_utf8(run_id):
                return run_id, length, _bytes(sealed)
    raise StoreForeign(
        place, f"it is no export: expected a line with 'turnstile_export', got {line[:80]!r}; give an exported run"
    )


def _row(line: bytes) -> Values:
    """A record's row, if the line is one; any other is told by whoever verifies it."""
    head, found, event = line.partition(_EVENT)
    match _object(head + b"}" if found else line):
        case {
            "seq": int(seq),
            "at": float(at),
            "duration_ms": float(took),
            "row": str(row),
            "seal": str(sealed),
            **rest,
        } if _is_utf8(row):
            content = event[:-1] if found else _base64(rest.get("event_base64"))
            return seq, at, took, row, content, _bytes(sealed)
    return (line.decode("utf-8", "replace"),)


def _object(line: bytes) -> dict[str, JsonValue]:
    try:
        values = loads(line, max_bytes=2 * MAX_BYTES, max_depth=DEPTH)
    except InvalidJSON:
        return {}
    return values if isinstance(values, dict) else {}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return False
    return True


def _bytes(hexadecimal: str) -> bytes:
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        return b""


def _base64(text: JsonValue) -> bytes:
    try:
        return b64decode(str(text), validate=True)
    except ValueError:
        return b""
