"""`Mail`: what a run is told from outside its loop, by its own process and by letters from others."""

from __future__ import annotations

import logging
import weakref
from typing import NamedTuple, Protocol

from turnstile.core.events import ApprovalDecided, Cancelled, DeadlinePassed, Event
from turnstile.core.run_state import RunState
from turnstile.ports import Letter

_log = logging.getLogger("turnstile")


class Entry(NamedTuple):
    """Something to take, with the letter's number if it came as one."""

    event: Event
    letter: int | None = None


class Rung(Protocol):
    """Who looks into the mail."""

    def ring(self) -> None:
        """Be told, from any thread, that a letter has come."""


class Mail:
    """The events that wait to be taken by a run, in the order in which they came.

    Args:
        run_id: The run.

    Attributes:
        waiting: What was not taken yet.
        run: Is told, from any thread, when a letter has come; the store that holds the mail must not hold the run, too.
    """

    __slots__ = ("_came", "_run_id", "_taken", "run", "waiting")

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.waiting: list[Entry] = []
        self._came: dict[int, None] = {}  # the letters, by number; few runs get any, and no set is smaller
        self._taken: tuple[int, ...] = ()
        self.run: weakref.ref[Rung] | None = None

    def put(self, event: Event) -> None:
        """Let an event wait, from any thread."""
        self.waiting.append(Entry(event))

    def put_first(self, event: Event) -> None:
        """Let an event come before all others."""
        self.waiting.insert(0, Entry(event))

    def __call__(self, letter: Letter) -> None:
        """Let a letter wait, from any thread; one that comes twice counts once."""
        if letter.number not in self._came:
            self._came[letter.number] = None
            self.waiting.append(Entry(letter.event, letter.number))
            run = None if self.run is None else self.run()
            if run is not None:
                run.ring()

    def next(self, run: RunState, *, done: bool) -> Entry | None:
        """What can be taken now; ``None`` when there is nothing.

        Args:
            run: The run, whose state says whether a decision can be taken.
            done: Whether its effect has ended: what that brought comes before an order to stop.
        """
        for entry in (*self.waiting,):
            if isinstance(entry.event, ApprovalDecided):
                if self._is_void(entry.event, run):
                    _log.info("run %s has no use for %s, which is dropped", self._run_id, entry.event)
                    self.take(entry)
                    continue
                if not run.waiting:
                    continue
            return None if done and isinstance(entry.event, Cancelled | DeadlinePassed) else entry
        return None

    def _is_void(self, decision: ApprovalDecided, run: RunState) -> bool:
        """Whether nobody waits for a decision, or another that waits, too, denies what it allows."""
        if decision.call_id not in run.in_doubt:
            return True
        others = (entry.event for entry in self.waiting)
        return decision.decision == "rerun" and any(
            isinstance(other, ApprovalDecided) and other.call_id == decision.call_id and other.decision == "unknown"
            for other in others
        )

    def take(self, entry: Entry) -> Event:
        """The event, which waits no more."""
        self.waiting.remove(entry)
        if entry.letter is not None:
            self._taken += (entry.letter,)
        return entry.event

    @property
    def taken(self) -> tuple[int, ...]:
        """Numbers of the letters that were taken, and that the store still has."""
        return self._taken

    def forget(self, letters: tuple[int, ...]) -> None:
        """The store has these letters no more."""
        if letters:
            self._taken = tuple(letter for letter in self._taken if letter not in letters)
