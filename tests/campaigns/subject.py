"""The agent that most campaigns drive, and a program that drives it in a process of its own.

It does all that an agent may do: calls of each access class at once, one that fails, a request that is retried after a
wait, a limit that makes it wrap up. What its model says follows from the conversation alone, so that a run goes on the
same wherever it is resumed. All of it is written down in a ledger.

::

    python tests/campaigns/subject.py (start | resume) STORE LEDGER RUN [OPERATION]

With the number of an operation it kills itself when SQLite comes to that, counted from 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from disk import Disk, Failing, mounted
from ledger import Entry, Ledger
from through import Noting
from turnstile import Agent, Exchange, Limits, Reply, Retry, ToolContext, tool
from turnstile.core.effects import CallModel
from turnstile.core.errors import RunFinished, RunIsLeased
from turnstile.core.events import ModelFailed, RunStarted
from turnstile.core.history import History
from turnstile.core.messages import Item, ToolCall, Usage
from turnstile.core.requests import RequestDigests
from turnstile.ports import ModelRequest, Store
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel, call
from turnstile.testing.scripted import Said

TURNS = 4
LEASE = 1.0  # seconds


def rounds(items: Sequence[Item]) -> int:
    """How many batches of calls have their results."""
    return sum(isinstance(item, Exchange) and bool(item.results) for item in items)


def digest_of_request(request: ModelRequest, model: int = 0) -> str:
    """The digest that a journal should hold for a request, made from what the model was really given.

    Args:
        request: What it was given.
        model: Its index among the run's models.
    """
    start = RunStarted(
        "",
        "",
        instructions=request.instructions,
        tools=request.tools,
        settings=dict(request.settings),
        output_schema=dict(request.output_schema) if request.output_schema else None,
    )
    history = History(tuple(request.items))
    effect = CallModel(model, tools=request.tools_on, max_output=request.max_output)
    return RequestDigests(start).of(effect, history, ((0, len(history)),))


class Mind:
    """What the subject's model says.

    Args:
        ledger: Where it writes down what it was asked.
        run_id: The run that asks.
    """

    def __init__(self, ledger: Ledger, run_id: str) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._overloaded = False

    def __call__(self, request: ModelRequest) -> Said:
        """The next reply."""
        self._ledger.note(Entry("asked", self._run_id, digest=digest_of_request(request)))
        done = rounds(request.items)
        if not request.tools_on:
            return Reply(f"Done after {done} rounds.", usage=Usage(100, 20))
        if done == 1 and not self._overloaded:
            self._overloaded = True  # once in each process: a retry that works
            return ModelFailed("overloaded", "try again", 529, retry_after=0.01)
        return Reply(calls=tuple(wanted(done)), finish="tool_calls", usage=Usage(100, 20))


def wanted(done: int) -> list[ToolCall]:
    """The calls that are made after so many rounds."""
    if done == 0:
        return [call("look", what="box"), call("put", name="ball"), call("send", text="begun"), call("stumble", at=1)]
    return [call("send", text=f"round {done}"), call("look", what=f"box {done}"), call("send", text=f"again {done}")]


def subject(store: Store, ledger: Ledger, run_id: str) -> Agent[str]:
    """The agent; its tools write down what they do."""

    @tool(access="read")
    def look(what: str, ctx: ToolContext) -> str:
        """Look at something."""
        with ledger.effect("look", ctx, what=what):
            return f"{what} is red"

    @tool(access="idempotent")
    async def put(name: str, ctx: ToolContext) -> str:
        """Put something into the box."""
        with ledger.effect("put", ctx, name=name):
            return f"{name} is in the box"

    @tool(access="write")
    async def send(text: str, ctx: ToolContext) -> str:
        """Send a text."""
        with ledger.effect("send", ctx, text=text):
            return f"sent {text}"

    @tool(access="read")
    async def stumble(at: int, ctx: ToolContext) -> str:
        """Fail."""
        with ledger.effect("stumble", ctx, at=at):
            raise OSError(f"stumbled at {at}")

    return Agent(
        ScriptedModel(Mind(ledger, run_id)),
        name="subject",
        instructions="Do as you are told.",
        tools=[look, put, send, stumble],
        limits=Limits(turns=TURNS, tokens=1_000_000, recoveries=50, on_exhausted="wrap_up"),
        retry=Retry(attempts=50, base_delay=0.001),
        settings={"max_tokens": 1_000},
        store=store,
    )


async def drive(what: str, path: Path, ledger: Ledger, run_id: str) -> None:
    """Start a run or go on with it, to its end."""
    async with SQLiteStore(path, lease=LEASE) as store:
        agent = subject(Noting(store, ledger), ledger, run_id)
        if what == "start":
            await agent.run("Fill the box.", run_id=run_id)
            return
        with suppress(RunFinished):
            async with await agent.resume(run_id) as run:
                await run.finish()


class Deadly(Failing):
    """Kills the process at an operation, where others fail."""

    def count(self, call: str) -> None:
        """Kill if it is this operation's turn."""
        self.seen += 1
        if self.seen == self.first:
            os.kill(os.getpid(), signal.SIGKILL)


def main(what: str, path: str, ledger: str, run_id: str, operation: str = "0") -> int:
    """The program; gives its exit status: 75 when another process drives the run (EX_TEMPFAIL of sysexits.h)."""
    with mounted(Disk()) if int(operation) else nullcontext() as disk:
        if disk is not None:
            disk.failing = Deadly(first=int(operation))
        try:
            asyncio.run(drive(what, Path(path), Ledger(Path(ledger)), run_id))
        except RunIsLeased as error:
            sys.stderr.write(f"{error}\n")
            return 75
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
