"""`SystemClock`: the time of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MAX_WAIT = 86_400.0  # asyncio's selectors refuse waits of many years; a day later is early enough to look again


class SystemClock:
    """The time of this machine, and waiting for it on the running event loop."""

    # The functions themselves, since a turn asks a dozen times; `time` last, whose name hides the module below it.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def alarm(self, at: float, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` once at a time in seconds since the epoch; the function returned calls it off."""
        return _Alarm(at, ring).call_off


class _Alarm:
    """Waits for a time in pieces that the event loop can wait."""

    def __init__(self, at: float, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._at = at
        self._ring = ring
        self._handle: asyncio.Handle = self._loop.call_soon(self._check)

    def call_off(self) -> None:
        self._handle.cancel()

    def _check(self) -> None:
        left = self._at - time.time()
        if left <= 0:
            self._ring()
        else:
            self._handle = self._loop.call_later(min(left, MAX_WAIT), self._check)
