"""`MessageReader`: from the answer of a Messages API server to a `Reply`, or to the failure that it stands for.

Tolerant of what makes no difference, strict where tolerance would lose something, as for chat completions; what a
stream brings is put together into the same message first.
"""

from __future__ import annotations

from turnstile.core.errors import InvalidJSON
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, ToolCall, Usage
from turnstile.core.strict_json import JsonValue, loads
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.anthropic_blocks import Block, plain_blocks
from turnstile.shell.models.chat_request import object_text
from turnstile.shell.models.error_body import read_error
from turnstile.shell.models.failures import failed_answer, failed_body, unreadable
from turnstile.shell.models.json_text import as_dict, as_text, dumps, mend, read
from turnstile.shell.models.labels import failed_label, finish_of
from turnstile.shell.models.pricing import Pricing
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.token_counts import count_of

_OK = range(200, 300)


class Unreadable(Exception):
    """The answer is no message; carries why."""


class MessageReader:
    """Reads the answers of one server.

    Args:
        clean: Takes secrets out of what failures say.
        wire: What replies are marked with, so that what is their server's own goes back to that server.
        pricing: What they cost.
    """

    def __init__(self, clean: Redactor, wire: str, pricing: Pricing) -> None:
        self._clean = clean
        self._wire = wire
        self._pricing = pricing

    def answer(self, answer: Answer, now: float) -> Reply | ModelFailed:
        """What a whole answer means.

        Args:
            answer: The answer.
            now: The time in seconds since the epoch, for a delay that the server gives as a date.
        """
        if answer.status not in _OK:
            return failed_answer(answer, self._clean, now)
        try:
            body = read(answer.body)
        except InvalidJSON as error:
            return unreadable(f"the answer is no JSON: {error}", answer, self._clean)
        message = body[0] if isinstance(body, list) and len(body) == 1 else body
        if not isinstance(message, dict):
            return unreadable(f"the answer is a {type(message).__name__}, not an object", answer, self._clean)
        return self.message(message, answer, now)

    def message(self, message: Block, answer: Answer, now: float) -> Reply | ModelFailed:
        """What a message means that came with this answer."""
        if message.get("error") or message.get("type") == "error" or "content" not in message:
            said = read_error(message)
            if message.get("error") or said.message or said.status:
                return failed_body(message, answer, self._clean, now)
            return unreadable("the answer holds neither content nor an error", answer, self._clean)
        if failure := failed_label(as_text(message.get("stop_reason")), "", answer, self._clean):
            return failure
        try:
            return self._reply(message, _blocks(message["content"]), answer)
        except Unreadable as error:
            return unreadable(str(error), answer, self._clean)

    def _reply(self, message: Block, blocks: list[Block], answer: Answer) -> Reply:
        raw = as_text(message.get("stop_reason"))
        calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
        finish = finish_of(raw, has_calls=bool(calls))
        text = mend("".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text"))
        explanation = as_text(as_dict(message.get("stop_details")).get("explanation"))
        said = as_dict(message.get("usage"))
        usage, written = _usage(said, wrote=bool(blocks)), count_of(said.get("cache_creation_input_tokens"))
        return Reply(
            text=text or (mend(explanation) if finish == "refusal" else ""),
            calls=calls,
            finish=finish,
            finish_raw=self._clean.label(raw, longest=60),
            reasoning=mend("".join(as_text(block.get("thinking")) for block in blocks)),
            usage=usage,
            cost=self._pricing.cost(usage, cache_written=written or 0),
            model=self._clean.label(as_text(message.get("model")), longest=100),
            request_id=self._clean(answer.request_id or as_text(message.get("id"))),
            wire=self._wire,
            native=_native(blocks, Reply(text, calls)),
        )


def _blocks(content: JsonValue) -> list[Block]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        raise Unreadable(f"content is a {type(content).__name__}, not a list of blocks")
    return [_block(place, block) for place, block in enumerate(content)]


def _block(place: int, block: JsonValue) -> Block:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, dict) or not as_text(block.get("type")):
        raise Unreadable(f"content[{place}] is no block: {block!r:.80}")
    return block


def _call(block: Block) -> ToolCall:
    given, call_id = block.get("input"), block.get("id")
    arguments = given if isinstance(given, str) else "{}" if given is None else dumps(given).decode()
    return ToolCall(
        id=mend(str(call_id)) if isinstance(call_id, str | int) else "",
        name=mend(as_text(block.get("name"))),
        arguments=mend(arguments) or "{}",
    )


def _native(blocks: list[Block], reply: Reply) -> str:
    """The blocks as they came; empty when text and calls say as much."""
    written = [_with_object(block) if as_text(block.get("type")).endswith("tool_use") else block for block in blocks]
    return "" if written == plain_blocks(reply) else dumps(written).decode()


def _with_object(block: Block) -> Block:
    """A call, or one of the server's own, whose input is an object, as it must be to go back: a cut one is none."""
    if isinstance(block.get("input"), dict):
        return block
    return {**block, "input": loads(object_text(_call(block).arguments))}


def _usage(said: Block, *, wrote: bool) -> Usage | None:
    """The tokens, as far as the server says them; those written to the cache and read from it are counted apart."""
    parts = [count_of(said.get(name)) for name in ("input_tokens", "cache_creation_input_tokens")]
    cached = count_of(said.get("cache_read_input_tokens"))
    tokens_in = sum(part for part in (*parts, cached) if part) or None
    tokens_out = count_of(said.get("output_tokens"))
    thought = count_of(as_dict(said.get("output_tokens_details")).get("thinking_tokens"))
    if tokens_out == 0 and (wrote or tokens_in is None):
        tokens_out = None
    usage = Usage(tokens_in, tokens_out, cached, thought)
    return None if usage == Usage() else usage
