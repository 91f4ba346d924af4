"""Two parts of a turn alone, each beside the floor that it stands on: a step of the machine, and a line of the log.

Usage: ``python parts.py`` in our own environment prints each part's microseconds, block by block, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable

import orjson
import structlog
import transitions

from contenders.turnstile import Script
from turnstile import Agent, Limits, loop
from turnstile.core.fold import walk
from turnstile.log import JsonLog
from turnstile.stores import MemoryStore
from work import PROMPT, Job, make_tool

BLOCKS = 15
TIMES = 20  # each part in a block, for the whole run
Part = tuple[Callable[[], None], int]
"""What is timed, and how many steps or lines of the log it makes."""


def ours() -> dict[str, Part]:
    """The parts, over the events of a real run."""
    job = Job(rounds=20)
    store = MemoryStore()
    agent = Agent(Script(job), tools=[make_tool(job)], limits=Limits(turns=job.rounds + 1), store=store)
    run_id = agent.run_sync(PROMPT).run_id
    events = [record.event for record in asyncio.run(store.load(run_id))]
    moves = [(run, transition) for run, transition in walk(loop, events) if transition]
    log = JsonLog(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - open as long as the process

    def steps() -> None:
        for _ in walk(loop, events):
            pass

    def lines() -> None:
        for run, transition in moves:
            log.observe(transition, run)

    return {"machine_step": (steps, len(moves)), "log_line": (lines, len(moves))}


def floors() -> dict[str, Part]:
    """The same of the libraries alone: a trigger with two guards, and a line of like fields."""
    number = 100
    model = type("Model", (), {"yes": lambda self: True})()
    rows = [["move", "here", "there", ["yes", "yes"]], ["move", "there", "here", ["yes", "yes"]]]
    names = ("trigger", "source", "dest", "conditions")
    transitions.Machine(
        model,
        states=["here", "there"],
        initial="here",
        auto_transitions=False,
        transitions=[dict(zip(names, row, strict=True)) for row in rows],
    )
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open as long as the process
    log = structlog.wrap_logger(
        structlog.BytesLogger(file),
        [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(serializer=lambda line, **_: orjson.dumps(line)),
        ],
    ).bind(run_id="run", agent="agent")

    def triggers() -> None:
        for _ in range(number):
            model.move()

    def lines() -> None:
        for seq in range(number):
            log.info("transition", seq=seq, source="await_model", dest="execute_tools", row="run_tools", turn=seq)

    return {"machine_step": (triggers, number), "log_line": (lines, number)}


def main() -> None:
    """Time all parts in turn, block by block."""
    sides = {"turnstile": ours(), "bare": floors()}
    readings: dict[str, dict[str, list[float]]] = {name: {side: [] for side in sides} for name in sides["turnstile"]}
    for _ in range(BLOCKS):
        for side, parts in sides.items():
            for name, (work, count) in parts.items():
                began = time.process_time()
                for _ in range(TIMES):
                    work()
                readings[name][side].append((time.process_time() - began) / (TIMES * count) * 1e6)
    json.dump(readings, sys.stdout)


if __name__ == "__main__":
    main()
