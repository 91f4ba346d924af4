"""The bytes of a stream: made readable at once and the same however they are cut, and bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.shell.models.events import LONGEST, EventBytes, is_stream

LINES = st.text(st.sampled_from("a:\n\r \ufeff\u2028🌍"), max_size=30)


def fed(content: bytes, cuts: list[int]) -> str:
    """What is given for a content that is cut at these places."""
    fit = EventBytes()
    places = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
    return "".join(fit.feed(content[start:end]) for start, end in pairwise(places))


@given(LINES, st.lists(st.integers(0, 60), max_size=8))
def test_line_ends_become_one_kind_however_they_are_cut(text: str, cuts: list[int]) -> None:
    """sse-bare-cr-and-split-crlf: no spurious blank line, and none that is missing."""
    expected = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    assert fed(text.encode(), cuts) == expected


def test_a_bare_return_ends_a_line_at_once() -> None:
    """Whether a line feed follows is seen later; the event must not wait for it."""
    fit = EventBytes()
    assert [fit.feed(part) for part in (b"data: x\r", b"\r", b"\n", b"data: y\r", b"\n\n")] == [
        "data: x\n",
        "\n",
        "",
        "data: y\n",
        "\n",
    ]


@given(st.binary(max_size=20), st.lists(st.integers(0, 20), max_size=5))
def test_what_comes_before_a_bad_byte_is_given(content: bytes, cuts: list[int]) -> None:
    """A stream means the same up to its first bad byte, wherever the network cut it."""
    whole, cut = EventBytes(), EventBytes()
    expected = whole.feed(content) + whole.end()
    places = [0, *sorted(place for place in cuts if place < len(content)), len(content)]
    got = ""
    for start, end in pairwise(places):
        if not cut.problem:
            got += cut.feed(content[start:end])
    got += "" if cut.problem else cut.end()
    assert bool(whole.problem) == bool(cut.problem)
    assert got.rstrip("\n") == expected.rstrip("\n")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([b"x" * 11], "an event of more than 10 characters"),
        ([b"x" * 6, b"x" * 6], "an event of more than 10 characters"),
        ([b"x" * 9, b"\n", b"\n", b"x" * 9], ""),
        ([b"x" * 9 + b"\n\n" + b"x" * 8], ""),
        ([b"x\n\n"] * 10 * LONGEST, "a stream of more than 160 bytes"),
    ],
)
def test_an_event_and_a_stream_have_a_size(parts: list[bytes], problem: str) -> None:
    """A blank line ends an event, also one that is cut in two; what is too long is given up."""
    fit = EventBytes(max_bytes=10)
    for part in parts:
        fit.feed(part)
    assert fit.problem.startswith(problem)
    assert bool(fit.problem) == bool(problem)


@pytest.mark.parametrize(
    ("start", "content_type", "streams"),
    [
        (b"data:", "text/event-stream", True),
        (b"data:", "", True),
        (b": hi", "text/plain", True),
        (b"event", "application/json", True),
        (b"\xef\xbb\xbfda", "Text/Event-Stream; charset=utf-8", True),
        (b"", "text/event-stream", True),
        (b'{"cho', "text/event-stream", False),
        (b"<html", "text/event-stream", False),
        (b"error", "text/plain", False),
        (b"", "application/json", False),
    ],
)
def test_a_stream_is_told_by_its_beginning(start: bytes, content_type: str, streams: bool) -> None:  # noqa: FBT001 - a case of a table
    """Gateways stream under any type, and send JSON errors under that of a stream."""
    assert is_stream(start, content_type) is streams
