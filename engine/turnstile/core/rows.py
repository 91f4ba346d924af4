"""`Row`: one line of the table, and the words to write it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from turnstile.core.errors import MachineError
from turnstile.core.events import Event
from turnstile.core.run_state import RunState
from turnstile.core.states import State
from turnstile.core.values import is_record

Guard = Callable[[RunState, Event], bool]
Change = Callable[[RunState, Event], RunState]
Reason = str | Callable[[RunState, Event], str]

LIVE: Final = "(any live)"
"""As a source: every state that is not final, those of extensions included."""
AGAIN: Final = "(again)"
"""As a destination: the same state, whose effect begins anew."""
STAY: Final = "(stay)"
"""As a destination: the same state, whose running effect goes on."""


@dataclass(frozen=True, slots=True)
class Row:
    """One possible move.

    Attributes:
        name: Unique in its table.
        sources: Names of the states it leaves, or `LIVE`.
        events: The events that it takes.
        guards: All must hold, tried in order.
        dest: Name of the state it leads to, `AGAIN` or `STAY`.
        reason: Why a run takes it, in the log; for a row to ``done`` or ``failed``, the stop reason.
        change: What is different afterwards.
        reasons: All that the reason may be; several where it depends on the event.
    """

    name: str
    sources: tuple[str, ...] | str
    events: tuple[type[Event], ...]
    guards: tuple[Guard, ...]
    dest: str
    reason: Reason
    change: Change
    reasons: tuple[str, ...]

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the events that it takes."""
        return tuple(event.__name__ for event in self.events)

    @property
    def guard_names(self) -> tuple[str, ...]:
        """Names of its guards, in the order in which they are asked."""
        return tuple(guard.__name__ for guard in self.guards)

    @property
    def reason_name(self) -> str:
        """The reason in one word; one that depends on the event by the name of what decides."""
        return self.reason if isinstance(self.reason, str) else self.reason.__name__

    def __str__(self) -> str:
        source = self.sources if isinstance(self.sources, str) else ", ".join(self.sources)
        guards = f" [{', '.join(self.guard_names)}]" if self.guards else ""
        return f"{self.name}: {source} --{' | '.join(self.event_names)}{guards}--> {self.dest}"


E = TypeVar("E", bound=Event)


def row(  # noqa: PLR0917 - the table is read by columns, and the columns are these
    name: str,
    source: State | tuple[State, ...] | str,
    event: type[E] | tuple[type[E], ...],
    guards: Sequence[Callable[[RunState, E], bool]],
    dest: State | str,
    change: Callable[[RunState, E], RunState] | None = None,
    *,
    reason: str | Callable[[RunState, E], str] | None = None,
    reasons: Sequence[str] = (),
) -> Row:
    """A row of the table.

    Args:
        name: Unique in its table; also the reason, unless one is given.
        source: The state or states it leaves, or `LIVE`.
        event: The event or events it takes.
        guards: Named predicates over (run, event); all must hold.
        dest: The state it leads to, `AGAIN` or `STAY`.
        change: What is different afterwards; without one, the event's own ``apply(run)``.
        reason: Why a run takes it; for a row to a final state, the stop reason.
        reasons: All that it may be, when it is a function, so that a picture shows what a log may say.

    Raises:
        MachineError: A guard has no name of its own, an event has no named fields, there is no change and no
            ``apply``, or reasons are missing or stand beside a fixed one.
    """
    events = event if isinstance(event, tuple) else (event,)
    for guard in guards:
        if guard.__name__ == "<lambda>":
            msg = f"row {name!r}: a guard is a named function, so that a transition can name it; got a lambda"
            raise MachineError(msg)
    for kind in events:
        if not is_record(kind):
            msg = (
                f"row {name!r}: the event {kind.__name__} is no dataclass; give it @dataclass(frozen=True, slots=True)"
            )
            raise MachineError(msg)
    if change is None and not all(callable(getattr(kind, "apply", None)) for kind in events):
        msg = f"row {name!r}: give it a change, or its event a method apply(run)"
        raise MachineError(msg)
    if callable(reason) != bool(reasons):
        msg = f"row {name!r}: reasons=(…) lists what a reason that depends on the event may be; got {tuple(reasons)!r}"
        raise MachineError(msg)
    sources = source if isinstance(source, str) else tuple(s.name for s in _tuple(source))
    return Row(
        name,
        sources,
        events,
        tuple(cast("Guard", guard) for guard in guards),
        dest.name if isinstance(dest, State) else dest,
        cast("Reason", reason or name),
        cast("Change", change or _apply),
        tuple(reasons) if callable(reason) else (reason or name,),
    )


def _tuple(source: State | tuple[State, ...]) -> tuple[State, ...]:
    return source if isinstance(source, tuple) else (source,)


def _apply(run: RunState, event: Event) -> RunState:
    changed: RunState = event.apply(run)  # type: ignore[attr-defined]
    return changed


@dataclass(frozen=True, slots=True)
class Insertion:
    """Rows to be put before or after a row of a table."""

    anchor: str
    rows: tuple[Row, ...]
    is_after: bool


def before(anchor: str, *rows: Row) -> Insertion:
    """Put rows directly before the row of that name, so that they are tried first."""
    return Insertion(anchor, rows, is_after=False)


def after(anchor: str, *rows: Row) -> Insertion:
    """Put rows directly after the row of that name."""
    return Insertion(anchor, rows, is_after=True)
