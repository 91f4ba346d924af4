"""Campaign 5: three processes race for one run, and one that was stopped past its lease comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random

import apsw

from crashing import Death, Side
from invariants import violations
from ledger import Ledger
from lifetimes import environment
from lives import Life
from plays import MACHINE, PLAYS
from racer import PLAY
from sizes import PAUSES, RACES, SEED
from stored import case_of, opened
from tally import Tally
from turnstile.stores import SQLiteStore

RACERS = 3
COMMITS = 12  # of a run, about
LEASE = 30.0  # seconds: in a race nobody's runs out
SHORT = 0.3  # one that a stopped process outlasts
SIDES: tuple[Side, ...] = ("before", "after")


class Racer:
    """One process that races."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def go(self, run_id: str) -> None:
        """Let it go on with a run."""
        assert self._process.stdin
        self._process.stdin.write(f"{run_id}\n")
        self._process.stdin.flush()

    def said(self) -> str:
        """The next thing it says."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def outcome(self) -> str:
        """What came of the run."""
        while (said := self.said()) == "at work":
            pass
        return said

    def signal(self, number: signal.Signals) -> None:
        """Stop it, or let it go on."""
        os.kill(self.pid, number)


@contextmanager
def racers(number: int, path: Path, ledger: Ledger, lease: float, *mutant: str) -> Iterator[list[Racer]]:
    """Processes that stand ready."""
    racer = Path(__file__).with_name("racer.py")
    command = [sys.executable, str(racer), str(path), str(ledger.path), str(lease), *mutant]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(number)
        ]
        found = [Racer(process) for process in processes]
        try:
            assert [racer.said() for racer in found] == ["ready"] * number
            yield found
        except BaseException:
            for process in processes:  # one may be stopped, and would be waited for without an end
                process.kill()
            raise


def orphan(store: SQLiteStore, run_id: str, ledger: Ledger, draw: Random) -> None:
    """A run whose process died at some commit, and perhaps before it was begun."""
    life = Life(store, run_id, PLAYS[PLAY], draw, ledger=ledger)
    life.process(Death(draw.choice(SIDES), commit=draw.randrange(COMMITS)))


def look(path: Path, run_id: str, ledger: Ledger) -> list[str]:
    """What is wrong with a run."""
    with opened(path) as connection:
        case = case_of(connection, run_id, ledger.entries(), machine=MACHINE)
    return violations(case) + ([] if case.states[-1].finished else [f"the run is {case.states[-1].state}"])


def holders(outcomes: list[str]) -> set[str]:
    """Who was said to hold the run."""
    return {said.partition(" ")[2] for said in outcomes if said.startswith(("leased", "lost"))}


def test_three_processes_race(memory: Path, tally: Callable[[str], Tally]) -> None:
    """Of several that go on with one run, one drives it; each of the others is told so, and by whom."""
    counts, path, draw = tally("5 race"), memory / "runs.db", Random(SEED)
    store, refused = SQLiteStore(path), 0
    for number in range(RACES.cases):
        orphan(store, f"run {number}", Ledger(memory / f"run {number}", durable=False), draw)
    asyncio.run(store.aclose())
    everything = Ledger(memory / "ledger", durable=False)
    everything.path.touch()  # none of the racers may have anything to write down for a while
    with racers(RACERS, path, everything, LEASE) as found:
        for number in range(RACES.cases):
            run_id = f"run {number}"
            before = Ledger(memory / run_id)
            for racer in found:
                racer.go(run_id)
            outcomes = [racer.outcome() for racer in found]
            refused += sum(said.startswith("leased") for said in outcomes)
            counts.count(
                f"{run_id}: {outcomes}", judged(outcomes, found) + look(path, run_id, _after(before, everything))
            )
    counts.notes = f"{refused} refused"
    counts.verdict()
    assert refused


def _after(before: Ledger, then: Ledger) -> Ledger:
    """What the first process of a run wrote down, and the others after it."""
    if before.path.exists():
        whole = before.path.with_suffix(".whole")
        whole.write_bytes(before.path.read_bytes() + then.path.read_bytes())
        return Ledger(whole)
    return then


def judged(outcomes: list[str], found: list[Racer]) -> list[str]:
    """What is wrong with how a race went; who comes late holds the run for the moment in which it sees that."""
    drove = outcomes.count("drove")
    wrong = [] if drove <= 1 else [f"{drove} processes drove the run"]
    names = [f"process {racer.pid} " for racer, said in zip(found, outcomes, strict=True) if said in {"drove", "late"}]
    return wrong + [
        f"the run is said to be {holder}'s, and {names} had it"
        for holder in holders(outcomes)
        if not any(holder.startswith(name) for name in names)
    ]


def stop_past_the_lease(counts: Tally, folder: Path, runs: int, *mutant: str) -> None:
    """One process is stopped in the middle of a run, another takes the run over, and the first goes on."""
    path, ledger = folder / "runs.db", Ledger(folder / "ledger", durable=False)
    with racers(2, path, ledger, SHORT, *mutant) as (first, second):
        for number in range(runs):
            run_id = stopped(first, path, number)
            takes: list[str] = []
            while not takes or takes[-1].startswith("leased"):
                second.go(run_id)
                takes.append(second.outcome())
            first.signal(signal.SIGCONT)
            revived = first.outcome()
            wrong = [] if takes[-1] == "drove" else [f"the second process: {takes}"]
            wrong += [f"refused for {holder}" for holder in holders(takes) if f"process {first.pid} " not in holder]
            if not revived.startswith("lost"):
                wrong.append(f"the one that was stopped says {revived!r}")
            counts.count(run_id, wrong + look(path, run_id, ledger))


def stopped(racer: Racer, path: Path, number: int) -> str:
    """Stop a process in the middle of a run, but of no commit, where it has the file locked; gives the run's id."""
    for attempt in count():
        run_id = f"run {number}.{attempt}"
        racer.go(run_id)
        assert racer.said() == "at work"
        racer.signal(signal.SIGSTOP)
        os.waitpid(racer.pid, os.WUNTRACED)
        if is_free(path):
            return run_id
        racer.signal(signal.SIGCONT)
        racer.outcome()
    raise AssertionError  # `count` has no end


def is_free(path: Path) -> bool:
    """Whether nobody is writing to a store."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


def test_a_process_that_was_stopped_past_its_lease(memory: Path, tally: Callable[[str], Tally]) -> None:
    """Stopped for so long that another takes the run over, it comes back, writes nothing more, and says so."""
    counts = tally("5 stop past the lease")
    stop_past_the_lease(counts, memory, PAUSES.cases)
    counts.verdict()
