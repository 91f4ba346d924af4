"""Makes the journals that campaign 12 resumes: a file of runs that ended, paused or died, as one release wrote them.

It uses public names only, so that it runs with the code of any release::

    python tests/campaigns/histories.py tests/histories/format-1.sqlite

Each run is driven by a process of its own, which ends without a word where the run is to be left.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import apsw

from turnstile import Agent, Limits, Retry, Run, RunState, ToolContext, tool
from turnstile.core.events import ModelFailed
from turnstile.ports import ModelRequest, Store
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel, call
from turnstile.testing.scripted import Said

Deed = Callable[[str, ToolContext], Awaitable[None]]
"""What a tool does, by the tool's name; a test notes it, and the process that makes a history dies of it."""


def rounds(request: ModelRequest) -> int:
    """How many batches of calls have been answered since the user last spoke."""
    answered = 0
    for item in request.items:
        answered = 0 if item.kind == "user" else answered + bool(item.results)
    return answered


def answer(request: ModelRequest) -> Said:
    """Look first, then do all that can be done at once, then answer: told by the conversation alone."""
    if rounds(request) == 0:
        return call("look", what="the box")
    if rounds(request) == 1:
        return [call("look", what="the lid"), call("put", name="ball"), call("send", text="hello")]
    return f"done after {rounds(request)} rounds"


def subject(store: Store, model: ScriptedModel, deed: Deed) -> Agent[str]:
    """The agent of all histories; its tools do `deed`."""

    @tool(access="read")
    async def look(what: str, ctx: ToolContext) -> str:
        """Look at something."""
        await deed("look", ctx)
        return f"{what} is red"

    @tool(access="idempotent")
    async def put(name: str, ctx: ToolContext) -> str:
        """Put something into the box."""
        await deed("put", ctx)
        return f"{name} is in the box"

    @tool(access="write")
    async def send(text: str, ctx: ToolContext) -> str:
        """Send a text."""
        await deed("send", ctx)
        return f"sent {text}"

    return Agent(
        model,
        name="subject",
        instructions="Do as you are told.",
        tools=[look, put, send],
        limits=Limits(turns=6, tokens=1_000_000),
        settings={"max_tokens": 1_000},  # what a request that is lost may have cost
        retry=Retry(attempts=4, base_delay=0.01),
        store=store,
    )


def die(*_: object) -> NoReturn:
    """End the process as a kill would."""
    os._exit(0)


async def never(_: ModelRequest) -> Said:
    """A model that does not reply."""
    await asyncio.Event().wait()
    return ""


async def work(name: str, ctx: ToolContext) -> None:
    """A tool that works."""


async def die_sending(name: str, ctx: ToolContext) -> None:
    """A tool that works until the process dies while a text is being sent, and others are done or under way."""
    if name == "send":
        die()
    if name == "put":
        await asyncio.Event().wait()


async def answered(store: Store, run_id: str) -> None:
    """A run that ended."""
    await subject(store, ScriptedModel(answer), work).run("Fill the box.", run_id=run_id)


async def talking(store: Store, run_id: str) -> None:
    """A conversation of two runs, the second named as the run."""
    agent = subject(store, ScriptedModel(answer), work)
    await agent.run("Fill the box.", run_id=f"{run_id}-first", session="talk")
    await agent.run("Once more.", run_id=run_id, session="talk")


async def asking(store: Store, run_id: str) -> None:
    """A run that died while it waited for a model's reply, after a batch of calls."""
    model = ScriptedModel(lambda request: die() if rounds(request) else answer(request))
    await subject(store, model, work).run("Fill the box.", run_id=run_id)


async def working(store: Store, run_id: str) -> None:
    """A run that died while three calls were at work: one had ended, one was under way, one was in its effect."""
    await subject(store, ScriptedModel(answer), die_sending).run("Fill the box.", run_id=run_id)


async def waiting(store: Store, run_id: str) -> None:
    """A run that died while it waited before a retry."""
    failed = ModelFailed("overloaded", "busy", 529, retry_after=30)
    agent = subject(store, ScriptedModel([failed]), work)
    async with agent.start("Fill the box.", run_id=run_id) as run:
        await run.step()
        driving = asyncio.ensure_future(run.finish())
        await seen(run, lambda now: now.in_flight)
        assert not driving.done()
        die()


async def paused(store: Store, run_id: str) -> None:
    """A run that was left between two steps, with calls to run."""
    agent = subject(store, ScriptedModel(answer), work)
    async with agent.start("Fill the box.", run_id=run_id) as run:
        await run.until("execute_tools")
        die()


async def spoken_to(store: Store, run_id: str) -> None:
    """A run that died in a request, with a text of the user that the request did not carry."""
    agent = subject(store, ScriptedModel(never), work)
    async with agent.start("Fill the box.", run_id=run_id) as run:
        run.inject("Be quick.")
        driving = asyncio.ensure_future(run.finish())
        await seen(run, lambda now: now.in_flight)
        run.inject("And careful.")
        await seen(run, lambda now: bool(now.inbox))
        assert not driving.done()
        die()


async def seen(run: Run[str], what: Callable[[RunState], bool]) -> None:
    """Wait until a run that another task drives is so."""
    while not what(run.snapshot):  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0)


RUNS = {make.__name__: make for make in (answered, talking, asking, working, waiting, paused, spoken_to)}


def main(path: Path, name: str = "") -> None:
    """Make the file, or in a process of its own one run of it."""
    if name:
        asyncio.run(RUNS[name](SQLiteStore(path), name))
        return
    for each in RUNS:
        subprocess.run([sys.executable, __file__, str(path), each], check=True)
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode")  # opens the file, which its constructor does not
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
