"""`ChatStream`: puts a streamed chat completion together, and tells of each piece as it comes.

What comes of it is the body that the same reply would have had unstreamed, so that both are read by the same rules. A
stream is whole once a finish reason has come, or ``[DONE]`` with no call left open; anything less is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turnstile.core.errors import InvalidJSON
from turnstile.core.strict_json import MAX_BYTES, JsonValue
from turnstile.ports import Delta
from turnstile.shell.models.chat_calls import CallPieces
from turnstile.shell.models.chat_reply import REASONING, text_of
from turnstile.shell.models.error_body import read_error
from turnstile.shell.models.json_text import as_dict, as_text, read
from turnstile.shell.models.think_tags import ThinkTags

Object = dict[str, JsonValue]

DONE = "[DONE]"
_TOP = ("id", "model", "request_id", "native_finish_reason")
_LABELS = ("finish_reason", "native_finish_reason", "error")
_GROWING = {"text", "summary", "data"}  # what OpenRouter's reasoning details stream in pieces ("Reasoning tokens")
_FRAME = 64  # bytes that Python needs for a piece besides its characters
_CALL = 1024  # the same for a call or a choice


class _Choice:
    """One choice of a reply while it is written."""

    def __init__(self, *, is_first: bool) -> None:
        self.is_first = is_first
        self.said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self.calls = CallPieces()
        self.kept: Object = {}
        self.labels: Object = {}

    @property
    def has_begun(self) -> bool:
        """Whether it says or calls anything yet."""
        return any(self.said.values()) or len(self.calls) > 0

    def body(self, index: int) -> JsonValue:
        """The choice as it would be unstreamed."""
        message: Object = {"role": "assistant", **self.kept}
        message |= {name: "".join(pieces) for name, pieces in self.said.items() if pieces}
        if calls := self.calls.entries():
            message["tool_calls"] = calls
        return {"index": index, "message": message, **self.labels}


class ChatStream:
    """Listens to a stream.

    Args:
        progress: Hears of each piece of the first choice.
        echo: The fields of a message that the server wants back as they came.
        think_tags: Whether reasoning stands in the text, between tags.
        quiet: Whether text is told as arguments, since it is no answer yet (prompted tool calling).
        max_bytes: The most that is kept of a reply.

    Attributes:
        done: Whether nothing more is wanted.
        problem: Why the stream cannot be read; empty when it can.
        excerpt: The event that cannot be read.
    """

    def __init__(
        self,
        progress: Callable[[Delta], None],
        *,
        echo: tuple[str, ...] = (),
        think_tags: bool = False,
        quiet: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._progress = progress
        self._echo = echo
        self._tags = ThinkTags() if think_tags else None
        self._quiet = quiet
        self._room = max_bytes
        self._choices: dict[int, _Choice] = {}
        self._top: Object = {}
        self._error: Object | None = None
        self._finished = False
        self.done = False
        self.problem = ""
        self.excerpt = ""

    @property
    def whole(self) -> bool:
        """Whether what came so far is a whole reply, or a whole error."""
        return self._finished or self._error is not None

    def take(self, event: str, data: str) -> None:
        """Take an event; those without data, and comments that came as data, say nothing."""
        text = data.strip()
        if self.done or not text or text[0] == ":":
            return
        if text == DONE:
            self._end()
            return
        try:
            chunk = read(text)
        except InvalidJSON as error:
            self._stop(f"an event of the stream is no JSON: {error}", text)
            return
        chunk = chunk[0] if isinstance(chunk, list) and len(chunk) == 1 else chunk
        if not isinstance(chunk, dict):
            if chunk is not None:
                self._stop(f"an event of the stream is a {type(chunk).__name__}, not an object", text)
        elif _is_error(event, chunk):
            self._error, self.done, self.excerpt = chunk, True, text
        else:
            self._take_chunk(chunk)
            if self._room < 0:
                self._stop("the reply is longer than what is kept of one", text)

    def body(self) -> JsonValue:
        """The answer as it would be unstreamed: a completion, or an error."""
        if self._error is not None:
            return self._error
        return {**self._top, "choices": [choice.body(index) for index, choice in sorted(self._choices.items())]}

    def close(self) -> None:
        """Tell of text that was held back because a tag could have come of it."""
        for kind, piece in self._tags.end() if self._tags else ():
            self._progress(Delta(kind, piece))

    def _end(self) -> None:
        self.done = True
        self._finished = self._finished or all(choice.calls.are_complete for choice in self._choices.values())

    def _stop(self, problem: str, excerpt: str) -> None:
        self.done = True
        if not self.whole:
            self.problem, self.excerpt = problem, excerpt

    def _take_chunk(self, chunk: Object) -> None:
        for name in _TOP:
            if (said := chunk.get(name)) and isinstance(said, str):
                self._top[name] = said
        if usage := chunk.get("usage") or ("x_groq" in chunk and as_dict(chunk["x_groq"]).get("usage")):
            self._take_usage(usage)  # Groq says it there without being asked
        choices = chunk.get("choices")
        if isinstance(choices, list):
            for entry in choices:
                self._take_choice(as_dict(entry))

    def _take_usage(self, usage: JsonValue) -> None:
        """Counts grow from chunk to chunk, and some chunks have only some of them."""
        counts: Object = {name: count for name, count in as_dict(usage).items() if count is not None}
        if counts:
            self._top["usage"] = as_dict(self._top.get("usage")) | counts

    def _take_choice(self, entry: Object) -> None:
        place = entry.get("index")
        index = place if isinstance(place, int) and place > 0 else 0
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(is_first=index == 0)
            self._room -= _CALL
        for name in _LABELS:
            if (said := entry.get(name)) and said != "null":  # a gateway's text for none
                choice.labels[name] = said
                self._finished = self._finished or index == 0
        if usage := entry.get("usage"):  # Moonshot, "Chat", streaming
            self._take_usage(usage)
        delta = as_dict(entry.get("delta"))
        if "delta" not in entry and not choice.has_begun:  # a gateway that streams a whole reply as one chunk
            delta = as_dict(entry.get("message"))
        self._take_delta(choice, delta)

    def _take_delta(self, choice: _Choice, delta: Object) -> None:
        content = delta.get("content")
        for name, text in (("content", content),) if isinstance(content, str) else self._parts(content):
            self._take_piece(choice, name, text)
        if refusal := delta.get("refusal"):
            self._take_piece(choice, "refusal", as_text(refusal))
        for name in REASONING:
            if (said := delta.get(name)) and isinstance(said, str):
                self._take_piece(choice, "reasoning_content", said)
                break
        for name in self._echo:
            if kept := delta.get(name):
                choice.kept[name] = merged(choice.kept.get(name), kept)
                self._room -= len(str(kept)) + _FRAME
        if calls := delta.get("tool_calls") or delta.get("function_call"):
            self._take_calls(choice, calls)

    def _take_calls(self, choice: _Choice, calls: JsonValue) -> None:
        before = len(choice.calls)
        for arguments in choice.calls.take(calls):
            self._room -= len(arguments) + _FRAME
            if choice.is_first:
                self._progress(Delta("arguments", arguments))
        self._room -= _CALL * (len(choice.calls) - before)

    def _take_piece(self, choice: _Choice, name: str, text: str) -> None:
        if not text:
            return
        choice.said[name].append(text)
        self._room -= len(text) + _FRAME
        if not choice.is_first:
            return
        if name != "content":
            self._progress(Delta("reasoning" if name == "reasoning_content" else "text", text))
        elif self._quiet:
            self._progress(Delta("arguments", text))
        elif self._tags is None:
            self._progress(Delta("text", text))
        else:
            for kind, piece in self._tags.feed(text):
                self._progress(Delta(kind, piece))

    def _parts(self, content: JsonValue) -> Iterator[tuple[str, str]]:
        """What the parts of a content say: texts, or parts that hold text or thinking (Mistral)."""
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                yield "content", part
            elif isinstance(part, dict):
                yield "content", text_of(part.get("text"))
                yield "reasoning_content", text_of(part.get("thinking"))
            elif part is not None:
                self._stop(f"delta.content is or holds a {type(part).__name__}", repr(part)[:80])


def merged(old: JsonValue, new: JsonValue) -> JsonValue:
    """Two pieces of a field of the provider's own as one: lists by their entries' index, texts that grow joined."""
    if isinstance(old, list) and isinstance(new, list):
        by_index = {index: n for n, entry in enumerate(old) if (index := _index(entry)) is not None}
        entries = list(old)
        for entry in new:
            index = _index(entry)
            place = None if index is None else by_index.get(index)
            if place is None:
                entries.append(entry)
            else:
                entries[place] = merged(entries[place], entry)
        return entries
    if isinstance(old, dict) and isinstance(new, dict):
        said = {name: merged(old.get(name), part) for name, part in new.items() if part is not None}
        return old | said | {name: as_text(old.get(name)) + as_text(new.get(name)) for name in _GROWING & new.keys()}
    return old if new is None else new


def _index(entry: JsonValue) -> int | None:
    index = as_dict(entry).get("index")
    return index if isinstance(index, int) else None


def _is_error(event: str, chunk: Object) -> bool:
    if event == "error" or chunk.get("error"):
        return True
    if chunk.get("choices") or "usage" in chunk:
        return False
    said = read_error(chunk)
    return bool(said.message or said.status)
