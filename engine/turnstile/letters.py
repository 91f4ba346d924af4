"""Telling a run something from another process: `cancel`, `approve`, `deny`, `settle` and `inject` for a stored run.

A letter waits in the run's mailbox. Whoever drives the run takes it within a moment; when nobody does, it is taken
here, as far as that needs neither a model nor a tool: a cancelled run has ended then, and a decision is in the journal,
for whoever resumes the run.

::

    store = SQLiteStore("runs.db")
    told = await cancel(store, "3f9a0c1b2d4e", "the customer called")
    print(told)  # process 4711 on host 'web-1' has the letter
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnstile.core.changes import doubts
from turnstile.core.context import KeepAll
from turnstile.core.errors import NoSuchRun, RunFinished, RunIsLeased, UsageError
from turnstile.core.events import ApprovalDecided, Cancelled, Event, MessageInjected, RunStarted
from turnstile.core.machine import Machine
from turnstile.core.run_state import RunState
from turnstile.driver import Outside, Run, find, told
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
            return f"{self.holder} has the letter"
        return (
            "the letter waits for who resumes the run"
            if self.waits
            else f"done here, and it stands in {self.run.state}"
        )


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
    """
    return await _tell(store, run_id, machine, lambda _: Cancelled(why))


async def inject(store: Store, run_id: str, text: str, *, machine: Machine | None = None) -> Told:
    """Say something to a run's model; raises as `cancel` does."""
    return await _tell(store, run_id, machine, lambda _: MessageInjected(text))


async def approve(store: Store, run_id: str, call_id: str, *, machine: Machine | None = None) -> Told:
    """Let a call in doubt run again; raises as `settle` does."""
    return await _tell(store, run_id, machine, lambda run: _decision(run, call_id, ApprovalDecided(call_id, "rerun")))


async def deny(store: Store, run_id: str, call_id: str, why: str = "", *, machine: Machine | None = None) -> Told:
    """Do not let a call in doubt run again: the model is told that its outcome is unknown; raises as `settle` does."""
    decided = ApprovalDecided(call_id, "unknown", why)
    return await _tell(store, run_id, machine, lambda run: _decision(run, call_id, decided))


async def settle(store: Store, run_id: str, call_id: str, result: str, *, machine: Machine | None = None) -> Told:
    """Give the result of a call in doubt, as the model is to see it.

    Raises:
        NoSuchRun: There is no such run.
        RunFinished: It has ended.
        UsageError: The call is not in doubt.
    """
    decided = ApprovalDecided(call_id, "result", result)
    return await _tell(store, run_id, machine, lambda run: _decision(run, call_id, decided))


def _decision(run: RunState, call_id: str, decided: ApprovalDecided) -> ApprovalDecided:
    """The decision, if there is something to decide."""
    asked = {*run.in_doubt, *(call.id for call in doubts(run)[2])} if run.open else set[str]()
    if call_id not in asked:
        those = ", ".join(sorted(map(repr, asked))) or "none"
        msg = f"call {call_id!r} of run {run.run_id!r} is not in doubt; those that a human is asked about: {those}"
        raise UsageError(msg)
    return decided


async def _tell(store: Store, run_id: str, machine: Machine | None, letter: Callable[[RunState], Event]) -> Told:
    records = await store.load(run_id)
    if not records:
        raise NoSuchRun(repr(store), run_id)
    machine = machine or machine_of(_start(records[0]))
    run, _ = told(machine, records)
    if run.finished:
        raise RunFinished(run_id, run.state)
    holder = await store.post(run_id, letter(run))
    if holder:
        return Told(run, holder)
    try:
        return await _taken_here(store, machine, run)
    except RunIsLeased as error:  # somebody was faster, and has the letter now
        return Told(run, error.holder)


async def _taken_here(store: Store, machine: Machine, run: RunState) -> Told:
    """Claim the run, and take what needs neither a model nor a tool."""
    clock: Clock = SystemClock()
    outside = Outside(
        machine=machine,
        models=(),
        tools=Toolbox(),
        store=store,
        clock=clock,
        context=KeepAll(),
        vet_output=lambda text: (text, ""),
    )
    found = await find(outside, run.run_id, run.fingerprints)
    async with Run(outside, run.start, str, found) as live:
        while live.has_mail:
            await live.step()
        return Told(live.snapshot, waits=bool(found.mail))


def _start(record: Record) -> RunStarted:
    assert isinstance(record.event, RunStarted)  # noqa: S101 - a journal begins so
    return record.event
