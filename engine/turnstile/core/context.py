"""Which items of a history a request carries: selections of whole items, so that no call is parted from its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnstile.core.errors import ConfigurationError
from turnstile.core.history import History
from turnstile.core.messages import Item, UserTurn


@dataclass(frozen=True, slots=True)
class KeepAll:
    """Sends the whole history."""

    def select(self, history: History, start: int) -> Sequence[Item]:
        """The items from `start` on, led by what the user asked."""
        return window(history, start)


@dataclass(frozen=True, slots=True)
class LastTurns:
    """Sends the last user turns, each with all exchanges that followed it.

    Attributes:
        turns: How many user turns, the current one included.
    """

    turns: int

    def __post_init__(self) -> None:
        if self.turns < 1:
            msg = f"LastTurns keeps at least 1 user turn; got {self.turns!r}"
            raise ConfigurationError(msg)

    def select(self, history: History, start: int) -> Sequence[Item]:
        """The items of the last user turns, none older than `start` but the question itself."""
        left = self.turns
        for index in range(len(history) - 1, start, -1):
            left -= is_question(history[index])
            if not left:
                return window(history, index)
        return window(history, start)


def window(history: History, start: int) -> Sequence[Item]:
    """The items from `start` on; when they don't begin with a question of the user, the latest one before leads them.

    A provider refuses a conversation that begins with a reply or a result (Anthropic, Messages API: "first message must
    use the user role"), and a model that no longer sees the question cannot answer it.
    """
    if start <= 0:
        return history
    if any(is_question(item) for item in history[start:]) and isinstance(history[start], UserTurn):
        return history[start:]
    question = next((history[index] for index in range(start - 1, -1, -1) if is_question(history[index])), None)
    return (question, *history[start:]) if question else history[start:]


def is_question(item: Item) -> bool:
    """Whether an item is what a user said, not what the engine said in the user's place."""
    return isinstance(item, UserTurn) and not item.synthetic
