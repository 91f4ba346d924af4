"""`ChatOptions`, `AnthropicOptions`: in what servers of one protocol differ, as data; a provider is a row of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, TypedDict, cast, get_args, get_origin, get_type_hints

from turnstile.core.errors import ConfigurationError
from turnstile.core.strict_json import JsonValue


class ServerOptions(TypedDict, total=False):
    """The options of the way to a server, whatever it speaks.

    Attributes:
        trust_env: Whether proxies and certificates named by the environment are used.
        connect_timeout: Seconds to open a connection.
        idle_timeout: Seconds without a byte after which a stream is given up; reasoning may be silent for minutes.
        connections: How many requests are under way at once in one event loop; others wait for their turn.
        headers: Sent with each request.
    """

    trust_env: bool
    connect_timeout: float
    idle_timeout: float
    connections: int
    headers: Mapping[str, str]


class ChatOptions(ServerOptions, total=False):
    """The options of a chat completions server, besides those of `ServerOptions`.

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
        stream_usage: Whether a stream's usage is asked for, which servers that know no ``stream_options`` refuse.
        think_tags: What becomes of reasoning that a server leaves at the beginning of the text, between ``<think>`` and
            ``</think>``: ``strip`` makes reasoning of it, ``keep`` leaves the text as it is.
        text_tool_calls: What becomes of a call that stands in the text: a ``flag`` on the answer, or, with ``run``, the
            call that it is.
        tool_calling: ``native``, or ``prompted``: the tools stand in the instructions, and the reply is JSON.
        inline_refs: Whether references in schemas are replaced by what they name, for servers that know none.
        strict_tools: Whether tools whose schema allows it are marked as ``strict``.
        echo: Fields of a message that the server wants back as they came (OpenRouter's ``reasoning_details``).
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
    stream_usage: bool
    think_tags: Literal["keep", "strip"]
    text_tool_calls: Literal["flag", "run"]
    tool_calling: Literal["native", "prompted"]
    inline_refs: bool
    strict_tools: bool
    echo: tuple[str, ...]


class AnthropicOptions(ServerOptions, total=False):
    """The options of a Messages API server, besides those of `ServerOptions`.

    Attributes:
        auth: The header that carries the key: Anthropic's own, or a bearer token, as gateways want it.
        api_version: The version of the API that is asked for. Newer ones take no ``temperature``.
        cache: Whether the end of what stays the same is marked, so that the provider keeps it (prompt caching).
        server_tools: Definitions of tools that the provider runs itself, such as its web search.
    """

    auth: Literal["x-api-key", "bearer"]
    api_version: str
    cache: bool
    server_tools: Sequence[Mapping[str, JsonValue]]


SERVER_DEFAULTS: ServerOptions = {
    "trust_env": True,
    "connect_timeout": 10.0,
    "idle_timeout": 300.0,
    "connections": 256,
    "headers": {},
}

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # of a header (RFC 9110, section 5.6.2)
_FRAMING = ("content-length", "transfer-encoding")  # ours: two that differ are how requests are smuggled

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
    "stream_usage": True,
    "think_tags": "keep",
    "text_tool_calls": "flag",
    "tool_calling": "native",
    "inline_refs": False,
    "strict_tools": False,
    "echo": (),
    **SERVER_DEFAULTS,
}

ANTHROPIC_DEFAULTS: AnthropicOptions = {
    "auth": "x-api-key",
    "api_version": "2023-06-01",  # the one that compatible servers know, and that has `temperature` still
    "cache": True,
    "server_tools": (),
    **SERVER_DEFAULTS,
}


def complete(options: ChatOptions) -> ChatOptions:
    """The options of an `OpenAIChat`, with the defaults of those that are not given.

    Raises:
        ConfigurationError: There is no such option, or its value is none that it can have.
    """
    _check_all("OpenAIChat", options, get_type_hints(ChatOptions), list(DEFAULTS))
    return cast("ChatOptions", {**DEFAULTS, **options})


def complete_anthropic(options: AnthropicOptions) -> AnthropicOptions:
    """The options of an `AnthropicMessages`, with the defaults of those that are not given.

    Raises:
        ConfigurationError: There is no such option, or its value is none that it can have.
    """
    _check_all("AnthropicMessages", options, get_type_hints(AnthropicOptions), list(ANTHROPIC_DEFAULTS))
    return cast("AnthropicOptions", {**ANTHROPIC_DEFAULTS, **options})


def is_positive(value: object) -> bool:
    """Whether a value is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _check_all(client: str, options: Mapping[str, object], types: Mapping[str, object], names: list[str]) -> None:
    for name, value in options.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(names)}"
            msg = f"{client} has no option {name!r}; {hint}"
            raise ConfigurationError(msg)
        expected = _misfit(name, types[name], value)
        if expected:
            shown = type(value) if isinstance(value, Mapping | list) else repr(value)  # headers may hold a key
            msg = f"{client}'s option {name} is {expected}; got {shown}"
            raise ConfigurationError(msg)


def _misfit(name: str, hint: object, value: object) -> str:
    """What an option's value should be; empty when it is that."""
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        return "" if value in allowed else f"one of {', '.join(map(repr, allowed))}"
    fits, expected = _BY_NAME.get(name) or _BY_TYPE[hint]
    return "" if fits(value) else expected


def _are_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_name(name) and _is_header(text) for name, text in value.items())


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and value.lower() not in _FRAMING


def _is_header(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()


def _are_names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)


def _are_mappings(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value)


_BY_TYPE: Mapping[object, tuple[Callable[[object], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "True or False"),
    int: (lambda value: isinstance(value, int) and is_positive(value), "a whole number above 0"),
    float: (is_positive, "a number of seconds above 0"),
    str: (_is_header, "a text of printable ASCII without blanks around it"),
}
_BY_NAME: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "headers": (
        _are_headers,
        "a mapping of names to texts of printable ASCII without blanks around them, and not for a body's length",
    ),
    "server_tools": (_are_mappings, "a list of mappings"),
    "echo": (_are_names, "a tuple of names of fields"),
}
