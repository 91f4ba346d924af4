"""`ScriptedModel`: a model that says what a test tells it to, without any server."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.events import ModelFailed
from turnstile.core.expecting import expect_several
from turnstile.core.limits import Price
from turnstile.core.messages import Reply, ToolCall
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import evolve
from turnstile.ports import Delta, ModelRequest

Said = str | Reply | ModelFailed | ToolCall | Sequence[ToolCall]
"""What a scripted model can say: text, a whole reply, a failure, one call or several."""
Answering = Callable[[ModelRequest], "Said | Awaitable[Said]"]
"""A function, async or not, from a request to what is said."""


def call(name: str, /, **arguments: JsonValue) -> ToolCall:
    """A tool call for a script; the scripted model gives it an id.

    ``ScriptedModel([call("add", a=1, b=2), "3"])``
    """
    return ToolCall("", name, json.dumps(arguments, ensure_ascii=False))


class ScriptedModel:
    """A model that follows a script: one entry for each request, in order.

    ::

        model = ScriptedModel([
            [call("get_weather", city="Oslo"), call("get_weather", city="Rome")],  # both in one reply
            ModelFailed("overloaded", retry_after=2),
            lambda request: f"I was given {len(request.items)} items.",
        ])
        result = Agent(model, tools=[get_weather]).run_sync("Where is it warmer?")
        assert model.requests[-1].tools_on

    Args:
        script: The entries: a text, a `Reply`, a `ModelFailed`, a `ToolCall` or several, or a function from the
            `ModelRequest` to one of these, which may be async. A single function in place of the list answers every
            request.
        name: The model's name.
        price: What it is said to cost; replies need a `Usage` to have a price.

    Attributes:
        requests: Every request so far.

    Raises:
        ConfigurationError: An entry is none of these.
    """

    def __init__(
        self,
        script: Sequence[Said | Answering] | Answering,
        *,
        name: str = "scripted:model",
        price: Price | None = None,
    ) -> None:
        self.name = name
        self.price = price
        self.requests: list[ModelRequest] = []
        self._script: Answering | list[Said | Answering]
        if callable(script):
            self._script = script
            return
        if isinstance(script, str):
            raise ConfigurationError(
                f"a script is a list of entries, or one function; got {script!r}: write [{script!r}]"
            )
        self._script = [*expect_several("a script", script, "a list of entries, or one function")]
        for place, entry in enumerate(self._script):
            if not callable(entry):
                _reply(entry, place)

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r}, requests={len(self.requests)})"

    async def reply(self, request: ModelRequest, progress: Callable[[Delta], None]) -> Reply | ModelFailed:
        """Say what the script says.

        Raises:
            UsageError: The script has no entry left.
        """
        place = len(self.requests)
        self.requests.append(request)
        if isinstance(self._script, list):
            if place >= len(self._script):
                raise UsageError(
                    f"{self.name!r} was asked {place + 1} times and its script has {len(self._script)} entries; "
                    f"add one, or give a function; the last thing said was {_last(request)}"
                )
            entry = self._script[place]
        else:
            entry = self._script
        said: object = entry
        if callable(entry):
            made = entry(request)
            said = await made if inspect.isawaitable(made) else made
        reply = _reply(said, place)
        if isinstance(reply, Reply):
            if reply.reasoning:
                progress(Delta("reasoning", reply.reasoning))
            if reply.text:
                progress(Delta("text", reply.text))
        return reply

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _reply(said: object, place: int) -> Reply | ModelFailed:
    """What an entry stands for; calls without an id get one that names the request and their place in it."""
    if isinstance(said, ModelFailed):
        return said
    if isinstance(said, str):
        return Reply(said)
    calls = (said,) if isinstance(said, ToolCall) else said
    if isinstance(calls, list | tuple) and calls and all(isinstance(entry, ToolCall) for entry in calls):
        said = Reply(calls=tuple(calls), finish="tool_calls")
    if not isinstance(said, Reply):
        raise ConfigurationError(
            "a script's entry is a text, a Reply, a ModelFailed, a ToolCall, a list of them, or a function from "
            "the request to one; "
            f"entry {place + 1} is {said!r}"
        )
    ids = [each.id or f"call_{place + 1}_{number}" for number, each in enumerate(said.calls, 1)]
    return evolve(said, calls=tuple(evolve(each, id=new) for each, new in zip(said.calls, ids, strict=True)))


def _last(request: ModelRequest) -> str:
    return f"{request.items[-1]!r:.300}" if request.items else "nothing"
