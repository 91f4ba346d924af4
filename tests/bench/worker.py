"""Does jobs inside a contender's environment: one JSON job a line comes in, one JSON answer a line goes out.

Usage: ``python worker.py CONTENDER``. An answer holds ``figures``, or ``unsupported`` or ``failed`` with a reason. Work
counts only once it is seen to have been done: the final text is right, and the tool ran as often as it should.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from journal_file import commits, settled
from work import Job, Ledger, Listen, Once, Unsupported

Figures = dict[str, float]

QUIET = {  # no contender may report home or trace
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "BURR_TELEMETRY_ENABLED": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OPENAI_API_KEY": "sk-bench",
}


class WrongWork(Exception):
    """A contender did not do what it was asked."""


class Worker:
    """One contender, ready to be measured."""

    def __init__(self, contender: str) -> None:
        module = importlib.import_module(f"contenders.{contender}")
        self._build: Callable[[Job], Once] = lru_cache(None)(module.build)
        self._listen: Callable[[Job], Listen] = lru_cache(None)(module.listen)
        self._leave: Callable[[Job], Awaitable[Once]] = module.leave

    async def turns(self, job: Job, runs: int) -> Figures:
        """Runs one after another: seconds of each."""
        once = self._build(job)
        return await _measured(job, runs, lambda: _in_a_row(once, runs))

    async def at_once(self, job: Job, runs: int) -> Figures:
        """Runs side by side, `job.at_once` at a time: seconds of each, and how far memory grew. For a fresh process."""
        once = self._build(job)
        await _side_by_side(
            once, 1, 1
        )  # what is made at the first run counts neither as time nor as memory of the others
        before = _memory("VmRSS")
        figures = await _measured(job, runs, lambda: _side_by_side(once, job.at_once, runs))
        return {**figures, "grown_kib": max(0, _memory("VmHWM") - before)}

    async def journaled(self, job: Job, runs: int) -> Figures:
        """Runs kept in a file beside runs that are not: seconds that a run takes longer, and bytes of it."""
        with _folder() as folder:
            file = Path(folder, "journal.db")
            first = replace(job, rounds=2, journal=str(file))
            await _in_a_row(self._build(first), 1)  # what is imported and made at the first run is no turn's
            plain, kept = self._build(job), self._build(replace(job, journal=str(file)))
            size = settled(file)
            without = await _measured(job, runs, lambda: _in_a_row(plain, runs))
            beside = await _measured(job, runs, lambda: _in_a_row(kept, runs))
            left = (settled(file) - size) / runs
        return {"wall": beside["wall"], "added": beside["wall"] - without["wall"], "bytes": left}

    async def committed(self, job: Job, runs: int) -> Figures:
        """Runs kept in a file: commits of each. They must be few, or the log is begun afresh, and has lost count."""
        with _folder() as folder:
            file = Path(folder, "journal.db")
            kept = self._build(replace(job, journal=str(file)))
            await _in_a_row(kept, 1)  # which makes the tables
            before = commits(file)
            await _in_a_row(kept, runs)
            return {"commits": (commits(file) - before) / runs}

    async def resumed(self, job: Job, runs: int) -> Figures:
        """Runs that were left before their last reply, and are ended from the file alone: seconds of each."""
        figures = []
        for _ in range(runs):
            with _folder() as folder:
                resume = await self._leave(replace(job, journal=str(Path(folder, "journal.db"))))
                figures.append(await _measured(replace(job, calls=0), 1, lambda: _in_a_row(resume, 1)))  # noqa: B023
        return {name: statistics.fmean(figure[name] for figure in figures) for name in figures[0]}

    async def streamed(self, job: Job, runs: int) -> Figures:
        """Replies that come piece by piece: seconds of each, and until its first piece."""
        listen = self._listen(job)
        firsts: list[float] = []

        async def hear() -> str:
            pieces: list[str] = []

            def heard(text: str) -> None:
                if not pieces:
                    firsts.append(time.perf_counter() - began)
                pieces.append(text)

            began = time.perf_counter()
            listening = listen(heard)
            if listening is not None:
                await listening
            return "".join(pieces)

        return {**await _measured(job, runs, lambda: _in_a_row(hear, runs)), "first": statistics.median(firsts)}


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Where journals go: on a disk, which /tmp may not be."""
    return tempfile.TemporaryDirectory(dir=Path(__file__).parent)


async def _measured(job: Job, runs: int, work: Callable[[], Awaitable[set[str]]]) -> Figures:
    gc.collect()
    calls, wall, cpu = Ledger.calls, time.perf_counter(), time.process_time()
    answers = await work()
    wall, cpu, calls = time.perf_counter() - wall, time.process_time() - cpu, Ledger.calls - calls
    if answers != {job.answer} or calls != runs * job.rounds * job.calls:
        message = (
            f"expected {job.answer!r} after {runs * job.rounds * job.calls} tool calls, got {answers!r} after {calls}"
        )
        raise WrongWork(message)
    return {"wall": wall / runs, "cpu": cpu / runs}


async def _in_a_row(once: Once, runs: int) -> set[str]:
    return {await _result(once()) for _ in range(runs)}


async def _side_by_side(once: Once, at_once: int, runs: int) -> set[str]:
    answers: set[str] = set()
    with ThreadPoolExecutor(at_once) as pool:  # starts no thread unless the framework's runs block
        for _ in range(runs // at_once):
            answers.update(await asyncio.gather(*(_started(once, pool) for _ in range(at_once))))
    return answers


def _started(once: Once, pool: ThreadPoolExecutor) -> Awaitable[str]:
    if inspect.iscoroutinefunction(once):
        run: Awaitable[str] = once()
        return run
    return asyncio.get_running_loop().run_in_executor(pool, once)  # type: ignore[arg-type]


async def _result(run: Awaitable[str] | str) -> str:
    return run if isinstance(run, str) else await run


def _memory(line: str) -> int:
    """KiB now (``VmRSS``) or at most so far (``VmHWM``); ``getrusage`` would count our parent's, from the fork."""
    status = Path("/proc/self/status").read_text()
    return next(int(text.split()[1]) for text in status.splitlines() if text.startswith(line))


async def main(contender: str) -> None:
    """Answer every job on standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a framework prints goes to standard error
    worker = Worker(contender)
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, object]
        try:
            measure = getattr(worker, question["task"])
            answer = {"figures": await measure(Job(**question["job"]), question["runs"])}
        except Unsupported as reason:
            answer = {"unsupported": str(reason)}
        except Exception as error:  # noqa: BLE001
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")  # a contender's own deprecations are not ours to mend
    asyncio.run(main(sys.argv[1]))
