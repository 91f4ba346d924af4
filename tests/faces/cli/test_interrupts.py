"""Ctrl-C: once it cancels and says what was kept; twice it leaves at once; and the terminal is in order afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Open

SLOW = """
import asyncio
import sys
import threading

from turnstile.agent import Agent
from turnstile.core.messages import Reply
from turnstile.testing import ScriptedModel, call
from turnstile.tools import ToolContext, tool


@tool
def look() -> str:
    "Look."
    return "seen"


@tool
async def hang(ctx: ToolContext) -> str:
    "Never ends by itself."
    ctx.progress("waiting")
    await asyncio.Event().wait()


async def stubborn(request):
    print("asked", file=sys.stderr, flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("holding on", file=sys.stderr, flush=True)
        threading.Event().wait()


def script(request: str) -> None:
    if request.items[-1].kind == "user" and "short" in request.items[-1].text:
        return "Short."
    results = [result for item in request.items if item.kind == "exchange" for result in item.results]
    return call("hang") if results else call("look")


agent = Agent(ScriptedModel(script), tools=[look, hang])
never = Agent(ScriptedModel(stubborn))
raising = Agent(ScriptedModel([call("quit")]), tools=[])


@tool
def stop() -> str:
    "Interrupts."
    raise KeyboardInterrupt


interrupting = Agent(ScriptedModel([call("stop"), "Never said."]), tools=[stop])
"""


@pytest.fixture(autouse=True)
def _slow(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)


@pytest.mark.parametrize("store", ["", "memory", "runs.db"])
def test_once_cancels_and_says_what_was_kept(terminal: Open, store: str) -> None:
    """What was paid for must be known after an interrupt: turns, results, the run's id, and where they are."""
    opened = terminal("run", "slow:agent", "hi", *(["--store", store] if store else []))
    opened.wait_for("hang: waiting")
    opened.type("\x03")
    opened.wait_for(r"cancelling: what runs is told to stop \(Ctrl-C again leaves at once\)")
    opened.wait_for(r"failed \(cancelled\): 2 turns, 2 tool calls, run \w+; interrupted from the keyboard")
    where = {"": r"in \S+kept\.db", "memory": "in memory only, which ends with this process"}.get(store, f"in {store}")
    opened.wait_for(rf"kept 2 turns and 1 tool result of run \w+ {where}")
    assert opened.finish() == 130


def test_twice_leaves_at_once_with_the_terminal_in_order(terminal: Open) -> None:
    """Something that does not let go must not hold up who wants to leave, nor leave the cursor hidden behind."""
    opened = terminal("run", "slow:never", "hi")
    before = opened.modes()
    opened.wait_for("asked")
    opened.type("\x03")
    opened.wait_for("holding on")
    opened.type("\x03")
    opened.wait_for("turnstile: left at once")
    assert opened.finish() == 130
    assert opened.modes() == before
    assert opened.raw.count("\x1b[?25l") == opened.raw.count("\x1b[?25h")


def test_twice_while_stepping_leaves_at_once_too(terminal: Open) -> None:
    """Stepping changes the terminal's mode, which must be undone even when nothing else is."""
    opened = terminal("run", "slow:never", "hi", "--step")
    before = opened.modes()
    opened.wait_for("cancel")
    opened.type(" ")
    opened.wait_for("asked")
    opened.type("\x03")
    opened.wait_for("holding on")
    opened.type("\x03")
    opened.wait_for("left at once")
    assert opened.finish() == 130
    assert opened.modes() == before


def test_a_tools_own_interrupt_ends_the_command(cli: Cli) -> None:
    """A tool that was interrupted lets the interrupt go on; the command must not call that a bug."""
    result = cli("run", "slow:interrupting", "hi")
    assert result.returncode == 130
    assert "Traceback" not in result.stderr


def test_a_chat_outlives_the_run_that_was_cancelled(terminal: Open) -> None:
    """Ctrl-C in a chat is about the answer that takes too long, not about the conversation."""
    opened = terminal("chat", "slow:agent")
    opened.wait_for("you> ")
    opened.type("a long one\n")
    opened.wait_for("hang: waiting")
    opened.type("\x03")
    opened.wait_for(r"failed \(cancelled\)")
    opened.wait_for("you> ")
    opened.type("a short one\n")
    opened.wait_for("Short.")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0
