"""The 24 invariants of a run, each a checker of its own: it yields what is wrong, in words, with numbers of records.

`violations` runs them all. A checker looks from outside where it can: at rows as they are stored, at what tools and
models wrote down themselves. Where it folds the journal, it counts again what the fold counted.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeGuard

from case import Case, Row
from turnstile.core.budget import charge, over_budget
from turnstile.core.effects import CallModel
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    EffectBegun,
    EffectLost,
    Event,
    ModelFailed,
    ModelReplied,
    RunStarted,
    ToolsFinished,
)
from turnstile.core.messages import Exchange, Reply, ToolResult
from turnstile.core.receipts import idempotency_key
from turnstile.core.requests import RequestDigests
from turnstile.core.run_state import RunState
from turnstile.core.step import effect_of
from turnstile.core.strict_json import digest, loads
from turnstile.ports import Summary

Checker = Callable[[Case], Iterator[str]]

STEP_SECONDS = 30.0  # a step on a busy machine, its tools told to stop and given their time
STEP_BYTES = 512 * 2**20  # eight times the largest record
STOP_SECONDS = 10.0  # RELIABILITY, promise 6: for tools that do not cooperate
CENT = 1e-9  # US dollars that sums of floating-point numbers may be apart


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


def intended(case: Case) -> Iterator[str]:
    """9. A tool works, and a model is asked, only after the intent to do so was kept."""
    calls: dict[str, int] = {}
    for seq, begun in case.intents:
        calls.setdefault(begun.call_id, seq)
    requests: dict[str, int] = {}
    for seq, event in enumerate(case.events, 1):
        if isinstance(event, EffectBegun) and event.request:
            requests.setdefault(event.request, seq)
    for known, entry in case.known_before():
        if entry.phase == "began":
            what, intent = f"{entry.tool} of call {entry.call!r} began", calls.get(entry.call)
        elif entry.phase == "asked":
            what, intent = f"a model was asked {entry.digest}", requests.get(entry.digest)
        else:
            continue
        if intent is None:
            yield f"{what} without an intent"
        elif intent > known:
            yield f"{what} when records up to {known} were kept, and its intent is record {intent}"


def ids_unique(case: Case) -> Iterator[str]:
    """10. No two calls have one id, though a model may repeat its own."""
    ids = Counter(call.id for event in case.events if isinstance(event, ModelReplied) for call in event.reply.calls)
    start = case.events[0]
    if isinstance(start, RunStarted):
        ids.update(call.id for item in start.history if isinstance(item, Exchange) for call in item.reply.calls)
    yield from (f"{times} calls have the id {call_id!r}" for call_id, times in ids.items() if times > 1)


def results_match(case: Case) -> Iterator[str]:
    """11. An intent has the digest of its call's tool and arguments, and a result is that of the call it names."""
    for seq, intent in case.intents:
        if intent.call_id not in case.calls:
            yield f"record {seq} intends the call {intent.call_id!r}, which no reply made"
            continue
        call, verdict = case.calls[intent.call_id]
        expected = digest(call.name.strip(), loads(call.arguments.encode()))
        if not (intent.name == call.name.strip() and intent.digest == verdict.digest == expected):
            yield f"record {seq} intends {intent.name} {intent.digest:.8}, and call {call.id!r} is another"
    for seq, result in _results(case):
        known = case.calls.get(result.call_id)
        if known is None or known[0].name != result.name:
            yield f"record {seq} holds a result of {result.name} for the call {result.call_id!r}, which is another"


def written_once(case: Case) -> Iterator[str]:
    """12. The effect of a `write` call happens at most once, and once more for each time that a human let it."""
    allowed = Counter(event.call_id for event in case.events if _lets_rerun(event))
    began = Counter(entry.call for entry in case.ledger if entry.phase == "began" and entry.run == case.run_id)
    for call_id, times in began.items():
        if case.writes(call_id) and times > 1 + allowed[call_id]:
            yield f"the write call {call_id!r} began {times} times"


def one_key(case: Case) -> Iterator[str]:
    """13. A call has one key however often it is begun, made of run and call, and the tool was given that one."""
    for seq, intent in case.intents:
        if intent.key != idempotency_key(case.run_id, intent.call_id):
            yield f"record {seq} gives call {intent.call_id!r} the key {intent.key!r}"
    for entry in case.ledger:
        if entry.phase == "began" and entry.run == case.run_id and entry.key != idempotency_key(entry.run, entry.call):
            yield f"{entry.tool} was given the key {entry.key!r} for call {entry.call!r}"


def exported_whole(case: Case) -> Iterator[str]:
    """14. An exported run holds the events as they are stored, byte for byte."""
    if case.exported is None:
        return
    if len(case.exported) != len(case.rows):
        yield f"{len(case.exported)} records were exported of {len(case.rows)}"
    for row, event in zip(case.rows, case.exported, strict=False):
        if row.event != event:
            yield f"record {row.seq} was exported as {event!r:.60}, and stored is {row.event!r:.60}"


def settled_once(case: Case) -> Iterator[str]:
    """15. Every intent is settled exactly once before a model is asked again."""
    begun: set[str] = set()
    settled: Counter[str] = Counter()
    for seq, event in enumerate(case.events, 1):
        if isinstance(event, CallStarted):
            begun.add(event.call_id)
            if settled[event.call_id]:
                yield f"record {seq} begins call {event.call_id!r}, which has its result"
        settled.update(_settled_by(case, event, begun - settled.keys()))
        if isinstance(event, EffectBegun) and event.request and (left := begun - settled.keys()):
            yield f"record {seq} asks the model while calls {sorted(left)!r} are not settled"
    yield from (f"call {call_id!r} was settled {times} times" for call_id, times in settled.items() if times > 1)


def _settled_by(case: Case, event: Event, at_work: set[str]) -> list[str]:
    if isinstance(event, CallFinished):
        return [event.result.call_id]
    if isinstance(event, ToolsFinished):
        return [result.call_id for result in event.results]
    if isinstance(event, EffectLost):  # of a call that is in doubt, the model is told so
        return [call_id for call_id in at_work if case.writes(call_id) and not _asks(case, call_id)]
    return [event.call_id] if isinstance(event, ApprovalDecided) and not _lets_rerun(event) else []


def _asks(case: Case, call_id: str) -> bool:
    return call_id in case.calls and case.calls[call_id][1].on_in_doubt == "ask"


def answered_in_order(case: Case) -> Iterator[str]:
    """16. In what the model is shown, each call has one result, in the order of the calls."""
    if not case.states:
        return
    expected: list[str] = []
    for message in (*case.states[-1].messages, Reply()):
        if isinstance(message, ToolResult):
            if not expected or expected.pop(0) != message.call_id:
                yield f"the result of call {message.call_id!r} stands in the wrong place"
        elif expected:
            yield f"calls {expected!r} have no result"
            expected = []
        if isinstance(message, Reply):
            expected = [call.id for call in message.calls]


def approved_first(case: Case) -> Iterator[str]:
    """17. A call begins by approval only after that, as just the call it was, and each approval serves once."""
    granted: dict[str, str] = {}
    first: dict[str, CallStarted] = {}
    for seq, event, _, after in case.numbered:
        if _lets_rerun(event):
            granted[str(after.seq)] = event.call_id
        if not isinstance(event, CallStarted):
            continue
        earlier = first.setdefault(event.call_id, event)
        if event.approval and granted.pop(event.approval, None) != event.call_id:
            yield f"record {seq} begins call {event.call_id!r} by approval {event.approval}, which is none for it now"
        if (event.digest, event.fingerprint) != (earlier.digest, earlier.fingerprint):
            yield f"record {seq} begins call {event.call_id!r} as another than it was"
        if event is not earlier and case.writes(event.call_id) and not event.approval:
            yield f"record {seq} begins the write call {event.call_id!r} again, and nobody let it"


def deny_wins(case: Case) -> Iterator[str]:
    """18. A call that a human did not let run is never begun afterwards."""
    denied: dict[str, int] = {}
    for seq, event, _, _ in case.numbered:
        if isinstance(event, ApprovalDecided) and event.decision != "rerun":
            denied.setdefault(event.call_id, seq)
        if isinstance(event, CallStarted) and event.call_id in denied:
            yield f"record {seq} begins call {event.call_id!r}, which record {denied[event.call_id]} denies"


def within_limits(case: Case) -> Iterator[str]:
    """19. At every record, what is spent and what is held back stay within each limit."""
    for seq, run in enumerate(case.states, 1):
        limits, (tokens, dollars) = run.limits, run.reserved
        if limits.tokens is not None and run.charged_tokens + tokens > limits.tokens:
            yield f"at record {seq} {run.charged_tokens} tokens are spent and {tokens} held back, of {limits.tokens}"
        if limits.cost is not None and run.charged_cost + dollars > limits.cost + CENT:
            yield f"at record {seq} ${run.charged_cost} is spent and ${dollars} held back, of ${limits.cost}"
        if limits.tool_calls is not None and run.tool_calls > limits.tool_calls:
            yield f"at record {seq} {run.tool_calls} calls were run, of {limits.tool_calls}"
        if run.turns > limits.turns + (limits.on_exhausted == "wrap_up"):
            yield f"at record {seq} {run.turns} turns were taken, of {limits.turns}"


def reserved_once(case: Case) -> Iterator[str]:
    """20. Tokens are held back when a request begins, and settled once: by its reply, its failure, or as lost."""
    for seq, event, before, after in case.numbered:
        (held, _), spent = before.reserved, 0
        if isinstance(event, ModelReplied):
            spent = charge(before, event.reply)
        elif held and not after.reserved[0] and not isinstance(event, ModelFailed):  # it may have been paid for
            spent = held
        if after.charged_tokens - before.charged_tokens != spent:
            yield f"record {seq} charges {after.charged_tokens - before.charged_tokens} tokens instead of {spent}"
        if after.reserved[0] and not after.in_flight:
            yield f"after record {seq} {after.reserved[0]} tokens are held back for nothing"
        if isinstance(event, EffectBegun) and held:
            yield f"record {seq} begins a request while another holds back {held} tokens"
        if isinstance(event, EffectBegun) and _binds(before) and not after.reserved[0]:
            yield f"record {seq} begins a request and holds nothing back"


def _binds(run: RunState) -> bool:
    """Whether a request that begins now must hold something back: a limit binds it, and lets it be sent."""
    limited = run.limits.tokens is not None or run.limits.cost is not None
    return limited and run.state == "await_model" and not over_budget(run)


def punctual(case: Case) -> Iterator[str]:
    """21. Nothing begins after the deadline."""
    for row, (seq, event, run, _) in zip(case.rows[1:], case.numbered, strict=False):
        if isinstance(event, EffectBegun | CallStarted) and run.deadline is not None and row.at > run.deadline:
            yield f"record {seq} begins something {row.at - run.deadline:.3f} s after the deadline"


def stops(case: Case) -> Iterator[str]:
    """22. Nothing begins after a cancellation, and the run ends in bounded time."""
    ordered = 0
    for seq, event, _, _ in case.numbered:
        if isinstance(event, Cancelled):
            ordered = ordered or seq
        elif ordered and isinstance(event, EffectBegun | CallStarted):
            yield f"record {seq} begins something after the cancellation in record {ordered}"
    for known, entry in case.known_before():
        if ordered and known >= ordered and entry.phase in {"began", "asked"}:
            yield f"{entry.tool or 'a request'} began after the cancellation in record {ordered}"
    if case.effort.to_stop is not None and case.effort.to_stop > STOP_SECONDS:
        yield f"it took {case.effort.to_stop:.1f} s to stop"


def bounded(case: Case) -> Iterator[str]:
    """23. Whatever a model says leads to a move of the table, within bounds of memory and time."""
    if case.broken_off:
        yield f"after record {len(case.states)} no move follows: {case.broken_off}"
    if case.effort.seconds > STEP_SECONDS:
        yield f"a step took {case.effort.seconds:.1f} s"
    if case.effort.peak_bytes > STEP_BYTES:
        yield f"a step took {case.effort.peak_bytes} bytes"


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


def _results(case: Case) -> Iterator[tuple[int, ToolResult]]:
    for seq, event in enumerate(case.events, 1):
        if isinstance(event, CallFinished):
            yield seq, event.result
        elif isinstance(event, ToolsFinished):
            yield from ((seq, result) for result in event.results)


def _lets_rerun(event: Event) -> TypeGuard[ApprovalDecided]:
    return isinstance(event, ApprovalDecided) and event.decision == "rerun"


INVARIANTS: tuple[Checker, ...] = (
    gapless,
    chained,
    lawful,
    folded,
    kept,
    epochs_rise,
    ends_once,
    secretive,
    intended,
    ids_unique,
    results_match,
    written_once,
    one_key,
    exported_whole,
    settled_once,
    answered_in_order,
    approved_first,
    deny_wins,
    within_limits,
    reserved_once,
    punctual,
    stops,
    bounded,
    replayed,
)
"""All 24, in the order of their numbers."""


def violations(case: Case) -> list[str]:
    """What is wrong with a run, each with the number of the invariant that it breaks; empty for a sound one."""
    return [
        f"invariant {number} ({checker.__name__}), run {case.run_id!r}: {what}"
        for number, checker in enumerate(INVARIANTS, 1)
        for what in checker(case)
    ]
