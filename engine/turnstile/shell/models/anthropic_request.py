"""`AnthropicEncoder`: from a request in no provider's words to the body of a Messages API request.

Roles alternate by construction: what neighbours of one role say is joined into one message, so that a result and the
user's next words share one, the result first. The pieces of an item are encoded once in a run, as for chat completions;
cache markers are put on the joined bytes, so that what is kept never holds one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from itertools import groupby
from operator import itemgetter

from turnstile.core.messages import Exchange, Item, UserTurn
from turnstile.core.strict_json import JsonValue
from turnstile.ports import ModelRequest
from turnstile.shell.models.anthropic_blocks import Block, reply_blocks, result_blocks, user_blocks
from turnstile.shell.models.anthropic_tools import tool, tools_of_the_past
from turnstile.shell.models.body_settings import LIMITS, checked, encoded
from turnstile.shell.models.chat_request import Piece
from turnstile.shell.models.json_text import as_dict, dumps
from turnstile.shell.models.options import AnthropicOptions

OURS = frozenset({"model", "messages", "system", "tools", "stream"})
"""Keys of the body that settings may not hold, since the engine writes them."""
MAX_TOKENS = 8192  # the protocol wants a limit; all models since Claude 3.5 can write as much ("Models overview")
LEAST_THINKING = 1024  # tokens; a smaller budget is refused (Messages API, thinking.budget_tokens)
NOTHING_SAID = "(no message)"
"""Stands where a user's words must and there are none: a conversation begins with the user, and not with blank text."""

_MARKER = b',"cache_control":{"type":"ephemeral"}}'
_MARKED = 2  # user messages: this request's end, and that of the request before; with the prefix's own, 3 of 4 markers
_TOOLS_KEPT = 16  # agents that share a client, each with its own tools


class AnthropicEncoder:
    """Writes the bodies of one model's requests.

    Args:
        model: The model, as its server names it.
        wire: What this server's replies are marked with; what they hold beside text and calls goes back only there.
        options: All options, defaults included.
        settings: What every request says, such as ``thinking``.
    """

    def __init__(self, model: str, wire: str, options: AnthropicOptions, settings: Mapping[str, JsonValue]) -> None:
        self._model = dumps(model)
        self._wire = wire
        self._caches = options["cache"]
        self._server_tools = encoded([dict(each) for each in options["server_tools"]])[1:-1]
        self._settings = checked(settings, OURS)
        encoded(self._settings)
        self._tools: dict[int, Piece] = {}

    def limit(self, request: ModelRequest) -> int:
        """The most tokens that the reply may have: what the settings say, and never more than the engine allows."""
        settings = {**self._settings, **request.settings}
        said = [limit for name in LIMITS if type(limit := settings.get(name)) is int]
        thinking = as_dict(settings.get("thinking")).get("budget_tokens")
        wanted = min(said) if said else MAX_TOKENS + (thinking if type(thinking) is int else 0)
        return wanted if request.max_output is None else min(wanted, request.max_output)

    def body(self, request: ModelRequest, *, stream: bool) -> bytes:
        """The body of a request.

        Raises:
            ConfigurationError: The request's settings cannot be sent.
            Unsendable: The protocol has no form for an attachment.
        """
        tools = self._tool_list(request)
        system = dumps({"type": "text", "text": request.instructions}) if request.instructions.strip() else b""
        if self._caches and (system or tools):  # tools stand before the system prompt, so one marker holds both
            system, tools = (_marked(system), tools) if system else (system, _marked(tools))
        rest = encoded(self._rest(request, has_tools=bool(tools)))[1:-1]
        parts = [b'{"model":', self._model, b',"messages":[', b",".join(self._messages(request)), b"]"]
        parts += [b',"system":[', system, b"]"] if system else []
        parts += [b',"tools":[', tools, b"]"] if tools else []
        parts += [b',"stream":true'] if stream else []
        return b"".join((*parts, b",", rest, b"}"))

    def _rest(self, request: ModelRequest, *, has_tools: bool) -> dict[str, JsonValue]:
        """What the body says besides messages, instructions and tools."""
        rest = {**self._settings, **checked(request.settings, OURS)}
        limit = self.limit(request)
        for name in (*LIMITS, *(() if has_tools else ("tool_choice",))):
            rest.pop(name, None)
        if has_tools and not (request.tools_on and (request.tools or self._server_tools)):
            rest["tool_choice"] = {"type": "none"}
        thinking = as_dict(rest.get("thinking"))
        budget = thinking.get("budget_tokens")
        if type(budget) is int:
            if limit <= LEAST_THINKING or self._continues_anothers(request):
                del rest["thinking"]
            elif budget >= limit:
                rest["thinking"] = {**thinking, "budget_tokens": limit - 1}
        return {"max_tokens": limit, **rest}

    def _continues_anothers(self, request: ModelRequest) -> bool:
        """Whether the turn under way was begun by another server: it lacks the thinking that must lead it here."""
        last = request.items[-1] if request.items else None
        return isinstance(last, Exchange) and bool(last.results) and last.reply.wire != self._wire

    def _tool_list(self, request: ModelRequest) -> bytes:
        """The tools without brackets: the agent's, and those that the server itself runs."""
        key = id(request.tools)
        kept = self._tools.get(key)
        if kept is None:
            if len(self._tools) >= _TOOLS_KEPT:
                self._tools.clear()
            own = _joined([tool(spec) for spec in request.tools])
            kept = self._tools[key] = Piece(b",".join(filter(None, (own, self._server_tools))), request.tools)
        return kept or _joined(tools_of_the_past(request.items))

    def _messages(self, request: ModelRequest) -> list[bytes]:
        messages = [(role, b",".join(part for _, part in parts)) for role, parts in self._by_role(request)]
        if not messages or messages[0][0] != "user":
            messages.insert(0, ("user", dumps({"type": "text", "text": NOTHING_SAID})))
        ends = [place for place, (role, _) in enumerate(messages) if role == "user"][-_MARKED:] if self._caches else []
        return [
            b'{"role":"%s","content":[%s]}' % (role.encode(), _marked(content) if place in ends else content)
            for place, (role, content) in enumerate(messages)
        ]

    def _by_role(self, request: ModelRequest) -> Iterator[tuple[str, Iterator[tuple[str, bytes]]]]:
        pieces = ((role, piece) for role, piece in self._pieces(request) if piece)
        return groupby(pieces, key=itemgetter(0))

    def _pieces(self, request: ModelRequest) -> Iterator[tuple[str, bytes]]:
        """The items' blocks without brackets, each with the role that says them."""
        memo, items, last = request.memo, request.items, len(request.items) - 1
        if len(memo) > 4 * len(items) + 64:  # a window has left behind what it no longer carries
            memo.clear()
        for place, item in enumerate(items):
            if isinstance(item, UserTurn):
                yield "user", self._kept(memo, item, "user")
            elif item.results or place < last:
                yield "assistant", self._kept(memo, item, "assistant")
                yield "user", self._kept(memo, item, "user")
            else:  # not kept: what ends a conversation may not end in white space, and tomorrow it is not the end
                yield "assistant", _joined(reply_blocks(item.reply, self._wire, is_last=True))

    def _kept(self, memo: MutableMapping[tuple[str, int], bytes], item: Item, role: str) -> bytes:
        key = f"anthropic {role} {self._wire}", id(item)
        piece = memo.get(key)
        if piece is None:
            piece = memo[key] = Piece(_joined(self._blocks(item, role)), item)
        return piece

    def _blocks(self, item: Item, role: str) -> list[Block]:
        if isinstance(item, UserTurn):
            return user_blocks(item)
        return result_blocks(item.results) if role == "user" else reply_blocks(item.reply, self._wire)


def _joined(blocks: list[Block]) -> bytes:
    """The blocks without the brackets around them."""
    return dumps(blocks)[1:-1]


def _marked(blocks: bytes) -> bytes:
    """The blocks with a cache marker on the last."""
    return blocks[:-1] + _MARKER
