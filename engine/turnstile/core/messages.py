"""What is said in a conversation: user turns, replies, tool calls and results, as frozen values.

A conversation is a sequence of *items*. An item is a `UserTurn` or a whole `Exchange`: a reply together with one
result for each of its calls, in call order. There is no way to write down a call without its result.
"""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Literal

from turnstile.core.strict_json import JsonValue
from turnstile.core.values import Value

FinishReason = Literal["stop", "tool_calls", "length", "refusal", "pause", "unknown"]
"""Why a model stopped writing, in one vocabulary for all providers; the raw word is kept beside it.

An error label (``finish_reason: "error"``) is no reply: the model client makes a `ModelFailed` of it.
"""

ResultStatus = Literal["ok", "error", "not_run", "unknown"]
"""``ok``, ``error``: the tool ran. ``not_run``: it never started. ``unknown``: it started, and its end isn't known."""


_UNSEEN_KINDS = {"Cc", "Cf", "Zs", "Zl", "Zp"}  # controls, zero-width and other format characters, spaces (UAX #44)
_UNSEEN = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0") | {chr(code) for code in range(0xFE00, 0xFE10)}
"""Characters that show nothing though their kind says otherwise: fillers, joiners and variation selectors."""


class Usage(Value, frozen=True):
    """What model replies cost in tokens; ``None`` where the server did not say.

    Attributes:
        input_tokens: Tokens of the request.
        output_tokens: Tokens of the reply, reasoning included.
        cached_tokens: Those of `input_tokens` that were read from the provider's prompt cache.
        reasoning_tokens: Those of `output_tokens` that were reasoning.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """The sum of what is known; a count that neither side knows stays unknown."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cached_tokens, other.cached_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
        )

    @property
    def total_tokens(self) -> int:
        """Input and output together, as far as they are known."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


class ToolSpec(Value, frozen=True):
    """A tool as a model sees it.

    Attributes:
        name: Its name.
        description: What it does.
        parameters: JSON Schema of its arguments, an object schema.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


class ToolCall(Value, frozen=True):
    """A model's wish to run a tool.

    Attributes:
        id: Unique within the conversation; the provider's own id where that is so.
        name: Name of the tool, as the model wrote it.
        arguments: The arguments' JSON text, as the model wrote it, valid or not.
    """

    id: str
    name: str
    arguments: str


class Reply(Value, frozen=True):
    """One reply of a model, complete.

    Attributes:
        text: What it says to the user; may be empty.
        calls: The tools it wants run, in order.
        finish: Why it stopped, in our words; `finish_raw` is the provider's own word.
        reasoning: Its visible reasoning, which is never an answer.
        usage: Its tokens; ``None`` when the server did not say.
        cost: Its price in US dollars; ``None`` when the price is unknown.
        model: The model that replied, as the server names it.
        request_id: The provider's id of the request, for its support.
        wire: Which protocol and server it came from; empty when that makes no difference.
        native: JSON text of what the same server wants back unchanged (signed reasoning, a provider's own fields), in
            that protocol's form. What it says of calls is matched with `calls` by their order, since ids may change.
        flags: What a reader should know about it when it looks well, such as ``suspected_text_tool_call``.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: FinishReason = "stop"
    finish_raw: str = ""
    reasoning: str = ""
    usage: Usage | None = None
    cost: float | None = None
    model: str = ""
    request_id: str = ""
    wire: str = ""
    native: str = ""
    flags: tuple[str, ...] = ()

    @property
    def says_something(self) -> bool:
        """Whether a reader would see any text; white space and zero-width characters are none."""
        return any(unicodedata.category(char) not in _UNSEEN_KINDS and char not in _UNSEEN for char in self.text)


class ToolResult(Value, frozen=True):
    """What a tool call came to: the one answer that its call gets.

    Attributes:
        call_id: Id of the call.
        name: Name of the tool, as called.
        content: What the model reads.
        status: How the call ended.
        duration_ms: How long the tool ran, in milliseconds.
    """

    call_id: str
    name: str
    content: str
    status: ResultStatus = "ok"
    duration_ms: float = 0.0


class Attachment(Value, frozen=True):
    """An image or a file that the user gives with a text.

    Attributes:
        media_type: What it is, such as ``image/png`` or ``application/pdf``.
        data: Its bytes as base64; `Attachment.of` makes it of bytes.
        url: Where the provider finds it; either this or `data`.
        name: Its file name, if it has one.
    """

    media_type: str
    data: str = ""
    url: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if "/" not in self.media_type or bool(self.data) == bool(self.url):
            given = [name for name in ("data", "url") if getattr(self, name)]
            msg = (
                "an Attachment has a media_type such as 'image/png', and either data or a url; "
                f"got media_type {self.media_type!r} and {' and '.join(given) or 'neither'}"
            )
            raise ValueError(msg)

    @classmethod
    def of(cls, content: bytes, media_type: str, name: str = "") -> Attachment:
        """An attachment that carries these bytes."""
        return cls(media_type, b64encode(content).decode(), name=name)

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.media_type.startswith("image/")


Prompt = str | Sequence[str | Attachment]
"""What a user says: text, or texts and attachments together."""


def parted(prompt: Prompt) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a prompt, its pieces on lines of their own, and its attachments."""
    parts = [prompt] if isinstance(prompt, str) else list(prompt)
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts), tuple(part for part in parts if isinstance(part, Attachment))


class UserTurn(Value, frozen=True):
    """What the user said, or, when `synthetic`, what the engine says in the user's place (a nudge, a repair).

    Attributes:
        text: The words.
        synthetic: Whether the engine said it.
        attachments: Images and files given with the words.
    """

    text: str
    synthetic: bool = False
    attachments: tuple[Attachment, ...] = ()
    kind: Literal["user"] = "user"


class Exchange(Value, frozen=True):
    """A reply with one result for each of its calls, in call order."""

    reply: Reply
    results: tuple[ToolResult, ...] = ()
    kind: Literal["exchange"] = "exchange"

    def __post_init__(self) -> None:
        expected, got = [call.id for call in self.reply.calls], [result.call_id for result in self.results]
        if expected != got:
            msg = f"an exchange holds one result for each call, in call order: expected {expected!r}, got {got!r}"
            raise ValueError(msg)


Item = UserTurn | Exchange
Message = UserTurn | Reply | ToolResult


def flatten(items: tuple[Item, ...] | list[Item]) -> tuple[Message, ...]:
    """The items as single messages, in the order in which a provider wants them."""
    messages: list[Message] = []
    for item in items:
        if isinstance(item, UserTurn):
            messages.append(item)
        else:
            messages.append(item.reply)
            messages.extend(item.results)
    return tuple(messages)
