"""`Connections`: the connections of one event loop to one address, opened when needed and used again.

Each is kept on a stack: httpcore's pool looks at every connection and every waiting request for each request, so what
waits must wait here (a semaphore, first come first served), and nothing is ever queued in a pool. A connection on which
something went wrong is thrown away, so that a failure or a cancellation leaves nothing half done behind.

A connection goes straight to the server, or through a proxy that the environment names.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Protocol, cast
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from turnstile.shell.models.answer import Answer
from turnstile.shell.models.direct import KEPT_IDLE, Direct, Post, Response

LAST_PORT = 65535


class Connection(Protocol):
    """Sends one request after another; a connection that ended meanwhile is opened again."""

    async def post(self, body: bytes) -> Response:
        """Send a request, and give the answer as soon as it begins."""

    async def aclose(self) -> None:
        """Close the connection."""


class Connections:
    """The connections of one event loop; the one used last is used next, so that those not needed grow old."""

    def __init__(self, most: int, make: Callable[[], Connection]) -> None:
        self._places = asyncio.Semaphore(most)
        self._make = make
        self._idle: deque[tuple[Connection, float]] = deque()
        self._closed = False

    async def lend(self, exchange: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """The answer of an exchange over one of them, which has been read to its end by then."""
        async with self._places:
            connection = self._idle.pop()[0] if self._idle else self._make()
            try:
                answer = await exchange(connection)
            except BaseException:
                await connection.aclose()
                raise
            await self._give_back(connection)
            return answer

    async def _give_back(self, connection: Connection) -> None:
        now = asyncio.get_running_loop().time()
        self._idle.append((connection, now))
        if self._closed or self._idle[0][1] < now - KEPT_IDLE:
            await self._idle.popleft()[0].aclose()

    async def aclose(self) -> None:
        """Close what is idle; a connection in use is closed when its request ends."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[0].aclose()


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


class _Hearing(httpcore.AnyIOBackend):
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


def connection_maker(url: httpx.URL, post: Post, *, trust_env: bool) -> Callable[[], Connection]:
    """Makes connections to an address, the way that the environment names if that is trusted.

    Raises:
        ValueError, RuntimeError, OSError: That way cannot be used.
    """
    tls = _tls(trust_env=trust_env)
    address = _proxy_for(url, trust_env=trust_env)
    if address is None:
        return functools.partial(Direct, tls, post)
    proxy = _proxy_at(address)
    make = functools.partial(
        httpcore.AsyncHTTPProxy if proxy.url.scheme.startswith("http") else httpcore.AsyncSOCKSProxy,
        proxy_url=core_url(proxy.url),
        proxy_auth=proxy.raw_auth,
        ssl_context=tls,
        max_connections=1,
        keepalive_expiry=KEPT_IDLE,
        network_backend=_Hearing(),
    )
    make()  # which fails where SOCKS is wanted, and not installed
    return functools.partial(Proxied, make, post)


def _proxy_at(address: str) -> httpx.Proxy:
    try:
        proxy = httpx.Proxy(address)
    except httpx.InvalidURL:
        proxy = None
    if proxy is None or (proxy.url.port or 0) > LAST_PORT:
        # what is wrong with it is not said: it may be a part of a password that is not quoted
        msg = "the address of the proxy is none (a password in it is percent-encoded, and a port is at most 65535)"
        raise ValueError(msg)
    return proxy


def core_url(url: httpx.URL) -> httpcore.URL:
    """An address as httpcore takes it."""
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


@functools.cache
def _tls(*, trust_env: bool) -> ssl.SSLContext:
    """One context for all connections: loading the certificates takes as long as a hundred requests."""
    context = httpx.create_ssl_context(trust_env=trust_env)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _proxy_for(url: httpx.URL, *, trust_env: bool) -> str | None:
    """The proxy that the environment names for an address; httpx's own reading fails on a CIDR in NO_PROXY."""
    if not trust_env or _is_here(url.host) or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
