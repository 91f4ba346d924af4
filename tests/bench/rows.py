"""The rows of the table, and what each must reach: `ROWS` and `BARS`, after the project's performance goals."""

from __future__ import annotations

from dataclasses import dataclass

from figures import Figure, Table
from peers import PEERS, QUICK

OURS = "turnstile"
BEST_FRAMEWORK = "best framework"
"""As what a bar compares with: the agent framework with the best figure of the row."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What measures and bars call it.
        title: What is measured.
        unit: Of the figures.
        more_is_better: As with runs a second.
        floor: What stands in the bare loop's column, where that is something else.
    """

    name: str
    title: str
    unit: str
    more_is_better: bool = False
    floor: str = ""

    @property
    def full_title(self) -> str:
        """What is measured, and beside what."""
        return f"{self.title}, beside {self.floor}" if self.floor else self.title

    def whose(self, contender: str) -> str:
        """A contender's name in this row."""
        if contender not in PEERS:
            return f"the {contender}"
        return self.floor if contender == "bare" and self.floor else PEERS[contender].title


ROWS = (
    Row("turn_10", "engine a turn, in process, 10 rounds", "µs"),
    Row("turn_100", "engine a turn, in process, 100 rounds", "µs"),
    Row("turn_1000", "engine a turn, in process, 1,000 rounds", "µs"),
    Row("http_10", "a turn over HTTP, 10 rounds", "ms"),
    Row("http_100", "a turn over HTTP, 100 rounds", "ms"),
    Row("parallel_async", "a run with 8 tools sleeping 50 ms at once", "ms"),
    Row("parallel_threads", "a run with 8 tools blocking 50 ms at once", "ms"),
    Row("runs_1", "runs of 5 rounds in process, one at a time", "runs/s", more_is_better=True),
    Row("runs_100", "runs of 5 rounds in process, 100 at once", "runs/s", more_is_better=True),
    Row("runs_1000", "runs of 5 rounds in process, 1,000 at once", "runs/s", more_is_better=True),
    Row("runs_10000", "runs of 5 rounds in process, 10,000 at once", "runs/s", more_is_better=True),
    Row("memory_1000", "memory a run while 1,000 are live", "KiB"),
    Row("memory_10000", "memory a run beyond its messages while 10,000 are live", "KiB"),
    Row("http_runs_1", "runs of 5 rounds over HTTP, one at a time", "runs/s", more_is_better=True),
    Row("http_runs_100", "runs of 5 rounds over HTTP, 100 at once", "runs/s", more_is_better=True),
    Row("http_runs_1000", "runs of 5 rounds over HTTP, 1,000 at once", "runs/s", more_is_better=True),
    Row("cold", "cold start: import and build an agent", "ms"),
    Row("cold_memory", "resident memory after a cold start", "MiB"),
    Row("import", "`import turnstile`", "ms", floor="`import httpx`"),
    Row("log_line", "a line of the log", "µs", floor="structlog alone"),
    Row("machine_step", "a step of the machine", "µs", floor="a trigger of `transitions` alone"),
    Row("journal_100", "journal, added to a turn, of 100", "ms"),
    Row("journal_500", "journal, added to a turn, of 500", "ms"),
    Row("journal_bytes_10", "journal, bytes of a turn, of 10", "bytes"),
    Row("journal_bytes_100", "journal, bytes of a turn, of 100", "bytes"),
    Row("journal_bytes_500", "journal, bytes of a turn, of 500", "bytes"),
    Row("journal_bytes_1000", "journal, bytes of a turn, of 1,000", "bytes"),
    Row("journal_commits", "journal, commits of a turn", "commits"),
    Row(
        "journal_at_once", "journal, 100 runs at once", "events/s", more_is_better=True, floor="a transaction an event"
    ),
    Row("journal_shared", "journal, 100 runs at once", "events/s", more_is_better=True, floor="commits that all share"),
    Row("resume", "resume of a run of 1,000 turns", "ms"),
    Row("stream", "a chunk of a stream of 5,000", "µs"),
    Row("first", "the first chunk of a paced stream", "ms"),
)


@dataclass(frozen=True)
class Bar:
    """What our figure of a row must reach.

    Attributes:
        row: The row.
        bound: The most it may be, or, where more is better, the least.
        of: Whose figure it is a multiple of; without one, the bound is in the row's unit.
        of_row: Which row's figure that is; the same row's without one.
    """

    row: str
    bound: float
    of: str = ""
    of_row: str = ""

    def measured(self, table: Table) -> float | None:
        """Our figure, as the bar wants it; ``None`` while a figure is missing."""
        ours = median(table, self.row, OURS)
        against = median(table, self.of_row or self.row, self.of) if self.of else 1.0
        return ours / against if ours is not None and against else None

    def is_met(self, measured: float) -> bool:
        """Whether a measured value reaches the bar."""
        return measured >= self.bound if BY_NAME[self.row].more_is_better else measured <= self.bound


BY_NAME = {row.name: row for row in ROWS}

# How long anything takes drifts with the machine, so a goal in processor time is held as a multiple of the bare loop's
# figure beside it: 150 µs where that took 5, 1,500 runs a second where it did 16,200, 35 µs where it took 23.
BARS = (
    Bar("turn_10", 150 / 5, of="bare"),
    Bar("turn_10", 1 / 12, of="langgraph"),
    Bar("turn_10", 0.6, of="burr"),
    Bar("turn_100", 1.1, of=OURS, of_row="turn_10"),
    Bar("turn_1000", 1.2, of=OURS, of_row="turn_10"),
    Bar("turn_1000", 1 / 25, of=BEST_FRAMEWORK),
    Bar("http_10", 1.3, of="bare"),
    Bar("http_100", 1.0, of="bare"),
    Bar("parallel_async", 53),
    Bar("parallel_threads", 56),
    Bar("runs_1000", 1500 / 16_200, of="bare"),
    Bar("runs_1000", 0.9, of=OURS, of_row="runs_1"),
    Bar("runs_10000", 0.8, of=OURS, of_row="runs_1000"),
    Bar("memory_1000", 20),
    Bar("memory_10000", 20),
    Bar("http_runs_1000", 3.0, of="bare"),
    Bar("http_runs_1000", 1.0, of=OURS, of_row="http_runs_1"),
    Bar("journal_500", 3.0, of="bare"),
    Bar("journal_500", 1 / 8, of="langgraph"),
    Bar("journal_bytes_500", 2500),
    Bar("journal_bytes_500", 1.1, of=OURS, of_row="journal_bytes_100"),
    Bar("journal_bytes_1000", 1.1, of=OURS, of_row="journal_bytes_100"),
    Bar("journal_at_once", 5.0, of="bare"),
    Bar("resume", 150),
    Bar("stream", 35 / 23, of="bare"),
    Bar("first", 1.5, of="bare"),
    Bar("cold", 1.5, of="bare"),
    Bar("cold_memory", 45),
    Bar("import", 1.0, of="bare"),
)


def median(table: Table, row: str, contender: str) -> float | None:
    """A median of the table; ``None`` where there is none."""
    cells = table.get(row, {})
    if contender == BEST_FRAMEWORK:
        medians = [median(table, row, peer.name) for peer in PEERS.values() if peer.is_framework]
        known = [value for value in medians if value is not None]
        best = max if BY_NAME[row].more_is_better else min
        return best(known) if known else None
    cell = cells.get(contender)
    return cell.median if isinstance(cell, Figure) else None


def best_peer(table: Table, row: Row) -> tuple[str, float] | None:
    """The contender with the best figure of a row, besides ours and the bare loop, and that figure."""
    known = [(name, value) for name in PEERS if name not in QUICK and (value := median(table, row.name, name))]
    best = max if row.more_is_better else min
    return best(known, key=lambda one: one[1]) if known else None
