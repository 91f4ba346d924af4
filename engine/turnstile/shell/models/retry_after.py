"""How long a server asks to wait before the next attempt, from any of the forms in which servers say it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

_UNIT = r"(ms|milliseconds?|h|hours?|m|min|minutes?|s|sec|seconds?)"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])")
_DURATION = re.compile(rf"(?:\d+(?:\.\d+)?\s*{_UNIT}\s*)+")
_IN_WORDS = re.compile(rf"(?i)\b(?:try again|retry) (?:in|after) ({_DURATION.pattern})")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


def retry_after(headers: Mapping[str, str], stated: str, message: str, now: float) -> float | None:
    """Seconds to wait; ``None`` when the server does not say, or says nothing that makes sense.

    The header wins over the body, and a stated delay over the words of a message.

    Args:
        headers: The answer's headers, names in lower case. ``retry-after-ms`` is OpenAI's and Azure's;
            ``retry-after`` is seconds or a date (RFC 9110 §10.2.3), a date being read against the server's own
            ``date`` where there is one.
        stated: A delay from the body, such as ``45.8s`` (Google's ``google.rpc.RetryInfo``) or a number of seconds.
        message: The error's words, such as ``Please try again in 1m26.4s`` (OpenAI, Groq).
        now: The time in seconds since the epoch.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after", "").strip()
    seconds = _number(header)
    if seconds is None and header:
        seconds = _until(header, _moment(headers.get("date", "")) or now)
    if seconds is None:
        seconds = _duration(stated)
    if seconds is None and (words := _IN_WORDS.search(message)):
        seconds = _duration(words[1])
    return seconds


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _duration(text: str) -> float | None:
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        return _number(text)
    return sum(float(amount) * _seconds(unit) for amount, unit in _PART.findall(text))


def _seconds(unit: str) -> float:
    return 0.001 if unit.startswith(("ms", "mill")) else _SECONDS[unit[0]]


def _until(date: str, now: float) -> float | None:
    moment = _moment(date)
    return None if moment is None else max(0.0, moment - now)


def _moment(date: str) -> float | None:
    from datetime import UTC  # both only for a form that few servers use
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
