"""The clock that stands still."""

from __future__ import annotations

import asyncio

from turnstile.ports import Clock
from turnstile.testing import FrozenClock


async def test_time_moves_by_waiting_and_by_hand_only() -> None:
    """A test of retries and deadlines takes no time and always sees the same times."""
    frozen = FrozenClock(start=1000.0)
    clock: Clock = frozen
    assert (clock.time(), clock.monotonic()) == (1000.0, 0.0)
    await clock.sleep(5)
    frozen.advance(2.5)
    frozen.advance(-1)
    assert (clock.time(), clock.monotonic(), frozen.slept) == (1007.5, 7.5, [5])


async def test_waiting_gives_others_a_turn() -> None:
    """A task that was cancelled meanwhile must get to know."""
    clock = FrozenClock()
    task = asyncio.create_task(clock.sleep(3600))
    task.cancel()
    await clock.sleep(1)
    assert task.cancelled()


async def test_alarms_ring_in_order_at_their_own_time() -> None:
    """Two deadlines within one wait come in the order in which they would have come."""
    clock, rung = FrozenClock(start=0.0), []
    for at in (30.0, 10.0, 99.0):
        clock.alarm(at, lambda at=at: rung.append((at, clock.time())))  # type: ignore[misc]
    await clock.sleep(50)
    assert rung == [(10.0, 10.0), (30.0, 30.0)]
    assert clock.time() == 50.0


async def test_an_alarm_that_is_due_rings_with_the_event_loop() -> None:
    """Not inside the call that sets it, which would surprise whoever stores what it returns."""
    clock, rung = FrozenClock(start=100.0), asyncio.Event()
    clock.alarm(99.0, rung.set)
    assert not rung.is_set()
    await rung.wait()
    assert clock.time() == 100.0


async def test_an_alarm_can_be_called_off_once_and_again() -> None:
    """A run that ends calls off its deadline, whether or not it has rung."""
    clock, rung = FrozenClock(start=0.0), []
    call_off = clock.alarm(10.0, lambda: rung.append("early"))
    kept = clock.alarm(20.0, lambda: rung.append("late"))
    call_off()
    clock.advance(60)
    kept()
    call_off()
    assert rung == ["late"]


async def test_an_alarm_may_set_another() -> None:
    """What rings may look at the clock, and want to be rung again within the same wait."""
    clock, rung = FrozenClock(start=0.0), []

    def again() -> None:
        rung.append(clock.time())
        if len(rung) < 3:
            clock.alarm(clock.time() + 1, again)

    clock.alarm(1.0, again)
    await clock.sleep(5)
    assert rung == [1.0, 2.0, 3.0]
