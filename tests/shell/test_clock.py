"""The clock of this machine: it tells the time, waits, and rings once."""

from __future__ import annotations

import asyncio
import time

from turnstile.shell.clock import SystemClock


async def test_an_alarm_rings_once_its_time_has_come() -> None:
    """A deadline that is already past, and one that is near, both ring."""
    rung = asyncio.Event()
    SystemClock().alarm(time.time() - 1, rung.set)
    await rung.wait()
    rung.clear()
    SystemClock().alarm(time.time() + 0.01, rung.set)
    await rung.wait()


async def test_an_alarm_that_was_called_off_never_rings() -> None:
    """A run that ended early leaves no timer behind."""
    rung = []
    call_off = SystemClock().alarm(time.time(), lambda: rung.append(1))
    call_off()
    far = SystemClock().alarm(time.time() + 10**9, lambda: rung.append(2))  # longer than a selector waits
    await asyncio.sleep(0)
    far()
    await asyncio.sleep(0)
    assert rung == []


async def test_the_clock_tells_the_time_and_waits() -> None:
    """Two readings of the monotonic clock never go back, and the time is that of this machine."""
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert abs(clock.time() - time.time()) < 60
