"""The events of a stream: the same however its bytes are cut, given at once, and bounded."""

from __future__ import annotations

from itertools import pairwise

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from turnstile.shell.models.events import LONGEST, Event, Events, is_stream

LINES = st.lists(
    st.sampled_from(
        ["data", "event", "retry", ":", ": ", " ", "a", "\n", "\r", "\r\n", "\n\n", "\ufeff", "\u2028", "🌍"]
    ),
    max_size=20,
).map("".join)
CUTS = st.lists(st.integers(0, 80), max_size=8)


def fed(events: Events, content: bytes, cuts: list[int]) -> list[Event]:
    """What is given for a content that is cut at these places, until there is a problem."""
    places = [0, *sorted(cut for cut in cuts if cut < len(content)), len(content)]
    found: list[Event] = []
    for start, end in pairwise(places):
        if not events.problem:
            found += events.feed(content[start:end])
    return found + ([] if events.problem else events.end())


@given(LINES, CUTS)
def test_events_are_those_of_the_standard_however_they_are_cut(text: str, cuts: list[int]) -> None:
    """sse-bare-cr-and-split-crlf: a maintained parser that is given all at once reads the same."""
    ended = text.removeprefix("\ufeff") + "\n\n"
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, text=ended)
    expected = [(event.event, event.data) for event in EventSource(response).iter_sse()]
    said = [event for event in fed(Events(), text.encode(), cuts) if event != ("message", "")]
    assert said == [event for event in expected if event != ("message", "")]


def test_a_bare_return_ends_a_line_at_once() -> None:
    """Whether a line feed follows is seen later; the event must not wait for it."""
    events = Events()
    assert [events.feed(part) for part in (b"data: x\r", b"\r", b"\n", b"data: y\r", b"\n\n")] == [
        [],
        [("message", "x")],
        [],
        [],
        [("message", "y")],
    ]


def test_an_event_has_a_name_and_lines() -> None:
    """The Messages API names its events; data of several lines is one text."""
    assert Events().feed(b": hi\nevent: ping\nid: 7\n\ndata:a\ndata: b\ndata\n\ndata: c\n") == [
        ("ping", ""),
        ("message", "a\nb\n"),
    ]


@given(st.binary(max_size=20) | st.just(b"data: a\n\ndata: b\xff\n\n"), CUTS)
def test_what_comes_before_a_bad_byte_is_given(content: bytes, cuts: list[int]) -> None:
    """A stream means the same up to its first bad byte, wherever the network cut it."""
    whole, cut = Events(), Events()
    assert fed(cut, content, cuts) == fed(whole, content, [])
    assert bool(whole.problem) == bool(cut.problem)


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
    events = Events(max_bytes=10)
    for part in parts:
        events.feed(part)
    assert events.problem.startswith(problem)
    assert bool(events.problem) == bool(problem)


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
