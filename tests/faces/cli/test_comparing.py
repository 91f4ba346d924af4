"""`turnstile diff`: two stored runs beside each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnstile.agent import Agent
from turnstile.core.limits import Price
from turnstile.core.messages import Reply, Usage
from turnstile.stores import SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call
from turnstile.tools import tool

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open


@tool(access="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}\n" * (30 if city == "Rome" else 1)


@pytest.fixture(autouse=True)
async def _two(folder: Path) -> None:
    async with SQLiteStore(folder / "kept.db") as store:
        clock = FrozenClock()
        first = Agent(ScriptedModel([call("get_weather", city="Oslo"), "Yes."]), tools=[get_weather], clock=clock)
        first.store = store
        await first.run("Is it warm in the north of this long country?", run_id="one")
        await first.run(
            "今年十月上海的天气怎么样，适合带孩子出门旅行吗，请详细说明", run_id="wide", model=ScriptedModel(["是。"])
        )
        priced = ScriptedModel(
            [call("get_weather", city="Rome"), call("get_weather", city="Oslo"), Reply("No.", usage=Usage(1000, 9))],
            name="other",
            price=Price(1, 1),
        )
        await first.run("Is it warm in the north of this long country?", run_id="two", model=priced)


def test_what_differs_is_marked_and_aligned(here: Here) -> None:
    """Two columns that fit into eighty, marks between them, and what is the same on one line."""
    lines = here("diff", "one", "two").stdout.splitlines()
    assert lines[:9] == [
        "run one                                  run two",
        "agent   agent                            agent   agent",
        "model   scripted:model                 ≠ model   other",
        "prompt  Is it warm in the north of th…   prompt  Is it warm in the north of th…",
        "turns   2                              ≠ turns   3",
        "calls   1                              ≠ calls   2",
        "tokens  0                              ≠ tokens  1,009",
        "cost    unknown                          cost    unknown",
        "time    0 ms                             time    0 ms",
    ]
    path = lines[lines.index("path") + 1 : lines.index("messages") - 1]
    assert [line[39] for line in path].count("+") == 3
    assert path[-1] == "4 answered → done                        7 answered → done"
    assert all(len(line) <= 80 for line in lines)
    other = here("diff", "two", "one").stdout.splitlines()
    assert [line[39] for line in other[other.index("path") + 1 : other.index("messages") - 1]].count("-") == 3


def test_messages_that_differ_are_whole_up_to_a_point(here: Here) -> None:
    """A result of thirty lines would bury the others; the rest of it is counted."""
    lines = here("diff", "one", "two").stdout.splitlines()
    messages = lines[lines.index("messages") + 1 :]
    assert messages[0] == "  user: Is it warm in the north of this long country?"
    assert '+   calls get_weather {"city": "Rome"}' in messages
    assert "+ … 19 lines more" in messages
    assert {"- model: Yes.", "+ model: No."} <= set(messages)


def test_runs_that_are_the_same_have_no_mark(here: Here) -> None:
    """A run beside itself is the plainest case."""
    shown = here("diff", "one", "one").stdout
    assert not re.search(r"^[-+] | [≠+-] ", shown, re.MULTILINE)


def test_wide_characters_keep_the_columns(here: Here) -> None:
    """Chinese takes two columns a character, and the mark must stand where it always does."""
    from rich.cells import cell_len

    line = next(line for line in here("diff", "wide", "one").stdout.splitlines() if line.startswith("prompt"))
    before, mark, _ = line.partition(" ≠ ")
    assert mark
    assert cell_len(before) == 38


def test_a_terminal_gets_colours_unless_told_not_to(terminal: Open) -> None:
    """Red and green are for eyes; NO_COLOR and pipes get the marks alone."""
    opened = terminal("diff", "one", "two")
    assert opened.finish() == 0
    assert "\x1b[31m" in opened.raw
    assert "\x1b[32m" in opened.raw
    plain = terminal("diff", "one", "two", NO_COLOR="1")
    assert plain.finish() == 0
    assert "\x1b[31m" not in plain.raw
    assert "≠" in plain.raw


def test_as_json(here: Here) -> None:
    """Pairs with both sides, for whoever draws their own picture of it."""
    told = json.loads(here("diff", "one", "two", "--json").stdout)
    assert (told["runs"], told["same"]) == (["one", "two"], False)
    assert [figures["turns"] for figures in told["figures"]] == [2, 3]
    assert [pair["same"] for pair in told["path"]].count(False) == 3
    assert told["path"][-1]["left"]["row"] == told["path"][-1]["right"]["row"] == "answered"
    assert told["messages"][-1] == {
        "same": False,
        "left": {"role": "model", "text": "Yes.", "calls": []},
        "right": {"role": "model", "text": "No.", "calls": []},
    }
    assert json.loads(here("diff", "one", "one", "--json").stdout)["same"] is True
