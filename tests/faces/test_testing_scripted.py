"""The model that follows a script."""

from __future__ import annotations

import pytest

from turnstile import Agent, tool
from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.events import ModelFailed
from turnstile.core.limits import Price
from turnstile.core.messages import Reply, ToolCall, UserTurn
from turnstile.ports import Delta, ModelClient, ModelRequest
from turnstile.testing import FrozenClock, ScriptedModel, assert_path, call


def ask(text: str = "hi") -> ModelRequest:
    """A request."""
    return ModelRequest("", [UserTurn(text)])


@tool(access="read")
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def test_each_entry_answers_one_request() -> None:
    """Every kind of entry, in order, and every request kept."""
    failed = ModelFailed("overloaded")
    model = ScriptedModel(
        [
            "text",
            Reply("whole", finish="length"),
            failed,
            call("add", a=1, b=2),
            [call("add", a=1, b=2), ToolCall("mine", "add", "{")],
            lambda request: f"{len(request.items)} item",
            lambda request: [call("add", a=1, b=2)],
        ]
    )
    client: ModelClient = model
    said = [await client.reply(ask(), lambda delta: None) for _ in range(7)]
    assert said == [
        Reply("text"),
        Reply("whole", finish="length"),
        failed,
        Reply(calls=(ToolCall("call_4_1", "add", '{"a": 1, "b": 2}'),), finish="tool_calls"),
        Reply(
            calls=(ToolCall("call_5_1", "add", '{"a": 1, "b": 2}'), ToolCall("mine", "add", "{")), finish="tool_calls"
        ),
        Reply("1 item"),
        Reply(calls=(ToolCall("call_7_1", "add", '{"a": 1, "b": 2}'),), finish="tool_calls"),
    ]
    assert model.requests == [ask()] * 7
    await client.aclose()


async def test_one_function_answers_all() -> None:
    """A script without an end; async, where a test wants to wait inside."""

    async def echo(request: ModelRequest) -> str:
        item = request.items[-1]
        return item.text if isinstance(item, UserTurn) else ""

    model = ScriptedModel(echo, name="scripted:echo", price=Price(1, 2))
    assert [await model.reply(ask(text), lambda delta: None) for text in "ab"] == [Reply("a"), Reply("b")]
    assert (model.name, model.price) == ("scripted:echo", Price(1, 2))
    assert repr(model) == "ScriptedModel(name='scripted:echo', requests=2)"


async def test_text_and_reasoning_are_heard_before_the_reply() -> None:
    """An observer that prints sees the same as with a server."""
    heard: list[Delta] = []
    model = ScriptedModel([Reply("answer", reasoning="hm"), Reply(calls=(call("add"),)), ModelFailed("server")])
    for _ in range(3):
        await model.reply(ask(), heard.append)
    assert heard == [Delta("reasoning", "hm"), Delta("text", "answer")]


async def test_a_script_that_is_over_says_so() -> None:
    """The usual mistake in a test, so the message shows what was asked last."""
    model = ScriptedModel(["one"])
    await model.reply(ask(), lambda delta: None)
    with pytest.raises(UsageError, match=r"asked 2 times and its script has 1 entries; .*UserTurn\(text='again'"):
        await model.reply(ask("again"), lambda delta: None)
    with pytest.raises(UsageError, match="the last thing said was nothing"):
        await model.reply(ModelRequest("", []), lambda delta: None)


@pytest.mark.parametrize("script", [[7], [[]], [[call("add"), "text"]], [None]])
def test_an_entry_that_is_none_is_refused_at_once(script: list[object]) -> None:
    """Not in the middle of a run, and with its place."""
    with pytest.raises(ConfigurationError, match="entry 1 is"):
        ScriptedModel(script)  # type: ignore[arg-type]


async def test_a_function_that_gives_no_entry_is_refused() -> None:
    """A forgotten return is the usual reason."""
    model = ScriptedModel(lambda request: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match="entry 1 is None"):
        await model.reply(ask(), lambda delta: None)


def test_a_bare_text_is_no_script() -> None:
    """It would be read letter by letter."""
    with pytest.raises(ConfigurationError, match=r"write \['hello'\]"):
        ScriptedModel("hello")


def test_the_same_script_gives_the_same_run() -> None:
    """Ids count from the model's own beginning, so a trace can be compared byte for byte."""
    traces = set()
    for _ in range(3):
        model = ScriptedModel([[call("add", a=1, b=2), call("add", a=3, b=4)], "done"])
        result = Agent(model, tools=[add], clock=FrozenClock()).run_sync("go", run_id="one")
        traces.add(repr(result.messages))
        assert_path(result, "await_model execute_tools append_results await_model done")
    assert len(traces) == 1
