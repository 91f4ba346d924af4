"""Where a turn's time goes: by module, and by function, in microseconds of a turn.

Usage: ``python profile_turn.py`` in our own environment. A profiler slows what is called often, so shares count here,
not sums; the bench has the sums.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
from collections import Counter
from pathlib import Path

from contenders.turnstile import build
from work import Job

JOB = Job(rounds=100)
RUNS = 20
TURNS = RUNS * (JOB.rounds + 1)
SHOWN = 30

Function = tuple[str, int, str]
"""Its file, line and name."""


def profiled() -> dict[Function, tuple[int, float]]:
    """How often each function ran, and its own seconds, without those of what it called."""
    once = build(JOB)

    async def runs() -> None:
        for _ in range(RUNS):
            run = once()
            assert not isinstance(run, str)
            await run

    asyncio.run(runs())
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, runs())
    stats: dict[Function, tuple[int, int, float, float, object]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return {function: (calls, own) for function, (_, calls, own, _, _) in stats.items()}


def module(function: Function) -> str:
    """The module of a function, as a reader knows it; built-in functions have one in common."""
    parts = Path(function[0]).with_suffix("").parts
    for root in ("site-packages", "engine", f"python3.{sys.version_info.minor}"):
        if root in parts:
            return ".".join(parts[len(parts) - parts[::-1].index(root) :])
    return "(built in)" if function[0] == "~" else parts[-1]


def table(title: str, calls: Counter[str], seconds: Counter[str]) -> str:
    """A line for each name: its calls and microseconds a turn, the costliest first."""
    lines = [f"{title:70} {'calls':>8} {'µs':>8}"]
    lines += [
        f"{name[:70]:70} {calls[name] / TURNS:8.1f} {own / TURNS * 1e6:8.1f}"
        for name, own in seconds.most_common(SHOWN)
    ]
    return "\n".join(lines)


def main() -> None:
    """Print both tables."""
    functions = profiled()
    for title in ("module", "function"):
        calls: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for function, (count, own) in functions.items():
            name = module(function) if title == "module" else f"{module(function)}: {function[2]}"
            calls[name] += count
            seconds[name] += own  # type: ignore[assignment] # a Counter is typed for whole numbers, and adds any
        print(table(title, calls, seconds), end="\n\n")


if __name__ == "__main__":
    main()
