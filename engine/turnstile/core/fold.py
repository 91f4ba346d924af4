"""`fold`: a run's state from its journal alone, since what happened, taken in order, is all that is true of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

from turnstile.core.errors import UsageError
from turnstile.core.events import RECEIPTS, Event, RunStarted
from turnstile.core.machine import Machine
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import Transition, note, step


def fold(machine: Machine, events: Iterable[Event]) -> RunState:
    """The run after its last event.

    Args:
        machine: The table that the run was driven by.
        events: All its events, `RunStarted` first; the receipts among them say what was in flight.

    Raises:
        UsageError: The events don't begin with a `RunStarted`.
        NoRow: An event that the machine takes no row for: these are not the events of a run under this machine.
    """
    run: RunState | None = None
    for run, _ in walk(machine, events):  # noqa: B007 - the last one is what we want
        pass
    if run is None:
        msg = "a run's events begin with RunStarted; got no event at all"
        raise UsageError(msg)
    return run


def trace(machine: Machine, events: Iterable[Event]) -> tuple[Transition, ...]:
    """The transitions that the events made, in order; same events, same trace."""
    return tuple(transition for _, transition in walk(machine, events) if transition is not None)


def walk(
    machine: Machine, events: Iterable[Event], moments: Iterable[tuple[float, float]] | None = None
) -> Iterator[tuple[RunState, Transition | None]]:
    """The run after each event, with the transition that it made: none for `RunStarted` and receipts.

    Going back in time is walking less far.

    Args:
        machine: The table that the run was driven by.
        events: Its events, `RunStarted` first.
        moments: For each, when it arrived and how long the effect took that brought it, as the transitions tell it.
    """
    run: RunState | None = None
    for event, (at, duration_ms) in zip(events, moments or repeat((0.0, 0.0)), strict=moments is not None):
        if run is None:
            if not isinstance(event, RunStarted):
                msg = f"a run's events begin with RunStarted; got {type(event).__name__}"
                raise UsageError(msg)
            run = begin_run(event)
            yield run, None
        elif type(event) in RECEIPTS:  # `isinstance` would ask each class in turn, which takes 0.2 µs a no
            run = note(run, event)
            yield run, None
        else:
            taken = step(machine, run, event, at=at, duration_ms=duration_ms)
            run = taken.run
            yield run, taken.transition
