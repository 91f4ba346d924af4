"""The machine: the table, built once with `transitions`, that judges which row takes an event.

Judging changes nothing: it says which row is taken and which were refused. What follows from it is `step`'s matter.

One ``transitions.Machine`` without a model serves every run, through a small cursor that is thrown away afterwards; building one
for each run, or registering a model, costs ten times a step. It stays synchronous: no I/O and no work in callbacks.
Its traps, all of which are mapped to our one error `NoRow`, or kept out by the way it is built:

- no row whose guards hold gives ``False``; an event that the state has no row for raises its ``MachineError``; an event that no
  row names raises ``KeyError``;
- ``source="*"`` includes final states, so "any live" is expanded here;
- nothing tells which transition was taken, so each has a ``before`` callback of its own that writes it down;
- a lambda as a guard prints as ``<lambda>``, so guards are named functions (`row` refuses others);
- the ``AsyncMachine`` of 0.9.3 swallows cancellation, and asks every guard even after one has failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from turnstile.core.errors import MachineError, NoRow
from turnstile.core.events import Event
from turnstile.core.rows import AGAIN, LIVE, STAY, Guard, Insertion, Row
from turnstile.core.run_state import RunState
from turnstile.core.states import STATES, State
from turnstile.core.table import TABLE

if TYPE_CHECKING:
    import transitions


Performer = Callable[[RunState], Awaitable[Event]]
OWN_EFFECTS = ("CallModel", "RunTools")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was tried and not taken, with its first guard that said no."""

    row: str
    guard: str

    def __str__(self) -> str:
        return f"{self.row} (not {self.guard})"


class _Cursor:
    """Where `transitions` stands while it judges one event, and what it finds."""

    __slots__ = ("event", "refused", "run", "state", "taken")

    def __init__(self, run: RunState, event: Event) -> None:
        self.state = run.state
        self.run = run
        self.event = event
        self.refused: list[Refusal] = []
        self.taken: Row | None = None


class Machine:
    """States and rows as a machine that judges events.

    Args:
        states: All states; the first is where a run starts.
        rows: The table, tried in order.
        performs: For each effect that an extension's states ask for, by name: what performs it and gives the event that follows.

    Raises:
        MachineError: A name stands twice, an effect has nobody to perform it, a row names an unknown state, leaves a final one, or can never be reached.
    """

    def __init__(
        self,
        states: Iterable[State] = STATES,
        rows: Iterable[Row] = TABLE,
        performs: Mapping[str, Performer] | None = None,
    ) -> None:
        self.states = tuple(states)
        self.rows = tuple(rows)
        self.performs = dict(performs or {})
        self._by_name = {state.name: state for state in self.states}
        _check(self.states, self.rows, self._by_name)
        for state in self.states:
            if state.asks is not None and state.asks not in OWN_EFFECTS and state.asks not in self.performs:
                msg = f"state {state.name!r} asks for {state.asks!r}, which nobody performs; pass performs={{{state.asks!r}: …}}"
                raise MachineError(msg)
        self._built: transitions.Machine | None = None

    def state(self, name: str) -> State:
        """The state of that name."""
        return self._by_name[name]

    def sources(self, row: Row) -> tuple[str, ...]:
        """Names of the states that a row leaves; "any live" spelt out."""
        if row.sources == LIVE:
            return tuple(state.name for state in self.states if not state.final)
        return row.sources if isinstance(row.sources, tuple) else (row.sources,)

    @property
    def fingerprint(self) -> str:
        """A digest of states and rows; two machines that could move a run differently have different ones."""
        lines = [f"{s.name} {s.asks} {s.final}" for s in self.states]
        lines += [f"{row} {row.reason_name} {row.change.__qualname__}" for row in self.rows]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def judge(self, run: RunState, event: Event) -> tuple[Row, tuple[Refusal, ...]]:
        """The row that takes the event, and the rows refused before it.

        Raises:
            NoRow: No row takes it; a finished run takes none.
        """
        machine = self._built or self._build()
        name = type(event).__name__
        trigger = machine.events.get(name)
        cursor = _Cursor(run, event)
        if trigger is not None and run.state in trigger.transitions:
            trigger.trigger(cursor)
        if cursor.taken is None:
            raise NoRow(run.state, name, tuple((refusal.row, refusal.guard) for refusal in cursor.refused))
        return cursor.taken, tuple(cursor.refused)

    def extend(
        self,
        *,
        states: Iterable[State] = (),
        rows: Iterable[Row | Insertion] = (),
        performs: Mapping[str, Performer] | None = None,
    ) -> Self:
        """A new machine with more states and rows; this one stays as it is.

        Args:
            states: States to add.
            rows: Rows to add: a plain row at the end of the table, ``before(name, row)`` and ``after(name, row)`` beside another.
            performs: For each effect that the new states ask for: an async function from the run to the event that follows.

        Raises:
            MachineError: The longer table is inconsistent, or names a row to stand beside that isn't there.
        """
        table = list(self.rows)
        for entry in rows:
            if isinstance(entry, Row):
                table.append(entry)
                continue
            names = [row.name for row in table]
            if entry.anchor not in names:
                msg = f"no row {entry.anchor!r} to stand beside; the rows are {', '.join(names)}"
                raise MachineError(msg)
            place = names.index(entry.anchor) + entry.is_after
            table[place:place] = entry.rows
        return type(self)((*self.states, *states), table, {**self.performs, **(performs or {})})

    def _build(self) -> transitions.Machine:
        import transitions  # loaded when the first event is judged, so that importing the engine stays light

        machine = transitions.Machine(
            model=None,
            states=[state.name for state in self.states],
            initial=self.states[0].name,
            auto_transitions=False,
            send_event=True,
        )
        for row in self.rows:
            conditions = [_condition(row, guard) for guard in row.guards]
            for event in row.event_names:
                for source in self.sources(row):
                    dest = {STAY: None, AGAIN: source}.get(row.dest, row.dest)
                    machine.add_transition(event, source, dest, conditions=conditions, before=_marker(row))
        self._built = machine
        return machine


def _condition(row: Row, guard: Guard) -> Callable[[transitions.EventData], bool]:
    refusal = Refusal(row.name, guard.__name__)

    def condition(data: transitions.EventData) -> bool:
        cursor = data.model
        if guard(cursor.run, cursor.event):
            return True
        cursor.refused.append(refusal)
        return False

    condition.__name__ = guard.__name__
    return condition


def _marker(row: Row) -> Callable[[transitions.EventData], None]:
    def mark(data: transitions.EventData) -> None:
        data.model.taken = row

    mark.__name__ = row.name
    return mark


def _check(states: tuple[State, ...], rows: tuple[Row, ...], by_name: Mapping[str, State]) -> None:
    _refuse_twice("state", [state.name for state in states])
    _refuse_twice("row", [row.name for row in rows])
    known = {*by_name, LIVE, AGAIN, STAY}
    closed: dict[tuple[str, type[Event]], str] = {}
    for row in rows:
        sources = row.sources if isinstance(row.sources, tuple) else (row.sources,)
        for name in (*sources, row.dest):
            if name not in known:
                msg = f"row {row.name!r} names the state {name!r}; the states are {', '.join(by_name)}"
                raise MachineError(msg)
            if name in sources and name in by_name and by_name[name].final:
                msg = f"row {row.name!r} leaves {name!r}, which is final"
                raise MachineError(msg)
        live = tuple(state.name for state in states if not state.final)
        cells = [(source, event) for source in (live if row.sources == LIVE else sources) for event in row.events]
        if all(cell in closed for cell in cells):
            msg = f"row {row.name!r} can never be reached: row {closed[cells[0]]!r} takes all before it"
            raise MachineError(msg)
        if not row.guards:
            closed.update((cell, row.name) for cell in cells if cell not in closed)


def _refuse_twice(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            msg = f"the {what} {name!r} stands twice in the table"
            raise MachineError(msg)


loop = Machine()
"""The machine of every agent that brings none of its own."""
