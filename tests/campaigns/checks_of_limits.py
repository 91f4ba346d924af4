"""Invariants of limits: of money, of time, and of what may begin after an order to stop (19-23)."""

from __future__ import annotations

from collections.abc import Iterator

from case import Case
from turnstile.core.budget import charge, over_budget
from turnstile.core.events import (
    CallStarted,
    Cancelled,
    EffectBegun,
    ModelFailed,
    ModelReplied,
)
from turnstile.core.run_state import RunState

STEP_SECONDS = 30.0  # a step on a busy machine, its tools told to stop and given their time
STEP_BYTES = 512 * 2**20  # eight times the largest record
STOP_SECONDS = 10.0  # RELIABILITY, promise 6: for tools that do not cooperate
CENT = 1e-9  # US dollars that sums of floating-point numbers may be apart


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
