"""Folding: a run from its events alone, and what are no events of a run."""

from __future__ import annotations

import pytest

from turnstile.core.codec import codec
from turnstile.core.effects import RunTools
from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import (
    CallFinished,
    CallStarted,
    Cancelled,
    ChangesAccepted,
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
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult
from turnstile.core.step import effect_of

CALLING = ModelReplied(Reply(calls=(ToolCall("a", "add", "{}"),)), (Verdict("a", "digest"),))
FINISHED_B = ToolsFinished((ToolResult("b", "add", "3", "error"),))
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


BOTH = (ToolCall("a", "add", "{}"), ToolCall("b", "add", "{}"))
RESULTS = (ToolResult("a", "add", "2"), ToolResult("b", "add", "3", "error"))
OLD = [
    (
        b'{"v":1,"type":"RunStarted","run_id":"run","prompt":"what is 1 + 1?","agent":"assistant","instructions":"",'
        b'"history":[],"session":null,"limits":{"turns":10,"tool_calls":null,"tokens":null,"cost":null,"seconds":null,'
        b'"repeats":3,"parallel":8,"nudges":1,"repairs":2,"recoveries":3,"on_exhausted":"fail"},"retry":{"attempts":4,'
        b'"base_delay":0.5,"max_delay":60.0},"deadline":null,"models":["model"],"prices":[null],"max_output":null,'
        b'"tools_size":0,"can_trim":true,"fingerprints":[["machine","6f4a8831d9178d9f"]],"attachments":[]}'
    ),
    b'{"v":1,"type":"EffectBegun"}',
    (
        b'{"v":1,"type":"ModelReplied","reply":{"text":"","calls":[{"id":"a","name":"add","arguments":"{}"},{"id":"b",'
        b'"name":"add","arguments":"{}"}],"finish":"stop","finish_raw":"","reasoning":"","usage":null,"cost":null,'
        b'"model":"","request_id":"","wire":"","native":"","flags":[]},"verdicts":[{"call_id":"a","digest":"x",'
        b'"known":true,"valid":true,"problem":"","access":"write","repeats":3},{"call_id":"b","digest":"y","known":true,'
        b'"valid":true,"problem":"","access":"write","repeats":3}],"output":null,"output_error":""}'
    ),
    b'{"v":1,"type":"EffectBegun"}',
    (
        b'{"v":1,"type":"ToolsFinished","results":[{"call_id":"a","name":"add","content":"2","status":"ok",'
        b'"duration_ms":0.0},{"call_id":"b","name":"add","content":"3","status":"error","duration_ms":0.0}],'
        b'"aborted":null}'
    ),
    b'{"v":1,"type":"ResultsAppended"}',
    b'{"v":1,"type":"EffectBegun"}',
    (
        b'{"v":1,"type":"ModelReplied","reply":{"text":"2","calls":[],"finish":"stop","finish_raw":"","reasoning":"",'
        b'"usage":null,"cost":null,"model":"","request_id":"","wire":"","native":"","flags":[]},"verdicts":[],'
        b'"output":null,"output_error":""}'
    ),
]
"""A journal as it was written before there were intents and receipts."""


def test_a_journal_of_an_older_release_folds_as_it_did() -> None:
    """It has no intents and no receipts, results all together, and a start that says less."""
    events = [codec.decode(record) for record in OLD]

    walked = [(run.state, run.in_flight, run.seq, run.turns) for run, _ in walk(loop, events)]

    assert walked == [
        ("await_model", False, 0, 0),
        ("await_model", True, 0, 0),
        ("execute_tools", False, 1, 1),
        ("execute_tools", True, 1, 1),
        ("append_results", False, 2, 1),
        ("await_model", False, 3, 1),
        ("await_model", True, 3, 1),
        ("done", False, 4, 2),
    ]
    assert [(t.row, t.asks) for t in trace(loop, events)] == [
        ("run_tools", "RunTools (add, add)"),
        ("finished", ""),
        ("appended", "CallModel"),
        ("answered", ""),
    ]
    run = fold(loop, events)
    assert run.history[1:] == (Exchange(Reply(calls=BOTH), RESULTS), Exchange(Reply("2")))
    assert (run.tool_calls, run.fingerprints) == (2, (("machine", "6f4a8831d9178d9f"),))


def test_a_journal_with_receipts_gives_the_same_history() -> None:
    """Results that came one by one are the results, in the order of their calls."""
    start, begun, calling, _, _, *rest = [codec.decode(record) for record in OLD]
    intents = [CallStarted(call.id, call.name, "digest") for call in BOTH]

    whole = [start, begun, calling, begun, *intents, ToolsFinished(RESULTS), *rest]
    parts = [start, begun, calling, begun, *intents, CallFinished(RESULTS[1]), ToolsFinished(RESULTS[:1]), *rest]

    assert fold(loop, parts) == fold(loop, whole)
    assert trace(loop, parts) == trace(loop, whole)
    assert fold(loop, whole).history == fold(loop, map(codec.decode, OLD)).history


def test_a_journal_that_breaks_off_says_how_far_each_call_was() -> None:
    """What has a result keeps it, what was not begun runs, and what changes the world does not run again."""
    start, begun, calling = [codec.decode(record) for record in OLD[:3]]
    intents = [CallStarted(call.id, call.name, "digest") for call in BOTH]

    run = fold(loop, [start, begun, calling, begun, *intents, CallFinished(RESULTS[1]), EffectLost()])

    lost = ToolResult("a", "add", "outcome unknown: the process that ran it was lost", "unknown")
    assert (run.receipts, run.started, run.in_flight) == ((RESULTS[1], lost), tuple(intents), False)
    assert effect_of(loop, run) == RunTools((), ())
    ended = fold(loop, [start, begun, calling, begun, intents[0], EffectLost(), begun, intents[1], FINISHED_B])
    assert ended.results == (lost, RESULTS[1])


def test_accepted_changes_are_what_a_run_goes_on_under() -> None:
    """A later resume compares with what was accepted, and not with what the run began with."""
    start, begun = [codec.decode(record) for record in OLD[:2]]
    now = (("machine", "other"), ("tool add", "new"))

    run = fold(loop, [start, begun, ChangesAccepted(now), EffectLost()])

    assert run.fingerprints == now
    assert run.recoveries == 1
    assert fold(loop, [start, begun, ChangesAccepted(())]).fingerprints == ()
