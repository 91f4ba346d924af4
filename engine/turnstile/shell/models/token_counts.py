"""Numbers of tokens as servers write them: also as texts, as fractions and below zero."""

from __future__ import annotations

from turnstile.core.strict_json import JsonValue

_MOST_TOKENS = 10**12  # no request has more; a count above is a fault of its server


def count_of(value: JsonValue) -> int | None:
    """A number of tokens; ``None`` for what is none."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < len(str(_MOST_TOKENS)) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_TOKENS:
        return None
    return int(value)


def first_count(counts: dict[str, JsonValue], *names: str) -> int | None:
    """The first of these counts that is one."""
    for name in names:
        if (said := counts.get(name)) is not None and (count := count_of(said)) is not None:
            return count
    return None
