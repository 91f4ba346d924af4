"""The format of scripted exchanges: what is sent for one, byte for byte; `WireServer` says what its keys mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from turnstile.core.errors import ConfigurationError

Script = Mapping[str, object]

_KEYS = {
    "status",
    "headers",
    "body",
    "text",
    "sse",
    "raw_text_chunks",
    "raw_hex_chunks",
    "repeat",
    "eol",
    "end",
}
_ENDS = ("close", "reset", "hang")


def body_pieces(exchange: Script) -> Iterator[bytes]:
    """The body in the pieces that it is sent in."""
    if "body" in exchange:
        yield json.dumps(exchange["body"]).encode()
    eol = str(exchange.get("eol", "\n"))
    for text in _texts(exchange, "text"):
        yield text.encode()
    for event in _texts(exchange, "sse"):
        yield (event.replace("\n", eol) + eol + eol).encode()
    for text in _texts(exchange, "raw_text_chunks"):
        yield text.encode()
    for text in _texts(exchange, "raw_hex_chunks"):
        yield bytes.fromhex(text)


def _texts(exchange: Script, key: str) -> Sequence[str]:
    given = exchange.get(key, ())
    return [given] if isinstance(given, str) else list(given)  # type: ignore[call-overload]


def headers_for(exchange: Script, pieces: list[bytes]) -> tuple[dict[str, str], bool]:
    """The headers, and whether the body is sent in chunks."""
    given: Mapping[str, str] = exchange.get("headers", {})  # type: ignore[assignment]
    own = {name.lower(): text for name, text in given.items()}
    if own.keys() & {"content-length", "transfer-encoding"}:
        return {**own, "connection": "close"}, False
    whole = ("body" in exchange or "text" in exchange) and exchange.get("end", "close") == "close"
    kind = "application/json" if "body" in exchange else "text/plain; charset=utf-8"
    if whole or not pieces:
        return {"content-type": kind, **own, "content-length": str(sum(map(len, pieces)))}, False
    streams = {"connection": "close"} if exchange.get("end", "close") == "close" else {}
    kind = "text/event-stream" if "sse" in exchange else kind
    return {"content-type": kind, **own, "transfer-encoding": "chunked", **streams}, True


def status_line(status: object, headers: Mapping[str, str]) -> bytes:
    """All that stands before the body."""
    code = int(str(status))
    phrase = HTTPStatus(code).phrase if code in list(HTTPStatus) else "Unknown"
    lines = [f"HTTP/1.1 {code} {phrase}", *(f"{name}: {text}" for name, text in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def repeated(exchange: Script) -> Iterator[Script]:
    """The exchange as often as it says, ``{n}`` replaced by the number of each."""
    if "repeat" not in exchange:
        yield exchange
        return
    for number in range(1, int(str(exchange["repeat"])) + 1):
        yield {key: _numbered(part, number) for key, part in exchange.items()}


def _numbered(part: object, number: int) -> object:
    if isinstance(part, str):
        return part.replace("{n}", str(number))
    if isinstance(part, Mapping):
        return {key: _numbered(inner, number) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return [_numbered(inner, number) for inner in part]
    return part


def check(exchange: object, what: str) -> None:
    """Refuse what is no exchange.

    Raises:
        ConfigurationError: It is no mapping, or has a key or an end that is none.
    """
    if not isinstance(exchange, Mapping):
        raise ConfigurationError(f"{what} is a mapping such as {{'status': 200, 'body': …}}; got {exchange!r}")
    if unknown := exchange.keys() - _KEYS:
        raise ConfigurationError(
            f"{what} has the unknown key {min(unknown)!r}; the keys are {', '.join(sorted(_KEYS))}"
        )
    if exchange.get("end", "close") not in _ENDS:
        raise ConfigurationError(f"{what}: end is one of {', '.join(_ENDS)}; got {exchange['end']!r}")
