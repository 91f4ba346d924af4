"""A weather service on loopback, for the tools that ask Open-Meteo."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest


@pytest.fixture
def asked() -> list[str]:
    """The path and query of every request that the weather service got."""
    return []


@pytest.fixture
def serve(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mapping[str, object]], str]]:
    """Start a service that gives each path its reply, point the tools at it, and return its base URL.

    A reply is a status and a body, or a function from the path and query to these; None leaves the client waiting until
    the test ends.
    """
    with ExitStack() as stack:

        def start(replies: Mapping[str, object]) -> str:
            url = stack.enter_context(_running(replies, asked))
            monkeypatch.setenv("TURNSTILE_OPEN_METEO_URL", url)
            return url

        yield start


@pytest.fixture
def replies() -> dict[str, object]:
    """What a service replies that knows every place by the name it was asked for, and has one weather for all."""
    current = {
        "time": "2025-10-03T20:00",
        "temperature_2m": 18.3,
        "apparent_temperature": 17,
        "relative_humidity_2m": 41,
        "wind_speed_10m": 7.4,
        "weather_code": 2,
    }
    daily = {"temperature_2m_max": [22.6] * 31, "temperature_2m_min": [12.4] * 31, "precipitation_sum": [2.0] * 31}

    def find(path: str) -> tuple[int, bytes]:
        name = parse_qs(urlsplit(path).query)["name"][0]
        place = {"name": name, "latitude": 39.9, "longitude": 116.4, "country": "China"}
        return 200, json.dumps({"results": [place]}).encode()

    return {
        "/v1/search": find,
        "/v1/forecast": (200, json.dumps({"current": current}).encode()),
        "/v1/archive": (200, json.dumps({"daily": daily}).encode()),
    }


@pytest.fixture
def service(serve: Callable[[Mapping[str, object]], str], replies: dict[str, object]) -> None:
    """Start that service."""
    serve(replies)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Point the tools at a port that refuses: it is bound, so nothing else can take it, and nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TURNSTILE_OPEN_METEO_URL", f"http://127.0.0.1:{bound.getsockname()[1]}/")
        yield


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for every answer to end
    request_queue_size = 64  # with the usual 5, the sixth of many connections at once is tried again after a second


class _running:  # noqa: N801 - used like a function: `with _running(...) as url`
    """One HTTP server in its own thread, from entry to exit."""

    def __init__(self, replies: Mapping[str, object], asked: list[str]) -> None:
        self.over = over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                reply = replies.get(self.path.partition("?")[0], (404, b""))
                if callable(reply):
                    reply = reply(self.path)
                if not isinstance(reply, tuple):
                    over.wait()
                    return
                status, body = reply
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
                """Keep the test's output to itself."""

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> str:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
