"""`FrozenClock`: a clock that stands still until something waits or a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from numbers import Real

from turnstile.core.expecting import expect

START = 1_750_000_000.0  # a Sunday in June 2025; any moment would do


class FrozenClock:
    """A clock whose time moves only by `sleep`, at once, and by `advance`.

    So a retry after a minute takes no time in a test, and two runs of the same events have the same times::

        clock = FrozenClock()
        agent = Agent(ScriptedModel([ModelFailed("overloaded"), "done"]), clock=clock)
        agent.run_sync("…")
        assert len(clock.slept) == 1

    Args:
        start: The time in seconds since the epoch.

    Attributes:
        slept: Every wait so far, in seconds.

    Raises:
        ConfigurationError: The time is no number.
    """

    def __init__(self, start: float = START) -> None:
        expect("FrozenClock's start", start, Real, "a number of seconds since the epoch")
        self._start = start
        self._now = start
        self._alarms: list[tuple[float, Callable[[], None]]] = []
        self.slept: list[float] = []

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._now - self._start

    async def sleep(self, seconds: float) -> None:
        """Move the time on at once, and let other tasks have a turn."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move the time on; alarms that become due ring in the order of their times, each at its own time."""
        end = self._now + max(0.0, seconds)
        while due := [alarm for alarm in self._alarms if alarm[0] <= end]:
            alarm = min(due, key=lambda entry: entry[0])
            self._alarms.remove(alarm)
            self._now = max(self._now, alarm[0])
            alarm[1]()
        self._now = max(self._now, end)

    def alarm(self, at: float, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` once the time is `at`, in seconds since the epoch; the function returned calls it off.

        One that is due already rings in the next turn of the event loop.
        """
        entry = (at, ring)
        self._alarms.append(entry)
        if at <= self._now:
            asyncio.get_running_loop().call_soon(self.advance, 0)

        def call_off() -> None:
            if entry in self._alarms:
                self._alarms.remove(entry)

        return call_off
