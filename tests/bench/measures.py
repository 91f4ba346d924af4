"""What is measured, and how: each method of `Measures` fills some rows of the table."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from figures import Cell, Figure, Table
from peers import HERE, PEERS, Peer
from processes import ENVIRONMENT, Answer, Figures, Readings, Worker, interleave, note
from work import Job, ToolKind

Pick = Callable[[Figures], float]

SECTIONS = ("cold", "parts", "turns", "http_turns", "parallel", "journal", "at_once", "http_at_once")
SLOW = 1000  # rounds, or runs at once: from here on a repeat takes the slowest peers a minute
BLOCK = 0.5  # seconds that one reading should last at least, so that it is more than noise

MEMORY = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@dataclass(frozen=True)
class Effort:
    """How often to measure: rounds of the ordinary readings, and of the slow ones."""

    rounds: int
    slow: int


class Measures:
    """Measures contenders, and keeps the table that comes of it."""

    def __init__(self, contenders: list[str], effort: Effort, url: str) -> None:
        self.table: Table = {}
        self._contenders = contenders
        self._effort = effort
        self._url = url
        self._workers: dict[str, Worker] = {}

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            worker.stop()

    def cold(self) -> None:
        """Start an interpreter, import, build an agent."""
        sources = {name: importlib.import_module(f"contenders.{name}").COLD for name in self._contenders}
        figures, reasons = interleave(
            sources, self._effort.rounds + 1, lambda name: _started(PEERS[name], sources[name])
        )
        self._fill("cold", figures, reasons, lambda figure: figure["cpu"] * 1e3)
        self._fill("cold_memory", figures, reasons, lambda figure: figure["rss_kib"] / 1024)
        imports = {"turnstile": "import turnstile", "bare": "import httpx"}
        wanted = [name for name in imports if name in self._contenders]
        figures, reasons = interleave(
            wanted, self._effort.rounds + 1, lambda name: _started(PEERS[name], imports[name])
        )
        self._fill("import", figures, reasons, lambda figure: figure["cpu"] * 1e3)

    def _starts(self, sources: dict[str, str]) -> Readings:
        for name, source in sources.items():
            _started(PEERS[name], source)  # compiles the modules, and brings them into the page cache
        return interleave(sources, self._effort.rounds, lambda name: _started(PEERS[name], sources[name]))

    def parts(self) -> None:
        """The parts of our turn beside the floor each stands on, which is put into the bare loop's column."""
        python = PEERS["turnstile"].python
        done = subprocess.run([python, HERE / "parts.py"], env=ENVIRONMENT, check=True, capture_output=True, text=True)
        for row, sides in json.loads(done.stdout).items():
            self.table[row] = {name: Figure.of(values) for name, values in sides.items()}

    def turns(self) -> None:
        """Runs in a row, with the model scripted in process."""
        for rounds in (10, 100, 1000):
            pick = _per_turn("cpu", rounds, 1e6)
            self._in_a_row(f"turn_{rounds}", Job(rounds=rounds), pick)

    def http_turns(self) -> None:
        """Runs in a row, over HTTP."""
        for rounds in (10, 100):
            self._in_a_row(f"http_{rounds}", Job(rounds=rounds, url=self._url), _per_turn("wall", rounds, 1e3))

    def parallel(self) -> None:
        """Eight sleeping calls in one reply."""
        tools: dict[str, ToolKind] = {"parallel_async": "async_sleep", "parallel_threads": "thread_sleep"}
        for row, tool in tools.items():
            job = Job(rounds=1, calls=8, tool=tool)
            self._in_a_row(row, job, lambda figure: figure["wall"] * 1e3)

    def journal(self) -> None:
        """Runs that are kept in a file, turn by turn."""
        for rounds in (100, 500):
            note(f"journal_{rounds}")
            ask = partial(self._ask_once, "journaled", Job(rounds=rounds))
            readings = interleave(self._contenders, self._effort.slow, ask)
            self._fill(f"journal_{rounds}", *readings, _per_turn("added", rounds, 1e3))
            self._fill(f"journal_bytes_{rounds}", *readings, _per_turn("bytes", rounds, 1))

    def at_once(self) -> None:
        """Runs side by side, with the model scripted in process."""
        for at_once in (1, 100, 1000, 10_000):
            figures, reasons = self._side_by_side(Job(rounds=5, gives_way=True, at_once=at_once))
            self._fill(f"runs_{at_once}", figures, reasons, lambda figure: 1 / figure["cpu"])
            if at_once >= SLOW:
                self._fill(f"memory_{at_once}", figures, reasons, _per_run(at_once))

    def http_at_once(self) -> None:
        """Runs side by side, over HTTP."""
        for at_once in (1, 100, 1000):
            figures, reasons = self._side_by_side(Job(rounds=5, url=self._url, at_once=at_once))
            self._fill(f"http_runs_{at_once}", figures, reasons, lambda figure: 1 / figure["wall"])

    def _worker(self, contender: str) -> Worker:
        """The worker of a contender, which stays."""
        return self._workers.get(contender) or self._workers.setdefault(contender, Worker(contender))

    def _ask_once(self, task: str, job: Job, contender: str) -> Answer:
        return self._worker(contender).ask(task, job, 1)

    def _in_a_row(self, row: str, job: Job, pick: Pick) -> None:
        note(row)
        runs: dict[str, int] = {}

        def ask(contender: str) -> Answer:
            worker = self._worker(contender)
            if contender not in runs:
                warm_up = worker.ask("turns", job, 1)
                if not warm_up.figures:
                    return warm_up
                again = worker.ask("turns", job, 1) if warm_up.figures["wall"] < BLOCK else warm_up
                runs[contender] = _runs_for(again)
            return worker.ask("turns", job, runs[contender])

        rounds = self._effort.slow if job.rounds >= SLOW else self._effort.rounds
        self._fill(row, *interleave(self._contenders, rounds, ask), pick)

    def _side_by_side(self, job: Job) -> Readings:
        """Each reading comes from a fresh process, since a process's memory only grows."""
        note(f"{job.at_once} at once{', over HTTP' if job.url else ''}")
        waves: dict[str, int] = {}

        def ask_once(contender: str, runs: int) -> Answer:
            worker = Worker(contender)
            try:
                return worker.ask("at_once", job, runs)
            finally:
                worker.stop()

        def ask(contender: str) -> Answer:
            if contender not in waves and job.at_once < SLOW:
                warm_up = ask_once(contender, job.at_once)
                if not warm_up.figures:
                    return warm_up
                waves[contender] = max(1, _runs_for(warm_up) // job.at_once)
            return ask_once(contender, waves.get(contender, 1) * job.at_once)

        is_slow = job.at_once >= SLOW
        contenders = self._contenders if job.at_once <= SLOW else [c for c in self._contenders if c in QUICK]
        figures, reasons = interleave(contenders, self._effort.slow if is_slow else self._effort.rounds, ask)
        return figures, reasons | {c: "too slow to repeat" for c in self._contenders if c not in contenders}

    def _fill(self, row: str, figures: dict[str, list[dict[str, float]]], reasons: dict[str, str], pick: Pick) -> None:
        cells: dict[str, Cell] = {name: Figure.of(map(pick, readings)) for name, readings in figures.items()}
        self.table[row] = {**cells, **reasons}


QUICK = ("turnstile", "bare")
"""The contenders of the quick bench, and of what takes the others minutes."""


def _runs_for(answer: Answer) -> int:
    return max(1, min(5000, round(BLOCK / answer.figures["wall"])))


def _per_run(at_once: int) -> Pick:
    return lambda figure: figure["grown_kib"] / at_once


def _per_turn(what: str, rounds: int, unit: float) -> Pick:
    return lambda figure: figure[what] / (rounds + 1) * unit


def _started(peer: Peer, source: str) -> Answer:
    """What an interpreter took for that source, its own start included."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [peer.python, "-c", source + MEMORY], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout
    memory = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return Answer(failed=f"exit status {process.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    return Answer({"wall": time.perf_counter() - began, "cpu": cpu, "rss_kib": int(memory)})
