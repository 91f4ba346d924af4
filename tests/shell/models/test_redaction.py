"""No secret and no control character leaves the models' package in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.shell.models.redaction import Redactor

KEY = "fe0c2a7b.Xy+z/Q=="


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f"bad key {KEY}!", "bad key [redacted]!"),
        (f"bad key {KEY[:10]}…", "bad key [redacted]"),
        (f"bad key {KEY[:8]}****", "bad key [redacted]"),
        ("GET /v1?a=fe0c2a7b.Xy%2Bz%2FQ%3D%3D", "GET /v1?a=[redacted]"),
        ("GET /v1?key=abc&b=1", "GET /v1?key=[redacted]&b=1"),
        ("server of EMPTY hands, EMPTYNESS", "server of [redacted] hands, EMPTYNESS"),
        ("an ordinary sentence about a key", "an ordinary sentence about a key"),
        ("two\nlines\x1b[31m and \u202e bidi\x00", "two lines [31m and bidi"),
        ("", ""),
    ],
)
def test_what_is_secret_or_not_to_be_shown_is_taken_out(text: str, cleaned: str) -> None:
    """Whole, shortened, quoted for an address, or a stranger's; and no line of a log can be forged."""
    assert Redactor([KEY, "EMPTY", ""])(text) == cleaned


def test_its_repr_shows_no_secret() -> None:
    """A traceback that prints local variables prints this one too."""
    assert KEY not in repr(Redactor([KEY]))


@given(before=st.text(max_size=40), after=st.text(max_size=40))
def test_a_key_is_found_between_any_texts(before: str, after: str) -> None:
    """Whatever stands around it."""
    cleaned = Redactor([KEY])(before + KEY + after)
    assert KEY not in cleaned
    assert len(cleaned) <= 500


def test_a_long_text_is_cut() -> None:
    """A message stays a message."""
    assert Redactor()("word " * 10_000, longest=20) == "word word word word…"
