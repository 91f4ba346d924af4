"""`SocketStream`: a connection that is read and written straight on asyncio's own.

httpcore's stream lies on anyio, which has the event loop begin to read before each piece and cease after it, and lets
all other tasks run with each write. Here the loop reads on, up to a limit, and what is sent leaves at once. Time limits
are the caller's.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

import httpcore
from aiohappyeyeballs import start_connection

from turnstile.core.strict_json import MAX_BYTES

MOST_UNREAD = 256 * 1024  # bytes kept before the loop ceases to read; as many as asyncio reads at once
HEAD_START = 0.25  # seconds for one of a host's addresses before the next is tried too (RFC 8305, section 5)
# Windows has no poll, and everywhere else select knows no more than 1,024 connections
_Poll: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> SocketStream:
    """A new connection, encrypted if it is to be.

    Raises:
        httpcore.ConnectError: There is none to be had; carries the system's words.
    """
    loop = asyncio.get_running_loop()
    create: Callable[..., Awaitable[tuple[asyncio.Transport, SocketStream]]] = loop.create_connection
    # when a server ends an encrypted connection, uvloop throws away what it holds for a reader that it has let wait
    loses = tls is not None and not isinstance(loop, asyncio.BaseEventLoop)
    make = functools.partial(SocketStream, MAX_BYTES if loses else MOST_UNREAD)
    try:
        ends = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # asyncio's own way to several addresses loses a connection that opens as a request is cancelled
        connected = await start_connection(ends, happy_eyeballs_delay=HEAD_START)
        _, stream = await create(make, sock=connected, ssl=tls, server_hostname=host if tls else None)
    except (OSError, UnicodeError) as error:  # the latter for a name that none can have
        raise httpcore.ConnectError(str(error)) from error
    return stream


class SocketStream(asyncio.Protocol):
    """Both sides of a connection: asyncio tells it what came, and who has asked for something reads it."""

    _transport: asyncio.Transport

    def __init__(self, most_unread: int = MOST_UNREAD) -> None:
        self._most_unread = most_unread
        self._received = bytearray()
        self._poll = _Poll()
        self._news = asyncio.Event()
        self._closed = asyncio.Event()
        self._ended = False
        self._broken: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the way to send, and a look at what has come."""
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket"), selectors.EVENT_READ)

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self._received += data
        if len(self._received) >= self._most_unread:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        """Note that the server sends no more."""
        self._ended = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that nothing goes either way any more, and why."""
        self._broken = exc
        self._closed.set()
        self.eof_received()

    def send(self, request: bytes) -> None:
        """Send a request; that the connection has broken, reading tells."""
        if not self._transport.is_closing():  # uvloop's raises an error then
            self._transport.write(request)

    async def read(self, most: int) -> bytes:
        """What came; nothing when the server has ended the connection.

        Raises:
            httpcore.ReadError: The connection broke; carries the system's words.
        """
        while not (self._received or self._ended):
            self._news.clear()
            await self._news.wait()
        if self._broken and not self._received:
            raise httpcore.ReadError(str(self._broken)) from self._broken
        data = bytes(self._received[:most])
        del self._received[:most]
        if len(self._received) < self._most_unread:
            self._transport.resume_reading()
        if self._received:
            await asyncio.sleep(0)  # each piece of a flood may take long to understand, and time limits must pass
        return data

    async def aclose(self) -> None:
        """Close the connection at once: what was not sent by now, nobody waits for."""
        self._transport.abort()
        await self._closed.wait()

    def is_quiet(self) -> bool:
        """Whether the connection stands, all requests have left, and the server has sent nothing unasked.

        What an answer that came early left of its request, a server may never read, nor what stands behind it. Of an
        encrypted request the loop does not always tell that some of it is left.
        """
        closes = self._ended or self._transport.is_closing()  # of an encrypted one, asyncio tells us that it broke late
        if closes or self._transport.get_write_buffer_size():
            return False
        return not (self._received or self._poll.select(0))  # the loop, if busy, has not seen all that came
