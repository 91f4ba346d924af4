"""One strict JSON decoder for everything that comes from outside, and the canonical digest of what it gives.

Caps come first (bytes, then depth), then the grammar: duplicate keys, ``NaN``, ``Infinity`` and integers of absurd
length are refused, since two readers of such a text may see two different values (RFC 8259 §4 and §6).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import NoReturn, cast

from turnstile.core.errors import InvalidJSON

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]

MAX_BYTES = 16 * 1024 * 1024  # above any model server's answer; a context of a million tokens is about 4 MB of text
MAX_DEPTH = 64  # above any real schema or argument; CPython's own decoder recurses, so the cap also guards its stack
MAX_VALUES = 1_000_000  # values take some 60 bytes each: 16 MB of ``[],[],…`` would become 300 MB
MAX_DIGITS = 400  # 10**308 is the largest double (IEEE 754); Python refuses integer texts above 4,300 digits

_BLANKS = " \t\n\r"  # RFC 8259 §2
_SIMPLE = frozenset({str, int, bool, type(None)})
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"?|,', re.DOTALL)


def loads(
    text: str | bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH, control_characters: bool = False
) -> JsonValue:
    """The value that a strict JSON text stands for.

    Args:
        text: The JSON text; bytes are read as UTF-8.
        max_bytes: Longer texts are refused before they are looked at.
        max_depth: Texts nested deeper are refused before they are parsed.
        control_characters: Allow raw line breaks and tabs inside strings, which some models write.

    Raises:
        InvalidJSON: What is wrong with it, and where.
    """
    if len(text) > max_bytes:
        msg = f"too long: {len(text)} bytes, at most {max_bytes} are read"
        raise InvalidJSON(msg)
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            msg = f"not UTF-8 at byte {error.start}"
            raise InvalidJSON(msg) from None
    if len(text) > max_depth:  # a level takes a character, and each value but the first one, too
        _check_depth(text, max_depth)
        _check_values(text)
    try:
        return _decoded(text, _DECODERS[len(text) > MAX_DIGITS, control_characters])
    except json.JSONDecodeError as error:
        msg = f"{error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        raise InvalidJSON(msg) from None


def digest(name: str, value: JsonValue) -> str:
    """A short name for (name, value): equal for equal JSON values however they were written, different for others.

    The values are written as RFC 8785 says. What it cannot write, integers that no double holds and lone surrogates, is
    written in full, and marked so that no other value looks the same.
    """
    text = _quickly(name, value) if _is_simple(value) else None
    return hashlib.sha256(_fully(name, value) if text is None else text).hexdigest()


def _is_simple(value: JsonValue) -> bool:
    """Whether orjson writes a value as RFC 8785 says, if it writes it at all.

    It writes numbers with a fraction in another form, and sorts keys by code points in place of UTF-16 units, which
    for ASCII are the same.
    """
    if isinstance(value, dict):
        return all(map(str.isascii, value)) and all(map(_is_simple, value.values()))
    if isinstance(value, list):
        return all(map(_is_simple, value))
    return type(value) in _SIMPLE


def _quickly(name: str, value: JsonValue) -> bytes | None:
    import orjson  # loaded when first needed: an agent without tools never digests anything

    try:
        return orjson.dumps([name, value], option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)
    except TypeError:  # an integer that no double holds, a lone surrogate
        return None


def _fully(name: str, value: JsonValue) -> bytes:
    import rfc8785  # loaded when first needed: most values are simple

    try:
        return rfc8785.dumps([name, value])
    except ValueError:
        return b"exact " + json.dumps([name, value], sort_keys=True).encode()


def _check_depth(text: str, max_depth: int) -> None:
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for token in _STRUCTURE.finditer(text):
        first = text[token.start()]
        depth += 1 if first in "[{" else -1 if first in "]}" else 0
        if depth > max_depth:
            msg = f"nested deeper than {max_depth} levels"
            raise InvalidJSON(msg)


def _check_values(text: str) -> None:
    """Refuse what would take far more memory than its text; all values but the first in each place follow a comma."""
    if text.count(",") < MAX_VALUES:
        return
    if sum(1 for token in _COMMA.finditer(text) if token[0] == ",") >= MAX_VALUES:
        msg = f"more than {MAX_VALUES} values"
        raise InvalidJSON(msg)


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        times = Counter(key for key, _ in pairs)
        msg = f"the key {next(key for key in times if times[key] > 1)!r} stands twice in one object"
        raise InvalidJSON(msg)
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        msg = f"an integer of {len(text)} digits, at most {MAX_DIGITS} are read"
        raise InvalidJSON(msg)
    return int(text)


def _constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise InvalidJSON(msg)


def _float(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        msg = f"the number {text[:40]} is too large"
        raise InvalidJSON(msg)
    return value


def _decoded(text: str, decoder: json.JSONDecoder) -> JsonValue:
    """As `JSONDecoder.decode` does it, which for the blanks around a short text takes as long as for the text."""
    value, end = decoder.raw_decode(text, len(text) - len(text.lstrip(_BLANKS)))
    if rest := text[end:].lstrip(_BLANKS):
        raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
    return cast("JsonValue", value)


def _decoder(*, may_be_long: bool, control_characters: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=_integer if may_be_long else None,  # a text that is no longer than an integer may be holds none
        parse_float=_float,
        parse_constant=_constant,
        strict=not control_characters,
    )


_DECODERS = {
    (may_be_long, control_characters): _decoder(may_be_long=may_be_long, control_characters=control_characters)
    for may_be_long in (False, True)
    for control_characters in (False, True)
}
