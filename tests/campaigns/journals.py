"""Journals made by hand, for the checkers to be checked on: sound ones, to be broken in one way each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from case import Case, Head, Row
from checks_of_records import digest_of, sealed
from ledger import Entry
from turnstile.core.codec import Codec, codec
from turnstile.core.effects import CallModel
from turnstile.core.events import RECEIPTS, CallStarted, EffectBegun, Event, ModelReplied, RunStarted, Verdict
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Reply, ToolCall, ToolResult, Usage
from turnstile.core.receipts import idempotency_key
from turnstile.core.requests import RequestDigests
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import effect_of, note, step
from turnstile.core.strict_json import digest, loads
from turnstile.core.values import evolve
from turnstile.ports import Record, Summary

RUN = "run"


def call(number: int, tool: str) -> ToolCall:
    """A call of a tool, by its number in the run."""
    return ToolCall(f"call {number}", tool, f'{{"n": {number}}}')


def replied(*calls: ToolCall, text: str = "", tokens: int = 100) -> ModelReplied:
    """A reply that calls tools, each of the access class that its tool is named for."""
    verdicts = tuple(
        Verdict(each.id, digest(each.name, loads(each.arguments.encode())), access=each.name)  # type: ignore[arg-type]
        for each in calls
    )
    return ModelReplied(Reply(text, calls, usage=Usage(tokens, tokens)), verdicts, output=text or None)


def started(of: ToolCall, **changes: str) -> CallStarted:
    """The intent to run a call."""
    made = CallStarted(of.id, of.name, digest(of.name, loads(of.arguments.encode())), "f", idempotency_key(RUN, of.id))
    return evolve(made, **changes)


def result(of: ToolCall) -> ToolResult:
    """What a call came to."""
    return ToolResult(of.id, of.name, "fine")


class Hand:
    """Writes a journal: each event as a driver would, with its row, its request's digest and its seal.

    Args:
        start: The first record.
        machine: The table.
    """

    def __init__(self, start: RunStarted, machine: Machine = loop) -> None:
        self._machine = machine
        self._digests = RequestDigests(start)
        self._events: list[Event] = [start]
        self._names = [""]
        self._ledger: list[Entry] = []
        self.run: RunState = begin_run(start)
        self._acknowledge()

    def take(self, *events: Event) -> Hand:
        """Write records, all with one commit."""
        for event in events:
            if isinstance(event, RECEIPTS):
                self._receipt(event)
            else:
                taken = step(self._machine, self.run, event)
                self.run = taken.run
                self._events.append(event)
                self._names.append(taken.transition.row)
        self._acknowledge()
        return self

    def _receipt(self, event: Event) -> None:
        effect = effect_of(self._machine, self.run)
        self.run = note(self.run, event)
        if isinstance(event, EffectBegun) and isinstance(effect, CallModel):
            items = ((0, len(self.run.history)),)
            event = EffectBegun(self._digests.of(effect, self.run.history, items), items)
        self._events.append(event)
        self._names.append("")

    def ask(self) -> Hand:
        """Begin a request, and send it."""
        self.take(EffectBegun())
        begun = self._events[-1]
        assert isinstance(begun, EffectBegun)
        self._ledger.append(Entry("asked", RUN, digest=begun.request))
        return self

    def work(self, of: ToolCall) -> Hand:
        """Let a tool do what a call asks for."""
        began = Entry("began", RUN, of.id, of.name, idempotency_key(RUN, of.id), digest=started(of).digest)
        self._ledger += [began, replace(began, phase="ended")]
        return self

    def _acknowledge(self) -> None:
        newest = digest_of(Codec.of(self._machine).encode(self._events[-1]))
        self._ledger.append(Entry("kept", RUN, seq=len(self._events), digest=newest, epoch=1))

    def case(self, ledger: Sequence[Entry] = ()) -> Case:
        """The run as a campaign would find it, with further entries in the ledger."""
        rows = sealed_rows(tuple(map(Codec.of(self._machine).encode, self._events)), tuple(self._names))
        run = self.run
        tokens = (run.usage.input_tokens or 0) + (run.usage.output_tokens or 0)
        summary = Summary(run.state, run.stop.reason if run.stop else "", run.turns, tokens, run.cost)
        head = Head(len(rows), rows[-1].seal, summary)
        return Case(RUN, rows, head, (*self._ledger, *ledger), self._machine, ("secret-1234",), exported=rows)


def sealed_rows(events: Sequence[bytes], names: Sequence[str]) -> tuple[Row, ...]:
    """The rows of a journal, its chain whole."""
    previous, rows = hashlib.sha256(RUN.encode()).digest(), list[Row]()
    for seq, (event, name) in enumerate(zip(events, names, strict=True), 1):
        row = Row(seq, float(seq), 0.0, name, event, b"")
        rows.append(replace(row, seal=sealed(previous, row)))
        previous = rows[-1].seal
    return tuple(rows)


def rows_of(run_id: str, records: Sequence[Record]) -> tuple[Row, ...]:
    """The rows of a journal whose store seals nothing."""
    previous, rows = hashlib.sha256(run_id.encode()).digest(), list[Row]()
    for seq, record in enumerate(records, 1):
        row = Row(seq, record.at, record.duration_ms, record.row, codec.encode(record.event), b"")
        rows.append(replace(row, seal=sealed(previous, row)))
        previous = rows[-1].seal
    return tuple(rows)
