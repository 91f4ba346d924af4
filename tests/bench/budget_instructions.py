"""The work whose instructions are counted: 20-turn runs of ours, and of the reference, the loop written by hand.

Usage: ``valgrind --tool=callgrind --callgrind-out-file=FOLDER/%p python budget_instructions.py``. Each work is done in
a child that is forked once all is ready, so that what it has more than the child that does nothing is the work's own.
The ids of the children are printed as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os

from contenders import bare, turnstile
from work import Job, Once

TURNS = 20
JOB = Job(rounds=TURNS - 1)
RUNS = {"nothing": 0, "ours": 10, "reference": 200}  # for about as many instructions each


async def repeat(once: Once, runs: int) -> None:
    """Do some runs, and see that they did their work."""
    for _ in range(runs):
        run = once()
        answer = run if isinstance(run, str) else await run
        assert answer == JOB.answer


def main() -> None:
    """Make ready, then do each work in a child of its own."""
    works = {"ours": turnstile.build(JOB), "reference": bare.build(JOB)}
    for once in works.values():
        asyncio.run(repeat(once, 2))
    gc.collect()
    children = {}
    for name, runs in RUNS.items():
        child = os.fork()
        if not child:
            asyncio.run(repeat(works.get(name, works["reference"]), runs))
            os._exit(0)
        os.waitpid(child, 0)
        children[name] = child
    print(json.dumps(children))


if __name__ == "__main__":
    main()
