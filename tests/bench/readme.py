"""Writes the section "Speed" of the project's README from the results of the last whole bench.

Usage: ``python readme.py [--check]``. The section stands before "Limits and status", and replaces an older one.
A check writes nothing, and ends with status 1 when the README says something else.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from peers import HERE, PEERS, QUICK, ROOT
from report import Bench, Verdict, behind, bullets, cell, from_json, number, table, verdicts_of
from rows import BY_NAME, OURS, ROWS, Row, best_peer

SHOWN = (
    "turn_10",
    "turn_1000",
    "http_10",
    "http_100",
    "stream",
    "first",
    "parallel_async",
    "parallel_threads",
    "runs_1000",
    "memory_1000",
    "http_runs_1000",
    "journal_500",
    "journal_bytes_500",
    "resume",
    "cold",
)
BEFORE = "## Limits and status\n"

INTRODUCTION = """\
One run of `make bench` measures Turnstile, a loop written by hand over `httpx`, and five frameworks on the same
scripted work. A turn is a model call with the tool calls that follow it. Figures are medians; how large they are
depends on the machine, so compare those of a line. Turnstile writes its JSON log in all of them. Here:
"""

REPEAT = """\
There are [all rows, with spread and versions](tests/bench/results/bench.md),
[a picture](tests/bench/results/bench.svg), and [what a figure means](tests/bench/README.md). To repeat it on a machine
that does nothing else:

```sh
make bench         # everything, about 40 minutes on 2 cores
make bench-quick   # Turnstile and the bare loop; under 4 minutes once their environments are made
```
"""

CAUSES = {
    "turn_10": "three moves with their verdicts and a line of log each, two commits with intents and digests and three "
    "tasks are some 380 calls of Python functions, none of which takes a tenth; and what they touch, some 600 KiB of "
    "code and data, is more than the 512 KiB that this processor keeps close",
    "turn_100": "1,000 rounds pass the same bar, so this is, at least in part, the spread of the readings",
    "turn_1000": "a turn costs the same at any length, but is not cheap enough beside the cheapest framework",
    "http_10": "the request takes less than the bare loop's, though not by as much as the engine's own turn",
    "http_100": "the request takes less than the bare loop's, though not by as much as the engine's own turn",
    "runs_1000": "six of the engine's own turns, and what a run takes to begin and to end",
    "runs_10000": "what belongs to a run has left the processor's caches whenever it is its turn",
    "memory_1000": "a third is what was said; each of eleven moves is kept with its verdicts, and a run has two tasks",
    "journal_500": "two commits a turn, where the bare loop has one, since no tool runs before its intent is on disk; "
    "and the pace of a disk varies",
    "journal_at_once": "all runs of a process share one writer, whose Python is what limits it",
    "resume": "each record is held against its chain, read by its declared types, and taken through the table again; "
    "and the machine was slower in this run than when the bar was set, where the bare loop's turn took 5 µs",
    "stream": "two thirds are httpx and its parser of HTTP/1.1, as in the bare loop; the rest reads and tells it",
    "first": "the difference is smaller than the noise of a shared machine",
    "parallel_async": "a millisecond passes before the first call begins: a run is opened, and its calls are vetted",
    "parallel_threads": "a millisecond passes before the first call begins, and each thread waits for Python's lock",
}
"""Why a bar is missed, where one is."""

BESIDE = """\
Machines differ, so what is to take so much processor time is held beside the bare loop: 150 µs a turn, set where that
took 5, is 30 times its figure. Missed are:"""

LOOP = """\
The loop written by hand keeps no journal unless its row says so, and checks, logs and limits nothing. Where it is
faster, that is what these cost.
"""


def section(bench: Bench) -> str:
    """The section, heading and all."""
    rows = [BY_NAME[name] for name in SHOWN if name in bench.table]
    verdicts = [verdict for row in ROWS for verdict in verdicts_of(bench.table, row)]
    missed = [verdict for verdict in verdicts if not verdict.reached]
    others = [name for name in bench.contenders if name not in QUICK]
    parts = [
        "## Speed",
        f"{INTRODUCTION}{bench.machine}.",
        table(["what", "unit", PEERS[OURS].title, "bare loop", "best peer"], (_line(bench, row) for row in rows)),
        REPEAT.rstrip(),
        "A framework is better, and so many times, at:",
        bullets(behind(bench, others)),
        LOOP.rstrip(),
        f"Of the {len(verdicts)} bars that the project has set itself, this run missed {len(missed)}.\n{BESIDE}",
        bullets(
            _shortfall(row, [verdict for verdict in missed if verdict.row is row])
            for row in dict.fromkeys(one.row for one in missed)
        ),
    ]
    return "\n\n".join(parts) + "\n\n"


def _shortfall(row: Row, missed: Sequence[Verdict]) -> str:
    bars = "; ".join(f"must be {one.must}, is {one.got}" for one in missed)
    cause = CAUSES.get(row.name)
    return f"{row.full_title}: {bars}. {cause[0].upper()}{cause[1:]}." if cause else f"{row.full_title}: {bars}"


def _line(bench: Bench, row: Row) -> list[str]:
    cells = bench.table[row.name]
    best = best_peer(bench.table, row)
    figures = [cell(cells.get(name, "")).partition(" ±")[0] for name in QUICK]
    return [row.full_title, row.unit, *figures, f"{number(best[1])} ({PEERS[best[0]].title})" if best else "–"]


def put(page: str, text: str) -> str:
    """A page with that section in the place of an older one, or before the last section."""
    without = re.sub(r"^## Speed\n.*?(?=^## )", "", page, flags=re.DOTALL | re.MULTILINE)
    if BEFORE not in without:
        message = f"README.md must have the heading {BEFORE.strip()!r}, which the section stands before"
        raise SystemExit(message)
    return without.replace(BEFORE, text + BEFORE, 1)


def main() -> None:
    """Write it, or see that it is there."""
    data = json.loads((HERE / "results" / "bench.json").read_text())
    readme = Path(ROOT / "README.md")
    page = readme.read_text()
    new = put(page, section(Bench(from_json(data), data["machine"], data["versions"])))
    if sys.argv[1:] != ["--check"]:
        readme.write_text(new)
    elif page != new:
        message = "README.md tells other figures than the last bench; run python3 tests/bench/readme.py"
        raise SystemExit(message)


if __name__ == "__main__":
    main()
