"""`History`: the conversation as a view of the first n items of a list that only grows.

Appending shares the list, so it costs the same at any length; a fork copies pointers; a window is a selection of whole
items. Nothing here can part a call from its result, since an item is a whole exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from turnstile.core.messages import Exchange, Item, Message, UserTurn, flatten

CHARS_PER_ITEM = 16  # about four tokens of framing a message, as OpenAI's cookbook counts them ("How to count tokens")


def size_of(item: Item) -> int:
    """A rough size of an item in characters, for estimates of its tokens."""
    if isinstance(item, UserTurn):
        return len(item.text) + CHARS_PER_ITEM
    size = len(item.reply.text) + CHARS_PER_ITEM
    for call in item.reply.calls:
        size += len(call.name) + len(call.arguments) + CHARS_PER_ITEM
    for result in item.results:
        size += len(result.content) + CHARS_PER_ITEM
    return size


class History(Sequence[Item]):
    """An immutable sequence of items; `append` gives a new one that shares what is there."""

    __slots__ = ("_ends", "_items", "_length")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: list[Item] = []
        self._ends: list[int] = []  # the size of all items up to and including each
        for item in items:
            self._push(item)
        self._length = len(self._items)

    def append(self, *items: Item) -> History:
        """A history with the items added at its end."""
        longer = History.__new__(History)
        if len(self._items) == self._length:
            longer._items, longer._ends = self._items, self._ends
        else:  # somebody else has gone on from here: this is a fork
            longer._items, longer._ends = self._items[: self._length], self._ends[: self._length]
        for item in items:
            longer._push(item)
        longer._length = self._length + len(items)
        return longer

    def _push(self, item: Item) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + size_of(item))
        self._items.append(item)

    def size(self, start: int = 0) -> int:
        """A rough size in characters of the items from `start` on."""
        if start >= self._length:
            return 0
        return self._ends[self._length - 1] - (self._ends[start - 1] if start else 0)

    @property
    def ends_with_results(self) -> bool:
        """Whether the last thing said is a tool's result."""
        return bool(self._length) and isinstance(last := self._items[self._length - 1], Exchange) and bool(last.results)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All items as single messages."""
        return flatten(self._items[: self._length])

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        for index in range(self._length):
            yield self._items[index]

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self._items[: self._length][index])
        if not -self._length <= index < self._length:
            msg = f"history has {self._length} items; there is no item {index}"
            raise IndexError(msg)
        return self._items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self[:] == other[:]

    def __hash__(self) -> int:
        return hash((self._length, self._items[self._length - 1] if self._length else None))

    def __repr__(self) -> str:
        return f"History({list(self)!r})"
