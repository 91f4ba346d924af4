"""What is measured, and how: each method of `Measures` fills some rows of the table."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from contenders.bare import message_of
from figures import Cell, Figure, Table
from journal_at_once import FLOORS, OURS, rates
from peers import HERE, PEERS, QUICK, Peer
from processes import ENVIRONMENT, Answer, Figures, Readings, Worker, interleave, note
from work import PROMPT, Job, ToolKind

Pick = Callable[[Figures], float]

SECTIONS = (
    "cold",
    "parts",
    "turns",
    "http_turns",
    "stream",
    "parallel",
    "journal",
    "resume",
    "at_once",
    "http_at_once",
)
SLOW = 1000  # rounds, or runs at once: from here on a repeat takes the slowest peers a minute
LOST = "lost in its own noise"
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
        figures, reasons = self._starts({c: importlib.import_module(f"contenders.{c}").COLD for c in self._contenders})
        self._fill("cold", figures, reasons, lambda figure: figure["cpu"] * 1e3)
        self._fill("cold_memory", figures, reasons, lambda figure: figure["rss_kib"] / 1024)
        imports = {"turnstile": "import turnstile", "bare": "import httpx"}
        figures, reasons = self._starts({c: source for c, source in imports.items() if c in self._contenders})
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

    def stream(self) -> None:
        """A reply that comes at once in many pieces, and one that pauses after the first, as a model does."""
        at_once = Job(rounds=0, chunks=5000, url=self._url)
        self._in_a_row("stream", at_once, lambda figure: figure["cpu"] / at_once.chunks * 1e6, "streamed")
        paced = Job(rounds=0, chunks=20, pause=50, url=self._url)
        self._in_a_row("first", paced, lambda figure: figure["first"] * 1e3, "streamed")

    def parallel(self) -> None:
        """Eight sleeping calls in one reply."""
        tools: dict[str, ToolKind] = {"parallel_async": "async_sleep", "parallel_threads": "thread_sleep"}
        for row, tool in tools.items():
            job = Job(rounds=1, calls=8, tool=tool)
            self._in_a_row(row, job, lambda figure: figure["wall"] * 1e3)

    def journal(self) -> None:
        """Runs that are kept in a file, turn by turn; and how fast many runs write into one."""
        for rounds in (10, 100, 500, 1000):
            readings = self._kept("journaled", Job(rounds=rounds), max(1, 100 // rounds), is_long=rounds >= SLOW)
            self._fill(f"journal_bytes_{rounds}", *readings, _per_turn("bytes", rounds, 1))
            if rounds in {100, 500}:
                self._fill(f"journal_{rounds}", *readings, _per_turn("added", rounds, 1e3))
        self._fill("journal_commits", *self._kept("committed", Job(rounds=10), 1), _per_turn("commits", 10, 1))
        note("journal_at_once")
        readings_of = rates(self._effort.rounds)
        for row, floor in FLOORS.items():
            self.table[row] = {"turnstile": Figure.of(readings_of[OURS]), "bare": Figure.of(readings_of[floor])}

    def resume(self) -> None:
        """A long run that somebody left, from its file to its end, which is one reply away."""
        self._fill("resume", *self._kept("resumed", Job(rounds=1000), 1), lambda figure: figure["cpu"] * 1e3)

    def at_once(self) -> None:
        """Runs side by side, with the model scripted in process."""
        for at_once in (1, 100, 1000, 10_000):
            figures, reasons = self._side_by_side(Job(rounds=5, gives_way=True, at_once=at_once))
            self._fill(f"runs_{at_once}", figures, reasons, lambda figure: 1 / figure["cpu"])
            if at_once >= SLOW:
                beyond = messages_kib(5) if at_once > SLOW else 0
                self._fill(f"memory_{at_once}", figures, reasons, _per_run(at_once, beyond))

    def http_at_once(self) -> None:
        """Runs side by side, over HTTP."""
        for at_once in (1, 100, 1000):
            figures, reasons = self._side_by_side(Job(rounds=5, url=self._url, at_once=at_once))
            self._fill(f"http_runs_{at_once}", figures, reasons, lambda figure: 1 / figure["wall"])

    def _worker(self, contender: str) -> Worker:
        """The worker of a contender, which stays."""
        return self._workers.get(contender) or self._workers.setdefault(contender, Worker(contender))

    def _interleaved(self, rounds: int, ask: Callable[[str], Answer], *, is_long: bool = False) -> Readings:
        """Readings of all; where they would take the peers minutes, of ours and the bare loop alone."""
        asked = [contender for contender in self._contenders if not is_long or contender in QUICK]
        figures, reasons = interleave(asked, rounds, ask)
        return figures, reasons | {c: "would take minutes" for c in self._contenders if c not in asked}

    def _kept(self, task: str, job: Job, runs: int, *, is_long: bool = False) -> Readings:
        note(f"{task}, {job.rounds} rounds")
        return self._interleaved(
            self._effort.slow, lambda contender: self._worker(contender).ask(task, job, runs), is_long=is_long
        )

    def _in_a_row(self, row: str, job: Job, pick: Pick, task: str = "turns") -> None:
        note(row)
        runs: dict[str, int] = {}

        is_slow = job.rounds >= SLOW

        def ask(contender: str) -> Answer:
            worker = self._worker(contender)
            if contender not in runs and not is_slow:
                warm_up = worker.ask(task, job, 1)
                if not warm_up.figures:
                    return warm_up
                again = worker.ask(task, job, 1) if warm_up.figures["wall"] < BLOCK else warm_up
                runs[contender] = _runs_for(again)
            return worker.ask(task, job, runs.get(contender, 1))

        self._fill(row, *self._interleaved(self._effort.slow if is_slow else self._effort.rounds, ask), pick)

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

        rounds = self._effort.slow if job.at_once >= SLOW else self._effort.rounds
        return self._interleaved(rounds, ask, is_long=job.at_once > SLOW)

    def _fill(self, row: str, figures: dict[str, list[dict[str, float]]], reasons: dict[str, str], pick: Pick) -> None:
        cells = {name: _cell(Figure.of(map(pick, readings))) for name, readings in figures.items()}
        self.table[row] = {**cells, **reasons}


def _cell(figure: Figure) -> Cell:
    """The figure, unless it is a difference of two readings that their noise is larger than."""
    return figure if figure.median > 0 else LOST


def _runs_for(answer: Answer) -> int:
    return max(1, min(5000, round(BLOCK / answer.figures["wall"])))


def _per_run(at_once: int, beyond: float) -> Pick:
    return lambda figure: max(0.0, figure["grown_kib"] / at_once - beyond)


def messages_kib(rounds: int) -> float:
    """What the messages of a run alone take, as plain values that came as JSON."""
    messages: list[object] = [{"role": "user", "content": PROMPT}]
    for number in range(rounds + 1):
        messages.append(message_of(Job(rounds=rounds), number))
        messages.append({"role": "tool", "tool_call_id": f"call_{number}_0", "content": str(number)})
    text = json.dumps(messages[:-1])
    tracemalloc.start()
    copies = [json.loads(text) for _ in range(100)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(copies) / 1024


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
