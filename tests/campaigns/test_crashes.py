"""Campaign 2: the process is gone before or after each commit, whatever row of the table it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from case import Case
from crashing import Death, Side
from invariants import violations
from lives import Life, Mutation, whole
from plays import MACHINE, PLAYS
from sizes import CRASHES, SEED
from stored import case_of, opened
from tally import Tally
from turnstile.ports import Store
from turnstile.stores import SQLiteStore

SIDES: tuple[Side, ...] = ("before", "after")
ONCE_MORE = 0.5  # the share of runs that die once more, at any commit
COMMITS = 8  # of what is left of a play then, about
PROCESSES = 40  # no play takes so many


def live(store: Store, name: str, side: Side, seed: int, mutate: Mutation = whole) -> tuple[Life, str]:
    """A run that dies at its play's row, perhaps once before and once after, and goes on to its end."""
    play, draw = PLAYS[name], Random(f"{SEED} {name} {side} {seed}")
    run_id = f"{name} {side} {seed}"
    life = Life(store, run_id, play, draw, mutate=mutate)
    deaths: list[Death | None] = [Death("after", play.first)] if play.first else []
    deaths.append(Death(side, name))
    if draw.random() < ONCE_MORE:
        deaths.append(Death(draw.choice(SIDES), commit=draw.randrange(COMMITS)))
    for death in (*deaths, *[None] * PROCESSES):
        if life.process(death):
            return life, run_id
    pytest.fail(f"{run_id} does not come to an end")


def look(case: Case, ends: str = "") -> list[str]:
    """What is wrong with a run that has come to its end."""
    wrong, last = violations(case), case.states[-1]
    if last.stop is None:
        wrong.append(f"the run did not end: it is {last.state}")
    elif ends and last.stop.reason != ends:
        wrong.append(f"the run ended as {last.stop.reason}, and was to end as {ends}")
    return wrong


def test_a_process_dies_at_each_commit(memory: Path, tally: Callable[[str], Tally]) -> None:
    """Whatever a commit holds, the run goes on from before it or from after it, and does nothing twice."""
    counts, died = tally("2 crash at a commit"), 0
    counts.of_rows = len(MACHINE.rows)
    for name in PLAYS:
        path, store = memory / f"{name}.db", SQLiteStore(memory / f"{name}.db")
        lives = [live(store, name, side, seed) for side in SIDES for seed in range(CRASHES.cases)]
        asyncio.run(store.aclose())
        with opened(path) as connection:
            for life, run_id in lives:
                case = case_of(connection, run_id, life.ledger.entries(), machine=MACHINE)
                counts.count(f"{run_id}, died {', '.join(life.deaths)}", look(case, PLAYS[name].ends))
                counts.rows |= {row.row for row in case.rows} - {""}
                died += len(life.deaths)
                if not any(name in death for death in life.deaths):
                    counts.wrong.append(f"{run_id} never came to die there: {life.deaths}")
        path.unlink()  # of a release it holds thousands of runs
    counts.notes = f"{died} deaths"
    counts.verdict()
    assert counts.rows == {row.name for row in MACHINE.rows}
