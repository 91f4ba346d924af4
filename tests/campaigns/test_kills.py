"""Campaign 1: SIGKILL at each state-changing system call, and again while the run is recovered from that."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from invariants import violations
from lifetimes import KILLED, Scene, counted, killed_at, killed_writing, why_no_strace
from sizes import KILLS, SEED
from tally import Tally
from turnstile.core.machine import loop

AT_ONCE = 2  # processors of the machine that CI runs on
AGAIN = 0.5  # the share of runs that are killed a second time, while they are resumed
OPERATIONS = 600  # of SQLite on its files, as the subject makes it do; about half are reads

Kill = Callable[[Scene, str, Random], int]
"""Runs the subject, to be killed at a place that is drawn; gives its exit status."""


def look(folder: Path, kills: list[tuple[str, Kill]]) -> tuple[list[str], set[str], int]:
    """Run the subject in a new folder, and kill it; gives what is wrong, the rows it took, and how often it died."""
    folder.mkdir()
    scene, died = Scene(folder), 0
    for number, (_, kill) in enumerate(kills):
        status = kill(scene, "resume" if number and scene.begun else "start", Random(f"{SEED} {folder.name}"))
        died += status == KILLED
        if status != KILLED:
            break
    asyncio.run(scene.finish())
    case = scene.case()
    wrong = violations(case)
    if not case.states[-1].finished:
        wrong.append(f"the run did not end: it is {case.states[-1].state}")
    shutil.rmtree(folder)  # a release has thousands
    return wrong, {row.row for row in case.rows} - {""}, died


def sweep(tally: Tally, folder: Path, cases: list[list[tuple[str, Kill]]]) -> None:
    """Run all cases, some at a time."""
    tally.of_rows = len(loop.rows)
    died = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda numbered: look(folder / f"case {numbered[0]}", numbered[1]), enumerate(cases))
        for case, (wrong, rows, deaths) in zip(cases, found, strict=True):
            tally.count(" then ".join(where for where, _ in case), wrong)
            tally.rows |= rows
            died += deaths
    tally.notes = f"{died} kills"
    tally.verdict()
    assert died >= len(cases) // 2  # else the places where it dies are not those where it comes


def at_call(name: str, number: int) -> tuple[str, Kill]:
    """A kill at a system call."""
    return f"{name} {number}", lambda scene, what, _: killed_at(scene, what, name, number)


def drawn(places: list[tuple[str, int]], cases: int) -> Iterator[list[tuple[str, Kill]]]:
    """Kills at places spread over all, and half of them with a second one, drawn, while the run is resumed."""
    draw = Random(SEED)
    for case in range(cases):
        kills = [at_call(*places[case * len(places) // cases % len(places)])]
        if draw.random() < AGAIN:
            kills.append(at_call(*draw.choice(places)))
        yield kills


def test_killed_at_a_system_call(memory: Path, tally: Callable[[str], Tally]) -> None:
    """Between any two writes the process may be gone; what it was told is kept stays, and nothing happens twice."""
    if reason := why_no_strace():
        pytest.skip(f"{reason}; kills at SQLite's operations are tried in its place")
    (memory / "counted").mkdir()
    places = [(name, number + 1) for name, most in counted(Scene(memory / "counted")).items() for number in range(most)]
    sweep(tally("1 kill at a system call"), memory, list(drawn(places, KILLS.cases)))


def test_killed_at_an_operation_of_sqlite(memory: Path, tally: Callable[[str], Tally]) -> None:
    """Where no strace can be had, the process kills itself at each operation on the store's files."""
    draw = Random(SEED)
    cases = KILLS.cases if why_no_strace() else KILLS.cases // 20

    def at_operation(number: int) -> tuple[str, Kill]:
        return f"operation {number}", lambda scene, what, _: killed_writing(scene, what, number)

    places = [1 + case * OPERATIONS // cases for case in range(cases)]
    kills = [[at_operation(place), at_operation(draw.randrange(1, OPERATIONS))] for place in places]
    sweep(tally("1 kill at an operation"), memory, kills)
