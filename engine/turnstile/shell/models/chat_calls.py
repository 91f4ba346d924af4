"""`CallPieces`: puts the pieces of streamed tool calls together, by whatever of index, id, name and order tells.

Each server breaks another of them. An index may be missing, a text, the same for all calls, or wrong for a call's head;
an id may be missing, empty, repeated, or another one in each piece; a name may come whole, with each piece, or cut. So
a piece goes to the call at its index, else to the last one, and a new call begins only where going on would put two
calls into one: two calls that were merged would be run as a third that nobody wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.json_text import as_dict, as_text, dumps

Object = dict[str, JsonValue]

_KNOWN = {"index", "id", "type", "function"}
_MARK = re.compile(r'["{}\[\]]')  # what opens or closes something, outside of a text
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}
_TEXT = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)  # to its end, or to a backslash that a piece ends with
_LONGEST_INDEX = 4  # digits of an index that is a text; no reply has more calls


class _Call:
    """A call as far as it is known."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.extra: Object = {}
        self._length = 0
        self._seen = 0
        self._opened = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def is_complete(self) -> bool:
        """Whether its arguments so far are an object that is closed; each character is looked at once."""
        for piece in self.pieces[self._seen :]:
            self._look_at(piece)
        self._seen = len(self.pieces)
        return self._opened and self._depth == 0 and not self._in_string

    def _look_at(self, piece: str) -> None:
        place = int(self._escaped)  # what stands behind a backslash means nothing, and may come with the next piece
        self._escaped = False
        while place < len(piece):
            if self._in_string:
                text = _TEXT.match(piece, place)
                assert text is not None  # noqa: S101 - it may be empty
                last = piece[text.end() : text.end() + 1]
                self._in_string, self._escaped = last != '"', last == "\\"
                place = text.end() + 1
            elif mark := _MARK.search(piece, place):
                place = mark.end()
                self._in_string = mark[0] == '"'
                self._depth += _DEPTH.get(mark[0], 0)
                self._opened = self._opened or mark[0] in "{["
            else:
                break

    def add(self, call_id: str, name: str, arguments: str, extra: Object) -> None:
        """Take a piece: a name that comes again is the same one, and another is its next part."""
        self.id = self.id or call_id
        if name != self.name:
            self.name += name
        if arguments:
            self.pieces.append(arguments)
            self._length += len(arguments)
        self.extra |= extra

    def repeats(self, arguments: str) -> bool:
        """Whether arguments are those that it has already, whole."""
        return len(arguments) == self._length and self.is_complete() and arguments == "".join(self.pieces)

    def continues(self, call_id: str, name: str, arguments: str, *, indexed: bool) -> bool:
        """Whether a piece that came to the place of this call belongs to it."""
        if call_id and self.id and call_id != self.id:
            if not name:
                return not self.is_complete()
            return name == self.name and bool(self.pieces) and not self.is_complete()
        if not name or not self.is_complete():
            return True
        if not arguments:
            return name == self.name
        return (indexed or bool(call_id)) and name == self.name and self.repeats(arguments)


class CallPieces:
    """The calls of one reply while it is written."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, entries: JsonValue) -> Iterator[str]:
        """Take what a chunk says of calls, and give the arguments in it.

        Args:
            entries: The chunk's ``tool_calls``: a list, or one entry.
        """
        listed = entries if isinstance(entries, list) else [entries]
        before: _Call | None = None
        for entry in listed:
            piece = as_dict(entry)
            function = as_dict(piece.get("function")) or piece
            given = function.get("arguments")
            arguments = given if isinstance(given, str) else "" if given is None else dumps(given).decode()
            call_id, name = _id(piece.get("id")), as_text(function.get("name"))
            extra = {key: part for key, part in piece.items() if key not in _KNOWN and key not in {"name", "arguments"}}
            call = self._place(_index(piece.get("index")), call_id, name, arguments, before)
            if call is None:
                continue
            before = self._last = call
            arguments = "" if call.repeats(arguments) else arguments
            call.add(call_id, name, arguments, extra)
            if arguments:
                yield arguments

    def _place(self, index: int | None, call_id: str, name: str, arguments: str, before: _Call | None) -> _Call | None:
        """The call that a piece belongs to, perhaps a new one; none for a piece that says nothing."""
        begins = bool(call_id or name)
        found = self._last if index is None else self._by_index.get(index)
        if found is None and not begins:
            found = self._last  # its head came under another index, or none
        if found is not None and (index is None and name and found is before):
            found = None  # two entries of one chunk that both have a name are two calls
        if found is None or not found.continues(call_id, name, arguments, indexed=index is not None):
            if not (begins or arguments):
                return None
            found = _Call()
            self._calls.append(found)
        if index is not None:
            self._by_index[index] = found
        return found

    def entries(self) -> list[JsonValue]:
        """The calls as a message that was not streamed would hold them."""
        return [
            {
                **({"id": call.id} if call.id else {}),
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.pieces)},
                **call.extra,
            }
            for call in self._calls
            if call.name or call.pieces
        ]

    @property
    def are_complete(self) -> bool:
        """Whether no call is open in the middle of its arguments."""
        return all(not call.pieces or call.is_complete() for call in self._calls)


def _id(value: JsonValue) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_text(value)


def _index(value: JsonValue) -> int | None:
    """The index of a piece; ``None`` for what is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _LONGEST_INDEX:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
