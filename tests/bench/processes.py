"""The processes of a measurement: the model server, and workers that are asked in interleaved rounds."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Self

from peers import HERE, PEERS, QUICK
from work import Job

PATIENCE = 300  # seconds for one answer
ENOUGH = 15  # seconds after which a peer's readings of a row are not repeated any more

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.upper().endswith(("_PROXY", "_API_KEY"))}
"""What every process gets: no proxy may stand between a contender and the model server, and no key is needed."""


Figures = dict[str, float]
"""Seconds and the like, by name."""


@dataclass(frozen=True)
class Answer:
    """What a worker measured, or why it could not.

    Attributes:
        figures: Seconds and the like, by name.
        unsupported: What the framework lacks.
        failed: What went wrong.
    """

    figures: Figures = field(default_factory=dict)
    unsupported: str = ""
    failed: str = ""


class Worker:
    """A process in a contender's environment."""

    def __init__(self, contender: str) -> None:
        self._process = subprocess.Popen(
            [PEERS[contender].python, HERE / "worker.py", contender],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )

    def ask(self, task: str, job: Job, runs: int) -> Answer:
        """Have a job done; a worker that died or took too long has failed."""
        assert self._process.stdin
        assert self._process.stdout
        question = {"task": task, "job": asdict(job), "runs": runs}
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return Answer(failed="the worker ended")
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self._process.kill()
            return Answer(failed=f"no answer in {PATIENCE} s")
        line = self._process.stdout.readline()
        return Answer(**json.loads(line)) if line else Answer(failed="the worker ended")

    def stop(self) -> None:
        """End it."""
        self._process.kill()  # it holds nothing worth a farewell
        self._process.communicate()


class ModelServer:
    """The model server, for as long as the ``with`` block lasts."""

    url: str

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, HERE / "model_server.py"], stdout=subprocess.PIPE)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


Readings = tuple[dict[str, list[Figures]], dict[str, str]]
"""Each contender's figures, one a round; and of those without figures, why."""


def interleave(contenders: Iterable[str], rounds: int, ask: Callable[[str], Answer]) -> Readings:
    """Ask all contenders once a round, in an order drawn anew, so that the machine's other work falls on all alike.

    Ours and the bare loop are asked in every round, as most bars compare them; a slow peer has its say more quickly.
    """
    figures: dict[str, list[Figures]] = {contender: [] for contender in contenders}
    reasons: dict[str, str] = {}
    spent = dict.fromkeys(figures, 0.0)
    for _ in range(rounds):
        for contender in random.sample(sorted(figures), len(figures)):
            if spent[contender] > ENOUGH and contender not in QUICK:
                continue
            began = time.perf_counter()
            answer = ask(contender)
            spent[contender] += time.perf_counter() - began
            if answer.figures:
                figures[contender].append(answer.figures)
            else:
                reasons[contender] = answer.unsupported or f"failed: {answer.failed}"
                del figures[contender]
                note(f"  {PEERS[contender].title}: {reasons[contender]}")
    return figures, reasons


def note(text: str) -> None:
    """Tell whoever waits what is being done."""
    print(text, file=sys.stderr, flush=True)
