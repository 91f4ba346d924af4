"""What a row does to a run, where no whole run shows it."""

from __future__ import annotations

import pytest

from turnstile.core.changes import append, close_exchange, doubts, recover, take_results
from turnstile.core.events import (
    CallStarted,
    EffectLost,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult
from turnstile.core.run_state import Batch, RunState, begin_run
from turnstile.core.values import evolve

RUN = begin_run(RunStarted("run", "hi"))
CALLING = ModelReplied(
    Reply(calls=(ToolCall("a", "get", "{}"), ToolCall("b", "add", "{}"))), (Verdict("a", "get"), Verdict("b", "add"))
)


def opened(*contents: str, run: RunState = RUN, turned: bool = False) -> RunState:
    """A run whose calls have just brought these results."""
    order = slice(None, None, -1 if turned else 1)
    calling = ModelReplied(Reply(calls=CALLING.reply.calls[order]), CALLING.verdicts[order])
    results = [ToolResult(call.id, call.name, text) for call, text in zip(calling.reply.calls, contents, strict=True)]
    return take_results(evolve(run, open=calling), ToolsFinished(tuple(results)))


@pytest.mark.parametrize(
    ("run", "times"),
    [
        (opened("1", "2"), 1),
        (opened("1", "2", run=opened("1", "2")), 2),
        (opened("2", "1", run=opened("1", "2"), turned=True), 2),
        (opened("1", "3", run=opened("1", "2")), 1),
        (opened("1", "2", run=opened("1", "3", run=opened("1", "2"))), 1),
    ],
)
def test_a_batch_counts_how_often_it_came_to_the_same(run: RunState, times: int) -> None:
    """A model that is stuck makes the same calls, in whatever order, and learns nothing from their results."""
    assert (run.batch.calls, run.batch.times) == (("add", "get"), times)


def test_without_open_calls_there_is_nothing_to_answer() -> None:
    """An extension's rows may lead through the tools' states with no call open."""
    assert take_results(RUN, ToolsFinished(())) is RUN
    assert close_exchange(RUN, ()) is RUN
    assert append(RUN, ResultsAppended()) == RUN
    assert RUN.batch == Batch()


def test_appending_closes_the_exchange() -> None:
    """From here on the results are part of what is said."""
    run = append(opened("1", "2"), ResultsAppended())

    last = run.history[-1]
    assert isinstance(last, Exchange)
    assert [result.content for result in last.results] == ["1", "2"]
    assert (run.open, run.results) == (None, ())


KINDS = (
    Verdict("a", "get", access="read"),
    Verdict("b", "add", access="idempotent"),
    Verdict("c", "pay"),
    Verdict("d", "send", on_in_doubt="ask"),
)
ALL = ModelReplied(Reply(calls=tuple(ToolCall(v.call_id, v.digest, "{}") for v in KINDS)), KINDS)
BEGUN = evolve(RUN, state="execute_tools", open=ALL, started=tuple(CallStarted(v.call_id, v.digest, "") for v in KINDS))
UNKNOWN = ToolResult("c", "pay", "outcome unknown: the process that ran it was lost", "unknown")


def test_a_crash_settles_each_call_by_what_its_tool_does_to_the_world() -> None:
    """What may run again does; of the rest a model is told, or a human asked, and it does not run."""
    assert doubts(BEGUN) == (("a", "b"), ALL.reply.calls[2:3], ALL.reply.calls[3:])

    run = recover(BEGUN, EffectLost())

    assert [intent.call_id for intent in run.started] == ["c", "d"]
    assert (run.receipts, run.in_doubt, run.lost, run.recoveries) == ((UNKNOWN,), ("d",), ("a", "b"), 1)
    assert doubts(run) == ((), (), ())


def test_what_is_settled_is_not_settled_again() -> None:
    """A second crash changes neither results nor whom a human is asked about."""
    once = recover(evolve(BEGUN, receipts=(ToolResult("c", "pay", "paid"),)), EffectLost())
    twice = recover(once, EffectLost())

    assert (once.receipts, once.in_doubt) == ((ToolResult("c", "pay", "paid"),), ("d",))
    assert twice == evolve(once, recoveries=2)


def test_what_was_not_begun_is_not_in_doubt() -> None:
    """It runs when the run goes on, as if there had been no crash."""
    waiting = evolve(BEGUN, started=())

    assert doubts(waiting) == doubts(RUN) == ((), (), ())
    assert recover(waiting, EffectLost()) == evolve(waiting, recoveries=1)


def test_a_call_that_is_begun_again_may_be_lost_again() -> None:
    """However often processes die, one attempt is under way at a time."""
    again = recover(BEGUN, EffectLost())
    again = evolve(again, started=(*again.started, CallStarted("a", "get", "")))

    run = recover(again, EffectLost())

    assert [intent.call_id for intent in again.started] == ["c", "d", "a"]
    assert [intent.call_id for intent in run.started] == ["c", "d"]
    assert run.lost == ("a", "b")
