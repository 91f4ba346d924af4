"""A key is in no error, log, journal or repr, whatever a server does with it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile import Agent, RunFailed
from turnstile.log import JsonLog
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, WireServer
from wire_case import Body, chat, text, turn

KEY = "sk-ant-zzz0123456789abcdef"
CLIENTS: dict[str, Callable[..., Any]] = {"openai": OpenAIChat, "anthropic": AnthropicMessages}


def event(**said: Any) -> Body:
    """A stream of one event."""
    return {"status": 200, "sse": [f"data: {json.dumps(said)}"]}


ECHOES: dict[str, Body] = {
    "refused": {"status": 401, "body": {"error": {"message": f"invalid x-api-key: {KEY}", "type": KEY}}},
    "a page": {"status": 403, "headers": {"content-type": "text/html"}, "text": f"<p>authorization: Bearer {KEY}</p>"},
    "a redirect": {"status": 308, "headers": {"location": f"http://elsewhere/v1?key={KEY}"}, "text": ""},
    "a header": {"status": 400, "headers": {"request-id": KEY, "x-request-id": KEY}, "text": "no"},
    "shortened": {"status": 400, "body": {"error": {"message": f"key {KEY[:12]}…{KEY[-4:]} is not known"}}},
    "an error in a stream": event(type="error", error={"message": f"bad {KEY}", "code": 400, "type": "x"}),
    "garbage in a stream": {
        "status": 200,
        "sse": [f'data: {{"{KEY}'],
        "headers": {"content-type": "text/event-stream"},
    },
    "no JSON": {"status": 200, "text": f"debug: {KEY}"},
    "an unknown answer": {"status": 200, "body": {"debug": KEY}},
}


@pytest.mark.parametrize("kind", [*CLIENTS, *(f"{kind} streaming" for kind in CLIENTS)])
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_key_that_is_echoed_is_kept_nowhere(
    echo: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is kept is shown around: journals are sent to colleagues, logs to other machines."""
    caplog.set_level(logging.DEBUG)
    log, path = io.StringIO(), tmp_path / "runs.db"
    with WireServer([{**ECHOES[echo], "repeat": 9}]) as server:
        make, streams = CLIENTS[kind.split(maxsplit=1)[0]], "streaming" in kind
        client = make("m", base_url=f"{server.url}/v1?key={KEY}", api_key=KEY, stream=streams)
        store = SQLiteStore(path)
        agent = Agent(client, store=store, observers=[JsonLog(log, content=True)], clock=FrozenClock())
        result = await agent.run("q")
        await client.aclose()
        await store.aclose()
    with pytest.raises(RunFailed) as caught:
        _ = result.output
    shown = [repr(client), repr(result), str(caught.value), repr(caught.value.__cause__), caplog.text, log.getvalue()]
    shown += stored(tmp_path)
    assert server.requests
    for kept in shown:
        assert KEY not in kept
        assert KEY[:12] not in kept


def stored(folder: Path) -> list[str]:
    """What a store wrote, byte for byte."""
    return [file.read_bytes().decode("latin-1") for file in folder.iterdir()]


async def test_a_key_is_in_no_chain_of_exceptions() -> None:
    """What a bug raises is printed with all that led to it."""
    for kind, answer in (("openai", chat()), ("anthropic", turn(text("done")))):
        with WireServer([answer]) as server:
            client = CLIENTS[kind]("m", base_url=f"{server.url}/v1?key={KEY}", api_key=KEY)
            server.close()
        result = await Agent(client, clock=FrozenClock()).run("q")
        await client.aclose()
        with pytest.raises(RunFailed) as caught:
            _ = result.output
        error: BaseException | None = caught.value
        while error is not None:
            assert KEY not in f"{error!r} {vars(error)!r}"
            error = error.__cause__ or error.__context__
