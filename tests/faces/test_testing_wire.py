"""The scripted server, read through a bare socket, so that what is sent is seen byte for byte."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.testing import WireRequest, WireServer


def talk(server: WireServer, *requests: bytes) -> bytes:
    """Send requests on one connection, and read until the server closes, or has nothing more to say."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for request in requests:
            connection.sendall(request)
        with suppress(OSError):  # a server that resets the connection may be quicker
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


GET = b"GET /path?x=1 HTTP/1.1\r\nHost: h\r\nX-Name:  value \r\n\r\n"


def post(body: bytes) -> bytes:
    """A request with a body."""
    return b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("exchange", "sent"),
    [
        pytest.param(
            {"status": 200, "body": {"a": 1}},
            b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n{"a": 1}',
            id="json",
        ),
        pytest.param(
            {"body": None},
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnull",
            id="null",
        ),
        pytest.param(
            {"status": 503, "text": "é", "headers": {"Content-Type": "x/y", "Retry-After": "7"}},
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: x/y\r\nretry-after: 7\r\n"
            b"content-length: 2\r\n\r\n\xc3\xa9",
            id="text",
        ),
        pytest.param(
            {"status": 599},
            b"HTTP/1.1 599 Unknown\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 0\r\n\r\n",
            id="no-body",
        ),
        pytest.param(
            {"sse": ["event: a\ndata: 1", "data: 2"], "eol": "\r\n"},
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            b"15\r\nevent: a\r\ndata: 1\r\n\r\n\r\nb\r\ndata: 2\r\n\r\n\r\n0\r\n\r\n",
            id="sse",
        ),
        pytest.param(
            {"raw_text_chunks": ["ab", "c"]},
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            id="text-chunks",
        ),
        pytest.param(
            {"raw_hex_chunks": ["f09f", "8c8d"], "headers": {"content-type": "text/event-stream"}},
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            b"2\r\n\xf0\x9f\r\n2\r\n\x8c\x8d\r\n0\r\n\r\n",
            id="hex-chunks",
        ),
        pytest.param(
            {"headers": {"Content-Length": "9"}, "text": "half"},
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nhalf",
            id="a-length-that-is-wrong",
        ),
        pytest.param({"status": "close_before_response"}, b"", id="close-before-response"),
    ],
)
def test_what_an_exchange_sends(exchange: dict[str, Any], sent: bytes) -> None:
    """Tests of clients stand on these bytes."""
    with WireServer([exchange]) as server:
        assert talk(server, GET) == sent


def test_a_reset_is_a_reset() -> None:
    """What was sent before arrives, and then the connection breaks instead of ending."""
    with WireServer([{"text": "half", "end": "reset"}]) as server, pytest.raises(ConnectionResetError):
        talk(server, GET)


@pytest.mark.parametrize("exchange", [{"status": "hang"}, {"text": "half", "end": "hang"}])
def test_a_hang_lasts_until_the_server_closes(exchange: dict[str, Any]) -> None:
    """Nothing more comes, and the test that is done need not wait for it."""
    server = WireServer([exchange]).start()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(GET)
        server.wait_for(1)
        server.close()
        rest = b""
        while piece := connection.recv(65536):
            rest += piece
    assert rest.endswith(b"half\r\n" if "text" in exchange else b"")


def test_every_request_is_kept_as_it_came() -> None:
    """Method, path, headers and body, JSON or not, framed either way, several on one connection."""
    chunked = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n3;x=y\r\n 2]\r\n0\r\n\r\n"
    with WireServer([{"body": 1}] * 4) as server:
        talk(server, GET, post(b'{"a": [true]}'), post(b"no json"), chunked)
    assert server.requests == [
        WireRequest("GET", "/path?x=1", {"host": "h", "x-name": "value"}, b"", None),
        WireRequest("POST", "/", {"content-length": "13"}, b'{"a": [true]}', {"a": [True]}),
        WireRequest("POST", "/", {"content-length": "7"}, b"no json", None),
        WireRequest("POST", "/c", {"transfer-encoding": "chunked"}, b"[1, 2]", [1, 2]),
    ]
    assert server.connections == 1


def test_a_repeated_exchange_numbers_its_texts() -> None:
    """Ten calls with ten ids from one line of a script."""
    exchange = {
        "body": {"id": "c{n}", "list": ["{n}", 7], "none": None},
        "headers": {"x-request-id": "r{n}"},
        "repeat": 2,
    }
    with WireServer([exchange, {"body": "{n}"}]) as server:
        answer = talk(server, GET, GET, GET)
    assert b'{"id": "c1", "list": ["1", 7], "none": null}' in answer
    assert b"x-request-id: r2" in answer
    assert answer.endswith(b'"{n}"')


def test_a_request_too_many_is_told_so() -> None:
    """An error that no client retries, and whose text says what the test forgot."""
    with WireServer([{"body": 1}]) as server:
        answer = talk(server, GET, GET)
    assert b"400 Bad Request" in answer
    assert b"request 2 came, and all 1 exchanges were played" in answer


def test_a_function_answers_by_what_it_was_asked() -> None:
    """For a server that must look at the request."""
    with WireServer([lambda request: {"body": request.path}]) as server:
        assert talk(server, GET).endswith(b'"/path?x=1"')


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ({"statsu": 200}, "exchange 1 has the unknown key 'statsu'; the keys are body, end, eol, "),
        ({"end": "bang"}, "exchange 1: end is one of close, reset, hang; got 'bang'"),
        ("hello", "exchange 1 is a mapping such as"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_at_once(exchange: Any, words: str) -> None:
    """A slip in a script would look like a fault of the client."""
    with pytest.raises(ConfigurationError) as caught:
        WireServer([exchange])
    assert words in str(caught.value)


async def test_it_serves_async_code_too() -> None:
    """Its threads never need the loop that waits for them."""
    async with WireServer([{"body": 1}]) as server:
        answer = await asyncio.to_thread(talk, server, GET)
    assert answer.endswith(b"1")


def test_it_has_an_address_while_it_runs_only() -> None:
    """Closing twice, or without a start, is no error."""
    server = WireServer()
    with pytest.raises(UsageError, match="isn't running"):
        _ = server.url
    server.close()
    assert server.start().url.startswith("http://127.0.0.1:")
    server.close()
    server.close()
    with pytest.raises(UsageError, match="isn't running"):
        _ = server.url
