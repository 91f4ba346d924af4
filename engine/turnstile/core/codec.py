"""The codec: events as versioned JSON records, by their declared types and nothing else.

A record is ``{"v": 1, "type": "ModelReplied", …}`` with all the fields that the event's class declares; only one
that has a default may be missing when it is read, since the record may be older than the field. What is written can be
read: a value that is not of its declared type is refused on writing, as it would be on reading. There is no pickle, no
constructor key and no encoder for other types to fall back on, so a record can make nothing but an event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import astuple

from turnstile.core.errors import CodecError, ConfigurationError, InvalidJSON
from turnstile.core.events import EVENTS, RECEIPTS, Event, RunStarted
from turnstile.core.expecting import expect_subclass
from turnstile.core.forms import DEPTH, Misfit, form_of, record_form
from turnstile.core.machine import Machine
from turnstile.core.strict_json import MAX_DIGITS, JsonValue, loads
from turnstile.core.values import fields_of, is_record

VERSION = 1
MAX_BYTES = 64 * 1024 * 1024  # above a record that holds a history of a million tokens, with every character escaped
RECORDS: tuple[type[Event], ...] = (RunStarted, *RECEIPTS, *EVENTS)
"""All events that the engine itself writes, each under its class's name."""

_HEAD = b'{"v":1,"type":"%s",'
"""How a record of an event that has fields begins, when it was written here."""
_NAME = _HEAD.index(b"%")
_OWN: dict[type[Event], bytes] = {kind: _HEAD % kind.__name__.encode() for kind in RECORDS}
"""The heads of the engine's own records; an extension's events may compare as equal what is not the same."""
_BARE = {kind: _OWN[kind][:-1] + b"}" for kind in RECORDS if not fields_of(kind)}
"""The records of its events that have no fields."""

_ENCODERS = [
    json.JSONEncoder(ensure_ascii=ascii_only, allow_nan=False, check_circular=False, separators=(",", ":"))
    for ascii_only in (False, True)
]
_NESTED = (list, dict)
_HALF = MAX_DIGITS // 2
_TWO_DIGITS = re.compile(rb"[0-9](?=[0-9])")
_SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Codec:
    """Writes and reads events; immutable, so that one codec may serve all runs.

    Args:
        events: An extension's events; each class has a ``codec_name`` of its own.

    Raises:
        ConfigurationError: An event has no name, a name that is taken, or a field whose type has no form in JSON.
    """

    def __init__(self, events: Iterable[type[Event]] = ()) -> None:
        self._extra = tuple(events)
        self._kinds: dict[str, type[Event]] = {kind.__name__: kind for kind in RECORDS}
        for kind in self._extra:
            _check(kind, self._kinds)
            self._kinds[kind.codec_name] = kind
        self._names = {kind: name for name, kind in self._kinds.items()}
        self._forms = {kind: record_form(cast("type", kind)) for kind in self._names}
        # A third of all records say nothing but their type; each is read as the one value that it stands for.
        plain = [kind() for kind in RECORDS if not any(field.required for field in fields_of(kind))]
        self._plain = {self.encode(event): event for event in plain}
        self._heads = {_HEAD % name.encode(): cast("type", kind) for kind, name in self._names.items()}

    @classmethod
    def of(cls, machine: Machine) -> Codec:
        """A codec for all events that a machine takes."""
        taken = dict.fromkeys(event for row in machine.rows for event in row.events)
        return cls(event for event in taken if event not in RECORDS)

    def with_events(self, *events: type[Event]) -> Codec:
        """A codec that knows these events too; this one stays as it is."""
        return Codec((*self._extra, *events))

    def encode(self, event: Event) -> bytes:
        """The event as a record.

        Raises:
            CodecError: The codec doesn't know the event, or a field holds what its declared type does not allow.
        """
        bare = _BARE.get(type(event))
        if bare is not None:
            return bare
        name = self._names.get(type(event))
        if name is None:
            raise CodecError(type(event).__name__, "", f"an unknown event; the codec knows {', '.join(self._kinds)}")
        head = _OWN.get(type(event))
        written = head and _direct(cast("type", type(event))).write(event, head)
        if written and len(written) <= MAX_BYTES:
            return written
        try:
            values = self._forms[type(event)].write(event)
        except Misfit as misfit:
            raise CodecError(name, ".".join(misfit.path), str(misfit)) from None
        return _text(name, {"v": VERSION, "type": name, **cast("dict[str, JsonValue]", values)})

    def decode(self, record: bytes) -> Event:
        """The event that a record stands for.

        Raises:
            CodecError: It is no record, of a newer version or of an unknown type, or a field without a default is
                missing, or a field is unknown or of another type than it is declared.
        """
        event = self._plain.get(record)
        if event is None and len(record) <= MAX_BYTES:
            head = record[: record.find(b'"', _NAME) + 2]
            kind = self._heads.get(head)
            event = None if kind is None else _direct(kind).read(record, head)
        if event is not None:
            return event
        name, values = self._open(record)
        kind = self._kinds.get(name)
        if kind is None:
            raise CodecError(name, "type", f"an unknown event; the codec knows {', '.join(self._kinds)}")
        try:
            return cast("Event", self._forms[kind].read(values))
        except Misfit as misfit:
            raise CodecError(name, ".".join(misfit.path), str(misfit)) from None

    def _open(self, record: bytes) -> tuple[str, dict[str, JsonValue]]:
        try:
            values = loads(record, max_bytes=MAX_BYTES, max_depth=DEPTH)
        except InvalidJSON as error:
            raise CodecError("", "", str(error)) from None
        if not isinstance(values, dict):
            raise CodecError("", "", f"expected an object; got {record[:80]!r}")
        version, name = values.pop("v", None), values.pop("type", None)
        if not isinstance(name, str):
            raise CodecError("", "type", f"expected an event's name; got {name!r}")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise CodecError(name, "v", f"expected a version from 1 to {VERSION}; got {version!r}")
        if version > VERSION:
            raise CodecError(name, "v", f"written by a newer Turnstile: version {version}, this one reads {VERSION}")
        return name, values


class _Direct:
    """Writes and reads the events of a type in C: as its form would, or not at all.

    What it finds wrong is worded by the form, or by the strict decoder, with the field's name.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._names, hints = [field.name for field in fields_of(kind)], get_type_hints(kind)
        self._is_made_by_name = any(field.by_name for field in fields_of(kind))
        known = {name for name in self._names if _is_known(hints[name])}
        if len(known) == len(self._names) and not _is_known(kind):  # a dataclass with an `InitVar`
            known = set()
        self._rest = [(place, form_of(hints[name])) for place, name in enumerate(self._names) if name not in known]
        shape = kind
        if self._rest:
            parts = [(name, hints[name] if name in known else object) for name in self._names]
            shape = msgspec.defstruct(kind.__name__, parts)
        decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(shape)
        self._shape, self._decode, self._encode = shape, decoder.decode, msgspec.json.encode
        problems = (TypeError, ValueError, OverflowError, RecursionError, ConfigurationError, Misfit)
        self._failures = (msgspec.MsgspecError, *problems)

    def write(self, event: Event, head: bytes) -> bytes | None:
        """The event's record, which begins with that head."""
        given: object = event
        try:
            if self._rest:
                values = [getattr(event, name) for name in self._names]
                for place, form in self._rest:
                    values[place] = form.write(values[place])
                given = self._shape(*values)
            written = self._encode(given)
            # What is read again as the same values was of the declared types, and nothing of it was left out.
            return head + written[1:] if self._decode(written) == given and not _is_long_in_digits(written) else None
        except self._failures:
            return None

    def read(self, record: bytes, head: bytes) -> Event | None:
        """The event of a record that begins with that head, if it is written as the same bytes.

        What comes back as the same bytes holds no unknown name and none twice, no number that was rounded, and nothing
        else for which the strict decoder, which takes many times as long, would refuse it.
        """
        try:
            found = self._decode(record)
            if head + self._encode(found)[1:] != record or _is_long_in_digits(record):
                return None
            return self._made(found, record) if self._rest else found  # type: ignore[return-value] # the decoder's type
        except self._failures:
            return None

    def _made(self, found: object, record: bytes) -> Event | None:
        values = [*astuple(found)]  # type: ignore[arg-type] # an event of the shape
        for place, form in self._rest:
            value = values[place]
            if type(value) in _NESTED and record.count(b"[") + record.count(b"{") > DEPTH:
                return None  # of the rest, C knows how deep it is: as deep as its type
            values[place] = form.read(value)
        named = dict(zip(self._names, values, strict=True)) if self._is_made_by_name else {}
        made: Event = self._kind(**named) if named else self._kind(*values)
        return made


_direct = cache(_Direct)


def _is_long_in_digits(record: bytes) -> bool:
    """Whether a record may hold a number that is too long, which C takes; looked for at a few places of each alone."""
    if len(record) < MAX_DIGITS or not _TWO_DIGITS.search(record[::_HALF]):
        return False
    places = [found.start() * _HALF for found in _TWO_DIGITS.finditer(record[::_HALF])]
    return any(record[place : place + _HALF].isdigit() for place in places)


def _is_known(hint: object) -> bool:
    """Whether msgspec knows a type: neither values that refer to their own type, nor unions of our own records."""
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return False
    return not _holds_mapping(hint)


def _holds_mapping(hint: object) -> bool:
    """Whether a type holds a mapping: a form gives any as plain JSON, and msgspec its keys and parts as declared."""
    parts = get_type_hints(hint).values() if is_record(hint) else get_args(hint)
    return get_origin(hint) is Mapping or any(map(_holds_mapping, parts))


def _check(kind: type[Event], known: Collection[str]) -> None:
    expect_subclass("an event of an extension", kind, Event)
    name = kind.codec_name
    if not name or name in known:
        msg = f"{kind.__name__}.codec_name is a name of its own, none of {', '.join(known)}; got {name!r}"
        raise ConfigurationError(msg)
    if not is_record(kind):
        msg = f"the event {kind.__name__} is no dataclass; declare it with @dataclass(frozen=True, slots=True)"
        raise ConfigurationError(msg)
    for field in fields_of(kind):
        if field.name in {"v", "type"}:
            msg = f"{kind.__name__}.{field.name}: a record uses this name itself; choose another"
            raise ConfigurationError(msg)


def _text(name: str, record: JsonValue) -> bytes:
    """The record as UTF-8; escaped when it holds a lone surrogate, which UTF-8 cannot hold and JSON's escapes can."""
    import orjson  # loaded when first needed: importing turnstile stays light

    try:
        written = orjson.dumps(record)
    except TypeError:  # a lone surrogate, a number of more than 64 bits, or more levels than it descends
        written = _in_full(name, record)
    if len(written) > MAX_BYTES:
        raise CodecError(name, "", f"too long: {len(written)} bytes, at most {MAX_BYTES} can be read again")
    return written


def _in_full(name: str, record: JsonValue) -> bytes:
    plain, escaping = _ENCODERS
    text = plain.encode(record)
    try:
        return text.encode()
    except UnicodeEncodeError:
        if _SPLIT_PAIR.search(text):
            problem = "a text holds a surrogate pair as two characters, which JSON reads as one; join or replace them"
            raise CodecError(name, "", problem) from None
        return escaping.encode(record).encode()


codec = Codec()
"""The codec of every machine that takes no events of its own."""
