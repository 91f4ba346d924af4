"""`Progress`: an observer that shows a run as it goes, on standard error, and its text as the model writes it.

On a terminal there are lines for what happened, and below them one that is drawn over: state, turn, running tools,
tokens, cost. Elsewhere there are the lines alone. Text is shown while it is written only to a person who watches
standard output, since what comes first may turn out to be no answer (a call follows, the attempt fails, the form is
wrong); a pipe or a file gets the answer only.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from turnstile.cli.screen import Screen, clean, one_line
from turnstile.cli.wording import duration, narrate, spent
from turnstile.core.messages import ToolResult
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.ports import Delta, Notice, ToolStarted

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

FRAMES_A_SECOND = 8  # what rich's own status line does, within a factor of two: smooth enough, and no load


class Progress:
    """Shows a run as it goes, while entered.

    Args:
        screen: Where to.
        narrates: Whether each thing that happened gets a line.
        streams: Whether text may be shown while it is written; only a terminal gets it.
    """

    def __init__(self, screen: Screen, *, narrates: bool = True, streams: bool = True) -> None:
        self._screen = screen
        self._narrates = narrates
        self._streams = streams and screen.answers_to_terminal
        self._status = _StatusLine() if screen.can_redraw and not screen.quiet else None
        self._written: list[str] = []
        self._is_open = False

    @property
    def written(self) -> str:
        """What the newest reply wrote to the terminal while it came in, as the model wrote it."""
        return "".join(self._written)

    def observe(self, notice: Notice, run: RunState) -> None:
        """Show something that just happened."""
        if isinstance(notice, Delta):
            self._write(notice)
            return
        self._end_text()
        if isinstance(notice, Transition) and notice.dest == "await_model" and not notice.stays:
            self._written.clear()  # another request follows, and its reply may come in one piece
        line = narrate(notice, run) if self._narrates else ""
        if line:
            self._screen.say(line)
        if self._status and not run.finished:
            self._status.update(notice, run)
        elif self._status:
            self._status.hide()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.pause()

    def pause(self) -> None:
        """Leave the terminal to somebody else until `resume`, or the next notice."""
        self._end_text()
        if self._status:
            self._status.hide()

    def resume(self, run: RunState) -> None:
        """Show the status line again."""
        if self._status:
            self._status.begin(run)

    def _write(self, delta: Delta) -> None:
        if delta.kind != "text" or not self._streams:
            return
        if self._status:
            self._status.hide()
        self._is_open = True
        self._written.append(delta.text)
        self._screen.answer(delta.text, end="")

    def _end_text(self) -> None:
        """End the line that streamed text may have left open."""
        if self._is_open:
            self._is_open = False
            if not clean(self.written).endswith("\n"):
                self._screen.answer("")


class _StatusLine:
    """The line at the bottom of a terminal that is drawn over, by rich."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._where = ""
        self._spent = ""
        self._since: dict[str, tuple[str, float]] = {}  # the running calls: name, and when each began
        self._began = time.monotonic()

    def update(self, notice: Notice, run: RunState) -> None:
        """Take in what happened, and show it."""
        if isinstance(notice, ToolStarted):
            self._since[notice.call_id] = (notice.name, time.monotonic())
        elif isinstance(notice, ToolResult):
            self._since.pop(notice.call_id, None)
        elif isinstance(notice, Transition) and not notice.stays:
            self._since.clear()
            self._began = time.monotonic()
        self.begin(run)

    def begin(self, run: RunState) -> None:
        """Show how far the run is."""
        turn = run.turns + (run.state == "await_model")  # a turn ends with its reply, so the one awaited counts
        self._where = f"{run.state} · turn {turn} of {run.limits.turns}"
        self._spent = spent(run) if run.turns else ""
        if self._live is None:
            self._live = self._made()
            self._live.start(refresh=True)

    def hide(self) -> None:
        """Take the line away until the next update."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _made(self) -> Live:
        from rich.console import Console
        from rich.live import Live

        # Whatever is printed meanwhile is put above the line.
        return Live(
            console=Console(file=sys.stderr),
            get_renderable=self._render,
            refresh_per_second=FRAMES_A_SECOND,
            transient=True,
        )

    def _render(self) -> Text:
        from rich.text import Text

        now = time.monotonic()
        running = [f"{one_line(name, 64)} {duration(now - since)}" for name, since in list(self._since.values())]
        parts = (self._where, ", ".join(running) or duration(now - self._began), self._spent)
        return Text(" · ".join(filter(None, parts)), style="dim", no_wrap=True, overflow="ellipsis")
