"""The way to a server and back: each fault of a network, a loop or a proxy is one typed failure or none at all."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import socket
import threading
import traceback
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply
from turnstile.core.strict_json import MAX_BYTES
from turnstile.models import OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.testing import WireRequest, WireServer

Ask = Callable[..., Awaitable[Reply | ModelFailed]]
SOON = 0.2  # seconds of a time limit that a test wants to pass

DONE = {"status": 200, "body": {"choices": [{"index": 0, "message": {"content": "done"}}]}}


async def said(client: OpenAIChat, request: ModelRequest) -> str:
    """What a client got: the text, or the kind of the failure."""
    outcome = await client.reply(request, lambda delta: None)
    return outcome.text if isinstance(outcome, Reply) else outcome.kind


@pytest.mark.parametrize(
    ("exchange", "kind", "words"),
    [
        pytest.param({"status": "hang"}, "timeout", "not complete after 0.2 s", id="no-answer"),
        pytest.param({"text": "half", "end": "hang"}, "timeout", "not complete after 0.2 s", id="stall-in-body"),
        pytest.param({"status": "close_before_response"}, "network", "disconnected", id="close-before-response"),
        pytest.param({"text": "half", "end": "reset"}, "network", "127.0.0.1", id="reset-in-body"),
        pytest.param({"status": "hang", "end": "reset"}, "network", "127.0.0.1", id="reset-before-response"),
        pytest.param({"headers": {"content-length": "100"}, "text": "half"}, "network", "peer closed", id="cut-body"),
        pytest.param(
            {"headers": {"transfer-encoding": "chunked"}, "text": "4"},
            "network",
            "closed connection",
            id="cut-chunk-size",
        ),
        pytest.param(
            {"headers": {"transfer-encoding": "chunked"}, "text": "4\r\nhalf\r\n0\r\nx"},
            "network",
            "closed connection",
            id="cut-trailer",
        ),
        pytest.param(
            {"headers": {"content-length": "-1"}, "text": ""}, "protocol", "127.0.0.1", id="bad-content-length"
        ),
        pytest.param(
            {"headers": {"transfer-encoding": "chunked"}, "text": "zz\r\n"}, "protocol", "127.0.0.1", id="bad-chunk"
        ),
        pytest.param(
            {"headers": {"content-encoding": "gzip"}, "text": "no gzip"}, "protocol", "127.0.0.1", id="bad-gzip"
        ),
        pytest.param({"headers": {"x-big": "x" * 200_000}, "text": ""}, "protocol", "127.0.0.1", id="huge-header"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_broken_exchange_is_one_typed_failure(
    ask: Ask, exchange: dict[str, Any], kind: str, words: str, *, stream: bool
) -> None:
    """Half an answer is never a short answer, and the failure says which server it was."""
    failed = await ask(exchange, timeout=SOON if kind == "timeout" else 10, stream=stream)
    assert isinstance(failed, ModelFailed)
    assert failed.kind == kind
    assert words in failed.message


async def test_nobody_listening_is_a_network_failure(hello: ModelRequest) -> None:
    """The commonest fault of all."""
    server = WireServer().start()
    client = OpenAIChat("m", base_url=server.url)
    server.close()
    assert await said(client, hello) == "network"
    await client.aclose()


@pytest.mark.parametrize("base_url", ["http://a\0b/v1", "http://\u2488com/v1", "http://xn--/v1"])
async def test_an_address_that_names_no_host_is_a_clear_error(hello: ModelRequest, base_url: str) -> None:
    """A library's own error would end the run with a traceback, and the environment is not to blame."""
    client = OpenAIChat("m", base_url=base_url)
    with pytest.raises(ConfigurationError, match=r"base_url names no host: .*; give an address such as"):
        await client.reply(hello, lambda delta: None)


async def test_a_connection_that_is_not_accepted_times_out(hello: ModelRequest) -> None:
    """A host that drops packets must not hold a run for minutes."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # fill the queue, so that the system leaves the next connection without an answer
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listening.getsockname())
        port = listening.getsockname()[1]
        client = OpenAIChat("m", base_url=f"http://127.0.0.1:{port}", connect_timeout=SOON)
        failed = await client.reply(hello, lambda delta: None)
        await client.aclose()
    assert failed == ModelFailed("timeout", f"127.0.0.1:{port}: no connection within 0.2 s")


@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param({"headers": {"content-length": str(MAX_BYTES + 1)}, "text": "["}, id="stated"),
        pytest.param({"raw_text_chunks": ["x" * 1_000_000] * (MAX_BYTES // 1_000_000 + 1)}, id="unstated"),
        pytest.param({"text": "[" + "0," * (MAX_BYTES // 2) + "0]"}, id="json-array"),
    ],
)
async def test_an_answer_that_is_too_long_is_refused_early(ask: Ask, exchange: dict[str, Any]) -> None:
    """A gigabyte from a broken server must not become a gigabyte here."""
    failed = await ask({"status": 200, **exchange})
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "protocol"
    assert f"at most {MAX_BYTES} are read" in failed.message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(cuts=st.lists(st.integers(0, 80), max_size=6))
def test_an_answer_means_the_same_however_it_is_cut(hello: ModelRequest, cuts: list[int]) -> None:
    """The network may cut an answer anywhere, also inside a character."""
    whole = '{"choices": [{"message": {"content": "大理 é 🐢"}, "finish_reason": "stop"}]}'.encode()
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(whole)), len(whole)]
    chunks = [whole[a:b].hex() for a, b in pairwise(places) if b > a]
    with WireServer([{"raw_hex_chunks": chunks}]) as server:
        client = OpenAIChat("m", base_url=server.url)
        assert asyncio.run(said(client, hello)) == "大理 é 🐢"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_packed_answer_is_unpacked(hello: ModelRequest, *, stream: bool) -> None:
    """Some gateways pack whatever they were asked for."""
    packed = gzip.compress(b'{"choices": [{"message": {"content": "done"}}]}')
    chunks = [packed[at : at + 8].hex() for at in range(0, len(packed), 8)]
    with WireServer([{"headers": {"content-encoding": "gzip"}, "raw_hex_chunks": chunks}]) as server:
        client = OpenAIChat("m", base_url=server.url, stream=stream)
        assert await said(client, hello) == "done"
        await client.aclose()


async def test_a_packed_answer_is_refused_before_it_fills_our_memory(hello: ModelRequest) -> None:
    """64 kilobytes unpack to 64 megabytes, and those of a body that is packed twice to 64 gigabytes."""
    bomb = gzip.compress(b"[" + b"0," * (4 * MAX_BYTES // 2))
    with WireServer([{"headers": {"content-encoding": "gzip"}, "raw_hex_chunks": [bomb.hex()]}]) as server:
        client = OpenAIChat("m", base_url=server.url)
        tracemalloc.start()
        try:
            assert await said(client, hello) == "protocol"
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await client.aclose()
    assert most < 2 * MAX_BYTES


async def test_an_answer_that_is_packed_twice_is_not_unpacked(ask: Ask) -> None:
    """No server needs to, and there is no bound to what it unpacks to."""
    packed = gzip.compress(gzip.compress(b'{"choices": [{"message": {"content": "done"}}]}'))
    failed = await ask({"headers": {"content-encoding": "gzip, gzip"}, "raw_hex_chunks": [packed.hex()]})
    assert isinstance(failed, ModelFailed)
    assert failed.kind == "protocol"


def test_connections_close_with_their_event_loop(hello: ModelRequest) -> None:
    """event-loop-closed-on-second-run: nobody calls aclose, no socket is left open, and a new loop just works."""
    with WireServer([DONE] * 6) as server:
        client = OpenAIChat("m", base_url=server.url)
        for _ in range(3):
            assert asyncio.run(said(client, hello)) == "done"
        del client
        gc.collect()
        assert asyncio.run(said(OpenAIChat("m", base_url=server.url), hello)) == "done"
        gc.collect()


def test_a_client_serves_loops_in_several_threads(hello: ModelRequest) -> None:
    """A web server with a loop a thread shares one agent."""
    results: list[str] = []
    with WireServer([DONE] * 8) as server:
        client = OpenAIChat("m", base_url=server.url)
        threads = [threading.Thread(target=lambda: results.append(asyncio.run(said(client, hello)))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["done"] * 8


async def test_a_client_can_be_closed_and_used_again(hello: ModelRequest) -> None:
    """An agent's `aclose` between two runs is no end, and closing twice is no error."""
    with WireServer([DONE] * 2) as server:
        client = OpenAIChat("m", base_url=server.url)
        await client.aclose()
        assert await said(client, hello) == "done"
        await client.aclose()
        await client.aclose()
        assert await said(client, hello) == "done"
        await client.aclose()


async def test_a_connection_is_used_again(hello: ModelRequest) -> None:
    """A new handshake a turn would cost more than the engine."""
    with WireServer([DONE] * 3) as server:
        client = OpenAIChat("m", base_url=server.url)
        for _ in range(3):
            await said(client, hello)
        await client.aclose()
    assert (len(server.requests), server.connections) == (3, 1)


async def test_no_more_requests_are_under_way_than_connections(hello: ModelRequest) -> None:
    """A thousand runs wait here, first come first served, and not in a pool that slows down with them."""
    under_way, most, lock = 0, 0, threading.Lock()
    full = threading.Barrier(3)

    def count(request: WireRequest) -> dict[str, Any]:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        full.wait(10)  # three are here at once, which proves that they are sent in parallel
        with lock:
            under_way -= 1
        return DONE

    with WireServer([count] * 12) as server:
        client = OpenAIChat("m", base_url=server.url, connections=3)
        assert await asyncio.gather(*(said(client, hello) for _ in range(12))) == ["done"] * 12
        await client.aclose()
    assert most == 3


async def test_cancelling_a_request_frees_its_place(hello: ModelRequest) -> None:
    """Ctrl-C during a request must leave nothing half done: the one connection there is serves the next request."""
    with WireServer([{"status": "hang"}, DONE]) as server:
        client = OpenAIChat("m", base_url=server.url, connections=1)
        task = asyncio.create_task(said(client, hello))
        await asyncio.to_thread(server.wait_for, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await said(client, hello) == "done"
        await client.aclose()


async def test_closing_while_a_request_is_under_way_closes_its_connection_afterwards(hello: ModelRequest) -> None:
    """One user's `aclose` does not break the request of another, and leaves nothing open."""
    go_on = threading.Event()

    def wait(request: WireRequest) -> dict[str, Any]:
        go_on.wait(10)
        return DONE

    with WireServer([wait]) as server:
        client = OpenAIChat("m", base_url=server.url)
        task = asyncio.create_task(said(client, hello))
        await asyncio.to_thread(server.wait_for, 1)
        await client.aclose()
        go_on.set()
        assert await task == "done"
        gc.collect()


async def test_a_server_on_this_machine_is_never_asked_through_a_proxy(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """no-proxy-cidr-crashes-client: a proxy cannot reach our loopback, and an odd NO_PROXY is no crash."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,::1,localhost")
    with WireServer([DONE] * 2) as server:
        for base_url in (server.url, server.url.replace("127.0.0.1", "localhost")):
            client = OpenAIChat("m", base_url=base_url)
            assert await said(client, hello) == "done"
            await client.aclose()


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_proxy_of_the_environment_is_used(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Many companies reach the world through one only."""
    with WireServer([DONE]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", scheme + proxy.url.removeprefix("http://"))
        client = OpenAIChat("m", base_url="http://model.invalid/v1")
        assert await said(client, hello) == "done"
        await client.aclose()
    assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"


async def test_a_key_is_in_no_log_of_what_goes_through_a_proxy(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """headers-logged-at-debug: another library speaks to proxies, and logs what they answer, the address included."""
    caplog.set_level(logging.DEBUG)
    with WireServer([{"status": 307, "headers": {"location": "http://model.invalid/v2?key=SECRET123"}}]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        client = OpenAIChat("m", base_url="http://model.invalid/v1?key=SECRET123")
        assert await said(client, hello) == "not_found"
        await client.aclose()
    assert "/v2?key=[redacted]" in caplog.text
    assert "SECRET123" not in caplog.text


@pytest.mark.parametrize(("no_proxy", "options"), [("*", {}), ("example.org,0.0.0.0", {}), ("", {"trust_env": False})])
async def test_a_proxy_is_left_out_where_it_should_be(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch, no_proxy: str, options: dict[str, Any]
) -> None:
    """NO_PROXY and trust_env=False are how a user says so."""
    with WireServer() as proxy, WireServer([DONE]) as server:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", no_proxy)
        # 0.0.0.0 leads to this machine, and is none of the addresses that never go through a proxy.
        client = OpenAIChat("m", base_url=server.url.replace("127.0.0.1", "0.0.0.0"), **options)  # noqa: S104
        assert await said(client, hello) == "done"
        await client.aclose()
    assert proxy.requests == []


@pytest.mark.parametrize("proxy", ["gopher://proxy:70", "socks5://127.0.0.1:9", "http://[::1"])
async def test_a_proxy_that_cannot_be_used_is_a_clear_error(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """The traceback of a library would not say which variable to mend."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    client = OpenAIChat("m", base_url="http://model.invalid/v1")
    with pytest.raises(ConfigurationError, match=r"cannot reach model\.invalid .*mend the proxy variables"):
        await client.reply(hello, lambda delta: None)


@pytest.mark.parametrize("rest", ["s3cretword#x@proxy:80", "s3cretword/x@proxy:80", "s3cretword@127.0.0.1:99999"])
async def test_a_password_in_the_address_of_a_proxy_is_not_told(
    hello: ModelRequest, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    """One that is not quoted is read as a port, and would stand in the error."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{rest}")
    client = OpenAIChat("m", base_url="https://model.invalid/v1")
    with pytest.raises(ConfigurationError, match="the address of the proxy is none") as caught:
        await client.reply(hello, lambda delta: None)
    assert "s3cretword" not in "".join(traceback.format_exception(caught.value))
