"""`Proxied`: requests through a proxy, one after another over one connection, on which httpcore speaks HTTP."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import cast

import httpcore

from turnstile.shell.models.direct import Post, Response


class Proxied:
    """A connection through a proxy, in a pool of httpcore's that holds no other."""

    def __init__(self, make: Callable[[], httpcore.AsyncConnectionPool], post: Post) -> None:
        self._pool = make()
        self._post = post
        self._extensions = {"timeout": {"connect": post.connect_timeout}}

    async def post(self, body: bytes) -> Response:
        """Send a request, and give the answer as soon as it begins."""
        headers = self._post.headers_of(body)
        request = httpcore.Request("POST", self._post.url, headers=headers, content=body, extensions=self._extensions)
        response = await self._pool.handle_async_request(request)
        stream = response.extensions["network_stream"]
        if isinstance(stream, _Heard) and not stream.has_heard:
            raise httpcore.RemoteProtocolError("what stood behind the answer before is no answer")
        chunks = cast("AsyncGenerator[bytes]", aiter(cast("AsyncIterable[bytes]", response.stream)))
        return Response(response.status, response.headers, chunks, response.aclose)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._pool.aclose()


class _Heard(httpcore.AsyncNetworkStream):
    """A connection to a proxy that tells whether anything came since something was sent.

    What stood behind an answer, in the same packet, httpcore takes for the answer to the next request.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self.has_heard = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's
        """What came."""
        data = await self._stream.read(max_bytes, timeout)
        self.has_heard = True
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's
        """Send something."""
        self.has_heard = False
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
    ) -> httpcore.AsyncNetworkStream:
        """The same connection, encrypted from here on."""
        return _Heard(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> object:
        """What httpcore asks of a connection."""
        return self._stream.get_extra_info(info)


class Hearing(httpcore.AnyIOBackend):
    """Opens connections that tell it."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A new connection."""
        return _Heard(await super().connect_tcp(host, port, timeout, local_address, socket_options))
