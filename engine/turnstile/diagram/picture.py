"""What a picture shows: states and arrows with what stands on them, in no format's words.

Colours are to be read on white and on black: text stands on a ground of its own, and lines have a middle tone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from turnstile.core.machine import Machine
from turnstile.core.rows import AGAIN, STAY, Row
from turnstile.core.states import State
from turnstile.core.step import Transition

Tone = Literal["live", "good", "bad", "pale"]

FILLS: dict[Tone, tuple[str, str, str]] = {  # of a state: fill, border, text
    "live": ("#ddf4ff", "#218bff", "#0a3069"),
    "good": ("#dafbe1", "#2da44e", "#0f5323"),
    "bad": ("#ffebe9", "#e5534b", "#82071e"),
    "pale": ("transparent", "#8c959f", "#8c959f"),
}
GROUND, INK = "#f6f8fa", "#1f2328"  # of the text on arrows
LINES: dict[Tone, str] = {"live": "#768390", "good": "#2da44e", "bad": "#e5534b", "pale": "#8c959f"}


WIDTH = 28  # characters in a line on an arrow; Mermaid breaks lines of more than 200 px itself, where it likes
SEEN = 3  # numbers that an arrow names before it counts the rest
SECOND = 1000  # milliseconds


@dataclass(frozen=True, slots=True)
class Node:
    """A state as it is drawn.

    Attributes:
        name: Its name.
        lines: What stands in it.
        tone: Its colours.
        last: Whether the run that is drawn stands or ended here.
    """

    name: str
    lines: tuple[str, ...]
    tone: Tone
    last: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """All moves from one state to another, as they are drawn.

    Attributes:
        source: The state that they leave.
        dest: The state that they lead to.
        lines: What stands on it.
        tone: Its colour.
        taken: Whether the run that is drawn went this way.
    """

    source: str
    dest: str
    lines: tuple[str, ...]
    tone: Tone
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """States and arrows; a run starts in the first state."""

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]


def of_machine(machine: Machine, *, guards: bool) -> Picture:
    """The picture of a machine; all rows between two states are one arrow with their reasons, by event."""
    nodes = tuple(Node(state.name, _about(state), _tone(state)) for state in machine.states)
    tones = {node.name: node.tone for node in nodes}
    arrows = (
        Arrow(source, dest, _guarded(rows) if guards else _reasons(rows), tones[dest])
        for (source, dest), rows in _moves(machine).items()
    )
    return Picture(nodes, tuple(arrows))


def _moves(machine: Machine) -> dict[tuple[str, str], list[Row]]:
    """The rows between each two states that there are rows between, in the order of the states."""
    names = [state.name for state in machine.states]
    moves: dict[tuple[str, str], list[Row]] = {(source, dest): [] for source in names for dest in names}
    for row in machine.rows:
        for source in machine.sources(row):
            moves[source, source if row.dest in (STAY, AGAIN) else row.dest].append(row)
    return {ends: rows for ends, rows in moves.items() if rows}


def _reasons(rows: Sequence[Row]) -> tuple[str, ...]:
    """Reasons by event; events that have the same reasons share their lines."""
    by_event: dict[str, dict[str, None]] = {}
    for row in rows:
        for event in row.event_names:
            by_event.setdefault(event, {}).update(dict.fromkeys(row.reasons))
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for event, reasons in by_event.items():
        by_reasons.setdefault(tuple(reasons), []).append(event)
    return _wrap(f"{', '.join(events)}: {', '.join(reasons)}" for reasons, events in by_reasons.items())


def _guarded(rows: Sequence[Row]) -> tuple[str, ...]:
    return _wrap(", ".join(row.reasons) + (f" [{', '.join(row.guard_names)}]" if row.guards else "") for row in rows)


def _about(state: State) -> tuple[str, ...]:
    return (state.name, state.asks) if state.asks else (state.name,)


def _tone(state: State) -> Tone:
    if not state.final:
        return "live"
    return "good" if state.name == "done" else "bad"  # an extension's own end is a failure too, as in `Result.ok`


def _wrap(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(line for text in texts for line in textwrap.wrap(text, WIDTH, break_long_words=False))


def of_run(transitions: Sequence[Transition], machine: Machine, exhausted: str | None = None) -> Picture:
    """The picture of a run on that of its machine; what it did not take is pale."""
    taken: dict[tuple[str, str], list[Transition]] = {}
    for move in transitions:
        taken.setdefault((move.source, move.dest), []).append(move)
    seen = {name for ends in taken for name in ends} | {machine.states[0].name}
    last = transitions[-1].dest if transitions else machine.states[0].name
    known = {state.name for state in machine.states}
    states = (*machine.states, *(State(name) for name in sorted(seen - known)))  # a run of an older table is drawn, too
    nodes = []
    for state in states:
        lines = _about(state) if state.name != last else (state.name, *_ending(transitions, state, exhausted))
        nodes.append(Node(state.name, lines, _tone(state) if state.name in seen else "pale", state.name == last))
    tones = {node.name: node.tone for node in nodes}
    ways = dict.fromkeys([*_moves(machine), *taken])
    arrows = (
        Arrow(*ends, _account(taken[ends]), tones[ends[1]], taken=True) if ends in taken else Arrow(*ends, (), "pale")
        for ends in ways
    )
    return Picture(tuple(nodes), tuple(arrows))


def _ending(transitions: Sequence[Transition], state: State, exhausted: str | None) -> tuple[str, ...]:
    """Why the run ended, or that it didn't."""
    if not state.final:
        return ("not finished",)
    reason, error = transitions[-1].reason, transitions[-1].error
    about = [error.kind, str(error.status or "")] if error else [exhausted or ""]
    return tuple(filter(None, (reason, " ".join(filter(None, about)))))


def _account(moves: Sequence[Transition]) -> tuple[str, ...]:
    """When and why a way was taken, and what it took."""
    by_reason: dict[str, list[int]] = {}
    for move in moves:
        by_reason.setdefault(move.reason, []).append(move.seq)
    spent = [_duration(sum(move.duration_ms for move in moves))]
    tokens = sum(move.usage.total_tokens for move in moves if move.usage)
    spent += [f"{tokens:,} tokens"] if tokens else []
    told = _wrap(f"{_numbers(numbers)}: {reason}" for reason, numbers in by_reason.items())
    return (*told, *_wrap([", ".join(filter(None, spent))]))


def _numbers(numbers: Sequence[int]) -> str:
    if len(numbers) <= SEEN + 1:
        return ", ".join(map(str, numbers))
    return f"{', '.join(map(str, numbers[:SEEN]))} … {numbers[-1]} (×{len(numbers)})"


def _duration(ms: float) -> str:
    if ms < 1:
        return ""
    return f"{ms:,.0f} ms" if ms < SECOND else f"{ms / SECOND:,.1f} s"
