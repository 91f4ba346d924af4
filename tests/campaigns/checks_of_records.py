"""Invariants of a journal as a whole: that it is all there, unchanged, and says what happened (1-8, 14, 24)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from case import Case, Row
from turnstile.core.effects import CallModel
from turnstile.core.events import (
    EffectBegun,
    RunStarted,
)
from turnstile.core.requests import RequestDigests
from turnstile.core.step import effect_of
from turnstile.ports import Summary


def gapless(case: Case) -> Iterator[str]:
    """1. Records are numbered from 1 without a gap, up to the one that the run's head names."""
    for expected, row in enumerate(case.rows, 1):
        if row.seq != expected:
            yield f"record {expected} has the number {row.seq}"
    if case.head.seq != len(case.rows):
        yield f"the head names record {case.head.seq} as the newest, and there are {len(case.rows)}"


def chained(case: Case) -> Iterator[str]:
    """2. Each record is sealed onto the one before, by the formula in the documentation and no code of the engine's."""
    previous = hashlib.sha256(case.run_id.encode()).digest()
    for row in case.rows:
        if row.seal != sealed(previous, row):
            yield f"the seal of record {row.seq} does not fit what it says and what stands before it"
        previous = row.seal
    if previous != case.head.seal:
        yield f"the head's seal is not that of record {len(case.rows)}"


def sealed(previous: bytes, row: Row) -> bytes:
    """The seal that a record should have."""
    numbers = struct.pack(">qdd", row.seq, row.at, row.duration_ms)
    taken = row.row.encode() + b"\0" if row.row else b""
    return hashlib.sha256(previous + numbers + taken + row.event).digest()


def lawful(case: Case) -> Iterator[str]:
    """3. Every move is a row of the table, and the one that its record names; only receipts name none."""
    if case.broken_off:
        yield f"record {len(case.states) + 1} cannot follow: {case.broken_off}"
    for row, event, moved in zip(case.rows, case.events, case.transitions, strict=False):
        expected = "" if moved is None or row.seq <= case.inherited else moved.row
        if row.row != expected:
            yield f"record {row.seq}, {type(event).__name__}, says row {row.row!r}, and the table takes {expected!r}"


def folded(case: Case) -> Iterator[str]:
    """4. What is stored of how the run stands is what folding its journal gives."""
    if case.broken_off or not case.states:
        yield "the journal cannot be folded"
        return
    run = case.states[-1]
    tokens = (run.usage.input_tokens or 0) + (run.usage.output_tokens or 0)
    expected = Summary(run.state, run.stop.reason if run.stop else "", run.turns, tokens, run.cost)
    if case.head.summary != expected:
        yield f"after record {len(case.rows)} the fold says {expected}, and stored is {case.head.summary}"


def kept(case: Case) -> Iterator[str]:
    """5. What was acknowledged is there, in its place and unchanged."""
    for entry in case.ledger:
        if entry.phase != "kept" or entry.run != case.run_id:
            continue
        if entry.seq > len(case.rows):
            yield f"record {entry.seq} was acknowledged, and the journal ends with {len(case.rows)}"
        elif entry.digest and entry.digest != digest_of(case.rows[entry.seq - 1].event):
            yield f"record {entry.seq} is not the one that was acknowledged"


def digest_of(event: bytes) -> str:
    """What a ledger says of a record, so that it can be known again."""
    return hashlib.sha256(event).hexdigest()


def epochs_rise(case: Case) -> Iterator[str]:
    """6. Whoever writes holds the newest lease: epochs never fall from record to record."""
    newest = 0
    acknowledged = [
        entry for entry in case.ledger if entry.phase == "kept" and entry.run == case.run_id and entry.epoch
    ]
    for entry in sorted(acknowledged, key=lambda entry: entry.seq):
        if entry.epoch < newest:
            yield f"record {entry.seq} was written under epoch {entry.epoch}, after one under epoch {newest}"
        newest = max(newest, entry.epoch)
    if newest > case.head.epoch:
        yield f"a record was written under epoch {newest}, and the newest lease has {case.head.epoch}"


def ends_once(case: Case) -> Iterator[str]:
    """7. At most one record ends the run, and it is the last."""
    for seq, run in enumerate(case.states, 1):
        if run.finished and seq != len(case.rows):
            yield f"record {seq} ended the run, and {len(case.rows) - seq} follow"
            return


def secretive(case: Case) -> Iterator[str]:
    """8. No secret stands in any byte that was written."""
    for place, content in enumerate((*(row.event for row in case.rows), *case.written), 1):
        for secret in case.secrets:
            if secret.encode() in content:
                where = f"record {place}" if place <= len(case.rows) else f"file {place - len(case.rows)}"
                yield f"{where} holds the secret that begins with {secret[:4]!r}"


def exported_whole(case: Case) -> Iterator[str]:
    """14. An exported run holds the records as they are stored, byte for byte."""
    if case.exported is None:
        return
    if len(case.exported) != len(case.rows):
        yield f"{len(case.exported)} records were exported of {len(case.rows)}"
    for row, copy in zip(case.rows, case.exported, strict=False):
        if row != copy:
            yield f"record {row.seq} was exported as {copy!r:.200}, and stored is {row!r:.200}"


def replayed(case: Case) -> Iterator[str]:
    """24. From the journal alone each request can be made again, and it is the one that the model was asked."""
    start = case.events[0] if case.events else None
    if not isinstance(start, RunStarted):
        yield "the journal does not begin with RunStarted"
        return
    digests, made = RequestDigests(start), set[str]()
    for seq, event, before, after in case.numbered:
        effect = effect_of(case.machine, before)
        if not isinstance(event, EffectBegun) or not isinstance(effect, CallModel) or not event.request:
            continue
        again = digests.of(effect, after.history, event.items)
        made.add(again)
        if again != event.request:
            yield f"the request of record {seq} is made again as {again}, and was {event.request}"
    for entry in case.ledger:
        if entry.phase == "asked" and entry.run == case.run_id and entry.digest not in made:
            yield f"a model was asked {entry.digest}, which no record begins"
