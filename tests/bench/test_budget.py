"""A turn's budget in figures that no clock, and no other work of the machine, can change.

Each figure may grow by a tenth; a change that needs more says why in the changelog, and puts the new figure here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HEADROOM = 1.1
RUNS = {"ours": 10, "reference": 200}  # of 20 turns each, as in budget_instructions.py
LOOPS_A_TURN = 23.7
"""How many turns of the loop written by hand one of ours costs, in instructions; Pythons differ by a twentieth."""
TURN = {
    "records a turn, of 20": 5.9,
    "records a turn, of 200": 6.0,
    "bytes a turn, of 20": 1190.0,
    "bytes a turn, of 200": 1190.0,
    "commits a turn, of 20": 2.1,
    "bytes held a turn": 1765.0,
    "blocks held a turn": 31.0,
}


def _printed(*command: str | Path) -> dict[str, float]:
    """The figures that a script prints; nothing measures it or changes the order of its hashes meanwhile."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        command, env=environment | {"PYTHONHASHSEED": "0"}, check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@pytest.fixture(scope="module")
def turn() -> Mapping[str, float]:
    """What a turn writes and holds."""
    return _printed(sys.executable, HERE / "budget_turn.py")


@pytest.mark.parametrize("figure", TURN)
def test_a_turn_writes_and_holds_no_more_than_its_budget(figure: str, turn: Mapping[str, float]) -> None:
    """A copy of the history, or one more commit, must be seen in the change that brings it."""
    assert turn[figure] <= TURN[figure] * HEADROOM


def test_what_a_turn_writes_does_not_grow_with_the_run(turn: Mapping[str, float]) -> None:
    """A journal that holds what is new is linear in what happened, however long the run."""
    assert turn["bytes a turn, of 200"] <= turn["bytes a turn, of 20"] * HEADROOM


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed; it counts the instructions")
def test_a_turn_takes_no_more_instructions_than_its_budget(tmp_path: Path) -> None:
    """The engine's speed is promised, and the clock of a shared machine can neither show nor hide a loss of it."""
    counter = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={tmp_path}/%p")
    children = _printed(*counter, sys.executable, HERE / "budget_instructions.py")
    counted = {name: _instructions(tmp_path / str(child)) for name, child in children.items()}
    ours, reference = ((counted[name] - counted["nothing"]) / runs for name, runs in RUNS.items())
    assert ours / reference <= LOOPS_A_TURN * HEADROOM


def _instructions(profile: Path) -> int:
    """All instructions that callgrind counted in a process."""
    total = next(line for line in profile.read_text().splitlines() if line.startswith("totals:"))
    return int(total.partition(":")[2])
