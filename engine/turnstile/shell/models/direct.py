"""`Direct`: requests to a server itself, one after another over one connection, on which h11 speaks HTTP.

httpcore speaks it by h11, too, but waits for a lock before and after each request, and has each step traced: that took
as long as all of h11. Only what goes through a proxy goes through httpcore. Head and body of a request leave together,
in one packet if they fit.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import h11
import httpcore

from turnstile.shell.models.socket_stream import SocketStream, connect

KEPT_IDLE = 55.0  # seconds; most load balancers end an idle connection after 60 (AWS, "Idle connection timeout")
_READ = 64 * 1024  # bytes; as httpcore
_LONGEST_HEAD = 100 * 1024  # bytes; as httpcore
_HTTPS = b"https"
_SWITCHES = 101  # RFC 9110, section 15.2.2


class Post(NamedTuple):
    """What the requests of a client have in common.

    Attributes:
        url: Where they go.
        headers: What stands before each, but for its length.
        connect_timeout: Seconds to open a connection.
    """

    url: httpcore.URL
    headers: list[tuple[bytes, bytes]]
    connect_timeout: float

    def headers_of(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The headers of a request."""
        return [*self.headers, (b"content-length", b"%d" % len(body))]


class Response(NamedTuple):
    """An answer whose body is still to come.

    Attributes:
        status: The HTTP status.
        headers: Its headers as they came.
        chunks: The body's pieces.
        end: To be called when no more of it is wanted; frees its connection if it was read to its end.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    chunks: AsyncGenerator[bytes]
    end: Callable[[], Awaitable[None]]


class Direct:
    """A connection straight to a server; one that ended meanwhile is opened again."""

    _http: h11.Connection

    def __init__(self, tls: ssl.SSLContext, post: Post) -> None:
        self._tls = tls if post.url.scheme == _HTTPS else None
        self._post = post
        self._stream: SocketStream | None = None
        self._free_until = 0.0

    async def post(self, body: bytes) -> Response:
        """Send a request, and give the answer as soon as it begins."""
        stream = self._stream
        if stream is None or self._free_until < time.monotonic() or not stream.is_quiet():
            await self.aclose()
            stream = await self._open()
        self._free_until = 0.0
        request = h11.Request(method=b"POST", target=self._post.url.target, headers=self._post.headers_of(body))
        stream.send(b"".join([self._http.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]))
        answer = await self._answer(stream)
        return Response(answer.status_code, answer.headers.raw_items(), self._chunks(stream), self._end)

    async def _open(self) -> SocketStream:
        origin = self._post.url.origin
        try:
            async with asyncio.timeout(self._post.connect_timeout):
                self._stream = await connect(origin.host.decode("ascii"), origin.port, self._tls)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        return self._stream

    async def _answer(self, stream: SocketStream) -> h11.Response | h11.InformationalResponse:
        """The answer, without those before it; there is none behind one that speaks another protocol from there on."""
        while True:
            event = await self._next(stream)
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse) and event.status_code == _SWITCHES:
                return event

    async def _chunks(self, stream: SocketStream) -> AsyncGenerator[bytes]:
        while isinstance(event := await self._next(stream), h11.Data):
            yield bytes(event.data)

    async def _next(self, stream: SocketStream) -> h11.Event | type[h11.PAUSED | h11.NEED_DATA]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await stream.read(_READ)
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise httpcore.RemoteProtocolError("the server disconnected without an answer")
            self._http.receive_data(data)
        return event

    async def _end(self) -> None:
        """Keep the connection for the next request, unless something stands behind the answer, which is no answer."""
        if self._http.our_state is self._http.their_state is h11.DONE and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self._free_until = time.monotonic() + KEPT_IDLE
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, if it was opened."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()
