"""`read_reply`: from the answer of a chat completions server to a `Reply`, or to the failure that it stands for.

Tolerant of what makes no difference (a missing id, counts as text, an unknown label), strict where tolerance would lose
something: an answer whose calls or content cannot be read is a failure, never a shorter answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnstile.core.errors import InvalidJSON
from turnstile.core.events import ModelFailed
from turnstile.core.messages import Reply, ToolCall, Usage
from turnstile.core.strict_json import JsonValue, loads
from turnstile.core.values import evolve
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.error_body import read_error
from turnstile.shell.models.failures import failed_answer, failed_body, unreadable
from turnstile.shell.models.json_text import as_dict, as_text, dumps, mend, read
from turnstile.shell.models.labels import failed_label, finish_of
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.think_tags import parted
from turnstile.shell.models.token_counts import first_count

Object = dict[str, JsonValue]

REASONING = ("reasoning_content", "reasoning", "thinking")  # DeepSeek and most; OpenRouter, vLLM; Ollama
CALL_ECHO = "extra_content"  # what Gemini wants back with each call: "Thought signatures", OpenAI compatibility
_OK = range(200, 300)


class _Unreadable(Exception):
    """The answer is no chat completion; carries why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the answers of one server are read.

    Attributes:
        wire: Names the protocol and the server, for what only they want back.
        echo: The fields of a message that the server wants back as they came.
        think_tags: Whether reasoning stands in the text, between tags.
    """

    wire: str = ""
    echo: tuple[str, ...] = ()
    think_tags: bool = False


PLAIN = Reading()


def read_reply(
    answer: Answer, clean: Redactor, now: float, limit: int | None = None, how: Reading = PLAIN
) -> Reply | ModelFailed:
    """What an answer means.

    Args:
        answer: The answer.
        clean: Takes secrets out of what failures say.
        now: The time in seconds since the epoch, for a delay that the server gives as a date.
        limit: The most tokens the reply could have; one that has them all and ends in a broken call was cut, whatever
            it says.
        how: How this server's answers are read.
    """
    if answer.status not in _OK:
        return failed_answer(answer, clean, now)
    try:
        body = read(answer.body)
    except InvalidJSON as error:
        return unreadable(f"the answer is no JSON: {error}", answer, clean)
    return read_body(body, answer, clean, now, limit=limit, how=how)


def read_body(
    body: JsonValue, answer: Answer, clean: Redactor, now: float, *, limit: int | None, how: Reading
) -> Reply | ModelFailed:
    """What the JSON of an answer means, or what a stream was put together to; for the rest see `read_reply`."""
    try:
        reply = _read(body, answer, clean, now, how)
    except _Unreadable as error:
        return unreadable(str(error), answer, clean)
    return evolve(reply, finish="length") if isinstance(reply, Reply) and _was_cut(reply, limit) else reply


def _read(body: JsonValue, answer: Answer, clean: Redactor, now: float, how: Reading) -> Reply | ModelFailed:
    body = body[0] if isinstance(body, list) and len(body) == 1 else body
    if not isinstance(body, dict):
        raise _Unreadable(f"the answer is a {type(body).__name__}, not an object")
    if body.get("error") or not body.get("choices"):
        said = read_error(body)
        if not (said.message or said.status):
            raise _Unreadable("the answer holds neither a choice nor an error")
        return failed_body(body, answer, clean, now)
    choice = _first_choice(body["choices"])
    message = choice.get("message")
    if choice.get("error"):
        return failed_body(choice, answer, clean, now)
    raw = as_text(choice.get("finish_reason"))
    native = as_text(choice.get("native_finish_reason")) or as_text(body.get("native_finish_reason"))
    if failure := failed_label(raw, native, answer, clean):
        return failure
    if not isinstance(message, dict):
        raise _Unreadable(f"choices[0].message is a {type(message).__name__}, not an object")
    text, reasoning, refusal = _content(message)
    if how.think_tags and not reasoning:
        text, reasoning = parted(text)
    calls = _calls(message)
    kept = _kept(message, how)
    return Reply(
        text=text or refusal,
        calls=calls,
        finish=finish_of(raw, has_calls=bool(calls), refused=bool(refusal)),
        finish_raw=clean.label(raw, longest=60),
        reasoning=reasoning,
        usage=_usage(body.get("usage"), wrote=bool(text or calls)),
        model=clean.label(as_text(body.get("model")), longest=100),
        request_id=clean(answer.request_id or as_text(body.get("request_id")) or as_text(body.get("id"))),
        wire=how.wire if kept else "",
        native=kept,
    )


def _kept(message: Object, how: Reading) -> str:
    """What the server wants back with this message and its calls, as JSON; empty when that is nothing."""
    fields = {name: message[name] for name in how.echo if message.get(name)}
    calls = message.get("tool_calls")
    extras = [as_dict(call).get(CALL_ECHO) for call in calls if call is not None] if isinstance(calls, list) else []
    return dumps({"message": fields, "calls": extras}).decode() if fields or any(extras) else ""


def _first_choice(choices: JsonValue) -> Object:
    """The choice with index 0, or the first; others were not asked for."""
    found = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    if not found:
        raise _Unreadable(f"choices is no list of objects: {choices!r:.80}")
    return next((choice for choice in found if choice.get("index") == 0), found[0])


def _content(message: Object) -> tuple[str, str, str]:
    """The text, the reasoning and the refusal; content is a text or a list of typed parts (Mistral, OpenAI)."""
    text, reasoning, refusal = [], [], [as_text(message.get("refusal"))]
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict):
            text.append(text_of(part.get("text")))
            reasoning.append(text_of(part.get("thinking")))
            refusal.append(as_text(part.get("refusal")))
        elif part is not None:
            raise _Unreadable(f"message.content is or holds a {type(part).__name__}")
    reasoning.append(next((said for name in REASONING if (said := as_text(message.get(name)))), ""))
    return mend("".join(text)), mend("".join(reasoning)), mend("".join(refusal))


def text_of(part: JsonValue) -> str:
    """A part's text: plain, or in parts again (Mistral's thinking)."""
    if isinstance(part, list):
        return "".join(text_of(as_dict(inner).get("text")) for inner in part)
    return as_text(part)


def _calls(message: Object) -> tuple[ToolCall, ...]:
    """The calls; the legacy ``function_call`` counts only when there are no others, since it repeats one of them."""
    found = message.get("tool_calls") or message.get("function_call")
    if not found:
        return ()
    entries = found if isinstance(found, list) else [found]
    return tuple(_call(place, entry) for place, entry in enumerate(entries) if entry is not None)


def _call(place: int, entry: JsonValue) -> ToolCall:
    """One call, nested in ``function`` or flat."""
    outer = as_dict(entry)
    function = outer.get("function", entry)
    if not isinstance(function, dict) or not function.keys() & {"name", "arguments"}:
        raise _Unreadable(f"tool_calls[{place}] is no call: {entry!r:.80}")
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else "{}" if given is None else dumps(given).decode()
    call_id = outer.get("id")
    return ToolCall(
        id=mend(str(call_id)) if isinstance(call_id, str | int) else "",
        name=mend(as_text(function.get("name"))),
        arguments=mend(arguments),
    )


def _was_cut(reply: Reply, limit: int | None) -> bool:
    """Whether the reply used up its tokens and its last call is broken off, though its label says otherwise (vLLM)."""
    written = reply.usage.output_tokens if reply.usage else None
    if limit is None or written is None or written < limit or not reply.calls:
        return False
    try:
        loads(reply.calls[-1].arguments or "{}", control_characters=True)
    except InvalidJSON:
        return True
    return False


def _usage(value: JsonValue, *, wrote: bool) -> Usage | None:
    """The tokens, as far as the server says them; a count of 0 where there must be some says nothing."""
    said = as_dict(value)
    tokens_in = first_count(said, "prompt_tokens", "input_tokens") or None
    tokens_out = first_count(said, "completion_tokens", "output_tokens")
    inside, outside = as_dict(said.get("prompt_tokens_details")), as_dict(said.get("completion_tokens_details"))
    cached = first_count({**said, **inside}, "cached_tokens", "prompt_cache_hit_tokens")  # the latter is DeepSeek's
    reasoning = first_count({**said, **outside}, "reasoning_tokens")
    total = first_count(said, "total_tokens")
    if tokens_out == 0 and (wrote or tokens_in is None):
        tokens_out = None
    if tokens_in and tokens_out is not None and reasoning and total == tokens_in + tokens_out + reasoning:
        tokens_out += reasoning  # xAI and Gemini count reasoning beside the reply's tokens
    usage = Usage(tokens_in, tokens_out, cached, reasoning)
    return None if usage == Usage() else usage
