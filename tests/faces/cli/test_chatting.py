"""`turnstile chat`: a conversation with commands of its own, in a terminal and through a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faces.cli.conftest import Here, Open


def test_a_conversation_remembers_and_is_left_well(terminal: Open) -> None:
    """The point of a chat is that the second question may rest on the first answer."""
    opened = terminal("chat", "demo:agent")
    opened.wait_for("/help lists commands; Ctrl-D leaves")
    opened.wait_for("you> ")
    opened.type("hello\n")
    opened.wait_for("Answer 1: sunny.")
    opened.wait_for("you> ")
    opened.type("   \n")
    opened.wait_for("you> ")
    opened.type("and now?\n")
    opened.wait_for("Answer 2: sunny.")
    opened.wait_for("you> ")
    opened.type("/exit\n")
    assert opened.finish() == 0


def test_commands_tell_and_are_not_sent(terminal: Open) -> None:
    """A command is for the program: the model must not see it, and each must answer at once."""
    opened = terminal("chat", "demo:agent")
    opened.wait_for("you> ")
    opened.type("/why\n")
    opened.wait_for("no run yet; say something first")
    opened.type("/tools\n")
    opened.wait_for(r"get_weather: Weather of a city\.\s+explode: Always fails\.")
    opened.type("/help\n")
    opened.wait_for("/exit +leave")
    opened.type("/hlep\n")
    opened.wait_for(r"no command '/hlep'; did you mean '/help'")
    opened.type("/xyzzy\n")
    opened.wait_for(r"no command '/xyzzy'; there are /exit, /tools, /why, /help")
    opened.type("hello\n")
    opened.wait_for("Answer 1: sunny.")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0


def test_why_explains_the_last_run(terminal: Open) -> None:
    """Each move with the rows refused before it answers "why not" without another run."""
    opened = terminal("chat", "demo:agent")
    opened.wait_for("you> ")
    opened.type("hello\n")
    opened.wait_for(r"done \(answered\)")
    opened.wait_for("you> ")
    opened.type("/why\n")
    opened.wait_for(r"1 await_model --ModelReplied--> execute_tools  \(row run_tools\)")
    opened.wait_for(r"was_refused said no to refused")
    opened.wait_for(r"4 await_model --ModelReplied--> done  \(row answered\)")
    opened.wait_for(r"wants_tools said no to wrap_up, limit, run_tools")
    opened.wait_for("so answered was taken")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0


def test_lines_can_be_edited_and_called_back(terminal: Open) -> None:
    """Line editing is what makes a chat bearable: a typo is mended, and the last message comes back with a key."""
    opened = terminal("chat", "demo:agent")
    opened.wait_for("you> ")
    opened.type("hellx\x7fo\n")
    opened.wait_for("Answer 1: sunny.")
    opened.wait_for("you> ")
    opened.type("\x1b[A\n")  # the up arrow
    opened.wait_for("hello")
    opened.wait_for("Answer 2: sunny.")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0


def test_ctrl_c_at_the_prompt_takes_back_the_line(terminal: Open) -> None:
    """As in a shell: what was typed is dropped, and nothing ends."""
    opened = terminal("chat", "demo:agent")
    opened.wait_for("you> ")
    opened.type("never mind")
    opened.wait_for("never mind")
    opened.wait_until_it_waits()  # CPython's readline takes an interrupt between two keys only at the end of the line
    opened.type("\x03")
    opened.wait_for("you> ")
    opened.type("hello\n")
    opened.wait_for("Answer 1: sunny.")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0
    assert "Answer 2" not in opened.raw


def test_an_answer_that_goes_to_a_file_is_not_mixed_with_the_prompt(terminal: Open, folder: Path) -> None:
    """`turnstile chat … > notes` must leave the answers in the file and the prompt on the screen."""
    opened = terminal("chat", "demo:agent", output=folder / "notes")
    opened.wait_for("you> ")
    opened.type("hello\n")
    opened.wait_for(r"done \(answered\)")
    opened.wait_for("you> ")
    opened.type("\x04")
    assert opened.finish() == 0
    assert (folder / "notes").read_text() == "Answer 1: sunny.\n"


def test_a_pipe_brings_a_message_a_line(here: Here) -> None:
    """A script can hold a conversation, too, and gets the answers alone."""
    result = here("chat", "demo:agent", "--quiet", stdin="hello\n\nand now?\n/exit\nnever read\n")
    assert (result.exit_code, result.stdout) == (0, "Answer 1: sunny.\nAnswer 2: sunny.\n")


def test_json_answers_are_one_line_each(here: Here) -> None:
    """A program that chats reads one result for each message."""
    result = here("chat", "demo:agent", "--json", "--session", "s", stdin="hello\nand now?\n")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["output"][:8], each["session"]) for each in told] == [("Answer 1", "s"), ("Answer 2", "s")]


def test_a_scripts_status_is_the_last_runs(here: Here) -> None:
    """A script that pipes messages in must learn that the last one failed."""
    result = here("chat", "demo:agent", "--max-turns", "1", stdin="hello\n")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("", "nothing to read: chat takes messages from a terminal, or one a line from a pipe or a file"),
        (b"\xff\xfe\n", "a message is not valid UTF-8"),
    ],
)
def test_nothing_to_read_is_misuse(here: Here, stdin: str | bytes | None, says: str) -> None:
    """A chat that ends before it began would look as if all were well."""
    result = here("chat", "demo:agent", stdin=stdin)
    assert result.exit_code == 2
    assert says in result.stderr.splitlines()[-1]


def test_a_closed_standard_input_is_nothing_to_read(folder: Path, environment: dict[str, str]) -> None:
    """A service manager may start a program without standard input; that is no terminal either."""
    import subprocess
    import sys

    command = [sys.executable, "-c", "from turnstile.cli import main; main()", "chat", "demo:agent"]
    script = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    result = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "nothing to read" in result.stderr


def test_an_agent_without_tools_says_so(here: Here, folder: Path) -> None:
    """Silence as an answer to /tools would look like a fault."""
    (folder / "bare.py").write_text(
        "from turnstile.agent import Agent\nfrom turnstile.testing import ScriptedModel\n"
        "agent = Agent(ScriptedModel(['Hello.']))\n"
    )
    assert "this agent has no tools" in here("chat", "bare:agent", stdin="/tools\n").stderr
