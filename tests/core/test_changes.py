"""What a row does to a run, where no whole run shows it."""

from __future__ import annotations

import pytest

from turnstile.core.changes import append, close_exchange, take_results
from turnstile.core.events import ModelReplied, ResultsAppended, RunStarted, ToolsFinished, Verdict
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult
from turnstile.core.run_state import Batch, RunState, begin_run, evolve

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
