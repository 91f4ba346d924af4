"""`assert_path`: the states that a run went through, as one readable assertion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Protocol

from turnstile.core.step import Transition


class HasTransitions(Protocol):
    """A `Result`, or whatever else has transitions."""

    @property
    def transitions(self) -> Sequence[Transition]:
        """The moves, oldest first."""


def assert_path(result: HasTransitions, path: str) -> None:
    """Assert that a run went through exactly these states.

    ::

        assert_path(result, "await_model execute_tools append_results await_model done")

    A move that leaves the running effect alone (a message from outside) is no step of the path; a state entered anew,
    as by a retry, is named again.

    Args:
        result: What has the transitions.
        path: The states' names, separated by blanks.

    Raises:
        AssertionError: It went another way; the text shows both ways beside each other, and why each step was taken.
    """
    expected, moves = path.split(), [move for move in result.transitions if not move.stays]
    taken = [result.transitions[0].source, *(move.dest for move in moves)] if result.transitions else []
    if taken == expected:
        return
    reasons = ["", *(f"{move.event}: {move.reason}" for move in moves)]
    lines = "\n".join(_beside(expected, taken, reasons))
    raise AssertionError(f"the run took another path than expected\n{lines}")


def _beside(expected: list[str], taken: list[str], reasons: list[str]) -> Iterator[str]:
    width = max(map(len, [*expected, *taken, "expected"]))
    yield f"  {'expected':{width}}  {'taken':{width}}  why"
    for tag, a, b, c, d in SequenceMatcher(a=expected, b=taken, autojunk=False).get_opcodes():
        mark = " " if tag == "equal" else "≠"
        for place in range(max(b - a, d - c)):
            left = expected[a + place] if a + place < b else ""
            right, why = (taken[c + place], reasons[c + place]) if c + place < d else ("", "")
            yield f"{mark} {left:{width}}  {right:{width}}  {why}".rstrip()
