"""`WireServer`: a model server on loopback that answers exactly as a script says, however wrong that is."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from types import TracebackType
from typing import Self

from turnstile.core.errors import UsageError
from turnstile.core.strict_json import JsonValue
from turnstile.testing.exchange import Script, body_pieces, check, headers_for, repeated, status_line

PATIENCE = 10.0  # seconds that a test waits for something that has surely gone wrong by then

Exchange = Script | Callable[["WireRequest"], Script]

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: closing sends a reset (POSIX, "setsockopt")


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request as it arrived.

    Attributes:
        method: ``POST``, as a rule.
        path: What was asked for, query included.
        headers: Its headers, names in lower case.
        content: The body's bytes.
        body: The body as JSON; ``None`` when it is none.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    body: JsonValue


class WireServer:
    r"""A server that plays scripted exchanges, one for each request, faults included, and keeps every request.

    ::

        with WireServer([
            {"status": 429, "headers": {"retry-after": "2"}, "body": {"error": {"message": "slow down"}}},
            {"status": 200, "body": {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}},
        ]) as server:
            agent = Agent(OpenAIChat("any", base_url=server.url), clock=FrozenClock())
            assert agent.run_sync("Hi").output == "Hello"
        assert len(server.requests) == 2

    It runs in threads of its own, so it serves sync and async code alike: use it with ``with`` or ``async with``, or
    call `start` and `close`.

    An exchange is a mapping, or a function from the `WireRequest` to one:

    ``status``
        The HTTP status, 200 by default. ``"hang"``: read the request, answer nothing and keep the connection open.
        ``"close_before_response"``: read the request and close.
    ``headers``
        Headers of the answer. With a ``content-length`` among them, or a ``transfer-encoding``, the body is sent as it
        is, unframed, and the connection closed.
    ``body`` / ``text``
        The body: a JSON value, or text as it is.
    ``sse``
        A list of events of a stream, each sent as its lines and a blank line; ``eol`` is the end of a line, ``"\n"``
        by default.
    ``raw_text_chunks`` / ``raw_hex_chunks``
        The exact chunks of the body.
    ``end``
        How it ends. ``"close"``, the default: properly. ``"reset"``: the connection is reset inside the body.
        ``"hang"``: the connection stays open and nothing more comes.
    ``repeat``
        How many requests are answered so; ``{n}`` in a text then is the number of the request among them, from 1.

    A request for which no exchange is left is answered 400, saying so.

    Args:
        exchanges: What to play.

    Attributes:
        requests: Every request so far.
        connections: How many connections were opened.

    Raises:
        ConfigurationError: An exchange has a key or an end that is none.
    """

    def __init__(self, exchanges: Sequence[Exchange] = ()) -> None:
        for place, exchange in enumerate(exchanges, 1):
            if not callable(exchange):
                check(exchange, f"exchange {place}")
        self._script = (each for exchange in exchanges for each in _spelt_out(exchange))
        self._length = len(exchanges)
        self._arrived = threading.Condition()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.requests: list[WireRequest] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """Its address, such as ``http://127.0.0.1:40001``.

        Raises:
            UsageError: It isn't running.
        """
        if self._server is None:
            raise UsageError("this WireServer isn't running; use it as `with WireServer(…) as server`")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> Self:
        """Begin to serve."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """End all connections and stop."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self._server = self._thread = None
        server.shutdown()
        thread.join(PATIENCE)
        server.end_connections()
        server.server_close()

    def wait_for(self, count: int) -> None:
        """Wait until so many requests have arrived; in async code, ``await asyncio.to_thread(server.wait_for, 1)``.

        Raises:
            TimeoutError: They have not arrived after ten seconds.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, PATIENCE):
                raise TimeoutError(f"expected {count} requests, got {len(self.requests)} in {PATIENCE:g} s")

    def answer_to(self, request: WireRequest) -> Script:
        """Keep a request, and give what to play."""
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
            exchange = next(self._script, None)
        if exchange is None:
            problem = f"WireServer: request {len(self.requests)} came, and all {self._length} exchanges were played"
            return {"status": 400, "body": {"error": {"message": problem}}}
        if callable(exchange):
            exchange = exchange(request)
            check(exchange, "the exchange that a function gave")
        return exchange

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


class _Server(socketserver.ThreadingTCPServer):
    """Accepts connections, each in a thread of its own, and knows which are open."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, owner: WireServer) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.owner = owner
        self.closing = threading.Event()
        self.open: dict[threading.Thread, socket.socket] = {}

    def end_connections(self) -> None:
        """End every connection and wait for its thread."""
        self.closing.set()
        for thread, connection in list(self.open.items()):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


class _Connection(socketserver.StreamRequestHandler):
    """Reads requests from one connection and plays an exchange for each."""

    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.open[threading.current_thread()] = self.connection
        self.server.owner.connections += 1

    def finish(self) -> None:
        self.server.open.pop(threading.current_thread(), None)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):
            while (request := _read_request(self.rfile)) and self._play(self.server.owner.answer_to(request)):
                pass

    def _play(self, exchange: Script) -> bool:
        """Play an exchange; tells whether the connection can be used again."""
        status, end = exchange.get("status", 200), exchange.get("end", "close")
        if status == "close_before_response":
            return False
        if status != "hang":
            pieces = list(body_pieces(exchange))
            headers, framed = headers_for(exchange, pieces)
            self.wfile.write(status_line(status, headers))
            for piece in pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if framed else piece)
            if end == "close":
                if framed:
                    self.wfile.write(b"0\r\n\r\n")
                return "connection" not in headers
        if end == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.rfile.close()
            self.connection.close()
            return False
        self.server.closing.wait()
        return False


def _read_request(stream: BufferedIOBase) -> WireRequest | None:
    """The next request; ``None`` when the client has closed."""
    method, _, rest = stream.readline().decode("latin-1").partition(" ")
    if not rest:
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().decode("latin-1").strip():
        name, _, text = line.partition(":")
        headers[name.lower()] = text.strip()
    content = stream.read(int(headers.get("content-length", 0)))
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int(stream.readline().partition(b";")[0], 16):
            content += stream.read(size)
            stream.readline()
        stream.readline()
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    return WireRequest(method, rest.rpartition(" ")[0], headers, content, body)


def _spelt_out(exchange: Exchange) -> Iterable[Exchange]:
    return (exchange,) if callable(exchange) else repeated(exchange)
