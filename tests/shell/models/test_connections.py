"""Connections that are kept, left by the server, encrypted or flooded: each request finds one that works."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpcore
import pytest
import trustme

from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, UserTurn
from turnstile.models import OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.shell.models.direct import Direct, Post
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

    def __init__(self, last_words: bytes = b"", *, closes: bool, answer: bytes = DONE) -> None:
        self._last_words = last_words
        self._answer = answer
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
                connection.sendall(self._answer)
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


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(DONE.replace(b"done", b"evil"), id="an-answer"),
        pytest.param(TIRED, id="a-408"),
        pytest.param(b"\r\n", id="a-line-break"),
    ],
)
async def test_what_comes_behind_an_answer_is_not_the_answer_to_the_next_request(
    hello: ModelRequest, behind: bytes
) -> None:
    """In one packet with an answer it is read with it: one run would get what another's request was answered with."""
    server = Leaver(closes=False, answer=DONE + behind)
    server.leave.set()
    serving = asyncio.create_task(asyncio.to_thread(server.serve, 2))
    client = OpenAIChat("m", base_url=server.url, stream=False)
    assert [await said(client, hello) for _ in range(2)] == ["done"] * 2
    await client.aclose()
    await serving


async def test_what_comes_behind_an_answer_through_a_proxy_is_not_the_answer_to_the_next_request(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another library reads it, and takes it for that: the request was sent by then, so that it has failed."""
    proxy = Leaver(closes=False, answer=DONE + DONE.replace(b"done", b"evil"))
    proxy.leave.set()
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    serving = asyncio.create_task(asyncio.to_thread(proxy.serve, 2))
    client = OpenAIChat("m", base_url="http://model.invalid", stream=False)
    words = "protocol: model.invalid: what stood behind the answer before is no answer"
    assert [await said(client, hello) for _ in range(3)] == ["done", words, "done"]
    await client.aclose()
    await serving


async def test_what_a_server_says_before_its_answer_is_passed_over(hello: ModelRequest) -> None:
    """A proxy in front of a server may send early hints, or say that the request came, while the model thinks."""
    server = Leaver(closes=False, answer=b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + DONE)
    server.leave.set()
    serving = asyncio.create_task(asyncio.to_thread(server.serve, 1))
    client = OpenAIChat("m", base_url=server.url, stream=False)
    assert await said(client, hello) == "done"
    await client.aclose()
    await serving


async def test_a_server_that_goes_on_in_another_protocol_is_a_failure(hello: ModelRequest) -> None:
    """Nothing that can be read comes behind such an answer, so that waiting for another would never end."""
    server = Leaver(closes=False, answer=b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n" + DONE)
    server.leave.set()
    serving = asyncio.create_task(asyncio.to_thread(server.serve, 1))
    client = OpenAIChat("m", base_url=server.url, headers={"connection": "upgrade", "upgrade": "h2c"}, stream=False)
    assert "the server gave no reason" in await said(client, hello)
    await client.aclose()
    await serving


async def test_a_connection_whose_answer_was_not_read_to_its_end_is_opened_anew() -> None:
    """A time limit may end just when an answer is whole, before its connection is free: it is no use any more."""
    server = Leaver(closes=False)
    server.leave.set()
    serving = asyncio.create_task(asyncio.to_thread(server.serve, 2))
    post = Post(httpcore.URL(server.url), [(b"host", b"model.invalid")], SECONDS)
    connection = Direct(ssl.create_default_context(), post)
    for _ in range(2):
        response = await connection.post(b"}")
        assert [part async for part in response.chunks] == [BODY]
    await connection.aclose()
    await serving


async def test_a_connection_that_holds_a_part_of_a_request_is_opened_anew(hello: ModelRequest) -> None:
    """A server may refuse a long request by its head and read no more: the next would wait behind the rest for ever."""
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"
    answered = threading.Event()

    def serve() -> None:
        with listening.accept()[0] as first:
            first.recv(65536)
            first.sendall(refusal)
            with listening.accept()[0] as second:
                while not second.recv(65536).endswith(b"}"):
                    pass
                second.sendall(DONE)
                answered.wait(SECONDS)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SECONDS)
        serving = asyncio.create_task(asyncio.to_thread(serve))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = OpenAIChat("m", base_url=url, stream=False, timeout=SECONDS / 2)
        long = ModelRequest("", [UserTurn("x" * (16 * 1024 * 1024))])  # more than the system keeps for a reader
        assert "context_overflow" in await said(client, long)
        assert await said(client, hello) == "done"
        answered.set()
        await client.aclose()
        await serving


async def test_a_request_cancelled_while_its_connection_opens_leaves_none_behind() -> None:
    """Each moment of it: Python warns of a socket that nobody closed, and tests take that for a failure."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for moments in range(20):
            opening = asyncio.create_task(connect("127.0.0.1", listening.getsockname()[1], None))
            for _ in range(moments):
                await asyncio.sleep(0)
            opening.cancel()
            (stream,) = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(stream, BaseException):
                await stream.aclose()
    gc.collect()


async def test_another_address_of_a_host_is_tried() -> None:
    """Half of the world has an IPv6 that leads nowhere: here nobody listens at what may be the first address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = await connect("localhost", listening.getsockname()[1], None)
        await stream.aclose()


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


async def test_a_flood_does_not_hold_up_the_loop() -> None:
    """A hostile server may send a thousand tiny chunks in each packet: no time limit would end that, nor Ctrl-C."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = await connect("127.0.0.1", listening.getsockname()[1], None)
        stream.data_received(b"x" * MOST_UNREAD)  # what the loop has read at once
        others = asyncio.create_task(take_turns())
        for piece in range(8):
            assert turns >= piece
            await stream.read(MOST_UNREAD // 8)
        others.cancel()
        await stream.aclose()


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_connection_that_broke_before_anything_was_sent_is_told_with_the_systems_words(kind: str) -> None:
    """A server that is overloaded resets what it has just accepted; each loop tells so in its own way."""
    loops = pytest.importorskip(kind)

    async def ask() -> None:
        stream = await connect("127.0.0.1", listening.getsockname()[1], None)
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        await stream._closed.wait()
        stream.send(b"?")
        with pytest.raises(httpcore.ReadError, match="reset"):
            await stream.read(1)
        await stream.aclose()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        loops.run(ask())


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


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """What a client needs to know of an authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_an_encrypted_answer_that_waits_to_be_read_is_whole(authority: trustme.CA, kind: str) -> None:
    """The loop uvloop throws away what waits for a slow reader when the server closes."""
    loops = pytest.importorskip(kind)
    sent = 48 * MOST_UNREAD  # more than the system keeps for a reader, so that some waits with us
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    def serve() -> None:
        with context.wrap_socket(listening.accept()[0], server_side=True) as stream:
            stream.recv(1)
            stream.sendall(b"x" * sent)

    async def read_all() -> int:
        serving = asyncio.create_task(asyncio.to_thread(serve))
        stream = await connect("localhost", listening.getsockname()[1], trusting(authority))
        stream.send(b"?")
        received = 0
        while data := await stream.read(MOST_UNREAD // 4):
            received += len(data)
            await asyncio.sleep(0)  # the loop may read on
        await serving
        await stream.aclose()
        return received

    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert loops.run(read_all()) == sent


async def test_an_encrypted_connection_that_broke_is_of_no_use_at_each_moment(authority: trustme.CA) -> None:
    """The socket is closed first, and asyncio tells us in the next round: a request may come between."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)

        def reset() -> None:
            with context.wrap_socket(listening.accept()[0], server_side=True) as stream:
                stream.recv(1)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        resetting = asyncio.create_task(asyncio.to_thread(reset))
        stream = await connect("localhost", listening.getsockname()[1], trusting(authority))
        stream._transport.write(b"x")
        usable = True
        while not stream._closed.is_set():
            usable = stream.is_quiet()
            await asyncio.sleep(0)
        assert not usable
        await resetting


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


@contextmanager
def broken_tunnel(authority: trustme.CA) -> Iterator[int]:
    """The port of a proxy whose tunnel leads to an encrypted server that spoils its answer half-way."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("model.invalid").configure_cert(context)

    def serve() -> None:
        connection, _ = listening.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as stream:
            while not stream.recv(65536).endswith(b"}"):
                pass
            stream.sendall(DONE[:-1])
            with socket.socket(fileno=os.dup(stream.fileno())) as beneath:
                beneath.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)  # a record that nobody has encrypted
            with suppress(OSError):
                stream.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listening.getsockname()[1]
        serving.join(SECONDS)


def test_an_encrypted_answer_that_is_spoilt_behind_a_proxy_is_a_network_failure(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """What goes through a proxy is read by another library, whose errors are others."""
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(roots)
    with broken_tunnel(authority) as port:
        done = subprocess.run(
            [sys.executable, "-c", ASK, "https://model.invalid", "1"],
            env={**os.environ, "SSL_CERT_FILE": str(roots), "HTTPS_PROXY": f"http://127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert "network" in done.stdout


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
