"""Where requests go, and the headers that each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from turnstile.core.errors import ConfigurationError


class Address(NamedTuple):
    """An address that requests go to.

    Attributes:
        url: The whole address.
        shown: The base as it may be shown: without its query, which may hold a key.
        host: The name of the server.
        secrets: What stands in the query, and must not be shown.
    """

    url: str
    shown: str
    host: str
    secrets: tuple[str, ...]


def address_of(base_url: str, path: str, example: str, *, ending: str = "") -> Address:
    """The address of one service of a server.

    Args:
        base_url: The server's address, as a user gives it.
        path: What is added to its path, unless the path ends in it already.
        example: An address that can be used, for the error.
        ending: A beginning of `path` that some write at the end of `base_url`, and others do not.

    Raises:
        ConfigurationError: It is no address, or holds a password.
    """
    try:
        parts = urlsplit(base_url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, valid = urlsplit(""), False
    shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if not valid:
        raise ConfigurationError(f"base_url is an address such as {example!r}; got {shown!r}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"base_url {shown!r} may not hold a user and a password; give headers={{'authorization': …}} instead"
        )
    base = parts.path.rstrip("/").removesuffix(path).removesuffix(ending)
    whole = urlunsplit((parts.scheme, parts.netloc, base + path, parts.query, ""))
    return Address(whole, shown, parts.hostname or "", tuple(dict(parse_qsl(parts.query)).values()))


def headers_of(api_key: str, header: str, form: str, more: Mapping[str, str]) -> dict[str, str]:
    """The headers of each request; a key is put in as it is, so it must be one.

    Args:
        api_key: The key; an empty one is not sent.
        header: The header that carries it.
        form: How it stands in there, such as ``Bearer {}``.
        more: Headers of the user's, which go before ours.

    Raises:
        ConfigurationError: The key is none.
    """
    key = api_key.strip()  # a key read from a file ends in a line break
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("the api_key holds characters that no header can carry; copy the key again")
    headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
    if key:
        headers[header] = form.format(key)
    return headers | {name.lower(): text for name, text in more.items()}
