"""The strict decoder: what two readers could read differently is refused, and equal values have equal digests."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from turnstile.core.errors import InvalidJSON, TurnstileError
from turnstile.core.strict_json import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, JsonValue, digest, loads

values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=8,
)


@given(values, st.booleans())
def test_any_json_is_read_as_what_it_is(value: JsonValue, ascii_only: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    """Strictness must not cost a single valid text."""
    text = json.dumps(value, ensure_ascii=ascii_only)

    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value at line 1 column 1"),
        ("{", "Expecting property name"),
        ("[1, 2,]", "line 1 column"),
        ("{'a': 1}", "Expecting property name"),
        ("1 2", "Extra data at line 1 column 3"),
        ('"a\nb"', "Invalid control character at line 1 column 3"),
        ('{"a": 1, "b": 2, "a": 1}', "the key 'a' stands twice in one object"),
        ('[{"x": {"b": 1, "b": 1}}]', "the key 'b' stands twice in one object"),
        ("NaN", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("1e999", "the number 1e999 is too large"),
        ("-1e999", "the number -1e999 is too large"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        ("\ufeff1", "Expecting value at line 1 column 1"),
    ],
)
def test_a_text_that_readers_disagree_on_is_refused(text: str | bytes, problem: str) -> None:
    """What one reader takes and another refuses or reads otherwise is how checks are got around."""
    with pytest.raises(InvalidJSON) as caught:
        loads(text)

    assert problem in str(caught.value)


def test_the_error_is_ours_and_a_value_error() -> None:
    """Code that reads JSON catches ValueError, and code that uses Turnstile catches TurnstileError."""
    with pytest.raises(InvalidJSON) as caught:
        loads("?")

    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TurnstileError)
    assert caught.value.__cause__ is None


def test_a_long_text_is_refused_before_it_is_read() -> None:
    """A cap that is checked after parsing protects nothing."""
    assert loads("[1]", max_bytes=3) == [1]
    with pytest.raises(InvalidJSON, match="too long: 4 bytes, at most 3 are read"):
        loads("[12]", max_bytes=3)
    with pytest.raises(InvalidJSON, match="too long"):
        loads(b"????", max_bytes=3)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_capped(opening: str, closing: str) -> None:
    """The decoder recurses, so a bomb of brackets would end the process."""

    def nested(levels: int) -> str:
        return opening * levels + ("1" if opening != "[" else "") + closing * levels

    loads(nested(MAX_DEPTH))
    with pytest.raises(InvalidJSON, match="nested deeper than 64 levels"):
        loads(nested(MAX_DEPTH + 1))
    with pytest.raises(InvalidJSON, match="nested deeper than 64 levels"):
        loads(opening * 1_000_000)
    loads(nested(MAX_DEPTH + 1), max_depth=MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "value",
    [
        "[" * 500,
        '"[' * 500,
        "\\" * 99 + "[" * 99,
        [["]"] * 99, "[" * 99],
        [[]] * 500,
        [{"[": "{"}] * 500,
    ],
)
def test_brackets_in_strings_and_beside_each_other_are_no_depth(value: JsonValue) -> None:
    """A file of code as an argument holds more brackets than any schema is deep."""
    assert loads(json.dumps(value)) == value


def test_control_characters_in_strings_are_read_when_allowed() -> None:
    """Some models write raw line breaks into their arguments."""
    assert loads('{"a": "one\ntwo\tthree"}', control_characters=True) == {"a": "one\ntwo\tthree"}
    with pytest.raises(InvalidJSON, match="stands twice"):
        loads('{"a": 1, "a": 1}', control_characters=True)


def test_digits_are_capped() -> None:
    """Reading an integer takes the square of its length, and CPython refuses above 4,300 digits in its own words."""
    assert loads("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    with pytest.raises(InvalidJSON, match="an integer of 401 digits, at most 400 are read"):
        loads("9" * (MAX_DIGITS + 1))
    with pytest.raises(InvalidJSON, match="an integer of 5000 digits"):
        loads("9" * 5000)


def test_a_lone_surrogate_is_read() -> None:
    """JSON may escape one (RFC 8259 §8.2); what to do with it is the reader's business."""
    assert loads(r'"\ud800"') == "\ud800"
    assert loads(r'"\ud83d\ude00"') == "😀"


@given(st.binary(max_size=64) | st.text(alphabet='[]{}",:\\ 0123eE+-.nulltrefas\n', max_size=64))
def test_any_text_is_read_or_refused_by_one_error(text: str | bytes) -> None:
    """A model's text must never raise anything that nobody expects."""
    try:
        loads(text)
    except InvalidJSON:
        return


@given(values, st.randoms(use_true_random=False))
def test_equal_values_have_equal_digests_however_they_are_written(value: JsonValue, chance: random.Random) -> None:
    """A repeated call counts as repeated though the model wrote its keys in another order."""
    rewritten = loads(json.dumps(shuffled(value, chance), indent=chance.choice([None, 1])))

    assert digest("tool", rewritten) == digest("tool", value)


written: st.SearchStrategy[JsonValue] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.sampled_from([2**53, -(2**53)]),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(st.characters()), parts, max_size=4),
    max_leaves=8,
)


@given(st.text(), written)
@example("tool", {"\uffff": 1, "\U00010000": 2})  # sorted by UTF-16 units, the other way round than by characters
@example("tool", {"b": '\x00\x08\x1f\x7f\x80\u2028/\\"', "a": 2**53 - 1, "": [-(2**53) + 1, True, None, {}, []]})
def test_a_digest_is_that_of_rfc_8785(name: str, value: JsonValue) -> None:
    """Journals hold digests: whichever library writes a value, its digest is the one that the standard gives it."""
    try:
        text = rfc8785.dumps([name, value])
    except ValueError:
        text = b"exact " + json.dumps([name, value], sort_keys=True).encode()

    assert digest(name, value) == hashlib.sha256(text).hexdigest()


def shuffled(value: JsonValue, chance: random.Random) -> JsonValue:
    """An equal value with its keys in another order."""
    if isinstance(value, list):
        return [shuffled(part, chance) for part in value]
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    return value


@given(values, values)
def test_different_values_have_different_digests(left: JsonValue, right: JsonValue) -> None:
    """Two calls that differ must not count as one, nor an approval of one hold for the other."""
    if digest("tool", left) == digest("tool", right):
        assert as_doubles(left) == as_doubles(right)


def as_doubles(value: JsonValue) -> object:
    """The value with each number as RFC 8785 sees it, told apart from true and false."""
    if isinstance(value, list):
        return [as_doubles(part) for part in value]
    if isinstance(value, dict):
        return {key: as_doubles(part) for key, part in value.items()}
    return value if isinstance(value, bool | str | None) else ("number", float(value))


def test_a_digest_belongs_to_a_tool() -> None:
    """Two tools may well be called with the same arguments."""
    assert digest("a", {}) != digest("b", {})
    assert digest("a", {}) == digest("a", {})
    assert len(digest("a", {})) == 64


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, None),
        (2**60, 2**60 + 1),
        (2**60, str(2**60)),
        (10**300, 10**300 + 1),
        ("\ud800", "\ud801"),
        ("\ud800", "\\ud800"),
        ({"\udfff": 1}, {"\\udfff": 1}),
    ],
)
def test_what_no_double_or_utf_8_holds_has_a_digest_of_its_own(left: JsonValue, right: JsonValue) -> None:
    """A model's odd number or text must neither raise where a digest is asked for, nor pass for another."""
    assert digest("tool", left) == digest("tool", left)
    assert digest("tool", left) != digest("tool", right)


def test_a_repeated_key_among_very_many_is_named_at_once() -> None:
    """A model's reply must not hold up a process: comparing each key with each took minutes for these."""
    keys = [f'"{number}":0' for number in range(100_000)]
    with pytest.raises(InvalidJSON, match="the key '7' stands twice in one object"):
        loads("{" + ",".join([*keys, '"99998":1', '"7":1']) + "}")


def test_the_same_number_written_in_other_ways_has_one_digest() -> None:
    """A model that writes 1.0 for 1 makes the same call."""
    assert digest("tool", loads("[1, 100, 0]")) == digest("tool", loads("[1.0, 1e2, -0.0]"))


def test_a_text_of_millions_of_values_is_refused_before_it_is_read() -> None:
    """A few megabytes of brackets would take a hundred times their size; commas in texts are none."""
    with pytest.raises(InvalidJSON, match="more than 1000000 values"):
        loads("[" + "0," * MAX_VALUES + "0]")
    with pytest.raises(InvalidJSON, match="more than 1000000 values"):
        loads("[" + "[]," * MAX_VALUES + "[]]")
    assert loads('["' + "," * 2 * MAX_VALUES + '"]') == ["," * 2 * MAX_VALUES]
