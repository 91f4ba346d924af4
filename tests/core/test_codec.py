"""The codec: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.codec import MAX_BYTES, RECORDS, VERSION, Codec, codec
from turnstile.core.errors import CodecError, ConfigurationError
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    EffectBegun,
    Event,
    ModelFailed,
    ModelReplied,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall, ToolResult, ToolSpec
from turnstile.core.rows import before, row
from turnstile.core.run_state import RunState
from turnstile.core.states import await_model, failed
from turnstile.core.strict_json import MAX_DEPTH, MAX_DIGITS, JsonValue
from turnstile.core.values import Value, evolve, fields_of


@dataclass(frozen=True, slots=True)
class Reviewed(Event):
    """An extension's event."""

    codec_name: ClassVar[str] = "acme.reviewed"
    good: bool

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed(Event):
    """An extension's event that is made by names alone."""

    codec_name: ClassVar[str] = "acme.weighed"
    weight: int
    notes: JsonValue = None

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, slots=True)
class Tallied(Event):
    """An extension's event whose mappings are declared more narrowly than JSON is."""

    codec_name: ClassVar[str] = "acme.tallied"
    spans: Mapping[str, tuple[int, ...]]
    marks: tuple[Mapping[int, str], ...] = ()

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, slots=True)
class Scaled(Event):
    """An extension's event that is made with something besides its fields, which stands before one of them."""

    codec_name: ClassVar[str] = "acme.scaled"
    weight: int
    scale: InitVar[int] = 0
    more: int = 0

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, slots=True)
class ScaledNoted(Event):
    """The same with a field that C does not know, by which it is made here."""

    codec_name: ClassVar[str] = "acme.scaled_noted"
    weight: int
    scale: InitVar[int] = 0
    more: int = 0
    notes: JsonValue = None

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, init=False)
class Turned(Event):
    """An extension's event with a constructor of its own, that takes the fields in another order."""

    codec_name: ClassVar[str] = "acme.turned"
    weight: int
    more: int
    notes: JsonValue

    def __init__(self, more: int, weight: int, notes: JsonValue = None) -> None:
        for name, value in (("weight", weight), ("more", more), ("notes", notes)):
            object.__setattr__(self, name, value)

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True, slots=True)
class Counted(Event):
    """An extension's event with a field that its constructor does not take."""

    codec_name: ClassVar[str] = "acme.counted"
    weight: int
    times: int = field(init=False, default=1)


@dataclass(frozen=True, slots=True)
class Asked(Event):
    """An extension's event that is made with something besides its fields, which has no default."""

    codec_name: ClassVar[str] = "acme.asked"
    weight: int
    scale: InitVar[int]


class Valued(Event, Value, frozen=True, kw_only=True):
    """An extension's event of the engine's own kind, that is made by names alone."""

    codec_name: ClassVar[str] = "acme.valued"
    weight: int
    notes: JsonValue = None

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


RESULT = ToolResult("a", "add", "3", duration_ms=0.5)
FINISHED: dict[str, object] = {"v": 1, "type": "ToolsFinished", "aborted": None}


def refused(record: object) -> CodecError:
    """The error with which a record is refused."""
    with pytest.raises(CodecError) as caught:
        codec.decode(json.dumps(record).encode())
    return caught.value


@pytest.mark.parametrize("kind", RECORDS)
@given(data=st.data())
def test_every_event_survives_its_record(kind: type[Event], data: st.DataObject) -> None:
    """A resumed run is the run that was written, whatever its texts and numbers hold."""
    event = data.draw(st.from_type(kind))

    record = codec.encode(event)

    assert codec.decode(record) == event
    assert codec.encode(codec.decode(record)) == record


def test_a_record_is_plain_json_with_its_version_and_type_first() -> None:
    """Whoever opens the journal in twenty years reads it without us."""
    assert codec.encode(Cancelled("genug für heute")) == '{"v":1,"type":"Cancelled","why":"genug für heute"}'.encode()
    begun = EffectBegun("5eed", ((0, 1), (3, 7)))
    assert codec.encode(begun) == b'{"v":1,"type":"EffectBegun","request":"5eed","items":[[0,1],[3,7]]}'


def test_all_fields_of_a_record_are_written() -> None:
    """A default that changes in a later release must not change what an old record says."""
    record = json.loads(codec.encode(ModelFailed("timeout")))

    assert record.keys() - {"v", "type"} == {field.name for field in fields_of(ModelFailed)}


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udfff\ud800", "汉字 \udc80"])
def test_a_lone_surrogate_survives(text: str) -> None:
    """A tool that read a file name of broken bytes must not cost the run."""
    assert codec.decode(codec.encode(Cancelled(text))) == Cancelled(text)


def test_a_split_surrogate_pair_is_refused() -> None:
    """Read again it would be one character, and a replay would differ from its run."""
    with pytest.raises(CodecError, match="surrogate pair as two characters"):
        codec.encode(Cancelled("\ud83d\ude00"))


@pytest.mark.parametrize(
    ("event", "field", "problem"),
    [
        (Cancelled(7), "why", "expected a text; got 7"),  # type: ignore[arg-type]
        (ModelFailed("weather"), "kind", "expected one of 'authentication'"),  # type: ignore[arg-type]
        (ModelFailed("timeout", delay=float("nan")), "delay", "expected a finite number; got nan"),
        (ModelFailed("timeout", status=True), "status", "expected a whole number of at most 400 characters; got True"),
        (RunStarted("r", "p", can_trim=1), "can_trim", "expected true or false; got 1"),  # type: ignore[arg-type]
        (RunStarted("r", "p", models=["m"]), "models", "expected a sequence; got ['m']"),  # type: ignore[arg-type]
        (RunStarted("r", "p", fingerprints=(("a",),)), "fingerprints.0", "expected a sequence of 2"),  # type: ignore[arg-type]
        (RunStarted("r", "p", limits=None), "limits", "expected a Limits; got None"),  # type: ignore[arg-type]
        (RunStarted("r", "p", history=("hi",)), "history.0", "expected a record of kind 'user' or 'exchange'"),  # type: ignore[arg-type]
        (ModelReplied(Reply(), output=(1,)), "output", "expected a JSON value; got (1,)"),  # type: ignore[arg-type]
        (ModelReplied(Reply(), output={1: 2}), "output", "expected a text; got 1"),  # type: ignore[dict-item]
        (ModelReplied(Reply(), output=[float("inf")]), "output", "expected a finite number; got inf"),
        (ModelReplied(Reply(), output=10**MAX_DIGITS), "output", "expected a whole number of at most 400 characters"),
        (EffectBegun("", ((0, 10**MAX_DIGITS),)), "items.0.1", "expected a whole number of at most 400 characters"),
        (ModelFailed("timeout", items=-(10**999)), "items", "expected a whole number of at most 400 characters"),
        (RunStarted("r", "p", tools=(ToolSpec("a", "b", []),)), "tools.0.parameters", "expected a JSON object; got []"),  # type: ignore[arg-type]
        (RunStarted("r", "p", tools=(ToolSpec("a", "b", {"c": ()}),)), "tools.0.parameters", "expected a JSON value"),  # type: ignore[dict-item]
        (ApprovalDecided("a", "allow"), "decision", "expected one of 'rerun', 'result', 'unknown'; got 'allow'"),  # type: ignore[arg-type]
        (EffectBegun("", ((1,),)), "items.0", "expected a sequence of 2"),  # type: ignore[arg-type]
        (ToolsFinished((ToolResult("a", "b", b"c"),)), "results.0.content", "expected a text; got b'c'"),  # type: ignore[arg-type]
    ],
)
def test_a_value_of_another_type_is_refused_on_writing(event: Event, field: str, problem: str) -> None:
    """What could not be read again must not be written, and the error says which field it is."""
    with pytest.raises(CodecError) as caught:
        codec.encode(event)

    assert (caught.value.event, caught.value.field) == (type(event).__name__, field)
    assert caught.value.problem.startswith(problem)


def nested(levels: int) -> JsonValue:
    """A list in a list, so many levels deep."""
    value: JsonValue = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_an_output_as_deep_as_the_decoder_reads_is_written_and_no_deeper() -> None:
    """The two limits must agree, or a run could be written that cannot be resumed."""
    deepest = ModelReplied(Reply(), output=nested(MAX_DEPTH))
    assert codec.decode(codec.encode(deepest)) == deepest

    with pytest.raises(CodecError, match="nested deeper than 64 levels"):
        codec.encode(ModelReplied(Reply(), output=nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize("number", [10**MAX_DIGITS - 1, -(10 ** (MAX_DIGITS - 1)) + 1])
def test_the_biggest_numbers_survive(number: int) -> None:
    """The limit of digits on writing is that on reading, sign included."""
    for event in (ModelReplied(Reply(), output=number), EffectBegun("", ((0, number),)), EffectBegun(f"a{number}")):
        assert codec.decode(codec.encode(event)) == event


def test_a_record_too_long_to_be_read_is_not_written() -> None:
    """The cap on reading would make the run unreadable."""
    with pytest.raises(CodecError, match=r"too long: \d+ bytes, at most 67108864"):
        codec.encode(Cancelled("a" * MAX_BYTES))


def test_what_is_too_long_is_not_read() -> None:
    """A record from a damaged file must not fill the memory, however well it begins."""
    with pytest.raises(CodecError, match=r"too long: \d+ bytes, at most 67108864"):
        codec.decode(b'{"v":1,"type":"Cancelled","why":"%b"}' % (b"a" * MAX_BYTES))


@pytest.mark.parametrize(
    ("record", "event", "field", "problem"),
    [
        ([], "", "", "expected an object; got b'[]'"),
        ({}, "", "type", "expected an event's name; got None"),
        ({"v": 1, "type": 7}, "", "type", "expected an event's name; got 7"),
        ({"type": "EffectBegun"}, "EffectBegun", "v", "expected a version from 1 to 1; got None"),
        ({"v": True, "type": "EffectBegun"}, "EffectBegun", "v", "expected a version from 1 to 1; got True"),
        ({"v": 0, "type": "EffectBegun"}, "EffectBegun", "v", "expected a version from 1 to 1; got 0"),
        ({"v": 2, "type": "Later"}, "Later", "v", "written by a newer Turnstile: version 2, this one reads 1"),
        ({"v": 1, "type": "os.system"}, "os.system", "type", "an unknown event; the codec knows RunStarted, "),
        ({"v": 1, "type": "MessageInjected"}, "MessageInjected", "", "expected the fields text; missing: ['text'], un"),
        ({"v": 1, "type": "Cancelled", "why": "", "x": 1}, "Cancelled", "", "expected the fields why; missing: [], un"),
        ({"v": 1, "type": "Cancelled", "why": None}, "Cancelled", "why", "expected a text; got None"),
        (FINISHED | {"results": {}}, "ToolsFinished", "results", "expected a sequence; got {}"),
        (FINISHED | {"results": [1]}, "ToolsFinished", "results.0", "expected an object; got 1"),
    ],
)
def test_a_record_that_is_none_is_refused(record: object, event: str, field: str, problem: str) -> None:
    """A journal that was changed, or that a newer release wrote, must be told from a bug by its error."""
    error = refused(record)

    assert (error.event, error.field) == (event, field)
    assert error.problem.startswith(problem)
    assert str(error).startswith(f"record {event}".strip())


@pytest.mark.parametrize("text", [b"", b"{", b'{"v":1,"v":1}', b"\xff", b'{"v":NaN}', b"[" * 200])
def test_a_text_that_is_no_strict_json_is_refused(text: bytes) -> None:
    """Bytes from a disk are read by the same strict decoder as bytes from a model."""
    with pytest.raises(CodecError):
        codec.decode(text)


@pytest.mark.parametrize(
    ("event", "part", "instead", "problem"),
    [
        (CallFinished(RESULT), b'"content":"3"', b'"content":"3","x":1', "missing: [], unknown: ['x']"),
        (CallFinished(RESULT), b'"content":"3",', b"", "missing: ['content'], unknown: []"),
        (CallFinished(RESULT), b'"content":"3"', b'"content":"2","content":"3"', "'content' stands twice"),
        (CallFinished(RESULT), b'"content":"3"', b'"content":3', "expected a text; got 3"),
        (CallFinished(RESULT), b'"ok"', b'"fine"', "expected one of 'ok'"),
        (CallFinished(RESULT), b'"3"', b'"\xff"', "not UTF-8"),
        (CallFinished(RESULT), b"0.5", b"1e999", "too large"),
        (ModelFailed("server", status=500), b"500", b"500.0", "expected a whole number"),
        (ModelFailed("server", status=500), b"500", b"5" * 401, "an integer of 401 digits, at most 400 are read"),
        (ModelReplied(Reply()), b'"output":null', b'"output":{"a":1,"a":2}', "'a' stands twice"),
        (ModelReplied(Reply()), b'"output":null', b'"output":' + b"[" * 90 + b"]" * 90, "nested deeper than 80 levels"),
        (ModelReplied(Reply()), b'"verdicts":[]', b'"verdicts":[{}]', "missing: ['call_id', 'digest']"),
    ],
)
def test_a_record_that_looks_as_if_written_here_is_judged_as_strictly(
    event: Event, part: bytes, instead: bytes, problem: str
) -> None:
    """Reading fast what was written here must let nothing pass that the strict decoder refuses."""
    record = codec.encode(event)
    assert record.count(part) == 1

    with pytest.raises(CodecError) as caught:
        codec.decode(record.replace(part, instead))

    assert problem in caught.value.problem


@pytest.mark.parametrize(
    "event",
    [
        ModelFailed("server", delay=5),
        ModelFailed("server", delay=2**53 + 1),
        CallFinished(evolve(RESULT, duration_ms=1e17)),
        ModelReplied(Reply(), output=[2**64, 2**63, 0.1, -0.0, 1e300]),
    ],
)
def test_a_number_is_read_as_exactly_the_one_that_was_written(event: Event) -> None:
    """A whole number where a fraction may stand, and one of many digits, come back as what they were."""
    assert codec.encode(codec.decode(codec.encode(event))) == codec.encode(event)
    assert repr(codec.decode(codec.encode(event))) == repr(event)


def test_a_record_whose_parts_do_not_fit_each_other_is_refused() -> None:
    """A reply and its verdicts belong together, and a history without pairs must not come in by the back door."""
    record = json.loads(codec.encode(ModelReplied(Reply())))
    record["reply"]["calls"] = [{"id": "a", "name": "b", "arguments": "{}"}]

    assert "one verdict for each call" in refused(record).problem


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("limits.turns", 0, "Limits.turns is a whole number of at least 1; got 0"),
        ("limits.on_exhausted", "stop", "expected one of 'fail', 'wrap_up'; got 'stop'"),
        ("history", [{"kind": "system"}], "expected a record of kind 'user' or 'exchange'"),
        ("history", ["hi"], "expected a record of kind 'user' or 'exchange'; got 'hi'"),
        ("history", [{"kind": ["user"]}], "expected a record of kind 'user' or 'exchange'"),
        ("prices", [[1, 2]], "expected an object; got [1, 2]"),
    ],
)
def test_a_wrong_part_of_the_start_is_named(path: str, value: JsonValue, problem: str) -> None:
    """A start holds all that a run was given, so its error has to say which part."""
    record = json.loads(codec.encode(RunStarted("r", "p")))
    *outer, last = path.split(".")
    part = record
    for name in outer:
        part = part[name]
    part[last] = value

    error = refused(record)

    assert error.problem.startswith(problem)
    assert error.field.startswith(outer[0] if outer else last)


def test_an_unknown_event_is_not_written() -> None:
    """An extension's event without a name could not be read again."""
    with pytest.raises(CodecError, match="record Reviewed: an unknown event"):
        codec.encode(Reviewed(good=True))


def test_an_extension_adds_its_events_to_a_codec_of_its_own() -> None:
    """There is no registry that a second extension could spoil."""
    longer = codec.with_events(Reviewed)

    record = longer.encode(Reviewed(good=True))

    assert record == b'{"v":1,"type":"acme.reviewed","good":true}'
    assert longer.decode(record) == Reviewed(good=True)


@pytest.mark.parametrize("event", [Weighed(weight=3, notes=[1]), Valued(weight=3, notes=[1])])
@pytest.mark.parametrize("spaces", [b"", b" "])
def test_an_event_that_is_made_by_names_alone_comes_back(spaces: bytes, event: Event) -> None:
    """What was written must be readable, however its class is declared, and however the text is spaced."""
    longer = codec.with_events(type(event))
    assert longer.decode(longer.encode(event) + spaces) == event
    assert longer.decode(longer.encode(EffectBegun())) == EffectBegun()
    assert "acme.reviewed" in str(refused({"v": 1, "type": "acme.reviewed", "good": True}))


@pytest.mark.parametrize("event", [Scaled(3, 7, 4), ScaledNoted(3, 7, 4, [1]), Turned(4, 3, [1])])
@pytest.mark.parametrize("spaces", [b"", b" "])
def test_an_event_is_made_of_the_right_fields_whatever_its_constructor_takes(spaces: bytes, event: Event) -> None:
    """A value at another field's place would go on unseen, and a run would be resumed with it."""
    longer = codec.with_events(type(event))
    assert longer.decode(longer.encode(event) + spaces) == event


@pytest.mark.parametrize("spaces", [b"", b" "])
def test_a_mapping_comes_back_as_the_plain_json_that_was_written(spaces: bytes) -> None:
    """What was read must be writable again, and the same, however the text is spaced."""
    longer = codec.with_events(Tallied)
    record = b'{"v":1,"type":"acme.tallied","spans":{"a":[1,2]},"marks":[{"7":"x"}]}'
    event = longer.decode(record + spaces)
    assert isinstance(event, Tallied)
    assert repr((event.spans, event.marks)) == "({'a': [1, 2]}, ({'7': 'x'},))"
    assert longer.encode(event) == record


def test_a_machine_says_which_events_its_codec_needs() -> None:
    """Whoever stores an extended machine's runs has nothing else to register."""
    machine = loop.extend(rows=[before("cancelled", row("reviewed", await_model, Reviewed, [], failed))])

    assert Codec.of(machine).decode(b'{"v":1,"type":"acme.reviewed","good":false}') == Reviewed(good=False)
    assert Codec.of(loop).encode(Cancelled()) == codec.encode(Cancelled())


def event_class(name: str, hint: object, codec_name: str = "acme.event") -> type[Event]:
    """An event with one field of that name and type."""
    kind = type("Sampled", (Event,), {"__annotations__": {name: hint}, "codec_name": codec_name})
    return dataclass(frozen=True)(kind)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (event_class("good", bool, ""), "codec_name is a name of its own"),
        (event_class("good", bool, "Cancelled"), "none of RunStarted, .*; got 'Cancelled'"),
        (event_class("type", str), "Sampled.type: a record uses this name itself"),
        (event_class("v", str), "Sampled.v: a record uses this name itself"),
        (event_class("parts", list[str]), r"Sampled.parts: list\[str\] has no form in a record; use str"),
        (event_class("part", str | int), "Sampled.part: .* needs a field `kind"),
        (event_class("part", ToolCall | ToolResult), "Sampled.part: .*ToolCall.* needs a field `kind"),
        (Counted, "Counted cannot be made of its fields alone, which are weight, times: .*'times'"),
        (Asked, "Asked cannot be made of its fields alone, which are weight: .*'scale'"),
        (type("Plain", (Event,), {"codec_name": "acme.plain"}), "the event Plain is no dataclass"),
    ],
)
def test_an_event_that_cannot_be_stored_is_refused_at_once(kind: type[Event], problem: str) -> None:
    """A mistake in a declaration must show when the agent is made, not when the run has been paid for."""
    with pytest.raises(ConfigurationError, match=problem):
        codec.with_events(kind)


def test_an_event_name_is_taken_once() -> None:
    """Two events of one name could not be told apart."""
    with pytest.raises(ConfigurationError, match=r"Reviewed\.codec_name is a name of its own"):
        codec.with_events(Reviewed).with_events(Reviewed)


def test_the_version_is_the_first() -> None:
    """A new version must come with a way to read the old one."""
    assert VERSION == 1


@pytest.mark.parametrize(
    ("event", "newer"),
    [
        (
            RunStarted("run", "hi"),
            {"attachments", "tools", "settings", "output_schema", "origin", "forked_from", "previous"},
        ),
        (EffectBegun(), {"request", "items"}),
        (CallStarted("a", "add", "digest"), {"fingerprint", "key", "approval"}),
    ],
)
def test_a_record_older_than_a_field_is_read(event: Event, newer: set[str]) -> None:
    """Fields are added with defaults, and journals that lack them stay readable."""
    record = json.loads(codec.encode(event))

    assert newer <= record.keys()
    assert codec.decode(json.dumps({key: record[key] for key in record.keys() - newer}).encode()) == event


def test_a_verdict_older_than_who_decides_is_read() -> None:
    """Tools of older releases told the model."""
    event = ModelReplied(Reply(calls=(ToolCall("a", "add", "{}"),)), (Verdict("a", "digest"),))
    record = json.loads(codec.encode(event))
    del record["verdicts"][0]["on_in_doubt"]

    assert codec.decode(json.dumps(record).encode()) == event
