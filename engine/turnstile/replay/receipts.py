"""`receipts`: what became of each tool call of a run, as its journal tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from turnstile.core.events import CallStarted
from turnstile.core.messages import Exchange, Reply, ResultStatus, ToolCall, ToolResult
from turnstile.core.run_state import RunState
from turnstile.replay.replaying import Replay

Outcome = Literal["finished", "not run", "in doubt", "started", "open"]

_OUTCOMES: dict[ResultStatus, Outcome] = {
    "ok": "finished",
    "error": "finished",
    "not_run": "not run",
    "unknown": "in doubt",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a journal knows of one tool call.

    Attributes:
        call: The call, as the model made it.
        turn: The reply that made it, counted from 1.
        seq: Number of the transition that ended its batch; 0 while none has.
        outcome: ``finished``; ``not run``; ``in doubt``, when it was begun and nobody knows how it ended; ``started``,
            when it was begun and has not ended; or ``open``, when it has not begun.
        begun: How often it was begun.
        result: What the model reads of it; ``None`` while there is nothing.
    """

    call: ToolCall
    turn: int
    seq: int
    outcome: Outcome
    begun: int
    result: ToolResult | None = None


def receipts(replay: Replay) -> tuple[Receipt, ...]:
    """A receipt for each call, in the order in which the model made them."""
    begun: Counter[str] = Counter()
    found: list[Receipt] = []
    before, results_since = replay.states[0], 0
    for record, run in zip(replay.records[1:], replay.states[1:], strict=False):
        if isinstance(record.event, CallStarted):
            begun[record.event.call_id] += 1
        if run.results and not before.results:
            results_since = run.seq
        if len(run.history) > len(before.history):
            found += _closed(before, run, results_since if before.results else run.seq, begun)
        before = run
    return (*found, *_under_way(before, results_since, begun))


def _closed(before: RunState, run: RunState, seq: int, begun: Counter[str]) -> Iterator[Receipt]:
    """Receipts of the calls that became part of the history."""
    item = run.history[len(before.history)]
    exchange = item if isinstance(item, Exchange) else Exchange(Reply())
    for call, result in zip(exchange.reply.calls, exchange.results, strict=True):
        yield Receipt(call, run.turns, seq, _outcome(run, result, begun), begun[call.id], result)


def _under_way(run: RunState, seq: int, begun: Counter[str]) -> Iterator[Receipt]:
    """Receipts of the calls that are open."""
    results = {result.call_id: result for result in run.results or run.receipts}
    started = {intent.call_id for intent in run.started} | {*run.lost}
    any_may = run.in_flight and run.state == "execute_tools" and not _keeps_intents(run)
    for call in run.open.reply.calls if run.open else ():
        result = results.get(call.id)
        outcome: Outcome = "started" if any_may or call.id in started else "open"
        if result is not None:
            outcome = _outcome(run, result, begun)
        elif call.id in run.in_doubt:
            outcome = "in doubt"
        yield Receipt(call, run.turns, seq if run.results else 0, outcome, begun[call.id], result)


def _outcome(run: RunState, result: ToolResult, begun: Counter[str]) -> Outcome:
    """How a call ended; one that could not run, such as that of an unknown tool, has an error and was never begun."""
    if result.status == "error" and not begun[result.call_id] and _keeps_intents(run):
        return "not run"
    return _OUTCOMES[result.status]


def _keeps_intents(run: RunState) -> bool:
    """Whether the journal says which calls were begun, as all do that are newer than format 1."""
    return run.start.settings is not None
