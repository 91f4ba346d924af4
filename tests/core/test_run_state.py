"""The state of a run: one frozen value, whose messages are always a valid conversation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from turnstile.core.events import ModelReplied, RunStarted, Verdict
from turnstile.core.limits import Limits
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult, UserTurn
from turnstile.core.run_state import Stop, begin_run, evolve, unanswered

START = RunStarted("run", "hi", history=(UserTurn("before"), Exchange(Reply("yes"))), limits=Limits(turns=3))
RUN = begin_run(START)
CALLS = (ToolCall("a", "tool", "{}"), ToolCall("b", "nosuch", "{}"), ToolCall("c", "tool", "?"))
OPEN = ModelReplied(
    Reply(calls=CALLS), (Verdict("a", ""), Verdict("b", "", known=False), Verdict("c", "", valid=False))
)


def test_a_run_begins_with_its_prompt_after_what_was_said_before() -> None:
    """The start alone makes the state, so that a journal alone can."""
    assert list(RUN.history) == [UserTurn("before"), Exchange(Reply("yes")), UserTurn("hi")]
    assert (RUN.run_id, RUN.state, RUN.seq, RUN.finished, RUN.limits.turns) == ("run", "await_model", 0, False, 3)


def test_evolving_gives_what_replacing_gives() -> None:
    """It only takes another way there."""
    assert evolve(RUN, seq=1, inbox=("a",)) == replace(RUN, seq=1, inbox=("a",))
    assert evolve(RUN) == RUN
    assert evolve(RUN, seq=1) != RUN
    assert RUN.seq == 0


def test_evolving_refuses_a_field_that_there_is_none_of() -> None:
    """A slip in an extension's change must not be lost in silence."""
    with pytest.raises(TypeError, match=r"RunState has no field \['turn'\]"):
        evolve(RUN, turn=1)  # type: ignore[call-arg]


def test_an_evolved_run_is_frozen_too() -> None:
    """Whoever took a snapshot keeps it."""
    with pytest.raises(FrozenInstanceError):
        evolve(RUN, seq=1).seq = 2  # type: ignore[misc]


def test_it_has_ended_once_it_says_why() -> None:
    """A run stops with a reason or not at all."""
    assert evolve(RUN, stop=Stop("answered")).finished


def test_the_last_reply_is_the_newest_open_or_not() -> None:
    """The result of a failed run shows the last thing that was said."""
    assert RUN.last_reply == Reply("yes")
    assert evolve(RUN, open=OPEN).last_reply == OPEN.reply
    assert begin_run(RunStarted("run", "hi")).last_reply is None


@pytest.mark.parametrize(
    ("state", "in_flight", "recoveries", "statuses"),
    [
        ("await_model", True, 0, ["not_run", "not_run", "not_run"]),
        ("execute_tools", False, 0, ["not_run", "not_run", "not_run"]),
        ("execute_tools", True, 0, ["unknown", "not_run", "not_run"]),
        ("execute_tools", False, 1, ["unknown", "not_run", "not_run"]),
    ],
)
def test_a_call_that_may_have_run_is_never_called_not_run(
    state: str,
    in_flight: bool,  # noqa: FBT001 - a case of a table
    recoveries: int,
    statuses: list[str],
) -> None:
    """A model that is told "not run" makes the call again: what had begun, now or before a crash, is unknown."""
    run = evolve(RUN, state=state, open=OPEN, in_flight=in_flight, recoveries=recoveries)

    results = unanswered(run, "cancelled")

    assert [result.status for result in results] == statuses
    assert [result.call_id for result in results] == ["a", "b", "c"]
    assert {result.content for result in results} <= {"not run: cancelled", "outcome unknown: cancelled"}
    assert unanswered(RUN, "cancelled") == ()


def test_messages_of_an_open_run_are_answered() -> None:
    """Whoever interrupts a run can go on with its messages at once."""
    results = tuple(ToolResult(call.id, call.name, "fine") for call in CALLS)

    assert RUN.messages == (UserTurn("before"), Reply("yes"), UserTurn("hi"))
    assert evolve(RUN, open=OPEN).messages[-4:] == (OPEN.reply, *unanswered(evolve(RUN, open=OPEN), "interrupted"))
    assert evolve(RUN, open=OPEN, results=results).messages[-4:] == (OPEN.reply, *results)
