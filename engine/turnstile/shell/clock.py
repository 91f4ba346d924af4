"""`SystemClock`: the time of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MAX_WAIT = 86_400.0  # asyncio's selectors refuse waits of many years; a day later is early enough to look again


class SystemClock:
    """The time of this machine, and waiting for it on the running event loop."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def alarm(self, at: float, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` once at a time in seconds since the epoch; the function returned calls it off."""
        loop = asyncio.get_running_loop()
        handles: list[asyncio.Handle] = []

        def check() -> None:
            left = at - time.time()
            if left <= 0:
                ring()
            else:
                handles[:] = [loop.call_later(min(left, MAX_WAIT), check)]

        handles.append(loop.call_soon(check))
        return lambda: handles[0].cancel()
