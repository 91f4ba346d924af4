"""`ThinkTags`: parts reasoning that a server left in the text, between tags, from the answer behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"  # DeepSeek-R1, Qwen 3 and MiniMax write these, as their chat templates say

Part = tuple[Literal["text", "reasoning"], str]


class ThinkTags:
    """Takes text as it comes; only tags at the very beginning count, since an answer may speak of them."""

    def __init__(self) -> None:
        self._mode: Literal["start", "reasoning", "between", "text"] = "start"
        self._held = ""

    def feed(self, text: str) -> Iterator[Part]:
        """The parts of the next piece, as far as no tag could still come of them."""
        self._held += text
        if self._mode == "start" and not self._begin():
            return
        if self._mode == "reasoning":
            yield from self._reason()
        if self._mode == "between":
            self._held = self._held.lstrip()
            self._mode = "text" if self._held else "between"
        if self._mode == "text" and self._held:
            yield "text", self._held
            self._held = ""

    def end(self) -> Iterator[Part]:
        """What was held back; an unclosed tag leaves all of it reasoning."""
        if self._held:
            yield ("reasoning" if self._mode == "reasoning" else "text"), self._held
        self._held = ""

    def _begin(self) -> bool:
        """Whether it is known what the text begins with."""
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._mode, self._held = "reasoning", start[len(OPEN) :]
        elif not OPEN.startswith(start):
            self._mode = "text"
        return self._mode != "start"

    def _reason(self) -> Iterator[Part]:
        place = self._held.find(CLOSE)
        if place >= 0:
            thought, self._held, self._mode = self._held[:place], self._held[place + len(CLOSE) :], "between"
        else:
            kept = next((size for size in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:size])), 0)
            thought, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        if thought:
            yield "reasoning", thought


def parted(text: str) -> tuple[str, str]:
    """The answer and the reasoning of a whole text."""
    tags = ThinkTags()
    parts = [*tags.feed(text), *tags.end()]
    answer, reasoning = ("".join(part for kind, part in parts if kind == wanted) for wanted in ("text", "reasoning"))
    return answer, reasoning
