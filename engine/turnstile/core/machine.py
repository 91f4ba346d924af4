"""The machine: the table, built once with `transitions`, that judges which row takes an event.

Judging changes nothing: it says which row is taken and which were refused. What follows from it is `step`'s matter.

What `transitions` does here is to hold the table: states, events, and the rows of each in their order. It does not move
the run, although it could: a run is a frozen value that one pure function makes anew, a transition must name the rows
that were refused, and moving a model, with its callbacks and logs, takes two thirds of the time and would run code in
the midst of a move. So a row is a transition of our own class, which has the guards and what they refuse, and an event
is one of our own class, too, which asks them and makes nothing around it.

One ``transitions.Machine`` without a model serves every run, through a small cursor that is thrown away afterwards;
building one for each run, or registering a model, costs ten times a step. It stays synchronous: no I/O, no callbacks.
Its traps, all of which are mapped to our one error `NoRow`, or kept out by the way it is built:

- no row whose guards hold gives ``False``; so does an event of ours that the state has no row for, where its own raises
  ``MachineError``; an event that no row names raises ``KeyError``;
- ``source="*"`` includes final states, so "any live" is expanded here;
- nothing tells which transition was taken or refused, so the event itself tells the cursor;
- a lambda as a guard prints as ``<lambda>``, so guards are named functions (`row` refuses others);
- the ``AsyncMachine`` of 0.9.3 swallows cancellation, and asks every guard even after one has failed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, Self

import transitions

from turnstile.core.errors import MachineError, NoRow
from turnstile.core.events import Event, ResultsAppended
from turnstile.core.rows import AGAIN, LIVE, STAY, Guard, Insertion, Row
from turnstile.core.run_state import RunState
from turnstile.core.states import START, STATES, State
from turnstile.core.table import TABLE

PerformEffect = Callable[[RunState], Awaitable[Event]]
OWN_EFFECTS = ("CallModel", "RunTools", "AskHuman")


class Refusal(NamedTuple):
    """A row that was tried and not taken, with its first guard that said no."""

    row: str
    guard: str

    def __str__(self) -> str:
        return f"{self.row} (not {self.guard})"


class _Cursor(transitions.EventData):
    """One event while it is judged, and what is found.

    A guard is pure, so it is asked once, however many rows ask it.
    """

    def __init__(self, run: RunState, happened: Event) -> None:
        self.run = run
        self.happened = happened
        self.answers: dict[Guard, bool] = {}
        self.refused: list[Refusal] = []
        self.taken: Row | None = None


class _Judged(transitions.Transition):
    """A row as `transitions` holds it."""

    def __init__(self, source: str, dest: str | None, row: Row) -> None:
        super().__init__(source, dest)  # type: ignore[arg-type] # its stub forgets that an internal one has no dest
        self.row = row
        self.guards = tuple((guard, Refusal(row.name, guard.__name__)) for guard in row.guards)


class _Asking(transitions.Event):
    """An event as `transitions` holds it."""

    transitions: defaultdict[str, list[_Judged]]  # type: ignore[assignment] # nothing else is added to it

    def trigger(self, model: _Cursor) -> bool:  # type: ignore[override] # `Machine.judge` passes nothing else
        """Ask the rows of the cursor's state, in their order, until one takes the event; nothing moves."""
        run, happened, answers = model.run, model.happened, model.answers
        for judged in self.transitions.get(run.state, ()):
            for guard, refusal in judged.guards:
                answer = answers.get(guard)
                if answer is None:
                    answer = answers[guard] = guard(run, happened)
                if not answer:
                    model.refused.append(refusal)
                    break
            else:
                model.taken = judged.row
                return True
        return False


class Machine:
    """States and rows as a machine that judges events.

    Args:
        states: All states; every run starts in ``await_model``.
        rows: The table, tried in order.
        performs: For each effect that an extension's states ask for, by name: what performs it and gives the event
            that follows.

    Raises:
        MachineError: A name stands twice; an effect has nobody to perform it, or somebody performs one that no state
            asks for; a row names an unknown state, leaves a final one, or can never be reached; no row leads to a
            state, or none leads on from one that asks nothing.
    """

    def __init__(
        self,
        states: Iterable[State] = STATES,
        rows: Iterable[Row] = TABLE,
        performs: Mapping[str, PerformEffect] | None = None,
    ) -> None:
        self.states = tuple(states)
        self.rows = tuple(rows)
        self.performs = dict(performs or {})
        self._by_name = {state.name: state for state in self.states}
        _check_states(self.states, self.performs)
        _check_ways(self, _check_rows(self.rows, self))
        self._machine = self._built()
        self._refused: dict[tuple[Refusal, ...], tuple[Refusal, ...]] = {}  # each once, for all the moves that have it

    def state(self, name: str) -> State:
        """The state of that name."""
        return self._by_name[name]

    def sources(self, row: Row) -> tuple[str, ...]:
        """Names of the states that a row leaves; "any live" spelt out."""
        if row.sources == LIVE:
            return tuple(state.name for state in self.states if not state.final)
        return row.sources if isinstance(row.sources, tuple) else (row.sources,)

    @cached_property
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
        name = type(event).__name__
        trigger = self._machine.events.get(name)
        cursor = _Cursor(run, event)
        if trigger is not None:
            trigger.trigger(cursor)
        if cursor.taken is None:
            raise NoRow(run.state, name, tuple((refusal.row, refusal.guard) for refusal in cursor.refused))
        refused = tuple(cursor.refused)
        return cursor.taken, self._refused.setdefault(refused, refused)

    def extend(
        self,
        *,
        states: Iterable[State] = (),
        rows: Iterable[Row | Insertion] = (),
        performs: Mapping[str, PerformEffect] | None = None,
    ) -> Self:
        """A new machine with more states and rows; this one stays as it is.

        In the table that is extended, every way back to a state spends a counter that has a limit, so every run ends.
        That is not checked here: a new row that leads back, ``AGAIN`` and its own state included, and spends nothing
        may go round for ever. `turnstile.core.explore.explore` finds such a way, and shows it.

        A run that ends in a new final state has failed; success is ``done``.

        Args:
            states: States to add.
            rows: Rows to add: a plain row at the end of the table, ``before(name, row)`` and ``after(name, row)``
                beside another.
            performs: For each effect that the new states ask for: an async function from the run to the event that
                follows.

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

    def _built(self) -> transitions.Machine:
        machine = transitions.Machine(
            model=None,
            states=[state.name for state in self.states],
            initial=START.name,
            auto_transitions=False,
            send_event=True,
        )
        for row in self.rows:
            for name in row.event_names:
                trigger = machine.events.setdefault(name, _Asking(name, machine))
                for source in self.sources(row):
                    dest = {STAY: None, AGAIN: source}.get(row.dest, row.dest)
                    trigger.add_transition(_Judged(source, dest, row))
        return machine


def _check_states(states: Sequence[State], performs: Mapping[str, PerformEffect]) -> None:
    names = [state.name for state in states]
    _refuse_twice("state", names)
    if START.name not in names:
        msg = f"every run starts in {START.name!r}, which is none of the states {', '.join(names)}; extend a machine"
        raise MachineError(msg)
    for state in states:
        if state.asks is not None and state.asks not in OWN_EFFECTS and state.asks not in performs:
            asks = state.asks
            msg = f"state {state.name!r} asks for {asks!r}, which nobody performs; pass performs={{{asks!r}: …}}"
            raise MachineError(msg)
    _check_performs({state.asks for state in states}, performs)


def _check_performs(asked: Collection[str | None], performs: Mapping[str, PerformEffect]) -> None:
    for name in performs:
        if name in OWN_EFFECTS:
            msg = f"performs={{{name!r}: …}}: the engine performs {name!r} itself; ask for an effect of another name"
            raise MachineError(msg)
        if name not in asked:
            msg = f"performs={{{name!r}: …}}: no state asks for {name!r}; add State(…, asks={name!r}), or leave it out"
            raise MachineError(msg)


def _check_rows(rows: Sequence[Row], machine: Machine) -> dict[str, set[str]]:
    """The states that rows lead to from each state, if the rows are sound."""
    leads: dict[str, set[str]] = {}
    _refuse_twice("row", [row.name for row in rows])
    _refuse_twice("event", [event.__name__ for event in {event for row in rows for event in row.events}])
    closed: dict[tuple[str, type[Event]], str] = {}
    for row in rows:
        _check_names(row, machine)
        cells = [(source, event) for source in machine.sources(row) for event in row.events]
        if not cells:
            msg = f"row {row.name!r} leaves no state, or takes no event; name at least one of each"
            raise MachineError(msg)
        if all(cell in closed for cell in cells):
            msg = f"row {row.name!r} can never be reached: row {closed[cells[0]]!r} takes all before it"
            raise MachineError(msg)
        for source, _ in set(cells) - closed.keys():
            leads.setdefault(source, set()).add(source if row.dest in {STAY, AGAIN} else row.dest)
        if not row.guards:
            closed.update((cell, row.name) for cell in cells if cell not in closed)
    return leads


def _check_ways(machine: Machine, leads: Mapping[str, Collection[str]]) -> None:
    reached, new = set[str](), {START.name}
    while new:
        reached |= new
        new = {dest for source in new for dest in leads.get(source, ())} - reached
    onward = {source for row in machine.rows if ResultsAppended in row.events for source in machine.sources(row)}
    for state in machine.states:
        if state.name not in reached:
            msg = f"no row leads from {START.name!r} to the state {state.name!r}, by whatever way; add a row to it"
            raise MachineError(msg)
        if not state.final and state.asks is None and state.name not in onward:
            msg = f"state {state.name!r} asks nothing, so ResultsAppended comes at once; add a row that takes it there"
            raise MachineError(msg)


def _check_names(row: Row, machine: Machine) -> None:
    states = {state.name: state for state in machine.states}
    sources = machine.sources(row)
    for name in (*sources, *({row.dest} - {AGAIN, STAY})):
        if name not in states:
            msg = f"row {row.name!r} names the state {name!r}; the states are {', '.join(states)}"
            raise MachineError(msg)
    for name in sources:
        if states[name].final:
            msg = f"row {row.name!r} leaves {name!r}, which is final"
            raise MachineError(msg)


def _refuse_twice(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            msg = f"the {what} {name!r} stands twice; give each a name of its own"
            raise MachineError(msg)


loop = Machine()
"""The machine of every agent that brings none of its own."""
