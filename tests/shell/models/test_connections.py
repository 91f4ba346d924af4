"""Connections that are kept, left by the server, encrypted or flooded: each request finds one that works."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpcore
import pytest
import trustme

from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply
from turnstile.models import OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.shell.models.socket_stream import MOST_UNREAD, connect

BODY = b'{"choices": [{"index": 0, "message": {"content": "done"}}]}'
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
LAST = DONE.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
TIRED = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"  # HAProxy says so, unasked
SECONDS = 10  # that a test waits for something that has surely gone wrong by then


async def said(client: OpenAIChat, request: ModelRequest) -> str:
    """What a client got: the text, or the failure's kind and message."""
    outcome = await client.reply(request, lambda delta: None)
    return outcome.text if isinstance(outcome, Reply) else f"{outcome.kind}: {outcome.message}"


class Leaver:
    """A server that answers one request of each connection, and leaves the connection when it is told to."""

    def __init__(self, last_words: bytes, *, closes: bool) -> None:
        self._last_words = last_words
        self._closes = closes
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(SECONDS)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.leave = threading.Event()
        self.left = threading.Event()

    def serve(self, connections: int) -> None:
        """Serve that many connections, one after the other."""
        with ExitStack() as stack:
            stack.enter_context(self._listening)
            for _ in range(connections):
                connection = stack.enter_context(self._listening.accept()[0])
                while not connection.recv(65536).endswith(b"}"):
                    pass
                connection.sendall(DONE)
                self.leave.wait(SECONDS)
                connection.sendall(self._last_words)
                if self._closes:
                    connection.close()
                self.left.set()


@pytest.mark.parametrize(
    ("last_words", "closes"),
    [
        pytest.param(b"", True, id="silently"),
        pytest.param(TIRED, True, id="with-a-408"),
        pytest.param(TIRED, False, id="with-a-408-and-without-closing"),
    ],
)
@pytest.mark.parametrize("busy", [False, True], ids=["seen-by-the-loop", "while-the-loop-was-busy"])
async def test_a_connection_that_the_server_left_is_opened_anew(
    hello: ModelRequest, last_words: bytes, *, closes: bool, busy: bool
) -> None:
    """A tool may run for minutes: what came meanwhile is no answer to the next request, and its loss no failure."""
    server = Leaver(last_words, closes=closes)
    serving = asyncio.create_task(asyncio.to_thread(server.serve, 2))
    client = OpenAIChat("m", base_url=server.url, stream=False)
    assert await said(client, hello) == "done"
    server.leave.set()
    if busy:
        assert server.left.wait(SECONDS)  # the loop stands still, as under a tool that blocks it
    else:
        assert await asyncio.to_thread(server.left.wait, SECONDS)
        for _ in range(3):  # the loop looks at its sockets, and then hears from them
            await asyncio.sleep(0)
    assert await said(client, hello) == "done"
    await client.aclose()
    await serving


async def test_a_name_that_no_host_can_have_is_a_network_failure(hello: ModelRequest) -> None:
    """A typing error in an address is told like any other host that cannot be reached."""
    client = OpenAIChat("m", base_url=f"http://{'a' * 64}.invalid")
    failed = await client.reply(hello, lambda delta: None)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "network"


async def test_what_nobody_reads_is_left_with_the_sender() -> None:
    """A server that sends faster than we read must not fill our memory."""
    sent = 64 * MOST_UNREAD

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"x" * sent)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(asyncio.to_thread(serve))
        stream = await connect("127.0.0.1", listening.getsockname()[1], None)
        received = most = 0
        while data := await stream.read(MOST_UNREAD // 8):
            received += len(data)
            most = max(most, len(stream._received))
            await asyncio.sleep(0)  # the loop may read on
        await stream.aclose()
        await serving
    assert received == sent
    assert most <= 2 * MOST_UNREAD


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Whoever signs certificates."""
    return trustme.CA()


@contextmanager
def encrypted(authority: trustme.CA, name: str, connections: int) -> Iterator[int]:
    """The port of a server that answers one request on each of some encrypted connections, and closes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    ended: Future[None] = Future()

    def serve(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as stream:
                while not stream.recv(65536).endswith(b"}"):
                    pass
                stream.sendall(LAST)
        except OSError:
            connection.close()  # the client did not like the certificate

    def accept() -> None:
        for _ in range(connections):
            serve(listening.accept()[0])
        ended.set_result(None)

    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=accept).start()
        yield listening.getsockname()[1]
        ended.result(SECONDS)


ASK = """
import asyncio, sys
from turnstile.models import OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.core.messages import UserTurn

async def main():
    client = OpenAIChat("m", base_url=sys.argv[1], stream=False)
    for _ in range(int(sys.argv[2])):
        outcome = await client.reply(ModelRequest("", [UserTurn("hello")]), lambda delta: None)
        print(getattr(outcome, "text", None) or f"{outcome.kind}: {outcome.message}")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("name", "trusted", "words"),
    [
        pytest.param("localhost", True, ["done", "done"], id="trusted"),
        pytest.param("localhost", False, ["network: ", "CERTIFICATE_VERIFY_FAILED"], id="unknown-authority"),
        pytest.param("other.invalid", True, ["network: ", "Hostname mismatch"], id="another-name"),
    ],
)
def test_an_encrypted_server_is_asked_only_when_its_certificate_is_good(
    authority: trustme.CA, tmp_path: Path, name: str, words: list[str], *, trusted: bool
) -> None:
    """A key goes to nobody but the server that it is for; the certificates that the environment names are its own."""
    roots = tmp_path / "roots.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(roots)
    requests = words.count("done") or 1
    with encrypted(authority, name, requests) as port:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", ASK, f"https://localhost:{port}", str(requests)],
            env={**os.environ, "SSL_CERT_FILE": str(roots)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    for word in words:
        assert word in done.stdout
    assert done.stdout.count("done") == words.count("done")


async def test_a_server_that_ends_the_handshake_is_told_with_the_systems_words(authority: trustme.CA) -> None:
    """Plain HTTP behind an https address is a common mistake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        with pytest.raises(httpcore.ConnectError, match=r"(?i)ssl"):
            await connect("127.0.0.1", listening.getsockname()[1], ssl.create_default_context())
        await refusing
