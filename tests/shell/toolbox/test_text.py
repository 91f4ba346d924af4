"""Values and exceptions as text: every value gives one, and each fits strict JSON in UTF-8."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field

from turnstile.core.errors import StopRun
from turnstile.core.messages import Attachment, UserTurn
from turnstile.shell.toolbox.text import Unwritable, described, fit, flattened, preview, whole, written


class Plain(BaseModel):
    """A model."""

    word: str = "x"


class Broken(BaseModel):
    """A model that cannot be written."""

    @computed_field  # type: ignore[prop-decorator] # as pydantic's documentation writes it
    @property
    def word(self) -> str:
        """Never comes."""
        raise RuntimeError("no word")


@dataclasses.dataclass
class Raw:
    """Bytes and text that are no UTF-8."""

    data: bytes
    text: str


class Size(enum.StrEnum):
    """A size."""

    BIG = "big"


class Handle:
    """Something that has no JSON form."""


def cycle() -> list[object]:
    """A list that holds itself."""
    ring: list[object] = []
    ring.append(ring)
    return ring


def nested(depth: int) -> list[object]:
    """A list in a list, and so on."""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", "(empty)"),
        (" ", " "),
        (Size.BIG, "big"),
        (None, "null"),
        (True, "true"),
        (2**70, "1180591620717411303424"),
        (1.5, "1.5"),
        (float("nan"), '"NaN"'),
        ([float("-inf")], '["-Infinity"]'),
        (b"caf\xc3\xa9", "café"),
        (b"", "(empty)"),
        (bytearray(b"caf\xe9"), "caf\ufffd"),
        (memoryview(b"text"), "text"),
        (b"\x89PNG\0\0", "(6 bytes that are no text)"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, "é"), '[1,"é"]'),
        ({1}, "[1]"),
        ([], "[]"),
        (Plain(), '{"word":"x"}'),
        ([Plain()], '[{"word":"x"}]'),
        (dt.date(2026, 5, 1), '"2026-05-01"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("/tmp"), '"/tmp"'),  # noqa: S108 - a text
        (ipaddress.ip_address("::1"), '"::1"'),
        (collections.deque([1]), "[1]"),
        ({"at": ipaddress.ip_address("::1")}, '{"at":"::1"}'),
        ({"data": b"\xff"}, '{"data":"\ufffd"}'),
        ({"data": b"\0\0"}, '{"data":"\\u0000\\u0000"}'),
        ({"data": (b"\xff\0",)}, '{"data":["(2 bytes that are no text)"]}'),
        ({"half\ud83d": "\udc97"}, '{"half\ufffd":"\ufffd"}'),
        (Plain(word="\ud83d\ude00"), '{"word":"😀"}'),
        ([Plain(word="\ud83d"), 1], '[{"word":"\ufffd"},1]'),
        (Raw(b"\xff", "\ud83d"), '{"data":"_w==","text":"\ufffd"}'),
        (Attachment("a/b", "eA=="), '{"media_type":"a/b","data":"eA==","url":"","name":""}'),
        ([UserTurn("\ud83d")], '[{"text":"\ufffd","synthetic":false,"attachments":[],"kind":"user"}]'),
    ],
)
def test_every_value_has_one_text(value: object, text: str) -> None:
    """Tools return whatever their authors have at hand (wire case tool-returns-odd-values)."""
    assert written(value) == text or fit(written(value), 1_000) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Handle(), "a value of type 'Handle' has no JSON form"),
        ({"a": [Handle()]}, "a value of type 'Handle' has no JSON form"),
        (Handle, "a value of type 'type' has no JSON form"),
        (cycle(), "Circular reference detected (id repeated)"),
        (Broken(), "no word"),
        (map(str, [1]), "a value of type 'map' is read while it is made; return a list"),
        ({"data": b"\xff", "rest": map(str, [1])}, "a value of type 'map' is read while it is made; return a list"),
    ],
)
def test_a_value_without_a_text_says_which_type(value: object, reason: str) -> None:
    """The author must learn which part of the result to change, and the model that there is none."""
    with pytest.raises(Unwritable) as raised:
        written(value)
    assert str(raised.value) == reason


def test_a_value_nested_too_deep_is_refused() -> None:
    """A structure of any depth must end in a text and not in the interpreter's own limit; the words are pydantic's."""
    with pytest.raises(Unwritable, match="depth exceeded"):
        written(nested(100_000))


class Mute(Exception):
    """An exception whose text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("smtp"), "ValueError: smtp"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (Mute(), "Mute"),
        (
            ExceptionGroup("both", [ValueError("a"), ExceptionGroup("in", [KeyError()])]),
            "ExceptionGroup: both (2 sub-exceptions); ValueError: a; ExceptionGroup: in (1 sub-exception); KeyError",
        ),
    ],
)
def test_an_exception_always_says_its_type(error: Exception, text: str) -> None:
    """An exception without text would leave the model with nothing to act on."""
    assert described(error) == text


def test_a_group_gives_all_it_holds() -> None:
    """An order to end the run must be heard though it was raised inside a task group."""
    stop = StopRun("enough")
    assert stop in list(flattened(ExceptionGroup("g", [ExceptionGroup("h", [stop])])))


@given(st.text(), st.integers(100, 200))
def test_a_text_that_fits_is_not_touched(text: str, limit: int) -> None:
    """What a tool says is handed on as it is, character for character."""
    assert fit(text[:limit], limit) == text[:limit]
    assert whole(text) == text


@given(st.text(st.characters(exclude_categories=())), st.integers(100, 300), st.integers(1, 50))
def test_a_text_is_never_too_long_and_always_utf8(text: str, limit: int, times: int) -> None:
    """A result over the limit would fill the context, and half a pair would break the request's body."""
    shown = fit(text * times, limit)
    assert len(shown) <= limit
    shown.encode()


def test_a_cut_text_keeps_both_ends_and_says_how_much_is_gone() -> None:
    """The end of an output is often what matters, and a model must know that it doesn't see all."""
    text = "a" * 600 + "b" * 600
    shown = fit(text, 200)
    start, note, end = shown.split("\n")
    assert (set(start), set(end)) == ({"a"}, {"b"})
    gone = len(text) - len(start) - len(end)
    assert note == f"[… {gone:,} of 1,200 characters left out …]"


def test_two_halves_of_a_pair_become_their_character() -> None:
    """Some programs write one character as two code units (wire case tool-result-lone-surrogate)."""
    assert whole("ok \udc97 \ud83d end") == "ok \ufffd \ufffd end"
    assert whole("\ud83d\ude00") == "😀"


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_a_preview_is_short_and_shows_what_cannot_be_seen(text: str) -> None:
    """A preview stands in a message for the model, so it holds no line break and no half pair."""
    shown = preview(text, 20)
    assert len(shown) <= 20 + len("… (40 characters)")
    assert shown.isprintable()
    shown.encode()


json_like: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(json_like)
def test_every_structure_gives_strict_json(value: object) -> None:
    """Neither NaN nor a broken character may reach a body that a strict server reads."""
    text = whole(written([value]))
    text.encode()
    json.loads(text, parse_constant=pytest.fail)
