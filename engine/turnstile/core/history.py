"""`History`: the conversation as a view of the first n items of a list that only grows.

Appending shares the list, so it costs the same at any length; a fork copies pointers; a window is a selection of whole
items. Nothing here can part a call from its result, since an item is a whole exchange.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

from turnstile.core.errors import UsageError
from turnstile.core.messages import Attachment, Exchange, Item, Message, Reply, ToolResult, UserTurn, flatten

CHARS_PER_IMAGE = 4_800  # 1,600 tokens, what a picture costs at most at the usual size (Anthropic, "Vision")
CHARS_PER_ITEM = 16  # about four tokens of framing a message, as OpenAI's cookbook counts them ("How to count tokens")


def length_of(text: str) -> int:
    """The length of a text for estimates of its tokens: in UTF-8, since other scripts need more tokens a character."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of(item: Item) -> int:
    """A rough size of an item in characters, as `length_of` counts them, for estimates of its tokens."""
    if not isinstance(item, Exchange):
        return length_of(item.text) + CHARS_PER_ITEM + sum(map(_size_of_attachment, item.attachments))
    size = length_of(item.reply.text) + length_of(item.reply.native) + CHARS_PER_ITEM
    for call in item.reply.calls:
        size += length_of(call.name) + length_of(call.arguments) + CHARS_PER_ITEM
    for result in item.results:
        size += length_of(result.content) + CHARS_PER_ITEM
    return size


def _size_of_attachment(attachment: Attachment) -> int:
    return CHARS_PER_IMAGE if attachment.is_image or attachment.url else len(attachment.data) * 3 // 4


class History(Sequence[Item]):
    """An immutable sequence of items; `append` gives a new one that shares what is there."""

    __slots__ = ("_ends", "_items", "_length", "_questions")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items: list[Item] = []
        self._ends: list[int] = []  # the size of all items up to and including each
        self._questions: list[int] = []  # the indexes of what the user said
        for item in items:
            self._push(item)
        self._length = len(self._items)

    @classmethod
    def of(cls, messages: Iterable[Item | Message]) -> History:
        """A history of single messages, of items, or of both; a reply takes the results that follow it.

        Raises:
            UsageError: A call has no result, a result has no call, or results stand in another order than their calls.
        """
        return cls(_grouped(messages))

    def append(self, *items: Item) -> History:
        """A history with the items added at its end."""
        longer = History.__new__(History)
        if len(self._items) == self._length:
            longer._items, longer._ends, longer._questions = self._items, self._ends, self._questions
        else:  # somebody else has gone on from here: this is a fork
            longer._items, longer._ends = self._items[: self._length], self._ends[: self._length]
            longer._questions = self._questions[: bisect_left(self._questions, self._length)]
        for item in items:
            longer._push(item)
        longer._length = self._length + len(items)
        return longer

    def _push(self, item: Item) -> None:
        self._ends.append((self._ends[-1] if self._ends else 0) + size_of(item))
        if not isinstance(item, Exchange) and not item.synthetic:
            self._questions.append(len(self._items))
        self._items.append(item)

    def size(self, start: int = 0) -> int:
        """A rough size in characters of the items from `start` on."""
        if start >= self._length:
            return 0
        return self._ends[self._length - 1] - (self._ends[start - 1] if start else 0)

    def question_before(self, index: int) -> int | None:
        """Index of the latest item before `index` that the user said, not the engine in the user's place."""
        place = bisect_left(self._questions, min(index, self._length))
        return self._questions[place - 1] if place else None

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
        return islice(self._items, self._length)

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


def _grouped(messages: Iterable[Item | Message]) -> Iterator[Item]:
    reply: Reply | None = None
    results: list[ToolResult] = []
    for message in messages:
        if isinstance(message, ToolResult):
            _check_place(message, reply, results)
            results.append(message)
            continue
        if reply is not None:
            yield _answered(reply, results)
        reply, results = None, []
        if isinstance(message, Reply):
            reply = message
        elif isinstance(message, UserTurn | Exchange):
            yield message
        else:
            msg = f"a history holds UserTurn, Reply, ToolResult and Exchange; got {message!r}"
            raise UsageError(msg)
    if reply is not None:
        yield _answered(reply, results)


def _answered(reply: Reply, results: list[ToolResult]) -> Exchange:
    missing = [call.id for call in reply.calls[len(results) :]]
    if missing:
        msg = f"the calls {missing!r} have no result; add one for each, in call order, directly after their reply"
        raise UsageError(msg)
    return Exchange(reply, tuple(results))


def _check_place(result: ToolResult, reply: Reply | None, results: list[ToolResult]) -> None:
    place = len(results)
    if reply is not None and place < len(reply.calls) and reply.calls[place].id == result.call_id:
        return
    waiting = [call.id for call in reply.calls[place:]] if reply else []
    if result.call_id in waiting:
        msg = f"the result of call {result.call_id!r} stands before that of {waiting[0]!r}; keep the calls' order"
    else:
        msg = f"the result of call {result.call_id!r} has no call; the calls that wait for one here are {waiting!r}"
    raise UsageError(msg)
