"""Campaign 12: journals that earlier versions wrote are read, folded, replayed and gone on with.

``tests/histories`` has a file for each format; `histories` says what is in it, and makes the next one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from crashing import Remembered
from histories import RUNS, answer, subject
from invariants import violations
from ledger import Entry, Ledger
from stored import case_of, one, opened, run_ids
from tally import Tally
from through import Noting
from turnstile import ToolContext
from turnstile.core.errors import RunFinished
from turnstile.replay import replay
from turnstile.stores import SQLiteStore
from turnstile.testing import ScriptedModel

HISTORIES = sorted((Path(__file__).parent.parent / "histories").glob("*.sqlite"))
FIRST = "format-1"  # named no rows, and did not keep how a run stands
SENT = {"working": "call_2_3"}  # the call that writes and had begun when the process died, by run


async def go_on(path: Path, run_id: str, ledger: Ledger) -> None:
    """Go on with a run to its end, unless it has ended."""

    async def deed(name: str, ctx: ToolContext) -> None:
        ledger.note(Entry("began", ctx.run_id, ctx.call_id, name, ctx.idempotency_key))
        await asyncio.sleep(0)

    async with SQLiteStore(path) as store:
        assert replay(await store.load(run_id)).divergence is None
        agent = subject(Noting(store, ledger), ScriptedModel(answer), deed)
        try:
            run = await agent.resume(run_id, accept_changes=True)
        except RunFinished:
            return
        async with run:
            result = await run.finish()
        assert result.ok, result.stop
        assert replay(await store.load(run_id)).divergence is None


def free(path: Path) -> None:
    """Let the run's lease be over: whoever held it in an old file may have the number of a process that lives here."""
    with opened(path) as connection:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leases'").fetchall():
            connection.execute("DELETE FROM leases")


def length_of(connection: apsw.Connection, run_id: str) -> int:
    """How many records a run has."""
    (length,) = one(connection, "SELECT count(*) FROM records JOIN runs ON run = number WHERE id = ?", run_id)
    return int(length)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda path: path.stem)
def test_an_old_journal_goes_on(history: Path, tmp_path: Path, tally: Callable[[str], Tally]) -> None:
    """Whoever upgrades has runs under way, and what these did must be done neither twice nor never."""
    counts, path = tally(f"12 {history.stem}"), tmp_path / "runs.db"
    shutil.copy(history, path)
    free(path)
    with opened(path) as connection:
        lengths = {run_id: length_of(connection, run_id) for run_id in run_ids(connection)}
    assert lengths.keys() >= RUNS.keys()
    for run_id, length in lengths.items():
        entries: list[Entry] = []
        asyncio.run(go_on(path, run_id, Remembered(entries)))
        with opened(path) as connection:
            case = replace(
                case_of(connection, run_id, tuple(entries)), inherited=length if history.stem == FIRST else 0
            )
        again = {entry.call for entry in entries if entry.phase == "began"}
        unsaid = history.stem == FIRST and length == len(case.rows)
        found = violations(replace(case, inherited=length if history.stem == FIRST else 0))
        wrong = [each for each in found if not (unsaid and "invariant 4 " in each)]
        if SENT.get(run_id) in again:
            wrong.append(f"{SENT[run_id]} was begun before the process died, and again after")
        counts.count(run_id, wrong)
    counts.verdict()


def test_there_is_a_history_of_each_format() -> None:
    """A format whose journals nobody kept is one that nobody tries."""
    from turnstile.shell.stores.sqlite_schema import MIGRATIONS

    assert [path.stem for path in HISTORIES] == [f"format-{number}" for number in range(1, len(MIGRATIONS) + 1)]
