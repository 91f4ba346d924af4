"""`audit`: whether a stored run is what was written, and comes to what the store says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnstile.core.errors import CodecError, NoSuchRun, RecordDamaged, StoreDamaged
from turnstile.core.events import RunStarted
from turnstile.core.machine import Machine
from turnstile.ports import Record, RunEntry, Store
from turnstile.replay.exporting import place_of
from turnstile.replay.replaying import replay
from turnstile.shell.stores.prompts import first_line


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit of a run found.

    Attributes:
        run_id: The run.
        records: How many records it has, as far as they can be read.
        problem: What is wrong with it, naming the record; empty when nothing is.
    """

    run_id: str
    records: int
    problem: str = ""


async def audit(store: Store, run_id: str, machine: Machine | None = None, entry: RunEntry | None = None) -> Audit:
    """Check a run: its hash chain, the row that each record took, each request, and what lists show of it.

    Args:
        store: The store.
        run_id: The run.
        machine: The table that it was driven by; without it the engine's own.
        entry: What lists show of it, which the store keeps beside the journal; `Store.runs` gives it.

    Raises:
        NoSuchRun: The store has no such run.
        StoreError: The store cannot be read; damage is no error here, but what is looked for.
    """
    try:
        records = await store.load(run_id)
    except StoreDamaged as error:
        return Audit(run_id, error.seq - 1 if isinstance(error, RecordDamaged) else 0, str(error))
    except CodecError as error:
        return Audit(run_id, 0, f"run {run_id!r} cannot be made again: {error}")
    if not records:
        raise NoSuchRun(place_of(store), run_id)
    again = replay(records, machine, summary=entry.summary if entry is not None else None)
    if again.divergence is not None:
        return Audit(run_id, len(records), f"run {run_id!r}, {again.divergence}")
    return Audit(run_id, len(records), "" if entry is None else _listed_wrongly(entry, records))


def _listed_wrongly(entry: RunEntry, records: Sequence[Record]) -> str:
    """What a list says of a run that its journal does not; empty when they agree."""
    start = records[0].event
    assert isinstance(start, RunStarted)  # noqa: S101 - a replay has begun with it
    told = {
        "agent": (entry.agent, start.agent),
        "session": (entry.session, start.session),
        "start": (entry.started, records[0].at),
        "time": (entry.at, records[-1].at),
        "number of records": (entry.records, len(records)),
    }
    if entry.prompt:  # a run from before prompts were listed has none
        told["prompt"] = (entry.prompt, first_line(start.prompt))
    wrong = [
        f"the {what} is {listed!r}, and {kept!r} in its journal"
        for what, (listed, kept) in told.items()
        if listed != kept
    ]
    return f"run {entry.run_id!r} is listed wrongly: {'; '.join(wrong)}" if wrong else ""
