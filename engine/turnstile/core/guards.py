"""The questions that rows ask: named pure predicates over a run and the event that arrived.

A guard reads counters and the event's vetted fields, and never scans the history. Its name is what a transition shows
when it says no, so a name is a question that "no" answers.
"""

from __future__ import annotations

from turnstile.core.budget import over_budget, spent_after
from turnstile.core.events import TRANSIENT, ApprovalDecided, Event, ModelFailed, ModelReplied, ToolsFinished
from turnstile.core.limits import StopReason
from turnstile.core.run_state import RunState

LEAST_ITEMS = 2  # a question and what follows it: the question leads whatever is left, so no half of these is smaller


def tools_running(run: RunState, event: Event) -> bool:
    """Whether tools are at work right now."""
    return run.in_flight


def is_stopping(run: RunState, event: Event) -> bool:
    """Whether running tools were told to stop."""
    return run.stopping is not None


def recoveries_left(run: RunState, event: Event) -> bool:
    """Whether a lost effect may be begun again."""
    return run.recoveries < run.limits.recoveries


def is_over_budget(run: RunState, event: ModelFailed) -> bool:
    """Whether the engine refused to send, since the worst case would pass a limit."""
    return event.kind == "budget"


def may_wrap_up(run: RunState, event: ModelFailed | ModelReplied) -> bool:
    """Whether the run may still ask for a last answer with tools off."""
    return run.limits.on_exhausted == "wrap_up" and run.wrapping_up is None


def is_overflow(run: RunState, event: ModelFailed) -> bool:
    """Whether the request was longer than the model's context."""
    return event.kind == "context_overflow"


def can_trim(run: RunState, event: ModelFailed) -> bool:
    """Whether older items can be left out, once since the last accepted reply; a question and what follows it stay."""
    return run.start.can_trim and not run.trimmed and carried(run, event) > LEAST_ITEMS


def is_transient(run: RunState, event: ModelFailed) -> bool:
    """Whether the same request may well succeed later."""
    return event.kind in TRANSIENT and event.delay is not None


def retries_left(run: RunState, event: ModelFailed) -> bool:
    """Whether this request may be sent once more."""
    return run.retries + 1 < run.start.retry.attempts


def was_refused(run: RunState, event: ModelFailed | ModelReplied) -> bool:
    """Whether the model, or a filter before it, declined."""
    return event.reply.finish == "refusal" if isinstance(event, ModelReplied) else event.kind == "content_filter"


def is_model_fault(run: RunState, event: ModelFailed) -> bool:
    """Whether the server rejected the model's own malformed call."""
    return event.kind == "generation_failed"


def fallback_left(run: RunState, event: ModelFailed) -> bool:
    """Whether there is another model to try."""
    return run.model + 1 < len(run.start.models)


def repairs_left(run: RunState, event: ModelFailed | ModelReplied) -> bool:
    """Whether a malformed call or output may be asked for again."""
    return run.repairs < run.limits.repairs


def nudges_left(run: RunState, event: ModelReplied) -> bool:
    """Whether an empty or unfinished reply may be asked to go on."""
    return run.nudges < run.limits.nudges


def turns_left(run: RunState, event: ModelFailed | ModelReplied) -> bool:
    """Whether another reply may be asked for: turns and budget are left, and the run isn't wrapping up."""
    return exhausted(run, event) is None


def limit_hit(run: RunState, event: ModelReplied) -> bool:
    """Whether a limit forbids running this reply's calls."""
    return limit_of(run, event) is not None


def was_truncated(run: RunState, event: ModelReplied) -> bool:
    """Whether the reply was cut by a token limit."""
    return event.reply.finish == "length"


def wants_tools(run: RunState, event: ModelReplied) -> bool:
    """Whether the reply holds calls, whatever its label says."""
    return bool(event.reply.calls)


def is_paused(run: RunState, event: ModelReplied) -> bool:
    """Whether the provider interrupted a long turn that it will go on with."""
    return event.reply.finish == "pause"


def has_injected(run: RunState, event: ModelReplied) -> bool:
    """Whether the user has said something that isn't sent yet."""
    return bool(run.inbox)


def broke_promise(run: RunState, event: ModelReplied) -> bool:
    """Whether the reply announces calls and holds none."""
    return event.reply.finish == "tool_calls"


def is_answer(run: RunState, event: ModelReplied) -> bool:
    """Whether the reply says something to the user."""
    return event.reply.says_something


def output_valid(run: RunState, event: ModelReplied) -> bool:
    """Whether the answer fits the agent's output type."""
    return not event.output_error


def follows_results(run: RunState, event: ModelReplied) -> bool:
    """Whether the reply comes right after tool results."""
    return run.history.ends_with_results


def carried(run: RunState, event: ModelFailed) -> int:
    """How many items the failed request carried: as many as the window holds, where that is not said."""
    return event.items or len(run.history) - run.window_start


def tool_aborted(run: RunState, event: ToolsFinished) -> bool:
    """Whether a tool ended the run."""
    return event.aborted is not None


def in_doubt(run: RunState, event: ToolsFinished) -> bool:
    """Whether a human is to decide about a call whose outcome nobody knows."""
    return bool(run.in_doubt)


def all_decided(run: RunState, event: ApprovalDecided) -> bool:
    """Whether this is the last decision that was waited for."""
    return set(run.in_doubt) <= {event.call_id}


def exhausted(run: RunState, event: ModelFailed | ModelReplied) -> str | None:
    """The limit that forbids asking for another reply after this event; ``None`` when there is none."""
    if run.wrapping_up:
        return run.wrapping_up
    if isinstance(event, ModelReplied):
        return StopReason.MAX_TURNS if run.turns + 1 >= run.start.limits.turns else spent_after(run, event) or None
    return over_budget(run) or None


def limit_of(run: RunState, event: ModelReplied) -> str | None:
    """The limit that forbids running this reply's calls; ``None`` when there is none."""
    reason = exhausted(run, event)
    if reason is not None:
        return reason
    limits = run.start.limits
    if limits.tool_calls is not None and run.tool_calls + len(event.reply.calls) > limits.tool_calls:
        return StopReason.TOOL_CALL_LIMIT
    return StopReason.STUCK_LOOP if _repeats(run, event) else None


def _repeats(run: RunState, event: ModelReplied) -> bool:
    """Whether these calls ran in the turns just before, with the same results, as often as they may."""
    allowed = 0
    for verdict in event.verdicts:
        if verdict.repeats is None:
            return False
        allowed = max(allowed, verdict.repeats)
    return run.batch.times >= allowed > 0 and run.batch.calls == tuple(sorted(v.digest for v in event.verdicts))
