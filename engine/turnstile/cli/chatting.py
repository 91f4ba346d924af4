"""`turnstile chat`: a conversation of many runs, with commands of its own."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from typing import Any

from turnstile.agent import new_run_id
from turnstile.cli.faults import DONE, Misuse, nearest
from turnstile.cli.options import Settings
from turnstile.cli.preparing import Job, prepare
from turnstile.cli.progress import Progress
from turnstile.cli.running import report, to_the_end
from turnstile.cli.screen import Screen, one_line, prints_aside
from turnstile.cli.wording import why_not
from turnstile.result import Result

PROMPT = "you> "
COMMANDS = {
    "/exit": "leave (so does Ctrl-D)",
    "/tools": "what the agent can do",
    "/why": "the last run's path, and at each move why no other was made",
    "/help": "this list",
}
_COMMAND = re.compile(r"/\w*\s*")


def chat(name: str, settings: Settings) -> int:
    """Talk with an agent until the user leaves, and give the exit status.

    A person who leaves has done so well, but for a log that was lost; for a script, whose lines come from a pipe or a
    file, the last run's counts.

    Raises:
        TurnstileError: The command cannot work as it was given.
    """
    job = prepare(name, settings, Screen(quiet=settings.quiet))
    lines = _Lines(job.screen)
    talk = _Talk(job)
    with asyncio.Runner() as runner:
        try:
            while (line := lines.next()) is not None:
                if not talk.hears(line, runner):
                    break
        finally:
            runner.run(job.aclose())
    if talk.was_held and job.kept_in and not settings.session:
        job.screen.say(f"kept; `turnstile chat {name} --session {talk.session}` goes on with it")
    if not lines.came:
        raise Misuse("nothing to read: chat takes messages from a terminal, or one a line from a pipe or a file")
    return talk.status if job.lost_log or not lines.is_terminal else DONE


class _Lines:
    """What the user types, line by line; on a terminal with editing and a history."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self.came = self.is_terminal
        if self.is_terminal:
            with suppress(ImportError):  # not on Windows, whose console edits lines itself
                import readline  # noqa: F401 - input() edits lines with it once it is loaded
            screen.say("/help lists commands; Ctrl-D leaves")

    def next(self) -> str | None:
        """The next line that is more than white space; ``None`` when there are no more."""
        while True:
            try:
                line = self._typed() if self.is_terminal else self._piped()
            except UnicodeDecodeError as error:
                raise Misuse(f"a message is not valid UTF-8 ({error.reason}); give it in that encoding") from error
            if line is None or line.strip():
                return line

    def _typed(self) -> str | None:
        try:
            if sys.stdout.isatty():
                return input(PROMPT)
            sys.stderr.write(PROMPT)  # an answer's place is no place for a prompt
            sys.stderr.flush()
            return input()
        except EOFError:
            self._screen.warn("")
            return None
        except KeyboardInterrupt:  # at the prompt it takes back the line, as in a shell
            self._screen.warn("")
            return ""

    def _piped(self) -> str | None:
        line = sys.stdin.readline() if sys.stdin is not None else ""
        self.came = self.came or bool(line)
        return line or None


class _Talk:
    """The conversation: each message is a run of one session."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._screen = job.screen
        self.session = job.settings.session or f"chat-{new_run_id()}"
        self._last: Result[Any] | None = None
        self.status = DONE

    @property
    def was_held(self) -> bool:
        """Whether anything was said."""
        return self._last is not None

    def hears(self, line: str, runner: asyncio.Runner) -> bool:
        """Do what a line asks; tells whether to go on."""
        if not _COMMAND.fullmatch(line):
            self.status = runner.run(self._answer(line.strip()))
            return True
        command = line.strip()
        if command == "/tools":
            self._tools()
        elif command == "/why":
            self._why()
        elif command == "/help":
            self._screen.warn("\n".join(f"{name:8}{what}" for name, what in COMMANDS.items()))
        elif command != "/exit":
            hint = nearest(command, COMMANDS) or f"there are {', '.join(COMMANDS)}"
            self._screen.warn(f"no command {command!r}; {hint} (a message may begin with a blank)")
        return command != "/exit"

    async def _answer(self, prompt: str) -> int:
        progress = Progress(self._screen, streams=self._job.streams)
        options = self._job.options(progress, session=self.session)
        with self._job.tells_unsaved(progress), prints_aside(), progress:
            async with self._job.agent.start(prompt, **options) as live:
                interrupted = await to_the_end(live, self._screen, progress)
        self._last = result = live.result
        return report(result, self._job, progress, interrupted=interrupted)

    def _tools(self) -> None:
        specs = self._job.agent.toolbox.specs
        for spec in specs:
            self._screen.warn(f"{spec.name}: {one_line(spec.description)}")
        if not specs:
            self._screen.warn("this agent has no tools")

    def _why(self) -> None:
        if self._last is None:
            self._screen.warn("no run yet; say something first")
            return
        for transition in self._last.transitions:
            reason = "" if transition.reason == transition.row else f", reason {transition.reason}"
            self._screen.warn(f"{transition}  (row {transition.row}{reason})\n{why_not(transition)}")
