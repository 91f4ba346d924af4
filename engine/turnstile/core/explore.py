"""`explore`: tries everything on a machine that can happen to a run, and reports what must not be.

It drives the real `step`, breadth first, from a few runs with small limits. Runs that differ in nothing a guard reads
count as one *situation*; every event is tried in every situation: each reply and failure, each crash, cancellation and
deadline, with the effect begun and before. Situations hold all counters, so a path that leads back to a situation has
spent none, and unless someone outside spends a message or an order for each round of it, such a run might never end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from turnstile.core.alphabet import STARTS, Alphabet, events_in, survives_crash
from turnstile.core.budget import over_budget
from turnstile.core.effects import RunTools
from turnstile.core.errors import NoRow
from turnstile.core.events import (
    RECEIPTS,
    ApprovalDecided,
    CallFinished,
    CallStarted,
    Cancelled,
    DeadlinePassed,
    Event,
    MessageInjected,
    ModelReplied,
    RunStarted,
)
from turnstile.core.machine import Machine, loop
from turnstile.core.messages import Message, Reply, ToolResult, UserTurn
from turnstile.core.run_state import RunState, begin_run
from turnstile.core.step import effect_of, note, step

OUTSIDE = (Cancelled, DeadlinePassed, MessageInjected, ApprovalDecided)
"""Events that someone outside spends, so that they may come round without the run spending anything."""

Kind = Literal[
    "no row", "dead row", "unreached state", "free cycle", "moved after its end", "no stop", "past its limit",
    "unanswered", "done twice", "lost text", "raised", "endless",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be.

    Attributes:
        kind: What sort of thing.
        what: It, in one line.
        events: The events that lead there, `RunStarted` first, ready for `fold`; empty for what was found nowhere.
    """

    kind: Kind
    what: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        names = [(name, len(list(same))) for name, same in groupby(type(event).__name__ for event in self.events)]
        path = " → ".join(name if times == 1 else f"{name} × {times}" for name, times in names)
        return f"{self.kind}: {self.what}" + (f"\n    after {path}" if path else "")


@dataclass(frozen=True, slots=True)
class Report:
    """What an exploration found.

    Attributes:
        machine: The machine's fingerprint.
        situations: How many situations there are.
        moves: How many moves were tried.
        taken: For each row, in the table's order, how often it was taken.
        endings: The reasons why runs stopped, sorted.
        findings: All that must not be; empty for a sound machine.
    """

    machine: str
    situations: int
    moves: int
    taken: tuple[tuple[str, int], ...]
    endings: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the machine is sound."""
        return not self.findings

    def __str__(self) -> str:
        lines = [
            f"machine {self.machine}: {len(self.taken)} rows",
            f"explored {self.situations} situations by {self.moves} moves",
            f"runs stopped by {', '.join(self.endings)}",
        ]
        if self.ok:
            lines += [
                "every event has a row where it can come, and every row is taken",
                "every cycle spends a counter, and a finished run never moves",
                "every call is answered exactly once, and no text of the user is lost",
                "no call that may have changed the world is begun again unasked, and none that has a result",
            ]
        return "\n".join(lines + [str(finding) for finding in self.findings])


class _Place(NamedTuple):
    """A run that stands for its situation, and how it came there; `spent` are the calls that may not begin any more."""

    run: RunState
    calls: tuple[str, ...]
    texts: tuple[str, ...]
    spent: frozenset[str]
    before: _Place | None
    event: Event

    @property
    def events(self) -> tuple[Event, ...]:
        """All events from the run's start on."""
        earlier = self.before.events if self.before else ()
        return (*earlier, self.event)


def explore(
    machine: Machine = loop,
    *,
    starts: Iterable[RunStarted] = STARTS,
    events: Mapping[str, Alphabet] | None = None,
    outside: Collection[type[Event]] = (),
    most: int = 5_000,
) -> Report:
    """Try all that can happen to a run.

    Args:
        machine: The machine to explore.
        starts: Runs to start from; small limits keep the exploration short.
        events: For states by name, the events that their effects may bring. Without it the engine's own events are
            tried, and an extension's in every combination of a few values of their fields.
        outside: An extension's events that someone outside spends, such as a person who decides.
        most: How many situations of one start are looked at; the table's own are a few hundred. A machine that has more
            counts something without a limit.

    Raises:
        UsageError: An extension's event has a field for which no values are known; hand its state's events over.
    """
    search = _Search(machine, events or {}, {*OUTSIDE, *outside})
    for start in starts:
        search.explore(start, most)
    return search.report()


def situation(run: RunState) -> Hashable:
    """All of a run that a guard may read, and nothing that only grows; equal for runs that no event can tell apart."""
    if run.stop:
        return run.state, run.stop.reason, run.stop.exhausted
    limits = run.limits
    has_budget = limits.tokens is not None or limits.cost is not None
    return (
        (run.state, run.in_flight, run.stopping),
        (run.turns, run.retries, run.recoveries, run.nudges, run.repairs, run.model, run.trimmed, run.wrapping_up),
        run.tool_calls if limits.tool_calls is not None else 0,
        run.batch if limits.repeats is not None else None,
        (run.charged_tokens, run.charged_cost, over_budget(run)) if has_budget else None,
        tuple(verdict.digest for verdict in run.open.verdicts) if run.open else None,
        _progress(run, run.open) if run.open and not run.results else None,
        (bool(run.results), bool(run.inbox), run.history.ends_with_results),
        min(len(run.history) - run.window_start, 3),  # more than a question and what follows it can be trimmed
    )


def _progress(run: RunState, opened: ModelReplied) -> Hashable:
    """How far each open call is, and what a crash would make of it where the run survives that."""
    counts, survives = run.limits.repeats is not None, survives_crash(run)
    settled = {result.call_id: result.content if counts else "" for result in run.receipts}
    begun = {intent.call_id for intent in run.started}
    return tuple(
        settled.get(verdict.call_id, verdict.call_id in run.in_doubt)
        if verdict.call_id in settled or verdict.call_id in run.in_doubt or not survives
        else (verdict.call_id in begun, verdict.access, verdict.on_in_doubt)
        for verdict in opened.verdicts
    )


class _Search:
    """An exploration under way."""

    def __init__(self, machine: Machine, given: Mapping[str, Alphabet], outside: Collection[type[Event]]) -> None:
        self._machine = machine
        self._given = given
        self._outside = outside
        self._tried: dict[type[Event], Event] = {}
        self._moves = self._situations = 0
        self._taken: Counter[str] = Counter()
        self._reached: set[str] = set()
        self._endings: set[str] = set()
        self._findings: dict[tuple[Kind, str], Finding] = {}

    def explore(self, start: RunStarted, most: int) -> None:
        """Try everything on a run that starts so."""
        run = begin_run(start)
        places = {situation(run): _Place(run, (), _said(run.messages, run.inbox), frozenset(), None, start)}
        queue = deque(places)
        edges: dict[Hashable, dict[Hashable, str]] = {}
        while queue and len(places) < most:
            here = queue.popleft()
            for place in self._moves_from(places[here]):
                there = situation(place.run)
                if type(place.event) not in self._outside:
                    edges.setdefault(here, {})[there] = type(place.event).__name__
                if there not in places:
                    places[there] = place
                    queue.append(there)
        self._situations += len(places)
        for place in places.values():
            if place.run.stop:
                self._check_end(place, place.run.stop.reason)
        if queue:
            what = f"more than {most} situations: something is counted without a limit"
            self._find("endless", what, places[queue[-1]])
        else:
            self._check_cycles(edges, places)

    def _moves_from(self, place: _Place) -> Iterator[_Place]:
        state = self._machine.state(place.run.state)
        self._reached.add(state.name)
        if state.final:
            return
        for event in events_in(self._machine, place.run, self._given):
            self._moves += 1
            self._tried[type(event)] = event
            after = self._move(place, event)
            if after is None:
                continue
            flaws = list(self._flaws(after))
            for kind, what in flaws:
                self._find(kind, what, after)
            if not flaws:
                yield after

    def _move(self, place: _Place, event: Event) -> _Place | None:
        if isinstance(event, RECEIPTS):
            spent = place.spent | _spent(place.run, event)
            return place._replace(run=note(place.run, event), spent=spent, before=place, event=event)
        try:
            taken = step(self._machine, place.run, event)
        except NoRow as error:
            self._find("no row", str(error), place, event)
            return None
        except Exception as error:  # noqa: BLE001 - whatever a row's guard or change raises is a finding
            self._find("raised", f"{type(event).__name__} in {place.run.state!r}: {error!r}", place, event)
            return None
        self._taken[taken.transition.row] += 1
        calls = tuple(call.id for call in event.reply.calls) if isinstance(event, ModelReplied) else ()
        texts = (event.text,) if isinstance(event, MessageInjected) else ()
        freed = {event.call_id} if isinstance(event, ApprovalDecided) and event.decision == "rerun" else set[str]()
        return _Place(taken.run, place.calls + calls, place.texts + texts, place.spent - freed, place, event)

    def _flaws(self, place: _Place) -> Iterator[tuple[Kind, str]]:
        """What is wrong with a run that a move has led to."""
        run, state, limits = place.run, self._machine.state(place.run.state), place.run.limits
        messages = run.messages
        asked = tuple([call.id for message in messages if isinstance(message, Reply) for call in message.calls])
        answered = tuple([message.call_id for message in messages if isinstance(message, ToolResult)])
        if not asked == answered == place.calls or (state.final and run.open):
            yield "unanswered", f"not each call has one answer in {state.name!r}"
        effect = effect_of(self._machine, run) if place.spent and not run.in_flight else None
        if isinstance(effect, RunTools) and not place.spent.isdisjoint(call.id for call in effect.calls):
            yield "done twice", f"a call that may have done its work is begun again in {state.name!r}"
        if _said(messages, run.inbox) != place.texts:
            yield "lost text", f"what the user said is neither sent nor kept in {state.name!r}"
        if run.turns > limits.turns + (limits.on_exhausted == "wrap_up"):
            yield "past its limit", f"{run.turns} turns of {limits.turns} in {state.name!r}"
        if limits.tool_calls is not None and run.tool_calls > limits.tool_calls:
            yield "past its limit", f"{run.tool_calls} calls of {limits.tool_calls} in {state.name!r}"
        if state.final != run.finished:
            yield "no stop", f"{state.name!r} is {'final' if state.final else 'live'}, and its stop is {run.stop}"

    def _check_end(self, place: _Place, reason: str) -> None:
        self._endings.add(reason)
        for event in self._tried.values():
            try:
                step(self._machine, place.run, event)
            except NoRow:
                continue
            self._find("moved after its end", f"{type(event).__name__} moves {place.run.state!r}", place, event)

    def _check_cycles(
        self, edges: Mapping[Hashable, Mapping[Hashable, str]], places: Mapping[Hashable, _Place]
    ) -> None:
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            cycle = list(reversed(error.args[1]))
            path = "".join(f"{places[a].run.state} --{edges[a][b]}--> " for a, b in pairwise(cycle))
            self._find("free cycle", f"{path}{places[cycle[-1]].run.state} spends no counter", places[cycle[0]])

    def _find(self, kind: Kind, what: str, place: _Place, event: Event | None = None) -> None:
        """Keep a finding once, by the first and so the shortest way that leads to it."""
        if (kind, what) not in self._findings:
            self._findings[kind, what] = Finding(kind, what, place.events if event is None else (*place.events, event))

    def report(self) -> Report:
        """What was found, with what was found nowhere."""
        findings = list(self._findings.values())
        findings += [Finding("dead row", str(row)) for row in self._machine.rows if not self._taken[row.name]]
        findings += [
            Finding("unreached state", state.name) for state in self._machine.states if state.name not in self._reached
        ]
        taken = tuple((row.name, self._taken[row.name]) for row in self._machine.rows)
        endings = tuple(sorted(self._endings))
        return Report(self._machine.fingerprint, self._situations, self._moves, taken, endings, tuple(findings))


def _spent(run: RunState, receipt: Event) -> set[str]:
    """The call that may not begin any more after this receipt: it has a result, or it changes the world."""
    if isinstance(receipt, CallFinished):
        return {receipt.result.call_id}
    if not isinstance(receipt, CallStarted) or run.open is None:
        return set()
    return {
        found.call_id for found in run.open.verdicts if found.access == "write" and found.call_id == receipt.call_id
    }


def _said(messages: Iterable[Message], inbox: tuple[str, ...]) -> tuple[str, ...]:
    """All that the user said, sent or kept."""
    return (*[item.text for item in messages if isinstance(item, UserTurn) and not item.synthetic], *inbox)
