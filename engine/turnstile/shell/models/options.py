"""`ChatOptions`: in what servers of one protocol differ, as data; a provider is a row of them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypedDict, cast, get_args, get_origin, get_type_hints

from turnstile.core.errors import ConfigurationError


class ChatOptions(TypedDict, total=False):
    """The options of a chat completions server, and of the way to it.

    Attributes:
        system_placement: The role that instructions are given in.
        max_tokens_field: The name of the limit of a reply's tokens.
        empty_content: What stands as the content of a message that only calls tools: ``null``, ``""`` or no key at all.
        reasoning_echo: Which of the model's messages are sent back with their reasoning: none, those with calls, or
            all.
        call_id_format: What the ids of calls look like: ``any``, or ``nine`` letters and digits (Mistral).
        merge_consecutive: Whether messages of one role in a row are joined, for servers that want roles to alternate.
        tools_off: How a request says that no tool may be called: ``tool_choice: "none"``, or by leaving the tools out.
        output_format: How the server is told of an output type besides the instructions.
        output_with_tools: Whether that may stand beside tools; many servers then never call one.
        trust_env: Whether proxies and certificates named by the environment are used.
        connect_timeout: Seconds to open a connection.
        connections: How many requests are under way at once in one event loop; others wait for their turn.
        headers: Sent with each request.
    """

    system_placement: Literal["system", "developer", "user"]
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"]
    empty_content: Literal["null", "empty", "omit"]
    reasoning_echo: Literal["never", "calls", "always"]
    call_id_format: Literal["any", "nine"]
    merge_consecutive: bool
    tools_off: Literal["none", "omit"]
    output_format: Literal["json_schema", "json_object", "nothing"]
    output_with_tools: bool
    trust_env: bool
    connect_timeout: float
    connections: int
    headers: Mapping[str, str]


DEFAULTS: ChatOptions = {
    "system_placement": "system",
    "max_tokens_field": "max_tokens",
    "empty_content": "null",
    "reasoning_echo": "never",
    "call_id_format": "any",
    "merge_consecutive": False,
    "tools_off": "none",
    "output_format": "json_schema",
    "output_with_tools": False,
    "trust_env": True,
    "connect_timeout": 10.0,
    "connections": 256,
    "headers": {},
}


def complete(options: ChatOptions) -> ChatOptions:
    """The options with the defaults of those that are not given.

    Raises:
        ConfigurationError: There is no such option, or its value is none that it can have.
    """
    for name, value in options.items():
        if name not in DEFAULTS:
            near = get_close_matches(name, DEFAULTS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(DEFAULTS)}"
            msg = f"OpenAIChat has no option {name!r}; {hint}"
            raise ConfigurationError(msg)
        _check(name, value)
    return cast("ChatOptions", {**DEFAULTS, **options})


def is_positive(value: object) -> bool:
    """Whether a value is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _check(name: str, value: object) -> None:
    allowed = get_args(_TYPES[name]) if get_origin(_TYPES[name]) is Literal else ()
    if allowed and value not in allowed:
        _refuse(name, f"one of {', '.join(map(repr, allowed))}", value)
    if _TYPES[name] is bool and not isinstance(value, bool):
        _refuse(name, "True or False", value)
    if name == "connections" and not (isinstance(value, int) and is_positive(value)):
        _refuse(name, "a whole number above 0", value)
    if name == "connect_timeout" and not is_positive(value):
        _refuse(name, "a number of seconds above 0", value)
    if name == "headers" and not _are_headers(value):
        _refuse(name, "a mapping of names to texts of printable ASCII", type(value))


def _refuse(name: str, expected: str, value: object) -> None:
    msg = f"OpenAIChat's option {name} is {expected}; got {value!r}"
    raise ConfigurationError(msg)


def _are_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(part, str) and part.isascii() and part.isprintable() for pair in value.items() for part in pair
    )


_TYPES = get_type_hints(ChatOptions)
