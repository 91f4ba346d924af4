"""The Messages API client as a user meets it: how it is built, what it shows, and how it says who asks."""

from __future__ import annotations

from typing import Any

import pytest

from turnstile import Agent
from turnstile.core.errors import ConfigurationError
from turnstile.core.limits import Price
from turnstile.core.messages import Reply
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import Delta, ModelClient, ModelRequest
from turnstile.testing import FrozenClock, WireServer, assert_path

KEY = "sk-ant-test-zzz"


def answer(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """An exchange with a message of this content."""
    return {"body": {"content": list(content), "stop_reason": stop, "usage": {"input_tokens": 5, "output_tokens": 3}}}


TEXT = {"type": "text", "text": "Hello"}
CALL = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_it_is_a_model_client_with_a_name_and_a_price() -> None:
    """What the driver and the log need of it."""
    client: ModelClient = AnthropicMessages("claude-x", price=Price(1, 2))
    assert (client.name, client.price) == ("claude-x", Price(1, 2))
    assert AnthropicMessages("claude-x", name="anthropic:claude-x").name == "anthropic:claude-x"
    assert repr(client) == "AnthropicMessages('claude-x', base_url='https://api.anthropic.com')"


@pytest.mark.parametrize("stream", [True, False])
def test_an_agent_talks_through_it(stream: bool) -> None:  # noqa: FBT001
    """The whole way, a tool round and a retry that is a row of the table included, in a second event loop too."""
    busy = {"status": 529, "headers": {"retry-after": "7"}, "body": {"type": "error", "error": {"message": "busy"}}}
    clock = FrozenClock()
    with WireServer([answer(CALL, stop="tool_use"), busy, answer(TEXT), answer(TEXT)]) as server:
        agent = Agent(AnthropicMessages("m", base_url=server.url, stream=stream), tools=[add], clock=clock)
        result = agent.run_sync("1 + 2?")
        assert agent.run_sync("Hi").output == "Hello"
    assert result.output == "Hello"
    assert_path(result, "await_model execute_tools append_results await_model await_model done")
    assert clock.slept == [pytest.approx(7, abs=0.6)]
    body = server.requests[1].body
    assert isinstance(body, dict)
    assert body["messages"][2]["content"][0]["content"] == "3"  # type: ignore[index,call-overload]
    assert body == server.requests[2].body


def test_a_fallback_goes_on_where_another_protocol_stopped() -> None:
    """Two providers are the best insurance; what the first wrote is read by the second as its own kind."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "S"}
    done = {"body": {"choices": [{"message": {"content": "3"}, "finish_reason": "stop"}]}}
    gone = {"status": 404, "body": {"type": "error", "error": {"type": "not_found_error", "message": "gone"}}}
    with WireServer([answer(thought, CALL, stop="tool_use"), gone]) as first, WireServer([done]) as second:
        models: list[str | ModelClient] = [
            AnthropicMessages("m", base_url=first.url),
            OpenAIChat("m", base_url=second.url),
        ]
        result = Agent(models, tools=[add]).run_sync("1 + 2?")
    assert result.output == "3"
    body = second.requests[0].body
    assert isinstance(body, dict)
    messages: Any = body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1,"b":2}'}
    assert "Hm." not in str(messages)


async def test_progress_hears_the_reasoning_and_the_text() -> None:
    """Whoever prints a reply as it comes prints the same whether or not its server streams."""
    heard: list[Delta] = []
    thought = {"type": "thinking", "thinking": "hm", "signature": "S"}
    with WireServer([answer(thought, TEXT), answer(), {"status": 500, "text": ""}]) as server:
        client = AnthropicMessages("m", base_url=server.url, stream=False)
        for _ in range(3):
            await client.reply(ModelRequest("", []), heard.append)
        await client.aclose()
    assert heard == [Delta("reasoning", "hm"), Delta("text", "Hello")]
    await client.aclose()
    await AnthropicMessages("m").aclose()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (KEY, None, "2023-06-01")),
        ({"auth": "bearer"}, (None, f"Bearer {KEY}", "2023-06-01")),
        ({"api_key": "", "api_version": "2026-10-21"}, (None, None, "2026-10-21")),
        ({"headers": {"X-Api-Key": "other", "Anthropic-Version": "x"}}, ("other", None, "x")),
    ],
)
async def test_the_key_and_the_version_are_sent(options: dict[str, Any], expected: tuple[str | None, ...]) -> None:
    """As Anthropic wants them, or as a gateway does; a header of the user's goes before ours."""
    with WireServer([answer(TEXT)]) as server:
        client = AnthropicMessages("m", base_url=server.url, **{"api_key": f"{KEY}\n", **options})
        assert isinstance(await client.reply(ModelRequest("", []), lambda delta: None), Reply)
        await client.aclose()
    names = ("x-api-key", "authorization", "anthropic-version")
    assert tuple(server.requests[0].headers.get(name) for name in names) == expected


@pytest.mark.parametrize(
    ("ending", "path"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/v1/messages", "/v1/messages"),
        ("/proxy/v1?key=abc", "/proxy/v1/messages?key=abc"),
    ],
)
async def test_the_address_may_or_may_not_hold_the_version(ending: str, path: str) -> None:
    """Anthropic's own client wants it without, most documentation of gateways gives it with."""
    with WireServer([answer(TEXT)]) as server:
        client = AnthropicMessages("m", base_url=f"{server.url}{ending}")
        await client.reply(ModelRequest("", []), lambda delta: None)
        await client.aclose()
    assert server.requests[0].path == path
    assert "abc" not in repr(client)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": ""}, "AnthropicMessages needs the name of a model"),
        ({"base_url": "api.example.com"}, "base_url is an address such as 'https://api.anthropic.com'"),
        ({"api_key": "sk-\u2014"}, "characters that no header can carry"),
        ({"timeout": 0}, "the timeout of AnthropicMessages is a number of seconds above 0; got 0"),
        ({"cach": True}, "AnthropicMessages has no option 'cach'; did you mean 'cache'"),
        ({"cache": 1}, "AnthropicMessages's option cache is True or False; got 1"),
        ({"auth": "basic"}, "auth is one of 'x-api-key', 'bearer'; got 'basic'"),
        ({"api_version": "\n"}, "api_version is a text of printable ASCII without blanks around it; got '\\n'"),
        ({"server_tools": {}}, "server_tools is a list of mappings; got <class 'dict'>"),
        ({"server_tools": ["web_search"]}, "server_tools is a list of mappings; got <class 'list'>"),
        ({"server_tools": [{"type": object()}]}, "settings must be JSON"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(arguments: dict[str, Any], words: str) -> None:
    """One clear error that names the argument, what was expected and what came."""
    with pytest.raises(ConfigurationError) as caught:
        AnthropicMessages(**{"model": "m", **arguments})
    assert words in str(caught.value)
