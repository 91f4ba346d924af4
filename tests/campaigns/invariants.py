"""The 24 invariants of a run, each a checker of its own: it yields what is wrong, in words, with numbers of records.

`violations` runs them. A checker looks from outside where it can: at rows as they are stored, at what tools and models
wrote down themselves. Where it folds the journal, it counts again what the fold counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from case import Case
from checks_of_calls import (
    answered_in_order,
    approved_first,
    deny_wins,
    ids_unique,
    intended,
    one_key,
    results_match,
    settled_once,
    written_once,
)  # fmt: skip
from checks_of_limits import bounded, punctual, reserved_once, stops, within_limits
from checks_of_records import (
    chained,
    ends_once,
    epochs_rise,
    exported_whole,
    folded,
    gapless,
    kept,
    lawful,
    replayed,
    secretive,
)  # fmt: skip

Checker = Callable[[Case], Iterator[str]]

INVARIANTS: tuple[Checker, ...] = (
    gapless,
    chained,
    lawful,
    folded,
    kept,
    epochs_rise,
    ends_once,
    secretive,
    intended,
    ids_unique,
    results_match,
    written_once,
    one_key,
    exported_whole,
    settled_once,
    answered_in_order,
    approved_first,
    deny_wins,
    within_limits,
    reserved_once,
    punctual,
    stops,
    bounded,
    replayed,
)
"""All 24, in the order of their numbers."""


def violations(case: Case, checkers: tuple[Checker, ...] = INVARIANTS) -> list[str]:
    """What is wrong with a run, each with the number of the invariant that it breaks; empty for a sound one."""
    return [
        f"invariant {INVARIANTS.index(checker) + 1} ({checker.__name__}), run {case.run_id!r}: {what}"
        for checker in checkers
        for what in checker(case)
    ]
