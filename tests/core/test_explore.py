"""Exploring: the table is sound, and each way of being unsound is found in a table that was spoilt for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from turnstile.core.alphabet import STARTS
from turnstile.core.approval import with_approval
from turnstile.core.changes import accept, append, keep, recover
from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import (
    CallStarted,
    Cancelled,
    EffectLost,
    Event,
    ModelReplied,
    ResultsAppended,
    RunStarted,
    Verdict,
)
from turnstile.core.explore import explore, situation
from turnstile.core.fold import fold
from turnstile.core.limits import Limits, StopReason
from turnstile.core.machine import Machine, Refusal, loop
from turnstile.core.messages import Reply, ToolCall, ToolResult, Usage
from turnstile.core.rows import AGAIN, Change, Row, after, row
from turnstile.core.run_state import RunState, Stop, begin_run
from turnstile.core.states import STATES, State, append_results, await_model, failed
from turnstile.core.step import step
from turnstile.core.table import TABLE
from turnstile.core.values import evolve

FEW = STARTS[:1]
APPROVAL = with_approval(loop)
waiting = State("waiting", asks="Wait")
attic = State("attic", final=True)


@dataclass(frozen=True, slots=True)
class Ticked(Event):
    """An extension's event: some time has passed."""


@dataclass(frozen=True, slots=True)
class GoneOn(Event):
    """An extension's event: the waiting is over."""

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


@dataclass(frozen=True)
class Named(GoneOn):
    """An extension's event with a field whose values nobody can guess."""

    names: list[str]


def never(run: RunState, event: Event) -> bool:
    """Say no."""
    return False


def forget(run: RunState, event: Event) -> RunState:
    """Drop the open calls."""
    return evolve(run, open=None)


def forget_outcomes(run: RunState, event: Event) -> RunState:
    """Recover, and lose what came of the calls."""
    return evolve(recover(run, event), receipts=(), in_doubt=())


def stop_early(run: RunState, event: Event) -> RunState:
    """Say that the run has ended."""
    return evolve(run, stop=Stop("early"))


def count(run: RunState, event: Event) -> RunState:
    """Count something that has no limit."""
    return evolve(run, nudges=run.nudges + 1)


def spend(run: RunState, event: Event) -> RunState:
    """Open the calls and count more than there are."""
    assert isinstance(event, ModelReplied)
    return evolve(accept(run, event), tool_calls=10)


def fail(run: RunState, event: Event) -> RunState:
    """Raise, as a bug would."""
    msg = "no such thing"
    raise KeyError(msg)


class Restless(Machine):
    """A machine that goes on after the end."""

    def judge(self, run: RunState, event: Event) -> tuple[Row, tuple[Refusal, ...]]:
        """Take a cancellation at any time."""
        if run.finished and isinstance(event, Cancelled):
            return self.rows[1], ()
        return super().judge(run, event)


def spoilt(name: str, change: Change, machine: Machine = loop) -> Machine:
    """The table with another change in one of its rows."""
    return Machine(machine.states, [replace(row, change=change) if row.name == name else row for row in machine.rows])


def without(name: str) -> Machine:
    """The table without one of its rows."""
    return Machine(rows=[row for row in TABLE if row.name != name])


def ticking(*rows: Row) -> Machine:
    """The table with a state that waits for ticks."""

    async def tick(run: RunState) -> Event:
        return Ticked()

    enter = row("enter", append_results, ResultsAppended, [], waiting, append)
    table = [enter if line.name == "appended" else line for line in TABLE]
    return Machine([*STATES, waiting], [*table, *rows], {"Wait": tick})


def test_the_table_is_sound() -> None:
    """No event without a row, no dead row, every cycle spends a counter, ends are ends, each call has one answer."""
    report = explore()

    assert report.ok, str(report)
    assert report.machine == loop.fingerprint
    assert [name for name, times in report.taken if times] == [row.name for row in TABLE]
    assert set(report.endings) == {str(reason) for reason in StopReason}
    assert set(report.endings) == {reason for row in TABLE if row.dest in {"done", "failed"} for reason in row.reasons}
    assert report.situations > 1000
    assert report.moves > 20_000
    assert str(report).splitlines()[-4:] == [
        "every event has a row where it can come, and every row is taken",
        "every cycle spends a counter, and a finished run never moves",
        "every call is answered exactly once, and no text of the user is lost",
        "no call that may have changed the world is begun again unasked, and none that has a result",
    ]


def test_the_table_with_a_human_is_sound() -> None:
    """Three rows more, each of them taken, and not one way more to go round for nothing."""
    report = explore(APPROVAL)

    assert report.ok, str(report)
    assert [name for name, times in report.taken if times] == [row.name for row in APPROVAL.rows]
    assert set(report.endings) == {str(reason) for reason in StopReason}


def test_an_answer_that_goes_missing_while_a_human_decides_is_found() -> None:
    """The exploration comes to that state with calls begun, ended, in doubt and decided."""
    report = explore(spoilt("decided", forget, APPROVAL), starts=FEW)

    assert "unanswered: not each call has one answer in 'execute_tools'" in str(report)


@pytest.mark.parametrize(("machine", "change"), [(loop, keep), (APPROVAL, forget_outcomes)])
def test_a_call_that_would_run_again_after_a_crash_is_found(machine: Machine, change: Change) -> None:
    """Nothing done twice: neither what has a result, nor what changes the world and was begun."""
    report = explore(spoilt("recovered", change, machine), starts=FEW)

    found = next(finding for finding in report.findings if finding.kind == "done twice")
    assert found.what == "a call that may have done its work is begun again in 'execute_tools'"
    assert isinstance(found.events[-1], EffectLost)
    assert CallStarted in {type(event) for event in found.events}


NEW = row("new", await_model, ModelReplied, [never], failed, accept)


@pytest.mark.parametrize(
    ("machine", "kind", "what", "path"),
    [
        (
            without("gave_up"),
            "no row",
            "no row takes ModelFailed in state 'await_model'; rows tried: wrap_up_unsent (not is_over_budget); over_",
            "RunStarted → EffectBegun → ModelFailed",
        ),
        (
            loop.extend(rows=[after("refused", NEW)]),
            "dead row",
            "new: await_model --ModelReplied [never]--> failed",
            "",
        ),
        (
            loop.extend(states=[attic], rows=[after("refused", replace(NEW, dest="attic"))]),
            "unreached state",
            "attic",
            "",
        ),
        (
            spoilt("retry", keep),
            "free cycle",
            "await_model --EffectBegun--> await_model --ModelFailed--> await_model spends no counter",
            "RunStarted",
        ),
        (Restless(), "moved after its end", "Cancelled moves 'failed'", "RunStarted → Cancelled × 2"),
        (spoilt("injected", stop_early), "no stop", "'await_model' is live, and its stop is Stop(reason='early'", None),
        (without("limit"), "past its limit", "3 turns of 2 in 'execute_tools'", None),
        (spoilt("finished", forget), "unanswered", "not each call has one answer in 'append_results'", None),
        (
            spoilt("injected", keep),
            "lost text",
            "what the user said is neither sent nor kept in 'await_model'",
            "RunStarted → MessageInjected",
        ),
        (
            spoilt("finished", fail),
            "raised",
            "ToolsFinished in 'execute_tools': KeyError('no such thing')",
            "RunStarted → EffectBegun → ModelReplied → EffectBegun → ToolsFinished",
        ),
    ],
)
def test_a_spoilt_table_is_found(machine: Machine, kind: str, what: str, path: str | None) -> None:
    """An exploration that finds nothing says something only if it would have found each of these, and the way there."""
    report = explore(machine, starts=FEW, most=2_000)

    assert not report.ok
    found = [finding for finding in report.findings if finding.kind == kind and finding.what.startswith(what)]
    assert found, str(report)
    assert str(found[0]) in str(report)
    if path is not None:
        assert str(found[0]).partition("\n    after ")[2] == path


def test_calls_past_their_limit_are_found() -> None:
    """That limit stands in another start than the first."""
    report = explore(spoilt("run_tools", spend), starts=STARTS[2:3])

    assert "past its limit: 10 calls of 2 in 'execute_tools'" in str(report)


def test_the_way_to_a_finding_can_be_walked() -> None:
    """Whoever mends the table starts from it."""
    report = explore(without("gave_up"), starts=FEW)
    *before_it, last = next(finding for finding in report.findings if finding.kind == "no row").events

    run = fold(without("gave_up"), before_it)

    assert run.state == "await_model"
    with pytest.raises(NoRow):
        step(without("gave_up"), run, last)


def test_what_is_counted_without_a_limit_is_found() -> None:
    """Such a run might never end, and its exploration would not either."""
    report = explore(spoilt("recovered", count), starts=FEW, most=500)

    kinds = {finding.kind for finding in report.findings}
    assert "endless" in kinds
    assert "free cycle" not in kinds


def test_a_row_without_a_counter_is_free_unless_someone_outside_spends_it() -> None:
    """A person who is asked again and again may say so as often as they like; a clock may not."""
    rows = [
        row("lost", waiting, EffectLost, [], failed, keep, reason="crash_loop"),
        row("tick", waiting, Ticked, [], AGAIN, keep),
        row("go on", waiting, GoneOn, [], await_model),
    ]

    free = [finding.what for finding in explore(ticking(*rows), starts=FEW).findings if finding.kind == "free cycle"]

    assert free == ["waiting --EffectBegun--> waiting --Ticked--> waiting spends no counter"]
    spent = explore(ticking(*rows), starts=FEW, outside=[Ticked])
    assert "free cycle" not in {finding.kind for finding in spent.findings}


def test_the_events_of_a_state_can_be_given() -> None:
    """Some events can't be made from their types, such as one that names an open call."""
    rows = [
        row("lost", waiting, EffectLost, [], failed, keep, reason="crash_loop"),
        row("named", waiting, Named, [], await_model),
    ]

    with pytest.raises(UsageError, match=r"Named\.names: no values to try for list\[str\]; hand explore"):
        explore(ticking(*rows), starts=FEW)
    report = explore(ticking(*rows), starts=FEW, events={"waiting": lambda run: [Named(["a"])]})
    assert not [finding for finding in report.findings if finding.kind == "no row"]
    assert dict(report.taken)["named"] > 0


def test_runs_that_no_event_can_tell_apart_are_one_situation() -> None:
    """Otherwise nothing would ever be explored to its end."""
    run = begin_run(RunStarted("run", "hi"))

    assert situation(run) == situation(evolve(run, seq=7, cost=1.0, usage=Usage(1, 2)))
    assert situation(run) == situation(begin_run(RunStarted("other", "bye")))
    assert situation(run) != situation(evolve(run, in_flight=True))
    assert situation(run) != situation(evolve(run, retries=1))


CALLS = (ToolCall("a", "tool", "{}"), ToolCall("b", "tool", "{}"))
OPEN = ModelReplied(Reply(calls=CALLS), (Verdict("a", ""), Verdict("b", "")))
ASKS = ModelReplied(Reply(calls=CALLS), (Verdict("a", "", on_in_doubt="ask"), Verdict("b", "")))
WORKING = evolve(begin_run(FEW[0]), state="execute_tools", open=OPEN, in_flight=True)
BEGUN = evolve(WORKING, started=(CallStarted("a", "tool", ""),))
ENDED = evolve(BEGUN, receipts=(ToolResult("a", "tool", "one"),))
OTHER = evolve(BEGUN, receipts=(ToolResult("a", "tool", "other"),))


def test_how_far_each_call_is_tells_situations_apart_while_it_matters() -> None:
    """A crash settles calls by how far they are; nobody asks any more once no crash is survived, or all have ended."""
    places = [WORKING, BEGUN, ENDED, evolve(BEGUN, in_doubt=("a",)), evolve(WORKING, open=ASKS)]

    assert len(set(map(situation, places))) == len(places)
    assert situation(ENDED) == situation(OTHER) == situation(evolve(ENDED, started=()))
    stopping = [evolve(run, stopping=Stop("cancelled")) for run in places]
    for last in ([evolve(run, recoveries=1) for run in places], stopping):
        working, begun, ended, _, asks = map(situation, last)
        assert working == begun == asks != ended
    done = [evolve(run, state="append_results", results=ENDED.receipts, in_flight=False) for run in (WORKING, ENDED)]
    assert situation(done[0]) == situation(done[1])


def test_results_tell_situations_apart_where_they_are_compared() -> None:
    """A run that is to stop when the same comes of the same calls goes another way when something else does."""
    counting = RunStarted("run", "hi", limits=Limits(repeats=1))

    assert situation(evolve(ENDED, start=counting)) != situation(evolve(OTHER, start=counting))
