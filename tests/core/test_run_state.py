"""The state of a run: one frozen value, whose messages are always a valid conversation."""

from __future__ import annotations

import pytest

from turnstile.core.events import CallStarted, ModelReplied, RunStarted, Verdict
from turnstile.core.limits import Limits
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult, UserTurn
from turnstile.core.run_state import RunState, Stop, begin_run, unanswered
from turnstile.core.values import evolve

START = RunStarted("run", "hi", history=(UserTurn("before"), Exchange(Reply("yes"))), limits=Limits(turns=3))
RUN = begin_run(START)
CALLS = (ToolCall("a", "tool", "{}"), ToolCall("b", "nosuch", "{}"), ToolCall("c", "tool", "?"))
OPEN = ModelReplied(
    Reply(calls=CALLS), (Verdict("a", ""), Verdict("b", "", problem="unknown"), Verdict("c", "", problem="invalid"))
)


def test_a_run_begins_with_its_prompt_after_what_was_said_before() -> None:
    """The start alone makes the state, so that a journal alone can."""
    assert list(RUN.history) == [UserTurn("before"), Exchange(Reply("yes")), UserTurn("hi")]
    assert (RUN.run_id, RUN.state, RUN.seq, RUN.finished, RUN.limits.turns) == ("run", "await_model", 0, False, 3)


def test_evolving_refuses_a_field_that_there_is_none_of() -> None:
    """A slip in an extension's change must not be lost in silence."""
    with pytest.raises(TypeError, match="`RunState` has no field 'turn'"):
        evolve(RUN, turn=1)  # type: ignore[call-arg]


def test_an_evolved_run_is_frozen_too() -> None:
    """Whoever took a snapshot keeps it."""
    with pytest.raises(AttributeError, match="immutable"):
        evolve(RUN, seq=1).seq = 2  # type: ignore[misc]


def test_it_has_ended_once_it_says_why() -> None:
    """A run stops with a reason or not at all."""
    assert evolve(RUN, stop=Stop("answered")).finished


def test_the_last_reply_is_the_newest_open_or_not() -> None:
    """The result of a failed run shows the last thing that was said."""
    assert RUN.last_reply == Reply("yes")
    assert evolve(RUN, open=OPEN).last_reply == OPEN.reply
    assert begin_run(RunStarted("run", "hi")).last_reply is None


STARTED = CallStarted("a", "tool", "digest")
KEPT = ToolResult("b", "nosuch", "fine")


@pytest.mark.parametrize(
    ("run", "statuses"),
    [
        (RUN, ["not_run", "not_run", "not_run"]),
        (evolve(RUN, state="execute_tools"), ["not_run", "not_run", "not_run"]),
        (evolve(RUN, state="execute_tools", in_flight=True), ["unknown", "not_run", "not_run"]),  # of the first format
        (evolve(RUN, started=(STARTED,)), ["unknown", "not_run", "not_run"]),
        (evolve(RUN, started=(STARTED,), receipts=(KEPT,)), ["unknown", "ok", "not_run"]),
        (evolve(RUN, started=(STARTED,), receipts=(evolve(KEPT, call_id="a"),)), ["ok", "not_run", "not_run"]),
        (evolve(RUN, started=(STARTED,), in_doubt=("a",)), ["unknown", "not_run", "not_run"]),
        (evolve(RUN, lost=("a", "c")), ["unknown", "not_run", "unknown"]),
    ],
)
def test_a_call_that_may_have_run_is_never_called_not_run(run: RunState, statuses: list[str]) -> None:
    """A model that is told "not run" makes the call again: what was begun, now or before a crash, is unknown."""
    results = unanswered(evolve(run, open=OPEN), "cancelled")

    assert [result.status for result in results] == statuses
    assert [result.call_id for result in results] == ["a", "b", "c"]
    assert {result.content for result in results} <= {"not run: cancelled", "outcome unknown: cancelled", "fine"}
    assert unanswered(RUN, "cancelled") == ()


def test_a_deadline_moves_by_the_time_that_a_human_took() -> None:
    """A run must not fail since somebody was at lunch."""
    assert evolve(RUN, waited=5.0).deadline is None
    assert evolve(RUN, start=evolve(START, deadline=100.0), waited=5.0).deadline == 105.0


def test_a_run_waits_for_the_calls_in_doubt_once_it_asks() -> None:
    """Until the other calls have ended, nobody is asked."""
    doubting = evolve(RUN, state="execute_tools", open=OPEN, in_doubt=("c", "a"))

    assert doubting.waiting == ()
    assert evolve(doubting, state="await_approval").waiting == (CALLS[0], CALLS[2])
    assert evolve(RUN, state="await_approval").waiting == ()


def test_a_run_goes_on_under_what_was_accepted() -> None:
    """What it began under is what counts until somebody has accepted something else."""
    begun = evolve(RUN, start=evolve(START, fingerprints=(("machine", "1"),)))

    assert begun.fingerprints == (("machine", "1"),)
    assert evolve(begun, accepted=(("machine", "2"),)).fingerprints == (("machine", "2"),)


def test_messages_of_an_open_run_are_answered() -> None:
    """Whoever interrupts a run can go on with its messages at once."""
    results = tuple(ToolResult(call.id, call.name, "fine") for call in CALLS)

    assert RUN.messages == (UserTurn("before"), Reply("yes"), UserTurn("hi"))
    assert evolve(RUN, open=OPEN).messages[-4:] == (OPEN.reply, *unanswered(evolve(RUN, open=OPEN), "interrupted"))
    assert evolve(RUN, open=OPEN, results=results).messages[-4:] == (OPEN.reply, *results)
