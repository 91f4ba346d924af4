"""`ErrorBody`: what the body of an error says, whatever shape its server gives it.

Shapes met: ``{"error": {…}}`` (OpenAI and most), a list around it (Gemini), ``{"error": "text"}`` (Ollama),
``{"detail": …}`` (FastAPI servers, Mistral), a flat ``{"code", "message"}`` (Mistral, gateways), ``{"error_type",
"error_message"}`` (some vLLM gateways), a bare text, ``null`` or a number (proxies).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.json_text import as_dict, as_text

_MESSAGES = ("message", "error_message", "msg", "detail", "error_description", "title")
_WORDS = ("code", "type", "status", "error_type", "error_code", "reason", "quotaId")
_STATUSES = ("code", "status", "status_code", "error_code")
_PLAIN = re.compile(r"[^a-z0-9]+")
_HTTP_ERRORS = range(400, 600)
_LONGEST_WORD = 100  # characters of a code or a delay that are looked at


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error's body says.

    Attributes:
        message: The server's words; empty when there are none.
        words: Its codes, types and reasons, each in lower case without punctuation: ``insufficientquota``.
        status: An HTTP status that stands in the body.
        delay: How long to wait, as the body states it.
        request_id: The provider's id of the request.
    """

    message: str = ""
    words: frozenset[str] = frozenset()
    status: int | None = None
    delay: str = ""
    request_id: str = ""


def plain(word: str) -> str:
    """A code in the form in which codes are compared: lower case, letters and digits only."""
    return _PLAIN.sub("", word.lower())


def read_error(value: JsonValue) -> ErrorBody:
    """What the body of an error says.

    Args:
        value: The body as JSON; a body that is no JSON is given as its text.
    """
    body = _first(value)
    if not isinstance(body, dict):
        return ErrorBody(message="" if body is None else str(body))
    error, code = body, ""
    while inner := _first(error.get("error") or error.get("errors")):
        if not isinstance(inner, dict):
            code = as_text(inner)
            break
        error = inner
    parts = [*_parts(error), {key: part for key, part in body.items() if key != "type"}]  # its type says "error" only
    words = (as_text(part.get(key)) for part in parts for key in _WORDS)
    return ErrorBody(
        message="; ".join(dict.fromkeys(filter(None, _texts(code, error, body, parts)))),
        words=frozenset(plain(word[:_LONGEST_WORD]) for word in (code, *words) if word),
        status=next((status for part in (error, body) if (status := _status(part))), None),
        delay=next(
            (str(d)[:_LONGEST_WORD] for part in parts for key in ("retryDelay", "retry_after") if (d := part.get(key))),
            "",
        ),
        request_id=as_text(body.get("request_id")) or as_text(error.get("request_id")),
    )


def _first(value: JsonValue) -> JsonValue:
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def _texts(
    code: str, error: dict[str, JsonValue], body: dict[str, JsonValue], parts: list[dict[str, JsonValue]]
) -> Iterator[str]:
    """All that is worth showing: the server's words, those of a provider behind a router, exceeded quotas."""
    yield code
    yield _message(error) or _message(body)
    yield as_text(as_dict(error.get("metadata")).get("raw"))  # OpenRouter, "Errors"
    yield from (as_text(part.get("quotaId")) for part in parts)  # google.rpc.QuotaFailure


def _parts(error: dict[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """The error and what it holds: Google's details, Azure's inner error, OpenRouter's metadata."""
    yield error
    for key in ("innererror", "inner_error", "metadata"):
        yield as_dict(error.get(key))
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        yield as_dict(detail)
        violations = as_dict(detail).get("violations")
        yield from (as_dict(violation) for violation in violations) if isinstance(violations, list) else ()


def _message(part: dict[str, JsonValue]) -> str:
    for key in _MESSAGES:
        said = part.get(key)
        if isinstance(said, str) and said:
            return said
        if isinstance(said, list):
            return "; ".join(filter(None, map(_complaint, said)))
        if isinstance(said, dict):
            return _message(said)
    return ""


def _complaint(entry: JsonValue) -> str:
    """One of FastAPI's validation errors as ``where: what``."""
    where = as_dict(entry).get("loc")
    place = ".".join(str(step) for step in where) if isinstance(where, list) else ""
    what = as_text(as_dict(entry).get("msg")) or as_text(entry)
    return f"{place}: {what}" if place else what


def _status(part: dict[str, JsonValue]) -> int | None:
    for key in _STATUSES:
        said = part.get(key)
        if isinstance(said, str) and said.isdecimal() and len(said) == len("400"):
            said = int(said)
        if isinstance(said, int) and said in _HTTP_ERRORS:
            return said
    return None
