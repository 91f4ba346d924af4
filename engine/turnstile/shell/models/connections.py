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
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from turnstile.shell.models.answer import Answer
from turnstile.shell.models.direct import KEPT_IDLE, Direct, Post, Response
from turnstile.shell.models.proxied import Hearing, Proxied

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
        network_backend=Hearing(),
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
