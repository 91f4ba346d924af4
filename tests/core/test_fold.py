"""Folding: a run from its events alone, and what are no events of a run."""

from __future__ import annotations

import pytest

from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import (
    Cancelled,
    EffectBegun,
    EffectLost,
    Event,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.fold import fold, trace, walk
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall, ToolResult

CALLING = ModelReplied(Reply(calls=(ToolCall("a", "add", "{}"),)), (Verdict("a", "digest"),))
FINISHED = ToolsFinished((ToolResult("a", "add", "2"),))
JOURNAL: list[Event] = [
    RunStarted("run", "what is 1 + 1?"),
    EffectBegun(),
    CALLING,
    EffectBegun(),
    FINISHED,
    ResultsAppended(),
    EffectBegun(),
    ModelReplied(Reply("2")),
]


def test_a_journal_gives_its_run() -> None:
    """The journal is the truth, and the state only what it adds up to."""
    run = fold(loop, JOURNAL)

    assert run.stop is not None
    assert (run.state, run.stop.reason, run.seq, run.turns, run.tool_calls) == ("done", "answered", 4, 2, 1)


def test_a_trace_names_each_move() -> None:
    """What the log showed while it happened can be had again at any time."""
    assert [str(transition) for transition in trace(loop, JOURNAL)] == [
        "1 await_model --ModelReplied--> execute_tools",
        "2 execute_tools --ToolsFinished--> append_results",
        "3 append_results --ResultsAppended--> await_model",
        "4 await_model --ModelReplied--> done",
    ]


def test_walking_gives_the_run_after_each_event() -> None:
    """Going back in time is walking less far."""
    walked = list(walk(loop, JOURNAL))

    assert [run.in_flight for run, _ in walked] == [False, True, False, True, False, False, True, False]
    assert [transition is None for _, transition in walked] == [True, True, False, True, False, False, True, False]
    assert walked[-1][0] == fold(loop, JOURNAL)


def test_a_journal_that_breaks_off_says_what_was_in_flight() -> None:
    """A resumed run has to know whether its tools had begun."""
    assert fold(loop, JOURNAL[:4]).in_flight
    assert not fold(loop, JOURNAL[:3]).in_flight
    recovered = fold(loop, [*JOURNAL[:4], EffectLost()])
    assert (recovered.state, recovered.recoveries, recovered.in_flight) == ("execute_tools", 1, False)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([], "a run's events begin with RunStarted; got no event at all"),
        ([EffectBegun()], "a run's events begin with RunStarted; got EffectBegun"),
        ([Cancelled(), RunStarted("run", "hi")], "a run's events begin with RunStarted; got Cancelled"),
    ],
)
def test_events_without_a_start_are_no_run(events: list[Event], problem: str) -> None:
    """Record 1 makes the state; without it there is nothing to move."""
    with pytest.raises(UsageError, match=problem):
        fold(loop, events)


def test_events_of_another_machine_are_told() -> None:
    """A run that its table could not have made is not guessed at."""
    with pytest.raises(NoRow, match="no row takes RunStarted in state 'await_model'"):
        fold(loop, [*JOURNAL[:1], *JOURNAL])
