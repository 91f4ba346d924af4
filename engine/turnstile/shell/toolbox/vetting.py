"""What is found out about a call before it runs: is its tool known, are its arguments JSON, do they fit.

Nothing runs here, and nothing is guessed: a name is never matched to a similar one, and broken JSON is never mended,
since a repaired call does what nobody asked for. What is put right changes no meaning: blanks around a name, blank
arguments for none, raw line breaks inside a text, and an object that was encoded once more as a text.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from turnstile.core.errors import InvalidJSON
from turnstile.core.messages import ToolCall
from turnstile.core.strict_json import JsonValue, digest, loads
from turnstile.core.values import Struct
from turnstile.shell.toolbox.text import preview, whole
from turnstile.tools import Tool

AnyTool = Tool[..., Any]

NAME_CHARS = 64  # the longest name that a tool may have
NAMES_LISTED = 50
PREVIEW_CHARS = 300


class Finding(Struct, frozen=True):
    """What was found out about a call.

    Attributes:
        tool: Its tool; ``None`` when there is none of that name.
        digest: Equal for calls of one tool with equal arguments.
        problem: Why it cannot run, written for the model; empty when it can.
        arguments: The arguments as the function takes them, when they fit.
    """

    tool: AnyTool | None
    digest: str
    problem: str = ""
    arguments: Mapping[str, object] = MappingProxyType({})


def find_out(tools: Mapping[str, AnyTool], call: ToolCall) -> Finding:
    """Find out about a call."""
    name = call.name.strip()
    tool = tools.get(name)
    value, broken = parse(call.arguments)
    mark = digest(whole(name), call.arguments if broken else value)
    if tool is None:
        return Finding(None, mark, _unknown(name, tools))
    if not isinstance(value, dict):
        problem = f"the arguments of {name} are no JSON object: {broken or 'a JSON object is expected'}"
        return Finding(tool, mark, f"{problem}; got {preview(call.arguments, PREVIEW_CHARS)}")
    arguments, misfit = tool.check(value)
    if misfit:
        return Finding(tool, mark, f"the arguments of {name} do not fit:\n{misfit}")
    return Finding(tool, mark, arguments=arguments)


def parse(text: str) -> tuple[JsonValue, str]:
    """The value of a call's arguments with an empty text; or nothing, with what is wrong with the JSON."""
    if not text or text.isspace():
        return {}, ""
    try:
        value = loads(text, control_characters=True)
        # Some servers encode the arguments twice (Ollama with some models): once more, and never again.
        return (loads(value, control_characters=True) if isinstance(value, str) else value), ""
    except InvalidJSON as error:
        return None, str(error)[:PREVIEW_CHARS]  # it may quote a key, and the key is the model's


def _unknown(name: str, tools: Mapping[str, AnyTool]) -> str:
    # Cut first: comparing takes time in the square of the length, and the name is the model's.
    near = difflib.get_close_matches(name[:NAME_CHARS], tools)
    meant = f"; did you mean {' or '.join(near)}?" if near else ";"
    listed = ", ".join([*list(tools)[:NAMES_LISTED], *(["…"] if len(tools) > NAMES_LISTED else [])])
    return f"there is no tool {preview(name, NAME_CHARS)}{meant} the tools are: {listed or '(none)'}"
