"""`@tool`: what can be made a tool, what it still is afterwards, and what is refused with words that help."""

from __future__ import annotations

import asyncio
import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from turnstile.core.errors import ToolDefinitionError
from turnstile.tools import Tool, ToolContext, tool


@tool
def shout(text: str, times: int = 1) -> str:
    """Say it loud."""
    return text.upper() * times


@tool(
    name="whisper_to",
    access="read",
    timeout=2.5,
    max_calls=3,
    repeats=None,
    sequential=True,
    max_result_chars=500,
    on_in_doubt="ask",
)
async def whisper(text: str) -> str:
    """Say it low."""
    return text.lower()


class Greeter:
    """Greets."""

    def __init__(self, word: str) -> None:
        self.word = word

    def greet(self, name: str) -> str:
        """Greet somebody."""
        return f"{self.word} {name}"

    async def __call__(self, name: str) -> str:  # noqa: D102 - so that the class's docstring is the description
        return self.greet(name)


def test_a_tool_is_called_like_its_function() -> None:
    """Decorating a function must not take it away from the code that uses it."""
    assert shout("hi", times=2) == "HIHI"
    assert asyncio.run(whisper("HI")) == "hi"
    assert (vars(shout)["__name__"], shout.__doc__, shout.__module__) == ("shout", "Say it loud.", __name__)
    assert list(inspect.signature(shout).parameters) == ["text", "times"]


def test_options_are_kept() -> None:
    """What the author says about a tool is what the toolbox acts on."""
    assert isinstance(whisper, Tool)
    assert (whisper.name, whisper.access, whisper.timeout, whisper.max_calls) == ("whisper_to", "read", 2.5, 3)
    assert (whisper.repeats, whisper.sequential, whisper.max_result_chars) == (None, True, 500)
    assert whisper.on_in_doubt == "ask"
    assert repr(whisper) == "Tool('whisper_to', access='read')"


def test_defaults_are_the_careful_ones() -> None:
    """A tool of which nothing is said may change the world, so it is never run again when in doubt."""
    assert (shout.name, shout.access, shout.timeout, shout.repeats) == ("shout", "write", None, "as_run")
    assert (shout.max_calls, shout.sequential, shout.max_result_chars) == (None, False, 20_000)
    assert shout.on_in_doubt == "tell"


def test_a_tool_of_a_tool_is_itself() -> None:
    """An agent makes tools of what it is given, and some of it is a tool already."""
    assert tool(shout) is shout
    with pytest.raises(ToolDefinitionError, match=r"tool 'shout': it is a tool already; give \['timeout'\]"):
        tool(shout, timeout=1)


def greet_twice(first: str, second: str) -> str:
    """Greet two."""
    return f"{first} {second}"


@pytest.mark.parametrize(
    ("function", "name", "description", "is_async"),
    [
        (Greeter("Hi").greet, "greet", "Greet somebody.", False),
        (Greeter("Hi"), "Greeter", "Greets.", True),
        (functools.partial(greet_twice, "you"), "greet_twice", "Greet two.", False),
        (functools.partial(Greeter("Hi")), "Greeter", "Greets.", True),
        (functools.lru_cache(greet_twice), "greet_twice", "Greet two.", False),
    ],
)
def test_whatever_can_be_called_makes_a_tool(
    function: Callable[..., Any],
    name: str,
    description: str,
    is_async: bool,  # noqa: FBT001 - a table's column
) -> None:
    """Bound methods, callable objects, partials and decorated functions are how programs hand over functions."""
    made = tool(function)
    assert (made.name, made.description, made.is_async) == (name, description, is_async)


def test_what_a_partial_binds_is_not_the_models() -> None:
    """A key that is bound in a partial belongs to the program: the model neither sees nor changes it."""
    made = tool(functools.partial(greet_twice, second="secret"))
    assert made.parameters == {
        "type": "object",
        "properties": {"first": {"type": "string"}},
        "required": ["first"],
        "additionalProperties": False,
    }
    assert made.check({"first": "a", "second": "b"})[1]
    assert made("a") == "a secret"


def test_a_description_may_be_given() -> None:
    """A docstring is written for people; a model may need other words."""
    assert tool(greet_twice, description="For models.").description == "For models."
    assert tool(lambda: "x", name="quiet").description == ""


@pytest.mark.parametrize("name", ["Google Search", "a.b", "x" * 65, "", "naïve", "line\n", "tool\n"])
def test_a_name_that_servers_refuse_is_refused_at_once(name: str) -> None:
    """A server refuses every request with such a name (wire case tool-name-invalid-pattern-at-registration)."""
    with pytest.raises(ToolDefinitionError) as raised:
        tool(greet_twice, name=name)
    assert repr(name) in str(raised.value)
    assert "^[a-zA-Z0-9_-]{1,64}$" in str(raised.value)


def _no_hint(city) -> str:  # type: ignore[no-untyped-def] # noqa: ANN001
    return str(city)


def _positional(city: str, /) -> str:
    return city


def _any_number(*cities: str) -> str:
    return str(cities)


def _any_names(**cities: str) -> str:
    return str(cities)


def _pieces(city: str) -> Iterator[str]:
    yield city


async def _async_pieces(city: str) -> AsyncIterator[str]:
    yield city


def _plain(city: str) -> str:
    return city


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (_no_hint, {}, "parameter 'city' has no type hint; give it one, such as city: str"),
        (Greeter.greet, {}, r"parameter 'self' belongs to a method; .* tool\(thing.method\)"),
        (_positional, {}, "parameter 'city' is positional-only"),
        (_any_number, {}, "parameter 'cities' takes any number of arguments"),
        (_any_names, {}, "parameter 'cities' takes arguments of any name"),
        (_pieces, {}, "it yields"),
        (_async_pieces, {}, "it yields"),
        (Greeter, {}, "is a class"),
        (42, {}, "made from something that can be called; got 42"),
        (dict.fromkeys, {}, "parameter 'iterable' is positional-only"),
        (getattr, {}, "its parameters cannot be read"),
        (lambda: "x", {}, "tool '<lambda>': its name does not match"),
        (_plain, {"name": 3}, "tool '3': its name"),
        (_plain, {"on_in_doubt": "wait"}, r"on_in_doubt is one of \('tell', 'ask'\); got 'wait'"),
        (_plain, {"access": "readonly"}, r"access is one of \('read', 'idempotent', 'write'\); got 'readonly'"),
        (_plain, {"timeout": 0}, "timeout is a number of seconds above 0, or None; got 0"),
        (_plain, {"timeout": "10"}, "timeout .* got '10'"),
        (_plain, {"max_result_chars": 10}, "max_result_chars is at least 100, .* got 10"),
        (_plain, {"max_calls": 0}, "max_calls is a whole number above 0, or None; got 0"),
        (_plain, {"max_calls": True}, "max_calls .* got True"),
        (_plain, {"repeats": 0}, "repeats is a whole number above 0, .* got 0"),
        (_plain, {"repeats": "off"}, "repeats .* got 'off'"),
    ],
)
def test_what_cannot_be_a_tool_says_why(function: Callable[..., Any], options: dict[str, Any], words: str) -> None:
    """A wrong definition is told where it is made, with what to change, and not by a server's 400 at night."""
    with pytest.raises(ToolDefinitionError, match=words):
        tool(function, **options)


def test_the_context_names_a_call_for_the_outside() -> None:
    """A server told the same key twice does the work once, so the key follows from run and call alone."""
    key = ToolContext("run", "call").idempotency_key
    assert key == ToolContext("run", "call", deps="other").idempotency_key
    assert len(key) == 32
    assert len({key, ToolContext("runc", "all").idempotency_key, ToolContext("run", "call2").idempotency_key}) == 3
    assert ToolContext("run", "\ud83d").idempotency_key


def test_progress_is_told_or_dropped() -> None:
    """A tool that tells its progress must work outside a run too, where nobody listens."""
    said: list[str] = []
    ToolContext("run", "call", on_progress=said.append).progress("half")
    ToolContext("run", "call").progress("half")
    assert said == ["half"]


def test_making_a_tool_does_not_load_pydantic() -> None:
    """A program's start must not pay for schemas that it may never need."""
    code = """
import sys
from turnstile.tools import tool

@tool
def f(x: int) -> str:
    return ""

assert "pydantic" not in sys.modules
assert f.parameters["properties"] == {"x": {"type": "integer"}}
assert "pydantic" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
