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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from turnstile.shell.models.socket_stream import SocketStream, connect

LAST_PORT = 65535
KEPT_IDLE = 55.0  # seconds; most load balancers end an idle connection after 60 (AWS, "Idle connection timeout")


class Connection(Protocol):
    """Sends one request after another; a connection that ended meanwhile is opened again."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request, whose extensions tell how long a connection may take to open."""

    async def aclose(self) -> None:
        """Close the connection."""


class Connections:
    """The connections of one event loop; the one used last is used next, so that those not needed grow old."""

    def __init__(self, most: int, make: Callable[[], Connection]) -> None:
        self._places = asyncio.Semaphore(most)
        self._make = make
        self._idle: deque[tuple[Connection, float]] = deque()
        self._closed = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection for one request."""
        async with self._places:
            connection = self._idle.pop()[0] if self._idle else self._make()
            try:
                yield connection
            except BaseException:
                await connection.aclose()
                raise
            await self._give_back(connection)

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


class Direct:
    """A connection straight to a server, without a pool around it."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._http: httpcore.AsyncHTTP11Connection | None = None
        self._stream: SocketStream | None = None

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request."""
        response = await self._again(request)
        if response is None:
            await self.aclose()
            self._http = await self._open(request)
            response = await self._http.handle_async_request(request)
        return response

    async def _again(self, request: httpcore.Request) -> httpcore.Response | None:
        """Send it on the connection that is there; ``None`` when that is of no use, and nothing was sent.

        What stood behind the answer before, in the same packet, httpcore takes for this one's.
        """
        http, stream = self._http, self._stream
        if http is None or stream is None or not http.is_idle() or http.has_expired():
            return None
        try:
            response = await http.handle_async_request(request)
        except (httpcore.ReadError, httpcore.RemoteProtocolError):
            if stream.has_sent:
                raise
            return None
        return response if stream.has_sent else None

    async def _open(self, request: httpcore.Request) -> httpcore.AsyncHTTP11Connection:
        origin = request.url.origin
        tls = self._tls if origin.scheme == b"https" else None
        try:
            async with asyncio.timeout(request.extensions["timeout"]["connect"]):
                self._stream = await connect(origin.host.decode("ascii"), origin.port, tls)
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        return httpcore.AsyncHTTP11Connection(origin, self._stream, KEPT_IDLE)

    async def aclose(self) -> None:
        """Close the connection, if it was opened."""
        if self._http is not None:
            await self._http.aclose()


def connection_maker(url: httpx.URL, *, trust_env: bool) -> Callable[[], Connection]:
    """Makes connections to an address, the way that the environment names if that is trusted.

    Raises:
        ValueError, RuntimeError, OSError: That way cannot be used.
    """
    tls = _tls(trust_env=trust_env)
    address = _proxy_for(url, trust_env=trust_env)
    if address is None:
        return functools.partial(Direct, tls)
    proxy = _proxy_at(address)
    make = functools.partial(
        httpcore.AsyncHTTPProxy if proxy.url.scheme.startswith("http") else httpcore.AsyncSOCKSProxy,
        proxy_url=core_url(proxy.url),
        proxy_auth=proxy.raw_auth,
        ssl_context=tls,
        max_connections=1,
        keepalive_expiry=KEPT_IDLE,
    )
    make()  # which fails where SOCKS is wanted, and not installed
    return make


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
