"""`audit`: whether a stored run is what was written, and comes to what the store says of it."""

from __future__ import annotations

from dataclasses import dataclass

from turnstile.core.errors import CodecError, NoSuchRun, RecordDamaged, StoreDamaged
from turnstile.core.machine import Machine
from turnstile.ports import Store, Summary
from turnstile.replay.exporting import place_of
from turnstile.replay.replaying import replay


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


async def audit(store: Store, run_id: str, machine: Machine | None = None, summary: Summary | None = None) -> Audit:
    """Check a run: its hash chain, the row that each record took, each request, and the summary beside the journal.

    Args:
        store: The store.
        run_id: The run.
        machine: The table that it was driven by; without it the engine's own.
        summary: What the store keeps beside the journal; `Store.runs` gives it.

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
    again = replay(records, machine, summary=summary)
    problem = "" if again.divergence is None else f"run {run_id!r}, {again.divergence}"
    return Audit(run_id, len(records), problem)
