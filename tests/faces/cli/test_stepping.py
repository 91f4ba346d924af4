"""`turnstile run --step` in a terminal: one key, one transition, with what is about to happen and why not otherwise."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from typing import TYPE_CHECKING

import pytest

from turnstile.cli.keys import END, Keys

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Here, Open

HELP = r"\[Enter\] one transition  \[w\] why not another  \[c\] run on  \[q\] cancel"


def test_each_key_takes_one_transition(terminal: Open) -> None:
    """Stepping is for looking before each move, so nothing may happen that was not shown and asked for."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(r"await_model \(0 turns\)\s+next: CallModel to scripted:model, with 1 item of history")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(r"1 await_model --ModelReplied--> execute_tools\s+row run_tools · calls get_weather ×2, explode")
    opened.wait_for(
        r'RunTools, 3 calls\s+get_weather \{"city": "Oslo"\}\s+get_weather \{"city": "Rome"\}\s+explode \{\}'
    )
    opened.wait_for(HELP)
    opened.type("\n")
    opened.wait_for(r"2 execute_tools --ToolsFinished--> append_results\s+row finished")
    opened.wait_for(r"get_weather ok .*\s+get_weather ok .*\s+explode error .*: ValueError: no luck")
    opened.wait_for(r"next: nothing outside; the results become part of the history")
    opened.wait_for(HELP)
    opened.type("\r")
    opened.wait_for(r"3 append_results --ResultsAppended--> await_model")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(r"4 await_model --ModelReplied--> done\s+row answered")
    opened.wait_for(r"done \(answered\)")
    assert opened.finish() == 0
    assert opened.raw.count("--> ") == 4


def test_other_keys_do_nothing_and_w_tells_why_not(terminal: Open) -> None:
    """Why a run went this way and no other is the question that stepping exists to answer."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type("xw")
    opened.wait_for("nothing has happened yet")
    opened.type(" ")
    opened.wait_for(HELP)
    opened.type("w")
    opened.wait_for(
        r"was_truncated said no to cut_call, truncated\s+limit_hit said no to wrap_up, limit\s+so run_tools"
    )
    opened.type(" ")
    opened.wait_for("append_results --|next: nothing")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(HELP)
    opened.type("w")
    opened.wait_for("appended was the first row to try")
    opened.type("c")
    assert opened.finish() == 0


def test_c_runs_on_and_still_shows_each_transition(terminal: Open) -> None:
    """Once the interesting part is over, the rest should come without a key, and still be seen."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type("c")
    assert opened.finish() == 0
    assert opened.raw.count("[Enter]") == 1
    assert opened.raw.count("--> ") == 4


def test_q_cancels_the_run(terminal: Open) -> None:
    """Who has seen enough must be able to leave without an interrupt, and the run must end as a valid one."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type("q")
    opened.wait_for(r"1 await_model --Cancelled--> failed")
    opened.wait_for(r"failed \(cancelled\): 0 turns")
    assert opened.finish() == 1


def test_ctrl_d_cancels_too(terminal: Open) -> None:
    """Ctrl-D means that no more input comes, so waiting for a key would be for ever."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type("\x04")
    opened.wait_for(r"failed \(cancelled\)")
    assert opened.finish() == 1


def test_ctrl_c_while_waiting_for_a_key_interrupts(terminal: Open) -> None:
    """Ctrl-C means the same wherever it is pressed: a clean end, what was kept, and status 130."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(HELP)
    opened.type("\x03")
    opened.wait_for("cancelling")
    opened.wait_for(r"2 execute_tools --Cancelled--> failed")
    opened.wait_for(r"kept 1 turn and 0 tool results of run \w+ in \S+kept\.db")
    assert opened.finish() == 130


def test_two_at_once_at_the_prompt_interrupt_too(terminal: Open) -> None:
    """A system may deliver two quick ones as one; nothing is under way then, so either way the command ends."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    before = opened.modes()
    opened.wait_for(HELP)
    opened.type("\x03\x03")
    assert opened.finish() == 130
    assert "Traceback" not in opened.raw
    assert opened.modes() == before


def test_the_keys_and_what_they_come_to_are_documented(here: Here) -> None:
    """A script that drives --step, and a person before they press, must know which status follows from which key."""
    told = " ".join(here("run", "--help").stdout.split())
    assert "q and Ctrl-D cancel the run, which has then failed (status 1)" in told
    assert "Ctrl-C cancels the run and says what was kept (status 130)" in told


def test_the_terminal_is_given_back_as_it_was(terminal: Open) -> None:
    """A program that leaves a terminal without echo has broken its user's shell."""
    opened = terminal("run", "demo:agent", "hi", "--step")
    before = opened.modes()
    opened.wait_for(HELP)
    assert opened.modes() != before
    opened.type("c")
    assert opened.finish() == 0
    assert opened.modes() == before


def test_without_a_terminal_there_is_nothing_to_press(cli: Cli) -> None:
    """Keys cannot come through a pipe, so it says so at once, with the way to see each transition anyway."""
    result = cli("run", "demo:agent", "hi", "--step")
    assert result.returncode == 2
    assert result.stdout == ""
    line = (
        "turnstile: --step reads keys from a terminal, and standard input is none; give the prompt as an argument in a "
    )
    assert result.stderr == line + "terminal, or use --log-json FILE, which shows each transition\n"


def test_states_and_effects_of_an_extension_are_stepped_unasked(terminal: Open) -> None:
    """A table that its user extended must be as easy to step as the built-in one."""
    opened = terminal("run", "extended:agent", "hi", "--step")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(r"review \(1 turn\)\s+next: Review")
    opened.wait_for(HELP)
    opened.type(" ")
    opened.wait_for(r"2 review --Reviewed--> done")
    assert opened.finish() == 0
    assert opened.raw.count("Hello.") == 1


def test_a_terminal_that_has_gone_brings_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the window is closed no key comes any more; waiting on, or a traceback, would leave a run behind."""
    master, slave = pty.openpty()
    with os.fdopen(slave) as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stream)
        with Keys("--step") as keys:
            os.close(master)
            assert asyncio.run(keys.press()) in END
