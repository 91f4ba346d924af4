"""What a row does to the run it moves: one small pure function for each kind of move.

Whether a row is taken is the guards' matter, and where it leads is the table's; a change only says what is different
afterwards. `accept` counts a reply and puts it in its place, and every row of `ModelReplied` begins with it.
"""

from __future__ import annotations

from turnstile.core.budget import CHARS_PER_TOKEN, charge, charge_cost, measure, price, request_size
from turnstile.core.events import (
    ApprovalDecided,
    Cancelled,
    DeadlinePassed,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    ToolsFinished,
)
from turnstile.core.guards import carried, limit_of
from turnstile.core.limits import StopReason
from turnstile.core.messages import Exchange, ToolCall, ToolResult, UserTurn
from turnstile.core.run_state import Batch, RunState, Stop, at_work, unanswered
from turnstile.core.values import evolve

CUT_CALL = "not run: the reply was cut by its token limit before the call was complete; make it again, shorter"
WRAP_UP = (
    "The {limit} of this run is reached, so tools are off now. Answer with what you have, and say what is missing."
)
BROKEN_PROMISE = "You announced a tool call, but the reply holds none. Make the call, or answer."
EMPTY_REPLY = "The reply was empty. Please answer."
MODEL_FAULT = (
    "The last tool call was malformed and was rejected: {problem}. Make it again with valid arguments, or answer."
)
LOST = "outcome unknown: the process that ran it was lost"
INVALID_OUTPUT = "The answer does not have the form that is needed: {problem}. Answer again, in that form only."

LIMIT_NAMES: dict[str, str] = {
    StopReason.MAX_TURNS: "turn limit",
    StopReason.TOKEN_LIMIT: "token limit",
    StopReason.COST_LIMIT: "cost limit",
    StopReason.TOOL_CALL_LIMIT: "tool call limit",
    StopReason.STUCK_LOOP: "limit of repeated calls",
}
# All that `stop_reason`, `budget_reason` and `limit_reason` may give: what a picture shows of their rows.
STOPS = (StopReason.CANCELLED, StopReason.TIME_LIMIT)
BUDGETS = (StopReason.TOKEN_LIMIT, StopReason.COST_LIMIT)
LIMITS = tuple(LIMIT_NAMES)

NOT_RUN: dict[str, str] = {
    **{reason: f"{name} reached" for reason, name in LIMIT_NAMES.items()},
    StopReason.CANCELLED: "cancelled",
    StopReason.TIME_LIMIT: "time limit reached",
    StopReason.REFUSED: "the model declined",
    StopReason.TRUNCATED: "the reply was cut by its token limit",
    StopReason.CRASH_LOOP: "the process that ran it was lost",
}


def keep(run: RunState, event: Event) -> RunState:
    """Nothing but the state changes."""
    return run


def hold_stop(run: RunState, event: Event) -> RunState:
    """Remember why the running tools are told to stop; the first reason stays."""
    why = event.why if isinstance(event, Cancelled) else ""
    return evolve(run, stopping=run.stopping or Stop(stop_reason(run, event), why))


def inject(run: RunState, event: MessageInjected) -> RunState:
    """Keep what the user said until no call is open."""
    return evolve(run, inbox=(*run.inbox, event.text))


def recover(run: RunState, event: Event) -> RunState:
    """Count a lost effect, and settle each call that was begun.

    One that may run again is as if it had not begun. One that may not has an unknown outcome: the model is told, or a
    human is asked.
    """
    run = evolve(run, recoveries=run.recoveries + 1)
    if run.open is None:
        return run
    again, told, asked = doubts(run)
    return evolve(
        run,
        started=tuple(intent for intent in run.started if intent.call_id not in again),
        receipts=run.receipts + tuple(ToolResult(call.id, call.name, LOST, "unknown") for call in told),
        in_doubt=run.in_doubt + tuple(call.id for call in asked),
        lost=tuple(dict.fromkeys(run.lost + again)),
    )


def doubts(run: RunState) -> tuple[tuple[str, ...], tuple[ToolCall, ...], tuple[ToolCall, ...]]:
    """The calls that were begun and have no result, if the effect is lost now.

    Three kinds: ids of those that may run again, those whose outcome the model is told to be unknown, and those that a
    human is asked about.
    """
    again: list[str] = []
    told: list[ToolCall] = []
    asked: list[ToolCall] = []
    settled = {result.call_id for result in run.receipts} | {*run.in_doubt}
    lost = at_work(run) - settled
    calls = zip(run.open.reply.calls, run.open.verdicts, strict=True) if run.open else ()
    for call, verdict in calls:
        if call.id not in lost:
            continue
        if verdict.access != "write":
            again.append(call.id)
        else:
            (asked if verdict.on_in_doubt == "ask" else told).append(call)
    return tuple(again), tuple(told), tuple(asked)


def keep_receipts(run: RunState, event: ToolsFinished) -> RunState:
    """Keep the results that are there, while others wait for a human."""
    return evolve(run, receipts=_kept(run, event.results), recoveries=0)


def decide(run: RunState, event: ApprovalDecided) -> RunState:
    """Do with a call that is in doubt as a human says."""
    if event.call_id not in run.in_doubt or run.open is None:
        return run
    name = next(call.name for call in run.open.reply.calls if call.id == event.call_id)
    left = tuple(call_id for call_id in run.in_doubt if call_id != event.call_id)
    run = evolve(run, in_doubt=left, waited=run.waited + event.waited)
    if event.decision == "rerun":
        started = tuple(intent for intent in run.started if intent.call_id != event.call_id)
        earlier = tuple(grant for grant in run.approved if grant[0] != event.call_id)  # was used, and its run lost
        approved = (*earlier, (event.call_id, run.seq + 1))
        return evolve(run, started=started, approved=approved, lost=tuple(dict.fromkeys((*run.lost, event.call_id))))
    if event.decision == "result":
        result = ToolResult(event.call_id, name, event.content)
    else:
        why = f" ({event.content})" if event.content else ""
        result = ToolResult(event.call_id, name, f"{LOST}; a person was asked, and does not know{why}", "unknown")
    return evolve(run, receipts=(*run.receipts, result))


def charge_lost(run: RunState) -> RunState:
    """Charge a request whose answer nobody waits for any more with the worst that it may cost."""
    tokens, dollars = run.reserved
    return evolve(run, charged_tokens=run.charged_tokens + tokens, charged_cost=run.charged_cost + dollars)


def give_up(run: RunState, event: ModelFailed) -> RunState:
    """Keep the failure that ends the run."""
    return evolve(run, failure=event)


def retry(run: RunState, event: ModelFailed) -> RunState:
    """Count an attempt."""
    return evolve(run, retries=run.retries + 1, failure=event)


def trim(run: RunState, event: ModelFailed) -> RunState:
    """Leave out the older half of what the request carried; the question that leads the rest stays."""
    start = len(run.history) - carried(run, event) // 2
    return evolve(run, window_start=start, trimmed=True, failure=event)


def next_model(run: RunState, event: ModelFailed) -> RunState:
    """Go on with the next model, which has all its attempts."""
    return evolve(run, model=run.model + 1, retries=0, failure=event, measured=(0, 0), chars_per_token=None)


def repair_call(run: RunState, event: ModelFailed) -> RunState:
    """Tell the model that its call was malformed."""
    run = evolve(run, repairs=run.repairs + 1, failure=event)
    return _say(run, MODEL_FAULT.format(problem=event.message or "no reason was given"))


def wrap_up_unsent(run: RunState, event: ModelFailed) -> RunState:
    """Ask for a last answer instead of the request that was too dear."""
    limit = event.limit or StopReason.TOKEN_LIMIT
    return _say(evolve(run, wrapping_up=limit, failure=event), WRAP_UP.format(limit=LIMIT_NAMES[limit]))


def accept(run: RunState, event: ModelReplied) -> RunState:
    """Count a reply; its calls are open now, and a reply without calls is part of the history if it holds anything."""
    reply, usage, paid = event.reply, event.reply.usage, price(run, event.reply)
    history = run.history
    if not reply.calls and (reply.says_something or reply.finish == "pause"):
        history = history.append(Exchange(reply))
    tokens = usage.input_tokens if usage else None
    measured, per_token = (run.measured, run.chars_per_token) if tokens is None else measure(run, tokens)
    return evolve(
        run,
        history=history,
        open=event if reply.calls else None,
        turns=run.turns + 1,
        retries=0,
        recoveries=0,
        trimmed=False,
        failure=None,
        usage=run.usage + usage if usage else run.usage,
        charged_tokens=run.charged_tokens + charge(run, reply),
        cost=run.cost + (paid or 0.0),
        charged_cost=run.charged_cost + (charge_cost(run, reply) if paid is None else paid),
        unpriced=run.unpriced + (paid is None),
        measured=measured,
        chars_per_token=per_token,
    )


def open_calls(run: RunState, event: ModelReplied) -> RunState:
    """Accept a reply whose calls are run now; a call that cannot run does not count against its tool."""
    counts = dict(run.calls_by_tool)
    for call, verdict in zip(event.reply.calls, event.verdicts, strict=True):
        if not verdict.problem:
            counts[call.name] = counts.get(call.name, 0) + 1
    calls = run.tool_calls + len(event.reply.calls)
    return evolve(accept(run, event), tool_calls=calls, calls_by_tool=tuple(counts.items()))


def cut_call(run: RunState, event: ModelReplied) -> RunState:
    """Accept a reply that was cut: no call of it runs, and the model is asked to make them again."""
    results = tuple(ToolResult(call.id, call.name, CUT_CALL, "not_run") for call in event.reply.calls)
    return evolve(accept(run, event), repairs=run.repairs + 1, results=results)


def wrap_up(run: RunState, event: ModelReplied) -> RunState:
    """Accept a reply whose calls a limit forbids, and ask for a last answer once they are answered "not run"."""
    limit = limit_of(run, event) or StopReason.MAX_TURNS
    run = accept(run, event)
    return evolve(run, wrapping_up=limit, results=unanswered(run, NOT_RUN[limit]))


def answer(run: RunState, event: ModelReplied) -> RunState:
    """Accept the answer and its output."""
    return evolve(accept(run, event), output=event.output)


def nudge(run: RunState, event: ModelReplied) -> RunState:
    """Ask the model to go on."""
    run = evolve(accept(run, event), nudges=run.nudges + 1)
    return _say(run, BROKEN_PROMISE if event.reply.finish == "tool_calls" else EMPTY_REPLY)


def repair_output(run: RunState, event: ModelReplied) -> RunState:
    """Tell the model what is wrong with its answer's form."""
    run = evolve(accept(run, event), repairs=run.repairs + 1)
    return _say(run, INVALID_OUTPUT.format(problem=event.output_error))


def take_results(run: RunState, event: ToolsFinished) -> RunState:
    """Keep the results of the open calls, and count how often just this has happened."""
    if run.open is None:
        return run
    results = _together(run, event.results)
    digests = [verdict.digest for verdict in run.open.verdicts]
    contents = [result.content for result in results]
    outcome = tuple(sorted(zip(digests, contents, strict=True)))
    times = run.batch.times + 1 if outcome == run.batch.outcome else 1
    return evolve(run, results=results, recoveries=0, batch=Batch(tuple(sorted(digests)), outcome, times))


def _together(run: RunState, results: tuple[ToolResult, ...]) -> tuple[ToolResult, ...]:
    """One result for each open call, in call order: those that came before, these, and "unknown" for one in doubt."""
    assert run.open is not None  # noqa: S101 - whoever takes results has asked
    if not run.receipts and not run.in_doubt:
        return Exchange(run.open.reply, results).results
    return unanswered(evolve(run, receipts=_kept(run, results)), "the run ended before a person decided")


def _kept(run: RunState, results: tuple[ToolResult, ...]) -> tuple[ToolResult, ...]:
    """The receipts with these results, one for each open call that is not in doubt.

    Raises:
        ValueError: A call has no result, or two, or a result is none of theirs.
    """
    assert run.open is not None  # noqa: S101 - whoever takes results has asked
    kept = run.receipts + results
    got = [result.call_id for result in kept]
    expected = [call.id for call in run.open.reply.calls if call.id not in run.in_doubt]
    if sorted(got) != sorted(expected):
        msg = f"expected one result for each of the calls {expected!r}; got {got!r}"
        raise ValueError(msg)
    return kept


def append(run: RunState, event: Event) -> RunState:
    """Make the open reply and its results part of the history, and speak of the limit when it was hit."""
    run = close_exchange(run, run.results)
    return _say(run, WRAP_UP.format(limit=LIMIT_NAMES[run.wrapping_up])) if run.wrapping_up else run


def close_exchange(run: RunState, results: tuple[ToolResult, ...]) -> RunState:
    """Answer the open calls with these results."""
    if run.open is None:
        return run
    history = run.history.append(Exchange(run.open.reply, results))
    return evolve(
        run, history=history, open=None, results=(), started=(), receipts=(), in_doubt=(), approved=(), lost=()
    )


def finish(run: RunState, event: Event, reason: str) -> RunState:
    """End a run: answer what is open, and keep why."""
    run = close_exchange(run, run.results or unanswered(run, NOT_RUN.get(reason, reason)))
    stop = Stop(
        reason,
        detail=run.stopping.detail if run.stopping else _detail(run, event, reason),
        exhausted=run.wrapping_up,
        flags=_flags(event, reason),
        error=event if isinstance(event, ModelFailed) else None,
    )
    return evolve(run, stop=stop, stopping=None)


def _flags(event: Event, reason: str) -> tuple[str, ...]:
    if reason == StopReason.EMPTY_ANSWER:
        return ("empty_answer",)
    return event.reply.flags if isinstance(event, ModelReplied) and reason == StopReason.ANSWERED else ()


def stop_reason(run: RunState, event: Event) -> str:
    """Why a run stops that was told to: the first reason given."""
    if run.stopping:
        return run.stopping.reason
    return StopReason.TIME_LIMIT if isinstance(event, DeadlinePassed) else StopReason.CANCELLED


def budget_reason(run: RunState, event: ModelFailed) -> str:
    """The budget that a request would have passed."""
    return event.limit or StopReason.TOKEN_LIMIT


def limit_reason(run: RunState, event: ModelReplied) -> str:
    """The limit that forbids going on."""
    return limit_of(run, event) or StopReason.MAX_TURNS


def _say(run: RunState, text: str) -> RunState:
    return evolve(run, history=run.history.append(UserTurn(text, synthetic=True)))


def _detail(run: RunState, event: Event, reason: str) -> str:
    match event:
        case Cancelled(why):
            return why
        case ModelFailed():
            return " ".join(part for part in (event.kind, str(event.status or ""), event.message) if part)
        case ToolsFinished(aborted=text) if text and reason == StopReason.TOOL_ABORTED:
            return text
        case ModelReplied():
            return _detail_of_reply(run, event, reason)
    return ""


def _detail_of_reply(run: RunState, event: ModelReplied, reason: str) -> str:
    reply = event.reply
    if reason == StopReason.INVALID_OUTPUT:
        return event.output_error
    if reason in {StopReason.REFUSED, StopReason.INCOMPLETE} and reply.finish_raw:
        return f"the server said {reply.finish_raw!r}"
    if reason == StopReason.EMPTY_ANSWER:  # some servers drop an overlong request in silence
        return f"the request had about {request_size(run) // CHARS_PER_TOKEN} tokens, by its length"
    if reason == StopReason.TRUNCATED and reply.reasoning and not reply.says_something:
        return "its reasoning used up the tokens that the reply could have"
    return ""
