"""`diff`: two runs beside each other: where their paths and conversations part, and what each cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Generic, TypeVar

from turnstile.core.messages import Message, Reply, UserTurn
from turnstile.core.step import Transition
from turnstile.replay.replaying import Replay

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """What stands in the same place of two runs.

    Attributes:
        left: In the first; ``None`` when only the second has it.
        right: In the second; ``None`` when only the first has it.
        same: Whether both say the same.
    """

    left: T | None
    right: T | None
    same: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run took.

    Attributes:
        turns: Accepted replies.
        tool_calls: Calls that were given to tools.
        tokens: Tokens of all replies, as far as servers said.
        cost: US dollars; ``None`` when the price of a reply is unknown.
        seconds: The time of all effects.
    """

    turns: int
    tool_calls: int
    tokens: int
    cost: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other.

    Attributes:
        path: Their transitions, aligned by the row taken.
        messages: Their conversations, aligned by what was said.
        figures: What each took.
    """

    path: tuple[Pair[Transition], ...]
    messages: tuple[Pair[Message], ...]
    figures: tuple[Figures, Figures]

    @property
    def same(self) -> bool:
        """Whether both went the same way and said the same."""
        return all(pair.same for pair in self.path) and all(pair.same for pair in self.messages)


def diff(left: Replay, right: Replay) -> Comparison:
    """Two runs beside each other."""
    return Comparison(
        tuple(_aligned(left.transitions, right.transitions, lambda move: (move.row, move.dest, move.reason))),
        tuple(_aligned(left.run.messages, right.run.messages, said)),
        (_figures(left), _figures(right)),
    )


def said(message: Message) -> tuple[Hashable, ...]:
    """Who says what, without ids and times, which differ between any two runs."""
    if isinstance(message, UserTurn):
        return ("engine" if message.synthetic else "user", message.text, message.attachments)
    if isinstance(message, Reply):
        return ("model", message.text, tuple((call.name, call.arguments) for call in message.calls))
    return ("tool", message.name, message.content, message.status)


def _aligned(left: Sequence[T], right: Sequence[T], key: Callable[[T], Hashable]) -> Iterator[Pair[T]]:
    matcher = SequenceMatcher(None, [key(each) for each in left], [key(each) for each in right], autojunk=False)
    for kind, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        here, there = left[left_from:left_to], right[right_from:right_to]
        for place in range(max(len(here), len(there))):
            yield Pair(
                here[place] if place < len(here) else None,
                there[place] if place < len(there) else None,
                kind == "equal",
            )


def _figures(replay: Replay) -> Figures:
    run = replay.run
    seconds = sum(move.duration_ms for move in replay.transitions) / 1000
    return Figures(run.turns, run.tool_calls, run.usage.total_tokens, None if run.unpriced else run.cost, seconds)
