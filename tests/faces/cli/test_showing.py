"""`turnstile runs show`: a stored run's path, and what became of its calls."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.agent import Agent
from turnstile.core.events import CallStarted, EffectBegun
from turnstile.core.limits import Limits, Price
from turnstile.core.messages import Attachment, Reply, Usage
from turnstile.ports import Record
from turnstile.replay import fork, summary_of
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call
from turnstile.tools import tool

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here

RUN = "abc123"


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


@tool
def explode() -> str:
    """Always fails."""
    raise ValueError("no luck")


def talking() -> Agent[str]:
    """An agent that calls two tools, one of which fails, and then answers."""
    calls = (call("get_weather", city="Oslo"), call("explode"))
    first = Reply("Let me look.", calls, "tool_calls", usage=Usage(1000, 200))
    model = ScriptedModel([first, Reply("It is \x1b[31msunny.", usage=Usage(2000, 100))], price=Price(1, 1))
    return Agent(model, name="demo", tools=[get_weather, explode], clock=FrozenClock())


@pytest.fixture(autouse=True)
async def _one(folder: Path) -> None:
    """A store with one run that has ended."""
    agent = talking()
    async with SQLiteStore(folder / "kept.db") as store:
        agent.store, agent.origin = store, "demo:agent"
        await agent.run("Is it\nwarm?", run_id=RUN, session="monday")


def test_the_header_says_what_it_was_and_came_to(here: Here) -> None:
    """Who, when, how it ended and what it cost are asked before how it got there."""
    lines = here("runs", "show", "abc").stdout.splitlines()
    assert lines[0] == f"run {RUN}  done: answered"
    assert lines[1:3] == ["  agent    demo (demo:agent)", "  model    scripted:model"]
    assert re.fullmatch(r"  began    \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, took 0 ms", lines[3])
    assert lines[4:7] == [
        "  spent    2 turns, 2 tool calls, 3,300 tokens, $0.0033",
        "  session  monday",
        "  prompt   Is it warm?",
    ]


def test_the_path_has_a_line_for_each_move_and_each_call(here: Here) -> None:
    """States, row, time, tokens and cost in columns, and below a batch how each of its calls ended."""
    lines = here("runs", "show", RUN).stdout.splitlines()
    path = lines[lines.index("") + 1 :]
    assert [re.sub(r"\d+ ms", "_ ms", re.sub(" {2,}", "  ", line)) for line in path] == [
        "1  await_model → execute_tools  run_tools  _ ms  1,200 tok  $0.0012",
        "2  execute_tools → append_results  finished  _ ms",
        "  get_weather call_1_1: finished, ok in _ ms",
        "  explode call_1_2: finished, error in _ ms",
        "3  append_results → await_model  appended  _ ms",
        "4  await_model → done  answered  _ ms  2,100 tok  $0.0021",
    ]
    assert len({line.index("→") for line in path if "→" in line}) <= 3  # the columns begin in the same place
    assert all(len(line) <= 80 for line in path)


def test_the_conversation_is_shown_when_asked_for(here: Here) -> None:
    """It may be long and private, so it comes on request; a terminal is not recoloured by it."""
    assert "sunny in Oslo" not in here("runs", "show", RUN).stdout
    shown = here("runs", "show", RUN, "--messages").stdout
    assert shown.endswith(
        "user: Is it\nwarm?\n"
        'model: Let me look.\n  calls get_weather {"city": "Oslo"}\n  calls explode {}\n'
        "get_weather ok: sunny in Oslo\n"
        "explode error: ValueError: no luck\n"
        "model: It is sunny.\n"
    )


def test_as_json_all_of_it(here: Here) -> None:
    """A program gets numbers, whole texts, and nothing to take apart."""
    told = json.loads(here("runs", "show", RUN, "--json").stdout)
    assert (told["run_id"], told["state"], told["reason"], told["turns"]) == (RUN, "done", "answered", 2)
    assert (told["tokens"], told["session"], told["models"]) == (3300, "monday", ["scripted:model"])
    assert (told["output"], told["forked_from"], told["holder"]) == ("It is \x1b[31msunny.", None, "")
    assert [move["row"] for move in told["path"]] == ["run_tools", "finished", "appended", "answered"]
    assert [(each["name"], each["outcome"], each["begun"], each["seq"]) for each in told["calls"]] == [
        ("get_weather", "finished", 1, 2),
        ("explode", "finished", 1, 2),
    ]
    assert [message["role"] for message in told["messages"]] == ["user", "model", "tool", "tool", "model"]


async def _keep(folder: Path, agent: Agent[str], steps: int, prompt: Sequence[str | Attachment]) -> None:
    async with SQLiteStore(folder / "kept.db") as store:
        agent.store = store
        async with agent.start(prompt, run_id="other") as run:
            while not run.finished and run.snapshot.seq < steps:
                await run.step()


def keep(folder: Path, agent: Agent[str], *, steps: int = 99, prompt: Sequence[str | Attachment] = ("Hi",)) -> None:
    """Keep a run of an agent that makes so many steps."""
    asyncio.run(_keep(folder, agent, steps, prompt))


def test_a_run_that_failed_says_why(here: Here, folder: Path) -> None:
    """The detail is what the stop reason alone does not tell."""
    agent = Agent(ScriptedModel([Reply("", finish="refusal", finish_raw="content_filter")]))
    keep(folder, agent)
    shown = here("runs", "show", "other").stdout
    assert shown.startswith("run other  failed: refused\n")
    assert "  detail   the server said 'content_filter'\n" in shown


def test_a_run_that_ran_into_a_limit_says_which(here: Here, folder: Path) -> None:
    """It looks done, and its answer is one that it had to give."""
    agent = talking()
    agent.limits = Limits(turns=1, on_exhausted="wrap_up")
    keep(folder, agent)
    shown = here("runs", "show", "other").stdout
    assert "  limit    max_turns, after which it answered with what it had\n" in shown
    assert "get_weather call_1_1: not run\n" in shown
    assert re.search(r"^1 +await_model → append_results +wrap_up ", shown, re.MULTILINE)
    assert "engine: The turn limit of this run is reached" in here("runs", "show", "other", "--messages").stdout


def test_a_run_between_two_steps_is_driven_by_nobody(here: Here, folder: Path) -> None:
    """What is open and who holds it are what a reader needs before resuming it."""
    keep(folder, talking(), steps=1)
    shown = here("runs", "show", "other").stdout
    assert shown.startswith("run other  execute_tools\n")
    assert "  driven   by nobody\n" in shown
    assert "     get_weather call_1_1: open\n" in shown


def test_a_run_that_has_done_nothing_has_no_path(here: Here, folder: Path) -> None:
    """A process that died at once leaves a prompt and its attachments, and that can be shown."""
    picture = Attachment.of(b"x", "image/png", "cat.png")
    keep(folder, talking(), steps=0, prompt=["What is it?", picture])
    shown = here("runs", "show", "other", "--messages").stdout
    assert shown.startswith("run other  await_model\n")
    assert "→" not in shown
    assert shown.endswith("user: What is it?\n  [image/png cat.png]\n")


def test_a_call_that_waits_for_a_decision_is_named(here: Here, folder: Path) -> None:
    """Its id is what `approve` and `deny` are given."""

    @tool(on_in_doubt="ask")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "Done."]), tools=[pay])
    asyncio.run(_lose(folder, agent))
    shown = here("runs", "show", "other").stdout
    assert "waits    for a decision about call_1_1" in shown
    assert "     pay call_1_1: in doubt\n" in shown


async def _lose(folder: Path, agent: Agent[str]) -> None:
    """Leave a run as a process does that died while a call was at work, and resume it to the question."""
    async with SQLiteStore(folder / "kept.db") as store:
        agent.store = store
        async with agent.start("Hi", run_id="other") as run:
            await run.step()
        lease = await store.claim("other", lambda letter: None)
        begun = [Record(EffectBegun()), Record(CallStarted("call_1_1", "pay", ""))]
        await store.append(lease, begun, summary_of(run.snapshot))
        store.release(lease)
        async with await agent.resume("other") as resumed:
            await resumed.finish()
    assert resumed.waiting


def test_a_fork_says_where_it_comes_from(here: Here, folder: Path) -> None:
    """What it shares was done by another run, at another time."""
    agent = talking()
    agent.clock = FrozenClock(2_000_000_000.0)
    asyncio.run(_fork(folder, agent))
    shown = here("runs", "show", "forked").stdout
    assert f"  forked   from {RUN}@3\n" in shown
    assert re.search(r"^1 .* shared ", shown, re.MULTILINE)


async def _fork(folder: Path, agent: Agent[str]) -> None:
    async with SQLiteStore(folder / "kept.db") as store:
        await fork(store, agent, RUN, 3, new_run_id="forked")


def test_a_run_of_another_machine_says_what_is_missing(here: Here) -> None:
    """Its events are its agent's own, so that must be named; a row that is another now is noted."""
    for name in ("extended:agent", "extended:doubting"):
        assert here("run", name, "hi").exit_code == 0
    doubting, extended, _ = [line.split("\t")[0] for line in here("runs", "list").stdout.splitlines()]
    result = here("runs", "show", extended)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "if its agent has a machine of its own, add --agent AGENT" in result.stderr
    assert here("runs", "show", extended, "--agent", "extended:agent").exit_code == 0
    result = here("runs", "show", doubting)
    assert result.exit_code == 0
    assert "the row was doubt, and is answered now" in result.stderr
