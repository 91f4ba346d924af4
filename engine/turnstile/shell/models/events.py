"""`Events`: the events of a stream, whatever a server sends and wherever the network cuts it, at once and bounded.

Events are read as the standard says (WHATWG HTML, "Parsing an event stream"), with what streams of models ask for: a
bare carriage return ends a line at once, and does not wait for the next chunk; text that is no UTF-8 is refused instead
of replaced; an event has a size; the last event is ended when the server forgot to; and the content type does not
decide whether an answer is a stream. Ids and delays, for who connects again, mean nothing here: no reply goes on.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from typing import Protocol

from turnstile.core.strict_json import MAX_BYTES

LONGEST = 16  # times the longest answer is a stream's length: each token comes in some 300 bytes of frame
AFTERWORD = 5.0  # seconds that more is waited for once a reply is whole: its usage comes directly behind it
_SLACK = 0.1  # part of the idle time by which its end may be noticed late
_SNIFFED = 5  # bytes that tell a stream from JSON: the length of the longest names of fields, ``event`` and ``retry``
_FIELDS = (b":", b"data", b"event", b"id:", b"retry")  # WHATWG HTML, "Parsing an event stream"
_NO_STREAM = (b"{", b"[", b"<", b'"')
_BOM = "\ufeff"
_BLANK_LINE = "\n\n"

Event = tuple[str, str]
"""The name of an event, ``message`` when it has none, and its data."""


class Unfit(Exception):
    """The bytes are no event stream that can be read; carries why."""


class Listener(Protocol):
    """Takes the events of a stream.

    Attributes:
        whole: Whether what came so far is a whole reply, so that a stream that breaks now has lost nothing.
        done: Whether nothing more is wanted.
    """

    @property
    def whole(self) -> bool: ...  # noqa: D102 - see above
    @property
    def done(self) -> bool: ...  # noqa: D102 - see above

    def take(self, event: str, data: str) -> None:
        """Take an event: its name, ``message`` when it has none, and its data."""


class Patience:
    """How long the next piece of a stream is waited for.

    Args:
        timeout: Seconds to the next event.
        idle_timeout: Seconds to the next byte.

    Attributes:
        limit: What ends the wait; to be entered around all that waits.
        what: What is waited for, for an error message.
    """

    def __init__(self, timeout: float, idle_timeout: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._last_event = self._now()
        self._has_heard = False
        self._alarm = 0.0
        self.limit = asyncio.timeout(timeout)
        self.what = self._not_complete = f"the answer was not complete after {timeout:g} s"

    def heard(self) -> None:
        """Events came, before the next wait begins."""
        self._has_heard = True

    def wait(self, *, afterword: bool = False) -> None:
        """Begin to wait for the next bytes, but briefly for those that only say more about a whole reply."""
        idle = min(AFTERWORD, self._idle_timeout) if afterword else self._idle_timeout
        now = self._now()
        if self._has_heard:
            self._last_event, self._has_heard = now, False
        end = self._last_event + self._timeout
        soon = now + idle
        if not afterword and soon <= self._alarm < end:
            return  # the alarm is late enough: setting it for each piece would cost more than reading the piece
        self._alarm = soon + idle * _SLACK
        self.what = f"the stream was silent for {idle:g} s" if soon < end else f"{self._not_complete} without an event"
        self.limit.reschedule(min(self._alarm, end))

    def wait_for_all(self) -> None:
        """Begin to wait for the end of an answer that is no stream."""
        self.what = self._not_complete
        self.limit.reschedule(self._last_event + self._timeout)


class Events:
    """Takes chunks as they come and gives the events that are whole with them, at once.

    Args:
        max_bytes: The longest event; a whole stream may be `LONGEST` times as long.

    Attributes:
        problem: Why no more can be read; empty while it can. What came before has been given.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._most = max_bytes
        self._left = max_bytes * LONGEST
        self._open: list[str] = []  # what came since the last blank line, which ends an event
        self._length = 0
        self._last = ""
        self._after_cr = False
        self._begun = False
        self.problem = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that end with a chunk."""
        self._left -= len(chunk)
        if self._left < 0:
            self.problem = f"a stream of more than {self._most * LONGEST} bytes, no more are read"
        text = self._decoded(chunk)
        if self._after_cr or "\r" in text:
            text = self._with_one_line_end(text)
        return self._ended_by(text) if text else []

    def _with_one_line_end(self, text: str) -> str:
        if text and self._after_cr:
            self._after_cr = False
            text = text.removeprefix("\n")
        if text:
            self._after_cr = text[-1] == "\r"
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def end(self) -> list[Event]:
        """The last event, which some servers leave open."""
        return self._ended_by(self._decoded(b"", final=True) + "\n\n")

    def _decoded(self, chunk: bytes, *, final: bool = False) -> str:
        try:
            text = self._decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            self.problem = f"the stream is not UTF-8: {error.reason}"
            text = error.object[: error.start].decode()
        if text and not self._begun:
            self._begun = True
            return text.removeprefix(_BOM)
        return text

    def _ended_by(self, text: str) -> list[Event]:
        found: list[Event] = []
        if _BLANK_LINE in text or self._last == "\n" == text[0]:
            if self._open:
                text = "".join((*self._open, text))
                self._open, self._length = [], 0
            blocks = text.split(_BLANK_LINE)
            text = blocks.pop()
            for block in blocks:
                _read(block, found)
        if text:
            self._open.append(text)
            self._length += len(text)
            if self._length > self._most:
                self.problem = f"an event of more than {self._most} characters, no longer ones are read"
        self._last = text[-1] if text else "\n"
        return found


def _read(block: str, found: list[Event]) -> None:
    """Find the event that some lines stand for; none when they are comments, or nothing that a listener wants."""
    name, data = "", []
    for line in block.split("\n"):
        field, _, value = line.partition(":")
        if field == "data":
            data.append(value.removeprefix(" "))
        elif field == "event":
            name = value.removeprefix(" ")
    if name or data:
        found.append((name or "message", "\n".join(data)))


async def start_of(chunks: AsyncIterator[bytes], patience: Patience) -> bytes:
    """The first bytes of an answer, as many as tell a stream from JSON, without white space before them.

    Raises:
        Unfit: There is white space without end.
    """
    start, size = b"", 0
    patience.wait()
    async for chunk in chunks:
        size += len(chunk)
        start = (start + chunk).lstrip()
        if len(start) >= _SNIFFED:
            break
        if size > MAX_BYTES:
            raise Unfit(f"an answer that begins with more than {MAX_BYTES} bytes of white space")
        patience.wait()
    return start


async def joined(start: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """An answer's chunks again, after its first bytes were read."""
    if start:
        yield start
    async for chunk in chunks:
        yield chunk


def is_stream(start: bytes, content_type: str) -> bool:
    """Whether an answer is a stream: servers stream under any content type, and send JSON under that of a stream."""
    if start.startswith(_NO_STREAM):
        return False
    return "event-stream" in content_type.lower() or start.startswith(_FIELDS)
