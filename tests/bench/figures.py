"""`Figure`: the median of repeated measurements with their spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The median of some values with the quartiles around it; of fewer than four, with the least and the greatest."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """The figure of at least one value."""
        ordered = sorted(values)
        low, high = ordered[0], ordered[-1]
        if len(ordered) > 3:
            low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
        return cls(statistics.median(ordered), low, high, len(ordered))


Cell = Figure | str
"""A figure, or why there is none."""
Table = dict[str, dict[str, Cell]]
"""By row and contender."""
