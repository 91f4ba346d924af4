"""The laws of any run: whatever happens in whatever order, it stays valid, it stops, and it stops for good."""

from __future__ import annotations

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.core.codec import codec
from turnstile.core.effects import RunTools
from turnstile.core.errors import NoRow
from turnstile.core.events import (
    Cancelled,
    DeadlinePassed,
    EffectBegun,
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
from turnstile.core.fold import fold, trace, walk
from turnstile.core.history import History
from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.machine import loop
from turnstile.core.messages import FinishReason, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import begin, effect_of, step

small = st.integers(0, 2)
starts = st.builds(
    RunStarted,
    st.just("run"),
    st.just("hi"),
    history=st.sampled_from([(), (UserTurn("before"),)]),
    limits=st.builds(
        Limits,
        turns=st.sampled_from([1, 2, 4, 8]),
        tool_calls=st.sampled_from([None, None, 2, 9]),
        tokens=st.sampled_from([None, None, 100, 2000, 20_000]),
        cost=st.sampled_from([None, None, 0.0, 0.02]),
        repeats=st.sampled_from([None, 1, 3]),
        nudges=small,
        repairs=small,
        recoveries=small,
        on_exhausted=st.sampled_from(["fail", "wrap_up"]),
    ),
    retry=st.builds(Retry, attempts=st.integers(1, 3)),
    models=st.just(("first", "second")),
    prices=st.tuples(*[st.none() | st.builds(Price, st.floats(0, 9), st.floats(0, 9))] * 2),
    max_output=st.none() | st.integers(1, 500),
    can_trim=st.booleans(),
)
counts = st.none() | st.integers(0, 500)
usages = st.none() | st.builds(Usage, counts, counts)
failures = st.builds(
    ModelFailed,
    st.sampled_from(get_args(FailureKind)),
    delay=st.sampled_from([0.0, 0.0, None]),
    limit=st.sampled_from(["", "token_limit", "cost_limit"]),
)


@st.composite
def replies(draw: st.DrawFn, run: RunState) -> ModelReplied:
    """A reply, with calls more often than not, whose ids were never used before."""
    ids = [f"call {run.seq}.{number}" for number in range(draw(st.sampled_from([0, 1, 1, 2, 2, 2])))]
    calls = tuple(ToolCall(id_, "tool", "{}") for id_ in ids)
    finish: FinishReason = draw(st.sampled_from([*["stop", "tool_calls"] * 5, *get_args(FinishReason)]))
    digest = draw(st.sampled_from(["same", f"other {run.seq}"]))
    return ModelReplied(
        Reply(draw(st.sampled_from(["", "text"])), calls, finish, usage=draw(usages)),
        tuple(Verdict(id_, digest, repeats=run.limits.repeats) for id_ in ids),
        output_error=draw(st.sampled_from(["", "no"])),
    )


@st.composite
def results(draw: st.DrawFn, run: RunState) -> ToolsFinished:
    """Results of the open calls that have none yet, if there are any."""
    effect = effect_of(loop, run)
    calls = effect.calls if isinstance(effect, RunTools) else ()
    content = draw(st.sampled_from(["same", f"other {run.seq}"]))
    aborted = draw(st.sampled_from([None] * 7 + ["no go"]))
    return ToolsFinished(tuple(ToolResult(call.id, call.name, content) for call in calls), aborted)


def brought(run: RunState) -> st.SearchStrategy[Event]:
    """What the run's state waits for."""
    if run.state == "await_model":
        return st.integers(0, 3).flatmap(lambda chance: replies(run) if chance else failures)
    return results(run) if run.state == "execute_tools" else st.just(ResultsAppended())


def anything(run: RunState) -> st.SearchStrategy[Event]:
    """Any event, whether or not it can come now."""
    return st.one_of(
        replies(run),
        failures,
        results(run),
        st.sampled_from([ResultsAppended(), EffectLost(), Cancelled("enough"), DeadlinePassed()]),
        st.just(MessageInjected(f"said at {run.seq}")),
    )


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """A run's start, and events that mostly are what it waits for."""
    start = draw(starts)
    run, events = begin_run(start), list[Event]([start])
    for _ in range(draw(st.integers(5, 30))):
        if is_resting(run):
            run = begin(run)
            events.append(EffectBegun())
        chance = draw(st.integers(0, 9))
        event = draw(brought(run) if chance < 8 else anything(run))
        events.append(event)
        run = after(run, event)
    return events


def is_resting(run: RunState) -> bool:
    """Whether the run's state has an effect that has not begun."""
    return not run.in_flight and effect_of(loop, run) is not None


def after(run: RunState, event: Event) -> RunState:
    """The run after an event; as it was when no row takes the event."""
    try:
        return step(loop, run, event).run
    except NoRow:
        return run


def taken(story: list[Event]) -> list[Event]:
    """The events of a story that a row took, and the effects that began."""
    start, *rest = story
    assert isinstance(start, RunStarted)
    run, events = begin_run(start), [start, *rest][:1]
    for event in rest:
        moved = begin(run) if isinstance(event, EffectBegun) else after(run, event)
        if moved is not run:
            events.append(event)
        run = moved
    return events


def check(run: RunState, calls: list[str], said: list[str]) -> None:
    """All that holds between any two moves."""
    History.of(run.messages)  # refuses what a provider would refuse
    assert [message.call_id for message in run.messages if isinstance(message, ToolResult)] == calls
    sent = [item.text for item in run.history if isinstance(item, UserTurn) and not item.synthetic]
    assert [*sent, *run.inbox] == said
    assert run.turns <= run.limits.turns + (run.limits.on_exhausted == "wrap_up")
    assert run.limits.tool_calls is None or run.tool_calls <= run.limits.tool_calls
    assert run.finished == loop.state(run.state).final
    assert run.stop is None or (run.stop.reason and run.open is None and not run.in_flight)


@settings(max_examples=200)
@given(stories())
def test_any_events_in_any_order_leave_a_valid_run(story: list[Event]) -> None:
    """An event takes a row or raises the one error; no call goes unanswered, no text is lost, and an end is an end."""
    names = {row.name for row in loop.rows}
    start, *events = story
    assert isinstance(start, RunStarted)
    run, calls = begin_run(start), list[str]()
    said = [item.text for item in run.history if isinstance(item, UserTurn)]
    for event in events:
        if isinstance(event, EffectBegun):
            run = begin(run)
            continue
        try:
            taken = step(loop, run, event)
        except NoRow:
            continue
        assert not run.finished
        transition = taken.transition
        assert transition.row in names
        assert (transition.seq, transition.source, transition.dest) == (run.seq + 1, run.state, taken.run.state)
        run = taken.run
        calls += [call.id for call in event.reply.calls] if isinstance(event, ModelReplied) else []
        said += [event.text] if isinstance(event, MessageInjected) else []
        check(run, calls, said)


@given(starts, st.data())
def test_a_run_ends_within_its_limits(start: RunStarted, data: st.DataObject) -> None:
    """However models fail and processes die, without any order from outside a run comes to its end."""
    run, limits = begin_run(start), start.limits
    requests = 1 + (start.retry.attempts - 1) * 2 + limits.recoveries + 1
    bound = (limits.turns + 1) * (requests + limits.recoveries + 2) + limits.repairs + 2

    moves = 0
    while not run.finished:
        moves += 1
        assert moves <= bound
        run = begin(run) if is_resting(run) else run
        losses = st.just(EffectLost()) if run.in_flight else st.nothing()
        run = step(loop, run, data.draw(brought(run) | losses)).run


@given(stories())
def test_the_same_events_make_the_same_trace(story: list[Event]) -> None:
    """A replay is the run, ten times over and byte for byte, and so is a run read from its records."""
    events = taken(story)
    records = [codec.encode(event) for event in events]

    traces = {repr(trace(loop, map(codec.decode, records))).encode() for _ in range(10)}

    assert traces == {repr(trace(loop, events)).encode()}


@given(stories())
def test_a_run_is_the_fold_of_its_events(story: list[Event]) -> None:
    """Resuming, forking and going back are folding more or less, so every prefix must give the state that was."""
    events = taken(story)

    for length, (run, _) in enumerate(walk(loop, events), start=1):
        assert fold(loop, events[:length]) == run
