"""`Listener`: what a run tells, in a queue, for whoever iterates over its events."""

from __future__ import annotations

import asyncio

from turnstile.core.run_state import RunState
from turnstile.ports import Notice


class Listener:
    """An observer that puts what it hears into a queue."""

    def __init__(self, queue: asyncio.Queue[Notice | None]) -> None:
        self._queue = queue

    def observe(self, notice: Notice, run: RunState) -> None:  # noqa: ARG002 - the protocol's signature
        """Put it into the queue."""
        self._queue.put_nowait(notice)
