"""Which items of a history a request carries: selections of whole items, so that no call is parted from its result."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from turnstile.core.budget import CHARS_PER_TOKEN
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
        first = len(history)
        for _ in range(self.turns):
            question = history.question_before(first)
            if question is None:
                return window(history, start)
            first = question
        return window(history, max(first, start))


@dataclass(frozen=True, slots=True)
class LastTokens:
    """Sends the newest items, as many as fit into so many tokens by the engine's own estimate, whatever servers count.

    What is too old goes half of the room at a time, so that requests keep their beginning, and with it the provider's
    prompt cache, for as long as they can. The newest item is always sent, and so is the question that it belongs to.

    Attributes:
        tokens: The most that the conversation may have in a request; instructions, tools and the reply come on top.
    """

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            msg = f"LastTokens keeps at least 1 token; got {self.tokens!r}"
            raise ConfigurationError(msg)

    def select(self, history: History, start: int) -> Sequence[Item]:
        """The newest items that fit, none older than `start` but the question itself."""
        room, whole = self.tokens * CHARS_PER_TOKEN, history.size(start)
        if whole <= room:
            return window(history, start)
        half = -(-room // 2)
        most = whole - half * -(-(whole - room) // half)
        first = bisect_left(range(len(history)), -most, lo=start, key=lambda place: -history.size(place))
        return window(history, min(first, len(history) - 1))


def window(history: History, start: int) -> Sequence[Item]:
    """The items from `start` on; when they don't begin with the user, the latest question before leads them.

    A provider refuses a conversation that begins with a reply or a result (Anthropic, Messages API: "first message must
    use the user role"), and a model that no longer sees the question cannot answer it. Without an earlier question,
    what stands before the next one is left out.
    """
    if start <= 0:
        return history
    items = history[start:]
    newest, before = history.question_before(len(history)), history.question_before(start)
    if newest != before and isinstance(items[0], UserTurn):
        return items
    if before is not None:
        return (history[before], *items)
    return tuple(dropwhile(lambda item: not isinstance(item, UserTurn), items)) or items
