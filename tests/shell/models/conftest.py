"""One question to a scripted server on loopback, through the public client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, UserTurn
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import ModelRequest
from turnstile.testing import WireServer

HELLO = ModelRequest("", [UserTurn("hello")])
DONE: Mapping[str, object] = {
    "status": 200,
    "body": {"id": "c1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}}]},
}


@pytest.fixture
def hello() -> ModelRequest:
    """The shortest request there is."""
    return HELLO


@pytest.fixture
def ask() -> Callable[..., Awaitable[Reply | ModelFailed]]:
    """Asks a server that answers with one exchange, and gives what the client made of it."""

    async def ask(exchange: Mapping[str, object], request: ModelRequest = HELLO, **options: Any) -> Reply | ModelFailed:
        with WireServer([exchange]) as server:
            client = OpenAIChat("m", base_url=server.url, **options)
            try:
                outcome = await client.reply(request, lambda delta: None)
            finally:
                await client.aclose()
        assert len(server.requests) == 1, "the client asks once and never retries"
        return outcome

    return ask


@pytest.fixture
def sent() -> Callable[..., Awaitable[dict[str, Any]]]:
    """Sends one request, and gives the body that the server received."""

    async def sent(request: ModelRequest, **options: Any) -> dict[str, Any]:
        with WireServer([DONE]) as server:
            client = OpenAIChat("m", base_url=server.url, **{"stream": False, **options})
            assert isinstance(await client.reply(request, lambda delta: None), Reply)
            await client.aclose()
        body = server.requests[0].body
        assert isinstance(body, dict)
        return body

    return sent


@pytest.fixture
def ask_anthropic() -> Callable[..., Awaitable[Reply | ModelFailed]]:
    """Asks a Messages API server that answers with one exchange, and gives what the client made of it."""

    async def ask(exchange: Mapping[str, object], request: ModelRequest = HELLO, **options: Any) -> Reply | ModelFailed:
        with WireServer([exchange]) as server:
            client = AnthropicMessages("m", base_url=server.url, **options)
            try:
                outcome = await client.reply(request, lambda delta: None)
            finally:
                await client.aclose()
        assert len(server.requests) == 1, "the client asks once and never retries"
        return outcome

    return ask


@pytest.fixture
def sent_anthropic() -> Callable[..., Awaitable[dict[str, Any]]]:
    """Sends one request to a Messages API server, and gives the body that it received."""

    async def sent(request: ModelRequest, **options: Any) -> dict[str, Any]:
        with WireServer(
            [{"body": {"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}}]
        ) as server:
            client = AnthropicMessages("m", base_url=server.url, **{"stream": False, **options})
            assert isinstance(await client.reply(request, lambda delta: None), Reply)
            await client.aclose()
        body = server.requests[0].body
        assert isinstance(body, dict)
        return body

    return sent
