"""JSON as a request carries it: always valid UTF-8, whatever a tool, a file or a model put into a text."""

from __future__ import annotations

import json

import orjson

from turnstile.core.strict_json import MAX_DEPTH, JsonValue, loads

_SHORT = 64 * 1024  # characters; what is longer is not read twice
_EXPONENT = orjson.dumps(1e20)[1:-2]  # ``e+``; of older releases ``e``, which stands in most texts, too


def dumps(value: object) -> bytes:
    """The value as compact JSON; lone surrogates become U+FFFD, and a pair of them the character it stands for.

    Raises:
        TypeError: The value is not JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # rare: a surrogate, an integer beyond 64 bits, or no JSON at all
        return json.dumps(_mended(value), ensure_ascii=False, separators=(",", ":")).encode()


def read(text: str | bytes) -> JsonValue:
    """The value of a text, just as the strict decoder gives it, but sooner for the short texts of streams.

    Whether it would refuse the text shows in the value: a key that stands twice is written once, with one colon less,
    and an integer that orjson rounded has become a float with an exponent.

    Raises:
        InvalidJSON: As the strict decoder does.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        colons = text.count(":")  # each level has one, or opens a list, but the innermost
        if colons + text.count("[") >= MAX_DEPTH or len(text) > _SHORT or "\\u003" in text:  # an escaped colon
            return loads(text)
        value: JsonValue = orjson.loads(text)
    except (UnicodeDecodeError, orjson.JSONDecodeError):
        return loads(text)
    written = orjson.dumps(value)
    return value if written.count(b":") == colons and _EXPONENT not in written else loads(text)


def mend(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 can carry (RFC 3629 §3)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _mended(value: object) -> object:
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict):
        return {_mended(key): _mended(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(part) for part in value]
    return value


def as_dict(value: JsonValue) -> dict[str, JsonValue]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: JsonValue) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""
