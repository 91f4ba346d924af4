"""What resuming a run begins with: its lease, its state from the journal, and what its last process left behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnstile.core.changes import doubts
from turnstile.core.errors import Changed, NoRow, NoSuchRun, RunFinished, UsageError
from turnstile.core.events import ChangesAccepted, EffectLost, ModelFailed, RunStarted
from turnstile.core.fold import walk
from turnstile.core.machine import Machine
from turnstile.core.messages import ToolCall
from turnstile.core.run_state import RunState, at_work
from turnstile.core.step import Transition, note
from turnstile.driver.keeper import summary_of
from turnstile.driver.mail import Mail
from turnstile.driver.perform import Outside
from turnstile.ports import Lease, Record

Fingerprints = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found when a run was resumed.

    Attributes:
        request_lost: Whether a model request was under way; it is sent again.
        finished: The open calls whose results are kept.
        rerun: The open calls that were begun and may run again: those that read, or are idempotent.
        in_doubt: The open calls that were begun and may not run again: nobody knows whether they did their work.
        unstarted: The open calls that were not begun; they run now.
    """

    request_lost: bool = False
    finished: tuple[ToolCall, ...] = ()
    rerun: tuple[ToolCall, ...] = ()
    in_doubt: tuple[ToolCall, ...] = ()
    unstarted: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A run as its journal has it, ready to go on.

    Attributes:
        run: Its state.
        transitions: The moves that it made.
        lease: The right to go on with it.
        mail: What waits for it.
        recovery: What its last process left behind.
        due: When the wait before a request ends, that was begun before; ``None`` when there is none.
    """

    run: RunState
    transitions: tuple[Transition, ...]
    lease: Lease
    mail: Mail
    recovery: Recovery
    due: float | None = None


async def reopen(outside: Outside, run_id: str, now: Fingerprints, *, accept_changes: bool = False) -> Found:
    """Claim a stored run, and make its state from its journal.

    Args:
        outside: What it goes on with.
        run_id: The run.
        now: Names and digests of the machine, the models and the tools that it would go on under.
        accept_changes: Whether it goes on though these have changed; the journal says so.

    Raises:
        NoSuchRun: The store has no such run.
        RunFinished: It has ended.
        RunIsLeased: Somebody drives it.
        Changed: The machine, a model or a tool is not what it was.
        UsageError: The machine cannot have made this journal.
    """
    entry = await outside.store.entry(run_id)
    if entry is not None and entry.summary.state in {state.name for state in outside.machine.states if state.final}:
        raise RunFinished(run_id, entry.summary.state)  # without a claim, which would keep others from saying the same
    mail = Mail(run_id)
    lease = await outside.store.claim(run_id, mail)
    try:
        return await _found(outside, lease, mail, now, accept_changes=accept_changes)
    except BaseException:
        outside.store.release(lease)
        raise


async def _found(outside: Outside, lease: Lease, mail: Mail, now: Fingerprints, *, accept_changes: bool) -> Found:
    run_id = lease.run_id
    records = await outside.store.load(run_id)
    if not records:
        raise NoSuchRun(repr(outside.store), run_id)
    run, transitions = retold(outside.machine, records)
    if run.finished:
        raise RunFinished(run_id, run.state)
    changes = changed(run.fingerprints, now)
    if changes and not accept_changes:
        raise Changed(run_id, changes)
    if changes:
        accepted = ChangesAccepted(now)
        await outside.store.append(lease, [Record(accepted, outside.clock.time())], summary_of(run))
        run = note(run, accepted)
    recovery = _recovery(run)
    if run.in_flight:
        mail.put_first(EffectLost())
    return Found(run, transitions, lease, mail, recovery, _due(run, records))


def retold(machine: Machine, records: Sequence[Record]) -> tuple[RunState, tuple[Transition, ...]]:
    """The run that these records tell of, and its transitions.

    Raises:
        UsageError: The machine cannot have made them.
    """
    transitions: list[Transition] = []
    run: RunState | None = None
    try:
        moments = ((record.at, record.duration_ms) for record in records)
        steps = walk(machine, (record.event for record in records), moments)
        for record, (after, move) in zip(records, steps, strict=True):
            run = after
            if move is None:
                continue
            if record.row and record.row != move.row:  # it would be somewhere else from here on, unseen
                raise UsageError(_foreign(records, f"row {record.row!r} was taken where this one takes {move.row!r}"))
            transitions.append(move)
    except NoRow as error:
        raise UsageError(_foreign(records, str(error))) from error
    assert run is not None  # noqa: S101 - there are records
    return run, tuple(transitions)


def _foreign(records: Sequence[Record], why: str) -> str:
    start = records[0].event
    assert isinstance(start, RunStarted)  # noqa: S101 - a journal begins so
    way_out = f"give the agent that it was begun with (--agent {start.origin or 'AGENT'}), or its machine"
    return f"run {start.run_id!r} was made by another machine than this one ({why}); {way_out}"


def changed(was: Fingerprints, now: Fingerprints) -> tuple[tuple[str, str | None, str | None], ...]:
    """Each name whose digest is not what it was, with both."""
    before, after = dict(was), dict(now)
    names = dict.fromkeys((*before, *after))
    return tuple((name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name))


def _recovery(run: RunState) -> Recovery:
    if not run.in_flight:
        return Recovery()
    if run.open is None:
        return Recovery(request_lost=run.state == "await_model")
    again, told_of, asked = doubts(run)
    kept = {result.call_id for result in run.receipts}
    begun = at_work(run)
    calls = run.open.reply.calls
    return Recovery(
        finished=tuple(call for call in calls if call.id in kept),
        rerun=tuple(call for call in calls if call.id in again),
        in_doubt=(*told_of, *asked),
        unstarted=tuple(call for call in calls if call.id not in kept | begun),
    )


def _due(run: RunState, records: Sequence[Record]) -> float | None:
    """When the wait before the request that is sent again ends."""
    if run.failure is None or not run.failure.delay or not run.retries:
        return None
    failed = next(record for record in reversed(records) if isinstance(record.event, ModelFailed))
    return failed.at + run.failure.delay
