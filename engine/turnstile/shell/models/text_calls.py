"""Tool calls that a model wrote into its text, because its server did not take them out: noticed, and run if wished."""

from __future__ import annotations

import re
from collections.abc import Collection

from turnstile.core.errors import InvalidJSON
from turnstile.core.messages import Reply, ToolCall
from turnstile.core.strict_json import loads
from turnstile.core.values import evolve
from turnstile.shell.models.json_text import as_dict, as_text, dumps

SUSPECTED = "suspected_text_tool_call"
"""The flag of an answer that looks like a call."""
_MARKS = ("<tool_call>", "[TOOL_CALLS]", "<function=", "<|python_tag|>", "<|tool_call")
"""How the chat templates of Qwen and Hermes, Mistral, and Llama begin a call."""
_BLOCK = re.compile(r"<tool_call>\s*(\{[^<]*(?:<(?!/tool_call>)[^<]*)*\})\s*</tool_call>\s*")
_FENCE = "```"


def with_text_calls(reply: Reply, tools: Collection[str], *, run: bool) -> Reply:
    """The reply with the calls that stand in its text, or with a flag when there seem to be some.

    Args:
        reply: A reply without calls.
        tools: Names of the tools that the model may call.
        run: Whether calls are taken out of the text. Only whole ones of known tools are, at its end and outside a code
            block; a text that speaks of calls stays a text.
    """
    if run and (found := _calls(reply.text, tools)):
        text, calls = found
        return evolve(reply, text=text, calls=calls, finish="tool_calls" if reply.finish == "stop" else reply.finish)
    begins = reply.text.lstrip().startswith(_MARKS)
    return evolve(reply, flags=(*reply.flags, SUSPECTED)) if begins else reply


def _calls(text: str, tools: Collection[str]) -> tuple[str, tuple[ToolCall, ...]] | None:
    """The text before the calls, and the calls; ``None`` when any of them is not whole, known and at the end."""
    start = text.find(_MARKS[0])
    if start < 0 or text[:start].count(_FENCE) % 2:
        return None
    calls, place = [], start
    while block := _BLOCK.match(text, place):
        try:
            said = as_dict(loads(block[1]))
        except InvalidJSON:
            return None
        name, arguments = as_text(said.get("name")), said.get("arguments", {})
        if name not in tools or not isinstance(arguments, dict):
            return None
        calls.append(ToolCall("", name, dumps(arguments).decode()))
        place = block.end()
    return (text[:start].rstrip(), tuple(calls)) if calls and place == len(text) else None
