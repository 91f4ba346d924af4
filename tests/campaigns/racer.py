"""A process that goes on with the runs that it is told, and says what came of each; several of them race.

::

    python tests/campaigns/racer.py STORE LEDGER LEASE [unfenced]

It reads lines ``RUN`` and answers each with one: ``drove``, when it drove the run to its end; ``late``, when that had
ended; ``leased`` and by whom, when it could not begin; ``lost`` and to whom, when it had begun. Before that it says
``at work`` whenever a tool that sends is.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

from ledger import Entry, Ledger
from lives import Life
from plays import PLAYS
from through import Unfenced
from turnstile.core.errors import RunExists, RunIsLeased
from turnstile.ports import Store
from turnstile.stores import SQLiteStore

PLAY = "appended"


class Telling(Ledger):
    """A ledger that tells of what the world would notice."""

    def note(self, entry: Entry) -> None:
        """Write an entry down."""
        super().note(entry)
        if entry.phase == "began" and entry.tool == "send":
            say("at work")


def say(line: str) -> None:
    """Answer."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def race(store: Store, run_id: str, ledger: Ledger) -> str:
    """Go on with a run; gives what came of it."""
    life = Life(store, run_id, PLAYS[PLAY], Random(run_id), ledger=ledger)
    try:
        try:
            life.process(None)
        except RunExists:  # it had never begun, and another began it just now
            life.process(None)
    except RunIsLeased as error:
        return f"{'lost' if life.drove else 'leased'} {error.holder}"
    return "drove" if life.drove else "late"


def main(path: str, ledger: str, lease: str, mutant: str = "") -> None:
    """The program."""
    store = SQLiteStore(path, lease=float(lease))
    written = Telling(Path(ledger), durable=False)  # nothing here loses power
    say("ready")
    for line in sys.stdin:
        say(race(Unfenced(store) if mutant else store, line.strip(), written))
    asyncio.run(store.aclose())


if __name__ == "__main__":
    main(*sys.argv[1:])
