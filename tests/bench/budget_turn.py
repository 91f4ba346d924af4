"""What a turn writes to the journal and leaves behind in memory, counted; printed as JSON.

Usage: ``python budget_turn.py``, in an environment that has Turnstile.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from contenders.turnstile import Script
from journal_file import logged
from turnstile import Agent, Limits
from turnstile.core.codec import Codec
from turnstile.core.machine import loop
from turnstile.ports import Store
from turnstile.stores import MemoryStore, SQLiteStore
from work import PROMPT, Job, make_tool

TURNS = 20
LONG = 10 * TURNS


def run(store: Store, turns: int) -> str:
    """One run of that many turns in a store; gives its id."""
    job = Job(rounds=turns - 1)
    agent = Agent(Script(job), tools=[make_tool(job)], limits=Limits(turns=turns), store=store)
    result = agent.run_sync(PROMPT)
    assert result.output == job.answer
    return result.run_id


def journal() -> Iterator[tuple[str, float]]:
    """Records and their bytes, of a short run and of a long one."""
    codec = Codec.of(loop)
    for turns in (TURNS, LONG):
        store = MemoryStore()
        records = asyncio.run(store.load(run(store, turns)))
        yield f"records a turn, of {turns}", len(records) / turns
        yield f"bytes a turn, of {turns}", sum(len(codec.encode(record.event)) for record in records) / turns


def commits() -> Iterator[tuple[str, float]]:
    """Commits of a run that is kept on disk, counted in the write-ahead log."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        run(SQLiteStore(path), TURNS)
        count = logged(path.with_name("runs.db-wal").read_bytes())
    yield f"commits a turn, of {TURNS}", count / TURNS


def memory() -> Iterator[tuple[str, float]]:
    """What is still allocated after a run: the difference between a long one and a short one."""
    short, long = held(TURNS), held(LONG)
    yield "bytes held a turn", (long[0] - short[0]) / (LONG - TURNS)
    yield "blocks held a turn", (long[1] - short[1]) / (LONG - TURNS)


def held(turns: int) -> tuple[int, int]:
    """Bytes and blocks that a run of that many turns leaves behind in a store that keeps it."""
    gc.collect()
    tracemalloc.start()
    store = MemoryStore()
    run(store, turns)
    gc.collect()
    statistics = tracemalloc.take_snapshot().statistics("filename")
    tracemalloc.stop()
    return sum(one.size for one in statistics), sum(one.count for one in statistics)


if __name__ == "__main__":
    print(json.dumps({**dict(journal()), **dict(commits()), **dict(memory())}))
