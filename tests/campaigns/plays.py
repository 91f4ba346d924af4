"""Plays: for each row of the table what a model says, and what else happens, so that a run takes it.

A model's line is found by how many of its replies and failures the journal holds, so that a play goes on where it was,
in whatever process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ledger import Entry, Ledger
from subject import digest_of_request
from turnstile import Agent, Limits, Reply, Retry, Run, StopRun, ToolContext, tool
from turnstile.core.approval import with_approval
from turnstile.core.events import Cancelled, Event, ModelFailed, ModelReplied
from turnstile.core.machine import loop
from turnstile.core.messages import Usage
from turnstile.core.strict_json import JsonValue
from turnstile.ports import ModelRequest, Store
from turnstile.testing import FrozenClock, ScriptedModel, call
from turnstile.testing.scripted import Said

MACHINE = with_approval(loop)  # what an agent with the tool `ask` has; made once
USAGE = Usage(100, 20)
LONG = "Tell me more. " * 400


@dataclass(slots=True)
class Stage:
    """What a play's model and tools can reach.

    Attributes:
        run: The run, once it has begun.
        clock: The time, which goes on from process to process.
        ledger: Where tools and models write down what they do.
        draw: How long tools take, in turns of the event loop.
        kept: The events of the journal so far.
        store: Where letters are posted.
        posted: The letters so far, of all processes.
    """

    clock: FrozenClock
    ledger: Ledger
    draw: Random
    kept: Sequence[Event]
    store: Store
    posted: list[str]
    run: Run[Any] | None = None

    def cancel(self) -> None:
        """Somebody wants the run to stop."""
        assert self.run
        self.run.cancel("enough")

    def inject(self) -> None:
        """The user says something."""
        assert self.run
        self.run.inject("By the way, be quick.")

    def be_late(self) -> None:
        """The time is over."""
        self.clock.advance(1000.0)


Act = Callable[[Stage], Awaitable[Said]]
Line = Said | Act


def then(act: Callable[[Stage], None], said: Said | None = None) -> Act:
    """A line before which something happens; without words the model falls silent."""

    async def line(stage: Stage) -> Said:
        act(stage)
        await asyncio.sleep(0)
        if said is None:
            await asyncio.Event().wait()
        return said or ""

    return line


async def post_once(stage: Stage) -> Said:
    """A line before which somebody else orders the run to stop, once: whoever loses that letter gets an answer."""
    assert stage.run
    if stage.posted:
        return DONE
    stage.posted.append("cancel")
    await stage.store.post(stage.run.run_id, Cancelled("by letter"))
    await asyncio.Event().wait()
    return DONE


@dataclass(frozen=True, slots=True)
class Play:
    """A run that takes a row.

    Attributes:
        lines: What the model says, in order; the last again for ever.
        limits: How far it may go.
        output: What the answer must be.
        models: How many there are.
        first: In a process that dies there first: a row, or an event that no row takes. Some rows need that.
        prompt: What the user asks.
        ends: Why it must end, whenever its process dies; empty when that depends.
    """

    lines: Sequence[Line]
    limits: Mapping[str, Any] = field(default_factory=dict)
    output: type = str
    models: int = 1
    first: str = ""
    prompt: str = "Fill the box."
    ends: str = ""


LOOK, PUT, SEND = call("look", what="box"), call("put", name="ball"), call("send", text="hello")
ALL = (LOOK, PUT, SEND)
TWO_ASKED = (call("ask", text="one"), call("ask", text="two"), LOOK)
DONE = Reply("42", usage=USAGE)


def calls(*wanted: Any, finish: Any = "tool_calls") -> Reply:
    """A reply that calls tools."""
    return Reply(calls=tuple(wanted), finish=finish, usage=USAGE)


PLAYS: dict[str, Play] = {
    "stopping": Play([calls(call("stop"), *ALL)]),
    "cancelled": Play([calls(*ALL), post_once], ends="cancelled"),
    "time_limit": Play([calls(*ALL), then(Stage.be_late)], {"seconds": 500.0}),
    "injected": Play([calls(*ALL), then(Stage.inject, calls(LOOK)), DONE]),
    "lost_stopping": Play([calls(call("stop"), *ALL)], first="stopping"),
    "recovered": Play([calls(*ALL), DONE], first="run_tools"),
    "crash_loop": Play([calls(*ALL), DONE], {"recoveries": 0}, first="run_tools"),
    "wrap_up_unsent": Play([DONE], {"tokens": 4_100, "on_exhausted": "wrap_up"}, prompt=LONG),
    "over_budget": Play([DONE], {"tokens": 10}),
    "trimmed": Play([calls(*ALL), calls(LOOK), ModelFailed("context_overflow"), DONE]),
    "retry": Play([calls(*ALL), ModelFailed("overloaded"), ModelFailed("overloaded"), DONE]),
    "filtered": Play([calls(*ALL), ModelFailed("content_filter")]),
    "repair_call": Play([ModelFailed("generation_failed"), calls(*ALL), DONE]),
    "next_model": Play([calls(*ALL), ModelFailed("authentication"), DONE], models=2),
    "overflow": Play([ModelFailed("context_overflow")]),
    "gave_up": Play([calls(*ALL), ModelFailed("authentication")]),
    "refused": Play([calls(*ALL), Reply("No.", finish="refusal", usage=USAGE)]),
    "cut_call": Play([calls(SEND, finish="length"), calls(*ALL), DONE]),
    "truncated": Play([calls(*ALL), Reply("It is", finish="length", usage=USAGE)]),
    "wrap_up": Play([calls(*ALL), calls(SEND), DONE], {"turns": 2, "on_exhausted": "wrap_up"}),
    "limit": Play([calls(*ALL), calls(SEND)], {"turns": 2}),
    "run_tools": Play([calls(*ALL), calls(SEND, call("nothing"), call("stumble")), DONE]),
    "paused": Play([Reply("Well", finish="pause", usage=USAGE), calls(*ALL), DONE]),
    "paused_limit": Play([calls(*ALL), Reply("Well", finish="pause", usage=USAGE)], {"turns": 2}),
    "ask_injected": Play([then(Stage.inject, DONE), calls(*ALL), DONE]),
    "nudge_promise": Play([Reply("Now", finish="tool_calls", usage=USAGE), calls(*ALL), DONE]),
    "incomplete": Play([calls(*ALL), Reply("Now", finish="tool_calls", usage=USAGE)], {"nudges": 0}),
    "answered": Play([calls(*ALL), DONE]),
    "repair_output": Play([calls(*ALL), Reply("many", usage=USAGE), DONE], output=int),
    "invalid_output": Play([calls(*ALL), Reply("many", usage=USAGE)], {"repairs": 0}, output=int),
    "empty_answer": Play([calls(*ALL), Reply("", usage=USAGE)]),
    "nudge_empty": Play([Reply("", usage=USAGE), calls(*ALL), DONE]),
    "no_answer": Play([Reply("", usage=USAGE)], {"nudges": 0}),
    "stopped": Play([calls(call("stop"), *ALL)]),
    "tool_aborted": Play([calls(call("abort"), *ALL)]),
    "finished": Play([calls(*ALL), DONE], {"parallel": 1}),
    "appended": Play([calls(*ALL), calls(*ALL), DONE]),
    "in_doubt": Play([calls(*TWO_ASKED), DONE], first="run_tools"),
    "decided": Play([calls(*TWO_ASKED), DONE], first="run_tools"),
    "waiting": Play([calls(*TWO_ASKED), DONE], first="run_tools"),
    "RunStarted": Play([calls(*ALL), DONE]),
    "EffectBegun": Play([calls(*ALL), calls(*ALL), DONE]),
    "CallStarted": Play([calls(*ALL), DONE], {"parallel": 1}),
    "CallFinished": Play([calls(*ALL), DONE], {"parallel": 2}),  # those that end at once come with their batch
    "claim": Play([calls(*ALL), DONE], first="run_tools"),
}
"""By the row that a play takes, or the event without a row, or the claim of a run, that a process is to die at."""


def agent_of(play: Play, store: Store, stage: Stage) -> Agent[Any]:
    """The agent of a play, ready to go on wherever its journal is."""
    limits = {"tokens": 1_000_000, "recoveries": 3, "seconds": 100_000.0} | dict(play.limits)

    def model(index: int) -> ScriptedModel:
        async def say(request: ModelRequest) -> Said:
            assert stage.run
            stage.ledger.note(Entry("asked", stage.run.run_id, digest=digest_of_request(request, index)))
            said = sum(isinstance(event, ModelReplied | ModelFailed) for event in stage.kept)
            line = play.lines[min(said, len(play.lines) - 1)]
            return await line(stage) if callable(line) else line

        return ScriptedModel(say, name=f"scripted:{index}")

    return Agent(
        [model(index) for index in range(play.models)],
        name="player",
        tools=TOOLS,
        limits=Limits(**limits),
        output=play.output,
        retry=Retry(attempts=4),
        settings={"max_tokens": 1_000},
        machine=MACHINE,
        store=store,
        clock=stage.clock,
    )


async def work(tool_name: str, ctx: ToolContext, **arguments: JsonValue) -> str:
    """What every tool does: it writes down that it works, for a while that is drawn."""
    stage: Stage = ctx.deps
    with stage.ledger.effect(tool_name, ctx, **arguments):
        for _ in range(stage.draw.randrange(4)):
            await asyncio.sleep(0)
    return f"{tool_name} is done"


@tool(access="read")
async def look(what: str, ctx: ToolContext) -> str:
    """Look at something."""
    return await work("look", ctx, what=what)


@tool(access="idempotent")
async def put(name: str, ctx: ToolContext) -> str:
    """Put something somewhere."""
    return await work("put", ctx, name=name)


@tool(access="write")
async def send(text: str, ctx: ToolContext) -> str:
    """Send a text."""
    return await work("send", ctx, text=text)


@tool(access="write", on_in_doubt="ask")
async def ask(text: str, ctx: ToolContext) -> str:
    """Send a text that must not be sent twice."""
    return await work("ask", ctx, text=text)


@tool(access="read")
async def stumble(ctx: ToolContext) -> str:
    """Fail."""
    await work("stumble", ctx)
    raise OSError("stumbled")


@tool(access="read")
async def stop(ctx: ToolContext) -> str:
    """Have the run stopped, and still be at work then."""
    stage: Stage = ctx.deps
    done = await work("stop", ctx)
    stage.cancel()
    while not any(isinstance(event, Cancelled) for event in stage.kept):  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0)
    return done


@tool(access="write")
async def abort(ctx: ToolContext) -> str:
    """End the run."""
    await work("abort", ctx)
    raise StopRun("that is all")


TOOLS = (look, put, send, ask, stumble, stop, abort)  # made once: their schemas cost more than a run
