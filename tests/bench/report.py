"""The results as Markdown, from the JSON that a bench wrote.

A cell is ``2,160 ±40 (14×)``: the median, half the distance between the quartiles, and how many times better ours is.
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
    titles = [PEERS[name].title for name in bench.contenders]
    parts = [
        "# Turnstile beside its peers",
        f"{bench.machine}. Medians with their spread; in brackets, how many times better Turnstile is.",
        _table(["what", "unit", *titles], (_cells(bench, row) for row in ROWS if _is_shown(bench, row))),
        "## What must be reached",
        _table(["what", "must", "is", "reached"], filter(None, (_verdict(bench.table, bar) for bar in BARS))),
        "## Where a peer is better",
        "\n".join(_behind(bench)) or "Nowhere.",
        "## Versions",
        "\n".join(f"- {PEERS[name].title}: {versions}" for name, versions in bench.versions.items()),
    ]
    return "\n\n".join(parts) + "\n"


def advantage(table: Table, row: Row, contender: str) -> float | None:
    """How many times better our figure is than a contender's; below 1, the contender's is better."""
    ours, theirs = median(table, row.name, OURS), median(table, row.name, contender)
    if not ours or not theirs:
        return None
    return ours / theirs if row.more_is_better else theirs / ours


def _is_shown(bench: Bench, row: Row) -> bool:
    return bool(row.missing) or row.name in bench.table


def _cells(bench: Bench, row: Row) -> list[str]:
    cells = bench.table.get(row.name, {})
    texts = []
    for contender in bench.contenders:
        text = _cell(cells.get(contender, row.missing if contender == OURS else ""))
        times = advantage(bench.table, row, contender)
        texts.append(f"{text} ({number(times)}×)" if times and contender != OURS else text)
    return [row.title, row.unit, *texts]


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell or NOTHING
    return f"{number(cell.median)} ±{number((cell.high - cell.low) / 2)}"


def _verdict(table: Table, bar: Bar) -> list[str] | None:
    measured = bar.measured(table)
    if measured is None:
        return None
    row = BY_NAME[bar.row]
    sign = "≥" if row.more_is_better else "≤"
    if bar.of:
        whose = PEERS[bar.of].title if bar.of in PEERS else f"the {bar.of}"
        what = f"its own {BY_NAME[bar.of_row].title}" if bar.of == OURS else whose
        must, got = f"{sign} {_ratio(bar.bound)} of {what}", _ratio(measured)
    else:
        must, got = f"{sign} {number(bar.bound)} {row.unit}", f"{number(measured)} {row.unit}"
    return [row.title, must, got, "yes" if bar.is_met(measured) else "**no**"]


def _behind(bench: Bench) -> Iterator[str]:
    for row in ROWS:
        better = [
            f"{PEERS[contender].title} ({number(1 / times)}×)"
            for contender in bench.contenders
            if contender != OURS and (times := advantage(bench.table, row, contender)) and times < 1
        ]
        if better:
            yield f"- {row.title}: {', '.join(better)}"


def _ratio(value: float) -> str:
    return f"1/{1 / value:.0f}" if value < 1 / 10 else f"{value:.2f}"


def number(value: float) -> str:
    """A number with the digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def from_json(data: dict[str, dict[str, dict[str, dict[str, float] | str]]]) -> Table:
    """The table, from what `run.py` wrote of it."""
    return {
        row: {name: cell if isinstance(cell, str) else Figure(**cell) for name, cell in cells.items()}  # type: ignore[arg-type]
        for row, cells in data["table"].items()
    }
