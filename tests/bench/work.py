"""The work that every contender does: call the tool `add` for some rounds, then answer.

A contender is a module of `contenders` with

- ``COLD``: source text that imports the framework and builds an agent, and sends nothing,
- ``build(job)``: gives a function that does one whole run and gives its final text, or an awaitable of it,
- ``listen(job)``: gives a function that has one reply streamed, and calls what it is given with each piece of text,
- ``leave(job)``: awaits a run of that many rounds, kept in the job's journal and left before the last reply; gives a
  function that goes on with it from the file alone, and gives its final text.

It imports its framework inside of functions only, and raises `Unsupported` for work that the framework cannot do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

PROMPT = "Add numbers until you are done."
API_KEY = "sk-bench"
CONNECTIONS = 100  # of every HTTP client
TIMEOUT = 600  # seconds; of every HTTP client: with a thousand runs at once some wait long
PAUSE = 0.05  # seconds that a sleeping tool sleeps

TOOL_SCHEMA = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two integers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]

ToolKind = Literal["instant", "async_sleep", "thread_sleep"]
Once = Callable[[], "Awaitable[str] | str"]
"""Does one whole run and gives its final text."""
Listen = Callable[[Callable[[str], object]], "Awaitable[None] | None"]
"""Has one reply streamed, and tells each piece of its text."""


class Unsupported(Exception):
    """The framework has no such thing; the text says what is missing."""


@dataclass(frozen=True)
class Job:
    """What a run has to do.

    Attributes:
        rounds: Replies with tool calls, before the last reply with the answer.
        calls: Tool calls in each of them.
        tool: Which `add`: at once, or sleeping for `PAUSE`, asynchronously or blocking its thread.
        url: Base address of the model server; without one the model is scripted in process.
        gives_way: Whether the scripted model lets other tasks run, as one that waits for a network would.
        at_once: How many runs share the process.
        journal: File of a SQLite database that each turn is kept in; without one, none is.
        chunks: Pieces of text of a streamed reply.
        pause: Milliseconds that the server waits after the first of them.
    """

    rounds: int = 10
    calls: int = 1
    tool: ToolKind = "instant"
    url: str = ""
    gives_way: bool = False
    at_once: int = 1
    journal: str = ""
    chunks: int = 0
    pause: int = 0

    @property
    def model(self) -> str:
        """Name of the model, by which the server knows the script."""
        if self.chunks:
            return f"chunks-{self.chunks}-pause-{self.pause}"
        return f"rounds-{self.rounds}-calls-{self.calls}"

    @property
    def pieces(self) -> list[str]:
        """The text of a streamed reply, piece by piece."""
        return [f"w{number} " for number in range(self.chunks)]

    @property
    def answer(self) -> str:
        """The final text."""
        return "".join(self.pieces) or f"done:{self.rounds}"

    def calls_of(self, number: int) -> list[tuple[str, str]]:
        """Id and arguments of each call in the reply of that number, from 0; none in the last."""
        if number >= self.rounds:
            return []
        return [(f"call_{number}_{call}", f'{{"a": {number}, "b": {call}}}') for call in range(self.calls)]

    async def give_way(self) -> None:
        """Let other tasks run, if the job wants it."""
        if self.gives_way:
            await asyncio.sleep(0)


class Ledger:
    """Counts the calls that tools really ran."""

    calls = 0


def make_tool(job: Job) -> Callable[..., Any]:
    """The function `add` that a job asks for."""
    if job.tool == "thread_sleep":
        return _make_blocking()
    pause = PAUSE if job.tool == "async_sleep" else 0

    async def add(a: int, b: int) -> int:
        """Add two integers."""
        Ledger.calls += 1
        if pause:
            await asyncio.sleep(pause)
        return a + b

    return add


def _make_blocking() -> Callable[[int, int], int]:
    def add(a: int, b: int) -> int:
        """Add two integers."""
        Ledger.calls += 1
        time.sleep(PAUSE)
        return a + b

    return add
