"""Servers that never stop: each is left after a bounded number of bytes, with a typed failure."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from turnstile import Agent, Retry
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import ModelClient
from turnstile.testing import FrozenClock

LONGEST = 1024 * 1024 * 1024  # bytes after which a test's server gives up: far above what may be read
WORDS = "word " * 10_000


def event(said: Any) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(said)}\n\n".encode()


def chunk(**delta: Any) -> bytes:
    """One event of a chat completions stream."""
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def block(**delta: Any) -> bytes:
    """One event of a Messages API stream."""
    return event({"type": "content_block_delta", "index": 0, "delta": delta})


CALL = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": WORDS}}
STREAM = b"content-type: text/event-stream\r\n"
JSON = b"content-type: application/json\r\n"
PACKED = JSON + b"content-encoding: gzip\r\n"
ENDLESS = {
    "an array of ten million": (JSON, b"[", b"0," * 50_000),
    "a text": (JSON, b'{"choices": "', WORDS.encode()),
    "blanks": (JSON, b"", b" " * 100_000),
    "blanks that are packed": (PACKED, b"", gzip.compress(b" " * 50_000_000)),
    "text that is packed": (PACKED, b"", gzip.compress(b'{"choices": "' + WORDS.encode() * 1_000)),
    "more behind what is packed": (PACKED, gzip.compress(b"{"), b"x" * 100_000),
    "an array in a stream's place": (STREAM, b"[", b"0," * 50_000),
    "one line": (STREAM, b"data: ", WORDS.encode()),
    "one event of many lines": (STREAM, b"", b"data: x\n" * 10_000),
    "comments": (STREAM, b"", b": keep-alive\n" * 5_000),
}
CHATS = {"text": chunk(content=WORDS), "reasoning": chunk(reasoning=WORDS), "arguments": chunk(tool_calls=[CALL])}
BLOCKS = {
    "text": block(type="text_delta", text=WORDS),
    "thinking": block(type="thinking_delta", thinking=WORDS),
    "arguments": block(type="input_json_delta", partial_json=WORDS),
}
FLOODS = [
    *((kind, name, flood) for kind in ("openai", "anthropic") for name, flood in ENDLESS.items()),
    *(("openai", name, (STREAM, b"", event)) for name, event in CHATS.items()),
    *(("anthropic", name, (STREAM, b"", event)) for name, event in BLOCKS.items()),
]


class Flood:
    """A server that sends for ever, and counts.

    Attributes:
        sent: Bytes so far.
    """

    def __init__(self, head: bytes, first: bytes, then: bytes) -> None:
        self.sent = 0
        self._head = b"HTTP/1.1 200 OK\r\n" + head + b"connection: close\r\n\r\n"
        self._first = first
        self._then = then

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve; gives the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._head + self._first)
            while self.sent < LONGEST:
                writer.write(self._then)
                self.sent += len(self._then)
                await writer.drain()
        except ConnectionError:
            pass  # the client has had enough
        finally:
            writer.close()


@pytest.mark.parametrize(("kind", "name", "flooded"), FLOODS, ids=[f"{kind} {name}" for kind, name, _ in FLOODS])
async def test_an_answer_without_end_is_left(kind: str, name: str, flooded: tuple[bytes, bytes, bytes]) -> None:
    """Memory and time are the caller's; a server takes a bounded part of them."""
    flood = Flood(*flooded)
    async with flood.serving() as url:
        client: ModelClient = (OpenAIChat if kind == "openai" else AnthropicMessages)("m", base_url=url)
        async with asyncio.timeout(300):  # a flood that is never left would go on for ever
            result = await Agent(client, clock=FrozenClock(), retry=Retry(attempts=1)).run("q")
        await client.aclose()
    assert result.stop is not None
    assert result.stop.error is not None
    assert result.stop.error.kind == "protocol"
    assert len(result.stop.error.message) <= 500
    assert flood.sent < LONGEST  # the client left, a moment after it had read what it may
