"""`fork`: a new run that shares its beginning with another, with something of that changed.

What was done is done: a call that was begun before the fork is never run again. A fork belongs to no session, since it
would take the conversation's place; what was said before stands in its own first record. Its deadline is counted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from turnstile.agent import Agent, nature_of
from turnstile.agent import new_run_id as another_id
from turnstile.core.errors import Changed, NoSuchRun, UsageError
from turnstile.core.events import (
    CallFinished,
    CallStarted,
    EffectBegun,
    EffectLost,
    Event,
    RunStarted,
    ToolsFinished,
)
from turnstile.core.fold import fold
from turnstile.core.messages import ToolResult
from turnstile.core.run_state import RunState, at_work
from turnstile.core.step import note, step
from turnstile.core.values import evolve
from turnstile.driver import changed
from turnstile.driver.keeper import summary_of
from turnstile.options import Models
from turnstile.ports import Letter, Record, Store
from turnstile.replay.exporting import place_of
from turnstile.replay.replaying import Replay, replay

UNKNOWN = "outcome unknown: it was begun in the run that this one was forked from"


async def fork(
    store: Store,
    agent: Agent[Any],
    run_id: str,
    at: int,
    *,
    model: Models | None = None,
    prompt: str | None = None,
    results: Mapping[str, str] | None = None,
    new_run_id: str | None = None,
    accept_changes: bool = False,
) -> str:
    """Write a new run that begins as another did, and give its id; `Agent.resume` goes on with it.

    Args:
        store: Keeps both.
        agent: What the new run will go on with; its machine is the table.
        run_id: The run to fork.
        at: Number of the last transition that both share; 0 for none.
        model: In place of the run's models.
        prompt: In place of what the user asked.
        results: In place of what tools gave: the new content, by id of the call.
        new_run_id: A name of your own for the new run.
        accept_changes: Whether it goes on though the machine or a tool is not what it was.

    Raises:
        NoSuchRun: The store has no such run.
        UsageError: The run has no such transition, or has ended with it; a result is not there to be replaced; or with
            what is changed the run would not have come this way.
        Changed: The machine or a tool is not what it was.
        RunExists: There is a run of the new id.
    """
    records = await store.load(run_id)
    if not records:
        raise NoSuchRun(place_of(store), run_id)
    whole = replay(records, agent.machine)
    shared = _shared(whole, at)
    now = agent.clock.time()
    _check_results(shared, results or {}, at)
    start = _start(whole, at, agent, model, prompt, accept_changes=accept_changes)
    if new_run_id is not None:
        start = evolve(start, run_id=new_run_id)
    edited = [evolve(record, event=_with(record.event, results or {})) for record in shared]
    edited[0] = Record(start, now)
    digests = replay(edited, agent.machine).digests
    begun = replay(_digested(edited, digests), agent.machine)
    if begun.divergence is not None:
        raise UsageError(
            f"with these changes run {run_id!r} would not have come to its transition {at}: {begun.divergence}; "
            "fork it at an earlier one"
        )
    settled = (*begun.records, *_settled(begun, now))
    run = fold(agent.machine, [record.event for record in settled])
    if run.finished:
        raise UsageError(f"run {run_id!r} was ending at its transition {at}, so a fork could not go on; fork it before")
    await _write(store, settled, begun.states[0], run)
    return run.run_id


async def _write(store: Store, records: Sequence[Record], first: RunState, last: RunState) -> None:
    """Write the records of a run that nobody drives yet; it is `first` with the first of them, `last` with all."""
    lease = await store.create(records[0], summary_of(first), _unheard)
    try:
        if records[1:]:
            await store.append(lease, records[1:], summary_of(last))
    finally:
        store.release(lease)


def _unheard(letter: Letter) -> None:
    """A letter that comes while the fork is written waits for whoever goes on with it."""


def _shared(whole: Replay, at: int) -> Sequence[Record]:
    """The records through a transition."""
    run_id, last = whole.run.run_id, len(whole.transitions)
    if at not in range(last + 1):
        has = f"the transitions 1 to {last}" if last else "no transition yet"
        raise UsageError(f"run {run_id!r} has {has}; got {at!r} to fork it at (0 for its start)")
    length = next(place for place, run in enumerate(whole.states, 1) if run.seq == at)
    if whole.states[length - 1].finished:
        raise UsageError(f"run {run_id!r} ended with its transition {at}, so a fork could not go on; fork it before")
    return whole.records[:length]


def _start(
    whole: Replay, at: int, agent: Agent[Any], model: Models | None, prompt: str | None, *, accept_changes: bool
) -> RunStarted:
    """The first record of a fork: as it was, with what the agent is now."""
    start, limits, now = whole.run.start, whole.run.start.limits, agent.clock.time()
    if prompt is not None and not prompt.strip():
        raise UsageError("the fork's prompt is empty; leave it out to keep the run's own")
    clients = None if model is None else agent.clients(model)
    models = start.models if clients is None else tuple(client.name for client in clients)
    nature = nature_of(agent, models)
    changes = tuple(change for change in changed(whole.run.fingerprints, nature) if change[0] != "model")
    if changes and not accept_changes:
        raise Changed(start.run_id, changes)
    prices = start.prices
    if clients is not None:
        prices = tuple(None if limits.cost is None else client.price for client in clients)
    return evolve(
        start,
        run_id=another_id(),
        prompt=start.prompt if prompt is None else prompt,
        session=None,
        deadline=None if limits.seconds is None else now + limits.seconds,
        models=models,
        prices=prices,
        fingerprints=nature,
        tools=agent.toolbox.specs,
        settings=dict(agent.settings),
        output_schema=None if agent.output.schema is None else dict(agent.output.schema),
        forked_from=f"{start.run_id}@{at}",
    )


def _with(event: Event, contents: Mapping[str, str]) -> Event:
    """An event that brings results, with some of their contents replaced."""

    def other(result: ToolResult) -> ToolResult:
        return evolve(result, content=contents.get(result.call_id, result.content))

    if isinstance(event, CallFinished):
        return evolve(event, result=other(event.result))
    if isinstance(event, ToolsFinished):
        return evolve(event, results=tuple(map(other, event.results)))
    return event


def _check_results(records: Sequence[Record], contents: Mapping[str, str], at: int) -> None:
    there = [result.call_id for record in records for result in _results(record.event)]
    for call_id in contents:
        if call_id not in there:
            known = f"there are {', '.join(map(repr, there))}" if there else "no call has one by then"
            raise UsageError(f"call {call_id!r} has no result up to transition {at} that could be replaced; {known}")


def _results(event: Event) -> tuple[ToolResult, ...]:
    if isinstance(event, CallFinished):
        return (event.result,)
    return event.results if isinstance(event, ToolsFinished) else ()


def _digested(records: Sequence[Record], digests: Iterable[str]) -> Iterator[Record]:
    """The records, with the digests of the requests that the changed run would have sent."""
    new = iter(digests)
    for record in records:
        event = record.event
        if isinstance(event, EffectBegun) and event.request:
            event = evolve(event, request=next(new, event.request))
        yield evolve(record, event=event)


def _settled(begun: Replay, now: float) -> Iterator[Record]:
    """What closes the shared beginning: calls that were begun end as unknown, and what was in flight is lost."""
    run, events = begun.run, [record.event for record in begun.records]
    started = at_work(run) | {event.call_id for event in events if isinstance(event, CallStarted)}
    settled = {result.call_id for result in run.results or run.receipts} | {*run.in_doubt}
    for call in run.open.reply.calls if run.open else ():
        if call.id in started - settled:
            unknown = CallFinished(ToolResult(call.id, call.name, UNKNOWN, "unknown"))
            run = note(run, unknown)
            yield Record(unknown, now)
    if run.in_flight:
        yield Record(EffectLost(), now, row=step(begun.machine, run, EffectLost()).transition.row)
