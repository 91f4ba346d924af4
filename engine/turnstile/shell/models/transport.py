"""`Transport`: posts bytes to one address and gives the answer, whole or as events, or the failure that came instead.

Loaded when a request is first sent: it, `connections`, `direct`, `proxied` and `socket_stream` are all that knows httpx
and what lies under it. What it reads of streams is in `events`.

Connections belong to the event loop that opened them, so there is a stack for each loop. It closes with its loop, by
the hook that closes a loop's asynchronous generators (`asyncio.run` calls it), so that no caller has to, and a second
loop starts with a new one.

HTTP is spoken by h11, which lies under httpx: httpx's client writes the address of each request to its log, and a key
may stand in an address; and what it does for each request beyond that, from redirects to cookies, a model's server has
no use for. httpx itself reads addresses, headers and packed bodies.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import h11
import httpcore
import httpx

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import FailureKind, ModelFailed
from turnstile.core.strict_json import MAX_BYTES
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.connections import Connection, Connections, connection_maker, core_url
from turnstile.shell.models.direct import Post
from turnstile.shell.models.events import Event, Events, Listener, Patience, Unfit, is_stream, joined, start_of
from turnstile.shell.models.http_log import guard_log
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.unpacking import PACKINGS, unpacked

LEAVE = 0.1  # seconds for the end of an answer of which nothing more is wanted, so that its connection can be kept
_GOOD = range(200, 300)
_BROKEN = (
    h11.ProtocolError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    ssl.SSLError,  # as anyio, which reads what goes through a proxy, lets it pass
)
_CUT = ("disconnected", "closed connection")  # our and h11's words for an answer that ended too soon


class Transport:
    """Posts to one address.

    Args:
        url: The address.
        headers: Sent with each request.
        clean: Takes secrets out of what failures say.
        timeout: Seconds from sending a request to the end of its answer; in a stream, to the next event.
        idle_timeout: Seconds without a byte after which a stream is given up.
        connect_timeout: Seconds to open a connection.
        connections: How many requests are under way at once in one event loop; others wait for their turn.
        trust_env: Whether proxies and certificates named by the environment are used. A server on this machine is never
            asked through a proxy.
        max_bytes: Longer answers are refused.

    Raises:
        ConfigurationError: The address is none.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        clean: Redactor,
        *,
        timeout: float,
        idle_timeout: float = 300.0,
        connect_timeout: float,
        connections: int,
        trust_env: bool,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._url = _url(url, clean)
        self._host = self._url.netloc.decode("ascii")
        self._post = Post(core_url(self._url), httpx.Headers({"host": self._host, **headers}).raw, connect_timeout)
        self._clean = clean
        guard_log(clean)
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._most = connections
        self._trust_env = trust_env
        self._max_bytes = max_bytes
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[Connections, AsyncGenerator[None]]] = {}

    async def post(self, body: bytes) -> Answer | ModelFailed:
        """Send one request and read its answer to the end; no retry.

        Raises:
            ConfigurationError: The proxy or the certificates that the environment names cannot be used.
        """
        return await self._guarded(functools.partial(self._exchange, body))

    async def stream(self, body: bytes, listener: Listener) -> Answer | ModelFailed:
        """Send one request and give the events of its answer to a listener as they come.

        The answer has no body then, and is marked as `streamed`. One that is no stream is read as by `post`.

        Raises:
            ConfigurationError: The proxy or the certificates that the environment names cannot be used.
        """
        return await self._guarded(functools.partial(self._listen, body, listener))

    async def _guarded(self, exchange: Callable[[Connection], Awaitable[Answer]]) -> Answer | ModelFailed:
        connections = await self._connections()
        try:
            return await connections.lend(exchange)
        except _TooSlow as error:
            return self._failed("timeout", str(error))
        except httpcore.TimeoutException:
            return self._failed("timeout", f"no connection within {self._post.connect_timeout:g} s")
        except (Unfit, _TooLong) as error:
            return self._failed("protocol", str(error))
        except (h11.RemoteProtocolError, httpcore.RemoteProtocolError) as error:
            cut = any(words in str(error) for words in _CUT)
            return self._failed("network" if cut else "protocol", str(error))
        except _BROKEN as error:
            return self._failed("network", str(error) or f"the connection broke ({type(error).__name__})")

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of other loops close with their loop."""
        if found := self._by_loop.get(asyncio.get_running_loop()):
            await found[1].aclose()

    async def _exchange(self, body: bytes, connection: Connection) -> Answer:
        try:
            async with asyncio.timeout(self._timeout), self._answered(connection, body) as (answer, chunks):
                return await self._read(answer, chunks)
        except TimeoutError:
            raise _TooSlow(f"the answer was not complete after {self._timeout:g} s") from None

    async def _listen(self, body: bytes, listener: Listener, connection: Connection) -> Answer:
        patience = Patience(self._timeout, self._idle_timeout)
        answer = Answer(0, {}, b"")
        try:
            async with patience.limit, self._answered(connection, body) as (answer, chunks):
                start = await start_of(chunks, patience)
                if answer.status not in _GOOD or not is_stream(start, answer.headers.get("content-type", "")):
                    patience.wait_for_all()
                    return await self._read(answer, joined(start, chunks))
                await self._hear(start, chunks, listener, patience)
        except TimeoutError:
            if not listener.whole:
                raise _TooSlow(patience.what) from None
        except (Unfit, *_BROKEN):
            if not listener.whole:
                raise
        return Answer(answer.status, answer.headers, b"", streamed=True)

    async def _hear(self, start: bytes, chunks: AsyncIterator[bytes], listener: Listener, patience: Patience) -> None:
        events = Events(self._max_bytes)
        chunk: bytes | None = start
        while chunk is not None:
            _tell(events.feed(chunk), listener, patience)
            if listener.done:
                break
            if events.problem:
                raise Unfit(events.problem)
            patience.wait(afterword=listener.whole)
            chunk = await anext(chunks, None)
        else:
            last = events.end()
            if events.problem:
                raise Unfit(events.problem)
            _tell(last, listener, patience)
        with suppress(TimeoutError, Unfit, *_BROKEN):
            async with asyncio.timeout(LEAVE):
                async for _ in chunks:
                    pass

    @asynccontextmanager
    async def _answered(
        self, connection: Connection, body: bytes
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """An answer whose body is still to come, and the body's chunks."""
        response = await connection.post(body)
        try:
            headers = dict(httpx.Headers(response.headers).items())
            stated = int(headers.get("content-length", 0))
            if stated > self._max_bytes:
                raise self._too_long(str(stated))
            packing = headers.get("content-encoding", "").lower()
            body_chunks = response.chunks
            if packing in PACKINGS:
                body_chunks = unpacked(body_chunks, packing, self._max_bytes)
            async with aclosing(body_chunks) as chunks:
                yield Answer(response.status, headers, b""), chunks
        finally:
            await response.end()

    async def _read(self, answer: Answer, chunks: AsyncIterator[bytes]) -> Answer:
        found, size = [], 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._max_bytes:
                raise self._too_long(f"more than {self._max_bytes}")
            found.append(chunk)
        return Answer(answer.status, answer.headers, b"".join(found))

    def _too_long(self, size: str) -> _TooLong:
        return _TooLong(f"an answer of {size} bytes, at most {self._max_bytes} are read")

    def _failed(self, kind: FailureKind, what: str) -> ModelFailed:
        return ModelFailed(kind, self._clean(f"{self._host}: {what}"))

    async def _connections(self) -> Connections:
        loop = asyncio.get_running_loop()
        if found := self._by_loop.get(loop):
            return found[0]
        connections = Connections(self._most, self._connection_maker())
        keeper = self._until_loop_ends(loop, connections)
        self._by_loop[loop] = connections, keeper
        await anext(keeper)
        return connections

    async def _until_loop_ends(self, loop: asyncio.AbstractEventLoop, connections: Connections) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            del self._by_loop[loop]
            await connections.aclose()

    def _connection_maker(self) -> Callable[[], Connection]:
        try:
            return connection_maker(self._url, self._post, trust_env=self._trust_env)
        except (ValueError, RuntimeError, OSError, httpx.InvalidURL) as error:
            msg = (
                f"cannot reach {self._host} the way the environment says: {self._clean(str(error))}; "
                "mend the proxy variables or SSL_CERT_FILE, or give trust_env=False"
            )
            raise ConfigurationError(msg) from None


def _url(address: str, clean: Redactor) -> httpx.URL:
    try:
        url = httpx.URL(address)
        _ = url.host  # which is read only when it is asked for, and may be no name then
    except (httpx.InvalidURL, ValueError) as error:
        msg = f"base_url names no host: {clean(str(error))}; give an address such as 'https://api.openai.com/v1'"
        raise ConfigurationError(msg) from None
    return url


def _tell(events: list[Event], listener: Listener, patience: Patience) -> None:
    if events:
        patience.heard()
    for name, data in events:
        listener.take(name, data)


class _TooLong(Exception):
    """An answer exceeds the cap; carries how long it is and what is read."""


class _TooSlow(Exception):
    """An answer, or the next piece of it, did not come in time; carries what was waited for."""
