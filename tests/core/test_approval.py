"""``await_approval``: a human decides about calls in doubt; who needs no human has the machine as it was."""

from __future__ import annotations

from typing import Literal

import pytest

from turnstile.core.approval import with_approval
from turnstile.core.codec import Codec, codec
from turnstile.core.effects import AskHuman, RunTools
from turnstile.core.errors import NoRow
from turnstile.core.events import (
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ModelReplied,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.fold import fold, trace
from turnstile.core.machine import loop
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult
from turnstile.core.states import STATES
from turnstile.core.step import effect_of

machine = with_approval(loop)
CALLS = tuple(ToolCall(id_, "pay", "{}") for id_ in ("a", "b", "c"))
CALLING = ModelReplied(Reply(calls=CALLS), tuple(Verdict(call.id, "digest", on_in_doubt="ask") for call in CALLS))
PAID = ToolResult("c", "pay", "paid")
BEGUN: list[Event] = [
    RunStarted("run", "hi", deadline=1_000.0),
    EffectBegun(),
    CALLING,
    EffectBegun(),
    CallStarted("a", "pay", "digest"),
    CallStarted("b", "pay", "digest"),
]
ASKING: list[Event] = [
    *BEGUN,
    EffectLost(),
    EffectBegun(),
    CallStarted("c", "pay", "digest"),
    ToolsFinished((PAID,)),
]
"""Two calls were begun when the process was lost; the third ran when the run went on."""


def test_it_is_one_more_state_and_three_more_rows() -> None:
    """An agent without tools that ask draws, logs and verifies exactly five states."""
    assert [state.name for state in machine.states] == [*[state.name for state in STATES], "await_approval"]
    assert [row.name for row in machine.rows if row not in loop.rows] == ["in_doubt", "decided", "waiting"]
    assert [row for row in machine.rows if row in loop.rows] == list(loop.rows)
    assert machine.fingerprint != loop.fingerprint


def test_a_machine_has_it_once() -> None:
    """An agent may be given a machine that has it already."""
    assert with_approval(machine) is machine


def test_its_events_need_no_other_codec() -> None:
    """A store keeps the runs of every agent."""
    decided = ApprovalDecided("a", "result", "paid", 2.5)

    assert Codec.of(machine).encode(decided) == codec.encode(decided)


def test_a_batch_waits_whole_for_a_human() -> None:
    """What could run has run by then, and what is in doubt stays undone."""
    run = fold(machine, ASKING)

    assert (run.state, run.in_doubt, run.receipts, run.recoveries) == ("await_approval", ("a", "b"), (PAID,), 0)
    assert run.waiting == CALLS[:2]
    assert effect_of(machine, run) == AskHuman(CALLS[:2])
    assert (trace(machine, ASKING)[-1].asks, trace(machine, ASKING)[-1].tools) == ("AskHuman (pay, pay)", (PAID,))


def test_a_call_that_may_run_again_is_not_asked_about() -> None:
    """A machine that can ask does so where it must."""
    reading = ModelReplied(CALLING.reply, tuple(Verdict(call.id, "", access="idempotent") for call in CALLS))

    run = fold(machine, [*BEGUN[:2], reading, *BEGUN[3:], EffectLost()])

    assert (run.in_doubt, run.receipts, run.lost) == ((), (), ("a", "b"))
    assert effect_of(machine, run) == RunTools(CALLS, reading.verdicts)


@pytest.mark.parametrize(
    ("decision", "content", "left", "result"),
    [
        ("rerun", "", CALLS[:1], None),
        ("result", "paid by hand", (), ToolResult("a", "pay", "paid by hand")),
        (
            "unknown",
            "the bank is closed",
            (),
            ToolResult(
                "a",
                "pay",
                "outcome unknown: the process that ran it was lost; a person was asked, and does not know "
                "(the bank is closed)",
                "unknown",
            ),
        ),
        (
            "unknown",
            "",
            (),
            ToolResult(
                "a",
                "pay",
                "outcome unknown: the process that ran it was lost; a person was asked, and does not know",
                "unknown",
            ),
        ),
    ],
)
def test_a_decision_is_done(
    decision: Literal["rerun", "result", "unknown"],
    content: str,
    left: tuple[ToolCall, ...],
    result: ToolResult | None,
) -> None:
    """A human may let it run again, know what came of it, or know no more than we do."""
    first = [*ASKING, ApprovalDecided("b", "result", "paid", waited=3.0)]
    waits = fold(machine, first)
    assert (waits.state, waits.waiting, waits.deadline) == ("await_approval", CALLS[:1], 1_003.0)

    run = fold(machine, [*first, ApprovalDecided("a", decision, content, waited=2.0)])

    assert (run.state, run.in_doubt, run.waiting, run.deadline) == ("execute_tools", (), (), 1_005.0)
    effect = effect_of(machine, run)
    assert isinstance(effect, RunTools)
    assert effect.calls == left
    assert [found for found in run.receipts if found.call_id == "a"] == ([] if result is None else [result])
    assert run.approved == ((("a", run.seq),) if decision == "rerun" else ())


def test_a_call_that_was_let_run_is_asked_about_again_after_another_crash() -> None:
    """Each time that it is begun, it may have done its work, and one permission is for one time."""
    again = [
        *ASKING,
        ApprovalDecided("b", "unknown"),
        ApprovalDecided("a", "rerun"),
        EffectBegun(),
        CallStarted("a", "pay", "digest", approval="5"),
        EffectLost(),
    ]
    run = fold(machine, again)
    assert (run.in_doubt, run.approved, effect_of(machine, run)) == (("a",), (("a", 5),), RunTools((), ()))

    run = fold(machine, [*again, EffectBegun(), ToolsFinished(())])

    assert (run.state, run.waiting) == ("await_approval", CALLS[:1])


def test_a_permission_outlasts_a_crash_before_it_was_used() -> None:
    """Nothing was begun since, so there is nothing to ask about."""
    let: list[Event] = [*ASKING, ApprovalDecided("b", "unknown"), ApprovalDecided("a", "rerun")]

    run = fold(machine, [*let, EffectBegun(), EffectLost()])

    assert run.in_doubt == ()
    assert effect_of(machine, run) == RunTools(CALLS[:1], CALLING.verdicts[:1])


def test_a_call_that_was_let_run_and_then_was_not_may_have_run_before() -> None:
    """A model that is told "not run" would pay once more."""
    run = fold(machine, [*ASKING, ApprovalDecided("b", "unknown"), ApprovalDecided("a", "rerun"), Cancelled("enough")])

    last = run.history[-1]
    assert isinstance(last, Exchange)
    assert last.results[0] == ToolResult("a", "pay", "outcome unknown: cancelled", "unknown")
    assert last.results[2] == PAID


def test_a_decision_about_another_call_changes_nothing() -> None:
    """Two people may decide about one call, and the second comes too late."""
    once = [*ASKING, ApprovalDecided("b", "result", "paid")]
    before, twice = fold(machine, once), fold(machine, [*once, ApprovalDecided("b", "rerun", waited=1.0)])

    assert (twice.state, twice.receipts, twice.approved, twice.waited) == ("await_approval", before.receipts, (), 0.0)
    assert twice.waiting == CALLS[:1]


@pytest.mark.parametrize(("event", "reason"), [(Cancelled("enough"), "cancelled"), (DeadlinePassed(), "time_limit")])
def test_a_run_that_waits_can_be_ended(event: Event, reason: str) -> None:
    """What nobody decided about stays unknown, and what is known is kept."""
    run = fold(machine, [*ASKING, event])

    last = run.history[-1]
    assert run.stop is not None
    assert isinstance(last, Exchange)
    assert (run.stop.reason, run.in_doubt, run.started, run.receipts) == (reason, (), (), ())
    assert [result.status for result in last.results] == ["unknown", "unknown", "ok"]


@pytest.mark.parametrize("aborted", [None, "no go"])
def test_a_run_that_ends_while_calls_are_in_doubt_says_so(aborted: str | None) -> None:
    """A tool that ends the run, or an order to stop, must not wait for a human."""
    stop: list[Event] = [] if aborted else [Cancelled("enough")]
    run = fold(machine, [*ASKING[:-1], *stop, ToolsFinished((PAID,), aborted)])

    last = run.history[-1]
    assert isinstance(last, Exchange)
    assert (run.state, last.results[2]) == ("failed", PAID)
    assert {result.content for result in last.results[:2]} == {"outcome unknown: the run ended before a person decided"}


def test_what_is_said_meanwhile_waits() -> None:
    """Between a call and its result nothing may be said."""
    run = fold(machine, [*ASKING, MessageInjected("also this")])

    assert (run.state, run.inbox, run.waiting) == ("await_approval", ("also this",), CALLS[:2])


def test_nothing_is_lost_while_a_human_thinks() -> None:
    """No effect is under way, so a crash changes nothing, and one that is told of all the same is our bug."""
    with pytest.raises(NoRow, match="no row takes EffectLost in state 'await_approval'"):
        fold(machine, [*ASKING, EffectLost()])


def test_results_of_other_calls_are_refused_here_too() -> None:
    """A result for a call that is in doubt would hide that nobody knows it."""
    for wrong in ((), (ToolResult("a", "pay", "paid"), PAID), (PAID, PAID)):
        with pytest.raises(ValueError, match=r"expected one result for each of the calls \['c'\]; got"):
            fold(machine, [*ASKING[:-1], ToolsFinished(wrong)])
    kept = fold(machine, [*ASKING[:-1], CallFinished(PAID), ToolsFinished(())])
    assert (kept.state, kept.receipts) == ("await_approval", (PAID,))
