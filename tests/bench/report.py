"""The results as Markdown, from the JSON that a bench wrote.

A cell is ``2,160 ±40 (430×)``: the median, half the distance between the quartiles, and how many bare loops that makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from figures import Cell, Figure, Table
from peers import PEERS
from rows import BARS, BY_NAME, OURS, ROWS, Bar, Row, median

NOTHING = "–"


@dataclass(frozen=True)
class Bench:
    """What one bench measured.

    Attributes:
        table: The figures.
        machine: What it ran on, one line.
        versions: Each contender's packages that matter.
    """

    table: Table
    machine: str
    versions: dict[str, str]

    @property
    def contenders(self) -> list[str]:
        """Those that were measured, ours first."""
        return [name for name in PEERS if name in self.versions]


def markdown(bench: Bench) -> str:
    """The whole page."""
    rows = [row for row in ROWS if row.name in bench.table]
    verdicts = [verdict for row in rows for verdict in verdicts_of(bench.table, row)]
    missed = [verdict for verdict in verdicts if not verdict.reached]
    heads = ["what", "unit", *(PEERS[name].title for name in bench.contenders), "must", "is", "reached"]
    parts = [
        "# Turnstile beside its peers",
        f"{bench.machine}. Medians with their spread; in brackets, the multiple of the bare loop's figure.",
        f"Turnstile reaches {len(verdicts) - len(missed)} of the {len(verdicts)} bars that it has set itself.",
        table(heads, (_cells(bench, row) for row in rows)),
        "## Bars that are missed",
        bullets(f"{verdict.row.title}: must be {verdict.must}, is {verdict.got}" for verdict in missed),
        "## Where a peer is better",
        bullets(behind(bench, bench.contenders)),
        "## Versions",
        bullets(f"{PEERS[name].title}: {versions}" for name, versions in bench.versions.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _cells(bench: Bench, row: Row) -> list[str]:
    cells = bench.table[row.name]
    texts = []
    for contender in bench.contenders:
        text = cell(cells.get(contender, ""))
        times = against_bare(bench.table, row, contender)
        texts.append(f"{text} ({number(times)}×)" if times and contender != "bare" else text)
    verdicts = verdicts_of(bench.table, row)
    lines = (
        [verdict.must for verdict in verdicts],
        [verdict.got for verdict in verdicts],
        ["yes" if verdict.reached else "**no**" for verdict in verdicts],
    )
    return [row.full_title, row.unit, *texts, *("<br>".join(line) for line in lines)]


def cell(value: Cell) -> str:
    """A figure with its spread, or why there is none."""
    if isinstance(value, str):
        return value or NOTHING
    return f"{number(value.median)} ±{number((value.high - value.low) / 2)}"


def against_bare(figures: Table, row: Row, contender: str) -> float | None:
    """A contender's figure as a multiple of the bare loop's."""
    theirs, bare = median(figures, row.name, contender), median(figures, row.name, "bare")
    return theirs / bare if theirs and bare else None


def advantage(figures: Table, row: Row, contender: str) -> float | None:
    """How many times better our figure is than a contender's; below 1, the contender's is better."""
    ours, theirs = median(figures, row.name, OURS), median(figures, row.name, contender)
    if not ours or not theirs:
        return None
    return ours / theirs if row.more_is_better else theirs / ours


def behind(bench: Bench, contenders: Sequence[str]) -> Iterator[str]:
    """Row by row, which of these contenders are better, and by how much."""
    for row in ROWS:
        better = [
            f"{row.whose(contender)} ({number(1 / times)}×)"
            for contender in contenders
            if contender != OURS and (times := advantage(bench.table, row, contender)) and times < 1
        ]
        if better:
            yield f"{row.title}: {', '.join(better)}"


@dataclass(frozen=True)
class Verdict:
    """A bar, what was measured, and whether that reaches it."""

    row: Row
    must: str
    got: str
    reached: bool


def verdicts_of(figures: Table, row: Row) -> list[Verdict]:
    """The verdicts on the bars of a row that can be told."""
    measured = [(bar, bar.measured(figures)) for bar in BARS if bar.row == row.name]
    return [_verdict(row, bar, value) for bar, value in measured if value is not None]


def _verdict(row: Row, bar: Bar, measured: float) -> Verdict:
    sign = "≥" if row.more_is_better else "≤"
    if bar.of:
        what = f"its own {BY_NAME[bar.of_row].title}" if bar.of == OURS else row.whose(bar.of)
        must, got = f"{sign} {_ratio(bar.bound)} of {what}", _ratio(measured)
    else:
        must, got = f"{sign} {number(bar.bound)} {row.unit}", f"{number(measured)} {row.unit}"
    return Verdict(row, must, got, bar.is_met(measured))


def _ratio(value: float) -> str:
    return f"1/{1 / value:.0f}" if value < 1 / 10 else f"{value:.2f}"


def number(value: float) -> str:
    """A number with the digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {line}" for line in lines) or "None."


def from_json(data: dict[str, dict[str, dict[str, dict[str, float] | str]]]) -> Table:
    """The table, from what `run.py` wrote of it."""
    return {
        row: {name: cell if isinstance(cell, str) else Figure(**cell) for name, cell in cells.items()}  # type: ignore[arg-type]
        for row, cells in data["table"].items()
    }
