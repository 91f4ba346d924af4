"""Extending the machine: a state that looks at each call before it runs, put in by one row in front of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnstile.core.alphabet import STARTS
from turnstile.core.changes import accept, recover
from turnstile.core.codec import Codec
from turnstile.core.effects import Ask
from turnstile.core.events import EffectBegun, EffectLost, Event, ModelReplied, RunStarted, ToolsFinished, Verdict
from turnstile.core.explore import explore
from turnstile.core.fold import fold, trace
from turnstile.core.guards import recoveries_left
from turnstile.core.machine import loop
from turnstile.core.messages import Reply, ToolCall, ToolResult
from turnstile.core.rows import AGAIN, before, row
from turnstile.core.run_state import RunState, unanswered
from turnstile.core.states import State, append_results, await_model, execute_tools, failed
from turnstile.core.values import Value, evolve


@dataclass(frozen=True, slots=True)
class Reviewed(Event):
    """Somebody looked at the open calls."""

    codec_name: ClassVar[str] = "acme.reviewed"
    good: bool
    why: str = ""

    def apply(self, run: RunState) -> RunState:
        """Answer the calls when they may not run."""
        return run if self.good else evolve(run, results=unanswered(run, self.why))


def needs_review(run: RunState, event: ModelReplied) -> bool:
    """Whether a call would change the world."""
    return any(verdict.access == "write" for verdict in event.verdicts)


def is_good(run: RunState, event: Reviewed) -> bool:
    """Whether the calls may run."""
    return event.good


def keep(run: RunState, event: EffectLost) -> RunState:
    """Change nothing."""
    return run


async def look(run: RunState) -> Event:
    """Look at the open calls of a run."""
    return Reviewed(good=True)


review = State("review", asks="Review")
machine = loop.extend(
    states=[review],
    rows=[
        before("recovered", row("review_again", review, EffectLost, [recoveries_left], AGAIN, recover)),
        before("recovered", row("review_lost", review, EffectLost, [], failed, keep, reason="crash_loop")),
        before("run_tools", row("review", await_model, ModelReplied, [needs_review], review, accept)),
        row("reviewed", review, Reviewed, [is_good], execute_tools),
        row("rejected", review, Reviewed, [], append_results),
    ],
    performs={"Review": look},
)
START = RunStarted("run", "hi")
CALLING = ModelReplied(Reply(calls=(ToolCall("a", "pay", "{}"),)), (Verdict("a", "digest"),))
FINISHED = ToolsFinished((ToolResult("a", "pay", "paid"),))


def test_the_new_state_stands_where_it_was_put() -> None:
    """The rows before it still come first: a limit is a limit."""
    good: list[Event] = [START, EffectBegun(), CALLING, EffectBegun(), Reviewed(good=True), EffectBegun(), FINISHED]

    transitions = trace(machine, good)

    assert [transition.dest for transition in transitions] == ["review", "execute_tools", "append_results"]
    assert [transition.asks for transition in transitions] == ["Review", "RunTools (pay)", ""]
    assert [str(refusal) for refusal in transitions[0].refused][-1] == "limit (not limit_hit)"


def test_its_event_changes_the_run_as_it_says() -> None:
    """A rejected call is answered, and the model reads why."""
    run = fold(machine, [START, EffectBegun(), CALLING, EffectBegun(), Reviewed(good=False, why="too dear")])

    assert run.state == "append_results"
    assert run.results == (ToolResult("a", "pay", "not run: too dear", "not_run"),)


def test_its_effect_goes_by_the_name_that_the_state_gives_it() -> None:
    """Whoever drives the machine finds who performs it."""
    assert str(Ask("Review")) in machine.performs


def test_its_event_is_stored_by_its_own_name() -> None:
    """A run of an extended machine is resumed like any other."""
    codec = Codec.of(machine)
    events: list[Event] = [START, EffectBegun(), CALLING, EffectBegun(), Reviewed(good=False, why="too dear")]

    records = [codec.encode(event) for event in events]

    assert records[-1] == b'{"v":1,"type":"acme.reviewed","good":false,"why":"too dear"}'
    assert fold(machine, map(codec.decode, records)) == fold(machine, events)


def test_an_extended_machine_is_explored_unasked() -> None:
    """Its author is told of a gap before a run stands in it."""
    report = explore(machine, starts=STARTS[2:3])

    taken = {name for name, times in report.taken if times}
    assert {"run_tools", "review", "reviewed", "rejected", "review_lost"} <= taken
    assert {finding.kind for finding in report.findings} == {"dead row"}, str(report)  # rows of the other starts


class Weighed(Event, Value, frozen=True):
    """An event of the engine's own kind."""

    codec_name: ClassVar[str] = "acme.weighed"
    weight: int
    calls: tuple[ToolCall, ...] = ()

    def apply(self, run: RunState) -> RunState:
        """Change nothing."""
        return run


def test_an_event_may_be_of_the_engine_s_own_kind() -> None:
    """An author who makes thousands of them need not pay for dataclasses."""
    weighing = loop.extend(rows=[before("cancelled", row("weighed", await_model, Weighed, [], failed))])
    event = Weighed(3, (ToolCall("a", "pay", "{}"),))

    assert trace(weighing, [START, event])[-1].row == "weighed"
    assert Codec.of(weighing).decode(Codec.of(weighing).encode(event)) == event
    assert ("weighed", True) in {(name, times > 0) for name, times in explore(weighing, starts=STARTS[2:3]).taken}
