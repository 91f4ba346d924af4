"""Progress: text as it is written and a line that is drawn over for people at a terminal, plain lines for all else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Cli, Open

STREAMING = """
from turnstile.agent import Agent
from turnstile.core.events import ModelFailed
from turnstile.core.limits import Retry
from turnstile.core.messages import Reply
from turnstile.ports import Delta


class Streaming:
    "Writes a part, fails, and then writes all of it in pieces, of which some are escape sequences torn in two."

    name, price, asked = "streaming", None, 0

    async def reply(self, request, progress):
        self.asked += 1
        progress(Delta("reasoning", "never shown"))
        if self.asked == 1:
            progress(Delta("text", "The answ"))
            return ModelFailed("network", "cut off")
        for piece in ("The ", "answer\\x1b", "[31m is", " 42.\\n"):
            progress(Delta("text", piece))
        return Reply("The answer\\x1b[31m is 42.\\n")

    async def aclose(self):
        pass


class Whole(Streaming):
    "The same at once."

    async def reply(self, request, progress):
        return Reply("The answer is 42.")


agent = Agent(Streaming(), retry=Retry(base_delay=0))
whole = Agent(Whole())
"""


@pytest.fixture(autouse=True)
def _streaming(folder: Path) -> None:
    (folder / "streaming.py").write_text(STREAMING)


def _shown(raw: str) -> list[str]:
    """The lines that a terminal shows in the end: what was drawn over is gone."""
    lines = [""]
    for part in re.split(r"(\r\n|\r|\x1b\[2K|\x1b\[1A|\x1b\[\?*[0-9;]*[a-zA-Z])", raw):
        if part == "\r\n":
            lines.append("")
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part == "\x1b[1A":
            lines.pop()
        elif part != "\r" and not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_text_is_shown_while_it_is_written_and_once_only(terminal: Open) -> None:
    """A person reads along; when the answer is whole it must not come a second time, nor may a torn escape act."""
    opened = terminal("run", "streaming:agent", "hi")
    assert opened.finish() == 0
    shown = _shown(opened.raw)
    assert shown[:5] == [
        "model: streaming (the agent's own)",
        "The answ",
        "await_model → await_model: retry (network cut off); next CallModel (attempt 2)",
        "The answer[31m is 42.",
        shown[4],
    ]
    assert shown[4].startswith("done (answered): 1 turn, run ")
    assert "never shown" not in opened.raw


def test_an_answer_in_one_piece_is_shown_at_the_end(terminal: Open) -> None:
    """Not every model streams."""
    opened = terminal("run", "streaming:whole", "hi")
    assert opened.finish() == 0
    assert _shown(opened.raw)[1] == "The answer is 42."


def test_a_pipe_gets_the_answer_only(cli: Cli) -> None:
    """What was written first may turn out to be void, and a pipe cannot take it back."""
    result = cli("run", "streaming:agent", "hi")
    assert result.stdout == "The answer is 42.\n\n"


def test_a_terminal_shows_state_turn_tools_and_tokens(terminal: Open, folder: Path) -> None:
    """While it takes long, a person wants to see where it is, what runs, and what it costs so far."""
    (folder / "slow.py").write_text(
        "import asyncio\nfrom turnstile import Agent, Reply, Usage, tool\n"
        "from turnstile.testing import ScriptedModel, call\n"
        "@tool\nasync def look() -> str:\n    'Look.'\n    return 'seen'\n"
        "@tool\nasync def hang() -> str:\n    'Hang.'\n    await asyncio.Event().wait()\n"
        "calls = (call('look'), call('look'), call('hang'))\n"
        "model = ScriptedModel([Reply(calls=calls, finish='tool_calls', usage=Usage(100, 20))])\n"
        "agent = Agent(model, tools=[look, hang])\n"
    )
    opened = terminal("run", "slow:agent", "hi")
    opened.wait_for(r"await_model · turn 1 of 10 · \d+ ms")
    opened.wait_for(r"execute_tools · turn 1 of 10 · hang .* · 1 turn, 3 tool calls, 120 tokens")
    opened.type("\x03")
    assert opened.finish() == 130
    assert "turn 1: look ×2, hang" in _shown(opened.raw)


def test_the_running_tool_is_named(terminal: Open, folder: Path) -> None:
    """Of eight tools the slow one is the one to know of."""
    (folder / "slow.py").write_text(
        "import asyncio\nfrom turnstile.agent import Agent\nfrom turnstile.tools import tool\n"
        "from turnstile.testing import ScriptedModel, call\n"
        "@tool\nasync def hang() -> str:\n    'Hang.'\n    await asyncio.Event().wait()\n"
        "agent = Agent(ScriptedModel([call('hang')]), tools=[hang])\n"
    )
    opened = terminal("run", "slow:agent", "hi")
    opened.wait_for(r"execute_tools · turn 1 of 10 · hang \d")
    opened.type("\x03")
    assert opened.finish() == 130


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_without_a_cursor_gets_plain_lines(terminal: Open, term: str) -> None:
    """Editors and logs have terminals that show an escape sequence as it is."""
    opened = terminal("run", "demo:agent", "hi", TERM=term)
    assert opened.finish() == 0
    assert "\x1b" not in opened.raw
    assert "turn 1: get_weather ×2, explode" in opened.raw


def test_no_color_is_respected(terminal: Open) -> None:
    """NO_COLOR (no-color.org) asks for text without colours; moving the cursor is no colour."""
    opened = terminal("run", "demo:agent", "hi", NO_COLOR="1")
    assert opened.finish() == 0
    codes = re.findall(r"\x1b\[([0-9;]*)m", opened.raw)
    assert not [code for code in codes if any(30 <= int(part or 0) <= 107 for part in code.split(";"))]


def test_quiet_shows_no_progress(terminal: Open) -> None:
    """--quiet is for who wants nothing but the answer, at a terminal as well."""
    opened = terminal("run", "streaming:whole", "hi", "--quiet")
    assert opened.finish() == 0
    assert opened.raw == "The answer is 42.\r\n"
