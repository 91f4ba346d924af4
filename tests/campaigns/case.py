"""`Case`: all that is known of one run after a campaign did its worst, for the checkers of the invariants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property

from ledger import Entry
from turnstile import Machine
from turnstile.core.codec import Codec
from turnstile.core.errors import TurnstileError
from turnstile.core.events import CallStarted, Event, ModelReplied, Verdict
from turnstile.core.fold import walk
from turnstile.core.machine import loop
from turnstile.core.messages import ToolCall
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.ports import Summary


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a journal, as its store holds it.

    Attributes:
        seq: Its number.
        at: When it happened.
        duration_ms: How long the effect took that brought it.
        row: Name of the table's row that took it; empty for a receipt.
        event: The event, as the codec wrote it.
        seal: Its place in the hash chain.
    """

    seq: int
    at: float
    duration_ms: float
    row: str
    event: bytes
    seal: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What a store keeps of a run beside its journal.

    Attributes:
        seq: Number of the newest record.
        seal: Its seal.
        summary: How the run stands.
        epoch: That of the newest lease.
    """

    seq: int
    seal: bytes
    summary: Summary
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Effort:
    """What the worst step of a run took.

    Attributes:
        seconds: The longest time.
        peak_bytes: The most memory.
        to_stop: Seconds from an order to stop to the end of the run; ``None`` when there was none.
    """

    seconds: float = 0.0
    peak_bytes: int = 0
    to_stop: float | None = None


@dataclass(frozen=True)
class Case:
    """One run, from inside and from outside.

    Attributes:
        run_id: The run.
        rows: Its journal.
        head: What stands beside it.
        ledger: What its tools, its model and its store wrote down, in the order in which it happened.
        machine: The table it was driven by.
        secrets: What must never be written.
        written: All bytes that were written anywhere.
        exported: The records of an exported copy, in order; ``None`` when none was made.
        effort: What its steps took.
        inherited: How many of its records an older version wrote, which named no rows.
    """

    run_id: str
    rows: tuple[Row, ...]
    head: Head
    ledger: tuple[Entry, ...] = ()
    machine: Machine = loop
    secrets: tuple[str, ...] = ()
    written: tuple[bytes, ...] = ()
    exported: tuple[Row, ...] | None = None
    effort: Effort = field(default_factory=Effort)
    inherited: int = 0

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of the journal."""
        codec = _codec_of(self.machine)
        return tuple(codec.decode(row.event) for row in self.rows)

    @cached_property
    def _walked(self) -> tuple[tuple[tuple[RunState, Transition | None], ...], str]:
        states: list[tuple[RunState, Transition | None]] = []
        try:
            states.extend(walk(self.machine, self.events))
        except (TurnstileError, ValueError) as error:
            return tuple(states), f"{type(error).__name__}: {error}"
        return tuple(states), ""

    @property
    def states(self) -> tuple[RunState, ...]:
        """The run after each record, as far as the journal can be followed."""
        return tuple(run for run, _ in self._walked[0])

    @property
    def transitions(self) -> tuple[Transition | None, ...]:
        """The move that each record made, as far as the journal can be followed."""
        return tuple(transition for _, transition in self._walked[0])

    @property
    def broken_off(self) -> str:
        """Why the journal cannot be followed to its end; empty when it can."""
        return self._walked[1]

    @property
    def numbered(self) -> Iterator[tuple[int, Event, RunState, RunState]]:
        """Each record after the first: its number, its event, and the run before and after."""
        states = self.states
        return zip(range(2, len(states) + 1), self.events[1:], states, states[1:], strict=False)

    @cached_property
    def calls(self) -> dict[str, tuple[ToolCall, Verdict]]:
        """The calls of all replies with their verdicts, by id."""
        return {
            call.id: (call, verdict)
            for event in self.events
            if isinstance(event, ModelReplied)
            for call, verdict in zip(event.reply.calls, event.verdicts, strict=True)
        }

    def writes(self, call_id: str) -> bool:
        """Whether a call may have its effect only once."""
        return call_id not in self.calls or self.calls[call_id][1].access == "write"

    @cached_property
    def intents(self) -> tuple[tuple[int, CallStarted], ...]:
        """The intents to run a call, with the number of the record."""
        return tuple((seq, event) for seq, event in enumerate(self.events, 1) if isinstance(event, CallStarted))

    def known_before(self) -> Iterator[tuple[int, Entry]]:
        """Each entry of the ledger about this run, with the newest record that was known to be kept before it."""
        known = 0
        for entry in self.ledger:
            if entry.run == self.run_id:
                yield known, entry
                known = max(known, entry.seq)


@cache
def _codec_of(machine: Machine) -> Codec:
    return Codec.of(machine)
