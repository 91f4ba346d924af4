"""Cleaning text for a terminal: a law for any text at all, and cases of what has been used to attack terminals."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.cli.screen import clean, json_text, one_line

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\x9b[]P;0m\x07\x9c\\\r\n\t\u202e\ud83d")))


@given(TEXTS)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """Whatever a model writes, nothing of it may be an order to a terminal: a law without exceptions."""
    cleaned = clean(text)
    assert all(unicodedata.category(char) not in {"Cc", "Cs"} or char in "\n\t" for char in cleaned)
    assert clean(cleaned) == cleaned
    cleaned.encode()


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf"])))
def test_plain_text_stays_as_it_is(text: str) -> None:
    """Cleaning may not touch what is harmless, whatever its script."""
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJm\x07x", "x"),
        ("\x1bP$q\x1b\\x", "x"),
        ("\x1bc\x1b(0x", "x"),
        ("\x1b]unfinished", "unfinished"),
        ("\x9d0;unfinished\x9d0;title\x9cx", "0;unfinishedx"),
        ("a\rb\r\nc\bd\x7f", "ab\ncd"),
        ("pay \u202e00.1$\u202c", "pay 00.1$"),
        ("👩‍💻 family", "👩‍💻 family"),
        ("tab\tand\nbreak", "tab\tand\nbreak"),
    ],
)
def test_known_tricks(text: str, cleaned: str) -> None:
    """Each of these recolours, retitles, writes the clipboard, or hides what a text says."""
    assert clean(text) == cleaned


@given(TEXTS, st.integers(2, 40))
def test_one_line_is_one_line_of_that_length(text: str, width: int) -> None:
    """Lines of progress and tables rest on the promise that a value cannot break out of its place."""
    line = one_line(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1


def test_a_long_text_says_that_it_goes_on() -> None:
    """A cut without a sign would read as the whole."""
    assert one_line("a long\n text", 6) == "a lon…"


@given(TEXTS)
def test_json_is_harmless_and_loses_nothing(text: str) -> None:
    """A program must read exactly what was written, and a terminal nothing that it obeys."""
    shown = json_text({"text": text})
    assert json.loads(shown) == {"text": text}
    assert clean(shown) == shown


@pytest.mark.parametrize(
    "opener",
    ["\x1b", "\x1b[", "\x1b[0;", "\x1b ", "\x1b]", "\x1bP", "\x90", "\x98", "\x9b", "\x9b0 ", "\x9d", "\x9e", "\x9f"],
)
def test_hostile_text_is_cleaned_in_time(opener: str) -> None:
    """A megabyte of unfinished sequences must not take time that grows with its square."""
    assert not set(clean(opener * (1_000_000 // len(opener)))) - set("[]P0; ")
