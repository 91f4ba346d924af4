"""The client as a user meets it: how it is built, what it shows, and what it says while it works."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnstile import Agent
from turnstile.core.errors import ConfigurationError
from turnstile.core.events import ModelFailed
from turnstile.core.limits import Price
from turnstile.core.messages import Reply
from turnstile.models import OpenAIChat
from turnstile.ports import Delta, ModelClient, ModelRequest
from turnstile.testing import FrozenClock, WireServer, assert_path

Ask = Callable[..., Awaitable[Reply | ModelFailed]]
KEY = "sk-test-zzz"


def answer(text: str, **message: object) -> dict[str, object]:
    """An exchange with a plain answer."""
    return {"status": 200, "body": {"choices": [{"index": 0, "message": {"content": text, **message}}]}}


def test_it_is_a_model_client_with_a_name_and_a_price() -> None:
    """What the driver and the log need of it."""
    client: ModelClient = OpenAIChat("gpt-5-mini", price=Price(1, 2))
    assert (client.name, client.price) == ("gpt-5-mini", Price(1, 2))
    assert OpenAIChat("gpt-5-mini", name="openai:gpt-5-mini").name == "openai:gpt-5-mini"


async def test_an_agent_talks_through_it() -> None:
    """The whole way: agent, machine, client, socket, and the retry that is a row of the table."""
    exchanges = [
        {"status": 429, "headers": {"retry-after": "7"}, "body": {"error": {"message": "rl"}}},
        answer("Hello"),
    ]
    clock = FrozenClock()
    with WireServer(exchanges) as server:
        client = OpenAIChat("m", base_url=server.url)
        result = await Agent(client, clock=clock).run("Hi")
        await client.aclose()
    assert result.output == "Hello"
    assert_path(result, "await_model await_model done")
    assert clock.slept == [pytest.approx(7, abs=0.6)]
    assert server.requests[0].body == server.requests[1].body


async def test_a_date_is_read_against_the_runs_own_clock() -> None:
    """retry-after-http-date: a frozen clock, or one that a test moves, is the time that a wait is measured from."""
    headers = {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}
    clock = FrozenClock(start=1_445_412_477)  # three seconds before
    with WireServer([{"status": 429, "headers": headers, "text": "rl"}, answer("Hello")]) as server:
        client = OpenAIChat("m", base_url=server.url)
        result = await Agent(client, clock=clock).run("Hi")
        await client.aclose()
    assert result.ok
    assert clock.slept == [3]


def test_a_second_event_loop_starts_anew() -> None:
    """event-loop-closed-on-second-run: `run_sync` twice in one process, and nothing is left open."""
    with WireServer([answer("one"), answer("two")]) as server:
        agent = Agent(OpenAIChat("m", base_url=server.url))
        assert [agent.run_sync("Hi").output, agent.run_sync("Hi").output] == ["one", "two"]


async def test_progress_hears_the_reasoning_and_the_text(hello: ModelRequest) -> None:
    """Whoever prints a reply as it comes prints the same whether or not its server streams."""
    heard: list[Delta] = []
    with WireServer([answer("Hi", reasoning_content="hm"), {"status": 500, "text": ""}]) as server:
        client = OpenAIChat("m", base_url=server.url)
        await client.reply(hello, heard.append)
        await client.reply(hello, heard.append)
        await client.aclose()
    assert heard == [Delta("reasoning", "hm"), Delta("text", "Hi")]


async def test_the_address_is_put_together_rightly(hello: ModelRequest) -> None:
    """A trailing slash and a query are common: Azure's version, a key in the address."""
    with WireServer([answer("a"), answer("b")]) as server:
        for base_url in (f"{server.url}/v1/", f"{server.url}/v1?api-version=7"):
            client = OpenAIChat("m", base_url=base_url)
            await client.reply(hello, lambda delta: None)
            await client.aclose()
    assert [request.path for request in server.requests] == [
        "/v1/chat/completions",
        "/v1/chat/completions?api-version=7",
    ]


async def test_the_key_and_more_headers_are_sent(hello: ModelRequest) -> None:
    """A key read from a file ends in a line break; a header of the user's goes before ours."""
    with WireServer([answer("a"), answer("b"), answer("c")]) as server:
        for options in ({"api_key": f"{KEY}\n"}, {"api_key": KEY, "headers": {"Authorization": "Basic x"}}, {}):
            client = OpenAIChat("m", base_url=server.url, **options)
            await client.reply(hello, lambda delta: None)
            await client.aclose()
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == [f"Bearer {KEY}", "Basic x", None]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": ""}, "needs the name of a model"),
        ({"base_url": "api.example.com/v1"}, "base_url is an address such as"),
        ({"base_url": "ftp://example.com"}, "got 'ftp://example.com'"),
        ({"base_url": "http://"}, "base_url is an address"),
        ({"base_url": "http://[::1"}, "base_url is an address"),
        ({"base_url": "http://host:99999/v1"}, "base_url is an address"),
        ({"base_url": "http://user:hunter22@host/v1"}, "'http://host/v1' may not hold a user"),
        ({"api_key": "sk-\u2014"}, "characters that no header can carry"),
        ({"api_key": "sk-a\nb"}, "characters that no header can carry"),
        ({"timeout": 0}, "the timeout of OpenAIChat is a number of seconds above 0; got 0"),
        ({"timeout": None}, "the timeout of OpenAIChat is a number of seconds above 0; got None"),
        ({"reasonng_echo": "calls"}, "no option 'reasonng_echo'; did you mean 'reasoning_echo'"),
        ({"zzz": 1}, "the options are system_placement"),
        ({"reasoning_echo": "sometimes"}, "reasoning_echo is one of 'never', 'calls', 'always'; got 'sometimes'"),
        ({"merge_consecutive": "yes"}, "merge_consecutive is True or False; got 'yes'"),
        ({"connections": 0}, "connections is a whole number above 0; got 0"),
        ({"connections": True}, "connections is a whole number above 0; got True"),
        ({"connect_timeout": -1}, "connect_timeout is a number of seconds above 0; got -1"),
        ({"headers": {"x": "a\nb"}}, "headers is a mapping of names to texts of printable ASCII"),
        ({"headers": {"x": "hunter22\\ "}}, "without blanks around them"),
        ({"headers": {"x y": "z"}}, "headers is a mapping of names"),
        ({"headers": {"": "z"}}, "headers is a mapping of names"),
        ({"headers": {"x:": "hunter22"}}, "got <class 'dict'>"),
        ({"headers": {"Content-Length": "5"}}, "not for a body's length"),
        ({"headers": {"transfer-encoding": "chunked"}}, "not for a body's length"),
        ({"headers": ["x"]}, "headers is a mapping"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(arguments: dict[str, Any], words: str) -> None:
    """One clear error that names the argument, what was expected and what came, and never a secret."""
    with pytest.raises(ConfigurationError) as caught:
        OpenAIChat(**{"model": "m", **arguments})
    assert words in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "echo",
    [
        {"status": 401, "body": {"error": {"message": f"Incorrect API key provided: {KEY}."}}},
        {"status": 401, "body": {"error": {"message": f"Incorrect API key provided: {KEY[:9]}…"}}},
        {"status": 500, "text": f"upstream said: authorization: Bearer {KEY}"},
        {"status": 200, "body": {"choices": [], "debug": KEY}},
        {"status": 200, "text": f"not json {KEY}"},
        {"status": 200, "body": {"error": f"key={KEY}&x=1"}},
        {"status": 500, "headers": {"x-request-id": KEY}, "text": "boom"},
        {"status": 307, "headers": {"location": f"http://elsewhere/?key={KEY}"}, "text": ""},
        {"status": 200, "body": {"choices": [{"finish_reason": f"error {KEY}", "message": {"content": "x"}}]}},
    ],
)
async def test_a_key_that_the_server_echoes_is_never_kept(ask: Ask, echo: dict[str, object]) -> None:
    """What is kept goes into journals and logs, which are shown around."""
    outcome = await ask(echo, api_key=KEY)
    assert "test-zz" not in repr(outcome)


@pytest.mark.parametrize(
    "exchanges", [[], [{"status": 401, "body": {"error": {"message": "bad key SECRET123"}}}], [answer("x")]]
)
async def test_a_key_in_the_address_is_never_shown(
    hello: ModelRequest, caplog: pytest.LogCaptureFixture, exchanges: list[dict[str, object]]
) -> None:
    """key-in-url-query, headers-logged-at-debug: not in a text, a repr, a log at DEBUG or a failure to connect."""
    caplog.set_level(logging.DEBUG)
    with WireServer(exchanges) as server:
        client = OpenAIChat("m", base_url=f"{server.url}/v1?key=SECRET123", api_key=KEY)
        if not exchanges:
            server.close()
        outcome = await client.reply(hello, lambda delta: None)
        await client.aclose()
    shown = "\n".join([repr(client), repr(outcome), caplog.text])
    assert "SECRET123" not in shown
    assert "test-zz" not in shown
    assert "127.0.0.1" in repr(client)


def test_httpx_is_loaded_with_the_first_request_only() -> None:
    """Naming a model, or building a client, must not cost what httpx costs to import."""
    program = (
        "import sys; from turnstile.models import resolve; resolve('openai:gpt-5-mini', {'OPENAI_API_KEY': 'k'});"
        "print(sorted({'httpx', 'httpcore', 'anyio'} & sys.modules.keys()))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
