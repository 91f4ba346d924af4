"""`Interrupts`: Ctrl-C asks once, and the second time leaves at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from turnstile.cli.faults import INTERRUPTED

_LEFT = b"\nturnstile: left at once\n"


class Interrupts:
    """While entered, within a running event loop and on the main thread: what Ctrl-C does.

    The handler itself only schedules or leaves, since it may come in the middle of anything.

    Args:
        ask: Asks what is under way to end; called on the event loop for the first Ctrl-C.
        restore: Brings the terminal back to order before leaving at once, as far as it can.
    """

    def __init__(self, ask: Callable[[], None], restore: Callable[[], None]) -> None:
        self._ask = ask
        self._restore = restore
        self._loop = asyncio.get_running_loop()
        self._before = signal.getsignal(signal.SIGINT)
        self.happened = False

    def __enter__(self) -> Self:
        with suppress(NotImplementedError):  # on Windows the loop does by itself what is done here:
            # While it has any handler, a signal wakes the loop, also one that comes just before it goes to wait.
            self._loop.add_signal_handler(signal.SIGINT, lambda: None)
        signal.signal(signal.SIGINT, self._pressed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(NotImplementedError):
            self._loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, self._before)

    def _pressed(self, _signal: int, _frame: FrameType | None) -> None:
        if not self.happened:
            self.happened = True
            self._loop.call_soon_threadsafe(self._ask)
            return
        # No clean-up: a tool's thread or a connection that does not let go must not hold up who wants to leave.
        with suppress(Exception):
            self._restore()
        with suppress(OSError):
            os.write(2, _LEFT)
        os._exit(INTERRUPTED)
