"""The cases of `cases.jsonl`, and a way to play one: a real agent, the public client, and a server on loopback.

A case is found by its id, which stands in the name of its test. What it says in words (its tools, what they do, its
options) is put into code by the test; its exchanges are played byte for byte.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnstile import Agent, Result, Tool, tool
from turnstile.core.messages import Item, Message, Reply, ToolCall, ToolResult, UserTurn
from turnstile.core.run_state import RunState
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import ModelClient, Notice
from turnstile.testing import FrozenClock, WireRequest, WireServer

FILE = Path(__file__).with_name("cases.jsonl")
NAME = r"[a-zA-Z0-9_-]{1,64}"  # what servers take as the name of a tool

Body = dict[str, Any]
MARK = "cache_control"


@dataclass(frozen=True)
class Case:
    """A fault that somebody met, and what a correct engine does.

    Attributes:
        id: Its name, which is part of its test's name.
        family: Its kind.
        input: What happens.
        right: What is right, in words; a test asserts it.
    """

    id: str
    family: str
    input: Mapping[str, Any]
    right: str

    @property
    def exchanges(self) -> list[Mapping[str, Any]]:
        """What the server plays."""
        return list(self.input.get("exchanges", ()))

    @property
    def messages(self) -> list[Any]:
        """The history that it begins with, as its wire writes it."""
        return list(self.input.get("messages", ()))

    def client(self, url: str, **options: Any) -> ModelClient:
        """The client of its wire."""
        kind = AnthropicMessages if self.input["api"] == "anthropic" else OpenAIChat
        return kind("m", base_url=url, **{"stream": bool(self.input.get("stream")), **options})


def _read() -> dict[str, Case]:
    lines = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {line["id"]: Case(line["id"], line["family"], line["input"], line["right"]) for line in lines}


CASES = _read()


@dataclass
class Tools:
    """Tools that remember how they were called.

    Attributes:
        ran: Each call that ran, as its tool's name and its arguments.
    """

    ran: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, name: str, does: Callable[..., object] | None = None, /, **parameters: Any) -> Tool[..., Any]:
        """A tool of that name and those parameters, a type each; it does what `does` does, else returns "ok"."""

        def function(**arguments: Any) -> object:
            self.ran.append((name, arguments))
            return does(**arguments) if does else "ok"

        kind = inspect.Parameter.KEYWORD_ONLY
        listed = [inspect.Parameter(each, kind, annotation=hint) for each, hint in parameters.items()]
        function.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
        function.__annotations__ = dict(parameters)
        return tool(function, name=name, description=f"Does {name}.")


@dataclass
class Played:
    """What came of a case.

    Attributes:
        result: What the run came to.
        requests: What the server received.
        slept: Every wait between attempts.
        notices: What an observer heard.
        connections: How many connections were opened.
    """

    result: Result[Any]
    requests: Sequence[WireRequest]
    slept: Sequence[float]
    notices: Sequence[Notice]
    connections: int

    @property
    def bodies(self) -> list[Body]:
        """The requests' bodies."""
        return [body for request in self.requests if isinstance(body := request.body, dict)]

    @property
    def last(self) -> list[Body]:
        """The messages of the last request."""
        messages: list[Body] = self.bodies[-1]["messages"]
        return messages

    @property
    def reason(self) -> str:
        """Why the run ended."""
        return self.result.stop.reason if self.result.stop else ""

    @property
    def results(self) -> list[ToolResult]:
        """The results that its history holds, in order."""
        return [message for message in self.result.messages if isinstance(message, ToolResult)]

    @property
    def rows(self) -> list[str]:
        """The rows of the table that it took."""
        return [move.row for move in self.result.transitions]


class Ears:
    """An observer that remembers all it hears."""

    def __init__(self) -> None:
        self.heard: list[Notice] = []

    def observe(self, notice: Notice, run: RunState) -> None:
        """Remember."""
        self.heard.append(notice)


async def play(
    case: Case,
    *tools: Any,
    prompt: str = "q",
    history: Iterable[Item | Message] = (),
    exchanges: Sequence[Any] | None = None,
    options: Mapping[str, Any] | None = None,
    clock: FrozenClock | None = None,
    **agent: Any,
) -> Played:
    """Run an agent with these tools against the case's exchanges, or others, and check what holds for every run."""
    clock, ears = clock or FrozenClock(), Ears()
    with WireServer(case.exchanges if exchanges is None else exchanges) as server:
        client = case.client(server.url, **(options or {}))
        try:
            runner = Agent(client, tools=tools, clock=clock, observers=[ears], **agent)
            result = await runner.run(prompt, history=history)
        finally:
            await client.aclose()
    for request in server.requests:
        check_body(case, request)
    return Played(result, server.requests, clock.slept, ears.heard, server.connections)


def check_body(case: Case, request: WireRequest) -> None:
    """Check what is true of every request: strict JSON in UTF-8, and each call answered once, right after it."""
    body = json.loads(request.content.decode("utf-8"), parse_constant=_refuse)
    assert body["messages"], f"{case.id}: an empty list of messages"
    (check_turns if case.input["api"] == "anthropic" else check_chat)(body["messages"])


def check_chat(messages: Sequence[Body]) -> None:
    """Check that a history in chat completions' words is valid."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert waiting, f"a result without a call: {message}"
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert not waiting, f"calls without a result: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        assert not seen.intersection(waiting), f"ids used before: {waiting}"
        assert len(set(waiting)) == len(waiting), f"one id for two calls: {waiting}"
        seen.update(waiting)
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"], parse_constant=_refuse), dict)
        if message["role"] == "assistant" and not waiting:
            assert message["content"].strip(), "a reply that says nothing"
    assert not waiting, f"calls without a result: {waiting}"


def check_turns(messages: Sequence[Body]) -> None:
    """Check that a history in the Messages API's words is valid."""
    assert messages[0]["role"] == "user"
    called: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        assert message["role"] == ("assistant" if place % 2 else "user")
        listed = blocks(message)
        assert listed, f"an empty message: {message}"
        assert all(block["text"].strip() for block in listed if block["type"] == "text")
        answered = [block["tool_use_id"] for block in listed if block["type"] == "tool_result"]
        assert answered == called
        assert all(block["type"] == "tool_result" for block in listed[: len(answered)]), "results come first"
        called = [block["id"] for block in listed if block["type"] == "tool_use"]
        assert len(seen.union(called)) == len(seen) + len(called), f"an id for two calls: {called}"
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) for call_id in called)
        assert all(isinstance(block["input"], dict) for block in listed if block["type"] == "tool_use")
        seen.update(called)
    assert not called, f"calls without a result: {called}"


def _refuse(name: str) -> None:
    message = f"{name} is no JSON"
    raise AssertionError(message)


def calls_of(message: Body) -> list[tuple[str, Any]]:
    """The calls of a message as it was sent: each tool's name with its arguments."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", ())
    ]


def said(messages: Sequence[Body]) -> list[Message]:
    """A history in chat completions' words as the engine's own."""
    found: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "user":
            found.append(UserTurn(message["content"]))
        elif message["role"] == "assistant":
            calls = tuple(
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", ())
            )
            names.update((call.id, call.name) for call in calls)
            found.append(Reply(message["content"] or "", calls))
        elif message["role"] == "tool":
            call_id = message["tool_call_id"]
            found.append(ToolResult(call_id, names.get(call_id, ""), message["content"]))
    return found


def chat(content: str | None = "done", *, finish: str | None = "stop", **message: Any) -> Body:
    """An exchange with a reply in chat completions' words."""
    whole = {"role": "assistant", "content": content, **message}
    return {"status": 200, "body": {"id": "c1", "choices": [{"index": 0, "message": whole, "finish_reason": finish}]}}


def turn(*content: Body, reason: str = "end_turn") -> Body:
    """An exchange with a reply in the Messages API's words: these blocks."""
    usage = {"input_tokens": 5, "output_tokens": 3}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    return {"status": 200, "body": {**body, "stop_reason": reason, "stop_sequence": None, "usage": usage}}


def text(words: str) -> Body:
    """A block of text."""
    return {"type": "text", "text": words}


def use(call_id: str, name: str = "f", **given: Any) -> Body:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def blocks(message: Body) -> list[Body]:
    """A message's blocks, without cache markers."""
    content = message["content"]
    listed = [text(content)] if isinstance(content, str) else content
    return [{key: part for key, part in block.items() if key != MARK} for block in listed]
