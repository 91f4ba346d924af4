"""The laws of a run whose process is lost, at any place and again and again: nothing is lost, nothing is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.approval import with_approval
from turnstile.core.codec import codec
from turnstile.core.events import (
    Access,
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    DeadlinePassed,
    EffectBegun,
    EffectLost,
    Event,
    MessageInjected,
    ModelFailed,
    ModelReplied,
    OnInDoubt,
    ResultsAppended,
    RunStarted,
    ToolsFinished,
    Verdict,
)
from turnstile.core.fold import fold, walk
from turnstile.core.limits import Limits
from turnstile.core.machine import loop
from turnstile.core.messages import Exchange, Reply, ResultStatus, ToolCall, ToolResult
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import Transition, effect_of, note, step
from turnstile.core.values import evolve

machine = with_approval(loop)
accesses = st.sampled_from(["write", *get_args(Access)])
doubts = st.sampled_from(["ask", *get_args(OnInDoubt)])
ODDS = st.sampled_from([False] * 15 + [True] + [False] * 15)
starts = st.builds(
    RunStarted,
    st.just("run"),
    st.just("hi"),
    deadline=st.just(1_000.0),
    limits=st.builds(
        Limits,
        turns=st.sampled_from([6, 2, 6]),
        tool_calls=st.sampled_from([None, 4, None]),
        repeats=st.sampled_from([None, 2]),
        recoveries=st.sampled_from([5, 5, 0, 1, 5, 5]),
        on_exhausted=st.sampled_from(["fail", "wrap_up"]),
    ),
)


@st.composite
def replies(draw: st.DrawFn, run: RunState) -> ModelReplied:
    """A reply that mostly calls tools of all kinds."""
    ids = [f"call {run.seq}.{number}" for number in range(draw(st.sampled_from([3, 2, 1, 0, 2, 3, 3])))]
    kinds = st.builds(Verdict, st.just(""), st.just("digest"), access=accesses, on_in_doubt=doubts)
    verdicts = tuple(evolve(draw(kinds), call_id=id_) for id_ in ids)
    return ModelReplied(Reply("" if ids else "text", tuple(ToolCall(id_, "tool", "{}") for id_ in ids)), verdicts)


def results_of(run: RunState, calls: tuple[ToolCall, ...]) -> tuple[ToolResult, ...]:
    """What came of calls: of those that were not begun, nothing, and of those that a lost process began, who knows."""
    statuses: dict[str, ResultStatus] = dict.fromkeys(run.lost, "unknown")
    statuses |= dict.fromkeys([intent.call_id for intent in run.started], "ok")
    return tuple(ToolResult(c.id, c.name, f"at {run.seq}", statuses.get(c.id, "not_run")) for c in calls)


def at_work(run: RunState) -> list[Event]:
    """What may come while tools run: the next begins, one ends, all end, or the process does."""
    left, begun = open_calls(run), {intent.call_id for intent in run.started}
    waiting = [call for call in left if call.id not in begun and run.stopping is None]
    working = [call for call in left if call.id in begun]
    starting = [CallStarted(call.id, call.name, "digest", key="key") for call in waiting[:1] * 6]
    ending = [CallFinished(result) for result in results_of(run, tuple(working))]
    whys = () if waiting else (None, None, "no go", None)
    finishing = [ToolsFinished(results_of(run, left), why) for why in whys]
    return [*starting, *finishing, EffectLost(), *ending]


def decisions(run: RunState) -> list[Event]:
    """What a human may decide."""
    ids = [call.id for call in run.waiting]
    return [
        *[ApprovalDecided(id_, "rerun", waited=1.0) for id_ in ids],
        *[ApprovalDecided(id_, "result", "paid by hand") for id_ in ids],
        *[ApprovalDecided(id_, "unknown") for id_ in ids],
        *[ApprovalDecided(id_, "rerun", waited=2.5) for id_ in ids],
    ]


def next_events(run: RunState) -> st.SearchStrategy[Event]:
    """What may happen to a run now, as it is kept in a journal."""
    outside = st.sampled_from([Cancelled("enough"), DeadlinePassed(), MessageInjected(f"said at {run.seq}")])
    likely: st.SearchStrategy[Event]
    if run.state == "execute_tools" and run.in_flight and not (run.started or run.lost or run.receipts):
        return st.just(at_work(run)[0])  # an intent is kept with the effect's beginning
    if run.state == "await_approval":
        likely = st.sampled_from(decisions(run))
    elif run.state == "append_results":
        likely = st.just(ResultsAppended())
    elif not run.in_flight:
        likely = st.just(EffectBegun())
    elif run.state == "await_model":
        failed: list[Event] = [EffectLost(), ModelFailed("timeout", delay=0.0)]
        likely = ODDS.flatmap(lambda is_odd: st.sampled_from(failed) if is_odd else replies(run))
    else:
        likely = st.sampled_from(at_work(run))
    return ODDS.flatmap(lambda is_odd: outside if is_odd else likely)


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """The journal of a run to its end: with intents, receipts, crashes and decisions in any order that can be."""
    start = draw(starts)
    run, events = begin_run(start), list[Event]([start])
    for _ in range(50):
        if run.finished:
            return events
        event = draw(next_events(run))
        events.append(event)
        run = after(run, event)
    while not run.finished:
        is_opening = run.state == "execute_tools" and not (run.started or run.lost or run.receipts)
        event = (
            EffectLost() if run.stopping else at_work(run)[0] if is_opening and run.in_flight else Cancelled("enough")
        )
        events.append(event)
        run = after(run, event)
    return events


def after(run: RunState, event: Event) -> RunState:
    """The run after an event or a receipt."""
    is_receipt = isinstance(event, EffectBegun | CallStarted | CallFinished)
    return note(run, event) if is_receipt else step(machine, run, event).run


def open_calls(run: RunState) -> tuple[ToolCall, ...]:
    """The calls that the run's effect would run."""
    effect = effect_of(machine, run)
    return getattr(effect, "calls", ())


def lived(life: list[Event]) -> Iterator[tuple[Event, RunState, Transition | None]]:
    """Each event of a life, with the run after it."""
    for event, (run, transition) in zip(life, walk(machine, life), strict=True):
        yield event, run, transition


@given(lives())
def test_each_call_has_one_result_whatever_crashes(life: list[Event]) -> None:
    """A history is valid wherever it broke off, and a result that was kept is the one that the model reads."""
    asked, kept = list[str](), dict[str, ToolResult]()
    run = fold(machine, life[:1])
    for event, run, _ in lived(life):
        asked += [call.id for call in event.reply.calls] if isinstance(event, ModelReplied) else []
        came = event.results if isinstance(event, ToolsFinished) else ()
        came = (event.result,) if isinstance(event, CallFinished) else came
        kept |= {result.call_id: result for result in came}

        answers = [message for message in run.messages if isinstance(message, ToolResult)]
        assert [answer.call_id for answer in answers] == asked
        assert [kept.get(answer.call_id, answer) for answer in answers] == answers

    assert run.finished
    assert (run.open, run.started, run.receipts, run.in_doubt, run.approved, run.lost) == (None, (), (), (), (), ())
    answered = [result.call_id for item in run.history if isinstance(item, Exchange) for result in item.results]
    assert answered == asked


@given(lives())
def test_after_a_crash_that_runs_which_may_and_nothing_else(life: list[Event]) -> None:
    """What changes the world is begun again only if a human says so; what may run again does, unless it has ended."""
    begun, allowed = Counter[str](), Counter[str]()
    for event, run, _ in lived(life):
        if isinstance(event, CallStarted):
            begun[event.call_id] += 1
        if isinstance(event, ApprovalDecided) and event.decision == "rerun":
            allowed[event.call_id] += 1
        if not isinstance(event, EffectLost | ApprovalDecided) or run.state != "execute_tools":
            continue
        assert run.open is not None
        again, settled = {call.id for call in open_calls(run)}, {result.call_id for result in run.receipts}
        for verdict in run.open.verdicts:
            id_ = verdict.call_id
            is_spent = verdict.access == "write" and begun[id_] > allowed[id_]
            assert (id_ in again) == (id_ not in settled and not is_spent)
            assert not is_spent or id_ in settled or id_ in run.in_doubt
            assert id_ not in run.in_doubt or verdict.on_in_doubt == "ask"
    assert all(times <= 1 + allowed[id_] for id_, times in begun.items() if id_ not in may_run_again(life))


def may_run_again(life: list[Event]) -> set[str]:
    """Ids of the calls that do not change the world, or change it once."""
    verdicts = [verdict for event in life if isinstance(event, ModelReplied) for verdict in event.verdicts]
    return {verdict.call_id for verdict in verdicts if verdict.access != "write"}


@given(lives())
def test_a_call_is_called_not_run_exactly_if_it_was_never_begun(life: list[Event]) -> None:
    """A model makes a call again that did not run, be it begun in this process or in one before."""
    begun = set[str]()
    for event, run, _ in lived(life):
        begun |= {event.call_id} if isinstance(event, CallStarted) else set()
        for message in run.messages if not isinstance(event, EffectBegun) else ():  # its intents are of one commit
            if isinstance(message, ToolResult):
                assert (message.status == "not_run") == (message.call_id not in begun)


@given(lives())
def test_a_life_read_from_its_records_is_the_same_life(life: list[Event]) -> None:
    """Whoever resumes a run reads it from a disk, as far as it came."""
    again = [codec.decode(codec.encode(event)) for event in life]

    assert again == life
    for length, (_, run, _) in enumerate(lived(life), start=1):
        assert length % 7 or fold(machine, again[:length]) == run


@given(lives())
def test_only_waiting_for_a_human_gives_time(life: list[Event]) -> None:
    """A run that was lost and found again has no more time than it had."""
    run = fold(machine, life)

    assert run.waited == sum(event.waited for event in life if isinstance(event, ApprovalDecided))
    assert run.deadline == 1_000.0 + run.waited
