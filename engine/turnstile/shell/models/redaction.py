"""`Redactor`: makes one short line, free of keys, of any text that a server or a library gave us.

A server may echo the key that it refuses, whole, shortened or inside an address. What we know to be secret is taken out
wherever it stands, also when only its beginning does; what looks like a key of somebody is `redact`'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from turnstile.core.redact import REDACTED, redact

LONGEST = 500  # characters of a message: enough for every provider's own words, too little for a page of HTML
LOOKED_AT = 64 * 1024  # characters of the original that are looked at, so that a body of megabytes costs nothing
SURE = 8  # characters of a key from which on it cannot be an ordinary word

_NOT_SHOWN = re.compile(r"[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]+")
_PARAMETER = re.compile(r"(?i)([?&](?:key|sig|signature|code)=)[^&\s\"']+")


class Redactor:
    """Cleans text of the secrets it was given and of what looks like one.

    Args:
        secrets: What must never be shown; empty ones are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""))}
        patterns = [_pattern(secret) for secret in sorted(known, key=len, reverse=True)]
        self._known = re.compile("|".join(patterns)) if patterns else None
        self._labels = lru_cache(64)(self.__call__)

    def __repr__(self) -> str:
        return "Redactor()"

    def __call__(self, text: str, *, longest: int = LONGEST) -> str:
        """The text on one line, without secrets and control characters, and not longer than `longest`."""
        text = _NOT_SHOWN.sub(" ", text[:LOOKED_AT])
        if self._known:
            text = self._known.sub(REDACTED, text)
        text = redact(_PARAMETER.sub(rf"\1{REDACTED}", text)).strip()
        return text if len(text) <= longest else text[: longest - 1] + "…"

    def label(self, text: str, *, longest: int) -> str:
        """As a call does, for what comes back with each answer, such as the name of a model: it is looked at once."""
        return self._labels(text, longest=longest)


def _pattern(secret: str) -> str:
    """Finds a secret whole or from its beginning on; a short one, such as ``EMPTY``, only as a word of its own."""
    if len(secret) < SURE:
        return rf"(?<!\w){re.escape(secret)}(?!\w)"
    return rf"{re.escape(secret)}|{re.escape(secret[:SURE])}[\w.*…%+/=~-]*"
