"""The table, cell by cell, against a reading of the design that is written down by hand and knows nothing of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Literal, get_args, get_type_hints

import pytest

from turnstile.core.approval import with_approval
from turnstile.core.errors import NoRow
from turnstile.core.events import (
    EVENTS,
    ApprovalDecided,
    Cancelled,
    DeadlinePassed,
    EffectLost,
    Event,
    FailureKind,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.limits import Limits, Retry
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Exchange, FinishReason, Item, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.run_state import Batch, RunState, Stop, begin_run
from turnstile.core.states import STATES
from turnstile.core.step import step
from turnstile.core.values import evolve

HUGE = 10**9
BOTH = [False, True]
INBOXES: list[tuple[str, ...]] = [(), ("also this",)]
BATCHES = [Batch(), Batch(("digest 0",), times=1), Batch(("other",), times=1)]
EXCHANGE = Exchange(Reply(calls=(ToolCall("z", "tool", "{}"),)), (ToolResult("z", "tool", "fine"),))
HISTORIES: list[list[Item]] = [[], [EXCHANGE], [EXCHANGE, UserTurn("go on", synthetic=True)]]
ENDINGS: list[Literal["fail", "wrap_up"]] = ["fail", "wrap_up"]
DOUBTS: list[tuple[str, ...]] = [(), ("call 0",), ("call 0", "call 1")]
ASKING = ["execute_tools", "append_results", "await_approval", "done", "failed"]
"""The states that rows of the extension could touch; a reply's cells, which take long to try, have none of them."""
LIMITS: list[Literal["token_limit", "cost_limit", ""]] = ["", "token_limit", "cost_limit"]

Move = tuple[str, str] | None
"""Where a run goes and why; ``(stay)`` when its effect goes on; None when nothing may happen."""


def reading(run: RunState, event: Event, *, can_ask: bool) -> Move:  # noqa: C901, PLR0911, PLR0912 - the rows, one by one
    """What the design's table says, in its words and its order; with the state in which a human decides, or without."""
    state = run.state
    if state in {"done", "failed"}:
        return None
    if isinstance(event, Cancelled | DeadlinePassed):
        if state == "execute_tools" and run.in_flight:
            return "(stay)", "stopping"
        return "failed", "cancelled" if isinstance(event, Cancelled) else "time_limit"
    if isinstance(event, MessageInjected):
        return "(stay)", "injected"
    if isinstance(event, EffectLost) and state not in {"append_results", "await_approval"}:
        if state == "execute_tools" and run.stopping:
            return "failed", run.stopping.reason
        return (state, "recovered") if run.recoveries < run.limits.recoveries else ("failed", "crash_loop")
    if state == "await_model" and isinstance(event, ModelFailed):
        return failure_reading(run, event)
    if state == "await_model" and isinstance(event, ModelReplied):
        return reply_reading(run, event)
    if state == "execute_tools" and isinstance(event, ToolsFinished):
        if run.stopping:
            return "failed", run.stopping.reason
        if event.aborted is not None:
            return "failed", "tool_aborted"
        return ("await_approval", "in_doubt") if can_ask and run.in_doubt else ("append_results", "finished")
    if state == "await_approval" and isinstance(event, ApprovalDecided):
        return ("await_approval", "waiting") if {*run.in_doubt} - {event.call_id} else ("execute_tools", "decided")
    if state == "append_results" and isinstance(event, ResultsAppended):
        return "await_model", "appended"
    return None


def failure_reading(run: RunState, event: ModelFailed) -> Move:  # noqa: PLR0911 - the table's rows, one by one
    """The rows of a failed request."""
    limits, kind = run.limits, event.kind
    turns_left = not run.wrapping_up and limits.tokens != 0
    if kind == "budget" and limits.on_exhausted == "wrap_up" and not run.wrapping_up:
        return "await_model", "wrap_up"
    if kind == "budget":
        return "failed", event.limit or "token_limit"
    if kind == "context_overflow" and run.start.can_trim and not run.trimmed and len(run.history) > 2:
        return "await_model", "trimmed"
    passing = {"rate_limited", "overloaded", "server", "network", "timeout", "protocol"}
    if kind in passing and event.delay is not None and run.retries < 1:
        return "await_model", "retry"
    if kind == "content_filter":
        return "failed", "refused"
    if kind == "generation_failed" and run.repairs < limits.repairs and turns_left:
        return "await_model", "repair_call"
    if run.model == 0:
        return "await_model", "next_model"
    if kind == "context_overflow":
        return "failed", "context_overflow"
    return "failed", "infrastructure_error"


def reply_reading(run: RunState, event: ModelReplied) -> Move:  # noqa: C901, PLR0911 - the same
    """The rows of a reply."""
    reply, limits = event.reply, run.limits
    limit = limit_reading(run, event)
    turns_left = limit not in {"max_turns", "token_limit"}
    repairs_left, nudges_left = run.repairs < limits.repairs, run.nudges < limits.nudges
    if reply.finish == "refusal":
        return "failed", "refused"
    if reply.finish == "length":
        if reply.calls and repairs_left and turns_left:
            return "append_results", "cut_call"
        return "failed", "truncated"
    if reply.calls:
        if limit and limits.on_exhausted == "wrap_up" and not run.wrapping_up:
            return "append_results", "wrap_up"
        return ("failed", limit) if limit else ("execute_tools", "run_tools")
    if reply.finish == "pause":
        return ("await_model", "paused") if turns_left else ("failed", limit)
    if run.inbox and turns_left:
        return "await_model", "injected"
    if reply.finish == "tool_calls":
        return ("await_model", "nudge") if nudges_left and turns_left else ("failed", "incomplete")
    if reply.text.strip():
        if not event.output_error:
            return "done", "answered"
        return ("await_model", "repair_output") if repairs_left and turns_left else ("failed", "invalid_output")
    if run.history[-1] is EXCHANGE:
        return "done", "empty_answer"
    return ("await_model", "nudge") if nudges_left and turns_left else ("failed", "empty_answer")


def limit_reading(run: RunState, event: ModelReplied) -> str:
    """The limit that a reply meets first; empty when it meets none."""
    if run.wrapping_up:
        return run.wrapping_up
    if run.turns == run.limits.turns - 1:
        return "max_turns"
    spent = 2 * (event.reply.usage or Usage()).total_tokens  # the next request carries this reply, and costs as much
    if run.limits.tokens is not None and spent >= run.limits.tokens:
        return "token_limit"
    if run.limits.tool_calls is not None and run.tool_calls + len(event.reply.calls) > run.limits.tool_calls:
        return "tool_call_limit"
    digests = tuple(verdict.digest for verdict in event.verdicts)
    counted = all(verdict.repeats is not None for verdict in event.verdicts)
    return "stuck_loop" if digests and counted and run.batch == Batch(digests, times=1) else ""


def run_in(state: str, *, limits: Limits, history: Sequence[Item] = (), can_trim: bool = True) -> RunState:
    """A run in a state, as consistent as one that came there by itself."""
    names, prices = ("first", "second"), (None, None)
    run = begin_run(
        RunStarted("run", "hi", limits=limits, retry=Retry(attempts=2), models=names, prices=prices, can_trim=can_trim)
    )
    opened = reply(calls=2) if state in {"execute_tools", "append_results", "await_approval"} else None
    results = results_of(opened) if opened and state == "append_results" else ()
    stop = Stop("answered") if state in {"done", "failed"} else None
    return evolve(run, state=state, history=run.history.append(*history), open=opened, results=results, stop=stop)


def reply(
    finish: FinishReason = "stop",
    *,
    text: str = "",
    calls: int = 0,
    output_error: str = "",
    tokens: int = 1,
    repeats: int | None = 1,
) -> ModelReplied:
    """A vetted reply."""
    ids = [f"call {number}" for number in range(calls)]
    return ModelReplied(
        Reply(text, tuple(ToolCall(id_, "tool", "{}") for id_ in ids), finish, usage=Usage(1, tokens)),
        tuple(Verdict(id_, f"digest {number}", repeats=repeats) for number, id_ in enumerate(ids)),
        output_error=output_error,
    )


def results_of(replied: ModelReplied) -> tuple[ToolResult, ...]:
    """A result for each of its calls."""
    return tuple(ToolResult(call.id, call.name, "fine") for call in replied.reply.calls)


Case = tuple[RunState, Event]


def failure_cases() -> Iterator[Case]:
    """Every failed request with every counter at its limit and below."""
    failures = [ModelFailed("budget", limit=limit) for limit in LIMITS]
    failures += [ModelFailed(kind, delay=delay) for kind, delay in product(get_args(FailureKind), [None, 0.0])]
    for tokens, on_exhausted, can_trim, history in product([None, 0], ENDINGS, BOTH, HISTORIES[::2]):
        limits = Limits(repairs=1, tokens=tokens, on_exhausted=on_exhausted)
        run = run_in("await_model", limits=limits, history=history, can_trim=can_trim)
        for retries, repairs, model, trimmed, wrapping_up in product([0, 1], [0, 1], [0, 1], BOTH, [None, "max_turns"]):
            place = evolve(run, retries=retries, repairs=repairs, model=model, trimmed=trimmed, wrapping_up=wrapping_up)
            yield from ((place, failure) for failure in failures)


def calling_cases() -> Iterator[Case]:
    """Every reply with calls, and all that its rows look at."""
    for tool_calls, tokens, on_exhausted in product([None, 2], [None, HUGE], ENDINGS):
        limits = Limits(turns=3, repairs=1, tool_calls=tool_calls, tokens=tokens, on_exhausted=on_exhausted)
        run = run_in("await_model", limits=limits)
        for turns, repairs, wrapping_up, batch in product([0, 2], [0, 1], [None, "token_limit"], BATCHES):
            place = evolve(run, turns=turns, repairs=repairs, wrapping_up=wrapping_up, batch=batch, tool_calls=1)
            for finish, calls, spent, repeats in product(get_args(FinishReason), [1, 2], [1, HUGE], [1, None]):
                yield place, reply(finish, calls=calls, tokens=spent, repeats=repeats)


def speaking_cases() -> Iterator[Case]:
    """Every reply without calls, and all that its rows look at."""
    contents = [("", ""), (" ", ""), ("text", ""), ("text", "no")]
    replies = [
        reply(finish, text=text, output_error=error, tokens=tokens)
        for finish, (text, error), tokens in product(get_args(FinishReason), contents, [1, HUGE])
    ]
    for tokens, history in product([None, HUGE], HISTORIES):
        limits = Limits(turns=3, repairs=1, nudges=1, tokens=tokens)
        run = run_in("await_model", limits=limits, history=history)
        for turns, repairs, nudges, wrapping_up, inbox in product(
            [0, 2], [0, 1], [0, 1], [None, "token_limit"], INBOXES
        ):
            place = evolve(run, turns=turns, repairs=repairs, nudges=nudges, wrapping_up=wrapping_up, inbox=inbox)
            yield from ((place, replied) for replied in replies)


def other_cases(state: str, kind: type[Event]) -> Iterator[Case]:
    """Every other event, begun or not, told to stop or not, crashed before or not, with calls in doubt or without."""
    run = run_in(state, limits=Limits(recoveries=1))
    stoppings = [None, Stop("cancelled"), Stop("time_limit")]
    doubts = DOUBTS if state == "execute_tools" else DOUBTS[1:] if state == "await_approval" else DOUBTS[:1]
    for in_flight, stopping, recoveries, in_doubt in product(BOTH, stoppings, [0, 1], doubts):
        place = evolve(run, in_flight=in_flight, stopping=stopping, recoveries=recoveries, in_doubt=in_doubt)
        yield from ((place, event) for event in samples(kind, in_doubt))


def samples(kind: type[Event], in_doubt: tuple[str, ...]) -> list[Event]:
    """Events of a kind; of those with results, only such as fit."""
    results = tuple(result for result in results_of(reply(calls=2)) if result.call_id not in in_doubt)
    decided = product(("call 0", "call 1", "nosuch"), get_args(get_type_hints(ApprovalDecided)["decision"]))
    made: dict[type[Event], list[Event]] = {
        ModelReplied: [reply(text="text"), reply(calls=1)],
        ModelFailed: [ModelFailed("timeout", delay=0.0)],
        ToolsFinished: [ToolsFinished(results, aborted) for aborted in (None, "", "no go")],
        MessageInjected: [MessageInjected("more")],
        ApprovalDecided: [ApprovalDecided(call_id, decision) for call_id, decision in decided],
    }
    return made.get(kind) or [kind()]


def cases(state: str, kind: type[Event]) -> Iterator[Case]:
    """All cases of a cell."""
    if (state, kind) == ("await_model", ModelFailed):
        return failure_cases()
    if (state, kind) == ("await_model", ModelReplied):
        return chain(calling_cases(), speaking_cases())
    return other_cases(state, kind)


def move(machine: Machine, run: RunState, event: Event) -> Move:
    """What the machine does."""
    try:
        transition = step(machine, run, event).transition
    except NoRow:
        return None
    return "(stay)" if transition.stays else transition.dest, transition.reason


@pytest.mark.parametrize(("state", "kind"), [(state.name, event) for state in STATES for event in EVENTS])
def test_every_cell_is_as_the_design_says(state: str, kind: type[Event]) -> None:
    """The table is code, so a second reading of the design has to agree with it, whatever the counters say."""
    for run, event in cases(state, kind):
        assert move(loop, run, event) == reading(run, event, can_ask=False)


@pytest.mark.parametrize(("state", "kind"), [(state, event) for state in ASKING for event in EVENTS])
def test_every_cell_is_as_the_design_says_where_a_human_decides(state: str, kind: type[Event]) -> None:
    """The three rows more change the cells that they stand in, and no other."""
    for run, event in cases(state, kind):
        assert move(with_approval(loop), run, event) == reading(run, event, can_ask=True)


def test_the_table_has_a_row_for_each_line_of_the_design() -> None:
    """A row that goes missing is missed by its name."""
    assert [row.name for row in loop.rows] == [
        *("stopping", "cancelled", "time_limit", "injected"),
        *("lost_stopping", "recovered", "crash_loop"),
        *("wrap_up_unsent", "over_budget", "trimmed", "retry", "filtered", "repair_call", "next_model"),
        *("overflow", "gave_up"),
        *("refused", "cut_call", "truncated", "wrap_up", "limit", "run_tools"),
        *("paused", "paused_limit", "ask_injected", "nudge_promise", "incomplete"),
        *("answered", "repair_output", "invalid_output", "empty_answer", "nudge_empty", "no_answer"),
        *("stopped", "tool_aborted", "finished"),
        "appended",
    ]
