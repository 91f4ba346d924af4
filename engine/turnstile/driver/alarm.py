"""`Alarm`: tells a run when its time is over."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from turnstile.core.events import DeadlinePassed, Event
from turnstile.core.run_state import RunState
from turnstile.ports import Clock


class Alarm:
    """Rings at a run's deadline; while the run waits for a human, its time stands still.

    Args:
        clock: Tells the time.
    """

    __slots__ = ("_call_off", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._call_off: Callable[[], None] | None = None

    def set(self, run: RunState, post: Callable[[Event], None]) -> None:
        """Ring when the time of a run is over, as it is now.

        Args:
            run: The run.
            post: The method that it is told by; the clock must not hold a run that is forgotten.
        """
        self.call_off()
        if run.deadline is not None and not run.finished and not run.waiting:
            told = weakref.WeakMethod(post)
            self._call_off = self._clock.alarm(run.deadline, lambda: (tell := told()) and tell(DeadlinePassed()))

    def call_off(self) -> None:
        """Ring no more."""
        if self._call_off is not None:
            self._call_off()
            self._call_off = None

    def is_late(self, run: RunState) -> bool:
        """Whether a run's time is over."""
        return run.deadline is not None and self._clock.time() >= run.deadline
