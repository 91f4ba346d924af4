"""How a user's own code sees the public API; pyright checks it in strict mode, and nothing here runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from msgspec import Struct
from pydantic import BaseModel

from turnstile import (
    Agent,
    Event,
    LastTurns,
    Limits,
    Price,
    Result,
    Retry,
    Run,
    RunState,
    State,
    Stop,
    StopRun,
    ToolContext,
    Transition,
    TurnstileError,
    Usage,
    before,
    evolve,
    loop,
    row,
    tool,
)
from turnstile.log import JsonLog
from turnstile.models import OpenAIChat
from turnstile.ports import ModelClient, Notice, Observer
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, WireServer, assert_path, call


class Weather(BaseModel):
    city: str
    celsius: float


@tool
def plain(city: str) -> str:
    """A tool without options keeps its signature."""
    return city


@tool(access="read", timeout=10, max_result_chars=1_000, max_calls=3, repeats=None, sequential=True)
async def optioned(city: str, ctx: ToolContext, days: int = 3) -> list[str]:
    """A tool with options keeps its signature too."""
    ctx.progress(f"{ctx.run_id} {ctx.call_id} {ctx.idempotency_key}")
    if not city:
        raise StopRun("no city")
    return [city] * days


@tool(access="write", on_in_doubt="ask")
def careful(amount: float) -> str:
    """A tool that a human is asked about after a crash."""
    return f"paid {amount}"


assert_type(plain("Oslo"), str)

text_agent = Agent("openai:gpt-5-mini", name="assistant", instructions="Be brief.", tools=[plain, optioned, careful])
assert_type(text_agent, Agent[str])
typed_agent = Agent(
    [
        OpenAIChat("m", base_url="http://127.0.0.1:1", price=Price(0.5, 2.0)),
        ScriptedModel(["x", call("plain", city="y")]),
    ],
    tools=[plain, len],
    output=Weather,
    limits=Limits(turns=8, tokens=10_000, seconds=60, on_exhausted="wrap_up"),
    context=LastTurns(3),
    retry=Retry(attempts=2),
    store=MemoryStore(),
    observers=[JsonLog("-")],
    settings={"max_tokens": 500, "stop": ["END"]},
    clock=FrozenClock(),
)
assert_type(typed_agent, Agent[Weather])
assert_type(Agent(output=list[int]), Agent[list[int]])
Agent(store=SQLiteStore("runs.db"))


def look_at(result: Result[str]) -> None:
    assert_type(result.output, str)
    assert_type(result.stop, Stop | None)
    assert_type(result.usage, Usage)
    assert_type(result.cost, float | None)
    assert_type(result.partial, str)
    assert_type(result.ok, bool)
    assert_type(result.transitions, tuple[Transition, ...])
    assert_path(result, "await_model done")


async def drive() -> None:
    result = await typed_agent.run("hi", run_id="r1", deps=object(), limits=Limits(turns=2))
    assert_type(result, Result[Weather])
    look_at(text_agent.run_sync("hi", history=result.messages, model="ollama:llama3.2"))
    async with text_agent.start("hi", session="trip") as run:
        assert_type(run, Run[str])
        while not run.finished:
            transition = await run.step()
            assert_type(transition, Transition)
        run.cancel("enough")
        run.inject("more")
        await run.until("append_results")
        assert_type(run.snapshot, RunState)
        async for notice in run.events():
            show(notice)


def show(notice: Notice) -> None:
    print(notice)


class Printer:
    def observe(self, notice: Notice, run: RunState) -> None:
        print(notice, run.state)


def takes(observer: Observer, models: Sequence[ModelClient]) -> None:
    with WireServer([{"status": 200, "body": {}}]) as server:
        print(observer, models, server.url)


takes(Printer(), [ScriptedModel(["x"])])


class Weighed(Event, Struct, frozen=True):
    codec_name = "example.weighed"
    grams: int

    def apply(self, run: RunState) -> RunState:
        return evolve(run, output=self.grams)


def is_heavy(run: RunState, event: Weighed) -> bool:
    return event.grams > 1_000


row("weighed", State("weigh"), Weighed, [is_heavy], State("await_model"))
assert_type(evolve(Usage(1), output_tokens=2), Usage)


class Reviewed(Event):
    def apply(self, run: RunState) -> RunState:
        return run


def needs_review(run: RunState, event: Event) -> bool:
    return run.turns > 1


async def review(run: RunState) -> Event:
    return Reviewed()


reviewed = State("await_review", asks="Review")
machine = loop.extend(
    states=[reviewed],
    rows=[
        before("appended", row("review", State("append_results"), Event, [needs_review], reviewed)),
        row("reviewed", reviewed, Reviewed, [], State("await_model")),
    ],
    performs={"Review": review},
)
Agent(machine=machine)

try:
    text_agent.run_sync("hi")
except TurnstileError as error:
    print(error)
