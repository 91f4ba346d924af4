"""`Listener`: what a run tells, in order, for whoever iterates over its events."""

from __future__ import annotations

import asyncio
from collections import deque

from turnstile.core.run_state import RunState
from turnstile.ports import Notice


class Listener:
    """An observer that keeps what it hears until it is taken; what comes at once wakes whoever waits once.

    Attributes:
        heard: What was told and not taken yet, oldest first.
        woken: Set when there is something, or nothing more will come for now.
    """

    def __init__(self) -> None:
        self.heard: deque[Notice] = deque()
        self.woken = asyncio.Event()

    def observe(self, notice: Notice, run: RunState) -> None:  # noqa: ARG002 - the protocol's signature
        """Keep it."""
        self.heard.append(notice)
        self.woken.set()
