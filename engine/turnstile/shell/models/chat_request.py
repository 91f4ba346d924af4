"""`ChatEncoder`: from a request in no provider's words to the body of a chat completions request.

The body is joined from pieces, one for each item of the conversation, and a piece is encoded once in a run, not once
a turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Self

from turnstile.core.errors import InvalidJSON
from turnstile.core.messages import Exchange, Item, Reply, ToolCall, ToolSpec, UserTurn
from turnstile.core.strict_json import JsonValue, loads
from turnstile.ports import ModelRequest
from turnstile.shell.models import prompted
from turnstile.shell.models.body_settings import LIMITS, checked, encoded
from turnstile.shell.models.chat_parts import parts_of
from turnstile.shell.models.chat_reply import CALL_ECHO
from turnstile.shell.models.json_text import as_dict, dumps
from turnstile.shell.models.options import ChatOptions
from turnstile.shell.models.schema_forms import inlined, strict

Message = dict[str, JsonValue]

OURS = frozenset({"model", "messages", "tools", "functions", "stream", "stream_options", "response_format"})
"""Keys of the body that settings may not hold, since the engine writes them."""
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")  # OpenAI refuses both when there are no tools
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # OpenAI, API reference, "Create chat completion", tools.function.name
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral's own validation error: "must be a-z, A-Z, 0-9, with a length of 9"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SURROGATE = re.compile(r"(?i)\\ud[89a-f]|[\ud800-\udfff]")
_LONGEST_ID = 40  # OpenAI's own error: "Expected a string with maximum length 40"; vLLM's ids have 46
_RAW_SHOWN = 1000  # characters of arguments that are no JSON object, so that a model sees what it wrote
_TOOLS_KEPT = 16  # agents that share a client, each with its own tools


class Piece(bytes):
    """Encoded messages that hold on to what they were made from, so that its id names nothing else meanwhile."""

    source: object

    def __new__(cls, encoded: bytes, source: object) -> Self:
        """Messages that were made from that."""
        piece = super().__new__(cls, encoded)
        piece.source = source
        return piece


class ChatEncoder:
    """Writes the bodies of one model's requests.

    Args:
        model: The model, as its server names it.
        options: All options, defaults included.
        settings: What every request says, such as ``temperature``.
        wire: Names the protocol and the server, whose own replies are sent back with what it wants back.
    """

    def __init__(self, model: str, options: ChatOptions, settings: Mapping[str, JsonValue], wire: str = "") -> None:
        self._model = dumps(model)
        self._options = options
        self._settings = checked(settings, OURS)
        encoded(self._settings)
        self._wire = wire
        shape = f"{wire} {{empty_content}} {{reasoning_echo}} {{call_id_format}} {{echo}}".format_map(options)
        self._shapes = shape, f"{shape} in words"  # the same objects each time: as keys they are compared at once
        self._tools: dict[int, Piece] = {}

    def limit(self, request: ModelRequest) -> int | None:
        """The most tokens that the reply may have: the least of what the engine and the settings say."""
        said = [self._settings.get(name) for name in LIMITS] + [request.settings.get(name) for name in LIMITS]
        limits = [limit for limit in (*said, request.max_output) if type(limit) is int]
        return min(limits) if limits else None

    def body(self, request: ModelRequest, *, stream: bool = False) -> bytes:
        """The body of a request.

        Raises:
            ConfigurationError: The request's settings cannot be sent.
        """
        rest = encoded(self._rest(request) | self._streaming(stream=stream))[1:-1]
        tools = self._encoded_tools(request.tools) if self._offers(request) else b""
        parts = [b'{"model":', self._model, b',"messages":[', self._messages(request), b"]"]
        parts += [b',"tools":', tools] if tools else []
        parts += [b",", rest] if rest else []
        return b"".join((*parts, b"}"))

    def _streaming(self, *, stream: bool) -> dict[str, JsonValue]:
        if not stream:
            return {}
        usage: JsonValue = {"include_usage": True}
        return {"stream": True, **({"stream_options": usage} if self._options["stream_usage"] else {})}

    def _offers(self, request: ModelRequest) -> bool:
        if self._is_prompted(request):
            return False
        return bool(request.tools) and (request.tools_on or self._options["tools_off"] == "none")

    def _is_prompted(self, request: ModelRequest) -> bool:
        return bool(request.tools) and self._options["tool_calling"] == "prompted"

    def _rest(self, request: ModelRequest) -> dict[str, JsonValue]:
        """What the body says besides messages and tools."""
        rest = {**self._settings, **checked(request.settings, OURS)}
        limit = self.limit(request)
        for name in LIMITS:
            rest.pop(name, None)
        if limit is not None:
            rest[self._options["max_tokens_field"]] = limit
        if not (self._offers(request) and request.tools_on):
            for name in _ONLY_WITH_TOOLS:
                rest.pop(name, None)
        if self._offers(request) and not request.tools_on:
            rest["tool_choice"] = "none"
        rest.update(self._output(request))
        return rest

    def _output(self, request: ModelRequest) -> dict[str, JsonValue]:
        schema, how = request.output_schema, self._options["output_format"]
        if self._is_prompted(request):
            schema = prompted.schema_of(request)
        beside_tools = self._offers(request) and request.tools_on
        if schema is None or how == "nothing" or (beside_tools and not self._options["output_with_tools"]):
            return {}
        if how == "json_object":
            return {"response_format": {"type": "json_object"}}
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}}

    def _messages(self, request: ModelRequest) -> bytes:
        system: list[Message] = []
        instructions = prompted.instructions_of(request) if self._is_prompted(request) else request.instructions
        if instructions:
            system = [{"role": self._options["system_placement"], "content": instructions}]
        if self._options["merge_consecutive"]:
            in_words = self._is_prompted(request)
            messages = [message for item in request.items for message in self._said(item, in_words=in_words)]
            return b",".join(map(dumps, _merged(system + messages)))
        pieces = [*map(dumps, system), *self._pieces(request)]
        return b",".join(filter(None, pieces))

    def _pieces(self, request: ModelRequest) -> list[bytes]:
        in_words = self._is_prompted(request)
        memo, shape, items = request.memo, self._shapes[in_words], request.items
        if len(memo) > 2 * len(items) + 64:  # a window has left behind what it no longer carries
            memo.clear()
        pieces: list[bytes] = []
        for item in items:
            piece = memo.get((shape, id(item)))
            if piece is None:
                piece = memo[shape, id(item)] = Piece(b",".join(map(dumps, self._said(item, in_words=in_words))), item)
            pieces.append(piece)
        return pieces

    def _said(self, item: Item, *, in_words: bool) -> list[Message]:
        """The messages of an item; none for a reply that says nothing, which strict servers refuse."""
        if isinstance(item, UserTurn):
            return [{"role": "user", "content": parts_of(item) if item.attachments else item.text}]
        if not item.reply.calls and not item.reply.says_something:
            return []
        if in_words:
            return prompted.said(item)
        return [self._assistant(item.reply), *self._results(item)]

    def _assistant(self, reply: Reply) -> Message:
        message: Message = {"role": "assistant", "content": reply.text}
        if reply.calls:
            if not reply.text:
                message["content"] = None if self._options["empty_content"] == "null" else ""
                if self._options["empty_content"] == "omit":
                    del message["content"]
            message["tool_calls"] = [self._call(call) for call in reply.calls]
        if reply.native and reply.wire == self._wire:
            _add_native(message, reply.native)
        echo = self._options["reasoning_echo"]
        if echo == "always" or (echo == "calls" and reply.calls):
            message["reasoning_content"] = reply.reasoning
        return message

    def _call(self, call: ToolCall) -> Message:
        function: Message = {"name": safe_name(call.name), "arguments": object_text(call.arguments)}
        return {"id": self._id(call.id), "type": "function", "function": function}

    def _results(self, exchange: Exchange) -> list[Message]:
        return [
            {"role": "tool", "tool_call_id": self._id(result.call_id), "content": result.content}
            for result in exchange.results
        ]

    def _id(self, call_id: str) -> str:
        if self._options["call_id_format"] == "nine":
            return call_id if _NINE.fullmatch(call_id) else _short(call_id, 9)
        return call_id if len(call_id) <= _LONGEST_ID else f"call_{_short(call_id, 24)}"

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        kept = self._tools.get(id(tools))
        if kept is None:
            if len(self._tools) >= _TOOLS_KEPT:
                self._tools.clear()
            kept = self._tools[id(tools)] = Piece(dumps([self._tool(spec) for spec in tools]), tools)
        return kept

    def _tool(self, spec: ToolSpec) -> Message:
        # OpenAI refuses an object schema without properties, so a tool without parameters gets empty ones.
        parameters: dict[str, JsonValue] = {"type": "object", "properties": {}, **spec.parameters}
        if self._options["inline_refs"]:
            parameters = inlined(parameters)
        closed = strict({"required": [], **parameters}) if self._options["strict_tools"] else None
        function: Message = {"name": spec.name, "description": spec.description, "parameters": closed or parameters}
        return {"type": "function", "function": function | ({"strict": True} if closed else {})}


def safe_name(name: str) -> str:
    """The name of a called tool in the letters that servers take back, whatever the model made up."""
    return name if _NAME.fullmatch(name) else _NOT_IN_NAME.sub("_", name.strip())[:64] or "unnamed_tool"


def _short(call_id: str, length: int) -> str:
    """Letters and digits that are always the same for an id, and others for every other."""
    digest = hashlib.sha256(dumps(call_id)).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:length])


def object_text(arguments: str) -> str:
    """A call's arguments as the text of a JSON object, which is all that servers take back.

    Valid text stays as it is, unless it may hold half a character, which strict servers refuse once they read it. Blank
    text is an empty object, an object within a string is taken out of it, raw line breaks are escaped; anything else
    becomes ``{"_raw": …}`` with the beginning of what the model wrote.
    """
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(value := loads(arguments), dict) and not _SURROGATE.search(arguments):
            return arguments
        value = loads(value, control_characters=True) if isinstance(value, str) else value
    except InvalidJSON:
        value = _with_control_characters(arguments)
    kept: JsonValue = value if isinstance(value, dict) else {"_raw": arguments[:_RAW_SHOWN]}
    return dumps(kept).decode()


def _with_control_characters(arguments: str) -> JsonValue:
    try:
        return loads(arguments, control_characters=True)
    except InvalidJSON:
        return None


def _merged(messages: Sequence[Message]) -> list[Message]:
    """The messages with neighbours of one role joined by a blank line; calls and their results stay as they are."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else {}
        plain = message["role"] != "tool" and "tool_calls" not in message and "tool_calls" not in last
        if plain and last.get("role") == message["role"]:
            last["content"] = _joined(last["content"], message["content"])
        else:
            merged.append(message)
    return merged


def _joined(first: JsonValue, second: JsonValue) -> JsonValue:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: JsonValue) -> list[JsonValue]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _add_native(message: Message, native: str) -> None:
    """Put back what the server sent with a message and its calls, which are told by their order."""
    kept = as_dict(loads(native))
    message |= as_dict(kept.get("message"))
    calls, extras = message.get("tool_calls"), kept.get("calls")
    if isinstance(calls, list) and isinstance(extras, list):
        for call, extra in zip(calls, extras, strict=False):
            if isinstance(call, dict) and extra:
                call[CALL_ECHO] = extra
