"""Invariants of tool calls: each is intended, begun, settled and answered as it must be (9-13, 15-18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeGuard

from case import Case
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    EffectBegun,
    EffectLost,
    Event,
    ModelReplied,
    RunStarted,
    ToolsFinished,
)
from turnstile.core.messages import Exchange, Reply, ToolResult
from turnstile.core.receipts import idempotency_key
from turnstile.core.strict_json import digest, loads


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
    """11. An intent, what its tool was given, and the result are those of the call that the model made."""
    for seq, intent in case.intents:
        if intent.call_id not in case.calls:
            yield f"record {seq} intends the call {intent.call_id!r}, which no reply made"
            continue
        call, verdict = case.calls[intent.call_id]
        expected = digest(call.name.strip(), loads(call.arguments.encode()))
        if not (intent.name == call.name.strip() and intent.digest == verdict.digest == expected):
            yield f"record {seq} intends {intent.name} {intent.digest:.8}, and call {call.id!r} is another"
    intended = {intent.call_id: intent.digest for _, intent in case.intents}
    for entry in case.ledger:
        if entry.phase == "began" and entry.digest and entry.digest != intended.get(entry.call, entry.digest):
            yield f"{entry.tool} was given other arguments than call {entry.call!r} has"
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


def _results(case: Case) -> Iterator[tuple[int, ToolResult]]:
    for seq, event in enumerate(case.events, 1):
        if isinstance(event, CallFinished):
            yield seq, event.result
        elif isinstance(event, ToolsFinished):
            yield from ((seq, result) for result in event.results)


def _lets_rerun(event: Event) -> TypeGuard[ApprovalDecided]:
    return isinstance(event, ApprovalDecided) and event.decision == "rerun"
