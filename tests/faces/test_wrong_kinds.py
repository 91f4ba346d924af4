"""Whatever a program hands over that is not of its kind: one clear error, where it is given, of what it should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile import Agent, ConfigurationError, ToolDefinitionError, UsageError, tool
from turnstile.log import JsonLog
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel


def another(kind: object) -> Any:
    """A value of a kind that a type checker would see to be wrong."""
    return kind


class Unknown:
    """A class that pydantic knows nothing of."""


def agent(**options: Any) -> Agent[Any]:
    """An agent that is given these options."""
    return Agent(ScriptedModel(["hi"]), **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: agent(store="runs.db"), r"Agent's store is a store, such as SQLiteStore\('runs.db'\); got 'runs.db'"),
        (lambda: agent(store=MemoryStore), r"Agent's store is a store"),
        (lambda: agent(store=[]), r"Agent's store is a store.*got \[\]"),
        (lambda: agent(settings=[]), r"Agent's settings is a mapping.*got \[\]"),
        (lambda: agent(observers=None), r"Agent's observers is a list of observers.*got None"),
        (lambda: agent(observers=print), r"Agent's observers is a list of observers.*got <built-in function print>"),
        (
            lambda: agent(observers=[print]),
            r"observers\[0\] is an observer, which has .*got <built-in function",
        ),
        (lambda: agent(observers=[JsonLog]), r"Agent's observers\[0\] is an observer.*got <class"),
        (lambda: agent(observers="-"), r"observers is a list.*got '-'"),
        (lambda: agent(tools=None), r"Agent's tools is a list of functions, such as \[add\]; got None"),
        (lambda: agent(tools="add"), r"Agent's tools is a list of functions.*got 'add'"),
        (
            lambda: agent(instructions=5),
            r"instructions is text, or a function from a run's deps to text; got 5",
        ),
        (lambda: agent(context=5), r"Agent's context is a context policy.*got 5"),
        (lambda: agent(clock=5), r"Agent's clock is a clock, such as FrozenClock\(\); got 5"),
        (lambda: Agent(another(5)), r"a model is 'provider:name', such as 'openai:gpt-5-mini'.*got 5"),
        (lambda: Agent(["openai:gpt-5-mini", another(None)]), r"a model is 'provider:name'.*got None"),
        (lambda: Agent(another(OpenAIChat)), r"a model is 'provider:name'.*got <class"),
        (lambda: Agent(another({"openai:gpt-5-mini"})), r"a model client, or a list of these; got \{"),
        (lambda: agent(tools=[None]), r"a tool is made from something that can be called; got None"),
        (lambda: Agent([]), r"at least one model; got an empty list"),
        (lambda: OpenAIChat(another(5)), r"the model of OpenAIChat is text; got 5"),
        (lambda: OpenAIChat(another(["a", "b"])), r"the model of OpenAIChat is text; got \['a', 'b'\]"),
        (lambda: OpenAIChat("m", base_url=another(None)), r"the base_url of OpenAIChat is text; got a NoneType"),
        (lambda: OpenAIChat("m", name=another(5)), r"the name of OpenAIChat is text; got 5"),
        (lambda: OpenAIChat("m", stream=another("no")), r"the stream of OpenAIChat is True or False; got 'no'"),
        (lambda: OpenAIChat("m", settings=another([1])), r"the settings of OpenAIChat is a mapping.*got a list"),
        (lambda: OpenAIChat("m", price=another(5)), r"the price of OpenAIChat is Price\(input=…, output=…\).*got 5"),
        (lambda: AnthropicMessages(another(None)), r"AnthropicMessages needs the name of a model.*got None"),
        (lambda: AnthropicMessages("m", settings=another("x")), r"the settings of AnthropicMessages is a mapping"),
        (lambda: SQLiteStore(another(None)), r"SQLiteStore's path is the path of a file; got None"),
        (lambda: SQLiteStore(another(5)), r"SQLiteStore's path is the path of a file; got 5"),
        (lambda: SQLiteStore("runs.db", wait=another("1")), r"SQLiteStore's wait is a number of seconds; got '1'"),
        (lambda: SQLiteStore("runs.db", lease=another(None)), r"SQLiteStore's lease is a number of seconds; got None"),
        (
            lambda: SQLiteStore("runs.db", events=another(None)),
            r"SQLiteStore's events is a list of event classes",
        ),
        (lambda: SQLiteStore("runs.db", events=[another(5)]), r"a class that derives from Event; got 5"),
        (lambda: ScriptedModel(another(None)), r"a script is a list of entries, or one function; got None"),
        (lambda: FrozenClock(another("noon")), r"FrozenClock's start is a number of seconds.*got 'noon'"),
    ],
)
def test_what_is_of_another_kind_is_refused_where_it_is_given(make: Callable[[], object], words: str) -> None:
    """A mistake that shows only once a run is under way costs a run, and says nothing of where it was made."""
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: OpenAIChat("m", api_key=another(b"sk-secret")),
        lambda: OpenAIChat("m", base_url=another(b"https://me:sk-secret@host/v1?key=sk-secret")),
        lambda: OpenAIChat("m", settings=another('{"api_key": "sk-secret"}')),
        lambda: Agent(another({"model": "gpt-5-mini", "api_key": "sk-secret"})),
        lambda: agent(store="postgres://me:sk-secret@host/runs"),
    ],
)
def test_a_key_of_another_kind_is_refused_and_not_shown(make: Callable[[], object]) -> None:
    """A key given as bytes, or in another option's place, is a key all the same."""
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert "sk-secret" not in str(refused.value)


def test_an_error_shows_no_more_than_a_line_of_what_was_given() -> None:
    """A whole conversation in place of an observer hides what is wrong."""
    with pytest.raises(ConfigurationError) as refused:
        agent(observers=["x" * 100_000])
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"description": 5}, r"tool 'f': description is text, or None; got 5"),
        ({"sequential": "yes"}, r"tool 'f': sequential is True or False; got 'yes'"),
    ],
)
def test_a_tool_is_told_what_is_of_its_kind(options: Any, words: str) -> None:
    """A description that is none would reach the model, or fail the first request."""

    def f() -> str:
        """Nothing."""
        return ""

    with pytest.raises(ToolDefinitionError, match=words):
        tool(**options)(f)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"observers": print}, r"a run's observers is a list of observers.*got <built-in function print>"),
        ({"observers": [print]}, r"a run's observers\[0\] is an observer.*got <built-in function print>"),
        ({"model": 5}, r"a model is 'provider:name'.*got 5"),
    ],
)
def test_an_option_of_a_run_is_of_its_kind(options: Any, words: str) -> None:
    """What the agent may be given as a whole, a run may be given, and is judged as well."""
    with pytest.raises(ConfigurationError, match=words):
        agent().run_sync("hi", **options)


def test_instructions_that_give_no_text_are_named() -> None:
    """A function that forgets its return would fail as a text that cannot be joined."""
    with pytest.raises(ConfigurationError, match=r"what Agent's instructions give is text; got None"):
        agent(instructions=lambda deps: None).run_sync("hi")


@pytest.mark.parametrize("output", [5, Unknown, "Missing", Callable[[int], int]])
def test_an_output_that_pydantic_can_make_nothing_of_is_named(output: Any) -> None:
    """Four kinds of pydantic's own errors say what is wrong with a schema, and not where it came from."""
    with pytest.raises(ConfigurationError, match=r"Agent's output is a type that pydantic can validate.*got "):
        agent(output=output).run_sync("hi")


async def test_a_fork_begins_at_a_number() -> None:
    """Where a run is forked is typed by people."""
    async with agent().start("hi") as run:
        with pytest.raises(UsageError, match=r"has no transition yet; got 'one' to fork it at \(0 for its start\)"):
            await run.fork(another("one"))
        await run.step()
        with pytest.raises(UsageError, match=r"has the transitions 1 to 1; got 'one' to fork it at"):
            await run.fork(another("one"))


async def test_an_empty_word_to_the_model_is_refused() -> None:
    """As with a prompt: servers refuse a message that says nothing, and the run would fail of it."""
    async with agent().start("hi") as run:
        with pytest.raises(UsageError, match=r"run.inject\(\) takes a text that says something; got ' '"):
            run.inject(" ")


def test_a_path_may_be_of_any_kind_that_names_a_file(tmp_path: Path) -> None:
    """Text and paths alike."""
    assert repr(SQLiteStore(tmp_path / "a.db")) == repr(SQLiteStore(str(tmp_path / "a.db")))


def test_what_is_empty_is_not_taken_for_nothing() -> None:
    """A store that counts its runs is false as long as it has none, and is the store all the same."""

    class Counted(MemoryStore):
        """Has a length."""

        def __len__(self) -> int:
            return 0

    store = Counted()
    assert agent(store=store).store is store


def test_none_stands_for_what_is_left_out() -> None:
    """Who hands options on gives all of them."""
    assert OpenAIChat("m", name=another(None)).name == "m"
    result = agent().run_sync("hi", observers=None, history=None, limits=None, model=None, session=None, run_id=None)
    assert result.output == "hi"
