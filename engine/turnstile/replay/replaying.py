"""`replay`: a run made again from its records, with the requests that it sent, and where it would go another way now.

No model is asked, no tool runs, and no code of a user's is called: guards read the events as they were vetted then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from turnstile.agent import Agent
from turnstile.core.approval import with_approval
from turnstile.core.errors import NoRow, UsageError
from turnstile.core.events import EffectBegun, RunStarted
from turnstile.core.fold import walk
from turnstile.core.machine import Machine, loop
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.driver.keeper import summary_of
from turnstile.ports import ModelRequest, Record, Summary
from turnstile.replay.changing import Change, changes_of
from turnstile.replay.requests import Requests

OLDER = ("", "unknown")
"""What a store has as the state of a run that is older than summaries."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where a run would go another way now than its journal says.

    Attributes:
        seq: Number of the record, from 1.
        what: What differs: the ``row`` taken, the ``request`` sent, or the ``summary`` kept beside the journal.
        recorded: What the journal says.
        now: What comes of it now.
    """

    seq: int
    what: str
    recorded: str
    now: str

    def __str__(self) -> str:
        return f"record {self.seq}: the {self.what} was {self.recorded}, and is {self.now} now"


@dataclass(frozen=True, slots=True)
class Replay:
    """A run as its records tell it.

    Attributes:
        records: The records.
        machine: The table that it was made again with.
        states: The run after each of them; fewer than the records when it diverged.
        transitions: Every move, with the time it was made and how long its effect took.
        requests: What was asked of models, one for each request that was sent, in order.
        digests: The digest of each.
        divergence: The first place where it would go another way now; ``None`` when there is none.
        changes: What is different about the agent, when one was given.
    """

    records: tuple[Record, ...]
    machine: Machine
    states: tuple[RunState, ...]
    transitions: tuple[Transition, ...]
    requests: tuple[ModelRequest, ...]
    digests: tuple[str, ...] = ()
    divergence: Divergence | None = None
    changes: tuple[Change, ...] = ()

    def __repr__(self) -> str:
        # Short: each of the states holds all messages before it, and asyncio.run spells out what it returns.
        moves, sent = len(self.transitions), len(self.requests)
        return f"Replay({self.run.run_id!r}, {moves} transitions, {sent} requests, divergence={self.divergence!r})"

    @property
    def run(self) -> RunState:
        """The run after its last record, or after the last before it diverged."""
        return self.states[-1]


def replay(
    records: Iterable[Record],
    machine: Machine | None = None,
    *,
    agent: Agent[Any] | None = None,
    summary: Summary | None = None,
) -> Replay:
    """Make a run again from its records alone.

    Args:
        records: All its records, `RunStarted` first.
        machine: The table that it was driven by; without it the agent's, else the built-in one.
        agent: An agent to compare with what the run was begun with; only looked at.
        summary: What the store keeps beside the journal, to be compared with what the journal comes to.

    Raises:
        UsageError: The records don't begin with a `RunStarted`.
    """
    kept = tuple(records)
    if not kept or not isinstance(kept[0].event, RunStarted):
        found = type(kept[0].event).__name__ if kept else "no record at all"
        raise UsageError(f"a run's records begin with RunStarted; got {found}")
    start = kept[0].event
    table = machine or (agent.machine if agent else machine_of(start))
    made = _Making(table, start)
    for seq, (record, moved) in enumerate(zip(kept, _moves(table, kept), strict=False), 1):
        if not made.takes(seq, record, moved):
            break
    divergence = made.divergence or _summary_differs(len(kept), summary, made.states[-1])
    changes = changes_of(start, agent) if agent else ()
    return Replay(
        records=kept,
        machine=table,
        states=tuple(made.states),
        transitions=tuple(made.transitions),
        requests=tuple(made.requests),
        digests=tuple(made.digests),
        divergence=divergence,
        changes=changes,
    )


def machine_of(start: RunStarted) -> Machine:
    """The engine's own machine that a run was begun under, with or without the state in which a human decides."""
    asking = with_approval(loop)
    return asking if dict(start.fingerprints).get("machine") == asking.fingerprint else loop


_Moved = tuple[RunState, Transition | None] | NoRow | ValueError


def _moves(machine: Machine, records: tuple[Record, ...]) -> Iterator[_Moved]:
    """The run after each record with its move, up to one that no row takes, or that does not fit what was before."""
    try:
        events, moments = [record.event for record in records], [(record.at, record.duration_ms) for record in records]
        yield from walk(machine, events, moments)
    except (NoRow, ValueError) as error:
        yield error


class _Making:
    """A replay as it is made, record by record."""

    def __init__(self, machine: Machine, start: RunStarted) -> None:
        self.states: list[RunState] = []
        self.transitions: list[Transition] = []
        self.requests: list[ModelRequest] = []
        self.digests: list[str] = []
        self.divergence: Divergence | None = None
        self._sent = Requests(machine, start)

    def takes(self, seq: int, record: Record, moved: _Moved) -> bool:
        """Take a record; tells whether those that follow are still of the same run."""
        if isinstance(moved, Exception):
            self._differs(seq, "row", record.row or "one of another machine", f"none: {moved}")
            return False
        run, transition = moved
        if isinstance(record.event, EffectBegun) and record.event.request:
            self._sends(seq, record.event, record.at, run)
        self.states.append(run)
        if transition is not None:
            self.transitions.append(transition)
            if record.row not in ("", transition.row):
                self._differs(seq, "row", record.row, transition.row)
                return False
        return True

    def _sends(self, seq: int, event: EffectBegun, at: float, run: RunState) -> None:
        again = self._sent.again(self.states[-1], run, event, at)
        if again is None:
            self._differs(seq, "request", event.request, f"none: state {run.state!r} cannot send it")
            return
        request, digest = again
        self.requests.append(request)
        self.digests.append(digest)
        if digest != event.request:
            self._differs(seq, "request", event.request, digest)

    def _differs(self, seq: int, what: str, recorded: str, now: str) -> None:
        self.divergence = self.divergence or Divergence(seq, what, recorded, now)


def _summary_differs(seq: int, kept: Summary | None, run: RunState) -> Divergence | None:
    if kept is None or kept.state in OLDER:
        return None
    now = summary_of(run)
    return None if kept == now else Divergence(seq, "summary", str(kept), str(now))
