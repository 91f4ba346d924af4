"""`Tally`: counts a campaign's cases and what was wrong with them, for its verdict and for the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sizes import SEED

SHOWN = 10  # of a campaign that fails: enough to see a pattern


@dataclass(slots=True)
class Tally:
    """How one campaign went.

    Attributes:
        campaign: Its number and name.
        cases: How many there were.
        wrong: What was wrong, each with the case that shows it.
        rows: The rows of the table that were hit, where that is counted.
        of_rows: How many there are to hit.
        notes: Further figures.
    """

    campaign: str
    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    of_rows: int = 0
    notes: str = ""
    _began: float = field(default_factory=time.monotonic)
    _took: float | None = None

    def count(self, case: object, violations: Iterable[str]) -> None:
        """Count a case and what was wrong with it."""
        self.cases += 1
        self.wrong.extend(f"{case}: {violation}" for violation in violations)

    def verdict(self) -> None:
        """End the campaign.

        Raises:
            AssertionError: Something was wrong, or there was no case at all.
        """
        self._took = time.monotonic() - self._began
        shown = "\n".join(self.wrong[:SHOWN])
        assert self.cases, f"campaign {self.campaign} had no case"
        assert not self.wrong, f"campaign {self.campaign}, seed {SEED}: {len(self.wrong)} violations\n{shown}"

    @property
    def line(self) -> tuple[str, ...]:
        """Its line in the table: campaign, cases, violations, rows hit, seconds, notes."""
        took = time.monotonic() - self._began if self._took is None else self._took
        rows = f"{len(self.rows)}/{self.of_rows}" if self.of_rows else "-"
        return self.campaign, f"{self.cases:,}", f"{len(self.wrong)}", rows, f"{took:.1f}", self.notes


HEADINGS = ("campaign", "cases", "violations", "rows hit", "seconds", "")


def table(tallies: Iterable[Tally]) -> list[str]:
    """The lines of a table of campaigns, by number."""
    lines = [HEADINGS, *sorted((tally.line for tally in tallies), key=lambda line: int(line[0].split()[0]))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = (0, len(HEADINGS) - 1)
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
