"""`MessageStream`: puts a streamed message of the Messages API together, and tells of each piece as it comes.

What comes of it is the message that the same reply would have been unstreamed, so that both are read by the same rules.
A stream is whole once a stop reason has come, or ``message_stop`` with no block left open; anything less is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from turnstile.core.errors import InvalidJSON
from turnstile.core.strict_json import MAX_BYTES, JsonValue
from turnstile.ports import Delta
from turnstile.shell.models.anthropic_blocks import Block
from turnstile.shell.models.json_text import as_dict, as_text, read

DONE = "[DONE]"  # what gateways that translate from chat completions end with
_FRAME = 64  # bytes that Python needs for a piece besides its characters
_BLOCK = 1024  # the same for a block
_KINDS: dict[str, Literal["text", "reasoning"]] = {"text": "text", "thinking": "reasoning"}
_GROWING = ("text", "thinking", "partial_json")


class _Open:
    """One block of a message while it is written."""

    def __init__(self, start: Block) -> None:
        self.start = start
        self.type = as_text(start.get("type"))
        self.pieces: dict[str, list[str]] = {}
        self.stopped = False

    def takes(self, delta: Block) -> bool:
        """Whether a delta can be a piece of this block."""
        if "partial_json" in delta:
            return self.type.endswith("tool_use")
        return all(self.type == name for name in _KINDS if name in delta)

    def block(self) -> Block:
        """The block as it would be unstreamed, but for a call's input, which is the text of it."""
        whole = self.start | {name: "".join(pieces) for name, pieces in self.pieces.items()}
        given = as_text(whole.pop("partial_json", ""))
        return whole | ({"input": given} if given.strip() else {})


class MessageStream:
    """Listens to a stream.

    Args:
        progress: Hears of each piece.
        max_bytes: The most that is kept of a message.

    Attributes:
        done: Whether nothing more is wanted.
        problem: Why the stream cannot be read; empty when it can.
        excerpt: The event that cannot be read, or that tells of an error.
    """

    def __init__(self, progress: Callable[[Delta], None], *, max_bytes: int = MAX_BYTES) -> None:
        self._progress = progress
        self._room = max_bytes
        self._message: Block = {}
        self._usage: Block = {}
        self._blocks: list[_Open] = []
        self._by_index: dict[int, _Open] = {}
        self._error: Block | None = None
        self._ended = False
        self.done = False
        self.problem = ""
        self.excerpt = ""

    @property
    def whole(self) -> bool:
        """Whether what came so far is a whole message, or a whole error."""
        if self._error is not None or self._message.get("stop_reason"):
            return True
        return self._ended and bool(self._blocks) and all(block.stopped for block in self._blocks)

    def take(self, event: str, data: str) -> None:
        """Take an event; those without data, comments that came as data, and events of unknown types say nothing."""
        text = data.strip()
        if self.done or not text or text.startswith(":"):
            return
        if text == DONE:
            self.done = self._ended = True
            return
        try:
            said = read(text)
        except InvalidJSON as error:
            self._stop(f"an event of the stream is no JSON: {error}", text)
            return
        if isinstance(said, dict):
            self._take(as_text(said.get("type")) or event, said, text)
        elif said is not None:
            self._stop(f"an event of the stream is a {type(said).__name__}, not an object", text)

    def body(self) -> Block:
        """The answer as it would be unstreamed: a message, or an error."""
        if self._error is not None:
            return self._error
        content: list[JsonValue] = [block.block() for block in self._blocks]
        return {**self._message, "content": content, "usage": self._usage}

    def _take(self, kind: str, said: Block, text: str) -> None:
        if kind == "error" or said.get("error"):
            self._error, self.done, self.excerpt = said, True, text
        elif kind == "message_start":
            message = as_dict(said.get("message"))
            self._message |= {name: part for name in ("id", "model") if (part := message.get(name))}
            self._count(message)
        elif kind == "content_block_start":
            self._begin(said, text)
        elif kind == "content_block_delta":
            self._add(said, text)
        elif kind == "content_block_stop":
            if block := self._named(said):
                block.stopped = True
        elif kind == "message_delta":
            delta = as_dict(said.get("delta"))
            self._message |= {name: part for name in ("stop_reason", "stop_details") if (part := delta.get(name))}
            self._count(said)
        elif kind == "message_stop":
            self.done = self._ended = True
        if self._room < 0:
            self._stop("the message is longer than what is kept of one", text)

    def _count(self, said: Block) -> None:
        """Keep what is said of tokens: each count is that of all so far, and one that says nothing changes nothing."""
        self._usage |= {name: count for name, count in as_dict(said.get("usage")).items() if count}

    def _begin(self, said: Block, text: str) -> None:
        start = as_dict(said.get("content_block"))
        if not as_text(start.get("type")):
            self._stop("a block of the stream has no type", text)
            return
        index = said.get("index")
        open_now = self._by_index.get(index) if isinstance(index, int) else None
        if open_now and not open_now.stopped and start.get("id") and open_now.start.get("id") == start["id"]:
            return  # the same block, announced again
        grown = {name: part for name in _GROWING if (part := as_text(start.get(name)))}
        block = self._open(index, {name: part for name, part in start.items() if name not in grown})
        self._grow(block, {**grown})

    def _open(self, index: JsonValue, start: Block) -> _Open:
        block = _Open(start)
        self._blocks.append(block)
        if isinstance(index, int):
            self._by_index[index] = block
        self._room -= _BLOCK + len(str(start))
        return block

    def _named(self, said: Block) -> _Open | None:
        """The block that an event speaks of: that of its index, or the last one when it has none."""
        index = said.get("index")
        if isinstance(index, int):
            return self._by_index.get(index)
        return self._blocks[-1] if self._blocks else None

    def _add(self, said: Block, text: str) -> None:
        delta, block = as_dict(said.get("delta")), self._named(said)
        if block is None or not block.takes(delta):
            kind = next((name for name in _KINDS if name in delta), "")
            if not kind:
                self._stop("a piece of the stream belongs to no block", text)
                return
            block = self._open(said.get("index"), {"type": kind})
        self._grow(block, delta)

    def _grow(self, block: _Open, delta: Block) -> None:
        for name, part in delta.items():
            if name in _GROWING and isinstance(part, str):
                self._room -= len(part) + _FRAME
                block.pieces.setdefault(name, []).append(part)
                if part and (name in _KINDS or block.type == "tool_use"):
                    self._progress(Delta(_KINDS.get(name, "arguments"), part))
            elif name == "citation":
                if not isinstance(cited := block.start.get("citations"), list):
                    block.start["citations"] = cited = []
                cited.append(part)
                self._room -= len(str(part)) + _FRAME
            elif name != "type":
                block.start[name] = part
                self._room -= len(str(part))

    def _stop(self, problem: str, excerpt: str) -> None:
        self.done = True
        if not self.whole:
            self.problem, self.excerpt = problem, excerpt
