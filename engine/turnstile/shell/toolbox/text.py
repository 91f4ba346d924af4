"""What a tool gave or raised, as the text that a model reads: bounded, and always fit for strict JSON in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turnstile.core.values import Struct, asdict

EMPTY = "(empty)"  # some servers refuse an empty result, and a model takes it for a failure
LEFT_OUT = "\n[… {:,} of {:,} characters left out …]\n"
Binary = bytes | bytearray | memoryview
BINARY_SIGN = b"\0"  # git's rule for what is binary: a NUL among the first 8,000 bytes (xdiff-interface.c)
BINARY_PREFIX = 8_000
_WRAPPING = re.compile(r"^Error serializing to JSON: (\w+: )?")  # what pydantic puts before the words that matter


class Unwritable(ValueError):
    """A value has no JSON form; the text names what of it has none."""


def written(value: object) -> str:
    """A tool's result as text: text as it is, bytes as the text they hold, all else as JSON.

    Raises:
        Unwritable: It has no JSON form.
    """
    if isinstance(value, str):
        return str.__str__(value) or EMPTY  # the plain text of a subclass, such as a text enum
    if isinstance(value, Binary):
        return _decoded(bytes(value)) or EMPTY
    return "null" if value is None else _json(value)


def described(error: BaseException) -> str:
    """An exception as one text: always its type, then what it says; of a group, each of its parts too."""
    return "; ".join(_named(part) for part in flattened(error))


def flattened(error: BaseException) -> Iterator[BaseException]:
    """The exception, and if it is a group, all that it holds."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from flattened(part)


def fit(text: str, limit: int) -> str:
    """The text, whole and no longer than the limit: a longer one is cut in the middle, and says how much is gone."""
    if len(text) > limit:
        kept = limit - len(LEFT_OUT.format(len(text), len(text)))
        note = LEFT_OUT.format(len(text) - kept, len(text))
        text = text[: kept - kept // 2] + note + text[len(text) - kept // 2 :]
    return whole(text)


def preview(text: str, limit: int) -> str:
    """How a text begins, as a Python literal, so that what cannot be seen in it is seen."""
    shown = repr(text[:limit])
    return shown if len(shown) <= limit and len(text) <= limit else f"{shown[:limit]}… ({len(text):,} characters)"


def whole(text: str) -> str:
    """The text with pairs of surrogates joined to the character that they stand for, and half ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _json(value: object) -> str:
    import pydantic_core  # loaded when a tool first gives something other than text

    _refuse_iterator(value)
    try:
        return pydantic_core.to_json(value, inf_nan_mode="strings", fallback=_by_type).decode()
    except Exception as first:  # noqa: BLE001 - a value's own serialiser may raise anything
        try:
            return pydantic_core.to_json(_mended(value), inf_nan_mode="strings", fallback=_by_type).decode()
        except Exception as error:  # noqa: BLE001 - the same
            reason = str(first if isinstance(error, RecursionError) else error)
            raise Unwritable(_WRAPPING.sub("", reason)) from None


def _refuse_iterator(value: object) -> None:
    """Refuse what can be read once only, and may never end."""
    if isinstance(value, Iterator):
        raise Unwritable(f"a value of type {type(value).__qualname__!r} is read while it is made; return a list")


def _by_type(value: object) -> object:
    """What is made of a value by its type: more types have a JSON form so than by looking at the value."""
    if isinstance(value, Struct):  # a value of the engine's own, such as a reply or its usage; pydantic knows none
        return asdict(value)
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(type(value)).dump_python(value, mode="json")
    except Exception:  # noqa: BLE001 - whatever the reason, the type is what its author can change
        raise Unwritable(f"a value of type {type(value).__qualname__!r} has no JSON form") from None


def _mended(value: object) -> object:
    """The value with texts made whole, and bytes that are no text named: what kept it from being UTF-8."""
    from pydantic_core import to_jsonable_python

    _refuse_iterator(value)
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, bytes | bytearray):
        return _decoded(bytes(value))
    if isinstance(value, dict):
        return {_mended(key): _mended(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_mended(part) for part in value]
    plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings", fallback=_by_type)
    return _mended(plain) if isinstance(plain, str | dict | list) else plain


def _decoded(value: bytes) -> str:
    if BINARY_SIGN in value[:BINARY_PREFIX]:
        return f"({len(value):,} bytes that are no text)"
    return value.decode("utf-8", "replace")


def _named(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose text fails has a type still
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
