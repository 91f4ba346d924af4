"""`read_message`: from the answer of a Messages API server to a `Reply`, or to the failure that it stands for.

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
from turnstile.shell.models.json_text import as_dict, as_text, dumps, mend
from turnstile.shell.models.labels import failed_label, finish_of
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.token_counts import count_of

_OK = range(200, 300)


class Unreadable(Exception):
    """The answer is no message; carries why."""


def read_answer(answer: Answer, clean: Redactor, now: float, wire: str) -> Reply | ModelFailed:
    """What a whole answer means.

    Args:
        answer: The answer.
        clean: Takes secrets out of what failures say.
        now: The time in seconds since the epoch, for a delay that the server gives as a date.
        wire: What the reply is marked with, so that what is its server's own goes back to that server.
    """
    if answer.status not in _OK:
        return failed_answer(answer, clean, now)
    try:
        body = loads(answer.body)
    except InvalidJSON as error:
        return unreadable(f"the answer is no JSON: {error}", answer, clean)
    message = body[0] if isinstance(body, list) and len(body) == 1 else body
    if not isinstance(message, dict):
        return unreadable(f"the answer is a {type(message).__name__}, not an object", answer, clean)
    return read_message(message, answer, clean, now, wire)


def read_message(message: Block, answer: Answer, clean: Redactor, now: float, wire: str) -> Reply | ModelFailed:
    """What a message means; the arguments are those of `read_answer`."""
    if message.get("error") or message.get("type") == "error" or "content" not in message:
        said = read_error(message)
        if message.get("error") or said.message or said.status:
            return failed_body(message, answer, clean, now)
        return unreadable("the answer holds neither content nor an error", answer, clean)
    raw = as_text(message.get("stop_reason"))
    if failure := failed_label(raw, "", answer, clean):
        return failure
    try:
        blocks = _blocks(message["content"])
        calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
    except Unreadable as error:
        return unreadable(str(error), answer, clean)
    finish = finish_of(raw, has_calls=bool(calls))
    text = "".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text")
    if finish == "refusal" and not text:
        text = as_text(as_dict(message.get("stop_details")).get("explanation"))
    return Reply(
        text=mend(text),
        calls=calls,
        finish=finish,
        finish_raw=clean(raw, longest=60),
        reasoning=mend("".join(as_text(block.get("thinking")) for block in blocks)),
        usage=_usage(message.get("usage"), wrote=bool(blocks)),
        model=clean(as_text(message.get("model")), longest=100),
        request_id=clean(answer.request_id or as_text(message.get("id"))),
        wire=wire,
        native=_native(blocks, Reply(mend(text), calls)),
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
    written = [_with_object(block) if block.get("type") == "tool_use" else block for block in blocks]
    return "" if written == plain_blocks(reply) else dumps(written).decode()


def _with_object(block: Block) -> Block:
    """A call whose input is an object, as it must be to go back: a cut one is none."""
    if isinstance(block.get("input"), dict):
        return block
    return {**block, "input": loads(object_text(_call(block).arguments))}


def _usage(value: JsonValue, *, wrote: bool) -> Usage | None:
    """The tokens, as far as the server says them; those written to the cache and read from it are counted apart."""
    said = as_dict(value)
    parts = [count_of(said.get(name)) for name in ("input_tokens", "cache_creation_input_tokens")]
    cached = count_of(said.get("cache_read_input_tokens"))
    tokens_in = sum(part for part in (*parts, cached) if part) or None
    tokens_out = count_of(said.get("output_tokens"))
    thought = count_of(as_dict(said.get("output_tokens_details")).get("thinking_tokens"))
    if tokens_out == 0 and (wrote or tokens_in is None):
        tokens_out = None
    usage = Usage(tokens_in, tokens_out, cached, thought)
    return None if usage == Usage() else usage
