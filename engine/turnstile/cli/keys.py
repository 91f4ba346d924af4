"""`Keys`: single key presses from a terminal, without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Self

from turnstile.cli.faults import Misuse

END = ("", "\x04")  # the terminal is gone, or Ctrl-D


class Keys:
    """Reads single keys from standard input; leave it with ``with``, which gives the terminal back as it was.

    Args:
        purpose: What needs the keys, for the error.

    Raises:
        Misuse: Standard input is no terminal.
    """

    def __init__(self, purpose: str) -> None:
        if sys.stdin is None or not sys.stdin.isatty():
            way_out = (
                "give the prompt as an argument in a terminal, or use --log-json FILE, which shows each transition"
            )
            raise Misuse(f"{purpose} reads keys from a terminal, and standard input is none; {way_out}")
        self._terminal = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._terminal)
        self._pressed: asyncio.Future[str] | None = None

    def __enter__(self) -> Self:
        self._set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Give the terminal back as it was, unless it has gone."""
        with suppress(termios.error):
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    async def press(self) -> str:
        """The next key: a character, or one of `END`."""
        self._set()  # again, since a shell that stopped and continued us may have reset it
        loop = asyncio.get_running_loop()
        self._pressed = loop.create_future()
        loop.add_reader(self._terminal, self._read)
        try:
            return await self._pressed
        finally:
            loop.remove_reader(self._terminal)

    def _set(self) -> None:
        """Let each key come at once and unseen; Ctrl-C stays a signal, and what was typed ahead is kept."""
        with suppress(termios.error):  # a terminal that has gone brings the end as its next key
            tty.setcbreak(self._terminal, termios.TCSADRAIN)

    def end(self) -> None:
        """Let who waits for a key have the end instead."""
        self._settle("")

    def _read(self) -> None:
        try:
            self._settle(os.read(self._terminal, 1).decode("latin-1"))
        except OSError:  # the terminal has gone, and with it who could press a key
            self._settle("")

    def _settle(self, key: str) -> None:
        if self._pressed is not None and not self._pressed.done():
            self._pressed.set_result(key)
