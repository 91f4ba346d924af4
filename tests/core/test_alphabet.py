"""The events that are tried: enough of each to make every guard say yes and no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from turnstile.core.alphabet import STARTS, events_in, samples
from turnstile.core.approval import with_approval
from turnstile.core.errors import UsageError
from turnstile.core.events import (
    EVENTS,
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
    ResultsAppended,
    ToolsFinished,
    Verdict,
)
from turnstile.core.limits import Limits
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Reply, ToolCall, ToolResult
from turnstile.core.run_state import RunState, Stop, begin_run
from turnstile.core.step import begin
from turnstile.core.values import evolve

RUN = begin_run(STARTS[0])


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """An extension's event with a field of each kind of type."""

    good: bool
    how: Literal["long", "short"]
    where: ToolCall | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Heavy(Event):
    """An extension's event that holds too much to be made from its types."""

    reply: Reply


A, B = ToolCall("a", "tool", "{}"), ToolCall("b", "tool", "{}")
OPEN = ModelReplied(Reply(calls=(A, B)), (Verdict("a", ""), Verdict("b", "")))
WORKING = begin(evolve(RUN, state="execute_tools", open=OPEN))
BEGUN = CallStarted("a", "tool", "")


def kinds(events: list[Event]) -> set[type[Event]]:
    """What kinds of events there are."""
    return {type(event) for event in events}


def test_an_effect_brings_its_events_only_once_it_has_begun() -> None:
    """A crash, an order and a message may come at any time; a reply needs a request, and a decision a human."""
    anytime = {Cancelled, DeadlinePassed, MessageInjected}

    assert kinds(list(events_in(loop, RUN, {}))) == anytime | {EffectBegun, EffectLost}
    assert ModelReplied in kinds(list(events_in(loop, begin(RUN), {})))
    appending = evolve(RUN, state="append_results")
    assert kinds(list(events_in(loop, appending, {}))) == anytime | {ResultsAppended}


def test_all_events_of_the_engine_are_tried_somewhere() -> None:
    """What is left out would not be explored."""
    calling = next(e for e in events_in(loop, begin(RUN), {}) if isinstance(e, ModelReplied) and e.reply.calls)
    asking = evolve(RUN, state="await_approval", open=calling, in_doubt=(calling.reply.calls[0].id,))
    tools = begin(evolve(RUN, state="execute_tools", open=calling))
    states = [RUN, begin(RUN), tools, evolve(RUN, state="append_results"), asking]

    tried = [event for run in states for event in events_in(with_approval(loop), run, {})]

    assert kinds(tried) == {*EVENTS, EffectBegun, CallStarted}


@pytest.mark.parametrize(
    ("run", "begins", "ends"),
    [
        (WORKING, "a", "a"),
        (evolve(WORKING, started=(BEGUN,)), "b", "a"),
        (evolve(WORKING, started=(BEGUN,), receipts=(ToolResult("a", "tool", ""),)), "b", None),
        (evolve(WORKING, started=(BEGUN,), in_doubt=("a",)), "b", None),
        (evolve(WORKING, started=(BEGUN, BEGUN), in_doubt=("a", "b")), None, None),
        (evolve(WORKING, recoveries=1), None, None),
        (evolve(WORKING, stopping=Stop("cancelled")), None, None),
        (evolve(WORKING, start=STARTS[2]), None, "a"),
    ],
)
def test_receipts_are_tried_where_they_matter(run: RunState, begins: str | None, ends: str | None) -> None:
    """What was begun is asked for after a crash, and a result before the others where results are compared."""
    tried = list(events_in(loop, run, {}))

    assert [event.call_id for event in tried if isinstance(event, CallStarted)] == [begins] * (begins is not None)
    assert [event.result.call_id for event in tried if isinstance(event, CallFinished)] == [ends] * (ends is not None)
    left = [id_ for id_ in ("a", "b") if id_ not in run.in_doubt and id_ not in [r.call_id for r in run.receipts]]
    finished = [[result.call_id for result in event.results] for event in tried if isinstance(event, ToolsFinished)]
    assert finished == [left] * 3


def test_all_decisions_are_tried_on_each_call_in_doubt() -> None:
    """A human may decide in any order."""
    run = evolve(WORKING, state="await_approval", in_flight=False, in_doubt=("a", "b"))

    tried = list(events_in(with_approval(loop), run, {}))

    assert kinds(tried) == {Cancelled, DeadlinePassed, MessageInjected, ApprovalDecided}
    decided = {(event.call_id, event.decision) for event in tried if isinstance(event, ApprovalDecided)}
    assert decided == {(id_, how) for id_ in ("a", "b") for how in ("rerun", "result", "unknown")}


def test_a_tool_that_asks_is_tried_where_somebody_may_be_asked() -> None:
    """In the machine of five states it would make as many situations more, and no other move."""

    def asks(machine: Machine, limits: Limits) -> bool:
        run = begin(begin_run(evolve(STARTS[0], limits=limits)))
        replies = [event for event in events_in(machine, run, {}) if isinstance(event, ModelReplied)]
        return any(verdict.on_in_doubt == "ask" for reply in replies for verdict in reply.verdicts)

    assert asks(with_approval(loop), Limits(recoveries=1))
    assert not asks(with_approval(loop), Limits(recoveries=0))
    assert not asks(loop, Limits(recoveries=1))


def test_given_events_take_the_place_of_those_of_an_effect() -> None:
    """What comes from outside is tried all the same."""
    tried = list(events_in(loop, begin(RUN), {"await_model": lambda run: [Looked(good=True, how="long", where=None)]}))

    assert kinds(tried) == {Cancelled, DeadlinePassed, MessageInjected, EffectLost, Looked}


def test_an_extensions_event_is_tried_in_all_combinations() -> None:
    """Its guards were written by somebody else, so each field has to say each thing."""
    events = samples(Looked)

    assert len(events) == 2 * 2 * (2**3 + 1) * 3
    assert len(set(events)) == len(events)


def test_too_many_combinations_are_refused() -> None:
    """An exploration that takes an hour is not made."""
    with pytest.raises(UsageError, match=r"Reply: \d+ combinations are too many to try; hand explore\(…, events=…\)"):
        samples(Heavy)
