"""Telling a run something from another process: `cancel`, `approve`, `deny`, `settle` and `inject` for a stored run.

A letter waits in the run's mailbox. Whoever drives the run takes it within a moment; when nobody does, it is taken
here, as far as that needs neither a model nor a tool: a cancelled run has ended then, and a decision is in the journal,
for whoever resumes the run.

::

    store = SQLiteStore("runs.db")
    told = await cancel(store, "3f9a0c1b2d4e", "the customer called")
    print(told)  # process 4711 on host 'web-1' drives it, and gets the letter
"""

from __future__ import annotations

from dataclasses import dataclass

from turnstile.core.changes import doubts
from turnstile.core.context import KeepAll
from turnstile.core.errors import NoSuchRun, RunFinished, RunIsLeased, SessionBusy, UsageError
from turnstile.core.events import ApprovalDecided, Cancelled, Event, MessageInjected, RunStarted
from turnstile.core.expecting import expect_text
from turnstile.core.machine import Machine
from turnstile.core.run_state import RunState
from turnstile.driver import Outside, Run, reopen, retold
from turnstile.ports import Clock, Record, Store
from turnstile.replay.replaying import machine_of
from turnstile.shell.clock import SystemClock
from turnstile.shell.toolbox import Toolbox

__all__ = ["Told", "approve", "cancel", "deny", "inject", "settle"]


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a letter.

    Attributes:
        run: The run as it stands, as far as this process knows.
        holder: Who drives it, and will take the letter; empty when nobody does.
        waits: Whether the letter waits for whoever resumes the run.
    """

    run: RunState
    holder: str = ""
    waits: bool = False

    def __str__(self) -> str:
        if self.holder:
            return f"{self.holder} drives it, and gets the letter"
        if self.waits:
            return "nobody drives it, and the letter waits for whoever resumes it"
        if self.run.stop is not None:
            return f"it has ended ({self.run.state}: {self.run.stop.reason})"
        return f"it has taken the letter, and stands in {self.run.state}"


async def cancel(store: Store, run_id: str, why: str = "", *, machine: Machine | None = None) -> Told:
    """Ask a run to stop; one that nobody drives has ended then.

    Args:
        store: Where it is kept.
        run_id: The run.
        why: What it was for; it becomes the stop's detail.
        machine: Its agent's, when that is one of its own.

    Raises:
        NoSuchRun: There is no such run.
        RunFinished: It has ended.
        UsageError: It was made by another machine.
    """
    expect_text("cancel()", why)
    return await _tell(store, await _stands(store, run_id, machine), Cancelled(why))


async def inject(store: Store, run_id: str, text: str, *, machine: Machine | None = None) -> Told:
    """Say something to a run's model; raises as `cancel` does, and a ``UsageError`` for a text that says nothing."""
    expect_text("inject()", text, empty=False)
    return await _tell(store, await _stands(store, run_id, machine), MessageInjected(text))


async def approve(store: Store, run_id: str, call_id: str, *, machine: Machine | None = None) -> Told:
    """Let a call in doubt run again; raises as `settle` does."""
    return await _decide(store, run_id, machine, ApprovalDecided(call_id, "rerun"))


async def deny(store: Store, run_id: str, call_id: str, why: str = "", *, machine: Machine | None = None) -> Told:
    """Do not let a call in doubt run again: the model is told that its outcome is unknown; raises as `settle` does."""
    expect_text("deny()", why)
    return await _decide(store, run_id, machine, ApprovalDecided(call_id, "unknown", why))


async def settle(store: Store, run_id: str, call_id: str, result: str, *, machine: Machine | None = None) -> Told:
    """Give the result of a call in doubt, as the model is to see it.

    Raises:
        NoSuchRun: There is no such run.
        RunFinished: It has ended.
        UsageError: The call is not in doubt, or still at work; or another machine made the run.
    """
    expect_text("settle()", result)
    return await _decide(store, run_id, machine, ApprovalDecided(call_id, "result", result))


@dataclass(frozen=True, slots=True)
class _Standing:
    """A run that has not ended, and the machine that made it."""

    run: RunState
    machine: Machine


async def _stands(store: Store, run_id: str, machine: Machine | None) -> _Standing:
    records = await store.load(run_id)
    if not records:
        raise NoSuchRun(repr(store), run_id)
    machine = machine or machine_of(_start(records[0]))
    run, _ = retold(machine, records)
    if run.finished:
        raise RunFinished(run_id, run.state)
    return _Standing(run, machine)


async def _decide(
    store: Store,
    run_id: str,
    machine: Machine | None,
    letter: ApprovalDecided,
) -> Told:
    standing, call_id = await _stands(store, run_id, machine), letter.call_id
    if call_id in {call.id for call in doubts(standing.run)[2]}:  # begun, and in doubt if its process is gone
        try:
            await _taken_here(store, standing)
        except RunIsLeased as error:
            raise UsageError(
                f"call {call_id!r} of run {run_id!r} is at work, so there is nothing to decide yet: {error.holder} "
                f"drives it; wait for its end, or stop it: turnstile cancel {run_id}"
            ) from error
        standing = await _stands(store, run_id, standing.machine)
    if call_id not in standing.run.in_doubt:
        those = ", ".join(map(repr, standing.run.in_doubt)) or "none"
        raise UsageError(
            f"call {call_id!r} of run {run_id!r} waits for no decision; those that do: {those} "
            f"(turnstile runs show {run_id} tells what became of each)"
        )
    return await _tell(store, standing, letter)


async def _tell(store: Store, standing: _Standing, letter: Event) -> Told:
    holder = await store.post(standing.run.run_id, letter)
    if holder:
        return Told(standing.run, holder)
    try:
        return await _taken_here(store, standing)
    except RunIsLeased as error:  # somebody was faster, and has the letter now
        return Told(standing.run, error.holder)
    except SessionBusy:  # its conversation goes on in another run, so that nobody can drive this one now
        return Told(standing.run, waits=True)


async def _taken_here(store: Store, standing: _Standing) -> Told:
    """Claim the run, and take what needs neither a model nor a tool."""
    clock: Clock = SystemClock()
    outside = Outside(
        machine=standing.machine,
        models=(),
        tools=Toolbox(),
        store=store,
        clock=clock,
        context=KeepAll(),
        vet_output=lambda text: (text, ""),
    )
    found = await reopen(outside, standing.run.run_id, standing.run.fingerprints)
    async with Run(outside, found.run.start, str, found) as live:
        while live.has_mail:
            await live.step()
        return Told(live.snapshot, waits=bool(found.mail.waiting))


def _start(record: Record) -> RunStarted:
    assert isinstance(record.event, RunStarted)  # noqa: S101 - a journal begins so
    return record.event
